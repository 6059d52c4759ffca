"""Scores by causal language models, which predict each token from those before it.

Shapes: B contexts, R continuations, P tokens of a padded context, S tokens of a padded continuation, T tokens of
both, C rows of a context, V vocabulary.
"""

import copy
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

import torch
from transformers.cache_utils import Cache

from tokenization.batches.plan import plan_batch
from tokenization.errors import UserError

from ...families import family_of_config
from ...families.probing import rounding_of
from ...modeling_gpt1 import CACHE, GPT1ForCausalLM
from ...packing_gpt1 import MASKED_ROWS, packed_inputs, way_of_packing
from .base import (
    NUM_TRIED,
    Group,
    Place,
    PredictedTokens,
    Scorer,
    score_alone,
    score_targets,
)


class _Rest(NamedTuple):
    """What follows the first token of a continuation."""

    row: int
    """The row of its context in the batch."""
    place: Place
    continuation: list[int]


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

    Examples:
        >>> from modeling_gpt1 import NOVELS, CausalLMScorer, GPT1ForCausalLM
        >>> from tokenization import GPT1Tokenizer
        >>> model, tokenizer = GPT1ForCausalLM.from_pretrained(NOVELS), GPT1Tokenizer.from_pretrained(NOVELS)
        >>> scorer = CausalLMScorer(model, tokenizer)
        >>> ((good, bad),) = scorer.score([("She went", [" home.", " spoon."])])
        >>> good.mean > bad.mean
        True
    """

    method = "log-probability"
    shares_contexts = True

    def _usual_start(self) -> list[int]:
        """The beginning-of-text id, if the tokenizer puts one before every text, but not `[s]` of `[s] text [e]`."""
        start = getattr(self.tokenizer, "bos_token_id", None)
        if start is None:
            return []
        extract = getattr(self.tokenizer, "extract_token_id", None)
        around = self.tokenizer("")["input_ids"]
        if around[:1] != [start] or around == [start, extract]:
            return []
        return [start]

    def _try_model(self) -> None:
        """As the base does; refuses a model that is not causal.

        Raises:
            ValueError: the model restores masked tokens, or another last token changes what it predicts before it.
        """
        self.check_family()
        model = self.model
        size = model.config.get_text_config().vocab_size
        ids = torch.arange(1, 1 + NUM_TRIED, device=model.device).remainder(size).repeat(2, 1)
        ids[1, -1] = (1 + NUM_TRIED) % size
        first, other = self._run(ids, torch.ones_like(ids)).logits[:, :-1].float()
        sees_later_tokens = (first - other).abs().max() > rounding_of(model) * first.abs().max()
        if sees_later_tokens:
            self._refuse()
        super()._try_model()

    def check_family(self) -> None:
        """Refuses a masked model: a weakly trained BERT hardly depends on later tokens."""
        if family_of_config(self.model.config).objective == "masked":
            self._refuse()

    def _refuse(self) -> None:
        raise UserError(
            f"{type(self.model).__name__} is not a causal language model: like BERT's, its predictions depend on "
            "later tokens. Pass a model that was trained to continue texts, or use MaskedLMScorer."
        )

    def _score_groups(self, groups: list[Group]) -> Iterator[PredictedTokens]:
        if self._follows_plans():
            for batch in self._batches(groups, lambda group: (group.length,), lambda group: len(group.places)):
                yield self._score_packed(batch)
            return
        shared = [group for group in groups if len(group.places) > 1]
        for batch in self._batches(shared, attrgetter("lengths"), lambda group: len(group.places)):
            yield from self._score_shared(batch)
        whole = [group for group in groups if len(group.places) == 1]
        for batch in self._batches(whole, lambda group: (group.length,)):
            yield self._score_whole(batch)

    def _follows_plans(self) -> bool:
        """Whether the model computes a batch by a plan."""
        model = self.model
        if not isinstance(model, GPT1ForCausalLM) or not model._supports_attention_backend:
            return False
        return model.pack_sequences and way_of_packing(model.config) == MASKED_ROWS

    def _score_packed(self, batch: list[Group]) -> PredictedTokens:
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
            num_empty = (number + 1) * num_rows - len(rows)
            rows += [[]] * num_empty
        inputs = self._padded(rows)
        mask = inputs["attention_mask"].unflatten(0, (len(batch), num_rows)).cpu()  # [B, C, T]
        plan = plan_batch(mask, [len(group.context) for group in batch]).to(self.model.device)
        kept, positions = torch.cat([plan.packed_index[span] for span in spans]).unique(return_inverse=True)
        packed = packed_inputs(self.model, plan, inputs["input_ids"])
        logits = self.model(**packed, logits_to_keep=kept, use_cache=False, return_dict=True).logits
        return PredictedTokens(places, score_targets(logits, [positions.tolist()], [targets]))

    def _score_whole(self, batch: list[Group]) -> PredictedTokens:
        """Each row is a context and its only continuation."""
        inputs = self._padded([group.context + group.continuations[0][:-1] for group in batch])
        # Only the logits from the last token of the shortest context on are needed: it predicts what follows it.
        shortest = min(len(group.context) for group in batch)
        starts = [len(group.context) - shortest for group in batch]
        # With padding after the rows, each model's own positions are right; RoBERTa's begin after the id of padding.
        logits = self._run(**inputs, keep=inputs["input_ids"].shape[1] - shortest + 1).logits
        return score_alone(batch, logits, starts)

    def _score_shared(self, batch: list[Group]) -> Iterator[PredictedTokens]:
        """Each context is read once, and its keys and values by all of its continuations."""
        contexts = self._padded([group.context for group in batch], side="left")  # [B, P]
        mask = contexts["attention_mask"]
        outputs = self._run(**contexts, position_ids=_positions(mask), keep=1, use_cache=True)
        yield _score_first_tokens(batch, outputs.logits)

        rests = []
        for row, group in enumerate(batch):
            for place, ids in zip(group.places, group.continuations, strict=True):
                if len(ids) > 1:
                    rests.append(_Rest(row, place, ids))
        # `batch_tokens` bounds the copies of the contexts' keys and values.
        num_read = mask.shape[1]
        for chunk in self._batches(rests, lambda rest: (num_read, len(rest.continuation) - 1), are_split=True):
            yield self._score_rests(chunk, mask, outputs[CACHE])

    def _score_rests(self, rests: list[_Rest], mask: torch.Tensor, contexts: Cache) -> PredictedTokens:
        """Scores continuations from their second token on, given their contexts' keys and values and `mask [B, P]`."""
        inputs = self._padded([rest.continuation[:-1] for rest in rests])  # [R, S]
        rows = [rest.row for rest in rests]
        whole_mask = torch.cat([mask[rows], inputs["attention_mask"]], dim=1)  # [R, T]
        cache = _select_rows(contexts, torch.tensor(rows, device=mask.device))
        logits = self._run(
            inputs["input_ids"],
            whole_mask,
            position_ids=_positions(whole_mask)[:, mask.shape[1] :],
            use_cache=True,
            **{CACHE: cache},
        ).logits
        targets = [rest.continuation[1:] for rest in rests]
        positions = [range(len(ids)) for ids in targets]
        places = [rest.place for rest, ids in zip(rests, targets, strict=True) for _ in ids]
        return PredictedTokens(places, score_targets(logits, positions, targets))

    def _run(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, keep: int = 0, **options):
        """The model's output, with the logits of the last `keep` positions only; 0 keeps all."""
        options = {"use_cache": False, "logits_to_keep": keep, **options}
        known = {name: value for name, value in options.items() if name in self._arguments}
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **known)
        outputs.logits = outputs.logits[:, -keep:]
        return outputs


def _score_first_tokens(batch: list[Group], logits: torch.Tensor) -> PredictedTokens:
    """The last token of a context predicts the first one of each continuation: `logits [B, 1, V]`."""
    places, positions, targets = [], [], []
    for group in batch:
        places += group.places
        positions.append([0] * len(group.places))
        targets.append([ids[0] for ids in group.continuations])
    return PredictedTokens(places, score_targets(logits, positions, targets))


def _positions(mask: torch.Tensor) -> torch.Tensor:
    """Position ids `[B, T]` of rows that may have padding on the left."""
    return (mask.cumsum(1) - 1).clamp(min=0)


def _select_rows(cache: Cache, rows: torch.Tensor) -> Cache:
    """Keys and values of these rows of a cache, which is not changed."""
    selected = copy.copy(cache)
    selected.layers = [copy.copy(layer) for layer in cache.layers]
    selected.batch_select_indices(rows)
    return selected
