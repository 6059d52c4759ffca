"""Other families: GPT-1's BPE with the special tokens of BERT, RoBERTa, ALBERT or BART, and the form of any tokenizer.

GPT-1 reads sequences with control tokens. Models of other families read what their tokenizer writes around one text or
a pair, such as BERT's `[CLS] a [SEP] b [SEP]`, with its segments (`token_type_ids`), cut and padded by it. Sources of
the forms: section 3.1 of "BERT" (Devlin et al. 2019, https://arxiv.org/abs/1810.04805), which ALBERT shares;
`RobertaTokenizer` and `BartTokenizer` of transformers.

Shape legend: B examples, C sequences per example, T tokens.
"""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerBase, TokenizersBackend

from ..errors import UserError
from .control_tokens import encode_texts, keep_text_as_text
from .tokenization_gpt1 import GPT1Tokenizer

FAMILY_TOKENS = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}


@dataclass(frozen=True)
class Template:
    """What a family's tokenizer writes around texts; `:1` marks the second segment."""

    single: str
    pair: str
    has_segments: bool

    @property
    def model_input_names(self) -> list[str]:
        """The inputs of the family's models."""
        if self.has_segments:
            return ["input_ids", "token_type_ids", "attention_mask"]
        return ["input_ids", "attention_mask"]


_BERT = Template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", has_segments=True)
_ROBERTA = Template("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]", has_segments=False)
TEMPLATES = {"bert": _BERT, "albert": _BERT, "roberta": _ROBERTA, "bart": _ROBERTA}


class FamilyForm:
    """Makes batches of examples in the form of a tokenizer.

    Args:
        tokenizer: any tokenizer that can pad.
        num_texts: texts of a sequence: 1, or 2 for a pair.
        max_length: maximum tokens of a sequence.

    Raises:
        ValueError: the tokenizer has no padding token, or no tokens for text; `max_length` has no room for the special
            tokens and one token of each text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, num_texts: int, max_length: int):
        if tokenizer.pad_token_id is None:
            raise UserError(
                f"{type(tokenizer).__name__} has no padding token, but batches are padded. Set its `pad_token`, for "
                "example to its end-of-text token: `tokenizer.pad_token = tokenizer.eos_token`."
            )
        any_word(tokenizer)
        self.tokenizer = tokenizer
        self.num_special = tokenizer.num_special_tokens_to_add(pair=num_texts == 2)
        needed = self.num_special + num_texts
        if max_length < needed:
            raise UserError(
                f"`max_length` is {max_length}, but at least {needed} is needed with {type(tokenizer).__name__}: its "
                "special tokens and one token of each text. Raise it."
            )
        special = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
        self._not_text = {token: token_id for token, token_id in special if token_id != tokenizer.unk_token_id}

    def as_text(self, text: str) -> str:
        """A text that has no special tokens: T5's vocabulary has `</s>` as a piece of text, also in full width."""
        for token, token_id in self._not_text.items():
            found = text
            if token not in text and not text.isascii():
                found = unicodedata.normalize("NFKC", text)
            if token in found and token_id in encode_texts(self.tokenizer, [text])[0]:
                text = found.replace(token, " ")
        return text

    def batch(
        self, examples: Sequence[list[list[str]]], max_length: int, pad_to_multiple_of: int | None
    ) -> dict[str, torch.Tensor]:
        """`input_ids`, `attention_mask` and, if the tokenizer has segments, `token_type_ids`, each `[B, C, T]`.

        Where the numbers of sequences differ, `choice_mask`, bool `[B, C]`, is False at an absent one. Its place
        holds the example's first sequence: models need some token to attend to.

        Args:
            examples: the sequences of each, as one text or a pair.
            max_length: maximum tokens of a sequence.
            pad_to_multiple_of: the padded length is rounded up to a multiple of this.
        """
        num_sequences = max(len(sequences) for sequences in examples)
        flat: list[list[str]] = []
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
        return batch


def any_word(tokenizer: PreTrainedTokenizerBase) -> str:
    """A text of ordinary tokens."""
    special_ids = set(tokenizer.all_special_ids)
    ordinary_ids = (token_id for token_id in range(len(tokenizer)) if token_id not in special_ids)
    ordinary_tokens = (tokenizer.decode([token_id]) for token_id in ordinary_ids)
    for text in chain(["a"], ordinary_tokens):
        if not text.strip():
            continue
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        if ids and special_ids.isdisjoint(ids):
            return text
    raise UserError(
        f"{type(tokenizer).__name__} has no tokens for text, only {len(tokenizer)} special ones: transformers makes "
        "such a tokenizer from a folder that has no tokenizer's files. Pass the tokenizer that belongs to the model."
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
    template = TEMPLATES[family]
    if all(getattr(tokenizer, name) is not None for name in FAMILY_TOKENS):
        keep_text_as_text(tokenizer, is_saved=False)
        names = tokenizer.model_input_names
        if tokenizer.num_special_tokens_to_add() == 0:  # as `train_tokenizer` makes WordPiece
            names_of_ends = (tokenizer.cls_token, tokenizer.sep_token)
            tokenizer.backend_tokenizer.post_processor = _post_processor(
                tokenizer.backend_tokenizer, template, *names_of_ends
            )
            names = template.model_input_names
        elif not template.has_segments:
            names = [name for name in names if name != "token_type_ids"]
        if names != tokenizer.model_input_names:
            tokenizer.model_input_names = names
            tokenizer.init_kwargs["model_input_names"] = names  # this is saved
        return tokenizer
    if not isinstance(tokenizer, GPT1Tokenizer) or tokenizer.has_control_tokens:
        raise UserError(
            f"{type(tokenizer).__name__} lacks some of {', '.join(FAMILY_TOKENS)}, which {family} needs. Pass the "
            "tokenizer of a pre-trained GPT-1, not of a fine-tuned one, or a tokenizer that has all of these."
        )
    ends = {}
    if family != "bert":
        ends = {"bos_token": "[CLS]", "eos_token": "[SEP]"}
    made = TokenizersBackend(
        tokenizer_object=_with_family_tokens(tokenizer.backend_tokenizer, template),
        unk_token=tokenizer.unk_token,
        model_input_names=template.model_input_names,
        **FAMILY_TOKENS,
        **ends,
    )
    keep_text_as_text(made, is_saved=False)
    return made


def _with_family_tokens(backend: Tokenizer, template: Template) -> Tokenizer:
    """A copy of GPT-1's BPE with a family's special tokens, of which only that of padding has a place at the start."""
    content = json.loads(backend.to_str())
    ids = content["model"]["vocab"]
    unknown, *tokens = sorted(ids, key=ids.get)
    padding, *others = FAMILY_TOKENS.values()
    vocab = [padding, *tokens, unknown, *others]
    content["model"]["vocab"] = {token: index for index, token in enumerate(vocab)}
    content["added_tokens"] = []
    content["padding"] = None
    content["truncation"] = None
    made = Tokenizer.from_str(json.dumps(content))
    made.post_processor = _post_processor(made, template)
    return made


def _post_processor(
    backend: Tokenizer, template: Template, start: str = "[CLS]", end: str = "[SEP]"
) -> processors.TemplateProcessing:
    """Writes a family's special tokens, as a tokenizer calls them, around one text or a pair."""

    def with_names(text: str) -> str:
        return text.replace("[CLS]", start).replace("[SEP]", end)

    return processors.TemplateProcessing(
        single=with_names(template.single),
        pair=with_names(template.pair),
        special_tokens=[(token, backend.token_to_id(token)) for token in (start, end)],
    )
