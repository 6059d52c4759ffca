"""Models of other families on the tasks: their folders, heads, tokenizers and longest sequences."""

from transformers import (
    MODEL_FOR_MULTIPLE_CHOICE_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from tokenization import TraversalCollator
from tokenization.control_tokens import keep_text_as_text

from ..configuration_gpt1 import GPT1Config
from ..configuration_gpt1_lstm import GPT1LSTMConfig
from ..hub.model_kinds import HEADS, is_regression
from ..inference.lengths import longest_sequence
from ..inference.task_scores import TaskScores
from .checks import check_labels, check_length

logger = logging.get_logger(__name__)

OWN_TYPES = (GPT1Config.model_type, GPT1LSTMConfig.model_type)
# Folders of transformers that the classes of GPT-1 open.
OPENED_TYPES = ("openai-gpt", "gpt2")
DEFAULT_LENGTH = 512  # tokens, where neither model nor tokenizer has a limit


def is_of_other_family(config: dict, auto_model: bool = False) -> bool:
    """Whether the content of a `config.json` is that of a model which the classes of GPT-1 do not open.

    Args:
        auto_model: whether openai-gpt and GPT-2 are to be opened by transformers' own classes, too. Folders that
            were fine-tuned by those are recognised.
    """
    model_type = config.get("model_type")
    if model_type in OPENED_TYPES:
        return auto_model or "traversal" in config
    return model_type is not None and model_type not in OWN_TYPES


def open_family_config(checkpoint: str, trust_remote_code: bool = False) -> PreTrainedConfig:
    """The configuration of another family's folder or hub id, with the task's fields, None if it has no task."""
    config = AutoConfig.from_pretrained(checkpoint, trust_remote_code=trust_remote_code)
    for name in ("traversal", "columns"):
        setattr(config, name, getattr(config, name, None))
    return config


def open_family_tokenizer(name_or_path: str, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub id. Without a padding token it pads with its end-of-text token.

    Raises:
        ValueError: it has neither.
    """
    tokenizer = AutoTokenizer.from_pretrained(name_or_path, trust_remote_code=trust_remote_code)
    pad_with_end(tokenizer)
    keep_text_as_text(tokenizer)
    return tokenizer


def pad_with_end(tokenizer: PreTrainedTokenizerBase) -> None:
    if tokenizer.pad_token is not None:
        return
    if tokenizer.eos_token is None:
        raise ValueError(
            f"{type(tokenizer).__name__} has neither a padding nor an end-of-text token, but batches are padded. Set "
            "its `pad_token` to a token of its vocabulary, and save it."
        )
    tokenizer.pad_token = tokenizer.eos_token
    logger.warning(
        f"The tokenizer has no padding token, so it pads with its end-of-text token, {tokenizer.eos_token}."
    )


def auto_class_of(config: PreTrainedConfig, traversal: str, name: str, trust_remote_code: bool = False):
    """The Auto class that opens a model with the head of a traversal.

    Raises:
        ValueError: transformers has no such head for models of this type.
    """
    if traversal == "multiple_choice":
        auto_class, models = AutoModelForMultipleChoice, MODEL_FOR_MULTIPLE_CHOICE_MAPPING
    else:
        auto_class, models = AutoModelForSequenceClassification, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    brings_one = trust_remote_code and auto_class.__name__ in (getattr(config, "auto_map", None) or {})
    if type(config) not in models and not brings_one:
        raise ValueError(
            f"{name} is a model of type {config.model_type!r}, for which transformers has no {auto_class.__name__}, "
            f"the head of {traversal}. Pass a model of a type that has one, such as 'bert'."
        )
    return auto_class


def check_has_head(model: PreTrainedModel) -> None:
    """
    Raises:
        ValueError: the model has no head for a task, or reads no tokens.
    """
    if model.main_input_name != "input_ids":
        raise ValueError(
            f"{type(model).__name__} reads `{model.main_input_name}`, but the tasks are texts, which become "
            "`input_ids`. Pass a model that reads them, such as BERT."
        )
    if not type(model).__name__.endswith(HEADS):
        raise ValueError(
            f"GPT1Trainer fine-tunes models with a task head, but {type(model).__name__} has none. Open the "
            "checkpoint with `prepare_finetuning`, or pre-train it with GPT1PretrainingTrainer."
        )


def check_lm_coef(lm_coef: float | None, config: PreTrainedConfig) -> None:
    """
    Raises:
        ValueError: the auxiliary objective is asked of a model that has no language-modelling head.
    """
    if lm_coef:
        raise ValueError(
            f"`lm_coef` is {lm_coef}, but the classifiers of type {config.model_type!r} have no language-modelling "
            "head beside the task's: only GPT-1's double heads have the auxiliary objective. Leave it out, or pass 0."
        )


def match_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Checks that the model has an embedding for every token, and completes each from the other.

    The configuration gets the id of padding; the tokenizer's maximum length is limited to the model's positions.

    Raises:
        ValueError: the tokenizer has more tokens than the model, or pads with the token whose place is scored.
    """
    num_embeddings = _num_embeddings(model)
    if num_embeddings is not None and len(tokenizer) > num_embeddings:
        raise ValueError(
            f"The tokenizer has {len(tokenizer)} tokens, but the model has embeddings for {num_embeddings}. Open the "
            "tokenizer saved with the model, or call `model.resize_token_embeddings(len(tokenizer))` and save it."
        )
    if model.config.is_encoder_decoder and tokenizer.pad_token_id == model.config.eos_token_id:
        raise ValueError(
            f"{type(model).__name__} scores at the last {tokenizer.pad_token}, which is also what the tokenizer pads "
            "with. Give the tokenizer another `pad_token`, of its vocabulary, and save it."
        )
    if not counts_positions_from_padding(model):
        _agree_on_padding(model.config.get_text_config(), tokenizer)
    longest = longest_sequence(model, tokenizer)
    if longest is not None:
        tokenizer.model_max_length = longest


def _num_embeddings(model: PreTrainedModel) -> int | None:
    """How many tokens the model has embeddings for; None where it has no table of them, as CANINE's hashes."""
    try:
        table = model.get_input_embeddings()
    except NotImplementedError:
        return None
    weight = getattr(table, "weight", None)
    return None if weight is None else len(weight)


def counts_positions_from_padding(model: PreTrainedModel) -> bool:
    """Whether positions begin after the id of padding, as RoBERTa's: another id would move them at the next load."""
    tables = (module for name, module in model.named_modules() if name.rpartition(".")[2] == "position_embeddings")
    return any(getattr(table, "padding_idx", None) is not None for table in tables)


def _agree_on_padding(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Decoders score the last token that their configuration does not call padding."""
    before, config.pad_token_id = config.pad_token_id, tokenizer.pad_token_id
    if before not in (None, tokenizer.pad_token_id):
        logger.warning(
            f"The model's configuration called the token {before} padding, but the tokenizer pads with "
            f"{tokenizer.pad_token_id}. The configuration was corrected."
        )


def check_collator_of_family(model: PreTrainedModel, data_collator) -> None:
    """Checks that a model and a TraversalCollator fit together, and completes each from the other.

    Raises:
        ValueError: form, traversal or labels differ, or sequences are longer than the model's positions.
    """
    if not isinstance(data_collator, TraversalCollator):
        return
    config = model.config
    if data_collator.is_of_gpt1:
        raise ValueError(
            f"The collator makes sequences of GPT-1, with control tokens, but the model is a {type(model).__name__}. "
            "Pass it the tokenizer of the model."
        )
    if (data_collator.traversal == "multiple_choice") != type(model).__name__.endswith("ForMultipleChoice"):
        raise ValueError(
            f"The collator makes {data_collator.traversal!r} batches, which {type(model).__name__} cannot score. Open "
            "the model with AutoModelForMultipleChoice for multiple_choice, else AutoModelForSequenceClassification."
        )
    check_length(data_collator, longest_sequence(model))
    _check_segments(model, data_collator)
    for name in ("traversal", "columns", "both_orders"):
        setattr(config, name, getattr(data_collator, name))
    if data_collator.traversal != "multiple_choice":
        check_labels(data_collator, is_regression(config), config.num_labels)


def _check_segments(model: PreTrainedModel, data_collator: TraversalCollator) -> None:
    num_segments = getattr(model.config, "type_vocab_size", None)
    last = data_collator.last_segment
    if num_segments and last >= num_segments and TaskScores(model).reads_segments:
        raise ValueError(
            f"{type(data_collator.tokenizer).__name__} writes the segments 0 to {last} (`token_type_ids`), but "
            f"{type(model).__name__} has {num_segments} (`type_vocab_size`). Give the tokenizer_config.json "
            'the entry "model_input_names": ["input_ids", "attention_mask"].'
        )
