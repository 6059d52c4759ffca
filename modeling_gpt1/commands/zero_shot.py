r"""Answers tasks without fine-tuning, with the paper's heuristics (section 5).

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

from transformers import AutoConfig
from transformers.hf_argparser import HfArg

from tokenization import open_tokenizer
from tokenization.errors import UserError
from tokenization.wording import counted

from ..families import family_of_config
from ..inference.checkpoints import saved_checkpoints
from ..inference.heuristics import evaluate_zero_shot, get_heuristic, load_questions
from ..inference.scoring import Scorer, scorer_class_of
from ..storage.reading import one_save
from ..storage.writing import write_atomically
from .arguments import OpenedModel, at_revision, check_is_new, check_model, check_unknown, parser_of, some_texts


@dataclass
class ScoringArguments(OpenedModel):
    """Which models are asked, and on which rows."""

    checkpoints: str | None = HfArg(default=None, help="A run whose checkpoints are all evaluated, not one --model.")
    tokenizer_name: str | None = HfArg(default=None, help="Folder or hub id. Default: the model's.")
    data_dir: str | None = HfArg(default=None, help="Folder with a folder per task. Default: the rows of the hub.")
    max_eval_samples: int | None = HfArg(default=None, help="Rows of each task. Default: all.")
    calibrate: bool = HfArg(default=False, help="Compare answers by what the question adds to them.")
    seed: int = HfArg(default=0, help="Of the rows that are shown or drawn.")
    batch_tokens: int = HfArg(default=2048, help="Tokens per batch, including padding.")
    dtype: str = HfArg(default="float32", help="Data type of the weights: float32, bfloat16, float16 or auto.")
    trust_remote_code: bool = HfArg(default=False, help="Run the code that a model of the hub brings.")

    def __post_init__(self):
        if (self.model is None) == (self.checkpoints is None):
            given = "neither was" if self.checkpoints is None else "both were"
            raise UserError(f"Exactly one of --model and --checkpoints is needed, but {given} given.")
        if self.checkpoints is not None and self.revision is not None:
            raise UserError("--checkpoints evaluates all that a run has saved. Pass --revision with --model.")
        super().__post_init__()

    def models(self) -> list[dict]:
        """Each model; of a run also the updates and the tokens seen of each."""
        self.model = at_revision(self.model, self.revision)
        check_model("--model", self.model)
        trust = {"trust_remote_code": self.trust_remote_code}
        config = AutoConfig.from_pretrained(self.model, **trust) if Path(self.model or "-").is_dir() else None
        if config is not None and family_of_config(config).has_task(config):
            how = f"`gpt1 finetune --model {shlex.quote(self.model)} --do_eval --validation_file FILE`"
            print(f"The language model of {self.model} is asked; {how} scores its task head.", file=sys.stderr)
        return [{"model": self.model}] if self.checkpoints is None else saved_checkpoints(self.checkpoints)

    def load_scorer(self, model: str, scorer_class: type[Scorer] | None = None, **options) -> Scorer:
        """Opens a model to score texts, as its architecture does unless a class says otherwise."""
        trust = {"trust_remote_code": self.trust_remote_code}
        with one_save(model):
            tokenizer = open_tokenizer(self.tokenizer_name or model)
            config = AutoConfig.from_pretrained(model, **trust)
            scorer_class = scorer_class or scorer_class_of(config)
            loaded = family_of_config(config).open_language_model(model, dtype=self.dtype, **trust)
        return scorer_class(loaded.to(self.device), tokenizer, batch_tokens=self.batch_tokens, **options)


@dataclass
class ZeroShotArguments(ScoringArguments):
    """What to ask which models, and how."""

    tasks: list[str] = HfArg(default_factory=lambda: "cola sst2 race story_cloze dpr".split(), help="Names of tasks.")
    max_train_samples: int | None = HfArg(default=None, help="Rows for CoLA's threshold and for few-shot examples.")
    num_shots: int = HfArg(default=0, help="Few-shot examples before each row.")
    output_file: str = HfArg(default="zero_shot.json", help="The results.")


def ask(scorer: Scorer, name: str, split: str, rows: list, train_rows: list, arguments: ZeroShotArguments) -> dict:
    heuristic = get_heuristic(name)
    options = {option: getattr(arguments, option) for option in ("num_shots", "calibrate", "seed")}
    result = evaluate_zero_shot(scorer, heuristic, rows, train_rows, **options)
    about = {field: getattr(heuristic, field) for field in ("metric", "chance", "best_known")}
    counts = {"split": split, "num_rows": len(rows), "num_train_rows": len(train_rows)}
    return {**result.metrics, **about, **counts, "threshold": result.threshold}


def main(arguments: list[str]) -> None:
    parser = parser_of("zero-shot")
    (args,) = parser.read(arguments)
    check_is_new("--output_file", args.output_file)
    models = args.models()
    names = [get_heuristic(name).task.name for name in args.tasks]
    limits = (args.max_eval_samples, args.max_train_samples)
    tasks = {name: load_questions(name, args.data_dir, args.num_shots, limits, args.seed) for name in names}
    results = []
    for model in models:
        scorer = args.load_scorer(model["model"])
        for name, (_, rows, _) in tasks.items() if not results else ():
            check_unknown(scorer.tokenizer, some_texts(rows, get_heuristic(name).task), f"task {name}")
        answers = {name: ask(scorer, name, *of_task, args) for name, of_task in tasks.items()}
        results.append({**model, "method": scorer.method, "tasks": answers})
        where = model["model"] if model.get("step") is None else counted(model["step"], "update")
        figures = (
            f"{name} {of['metric']} {of[of['metric']]:.3f} (normalised {of['normalised']:+.2f})"
            for name, of in answers.items()
        )
        print(f"{where} ({scorer.method}): {', '.join(figures)}", flush=True)
        write_atomically(args.output_file, json.dumps({"settings": asdict(args), "results": results}, indent=2) + "\n")
    # Neither the results nor a run's own settings have this ending.
    parser.write_settings(Path(args.output_file).with_suffix(".run.yaml"))
    print(f"written to {args.output_file}")
