"""How the texts of rows become padded sequences: GPT-1's, around control tokens, or those of another tokenizer.

[`TraversalCollator`] holds one of the two forms. Both have the same attributes and methods:

- `num_before_choices`: texts of a row that stand before its choices, which all its sequences begin with;
- `num_sequences`: sequences of a row, `None` if it has one for each choice;
- `arrange(texts, choices)`: the texts of a row that the tokenizer reads, those before the choices first;
- `longest(num_tokens)`: tokens of a row's longest sequence before a cut, from those of its texts in that order;
- `batch(rows, max_length, pad_to_multiple_of)`: tensors `[B, C, T]` and `[B, C]`, and how many tokens the sequences of
  each row share, where that is known.

Shape legend: B rows, C sequences per row, T tokens.
"""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..rows.traversals import ControlIds, Traversal, Traversed
from ..text.control_tokens import any_word, encode_texts
from ..text.conversations import WrittenChat

Texts = list[str]
IdLists = list[list[int]]


class ControlForm:
    """Sequences with control tokens, as the traversal writes them, padded on the right.

    Args:
        tokenizer: has control tokens.
        kind: the traversal.
        columns: the column of each role; a role that rows may lack is read where it has one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, kind: Traversal, columns: Mapping[str, str | list[str]]):
        self.tokenizer = tokenizer
        self.kind = kind
        self.control = ControlIds.from_tokenizer(tokenizer)
        self.text_roles = kind.text_roles(columns)
        self.num_before_choices = len(self.text_roles)
        self.num_sequences = kind.num_sequences
        self.num_control = kind.num_control
        # Of each sequence which of the row's texts it has; the choices stand for one more.
        places = {role: place for place, role in enumerate([*self.text_roles, "choices"])}
        self.places_of_sequences = [
            [places[role] for role in roles if role in places] for roles in kind.roles_of_sequences
        ]

    def arrange(self, texts: Texts, choices: Texts) -> Texts:
        """All texts as they stand."""
        return texts + choices

    def longest(self, num_tokens: list[int]) -> int:
        """Tokens of a row's longest sequence before a cut."""
        if self.kind.has_choices:
            num_tokens = [*num_tokens[: self.num_before_choices], max(num_tokens[self.num_before_choices :])]
        lengths = [sum([num_tokens[place] for place in places]) for places in self.places_of_sequences]
        return max(lengths) + self.num_control

    def batch(
        self, rows: Sequence[Texts], max_length: int, pad_to_multiple_of: int | None
    ) -> tuple[dict[str, torch.Tensor], list[int]]:
        """`input_ids` and `attention_mask`, `[B, C, T]`, `mc_token_ids`, `[B, C]`, perhaps `choice_mask`, `[B, C]`."""
        encoded = iter(encode_texts(self.tokenizer, list(chain.from_iterable(rows))))
        examples = []
        for texts in rows:
            segments = [next(encoded) for _ in texts]
            if any(isinstance(text, WrittenChat) for text in texts):
                length = self.longest([len(segment) for segment in segments])
                if length > max_length:
                    raise UserError(too_long(length, max_length))
            examples.append(self._traverse(segments, max_length))
        batch = self._pad([example.sequences for example in examples], pad_to_multiple_of or 1)
        return batch, [example.num_shared for example in examples]

    def _traverse(self, segments: IdLists, max_length: int) -> Traversed:
        texts, choices = segments[: self.num_before_choices], segments[self.num_before_choices :]
        by_role = dict(zip(self.text_roles, texts, strict=True))
        if self.kind.has_choices:
            by_role["choices"] = choices
        return self.kind.write(**by_role, control=self.control, max_length=max_length)

    def _pad(self, examples: Sequence[IdLists], multiple: int) -> dict[str, torch.Tensor]:
        # numpy needs a fraction of torch's time for short arrays and lists.
        num_sequences = max(len(sequences) for sequences in examples)
        filled = [sequences + [[]] * (num_sequences - len(sequences)) for sequences in examples]
        lengths = np.array([[len(ids) for ids in sequences] for sequences in filled])  # [B, C], 0 for an absent choice
        length = math.ceil(int(lengths.max()) / multiple) * multiple
        is_real = np.arange(length) < lengths[..., None]  # [B, C, T]
        flat_ids = chain.from_iterable(chain.from_iterable(filled))
        input_ids = np.full(is_real.shape, self.tokenizer.pad_token_id)
        input_ids[is_real] = np.fromiter(flat_ids, np.int64, count=lengths.sum())
        batch = {
            "input_ids": torch.from_numpy(input_ids),
            "attention_mask": torch.from_numpy(is_real.astype(np.int64)),
            "mc_token_ids": torch.from_numpy(np.maximum(lengths - 1, 0)),
        }
        if not lengths.all():
            batch["choice_mask"] = torch.from_numpy(lengths > 0)
        return batch


def too_long(length: int, max_length: int) -> str:
    """Refuses a conversation: its end, which the reply answers, must not be cut."""
    return (
        f"A conversation with its reply has {length} tokens, but `max_length` is {max_length}. Leave out its oldest "
        "messages."
    )


class OtherForm:
    """Sequences in the form that another family's tokenizer gives to one text or a pair, cut and padded by it.

    Args:
        tokenizer: one without control tokens that can pad.
        traversal: its name, for messages.
        kind: the traversal.
        max_length: maximum tokens of a sequence.
        both_orders: whether a pair is read in both orders.

    Raises:
        ValueError: the traversal has more than two texts; the tokenizer has no padding token, or no tokens for text;
            `max_length` has no room for the special tokens and one token of each text.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, traversal: str, kind: Traversal, max_length: int, both_orders: bool
    ):
        num_texts = len(kind.roles)
        if num_texts > 2:
            raise UserError(
                f"{type(tokenizer).__name__} reads one text or a pair, but the traversal {traversal!r} has the "
                f"{num_texts} texts {', '.join(kind.roles)}. Pass a tokenizer with control tokens, or a traversal of "
                "one or two texts."
            )
        if tokenizer.pad_token_id is None:
            raise UserError(
                f"{type(tokenizer).__name__} has no padding token, but batches are padded. Set its `pad_token`, for "
                "example to its end-of-text token: `tokenizer.pad_token = tokenizer.eos_token`."
            )
        any_word(tokenizer)  # refuses one that has no tokens for text
        self.num_special = tokenizer.num_special_tokens_to_add(pair=num_texts == 2)
        needed = self.num_special + num_texts
        if max_length < needed:
            raise UserError(
                f"`max_length` is {max_length}, but at least {needed} is needed with {type(tokenizer).__name__}: its "
                "special tokens and one token of each text. Raise it."
            )
        special = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
        self._not_text = {token: token_id for token, token_id in special if token_id != tokenizer.unk_token_id}
        self.tokenizer = tokenizer
        self.kind = kind
        self.both_orders = both_orders
        self.num_before_choices = 1
        if kind.has_choices:
            self.num_sequences = None
        else:
            self.num_sequences = 2 if both_orders else 1

    def arrange(self, texts: Texts, choices: Texts) -> Texts:
        """The texts without special tokens; what stands between the first and a choice, its question, begins each."""
        if choices:
            context, *question = texts
            texts = [context, *(" ".join([*question, choice]) for choice in choices)]
        return [self._as_text(text) for text in texts]

    def _as_text(self, text: str) -> str:
        """A text that has no special tokens: T5's vocabulary has `</s>` as a piece of text, also in full width."""
        for token, token_id in self._not_text.items():
            found = text
            if token not in text and not text.isascii():
                found = unicodedata.normalize("NFKC", text)
            if token in found and token_id in encode_texts(self.tokenizer, [text])[0]:
                text = found.replace(token, " ")
        return text

    def longest(self, num_tokens: list[int]) -> int:
        """Tokens of a row's longest sequence before a cut."""
        if self.kind.has_choices:
            context, *choices = num_tokens
            return context + max(choices) + self.num_special
        return sum(num_tokens) + self.num_special

    def batch(
        self, rows: Sequence[Texts], max_length: int, pad_to_multiple_of: int | None
    ) -> tuple[dict[str, torch.Tensor], None]:
        """`input_ids`, `attention_mask` and, if the tokenizer has segments, `token_type_ids`, each `[B, C, T]`.

        Where the numbers of sequences differ, `choice_mask`, bool `[B, C]`, is False at an absent one. Its place
        holds the row's first sequence: models need some token to attend to.
        """
        examples = [self._sequences(texts) for texts in rows]
        num_sequences = max(len(sequences) for sequences in examples)
        flat: list[Texts] = []
        for sequences in examples:
            num_absent = num_sequences - len(sequences)
            flat += sequences + [sequences[0]] * num_absent
        # The first text of each sequence, then the second of each.
        columns = [list(texts) for texts in zip(*flat, strict=True)]
        encoding = self.tokenizer(
            *columns,
            split_special_tokens=True,
            truncation=True,
            max_length=max_length,
            padding=True,
            pad_to_multiple_of=pad_to_multiple_of,
            return_attention_mask=True,
            return_tensors="pt",
        )
        batch = {name: ids.unflatten(0, (len(examples), num_sequences)) for name, ids in encoding.items()}
        num_present = torch.tensor([len(sequences) for sequences in examples])
        if (num_present < num_sequences).any():
            batch["choice_mask"] = torch.arange(num_sequences) < num_present[:, None]
        return batch, None

    def _sequences(self, texts: Texts) -> list[Texts]:
        if self.kind.has_choices:
            context, *choices = texts
            return [[context, choice] for choice in choices]
        if self.both_orders:
            return [texts, texts[::-1]]
        return [texts]
