"""Loss curves of pre-training and fine-tuning in bfloat16 beside float32, and the effect of bfloat16 on inference.

    python benchmarks/precision.py                       # text of the project's own making; minutes on one core
    python benchmarks/precision.py --text book.txt       # pre-train on text of your own
    python benchmarks/precision.py --updates 60          # a quick look
    python benchmarks/precision.py --save                # also results/<date>-precision.json and its picture

Every run has the same seeds, so weights, rows and dropout begin alike. In bfloat16 the arithmetic runs under autocast
(`bf16=True`), while weights, sums and losses stay float32. Fine-tuning starts from the float32 pre-training of the
same call, reads two-choice stories of this project's small world and trains both heads. The script prints

- the largest and the mean difference between the loss curves, each smoothed over `SMOOTHED` updates, because single
  updates differ by the rounding of a few tokens;
- the losses of a held-out set;
- how the predictions of the model fine-tuned in float32 change with weights rounded to bfloat16
  (`dtype=torch.bfloat16`) and under autocast.

For comparison, a float32 run with another seed shows how much curves differ for other reasons.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from harness import machine, save_result
from matplotlib.figure import Figure
from transformers import default_data_collator, set_seed
from transformers.trainer_callback import PrinterCallback

from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1PretrainingArguments,
    GPT1PretrainingTrainer,
    GPT1Trainer,
    GPT1TrainingArguments,
)
from tokenization import GPT1Tokenizer, TraversalCollator
from tokenization.blocks import pack_documents

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))
from small_world import labelled, stories

BLOCK_LENGTH = 64
SMOOTHED = 20
# Name of a curve: precision and seed.
RUNS = {"float32": (False, 0), "bfloat16": (True, 0), "float32, another seed": (False, 1)}
COLUMNS = {"context": "context", "choices": "choices", "label": "label"}


def settings(args: argparse.Namespace, is_bf16: bool, seed: int) -> dict:
    return {
        "max_steps": args.updates,
        "bf16": is_bf16,
        "seed": seed,
        "per_device_train_batch_size": 16,
        "per_device_eval_batch_size": 64,
        "warmup_steps": 0.05,
        "adam_beta2": 0.98,
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": "none",
    }


def make_config(args: argparse.Namespace, vocab_size: int) -> GPT1Config:
    return GPT1Config(
        vocab_size=vocab_size,
        hidden_size=args.hidden_size,
        num_hidden_layers=args.layers,
        num_attention_heads=4,
        max_position_embeddings=BLOCK_LENGTH,
        initializer_range=0.02 * (768 / args.hidden_size) ** 0.5,
    )


def read_texts(args: argparse.Namespace) -> list[str]:
    if args.text is None:
        return stories(args.stories)
    return [line for line in args.text.read_text(encoding="utf-8").splitlines() if line.strip()]


def pretrain(args, tokenizer, blocks: list[list[int]], is_bf16: bool, seed: int, folder: str) -> dict:
    """Pre-trains and saves the model to `folder`. Returns the loss curve and the held-out losses."""
    rows = [{"input_ids": block, "labels": block} for block in blocks]
    held_out = rows[:: max(len(rows) // 64, 2)]
    set_seed(seed)
    trainer = GPT1PretrainingTrainer(
        GPT1ForCausalLM(make_config(args, len(tokenizer))),
        GPT1PretrainingArguments(folder, learning_rate=3e-3, **settings(args, is_bf16, seed)),
        train_dataset=[row for index, row in enumerate(rows) if index % max(len(rows) // 64, 2)],
        eval_dataset=held_out,
        data_collator=default_data_collator,
        processing_class=tokenizer,
    )
    return run(trainer, ("loss",))


def finetune(args, start: str, is_bf16: bool, seed: int, folder: str) -> dict:
    """Fine-tunes and saves the model to `folder`. Returns the curves of both losses and the held-out losses."""
    tokenizer = GPT1Tokenizer.from_pretrained(start)
    config = GPT1Config.from_pretrained(start, traversal="multiple_choice")
    set_seed(seed)
    model = GPT1DoubleHeadsModel.from_pretrained(start, config=config)
    tokenizer.add_control_tokens(model)
    trainer = GPT1Trainer(
        model,
        GPT1TrainingArguments(folder, learning_rate=1e-3, **settings(args, is_bf16, seed)),
        train_dataset=labelled("multiple_choice", "train", 600),
        eval_dataset=labelled("multiple_choice", "test", 200),
        data_collator=TraversalCollator(tokenizer, "multiple_choice", COLUMNS, max_length=BLOCK_LENGTH),
        processing_class=tokenizer,
    )
    return run(trainer, ("loss", "task_loss", "lm_loss"))


def run(trainer, names: tuple[str, ...]) -> dict:
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_model()
    records = [record for record in trainer.state.log_history if "loss" in record]
    metrics = trainer.evaluate()
    return {
        "curves": {name: [record[name] for record in records] for name in names},
        "held_out": {name: metrics[f"eval_{name}"] for name in names},
    }


def inference(folder: str) -> dict:
    """How half precision changes the predictions of one model."""
    tokenizer = GPT1Tokenizer.from_pretrained(folder)
    collator = TraversalCollator(tokenizer, "multiple_choice", COLUMNS, max_length=BLOCK_LENGTH)
    batch = collator(labelled("multiple_choice", "test", 200))
    logits = {}
    for name, dtype, is_autocast in (
        ("float32", torch.float32, False),
        ("bfloat16 weights", torch.bfloat16, False),
        ("bfloat16 autocast", torch.float32, True),
    ):
        model = GPT1DoubleHeadsModel.from_pretrained(folder, dtype=dtype).eval()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            output = model(**batch)
        logits[name] = output.task_logits.double(), float(output.loss)
    expected, expected_loss = logits.pop("float32")
    return {
        name: {
            "largest difference of a probability": (of.softmax(-1) - expected.softmax(-1)).abs().max().item(),
            "same predictions": (of.argmax(-1) == expected.argmax(-1)).double().mean().item(),
            "loss": loss,
            "loss in float32": expected_loss,
        }
        for name, (of, loss) in logits.items()
    }


def smooth(curve: list[float]) -> np.ndarray:
    return np.convolve(curve, np.full(SMOOTHED, 1 / SMOOTHED), mode="valid")


def differences(runs: dict[str, dict]) -> dict[str, dict[str, dict[str, float]]]:
    """The differences from float32, by curve and by compared run."""
    result = {}
    for name, curve in runs["float32"]["curves"].items():
        for other in list(runs)[1:]:
            gaps = np.abs(smooth(runs[other]["curves"][name]) - smooth(curve))
            held_out = runs[other]["held_out"][name] - runs["float32"]["held_out"][name]
            result.setdefault(name, {})[other] = {
                "largest": float(gaps.max()),
                "mean": float(gaps.mean()),
                "held-out": held_out,
            }
    return result


def draw(results: dict[str, dict]) -> Figure:
    """Draws one panel per loss with one line per run."""
    panels = [
        (work, name) for work in ("pre-training", "fine-tuning") for name in results[work]["runs"]["float32"]["curves"]
    ]
    figure = Figure(figsize=(4 * len(panels), 3.4), layout="constrained")
    for place, (work, name) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        for number, (label, content) in enumerate(results[work]["runs"].items()):
            curve = smooth(content["curves"][name])
            axes.plot(
                range(SMOOTHED, SMOOTHED + len(curve)),
                curve,
                f"C{number}",
                lw=1.2,
                ls=["-", "--", ":"][number],
                label=label,
            )
        axes.set_title(f"{work}: {name}", fontsize="medium")
        axes.set_xlabel("updates")
        axes.grid(alpha=0.3)
    axes.legend(fontsize="small", frameon=False)
    return figure


def report(results: dict[str, dict]) -> None:
    print(f"difference from float32 of the losses, means of {SMOOTHED} updates")
    print(f"{'':44}{'largest':>10}{'mean':>10}{'held-out':>10}")
    for work in ("pre-training", "fine-tuning"):
        for name, of_runs in results[work]["differences"].items():
            for other, values in of_runs.items():
                row = "".join(f"{values[column]:10.4f}" for column in ("largest", "mean", "held-out"))
                print(f"{work}, {name}: {other}".ljust(44) + row)
    for name, values in results["inference"].items():
        print(f"inference, {name}: " + ", ".join(f"{what} {value:.4f}" for what, value in values.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a file to pre-train on; default: stories of the small world")
    parser.add_argument("--stories", type=int, default=8000)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--hidden_size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="the picture; default: beside the result where --save is given")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # hides the expected warning about the new task head

    texts = read_texts(args)
    tokenizer = GPT1Tokenizer.train(iter(texts), num_merges=1000, show_progress=False)
    corpus = tokenizer("\n".join(texts), add_special_tokens=False, verbose=False)["input_ids"]
    blocks = [block for block in pack_documents([corpus], BLOCK_LENGTH) if len(block) == BLOCK_LENGTH]
    results = {"pre-training": {"runs": {}}, "fine-tuning": {"runs": {}}}
    with tempfile.TemporaryDirectory() as folder:
        for name, (is_bf16, seed) in RUNS.items():
            to = f"{folder}/pretraining {name}"
            results["pre-training"]["runs"][name] = pretrain(args, tokenizer, blocks, is_bf16, seed, to)
        for name, (is_bf16, seed) in RUNS.items():
            to = f"{folder}/finetuning {name}"
            start = f"{folder}/pretraining float32"
            results["fine-tuning"]["runs"][name] = finetune(args, start, is_bf16, seed, to)
        results["inference"] = inference(f"{folder}/finetuning float32")
    for work in ("pre-training", "fine-tuning"):
        results[work]["differences"] = differences(results[work]["runs"])
    report(results)
    picture = args.output
    if args.save:
        sizes = {name: getattr(args, name) for name in ("updates", "hidden_size", "layers")}
        saved = save_result("precision", machine(args.threads), {**sizes, **results})
        picture = picture or saved.with_suffix(".png")
    if picture is not None:
        draw(results).savefig(picture, dpi=120)
        print(f"written: {picture}")


if __name__ == "__main__":
    main()
