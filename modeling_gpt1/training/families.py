"""The trainer of other families: transformers' models on the blocks of GPT-1's pre-training.

Shapes: B rows, T tokens, V vocabulary, P parts of the loss.
"""

import inspect

import torch
from torch import nn
from transformers import PreTrainedModel

from tokenization.errors import UserError
from tokenization.wording import listed

from ..configuration_gpt1 import IGNORED_LABEL
from ..families import Family
from ..families.classifiers import SENTENCE_LOGITS
from .measures import perplexity
from .trainer import GPT1PretrainingTrainer

LABELS = ("labels", *SENTENCE_LOGITS)
DECODER_INPUTS = {"decoder_input_ids", "decoder_inputs_embeds"}
LOSS_NAMES = {"masked": "mlm_loss", "denoising": "denoising_loss"}  # by objective


class FamilyPretrainingTrainer(GPT1PretrainingTrainer):
    r"""Pre-trains a model of transformers on batches with `labels`, and with sentence labels where it has such a head.

    The models of transformers take the mean of a micro-batch as its loss. Micro-batches have different numbers of
    masked tokens, so the result of an update would depend on how it is cut. Here the loss of an update is a sum
    divided by the number of targets of the whole update.

    A causal model predicts the next label, other models the label at its own place. `loss` is the sum of the means
    over tokens and over pairs of sentences. The log and the evaluation name what they measure:

    | model | beside `loss` |
    |---|---|
    | causal | `perplexity` |
    | masked | `mlm_loss`, the mean −log P of the masked tokens |
    | with pairs of sentences | also `sentence_loss`; evaluations have `eval_sentence_accuracy` |
    | encoder-decoder | `denoising_loss`, the mean −log P of a restored token |

    Only a causal model has a perplexity: the other losses are no probability of a text. `mfu` is not logged.

    Raises:
        ValueError: as the base; a batch has no sentence labels, but the model has a head for them.
    """

    _WITHOUT_LOGITS = {}  # other models have no such arguments

    def _set_up_own_model(self, model: PreTrainedModel) -> None:
        if self.saved_tokenizer is not None:
            self.family.check_pretraining(model, self.saved_tokenizer)
        has_cache = "use_cache" in inspect.signature(model.forward).parameters
        self._without_cache = {"use_cache": False} if has_cache else {}
        self._num_parts = 2 if self.family.has_sentence_loss(model) else 1
        self.model_accepts_loss_kwargs = True  # Trainer leaves the loss as it is: an update's targets divide it

    # ---- Data

    def get_batch_samples(self, *args, **kwargs):
        batches, num_items = super().get_batch_samples(*args, **kwargs)
        counts = torch.zeros(2, device=self.args.device)
        for batch in batches:
            targets = [self._targets(batch["labels"]), *(batch[name] for name in SENTENCE_LOGITS if name in batch)]
            for part, labels in enumerate(targets):
                counts[part] += (labels != IGNORED_LABEL).sum()
        counts = self.accelerator.reduce(counts, "sum")
        self._num_targets = counts.clamp(min=1)  # tokens and pairs of the current update
        return batches, num_items

    def _targets(self, labels: torch.Tensor) -> torch.Tensor:
        """What the logits at each place predict, `[B, T]`."""
        if self.family.is_causal:
            return nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED_LABEL)
        return labels

    # ---- Loss

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self._check_sentence_labels(inputs)
        outputs = model(**self._inputs_without_labels(inputs), **self._without_cache)
        parts = [self._token_losses(outputs, inputs["labels"])]
        parts += [
            self._sentence_losses(outputs[logits], inputs[name])
            for name, logits in SENTENCE_LOGITS.items()
            if name in inputs
        ]
        if model.training:
            means = torch.stack([part[:, 0].sum() for part in parts]) / self._num_targets[: len(parts)]
            self.add_parts(*means)
            loss = means.sum() * self.accelerator.num_processes  # which average their gradients
        else:
            self._example_losses.append(self.gather_function(torch.cat(parts, 1)))
            loss = sum(part[:, 0].sum() / part[:, 1].sum().clamp(min=1) for part in parts)
        return (loss, outputs) if return_outputs else loss

    def prediction_step(self, model, inputs, *args, **kwargs):
        if self._has_known_loss():
            self._check_sentence_labels(inputs)  # Trainer computes no loss of a batch without them, and says nothing
        return super().prediction_step(model, inputs, *args, **kwargs)

    def _check_sentence_labels(self, inputs: dict[str, torch.Tensor]) -> None:
        """Refuses a batch that has labels of tokens alone, if the model has a head for pairs of sentences, too."""
        has_labels_of_tokens_alone = "labels" in inputs and SENTENCE_LOGITS.keys().isdisjoint(inputs)
        if self._num_parts > 1 and has_labels_of_tokens_alone:
            raise UserError(
                f"{type(self._own_model).__name__} has a head for pairs of sentences, but a batch has only "
                f"{listed(inputs)}. Make the batches with NextSentenceCollator (BERT) or SentenceOrderCollator "
                "(ALBERT), or pass a model without this head, such as BertForMaskedLM."
            )

    def _inputs_without_labels(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the model reads.

        A decoder that is given nothing to read would read the damaged text. It reads the labels, one place later.
        """
        read = {name: part for name, part in inputs.items() if name not in LABELS}
        if self.family.objective == "denoising" and DECODER_INPUTS.isdisjoint(read):
            read["decoder_input_ids"] = self._own_model.prepare_decoder_input_ids_from_labels(inputs["labels"])
        return read

    def _token_losses(self, outputs, labels: torch.Tensor) -> torch.Tensor:
        """The sum of −log P over a row's targets, and their number, `[B, 2]`."""
        logits = outputs["prediction_logits"] if "prediction_logits" in outputs else outputs["logits"]  # [B, T, V]
        targets = self._targets(labels)
        is_target = targets != IGNORED_LABEL
        losses = nn.functional.cross_entropy(logits[is_target].float(), targets[is_target], reduction="none")
        sums = logits.new_zeros(targets.shape, dtype=torch.float32).masked_scatter(is_target, losses).sum(1)
        return torch.stack([sums, is_target.sum(1)], dim=1)

    def _sentence_losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """−log P of a row's label, whether it has one, and whether it is the most probable; `[B, 3]`."""
        losses = nn.functional.cross_entropy(logits.float(), labels, ignore_index=IGNORED_LABEL, reduction="none")
        return torch.stack([losses, labels != IGNORED_LABEL, logits.argmax(-1) == labels], dim=1)

    # ---- Figures

    def _named(self, means: list[float]) -> dict[str, float]:
        if self.family.is_causal:
            return {"perplexity": perplexity(means[0])}
        return dict(zip((LOSS_NAMES[self.family.objective], "sentence_loss"), means, strict=False))

    def _loss_names(self) -> list[str]:
        return scores_of_evaluation(self.family)

    def _evaluated_losses(self, example_losses: torch.Tensor) -> dict[str, float]:
        sums = example_losses.sum(0).tolist()
        token_loss, num_tokens = sums[:2]
        means = [token_loss / max(num_tokens, 1)]
        accuracy = {}
        if self._num_parts > 1:
            sentence_loss, num_sentences, num_right = sums[2:]
            means.append(sentence_loss / max(num_sentences, 1))
            accuracy["sentence_accuracy"] = num_right / max(num_sentences, 1)
        return {"loss": sum(means), **self._named(means), **accuracy}

    def _logged_figures(self, loss: float) -> dict[str, float]:
        return {} if self.sums_of_parts is None else self._named(self.means_of_parts())

    def _has_known_loss(self) -> bool:
        return type(self).compute_loss is FamilyPretrainingTrainer.compute_loss

    def _flops_per_token(self) -> None:
        return None


def scores_of_evaluation(family: Family) -> list[str]:
    """The figures of an evaluation by which the best checkpoint can be chosen, without `eval_`."""
    if family.is_causal:
        return ["loss", "perplexity"]
    scores = ["loss", LOSS_NAMES[family.objective]]
    if family.has_sentence_loss(family.model_class):  # a class has the signature, too
        scores += ["sentence_loss", "sentence_accuracy"]
    return scores


def trainer_class_of(family: Family) -> type[GPT1PretrainingTrainer]:
    """The trainer that pre-trains the models of a family."""
    return GPT1PretrainingTrainer if family.has_example_losses else FamilyPretrainingTrainer
