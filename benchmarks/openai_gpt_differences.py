"""Differences for a user of transformers' OpenAIGPT classes, measured on both sides in one run.

    python benchmarks/openai_gpt_differences.py         # seconds
    python benchmarks/openai_gpt_differences.py --save  # also results/<date>-openai-gpt-differences.json

Behaviour of tiny models with one set of random weights. Speed and memory: finetuning.py and generation.py; tokens:
tokenizer_parity.py.
"""

import argparse
import tempfile

import torch
import transformers
from harness import machine, save_result
from torch.nn.utils.rnn import pad_sequence
from transformers import OpenAIGPTConfig, OpenAIGPTDoubleHeadsModel, OpenAIGPTLMHeadModel, Trainer, TrainingArguments

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM

TINY = {"vocab_size": 200, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "num_labels": 1}
NO_DROPOUT = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0, "summary_first_dropout": 0.0}


def open_both(peer_class, our_class, **config):
    """The same random weights in transformers' class and in ours."""
    torch.manual_seed(0)
    peer = peer_class(OpenAIGPTConfig(**config)).eval()
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        return peer, our_class.from_pretrained(folder).eval()


def make_rows(num_rows: int = 8) -> list[dict]:
    """Multiple-choice rows of two sequences, from 4 to 40 tokens long."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(4, 41, (num_rows,), generator=generator).tolist()
    return [
        {"ids": torch.randint(1, 200, (2, length), generator=generator), "answer": index % 2}
        for index, length in enumerate(lengths)
    ]


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    ids = pad_sequence([row["ids"].T for row in rows], batch_first=True).transpose(1, 2).contiguous()  # [B, 2, T]
    last = torch.tensor([[row["ids"].shape[1] - 1] * 2 for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "mc_token_ids": last}


def collate_ours(rows: list[dict]) -> dict[str, torch.Tensor]:
    return {**collate(rows), "labels": torch.tensor([row["answer"] for row in rows])}


def collate_peer(rows: list[dict]) -> dict[str, torch.Tensor]:
    batch = collate(rows)
    ids = batch["input_ids"]
    mask = batch.pop("attention_mask")  # the peer cannot read [B, C, T] masks
    labels = ids.masked_fill(mask == 0, -100)
    return {**batch, "labels": labels, "mc_labels": torch.tensor([row["answer"] for row in rows])}


def train_once(model, collator, batch_size: int, folder: str) -> dict[str, float]:
    """Loss and gradient norm of one update of 8 rows, and the largest gradient of the task head."""
    head = getattr(model, "task_head", None) or model.multiple_choice_head
    largest = []
    hooks = [p.register_hook(lambda grad: largest.append(grad.abs().max().item())) for p in head.parameters()]
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=8 // batch_size,
        max_steps=1,
        logging_steps=1,
        learning_rate=0.0,
        save_strategy="no",
        remove_unused_columns=False,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
    )
    trainer = Trainer(model, arguments, data_collator=collator, train_dataset=make_rows())
    trainer.train()
    for hook in hooks:
        hook.remove()
    record = trainer.state.log_history[0]
    return {"loss": record["loss"], "grad_norm": record["grad_norm"], "head_gradient": max(largest, default=0.0)}


def measure_training() -> dict[str, dict[str, float]]:
    """With a plain Trainer: does the task head learn, and does the update depend on how 8 rows are batched?"""
    results = {}
    peer, ours = open_both(OpenAIGPTDoubleHeadsModel, GPT1DoubleHeadsModel, **TINY, **NO_DROPOUT)
    with tempfile.TemporaryDirectory() as folder:
        for name, model, collator in (("built-in", peer, collate_peer), ("gpt1", ours, collate_ours)):
            whole, cut = (train_once(model, collator, batch_size, folder) for batch_size in (8, 1))
            results[name] = {
                "largest gradient of the task head": whole["head_gradient"],
                "loss, 8 × 1 accumulated over 1 × 8": cut["loss"] / whole["loss"],
                "gradient norm, 8 × 1 accumulated over 1 × 8": cut["grad_norm"] / whole["grad_norm"],
            }
    return results


@torch.no_grad()
def change_by_left_padding(model) -> float:
    """Largest change of the last token's logits when 10 padding tokens precede a row of 20 tokens."""
    ids = torch.arange(1, 21)[None]
    padded = torch.nn.functional.pad(ids, (10, 0))
    beside = model(padded, attention_mask=(padded != 0).long()).logits[:, -1]
    return (model(ids).logits[:, -1] - beside).abs().max().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    results = measure_training()
    models = open_both(OpenAIGPTLMHeadModel, GPT1ForCausalLM, initializer_range=0.2, **TINY)
    for measured, model in zip(results.values(), models, strict=True):
        measured["largest logit change by left padding"] = change_by_left_padding(model)
    print(f"\n{'measured':55}{'OpenAIGPT':>12}{'gpt1':>12}{'ratio':>9}")
    for measure, theirs in results["built-in"].items():
        mine = results["gpt1"][measure]
        ratio = f"{mine / theirs:9.2f}" if theirs else f"{'-':>9}"
        print(f"{measure:55}{theirs:12.4g}{mine:12.4g}{ratio}")
    if options.save:
        save_result("openai-gpt-differences", machine(torch.get_num_threads()), results)


if __name__ == "__main__":
    main()
