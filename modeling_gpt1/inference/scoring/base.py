"""What every scorer does: texts become ids, ids become groups of a length that fits, groups become batches.

Shapes: B rows, T tokens of a padded row, V vocabulary, N predicted tokens.
"""

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from tokenization.errors import UserError
from tokenization.text.control_tokens import check_tokenizer

from ...families import family_of_config
from ...families.probing import limit_of_tokens, rounding_of, unchanged
from ...modeling_gpt1 import CACHE
from ..generation import check_is_model, not_numbers

logger = logging.get_logger(__name__)

# Predicted tokens whose logits are normalised at once: 41 MiB of float32 at V = 40 478.
CHUNK_TOKENS = 256
# Rows that are worth a call of the model of their own: from so many on, much shorter ones begin another batch.
ROWS_TO_SPLIT = 8
# Tokens of the sequences by which a model is tried.
NUM_TRIED = 8
# Tokens that a model which says nothing about its length reads at once.
UNLIMITED_LENGTH = 1 << 31


class ScoringRequest(NamedTuple):
    """A context and its possible continuations: texts for `score`, lists of token ids for `score_ids`."""

    context: str | Sequence[int]
    continuations: Sequence[str] | Sequence[Sequence[int]]


@dataclass(frozen=True)
class ContinuationScore:
    """The log-probabilities of one continuation."""

    token_log_probs: tuple[float, ...]
    """Natural logarithm of the probability of each predicted token."""
    is_greedy: bool = True
    """Whether each predicted token is the most probable one at its place."""

    @property
    def total(self) -> float:
        """Sum over the predicted tokens; 0 without any."""
        return math.fsum(self.token_log_probs)

    @property
    def mean(self) -> float:
        """Mean over the predicted tokens; NaN without any."""
        return self.total / len(self.token_log_probs) if self.token_log_probs else math.nan


class Place(NamedTuple):
    """Where a continuation comes from."""

    request: int
    """The request's number."""
    continuation: int
    """The continuation's number in the request."""


class Group(NamedTuple):
    """A context of at least one token, and continuations that have at least one token to predict."""

    context: list[int]
    continuations: list[list[int]]
    places: list[Place]

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens that are read of the context and of the longest continuation, whose last is only predicted."""
        return len(self.context), max(map(len, self.continuations)) - 1

    @property
    def length(self) -> int:
        """Tokens that are read of the context and the longest continuation together."""
        return sum(self.lengths)


class PredictedTokens(NamedTuple):
    """What a batch gives: N predicted tokens, those of a continuation in order."""

    places: list[Place]
    """The continuation that each token belongs to."""
    values: torch.Tensor
    """`[N, 2]`, on the CPU: each token's log-probability, and 1 if it is the most probable one.

    A subclass may have other values behind the log-probability, or none.
    """


def _is_pair_of_texts(request: Any) -> bool:
    """Whether a request is a context and a list of continuations."""
    if not isinstance(request, list | tuple) or len(request) != 2:
        return False
    context, continuations = request
    is_list = isinstance(continuations, Sequence) and not isinstance(continuations, str)
    return isinstance(context, str) and is_list and all(isinstance(text, str) for text in continuations)


class Scorer:
    """Base: a subclass says what stands before a text and scores groups in batches."""

    method: str
    """What `total` of a score is."""
    shares_contexts = False
    """Whether the continuations of a context stay in one group, if the model reads keys and values."""
    _padding = 0

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        batch_tokens: int = 2048,
        max_length: int | None = None,
        start_ids: Sequence[int] | None = None,
    ):
        check_is_model(model)
        if tokenizer is not None:
            check_tokenizer(tokenizer)
        self.model = model
        self.tokenizer = tokenizer
        self.batch_tokens = batch_tokens
        self._arguments = inspect.signature(model.forward).parameters
        limits = [max_length, limit_of_tokens(model), UNLIMITED_LENGTH]
        # Columns of a batch, padding included.
        self._most_read = min(limit for limit in limits if limit is not None)
        # Tokens that are read of a request. A subclass subtracts those that it adds to each row.
        self.max_length = self._most_read
        self.start_ids = list(self._usual_start() if start_ids is None else start_ids)
        # Whether rows share a batch, and continuations a context.
        # None until `_try_model` has compared a batch with its rows alone.
        self.is_batched: bool | None = True if family_of_config(model.config).is_exact_in_batches else None

    def _usual_start(self) -> list[int]:
        """The ids that stand before every context by default."""
        raise NotImplementedError

    def _score_groups(self, groups: list[Group]) -> Iterator[PredictedTokens]:
        """The model's answers, batch by batch. The tokens of a continuation come in order."""
        raise NotImplementedError

    # ---- Text

    def score(self, requests: Iterable[ScoringRequest | tuple[str, Sequence[str]]]) -> list[list[ContinuationScore]]:
        """Scores texts. Context and continuation are read as one text, and the boundary lies between two tokens:

        - Spaces at the end of a context, and line ends that the tokenizer drops there, as GPT-1's does, belong to the
          continuation. `("the cat ", ["sat"])` and `("the cat", [" sat"])` are the same.
        - Where one token would span the boundary, as in `("un", ["happy"])`, the two are tokenised separately.
        - Text that spells a special token, such as `<|endoftext|>`, is read as text; `start_ids` and
          [`~CausalLMScorer.score_ids`] take the tokens themselves.

        Args:
            requests (iterable of [`ScoringRequest`] or of such pairs): contexts and their continuations.

        Returns:
            For each request the scores of its continuations, in order; see [`~CausalLMScorer.score_ids`].

        Raises:
            ValueError: a request is no pair of a text and a list; see also [`~CausalLMScorer.score_ids`].
        """
        return self.score_ids(self.encode(requests))

    def encode(self, requests: Iterable[ScoringRequest | tuple[str, Sequence[str]]]) -> list[ScoringRequest]:
        """The token ids of texts, as [`~CausalLMScorer.score`] scores them."""
        contexts, wholes_of_contexts = [], []
        for number, request in enumerate(requests):
            if not _is_pair_of_texts(request):
                raise UserError(
                    f"Request {number} is {request!r}, but a pair of a context and a list of continuations is needed, "
                    'such as ("It was", [" good", " bad"]); the context may be "".'
                )
            context, continuations = request
            contexts.append(context.rstrip(" "))
            wholes_of_contexts.append([context + continuation for continuation in continuations])

        texts = []
        for context, wholes in zip(contexts, wholes_of_contexts, strict=True):
            texts += [context, *wholes]
        ids = iter(self.ids_of(texts))

        encoded = []
        for context, wholes in zip(contexts, wholes_of_contexts, strict=True):
            context_ids = next(ids)
            if context and not context_ids and not self.start_ids:
                logger.warning_once(f"The context {context!r} has no token: what follows is scored without context.")
            continuations = []
            for whole in wholes:
                whole_ids = next(ids)
                if whole_ids[: len(context_ids)] == context_ids:
                    continuations.append(whole_ids[len(context_ids) :])
                else:  # a token spans the boundary
                    continuations += self.ids_of([whole[len(context) :]])
            encoded.append(ScoringRequest(context_ids, continuations))
        return encoded

    def ids_of(self, texts: list[str]) -> list[list[int]]:
        """The token ids of each text alone. No text becomes a special token, whatever it spells."""
        if not texts:
            return []
        if self.tokenizer is None:
            raise UserError(f"{type(self).__name__} has no tokenizer for texts. Pass it one, or call `score_ids`.")
        return self.tokenizer(texts, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]

    # ---- Ids

    def score_ids(
        self, requests: Iterable[ScoringRequest | tuple[Sequence[int], Sequence[Sequence[int]]]]
    ) -> list[list[ContinuationScore]]:
        """Scores token ids.

        If a request is longer than the model can read, the beginning of its context is cut. All continuations of the
        request see the same context. A warning says how many requests were cut. Without a context and without
        `start_ids`, the first token of each continuation is not predicted. An empty continuation has a total of 0 and
        no mean.

        Args:
            requests (iterable of [`ScoringRequest`] or of such pairs): contexts and their continuations.

        Returns:
            For each request the scores of its continuations, in order.

        Raises:
            ValueError: a continuation is too long to be read with at least one token before it; the model's scores
                are not numbers (NaN).
        """
        fitting, tokens = self._predict_requests(requests)
        scores = []
        for number, request in enumerate(fitting):
            places = [Place(number, index) for index in range(len(request.continuations))]
            scores.append([_continuation_score(tokens[place]) for place in places])
        return scores

    def _predict_requests(
        self, requests: Iterable[tuple[Sequence[int], Sequence[Sequence[int]]]]
    ) -> tuple[list[ScoringRequest], dict[Place, list[list[float]]]]:
        """The requests as they fit the model, and the values of the predicted tokens of each continuation."""
        with unchanged(self.model):
            if self.is_batched is None:
                self._try_model()
            fitting = self._fit(requests)
            return fitting, self._predict(fitting)

    def _fit(self, requests: Iterable[tuple[Sequence[int], Sequence[Sequence[int]]]]) -> list[ScoringRequest]:
        """The requests with the start tokens before each context, which is cut at the beginning if it is too long.

        The model reads the start tokens, the context and the continuation but its last token, which is only predicted.
        """
        limit = self.max_length - len(self.start_ids)
        fitting, cuts = [], []
        for number, (context, continuations) in enumerate(requests):
            context = list(context)
            continuations = [list(continuation) for continuation in continuations]
            longest = max(continuations, key=len, default=[])
            if len(longest) > limit:
                raise UserError(self._too_long(number, longest, limit))
            num_read = max(len(longest) - 1, 0)  # of the longest continuation
            room = limit - num_read
            kept = context[-room:]
            if len(kept) < len(context):
                cuts.append(len(context) - len(kept))
            fitting.append(ScoringRequest(self.start_ids + kept, continuations))
        if cuts:
            logger.warning(
                f"{len(cuts)} of {len(fitting)} contexts were cut at the beginning, by up to {max(cuts)} tokens, to "
                f"fit into {self.max_length} tokens."
            )
        return fitting

    def _too_long(self, number: int, continuation: list[int], limit: int) -> str:
        text = f", {self.tokenizer.decode(continuation)[:60]!r}" if self.tokenizer else ""
        return (
            f"Request {number} has a continuation of {len(continuation)} tokens{text}, but at most {limit} fit "
            f"after the start tokens (`max_length` {self.max_length}, `start_ids` {len(self.start_ids)}). "
            "Shorten it, score it in parts, or take a model with more positions."
        )

    def _try_model(self) -> None:
        """Scores a small batch, and its rows alone: some models read padding, or keep a state in place of a cache."""
        size = self.model.config.get_text_config().vocab_size
        ids = [(size // 2 + number) % size for number in range(NUM_TRIED)]
        requests = [
            ScoringRequest(ids[:2], [ids[2:5], ids[3:5]]),
            ScoringRequest(ids[:5], [ids[5:7], ids[5:8]]),
        ]
        self.is_batched = False
        alone = self._predict(requests)
        self.is_batched = True
        try:
            together = self._predict(requests)
        except (AttributeError, NotImplementedError, TypeError, ValueError):  # from a cache of states, as LFM2's
            self.is_batched = False
        else:
            rounding = rounding_of(self.model)
            self.is_batched = torch.allclose(
                _log_probs_by_place(alone), _log_probs_by_place(together), rtol=rounding, atol=rounding
            )
        if not self.is_batched:
            logger.warning(
                f"{type(self.model).__name__} gives a row other scores in a batch than alone: each row is scored "
                "alone."
            )

    def _predict(self, requests: list[ScoringRequest]) -> dict[Place, list[list[float]]]:
        """Of each continuation the values of each predicted token; see `PredictedTokens`."""
        groups = []
        for number, request in enumerate(requests):
            groups += self._groups_of(number, request)
        tokens = defaultdict(list)
        for places, values in self._score_groups(groups):
            if values.isnan().any():
                raise UserError(not_numbers("The scores", self.model))
            for place, value in zip(places, values.tolist(), strict=True):
                tokens[place].append(value)
        return tokens

    def _groups_of(self, number: int, request: ScoringRequest) -> list[Group]:
        context = request.context
        pairs = [(Place(number, index), ids) for index, ids in enumerate(request.continuations) if ids]
        if not context:  # the first token is not predicted, but stands before the others
            return [Group(ids[:1], [ids[1:]], [place]) for place, ids in pairs if len(ids) > 1]
        if pairs and self.shares_contexts and self.is_batched and CACHE in self._arguments:
            return [Group(context, [ids for _, ids in pairs], [place for place, _ in pairs])]
        return [Group(context, [ids], [place]) for place, ids in pairs]

    # ---- Batches

    def _batches(
        self,
        items: list,
        lengths: Callable[[Any], tuple[int, ...]],
        num_rows: Callable[[Any], int] = lambda item: 1,
        are_split: bool = False,
    ) -> Iterator[list]:
        """Batches of items of similar length, the longest first, so that a lack of memory shows at once.

        Args:
            lengths: the lengths of an item's parts, each of which is padded by itself.
            num_rows: how many rows an item has.
            are_split: whether a batch of `ROWS_TO_SPLIT` items ends before a last part of at most 3/4 of the longest.
        """
        batch, rows, longest = [], 0, ()
        for item in sorted(items, key=lambda item: (sum(lengths(item)), lengths(item)), reverse=True):
            of_item = lengths(item)
            rows += num_rows(item)
            longest = tuple(map(max, longest or of_item, of_item))
            ends_before = (
                not self.is_batched
                or sum(longest) > self._most_read
                or rows * sum(longest) > self.batch_tokens
                or (are_split and len(batch) >= ROWS_TO_SPLIT and 4 * of_item[-1] <= 3 * longest[-1])
            )
            if batch and ends_before:
                yield batch
                batch = []
                rows = num_rows(item)
                longest = of_item
            batch.append(item)
        if batch:
            yield batch

    def _padded(self, rows: Sequence[Sequence[int]], side: str = "right") -> dict[str, torch.Tensor]:
        """`input_ids` and `attention_mask` of ragged rows, both `[B, T]`, int64."""
        ids = [torch.tensor(row, dtype=torch.long) for row in rows]
        mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True, padding_side=side)
        padded = pad_sequence(ids, batch_first=True, padding_side=side, padding_value=self._padding)
        return {"input_ids": padded.to(self.model.device), "attention_mask": mask.to(self.model.device)}


def _continuation_score(tokens: list[list[float]]) -> ContinuationScore:
    log_probs = tuple(log_prob for log_prob, _ in tokens)
    return ContinuationScore(log_probs, is_greedy=all(is_best for _, is_best in tokens))


def _log_probs_by_place(tokens: dict[Place, list[list[float]]]) -> torch.Tensor:
    """The log-probabilities `[N]` in the order of their places."""
    return torch.tensor([values[0] for place in sorted(tokens) for values in tokens[place]])


def score_alone(batch: list[Group], logits: torch.Tensor, starts: list[int]) -> PredictedTokens:
    """Scores groups of one continuation each; `logits [B, T, V]` predict it from its row's place in `starts` on."""
    places, targets, positions = [], [], []
    for group, start in zip(batch, starts, strict=True):
        (continuation,) = group.continuations
        places += group.places * len(continuation)
        targets.append(continuation)
        positions.append(range(start, start + len(continuation)))
    return PredictedTokens(places, score_targets(logits, positions, targets))


def score_targets(
    logits: torch.Tensor, positions: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> torch.Tensor:
    """Log-probability of each row's targets at its positions, and 1 if a target is the most probable one, row by row,
    `[N, 2]` on the CPU; `logits [B, T, V]`.
    """
    rows = torch.tensor([row for row, of_row in enumerate(positions) for _ in of_row], device=logits.device)
    places = torch.tensor([place for of_row in positions for place in of_row], device=logits.device)
    ids = torch.tensor([target for of_row in targets for target in of_row], device=logits.device)
    parts = []
    for chunk in torch.arange(len(ids), device=logits.device).split(CHUNK_TOKENS):
        log_probs = logits[rows[chunk], places[chunk]].float().log_softmax(-1)  # [n, V]
        of_targets = log_probs.gather(1, ids[chunk, None])[:, 0]
        is_best = (log_probs.argmax(-1) == ids[chunk]).to(of_targets.dtype)
        parts.append(torch.stack([of_targets, is_best], dim=1))
    return torch.cat(parts).cpu()
