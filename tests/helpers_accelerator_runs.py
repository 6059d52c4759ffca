"""Runs on the stand-in accelerator, in a process of its own: `python helpers_accelerator_runs.py out.json`.

For each case the waits of the host by line, and how far its numbers are from those of the CPU.
"""

import json
import sys
from collections.abc import Callable

import torch
import transformers
from conftest import SENTENCES
from helpers_accelerator import DeviceTensor, Waits, device, to_device, use_stand_in

from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM
from tokenization import BlockCollator, GPT1Tokenizer, TraversalCollator, add_control_tokens

SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 96}
NO_DROPOUT = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0, "classifier_dropout": 0.0}
COLUMNS = {
    "classification": {"text": "text"},
    "similarity": {"text_a": "text", "text_b": "other"},
    "multiple_choice": {"context": "text", "choices": "choices"},
}
ROWS = [
    {
        "text": SENTENCES[i % 5],
        "other": SENTENCES[(i + 1) % 5],
        "choices": [SENTENCES[(i + k) % 5] for k in range(2 + i % 2)],
        "label": i % 2,
    }
    for i in range(8)
]


def tokenizer() -> GPT1Tokenizer:
    return GPT1Tokenizer.train(iter(SENTENCES), num_merges=200, show_progress=False)


def language_model(vocab_size: int) -> GPT1ForCausalLM:
    torch.manual_seed(0)
    return GPT1ForCausalLM(GPT1Config(vocab_size=vocab_size, **SHAPE, **NO_DROPOUT))


def gpt2(vocab_size: int) -> transformers.GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    config = transformers.GPT2Config(vocab_size=vocab_size, **sizes, embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0)
    return transformers.GPT2LMHeadModel(config)


def blocks(own: GPT1Tokenizer, lengths: list[int]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    rows = [{"input_ids": torch.randint(1, len(own), (length,), generator=generator).tolist()} for length in lengths]
    return BlockCollator(own)(rows)


def task(traversal: str) -> tuple[GPT1DoubleHeadsModel, TraversalCollator]:
    own = tokenizer()
    torch.manual_seed(0)
    config = GPT1Config(vocab_size=len(own), traversal=traversal, num_labels=2, **SHAPE, **NO_DROPOUT)
    model = GPT1DoubleHeadsModel(config)
    add_control_tokens(own, model)
    return model, TraversalCollator(own, traversal, {**COLUMNS[traversal], "label": "label"}, max_length=96)


def on_device(batch: dict) -> dict:
    return {name: value.to(device()) for name, value in batch.items()}


def training_step(make: Callable[[], torch.nn.Module], batch: dict) -> dict:
    """Waits of forward and backward on a batch that is on the device, and the distance from a step on the CPU."""
    model = make().train()
    loss = model(**batch).loss
    loss.backward()
    expected = [loss.detach(), *(weight.grad for weight in model.parameters())]
    model, batch = to_device(make()).train(), on_device(batch)
    with Waits() as waits:
        loss = model(**batch).loss
        loss.backward()
    found = [loss.detach(), *(weight.grad for weight in model.parameters())]
    return {"waits": waits.lines(), "distance": distance(found, expected)}


def generation(make: Callable[[], torch.nn.Module], cache: str, beams: int = 1) -> dict:
    """Waits of one token more, and whether the ids are those of the CPU."""
    prompt = torch.arange(1, 13).view(2, 6)
    settings = {"do_sample": False, "num_beams": beams, "cache_implementation": cache, "pad_token_id": 0}
    settings["eos_token_id"] = None

    def ids(model, prompt, new):
        return model.generate(prompt, max_new_tokens=new, min_new_tokens=new, disable_compile=True, **settings)

    expected = ids(make().eval(), prompt, 9)
    model, lines = to_device(make()).eval(), {}
    for new in (8, 9):
        with Waits() as waits:
            found = ids(model, prompt.to(device()), new)
        lines[new] = waits.lines()
    more = {line: count - lines[8].get(line, 0) for line, count in lines[9].items()}
    return {
        "waits": {line: count for line, count in more.items() if count},
        "is_equal": found.cpu().tolist() == expected.tolist(),
    }


def distance(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    assert all(isinstance(tensor, DeviceTensor) for tensor in found)
    return max((a.cpu() - b).abs().max().item() for a, b in zip(found, expected, strict=True))


def controls() -> dict[str, list[str]]:
    """What the stand-in counts of each kind of wait, and of what is none."""
    numbers, repeats = torch.arange(6.0).to(device()), torch.tensor([1, 2, 3]).to(device())
    square, host = numbers.view(2, 3), torch.ones(3)
    waiting = {
        "item": lambda: numbers[0].item(),
        "bool": lambda: bool(numbers.any()),
        "int": lambda: int(numbers.max()),
        "if": lambda: 1 if (numbers > 2).all() else 0,
        "nonzero": lambda: square.nonzero(),
        "where": lambda: torch.where(square),
        "mask read": lambda: square[square > 2],
        "mask written": lambda: square.clone().__setitem__(square > 2, numbers[:3]),
        "masked_select": lambda: square.masked_select(square > 2),
        "repeat_interleave": lambda: repeats.repeat_interleave(repeats),
        "bincount": lambda: torch.bincount(repeats),
        "unique": lambda: repeats.unique(),
        "equal": lambda: torch.equal(repeats, repeats),
        "multinomial": lambda: torch.multinomial(numbers, 1),
        "cpu": lambda: numbers.cpu(),
        "copy_": lambda: host.copy_(repeats),
        "tolist": lambda: numbers.tolist(),
        "to": lambda: host.to(device()),
        "tensor": lambda: torch.tensor([1, 2], device=device()),
        "backward": lambda: square.clone().requires_grad_()[square > 2].sum().backward(),
    }
    free = {
        "arithmetic": lambda: (square @ square.T).softmax(-1).sum(),
        "factories": lambda: torch.arange(3, device=device()) + torch.ones_like(repeats),
        "a number of the host": lambda: square * torch.tensor(2.0) + 1,
        "masked_fill": lambda: square.masked_fill(square > 2, 0.0),
        "index_select": lambda: square.index_select(1, repeats - 1)[:, repeats - 1],
        "output_size": lambda: repeats.repeat_interleave(repeats, output_size=6),
        "non_blocking": lambda: host.to(device(), non_blocking=True),
        "on the host": lambda: host[host > 0].sum().item(),
        "on the device": lambda: square.to(torch.float64).to(device()),
    }
    counted = {}
    for name, operation in {**waiting, **free}.items():
        with Waits() as waits:
            operation()
        counted[name] = waits.all
    return {"waiting": {name: counted[name] for name in waiting}, "free": {name: counted[name] for name in free}}


def mixed_devices() -> dict[str, str]:
    """What an operation on two devices raises."""
    numbers, host = torch.arange(3.0).to(device()), torch.ones(3)
    raised = {}
    for name, operation in {
        "+": lambda: numbers + host,
        "index": lambda: numbers[torch.tensor([0, 1])],
        "add_": lambda: host.add_(numbers),
        "cat": lambda: torch.cat([host, numbers]),
    }.items():
        try:
            operation()
        except RuntimeError as error:
            raised[name] = str(error)
    return raised


def run() -> dict[str, dict]:
    own = tokenizer()
    vocab_size, results = len(own), {"controls": controls(), "mixed devices": mixed_devices()}
    for name, lengths in {"full": [24] * 4, "ragged": [24, 9, 17, 3]}.items():
        batch = blocks(own, lengths)
        results[f"pre-training, {name}"] = training_step(lambda: language_model(vocab_size), batch)
        results[f"GPT-2, {name}"] = training_step(lambda: gpt2(vocab_size), batch)
    for traversal in COLUMNS:
        collator = task(traversal)[1]
        results[f"fine-tuning, {traversal}"] = training_step(lambda name=traversal: task(name)[0], collator(ROWS))
    for cache in ("dynamic", "static"):
        results[f"generate, {cache}"] = generation(lambda: language_model(vocab_size), cache)
        results[f"GPT-2 generate, {cache}"] = generation(lambda: gpt2(vocab_size), cache)
    return results


if __name__ == "__main__":
    use_stand_in()
    results = run()
    with open(sys.argv[1], "w") as file:
        json.dump(results, file, indent=1)
