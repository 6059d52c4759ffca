"""Scores of continuations given contexts, for every language model of transformers: causal, masked and denoising.

The zero-shot heuristics in section 5 of "Improving Language Understanding by Generative Pre-Training" (Radford et al.,
2018) and of later GPT models need these scores; see `heuristics.py`.

- A causal model predicts each token from those before it. A context with several continuations is encoded once: with
  them as a tree of tokens (`token_trees.py`), or before them, and all of them read its keys and values.
- A masked model gives no probability of a text. Its pseudo-log-likelihood masks one token at a time and adds up the
  log-probabilities of the hidden tokens: section 2.3 of "Masked Language Model Scoring" (Salazar et al. 2020,
  https://arxiv.org/abs/1910.14659).
- A denoising encoder-decoder, such as BART, restores a text from a damaged one. The encoder reads the context with one
  mask in place of the continuation, which is how its pre-training hides a span of any length. The decoder reads the
  text from its beginning; the log-probabilities of the continuation's tokens add up to that of the continuation.

Shapes: B contexts, R continuations, P tokens of a padded context, S tokens of a padded continuation, T tokens of
both, V vocabulary, N predicted tokens.
"""

import copy
import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.utils import logging

from ..configuration_gpt1 import GPT1Config
from ..configuration_gpt1_lstm import GPT1LSTMConfig
from .lengths import longest_sequence
from .probing import unchanged
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
# Tokens of the sequences by which a model is tried.
NUM_TRIED = 8
# Differences of log-probabilities up to this are rounding, in float32 and in fewer bits.
ROUNDING, ROUNDING_OF_FEW_BITS = 1e-3, 5e-2


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
    def lengths(self) -> tuple[int, int]:
        return len(self.context), self.longest

    def size(self) -> tuple[int, int]:
        """Rows of a batch, and the longest continuation."""
        return len(self.places), self.longest

    @property
    def num_read(self) -> int:
        """Tokens of the continuations that the model reads: the last of each is only predicted."""
        return sum(map(len, self.continuations)) - len(self.continuations)

    @property
    def num_tokens(self) -> int:
        """Tokens of the context and all continuations that the model reads."""
        return len(self.context) + self.num_read


_Scores = tuple[list[int], torch.Tensor]
"""Of N predicted tokens: the place of the continuation that each belongs to; and on the CPU, `[N, 2]`, each one's
log-probability, and 1 if it is the most probable one."""


class Scorer:
    """Base: texts become ids, ids become groups of a length that fits; a subclass scores the groups in batches."""

    method: str
    """What `total` of a score is."""
    shares_contexts = False
    """Whether the continuations of a context stay in one group."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None,
        batch_tokens: int,
        max_length: int | None,
        start_ids: Sequence[int],
    ):
        self.model, self.tokenizer, self.batch_tokens = model, tokenizer, batch_tokens
        lengths = (max_length, longest_sequence(model), 1 << 31)
        self.max_length = min(length for length in lengths if length is not None)
        self.start_ids = list(start_ids)
        # Whether rows of several lengths share a batch: None is not known before the first.
        self._pads: bool | None = True if isinstance(model.config, GPT1Config | GPT1LSTMConfig) else None

    def _try(self) -> None:
        """Tries a small batch beside its rows alone: some models read padding, or take no positions."""
        self._pads = True
        size = self.model.config.get_text_config().vocab_size
        ids = [(size // 2 + number) % size for number in range(NUM_TRIED)]
        requests = [(ids[:2], [ids[2:5], ids[3:5]]), (ids[:5], [ids[5:7], ids[5:8]])]
        if self.max_length < NUM_TRIED:
            return
        apart = [
            _Group(context, [continuation], [2 * number + place])
            for number, (context, continuations) in enumerate(requests)
            for place, continuation in enumerate(continuations)
        ]
        expected = _values(scores for group in apart for scores in self._scores([group]))
        self._pads = self._is_close(self._scores(apart), expected)
        if self.shares_contexts:
            together = [_Group(*request, [2 * number, 2 * number + 1]) for number, request in enumerate(requests)]
            self.shares_contexts = self._pads and self._can_share(together, expected)
            if not self.shares_contexts:
                logger.warning(f"{type(self.model).__name__} reads each context once for each continuation.")
        if not self._pads:
            logger.warning(f"{type(self.model).__name__} reads padding, so its batches have rows of one length.")

    def _can_share(self, groups: list[_Group], expected: torch.Tensor) -> bool:
        try:
            return self._is_close(self._score_shared(groups), expected)
        except (AttributeError, NotImplementedError, TypeError, ValueError):  # from a cache of states, as LFM2's
            return False

    def _is_close(self, scores: Iterator[_Scores], expected: torch.Tensor) -> bool:
        rounding = _rounding(self.model) * expected.abs().clamp(min=1)
        return bool(((_values(scores) - expected).abs() <= rounding).all())

    def _scores(self, groups: list[_Group]) -> Iterator[_Scores]:
        """The model's answers, batch by batch. The tokens of a continuation come in order."""
        raise NotImplementedError

    # ---- Text

    def score(self, requests: Iterable[ScoringRequest | tuple[str, Sequence[str]]]) -> list[list[ContinuationScore]]:
        """Scores texts. Context and continuation are read as one text, and the boundary lies between two tokens:

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
        texts = []
        for number, (context, continuations) in enumerate(requests):
            if isinstance(continuations, str):
                raise ValueError(
                    f"Request {number} has the text {continuations!r} as its continuations, but a list of texts is "
                    f"needed, such as [{continuations!r}]."
                )
            texts.append((context.rstrip(" "), [context + continuation for continuation in continuations]))
        ids = iter(self._ids_of([text for context, wholes in texts for text in (context, *wholes)]))
        encoded = []
        for context, wholes in texts:
            context_ids, continuations = next(ids), []
            for whole in wholes:
                whole_ids = next(ids)
                if whole_ids[: len(context_ids)] == context_ids:
                    continuations.append(whole_ids[len(context_ids) :])
                else:  # a token spans the boundary
                    continuations += self._ids_of([whole[len(context) :]])
            encoded.append(ScoringRequest(context_ids, continuations))
        return encoded

    def _ids_of(self, texts: list[str]) -> list[list[int]]:
        options = {"add_special_tokens": False, "split_special_tokens": True, "return_attention_mask": False}
        return self.tokenizer(texts, **options, verbose=False)["input_ids"] if texts else []

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
        if self._pads is None:
            with unchanged(self.model):
                self._try()
        groups, facts, numbers, cuts = [], [], [], []
        for number, (context, continuations) in enumerate(requests):
            context, continuations = list(context), list(map(list, continuations))
            longest, limit = max(map(len, continuations), default=0), self.max_length - len(self.start_ids)
            if longest > limit:
                raise ValueError(
                    f"Request {number} has a continuation of {longest} tokens, but at most {limit} fit after the "
                    f"start tokens (`max_length` {self.max_length}, `start_ids` {len(self.start_ids)}). Shorten the "
                    "continuation, or score it in parts."
                )
            fitting = context[max(longest, 1) - limit - 1 :]  # the last token of a continuation is never read
            cuts.append(len(context) - len(fitting))
            numbers.append(len(continuations))
            before = self.start_ids + fitting
            groups += self._groups(before, continuations, len(facts))
            facts += [(int(not before and len(ids) > 0), cuts[-1]) for ids in continuations]
        if any(cuts):
            logger.warning(
                f"{sum(map(bool, cuts))} of {len(cuts)} contexts were cut at the beginning, by up to {max(cuts)} "
                f"tokens, to fit into {self.max_length} tokens."
            )
        found = self._compute(groups)
        scores = (ContinuationScore(*found[place], *of_place) for place, of_place in enumerate(facts))
        return [[next(scores) for _ in range(number)] for number in numbers]

    def _groups(self, context: list[int], continuations: list[list[int]], first_place: int) -> list[_Group]:
        pairs = [(ids, place) for place, ids in enumerate(continuations, start=first_place) if ids]
        if not context:  # the first token is not predicted, but stands before the others
            return [_Group(ids[:1], [ids[1:]], [place]) for ids, place in pairs if len(ids) > 1]
        if pairs and self.shares_contexts:
            return [_Group(context, *map(list, zip(*pairs, strict=True)))]
        return [_Group(context, [ids], [place]) for ids, place in pairs]

    def _compute(self, groups: list[_Group]) -> dict[int, tuple[tuple[float, ...], bool]]:
        """For the continuation at each place: its tokens' log-probabilities, and whether all are the most probable."""
        tokens = defaultdict(list)
        with _in_evaluation(self.model):
            for places, values in self._scores(groups):
                for place, value in zip(places, values.tolist(), strict=True):
                    tokens[place].append(value)
        found = defaultdict(lambda: ((), True))
        for place, of_place in tokens.items():
            log_probs, is_best = zip(*of_place, strict=True)
            found[place] = log_probs, all(is_best)
        return found


class CausalLMScorer(Scorer):
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

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        batch_tokens: int = 2048,
        max_length: int | None = None,
        start_ids: Sequence[int] | None = None,
        share_contexts: bool = True,
    ):
        start_ids = _usual_start(tokenizer) if start_ids is None else start_ids
        super().__init__(model, tokenizer, batch_tokens, max_length, start_ids)
        self._arguments = inspect.signature(model.forward).parameters
        # A recurrent state cannot skip the padding before a context, except that of this package's LSTM.
        is_exact = not getattr(model, "_is_stateful", False) or getattr(model, "state_skips_padding", False)
        self.shares_contexts = share_contexts and "past_key_values" in self._arguments and is_exact
        self._reads_trees: bool | None = None  # not known before the first shared context
        rope = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
        is_long = rope.get("rope_type") == "longrope"  # a longer batch turns by other angles, in all of its rows
        self._most_read = rope.get("original_max_position_embeddings", math.inf) if is_long else math.inf

    def _try(self) -> None:
        if self.max_length >= NUM_TRIED:
            check_causality(type(self.model).__name__, self.model)
        super()._try()

    def _scores(self, groups: list[_Group]) -> Iterator[_Scores]:
        in_trees, shared, whole = [], [], []
        for group in groups:
            if not self._pads or self._is_long(group):
                whole += [_Group(group.context, [ids], [place]) for ids, place in zip(*group[1:], strict=True)]
                continue
            way = whole if len(group.places) == 1 else in_trees if self._is_tree(group) else shared
            way.append(group)
        num_tokens, lengths = attrgetter("num_tokens"), attrgetter("lengths")
        for batch in _batches(in_trees, lambda group: (1, group.num_read), self._is_full_of_trees, num_tokens):
            yield self._score_trees(batch)
        for batch in _batches(shared, _Group.size, self._is_full, lengths):
            yield from self._score_shared(batch)
        for batch in _batches(whole, _Group.size, self._is_full_of_whole, lengths):
            yield self._score_whole(batch)

    def _is_long(self, group: _Group) -> bool:
        return sum(group.lengths) - 1 > self._most_read

    def _is_tree(self, group: _Group) -> bool:
        # The mask of a tree grows with the square of its length.
        if group.num_tokens > self.batch_tokens or not is_worthwhile(len(group.context), group.num_read):
            return False
        if self._reads_trees is None:
            self._reads_trees = reads_trees(self.model)
        return self._reads_trees

    def _is_full(self, first: _Group, last: _Group, num_rows: int, longest: int) -> bool:
        length = len(first.context) + longest - 1
        return length > self.max_length or length * num_rows > self.batch_tokens

    def _is_full_of_whole(self, first: _Group, last: _Group, num_rows: int, longest: int) -> bool:
        is_apart = not self._pads or self._is_long(first) or self._is_long(last)
        return self._is_full(first, last, num_rows, longest) or is_apart and first.lengths != last.lengths

    def _is_full_of_trees(self, first: _Group, last: _Group, num_rows: int, most_read: int) -> bool:
        """A tree has its context once. A batch's logits are bounded too, and on a CPU its padding."""
        if num_rows * first.num_tokens > self.batch_tokens or num_rows * (most_read + 1) > TREE_LOGITS:
            return True
        is_busy = self.model.device.type == "cpu" and (num_rows - 1) * first.num_tokens >= CPU_TOKENS
        return is_busy and last.num_tokens < (1 - CPU_PADDING) * first.num_tokens

    def _score_trees(self, batch: list[_Group]) -> _Scores:
        """Each context and its continuations in one row."""
        read = [[ids[:-1] for ids in group.continuations] for group in batch]
        inputs = trees([group.context for group in batch], read, self.model.device, self.model.dtype)
        keep = 1 + max(group.num_read for group in batch)
        positions = []
        for group, of_group in zip(batch, read, strict=True):
            end = place = keep - 1 - group.num_read  # of the context
            of_row = []
            for ids in of_group:
                of_row += [end, *range(place + 1, place + 1 + len(ids))]
                place += len(ids)
            positions.append(of_row)
        targets = [[token for ids in group.continuations for token in ids] for group in batch]
        return _places(batch), _score_targets(self._run(**inputs, keep=keep).logits, positions, targets)

    def _score_whole(self, batch: list[_Group]) -> _Scores:
        """Each row is a context and its only continuation."""
        rows = [group.context + group.continuations[0] for group in batch]
        starts = [len(group.context) - 1 for group in batch]  # what predicts the first token
        inputs = _pad([row[:-1] for row in rows], self.model.device)
        first = min(starts)
        # With padding after the rows, each model's own positions are right; RoBERTa's begin after the id of padding.
        logits = self._run(**inputs, keep=inputs["input_ids"].shape[1] - first, has_positions=False).logits
        positions = [range(start - first, len(row) - 1 - first) for start, row in zip(starts, rows, strict=True)]
        return _places(batch), _score_targets(logits, positions, [group.continuations[0] for group in batch])

    def _score_shared(self, batch: list[_Group]) -> Iterator[_Scores]:
        """Each context is read once, and its keys and values by all of its continuations."""
        inputs = _pad([group.context for group in batch], self.model.device, side="left")  # [B, P]
        outputs = self._run(**inputs, keep=1, use_cache=True)
        # A context's last token predicts the first token of its continuations, whose last tokens are not read.
        ends = [[0] * len(group.places) for group in batch]
        firsts = [[ids[0] for ids in group.continuations] for group in batch]
        yield [place for group in batch for place in group.places], _score_targets(outputs.logits, ends, firsts)
        rests = [
            (row, place, ids)
            for row, group in enumerate(batch)
            for place, ids in zip(group.places, group.continuations, strict=True)
            if len(ids) > 1
        ]
        context_length = inputs["input_ids"].shape[1]

        def is_full(first: tuple, last: tuple, num_rows: int, longest: int) -> bool:
            """`batch_tokens` bounds the copies of the contexts' keys and values."""
            is_short = 4 * _num_rest(last) <= 3 * longest
            most = self.batch_tokens // (context_length + longest)
            return num_rows > most or num_rows > ROWS_TO_SPLIT and is_short

        for chunk in _batches(rests, lambda rest: (1, _num_rest(rest)), is_full, _num_rest):
            rows, places, continuations = zip(*chunk, strict=True)
            of_rests = self._score_rests(outputs.past_key_values, inputs["attention_mask"], list(rows), continuations)
            yield [place for place, ids in zip(places, continuations, strict=True) for _ in ids[1:]], of_rests

    def _score_rests(
        self, cache: Cache, context_mask: torch.Tensor, rows: list[int], continuations: Sequence[list[int]]
    ) -> torch.Tensor:
        """Scores of the tokens after the first of each continuation, `[N, 2]`; `context_mask [B, P]`."""
        inputs = _pad([ids[:-1] for ids in continuations], self.model.device)  # [R, S]
        mask = torch.cat([context_mask[rows], inputs["attention_mask"]], dim=1)
        cache = _select_rows(cache, torch.tensor(rows, device=self.model.device))
        logits = self._run(inputs["input_ids"], mask, past_key_values=cache).logits
        targets = [ids[1:] for ids in continuations]
        return _score_targets(logits, [range(len(ids)) for ids in targets], targets)

    def _run(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, keep: int = 0, has_positions=True, **kwargs):
        """The model's output, with the logits of the last `keep` positions only; 0 keeps all."""
        optional = {"logits_to_keep": keep}
        if has_positions and "position_ids" not in kwargs:
            optional["position_ids"] = (attention_mask.cumsum(1) - 1).clamp(min=0)[:, -input_ids.shape[1] :]
        optional["use_cache"] = kwargs.pop("use_cache", "past_key_values" in kwargs)
        kwargs |= {name: value for name, value in optional.items() if name in self._arguments}
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        outputs.logits = outputs.logits[:, -keep:]
        return outputs


class _WholeTextScorer(Scorer):
    """Base: a text is read as `[CLS] context continuation [SEP]`, and each continuation by itself.

    Args:
        model, batch_tokens, max_length: as in [`CausalLMScorer`].
        tokenizer: has class, separator and mask tokens.

    Raises:
        ValueError: the tokenizer lacks one of them.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        batch_tokens: int = 2048,
        max_length: int | None = None,
    ):
        missing = [name for name in ("cls_token", "sep_token", "mask_token") if getattr(tokenizer, name) is None]
        if missing:
            raise ValueError(
                f"{type(tokenizer).__name__} has no {', '.join(missing)}, which scoring by {self.method} needs. Give "
                f"the tokenizer that {type(model).__name__} was trained with."
            )
        super().__init__(model, tokenizer, batch_tokens, max_length, [tokenizer.cls_token_id])
        # Two tokens stay free: unlike a causal model, these read the last token, and a separator after it.
        self.max_length = min(self.max_length, tokenizer.model_max_length) - 2

    def _pad(self, rows: list[list[int]]) -> dict[str, torch.Tensor]:
        return _pad(rows, self.model.device, padding=self.tokenizer.pad_token_id or 0)

    def _batches(self, items: list, lengths: Callable[[Any], tuple[int, ...]]) -> Iterator[list]:
        def is_full(first: Any, last: Any, num_rows: int, longest: int) -> bool:
            return num_rows * longest > self.batch_tokens or not self._pads and lengths(first) != lengths(last)

        def size(item: Any) -> tuple[int, int]:
            return 1, sum(lengths(item))

        return _batches(items, size, is_full, lambda item: (sum(lengths(item)), *lengths(item)))


class MaskedLMScorer(_WholeTextScorer):
    """Scores continuations by pseudo-log-likelihood: each of their tokens given the context and their other tokens.

    `total` of a score is the pseudo-log-likelihood. It compares texts under one model; it is no log-probability, and
    its size does not compare with a causal model's.

    Args:
        model, tokenizer, batch_tokens, max_length: as in the base.
        is_shifted (`bool`, defaults to `False`): whether the model was trained on masked next token prediction, as
            GPT-BERT: the token before a mask predicts what it hides.
        num_masks (`int`, *optional*): reads from left to right: in place of a token and all that follow it there are
            so many masks, of which the first is predicted.
    """

    method = "pseudo-log-likelihood"

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        batch_tokens: int = 2048,
        max_length: int | None = None,
        is_shifted: bool = False,
        num_masks: int | None = None,
    ):
        super().__init__(model, tokenizer, batch_tokens, max_length)
        self.is_shifted, self.num_masks = is_shifted, num_masks
        self.max_length -= num_masks or 0

    def _scores(self, groups: list[_Group]) -> Iterator[_Scores]:
        mask = [self.tokenizer.mask_token_id]
        hidden = []
        for group in groups:
            for number, target in enumerate(ids := group.continuations[0]):
                seen = [*group.context, *ids[:number]]
                rest = [*mask, *ids[number + 1 :]] if self.num_masks is None else mask * self.num_masks
                hidden.append(
                    (group, [*seen, *rest, self.tokenizer.sep_token_id], len(seen) - self.is_shifted, target)
                )
        for batch in self._batches(hidden, lambda item: (len(item[1]),)):
            of_batch, rows, positions, targets = zip(*batch, strict=True)
            logits = self.model(**self._pad(rows)).logits
            values = _score_targets(logits, [[position] for position in positions], [[target] for target in targets])
            yield [group.places[0] for group in of_batch], values


class DenoisingLMScorer(_WholeTextScorer):
    """Scores continuations by the decoder of an encoder-decoder that was trained to restore masked spans.

    Without a context the encoder reads the mask alone.

    Raises:
        ValueError: the configuration does not say with which token the decoder begins, or as in the base.
    """

    method = "decoder log-probability"

    def __init__(self, model: PreTrainedModel, *arguments, **kwargs):
        super().__init__(model, *arguments, **kwargs)
        if getattr(model.config, "decoder_start_token_id", None) is None:
            raise ValueError(
                f"The configuration of {type(model).__name__} names no `decoder_start_token_id`, with which its "
                "decoder begins. Add it to the config.json."
            )

    def _scores(self, groups: list[_Group]) -> Iterator[_Scores]:
        hidden = [self.tokenizer.mask_token_id, self.tokenizer.sep_token_id]
        start = self.model.config.decoder_start_token_id
        for batch in self._batches(groups, attrgetter("lengths")):
            inputs = self._pad([[*group.context, *hidden] for group in batch])
            read = self._pad([[start, *group.context, *group.continuations[0][:-1]] for group in batch])
            logits = self.model(**inputs, decoder_input_ids=read["input_ids"], use_cache=False).logits  # [B, S, V]
            places = [range(len(group.context), len(group.context) + group.longest) for group in batch]
            yield _places(batch), _score_targets(logits, places, [group.continuations[0] for group in batch])


def check_continues_text(name: str, config: PreTrainedConfig) -> None:
    """
    Raises:
        ValueError: the model restores masked tokens, from the tokens on both sides.
    """
    if scorer_class_of(config) is MaskedLMScorer:
        raise ValueError(
            f"{name} is not a causal language model: it is a {config.model_type}, whose predictions depend on tokens "
            "that come after them. Give a model that was trained to continue texts, or ask it with `gpt1 zero-shot`."
        )


@torch.no_grad()
def check_causality(name: str, model: PreTrainedModel) -> None:
    """
    Raises:
        ValueError: another last token changes what the model predicts before it.
    """
    size = model.config.get_text_config().vocab_size
    ids = torch.arange(1, 1 + NUM_TRIED, device=model.device).remainder(size).repeat(2, 1)
    ids[1, -1] = (1 + NUM_TRIED) % size
    options = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
    first, other = model(input_ids=ids, **options).logits[:, :-1].float()
    if (first - other).abs().max() > _rounding(model) * first.abs().max():
        raise ValueError(
            f"{name} is not a causal language model: its predictions depend on tokens that come after them, as in "
            "BERT. Give a model that was trained to continue texts."
        )


def scorer_class_of(config: PreTrainedConfig) -> type[Scorer]:
    """How a model's architecture scores text: the classes differ in `method`."""
    if config.is_encoder_decoder:
        return DenoisingLMScorer
    # BERT and RoBERTa can be decoders, too.
    is_masked = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    return MaskedLMScorer if is_masked else CausalLMScorer


@contextmanager
def _in_evaluation(model: PreTrainedModel) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def _rounding(model: PreTrainedModel) -> float:
    is_exact = model.device.type == "cpu" and model.dtype in (torch.float32, torch.float64)
    return ROUNDING if is_exact else ROUNDING_OF_FEW_BITS


def _usual_start(tokenizer: PreTrainedTokenizerBase | None) -> list[int]:
    """The beginning-of-text id, if the tokenizer puts one before every text, but not `[s]` of `[s] text [e]`."""
    if tokenizer is None or tokenizer.bos_token_id is None:
        return []
    around = tokenizer("")["input_ids"]
    is_traversal = around == [tokenizer.bos_token_id, getattr(tokenizer, "extract_token_id", None)]
    return [] if is_traversal or around[:1] != [tokenizer.bos_token_id] else around[:1]


def _batches(
    items: list,
    size: Callable[[Any], tuple[int, int]],
    is_full: Callable[[Any, Any, int, int], bool],
    length: Callable[[Any], Any],
) -> Iterator[list]:
    """
    Batches of items of similar length, the longest first, so that a lack of memory shows at once.

    Args:
        size: an item's number of rows and a length of it.
        is_full: whether a batch is too large, from its first item, its last, the number of rows and the largest of the
            lengths; a batch of one item never is.
        length: what the items are sorted by.
    """
    batch, num_rows, longest = [], 0, 0
    for item in sorted(items, key=length, reverse=True):
        rows, of_item = size(item)
        num_rows, longest = num_rows + rows, max(longest, of_item)
        if batch and is_full(batch[0], item, num_rows, longest):
            yield batch
            batch, num_rows, longest = [], rows, of_item
        batch.append(item)
    if batch:
        yield batch


def _num_rest(rest: tuple[int, int, list[int]]) -> int:
    return len(rest[-1]) - 1


def _values(scores: Iterable[_Scores]) -> torch.Tensor:
    """The log-probabilities in the order of their places."""
    pairs = [pair for places, values in scores for pair in zip(places, values[:, 0], strict=True)]
    return torch.stack([value for _, value in sorted(pairs, key=lambda pair: pair[0])])


def _places(groups: list[_Group]) -> list[int]:
    """The place of each token's continuation."""
    pairs = [pair for group in groups for pair in zip(group.places, group.continuations, strict=True)]
    return [place for place, ids in pairs for _ in ids]


def _pad(
    rows: Sequence[Sequence[int]], device: torch.device, side: str = "right", padding: int = 0
) -> dict[str, torch.Tensor]:
    """`input_ids` and `attention_mask` of ragged rows, both `[B, T]`, int64."""
    ids = [torch.tensor(row) for row in rows]
    mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True, padding_side=side)
    padded = pad_sequence(ids, batch_first=True, padding_side=side, padding_value=padding)
    return {"input_ids": padded.to(device), "attention_mask": mask.to(device)}


def _select_rows(cache: Cache, rows: torch.Tensor) -> Cache:
    """Keys and values of these rows of a cache, which is not changed."""
    if isinstance(cache, EncoderDecoderCache):  # of MegatronBert and RemBERT as decoders, without an encoder
        cache = cache.self_attention_cache
    selected = copy.copy(cache)
    selected.layers = [copy.copy(layer) for layer in cache.layers]
    selected.batch_select_indices(rows)
    return selected


def _score_targets(
    logits: torch.Tensor, positions: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> torch.Tensor:
    """
    Log-probability of each row's targets at its positions, and 1 if a target is the most probable one, row by row,
    `[N, 2]` on the CPU; `logits [B, T, V]`.
    """
    rows = torch.tensor([row for row, of_row in enumerate(positions) for _ in of_row], device=logits.device)
    places = torch.tensor([place for of_row in positions for place in of_row], device=logits.device)
    ids = torch.tensor([target for of_row in targets for target in of_row], device=logits.device)
    parts = []
    for chunk in torch.arange(len(ids), device=logits.device).split(CHUNK_TOKENS):
        log_probs = logits[rows[chunk], places[chunk]].float().log_softmax(-1)  # [n, V]
        chosen = log_probs.gather(1, ids[chunk, None])[:, 0]
        parts.append(torch.stack([chosen, (log_probs.argmax(-1) == ids[chunk]).to(chosen.dtype)], dim=1))
    return torch.cat(parts).cpu()


__all__ = ["CausalLMScorer", "ContinuationScore", "DenoisingLMScorer", "MaskedLMScorer", "ScoringRequest"]
