"""torch's DataParallel: a batch cut over replicas of a model, in a plain Trainer or a loop of one's own.

Here the replicas lie on the CPU. `scatter` and `gather` are torch's own, but for the copies between devices.
"""

import pytest
import torch
from helpers_training import CASES, Rows, make_collator, make_model, make_tokenizer
from torch import nn
from torch.nn.parallel import scatter_gather

from modeling_gpt1 import GPT1ForCausalLM, GPT1Trainer, GPT1TrainingArguments
from tokenization import BlockCollator


class DataParallelOnCPU(nn.Module):
    """As [`torch.nn.DataParallel`], with `num_replicas` of the module one after the other."""

    num_replicas = 5

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, **inputs):
        _, parts = scatter_gather.scatter_kwargs((), inputs, range(self.num_replicas))
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


def test_our_trainers_use_one_device(tmp_path, caplog):
    arguments = GPT1TrainingArguments(str(tmp_path), use_cpu=True)
    arguments._n_gpu = 5
    model = make_model("classification", make_tokenizer())
    assert GPT1Trainer(model, arguments).args.n_gpu == 1
    assert "Only the first of 5 devices is used. Start the script with `accelerate launch`" in caplog.text


@pytest.mark.parametrize("kind", ["multiple_choice", "regression", "pre-training"])
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
