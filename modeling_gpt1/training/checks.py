"""Checks of what a trainer is given, before any work is done."""

import inspect
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import DataCollatorWithPadding, Trainer, TrainingArguments, default_data_collator
from transformers.trainer_utils import has_length

from tokenization import TraversalCollator
from tokenization.errors import UserError
from tokenization.wording import nearest

from ..families import without_adapter
from .arguments import GPT1TrainingArguments


def check_kinds(model: Any, args: Any) -> None:
    """Refuses the name of a model, and arguments that are none."""
    if isinstance(model, str):
        raise UserError(f"`model` is {model!r}. Pass an opened model, as `from_pretrained` returns it.")
    if not isinstance(args, TrainingArguments | None):
        raise UserError(f"`args` is {args!r:.99}. Pass a `GPT1TrainingArguments` or a `GPT1PretrainingArguments`.")


def check_names(names: Iterable[str], args: TrainingArguments | None) -> None:
    """Refuses names that `Trainer` does not take, if they belong to its arguments or are those of earlier releases."""
    kind = GPT1TrainingArguments if args is None else type(args)
    of_trainer = inspect.signature(Trainer.__init__).parameters
    for name in names:
        if name in of_trainer:
            continue
        if name in kind.__dataclass_fields__:
            how = f"Pass it to the arguments: `args={kind.__name__}(…, {name}=…)`"
        elif name == "tokenizer":
            how = "Pass it as `processing_class`"
        else:
            continue  # Python names it
        raise UserError(f"The trainer takes no `{name}`. {how}.")


def check_rows(argument: str, rows: Any, collator: Any) -> None:
    """Refuses rows that no collator reads, and those that the default collators cannot encode."""
    if rows is None:
        return
    if isinstance(rows, dict):
        raise UserError(f"`{argument}` has the splits {', '.join(rows)}. Pass one of them: `rows['train']`.")
    if isinstance(rows, str) or hasattr(rows, "iloc"):  # the latter is a table of pandas
        kind = type(rows).__name__
        raise UserError(f"`{argument}` is a {kind}. Pass rows, as `load_files` or `load_blocks` gives them.")
    if has_length(rows) and not len(rows):
        raise UserError(f"`{argument}` has no rows. Pass at least one, or leave it out.")
    if isinstance(rows, list | tuple) and isinstance(rows[0], str):
        how = "`load_blocks` makes rows for pre-training of the files of a corpus, and `load_files` rows of a task"
        raise UserError(f"`{argument}` has the text {rows[0]!r:.60} as a row. Pass rows with columns: {how}.")
    is_default = collator is default_data_collator or type(collator) is DataCollatorWithPadding
    columns = getattr(rows, "column_names", None)  # of data sets of `datasets`; None if nobody knows them
    if is_default and columns and {"input_ids", "inputs_embeds"}.isdisjoint(columns):
        raise UserError(f"`{argument}` has no `input_ids`. Pass the `data_collator` that encodes its rows.")


def check_inputs_for_metrics(args: TrainingArguments, collator: Any) -> None:
    """Refuses inputs for a metric that transformers could not join: those of three dimensions and several lengths."""
    wants_inputs = "inputs" in args.include_for_metrics
    if wants_inputs and isinstance(collator, TraversalCollator) and collator.makes_several_sequences:
        raise UserError(
            f"`include_for_metrics` has 'inputs', but a row of the traversal {collator.traversal!r} is several "
            "sequences, and transformers joins only batches that have one of each row. Leave 'inputs' out: the rows "
            "of `eval_dataset` come in the order of the predictions."
        )


def check_best_score(name: str, scores: list[str]) -> None:
    """Refuses a score that no evaluation has, by which the best checkpoint would be chosen."""
    if name.removeprefix("eval_") not in scores:
        needed = f"Pass one that an evaluation has: {', '.join(scores)}"
        raise UserError(f"`metric_for_best_model` is {name!r}{nearest(name, scores)}. {needed}.")


def check_adapter(model: Any, collator: Any) -> None:
    """Refuses an adapter of PEFT that moves the tokens which the task head reads."""
    adapter = getattr(model, "active_peft_config", None)  # only a model of PEFT has one
    if adapter is not None and adapter.is_prompt_learning and isinstance(collator, TraversalCollator):
        raise UserError(
            f"The adapter puts virtual tokens before each sequence ({adapter.peft_type.value}), but the collator's "
            "`mc_token_ids` do not count them, so the task head would read other tokens. Use LoRA or another adapter "
            "that leaves the sequences as they are."
        )


def check_folder_of_adapter(model: Any, folder: str | os.PathLike) -> None:
    """Refuses to save an adapter of PEFT in the folder of the model that it is trained on, whose files would go."""
    if without_adapter(model) is model:
        return
    for adapter in model.peft_config.values():
        base = adapter.base_model_name_or_path
        if base and Path(base).is_dir() and Path(base).resolve() == Path(folder).resolve():
            raise UserError(
                f"The adapter is trained on the model in {base}, whose files it would replace if it were saved there. "
                "Pass another folder."
            )
