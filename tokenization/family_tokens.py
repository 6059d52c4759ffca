"""GPT-1's BPE as the tokenizer of BERT, RoBERTa, ALBERT and BART.

The tokens of a text stay the same. The special tokens and the form of a text and of a pair are the family's. Sources
of the forms: section 3.1 of "BERT" (Devlin et al. 2019, https://arxiv.org/abs/1810.04805), which ALBERT shares;
`RobertaTokenizer` and `BartTokenizer` of transformers.
"""

import json

from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerBase, TokenizersBackend

from .control_tokens import keep_text_as_text
from .tokenization_gpt1 import GPT1Tokenizer

FAMILY_TOKENS = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
# One text, a pair, and the inputs of the model. ":1" marks the second segment.
_BERT = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ["input_ids", "token_type_ids", "attention_mask"])
_ROBERTA = ("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]", ["input_ids", "attention_mask"])
FORMS = {"bert": _BERT, "albert": _BERT, "roberta": _ROBERTA, "bart": _ROBERTA}


def family_tokenizer(tokenizer: PreTrainedTokenizerBase, family: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a family with the tokens of another one.

    A tokenizer that was made here for one family gets the form of another. A foreign one that has all special tokens
    is returned itself, with its own form, but without segments for a family that has none.

    Text never becomes a special token, whatever it spells. `[PAD]` gets the id 0, because RoBERTa counts positions
    from the id of padding. The token that had it, `<unk>`, moves to the end, before `[CLS]`, `[SEP]` and `[MASK]`. All
    other ids stay, so a text has the same ids for each family.

    `AutoTokenizer` opens the saved tokenizer without this package.

    Args:
        tokenizer: a [`GPT1Tokenizer`] without control tokens, or one that has a padding, class, separator and mask
            token, such as BERT's own.
        family: "bert", "roberta", "albert" or "bart".

    Raises:
        ValueError: the tokenizer is of another kind, or has control tokens.
    """
    if _is_made_here(tokenizer):
        made = _in_form(_without_state(_content(tokenizer)), tokenizer, family)
        if _form(made) != _form(tokenizer):
            return made
        keep_text_as_text(tokenizer)
        return tokenizer
    if all(getattr(tokenizer, name) is not None for name in FAMILY_TOKENS):
        keep_text_as_text(tokenizer)
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
    return _in_form(_with_special_tokens(tokenizer), tokenizer, family)


def _is_made_here(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether it is a BPE with the special tokens at the places where `family_tokenizer` puts them, and no others."""
    tokens = {name: getattr(tokenizer, name) for name in FAMILY_TOKENS}
    if type(tokenizer) is not TokenizersBackend or tokens != FAMILY_TOKENS:
        return False
    ids = tokenizer.convert_tokens_to_ids(list(FAMILY_TOKENS.values()))
    size = len(tokenizer)
    is_bpe = _content(tokenizer)["model"].get("end_of_word_suffix") == "</w>"
    return is_bpe and ids == [0, size - 3, size - 2, size - 1]


def _content(tokenizer: PreTrainedTokenizerBase) -> dict:
    return json.loads(tokenizer.backend_tokenizer.to_str())


def _form(tokenizer: PreTrainedTokenizerBase) -> tuple:
    return _content(tokenizer)["post_processor"], tokenizer.model_input_names, tokenizer.special_tokens_map


def _in_form(backend: Tokenizer, tokenizer: PreTrainedTokenizerBase, family: str) -> PreTrainedTokenizerBase:
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
    keep_text_as_text(made)
    return made


def _with_special_tokens(tokenizer: GPT1Tokenizer) -> Tokenizer:
    content = _content(tokenizer)
    tokens = sorted(content["model"]["vocab"], key=content["model"]["vocab"].get)
    pad, *others = FAMILY_TOKENS.values()
    vocab = [pad, *tokens[1:], tokens[0], *others]
    content["model"]["vocab"] = {token: index for index, token in enumerate(vocab)}
    return _without_state(content)


def _without_state(content: dict) -> Tokenizer:
    content["added_tokens"], content["padding"], content["truncation"] = [], None, None
    return Tokenizer.from_str(json.dumps(content))


__all__ = ["family_tokenizer"]
