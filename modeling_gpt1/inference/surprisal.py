"""Surprisal of each word of a text: how unexpected it is where it stands, −log₂ of its probability.

A word is what a reader sees between two white spaces, with its punctuation. Its probability is the product of those of
its tokens, if its last token says that it ends there. GPT-1's tokens do: they end in `</w>`. Tokens of GPT-2 and Llama
begin with a blank, so that a word ends only where the next token begins. The product for "farm" then holds "farmer",
too, and the end of a word is counted with the next one. For such tokenizers the probability is corrected:

    P(word) = ∏ P(token) · B(after the word) / B(before the word)

B is the probability that the next token begins with white space or ends the text. Sources: "How to Compute the
Probability of a Word" (Pimentel and Meister, 2024, https://arxiv.org/abs/2406.14561) and "Leading Whitespaces of
Language Models' Subword Vocabulary Pose a Confound for Calculating Word Probabilities" (Oh and Schuler, 2024,
https://arxiv.org/abs/2406.10851).

Shapes: N predicted tokens of a row, V vocabulary.
"""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

import pandas as pd
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tokenization.errors import UserError
from tokenization.text.tokenization_gpt1 import END_OF_WORD

from ..families.probing import unchanged
from .scoring.base import CHUNK_TOKENS, Group, PredictedTokens, ScoringRequest
from .scoring.causal import CausalLMScorer
from .scoring.masked import scorer_class_of

WORD = re.compile(r"\S+")
# The last word of a sentence, which may be quoted: `home.`, `home."`, `(home!)`.
SENTENCE_END = re.compile(r"[.!?…]+[\"'”’»)\]]*$")
OPENING = "\"'“‘«(["
# White space at the beginning of a token, as byte-level and SentencePiece vocabularies write it.
WRITTEN_SPACES = ("Ġ", "Ċ", "ĉ", "č", "▁", " ", "\n", "\t", "\r", "<0x20>", "<0x0A>", "<0x09>", "<0x0D>")
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

    The first word stands after the beginning of a text, such as id 0 of GPT-1. The bits of a text's words add up to
    −log₂ of the text's probability; with a tokenizer that begins words by a blank, of a text that ends there.

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
        - `bits`: its surprisal. White space that is a token, as a line end of GPT-1, belongs to the word after it;
        - `num_tokens`, `tokens`: how many tokens it has, and which, separated by blanks.

    Raises:
        ValueError: the model is not causal; the tokenizer has no offsets, no token that begins a text, or marks
            neither ends nor beginnings of words; `stride` is out of range; a token holds parts of two words.

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
    if isinstance(texts, str):
        texts = [texts]
    if scorer_class_of(model.config) is not CausalLMScorer:
        raise UserError(
            f"{type(model).__name__} does not predict each word from those before it. Pass a causal language model, "
            "such as GPT-1, GPT-2 or Llama."
        )
    if not tokenizer.is_fast:
        raise UserError(f"{type(tokenizer).__name__} gives no offsets of its tokens. Pass a fast tokenizer.")
    start_id = id_of_start(tokenizer)
    scorer = BoundaryScorer(model, tokenizer, batch_tokens, start_ids=[], boundary_ids=ids_of_boundaries(tokenizer))
    length = scorer.max_length
    if stride is None:
        stride = max(length // 2, 1)
    if not 1 <= stride <= length:
        raise UserError(f"`stride` is {stride}, but the model reads {length} tokens at once. Pass 1 to {length}.")

    encoded = tokenizer(
        list(texts), add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True, verbose=False
    )
    requests, num_requests = [], []
    for ids in encoded["input_ids"]:
        # What follows the last token is not scored, but where its word ends is read there.
        read = [*ids, start_id] if scorer.boundary_ids is not None else ids
        of_text = list(windows(read, start_id, length, stride))
        requests += of_text
        num_requests.append(len(of_text))
    scores = iter(scorer.scores_of(requests))

    rows = []
    for number, (text, num) in enumerate(zip(texts, num_requests, strict=True)):
        ids = encoded["input_ids"][number]
        tokens = [token for _ in range(num) for token in next(scores)]
        words = words_of_tokens(text, encoded["offset_mapping"][number])
        pieces = tokenizer.convert_ids_to_tokens(ids)
        log_probs = log_probs_of_words([places for _, places in words], tokens, scorer.boundary_ids is not None)
        positions = sentence_positions([match.group() for match, _ in words])
        for (match, places), log_prob, (sentence, position) in zip(words, log_probs, positions, strict=True):
            rows.append(
                {
                    "text": number,
                    "sentence": sentence,
                    "position": position,
                    "word": match.group(),
                    "start": match.start(),
                    "end": match.end(),
                    "bits": -log_prob / math.log(2),
                    "num_tokens": len(places),
                    "tokens": " ".join(pieces[place] for place in places),
                }
            )
    return pd.DataFrame(rows, columns=COLUMNS)


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


def ids_of_boundaries(tokenizer: PreTrainedTokenizerBase) -> list[int] | None:
    """The ids that begin with white space or end a text, in order; `None` where tokens end words."""
    vocabulary = tokenizer.get_vocab()
    if any(token.endswith(END_OF_WORD) for token in vocabulary):
        return None
    if not any(token.startswith(MARKS_OF_WORDS) for token in vocabulary):
        raise UserError(
            f"The tokens of {type(tokenizer).__name__} mark neither where words end, as {END_OF_WORD!r}, nor where "
            f"they begin, as {' and '.join(map(repr, MARKS_OF_WORDS))}. Pass a model with such a tokenizer."
        )
    ids = {token_id for token, token_id in vocabulary.items() if token.startswith(WRITTEN_SPACES)}
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return sorted(ids)


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


# ---- Scores


class TokenScore(NamedTuple):
    """A predicted token."""

    log_prob: float
    """Natural logarithm of its probability."""
    boundary: float
    """Natural logarithm of the probability that a word ends before it; 0 where tokens end words."""


class BoundaryScorer(CausalLMScorer):
    """Scores tokens, and beside each the probability that a word ends before it.

    Args:
        boundary_ids (`list[int]`, *optional*): ids that begin a word or end the text.
        args, kwargs: see [`CausalLMScorer`].
    """

    shares_contexts = False

    def __init__(self, *args, boundary_ids: Sequence[int] | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.boundary_ids = None
        if boundary_ids is not None:
            self.boundary_ids = torch.tensor(boundary_ids, device=self.model.device)

    def scores_of(self, requests: Sequence[ScoringRequest]) -> list[list[TokenScore]]:
        """The tokens of the only continuation of each request."""
        with unchanged(self.model):
            if self.is_batched is None:
                self._try_model()
            tokens = self._predict(self._fit(requests))
        return [[TokenScore(*values) for values in tokens[number, 0]] for number in range(len(requests))]

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
        """The fields of `TokenScore`, `[N, 2]`, from `logits [N, V]`."""
        targets = torch.tensor(ids, device=logits.device)
        parts = []
        for some, of_some in zip(logits.split(CHUNK_TOKENS), targets.split(CHUNK_TOKENS), strict=True):
            log_probs = some.to(torch.promote_types(some.dtype, torch.float32)).log_softmax(-1)
            of_targets = log_probs.gather(1, of_some[:, None])[:, 0]
            boundaries = torch.zeros_like(of_targets)
            if self.boundary_ids is not None:
                boundaries = log_probs[:, self.boundary_ids].logsumexp(-1)
            parts.append(torch.stack([of_targets, boundaries], dim=1))
        return torch.cat(parts)


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


def log_probs_of_words(
    words: Sequence[Sequence[int]], scores: Sequence[TokenScore], is_corrected: bool
) -> Iterator[float]:
    """The log-probability of each word from the places of its tokens; `is_corrected` needs one score more than tokens.

    The first word begins with the text, so that only its end is corrected.
    """
    for places in words:
        log_prob = math.fsum(scores[place].log_prob for place in places)
        if is_corrected and places:
            log_prob += scores[places[-1] + 1].boundary
            if places[0] > 0:
                log_prob -= scores[places[0]].boundary
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
