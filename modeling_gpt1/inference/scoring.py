"""Scores of continuations given contexts, for every language model of transformers: causal, masked and denoising.

The zero-shot heuristics in section 5 of "Improving Language Understanding by Generative Pre-Training" (Radford et al.,
2018) and of later GPT models need these scores; see `heuristics.py`.

- A causal model predicts each token from those before it. A context with several continuations is encoded once, and
  all of them read its keys and values. GPT-1's own models compute a batch by a plan, without padding and copies.
- A masked model gives no probability of a text. Its pseudo-log-likelihood masks one token at a time and adds up the
  log-probabilities of the hidden tokens: section 2.3 of "Masked Language Model Scoring" (Salazar et al. 2020,
  https://arxiv.org/abs/1910.14659).
- A denoising encoder-decoder, such as BART, restores a text from a damaged one. The encoder reads the context with one
  mask in place of the continuation, as in its pre-training. The decoder reads the text from its beginning.

Shapes: B contexts, R continuations, P tokens of a padded context, S tokens of a padded continuation, T tokens of
both, V vocabulary, N predicted tokens.
"""

import copy
import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache
from transformers.utils import logging

from tokenization.batches.plan import plan_batch
from tokenization.errors import UserError
from tokenization.text.control_tokens import check_tokenizer

from ..configuration_gpt1 import GPT1Config
from ..configuration_gpt1_lstm import GPT1LSTMConfig
from ..families import family_of_config
from ..families.probing import longest_sequence, rounding_of, unchanged
from ..modeling_gpt1 import CACHE, GPT1ForCausalLM
from ..packing_gpt1 import MASKED_ROWS, packed_inputs, way_of_packing

logger = logging.get_logger(__name__)

# Predicted tokens whose logits are normalised at once: 41 MiB of float32 at V = 40 478.
CHUNK_TOKENS = 256
# Rows that are worth a call of the model of their own: from so many on, much shorter ones begin another batch.
ROWS_TO_SPLIT = 8
# Tokens of the sequences by which a model is tried.
NUM_TRIED = 8


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


class _Group(NamedTuple):
    """A context of at least one token, and continuations that have at least one token to predict."""

    context: list[int]
    continuations: list[list[int]]
    places: list[tuple[int, int]]  # of the continuations: the request's number, and that in the request

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens that are read of the context and of the longest continuation, whose last is only predicted."""
        return len(self.context), max(map(len, self.continuations)) - 1


_Scores = tuple[list[tuple[int, int]], torch.Tensor]
"""Of N predicted tokens: the place of the continuation that each belongs to; and on the CPU, `[N, 2]`, each one's
log-probability, and 1 if it is the most probable one."""


class Scorer:
    """Base: texts become ids, ids become groups of a length that fits; a subclass scores the groups in batches."""

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
        if not hasattr(model, "forward"):
            raise UserError(f"`model` is {model!r}. Pass a model, such as `from_pretrained` of its class gives.")
        if tokenizer is not None:
            check_tokenizer(tokenizer)
        self.model, self.tokenizer, self.batch_tokens = model, tokenizer, batch_tokens
        self._arguments = inspect.signature(model.forward).parameters
        lengths = (max_length, longest_sequence(model), 1 << 31)
        self.max_length = self._most_read = min(length for length in lengths if length is not None)
        self.start_ids = list(self._usual_start() if start_ids is None else start_ids)
        # Whether rows share a batch, and continuations a context: None is not known before the first.
        self.is_batched: bool | None = True if isinstance(model.config, GPT1Config | GPT1LSTMConfig) else None

    def _try(self) -> None:
        """Scores a small batch, and its rows alone: some models read padding, or keep a state in place of a cache."""
        size = self.model.config.get_text_config().vocab_size
        ids = [(size // 2 + number) % size for number in range(NUM_TRIED)]
        requests = [(ids[:2], [ids[2:5], ids[3:5]]), (ids[:5], [ids[5:7], ids[5:8]])]
        self.is_batched = False
        alone = self._answers(requests)
        self.is_batched = True
        try:
            together = self._answers(requests)
        except (AttributeError, NotImplementedError, TypeError, ValueError):  # from a cache of states, as LFM2's
            together = {}
        one, other = (torch.tensor([row[:1] for place in sorted(of) for row in of[place]]) for of in (alone, together))
        rounding = rounding_of(self.model)
        self.is_batched = one.shape == other.shape and torch.allclose(one, other, rtol=rounding, atol=rounding)
        if not self.is_batched:
            logger.warning(f"{type(self.model).__name__} scores rows in a batch otherwise than alone: they go alone.")

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
        texts = []
        for number, request in enumerate(requests):
            if isinstance(request, str) or isinstance(request[1], str) or not isinstance(request[0], str):
                raise UserError(
                    f"Request {number} is {request!r}, but a pair of a context and a list of continuations is needed, "
                    'such as ("It was", [" good", " bad"]); the context may be "".'
                )
            context, continuations = request
            texts.append((context.rstrip(" "), [context + continuation for continuation in continuations]))
        ids = iter(self.ids_of([text for context, wholes in texts for text in (context, *wholes)]))
        encoded = []
        for context, wholes in texts:
            context_ids, continuations = next(ids), []
            if context and not context_ids and not self.start_ids:
                logger.warning_once(f"The context {context!r} has no token: the text behind it has nothing before it.")
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
        options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        return self.tokenizer(texts, **options)["input_ids"] if texts else []

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
            ValueError: a continuation is too long to be read with at least one token before it.
        """
        with unchanged(self.model):
            if self.is_batched is None:
                self._try()
            fitting, cuts = [], []
            for number, (context, continuations) in enumerate(requests):
                context, continuations = list(context), list(map(list, continuations))
                worst, limit = max(continuations, key=len, default=[]), self.max_length - len(self.start_ids)
                if len(worst) > limit:
                    text = f", {self.tokenizer.decode(worst)[:60]!r}" if self.tokenizer else ""
                    raise UserError(
                        f"Request {number} has a continuation of {len(worst)} tokens{text}, but at most {limit} fit "
                        f"after the start tokens (`max_length` {self.max_length}, `start_ids` {len(self.start_ids)}). "
                        "Shorten it, score it in parts, or take a model with more positions."
                    )
                rest = context[max(len(worst), 1) - limit - 1 :]  # the last token of a continuation is never read
                fitting.append((self.start_ids + rest, continuations))
                cuts += [len(context) - len(rest)] if len(rest) < len(context) else []
            tokens = self._answers(fitting)
        if cuts:
            logger.warning(
                f"{len(cuts)} of {len(fitting)} contexts were cut at the beginning, by up to {max(cuts)} tokens, to "
                f"fit into {self.max_length} tokens."
            )
        return [
            [
                ContinuationScore(tuple(log_prob for log_prob, _ in pairs), all(is_best for _, is_best in pairs))
                for pairs in (tokens[number, index] for index in range(len(continuations)))
            ]
            for number, (_, continuations) in enumerate(fitting)
        ]

    def _answers(self, requests: list[tuple[list[int], list[list[int]]]]) -> dict[tuple[int, int], list]:
        """By place a pair for each predicted token: its log-probability, and 1 if it is the most probable one."""
        groups = [group for number, request in enumerate(requests) for group in self._groups(*request, number)]
        tokens = defaultdict(list)
        for places, values in self._scores(groups):
            for place, value in zip(places, values.tolist(), strict=True):
                tokens[place].append(value)
        return tokens

    def _groups(self, context: list[int], continuations: list[list[int]], number: int) -> list[_Group]:
        pairs = [(ids, (number, index)) for index, ids in enumerate(continuations) if ids]
        if not context:  # the first token is not predicted, but stands before the others
            return [_Group(ids[:1], [ids[1:]], [place]) for ids, place in pairs if len(ids) > 1]
        if pairs and self.shares_contexts and self.is_batched and CACHE in self._arguments:
            return [_Group(context, [ids for ids, _ in pairs], [place for _, place in pairs])]
        return [_Group(context, [ids], [place]) for ids, place in pairs]

    # ---- Batches

    def _scores(self, groups: list[_Group]) -> Iterator[_Scores]:
        """The model's answers, batch by batch. The tokens of a continuation come in order."""
        raise NotImplementedError

    def _batches(
        self,
        items: list,
        lengths: Callable[[Any], tuple[int, ...]],
        num_rows: Callable[[Any], int] = lambda item: 1,
        are_split: bool = False,
    ) -> Iterator[list]:
        """Batches of items of similar length, the longest first, so that a lack of memory shows at once.

        `lengths` are those of an item's parts, each of which is padded by itself; `num_rows` is how many rows it has;
        `are_split` ends batches of `ROWS_TO_SPLIT` items before a last part of at most 3/4 of the longest one.
        """
        batch, rows, longest = [], 0, ()
        for item in sorted(items, key=lambda item: (sum(lengths(item)), lengths(item)), reverse=True):
            of_item = lengths(item)
            rows += num_rows(item)
            longest = tuple(map(max, longest or of_item, of_item))
            is_full = sum(longest) > self._most_read or rows * sum(longest) > self.batch_tokens
            is_full |= are_split and len(batch) >= ROWS_TO_SPLIT and 4 * of_item[-1] <= 3 * longest[-1]
            if batch and (is_full or not self.is_batched):
                yield batch
                batch, rows, longest = [], num_rows(item), of_item
            batch.append(item)
        if batch:
            yield batch

    def _padded(self, rows: Sequence[Sequence[int]], side: str = "right") -> dict[str, torch.Tensor]:
        """`input_ids` and `attention_mask` of ragged rows, both `[B, T]`, int64."""
        ids = [torch.tensor(row, dtype=torch.long) for row in rows]
        mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True, padding_side=side)
        padded = pad_sequence(ids, batch_first=True, padding_side=side, padding_value=self._padding)
        return {"input_ids": padded.to(self.model.device), "attention_mask": mask.to(self.model.device)}


class CausalLMScorer(Scorer):
    """Scores continuations of contexts in batches, as if each were scored alone.

    Args:
        model ([`PreTrainedModel`]): any causal language model whose output has `logits`. A model without a
            key-value cache, or with a state in its place, reads every context once for each continuation.
        tokenizer ([`PreTrainedTokenizerBase`], *optional*): for [`~CausalLMScorer.score`].
        batch_tokens (`int`, defaults to 2048): maximum tokens of a batch, padding included. A context counts once for
            each of its continuations. A batch has at least one continuation.
        max_length (`int`, *optional*): maximum tokens that the model reads at once. Default: its positions.
        start_ids (`list[int]`, *optional*): ids that stand before every context and are never cut. Default: the
            beginning-of-text id if the tokenizer puts one before a text by itself, otherwise none.
    """

    method = "log-probability"
    shares_contexts = True

    def _usual_start(self) -> list[int]:
        """The beginning-of-text id, if the tokenizer puts one before every text, but not `[s]` of `[s] text [e]`."""
        start, extract = (getattr(self.tokenizer, f"{name}_token_id", None) for name in ("bos", "extract"))
        around = [] if start is None else self.tokenizer("")["input_ids"]
        return [start] if around[:1] == [start] and around != [start, extract] else []

    def _try(self) -> None:
        """Raises:
        ValueError: the model restores masked tokens, or another last token changes what it predicts before it.
        """
        model = self.model
        size = model.config.get_text_config().vocab_size
        ids = torch.arange(1, 1 + NUM_TRIED, device=model.device).remainder(size).repeat(2, 1)
        ids[1, -1] = (1 + NUM_TRIED) % size
        first, other = self._run(ids, torch.ones_like(ids)).logits[:, :-1].float()
        # By its type, too: a weakly trained BERT hardly depends on later tokens.
        is_masked = scorer_class_of(model.config) is MaskedLMScorer
        if is_masked or (first - other).abs().max() > rounding_of(model) * first.abs().max():
            raise UserError(
                f"{type(model).__name__} is not a causal language model: its predictions depend on tokens that come "
                "after them, as in BERT. Give a model that was trained to continue texts, or ask it with "
                "`gpt1 zero-shot`."
            )
        super()._try()

    def _scores(self, groups: list[_Group]) -> Iterator[_Scores]:
        model = self.model
        if isinstance(model, GPT1ForCausalLM) and model._supports_attention_backend and model.pack_sequences:
            if way_of_packing(model.config) == MASKED_ROWS:
                by_length = self._batches(groups, lambda group: (sum(group.lengths),), lambda group: len(group.places))
                yield from map(self._score_packed, by_length)
                return
        shared = [group for group in groups if len(group.places) > 1]
        for batch in self._batches(shared, attrgetter("lengths"), lambda group: len(group.places)):
            yield from self._score_shared(batch)
        whole = [group for group in groups if len(group.places) == 1]
        for batch in self._batches(whole, lambda group: (sum(group.lengths),)):
            yield self._score_whole(batch)

    def _score_packed(self, batch: list[_Group]) -> _Scores:
        """All in one row, by a plan: each token is computed once, and only the logits that are needed."""
        rows, spans, places, targets = [], [], [], []
        num_rows = 1 + max(len(group.places) for group in batch)  # the last is empty: without padding there is no plan
        for number, group in enumerate(batch):
            start = len(group.context) - 1  # a context's last token predicts the first of each continuation
            for place, ids in zip(group.places, group.continuations, strict=True):
                spans.append((len(rows), slice(start, start + len(ids))))
                rows.append(group.context + ids[:-1])
                places += [place] * len(ids)
                targets += ids
            rows += [[]] * ((number + 1) * num_rows - len(rows))
        inputs = self._padded(rows)
        mask = inputs["attention_mask"].unflatten(0, (len(batch), num_rows)).cpu()  # [B, C, T]
        plan = plan_batch(mask, [len(group.context) for group in batch]).to(self.model.device)
        kept, positions = torch.cat([plan.packed_index[span] for span in spans]).unique(return_inverse=True)
        packed = packed_inputs(self.model, plan, inputs["input_ids"])
        logits = self.model(**packed, logits_to_keep=kept, use_cache=False, return_dict=True).logits
        return places, _score_targets(logits, [positions.tolist()], [targets])

    def _score_whole(self, batch: list[_Group]) -> _Scores:
        """Each row is a context and its only continuation."""
        inputs = self._padded([group.context + group.continuations[0][:-1] for group in batch])
        shortest = min(len(group.context) for group in batch)
        starts = [len(group.context) - shortest for group in batch]  # a context's last token predicts what follows it
        # With padding after the rows, each model's own positions are right; RoBERTa's begin after the id of padding.
        logits = self._run(**inputs, keep=inputs["input_ids"].shape[1] - shortest + 1).logits
        return _score_alone(batch, logits, starts)

    def _score_shared(self, batch: list[_Group]) -> Iterator[_Scores]:
        """Each context is read once, and its keys and values by all of its continuations."""
        contexts = self._padded([group.context for group in batch], side="left")  # [B, P]
        mask, num_read = contexts["attention_mask"], contexts["input_ids"].shape[1]
        outputs = self._run(**contexts, position_ids=_positions(mask), keep=1, use_cache=True)
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
        # `batch_tokens` bounds the copies of the contexts' keys and values.
        for chunk in self._batches(rests, lambda rest: (num_read, len(rest[-1]) - 1), are_split=True):
            rows, places, continuations = map(list, zip(*chunk, strict=True))
            inputs = self._padded([ids[:-1] for ids in continuations])  # [R, S]
            whole_mask = torch.cat([mask[rows], inputs["attention_mask"]], dim=1)
            position_ids = _positions(whole_mask)[:, num_read:]
            cache = _select_rows(outputs[CACHE], torch.tensor(rows, device=mask.device))
            logits = self._run(
                inputs["input_ids"], whole_mask, position_ids=position_ids, use_cache=True, **{CACHE: cache}
            ).logits
            targets = [ids[1:] for ids in continuations]
            values = _score_targets(logits, [range(len(ids)) for ids in targets], targets)
            yield [place for place, ids in zip(places, targets, strict=True) for _ in ids], values

    def _run(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, keep: int = 0, **options):
        """The model's output, with the logits of the last `keep` positions only; 0 keeps all."""
        options = {"use_cache": False, "logits_to_keep": keep, **options}
        known = {name: value for name, value in options.items() if name in self._arguments}
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **known)
        outputs.logits = outputs.logits[:, -keep:]
        return outputs


class _WholeTextScorer(Scorer):
    """Base: a text is read as `[CLS] context continuation [SEP]`, and each continuation by itself."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        needed = scorer_class_of(self.model.config)
        if self.tokenizer.mask_token_id is None or not isinstance(self, needed | MaskedLMScorer):
            named, found = type(self).__name__, type(self.model).__name__
            raise UserError(f"{named} needs a tokenizer with a mask token, and {found} is for {needed.__name__}.")
        # Two tokens stay free: unlike a causal model, these read the last token, and a separator after it.
        self.max_length = min(self.max_length, self.tokenizer.model_max_length) - 2
        self._padding = self.tokenizer.pad_token_id or 0

    def _usual_start(self) -> list[int]:
        return [self.tokenizer.cls_token_id]


class MaskedLMScorer(_WholeTextScorer):
    """Scores continuations by pseudo-log-likelihood: each of their tokens given the context and their other tokens.

    `total` of a score is the pseudo-log-likelihood. It compares texts under one model; it is no log-probability, and
    its size does not compare with a causal model's.

    Args:
        model, batch_tokens, max_length: as in [`CausalLMScorer`].
        tokenizer: has class, separator and mask tokens.
        is_shifted (`bool`, defaults to `False`): whether the model was trained on masked next token prediction, as
            GPT-BERT: the token before a mask predicts what it hides.
        num_masks (`int`, *optional*): reads from left to right: in place of a token and all that follow it there are
            so many masks, of which the first is predicted.
    """

    method = "pseudo-log-likelihood"

    def __init__(self, *args, is_shifted: bool = False, num_masks: int | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.is_shifted, self.num_masks = is_shifted, num_masks
        self.max_length -= num_masks or 0

    def _scores(self, groups: list[_Group]) -> Iterator[_Scores]:
        mask = [self.tokenizer.mask_token_id]
        hidden = []
        for group in groups:
            for number, target in enumerate(ids := group.continuations[0]):
                seen = [*group.context, *ids[:number]]
                rest = [*mask, *ids[number + 1 :]] if self.num_masks is None else mask * self.num_masks
                tokens = [*seen, *rest, self.tokenizer.sep_token_id]
                hidden.append((group, tokens, len(seen) - self.is_shifted, target))
        for batch in self._batches(hidden, lambda item: (len(item[1]),)):
            of_batch, rows, positions, targets = zip(*batch, strict=True)
            outputs = self.model(**self._padded(rows))
            logits = outputs["prediction_logits" if "prediction_logits" in outputs else "logits"]
            values = _score_targets(logits, [[position] for position in positions], [[target] for target in targets])
            yield [group.places[0] for group in of_batch], values


class DenoisingLMScorer(_WholeTextScorer):
    """Scores continuations by the decoder of an encoder-decoder that was trained to restore masked spans.

    Without a context the encoder reads the mask alone.
    """

    method = "decoder log-probability"

    def _scores(self, groups: list[_Group]) -> Iterator[_Scores]:
        hidden = [self.tokenizer.mask_token_id, self.tokenizer.sep_token_id]
        start = self.model.config.decoder_start_token_id
        for batch in self._batches(groups, attrgetter("lengths")):
            inputs = self._padded([[*group.context, *hidden] for group in batch])
            read = self._padded([[start, *group.context, *group.continuations[0][:-1]] for group in batch])
            logits = self.model(**inputs, decoder_input_ids=read["input_ids"], use_cache=False).logits  # [B, S, V]
            yield _score_alone(batch, logits, [len(group.context) for group in batch])


SCORER_CLASSES = {"causal": CausalLMScorer, "masked": MaskedLMScorer, "denoising": DenoisingLMScorer}


def scorer_class_of(config: PreTrainedConfig) -> type[Scorer]:
    """How a model's architecture scores text: the classes differ in `method`."""
    return SCORER_CLASSES[family_of_config(config).objective]


def _score_alone(batch: list[_Group], logits: torch.Tensor, starts: list[int]) -> _Scores:
    """Scores groups of one continuation each; `logits [B, T, V]` predict it from its row's place in `starts` on."""
    targets = [group.continuations[0] for group in batch]
    positions = [range(start, start + len(ids)) for start, ids in zip(starts, targets, strict=True)]
    places = [group.places[0] for group, ids in zip(batch, targets, strict=True) for _ in ids]
    return places, _score_targets(logits, positions, targets)


def _positions(mask: torch.Tensor) -> torch.Tensor:
    """Position ids `[B, T]` of rows that may have padding on the left."""
    return (mask.cumsum(1) - 1).clamp(min=0)


def _select_rows(cache: Cache, rows: torch.Tensor) -> Cache:
    """Keys and values of these rows of a cache, which is not changed."""
    selected = copy.copy(cache)
    selected.layers = [copy.copy(layer) for layer in cache.layers]
    selected.batch_select_indices(rows)
    return selected


def _score_targets(
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
        chosen = log_probs.gather(1, ids[chunk, None])[:, 0]
        parts.append(torch.stack([chosen, (log_probs.argmax(-1) == ids[chunk]).to(chosen.dtype)], dim=1))
    return torch.cat(parts).cpu()
