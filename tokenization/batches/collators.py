"""Collators: blocks of a corpus become batches for pre-training, rows of a task become batches for a task's head.

Source: sections 3.1 and 3.3 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018).
Shape legend: B examples, C sequences per example, T tokens.
"""

import math
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..rows.traversals import TRAVERSALS, ControlIds, Traversed, check_max_length, check_roles
from ..text.control_tokens import CONTROL_TOKENS, check_tokenizer
from ..text.forms import FamilyForm
from ..text.tokenization_gpt1 import GPT1Tokenizer
from .plan import BatchPlan, plan_batch, plan_blocks

NO_LABEL = -100  # torch's `ignore_index`; the losses leave such labels out
PLACE = "row of the file"  # a column of each row's place in its file, whatever rows were drawn or left out


@dataclass
class BlockCollator:
    """Makes a batch of blocks: pads shorter ones on the right. Rows without `labels` have every real token as a label.

    transformers' `DataCollatorForLanguageModeling` ignores every label with the id of the padding token. GPT-1 pads
    with its unknown token, so unknown characters would never be predicted.

    Args:
        tokenizer: pads the blocks.
        plan: whether batches carry a [`BatchPlan`], which GPT-1's models follow.
    """

    tokenizer: PreTrainedTokenizerBase
    plan: bool = True

    def __post_init__(self):
        check_tokenizer(self.tokenizer)

    def __call__(self, rows: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, "torch.Tensor | BatchPlan"]:
        """`input_ids`, `attention_mask` and `labels`, each `[B, T]`, and `plan`; labels are -100 at padding."""
        id_lists = {"input_ids": [np.asarray(row["input_ids"]).tolist() for row in rows]}
        batch = dict(self.tokenizer.pad(id_lists, padding_side="right", return_tensors="pt"))
        batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, NO_LABEL)
        for labels, row in zip(batch["labels"], rows, strict=True):
            if row.get("labels") is not None:  # such as of a dialogue whose prompts are no targets
                labels[: len(row["labels"])] = torch.as_tensor(row["labels"])
        return batch | {"plan": plan_blocks(batch["attention_mask"])} if self.plan else batch


@dataclass
class TraversalCollator:
    """Makes a batch of rows: encodes their texts in one call, builds the traversal's sequences, truncates and pads.

    No text becomes a control token, whatever it spells: the control ids are inserted between the ids of the texts.
    Pass the collator to Trainer as `data_collator` with `remove_unused_columns=False`. `check(dataset)` finds rows
    that would stop a training run.

    With the tokenizer of another family, such as BERT's or Llama's, the sequences have the form that this tokenizer
    gives to one text or a pair, with its special tokens and segments: a text; premise and hypothesis; text_a and
    text_b; the context and each choice, which begins with the question if there is one. It also cuts and pads them,
    on its own side. Sequences of GPT-1 are padded on the right.

    Args:
        tokenizer: a fast tokenizer with control tokens (`add_control_tokens(tokenizer, model)`) for GPT-1; without
            them any other, for models of its family.
        traversal: "classification", "entailment", "similarity" or "multiple_choice".
        columns: the column of each role, for example `{"text": "sentence", "label": "label"}`. The roles are `text`;
            `premise`, `hypothesis`; `text_a`, `text_b`; `context`, `choices` and, if there is one, `question`;
            `label` may be left out for prediction. A role may name several columns: their texts are joined by a
            space; for `choices`, each is one choice. A column may hold a list of texts, which is read in the same way.
            None after the last choice means that the row has fewer choices, and so does a blank column.
        max_length: maximum tokens of a sequence, control tokens included.
        pad_to_multiple_of: the padded length is rounded up to a multiple of this.
        num_labels: the number of classes. If it is given, labels are checked against it.
        multi_label: whether a row may have several: its label is then a list of 0 or 1 for each class.
        regression: whether labels are real numbers.
        hidden_label: the value that marks an unlabelled row, -1 in the test sets of GLUE; a batch of such rows has no
            labels. Set None where -1 is a real value, as it may be in regression.
        both_orders: whether models of other families read a similarity pair in both orders, as GPT-1 always does.
        plan: whether batches carry a [`BatchPlan`], which GPT-1's models follow. Set False for code that changes the
            masks of a batch or gives parts of it to several models.
    """

    tokenizer: PreTrainedTokenizerBase
    traversal: str
    columns: dict[str, str | list[str]]
    max_length: int = 512
    pad_to_multiple_of: int | None = None
    num_labels: int | None = None
    regression: bool = False
    hidden_label: int | None = -1
    both_orders: bool = False
    plan: bool = True
    multi_label: bool = False

    def __post_init__(self):
        check_tokenizer(self.tokenizer)
        check_roles(self.traversal, self.columns)
        self._kind = TRAVERSALS[self.traversal]
        if self.regression and self._kind.has_choices:
            raise UserError("multiple_choice does not support regression: its label is the right choice's index.")
        if self.both_orders and self.traversal != "similarity":
            raise UserError(f"both_orders is for pairs of similarity, not for {self.traversal}. Leave it out.")
        self._label_column = self.columns.get("label")
        if not isinstance(self._label_column, str | None):
            raise UserError(f"The role label needs the name of one column; it was given {self._label_column!r}.")
        # Whether the batches are in GPT-1's form, not in that of another family's tokenizer.
        self.is_of_gpt1 = reads_control_tokens(self.tokenizer)
        if self.is_of_gpt1:
            check_max_length(self.traversal, self.max_length, with_question="question" in self.columns)
            self._control = ControlIds.from_tokenizer(self.tokenizer)
        else:
            self._family = FamilyForm(self.tokenizer, self._kind, self.max_length)
        self._num_special = self._kind.num_control if self.is_of_gpt1 else self._family.num_special
        # Of data sets that `check` has read, by fingerprint: a sampler asks for the same lengths.
        self._lengths: dict[str, Sequence[int]] = {}
        # How many texts of a row come before its choices.
        self._num_shared = 1 + (self.is_of_gpt1 and "question" in self.columns)

    def __call__(self, rows: Sequence[Mapping]) -> dict[str, "torch.Tensor | BatchPlan"]:
        """Makes the batch of `rows`.

        Returns:
            `input_ids` and `attention_mask`, `[B, T]` for classification and entailment, `[B, C, T]` otherwise; of
            other families also `[B, T]` for similarity without `both_orders`;
            `mc_token_ids`, `[B]` or `[B, C]`, the position of `[e]`; of other families none, but `token_type_ids` if
            the tokenizer has them;
            `choice_mask`, bool `[B, C]`, only where the numbers of choices differ: False at an absent choice, whose
            tokens are all padding and whose `mc_token_ids` is 0; of other families, they repeat the first choice;
            `labels`, `[B]`, int64, or float32 for regression, `[B, K]` for `multi_label`, only where the rows have
            labels;
            `plan`, the batch's [`BatchPlan`], for GPT-1.

        Raises:
            ValueError: a row that cannot be used; the message names the row, what it holds and what is needed.
        """
        if isinstance(rows, Mapping) or not all(isinstance(row, Mapping) for row in rows):
            what = "one dict" if isinstance(rows, Mapping) else f"{rows[0]!r:.60}"
            raise UserError(f"A batch is a list of rows, each a dict of columns, but {what} was given. Pass `[row]`.")
        names = [f"Row {position} of the batch" for position in range(len(rows))]
        texts = [self._texts(row, name) for row, name in zip(rows, names, strict=True)]
        if self.is_of_gpt1:
            encoded = iter(self._encode(list(chain.from_iterable(texts))))
            examples = [self._traverse([next(encoded) for _ in row]) for row in texts]
            batch = self._pad_control_tokens([example.sequences for example in examples])
        else:
            batch = self._family.batch(texts, self.max_length, self.both_orders, self.pad_to_multiple_of)
        reads_pair_twice = self.traversal == "similarity" and (self.is_of_gpt1 or self.both_orders)
        if not self._kind.has_choices and not reads_pair_twice:
            batch = {name: tensor.squeeze(1) for name, tensor in batch.items()}  # [B, 1, T] -> [B, T]
        num_choices = [len(row) - self._num_shared for row in texts]
        labels = self._read_labels([row.get(self._label_column) for row in rows], names, num_choices)
        if labels is not None:
            batch["labels"] = labels
        if self.plan and self.is_of_gpt1:  # last: some libraries take a batch's size from its first value
            batch["plan"] = plan_batch(batch["attention_mask"], [example.num_shared for example in examples])
        return batch

    def check(
        self, rows: Iterable[Mapping], source: str = "the data", needs_labels: bool | None = None
    ) -> tuple[int, int]:
        """Reads a whole data set, so that a bad row stops a run before training and not half-way.

        Args:
            rows: the rows, for example a `datasets.Dataset`.
            source: name of the data in error messages.
            needs_labels: True where each row must have a label, as in training and evaluation; False where some may
                have none. Default: as in a batch, all or none.

        Returns:
            the number of examples, and how many of them `max_length` cuts.

        Raises:
            ValueError: the first row that cannot be used, as a batch would raise it.
        """
        counted = list(self._counted(rows, source))
        if not counted:
            raise UserError(f"There are no rows in {source}; at least one is needed. Add rows, or leave it out.")
        names, labels, num_choices, lengths = zip(*counted, strict=True)
        self._read_labels(labels, names, num_choices, needs_labels)
        if fingerprint := getattr(rows, "_fingerprint", None):
            self._lengths[fingerprint] = lengths
        return len(lengths), sum(length > self.max_length for length in lengths)

    def is_labelled(self, row: Mapping) -> bool:
        """Whether the row has a label that is not hidden."""
        return self._label_of(row.get(self._label_column)) is not None

    def lengths(self, rows: Iterable[Mapping]) -> list[int]:
        """Tokens of each row's longest sequence in a batch, so that rows of similar length can be batched together.

        Args:
            rows: the rows, for example a `datasets.Dataset`; or any object with `__len__` and `__getitem__`.

        Raises:
            ValueError: the first row that cannot be used, as a batch would raise it.
        """
        lengths = self._lengths.get(getattr(rows, "_fingerprint", None))
        if lengths is None:
            lengths = [length for *_, length in self._counted(rows, "the data")]
        return [min(length, self.max_length) for length in lengths]

    def _counted(self, rows: Iterable[Mapping], source: str) -> Iterator[tuple[str, Any, int, int]]:
        """Of each row its name, label and number of choices, and the tokens of its longest sequence before a cut."""
        if not isinstance(rows, Iterable):
            rows = map(rows.__getitem__, range(len(rows)))
        named = ((f"Row {row.get(PLACE, place)} of {source}", row) for place, row in enumerate(rows))
        while chunk := list(islice(named, 1024)):
            texts = [self._texts(row, name) for name, row in chunk]
            different = list(dict.fromkeys(chain.from_iterable(texts)))
            counts = dict(zip(different, map(len, self._encode(different)), strict=True))
            for (name, row), of_row in zip(chunk, texts, strict=True):
                lengths = [counts[text] for text in of_row]
                if 0 in lengths:
                    text = of_row[lengths.index(0)]
                    raise UserError(f"{name}: the text {text!r} has no tokens. Remove or correct the row.")
                num_shared = self._num_shared if self._kind.has_choices else len(lengths)
                longest = sum(lengths[:num_shared]) + max(lengths[num_shared:], default=0) + self._num_special
                yield name, row.get(self._label_column), len(lengths) - self._num_shared, longest

    def _read_labels(
        self, given: Sequence, names: Sequence[str], num_choices: Sequence[int], needed: bool | None = None
    ) -> torch.Tensor | None:
        """The labels of some rows; None where no row has one. For `needed` see `check`."""
        labels = [self._label_of(label) for label in given]
        is_hidden = [label is None for label in labels]
        if all(is_hidden) and not needed:
            return None
        if any(is_hidden) and needed is not False:
            row = is_hidden.index(True)
            others = "every row needs one for training and evaluation"
            if not needed:
                others = f"{names[is_hidden.index(False)]} has one, and a batch needs a label in every row or in none"
            real = f" If {given[row]!r} is a real label, set hidden_label=None." if given[row] is not None else ""
            raise UserError(
                f"{names[row]} has no label (column {self._label_column!r} holds {given[row]!r}); {others}. Label or "
                f"remove such rows.{real}"
            )
        for label, name, number in zip(labels, names, num_choices, strict=True):
            number = number if self._kind.has_choices else self.num_labels
            if self.multi_label:
                fits = isinstance(label, Sequence) and len(label) == number and {0, 1}.issuperset(label)
                form = f"0 or 1 for {number} classes"
            elif self.regression:
                fits = isinstance(label, numbers.Real) and math.isfinite(label) and label != NO_LABEL
                form = f"a finite number other than {NO_LABEL}, which the loss takes for no label"
            else:
                fits = isinstance(label, numbers.Integral) and 0 <= label < (number or math.inf)
                form = f"a class or choice, an integer from 0 (the first) {f'to {number - 1}' if number else 'up'}"
            if label is not None and not fits:
                how = "" if self._kind.has_choices else ", or map all, for example with Dataset.class_encode_column"
                raise UserError(
                    f"{name}: the label is {label!r} of type {type(label).__name__}; it needs {form}. Correct the "
                    f"row{how}."
                )
        dtype = torch.float32 if self.regression or self.multi_label else torch.int64
        return torch.tensor([label for label in labels if label is not None], dtype=dtype)

    def _label_of(self, given: Any) -> Any:
        """A label that a row holds; None where it is none, or the hidden one."""
        given = given.tolist() if hasattr(given, "tolist") else given  # numpy and torch of formatted data sets
        return None if given == self.hidden_label else given

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return self.tokenizer(
            texts, add_special_tokens=False, split_special_tokens=True, return_attention_mask=False, verbose=False
        )["input_ids"]

    def _traverse(self, segments: list[list[int]]) -> Traversed:
        if not self._kind.has_choices:
            return self._kind.write(*segments, self._control, self.max_length)
        context, *choices = segments
        question = choices.pop(0) if "question" in self.columns else ()
        return self._kind.write(context, choices, self._control, self.max_length, question)

    def _texts(self, row: Mapping, name: str) -> list[str]:
        """The row's texts in the order of their roles; of other families the question begins each choice."""
        roles = self._kind.roles
        if self._kind.has_choices:
            roles = ("context", "question") if "question" in self.columns else ("context",)
        texts = []
        for role in roles:
            values = self._values(row, role, name)
            others = [value for value in values if not isinstance(value, str)]
            texts.append(self._checked(others[0] if others else " ".join(values), role, name))
        choices = self._choices(row, name) if self._kind.has_choices else []
        if self.is_of_gpt1:
            return texts + choices
        if choices:
            context, *question = texts
            texts = [context, *(" ".join([*question, choice]) for choice in choices)]
        return list(map(self._family.as_text, texts))

    def _choices(self, row: Mapping, name: str) -> list[str]:
        column = self.columns["choices"]
        if isinstance(column, str) and isinstance(row.get(column), str):
            raise UserError(
                f"{name}: choices (column {column!r}) holds one text, {row[column]!r}; it needs a list of texts. If "
                "each choice has its own column, map choices to the list of them (in a command: choices=a,b)."
            )
        values = self._values(row, "choices", name)
        # A file without lists leaves the column of an absent choice blank.
        while values and (values[-1] is None or (not isinstance(column, str) and not str(values[-1]).strip())):
            values.pop()
        return [self._checked(value, "choices", name) for value in values or [None]]

    def _values(self, row: Mapping, role: str, name: str) -> list[Any]:
        columns = self.columns[role]
        values = []
        for column in [columns] if isinstance(columns, str) else columns:
            if column not in row:
                raise UserError(
                    f"{name} has no column {column!r}, which `columns` maps to {role}; its columns are: "
                    f"{', '.join(row)}. Correct `columns`; under Trainer set remove_unused_columns=False."
                )
            value = row[column]
            values.extend(value if isinstance(value, (list, tuple, np.ndarray)) else [value])
        return values

    def _checked(self, text: Any, role: str, name: str) -> str:
        if not isinstance(text, str) or not text.strip():
            raise UserError(
                f"{name}: {role} (column {self.columns[role]!r}) holds {text!r} of type {type(text).__name__}; it "
                "needs a text of at least one word. Remove or correct the row."
            )
        return text

    def _pad_control_tokens(self, examples: list[list[list[int]]]) -> dict[str, torch.Tensor]:
        # numpy needs a fraction of torch's time for short arrays and lists.
        num_choices = max(map(len, examples))
        filled = [sequences + [[]] * (num_choices - len(sequences)) for sequences in examples]
        lengths = np.array([list(map(len, sequences)) for sequences in filled])  # [B, C], 0 for an absent choice
        multiple = self.pad_to_multiple_of or 1
        length = math.ceil(int(lengths.max()) / multiple) * multiple
        is_real = np.arange(length) < lengths[..., None]  # [B, C, T]
        input_ids = np.full(is_real.shape, self.tokenizer.pad_token_id)
        input_ids[is_real] = np.fromiter(chain.from_iterable(chain.from_iterable(filled)), np.int64, lengths.sum())
        arrays = {
            "input_ids": input_ids,
            "attention_mask": is_real.astype(np.int64),
            "mc_token_ids": np.maximum(lengths - 1, 0),
        }
        batch = {name: torch.from_numpy(values) for name, values in arrays.items()}
        if not lengths.all():
            batch["choice_mask"] = torch.from_numpy(lengths > 0)
        return batch


def reads_control_tokens(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer is GPT-1's or has any of its control tokens; all others have a form of their own."""
    has_some = any(getattr(tokenizer, f"{name}_id", None) is not None for name in CONTROL_TOKENS)
    return has_some or isinstance(tokenizer, GPT1Tokenizer)
