r"""Answers tasks with a language model that was not fine-tuned, by the heuristics of the paper's section 5.

Any language model of transformers, on files (a folder with a folder per task) or on data sets of the hub:

    gpt1 zero-shot --model out/books --data_dir data --tasks cola sst2 story_cloze dpr

    gpt1 zero-shot --model openai-community/gpt2 --tasks sst2 --num_shots 4 --calibrate

Every checkpoint of a pre-training run, and the curves of the paper's figure 2, right:

    gpt1 zero-shot --checkpoints out/books --data_dir data --max_eval_samples 500 \
        --output_file out/books/zero_shot.json --plot out/books/zero_shot.png

Tasks: cola, sst2, race, race-middle, race-high, story_cloze, dpr and blimp. The last two have to be in `--data_dir`:
dpr (the paper's DPRD) with the columns sentence, pronoun, pronoun_offset, candidates and label; blimp with all its
paradigms in one file and the hub's columns. A task is asked on its test
split where that has labels, else on validation, else on train. `normalised` is 0 for guessing and 1 for the best model
that was known to the paper.

The architecture decides how a model scores a text. Causal models: log-probability. Masked models, such as BERT:
pseudo-log-likelihood, each token given all others. Encoder-decoders, such as BART: log-probability by the decoder,
where the encoder reads the context and a mask. The output names the method. Scores of different methods answer the
same questions, but their sizes do not compare.

The output is a JSON file: the settings, and for every model (with `--checkpoints` its updates and the tokens seen) the
metrics of every task. It is written after each model; at the end zero_shot.run.yaml beside it, which repeats the
command. The picture needs matplotlib: `pip install -e ".[plot]"`.
"""

import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from datasets import Dataset, DatasetDict
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.hf_argparser import HfArg

from tokenization import load_task, open_tokenizer
from tokenization.rows import are_all_labelled

from ..inference.checkpoints import saved_checkpoints
from ..inference.devices import check_device, default_device
from ..inference.heuristics import Heuristic, evaluate_zero_shot, get_heuristic
from ..inference.scoring import CausalLMScorer, DenoisingLMScorer, MaskedLMScorer, Scorer, scorer_class_of
from ..storage.writing import write_atomically
from .arguments import parser_of
from .models import TOKENIZER, check_model, tokenizer_of


@dataclass
class ZeroShotArguments:
    """What to ask which models, and how."""

    model: str | None = HfArg(default=None, help="A language model: folder or hub id. Instead of --checkpoints.")
    checkpoints: str | None = HfArg(default=None, help="Output folder of a run whose checkpoints are all evaluated.")
    tokenizer_name: str | None = HfArg(
        default=None, help="Tokenizer: folder or hub id. Default: that of the model or run."
    )
    tasks: list[str] = HfArg(
        default_factory=lambda: ["cola", "sst2", "race", "story_cloze", "dpr"], help="Names of tasks."
    )
    data_dir: str | None = HfArg(
        default=None, help="Folder with a folder per task. Default: the data sets of the hub."
    )
    split: str | None = HfArg(
        default=None, help="Split to evaluate on. Default: the first of test, validation and train that has labels."
    )
    max_eval_samples: int | None = HfArg(default=None, help="Rows to evaluate on, drawn with the seed. Default: all.")
    max_train_samples: int | None = HfArg(
        default=None,
        help="Training rows for CoLA's threshold and for few-shot examples, drawn with the seed. Default: all.",
    )
    num_shots: int = HfArg(default=0, help="Few-shot examples before each row, as many as fit.")
    calibrate: bool = HfArg(default=False, help="Contextual calibration with the text N/A.")
    seed: int = HfArg(default=0, help="Seed for drawing rows.")
    batch_tokens: int = HfArg(default=2048, help="Tokens per batch, including padding.")
    dtype: str = HfArg(default="float32", help="Data type of the weights: float32, bfloat16, float16 or auto.")
    device: str | None = HfArg(default=None, help="Default: an accelerator, if there is one, else cpu.")
    output_file: str = HfArg(default="zero_shot.json", help="The results.")
    plot: str | None = HfArg(default=None, help="A picture of the curves: .png, .svg or .pdf.")

    def __post_init__(self):
        if (self.model is None) == (self.checkpoints is None):
            given = "neither was" if self.checkpoints is None else "both were"
            raise ValueError(f"Exactly one of --model and --checkpoints is needed, but {given} given.")
        if self.plot is not None and self.checkpoints is None:
            raise ValueError(
                "--plot draws curves over the checkpoints of a run, but --checkpoints was not given. Pass "
                "--checkpoints, or leave --plot out."
            )
        if self.device is None:
            self.device = str(default_device())
        else:
            check_device(self.device)


# ---- Data


@dataclass
class Questions:
    """The rows of one task."""

    heuristic: Heuristic
    split: str
    split_size: int
    rows: list[dict]
    train_rows: list[dict]


def load_questions(name: str, arguments: ZeroShotArguments) -> Questions:
    heuristic = get_heuristic(name)
    if heuristic.task.hub_path is None and arguments.data_dir is None:
        raise ValueError(
            f"Task {name!r} is not on the hub as one data set. Pass as --data_dir a folder with a subfolder {name}."
        )
    splits = load_task(heuristic.task, arguments.data_dir)
    split = choose_split(heuristic, splits, arguments.split)
    needs_training = heuristic.has_threshold or arguments.num_shots > 0
    train_split = heuristic.task.train_split if needs_training else split
    if train_split not in splits:
        raise ValueError(
            f"Task {name!r} needs the split {train_split!r}, for a threshold or for few-shot examples, but has "
            f"{', '.join(splits)}. Add its file."
        )
    return Questions(
        heuristic,
        split,
        len(splits[split]),
        draw_rows(splits[split], arguments.max_eval_samples, arguments.seed),
        draw_rows(splits[train_split], arguments.max_train_samples, arguments.seed) if needs_training else [],
    )


def choose_split(heuristic: Heuristic, splits: DatasetDict, wanted: str | None) -> str:
    task = heuristic.task
    if wanted is not None and wanted not in splits:
        raise ValueError(f"Task {task.name!r} has no split {wanted!r}. Its splits: {', '.join(splits)}.")
    order = [wanted] if wanted else [*task.test_splits, *task.validation_splits, task.train_split]
    for split in order:
        if split in splits and (heuristic.right is not None or are_all_labelled(splits[split], task.columns["label"])):
            return split
    raise ValueError(
        f"The labels of task {task.name!r} are hidden in {', '.join(s for s in order if s in splits)}. Choose another "
        "--split."
    )


def draw_rows(rows: Dataset, number: int | None, seed: int) -> list[dict]:
    if number is not None and number < len(rows):
        rows = rows.shuffle(seed=seed).select(range(number))
    return list(rows)


# ---- Models

AUTO_CLASSES = {
    CausalLMScorer: AutoModelForCausalLM,
    MaskedLMScorer: AutoModelForMaskedLM,
    DenoisingLMScorer: AutoModelForSeq2SeqLM,
}


def load_scorer(model: str, arguments: ZeroShotArguments) -> Scorer:
    tokenizer = open_tokenizer(tokenizer_of(model, arguments.tokenizer_name, arguments.checkpoints))
    scorer_class = scorer_class_of(AutoConfig.from_pretrained(model))
    loaded = AUTO_CLASSES[scorer_class].from_pretrained(model, dtype=arguments.dtype).to(arguments.device)
    return scorer_class(loaded, tokenizer, batch_tokens=arguments.batch_tokens)


def ask(scorer: Scorer, questions: Questions, arguments: ZeroShotArguments) -> dict:
    heuristic, start = questions.heuristic, time.perf_counter()
    result = evaluate_zero_shot(
        scorer,
        heuristic,
        questions.rows,
        questions.train_rows,
        num_shots=arguments.num_shots,
        calibrate=arguments.calibrate,
        seed=arguments.seed,
    )
    return {
        **result.metrics,
        "metric": heuristic.metric,
        "chance": heuristic.chance,
        "best_known": heuristic.best_known,
        "split": questions.split,
        "num_rows": len(questions.rows),
        "num_train_rows": len(questions.train_rows),
        "threshold": result.threshold,
        "mean_num_shots": statistics.fmean(result.num_shots),
        "num_cut": result.num_cut,
        "seconds": round(time.perf_counter() - start, 3),
    }


# ---- Report


def table(results: list[dict]) -> str:
    """A table with one line per model: the first metric and the normalised metric of each task."""
    lines = []
    for result in results:
        where = result["model"] if result.get("step") is None else f"{result['step']} updates"
        where += f" ({result['method']})"
        figures = (
            f"{name} {of_task[of_task['metric']]:.3f} ({of_task['normalised']:+.2f})"
            for name, of_task in result["tasks"].items()
        )
        lines.append(f"{where}: {', '.join(figures)}")
    return "\n".join(lines)


def draw(results: list[dict]):
    """Figure 2, right: the normalised metric of each task over the updates of pre-training."""
    from matplotlib.figure import Figure  # imported only to draw
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for index, name in enumerate(results[0]["tasks"]):
        values = [result["tasks"][name]["normalised"] for result in results]
        axes.plot(
            [result["step"] for result in results], values, marker="o", ms=3, lw=1.2, color=f"C{index}", label=name
        )
    axes.axhline(0, color="grey", lw=0.8, ls="--")
    steps = [result["step"] for result in results]
    first = min((step for step in steps if step > 0), default=1)
    # Logarithmic from the first saved update on, with a linear part for a checkpoint before it.
    axes.set_xscale("symlog", linthresh=first, linscale=0.2)
    ticks = LogLocator(subs=(1, 2, 5)).tick_values(first, max(*steps, 2 * first))
    axes.set_xticks([*([0] if 0 in steps else []), *(tick for tick in ticks if first <= tick <= max(steps))])
    axes.set_xlim(left=min(steps))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("updates of pre-training")
    axes.set_ylabel("0: guessing, 1: best model known to the paper")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


ARGUMENTS = (ZeroShotArguments,)


def main(arguments: list[str]) -> None:
    parser = parser_of("zero-shot")
    (args,) = parser.read(arguments)
    if args.plot is not None:
        import matplotlib  # noqa: F401  # a missing package is reported before the models are evaluated
    check_model("--model", args.model)
    check_model("--tokenizer_name", args.tokenizer_name, TOKENIZER)
    models = [{"model": args.model}] if args.checkpoints is None else saved_checkpoints(args.checkpoints)
    names = [get_heuristic(name).task.name for name in args.tasks]
    tasks = {name: load_questions(name, args) for name in names}
    results = []
    for model in models:
        scorer = load_scorer(model["model"], args)
        results.append(
            {
                **model,
                "method": scorer.method,
                "tasks": {name: ask(scorer, of_task, args) for name, of_task in tasks.items()},
            }
        )
        print(table(results[-1:]), flush=True)
        output = Path(args.output_file)
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, json.dumps({"settings": asdict(args), "results": results}, indent=2) + "\n")
    # Neither the results nor a run's own settings have this ending.
    parser.write_settings(Path(args.output_file).with_suffix(".run.yaml"))
    print(f"written to {args.output_file}")
    if args.plot is not None:
        draw(results).savefig(args.plot, dpi=150)
        print(f"written to {args.plot}")
