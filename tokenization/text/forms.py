"""Other families: GPT-1's BPE with the special tokens of BERT, RoBERTa, ALBERT or BART.

GPT-1 reads sequences with control tokens. Models of other families read what their tokenizer writes around one text or
a pair, such as BERT's `[CLS] a [SEP] b [SEP]`, with its segments (`token_type_ids`). Sources of the forms: section 3.1
of "BERT" (Devlin et al. 2019, https://arxiv.org/abs/1810.04805), which ALBERT shares; `RobertaTokenizer` and
`BartTokenizer` of transformers.
"""

import json
from dataclasses import dataclass

from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerBase, TokenizersBackend

from ..errors import UserError
from .control_tokens import keep_text_as_text
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
        ValueError: the tokenizer is of another kind, or has control tokens; `family` is none of these.
    """
    if family not in TEMPLATES:
        raise UserError(f"`family` is {family!r}, but must be one of {', '.join(TEMPLATES)}.")
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
