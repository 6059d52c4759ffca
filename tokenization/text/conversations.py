"""Conversations as token ids: the speakers' tokens are the chat template's alone, whatever the messages spell.

The speakers are those of the dialogue model of Wolf et al. 2019, "TransferTransfo: A Transfer Learning Approach for
Neural Network Based Conversational Agents": a token before each turn, and the speaker of each token as its type.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ..errors import UserError

ROLES = ("system", "user", "assistant")
# The first speaks for the model and has its persona, the second for the user.
SPEAKER_TOKENS = {"speaker1_token": "<speaker1>", "speaker2_token": "<speaker2>"}

# A persona, as the content of system messages, stands before the first turn. A reply begins with the delimiter, as the
# choices of the traversal "multiple_choice" do.
CHAT_TEMPLATE = (
    "{{ '[s]' }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<speaker2>' }}"
    "{% elif message['role'] == 'assistant' %}{{ '<speaker1>' }}"
    "{% elif message['role'] != 'system' %}{{ raise_exception('The roles are system, user and assistant.') }}"
    "{% elif not loop.first %}{{ ' ' }}"
    "{% endif %}"
    "{{ message['content'] }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '[$]' }}{% endif %}"
)

CHARACTERS_FOR_PRIVATE_USE = range(0xF0000, 0xFFFFE)
# The fields of messages whose values templates compare or measure, and that are no text of anyone.
COMPARED = ("role", "type", "name", "id", "tool_call_id")


class WrittenChat(str):
    """A conversation as a chat template writes it.

    What spells a special token in it is that token. A message's own spelling of one is written as the token's number
    between two `mark`s, a character that no message has. Two `mark`s without a number stand where a message would
    complete a special token together with what the template writes beside it.
    """

    mark: str

    def __new__(cls, text: str, mark: str):
        chat = super().__new__(cls, text)
        chat.mark = mark
        return chat


def is_conversation(value: Any) -> bool:
    """Whether a value is a list of messages: dictionaries with a role and a content."""
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(isinstance(message, Mapping) and {"role", "content"} <= message.keys() for message in value)
    )


def write_conversation(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping], **options: Any) -> WrittenChat:
    """The text of a conversation by the tokenizer's chat template.

    Args:
        tokenizer: has a chat template.
        messages: dictionaries with `role` and `content`.
        options: further arguments of transformers' `apply_chat_template`, such as `add_generation_prompt`. Texts in
            them, such as those of `tools`, stay text, too.

    Raises:
        ValueError: the tokenizer has no chat template; or, for that of a dialogue model, a message has an unknown role
            or a content that is no text.
    """
    if tokenizer.chat_template is None and options.get("chat_template") is None:
        raise UserError(
            "The tokenizer has no chat template, which writes the messages of a conversation. Open the tokenizer of a "
            "dialogue model, or call `tokenization.add_speaker_tokens(tokenizer, model)` before fine-tuning."
        )
    if "<speaker2>" in (options.get("chat_template") or tokenizer.chat_template):
        check_turns(messages)
    special = special_tokens(tokenizer)
    variables = {name: value for name, value in options.items() if name != "chat_template"}
    mark = _unused_character([*messages, variables])
    marked = _marked(messages, special, mark)
    for name, value in variables.items():
        if isinstance(value, str):  # a setting, which templates compare
            options[name] = _without_spellings(value, special, mark)
        else:
            options[name] = _marked(value, special, mark)
    # Not the override of a tokenizer's class, which calls this function.
    text = PreTrainedTokenizerBase.apply_chat_template(tokenizer, marked, tokenize=False, **options)
    return WrittenChat(text, mark)


def check_turns(messages: Sequence[Mapping]) -> None:
    """Refuses messages of which a dialogue model would read something else than turns of its two speakers."""
    for number, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise UserError(
                f"The `role` of message {number} is {role!r}, but a dialogue model knows {', '.join(ROLES)}. Rename "
                "it."
            )
        if not isinstance(content, str):
            raise UserError(f"The `content` of message {number} is {content!r}, but a text is needed.")


def encode_chats(tokenizer: PreTrainedTokenizerBase, chats: Sequence[WrittenChat]) -> list[list[int]]:
    """The ids of written conversations: special tokens where the template has them, the rest as text."""
    special = special_tokens(tokenizer)
    tokens_of_chats = []
    texts = []
    for chat in chats:
        pieces = _pattern_of(special).split(chat)
        tokens_of_chats.append(pieces[1::2])  # between the texts
        texts += [_unmarked(piece, special, chat.mark) for piece in pieces[::2]]
    if not texts:
        return []
    encoding = tokenizer(
        texts, add_special_tokens=False, split_special_tokens=True, return_attention_mask=False, verbose=False
    )
    id_lists = iter(encoding["input_ids"])
    encoded = []
    for tokens in tokens_of_chats:
        ids = list(next(id_lists))
        for token in tokens:
            ids.append(tokenizer.convert_tokens_to_ids(token))
            ids += next(id_lists)
        encoded.append(ids)
    return encoded


def encode_conversation(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping], **options: Any) -> list[int]:
    """The ids of a conversation. Arguments and errors are those of [`write_conversation`]."""
    (ids,) = encode_chats(tokenizer, [write_conversation(tokenizer, messages, **options)])
    return ids


def speaker_types(input_ids: torch.Tensor, tokenizer: PreTrainedTokenizerBase) -> torch.Tensor | None:
    """The speaker of each token, as the id of its token; `None` if the tokenizer has no speakers.

    A turn begins with its speaker's token, and the reply, which the delimiter begins, is the first speaker's. So is
    what stands before the first turn.

    Args:
        input_ids (`[…, T]`, int64): ids.
        tokenizer: see `add_speaker_tokens`.

    Returns:
        `[…, T]`, int64.
    """
    first = getattr(tokenizer, "speaker1_token_id", None)
    second = getattr(tokenizer, "speaker2_token_id", None)
    if first is None or second is None:
        return None
    begins_first = (input_ids == first) | (input_ids == tokenizer.delimiter_token_id)
    begins_second = input_ids == second
    places = torch.arange(input_ids.shape[-1])
    last_of_first = torch.where(begins_first, places, -1).cummax(-1).values
    last_of_second = torch.where(begins_second, places, -1).cummax(-1).values
    return torch.where(last_of_second > last_of_first, second, first)


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """All special tokens, also those without a name, the longest first."""
    without_name = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    return tuple(sorted({*tokenizer.all_special_tokens, *without_name}, key=lambda token: (-len(token), token)))


def _pattern_of(special: tuple[str, ...]) -> re.Pattern:
    """Matches a special token; `split` keeps it."""
    return re.compile(f"({'|'.join(map(re.escape, special))})" if special else "(?!)")


def _unused_character(messages: Sequence[Mapping]) -> str:
    """A character that no message has."""
    used = set(json.dumps(messages, ensure_ascii=False, default=str))
    return next(chr(code) for code in CHARACTERS_FOR_PRIVATE_USE if chr(code) not in used)


def _marked(value: Any, special: tuple[str, ...], mark: str) -> Any:
    """A message or a part of one, in whose strings nothing spells a special token, nor one's beginning or end.

    With `[e]` as the token number 2 and `|` as the mark, "an [e] in [" becomes "an |2| in [||".
    """
    if isinstance(value, str):
        return _with_closed_ends(_without_spellings(value, special, mark), special, mark)
    if isinstance(value, Mapping):
        return {
            _without_spellings(key, special, mark): (
                _without_spellings(part, special, mark) if key in COMPARED else _marked(part, special, mark)
            )
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_marked(part, special, mark) for part in value]
    return value


def _without_spellings(text: Any, special: tuple[str, ...], mark: str) -> Any:
    """A string, with the number of each special token in place of its spelling; anything else as it is."""
    if not isinstance(text, str):
        return text
    return _pattern_of(special).sub(lambda found: f"{mark}{special.index(found[0])}{mark}", text)


@lru_cache
def _parts_of(special: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """What a special token can begin with, and what one can end with."""
    beginnings = frozenset(token[:place] for token in special for place in range(1, len(token)))
    endings = frozenset(token[place:] for token in special for place in range(1, len(token)))
    return beginnings, endings


def _with_closed_ends(text: str, special: tuple[str, ...], mark: str) -> str:
    """The text, with marks where a special token could begin in it and end behind it, or the other way round.

    Templates strip texts, so the marks stand inside of white space at the ends.
    """
    bare = text.strip()
    if not bare or not special:
        return text
    start = text.index(bare)
    end = start + len(bare)
    beginnings, endings = _parts_of(special)
    longest = len(special[0])
    begins_one = any(bare[-length:] in beginnings for length in range(1, longest))
    ends_one = any(bare[:length] in endings for length in range(1, longest))
    is_inside_one = len(bare) < longest and any(bare in token for token in special)
    before = 2 * mark if ends_one or is_inside_one else ""
    behind = 2 * mark if begins_one else ""
    return text[:start] + before + bare + behind + text[end:]


def _unmarked(text: str, special: tuple[str, ...], mark: str) -> str:
    """The text as it was before [`_marked`]."""
    return re.sub(f"{mark}([0-9]*){mark}", lambda found: special[int(found[1])] if found[1] else "", text)
