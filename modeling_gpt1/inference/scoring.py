"""Log-probabilities of continuations given contexts, for every causal language model of transformers.

The zero-shot heuristics in section 5 of "Improving Language Understanding by Generative Pre-Training" (Radford et al.,
2018) and of later GPT models need these scores; see `heuristics.py`. A context with several continuations is encoded
once: with them as a tree of tokens (`token_trees.py`), or before them, and all of them read its keys and values.

Shapes: B contexts, R continuations, P tokens of a padded context, S tokens of a padded continuation, T tokens of
both, V vocabulary, N predicted tokens.
"""

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache
from transformers.utils import logging

from .lengths import longest_sequence
from .token_trees import is_worthwhile, reads_trees, trees

logger = logging.get_logger(__name__)

# Predicted tokens whose logits are normalised at once: 41 MiB of float32 at V = 40 478.
CHUNK_TOKENS = 256
# Positions of a batch of trees that get logits: 166 MB of float32 at V = 40 478.
TREE_LOGITS = 1024
# Trees of so many tokens keep a processor busy. More join them only if they need little padding, as a part of a tree.
CPU_TOKENS, CPU_PADDING = 256, 1 / 32
# Continuations of a batch that are worth a call of the model of their own.
ROWS_TO_SPLIT = 8


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
    num_unpredicted: int = 0
    """1 if the continuation's first token had nothing before it: no model predicts it, so it only serves the
    others as context. 0 otherwise."""
    num_cut: int = 0
    """Tokens cut from the beginning of a context that was too long."""

    @property
    def total(self) -> float:
        """Sum over the predicted tokens; 0 without any."""
        return math.fsum(self.token_log_probs)

    @property
    def mean(self) -> float:
        """Mean over the predicted tokens; NaN without any."""
        return self.total / len(self.token_log_probs) if self.token_log_probs else math.nan


class _Group(NamedTuple):
    """A context of at least one token, and continuations that have at least one token to predict."""

    context: list[int]
    continuations: list[list[int]]
    places: list[int]  # of the continuations among all those of a call

    @property
    def longest(self) -> int:
        return max(map(len, self.continuations))

    @property
    def num_read(self) -> int:
        """Tokens of the continuations that the model reads: the last of each is only predicted."""
        return sum(map(len, self.continuations)) - len(self.continuations)

    @property
    def num_tokens(self) -> int:
        """Tokens of the context and all continuations that the model reads."""
        return len(self.context) + self.num_read


class CausalLMScorer:
    """
    Scores continuations of contexts in batches, as if each were scored alone.

    Args:
        model ([`PreTrainedModel`]): any causal language model whose output has `logits`. A model without a
            key-value cache, or with a state in its place, reads every context once for each continuation.
        tokenizer ([`PreTrainedTokenizerBase`], *optional*): for [`~CausalLMScorer.score`].
        batch_tokens (`int`, defaults to 2048): maximum tokens of a batch, padding included. Where continuations read
            the keys and values of their context, it counts once for each, because that is the memory it takes. A batch
            has at least one continuation.
        max_length (`int`, *optional*): maximum tokens that the model reads at once. Default: its positions.
        start_ids (`list[int]`, *optional*): ids that stand before every context and are never cut. Default: the
            beginning-of-text id if the tokenizer puts one before a text by itself, otherwise none.
        share_contexts (`bool`, defaults to `True`): `False` reads every context once for each continuation.
    """

    method = "log-probability"
    """What `total` of a score is; [`MaskedLMScorer`] and [`DenoisingLMScorer`] have others."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        batch_tokens: int = 2048,
        max_length: int | None = None,
        start_ids: Sequence[int] | None = None,
        share_contexts: bool = True,
    ):
        self.model, self.tokenizer, self.batch_tokens = model, tokenizer, batch_tokens
        self._arguments = inspect.signature(model.forward).parameters
        self.shares_contexts = share_contexts and self._has_cache()
        lengths = (max_length, longest_sequence(model), 1 << 31)
        self.max_length = min(length for length in lengths if length is not None)
        self.start_ids = list(_usual_start(tokenizer) if start_ids is None else start_ids)
        self._reads_trees: bool | None = None  # not known before the first shared context

    def _has_cache(self) -> bool:
        # A recurrent state cannot skip the padding before a context, except that of this package's LSTM.
        exact = not getattr(self.model, "_is_stateful", False) or getattr(self.model, "state_skips_padding", False)
        return "past_key_values" in self._arguments and exact

    # ---- Text

    def score(self, requests: Iterable[ScoringRequest | tuple[str, Sequence[str]]]) -> list[list[ContinuationScore]]:
        """
        Scores texts. Context and continuation are read as one text, and the boundary lies between two tokens:

        - Spaces at the end of a context belong to the continuation, as in byte-level vocabularies, whose words begin
          with their space. `("the cat ", ["sat"])` and `("the cat", [" sat"])` are the same.
        - Where one token would span the boundary, as in `("un", ["happy"])`, the two are tokenised separately.
        - Text that spells a special token, such as `<|endoftext|>`, is read as text; `start_ids` and
          [`~CausalLMScorer.score_ids`] take the tokens themselves.

        Args:
            requests (iterable of [`ScoringRequest`] or of such pairs): contexts and their continuations.

        Returns:
            For each request the scores of its continuations, in order; see [`~CausalLMScorer.score_ids`].

        Raises:
            ValueError: there is no tokenizer; the continuations of a request are no list; see also
                [`~CausalLMScorer.score_ids`].
        """
        if self.tokenizer is None:
            raise ValueError(
                "Scoring texts needs a tokenizer, but none was given. Pass `tokenizer` to CausalLMScorer, or give "
                "token ids to `score_ids`."
            )
        return self.score_ids(self.encode(requests))

    def encode(self, requests: Iterable[ScoringRequest | tuple[str, Sequence[str]]]) -> list[ScoringRequest]:
        """The token ids of texts, as [`~CausalLMScorer.score`] scores them."""
        contexts, texts = [], []
        for number, (context, continuations) in enumerate(requests):
            if isinstance(continuations, str):
                raise ValueError(
                    f"Request {number} has the text {continuations!r} as its continuations, but a list of texts is "
                    f"needed, such as [{continuations!r}]."
                )
            contexts.append(context.rstrip(" "))
            texts.append([contexts[-1], *(context + continuation for continuation in continuations)])
        ids = iter(self._encode_texts([text for of_request in texts for text in of_request]))
        return [
            self._split(context, *(next(ids) for _ in of_request), texts=of_request)
            for context, of_request in zip(contexts, texts, strict=True)
        ]

    def _split(self, context: str, context_ids: list[int], *whole_ids: list[int], texts: list[str]) -> ScoringRequest:
        continuations = []
        for text, ids in zip(texts[1:], whole_ids, strict=True):
            if ids[: len(context_ids)] != context_ids:  # a token spans the boundary
                ids = context_ids + self._encode_texts([text[len(context) :]])[0]
            continuations.append(ids[len(context_ids) :])
        return ScoringRequest(context_ids, continuations)

    def _encode_texts(self, texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        return self.tokenizer(
            texts, add_special_tokens=False, split_special_tokens=True, return_attention_mask=False, verbose=False
        )["input_ids"]

    # ---- Ids

    def score_ids(
        self, requests: Iterable[ScoringRequest | tuple[Sequence[int], Sequence[Sequence[int]]]]
    ) -> list[list[ContinuationScore]]:
        """
        Scores token ids.

        If a request is longer than the model can read, the beginning of its context is cut. All continuations of the
        request see the same context. A warning says how many requests were cut. Without a context and without
        `start_ids`, the first token of each continuation is not predicted. An empty continuation has a total of 0 and
        no mean.

        Args:
            requests (iterable of [`ScoringRequest`] or of such pairs): contexts and their continuations.

        Returns:
            For each request the scores of its continuations, in order.

        Raises:
            ValueError: a continuation is too long to be read with at least one token before it.
        """
        requests = [ScoringRequest(list(context), list(map(list, rest))) for context, rest in requests]
        for number, request in enumerate(requests):
            self._check_length(number, request)
        contexts = [self._fit(request) for request in requests]
        num_cut = [len(request.context) - len(context) for request, context in zip(requests, contexts, strict=True)]
        if any(num_cut):
            logger.warning(
                f"{sum(map(bool, num_cut))} of {len(requests)} contexts were cut at the beginning, by up to "
                f"{max(num_cut)} tokens, to fit into {self.max_length} tokens."
            )
        groups = self._groups([self.start_ids + context for context in contexts], requests)
        found = self._compute(groups)
        scores = iter(
            ContinuationScore(*found.get(place, ((), True)), num_unpredicted, cut)
            for place, (cut, num_unpredicted) in enumerate(self._facts(contexts, requests, num_cut))
        )
        return [[next(scores) for _ in request.continuations] for request in requests]

    def _check_length(self, number: int, request: ScoringRequest) -> None:
        longest, limit = max(map(len, request.continuations), default=0), self.max_length - len(self.start_ids)
        if longest > limit:
            raise ValueError(
                f"Request {number} has a continuation of {longest} tokens, but at most {limit} fit after the start "
                f"tokens (`max_length` {self.max_length}, `start_ids` {len(self.start_ids)}). Shorten the "
                "continuation, or score it in parts."
            )

    def _fit(self, request: ScoringRequest) -> list[int]:
        """The end of the context that fits. The last token of a continuation is predicted, but never read."""
        longest = max(map(len, request.continuations), default=0)
        return request.context[-(self.max_length + 1 - len(self.start_ids) - max(longest, 1)) :]

    def _facts(
        self, contexts: list[list[int]], requests: list[ScoringRequest], num_cut: list[int]
    ) -> Iterator[tuple[int, int]]:
        """`num_cut` and `num_unpredicted` of every continuation."""
        for context, request, cut in zip(contexts, requests, num_cut, strict=True):
            has_start = bool(self.start_ids or context)
            for continuation in request.continuations:
                yield cut, int(not has_start and len(continuation) > 0)

    def _groups(self, contexts: list[list[int]], requests: list[ScoringRequest]) -> list[_Group]:
        groups, first_place = [], 0
        for context, request in zip(contexts, requests, strict=True):
            places = range(first_place, first_place + len(request.continuations))
            first_place = places.stop
            if context:
                kept = [(ids, place) for ids, place in zip(request.continuations, places, strict=True) if ids]
                shared = [kept] if self.shares_contexts else [[pair] for pair in kept]
                groups += [_Group(context, *map(list, zip(*pairs, strict=True))) for pairs in shared if pairs]
            else:
                pairs = zip(request.continuations, places, strict=True)
                groups += [_Group(ids[:1], [ids[1:]], [place]) for ids, place in pairs if len(ids) > 1]
        return groups

    # ---- The model

    def _compute(self, groups: list[_Group]) -> dict[int, tuple[tuple[float, ...], bool]]:
        """For the continuation at each place: its tokens' log-probabilities, and whether all are the most probable."""
        found = {}
        with torch.no_grad(), _evaluating(self.model):
            ways = {
                self._score_trees: self._batches_of_trees,
                self._score_shared: self._batches,
                self._score_whole: self._batches,
            }
            for score_batch, batches in ways.items():
                for batch in batches([group for group in groups if self._way(group) == score_batch]):
                    places = [place for group in batch for place in group.places]
                    lengths = [len(ids) for group in batch for ids in group.continuations]
                    values = score_batch(batch).split(lengths)
                    for place, of_place in zip(places, values, strict=True):
                        found[place] = tuple(of_place[:, 0].tolist()), bool(of_place[:, 1].all())
        return found

    def _way(self, group: _Group) -> Callable[[list[_Group]], torch.Tensor]:
        if len(group.places) == 1:
            return self._score_whole
        # The mask of a tree grows with the square of its length.
        if group.num_tokens > self.batch_tokens or not is_worthwhile(len(group.context), group.num_read):
            return self._score_shared
        if self._reads_trees is None:
            self._reads_trees = reads_trees(self.model)
        return self._score_trees if self._reads_trees else self._score_shared

    def _batches(self, groups: list[_Group]) -> Iterator[list[_Group]]:
        """Batches of groups of similar length, the longest first, so that a lack of memory shows at once."""
        batch, num_rows, longest = [], 0, 0
        for group in sorted(groups, key=lambda group: (len(group.context), group.longest), reverse=True):
            most = max(longest, group.longest)
            length = len(batch[0].context if batch else group.context) + most - 1
            num_rows += len(group.places)
            if batch and (length > self.max_length or length * num_rows > self.batch_tokens):
                yield batch
                batch, num_rows, most = [], len(group.places), group.longest
            batch.append(group)
            longest = most
        if batch:
            yield batch

    def _batches_of_trees(self, groups: list[_Group]) -> Iterator[list[_Group]]:
        """As `_batches`; a tree has its context once. A batch's logits are bounded too, and on a CPU its padding."""
        batch, longest, most_read = [], 0, 0
        is_on_cpu = self.model.device.type == "cpu"
        for group in sorted(groups, key=lambda group: group.num_tokens, reverse=True):
            longest = longest or group.num_tokens
            most_read = max(most_read, group.num_read)
            num_rows = len(batch) + 1
            is_busy = is_on_cpu and len(batch) * longest >= CPU_TOKENS
            is_full = num_rows * longest > self.batch_tokens or num_rows * (most_read + 1) > TREE_LOGITS
            if batch and (is_full or is_busy and group.num_tokens < (1 - CPU_PADDING) * longest):
                yield batch
                batch, longest, most_read = [], group.num_tokens, group.num_read
            batch.append(group)
        if batch:
            yield batch

    def _score_trees(self, batch: list[_Group]) -> torch.Tensor:
        """As `_score_shared`, with a context and its continuations in one row."""
        read = [[ids[:-1] for ids in group.continuations] for group in batch]
        inputs = trees([group.context for group in batch], read, self.model.device, self.model.dtype)
        keep = 1 + max(group.num_read for group in batch)
        logits = self._run(**inputs, keep=keep).logits
        positions, targets = [], []
        for group, of_group in zip(batch, read, strict=True):
            end = place = keep - 1 - group.num_read  # of the context
            of_row = []
            for ids in of_group:
                of_row += [end, *range(place + 1, place + 1 + len(ids))]
                place += len(ids)
            positions.append(of_row)
            targets.append([token for ids in group.continuations for token in ids])
        return _score_targets(logits, positions, targets)

    def _score_whole(self, batch: list[_Group]) -> torch.Tensor:
        """Scores of all continuations' tokens, `[N, 2]`; every row is a context and its continuation."""
        rows = [group.context + group.continuations[0] for group in batch]
        starts = [len(group.context) - 1 for group in batch]  # what predicts the first token
        input_ids, mask = _pad([row[:-1] for row in rows], side="right", device=self.model.device)
        first = min(starts)
        logits = self._run(input_ids, mask, keep=input_ids.shape[1] - first).logits
        positions = [range(start - first, len(row) - 1 - first) for start, row in zip(starts, rows, strict=True)]
        return _score_targets(logits, positions, [group.continuations[0] for group in batch])

    def _score_shared(self, batch: list[_Group]) -> torch.Tensor:
        """As `_score_whole`, with several continuations of each context, which is read once."""
        input_ids, mask = _pad([group.context for group in batch], side="left", device=self.model.device)  # [B, P]
        outputs = self._run(input_ids, mask, keep=1, use_cache=True)
        rows = [row for row, group in enumerate(batch) for _ in group.places]
        continuations = [ids for group in batch for ids in group.continuations]
        # A context's last token predicts the first token of its continuations, whose last tokens are not read.
        firsts = _score_firsts(outputs.logits[:, -1], rows, continuations)
        parts = [firsts[index : index + 1] for index in range(len(rows))]
        unread = [index for index, ids in enumerate(continuations) if len(ids) > 1]
        for chunk in self._chunks(unread, input_ids.shape[1], continuations):
            rests = self._score_rests(
                outputs.past_key_values,
                mask[[rows[index] for index in chunk]],
                [rows[index] for index in chunk],
                [continuations[index] for index in chunk],
            )
            for index, values in zip(chunk, rests, strict=True):
                parts[index] = torch.cat([parts[index], values])
        return torch.cat(parts)

    def _chunks(self, unread: list[int], context_length: int, continuations: list[list[int]]) -> Iterator[list[int]]:
        """
        Splits a batch's continuations into parts, the longest first. `batch_tokens` bounds the copies of their
        contexts' keys and values. From `ROWS_TO_SPLIT` rows on, one of three quarters of the length begins a part.
        """
        chunk = []
        for index in sorted(unread, key=lambda index: len(continuations[index]), reverse=True):
            length = len(continuations[index]) - 1
            longest = len(continuations[chunk[0]]) - 1 if chunk else length
            is_full = len(chunk) >= max(1, self.batch_tokens // (context_length + longest))
            if chunk and (is_full or len(chunk) >= ROWS_TO_SPLIT and 4 * length <= 3 * longest):
                yield chunk
                chunk = []
            chunk.append(index)
        if chunk:
            yield chunk

    def _score_rests(
        self, cache: Cache, context_mask: torch.Tensor, rows: list[int], continuations: list[list[int]]
    ) -> tuple[torch.Tensor, ...]:
        """Scores of the tokens after the first of each continuation; `context_mask [R, P]`."""
        input_ids, mask = _pad([ids[:-1] for ids in continuations], side="right", device=self.model.device)  # [R, S]
        cache = _select_rows(cache, torch.tensor(rows, device=self.model.device))
        logits = self._run(input_ids, torch.cat([context_mask, mask], dim=1), past_key_values=cache).logits
        targets = [ids[1:] for ids in continuations]
        values = _score_targets(logits, [range(len(ids)) for ids in targets], targets)
        return values.split(list(map(len, targets)))

    def _run(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, keep: int = 0, **kwargs):
        """The model's output, with the logits of the last `keep` positions only; 0 keeps all."""
        num_new = input_ids.shape[1]
        optional = {"logits_to_keep": keep}
        if "position_ids" not in kwargs:
            optional["position_ids"] = (attention_mask.cumsum(1) - 1).clamp(min=0)[:, -num_new:]
        optional["use_cache"] = kwargs.pop("use_cache", "past_key_values" in kwargs)
        kwargs |= {name: value for name, value in optional.items() if name in self._arguments}
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        outputs.logits = outputs.logits[:, -keep:]
        return outputs


def _usual_start(tokenizer: PreTrainedTokenizerBase | None) -> list[int]:
    """The beginning-of-text id, if the tokenizer puts one before every text, but not `[s]` of `[s] text [e]`."""
    if tokenizer is None or tokenizer.bos_token_id is None:
        return []
    around = tokenizer("")["input_ids"]
    if around == [tokenizer.bos_token_id, getattr(tokenizer, "extract_token_id", None)]:
        return []
    return [tokenizer.bos_token_id] if around[:1] == [tokenizer.bos_token_id] else []


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _pad(rows: Sequence[Sequence[int]], side: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask of ragged rows, both `[B, T]`, int64."""
    ids = [torch.tensor(row) for row in rows]
    masks = [torch.ones_like(row) for row in ids]
    return tuple(pad_sequence(parts, batch_first=True, padding_side=side).to(device) for parts in (ids, masks))


def _select_rows(cache: Cache, rows: torch.Tensor) -> Cache:
    """Keys and values of these rows of a cache, which is not changed."""
    selected = copy.copy(cache)
    selected.layers = [copy.copy(layer) for layer in cache.layers]
    selected.batch_select_indices(rows)
    return selected


def _score_firsts(logits: torch.Tensor, rows: list[int], continuations: list[list[int]]) -> torch.Tensor:
    """Scores of each continuation's first token, `[R, 2]` on the CPU; `logits [B, V]` of the contexts' ends."""
    first_ids = torch.tensor([ids[0] for ids in continuations], device=logits.device)
    return _scores_at(logits.float().log_softmax(-1), torch.tensor(rows, device=logits.device), first_ids).cpu()


def _score_targets(
    logits: torch.Tensor, positions: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> torch.Tensor:
    """Scores of each row's targets at its positions, row by row, `[N, 2]` on the CPU; `logits [B, T, V]`."""
    rows = torch.tensor([row for row, of_row in enumerate(positions) for _ in of_row], device=logits.device)
    places = torch.tensor([place for of_row in positions for place in of_row], device=logits.device)
    ids = torch.tensor([target for of_row in targets for target in of_row], device=logits.device)
    parts = []
    for chunk in torch.arange(len(ids), device=logits.device).split(CHUNK_TOKENS):
        log_probs = logits[rows[chunk], places[chunk]].float().log_softmax(-1)  # [n, V]
        parts.append(_scores_at(log_probs, torch.arange(len(chunk), device=logits.device), ids[chunk]))
    return torch.cat(parts).cpu()


def _scores_at(log_probs: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Log-probability of each id, and 1 if it is the most probable of its row, `[N, 2]`; `log_probs [n, V]`."""
    chosen, best = log_probs[rows, ids], log_probs.argmax(-1)[rows]
    return torch.stack([chosen, (best == ids).to(chosen.dtype)], dim=1)
