"""Scores of continuations by masked models and by encoder-decoders, with the interface of [`CausalLMScorer`].

- A masked model gives no probability of a text. Its pseudo-log-likelihood masks one token at a time and adds up the
  log-probabilities of the hidden tokens: section 2.3 of "Masked Language Model Scoring" (Salazar et al. 2020,
  https://arxiv.org/abs/1910.14659).
- A denoising encoder-decoder, such as BART, restores a text from a damaged one. The encoder reads the context with one
  mask in place of the continuation, which is how its pre-training hides a span of any length. The decoder reads the
  text from its beginning; the log-probabilities of the continuation's tokens add up to that of the continuation.
  Without a context the encoder reads the mask alone.

Shapes: B rows of a batch, T tokens of the longest row, S of the longest row of the decoder, V vocabulary.
"""

from collections.abc import Iterator, Sequence

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from .scoring import CausalLMScorer, _evaluating, _Group, _score_targets


class _WholeTextScorer(CausalLMScorer):
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
        super().__init__(model, tokenizer, batch_tokens, max_length, [tokenizer.cls_token_id], share_contexts=False)
        # Two tokens stay free: unlike a causal model, these read the last token, and a separator after it.
        self.max_length = min(self.max_length, tokenizer.model_max_length) - 2

    def _compute(self, groups: list[_Group]) -> dict[int, tuple[tuple[float, ...], bool]]:
        found: dict[int, tuple[tuple[float, ...], bool]] = {}
        with torch.no_grad(), _evaluating(self.model):
            values = self._score(groups)
        for group in groups:
            of_place = values[group.places[0]]
            found[group.places[0]] = tuple(log_prob for log_prob, _ in of_place), all(best for _, best in of_place)
        return found

    def _score(self, groups: list[_Group]) -> dict[int, list[tuple[float, bool]]]:
        """For each place the log-probability of each token, and whether it is the most probable."""
        raise NotImplementedError

    def _padded(self, rows: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        """`input_ids` and `attention_mask`, `[B, T]`."""
        longest, padding = max(map(len, rows)), self.tokenizer.pad_token_id or 0
        ids = [[*row, *[padding] * (longest - len(row))] for row in rows]
        mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
        device = self.model.device
        return {
            "input_ids": torch.tensor(ids, device=device),
            "attention_mask": torch.tensor(mask, device=device),
        }


class MaskedLMScorer(_WholeTextScorer):
    """Scores continuations by pseudo-log-likelihood: each of their tokens given the context and their other tokens.

    `total` of a score is the pseudo-log-likelihood. It compares texts under one model; it is no log-probability, and
    its size does not compare with a causal model's.
    """

    method = "pseudo-log-likelihood"

    def _score(self, groups: list[_Group]) -> dict[int, list[tuple[float, bool]]]:
        rows = [[*group.context, *group.continuations[0], self.tokenizer.sep_token_id] for group in groups]
        hidden = [
            (index, len(group.context) + place)
            for index, group in enumerate(groups)
            for place in range(len(group.continuations[0]))
        ]
        values: dict[int, list] = {group.places[0]: [None] * len(group.continuations[0]) for group in groups}
        for batch in _batches(hidden, [len(rows[index]) for index, _ in hidden], self.batch_tokens):
            inputs = self._padded([rows[index] for index, _ in batch])
            for row, (_, place) in enumerate(batch):
                inputs["input_ids"][row, place] = self.tokenizer.mask_token_id
            logits = self.model(**inputs).logits
            targets = [[rows[index][place]] for index, place in batch]
            scores = _score_targets(logits, [[place] for _, place in batch], targets).tolist()
            for (index, place), (log_prob, best) in zip(batch, scores, strict=True):
                values[groups[index].places[0]][place - len(groups[index].context)] = log_prob, bool(best)
        return values


class DenoisingLMScorer(_WholeTextScorer):
    """Scores continuations by the decoder of an encoder-decoder that was trained to restore masked spans.

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

    def _score(self, groups: list[_Group]) -> dict[int, list[tuple[float, bool]]]:
        values = {}
        lengths = [len(group.context) + len(group.continuations[0]) for group in groups]
        end = self.tokenizer.sep_token_id
        start = self.model.config.decoder_start_token_id
        for batch in _batches(groups, lengths, self.batch_tokens):
            inputs = self._padded([[*group.context, self.tokenizer.mask_token_id, end] for group in batch])
            read = self._padded([[start, *group.context, *group.continuations[0][:-1]] for group in batch])
            logits = self.model(**inputs, decoder_input_ids=read["input_ids"], use_cache=False).logits  # [B, S, V]
            targets = [group.continuations[0] for group in batch]
            places = [range(len(group.context), len(group.context) + len(group.continuations[0])) for group in batch]
            scores = iter(_score_targets(logits, places, targets).tolist())
            for group, ids in zip(batch, targets, strict=True):
                pairs = [next(scores) for _ in ids]
                values[group.places[0]] = [(log_prob, bool(best)) for log_prob, best in pairs]
        return values


def _batches(items: list, lengths: list[int], batch_tokens: int) -> Iterator[list]:
    """Batches of items of similar length, the longest first, so that a lack of memory shows at once."""
    batch, longest = [], 0
    for index in sorted(range(len(items)), key=lengths.__getitem__, reverse=True):
        if batch and longest * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        longest = longest if batch else lengths[index]
        batch.append(items[index])
    if batch:
        yield batch


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


def scorer_class_of(config: PreTrainedConfig) -> type[CausalLMScorer]:
    """How a model's architecture scores text: the classes differ in `method`."""
    if config.is_encoder_decoder:
        return DenoisingLMScorer
    # BERT and RoBERTa can be decoders, too.
    is_masked = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    return MaskedLMScorer if is_masked else CausalLMScorer


__all__ = ["DenoisingLMScorer", "MaskedLMScorer", "check_continues_text", "scorer_class_of"]
