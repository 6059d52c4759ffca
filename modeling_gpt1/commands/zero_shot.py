r"""Evaluates models without fine-tuning, with the paper's heuristics (section 5).

    gpt1 zero-shot --model openai-community/openai-gpt --tasks cola sst2 race
    gpt1 zero-shot --checkpoints out/books --data_dir data --output_file out/curves.json

The output is a JSON file: the settings, and for every model the metrics of every task. `normalised` is 0 for guessing
and 1 for the best model that was known to the paper. Scores of different methods do not compare. See docs/generate.md.
"""

import json
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from transformers import AutoConfig, PreTrainedConfig
from transformers.hf_argparser import HfArg

from tokenization import open_tokenizer
from tokenization.errors import UserError
from tokenization.wording import counted

from ..families import family_of_config
from ..inference.checkpoints import saved_checkpoints
from ..inference.few_shot import evaluate_few_shot
from ..inference.heuristics import CONTENT_FREE, check_options, evaluate_zero_shot, get_heuristic, load_questions
from ..inference.scoring import Scorer, scorer_class_of
from ..storage.locking import writer_of_new_file
from ..storage.reading import one_save
from ..storage.writing import write_atomically
from .arguments import parser_of
from .models import OpenedModel, at_revision, check_model, opening
from .rows import check_unknown, some_texts

DEFAULT_TASKS = ("cola", "sst2", "race", "story_cloze", "dpr")


@dataclass
class ScoringArguments(OpenedModel):
    """Which models are evaluated, and on which rows."""

    checkpoints: str | None = HfArg(
        default=None, help="Folder of a run whose checkpoints are all evaluated, in place of --model."
    )
    tokenizer_name: str | None = HfArg(default=None, help="Tokenizer: a folder or a hub id. Default: the model's.")
    data_dir: str | None = HfArg(default=None, help="Folder with a folder per task. Default: download the rows.")
    max_eval_samples: int | None = HfArg(default=None, help="Rows of each task to evaluate on. Default: all.")
    calibrate: bool = HfArg(default=False, help="Score an answer by how much the question raises its probability.")
    seed: int = HfArg(default=0, help="Seed for sampling rows and few-shot examples.")
    batch_tokens: int = HfArg(default=2048, help="Tokens per batch, including padding.")
    dtype: str = HfArg(default="float32", help="Data type of the weights: float32, bfloat16, float16 or auto.")
    trust_remote_code: bool = HfArg(default=False, help="Run the code that a model of another family brings.")

    def __post_init__(self):
        if (self.model is None) == (self.checkpoints is None):
            if self.checkpoints is None:
                raise UserError("No model was given. Pass --model, or the folder of a run as --checkpoints.")
            raise UserError("--model and --checkpoints were both given. Leave one of them out.")
        if self.checkpoints is not None and self.revision is not None:
            raise UserError(
                "--revision chooses one checkpoint, but --checkpoints evaluates all of a run. Pass --revision with "
                "--model."
            )

    def models(self) -> list[dict]:
        """Each model; of a run also the updates and the tokens seen of each."""
        self.choose_device()
        if self.checkpoints is not None:
            return saved_checkpoints(self.checkpoints)
        self.model = at_revision(self.model, self.revision)
        check_model("--model", self.model)
        if Path(self.model).is_dir():
            config = self.open_config(self.model)
            if family_of_config(config).has_task(config):
                how = f"`gpt1 finetune --model {shlex.quote(self.model)} --do_eval --validation_file FILE`"
                said = f"The language model of {self.model} is evaluated; {how} evaluates its task head."
                print(said, file=sys.stderr)
        return [{"model": self.model}]

    def open_config(self, model: str) -> PreTrainedConfig:
        with opening(f"--model {model}"):
            return AutoConfig.from_pretrained(model, trust_remote_code=self.trust_remote_code)

    def load_scorer(self, model: str, scorer_class: type[Scorer] | None = None, **options) -> Scorer:
        """Opens a model to score texts, as its architecture does unless a class says otherwise."""
        with one_save(model):
            config = self.open_config(model)
            with opening(f"--model {model}"):
                tokenizer = open_tokenizer(self.tokenizer_name or model, self.trust_remote_code)
                loaded = family_of_config(config).open_language_model(
                    model, dtype=self.dtype, trust_remote_code=self.trust_remote_code
                )
        scorer_class = scorer_class or scorer_class_of(config)
        return scorer_class(loaded.to(self.device), tokenizer, batch_tokens=self.batch_tokens, **options)


@dataclass
class ZeroShotArguments(ScoringArguments):
    """Which tasks, and how they are evaluated."""

    tasks: list[str] = HfArg(default_factory=lambda: [*DEFAULT_TASKS], help="Names of tasks.")
    max_train_samples: int | None = HfArg(
        default=None, help="Training rows for CoLA's threshold and few-shot examples. Default: all."
    )
    num_shots: int = HfArg(default=0, help="Few-shot examples before each row.")
    num_orders: int = HfArg(
        default=1, help="Prompts whose few-shot examples and their order are drawn anew; mean and spread are reported."
    )
    content_free: list[str] = HfArg(
        default_factory=lambda: [*CONTENT_FREE],
        help="Texts without content for --calibrate, such as N/A [MASK] and an empty text. Default: N/A.",
    )
    output_file: str = HfArg(default="zero_shot.json", help="New file for the results, as JSON.")

    def __post_init__(self):
        super().__post_init__()
        if self.num_orders < 1 or (self.num_orders > 1 and self.num_shots < 1):
            raise UserError(
                f"--num_orders {self.num_orders} needs few-shot examples to draw and to order. Pass --num_shots as "
                "well, and at least 1 prompt."
            )
        if self.content_free != [*CONTENT_FREE] and not self.calibrate:
            raise UserError("--content_free is for contextual calibration. Pass --calibrate, or leave it out.")


ARGUMENTS = (ZeroShotArguments,)


def evaluate_task(scorer: Scorer, name: str, questions: tuple, arguments: ZeroShotArguments) -> dict:
    """The metrics of a model on a task, with what they are compared with and the numbers of rows."""
    split, rows, train_rows = questions
    heuristic = get_heuristic(name)
    options = {
        "num_shots": arguments.num_shots,
        "calibrate": arguments.calibrate,
        "seed": arguments.seed,
        "content_free": arguments.content_free,
    }
    threshold = None
    few_shot = {}
    if arguments.num_orders > 1:
        result = evaluate_few_shot(scorer, heuristic, rows, train_rows, num_orders=arguments.num_orders, **options)
        metrics = (result.calibrated or result.plain).metrics
        few_shot["few_shot"] = asdict(result)
    else:
        result = evaluate_zero_shot(scorer, heuristic, rows, train_rows, **options)
        metrics = result.metrics
        threshold = result.threshold
    return {
        **metrics,
        "metric": heuristic.metric,
        "chance": heuristic.chance,
        "best_known": heuristic.best_known,
        "split": split,
        "num_rows": len(rows),
        "num_train_rows": len(train_rows),
        "threshold": threshold,
        **few_shot,
    }


def describe(model: dict, method: str, tasks: dict[str, dict]) -> str:
    """A line about the results of a model."""
    where = model["model"] if model.get("step") is None else counted(model["step"], "update")
    figures = [
        f"{name} {of['metric']} {of[of['metric']]:.3f} (normalised {of['normalised']:+.2f})"
        for name, of in tasks.items()
    ]
    lines = [f"{where} ({method}): {', '.join(figures)}"]
    for name, of in tasks.items():
        if "few_shot" in of:
            lines += describe_spread(name, of["metric"], of["few_shot"])
    return "\n".join(lines)


def describe_spread(name: str, metric: str, few_shot: dict) -> list[str]:
    """A line about the prompts of a task, and one about them after calibration."""
    lines = []
    for how, title in (("plain", ""), ("calibrated", ", calibrated")):
        spread = few_shot[how]
        if spread is None:
            continue
        line = (
            f"{name}, {counted(len(spread['of_prompts']), 'prompt')}{title}: {metric} {spread['metrics'][metric]:.3f} "
            f"± {spread['std']:.3f} ({spread['least']:.3f} to {spread['most']:.3f})"
        )
        bias = spread["bias"]
        if bias is not None:
            if bias["majority_bias"] is not None:
                line += f"; majority bias {bias['majority_bias']:+.3f}"
            line += f"; recency bias {bias['recency_bias']:+.3f}"
            line += f"; most predicted label {bias['most_predicted_share']:.3f}"
            line += f", of the examples {bias['most_predicted_in_shots']:.3f}"
        lines.append(line)
    return lines


def main(arguments: list[str]) -> None:
    parser = parser_of("zero-shot")
    (args,) = parser.read(arguments)
    with writer_of_new_file(args.output_file):
        settings = settings_file(args.output_file)
        if settings.exists():
            raise UserError(
                f"The settings of --output_file {args.output_file} are written to {settings}, which is there already. "
                "Pass another name, or move the file away."
            )
        evaluate_models(args)
        parser.write_settings(settings)
    print(f"written to {args.output_file}")


def evaluate_models(args: ZeroShotArguments) -> None:
    """Evaluates each model on each task, and writes the results after each model."""
    models = args.models()
    names = [get_heuristic(name).task.name for name in args.tasks]
    limits = (args.max_eval_samples, args.max_train_samples)
    questions = {name: load_questions(name, args.data_dir, args.num_shots, limits, args.seed) for name in names}
    for name, (_, rows, train_rows) in questions.items():  # before hours of work on other tasks
        check_options(get_heuristic(name), rows, train_rows, args.num_shots, args.calibrate, args.content_free)
    results = []
    for model in models:
        scorer = args.load_scorer(model["model"])
        if not results:  # the checkpoints of a run have one tokenizer
            for name, (_, rows, _) in questions.items():
                check_unknown(scorer.tokenizer, some_texts(rows, get_heuristic(name).task), f"task {name}")
        tasks = {name: evaluate_task(scorer, name, of_task, args) for name, of_task in questions.items()}
        results.append({**model, "method": scorer.method, "tasks": tasks})
        print(describe(model, scorer.method, tasks), flush=True)
        content = {"settings": asdict(args), "results": results}
        write_atomically(args.output_file, json.dumps(content, indent=2) + "\n")


def settings_file(output_file: str) -> Path:
    """Where the settings of the results are written: `a.run.yaml` of `a.json`, `a-1.5.run.yaml` of `a-1.5`.

    Neither the results nor a run's own settings have this ending.
    """
    return Path(f"{output_file.removesuffix('.json')}.run.yaml")
