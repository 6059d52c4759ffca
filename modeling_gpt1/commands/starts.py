"""What training starts from: a saved model, or a new one that flags describe."""

import ast
import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.hf_argparser import HfArg

from tokenization.errors import UserError
from tokenization.wording import nearest

from .. import GPT1Config
from ..families import FAMILIES, Family

# Fields of the configuration that follow from the tokenizer and the data.
DERIVED_FIELDS = (
    "vocab_size",
    "traversal",
    "columns",
    "num_labels",
    "id2label",
    "label2id",
    "problem_type",
    "trained_positions",
)


@dataclass
class ModelArguments:
    """Where model and tokenizer come from."""

    model: str | None = HfArg(
        default=None, help="Model to start from: a folder, hub id or gpt1-novels. Default: a new one."
    )
    config_overrides: str | None = HfArg(
        default=None, help="Sizes and other fields of a new model, such as hidden_size=256,num_hidden_layers=4."
    )
    family: str | None = HfArg(
        default=None, help="Architecture of a new model.", metadata={"choices": ["gpt1", "gpt1-lstm"]}
    )
    tokenizer_name: str | None = HfArg(default=None, help="Tokenizer: a folder or a hub id. Default: the model's.")
    allow_unknown_text: bool = HfArg(
        default=False, help="Train even if the tokenizer knows less than half of the tokens of a text."
    )
    license: str | None = HfArg(default=None, help="Licence in the model card, such as mit.")
    language: str | None = HfArg(default=None, help="Language in the model card, such as en.")

    def __post_init__(self):
        for flag, value in (("--config_overrides", self.config_overrides), ("--family", self.family)):
            if self.model is not None and value is not None:
                raise UserError(
                    f"{flag} {value} is for a new model, but --model {self.model} was given. Leave one of them out."
                )
        if self.model is None:
            self.parse_overrides()

    @property
    def new_family(self) -> Family:
        """The family of a new model."""
        return FAMILIES[self.family or "gpt1"]

    def parse_overrides(self) -> dict[str, Any]:
        """The fields that --config_overrides sets, for the configuration of the family."""
        family = self.new_family
        return parse_overrides(self.config_overrides or "", family.config_class, family.common_sizes)

    def make_config(self, tokenizer: PreTrainedTokenizerBase | None = None) -> PreTrainedConfig:
        """The configuration of a new model, by --family and --config_overrides. Checks that its sizes fit together."""
        family = self.new_family
        overrides = self.parse_overrides()
        try:
            config = family.make_config(tokenizer, **overrides)
            family.check_sizes(config)
        except (StrictDataclassError, TypeError, ValueError) as error:
            reason = error if isinstance(error, ValueError) else error.__cause__ or error
            raise UserError(f"--config_overrides {self.config_overrides}: {str(reason).rstrip('.')}.") from error
        return config


def parse_overrides(
    text: str, config_class: type[PreTrainedConfig] = GPT1Config, more: Collection[str] = ()
) -> dict[str, Any]:
    """`"hidden_size=256,resid_pdrop=0.0"` as keyword arguments of the configuration.

    `more` are names of sizes that the configuration's class calls otherwise.
    """
    own_fields = {field.name for field in dataclasses.fields(config_class)}
    fields = (own_fields | {*more}) - {*DERIVED_FIELDS}
    other_names = {*config_class.attribute_map} - {*DERIVED_FIELDS}
    overrides = {}
    for pair in text.split(","):
        if not pair.strip():
            continue
        name, _, value = (part.strip() for part in pair.partition("="))
        if name not in fields | other_names or not value:
            near = nearest(name, fields - {name}) or nearest(name, (fields | other_names) - {name})
            raise UserError(
                f"--config_overrides has {pair.strip()!r}{near}; field=value is needed, of a field of "
                f"{config_class.__name__} such as hidden_size=256 that does not come from the tokenizer or the data."
            )
        overrides[name] = parse_value(value)
    return overrides


def parse_value(text: str) -> Any:
    """A number, true, false, none or another literal of Python; else the text itself, such as gelu."""
    is_constant = text.lower() in ("true", "false", "none")
    try:
        return ast.literal_eval(text.capitalize() if is_constant else text)
    except (ValueError, SyntaxError):
        return text
