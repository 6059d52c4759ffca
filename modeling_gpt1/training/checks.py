"""Checks of what a trainer is given, before any work is done."""

from typing import Any

from transformers import DataCollatorWithPadding, TrainingArguments, default_data_collator
from transformers.trainer_utils import has_length

from tokenization import TraversalCollator
from tokenization.errors import UserError


def check_kinds(model: Any, args: Any) -> None:
    """Refuses the name of a model, and arguments that are none."""
    if isinstance(model, str):
        what = f"`model` is {model!r}"
    elif not isinstance(args, TrainingArguments | None):
        what = f"`args` is {args!r:.99}"
    else:
        return
    raise UserError(f"{what}. Pass a model that is open, and a `GPT1TrainingArguments` or its like.")


def check_rows(rows: Any, collator: Any) -> None:
    """Refuses rows that no collator reads, and those that the default collators cannot encode."""
    if rows is None:
        return
    if isinstance(rows, dict):
        raise UserError(f"`train_dataset` has the splits {', '.join(rows)}. Pass one, such as `rows['train']`.")
    if isinstance(rows, str) or hasattr(rows, "iloc"):  # the latter is a table of pandas
        kind = type(rows).__name__
        raise UserError(f"`train_dataset` is a {kind}. Pass rows, as `load_files` or `load_blocks` gives them.")
    if has_length(rows) and not len(rows):
        raise UserError("`train_dataset` has no rows. Pass at least one, or leave it out.")
    is_default = collator is default_data_collator or type(collator) is DataCollatorWithPadding
    columns = getattr(rows, "column_names", None)  # of data sets of `datasets`; None if nobody knows them
    if is_default and columns and {"input_ids", "inputs_embeds"}.isdisjoint(columns):
        raise UserError("`train_dataset` has no `input_ids`. Pass the `data_collator` that encodes its rows.")


def check_adapter(model: Any, collator: Any) -> None:
    """Refuses an adapter of PEFT that moves the tokens which the task head reads."""
    adapter = getattr(model, "active_peft_config", None)  # only a model of PEFT has one
    if adapter is not None and adapter.is_prompt_learning and isinstance(collator, TraversalCollator):
        raise UserError(
            f"The adapter puts virtual tokens before each sequence ({adapter.peft_type.value}), but the collator's "
            "`mc_token_ids` do not count them, so the task head would read other tokens. Use LoRA or another adapter "
            "that leaves the sequences as they are."
        )
