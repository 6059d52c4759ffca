"""torch's DataParallel, which Trainer takes where one process sees several GPUs: a batch cut over replicas of a model.

Here the replicas lie on the CPU. `scatter` and `gather` are torch's own, but for the copies between devices.
"""

import pytest
import torch
from helpers_training import CASES, Rows, make_collator, make_model, make_tokenizer, make_trainer
from torch import nn
from torch.nn.parallel import scatter_gather
from transformers import TrainingArguments

from modeling_gpt1 import GPT1ForCausalLM, GPT1PretrainingArguments, GPT1PretrainingTrainer
from tokenization import BlockCollator


class DataParallelOnCPU(nn.Module):
    """As [`torch.nn.DataParallel`], with `num_replicas` of the module one after the other."""

    num_replicas = 5

    def __init__(self, module):
        super().__init__()
        self.module, self.num_parts = module, []

    def forward(self, **inputs):
        _, parts = scatter_gather.scatter_kwargs((), inputs, range(self.num_replicas))
        self.num_parts.append(len(parts))
        return scatter_gather.gather([replicate(self.module)(**part) for part in parts], "cpu")


def replicate(module):
    """A copy without parameters, whose weights pass gradients on."""
    copies = {part: part._replicate_for_data_parallel() for part in module.modules()}
    for part, copy in copies.items():
        for name, child in part._modules.items():
            setattr(copy, name, copies[child])
        for name, parameter in part._parameters.items():
            setattr(copy, name, None if parameter is None else parameter.view_as(parameter))
    return copies[module]


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    def gather(device, dim, *tensors):
        return torch.stack(tensors) if tensors[0].dim() == 0 else torch.cat(tensors, dim)

    def scatter(devices, sizes, dim, tensor):
        return tensor.chunk(len(devices), dim)

    monkeypatch.setattr(scatter_gather.Gather, "apply", gather)
    monkeypatch.setattr(scatter_gather.Scatter, "apply", scatter)


def make_pretraining(folder, batch_size):
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    model = GPT1ForCausalLM(make_model("classification", tokenizer).config)
    settings = {"max_steps": 4, "optim": "sgd", "learning_rate": 0.05, "warmup_steps": 0, "logging_steps": 1}
    settings |= {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    rows = [{"input_ids": list(range(1, 9 + index % 5))} for index in range(24)]
    args = GPT1PretrainingArguments(str(folder), per_device_train_batch_size=batch_size, **settings)
    return GPT1PretrainingTrainer(
        model, args, data_collator=BlockCollator(tokenizer), train_dataset=rows, eval_dataset=rows[:11]
    )


def record_of(trainer):
    trainer.train()
    keys = ("loss", "task_loss", "lm_loss", "grad_norm")
    log = [[record[key] for key in keys if key in record] for record in trainer.state.log_history if "loss" in record]
    losses = {name: value for name, value in trainer.evaluate().items() if name.endswith("loss")}
    return log, losses, trainer.model.state_dict()


@pytest.mark.parametrize("kind", ["multiple_choice", "regression", "pre-training"])
def test_the_replicas_of_a_trainer_train_together(kind, tmp_path, monkeypatch):
    """The last batch of a pass has four rows for five replicas."""

    def make(batch_size):
        return (
            make_pretraining(tmp_path, batch_size)
            if kind == "pre-training"
            else make_trainer(kind, tmp_path, batch_size, 1, max_steps=4)
        )

    expected = record_of(make(10))
    monkeypatch.setattr(TrainingArguments, "n_gpu", property(lambda args: DataParallelOnCPU.num_replicas))
    monkeypatch.setattr(nn, "DataParallel", DataParallelOnCPU)
    trainer = make(2)
    found = record_of(trainer)
    assert trainer.model_wrapped.num_parts[:4] == [5, 5, 4, 5]
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[1:], expected[1:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [*CASES, "pre-training"])
def test_no_part_of_a_batch_follows_the_plan_of_the_whole(kind):
    """In a loop of one's own, where the plan was made before the batch is cut."""
    tokenizer = make_tokenizer()
    model = make_model("classification" if kind == "pre-training" else kind, tokenizer)
    rows, collator = list(Rows(kind, 6)) if kind in CASES else None, make_collator(model, tokenizer)
    if kind == "pre-training":
        model, collator = GPT1ForCausalLM(model.config), BlockCollator(tokenizer)
        rows = [{"input_ids": list(range(1, 9 + index % 5))} for index in range(6)]
    batch = collator(rows)
    num_items = (batch["labels"][:, 1:] if kind == "pre-training" else batch["labels"]).ne(-100).sum()
    expected = model(**batch, num_items_in_batch=num_items).loss
    losses = DataParallelOnCPU(model)(**batch, num_items_in_batch=num_items.expand(5)).loss
    assert len(losses) == 3  # two rows each
    torch.testing.assert_close(losses.sum(), expected, atol=1e-6, rtol=1e-6)
    batch["plan"].target_sources += 1  # nobody reads it
    again = DataParallelOnCPU(model)(**batch, num_items_in_batch=num_items.expand(5)).loss
    torch.testing.assert_close(again, losses, atol=0, rtol=0)
    assert abs(model(**batch, num_items_in_batch=num_items).loss - expected) > 0.1
