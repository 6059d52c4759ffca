"""Random texts: ids against the libraries of the released code, offsets, control tokens, decoding, time."""

import functools
import importlib.util
import random
import re
import string
import time
from pathlib import Path

import ftfy
from campaign.common import check, refusal

from tokenization import GPT1Tokenizer, load_documents

TESTS = Path(__file__).parents[1]
CONTROL = ("[s]", "[$]", "[e]", "<unk>", "</w>", "[ s ]", "[S]", "<s>", "<|endoftext|>")
MOST_SECONDS = 30.0  # for a megabyte; what is quadratic takes hundreds


def load(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def tools():
    """A tokenizer with every letter of the first alphabets, and the oracle of the same vocabulary."""
    letters = [chr(code) for code in [10, *range(0x21, 0x600)] if chr(code).isprintable() or code == 10]
    merges = [(first, second + "</w>") for first in string.ascii_lowercase for second in string.ascii_lowercase]
    pieces = ["<unk>", *letters, *(letter + "</w>" for letter in letters), *("".join(pair) for pair in merges)]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = GPT1Tokenizer(vocab=vocab, merges=merges)
    oracle = load("oracle", TESTS / "tokenization" / "oracle.py")
    plain = oracle.Oracle(tokenizer.get_vocab(), merges)
    tokenizer.add_control_tokens()
    return tokenizer, plain, oracle, load("parity", TESTS / "tokenization" / "test_preparation_parity.py").POOLS


def plain_words(generator: random.Random, number: int) -> list[str]:
    pools = tools()[3]
    return [generator.choice(pools[generator.choice(["words", "numbers", "abbreviations"])]) for _ in range(number)]


def ids(generator: random.Random, folder: Path) -> None:
    """Sentences of words, numbers, contractions and abbreviations, with the marks that written English has."""
    tokenizer, oracle, _, pools = tools()
    parts = []
    for word in plain_words(generator, generator.randint(1, 30)):
        kind = generator.random()
        if kind < 0.1:
            word = generator.choice([f'"{word}"', f"({word})", f"{word},", f"{word};", f"{word}?", f"{word}!"])
        elif kind < 0.2:
            word = generator.choice(pools[generator.choice(["contractions", "scripts", "entities"])])
        elif kind < 0.25:
            word = "".join(generator.choice(string.ascii_letters) for _ in range(generator.randint(1, 12)))
        parts += [word, generator.choice([" "] * 8 + ["\n", "\n\n", " \n ", "\r\n", "\t", "  ", "\u00a0", "\u2028"])]
    text = "".join(parts)
    found, expected = tokenizer(text, add_special_tokens=False)["input_ids"], oracle.ids(text)
    check(found == expected, f"{text!r}: {tokenizer.convert_ids_to_tokens(found)}, not {oracle.words(text)}")


def wild_text(generator: random.Random) -> str:
    """Anything that may stand in a text."""
    pools, parts = tools()[3], []
    for _ in range(generator.randint(0, 25)):
        kind = generator.randrange(12)
        if kind < 4:
            parts.append(generator.choice(generator.choice([*pools.values()])))
        elif kind < 5:
            parts.append(generator.choice(CONTROL))
        elif kind < 6:
            parts.append(
                generator.choice(["&amp;", "&lt;", "&quot;", "&#39;", "&nbsp;", "&amp;amp;", "&rsquo;", "<br/>"])
            )
        elif kind < 7:
            marks = generator.choice(["|", "||", "{}", "//", "!=", "->", "::", "==", "__", "\\", "'''", '"""', "--"])
            parts.append(generator.choice(["", "x", "y1"]) + marks + generator.choice(["", "x", "(z)"]))
        elif kind < 8:
            parts.append(
                generator.choice(["e", "A", "o", "|", "\u01c4", "\ufb01", "\u2026"])
                + generator.choice("\u0301\u0308\u0323\u20e3")
            )
        elif kind < 9:
            parts.append("".join(chr(generator.randrange(0x4E00, 0x9FA5)) for _ in range(generator.randint(1, 5))))
        elif kind < 10:
            parts.append(
                generator.choice(
                    ["\x00", "\x1b[31m", "\x1b[0m", "\x7f", "\x07", "\ufeff", "\u200b", "\u00ad", "\u0085"]
                )
            )
        else:
            parts.append(generator.choice(["\n", "\r\n", "\r", " \n \n", "\t", "  ", "\u3000", "\u2028", "\u00a0"]))
        parts.append(generator.choice([" ", " ", ""]))
    return "".join(parts)


def invariants(generator: random.Random, folder: Path) -> None:
    """What holds for every text, whatever it spells."""
    tokenizer, oracle, module, _ = tools()
    text = wild_text(generator)
    options = generator.choice([{}, {"split_special_tokens": False}, {"split_special_tokens": True}])
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, **options)
    found, tokens = encoded["input_ids"], tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    check(
        found == tokenizer(text, add_special_tokens=False, **options)["input_ids"],
        f"{text!r}: ids differ with offsets",
    )
    control = [getattr(tokenizer, f"{name}_token_id") for name in ("start", "delimiter", "extract")]
    check(not set(found) & set(control), f"{text!r} made control ids: {tokens}")
    for token, (start, end) in zip(tokens, encoded["offset_mapping"], strict=True):
        check_offsets(text, token, start, end, module)
    decoded = tokenizer.decode(found)
    if tokenizer.unk_token_id not in found:
        again = tokenizer.decode(tokenizer(decoded, add_special_tokens=False)["input_ids"])
        check(squeezed(again) == squeezed(decoded), f"{text!r} decodes to {decoded!r} and that to {again!r}")
    if "\x1b" not in text and "\x00" not in text:
        letters = re.sub("[^a-z]", "", squeezed("".join(oracle.words(text))))
        kept = re.sub("[^a-z]", "", squeezed(decoded.replace("<unk>", "")))
        is_plain = text.isascii() and not re.search("&|<", text)
        check(not is_plain or letters == kept, f"{text!r} keeps the letters {kept!r}, not {letters!r}")


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def check_offsets(text: str, token: str, start: int, end: int, module) -> None:
    """The characters between the offsets are those that made the token."""
    span, piece = text[start:end], token.removesuffix("</w>")
    what = f"The offsets {(start, end)} of {token!r} in {text!r} point at {span!r}"
    check(0 <= start <= end <= len(text), what)
    if token == "<unk>" or not text.isascii():
        return  # a character that the vocabulary does not have; others may become several
    if piece == "\n":
        check(span.strip() == "" and bool(re.search(r"[\n\r]", span)), what)
    elif "&" in span and piece != "&":
        check(span.startswith("&"), what)
    else:
        span = ftfy.fix_text(span)  # without control characters
        check(piece in squeezed(module.standardise(span)).lower() or (piece == "&" and span.startswith("&")), what)
        check(len(span) <= len(piece) + 12, what)


def surrogates(generator: random.Random, folder: Path) -> None:
    """Half a character is refused with a sentence, or read as something; nothing raw comes out."""
    text = wild_text(generator)
    place = generator.randint(0, len(text))
    text = text[:place] + generator.choice(["\ud800", "\udfff", "\udc80"]) + text[place:]
    given = generator.choice([text, [text, "plain"], ["plain", text]])
    refusal(lambda: tools()[0](given))


def seconds_of(action) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def long_text(generator: random.Random, folder: Path) -> None:
    """Time does not grow faster than the text, whatever it repeats and whether or not it has spaces."""
    tokenizer = tools()[0]
    unit = wild_text(generator)[: generator.randint(1, 40)] or " "
    text = unit * (150_000 // len(unit) + 1)
    used = seconds_of(lambda: tokenizer(text, add_special_tokens=False))
    check(used < MOST_SECONDS * len(text) / 1e6, f"{len(text)} characters of {unit!r} take {used:.1f} s")


def long_line(generator: random.Random, folder: Path) -> None:
    """A corpus of one line without a place to cut is read in linear time, and none of it is lost."""
    unit = generator.choice(["中文字", " ", "1234 ", "ж", "-", "абв где "])
    text = unit * (generator.choice([4, 12]) * 10**6 // len(unit))
    path = folder / "line.txt"
    path.write_text(text, encoding="utf-8")
    if not text.strip():
        path.write_text(text + "x", encoding="utf-8")
    pieces = []
    used = seconds_of(lambda: pieces.extend(row["text"] for row in load_documents(str(path))))
    check("".join(pieces) == path.read_text(encoding="utf-8"), f"{unit!r}: the pieces are not the text")
    check(used < 2 + 0.2 * len(text) / 1e6, f"{len(text)} characters of {unit!r} take {used:.1f} s to read")


CASES = {ids: 10, invariants: 10, surrogates: 1, long_text: 0.4, long_line: 0.03}
