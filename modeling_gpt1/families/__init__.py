"""Which model is this? Each kind of model is a [`Family`], found here by a model, a configuration or a checkpoint.

A new family is an object in a file of this folder, and a line in `FAMILIES`; or in `GENERAL_FAMILIES`, if its models
are only opened and fine-tuned.
"""

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from tokenization.errors import UserError

from ..configuration_gpt1 import GPT1Config, check_place
from .adapters import without_adapter
from .base import SIZES, Family
from .decoder import DECODER, GPT2
from .encoder import ALBERT, BERT, ENCODER, ROBERTA
from .encoder_decoder import BART, ENCODER_DECODER
from .gpt1 import GPT1, GPT1_LSTM, GPT3, OPENED_TYPES

# Those that can be pre-trained, by name.
FAMILIES: dict[str, Family] = {
    family.name: family for family in (GPT1, GPT1_LSTM, GPT2, GPT3, BERT, ROBERTA, ALBERT, BART)
}
# Those of all other models of transformers.
GENERAL_FAMILIES: tuple[Family, ...] = (ENCODER_DECODER, ENCODER, DECODER)


def family_of_model(model: torch.nn.Module) -> Family:
    """The family of a model, also of one with an adapter of PEFT around it."""
    own_model: PreTrainedModel = without_adapter(model)
    return family_of_config(own_model.config)


def family_of_config(config: PreTrainedConfig) -> Family:
    """The family of the models that a configuration describes.

    GPT-3 is a configuration of GPT-1. A configuration of openai-gpt or GPT-2 is of transformers' own classes.
    """
    for family in (*FAMILIES.values(), *GENERAL_FAMILIES):
        if family.describes(config):
            return family
    raise UserError(
        f"No model of this package has a configuration of type {config.model_type!r}. Pass one of another model."
    )


def family_of_checkpoint(checkpoint: str, auto_model: bool = False, trust_remote_code: bool = False) -> Family:
    """The family that opens a folder or hub id.

    Folders of openai-gpt and GPT-2 open as GPT-1, unless they were fine-tuned here with transformers' own classes.

    Args:
        auto_model: open openai-gpt and GPT-2 by transformers' own classes.
        trust_remote_code: run the code that the configuration brings.
    """
    check_place(checkpoint)
    content = PreTrainedConfig.get_config_dict(checkpoint)[0]
    model_type = content.get("model_type")
    is_opened = model_type in OPENED_TYPES and not auto_model and "traversal" not in content
    # None: PEFT saves an adapter without a configuration.
    if is_opened or model_type in (None, GPT1Config.model_type):
        return GPT1
    if model_type == GPT1_LSTM.config_class.model_type:
        return GPT1_LSTM
    return family_of_config(AutoConfig.from_pretrained(checkpoint, trust_remote_code=trust_remote_code))


def family_to_pretrain(checkpoint: str) -> Family:
    """The family of a folder or hub id whose pre-training goes on. openai-gpt and GPT-2 open as GPT-1.

    Raises:
        ValueError: it is of no family that can be pre-trained here.
    """
    model_type, family = _language_model_of(checkpoint)
    if family is None:
        raise UserError(
            f"{checkpoint} is a model of type {model_type!r}, which cannot be pre-trained here. Pass a model of one "
            f"of the families {', '.join(FAMILIES)}, or --family to train a new one."
        )
    return family


def family_to_generate(checkpoint: str) -> Family:
    """The family of a folder or hub id that continues texts. openai-gpt and GPT-2 open as GPT-1.

    Raises:
        ValueError: `continue_prompts` knows no models of its family.
    """
    model_type, family = _language_model_of(checkpoint)
    if family is None or not family.can_generate:
        known = [family.config_class.model_type for family in FAMILIES.values() if family.can_generate]
        types = ", ".join(dict.fromkeys([*known, *OPENED_TYPES]))
        raise UserError(f"{checkpoint} is a {model_type}. Pass a language model of one of the types {types}.")
    return family


def _language_model_of(checkpoint: str) -> tuple[str | None, Family | None]:
    """The model type of a folder or hub id, and the family that opens it as a language model, if it is one of ours."""
    model_type = PreTrainedConfig.get_config_dict(checkpoint)[0].get("model_type")
    if model_type is None or model_type in OPENED_TYPES:
        return model_type, GPT1
    for family in FAMILIES.values():
        if model_type == family.config_class.model_type:
            return model_type, family
    return model_type, None


__all__ = [
    "FAMILIES",
    "GENERAL_FAMILIES",
    "SIZES",
    "Family",
    "family_of_checkpoint",
    "family_of_config",
    "family_of_model",
    "family_to_generate",
    "family_to_pretrain",
    "without_adapter",
]
