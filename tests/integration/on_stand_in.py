"""The tests that `test_accelerator.py` runs in a process of their own: a device cannot be taken from one again.

Each case counts the waits of the host by line, and compares its numbers with those of the CPU.
"""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
import torch
import transformers
from accelerate.utils import send_to_device
from support.accelerator import DeviceTensor, Waits, choose, device, to_device, use_stand_in
from support.finetuning import (
    CASES,
    QUIET,
    Rows,
    make_double_heads_model,
    make_letter_tokenizer,
    make_small_config,
    make_traversal_collator,
    resumes_after,
)
from support.launch import IS_AFTER_5_17, ROOT
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
    loss_gpt1,
)
from modeling_gpt1 import GPT1LSTMDoubleHeadsModel as LSTM
from modeling_gpt1.training import trainer as trainers
from tokenization import BlockCollator, TraversalCollator


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None, causal=False
):
    """Stands in for flash attention's, without reading the lengths on the host."""
    assert causal
    assert isinstance(max_seqlen_q, int)
    places = torch.arange(len(q), device=q.device)
    sequences = (places[:, None] >= cu_seqlens_q).sum(1)
    is_seen = (sequences[:, None] == sequences) & (places[:, None] >= places)
    states = (states.transpose(0, 1) for states in (q, k, v))
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(*states, attn_mask=is_seen, scale=softmax_scale).transpose(0, 1)


trainers.measure_peak_flops = lambda *arguments: 1e12  # takes long
modeling_flash_attention_utils._lazy_imports = lambda *args, **kwargs: (flash_attn_varlen_func,) * 5
use_stand_in()

HERE = Path(__file__).relative_to(ROOT)
TOKENIZER = make_letter_tokenizer()
VOCAB_SIZE = len(TOKENIZER)


def waits_of(operation: Callable[[], object]) -> list[str]:
    with Waits() as waits:
        operation()
    return waits.all


NUMBERS = torch.arange(6.0).to(device())
REPEATS = torch.tensor([1, 2, 3]).to(device())
HOST = torch.ones(3)
SQUARE = NUMBERS.view(2, 3)
WAITING = {
    "item": (lambda: NUMBERS[0].item(), "_local_scalar_dense"),
    "nonzero": (lambda: SQUARE.nonzero(), "nonzero"),
    "mask read": (lambda: SQUARE[SQUARE > 2], "a mask as an index"),
    "mask written": (lambda: SQUARE.clone().__setitem__(SQUARE > 2, NUMBERS[:3]), "a mask as an index"),
    "repeat_interleave": (lambda: REPEATS.repeat_interleave(REPEATS), "repeat_interleave"),
    "cpu": (lambda: NUMBERS.cpu(), "a copy to the host"),
    "copy_": (lambda: torch.ones(3).copy_(REPEATS), "a copy to the host"),
    "to": (lambda: HOST.to(device()), "a copy from the host"),
    "pinned, blocking": (lambda: HOST.pin_memory().to(device()), "a copy from the host"),
    "not pinned": (lambda: HOST.to(device(), non_blocking=True), "a copy from the host"),
    "tensor": (lambda: torch.tensor([1, 2], device=device()), "a copy from the host"),
    "backward": (
        lambda: SQUARE.clone().requires_grad_()[SQUARE > 2].sum().backward(),
        *("a mask as an index", "a mask as an index at a backward pass"),
    ),
}


@pytest.mark.parametrize("name", WAITING)
def test_each_kind_of_wait_is_counted_once_with_its_line(name):
    operation, *kinds = WAITING[name]
    assert [wait.partition(f" at {HERE}:")[0] for wait in waits_of(operation)] == kinds


def test_operations_on_two_devices_are_refused():
    for operation, said in (lambda: torch.cat([HOST, NUMBERS]), "aten.cat"), (lambda: NUMBERS[:3] + HOST, "aten.add"):
        with pytest.raises(RuntimeError, match=f"{said}.* got tensors of standin:0 and one of cpu, of shape .*{HERE}"):
            operation()


def test_the_loss_in_half_precision_multiplies_aligned_matrices(monkeypatch):
    """The head's 101 rows become 128, in chunks of at most 20 of the 50 targets and parts of 13; a CPU has 5."""
    monkeypatch.setattr(loss_gpt1, "CHUNK_BYTES", 5 * 101)
    monkeypatch.setattr(loss_gpt1, "SOFTMAX_ELEMENTS", 11)
    rows = []
    make_buffer = loss_gpt1._logits_buffer
    monkeypatch.setattr(loss_gpt1, "_logits_buffer", lambda *of: (rows.append(len(of[1])), make_buffer(*of))[1])
    hidden, weight = (torch.randn(number, 16, generator=torch.Generator().manual_seed(0)) for number in (50, 101))

    def on(place) -> list[torch.Tensor]:
        sides = [side.bfloat16().to(place).requires_grad_() for side in (hidden, weight)]
        ids = torch.arange(50).to(place)
        weights = torch.linspace(0, 1, 50).to(place)
        loss, _ = loss_gpt1.linear_cross_entropy(*sides, ids, weights)
        loss.backward()
        return [tensor.detach().cpu().float() for tensor in (loss, *(side.grad for side in sides))]

    torch.testing.assert_close(on(device()), on("cpu"), rtol=0.02, atol=0.02)
    assert rows == [128, 101]


# ---- Models and batches


def language_model() -> GPT1ForCausalLM:
    torch.manual_seed(0)
    return GPT1ForCausalLM(make_small_config(VOCAB_SIZE, max_position_embeddings=96))


def language_lstm() -> GPT1LSTMForCausalLM:
    torch.manual_seed(0)
    return GPT1LSTMForCausalLM(GPT1LSTMConfig(vocab_size=VOCAB_SIZE, hidden_size=32, lstm_hidden_size=24))


def gpt2() -> transformers.GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    config = transformers.GPT2Config(vocab_size=VOCAB_SIZE, **sizes, embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0)
    return transformers.GPT2LMHeadModel(config)


def block_rows(*lengths: int) -> list[dict[str, list[int]]]:
    generator = torch.Generator().manual_seed(1)
    return [{"input_ids": torch.randint(1, VOCAB_SIZE, (length,), generator=generator).tolist()} for length in lengths]


def task(traversal: str, model_class: type = GPT1DoubleHeadsModel) -> tuple[torch.nn.Module, TraversalCollator]:
    if model_class is LSTM:
        torch.manual_seed(0)
        dropouts = dict.fromkeys(("embd_pdrop", "resid_pdrop", "classifier_dropout"), 0.0)
        sizes = {"vocab_size": VOCAB_SIZE, "hidden_size": 32, "lstm_hidden_size": 24, "max_position_embeddings": 96}
        model = LSTM(GPT1LSTMConfig(**sizes, **dropouts, **CASES[traversal]))
    else:
        model = make_double_heads_model(traversal, TOKENIZER)
    return model, make_traversal_collator(model, TOKENIZER)


def of_blocks(*lengths: int) -> tuple[Callable, dict]:
    return language_model, BlockCollator(TOKENIZER)(block_rows(*lengths))


def of_task(traversal: str, change: Callable = lambda model: None, model_class: type = GPT1DoubleHeadsModel):
    def make():
        model, _ = task(traversal, model_class)
        change(model)
        return model

    return make, task(traversal)[1](list(Rows(traversal, 8)))


def distance(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    assert all(isinstance(tensor, DeviceTensor) for tensor in found)
    return max((a.cpu() - b).abs().max().item() for a, b in zip(found, expected, strict=True))


STEPS = {  # makers of a model, and a batch with its plan
    "full": of_blocks(24, 24, 24, 24),
    "ragged": of_blocks(24, 9, 17, 3),
    **{traversal: of_task(traversal) for traversal in ("classification", "similarity", "multiple_choice")},
}
WAYS = {
    "padded": of_task("multiple_choice", lambda model: setattr(model, "pack_sequences", False)),
    "eager": of_task("multiple_choice", lambda model: model.set_attn_implementation("eager")),
    "flash": of_task(
        "classification", lambda model: setattr(model.config, "_attn_implementation", "flash_attention_2")
    ),
    "LSTM": of_task("multiple_choice", model_class=LSTM),
}
if not IS_AFTER_5_17:  # which copies a number to the device for the mask of eager attention
    del WAYS["eager"]


def waits_of_step(make: Callable[[], torch.nn.Module], batch: dict) -> list[str]:
    """Of forward and backward on a batch that is on the device, whose numbers are those of the CPU."""

    def step(model: torch.nn.Module, batch: dict) -> list[torch.Tensor]:
        loss = model(**batch).loss
        loss.backward()
        return [loss.detach(), *(weight.grad for weight in model.parameters())]

    expected = step(make().train(), batch)
    found = []
    model = to_device(make()).train()
    batch = send_to_device(batch, device())
    waits = waits_of(lambda: found.extend(step(model, batch)))
    assert distance(found, expected) < 1e-6
    return waits


@pytest.mark.parametrize("name", [*STEPS, *WAYS])
def test_a_training_step_on_a_planned_batch_never_waits(name):
    assert waits_of_step(*(STEPS | WAYS)[name]) == []


@pytest.mark.parametrize(("name", "count"), list(zip(STEPS, (2, 3, 3, 3, 3), strict=True)))
def test_waits_without_a_plan(name, count):
    """The count that comes without a plan: a negative control, and for those who make no plan."""
    make, batch = STEPS[name]
    assert len(waits_of_step(make, {key: value for key, value in batch.items() if key != "plan"})) == count


# ---- Inference


def waits_of_a_token(make: Callable[[], torch.nn.Module], cache: str | None, beams: int = 1) -> dict[str, int]:
    """The waits of one token more; the ids are those of the CPU."""
    prompt = torch.arange(1, 13).view(2, 6)
    settings = {"do_sample": False, "num_beams": beams, "cache_implementation": cache, "pad_token_id": 0}
    settings |= {"eos_token_id": None, "disable_compile": True}

    def ids(model, prompt, new):
        return model.generate(prompt, max_new_tokens=new, min_new_tokens=new, **settings)

    expected = ids(make().eval(), prompt, 4)
    model = to_device(make()).eval()
    lines = {}
    for new in (3, 4):
        with Waits() as waits:
            found = ids(model, prompt.to(device()), new)
        lines[new] = waits.lines()
    assert found.cpu().tolist() == expected.tolist()
    more = {line: count - lines[3].get(line, 0) for line, count in lines[4].items()}
    return {line: count for line, count in more.items() if count}


@pytest.mark.parametrize(
    ("make", "settings"),
    [*((language_model, of) for of in (("dynamic",), ("static",), ("dynamic", 3))), (language_lstm, (None,))],
)
def test_a_token_waits_no_more_often_than_gpt2s(make, settings):
    waits = waits_of_a_token(make, *settings)
    assert sum(waits.values()) <= sum(waits_of_a_token(gpt2, settings[0] or "dynamic", *settings[1:]).values()), waits


def test_a_decoding_step_never_waits():
    """With a static cache."""
    prompt = torch.arange(1, 13).view(2, 6)
    token = torch.tensor([[20], [21]])
    mask = torch.ones(2, 7, dtype=torch.int64)
    logits = {}
    with torch.no_grad():
        for place, model in {"CPU": language_model().eval(), "device": to_device(language_model()).eval()}.items():
            cache = transformers.StaticCache(config=model.config, max_cache_len=16)
            ids, new, real = (tensor.to(model.device) for tensor in (prompt, token, mask))
            model(ids, past_key_values=cache)
            with Waits() as waits:
                logits[place] = model(new, attention_mask=real, past_key_values=cache).logits
    assert waits.all == []
    assert distance([logits["device"]], [logits["CPU"]]) < 1e-6


def test_scores_are_those_of_the_cpu():
    requests = [ScoringRequest([1, 2, 3], [[4, 5], [6]]), ScoringRequest([7], [[8, 9, 10]])]
    found, expected = (
        [score.total for row in CausalLMScorer(model.eval()).score_ids(requests) for score in row]
        for model in (to_device(language_model()), language_model())
    )
    assert len(expected) == 3
    assert found == pytest.approx(expected, abs=1e-5)


# ---- Trainers


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


def train_on_stand_in(kind: str, folder: str, on_cpu: bool = False, resume: bool = False, **arguments) -> dict:
    """Three updates of two micro-batches and an evaluation, on the stand-in or on the CPU."""
    settings = {**QUIET, "output_dir": folder, "max_steps": 3, "learning_rate": 0.5, "max_grad_norm": 0.1}
    settings |= {"per_device_train_batch_size": 2, "per_device_eval_batch_size": 2, "gradient_accumulation_steps": 2}
    settings |= {"logging_steps": 3, "lr_scheduler_type": "constant", "use_cpu": on_cpu}
    settings["optim"] = "sgd"  # AdamW makes much of the least difference between two devices
    settings |= arguments
    choose(not on_cpu)
    counts = CountsUpdates()
    if kind == "pre-training":
        model = language_model()
        collator = BlockCollator(TOKENIZER)
        rows = block_rows(*[24, 20] * 4)
        trainer_class = GPT1PretrainingTrainer
        args = GPT1PretrainingArguments(**settings)
    else:
        traversal = "classification" if kind == "LSTM" else "multiple_choice"
        model, collator = task(traversal, LSTM if kind == "LSTM" else GPT1DoubleHeadsModel)
        trainer_class = GPT1Trainer
        args = GPT1TrainingArguments(**settings)
        rows = list(Rows(traversal, 8))
    if kind == "plain Trainer":
        settings |= {"accelerator_config": {"non_blocking": True}, "remove_unused_columns": False}
        settings["logging_nan_inf_filter"] = False  # which reads every loss
        trainer_class = Trainer
        args = TrainingArguments(**settings)
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


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """Gives the run of a kind, which is made once."""
    return cache(partial(train_on_stand_in, folder=str(tmp_path_factory.mktemp("trainings"))))


@pytest.mark.parametrize("kind", ["pre-training", "fine-tuning", "LSTM", "AdamW", "plain Trainer"])
def test_an_update_never_waits_but_to_log(kind, run_of):
    """From the end of one update to the end of the next: batches, both passes, clipping, optimizer, tokens."""
    run = run_of("pre-training", optim="adamw_torch_fused") if kind == "AdamW" else run_of(kind)
    first, *others = run["waits"]
    assert run["device"] == "standin:0"
    assert len(others) == 2
    assert [waits for waits in others if waits] == []


@pytest.mark.parametrize("kind", ["pre-training", "fine-tuning", "LSTM"])
def test_a_run_gives_the_losses_and_weights_of_the_cpu_and_waits_once_for_its_evaluation(kind, run_of):
    run = run_of(kind)
    on_cpu = run_of(kind, on_cpu=True)
    assert len(run["losses"]) >= 3
    assert run["losses"] == pytest.approx(on_cpu["losses"], abs=1e-6)
    assert run["weights"] == pytest.approx(on_cpu["weights"], abs=1e-5)
    assert run["tokens"] == on_cpu["tokens"] == (260 if kind == "pre-training" else 0)
    waits = run["evaluation"]
    assert all(wait.startswith("a copy to the host") for wait in waits), waits
    assert sum(waits.values()) == 2, waits


def test_a_run_resumes_to_the_bit(run_of, tmp_path):
    saved = {"save_strategy": "steps", "save_steps": 2}
    train_on_stand_in("fine-tuning", str(tmp_path), max_steps=2, **saved)
    resumed = train_on_stand_in("fine-tuning", str(tmp_path), resume=True, **saved)
    assert resumed["device"] == "standin:0"
    assert resumed["weights"] == run_of("fine-tuning")["weights"]
