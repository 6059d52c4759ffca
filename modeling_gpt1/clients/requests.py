"""What requests to a server of texts hold: each field has a kind, and a request with another is refused.

The fields are those of OpenAI's interface that transformers' server reads.
"""

import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import GenerationConfig, PreTrainedTokenizerBase

from tokenization.text.conversations import ROLES

from ..configuration_gpt1 import UserError
from ..inference.generation import check_ends_with_user, check_is_text

SHOWN_CHARACTERS = 60  # of a value, in an error
LONGEST_ID = 18  # in digits; `int` refuses some thousands
TEXT_PARTS = ("text", "input_text", "output_text")  # the types of a part of a message that is text
# The arguments of transformers' own method: a request gives variables of the template, not another template.
TEMPLATE_ARGUMENTS = frozenset(inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters)
# Fields that transformers' server leaves out without an error, each with the value that asks for nothing.
UNSUPPORTED = {
    "n": 1,
    "best_of": 1,
    "echo": False,
    "logprobs": False,
    "top_logprobs": 0,
    "presence_penalty": 0,
    "previous_response_id": None,
    "response_format": {"type": "text"},
}
# What requests that are computed together cannot have for themselves, each with the value that asks for nothing.
NOT_TOGETHER = {"seed": None, "stop": [], "frequency_penalty": 0, "logit_bias": {}}
# Settings of `generate` that they cannot have for themselves, either: transformers leaves them out, or takes the first
# request's for all.
SETTINGS_NOT_TOGETHER = {
    "bad_words_ids": [],
    "min_length": 0,
    "min_new_tokens": 0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "repetition_penalty": 1,
    "sequence_bias": {},
    "suppress_tokens": [],
}


@dataclass(frozen=True)
class Kind:
    """What a field may hold."""

    described: str
    holds: Callable[[Any], bool]


def is_number(value: Any) -> bool:
    is_of_json = isinstance(value, int | float) and not isinstance(value, bool)
    return is_of_json and abs(value) <= sys.float_info.max  # false for NaN, too


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_text_or_texts(value: Any) -> bool:
    return is_text(value) or (isinstance(value, list) and all(map(is_text, value)))


def is_text_or_objects(value: Any) -> bool:
    return is_text(value) or is_objects(value)


def is_objects(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(isinstance(part, dict) for part in value)


def is_generation_config(value: Any) -> bool:
    try:
        settings = json.loads(value)
        GenerationConfig(**settings)
    except (TypeError, ValueError):  # of JSON, or of a setting
        return False
    length = settings.get("max_new_tokens")
    stop = settings.get("stop_strings")
    end = settings.get("eos_token_id")
    return (
        (length is None or LENGTH.holds(length))
        and (stop is None or is_text_or_texts(stop))
        and (end is None or is_whole(end) or (isinstance(end, list) and all(map(is_whole, end))))
        and is_whole(settings.get("num_beams", 1))
        and settings.get("num_return_sequences") in (None, 1)  # the server reads one list of ids
        and not settings.get("return_dict_in_generate")
    )


def is_template_variables(value: Any) -> bool:
    return isinstance(value, dict) and TEMPLATE_ARGUMENTS.isdisjoint(value)


def is_logit_bias(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return all(is_token_id(token_id) and is_number(bias) for token_id, bias in value.items())


def is_token_id(value: str) -> bool:
    return value.isdecimal() and len(value) <= LONGEST_ID


LENGTH = Kind("a whole number of at least 1", lambda value: is_whole(value) and value >= 1)
TEXT = Kind("a text", is_text)
TEXTS = Kind("a text or a list of texts", is_text_or_texts)

FIELDS = {
    "max_tokens": LENGTH,
    "max_completion_tokens": LENGTH,
    "max_output_tokens": LENGTH,
    "temperature": Kind("a number of at least 0", lambda value: is_number(value) and value >= 0),
    "top_p": Kind("a number from 0 to 1", lambda value: is_number(value) and 0 <= value <= 1),
    # transformers makes it a repetition penalty of 1 more, which must be above 0.
    "frequency_penalty": Kind("a number above -1 and up to 2", lambda value: is_number(value) and -1 < value <= 2),
    "seed": Kind(
        "a whole number from -2**63 to 2**63 - 1", lambda value: is_whole(value) and -(2**63) <= value < 2**63
    ),
    "stop": TEXTS,
    "stream": Kind("true or false", lambda value: isinstance(value, bool)),
    "prompt": TEXT,
    "suffix": TEXT,
    "instructions": TEXT,
    "messages": Kind("a list of at least one message", is_objects),
    "input": Kind("a text or a list of at least one message", is_text_or_objects),
    "logit_bias": Kind("an object with a number for each token id", is_logit_bias),
    "generation_config": Kind("a JSON object of settings of `generate`, written as a text", is_generation_config),
    "chat_template_kwargs": Kind("an object of variables of the chat template", is_template_variables),
}


def check_request(body: dict, needed: str, continuous_batching: bool) -> None:
    """Refuses a request with a field that cannot be honoured.

    Args:
        body: the request.
        needed: the field that must be there.
        continuous_batching: whether the server computes requests together.

    Raises:
        UserError: the first such field, its value and what to send.
    """
    if body.get(needed) is None:
        raise UserError(f"The request has no `{needed}`. Send {FIELDS[needed].described}.")
    for field, kind in FIELDS.items():
        value = body.get(field)
        if value is None:
            continue
        if not kind.holds(value):
            shown = textwrap.shorten(repr(value), SHOWN_CHARACTERS, placeholder="…")
            raise UserError(f"`{field}` is {shown}. Send {kind.described}.")
        if kind in (TEXT, TEXTS):
            for text in [value] if isinstance(value, str) else value:
                check_is_text(field, text)
        if continuous_batching and field in NOT_TOGETHER and value != NOT_TOGETHER[field]:
            refuse_together(field)
    if continuous_batching:
        settings = json.loads(body.get("generation_config") or "{}")
        for setting, neutral in SETTINGS_NOT_TOGETHER.items():
            if settings.get(setting) not in (None, neutral):
                refuse_together(setting)
    for field, neutral in UNSUPPORTED.items():
        value = body.get(field)
        if value is not None and value != neutral:
            raise UserError(f"`{field}` is {value!r}, but the server does not support it. Leave it out.")


def check_ids(logit_bias: dict[str, float] | None, vocab_size: int) -> None:
    """Refuses a bias for a token that the model does not have."""
    for token_id in logit_bias or ():
        if int(token_id) >= vocab_size:
            raise UserError(
                f"`logit_bias` has the token {token_id}, but the last of the model is {vocab_size - 1}. Send that or "
                "a lower one."
            )


def refuse_together(field: str) -> None:
    """Refuses a field to a server that computes requests together."""
    raise UserError(
        f"The server computes requests together (--continuous_batching), so none has its own `{field}`. Leave it out, "
        "or start the server without --continuous_batching."
    )


def check_messages(messages: Sequence[dict]) -> None:
    """Refuses messages that a model cannot read, or to which it cannot reply.

    Raises:
        UserError: a role or a content that is none; the last message is not the user's.
    """
    for message in messages:
        role = message.get("role")
        if role not in ROLES:
            raise UserError(f"The `role` of a message is {role!r}. Send system, user or assistant.")
        check_content(message.get("content"))
    check_ends_with_user(messages)


def check_content(content: Any) -> None:
    """Refuses the content of a message that is neither a text nor parts that are texts."""
    if isinstance(content, str):
        check_is_text("message", content)
        return
    if not is_objects(content):
        shown = textwrap.shorten(repr(content), SHOWN_CHARACTERS, placeholder="…")
        raise UserError(f"The `content` of a message is {shown}. Send a text.")
    for part in content:
        if part.get("type") not in TEXT_PARTS:
            raise UserError(f"A part of a message has the `type` {part.get('type')!r}. Send text alone.")
        if not isinstance(part.get("text"), str):
            raise UserError(f"The `text` of a part of a message is {part.get('text')!r}. Send a text.")
        check_is_text("message", part["text"])


def requested_length(body: dict, default: int) -> int:
    """How many tokens a request wants. Its fields are those that `check_request` accepts."""
    for field in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        if body.get(field) is not None:
            return body[field]
    settings = json.loads(body.get("generation_config") or "{}")
    length = settings.get("max_new_tokens")
    return default if length is None else length
