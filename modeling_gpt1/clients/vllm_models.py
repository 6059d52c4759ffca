"""GPT-1 as vLLM runs it: the decoder with vLLM's attention, under the language-model head or the task head."""

import re
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForSequenceClassification, PreTrainedConfig
from vllm.model_executor.layers.pooler import DispatchPooler
from vllm.model_executor.models.interfaces import SupportsCrossEncoding
from vllm.model_executor.models.interfaces_base import VllmModelForPooling
from vllm.model_executor.models.transformers import TransformersForCausalLM
from vllm.model_executor.models.transformers.base import Base
from vllm.model_executor.models.utils import WeightsMapper

from ..configuration_gpt1 import TRAVERSALS, GPT1Config, UserError

if TYPE_CHECKING:
    from vllm.config import VllmConfig

# Names in a saved folder and in vLLM's model, as regular expressions. vLLM looks at them first: later rules of its own
# would drop every name with `score.bias`. None leaves out the head that is not asked for.
NAMES_OF_CLASSIFIER = {re.compile(r"^task_head\.score\."): "classifier.", re.compile(r"^lm_head\."): None}
NAMES_OF_LANGUAGE_MODEL = {re.compile(r"^task_head\."): None}


def check_decoder(config: PreTrainedConfig) -> None:
    """Refuses the LSTM, which has no attention for vLLM to compute, and dialogue models."""
    if config.model_type != GPT1Config.model_type:
        raise UserError(
            f"The model is of the type {config.model_type!r}, but vLLM runs the Transformer alone: it keeps keys and "
            "values of attention, and an LSTM has none. Use `gpt1 serve`, `gpt1 generate` or `gpt1 predict`."
        )
    if config.speaker_token_ids is not None:
        raise UserError(
            "The model is a dialogue model, which reads with each token who says it (`speaker_token_ids`), but vLLM "
            "passes tokens alone. Use `gpt1 serve`."
        )


def check_one_sequence(config: PreTrainedConfig) -> None:
    """Refuses a classifier that reads several sequences for each example."""
    if config.traversal is not None and TRAVERSALS[config.traversal].num_sequences != 1:
        raise UserError(
            f"The model's traversal is {config.traversal!r}, which reads several sequences for each example, but vLLM "
            "scores sequences one by one. Use `gpt1 serve` or `gpt1 predict`."
        )


class GPT1LanguageModel(TransformersForCausalLM):
    """Continues texts."""

    def __init__(self, *, vllm_config: "VllmConfig", prefix: str = ""):
        check_decoder(vllm_config.model_config.hf_config)
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.hf_to_vllm_mapper |= WeightsMapper(orig_to_new_regex=NAMES_OF_LANGUAGE_MODEL)


class GPT1Classifier(SupportsCrossEncoding, VllmModelForPooling, Base):
    """Gives the scores of the classes, from the last token, which is the extract token."""

    default_seq_pooling_type = "LAST"

    def __init__(self, *, vllm_config: "VllmConfig", prefix: str = ""):
        model_config = vllm_config.model_config
        check_decoder(model_config.hf_config)
        check_one_sequence(model_config.hf_config)
        Base.__init__(self, vllm_config=vllm_config, prefix=prefix)
        self.hf_to_vllm_mapper |= WeightsMapper(orig_to_new_regex=NAMES_OF_CLASSIFIER)
        with torch.device("meta"):
            task_model = AutoModelForSequenceClassification.from_config(model_config.hf_config)
        self.classifier = task_model.task_head.score
        self.init_parameters(self.classifier, dtype=model_config.head_dtype)
        self.pooler = DispatchPooler.for_seq_cls(model_config.pooler_config, classifier=self.classifier)
