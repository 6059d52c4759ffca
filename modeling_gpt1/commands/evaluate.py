r"""Evaluates causal language models with lm-evaluation-harness, on the hub's rows or on files at hand.

    gpt1 evaluate --model openai-community/openai-gpt --tasks piqa arc_easy "blimp_*" --max_eval_samples 200
    gpt1 evaluate --model out/books --data_dir data --tasks rte race --num_fewshot 4 --calibrate
    gpt1 evaluate --checkpoints out/books --data_dir data --tasks blimp lambada_standard --output_dir out/curves
    gpt1 evaluate --model out/babylm --data_dir evaluation_data/full_eval --tasks babylm babylm_aoa

For a model the output folder gets results.json in the harness's own format, and table.md with standard errors
and chance; for checkpoints results-<updates>.json of each, curves.json and curves.png. The settings stand in
evaluate_run.yaml, of checkpoints in evaluate_run-checkpoints.yaml. Needs the extra `eval`. See docs/evaluate.md and
docs/babylm.md.
"""

import json
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transformers.hf_argparser import HfArg

from tokenization.errors import UserError

from ..evaluation import babylm, report
from ..inference.checkpoints import saved_revisions
from ..inference.scoring import CausalLMScorer, MaskedLMScorer, Scorer, scorer_class_of
from ..storage.locking import locked
from ..storage.reading import one_save
from ..storage.writing import atomic_file, check_folder, write_atomically
from .arguments import parser_of
from .models import at_revision, opening
from .zero_shot import ScoringArguments

BABYLM = "babylm"
LEAST_REVISIONS = 3  # that an age of acquisition can be read from


@dataclass
class EvaluationArguments(ScoringArguments):
    """Which models, which tasks, and how."""

    tasks: list[str] = HfArg(
        kw_only=True, help="Tasks, groups or patterns of lm-evaluation-harness; or babylm, babylm_<task>."
    )
    backend: Literal["causal", "mlm", "mntp"] | None = HfArg(
        default=None, help="How babylm tasks score a sentence: causal, mlm or mntp. Default: by the architecture."
    )
    output_dir: str = HfArg(default="evaluation", help="Folder for the results.")
    num_fewshot: int | None = HfArg(default=None, help="Few-shot examples before each row. Default: the task's own.")
    sentence_prefix: bool = HfArg(
        default=False, help="Score the first token of whole sentences, too, as the harness's model hf does."
    )
    seed: int = HfArg(default=1234, help="Seed for sampling few-shot examples.")


ARGUMENTS = (EvaluationArguments,)


def main(arguments: list[str]) -> None:
    parser = parser_of("evaluate")
    (args,) = parser.read(arguments)
    run = EvaluationRun(args)
    run.check_packages()
    run.check_models()
    run.check_output_folder()
    with run.only_writer():
        run.find_challenge()
        run.check_predictions()
        run.specify_tasks()
        for model, name in zip(run.models, run.names, strict=True):
            run.evaluate(model, name)
        if run.rows:
            run.write_curves()
            # The run.yaml of a model's folder stays.
            parser.write_settings(run.output / run.settings_name)
            print(f"written to {run.output}")


class EvaluationRun:
    """The models of a run of `gpt1 evaluate`, its tasks, and the results of those that are evaluated."""

    def __init__(self, args: EvaluationArguments) -> None:
        self.args = args
        self.given_model = args.model or args.checkpoints
        self.models = args.models()
        self.output = Path(args.output_dir)
        self.revision = None if args.revision == "main" else args.revision  # `main` is the model itself
        if args.checkpoints is None:
            name = f"-{self.revision}" if self.revision else ""
            self.settings_name = f"evaluate_run{name}.yaml"
            self.names = [name]  # in file names
        else:
            self.settings_name = "evaluate_run-checkpoints.yaml"
            self.names = [f"-{model['step']}" for model in self.models]
        self.tasks_of_challenge = [task for task in args.tasks if task.startswith(BABYLM)]
        self.tasks_of_harness = [task for task in args.tasks if not task.startswith(BABYLM)]
        self.rows: list[dict] = []  # each model with its results

    # ---- Checks before a model is opened

    def check_packages(self) -> None:
        """Imports what may be missing, before anything is read."""
        import lm_eval  # noqa: F401
        import matplotlib  # noqa: F401

    def check_models(self) -> None:
        """Refuses models that the harness could not score, or would score as if they were causal."""
        for model in self.models if self.tasks_of_harness else ():
            scorer = scorer_class_of(self.args.open_config(model["model"]))
            if scorer is not CausalLMScorer:
                kind = "a masked language model" if scorer is MaskedLMScorer else "an encoder-decoder"
                raise UserError(
                    f"{model['model']} is {kind}, but {self.tasks_of_harness[0]} needs a causal language model. Pass "
                    "such a model, or use `gpt1 zero-shot`, which scores others, too."
                )

    def check_output_folder(self) -> None:
        files = [f"results{name}.json" for name in self.names]
        if self.args.checkpoints is None:
            files += [f"table{name}.md" for name in self.names]
        else:
            files += ["curves.json", "curves.png"]
        self.check_new([*files, self.settings_name])
        check_folder(self.output)

    def check_new(self, files: Iterable[str | Path]) -> None:
        """Refuses files that are in the output folder: what an earlier evaluation or a user wrote stays."""
        for file in files:
            if (self.output / file).exists():
                raise UserError(f"--output_dir {self.output} has {file} already. Pass another folder.")

    def only_writer(self) -> AbstractContextManager[None]:
        """A context in which no other evaluation writes the same results."""
        if os.environ.get("RANK", "0") != "0":  # the first process holds it for all
            return nullcontext()
        file = f"results{self.names[0]}.json"
        return locked(
            self.output / f"_{file}.lock",
            f"--output_dir {self.output} is where another evaluation writes {file}. Pass another folder.",
        )

    def find_challenge(self) -> None:
        """Finds the rows of the challenge's tasks, and checks that no flag is given which they have no use for."""
        self.challenge = babylm.find_tasks(self.tasks_of_challenge, self.args.data_dir)
        for name in ("sentence_prefix", "calibrate", "num_fewshot"):
            if self.challenge and getattr(self.args, name):
                raise UserError(
                    f"--{name} has no use for the tasks {BABYLM}_… of the challenge. Leave it out, or leave them out."
                )

    def check_predictions(self) -> None:
        """Refuses predictions for the challenge that are there, such as those of its own pipeline."""
        if self.challenge:
            for model in self.models:
                self.check_new(self.predictions_files(model["model"]).values())

    def predictions_files(self, model: str) -> dict[str, Path]:
        """Where the predictions of each of the challenge's tasks are written, in the output folder."""
        revision = self.revision if self.args.checkpoints is None else Path(model).name
        backend = self.backend_of(model)
        return {
            task: babylm.predictions_file(self.given_model, revision, backend, task, path)
            for task, path in self.challenge.items()
        }

    def backend_of(self, model: str) -> str:
        """How the challenge's sentences are scored: as --backend says, or by the architecture."""
        if self.args.backend is not None:
            return self.args.backend
        is_masked = scorer_class_of(self.args.open_config(model)) is MaskedLMScorer
        return "mlm" if is_masked else "causal"

    def specify_tasks(self) -> None:
        """Finds the tasks of the harness, and checks that they have rows for --num_fewshot examples."""
        self.specified, self.task_names = [], []
        if not self.tasks_of_harness:
            return  # reading the harness's definitions takes seconds
        from ..evaluation.local_rows import specify_tasks

        found = specify_tasks(self.tasks_of_harness, self.args.data_dir, self.args.calibrate)
        self.specified, self.task_names = found
        if self.args.num_fewshot:
            for task in self.specified:
                self.check_examples(task)

    def check_examples(self, task) -> None:
        sampler = getattr(task, "sampler", None)  # a name or a group has none
        if sampler is None or not sampler.df:
            return
        most = len(sampler.df)
        draws_from = f"{most} rows"
        if task.fewshot_cfg.split == task.config.test_split:
            most -= 1
            draws_from += ", one of which is the row that is evaluated"
        if self.args.num_fewshot > most:
            raise UserError(
                f"--num_fewshot is {self.args.num_fewshot}, but task {task.config.task!r} draws from {draws_from}. "
                f"Pass {most} at most."
            )

    # ---- Evaluation

    def evaluate(self, model: dict, name: str) -> None:
        """Evaluates a model and writes its results."""
        results = {"results": {}, "n-shot": {}, "n-samples": {}, "asked": [], "flattered": False}
        if self.tasks_of_harness:
            results = self.evaluate_with_harness(model["model"])
        if results is None:  # in other processes than the first
            return
        if self.challenge:
            self.evaluate_challenge(results, model["model"])
        write_atomically(self.output / f"results{name}.json", json.dumps(results, indent=2, default=str) + "\n")
        self.rows.append({**model, "results": results})
        table = report.table(results, model)
        print(table, flush=True)
        if self.args.checkpoints is None:
            write_atomically(self.output / f"table{name}.md", table + "\n")

    def evaluate_with_harness(self, model: str) -> dict | None:
        """The harness's results of a model; None in other processes than the first."""
        from lm_eval import evaluator

        from ..evaluation.harness import SharedContextLM
        from ..evaluation.local_rows import all_tasks

        args = self.args
        with one_save(model), opening(f"--model {model}"):
            language_model = SharedContextLM(
                model,
                tokenizer=args.tokenizer_name or model,
                batch_tokens=args.batch_tokens,
                dtype=args.dtype,
                device=args.device,
                trust_remote_code=args.trust_remote_code,
                # An answer without its question is scored from its first token on.
                sentence_prefix=args.sentence_prefix or args.calibrate,
            )
        silence_harness()
        results = evaluator.simple_evaluate(
            language_model,
            tasks=self.specified,
            num_fewshot=args.num_fewshot,
            limit=args.max_eval_samples,
            bootstrap_iters=1000,
            fewshot_random_seed=args.seed,
            task_manager=all_tasks(),
        )
        if results is None:
            return None
        results["asked"] = self.task_names
        return report.add_facts(results, language_model)

    def evaluate_challenge(self, results: dict, model: str) -> None:
        """Adds the tasks of the challenge to the results, and writes the predictions under the run's name."""
        scorer = self.load_for_challenge(model)
        # All before the first file: what a failure left behind would stand in the way of the next evaluation.
        answers = {task: self.answer_of(scorer, task, path) for task, path in self.challenge.items()}
        files = self.predictions_files(model)
        for task, answer in answers.items():
            name = f"{BABYLM}_{task}"
            metrics = {f"{metric},none": value for metric, value in answer.metrics.items()}
            results["results"][name] = {**metrics, "groups": answer.groups}
            results["n-samples"][name] = {
                "original": answer.num_rows,
                "effective": answer.num_rows,
                "chance": answer.chance,
                "split": self.challenge[task].name,
            }
            results["n-shot"][name] = 0
            results["asked"].append(name)
            write_atomically(self.output / files[task], json.dumps(answer.predictions) + "\n")

    def answer_of(self, scorer: Scorer, task: str, path: Path) -> babylm.Answer:
        """What a model makes of a task of the challenge."""
        try:
            if task == babylm.AGES:
                return self.evaluate_ages(path)
            return babylm.evaluate_task(scorer, task, path, self.args.max_eval_samples)
        except (LookupError, TypeError) as error:  # of rows that lack a field, or have another type there
            if isinstance(error, KeyError):
                fault = f"has a row without {error}"
            else:
                fault = f"cannot be read ({error})"
            raise UserError(f"{path} {fault}. Pass the challenge's rows of {BABYLM}_{task} as --data_dir.") from error

    def load_for_challenge(self, model: str) -> Scorer:
        """Opens a model to score the challenge's sentences, in the way of --backend."""
        backend = self.args.backend
        if backend is None:
            scorer = self.args.load_scorer(model)
        elif backend == "causal":
            scorer = self.args.load_scorer(model, CausalLMScorer)
        else:
            options = {"is_shifted": True} if backend == "mntp" else {}
            scorer = self.args.load_scorer(model, MaskedLMScorer, **options)
        if not isinstance(scorer, CausalLMScorer | MaskedLMScorer):
            raise UserError(
                f"{model} is an encoder-decoder, which the tasks {BABYLM}_… do not evaluate here. Run the challenge's "
                "own pipeline."
            )
        return scorer

    def evaluate_ages(self, path: Path) -> babylm.Answer:
        """The ages at which words are learnt, over the checkpoints that a run saved by words."""
        is_whole_run = self.args.checkpoints is None and self.revision is None
        revisions = saved_revisions(self.given_model) if is_whole_run else {}
        if len(revisions) < LEAST_REVISIONS:
            raise UserError(
                f"{BABYLM}_aoa compares at least {LEAST_REVISIONS} checkpoints chck_… of --model, but "
                f"{self.given_model} has {len(revisions)}. Train with --save_at_words babylm, and pass the run or its "
                "repository without --revision or --checkpoints."
            )
        rows: list[dict] = []
        for name, words in revisions.items():
            scorer = self.load_for_challenge(at_revision(self.given_model, name))
            surprisals = babylm.word_surprisals(scorer, path, self.args.max_eval_samples)
            rows += [{"step": name, "word_count": words, **row} for row in surprisals]
        children = path.with_name(babylm.CHILDREN_FILE)
        metrics = babylm.age_correlation(rows, children) if children.is_file() else {}
        if not metrics:
            print(f"{children} is not there, so the surprisals are written without their correlation.")
        about = {
            "model_name": self.given_model,
            "use_bos_only": False,
            "total_steps": len(revisions),
            "completed_steps": len(revisions),
        }
        return babylm.Answer(metrics, {}, len(rows), None, {"metadata": about, "results": rows})

    # ---- Results of all models

    def write_curves(self) -> None:
        """For the checkpoints of a run, writes and draws each metric over the updates."""
        if self.args.checkpoints is None:
            return
        curves = report.curves(self.rows)
        write_atomically(self.output / "curves.json", json.dumps(curves, indent=2) + "\n")
        with atomic_file(self.output / "curves.png") as file:
            report.draw(curves, file.buffer)


def silence_harness() -> None:
    """Keeps off the screen what the harness would print beside the scores."""
    from lm_eval import api, evaluator

    evaluator.get_git_commit_hash = lambda: None  # outside a repository git complains
    for module in (api.model, api.task):
        module.tqdm = lambda rows, **_: rows  # one bar is enough, that of the scores
