"""Batches of a task's rows, for a model with a task head: texts become the traversal's sequences, labels a tensor.

Source: section 3.3 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018).
Shape legend: B examples, C sequences per example, T tokens, K classes.
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
from ..rows.columns import HIDDEN_LABEL, IGNORED_LABEL, PLACE, column_list
from ..rows.traversals import TRAVERSALS, check_max_length, check_roles
from ..text.control_tokens import CONTROL_TOKENS, check_tokenizer, encode_texts
from ..text.conversations import WrittenChat, is_conversation, speaker_types, write_conversation
from ..text.tokenization_gpt1 import GPT1Tokenizer
from .plan import BatchPlan, plan_batch
from .sequence_forms import ControlForm, OtherForm, too_long

ROWS_READ_AT_ONCE = 1024  # by a check of a data set


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
            None after the last choice means that the row has fewer choices, and so does a blank column. A column may
            also hold a conversation, a list of messages `{"role": …, "content": …}`, which the tokenizer's chat
            template writes; see `add_speaker_tokens`.
        max_length: maximum tokens of a sequence, control tokens included.
        pad_to_multiple_of: the padded length is rounded up to a multiple of this.
        num_labels: the number of classes. If it is given, labels are checked against it.
        multi_label: whether a row may have several: its label is then a list of 0 or 1 for each class.
        regression: whether labels are real numbers.
        hidden_label: the value that marks an unlabelled row, -1 in the test sets of GLUE; a batch of such rows has no
            labels. Set None where -1 is a real value, as it may be in regression.
        both_orders: whether models of other families read a similarity pair in both orders, as GPT-1 always does.
        lm_on_right_choice: whether the auxiliary loss reads the right choice alone, such as a dialogue's reply among
            distractors. Labelled batches then have an `lm_mask`.
        plan: whether batches carry a [`BatchPlan`], which GPT-1's models follow. Set False for code that changes the
            masks of a batch or gives parts of it to several models.

    Examples:
        >>> from tokenization import GPT1Tokenizer, TraversalCollator, add_control_tokens
        >>> tokenizer = GPT1Tokenizer.train(iter(["Don't go."] * 2), num_merges=50)
        >>> add_control_tokens(tokenizer)
        3
        >>> collator = TraversalCollator(tokenizer, "classification", {"text": "review", "label": "stars"})
        >>> batch = collator([{"review": "Go.", "stars": 1}])
        >>> tokenizer.decode(batch["input_ids"][0])
        '[s]go . [e]'
        >>> batch["labels"]
        tensor([1])
    """

    tokenizer: PreTrainedTokenizerBase
    traversal: str
    columns: dict[str, str | list[str]]
    max_length: int = 512
    pad_to_multiple_of: int | None = None
    num_labels: int | None = None
    regression: bool = False
    hidden_label: int | None = HIDDEN_LABEL
    both_orders: bool = False
    plan: bool = True
    multi_label: bool = False
    lm_on_right_choice: bool = False

    def __post_init__(self):
        check_tokenizer(self.tokenizer)
        check_roles(self.traversal, self.columns)
        self._kind = TRAVERSALS[self.traversal]
        if self.regression and self._kind.has_choices:
            raise UserError(
                f"`regression` is True, but a label of the traversal {self.traversal!r} is the index of the right "
                "choice. Leave `regression` out."
            )
        if self.both_orders and not self._kind.is_symmetric:
            raise UserError(
                "`both_orders` is True, but only the traversal 'similarity' reads a pair in both orders, and this one "
                f"is {self.traversal!r}. Leave `both_orders` out."
            )
        if self.lm_on_right_choice and not self._kind.has_choices:
            raise UserError(
                f"`lm_on_right_choice` is True, but the traversal {self.traversal!r} has no choices. Leave it out."
            )
        self._label_column = self.columns.get("label")
        if not isinstance(self._label_column, str | None):
            raise UserError(
                f"`columns` has {self._label_column!r} for the role label, which needs the name of one column."
            )
        self._text_roles = self._kind.text_roles(self.columns)
        # Whether the batches are in GPT-1's form, not in that of another family's tokenizer.
        self.is_of_gpt1 = reads_control_tokens(self.tokenizer)
        if self.is_of_gpt1:
            check_max_length(self.traversal, self.max_length, given_roles=self.columns)
            self._form = ControlForm(self.tokenizer, self._kind, self.columns)
        else:
            if self.lm_on_right_choice:
                raise UserError(
                    "`lm_on_right_choice` is True, but only GPT-1's models have the auxiliary loss that it is for. "
                    "Leave it out, or call `add_control_tokens(tokenizer, model)` first."
                )
            self._form = OtherForm(self.tokenizer, self.traversal, self._kind, self.max_length, self.both_orders)
        # Of data sets that `check` has read, by fingerprint: a sampler asks for the same lengths.
        self._lengths: dict[str, Sequence[int]] = {}

    @property
    def makes_several_sequences(self) -> bool:
        """Whether a row becomes several sequences, so that the `input_ids` of a batch have three dimensions."""
        if self._kind.has_choices:
            return True
        return self._kind.is_symmetric and (self.is_of_gpt1 or self.both_orders)

    def __call__(self, rows: Sequence[Mapping]) -> dict[str, "torch.Tensor | BatchPlan"]:
        """Makes the batch of `rows`.

        Returns:
            `input_ids` and `attention_mask`, `[B, T]` for classification and entailment, `[B, C, T]` otherwise; of
            other families also `[B, T]` for similarity without `both_orders`;
            `mc_token_ids`, `[B]` or `[B, C]`, the position of `[e]`; of other families none;
            `token_type_ids`, like `input_ids`, if the tokenizer has speakers: the id of the token of each token's
            speaker; of other families, if the tokenizer has them;
            `choice_mask`, bool `[B, C]`, only where the numbers of choices differ: False at an absent choice, whose
            tokens are all padding and whose `mc_token_ids` is 0; of other families, they repeat the first choice;
            `labels`, `[B]`, int64, or float32 for regression, `[B, K]` for `multi_label`, only where the rows have
            labels;
            `lm_mask`, bool `[B, C, T]`, with `lm_on_right_choice` where there are labels: True at the right choice and
            the `[e]` behind it;
            `plan`, the batch's [`BatchPlan`], for GPT-1.

        Raises:
            ValueError: a row that cannot be used; the message names the row, what it holds and what is needed.
        """
        if isinstance(rows, Mapping) or not all(isinstance(row, Mapping) for row in rows):
            what = "one dict" if isinstance(rows, Mapping) else f"{rows[0]!r:.60}"
            raise UserError(f"A batch is a list of rows, each a dict of columns, but {what} was given. Pass `[row]`.")
        names = [f"Row {position} of the batch" for position in range(len(rows))]
        texts = [self._texts(row, name) for row, name in zip(rows, names, strict=True)]
        try:
            batch, num_shared = self._form.batch(texts, self.max_length, self.pad_to_multiple_of)
        except UserError:
            self._name_text_without_tokens(texts, names)
            raise
        if self.is_of_gpt1:
            token_type_ids = speaker_types(batch["input_ids"], self.tokenizer)
            if token_type_ids is not None:
                batch["token_type_ids"] = token_type_ids
        if self._form.num_sequences == 1:
            batch = {name: tensor.squeeze(1) for name, tensor in batch.items()}  # [B, 1, T] -> [B, T]
        given_labels = [row.get(self._label_column) for row in rows]
        num_choices = [len(of_row) - self._form.num_before_choices for of_row in texts]
        labels = self._read_labels(given_labels, names, num_choices)
        if labels is not None:
            batch["labels"] = labels
            if self.lm_on_right_choice:
                batch["lm_mask"] = self._mask_of_right_choices(batch)
        if self.plan and num_shared is not None:  # last: some libraries take a batch's size from its first value
            batch["plan"] = plan_batch(batch["attention_mask"], num_shared)
        return batch

    def _name_text_without_tokens(self, texts: Sequence[Sequence[str]], names: Sequence[str]) -> None:
        """Raises UserError for the first text without tokens, if there is one."""
        for name, of_row in zip(names, texts, strict=True):
            for text, ids in zip(of_row, encode_texts(self.tokenizer, of_row), strict=True):
                if len(ids) == 0:
                    raise UserError(f"{name}: the text {text!r} has no tokens. Remove or correct the row.")

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
        names = [row.name for row in counted]
        labels = [row.label for row in counted]
        num_choices = [row.num_choices for row in counted]
        lengths = [row.length for row in counted]
        self._read_labels(labels, names, num_choices, needs_labels)
        if fingerprint := getattr(rows, "_fingerprint", None):
            self._lengths[fingerprint] = lengths
        num_cut = sum(length > self.max_length for length in lengths)
        return len(lengths), num_cut

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
            lengths = [row.length for row in self._counted(rows, "the data")]
        return [min(length, self.max_length) for length in lengths]

    def _counted(self, rows: Iterable[Mapping], source: str) -> Iterator["_CountedRow"]:
        """Reads the texts of rows, each different one of some rows once."""
        each = rows if isinstance(rows, Iterable) else map(rows.__getitem__, range(len(rows)))
        named = ((f"Row {row.get(PLACE, place)} of {source}", row) for place, row in enumerate(each))
        while chunk := list(islice(named, ROWS_READ_AT_ONCE)):
            texts = [self._texts(row, name) for name, row in chunk]
            different = list(dict.fromkeys(chain.from_iterable(texts)))
            id_lists = encode_texts(self.tokenizer, different)
            num_tokens = {text: len(ids) for text, ids in zip(different, id_lists, strict=True)}
            for (name, row), of_row in zip(chunk, texts, strict=True):
                for text in of_row:
                    if num_tokens[text] == 0:
                        raise UserError(f"{name}: the text {text!r} has no tokens. Remove or correct the row.")
                num_choices = len(of_row) - self._form.num_before_choices
                length = self._form.longest([num_tokens[text] for text in of_row])
                if length > self.max_length and any(isinstance(text, WrittenChat) for text in of_row):
                    raise UserError(f"{name}: {too_long(length, self.max_length)}")
                yield _CountedRow(name, row.get(self._label_column), num_choices, length)

    def _mask_of_right_choices(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """True at the tokens of the right choice of each row, and at the `[e]` behind them: `[B, C, T]`."""
        input_ids = batch["input_ids"]
        is_behind_delimiter = (input_ids == self.tokenizer.delimiter_token_id).cumsum(-1).roll(1, -1) > 0
        is_behind_delimiter[..., 0] = False
        is_right = torch.arange(input_ids.shape[1]) == batch["labels"][:, None]
        return is_behind_delimiter & batch["attention_mask"].bool() & is_right[..., None]

    def _read_labels(
        self, given: Sequence, names: Sequence[str], num_choices: Sequence[int], needed: bool | None = None
    ) -> torch.Tensor | None:
        """The labels of some rows; None where no row has one. For `needed` see `check`."""
        labels = [self._label_of(label) for label in given]
        is_hidden = [label is None for label in labels]
        if all(is_hidden) and not needed:
            return None
        if any(is_hidden) and needed is not False:
            self._refuse_missing_label(given, names, is_hidden, needed)
        kept = []
        for label, name, of_row in zip(labels, names, num_choices, strict=True):
            if label is not None:
                self._check_label(label, name, of_row)
                kept.append(label)
        dtype = torch.float32 if self.regression or self.multi_label else torch.int64
        return torch.tensor(kept, dtype=dtype)

    def _refuse_missing_label(
        self, given: Sequence, names: Sequence[str], is_hidden: list[bool], needed: bool | None
    ) -> None:
        row = is_hidden.index(True)
        held = given[row]
        if needed:
            why = "every row needs one for training and evaluation"
        else:
            other = names[is_hidden.index(False)]
            why = f"{other} has one, and a batch needs a label in every row or in none"
        real = f" If {held!r} is a real label, pass `hidden_label=None`." if held is not None else ""
        raise UserError(
            f"{names[row]} has no label (column {self._label_column!r} holds {held!r}); {why}. Label or remove such "
            f"rows.{real}"
        )

    def _check_label(self, label: Any, name: str, num_choices: int) -> None:
        if self.multi_label:
            fits = isinstance(label, Sequence) and len(label) == self.num_labels and {0, 1}.issuperset(label)
            needed = f"a list of 0 or 1 for each of {self.num_labels} classes"
        elif self.regression:
            fits = isinstance(label, numbers.Real) and math.isfinite(label) and label != IGNORED_LABEL
            needed = f"a finite number other than {IGNORED_LABEL}, which the loss takes for no label"
        else:
            number = num_choices if self._kind.has_choices else self.num_labels
            fits = isinstance(label, numbers.Integral) and 0 <= label < (number or math.inf)
            end = f"to {number - 1}" if number else "up"
            thing = "choice" if self._kind.has_choices else "class"
            needed = f"the index of a {thing}, an integer from 0 {end}"
        if not fits:
            how = ""
            are_classes = not (self._kind.has_choices or self.regression or self.multi_label)
            if are_classes:
                how = ", or convert the whole column, for example with `Dataset.class_encode_column`"
            raise UserError(
                f"{name}: the label is {label!r} of type {type(label).__name__}, but must be {needed}. Correct the "
                f"row{how}."
            )

    def _label_of(self, given: Any) -> Any:
        """A label that a row holds; None where it is none, or the hidden one."""
        if hasattr(given, "tolist"):  # numpy and torch of formatted data sets
            given = given.tolist()
        return None if given == self.hidden_label else given

    def _texts(self, row: Mapping, name: str) -> list[str]:
        """The row's texts that the tokenizer reads, those before the choices first."""
        texts = []
        for role in self._text_roles:
            column = self.columns[role]
            if isinstance(column, str) and is_conversation(row.get(column)):
                texts.append(self._written(row[column], name))
                continue
            values = self._values(row, role, name)
            others = [value for value in values if not isinstance(value, str)]
            text = others[0] if others else " ".join(values)  # what is no text is refused, and shown
            texts.append(self._checked(text, role, name))
        choices = self._choices(row, name) if self._kind.has_choices else []
        return self._form.arrange(texts, choices)

    def _written(self, messages: Sequence[Mapping], name: str) -> WrittenChat:
        """A conversation as the chat template writes it, without the start token, which begins every sequence."""
        if not self.is_of_gpt1:
            raise UserError(
                f"{name}: a conversation needs a tokenizer with speakers, but this is a "
                f"{type(self.tokenizer).__name__}. Call `add_speaker_tokens(tokenizer, model)` for a GPT-1, or write "
                "the messages as one text."
            )
        for message in messages:
            self._checked(message["content"], "the content of a message", name)
        try:
            chat = write_conversation(self.tokenizer, messages)
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
        return WrittenChat(chat.removeprefix(self.tokenizer.start_token), chat.mark)

    def _choices(self, row: Mapping, name: str) -> list[str]:
        column = self.columns["choices"]
        if isinstance(column, str) and isinstance(row.get(column), str):
            raise UserError(
                f"{name}: choices (column {column!r}) holds one text, {row[column]!r}, but a list of texts is needed. "
                "If each choice has its own column, map choices to the list of them (in a command: choices=a,b)."
            )
        values = self._values(row, "choices", name)
        may_be_blank = not isinstance(column, str)  # a file without lists leaves the column of an absent choice blank
        while values and _is_absent(values[-1], may_be_blank):
            values.pop()
        return [self._checked(value, "choices", name) for value in values or [None]]

    def _values(self, row: Mapping, role: str, name: str) -> list[Any]:
        columns = self.columns[role]
        values = []
        for column in column_list(columns):
            if column not in row:
                raise UserError(
                    f"{name} has no column {column!r}, which `columns` maps to {role}; its columns are: "
                    f"{', '.join(row)}. Correct `columns`; if Trainer removed the column, pass "
                    "`remove_unused_columns=False`."
                )
            value = row[column]
            if isinstance(value, list | tuple | np.ndarray):
                values.extend(value)
            else:
                values.append(value)
        return values

    def _checked(self, text: Any, role: str, name: str) -> str:
        if isinstance(text, str) and not _is_utf8(text):
            fault = f"holds {text!r}, which is not UTF-8 text"
        elif isinstance(text, str) and text.strip():
            return text
        elif text is None or isinstance(text, str):
            fault = "is empty"
        else:
            fault = f"holds {text!r} of type {type(text).__name__}, which is no text"
        place = f"{role} (column {self.columns[role]!r})" if role in self.columns else role
        raise UserError(f"{name}: {place} {fault}. Remove or correct the row.")


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a character
        return False
    return True


def _is_absent(choice: Any, may_be_blank: bool) -> bool:
    return choice is None or (may_be_blank and not str(choice).strip())


@dataclass(frozen=True)
class _CountedRow:
    """What a check needs of a row."""

    name: str
    label: Any
    num_choices: int
    length: int
    """Tokens of its longest sequence before a cut."""


def reads_control_tokens(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer is GPT-1's or has any of its control tokens; all others have a form of their own."""
    has_some = any(getattr(tokenizer, f"{name}_id", None) is not None for name in CONTROL_TOKENS)
    return has_some or isinstance(tokenizer, GPT1Tokenizer)
