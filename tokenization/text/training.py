"""Learns a tokenizer of any of five kinds from a stream of text: for English prose, for any alphabet, for any bytes.

| kind | made of | for |
|---|---|---|
| `gpt1` | the paper's words in lower case, BPE with `</w>` at the end of a word | English prose |
| `cased` | the same with capitals | English prose whose capitals matter |
| `bytes` | GPT-2's byte-level BPE, which gives each text back byte for byte | any language, code, anything |
| `wordpiece` | BERT's WordPiece with capitals and accents | languages that write words |
| `characters` | one token a character | genomes, music, sequences of symbols |

Sources: section 4.1 of "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), section
2.2 of "Language Models are Unsupervised Multitask Learners" (Radford et al. 2019) and section 3 of "BERT" (Devlin et
al. 2019).
"""

import json
import os
from collections.abc import Callable, Iterable

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, WordPiece
from transformers import BertTokenizer, GPT2Tokenizer, PreTrainedTokenizerBase, TokenizersBackend

from ..errors import UserError
from .bpe_training import DEFAULT_MERGES, check_num_merges, count_words, learn_merges, texts_to_learn_from
from .tokenization_gpt1 import GPT1Tokenizer

END_OF_TEXT = "<|endoftext|>"
UNKNOWN = "<unk>"
SENTENCE_TOKENS = ("cls_token", "sep_token", "mask_token")
LONGEST_WORD = 1000  # characters; longer words are unknown to WordPiece. Thai writes sentences without a blank.
CONTINUES = "##"  # before a piece of WordPiece that does not begin a word
ANY_CHARACTER = Regex(r"[\s\S]")


def train_tokenizer(
    files_or_iterator: str | os.PathLike | Iterable,
    kind: str = "gpt1",
    num_merges: int | None = None,
    min_frequency: int = 2,
    show_progress: bool = True,
) -> PreTrainedTokenizerBase:
    """Learns a tokenizer from text, which is read once, as a stream. The same text gives the same tokenizer.

    `save_pretrained` writes it as `tokenizer.json`, which `tokenizers` and transformers read. JavaScript needs another
    form, see `gpt1 convert --to js`.

    Args:
        files_or_iterator (path, list of paths, or iterator of `str`): a corpus as in `training_texts`, or texts of
            your own; a list always means files, so pass a list of texts as `iter(texts)`.
        kind (`str`, defaults to `"gpt1"`): a key of `TOKENIZER_KINDS`; the table above says which is for what.
        num_merges (`int`, *optional*, defaults to 40000): merges to learn beside the alphabet; fewer if the text has
            no more. Not for `"characters"`.
        min_frequency (`int`, defaults to 2): a pair of symbols seen less often is not merged.
        show_progress (`bool`, defaults to `True`): show progress bars.

    Returns:
        `"gpt1"` and `"cased"`: [`GPT1Tokenizer`]; `"bytes"`: `GPT2Tokenizer`; `"wordpiece"` and `"characters"`:
        `TokenizersBackend`.

    Raises:
        ValueError: `kind` is none of these; the text has no words; `num_merges` is negative, or given for
            `"characters"`.

    Examples:
        >>> from tokenization import train_tokenizer
        >>> tokenizer = train_tokenizer(iter(["ACGTACG"]), "characters", show_progress=False)
        >>> tokenizer.tokenize("GATTACA")
        ['G', 'A', 'T', 'T', 'A', 'C', 'A']
    """
    if kind not in TOKENIZER_KINDS:
        raise UserError(f"`kind` is {kind!r}, but must be one of {', '.join(TOKENIZER_KINDS)}.")
    if kind == "characters" and num_merges is not None:
        raise UserError(
            f"`num_merges` is {num_merges}, but a tokenizer of characters merges none. Leave it out, or take 'bytes'."
        )
    if num_merges is None:
        num_merges = DEFAULT_MERGES
    check_num_merges(num_merges)
    texts = texts_to_learn_from(files_or_iterator)
    return TOKENIZER_KINDS[kind](texts, num_merges, min_frequency, show_progress)


def _train_gpt1(texts: Iterable[str], num_merges: int, min_frequency: int, show_progress: bool) -> GPT1Tokenizer:
    return GPT1Tokenizer.train(texts, num_merges, min_frequency, show_progress)


def _train_cased(texts: Iterable[str], num_merges: int, min_frequency: int, show_progress: bool) -> GPT1Tokenizer:
    return GPT1Tokenizer.train(texts, num_merges, min_frequency, show_progress, do_lower_case=False)


def _train_bytes(texts: Iterable[str], num_merges: int, min_frequency: int, show_progress: bool) -> GPT2Tokenizer:
    """The 256 bytes, the merges and the end-of-text token, numbered in this order as by GPT-2."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    untrained = GPT2Tokenizer().backend_tokenizer
    words = count_words(untrained, texts, show_progress)
    _check_words(untrained.decoder.decode([word]) for word in words)
    merges = learn_merges(words, sorted(alphabet), num_merges, min_frequency, show_progress)
    vocab = _numbered([*sorted(alphabet), *map("".join, merges), END_OF_TEXT])
    return GPT2Tokenizer(vocab=vocab, merges=merges)


def _train_wordpiece(
    texts: Iterable[str], num_merges: int, min_frequency: int, show_progress: bool
) -> TokenizersBackend:
    """BERT's five special tokens, each character at the start of a word and within one, and the merges.

    Nothing is written around a text: `family_tokenizer` adds the form of BERT and its kin.
    """
    of_bert = BertTokenizer(do_lower_case=False)
    words = count_words(of_bert.backend_tokenizer, texts, show_progress)
    _check_words(words)
    characters = sorted(set("".join(words)))
    alphabet = [*characters, *(CONTINUES + character for character in characters)]
    merges = learn_merges(
        words, alphabet, num_merges, min_frequency, show_progress, continuing_subword_prefix=CONTINUES
    )
    merged = [first + second.removeprefix(CONTINUES) for first, second in merges]
    special = {name: getattr(of_bert, name) for name in ("pad_token", "unk_token", *SENTENCE_TOKENS)}
    vocab = _numbered([*special.values(), *alphabet, *merged])
    backend = Tokenizer(WordPiece(vocab, unk_token=of_bert.unk_token, max_input_chars_per_word=LONGEST_WORD))
    backend.normalizer = of_bert.backend_tokenizer.normalizer
    backend.pre_tokenizer = of_bert.backend_tokenizer.pre_tokenizer
    backend.decoder = of_bert.backend_tokenizer.decoder
    return TokenizersBackend(
        tokenizer_object=backend, bos_token=of_bert.cls_token, eos_token=of_bert.sep_token, **special
    )


def _train_characters(
    texts: Iterable[str], num_merges: int, min_frequency: int, show_progress: bool
) -> TokenizersBackend:
    """A BPE without merges: the unknown token and each character of the text."""
    counter = Tokenizer(BPE())
    counter.pre_tokenizer = pre_tokenizers.Split(ANY_CHARACTER, "isolated")
    characters = count_words(counter, texts, show_progress)
    _check_words(characters)
    backend = Tokenizer(BPE(vocab=_numbered([UNKNOWN, *sorted(characters)]), merges=[], unk_token=UNKNOWN))
    backend.decoder = decoders.Fuse()
    return TokenizersBackend(
        tokenizer_object=backend, unk_token=UNKNOWN, bos_token=UNKNOWN, eos_token=UNKNOWN, pad_token=UNKNOWN
    )


def describe_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """What a tokenizer makes of a text, in some words for people."""
    if isinstance(tokenizer, GPT1Tokenizer):
        case = "in lower case" if tokenizer.do_lower_case else "with capitals"
        return f"words {case}, split by rules for English, in the pieces of a BPE"
    pipeline = json.loads(tokenizer.backend_tokenizer.to_str())
    model = pipeline["model"]
    if "ByteLevel" in json.dumps(pipeline["pre_tokenizer"]):
        return "byte-level BPE, for any text"
    if model["type"] == "BPE" and not model["merges"]:
        return "one token a character"
    if model["type"] == "WordPiece":
        return "WordPiece"
    return f"{model['type']} ({type(tokenizer).__name__})"


def _check_words(words: Iterable[str]) -> None:
    if not any(not word.isspace() for word in words):
        raise UserError("The training text has no words. Give files or strings with text in them.")


def _numbered(tokens: Iterable[str]) -> dict[str, int]:
    """The different tokens with their ids."""
    return {token: index for index, token in enumerate(dict.fromkeys(tokens))}


TOKENIZER_KINDS: dict[str, Callable[..., PreTrainedTokenizerBase]] = {
    "gpt1": _train_gpt1,
    "cased": _train_cased,
    "bytes": _train_bytes,
    "wordpiece": _train_wordpiece,
    "characters": _train_characters,
}
