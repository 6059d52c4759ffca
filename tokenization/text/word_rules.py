"""The preparation of text before BPE as a native `tokenizers` normalizer: a table of characters, then rules for words.

Three sources of facts: which characters ftfy 6's `fix_text` repairs (https://github.com/rspeer/python-ftfy), which
punctuation the released `text_utils.py` sets apart (https://github.com/openai/finetune-transformer-lm), and where
spaCy 3's `blank("en")` ends a word (MIT, https://github.com/explosion/spaCy). Every rule puts a space where a word
ends; lower case comes last because the English rules look at capitals.

Known differences from those three libraries: text whose encoding was mixed up ("mojibake") is not repaired; only the
commonest HTML entities are decoded; "ima" and words like "theyllve" are split once; emoticons and contractions glued
to other marks or symbols, three quotation marks in a row and web addresses with unusual signs may split elsewhere.
tests/tokenization/text/test_preparation_parity.py holds these and bounds the rest.
"""

import re
import struct
import unicodedata
from functools import cache

from tokenizers import Regex, normalizers

# A regex is fast if its matches begin with one of a few ASCII characters, which are searched for; a class with others
# is tried at every place. Hence rules that start with their sign and look back, and alternations of characters.
END = r"(?!\S)"
NOT_AGAIN = r"(?!\G)"  # `tokenizers` looks for an empty match again where the next search starts, and drops it
SPACE = r"[ \n]"  # the prepended line break starts the text
TOKEN_START = r"(?:[ \n:<>=]|\.\.)"
INFIX_SPACE = "\u00a0"  # the table has removed all others, so the second half of the rule finds its own

# The released rules: these get a space on both sides. Runs of the first group stay together; spaCy splits the others.
RUNS = "-~/|"
SINGLES = '!";?+,)(*[]}{_'

# Names and numbers of the HTML entities that are decoded.
ENTITIES = {
    r"(?:amp|AMP|#38)(?:;amp)*": "&",
    "quot|QUOT|#34|#x22|[lr]dquo|#822[01]": '"',
    "apos|#0?39|#x27|[lr]squo|#821[67]": "'",
    "nbsp|NBSP|#160|#xa0|#xA0": " ",
    "gt|GT|#62": ">",
    "lt|LT|#60": "<",
}

# Characters that become plain ones: ftfy's quotation marks, the released code's dashes, dots and accent.
PLAIN = {
    "'": "\u02bc\u2018\u2019\u201a\u201b\u00b4\u1ffd",
    '"': "\u201c\u201d\u201e\u201f",
    "-": "\u2013\u2014\u2015",
    ";": "\u037e",
    "...": "\u2026",
    "\n": "\r\u2028\u2029",
    " ": "\t\f\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
    "ij": "\u0132\u0133",
    "\u02bcn": "\u0149",
    "d\u017e": "\u01c4\u01c5\u01c6",
    "lj": "\u01c7\u01c8\u01c9",
    "nj": "\u01ca\u01cb\u01cc",
    "dz": "\u01f1\u01f2\u01f3",
    "ff": "\ufb00",
    "fi": "\ufb01",
    "fl": "\ufb02",
    "ffi": "\ufb03",
    "ffl": "\ufb04",
    "\u017ft": "\ufb05",
    "st": "\ufb06",
}
REMOVED = [*range(0x01, 0x09), 0x0B, *range(0x0E, 0x20), 0x7F, *range(0x206A, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFD)]
REMOVED_BY_TABLE = "\x01"
# Not in the table: a zero byte would end its texts, and a terminal's colour codes are longer than a character.
ESCAPE_CODES = r"[\x00\x1b](?:(?<=\x00)|\[[0-9;]*[A-Za-z])"
# Characters that form one grapheme with the one before. The table takes a short grapheme for its first character.
MARK = r"[\p{M}\u200c\u200d\uff9e\uff9f\x{1f3fb}-\x{1f3ff}\x{e0020}-\x{e007f}]"
SYMBOLS = [(0x00A6, 0x00B0), (0x2100, 0x2BFF), (0xFFFD, 0xFFFD), (0x1F000, 0x1FAFF)]  # where those in use are

NOT_PLAIN = re.compile("[^\n -%'-~]")  # "&" may begin an entity

# spaCy's affixes: single characters that are split off both ends of a word, and those split off its start only.
ENDS = "'#&:<>`¡«·»¿،؛؟٪۔।⟦⟧、。〈〉《》「」『』【】〔〕"
CURRENCY = "$£¥฿﷼" + "".join(map(chr, range(0x20A0, 0x20C0)))
STARTS = "%=§" + CURRENCY
CURRENCY_CODES = r"US\$|C\$|A\$"
QUOTES = "'`«»「」『』【】〔〕《》〈〉⟦⟧"
UNITS = (
    "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz kmh mph hPa Pa mbar mb "
    "MB kb KB gb GB tb TB T G M K % км км² км³ м м² м³ дм дм² дм³ см см² см³ мм мм² мм³ нм кг г мг кПа Па мбар Кб КБ "
    "кб Мб МБ мб Гб ГБ гб Тб ТБ тб"
)

# Letters of the scripts without capitals that spaCy knows. They count both as small and as capital letters.
UNCASED = (
    r"\u0591-\u05f4\u0620-\u063a\u0640-\u064a\u066e-\u06d3\u06d5-\u06ff\u0900-\u0963\u0966-\u09ff\u0b82-\u0bff"
    r"\u0c00-\u0c7f\u0c80-\u0cff\u0d80-\u0df4\u1200-\u137c\u2e80-\u2fd5\u3003-\u3007\u3021-\u3029\u3031-\u30ff"
    r"\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
)
SMALL = rf"\p{{Ll}}{UNCASED}"
CAPITAL = rf"\p{{Lu}}{UNCASED}"
LETTER = rf"\p{{Ll}}\p{{Lu}}{UNCASED}"

# Words that keep their full stop.
TITLES = "Adm Bros Co Corp Dr Gen Gov Inc Jr Ltd Messrs Mr Mrs Ms Mt Prof Rep Rev Sen St"
STATES = (
    "Ak Ala Ariz Ark Calif Colo Conn Del Fla Ga Ia Id Ill Ind Kan Kans Ky La Mass Md Mich Minn Miss Mo Mont Neb Nebr "
    "Nev Okla Ore Pa Tenn Va Wash Wis"
)
MONTHS = "Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec"
LATIN = "co vs v.s a.m p.m e.g E.g i.e I.e"
HOUR = "(?:1[0-2]|[1-9])"

# Words that keep an apostrophe at their start or end.
KEEP_FIRST = "em S re ll nuff bout cause Cause cos Cos coz Coz cuz Cuz"
KEEP_LAST = "doin goin havin lovin nothin nuthin ol somethin"

EMOTICONS = r":[01DOPXopx3>]|<3+|=[3D]|[<>]\.<|>\.>"

# Words that split before a contraction; each also with a capital first letter.
PERSONS = "i you he she it we they"
QUESTIONS = "who what when where why how there that this"
POINTERS = "these those"
SUBJECTS = f"{PERSONS} {QUESTIONS} {POINTERS}"
PLURALS = "you we they who what when where why how there these those"
PAST_MODALS = "could might must should would"
MODALS = f"{PAST_MODALS} ca do does did had may need ought sha wo"
NEGATED = f"{MODALS} ai are is was were have has dare"
HAVE = f"{PLURALS} i not {PAST_MODALS}"
BEFORE_D = "i you he it we they who what when where why how there that this these those"
BEFORE_S = f"he she {QUESTIONS}"
CONTRACTIONS = [
    (NEGATED, "n't|nt"),
    (MODALS, "ntve"),
    (SUBJECTS, "'ll|'d|llve|dve"),
    (f"you it they {QUESTIONS} {POINTERS}", "ll"),
    (BEFORE_D, r"d(?!\.)|(?<!I)d\."),
    (BEFORE_S, r"s\.?"),
    (HAVE, "'ve|ve"),
    (PLURALS, "'re"),
    ("you they what when where why how there these those", "re"),
    ("i", r"'m|ma?\.?"),
    ("can", "not"),
    ("gon", "na"),
    ("got", "ta"),
    ("how", "'d"),
    ("c'm", "on"),
]
FIRST_LETTERS = "th wi as yd cm nog"  # of these words, common ones first; a word tries the letters of one group


def _words(text):
    return "(?:" + "|".join(map(re.escape, text.split())) + ")"


def _either_case(text):
    return "(?:" + "|".join(f"[{word[0].upper()}{word[0]}]{word[1:]}" for word in text.split()) + ")"


def _characters(characters):
    """The characters escaped for a class."""
    return "".join(f"\\{character}" if character.isascii() else character for character in characters)


def _one_of(characters):
    """An alternation of single characters, the ASCII ones in a class."""
    in_class = _characters(character for character in characters if character.isascii())
    others = [character for character in characters if not character.isascii()]
    return f"(?:{'|'.join([f'[{in_class}]', *others])})"


def _tree(leaves):
    """A regex for the words of a dict, each followed by its own pattern, that looks at every letter once."""
    branches = [leaves[""]] if "" in leaves else []
    for letter in sorted({word[0] for word in leaves if word}):
        branches.append(letter + _tree({word[1:]: leaf for word, leaf in leaves.items() if word[:1] == letter}))
    return branches[0] if len(branches) == 1 else "(?:" + "|".join(branches) + ")"


def _space_at(*patterns):
    return normalizers.Replace(Regex("|".join(patterns)), " ")


def _remove(*patterns):
    return normalizers.Replace(Regex("|".join(patterns)), "")


def character_table():
    """What single characters become: plain, standard width, set apart by spaces, or nothing."""
    table = {chr(code): "" for code in REMOVED}
    table |= {chr(code): unicodedata.normalize("NFKC", chr(code)) for code in range(0xFF01, 0xFFF0)}
    table |= {chr(code): bytes([code]).decode("cp1252", "ignore") or chr(code) for code in range(0x80, 0xA0)}
    table |= {character: plain for plain, characters in PLAIN.items() for character in characters}
    symbols = (chr(code) for first, last in SYMBOLS for code in range(first, last + 1))
    apart = ["\n", *SINGLES, *RUNS, *(symbol for symbol in symbols if unicodedata.category(symbol) == "So")]
    table |= {character: f" {character} " for character in apart}
    plain = {character: "".join(table.get(part, part) for part in to) for character, to in table.items()}
    return {one: to for one, to in plain.items() if to != one} | {mark: f" {mark} " for mark in apart}


def _double_array(table):
    """The table as sentencepiece's character map: length, double-array trie over UTF-8, texts ended by a zero byte."""
    texts = bytearray()
    places = {}
    for text in dict.fromkeys(table.values()):
        places[text] = len(texts)
        texts += text.encode() + b"\0"
    trie = {}
    for character, text in table.items():
        node = trie
        for byte in character.encode():
            node = node.setdefault(byte, {})
        node[0] = places[text]
    units = {0: 0}
    open_nodes = [(0, 0, trie)]  # place, label and children of each
    free = 0
    bases = set()
    while open_nodes:
        place, label, node = open_nodes.pop(0)
        base = free
        while base in bases or any(base ^ byte in units for byte in node):
            base += 1
        free = base if len(node) == 1 else free
        bases.add(base)  # two nodes with the same base would find each other's children
        units[place] = label | (place ^ base) << 10 | (0 in node) << 8
        for byte, child in node.items():
            if byte == 0:
                units[base ^ byte] = child | 1 << 31  # the bit tells a value from a node
            else:
                units[base ^ byte] = 0  # until it is its turn
                open_nodes.append((base ^ byte, byte, child))
    size = (max(units) // 256 + 1) * 256
    array = struct.pack(f"<{size}I", *(units.get(place, 0) for place in range(size)))
    return struct.pack("<I", len(array)) + array + bytes(texts)


def characters():
    """HTML entities (only before the first line with "<", as ftfy's), the table of characters, composed letters."""
    no_tag_before, no_tag_after = r"(?<!<[\s\S]{0,999}&)", r"(?![^\n]{0,999}<)"
    return [
        normalizers.Prepend("\n"),  # else the table shifts all offsets when it removes the first character
        *(
            # The entity itself is tested first: looking back costs a thousand times as much.
            normalizers.Replace(Regex(rf"&(?=(?:{names});){no_tag_before}(?:{names});{no_tag_after}"), character)
            for names, character in ENTITIES.items()
        ),
        normalizers.Replace(Regex(rf"{ESCAPE_CODES}|(?={MARK})"), REMOVED_BY_TABLE),
        normalizers.Precompiled(_double_array(character_table())),
        normalizers.NFC(),
    ]


def whitespace():
    """White space with line breaks becomes one, or nothing at the end; spaces within a run of dashes are removed."""
    line_breaks = r"\n(?:[ \n]*+\z| \K[ \n]+)"
    return [_remove(line_breaks, *(rf"\{mark}\K {{2}}(?=\{mark})" for mark in RUNS))]


def affixes():
    """Puts spaces after prefixes, at the start of a word, and before suffixes, at its end."""
    ends = _characters(ENDS)
    stop = _full_stop(ends)
    units = "(?:" + "|".join(sorted(UNITS.split(), key=len, reverse=True)) + "|" + _one_of(CURRENCY) + ")"
    # Bounds here and below keep a text of many thousand signs without a space from taking quadratic time.
    rest = rf"(?>(?:'[sS]|[{ends}]|\.\.++|{stop}|(?<=[0-9]){units}){{0,24}}){END}"
    kept = rf"(?:'(?:{_words(KEEP_FIRST)}|[ds](?!\.(?!\.)))|{EMOTICONS}){rest}"
    prefix = rf"(?>'(?=''{END}|{kept})|''|\.\.++|{CURRENCY_CODES}|{_one_of(ENDS + STARTS)})"
    before = [
        rf"(?='[sS]{rest})(?<=\S)",
        rf"(?='{rest})(?<!{TOKEN_START}{_either_case(KEEP_LAST)})(?<=[^\s'](?:''){{0,12}})",
        rf"(?='ve{rest})(?<={SPACE}(?:{_either_case(MODALS)}n't|{_either_case(SUBJECTS)}'(?:ll|d)))",
        rf"(?='y{rest})(?<={SPACE}[Hh]ow'd)",
        rf"(?=\.\.)(?<=[^\s.])(?=\.\.++{rest})",
        rf"(?={stop}{rest})",
        rf"(?={_one_of(ENDS.replace(chr(39), ''))}{rest})(?<=\S)(?<!{SPACE}[<>]\.)",
    ]
    return [
        _space_at(rf"(?:(?<!\S)|\G)(?!{kept}){prefix}\K(?=\S)"),
        _space_at(
            *(f"{NOT_AGAIN}{pattern}" for pattern in before),
            rf"'m(?<={SPACE}[Ii]'m)(?=a{rest})\K",
            rf"'(?<={SPACE}y')(?=all{rest})\K",
            rf"[0-9](?=(?:{units}|[mgt]\.){rest})\K",
        ),
    ]


def _abbreviation():
    """Matches a word that keeps its full stop, from its start, which may follow a sentence's full stop directly."""
    capitals = _words(f"{TITLES} {STATES} {MONTHS}")
    return rf"(?:{TOKEN_START}(?:{capitals}|{_words(LATIN)}|{HOUR}[ap]\.m|[a-zäöü])|[{SMALL}]\.{capitals})"


def _full_stop(ends):
    """Matches a full stop that is split off the end of a word, but not that of an abbreviation or initial."""
    before = rf"(?<=[{SMALL}0-9%²\-+{ends}]|[{CAPITAL}][{CAPITAL}]|° [FfCcKk])"
    capitals = _words(f"{TITLES} {STATES} {MONTHS}")
    # Few words look like an abbreviation at all: the short patterns keep the list from being tried after every word.
    title = rf"(?!(?<=[ \n:<>=.][A-Z][a-z]{{1,5}})(?<=(?:{TOKEN_START}|[{SMALL}]\.){capitals}))"
    latin = rf"(?<!{TOKEN_START}(?:[a-zäöü]|co|vs|v\.s|[ap]\.m|[eE]\.g|[iI]\.e|{HOUR}[ap]\.m))"
    initial = rf"(?<![0-9][mgt]|{SPACE}[<>])(?!(?<={SPACE}[A-Za-z]{{1,5}}[dsma])(?<={SPACE}{_merged_words()}))"
    return rf"{before}{title}{latin}{initial}\.(?!\.)"


def _merged_words():
    """Contractions without apostrophe whose last letter joins the full stop: "wed." is "we", "d."."""
    return rf"(?:{_either_case(BEFORE_D)}d|{_either_case(BEFORE_S)}s|[Ii]ma?)"


def contractions():
    """Spaces inside the English words that spaCy lists."""
    tails = {}
    for words, endings in CONTRACTIONS:
        for word in words.split():
            tails.setdefault(word, []).append(endings)
    first = {}
    for word, endings in tails.items():
        first.setdefault(word[0], {})[word[1:]] = rf"(?=(?:{'|'.join(endings)}){END})"
    branches = {letter: f"[{letter.upper()}{letter}]{_tree(leaves)}" for letter, leaves in first.items()}
    branches["y"] += rf"|y(?=all{END})"
    pattern = rf"{HOUR}(?=[ap](?:m|\.m\.){END})"
    for letters in reversed(FIRST_LETTERS.split()):
        in_class = f"[{letters.upper()}{letters}]"
        pattern = f"(?={in_class})(?:{'|'.join(map(branches.get, letters))})|(?!{in_class})(?:{pattern})"
    letters = "".join(branches)
    return [_space_at(rf"{SPACE}(?=[{letters}{letters.upper()}1-9])(?:{pattern})\K")]


def infixes():
    """Spaces around what splits a word in its middle; the pieces are not looked up as English words."""
    label = r"[A-Za-z0-9\u00a1-\uffff]{1,64}"
    domain = rf"(?:{label}\.){{0,8}}[{SMALL}]{{2,63}}(?::[0-9]{{2,5}})?(?:#\S{{0,99}})?{END}"
    address = rf"(?!\S{{0,99}}@{label}\.{domain})(?!(?<={SPACE}(?:{label}\.){{0,8}}{label})\.{domain})"
    emoticon = rf"(?!(?::[DOPXopx]|=D){END})"
    whole = rf"(?!(?<={SPACE}Ph)\.D\.|(?<={SPACE}o)\.O{END})"
    stop = rf"\.(?=[{CAPITAL}{QUOTES}])(?<=[{SMALL}{QUOTES}]\.)"
    sign = rf"[:<>=](?<=[0-9{LETTER}].)(?=[{LETTER}])"
    before = [
        rf"(?={stop}){whole}{address}(?<!{_abbreviation()})",
        rf"(?={sign}){address}",
        rf"{whole}\.(?=[{CAPITAL}{QUOTES}])(?<={_abbreviation()}\.)\K",
        r"(?=\.\.)(?<=[^\s.])",
        r"(?=\^(?<=[0-9].)[0-9])",
    ]
    return [
        normalizers.Replace(Regex("|".join(before)), INFIX_SPACE),
        _space_at(rf"{INFIX_SPACE}(?:\.++|{emoticon}[:<>=^])\K(?=\S)"),
        normalizers.Replace(Regex(rf"{INFIX_SPACE}|\n(?<=\A \n)"), " "),  # the prepended line break goes as well
    ]


def lower_case():
    """Lower case; a sigma that ends a word has its own form."""
    return [normalizers.Replace(Regex(r"Σ(?<=[\p{Ll}\p{Lu}]Σ)(?![\p{Ll}\p{Lu}])"), "ς"), normalizers.Lowercase()]


@cache
def preparation(do_lower_case=True):
    """The whole normalizer, from raw text to words between spaces, in lower case or as they are."""
    rules = [*characters(), *whitespace(), *affixes(), *contractions(), *infixes()]
    if do_lower_case:
        rules += lower_case()
    return normalizers.Sequence(rules)


def is_plain(text: str) -> bool:
    """Whether the text is printable ASCII and line breaks without HTML entities: `plain_preparation` serves it."""
    return NOT_PLAIN.search(text) is None


@cache
def plain_preparation(do_lower_case=True):
    """A `preparation` of plain text in half the time. Its words are the same, their offsets are not: it needs no table
    and no composition of letters, and puts a space beside a sign only where none is.
    """
    singles = f"[{_characters(SINGLES)}\n]"
    line_breaks = [_remove(r"\n(?:[ \n]*+\z|\K[ \n]+)")]
    before = "|".join([singles, *(rf"\{mark}(?<!\{mark}{{2}})" for mark in RUNS)])
    after = "|".join([singles, *(rf"\{mark}(?!\{mark})" for mark in RUNS)])
    apart = [_space_at(rf"{NOT_AGAIN}(?=(?:{before}))(?<=\S)"), _space_at(rf"(?:{after})\K(?=\S)")]
    start = normalizers.Prepend(" \n")
    rules = [*affixes(), *contractions(), *infixes()]
    if do_lower_case:
        rules.append(normalizers.Lowercase())
    return normalizers.Sequence([start, *line_breaks, *apart, *rules])
