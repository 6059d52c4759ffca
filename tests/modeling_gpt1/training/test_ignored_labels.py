"""Labels of -100 under every trainer: training and evaluation equal the model's own loss on all rows at once."""

import pytest
import torch
from support.finetuning import settings_of
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForSequenceClassification, GPT1Trainer, GPT1TrainingArguments

NUM_ROWS = 8
KINDS = {"classes": {"num_labels": 3}, "several": {"num_labels": 3, "problem_type": "multi_label_classification"}}
# Trainer, its arguments and the model's class.
WAYS = {
    "double heads": (GPT1Trainer, GPT1TrainingArguments, GPT1DoubleHeadsModel),
    "task head": (GPT1Trainer, GPT1TrainingArguments, GPT1ForSequenceClassification),
    "plain, double heads": (Trainer, TrainingArguments, GPT1DoubleHeadsModel),
    "plain, task head": (Trainer, TrainingArguments, GPT1ForSequenceClassification),
    "bert": (GPT1Trainer, GPT1TrainingArguments, BertForSequenceClassification),
}


def make_model_of_kind(tiny_model, model_class: type, kind: str) -> nn.Module:
    if model_class is not BertForSequenceClassification:
        return tiny_model(model_class, **KINDS[kind], traversal="classification", extract_token_id=99)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertForSequenceClassification(BertConfig(vocab_size=101, **sizes, **without_dropout, **KINDS[kind])).eval()


def make_rows(kind: str, num_ignored: int) -> list[dict]:
    """Rows of which some lack their label, or some of their labels for several classes."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 98, (NUM_ROWS, 10), generator=generator)
    ids[:, -1] = 99
    if kind == "classes":
        labels = torch.randint(3, (NUM_ROWS,), generator=generator)
    else:
        labels = torch.randint(2, (NUM_ROWS, 3), generator=generator).float()
        labels[3, 1] = -100 if num_ignored else 0
    labels[NUM_ROWS - num_ignored :] = -100
    return [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    batch = {name: torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels")}
    return {**batch, "attention_mask": torch.ones_like(batch["input_ids"])}


def own_loss(model: nn.Module, rows: list[dict]) -> torch.Tensor:
    """The mean over all labels of −log P(label); with the LM head, λ times that of the rows' L1, a row per label."""
    batch = collate(rows)
    labels = batch.pop("labels")
    outputs = model(**batch, output_lm_logits=True) if hasattr(model, "lm_head") else model(**batch)
    scores = outputs.get("task_logits", outputs.get("logits"))
    if labels.dim() == 1:
        losses = nn.functional.cross_entropy(scores, labels, reduction="none")[:, None]
    else:
        losses = -nn.functional.logsigmoid((2 * labels.clamp(min=0) - 1) * scores)
    if hasattr(model, "lm_head"):
        targets = batch["input_ids"][:, 1:]
        of_tokens = nn.functional.cross_entropy(outputs.lm_logits[:, 0, :-1].mT, targets, reduction="none")
        losses = losses + model.config.lm_coef * of_tokens.mean(1, keepdim=True)
    return losses[labels.view(losses.shape) != -100].mean()


@pytest.mark.parametrize("kind, num_ignored", [(kind, number) for kind in KINDS for number in (0, 3)])
@pytest.mark.parametrize("way", WAYS)
def test_training_and_evaluation_have_the_models_own_loss(way, kind, num_ignored, tiny_model, tmp_path):
    trainer_class, arguments_class, model_class = WAYS[way]
    rows = make_rows(kind, num_ignored)
    model = make_model_of_kind(tiny_model, model_class, kind)
    expected = own_loss(model, rows)
    expected.backward()
    norm = nn.utils.get_total_norm([weight.grad for weight in model.parameters() if weight.grad is not None])
    for batch_size, accumulation in ((8, 1), (2, 4)):
        settings = {"per_device_eval_batch_size": batch_size, "max_steps": 1}
        arguments = arguments_class(**settings_of(tmp_path, batch_size, accumulation, **settings))
        trainer = trainer_class(
            make_model_of_kind(tiny_model, model_class, kind), arguments, train_dataset=rows, data_collator=collate
        )
        if trainer_class is not Trainer or num_ignored == 0:  # Trainer's evaluation weighs all batches of a size alike
            assert trainer.evaluate(rows)["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)
        trainer.train()
        (log,) = [record for record in trainer.state.log_history if "loss" in record]
        assert log["loss"] == pytest.approx(expected.item(), rel=1e-4)
        assert log["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
