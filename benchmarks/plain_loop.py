"""GPT1PretrainingTrainer beside a loop in plain PyTorch, as a good engineer writes it, and beside GPT-2 in Trainer.

    python benchmarks/plain_loop.py                      # 117 M parameters, 32 × 512 tokens, bfloat16, compiled: a GPU
    python benchmarks/plain_loop.py --quick --rounds 1   # a tiny model, also on a CPU: a check of the script
    python benchmarks/plain_loop.py --save               # also benchmarks/results/<date>-plain-loop.json

The loop has the paper's model as one compiled module, autocast, fused AdamW, clipping, a cosine and a logged loss. The
trainer runs with its defaults: logs, throughput, checks. Both begin with the same weights, whose losses must agree to
1e-4. transformers' Trainer trains and compiles GPT2LMHeadModel of the same sizes with the same settings. All read the
same blocks. A round trains each anew; the first updates, in which it compiles, are not timed.
"""

import copy
import tempfile
import time

import numpy as np
import torch
from harness import SMALL, check_agreement, comparisons, main, rounds_of
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM, GPT1PretrainingArguments, GPT1PretrainingTrainer
from modeling_gpt1.inference.devices import default_device
from tokenization.batches.plan import plan_blocks

OURS, PEER, GPT2 = "GPT1PretrainingTrainer", "plain loop", "GPT2LMHeadModel in Trainer"
BATCH, WARM_UP, UPDATES = 32, 10, 60  # the timed updates follow the warm-up
LEARNING_RATE = 2.5e-4
TARGETS = {(PEER, "tokens/s"): 0.95, (GPT2, "tokens/s"): 1.25}


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.p = dropout
        self.drop = nn.Dropout(dropout)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "o_proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"up_proj": nn.Linear(width, 4 * width), "down_proj": nn.Linear(4 * width, width)})
        self.ln_1 = nn.LayerNorm(width)
        self.ln_2 = nn.LayerNorm(width)

    def forward(self, x):  # [B, T, D]
        q, k, v = self.attn["qkv"](x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        p = self.p if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p).transpose(1, 2).flatten(2)
        x = self.ln_1(x + self.drop(self.attn["o_proj"](seen)))
        return self.ln_2(x + self.drop(self.mlp["down_proj"](F.gelu(self.mlp["up_proj"](x), approximate="tanh"))))


class PlainGPT1(nn.Module):
    """The paper's language model and its loss, with the weights of ours."""

    def __init__(self, model: GPT1ForCausalLM, dropout: float = 0.1):
        super().__init__()
        config = model.config
        width = model.config.hidden_size
        self.tokens_embed = nn.Embedding(config.vocab_size, width)
        self.positions_embed = nn.Embedding(config.max_position_embeddings, width)
        self.h = nn.Sequential(*(Block(width, config.num_attention_heads, dropout) for _ in model.transformer.h))
        self.drop = nn.Dropout(dropout)
        weights = model.transformer.state_dict()
        for name in [name for name in weights if ".q_proj." in name]:  # the three as one product
            parts = [weights.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
            weights[name.replace("q_proj", "qkv")] = torch.cat(parts)
        self.load_state_dict(weights)

    def forward(self, ids):  # [B, T]
        x = self.h(self.drop(self.tokens_embed(ids) + self.positions_embed.weight[: ids.shape[1]]))
        logits = x[:, :-1] @ self.tokens_embed.weight.T
        return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


def run_loop(model: PlainGPT1, blocks: np.ndarray, batch: int, marks: tuple[int, int], device: torch.device) -> float:
    """Seconds from the first of the two updates to the last."""
    model.to(device).train()
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    vectors = [weight for weight in model.parameters() if weight.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=marks[1])
    compiled = torch.compile(model)
    ids = torch.from_numpy(blocks)
    for update in range(marks[1]):
        if update == marks[0]:
            start = now(device)
        rows = ids[update * batch : (update + 1) * batch].to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16):
            loss = compiled(rows)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if update % 10 == 0:
            print(f"{PEER}: update {update}, loss {loss.item():.3f}", flush=True)
    return now(device) - start


def collate(blocks: list[np.ndarray]) -> dict:
    """What `BlockCollator` makes of whole blocks."""
    ids = torch.from_numpy(np.stack(blocks))
    mask = torch.ones_like(ids)
    return {"input_ids": ids, "attention_mask": mask, "labels": ids, "plan": plan_blocks(mask)}


def collate_plain(blocks: list[np.ndarray]) -> dict:
    ids = torch.from_numpy(np.stack(blocks))
    return {"input_ids": ids, "labels": ids}


def run_trainer(model, blocks: np.ndarray, batch: int, marks: tuple[int, int], device: torch.device) -> float:
    """The same with our trainer, or for GPT-2 with transformers' own."""
    is_own = isinstance(model, GPT1ForCausalLM)
    updates = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": 1, "max_steps": marks[1]}
    settings = {
        "warmup_steps": 0,
        "logging_steps": 10,
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "cosine",
        "bf16": True,
        "torch_compile": True,
        "use_cpu": device.type == "cpu",
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    times = {}
    clock = TrainerCallback()

    def note(args, state, control, **kwargs):
        if state.global_step in marks:
            times[state.global_step] = now(device)

    clock.on_step_end = note
    with tempfile.TemporaryDirectory() as folder:
        arguments = (GPT1PretrainingArguments if is_own else TrainingArguments)(folder, **updates, **settings)
        train = GPT1PretrainingTrainer if is_own else Trainer
        train(model, arguments, collate if is_own else collate_plain, list(blocks), callbacks=[clock]).train()
    return times[marks[1]] - times[marks[0]]


def now(device: torch.device) -> float:
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter()


def compare(rounds: int, quick: bool) -> list[dict]:
    device = default_device()
    if device.type == "cpu" and not quick:
        raise RuntimeError("torch finds no accelerator. --quick checks the script on a CPU.")
    batch, marks = (2, (1, 3)) if quick else (BATCH, (WARM_UP, UPDATES))
    set_seed(0)
    start = GPT1ForCausalLM(GPT1Config(**SMALL, n_positions=32) if quick else GPT1Config())
    names = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"]
    sizes = {name: getattr(start.config, name) for name in names}
    gpt2 = GPT2LMHeadModel(GPT2Config(**sizes, use_cache=False, bos_token_id=0, eos_token_id=0))
    shape = (marks[1] * batch, start.config.max_position_embeddings)
    blocks = np.random.default_rng(0).integers(1, start.config.vocab_size, shape)
    ids = torch.from_numpy(blocks[:2])
    losses = {PEER: PlainGPT1(start).eval()(ids), OURS: start.eval()(input_ids=ids, labels=ids).loss}
    check_agreement({name: {"loss": loss.item()} for name, loss in losses.items()}, PEER)
    num_tokens = (marks[1] - marks[0]) * batch * shape[1]

    def measure(name: str) -> dict[str, float]:
        if name == PEER:
            seconds = run_loop(PlainGPT1(start), blocks, batch, marks, device)
        else:
            model = copy.deepcopy(start if name == OURS else gpt2)
            seconds = run_trainer(model, blocks, batch, marks, device)
        return {"tokens/s": num_tokens / seconds}

    work = f"pre-training {batch} × {shape[1]}, bfloat16, compiled"
    return comparisons(work, rounds_of([OURS, PEER, GPT2], rounds, measure), OURS, TARGETS)


if __name__ == "__main__":
    main(compare)
