"""GPT-1 for transformers: models with double heads and trainers that keep the language-modelling objective."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from . import configuration_gpt1, configuration_gpt1_lstm, modeling_gpt1, modeling_gpt1_lstm
from .configuration_gpt1 import *
from .configuration_gpt1_lstm import *
from .modeling_gpt1 import *
from .modeling_gpt1_lstm import *

if TYPE_CHECKING:
    from .inference.generation import StopAtStrings, continue_prompts, reply_to
    from .inference.heuristics import HEURISTICS, Heuristic, evaluate_zero_shot, get_heuristic
    from .inference.quantization import GPT1Int8Config
    from .inference.scoring import CausalLMScorer, ContinuationScore, DenoisingLMScorer, MaskedLMScorer, ScoringRequest
    from .inference.surprisal import word_surprisals
    from .training.arguments import GPT1PretrainingArguments, GPT1TrainingArguments
    from .training.callbacks import SampleCallback
    from .training.families import FamilyPretrainingTrainer
    from .training.preparation import prepare_finetuning
    from .training.trainer import GPT1PretrainingTrainer, GPT1Trainer, TaskTrainer
    from .training.transfer import keep_first_layers

# Folder of the small model that comes with the package. The commands know it by the folder's name.
NOVELS = str(Path(__file__).parent / configuration_gpt1.PACKAGED_MODEL)

_AUTO_CLASSES = (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForMultipleChoice,
    AutoModelForTokenClassification,
    AutoModelForQuestionAnswering,
)
for _config, _models in ((GPT1Config, modeling_gpt1), (GPT1LSTMConfig, modeling_gpt1_lstm)):
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    for _auto_class in _AUTO_CLASSES:
        _, _name = _config.auto_classes[_auto_class.__name__].split(".")  # of the module and of the class
        _auto_class.register(_config, getattr(_models, _name), exist_ok=True)

# Located, not imported: importing another project's module of that name could run any code.
_file_of_tokenization = getattr(find_spec("tokenization"), "origin", None)
_has_tokenization = _file_of_tokenization == str(Path(__file__).parents[1] / "tokenization" / "__init__.py")
if _has_tokenization:
    from tokenization import GPT1Tokenizer, TraversalCollator, add_control_tokens

    AutoTokenizer.register(GPT1Config, GPT1Tokenizer, exist_ok=True)
    AutoTokenizer.register(GPT1LSTMConfig, GPT1Tokenizer, exist_ok=True)

# The rest is imported on demand: Trainer's imports take longer than all others together.
_ON_DEMAND = {
    ".inference.generation": ("StopAtStrings", "continue_prompts", "reply_to"),
    ".inference.heuristics": ("HEURISTICS", "Heuristic", "evaluate_zero_shot", "get_heuristic"),
    ".inference.quantization": ("GPT1Int8Config",),
    ".inference.scoring": (
        "CausalLMScorer",
        "ContinuationScore",
        "DenoisingLMScorer",
        "MaskedLMScorer",
        "ScoringRequest",
    ),
    ".inference.surprisal": ("word_surprisals",),
    ".training.arguments": ("GPT1PretrainingArguments", "GPT1TrainingArguments"),
    ".training.callbacks": ("SampleCallback",),
    ".training.families": ("FamilyPretrainingTrainer",),
    ".training.preparation": ("prepare_finetuning",),
    ".training.trainer": ("GPT1PretrainingTrainer", "GPT1Trainer", "TaskTrainer"),
    ".training.transfer": ("keep_first_layers",),
}
_MODULE_OF_NAME = {name: module for module, names in _ON_DEMAND.items() for name in names}


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    missing = None
    if name in _MODULE_OF_NAME:
        try:
            return getattr(import_module(_MODULE_OF_NAME[name], __name__), name)
        except ModuleNotFoundError as error:
            if _has_tokenization:
                raise
            missing = error
    raise ImportError(
        f"{name} needs the package `tokenization` that is installed with this one, but Python finds a module of that "
        f"name here first: {_file_of_tokenization}. Rename that file, or start Python in another folder."
    ) from missing


__all__ = [
    *configuration_gpt1.__all__,
    *configuration_gpt1_lstm.__all__,
    *modeling_gpt1.__all__,
    *modeling_gpt1_lstm.__all__,
    *_MODULE_OF_NAME,
    "NOVELS",
    "GPT1Tokenizer",
    "TraversalCollator",
    "add_control_tokens",
]
