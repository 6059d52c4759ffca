"""Shows the paper's method in a few minutes on two CPU cores, offline, on a small world of English text.

    make demo
    python examples/quickstart.py
    python examples/quickstart.py --output_dir out/second --seed 1
    python examples/quickstart.py --num_stories 1000 --pretraining_updates 50 --train_rows 64 --test_rows 64 \
        --finetuning_epochs 1        # half a minute, to see that everything runs; the scores then mean nothing

Stories without labels (small_world.py beside this file) teach a tiny GPT-1 which things are fruit, which words praise
and what people do with a kite. Small labelled sets for the four traversals then show a quarter of the words; the test
rows use all of them. The table compares, like table 5 of the paper, a model without pre-training, one without the
auxiliary objective, and the full method. With so few labelled rows the auxiliary objective need not help everywhere:
section 5 of the paper finds that larger sets gain from it. Each score is that of the last update, not of the best.

The output folder gets the fine-tuned classifier with its card (README.md), the pre-trained model (pretrained/),
metrics.json and learning_curves.png.
"""

import json
import logging
import multiprocessing
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import datasets
import matplotlib
import torch
import transformers
from small_world import ENTAILMENT_LABELS, labelled, stories
from tqdm import tqdm
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    PrinterCallback,
    TrainerCallback,
    default_data_collator,
    pipeline,
    set_seed,
)

from modeling_gpt1 import (
    GPT1Config,
    GPT1ForCausalLM,
    GPT1PretrainingArguments,
    GPT1PretrainingTrainer,
    GPT1Trainer,
    GPT1TrainingArguments,
    continue_prompts,
    prepare_finetuning,
)
from tokenization import GPT1Tokenizer, Task, pack_documents


def columns(*roles: str) -> dict[str, str]:
    """Maps each role to the small world's column, which has the same name."""
    return {role: role for role in roles}


TASKS = (
    Task("reviews", "classification", columns("text", "label"), ("negative", "positive")),
    Task("inference", "entailment", columns("premise", "hypothesis", "label"), ENTAILMENT_LABELS),
    Task("graded pairs", "similarity", columns("text_a", "text_b", "label"), regression=True, metrics=("pearson",)),
    Task("endings", "multiple_choice", columns("context", "choices", "label")),
)
# Columns of the table. Each has whether the model is pre-trained, and λ of the auxiliary objective.
VARIANTS = {
    "from scratch": (False, 0.5),
    "pre-trained, no auxiliary loss": (True, 0.0),
    "pre-trained, auxiliary loss": (True, 0.5),
}
PUBLISHED = ("reviews", "pre-trained, auxiliary loss")  # this classifier is saved, with its card


@dataclass
class DemoArguments:
    """Sizes of the demonstration; the defaults take a few minutes on two cores."""

    output_dir: str = field(default="out/quickstart", metadata={"help": "Output folder of the demonstration."})
    seed: int = field(default=0, metadata={"help": "Seed of the small world and of all training."})
    num_stories: int = field(default=12000, metadata={"help": "Stories to pre-train on."})
    num_merges: int = field(default=1000, metadata={"help": "Merges of the BPE."})
    hidden_size: int = field(default=96, metadata={"help": "Width of the model."})
    num_hidden_layers: int = field(default=2, metadata={"help": "Blocks of the model."})
    pretraining_updates: int = field(default=1800, metadata={"help": "Optimizer steps of pre-training."})
    train_rows: int = field(default=600, metadata={"help": "Labelled training rows per task."})
    test_rows: int = field(default=400, metadata={"help": "Labelled test rows per task."})
    finetuning_epochs: int = field(default=8, metadata={"help": "Epochs over the labelled training rows."})


def make_config(args: DemoArguments, vocab_size: int) -> GPT1Config:
    return GPT1Config(
        vocab_size=vocab_size,
        hidden_size=args.hidden_size,
        num_hidden_layers=args.num_hidden_layers,
        num_attention_heads=4,
        max_position_embeddings=64,
        # Training for minutes does not overfit, and dropout would slow the learning of so small a model.
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        attn_pdrop=0.0,
        # The paper's 0.02 is for width 768. Unscaled, attention would start too uniform to learn within minutes.
        initializer_range=0.02 * (768 / args.hidden_size) ** 0.5,
    )


def pretrain(args: DemoArguments, tokenizer: GPT1Tokenizer, texts: list[str], folder: Path) -> list[dict]:
    """Pre-trains on L1, saves model and tokenizer, and returns the log."""
    corpus = tokenizer("\n".join(texts), add_special_tokens=False, verbose=False)["input_ids"]
    # The last, shorter block is left out because the collator does not pad.
    blocks = [block for block in pack_documents([corpus], block_length=64) if len(block) == 64]
    set_seed(args.seed)
    trainer = GPT1PretrainingTrainer(
        GPT1ForCausalLM(make_config(args, len(tokenizer))),
        GPT1PretrainingArguments(
            output_dir=str(folder),
            max_steps=args.pretraining_updates,
            per_device_train_batch_size=16,
            # The paper's 2.5e-4 suits a model a thousand times larger. One this small learns faster at a higher rate.
            learning_rate=3e-3,
            warmup_steps=0.03,
            # Adam's default of 0.999 averages over a thousand updates, which is most of this run.
            adam_beta2=0.98,
            logging_steps=max(args.pretraining_updates // 30, 1),
            **quiet_training(args.seed),
        ),
        train_dataset=[{"input_ids": block, "labels": block} for block in blocks],
        data_collator=default_data_collator,
        processing_class=tokenizer,
        callbacks=[Bar("pre-training", "perplexity")],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_model()
    return trainer.state.log_history


def finetuning_parts(task: Task, variant: str, args: DemoArguments, pretrained: Path) -> dict:
    """A new or pre-trained double-heads model with the task's tokenizer, collator and metrics."""
    set_seed(args.seed)
    is_pretrained, _ = VARIANTS[variant]
    return prepare_finetuning(
        pretrained if is_pretrained else GPT1Config.from_pretrained(pretrained), task, pretrained
    )


def finetune(task: Task, variant: str, args: DemoArguments, pretrained: Path, folder: str) -> list[tuple[int, float]]:
    """Fine-tunes on L3, tests five times during training, and returns the (update, metric × 100) points."""
    _, lm_coef = VARIANTS[variant]
    trainer = GPT1Trainer(
        args=GPT1TrainingArguments(
            output_dir=folder,
            lm_coef=lm_coef,
            # Higher than the paper's, as in pre-training. With few rows, the batches are smaller and the epochs more.
            learning_rate=1e-3,
            num_train_epochs=args.finetuning_epochs,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=100,
            adam_beta2=0.98,  # as for pre-training
            warmup_steps=0.05,
            logging_strategy="epoch",
            eval_strategy="steps",
            eval_steps=0.2,
            **quiet_training(args.seed),
        ),
        train_dataset=labelled(task.traversal, "train", args.train_rows, args.seed),
        eval_dataset=labelled(task.traversal, "test", args.test_rows, args.seed),
        **finetuning_parts(task, variant, args, pretrained),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    if (task.name, variant) == PUBLISHED:
        trainer.save_model()
        trainer.create_model_card(model_name="small-world-reviews", dataset=f"small world {task.name}")
    key = f"eval_{task.metrics[0]}"
    return [(record["step"], 100 * record[key]) for record in trainer.state.log_history if key in record]


def finetune_all(args: DemoArguments, pretrained: Path, folder: Path) -> list[dict]:
    """All tasks in all variants, two at a time; the lines of the table."""
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as scratch,
        ProcessPoolExecutor(2, mp_context=context, initializer=silence) as pool,
    ):
        names = [(task.name, variant) for task in TASKS for variant in VARIANTS]
        folders = {name: str(folder if name == PUBLISHED else Path(scratch, *name)) for name in names}
        runs = {
            (task.name, variant): pool.submit(finetune, task, variant, args, pretrained, folders[task.name, variant])
            for task in TASKS
            for variant in VARIANTS
        }
        results = []
        for task in TASKS:
            curves = {}
            for variant in VARIANTS:
                curves[variant] = runs[task.name, variant].result()
                print(f"   {task.traversal}, {variant}: {task.metrics[0]} {curves[variant][-1][1]:.1f}", flush=True)
            results.append(
                {
                    "task": task.traversal,
                    "metric": task.metrics[0],
                    "chance": chance(task, labelled(task.traversal, "test", args.test_rows, args.seed)),
                    "scores": {name: curve[-1][1] for name, curve in curves.items()},
                    "curves": curves,
                }
            )
    return results


def quiet_training(seed: int) -> dict:
    """Arguments of both trainers that switch off saving, the GPU and printing."""
    return {
        "seed": seed,
        "use_cpu": True,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }


def chance(task: Task, rows: list[dict]) -> float:
    """The score of guessing, × 100."""
    if task.regression:
        return 0.0
    return sum(100 / len(row.get("choices", task.label_names)) for row in rows) / len(rows)


class Bar(TrainerCallback):
    """A progress bar for one training run, which ends with one figure of the log."""

    def __init__(self, title: str, shown: str):
        self.title = title
        self.shown = shown

    def on_train_begin(self, args, state, control, **kwargs):
        layout = "  {desc:<48} {percentage:3.0f}%|{bar:20}| {elapsed}{postfix}"
        self.bar = tqdm(total=state.max_steps, desc=self.title, bar_format=layout, mininterval=0.5)

    def on_step_end(self, args, state, control, **kwargs):
        self.bar.update()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.shown in (logs or {}):
            self.bar.set_postfix_str(f"{self.shown.removeprefix('eval_')} {logs[self.shown]:.2f}")

    def on_train_end(self, args, state, control, **kwargs):
        self.bar.close()


@contextmanager
def step(number: int, title: str):
    """Prints the title of a step, and afterwards how long the step took."""
    print(f"\n{number}. {title}", flush=True)
    start = time.perf_counter()
    yield
    print(f"   ({time.perf_counter() - start:.0f} s)", flush=True)


def silence() -> None:
    """Silences the libraries, so that only this script prints, and gives the process one thread.

    Matrices this small gain little from a second thread, and wait long for it on a busy machine.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("modeling_gpt1").setLevel(logging.ERROR)  # each fine-tuning would name its new head
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()


def format_table(results: list[dict]) -> str:
    """The table of the comparison: one line per task, all scores × 100."""
    lines = [["task", "metric", "chance", *VARIANTS]]
    for result in results:
        figures = (result["chance"], *result["scores"].values())
        lines.append([result["task"], result["metric"], *(f"{figure:.1f}" for figure in figures)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(map(str.ljust, line, widths)) for line in lines)


def draw_curves(log: list[dict], results: list[dict], path: Path) -> None:
    """Draws the perplexity of pre-training, then each task's test score during fine-tuning."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 1 + len(results), figsize=(4 * (1 + len(results)), 3.6), layout="constrained")
    points = [(record["step"], record["perplexity"]) for record in log if "perplexity" in record]
    axes[0].plot(*zip(*points, strict=True))
    axes[0].set(title="pre-training", xlabel="update", ylabel="perplexity", yscale="log")
    for axis, result in zip(axes[1:], results, strict=True):
        for name, curve in result["curves"].items():
            axis.plot(*zip(*curve, strict=True), marker="o", markersize=3, label=name)
        axis.axhline(result["chance"], color="grey", linestyle=":", label="chance")
        axis.set(title=result["task"], xlabel="update", ylabel=f"{result['metric']} on the test rows", ylim=(-10, 105))
    axes[1].legend(fontsize="small")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def show_saved_models(classifier: Path, pretrained: Path) -> None:
    """Classifies a review, and continues a story to the end of its paragraph."""
    review = "Vera got a kite. It looked shabby, but Vera found it superb."
    answer = pipeline("text-classification", model=str(classifier), device="cpu")(review)[0]
    print(f"   {review!r} is {answer['label']} ({answer['score']:.2f})")
    beginning = "Ben felt hungry. He looked for a fruit in the kitchen."
    model = AutoModelForCausalLM.from_pretrained(pretrained)
    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    ((end,),) = continue_prompts(model, tokenizer, [beginning], max_new_tokens=32, stop=["\n"], do_sample=False)
    print(f"   {beginning} →{end}")


def run(args: DemoArguments) -> list[dict]:
    folder = Path(args.output_dir)
    pretrained = folder / "pretrained"
    pretrained.mkdir(parents=True, exist_ok=True)
    with step(1, f"A small world: {args.num_stories} stories without labels; the BPE is learned from them."):
        texts = stories(args.num_stories, args.seed)
        tokenizer = GPT1Tokenizer.train(iter(texts), args.num_merges, show_progress=False)
        print(f"   “{texts[0]}”\n   {len(tokenizer)} tokens in the vocabulary")
    with step(2, "Pre-training: GPT-1, much smaller, predicts the next token of the stories (L1)."):
        log = pretrain(args, tokenizer, texts, pretrained)
    with step(3, "Fine-tuning: four tasks, each in three ways; each line has the score on the test rows."):
        results = finetune_all(args, pretrained, folder)
    print(f"\n{format_table(results)}")
    with step(4, "The saved models, reopened with the Auto classes."):
        show_saved_models(folder, pretrained)
    with step(5, f"Saved in {folder}: model, card (README.md), pretrained/, metrics.json, learning_curves.png."):
        (folder / "metrics.json").write_text(
            json.dumps({"arguments": vars(args), "results": results}, indent=2) + "\n", encoding="utf-8"
        )
        draw_curves(log, results, folder / "learning_curves.png")
    return results


def main(arguments: list[str] | None = None) -> None:
    (args,) = HfArgumentParser(DemoArguments).parse_args_into_dataclasses(arguments)
    silence()
    start = time.perf_counter()
    run(args)
    print(f"\nDone in {(time.perf_counter() - start) / 60:.1f} minutes.")


if __name__ == "__main__":
    main()
