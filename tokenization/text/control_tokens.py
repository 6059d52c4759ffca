"""Control tokens for fine-tuning, for this package's tokenizer and any other fast one, such as GPT-2's.

Section 3.3 of "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018) has a start, a
delimiter and an extract token. Text never becomes one of them, whatever it spells.
"""

import math
from collections.abc import Sequence
from itertools import chain

from tokenizers import processors
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from .conversations import CHAT_TEMPLATE, SPEAKER_TOKENS, WrittenChat, encode_chats

# The paper writes the delimiter as "$". That is a word of the vocabulary, and a dollar sign in text must stay text.
CONTROL_TOKENS = {"start_token": "[s]", "delimiter_token": "[$]", "extract_token": "[e]"}


def add_control_tokens(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel | None = None) -> int:
    """Adds the start, delimiter and extract tokens `[s]`, `[$]`, `[e]` to any fast tokenizer, with the templates that
    pipelines use. A given model's embeddings grow to match, with new rows drawn from N(0, `initializer_range`), and
    its configuration gets the ids. After the call no text becomes a special token, even after saving and opening;
    a Unigram vocabulary (SentencePiece's) alone still reads its own `</s>`, which is a piece of text there.

    A `bos_token` or `eos_token` that is unset or `<unk>`, as GPT-1's are, becomes the start or the extract token.
    Opened with `add_bos_token=True`, the tokenizer puts only the start token before a text. The ids of a text's
    beginning are then a prefix of the text's ids, as the scoring of continuations needs.

    Args:
        tokenizer: [`GPT1Tokenizer`], `GPT2Tokenizer` or another with a `backend_tokenizer`.
        model (*optional*): the model to grow; one that already has the rows only gets the ids.

    Returns:
        `int`: number of tokens added to the tokenizer; 0 if it had them.

    Raises:
        ValueError: the sizes of the model's and the tokenizer's vocabulary do not match.

    Examples:
        >>> from tokenization import GPT1Tokenizer, add_control_tokens
        >>> tokenizer = GPT1Tokenizer.train(iter(["Don't go."] * 2), num_merges=50)
        >>> add_control_tokens(tokenizer)
        3
        >>> tokenizer.decode(tokenizer("Go.", "Don't.")["input_ids"])
        "[s]go . [$]do n't . [e]"
    """
    check_tokenizer(tokenizer)
    missing = {name: token for name, token in CONTROL_TOKENS.items() if getattr(tokenizer, f"{name}_id", None) is None}
    _check_are_no_words(tokenizer, missing)
    if model is not None:
        _check_embeddings(model.config, tokenizer, num_missing=len(missing))
    num_added = _add_to_tokenizer(tokenizer, missing)
    if model is not None:
        _add_to_model(model, tokenizer)
    return num_added


def add_speaker_tokens(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel | None = None) -> int:
    """Prepares a tokenizer and a model for dialogues: adds the control tokens, the speakers' tokens `<speaker1>` (the
    model) and `<speaker2>` (the user), and a chat template, `[s] persona <speaker2> question [$] reply [e]`.

    A given model's embeddings grow to match, as in [`add_control_tokens`]. Its configuration gets the speakers' ids,
    by which `generate` knows who speaks, and `[e]` as its end of text. A message never becomes a speaker's token,
    whatever it spells.

    Args:
        tokenizer: [`GPT1Tokenizer`] or another with a `backend_tokenizer`.
        model (*optional*): the model to grow; one that already has the rows only gets the ids.

    Returns:
        `int`: number of tokens added to the tokenizer; 0 if it had them.

    Raises:
        ValueError: the sizes of the model's and the tokenizer's vocabulary do not match.

    Examples:
        >>> from tokenization import GPT1Tokenizer, add_speaker_tokens
        >>> tokenizer = GPT1Tokenizer.train(iter(["Don't go."] * 2), num_merges=50)
        >>> add_speaker_tokens(tokenizer)
        5
        >>> messages = [{"role": "system", "content": "Go."}, {"role": "user", "content": "Don't go."}]
        >>> tokenizer.decode(tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"])
        "[s]go . <speaker2>do n't go . [$]"
    """
    num_control = add_control_tokens(tokenizer, model)
    missing = {name: token for name, token in SPEAKER_TOKENS.items() if getattr(tokenizer, f"{name}_id", None) is None}
    _check_are_no_words(tokenizer, missing)
    num_speakers = _add_named_tokens(tokenizer, missing)
    tokenizer.chat_template = CHAT_TEMPLATE
    if model is not None:
        _grow(model, tokenizer)
        model.config.speaker_token_ids = [getattr(tokenizer, f"{name}_id") for name in SPEAKER_TOKENS]
        model.config.eos_token_id = tokenizer.extract_token_id
    return num_control + num_speakers


def _check_are_no_words(tokenizer: PreTrainedTokenizerBase, missing: dict[str, str]) -> None:
    """Refuses a tokenizer in which a token that is to be added already is a piece of text."""
    words = tokenizer.get_vocab().keys() - tokenizer.get_added_vocab().keys()
    for token in missing.values():
        if token in words:
            raise UserError(
                f"{token} is an ordinary token of this tokenizer, so text could become the control token {token}. "
                "Pass another tokenizer."
            )


def _check_embeddings(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, num_missing: int) -> None:
    """Refuses a model that has rows neither for the tokenizer's words alone nor for the control tokens, too."""
    size_without = len(tokenizer) if num_missing else tokenizer.vocab_size
    size_with = len(tokenizer) + num_missing
    if not has_size_for(config, size_without) and not has_size_for(config, size_with):
        raise UserError(
            f"The model has {config.vocab_size} token embeddings and the tokenizer {len(tokenizer)} tokens. "
            "They must belong together: load both from the same folder, or build the model with "
            f"vocab_size={len(tokenizer)}, before adding the control tokens."
        )


def _add_to_tokenizer(tokenizer: PreTrainedTokenizerBase, missing: dict[str, str]) -> int:
    """Adds the missing control tokens and what goes with them; the number of tokens that are new."""
    new = dict(missing)
    if tokenizer.bos_token in (None, "<unk>"):
        new["bos_token"] = CONTROL_TOKENS["start_token"]
    if tokenizer.eos_token in (None, "<unk>"):
        new["eos_token"] = CONTROL_TOKENS["extract_token"]
    num_added = _add_named_tokens(tokenizer, new)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token  # the attention mask hides padding
    tokenizer.backend_tokenizer.post_processor = control_templates(tokenizer)
    keep_text_as_text(tokenizer)
    return num_added


def _add_named_tokens(tokenizer: PreTrainedTokenizerBase, tokens: dict[str, str]) -> int:
    """Adds special tokens, each an attribute of the tokenizer; the number of tokens that are new."""
    known = tokenizer.SPECIAL_TOKENS_ATTRIBUTES
    tokenizer.SPECIAL_TOKENS_ATTRIBUTES = [*known, *[name for name in tokens if name not in known]]
    return tokenizer.add_special_tokens(tokens)


def _grow(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Grows the embeddings to the tokenizer's size."""
    if len(tokenizer) > model.config.vocab_size:
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)


def _add_to_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Grows the embeddings to the tokenizer's size; the configuration gets the ids."""
    config = model.config
    _grow(model, tokenizer)
    for name in CONTROL_TOKENS:
        setattr(config, f"{name}_id", getattr(tokenizer, f"{name}_id"))
    if config.pad_token_id is None:
        config.pad_token_id = tokenizer.pad_token_id
    tokenizer.model_max_length = min(tokenizer.model_max_length, config.max_position_embeddings)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuses something else, such as the name of a tokenizer."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise UserError(f"`tokenizer` is a {type(tokenizer).__name__}. Pass what `open_tokenizer` returns.")


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


def check_vocabulary(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Checks that model and tokenizer belong together, and completes each from the other.

    The configuration gets missing ids of control tokens; the tokenizer's maximum length is limited to the model's.

    Raises:
        ValueError: the vocabularies differ in size, or the control tokens in their ids.
    """
    if not has_size_for(config, len(tokenizer)):
        raise UserError(
            f"The tokenizer has {len(tokenizer)} tokens, but the model's vocabulary has {config.vocab_size}. Take the "
            "tokenizer saved with the model, or call `tokenization.add_control_tokens(tokenizer, model)` to grow both."
        )
    for token in CONTROL_TOKENS:
        name = f"{token}_id"
        of_model = getattr(config, name)
        of_tokenizer = getattr(tokenizer, name, None)
        if of_model is None:
            setattr(config, name, of_tokenizer)
        elif of_tokenizer not in (None, of_model):
            raise UserError(
                f"`{name}` is {of_model} in the model's configuration, but {of_tokenizer} in the tokenizer. Open the "
                "tokenizer saved with the model."
            )
    tokenizer.model_max_length = min(tokenizer.model_max_length, config.max_position_embeddings)


def has_size_for(config: PreTrainedConfig, num_tokens: int) -> bool:
    """Whether the model has a row for each token, and at most those that `pad_to_multiple_of` adds when it is resized.

    Multiples of 8 up to 128 suit accelerators. A model that processes share may need a larger one.
    """
    distributed_config = getattr(config, "distributed_config", None)
    num_shards = getattr(distributed_config, "fsdp_size", None) or 1
    largest_multiple = max(128, math.lcm(8, num_shards))
    num_spare = config.vocab_size - num_tokens
    if num_spare == 0:
        return True
    return 0 < num_spare < largest_multiple and config.vocab_size % 8 == 0


def pad_with_end_of_text(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Lets a tokenizer without a padding token pad with its end-of-text token; returns whether it now does."""
    if tokenizer.pad_token is not None or tokenizer.eos_token is None:
        return False
    tokenizer.pad_token = tokenizer.eos_token
    return True


def keep_text_as_text(tokenizer: PreTrainedTokenizerBase, is_saved: bool = True) -> None:
    """Makes text that spells a special token stay text; also in a saved tokenizer with `is_saved`."""
    # Encoding reads the attribute, which is saved if it is among the arguments.
    tokenizer.split_special_tokens = True
    if is_saved:
        tokenizer.init_kwargs["split_special_tokens"] = True
    else:
        tokenizer.init_kwargs.pop("split_special_tokens", None)


def control_templates(tokenizer: PreTrainedTokenizerBase) -> processors.TemplateProcessing:
    """One text becomes `[s] text [e]` and a pair `[s] a [$] b [e]`."""
    tokens = [str(getattr(tokenizer, name)) for name in CONTROL_TOKENS]
    start, delimiter, extract = tokens
    return processors.TemplateProcessing(
        single=[start, "$A", extract],
        pair=[start, "$A", delimiter, "$B:1", f"{extract}:1"],
        special_tokens=[(token, tokenizer.backend_tokenizer.token_to_id(token)) for token in tokens],
    )


def unknown_share(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> tuple[float, list[str]]:
    """The share of unknown tokens in some texts, from 0 to 1, and up to three texts that have one."""
    if tokenizer.unk_token_id is None or not texts:
        return 0.0, []
    encoded = encode_texts(tokenizer, list(texts))
    counts = [ids.count(tokenizer.unk_token_id) for ids in encoded]
    examples = [text for text, count in zip(texts, counts, strict=True) if count]
    num_tokens = sum(len(ids) for ids in encoded)
    return sum(counts) / max(1, num_tokens), examples[:3]


def encode_texts(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
    """The ids of texts alone: nothing is added to them, and none becomes a special token, whatever it spells.

    In a [`WrittenChat`] the special tokens are those of its template.
    """
    chats = [text for text in texts if isinstance(text, WrittenChat)]
    if chats:
        ids_of_chats = iter(encode_chats(tokenizer, chats))
        others = [text for text in texts if not isinstance(text, WrittenChat)]
        ids_of_others = iter(encode_texts(tokenizer, others))
        return [next(ids_of_chats if isinstance(text, WrittenChat) else ids_of_others) for text in texts]
    if not texts:
        return []
    encoding = tokenizer(
        texts, add_special_tokens=False, split_special_tokens=True, return_attention_mask=False, verbose=False
    )
    return encoding["input_ids"]
