"""Scores by models that restore hidden tokens: masked language models and denoising encoder-decoders.

Shapes: B rows, S tokens of a row that the decoder reads, V vocabulary.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from tokenization.errors import UserError

from ...families import family_of_config
from .base import Group, Place, PredictedTokens, Scorer, score_alone, score_targets
from .causal import CausalLMScorer


class _WholeTextScorer(Scorer):
    """Base: a text is read as `[CLS] context continuation [SEP]`, and each continuation by itself."""

    takes_any_model = False
    """Whether models are scored whose architecture has another scorer."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None, *args: Any, **kwargs: Any
    ):
        if tokenizer is None:
            raise UserError(f"{type(self).__name__} needs the model's tokenizer. Pass it as `tokenizer`.")
        super().__init__(model, tokenizer, *args, **kwargs)
        needed = scorer_class_of(self.model.config)
        if not self.takes_any_model and not isinstance(self, needed):
            raise UserError(
                f"{type(self).__name__} cannot score with a {type(self.model).__name__}. Use {needed.__name__}."
            )
        if self.tokenizer.mask_token_id is None:
            other = "" if isinstance(self, needed) else f", or use {needed.__name__}"
            raise UserError(
                f"{type(self).__name__} needs a mask token, but the tokenizer has none. Pass a tokenizer with "
                f"one{other}."
            )
        if self.tokenizer.sep_token is None or None in self.start_ids:
            raise UserError(
                f"{type(self).__name__} reads texts between a class and a separator token, but the tokenizer's "
                f"`cls_token` is {self.tokenizer.cls_token} and its `sep_token` is {self.tokenizer.sep_token}. Set "
                "both to the tokens that stood around texts in the model's training."
            )
        # Two tokens stay free: unlike a causal model, these read the last token, and a separator after it.
        self.max_length = min(self.max_length, self.tokenizer.model_max_length) - 2
        self._padding = self.tokenizer.pad_token_id or 0

    def _usual_start(self) -> list[int]:
        return [self.tokenizer.cls_token_id]


class _HiddenToken(NamedTuple):
    """A row in which one token of a continuation is hidden."""

    ids: list[int]
    position: int
    """Where the row predicts the token."""
    target: int
    place: Place
    longest: int
    """Tokens of the longest row of its continuation."""


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
    takes_any_model = True  # a causal architecture may be trained on masked tokens, as GPT-BERT is

    def __init__(self, *args, is_shifted: bool = False, num_masks: int | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.is_shifted = is_shifted
        self.num_masks = num_masks
        self.max_length -= num_masks or 0

    def _score_groups(self, groups: list[Group]) -> Iterator[PredictedTokens]:
        hidden = [token for group in groups for token in self._hide_each(group)]
        # Batches are sorted by length. By that of the longest row, the rows of a continuation stay in order.
        for batch in self._batches(hidden, lambda token: (token.longest,)):
            outputs = self.model(**self._padded([token.ids for token in batch]))
            logits = outputs["prediction_logits" if "prediction_logits" in outputs else "logits"]
            positions = [[token.position] for token in batch]
            targets = [[token.target] for token in batch]
            yield PredictedTokens([token.place for token in batch], score_targets(logits, positions, targets))

    def _hide_each(self, group: Group) -> Iterator[_HiddenToken]:
        mask = self.tokenizer.mask_token_id
        (continuation,) = group.continuations
        longest = len(group.context) + len(continuation) + (self.num_masks or 1)
        for number, target in enumerate(continuation):
            before = group.context + continuation[:number]
            if self.num_masks is None:
                rest = [mask, *continuation[number + 1 :]]
            else:
                rest = [mask] * self.num_masks
            position = len(before) - 1 if self.is_shifted else len(before)
            ids = [*before, *rest, self.tokenizer.sep_token_id]
            yield _HiddenToken(ids, position, target, group.places[0], longest)


class DenoisingLMScorer(_WholeTextScorer):
    """Scores continuations by the decoder of an encoder-decoder that was trained to restore masked spans.

    Without a context the encoder reads the mask alone.
    """

    method = "decoder log-probability"

    def _score_groups(self, groups: list[Group]) -> Iterator[PredictedTokens]:
        hidden = [self.tokenizer.mask_token_id, self.tokenizer.sep_token_id]
        start = self.model.config.decoder_start_token_id
        for batch in self._batches(groups, attrgetter("lengths")):
            inputs = self._padded([[*group.context, *hidden] for group in batch])
            read = self._padded([[start, *group.context, *group.continuations[0][:-1]] for group in batch])
            logits = self.model(**inputs, decoder_input_ids=read["input_ids"], use_cache=False).logits  # [B, S, V]
            yield score_alone(batch, logits, [len(group.context) for group in batch])


# By what the pre-training of a family minimises.
SCORER_CLASSES = {"causal": CausalLMScorer, "masked": MaskedLMScorer, "denoising": DenoisingLMScorer}


def scorer_class_of(config: PreTrainedConfig) -> type[Scorer]:
    """How a model's architecture scores text: the classes differ in `method`."""
    return SCORER_CLASSES[family_of_config(config).objective]
