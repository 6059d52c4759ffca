"""Continues texts with a language model: prompts in, continuations out, ended by tokens or by strings."""

import textwrap
from collections.abc import Mapping, Sequence

import torch
from transformers import LogitsProcessor, PreTrainedModel, PreTrainedTokenizerBase, StoppingCriteria
from transformers.generation.streamers import BaseStreamer

from tokenization import capitalise, join_continuation, join_words
from tokenization.errors import UserError
from tokenization.text.control_tokens import check_tokenizer
from tokenization.text.conversations import encode_conversation
from tokenization.text.tokenization_gpt1 import NEWLINE

SHOWN_CHARACTERS = 60  # of a prompt, in an error


class StopAtStrings(StoppingCriteria):
    """Ends a sequence as soon as its text after the prompt has one of the strings.

    It replaces `generate(stop_strings=…)`, which misses strings of several tokens of GPT-1's BPE and refuses others.

    Args:
        tokenizer ([`GPT1Tokenizer`]): decodes the text.
        strings (`str` or `Sequence[str]`): compared as the tokenizer decodes them: lower case, spaces around
            punctuation, no space at either end.
        prompt_length (`int`): tokens of the prompt, padding included.

    Raises:
        ValueError: a string has no token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, strings: str | Sequence[str], prompt_length: int):
        self.tokenizer = tokenizer
        self.prompt_length = prompt_length
        self.strings = []
        for string in [strings] if isinstance(strings, str) else strings:
            ids = encode_as_text(tokenizer, string)
            if not ids:
                raise UserError(
                    f"The stop string {string!r} has no token. Give a word, or '\\n' alone for a line end."
                )
            self.strings.append(tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor | None, **kwargs) -> torch.BoolTensor:
        texts = self.tokenizer.batch_decode(
            input_ids[:, self.prompt_length :], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        found = [any(string in text for string in self.strings) for text in texts]
        return torch.tensor(found, device=input_ids.device)

    def cut(self, text: str) -> str:
        """The text before the first of the strings."""
        places = [text.index(string) for string in self.strings if string in text]
        return text[: min(places)].rstrip(" ") if places else text

    def cut_behind(self, text: str) -> str:
        """The text with the first of the strings, but not what follows it in the same token."""
        ends = [text.index(string) + len(string) for string in self.strings if string in text]
        return text[: min(ends)] if ends else text


class RefuseNaN(LogitsProcessor):
    """Ends a generation whose scores are not numbers, among which a greedy search would take a token in silence.

    Args:
        model ([`PreTrainedModel`]): whose scores they are.

    Raises:
        ValueError: a score is NaN.
    """

    def __init__(self, model: PreTrainedModel):
        self.model = model

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        if scores.isnan().any():
            raise UserError(not_numbers("The scores of the next token", self.model))
        return scores


def not_numbers(scores: str, model: PreTrainedModel) -> str:
    """What is said of a model's scores that are NaN."""
    name = model.name_or_path or type(model).__name__
    return (
        f"{scores} by {name} ({model.dtype}) are not numbers (NaN). The model's weights are damaged, its training "
        "diverged, or its data type overflows. Use another checkpoint, or float32."
    )


def continue_prompts(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    max_new_tokens: int = 40,
    stop: str | Sequence[str] = (),
    streamer: BaseStreamer | None = None,
    capitals: bool = False,
    **options,
) -> list[list[str]]:
    r"""Continues texts of any lengths as one batch, each as if it were alone.

    Args:
        model ([`GPT1ForCausalLM`]): in evaluation mode.
        tokenizer ([`GPT1Tokenizer`]): of the same folder.
        prompts (`Sequence[str]`): the texts; each needs at least one word.
        max_new_tokens (`int`, defaults to 40): maximum tokens of a continuation.
        stop (`str` or `Sequence[str]`): what ends a continuation, besides the model's own end-of-text token if it has
            one: `"\n"`, a control token such as `"[e]"`, or any string.
        streamer (`BaseStreamer`, *optional*): gets the tokens as they come; for one prompt and without beam search.
        capitals (`bool`, defaults to `False`): capitalise sentences and the word "i".
        options: further arguments of `generate`: `do_sample`, `temperature`, `num_beams`, `num_return_sequences`, …

    Returns:
        For each prompt its `num_return_sequences` continuations, without the prompt and without what ended them.
        Prompt and continuation together read as text: a continuation begins with a space where it needs one.

    Raises:
        ValueError: `prompts` is a text; a prompt has no token; prompt and continuation are longer than the
            model's positions; the model has no language-model head that `generate` uses; its scores are not numbers.

    Examples:
        >>> from modeling_gpt1 import NOVELS, GPT1ForCausalLM, continue_prompts
        >>> from tokenization import GPT1Tokenizer
        >>> model, tokenizer = GPT1ForCausalLM.from_pretrained(NOVELS), GPT1Tokenizer.from_pretrained(NOVELS)
        >>> len(continue_prompts(model, tokenizer, ["it was", "the old farmer"], max_new_tokens=4))
        2
    """
    if isinstance(prompts, str):
        raise UserError(f"`prompts` is the text {prompts!r}, but a list of texts is needed, such as [{prompts!r}].")
    check_opened(model, tokenizer)
    if not model.can_generate():
        raise UserError(f"A {type(model).__name__} continues no text. Open the folder with GPT1ForCausalLM.")
    if "max_length" in options:
        raise UserError("`max_length` would count the prompt, too. Pass `max_new_tokens`.")
    if options.get("return_dict_in_generate"):
        raise UserError(
            "`return_dict_in_generate` is not for `continue_prompts`, which returns texts. Call `model.generate` for "
            "more than texts."
        )
    prompts = list(prompts)  # a column of pandas has no truth value
    if not prompts:
        return []
    stop = [stop] if isinstance(stop, str) else list(stop or ())
    encoded = encode_prompts(model, tokenizer, prompts, max_new_tokens)
    texts = _continue_ids(model, tokenizer, encoded, max_new_tokens, stop, streamer, **options)
    num_texts = len(texts) // len(prompts)
    continuations = []
    for number, prompt in enumerate(prompts):
        of_prompt = texts[number * num_texts : (number + 1) * num_texts]
        continuations.append([join_to_prompt(tokenizer, text, prompt, capitals) for text in of_prompt])
    return continuations


def reply_to(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, str]],
    max_new_tokens: int = 40,
    stop: str | Sequence[str] = (),
    capitals: bool = False,
    **options,
) -> list[str]:
    """Replies to a conversation, as the tokenizer's chat template writes it. What messages spell stays text.

    The oldest messages behind the persona are left out where the model has too few positions for all.

    Args:
        model ([`GPT1ForCausalLM`]): in evaluation mode.
        tokenizer ([`GPT1Tokenizer`]): of the same folder, with a chat template.
        messages: dictionaries with `role` ("system", "user" or "assistant") and `content`; the last is the user's.
        max_new_tokens, stop, capitals, options: as in [`continue_prompts`].

    Returns:
        `num_return_sequences` replies.

    Raises:
        ValueError: the tokenizer has no chat template; the last message is not the user's, or is no UTF-8 text; the
            persona and the last message alone are too long; the model's scores are not numbers.

    Examples:
        >>> from modeling_gpt1 import NOVELS, GPT1ForCausalLM, reply_to
        >>> from tokenization import GPT1Tokenizer, add_speaker_tokens
        >>> model, tokenizer = GPT1ForCausalLM.from_pretrained(NOVELS), GPT1Tokenizer.from_pretrained(NOVELS)
        >>> add_speaker_tokens(tokenizer, model)
        5
        >>> len(reply_to(model, tokenizer, [{"role": "user", "content": "Who are you?"}], max_new_tokens=4))
        1
    """
    check_opened(model, tokenizer)
    check_ends_with_user(messages)
    stop = [stop] if isinstance(stop, str) else list(stop or ())
    ids = encode_recent_messages(model, tokenizer, messages, max_new_tokens)
    texts = _continue_ids(model, tokenizer, [ids], max_new_tokens, stop, **options)
    if writes_words_apart(tokenizer):
        texts = [join_words(text) for text in texts]
    return [capitalise(text) if capitals else text for text in texts]


def check_opened(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuses a model or a tokenizer that is something else, such as the name of a folder."""
    check_is_model(model)
    check_tokenizer(tokenizer)


def check_is_model(model: PreTrainedModel) -> None:
    if not hasattr(model, "forward"):
        raise UserError(f"`model` is {model!r}. Pass an opened model, as `from_pretrained` returns it.")


def check_ends_with_user(messages: Sequence[Mapping]) -> None:
    """Refuses a conversation in which there is nothing to reply to, and what is none."""
    are_messages = isinstance(messages, list | tuple) and all(
        isinstance(message, Mapping) and {"role", "content"} <= message.keys() for message in messages
    )
    if not are_messages:
        raise UserError(
            f"`messages` is {messages!r}, but a list of messages is needed, such as "
            "[{'role': 'user', 'content': 'hello'}]."
        )
    if not messages or messages[-1]["role"] != "user":
        raise UserError("`messages` must end with a message of the user, to which the model replies. Add one.")


def encode_recent_messages(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, str]], room: int
) -> list[int]:
    """The ids of a conversation and of what begins a reply; `room` is the number of tokens that are left for it."""
    last = messages[-1]["content"]
    check_is_text("message", last)
    positions = model.config.max_position_embeddings
    personas = [message for message in messages if message["role"] == "system"]
    turns = [message for message in messages if message["role"] != "system"]
    ids = []
    for first in range(len(turns)):
        if turns[first]["role"] != "user":
            continue
        ids = encode_conversation(tokenizer, [*personas, *turns[first:]], add_generation_prompt=True)
        if len(ids) + room <= positions:
            return ids
    raise UserError(
        f"The persona and the message {_shown(last)!r} have {len(ids)} tokens and `max_new_tokens` is {room}, but the "
        f"model has only {positions} positions (`max_position_embeddings`). Shorten one of them."
    )


def _continue_ids(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: list[list[int]],
    max_new_tokens: int,
    stop: list[str],
    streamer: BaseStreamer | None = None,
    **options,
) -> list[str]:
    """The decoded continuations of prompts, up to what ends them."""
    inputs = tokenizer.pad({"input_ids": encoded}, padding_side="left", return_tensors="pt").to(model.device)
    prompt_length = inputs["input_ids"].shape[1]
    tokens = tokens_that_stop(tokenizer)
    end_ids = _own_end_ids(model) + [tokens[string] for string in stop if string in tokens]
    at_strings = StopAtStrings(tokenizer, [string for string in stop if string not in tokens], prompt_length)
    processors = [RefuseNaN(model), *(options.pop("logits_processor", None) or ())]
    sequences = model.generate(
        **inputs,
        max_new_tokens=max_new_tokens,
        eos_token_id=end_ids or None,
        pad_token_id=tokenizer.pad_token_id,
        stopping_criteria=[at_strings] if at_strings.strings else None,
        logits_processor=processors,
        streamer=streamer,
        **options,
    )

    new_ids = sequences[:, prompt_length:].tolist()
    num_texts = len(new_ids) // len(encoded)
    texts = []
    for place, ids in enumerate(new_ids):
        kept = _before_end(ids, end_ids)
        texts.append(at_strings.cut(decode_behind(tokenizer, encoded[place // num_texts], kept)))
    return texts


def tokens_that_stop(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The strings that are one token each: the line end and the special tokens."""
    tokens = dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True))
    newline_id = tokenizer.backend_tokenizer.token_to_id(NEWLINE)
    if newline_id is not None:
        tokens.setdefault("\n", newline_id)
    return tokens


def _own_end_ids(model: PreTrainedModel) -> list[int]:
    """The model's own end-of-text tokens, of which it may have one, several or none."""
    own_end = model.generation_config.eos_token_id
    if own_end is None:
        return []
    return [own_end] if isinstance(own_end, int) else list(own_end)


def encode_prompts(
    model: PreTrainedModel, tokenizer, prompts: Sequence[str], max_new_tokens: int = 40
) -> list[list[int]]:
    """The ids of prompts that are to be continued. Arguments and errors are those of `continue_prompts`."""
    positions = model.config.max_position_embeddings
    encoded = []
    for prompt in prompts:
        check_is_text("prompt", prompt)
        shown = _shown(prompt)
        ids = encode_as_text(tokenizer, prompt)
        if not ids:
            raise UserError(f"The prompt {shown!r} contains no token, but the model continues from one. Add a word.")
        if len(ids) + max_new_tokens > positions:
            raise UserError(
                f"The prompt {shown!r} has {len(ids)} tokens and `max_new_tokens` is {max_new_tokens}, but the model "
                f"has only {positions} positions (`max_position_embeddings`). Shorten either."
            )
        encoded.append(ids)
    return encoded


def writes_words_apart(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether it decodes punctuation apart from words: GPT-1's does, and has a token for the end of a line."""
    return tokenizer.backend_tokenizer.token_to_id(NEWLINE) is not None


def encode_as_text(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The ids of a text alone: nothing is added, and what it spells becomes no control token."""
    return tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]


def check_is_text(name: str, text: str) -> None:
    """Refuses a text with what Python reads for a byte that is not text."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UserError(f"The {name} {_shown(text)!r} is not UTF-8 text. Write it in UTF-8.")


def _shown(text: str) -> str:
    """The beginning of a text, for an error."""
    return textwrap.shorten(text, SHOWN_CHARACTERS, placeholder="…")


def join_to_prompt(tokenizer, text: str, prompt: str, capitals: bool = False) -> str:
    """A decoded continuation as it reads after its prompt; with a tokenizer other than GPT-1's, unchanged."""
    if not writes_words_apart(tokenizer):
        return text
    # With characters that are not in the vocabulary.
    backend = tokenizer.backend_tokenizer
    words = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(prompt))
    before = " ".join(word for word, _ in words)
    text = join_continuation(text, before)
    if capitals:
        start = join_words(before)
        text = capitalise(start + text)[len(capitalise(start)) :]  # "ß" becomes two letters
    return text.lstrip(" ") if prompt[-1:].isspace() else text


def _before_end(ids: list[int], end_ids: list[int]) -> list[int]:
    """The ids before the first that ends them, or that is no id, as beam search may leave behind it."""
    ends = [place for place, token_id in enumerate(ids) if token_id in end_ids or token_id < 0]
    return ids[: ends[0]] if ends else ids


def decode_behind(tokenizer: PreTrainedTokenizerBase, prompt_ids: list[int], ids: list[int]) -> str:
    """The text of a continuation. Decoded alone, its first word would lose its blank with WordPiece and SentencePiece;
    `join_to_prompt` knows those of GPT-1.
    """

    def decode(some_ids: list[int]) -> str:
        return tokenizer.decode(some_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    if not writes_words_apart(tokenizer):
        start = decode(prompt_ids)
        whole = decode(prompt_ids + ids)
        if whole.startswith(start):
            return whole[len(start) :]
    return decode(ids)
