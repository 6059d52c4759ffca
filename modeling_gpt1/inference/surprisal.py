"""Surprisal of each word of a text: how unexpected it is where it stands, −log₂ of its probability.

A word is what a reader sees between two white spaces, with its punctuation. Its probability is the product of those of
its tokens, if its last token says that it ends there. GPT-1's tokens do: they end in `</w>`. Punctuation is a token of
its own, so that the probability of "home" holds that of "home.", too.

Tokens of GPT-2 and Llama begin with a blank, so that a word ends only where the next token begins. The product for
"farm" then holds "farmer", too, and the end of a word is counted with the next one. For such tokenizers the
probability is corrected:

    P(word) = ∏ P(token) · B(after the word) / B(before the word)

B is the probability that the next token begins with white space or ends the text. Llama 3, Qwen and GPT-4 also have
tokens that end words, such as `.Ċ`, a full stop with a line end. So a word that ends in `.` may end in two ways: by
`.` and then B, or by any token that is `.` with white space. `log_end` adds them up, whichever of them stands in the
text. What stands there is counted with the next word. Two rare ways are left out: white space of several tokens,
unless it stands in the text, and a token such as `."Ċ` where `."` is two tokens.

Sources: "How to Compute the Probability of a Word" (Pimentel and Meister, 2024, https://arxiv.org/abs/2406.14561) and
"Leading Whitespaces of Language Models' Subword Vocabulary Pose a Confound for Calculating Word Probabilities" (Oh and
Schuler, 2024, https://arxiv.org/abs/2406.10851).

Shapes: N predicted tokens of a row, V vocabulary.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from tokenization.errors import UserError
from tokenization.rows.records import SURROGATE
from tokenization.text.tokenization_gpt1 import END_OF_WORD

from ..families.checks import check_embeddings
from .generation import check_opened
from .scoring.base import CHUNK_TOKENS, Group, Place, PredictedTokens, ScoringRequest
from .scoring.causal import CausalLMScorer
from .scoring.masked import scorer_class_of

WORD = re.compile(r"\S+")
# The last word of a sentence, which may be quoted: `home.`, `home."`, `(home!)`.
SENTENCE_END = re.compile(r"[.!?…]+[\"'”’»)\]]*$")
OPENING = "\"'“‘«(["
# All that `\s` finds in a text, each as its bytes in UTF-8.
WHITE_SPACES = [chr(code).encode() for code in range(0x3001) if chr(code).isspace()]
ANY_SPACE = b"(?:" + b"|".join(map(re.escape, WHITE_SPACES)) + b")"
SPACE_AT_BEGIN = re.compile(ANY_SPACE)
SPACES_AT_END = re.compile(ANY_SPACE + rb"+\Z")
LONGEST_SPACE = max(map(len, WHITE_SPACES))
BYTE_OF_CHARACTER = {character: byte for byte, character in bytes_to_unicode().items()}
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")  # as SentencePiece writes a byte
MARKS_OF_WORDS = ("Ġ", "▁")
COLUMNS = ("text", "sentence", "position", "word", "start", "end", "bits", "num_tokens", "tokens")


def word_surprisals(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: str | Sequence[str],
    *,
    stride: int | None = None,
    batch_tokens: int = 2048,
) -> pd.DataFrame:
    """The surprisal of each word of texts, in bits.

    The first word stands after the tokenizer's `bos_token`, or its `eos_token` without one. That of GPT-1, id 0,
    stands in no text that this package trains on, so its first words say little. The bits of a text's words add up to
    −log₂ of the text's probability; with a tokenizer that begins words by a blank, of a text whose last word ends
    there.

    Args:
        model ([`PreTrainedModel`]): any causal language model of transformers.
        tokenizer ([`PreTrainedTokenizerBase`]): a fast tokenizer whose tokens end words, as GPT-1's, or begin them
            with their white space, as GPT-2's and Llama's.
        texts (`str` or list of `str`): one text or several, each read by itself.
        stride (`int`, *optional*): for texts longer than the model reads at once: tokens by which its window is moved.
            A token behind the first window has at least the model's positions minus `stride` tokens before it.
            Default: half of the positions.
        batch_tokens (`int`, defaults to 2048): maximum tokens of a batch, padding included.

    Returns:
        `pandas.DataFrame` with a row for each word:

        - `text`: number of its text, from 0;
        - `sentence`, `position`: number of its sentence in the text and its own in the sentence, from 1. A sentence
          ends with a word that ends in `.`, `!`, `?` or `…`, closing quotes and brackets left out, unless the next one
          begins with a small letter;
        - `word`, `start`, `end`: its characters, `text[start:end]`;
        - `bits`: its surprisal. White space belongs to the word after it, as a line end of GPT-1 does;
        - `num_tokens`, `tokens`: how many tokens it has, and which, separated by blanks.

    Raises:
        ValueError: the model is not causal; the tokenizer has no offsets, no token that begins a text, more tokens
            than the model, tokens of several words, or marks neither ends nor beginnings of words; `stride` is out of
            range; a text is no text or has half a character; a token holds parts of two words; the tokens do not show
            where a word begins; the model's scores are not numbers (NaN).

    Examples:
        >>> from modeling_gpt1 import NOVELS, GPT1ForCausalLM, word_surprisals
        >>> from tokenization import GPT1Tokenizer
        >>> model, tokenizer = GPT1ForCausalLM.from_pretrained(NOVELS), GPT1Tokenizer.from_pretrained(NOVELS)
        >>> words = word_surprisals(model, tokenizer, "The old farmer went home.")
        >>> words["word"].tolist()
        ['The', 'old', 'farmer', 'went', 'home.']
        >>> words["bits"].round(1).tolist()
        [5.0, 6.6, 10.1, 10.5, 8.3]
    """
    check_opened(model, tokenizer)
    texts = [texts] if isinstance(texts, str) else list(texts)  # an iterator is read once
    if scorer_class_of(model.config) is not CausalLMScorer:
        raise UserError(
            f"{type(model).__name__} does not predict each word from those before it. Pass a causal language model, "
            "such as GPT-1, GPT-2 or Llama."
        )
    if not tokenizer.is_fast:
        raise UserError(f"{type(tokenizer).__name__} gives no offsets of its tokens. Pass a fast tokenizer.")
    for number, text in enumerate(texts):
        check_text(text, f"Text {number}")
    start_id = id_of_start(tokenizer)
    check_embeddings(model, tokenizer)
    pieces = pieces_of(tokenizer)
    if pieces is None:
        scorer = BoundaryScorer(model, tokenizer, batch_tokens, start_ids=[])
    else:
        boundaries = Boundaries(ids_of_boundaries(tokenizer, pieces), *joins_of(pieces))
        scorer = BoundaryScorer(model, tokenizer, batch_tokens, start_ids=[], boundaries=boundaries)
    length = scorer.max_length
    if stride is None:
        stride = max(length // 2, 1)
    if not 1 <= stride <= length:
        raise UserError(f"`stride` is {stride}, but the model reads {length} tokens at once. Pass 1 to {length}.")
    if not texts:
        return pd.DataFrame(columns=COLUMNS)

    encoded = tokenizer(
        texts, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True, verbose=False
    )
    plans = []
    for number, text in enumerate(texts):
        ids = encoded["input_ids"][number]
        plan = TextPlan(number, text, ids, words_of_tokens(text, encoded["offset_mapping"][number]))
        if pieces is None:
            plan.requests = list(windows(ids, start_id, length, stride))
        else:
            plan.pieces = [pieces[token_id] for token_id in ids]
            # What follows the last token is not scored, but where its word ends is read there.
            plan.requests = list(windows([*ids, start_id], start_id, length, stride))
            plan.stems = stem_requests(plan, boundaries.stems, start_id, length)
        plans.append(plan)
    scores = iter(scorer.scores_of([request for plan in plans for request in plan.all_requests]))
    for plan in plans:
        plan.keep_scores([next(scores) for _ in plan.all_requests])

    rows = []
    for plan in plans:
        ends = {} if pieces is None else ends_of_words(plan)
        written = tokenizer.convert_ids_to_tokens(plan.ids)
        log_probs = log_probs_of_words([places for _, places in plan.words], plan.scores, ends)
        positions = sentence_positions([match.group() for match, _ in plan.words])
        for (match, places), log_prob, (sentence, position) in zip(plan.words, log_probs, positions, strict=True):
            rows.append(
                {
                    "text": plan.number,
                    "sentence": sentence,
                    "position": position,
                    "word": match.group(),
                    "start": match.start(),
                    "end": match.end(),
                    "bits": -log_prob / math.log(2) + 0.0,  # a word without tokens has 0.0, not −0.0
                    "num_tokens": len(places),
                    "tokens": " ".join(written[place] for place in places),
                }
            )
    return pd.DataFrame(rows, columns=COLUMNS)


def check_text(text: str, name: str) -> None:
    """Refuses what is no text, and a text that UTF-8 cannot hold; `name` says which it is."""
    if not isinstance(text, str):
        raise UserError(f"{name} is {text!r}, where a text is needed. Leave it out, or write it as a text.")
    half = SURROGATE.search(text)
    if half is not None:
        raise UserError(
            f"{name} has half a character, {half.group()!r}, at place {half.start()}. Write the whole character."
        )


# ---- Tokenizers


def id_of_start(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id before a text's first token: the beginning of a text, or the end of the one before it, as GPT-2's."""
    start_id = tokenizer.bos_token_id
    if start_id is None:
        start_id = tokenizer.eos_token_id
    if start_id is None:
        raise UserError(
            f"{type(tokenizer).__name__} has no token that begins a text, so that the first word has no probability. "
            "Set its `bos_token`."
        )
    return start_id


def pieces_of(tokenizer: PreTrainedTokenizerBase) -> dict[int, bytes] | None:
    """The bytes of text that each id stands for; `None` where tokens end words."""
    backend = tokenizer.backend_tokenizer
    # Added tokens are read as they are, whatever they end in or begin with: they say nothing about words.
    if getattr(backend.model, "end_of_word_suffix", None):  # only BPE has one
        return None
    if not any(token.startswith(MARKS_OF_WORDS) for token in backend.get_vocab(with_added_tokens=False)):
        raise UserError(
            f"The tokens of {type(tokenizer).__name__} mark neither where words end, as {END_OF_WORD!r}, nor where "
            f"they begin, as {' and '.join(map(repr, MARKS_OF_WORDS))}. Pass a model with such a tokenizer."
        )
    is_byte_level = "ByteLevel" in f"{backend.decoder} {backend.pre_tokenizer}"
    added = tokenizer.added_tokens_decoder
    pieces = {}
    for token, token_id in tokenizer.get_vocab().items():
        if is_byte_level and token_id in added:
            pieces[token_id] = token.encode()
        elif is_byte_level:
            pieces[token_id] = bytes_of_byte_level(token)
        else:
            pieces[token_id] = bytes_of_sentencepiece(token)
        if token_id not in added:
            check_piece(pieces[token_id])
    return pieces


def bytes_of_byte_level(token: str) -> bytes:
    """The bytes of a token that has a character for each, as `Ġ` for a blank."""
    if all(character in BYTE_OF_CHARACTER for character in token):
        return bytes(BYTE_OF_CHARACTER[character] for character in token)
    return token.encode()


def bytes_of_sentencepiece(token: str) -> bytes:
    """The bytes of a token that has `▁` for a blank, or is a byte, as `<0x0A>`."""
    byte = BYTE_TOKEN.fullmatch(token)
    if byte is not None:
        return bytes([int(byte.group(1), 16)])
    return token.replace("▁", " ").encode(errors="replace")


def check_piece(piece: bytes) -> None:
    """Refuses a token of several words: where it is likely, a word's own tokens do not have its probability."""
    words = piece.decode(errors="replace").split()
    has_letters = [any(map(str.isalpha, word)) for word in words]
    if has_letters.count(True) > 1:
        raise UserError(
            f"The tokenizer has a token of several words, {piece.decode(errors='replace')!r}, so that a word has no "
            "probability of its own. Pass a model whose tokens hold one word at most."
        )


def ids_of_boundaries(tokenizer: PreTrainedTokenizerBase, pieces: Mapping[int, bytes]) -> list[int]:
    """The ids that begin with white space or end a text, in order."""
    ids = {token_id for token_id, piece in pieces.items() if SPACE_AT_BEGIN.match(piece)}
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return sorted(ids)


def joins_of(pieces: Mapping[int, bytes]) -> tuple[dict[int, list[int]], dict[int, int | None]]:
    """The ids of tokens that end in white space behind other characters, as `.` with a line end does.

    Returns:
        - of each such id, and of its stem: all ids with this stem;
        - of each such id: the id of its stem, the same without the white space, or `None` where that is no token.
    """
    with_stem: dict[bytes, list[int]] = {}
    for token_id, piece in pieces.items():
        stem = SPACES_AT_END.sub(b"", piece)
        if stem and stem != piece:
            with_stem.setdefault(stem, []).append(token_id)
    joined: dict[int, list[int]] = {}
    stems: dict[int, int | None] = {}
    for ids in with_stem.values():
        for token_id in ids:
            joined[token_id] = ids
            stems[token_id] = None
    for token_id, piece in pieces.items():
        if piece in with_stem:
            joined[token_id] = with_stem[piece]
            stems.update(dict.fromkeys(with_stem[piece], token_id))
    return joined, stems


def words_of_tokens(text: str, offsets: Sequence[tuple[int, int]]) -> list[tuple[re.Match, list[int]]]:
    """The words of a text, each with the places of its tokens, in order."""
    words = [(match, []) for match in WORD.finditer(text)]
    current = 0  # the word that a token of white space belongs to: the next, or the last of a text
    for place, (start, end) in enumerate(offsets):
        piece = text[start:end]
        first = start + len(piece) - len(piece.lstrip())
        while current < len(words) - 1 and words[current][0].end() <= (first if piece.strip() else start):
            current += 1
        if not words:
            break
        match, places = words[current]
        if piece.strip() and end > match.end() and text[match.end() : end].strip():
            raise UserError(f"The token for {piece!r} holds parts of two words, which have no probability each.")
        places.append(place)
    return words


class TokenScore(NamedTuple):
    """A predicted token. Where tokens end words, only its probability is needed."""

    log_prob: float
    """Natural logarithm of its probability."""
    boundary: float = 0.0
    """Of the probability that the token in its place begins with white space or ends the text."""
    stem: float = 0.0
    """Of the probability of the token without white space at its end; −∞ where that is no token."""
    joined: float = 0.0
    """Of the probability of all tokens that are its stem with white space at the end; −∞ without any."""


@dataclass
class TextPlan:
    """A text, what is scored of it, and the scores."""

    number: int
    text: str
    ids: list[int]
    words: list[tuple[re.Match, list[int]]]
    """Each word with the places of its tokens."""
    pieces: list[bytes] = field(default_factory=list)
    """The bytes of each token, where tokens begin words."""
    requests: list[ScoringRequest] = field(default_factory=list)
    """The text's tokens, in windows."""
    stems: dict[int, ScoringRequest] = field(default_factory=dict)
    """Of each place of a token that joins a word's end with white space: its stem, and what follows that."""
    scores: list[TokenScore] = field(default_factory=list)
    """The score of each token, and of what follows the last one where tokens begin words."""
    after_stems: dict[int, float] = field(default_factory=dict)
    """Of each place in `stems`: the boundary behind the stem."""

    @property
    def all_requests(self) -> list[ScoringRequest]:
        return [*self.requests, *self.stems.values()]

    def keep_scores(self, scores: list[list[TokenScore]]) -> None:
        """Keeps the scores of `all_requests`."""
        of_text = scores[: len(self.requests)]
        of_stems = scores[len(self.requests) :]
        self.scores = list(chain.from_iterable(of_text))
        self.after_stems = {place: tokens[-1].boundary for place, tokens in zip(self.stems, of_stems, strict=True)}

    @property
    def ends(self) -> Iterator[tuple[int, re.Match | None]]:
        """The place behind each word that has tokens, and the word that begins there, if any."""
        with_tokens = [(match, places) for match, places in self.words if places]
        for (_, places), (following, _) in zip_longest(with_tokens, with_tokens[1:], fillvalue=(None, None)):
            yield places[-1] + 1, following

    def ends_in_space(self, place: int) -> bool:
        """Whether white space stands right before the token of a place."""
        before = b"".join(self.pieces[max(place - LONGEST_SPACE, 0) : place])
        return SPACES_AT_END.search(before) is not None


def stem_requests(
    plan: TextPlan, stems: Mapping[int, int | None], start_id: int, length: int
) -> dict[int, ScoringRequest]:
    """What scores other ends of a word whose last token joins it with white space. The text's last word needs none."""
    requests = {}
    for end, following in plan.ends:
        stem = stems.get(plan.ids[end - 1])
        if following is not None and stem is not None:
            before = [start_id, *plan.ids[: end - 1]]
            requests[end - 1] = ScoringRequest(before[-max(length - 1, 1) :], [[stem, start_id]])
    return requests


# ---- Scores


class Boundaries(NamedTuple):
    """What a vocabulary says about where words end."""

    ids: list[int]
    """Ids that begin with white space or end the text."""
    joined: dict[int, list[int]]
    stems: dict[int, int | None]
    """See `joins_of`."""


class BoundaryScorer(CausalLMScorer):
    """Scores tokens, and beside each the probability that a word ends before it, or with it.

    Only `scores_of` works here: the scores of `score` and `score_ids` have other fields.

    Args:
        boundaries ([`Boundaries`], *optional*): where words end, if tokens begin them.
        args, kwargs: see [`CausalLMScorer`].
    """

    shares_contexts = False

    def __init__(self, *args, boundaries: Boundaries | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.boundaries = boundaries

    def scores_of(self, requests: Sequence[ScoringRequest]) -> list[list[TokenScore]]:
        """The tokens of the only continuation of each request."""
        _, tokens = self._predict_requests(requests)
        scores = []
        for number in range(len(requests)):
            scores.append([TokenScore(*values) for values in tokens[Place(number, 0)]])
        return scores

    def _score_groups(self, groups: list[Group]) -> Iterator[PredictedTokens]:
        for batch in self._batches(groups, lambda group: (group.length,)):
            inputs = self._padded([group.context + group.continuations[0][:-1] for group in batch])
            logits = self._run(**inputs).logits
            places, values = [], []
            for row, group in enumerate(batch):
                (ids,) = group.continuations
                first = len(group.context) - 1  # the last token of the context predicts the first of the continuation
                values.append(self._score_row(logits[row, first : first + len(ids)], ids))
                places += group.places * len(ids)
            yield PredictedTokens(places, torch.cat(values).cpu())

    def _score_row(self, logits: torch.Tensor, ids: list[int]) -> torch.Tensor:
        """The fields of `TokenScore`, `[N, 4]`, or only the first, `[N, 1]`, from `logits [N, V]`."""
        parts = []
        for start in range(0, len(ids), CHUNK_TOKENS):
            some = logits[start : start + CHUNK_TOKENS]
            log_probs = some.to(torch.promote_types(some.dtype, torch.float32)).log_softmax(-1)
            parts.append(self._fields(log_probs, ids[start : start + CHUNK_TOKENS]))
        return torch.cat(parts)

    def _fields(self, log_probs: torch.Tensor, ids: list[int]) -> torch.Tensor:
        of_targets = self._at(log_probs, ids)
        if self.boundaries is None:
            return of_targets[:, None]
        boundaries = log_probs[:, self.boundaries.ids].logsumexp(-1)
        of_stems = self._at(log_probs, [self.boundaries.stems.get(token_id, token_id) for token_id in ids])
        joined = torch.full_like(of_targets, -torch.inf)
        for place, token_id in enumerate(ids):
            if token_id in self.boundaries.joined:
                joined[place] = log_probs[place, self.boundaries.joined[token_id]].logsumexp(-1)
        return torch.stack([of_targets, boundaries, of_stems, joined], dim=1)

    def _at(self, log_probs: torch.Tensor, ids: list[int | None]) -> torch.Tensor:
        """The value of one id in each row, `[N]`; −∞ for `None`."""
        is_none = torch.tensor([token_id is None for token_id in ids], device=log_probs.device)
        known = torch.tensor([token_id or 0 for token_id in ids], device=log_probs.device)
        return log_probs.gather(1, known[:, None])[:, 0].masked_fill(is_none, -torch.inf)


def windows(ids: Sequence[int], start_id: int, length: int, stride: int) -> Iterator[ScoringRequest]:
    """Cuts a text's ids into pieces that are scored with as much before each as the model reads.

    The first has `length` tokens behind `start_id`. Each other one has `stride`, behind the tokens of the text.
    """
    if ids:
        yield ScoringRequest([start_id], [list(ids[:length])])
    for begin in range(length, len(ids), stride):
        piece = list(ids[begin : begin + stride])
        num_before = length + 1 - len(piece)  # the last token of a piece is not read
        yield ScoringRequest(list(ids[begin - num_before : begin]), [piece])


def ends_of_words(plan: TextPlan) -> dict[int, float]:
    """The `log_end` of each word, by the place behind it.

    White space at the end of a text belongs to its last word, which then ends as it stands.
    """
    ends = {}
    for end, following in plan.ends:
        is_closed = plan.ends_in_space(end)
        last = plan.scores[end - 1]
        if following is None:
            ends[end] = 0.0 if is_closed else log_end(last, plan.scores[end].boundary)
        elif is_closed:
            ends[end] = log_end(last, plan.after_stems.get(end - 1, 0.0))
        else:
            ends[end] = log_end(last, boundary_of_text(plan, end, following))
    return ends


def log_end(last: TokenScore, boundary: float) -> float:
    """How much more or less probable than a word's tokens it is that the word ends there, as a logarithm.

    Args:
        last: the word's last token.
        boundary: log-probability that white space, or the end of the text, follows its stem.
    """
    if last.joined == -math.inf:
        return boundary
    return float(np.logaddexp(last.joined, last.stem + boundary)) - last.log_prob


def boundary_of_text(plan: TextPlan, end: int, following: re.Match) -> float:
    """The boundary behind a word, with the white space that stands there, even if several tokens write it.

    Raises:
        ValueError: no tokens write it, or one of them writes letters, too.
    """
    boundary = plan.scores[end].boundary
    if SPACE_AT_BEGIN.match(plan.pieces[end]):
        return boundary
    for behind in range(end + 2, end + 1 + LONGEST_SPACE):
        written = b"".join(plan.pieces[end:behind])
        if SPACE_AT_BEGIN.match(written) and not SPACES_AT_END.sub(b"", written):
            path = math.fsum(score.log_prob for score in plan.scores[end:behind])
            return float(np.logaddexp(boundary, path))
    space = plan.text[: following.start()]
    space = space[len(space.rstrip()) :]
    raise UserError(
        f"The tokens of text {plan.number} do not show the white space {space!r} before {following.group()!r}, so "
        "that the word before it has no end. Replace it by a blank."
    )


def log_probs_of_words(
    words: Sequence[Sequence[int]], scores: Sequence[TokenScore], ends: Mapping[int, float]
) -> Iterator[float]:
    """The log-probability of each word from the places of its tokens and the `log_end` of words, by the place behind.

    The first word begins with the text, so that only its end is corrected.
    """
    for places in words:
        log_prob = math.fsum(scores[place].log_prob for place in places)
        if places:
            log_prob += ends.get(places[-1] + 1, 0.0) - ends.get(places[0], 0.0)
        yield log_prob


def sentence_positions(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The number of each word's sentence and its own in the sentence, both from 1."""
    sentence, position = 1, 0
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        position += 1
        yield sentence, position
        begins_small = following.lstrip(OPENING)[:1].islower()
        if SENTENCE_END.search(word) and not begins_small:
            sentence += 1
            position = 0
