"""Other families: GPT-1's BPE with the special tokens of BERT, RoBERTa, ALBERT or BART, and the form of any tokenizer.

GPT-1 reads the sequences of `traversal.py`. Models of other families read what their tokenizer writes around one text
or a pair, such as BERT's `[CLS] a [SEP] b [SEP]`, with its segments (`token_type_ids`). Texts that are too long are
cut as GPT-1's are. Sources of the forms: section 3.1 of "BERT" (Devlin et al. 2019, https://arxiv.org/abs/1810.04805),
which ALBERT shares; `RobertaTokenizer` and `BartTokenizer` of transformers.

Shape legend: B examples, C sequences per example, T tokens.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerBase, TokenizersBackend

from .control_tokens import keep_text_as_text
from .tokenization_gpt1 import GPT1Tokenizer
from .traversal import TRAVERSALS, Traversed, cut_choices, cut_pair, is_cut

FAMILY_TOKENS = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
# One text, a pair, and the inputs of the model. ":1" marks the second segment.
_BERT = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["input_ids", "token_type_ids", "attention_mask"])
_ROBERTA = ("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]", ["input_ids", "attention_mask"])
FORMS = {"bert": _BERT, "albert": _BERT, "roberta": _ROBERTA, "bart": _ROBERTA}


@dataclass(frozen=True)
class Template:
    """What a tokenizer writes: at each place a special token's id, or None for the next text; and its segment."""

    places: tuple[tuple[int | None, int], ...]

    @classmethod
    def from_tokenizer(cls, tokenizer: PreTrainedTokenizerBase, num_texts: int) -> "Template":
        """Finds out what a tokenizer writes around one text or two, by means of a word of its vocabulary."""
        word, word_ids = any_word(tokenizer)
        encoding = tokenizer(*[word] * num_texts, verbose=False)
        ids, segments = encoding["input_ids"], encoding.get("token_type_ids")
        places, position, found = [], 0, 0
        while position < len(ids):
            is_text = found < num_texts and ids[position : position + len(word_ids)] == word_ids
            places.append((None if is_text else ids[position], segments[position] if segments else 0))
            found, position = found + is_text, position + (len(word_ids) if is_text else 1)
        if found < num_texts:
            raise ValueError(
                f"{type(tokenizer).__name__} changes the tokens of a text that stands in a pair, so the texts of a "
                "row cannot be put together from their ids. Use a model with another tokenizer."
            )
        return cls(tuple(places))

    @property
    def num_special(self) -> int:
        """Number of special tokens."""
        return sum(token_id is not None for token_id, _ in self.places)

    def fill(self, *texts: Sequence[int]) -> tuple[list[int], list[int]]:
        """The ids of the texts with the special tokens, and the segment of each token."""
        remaining = iter(texts)
        runs = [(next(remaining) if token_id is None else [token_id], segment) for token_id, segment in self.places]
        ids = list(chain.from_iterable(run for run, _ in runs))
        return ids, list(chain.from_iterable([segment] * len(run) for run, segment in runs))

    def describe(self, tokenizer: PreTrainedTokenizerBase, names: Sequence[str]) -> str:
        """The special tokens, with names in place of the texts."""
        remaining = iter(names)
        ids = [token_id for token_id, _ in self.places]
        return " ".join(next(remaining) if i is None else tokenizer.convert_ids_to_tokens(i) for i in ids)


class FamilyForm:
    """Makes the sequences of examples, and batches of them, in the form of a tokenizer.

    Args:
        tokenizer: any tokenizer that can pad.

    Raises:
        ValueError: the tokenizer has no padding token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        if tokenizer.pad_token_id is None:
            raise ValueError(
                f"{type(tokenizer).__name__} has no padding token, but batches are padded. Set its `pad_token`, for "
                "example to its end-of-text token: `tokenizer.pad_token = tokenizer.eos_token`."
            )
        self.tokenizer = tokenizer
        self.has_segments = "token_type_ids" in tokenizer.model_input_names
        self._not_text = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        self.templates = {num_texts: Template.from_tokenizer(tokenizer, num_texts) for num_texts in (1, 2)}

    def as_text(self, ids: list[int]) -> list[int]:
        """The ids of a text without special tokens: T5's vocabulary has `</s>` as a piece of text, too."""
        return ids if self._not_text.isdisjoint(ids) else [i for i in ids if i not in self._not_text]

    def num_special(self, traversal: str) -> int:
        """Number of special tokens in each sequence."""
        return self._template(traversal).num_special

    def _template(self, traversal: str) -> Template:
        return self.templates[min(len(TRAVERSALS[traversal].names), 2)]

    def check_max_length(self, traversal: str, max_length: int) -> None:
        """Raises ValueError where `max_length` has no room for the special tokens and one token of each text."""
        needed = self.num_special(traversal) + min(len(TRAVERSALS[traversal].names), 2)
        if max_length < needed:
            raise ValueError(
                f"max_length is {max_length}, but {traversal} needs at least {needed} with "
                f"{type(self.tokenizer).__name__}: its special tokens and one token of each text. Raise max_length."
            )

    def traverse(
        self, traversal: str, texts: Sequence[Sequence[int]], max_length: int, both_orders: bool = False
    ) -> Traversed:
        """One text, a pair, a pair in both orders, or the pairs of the first text with each of the others."""
        budget = max_length - self.num_special(traversal)
        if len(TRAVERSALS[traversal].names) == 1:
            kept = [list(texts[0][:budget])]
            return self._write([kept], is_cut(kept, texts))
        if TRAVERSALS[traversal].has_choices:
            context, choices, truncated = cut_choices(texts[0], (), texts[1:], budget)
            return self._write([(context, choice) for choice in choices], truncated)
        pair = cut_pair(*texts, budget)
        return self._write([pair, pair[::-1]] if both_orders else [pair], is_cut(pair, texts))

    def describe(self, traversal: str, both_orders: bool = False) -> str:
        """The sequences of an example, with names in place of the texts."""
        kind = TRAVERSALS[traversal]
        names = ("context", "question answer") if kind.has_choices else kind.names  # the question begins each answer
        orders = [names, names[::-1]] if both_orders else [names]
        written = " and ".join(f"`{self.templates[len(names)].describe(self.tokenizer, order)}`" for order in orders)
        return f"{written}, one per answer" if kind.has_choices else written

    def _write(self, examples: Sequence[Sequence[list[int]]], truncated: bool) -> Traversed:
        written = [self.templates[len(texts)].fill(*texts) for texts in examples]
        return Traversed([ids for ids, _ in written], truncated, [segments for _, segments in written])

    def pad(
        self, examples: Sequence[Traversed], padding_side: str, pad_to_multiple_of: int | None
    ) -> dict[str, torch.Tensor]:
        """Pads the examples: `input_ids`, `attention_mask` and, if the tokenizer has segments, `token_type_ids`.

        All are `[B, C, T]`. Where the numbers of choices differ, `choice_mask`, bool `[B, C]`, is False at an absent
        choice. Its place holds the example's first choice: models need some token to attend to.
        """
        num_sequences = max(len(example.sequences) for example in examples)
        absent = [num_sequences - len(example.sequences) for example in examples]
        columns = {"input_ids": [example.sequences for example in examples]}
        if self.has_segments:
            columns["token_type_ids"] = [example.segment_ids for example in examples]
        flat = {
            name: [ids for lists, number in zip(values, absent, strict=True) for ids in lists + lists[:1] * number]
            for name, values in columns.items()
        }
        batch = self.tokenizer.pad(
            flat,
            padding_side=padding_side,
            pad_to_multiple_of=pad_to_multiple_of,
            return_attention_mask=True,
            return_tensors="pt",
        )
        batch = {name: tensor.unflatten(0, (len(examples), num_sequences)) for name, tensor in batch.items()}
        if any(absent):
            num_present = num_sequences - torch.tensor(absent)
            batch["choice_mask"] = torch.arange(num_sequences) < num_present[:, None]
        return batch


def any_word(tokenizer: PreTrainedTokenizerBase) -> tuple[str, list[int]]:
    """A text of ordinary tokens, and its ids."""
    specials = set(tokenizer.all_special_ids)
    ordinary = (token_id for token_id in range(len(tokenizer)) if token_id not in specials)
    for text in chain(["a"], (tokenizer.decode([token_id]) for token_id in ordinary)):
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] if text.strip() else []
        if ids and specials.isdisjoint(ids):
            return text, ids
    raise ValueError(
        f"{type(tokenizer).__name__} has no tokens for text, only {len(tokenizer)} special ones: transformers makes "
        "such a tokenizer where a folder has no files of one. Pass the tokenizer that belongs to the model."
    )


def family_tokenizer(tokenizer: PreTrainedTokenizerBase, family: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a family with the tokens of another one.

    One that has all special tokens, such as one that was made here, is returned itself, with its own form, but without
    segments for a family that has none.

    Text never becomes a special token here, whatever it spells. Who opens the saved tokenizer may write `[MASK]` into
    a text, as for other masked models. `[PAD]` gets the id 0, because RoBERTa counts positions from the id of padding.
    The token that had it, `<unk>`, moves to the end, before `[CLS]`, `[SEP]` and `[MASK]`. All other ids stay, so a
    text has the same ids for each family.

    `AutoTokenizer` opens the saved tokenizer without this package.

    Args:
        tokenizer: a [`GPT1Tokenizer`] without control tokens, or one that has a padding, class, separator and mask
            token, such as BERT's own.
        family: "bert", "roberta", "albert" or "bart".

    Raises:
        ValueError: the tokenizer is of another kind, or has control tokens.
    """
    if all(getattr(tokenizer, name) is not None for name in FAMILY_TOKENS):
        keep_text_as_text(tokenizer, is_saved=False)
        if "token_type_ids" not in FORMS[family][2]:
            names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
            tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names  # the latter is saved
        return tokenizer
    if not isinstance(tokenizer, GPT1Tokenizer):
        missing = ", ".join(name for name in FAMILY_TOKENS if getattr(tokenizer, name) is None)
        raise ValueError(
            f"{type(tokenizer).__name__} has no {missing}, which {family} needs. Give GPT-1's BPE, or a tokenizer "
            "with all special tokens."
        )
    if tokenizer.has_control_tokens:
        raise ValueError(
            "The tokenizer has the control tokens of a fine-tuned GPT-1. Give the one saved with the pre-trained "
            "model."
        )
    backend = _with_special_tokens(tokenizer)
    single, pair, model_input_names = FORMS[family]
    backend.post_processor = processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    ends = {} if family == "bert" else {"bos_token": "[CLS]", "eos_token": "[SEP]"}
    made = TokenizersBackend(
        tokenizer_object=backend,
        unk_token=tokenizer.unk_token,
        model_input_names=model_input_names,
        **FAMILY_TOKENS,
        **ends,
    )
    keep_text_as_text(made, is_saved=False)
    return made


def _with_special_tokens(tokenizer: GPT1Tokenizer) -> Tokenizer:
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = sorted(content["model"]["vocab"], key=content["model"]["vocab"].get)
    pad, *others = FAMILY_TOKENS.values()
    vocab = [pad, *tokens[1:], tokens[0], *others]
    content["model"]["vocab"] = {token: index for index, token in enumerate(vocab)}
    content["added_tokens"], content["padding"], content["truncation"] = [], None, None
    return Tokenizer.from_str(json.dumps(content))


__all__ = ["FamilyForm", "Template", "family_tokenizer"]
