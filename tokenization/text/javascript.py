r"""GPT-1's tokenizer as the file that JavaScript reads: `@huggingface/tokenizers`, transformers.js and web pages.

The preparation of `word_rules.py` is written in the regular expressions of Oniguruma. JavaScript lacks some of its
parts, and has look-behinds of any length, which Oniguruma refuses. One file cannot serve both, so this module rewrites
each rule:

| Oniguruma | JavaScript |
|---|---|
| `X\KY` | `(?<=X)Y` |
| `(?:(?<!\S)\|\G)X\KY`, which begins where the last match ended | `(?<=(?<!\S)(?:X)+)Y` |
| `(?!\G)`, for the library's second look at an empty match | nothing: JavaScript looks once |
| `X++` | `X+(?!X)` |
| `(?>A\|B)` | `(?:A\|(?!A)B)` |
| the table of characters | a replacement for each text that characters become |

A repetition in an atomic group becomes a plain one: no two of its parts begin alike and can end in different places.
"""

import json
import re
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .tokenization_gpt1 import GPT1Tokenizer
from .word_rules import ESCAPE_CODES, character_table

SYNTAX = frozenset("^$\\.*+?()[]{}|/")  # what JavaScript lets a backslash stand before, in Unicode mode
ESCAPES = {
    r"\s": r"\p{White_Space}",
    r"\S": r"\P{White_Space}",
    r"\A": r"(?<![\s\S])",
    r"\z": r"(?![\s\S])",
}
GROUP = re.compile(r"\((?:\?(?:<[=!]|[:=!>]))?")
ESCAPE = re.compile(r"\\(?:[px]\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})")
KEEP = r"\K"
SEARCH_START = r"\G"
# GPT-2's words, which the pre-tokenizer `ByteLevel` of `tokenizers` splits a text into.
WORDS_OF_BYTE_LEVEL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass
class Part:
    """A character, class or group of a regular expression, and how often it is repeated.

    Args:
        text: in JavaScript's syntax; of a group what opens it, such as `(?:`.
        choices: the alternatives of a group.
        quantifier: `+`, `{0,24}`, …
        is_possessive: the repetition gives nothing back.
    """

    text: str
    choices: list[list["Part"]] | None = None
    quantifier: str = ""
    is_possessive: bool = False

    def __str__(self) -> str:
        one = self.text if self.choices is None else f"{self.text}{_written(self.choices)})"
        if self.is_possessive:
            return f"{one}{self.quantifier}(?!{one})"
        return one + self.quantifier

    def has(self, text: str) -> bool:
        """Whether this part, or one inside it, is this text."""
        if self.choices is None:
            return self.text == text
        return any(part.has(text) for choice in self.choices for part in choice)


def to_javascript(pattern: str) -> str:
    """A regular expression of `word_rules.py` in JavaScript's syntax, for the flags `gu`.

    The result means the same to JavaScript itself and to `@huggingface/tokenizers`, which reads Oniguruma's syntax.
    """
    choices, _ = _read_choices(pattern, 0)
    rewritten = []
    for choice in choices:
        for alternative in _spread(choice):
            rewritten.append(_without_keep(_without_search_start(alternative)))
    return _written(rewritten)


def _read_choices(pattern: str, place: int) -> tuple[list[list[Part]], int]:
    """The alternatives from a place on, and the place of the bracket that ends them, or the pattern's end."""
    choices: list[list[Part]] = [[]]
    while place < len(pattern) and pattern[place] != ")":
        if pattern[place] == "|":
            choices.append([])
            place += 1
            continue
        part, place = _read_part(pattern, place)
        quantifier = QUANTIFIER.match(pattern, place)
        if quantifier:
            part.quantifier = quantifier[0]
            place = quantifier.end()
            part.is_possessive = pattern.startswith("+", place)
            place += part.is_possessive
        choices[-1].append(part)
    return choices, place


def _read_part(pattern: str, place: int) -> tuple[Part, int]:
    """The character, class or group at a place, and the place behind it."""
    if pattern[place] == "(":
        opening = GROUP.match(pattern, place)
        choices, end = _read_choices(pattern, opening.end())
        if opening[0] == "(?>":
            return Part("(?:", _first_of(choices)), end + 1
        return Part(opening[0], choices), end + 1
    if pattern[place] == "[":
        return _read_class(pattern, place)
    if pattern[place] == "\\":
        escape = ESCAPE.match(pattern, place)
        return Part(_escape(escape[0])), escape.end()
    if pattern[place] == ".":
        return Part(r"[^\n]"), place + 1
    return Part(pattern[place]), place + 1


def _read_class(pattern: str, place: int) -> tuple[Part, int]:
    texts = ["["]
    place += 1
    while pattern[place] != "]":
        if pattern[place] == "\\":
            escape = ESCAPE.match(pattern, place)
            texts.append(r"\-" if escape[0] == r"\-" else _escape(escape[0]))
            place = escape.end()
        else:
            texts.append(pattern[place])
            place += 1
    return Part("".join(texts) + "]"), place + 1


def _escape(escape: str) -> str:
    """An escaped character in JavaScript's syntax."""
    if escape in ESCAPES:
        return ESCAPES[escape]
    if escape.startswith(r"\x{"):
        return chr(int(escape[3:-1], 16))
    if escape[1].isalnum() or escape[1] in SYNTAX:
        return escape
    return escape[1]


def _first_of(choices: list[list[Part]]) -> list[list[Part]]:
    """The alternatives of an atomic group, each only where none before it matches."""
    guarded = []
    for number, choice in enumerate(choices):
        earlier = [other for other in choices[:number] if _may_begin_alike(other, choice)]
        guarded.append([Part("(?!", earlier), *choice] if earlier else choice)
    return guarded


def _may_begin_alike(one: list[Part], other: list[Part]) -> bool:
    first, second = one[0].text, other[0].text
    are_characters = all(text.isalnum() or text in ("'", r"\.") for text in (first, second))
    return first == second or not are_characters


def _spread(choice: list[Part]) -> list[list[Part]]:
    r"""The alternatives that `A(?:B|C\KD)E` stands for: `ABE` and `AC\KDE`."""
    for place, part in enumerate(choice):
        if part.choices is not None and part.has(KEEP):
            spread = []
            for inner in part.choices:
                spread.extend(_spread([*choice[:place], *inner, *choice[place + 1 :]]))
            return spread
    return [choice]


def _is_where_no_search_starts(part: Part) -> bool:
    r"""Whether it is `(?!\G)`, which keeps the library from a second look at an empty match."""
    return part.has(SEARCH_START) and part.text == "(?!"


def _is_where_a_search_may_start(part: Part) -> bool:
    r"""Whether it is a choice with `\G`: the start of a word, or where the last match ended."""
    return part.has(SEARCH_START) and part.text != "(?!"


def _without_search_start(choice: list[Part]) -> list[Part]:
    rewritten = []
    for place, part in enumerate(choice):
        if _is_where_no_search_starts(part):
            continue
        if _is_where_a_search_may_start(part):
            end = next(number for number, other in enumerate(choice) if other.text == KEEP)
            (start,) = (start for start in part.choices if not start[0].has(SEARCH_START))
            repeated = Part("(?:", [choice[place + 1 : end]], quantifier="+")
            return [*start, repeated, *choice[end:]]
        rewritten.append(part)
    return rewritten


def _without_keep(choice: list[Part]) -> list[Part]:
    for place, part in enumerate(choice):
        if part.text == KEEP:
            return [Part("(?<=", [choice[:place]]), *choice[place + 1 :]]
    return choice


def _written(choices: list[list[Part]]) -> str:
    return "|".join("".join(map(str, choice)) for choice in choices)


def replace(pattern: str, content: str) -> dict:
    """A step that replaces what a regular expression matches; `$&` in the new text stands for the match."""
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def table_steps() -> list[dict]:
    """The table of characters, a step for each text that characters become."""
    sources: dict[str, list[str]] = {}
    for character, text in character_table().items():
        sources.setdefault(text, []).append(character)
    apart = [text[1] for text, characters in sources.items() if text == f" {characters[0]} " and len(characters) == 1]
    several = {text: characters for text, characters in sources.items() if text[1:2] not in apart}
    steps = []
    for text, characters in several.items():
        one_of = _class_of(characters)
        if text == " \n ":
            one_of = rf"\r\n|{one_of}"  # one grapheme for the table
        steps.append(replace(one_of, text))
    return [*steps, replace(_class_of(apart), " $& ")]


def _class_of(characters: list[str]) -> str:
    """A class of single characters, neighbours as ranges."""
    codes = sorted(map(ord, characters))
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    texts = []
    for first, last in ranges:
        texts.append(_in_class(first) if first == last else f"{_in_class(first)}-{_in_class(last)}")
    return f"[{''.join(texts)}]"


def _in_class(code: int) -> str:
    character = chr(code)
    if character in SYNTAX or character == "-":
        return f"\\{character}"
    if code < 0x20 or 0x7F <= code < 0xA0:
        return f"\\u{code:04x}"
    return character


def javascript_steps(native_steps: list[dict]) -> list[dict]:
    """The steps of a normalizer of `word_rules.py` that JavaScript runs: `Prepend`, `Replace`, `NFC`, `Lowercase`."""
    steps = []
    for step in native_steps:
        if step["type"] == "Precompiled":
            steps.extend(table_steps())
        elif step["type"] == "Replace" and step["pattern"]["Regex"].startswith(ESCAPE_CODES):
            steps.append(replace(to_javascript(ESCAPE_CODES), ""))  # without the help that the table's graphemes need
        elif step["type"] == "Replace":
            steps.append(replace(to_javascript(step["pattern"]["Regex"]), step["content"]))
        elif step["type"] == "Lowercase":
            steps.append(replace("Σ", "σ"))  # JavaScript would look for the words' ends itself
            steps.append(step)
        else:
            steps.append(step)
    return steps


def javascript_tokenizer(tokenizer: GPT1Tokenizer) -> dict:
    """The contents of `tokenizer.json` for `@huggingface/tokenizers`, which gives the ids of `tokenizer`."""
    content = contents_without_found_tokens(tokenizer)
    native_steps = content["normalizer"]["normalizers"]
    content["normalizer"] = {"type": "Sequence", "normalizers": javascript_steps(native_steps)}
    content["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": " "}, "behavior": "Removed", "invert": False}
    return content


def pre_tokenizer_with_our_spaces(step: dict | None) -> dict | None:
    """GPT-2's pre-tokenizer with the white space of Unicode; any other, and one within others, as it is.

    JavaScript's own takes a byte order mark for a space, and the next line, U+0085, for none.
    """
    if step is None or step["type"] != "ByteLevel" or not step["use_regex"] or step["add_prefix_space"]:
        return step
    pattern = {"Regex": to_javascript(WORDS_OF_BYTE_LEVEL)}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**step, "use_regex": False}]}


def contents_without_found_tokens(tokenizer: PreTrainedTokenizerBase) -> dict:
    """The contents of a tokenizer's `tokenizer.json`, for JavaScript: no text becomes a special token.

    JavaScript finds added tokens in texts that spell them, so the special ones stand in the vocabulary alone.

    Raises:
        ValueError: the vocabulary cannot hold a special token.
    """
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    vocab = content["model"]["vocab"]
    texts_as_written = []
    for token in content["added_tokens"]:
        if not token["special"]:
            texts_as_written.append(token)
        elif isinstance(vocab, dict):
            vocab[token["content"]] = token["id"]
        elif token["id"] >= len(vocab):  # a list of pieces with scores; whatever stands there is found in texts
            raise UserError(
                f"The tokenizer is a {content['model']['type']}, whose special token {token['content']} JavaScript "
                "would find in texts. Use a model with another tokenizer, such as one of `gpt1 pretrain --tokenizer`."
            )
    content["added_tokens"] = texts_as_written
    content["pre_tokenizer"] = pre_tokenizer_with_our_spaces(content["pre_tokenizer"])
    content["truncation"] = None
    content["padding"] = None
    return content
