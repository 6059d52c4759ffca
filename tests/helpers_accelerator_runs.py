"""Runs on the stand-in accelerator, in a process of its own: `python helpers_accelerator_runs.py out.json`.

For each case the waits of the host by line, and how far its numbers are from those of the CPU.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial

import torch
import transformers
from accelerate.utils import send_to_device
from helpers_accelerator import DeviceTensor, Waits, choose, device, to_device, use_stand_in
from helpers_training import CASES, Rows, make_collator, make_config, make_model, make_tokenizer, resumes_after
from transformers import Trainer, TrainerCallback, TrainingArguments, modeling_flash_attention_utils

from modeling_gpt1 import (
    CausalLMScorer,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1LSTMConfig,
    GPT1LSTMForCausalLM,
    GPT1PretrainingArguments,
    GPT1PretrainingTrainer,
    GPT1Trainer,
    GPT1TrainingArguments,
    ScoringRequest,
)
from modeling_gpt1 import GPT1LSTMDoubleHeadsModel as LSTM
from modeling_gpt1.training import trainer as trainers
from tokenization import BlockCollator, GPT1Tokenizer, TraversalCollator


def language_model(vocab_size: int) -> GPT1ForCausalLM:
    torch.manual_seed(0)
    return GPT1ForCausalLM(make_config(vocab_size, max_position_embeddings=96))


def language_lstm(vocab_size: int) -> GPT1LSTMForCausalLM:
    torch.manual_seed(0)
    return GPT1LSTMForCausalLM(GPT1LSTMConfig(vocab_size=vocab_size, hidden_size=32, lstm_hidden_size=24))


def gpt2(vocab_size: int) -> transformers.GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    config = transformers.GPT2Config(vocab_size=vocab_size, **sizes, embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0)
    return transformers.GPT2LMHeadModel(config)


def block_rows(own: GPT1Tokenizer, lengths: list[int]) -> list[dict[str, list[int]]]:
    generator = torch.Generator().manual_seed(1)
    return [{"input_ids": torch.randint(1, len(own), (length,), generator=generator).tolist()} for length in lengths]


def blocks(own: GPT1Tokenizer, lengths: list[int]) -> dict[str, torch.Tensor]:
    return BlockCollator(own)(block_rows(own, lengths))


def task(traversal: str, model_class: type = GPT1DoubleHeadsModel) -> tuple[torch.nn.Module, TraversalCollator]:
    own = make_tokenizer()
    if model_class is LSTM:
        torch.manual_seed(0)
        dropouts = dict.fromkeys(("embd_pdrop", "resid_pdrop", "classifier_dropout"), 0.0)
        sizes = {"vocab_size": len(own), "hidden_size": 32, "lstm_hidden_size": 24, "max_position_embeddings": 96}
        model = LSTM(GPT1LSTMConfig(**sizes, **dropouts, **CASES[traversal]))
    else:
        model = make_model(traversal, own)
    return model, make_collator(model, own)


def task_model(traversal: str, model_class: type = GPT1DoubleHeadsModel) -> torch.nn.Module:
    return task(traversal, model_class)[0]


def unpacked(make: Callable[[], GPT1DoubleHeadsModel]) -> GPT1DoubleHeadsModel:
    model = make()
    model.pack_sequences = False
    return model


def eager(make: Callable[[], GPT1DoubleHeadsModel]) -> GPT1DoubleHeadsModel:
    model = make()
    model.set_attn_implementation("eager")
    return model


def attending(implementation: str, make: Callable[[], GPT1DoubleHeadsModel]) -> GPT1DoubleHeadsModel:
    model = make()
    model.config._attn_implementation = implementation
    return model


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None, causal=False
):
    """Stands in for flash attention's, without reading the lengths on the host."""
    assert causal and isinstance(max_seqlen_q, int)
    places = torch.arange(len(q), device=q.device)
    sequences = (places[:, None] >= cu_seqlens_q).sum(1)
    is_seen = (sequences[:, None] == sequences) & (places[:, None] >= places)
    states = (states.transpose(0, 1) for states in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(*states, attn_mask=is_seen, scale=softmax_scale).transpose(
        0, 1
    )


def training_step(make: Callable[[], torch.nn.Module], batch: dict, planned: bool = False) -> dict:
    """Waits of forward and backward on a batch that is on the device, and the distance from a step on the CPU."""
    model = make().train()
    batch = batch if planned else {name: value for name, value in batch.items() if name != "plan"}
    loss = model(**batch).loss
    loss.backward()
    expected = [loss.detach(), *(weight.grad for weight in model.parameters())]
    model, batch = to_device(make()).train(), send_to_device(batch, device())
    with Waits() as waits:
        loss = model(**batch).loss
        loss.backward()
    found = [loss.detach(), *(weight.grad for weight in model.parameters())]
    return {"waits": waits.lines(), "distance": distance(found, expected)}


def generation(make: Callable[[], torch.nn.Module], cache: str | None, beams: int = 1) -> dict:
    """Waits of one token more, and whether the ids are those of the CPU."""
    prompt = torch.arange(1, 13).view(2, 6)
    settings = {"do_sample": False, "num_beams": beams, "cache_implementation": cache, "pad_token_id": 0}
    settings["eos_token_id"] = None

    def ids(model, prompt, new):
        return model.generate(prompt, max_new_tokens=new, min_new_tokens=new, disable_compile=True, **settings)

    expected = ids(make().eval(), prompt, 4)
    model, lines = to_device(make()).eval(), {}
    for new in (3, 4):
        with Waits() as waits:
            found = ids(model, prompt.to(device()), new)
        lines[new] = waits.lines()
    more = {line: count - lines[3].get(line, 0) for line, count in lines[4].items()}
    return {
        "waits": {line: count for line, count in more.items() if count},
        "is_equal": found.cpu().tolist() == expected.tolist(),
    }


def decoding_step(make: Callable[[], torch.nn.Module]) -> dict:
    """Waits of one token with a static cache, and the distance of its logits from those of the CPU."""
    prompt, token, mask = (
        torch.arange(1, 13).view(2, 6),
        torch.tensor([[20], [21]]),
        torch.ones(2, 7, dtype=torch.int64),
    )
    logits = {}
    with torch.no_grad():
        for place, model in {"CPU": make().eval(), "device": to_device(make()).eval()}.items():
            cache = transformers.StaticCache(config=model.config, max_cache_len=16)
            ids, new, real = (tensor.to(model.device) for tensor in (prompt, token, mask))
            model(ids, past_key_values=cache)
            with Waits() as waits:
                logits[place] = model(new, attention_mask=real, past_key_values=cache).logits
    return {"waits": waits.lines(), "distance": distance([logits["device"]], [logits["CPU"]])}


def scores(make: Callable[[], torch.nn.Module]) -> dict[str, list[float]]:
    """Log-probabilities of continuations, on the stand-in and on the CPU."""
    requests = [ScoringRequest([1, 2, 3], [[4, 5], [6]]), ScoringRequest([7], [[8, 9, 10]])]
    return {
        name: [score.total for row in CausalLMScorer(model.eval()).score_ids(requests) for score in row]
        for name, model in {"device": to_device(make()), "CPU": make()}.items()
    }


class CountsUpdates(TrainerCallback):
    """The waits of each update, from the end of the one before it: its batches, the optimizer, what is logged."""

    def __init__(self):
        self.waits, self.of_updates = Waits(), []

    def on_train_begin(self, args, state, control, **kwargs):
        self.waits.__enter__()

    def on_step_end(self, args, state, control, **kwargs):
        self.of_updates.append(self.waits.lines())
        self.waits.all.clear()

    def on_train_end(self, args, state, control, **kwargs):
        self.waits.__exit__()


def train(kind: str, folder: str, on_cpu: bool = False, resume: bool = False, **arguments) -> dict:
    """Three updates of two micro-batches and an evaluation, on the stand-in or on the CPU."""
    settings = {
        "output_dir": folder,
        "max_steps": 3,
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 0.5,
        "warmup_steps": 0,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.1,
        "optim": "sgd",  # AdamW makes much of the least difference between two devices
        "logging_steps": 3,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": on_cpu,
        **arguments,
    }
    choose(not on_cpu)
    counts = CountsUpdates()
    if kind == "pre-training":
        own = make_tokenizer()
        model, collator, rows = language_model(len(own)), BlockCollator(own), block_rows(own, [24, 20] * 4)
        trainer_class, args = GPT1PretrainingTrainer, GPT1PretrainingArguments(**settings)
    else:
        traversal = "classification" if kind == "LSTM" else "multiple_choice"
        model, collator = task(traversal, LSTM if kind == "LSTM" else GPT1DoubleHeadsModel)
        trainer_class, args = GPT1Trainer, GPT1TrainingArguments(**settings)
        rows = list(Rows(traversal, 8))
    if kind == "plain Trainer":
        settings |= {"accelerator_config": {"non_blocking": True}, "remove_unused_columns": False}
        settings["logging_nan_inf_filter"] = False  # which reads every loss
        trainer_class, args = Trainer, TrainingArguments(**settings)
    data = {"data_collator": collator, "train_dataset": rows, "eval_dataset": rows[:3]}
    trainer = trainer_class(model if on_cpu else to_device(model), args, **data, callbacks=[counts])
    with resumes_after(2 if resume else 0):
        trainer.train(resume_from_checkpoint="auto" if resume else None)
    with Waits() as waits:
        evaluation = trainer.evaluate()
    records = [*trainer.state.log_history, evaluation]
    return {
        "device": str(trainer.model.device),
        "waits": counts.of_updates,
        "evaluation": waits.lines(),
        "losses": [record[name] for record in records for name in sorted(record) if "loss" in name],
        "weights": torch.cat([weight.detach().cpu().flatten() for weight in trainer.model.parameters()]).tolist(),
        "tokens": trainer.state.num_input_tokens_seen,
    }


def trainings() -> dict[str, dict]:
    results = {}
    saved = {"save_strategy": "steps", "save_steps": 2}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("pre-training", "fine-tuning", "LSTM", "plain Trainer"):
            results[kind] = train(kind, folder)
            if kind != "plain Trainer":
                results[f"{kind}, CPU"] = train(kind, folder, on_cpu=True)
        train("fine-tuning", f"{folder}/cut", max_steps=2, **saved)
        results["fine-tuning, resumed"] = train("fine-tuning", f"{folder}/cut", resume=True, **saved)
        results["AdamW"] = train("pre-training", folder, optim="adamw_torch_fused")
    return results


def distance(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    assert all(isinstance(tensor, DeviceTensor) for tensor in found)
    return max((a.cpu() - b).abs().max().item() for a, b in zip(found, expected, strict=True))


def controls() -> dict[str, list[str]]:
    """What the stand-in counts of each kind of wait, and of what is none."""
    numbers, repeats = torch.arange(6.0).to(device()), torch.tensor([1, 2, 3]).to(device())
    square, host = numbers.view(2, 3), torch.ones(3)
    waiting = {
        "item": lambda: numbers[0].item(),
        "nonzero": lambda: square.nonzero(),
        "mask read": lambda: square[square > 2],
        "mask written": lambda: square.clone().__setitem__(square > 2, numbers[:3]),
        "repeat_interleave": lambda: repeats.repeat_interleave(repeats),
        "cpu": lambda: numbers.cpu(),
        "copy_": lambda: host.copy_(repeats),
        "to": lambda: host.to(device()),
        "pinned, blocking": lambda: host.pin_memory().to(device()),
        "not pinned": lambda: host.to(device(), non_blocking=True),
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
        "pinned": lambda: host.pin_memory().to(device(), non_blocking=True),
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
        "cat": lambda: torch.cat([host, numbers]),
    }.items():
        try:
            operation()
        except RuntimeError as error:
            raised[name] = str(error)
    return raised


def run() -> dict[str, dict]:
    own = make_tokenizer()
    vocab_size, results = len(own), {"controls": controls(), "mixed devices": mixed_devices()}
    for name, lengths in {"full": [24] * 4, "ragged": [24, 9, 17, 3]}.items():
        batch = blocks(own, lengths)
        results[f"pre-training, {name}"] = training_step(partial(language_model, vocab_size), batch, planned=True)
        results[f"without a plan, {name}"] = training_step(partial(language_model, vocab_size), batch)
    for traversal in ("classification", "similarity", "multiple_choice"):
        make, batch = partial(task_model, traversal), task(traversal)[1](list(Rows(traversal, 8)))
        results[f"fine-tuning, {traversal}"] = training_step(make, batch, planned=True)
        results[f"without a plan, {traversal}"] = training_step(make, batch)
    make = partial(task_model, "multiple_choice")
    batch = task("multiple_choice")[1](list(Rows("multiple_choice", 8)))
    results["fine-tuning, padded"] = training_step(partial(unpacked, make), batch, planned=True)
    results["fine-tuning, eager"] = training_step(partial(eager, make), batch, planned=True)
    flash = partial(attending, "flash_attention_2", partial(task_model, "classification"))
    texts = task("classification")[1](list(Rows("classification", 8)))
    results["fine-tuning, flash"] = training_step(flash, texts, planned=True)
    results["fine-tuning, LSTM"] = training_step(partial(task_model, "multiple_choice", LSTM), batch, planned=True)
    make, peer, lstm = (partial(model, vocab_size) for model in (language_model, gpt2, language_lstm))
    for name, settings in {"dynamic": ("dynamic",), "static": ("static",), "beams": ("dynamic", 3)}.items():
        results[f"generate, {name}"] = generation(make, *settings)
        results[f"GPT-2 generate, {name}"] = generation(peer, *settings)
    results["decoding step"] = decoding_step(make)
    results["generate, LSTM"] = generation(lstm, None)
    results["scores"] = scores(make)
    results["trainings"] = trainings()
    return results


if __name__ == "__main__":
    trainers.measure_peak_flops = lambda *arguments: 1e12  # takes long
    modeling_flash_attention_utils._lazy_imports = lambda *args, **kwargs: (flash_attn_varlen_func,) * 5
    use_stand_in()
    results = run()
    with open(sys.argv[1], "w") as file:
        json.dump(results, file, indent=1)
