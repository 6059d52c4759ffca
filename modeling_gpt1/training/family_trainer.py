"""Trainer that pre-trains transformers' own models of other families: GPT-2, BERT, RoBERTa, ALBERT and BART.

The models of transformers take the mean of a micro-batch as its loss. Micro-batches have different numbers of masked
tokens, so the result of an update would depend on how it is cut. Here the loss of an update is a sum divided by the
number of targets of the whole update.

Shapes: B rows, T tokens, V vocabulary, P parts of the loss.
"""

import inspect

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from ..hub.card import write_model_card
from .launch import check_sharding
from .losses import perplexity
from .trainer import GPT1PretrainingTrainer

# Each name of sentence labels, and that of their logits.
SENTENCE_LOGITS = {"next_sentence_label": "seq_relationship_logits", "sentence_order_label": "sop_logits"}
LABELS = ("labels", *SENTENCE_LOGITS)


def check_vocabulary_of_family(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """
    Raises:
        ValueError: the tokenizer has more tokens than the model.
    """
    if len(tokenizer) > config.vocab_size:
        raise ValueError(
            f"The tokenizer has {len(tokenizer)} tokens, but the model's vocabulary has {config.vocab_size}. Open the "
            "tokenizer saved with the model, or make the model with the tokenizer's size."
        )


class FamilyPretrainingTrainer(GPT1PretrainingTrainer):
    r"""Pre-trains a model of transformers on batches with `labels`, and with sentence labels where it has such a head.

    A causal model predicts the next label, other models the label at its own place. `loss` is the sum of the means
    over tokens and over pairs of sentences. The log and the evaluation name what they measure:

    | model | beside `loss` |
    |---|---|
    | causal | `perplexity` |
    | masked | `mlm_loss`, the mean −log P of the masked tokens |
    | with pairs of sentences | also `sentence_loss`; evaluations have `eval_sentence_accuracy` |
    | encoder-decoder | `denoising_loss`, the mean −log P of a restored token |

    Only a causal model has a perplexity: the other losses are no probability of a text. `mfu` is not logged.
    """

    _WITHOUT_LOGITS = {}  # other models have no such arguments

    def __init__(self, model=None, args=None, *others, **kwargs):
        # Facts of the model, known when it is checked: without cache, objective, parts of its loss.
        self._without_cache: dict[str, bool] = {}
        self._kind, self._num_parts = "causal", 1
        self._num_targets = torch.ones(2)  # tokens and pairs of the current update
        super().__init__(model, args, *others, **kwargs)
        self.model_accepts_loss_kwargs = True  # Trainer leaves the loss as it is: an update's targets divide it

    def _check_model(self, model: PreTrainedModel) -> None:
        check_sharding(model)
        tokenizer = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        if tokenizer is not None:
            check_vocabulary_of_family(model.config, tokenizer)
        arguments = inspect.signature(model.forward).parameters
        self._without_cache = {"use_cache": False} if "use_cache" in arguments else {}
        self._num_parts = 2 if any(name in arguments for name in SENTENCE_LOGITS) else 1
        is_causal = type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
        self._kind = "denoising" if model.config.is_encoder_decoder else "causal" if is_causal else "masked"

    # ---- Data

    def get_eval_dataloader(self, eval_dataset=None):
        return self._with_fixed_noise(super().get_eval_dataloader, eval_dataset)

    def get_test_dataloader(self, test_dataset):
        return self._with_fixed_noise(super().get_test_dataloader, test_dataset)

    def _with_fixed_noise(self, get_loader, dataset):
        """A loader whose collator does not follow the passes of the training."""
        collator, rows = self.data_collator, self.eval_dataset if dataset is None else dataset
        rows = self.eval_dataset[rows] if isinstance(rows, str) else rows
        if hasattr(collator, "for_evaluation"):
            self.data_collator = collator.for_evaluation(rows)
        try:
            return get_loader(dataset)
        finally:
            self.data_collator = collator

    def get_batch_samples(self, *args, **kwargs):
        batches, num_items = super().get_batch_samples(*args, **kwargs)
        counts = torch.zeros(2, device=self.args.device)
        for batch in batches:
            targets = [self._targets(batch["labels"]), *(batch[name] for name in SENTENCE_LOGITS if name in batch)]
            for part, labels in enumerate(targets):
                counts[part] += (labels != -100).sum()
        if self.args.average_tokens_across_devices:
            counts = self.accelerator.reduce(counts, "sum")
        self._num_targets = counts.clamp(min=1)
        return batches, num_items

    def _targets(self, labels: torch.Tensor) -> torch.Tensor:
        """What the logits at each place predict, `[B, T]`."""
        return nn.functional.pad(labels[:, 1:], (0, 1), value=-100) if self._kind == "causal" else labels

    # ---- Loss

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**{name: part for name, part in inputs.items() if name not in LABELS}, **self._without_cache)
        if not self._has_own_loss:
            loss = self.compute_loss_func(outputs, inputs["labels"], num_items_in_batch=num_items_in_batch)
        else:
            loss = self._own_loss(model, inputs, outputs)
        if model.training and self.args.average_tokens_across_devices:
            loss = loss * self.accelerator.num_processes  # which average their gradients
        return (loss, outputs) if return_outputs else loss

    def _own_loss(self, model, inputs, outputs) -> torch.Tensor:
        parts = [self._token_losses(outputs, inputs["labels"])]
        parts += [
            self._sentence_losses(outputs[logits], inputs[name])
            for name, logits in SENTENCE_LOGITS.items()
            if name in inputs
        ]
        if model.training:
            means = torch.stack([part[:, 0].sum() for part in parts]) / self._num_targets[: len(parts)]
            self.running_losses.add(means[0], means[1] if len(means) > 1 else None)
            return means.sum()
        self._example_losses.append(self.gather_function(torch.cat(parts, 1)))
        return sum(part[:, 0].sum() / part[:, 1].sum().clamp(min=1) for part in parts)

    def _token_losses(self, outputs, labels: torch.Tensor) -> torch.Tensor:
        """The sum of −log P over a row's targets, and their number, `[B, 2]`."""
        logits = outputs["prediction_logits"] if "prediction_logits" in outputs else outputs["logits"]  # [B, T, V]
        targets = self._targets(labels)
        is_target = targets != -100
        losses = nn.functional.cross_entropy(logits[is_target].float(), targets[is_target], reduction="none")
        sums = logits.new_zeros(targets.shape, dtype=torch.float32).masked_scatter(is_target, losses).sum(1)
        return torch.stack([sums, is_target.sum(1)], dim=1)

    def _sentence_losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """−log P of a row's label, whether it has one, and whether it is the most probable; `[B, 3]`."""
        losses = nn.functional.cross_entropy(logits.float(), labels, ignore_index=-100, reduction="none")
        return torch.stack([losses, labels != -100, logits.argmax(-1) == labels], dim=1)

    # ---- Figures

    def _named(self, means: list[float]) -> dict[str, float]:
        if self._kind == "causal":
            return {"perplexity": perplexity(means[0])}
        name = "denoising_loss" if self._kind == "denoising" else "mlm_loss"
        return dict(zip((name, "sentence_loss"), means, strict=False))

    def _evaluated_losses(self, example_losses: torch.Tensor) -> dict[str, float]:
        sums = example_losses.sum(0).tolist()  # of tokens: −log P, number; of sentences: −log P, number, right ones
        means = [loss / max(number, 1) for loss, number in (sums[:2], sums[2:4])[: self._num_parts]]
        accuracy = {"sentence_accuracy": sums[4] / max(sums[3], 1)} if self._num_parts > 1 else {}
        return {"loss": sum(means), **self._named(means), **accuracy}

    def _logged_figures(self, loss: float) -> dict[str, float]:
        if self.running_losses.sums is None:
            return {}
        return self._named(self._mean_parts()[: self._num_parts])

    def _flops_per_token(self) -> None:
        return None

    # ---- Hub

    def create_model_card(self, **card_data) -> None:
        """As in [`GPT1PretrainingTrainer`], with a card that suits any model."""
        if self.is_world_process_zero():
            write_model_card(self, objective=self._kind, has_sentences=self._num_parts > 1, **card_data)


__all__ = ["FamilyPretrainingTrainer"]
