r"""Evaluates causal language models with lm-evaluation-harness, on the hub's rows or on files at hand.

    gpt1 evaluate --model openai-community/openai-gpt --tasks piqa arc_easy "blimp_*" --max_eval_samples 200
    gpt1 evaluate --model out/books --data_dir data --tasks rte race --num_fewshot 4 --calibrate
    gpt1 evaluate --checkpoints out/books --data_dir data --tasks blimp lambada_standard --output_dir out/curves
    gpt1 evaluate --model out/babylm --data_dir evaluation_data/full_eval --tasks babylm babylm_aoa

For a model the output folder gets results.json in the harness's own format, and table.md with standard errors
and chance; for checkpoints results-<updates>.json of each, curves.json and curves.png. Needs the extra `eval`. See
docs/evaluate.md and docs/babylm.md.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transformers.hf_argparser import HfArg

from tokenization.errors import UserError

from ..evaluation import babylm, report
from ..inference.checkpoints import saved_revisions
from ..inference.scoring import CausalLMScorer, MaskedLMScorer, Scorer
from ..storage.reading import one_save
from ..storage.writing import atomic_file, write_atomically
from .arguments import at_revision, parser_of
from .zero_shot import ScoringArguments

BABYLM = "babylm"


@dataclass
class EvaluationArguments(ScoringArguments):
    """Which models, which tasks, and how."""

    tasks: list[str] = HfArg(kw_only=True, help="Of the harness, groups and patterns too; babylm, babylm_<task>.")
    backend: Literal["causal", "mlm", "mntp"] | None = HfArg(default=None, help="How babylm tasks ask a model.")
    output_dir: str = HfArg(default="evaluation", help="Folder of the results.")
    num_fewshot: int | None = HfArg(default=None, help="Answered rows before each row. Default: the task's own.")
    sentence_prefix: bool = HfArg(default=False, help="Score the first token of whole sentences, too, as `hf` does.")
    seed: int = HfArg(default=1234, help="Of the rows that are shown or drawn.")


def evaluate(model: str, tasks: list, names: list[str], arguments: EvaluationArguments) -> dict | None:
    """The harness's results of one model on what `specify_tasks` gives; None in other processes than 0."""
    from lm_eval import api, evaluator

    from ..evaluation.harness import SharedContextLM
    from ..evaluation.local_rows import all_tasks

    options = {name: getattr(arguments, name) for name in ("batch_tokens", "dtype", "device", "trust_remote_code")}
    # An answer without its question is scored from its first token on.
    options["sentence_prefix"] = arguments.sentence_prefix or arguments.calibrate
    with one_save(model):
        language_model = SharedContextLM(model, tokenizer=arguments.tokenizer_name or model, **options)
    evaluator.get_git_commit_hash = lambda: None  # outside a repository git complains on the screen
    for module in (api.model, api.task):
        module.tqdm = lambda rows, **_: rows  # one bar is enough, that of the scores
    options = {"num_fewshot": arguments.num_fewshot, "limit": arguments.max_eval_samples, "bootstrap_iters": 1000}
    options |= {"fewshot_random_seed": arguments.seed, "task_manager": all_tasks()}
    results = evaluator.simple_evaluate(language_model, tasks=tasks, **options)
    if results is None:
        return None
    results["asked"] = names
    return report.add_facts(results, language_model)


def ask_challenge(results: dict, places: dict[str, Path], model: dict, name: str, args: EvaluationArguments) -> None:
    """Adds tasks of the challenge to the harness's results, and writes the predictions under the model's name."""
    scorer = load_for_challenge(model["model"], args)
    for task, path in places.items():
        is_ages, rows = task == babylm.AGES, args.max_eval_samples
        try:
            answer = ask_ages(path, name, args) if is_ages else babylm.ask_task(scorer, task, path, rows)
        except (LookupError, TypeError) as error:
            what = f"lacks {error} of" if isinstance(error, KeyError) else f"cannot be read ({error}) as rows of"
            raise UserError(f"{path} {what} {BABYLM}_{task}. Pass the challenge's rows.") from error
        of_task = {f"{metric},none": value for metric, value in answer.metrics.items()}
        results["results"][f"{BABYLM}_{task}"] = {**of_task, "groups": answer.groups}
        about = {"original": answer.num_rows, "effective": answer.num_rows, "chance": answer.chance}
        results["n-samples"][f"{BABYLM}_{task}"] = {**about, "split": path.name}
        results["n-shot"][f"{BABYLM}_{task}"] = 0
        results["asked"].append(f"{BABYLM}_{task}")
        revision = args.revision if args.checkpoints is None else Path(model["model"]).name
        backend = babylm.backend_of(scorer)
        babylm.write_predictions(Path(args.output_dir), name, revision, backend, answer.place, answer.predictions)


def load_for_challenge(model: str, arguments: EvaluationArguments) -> Scorer:
    scorer_class = {"causal": CausalLMScorer, None: None}.get(arguments.backend, MaskedLMScorer)
    options = {"is_shifted": True} if arguments.backend == "mntp" else {}
    scorer = arguments.load_scorer(model, scorer_class, **options)
    if not isinstance(scorer, CausalLMScorer | MaskedLMScorer):
        raise UserError(f"babylm tasks do not ask {model}, an encoder-decoder. Run the challenge's own pipeline.")
    return scorer


def ask_ages(path: Path, model: str, arguments: EvaluationArguments):
    """The ages at which words are learnt, over the checkpoints that a run saved by words."""
    revisions = saved_revisions(model) if arguments.checkpoints is None and arguments.revision is None else {}
    if len(revisions) < 3:
        raise UserError(
            f"{BABYLM}_aoa compares at least 3 checkpoints chck_… of --model, but {model} has {len(revisions)}. Train "
            "with --save_at_words babylm, and pass the run or its repository without --revision or --checkpoints."
        )
    rows: list[dict] = []
    for name, words in revisions.items():
        scorer = load_for_challenge(at_revision(model, name), arguments)
        of_words = babylm.word_surprisals(scorer, path, arguments.max_eval_samples)
        rows += [{"step": name, "word_count": words, **row} for row in of_words]
    children = path.with_name(babylm.CHILDREN_FILE)
    metrics = babylm.age_correlation(rows, children) if children.is_file() else {}
    if not metrics:
        print(f"{children} is not there, so the surprisals are written without their correlation.")
    about = {"model_name": model, "use_bos_only": False}
    about |= {"total_steps": len(revisions), "completed_steps": len(revisions)}
    return babylm.Answer(metrics, {}, len(rows), None, {"metadata": about, "results": rows}, "AoA_word")


def main(arguments: list[str]) -> None:
    parser = parser_of("evaluate")
    (args,) = parser.read(arguments)
    run, by_harness = args.model or args.checkpoints, [one for one in args.tasks if not one.startswith(BABYLM)]
    models = args.models()
    import lm_eval  # noqa: F401  # a missing package is reported before anything is read
    import matplotlib  # noqa: F401

    from ..evaluation.local_rows import specify_tasks

    output, rows, of_run = Path(args.output_dir), [], f"-{args.revision}" if args.revision else ""
    ends = [of_run] if args.checkpoints is None else [f"-{model['step']}" for model in models]
    if found := [name for of in ends if (output / (name := f"results{of}.json")).exists()]:
        raise UserError(f"--output_dir {output} has {found[0]} already. Pass another folder.")
    output.mkdir(parents=True, exist_ok=True)
    places = babylm.find_tasks([task for task in args.tasks if task.startswith(BABYLM)], args.data_dir)
    of_harness = [name for name in ("sentence_prefix", "calibrate", "num_fewshot") if getattr(args, name)]
    if places and of_harness:
        raise UserError(f"--{of_harness[0]} is not for the challenge's tasks {BABYLM}_…. Leave it out, or them.")
    # Reading the harness's definitions takes seconds.
    specified, names = specify_tasks(by_harness, args.data_dir, args.calibrate) if by_harness else ([], [])
    for task in specified:
        shots, drawn_from = args.num_fewshot, getattr(getattr(task, "sampler", None), "df", None)
        if shots and drawn_from and shots + (task.fewshot_cfg.split == task.config.test_split) > len(drawn_from):
            found = f"draws from {len(drawn_from)} in all, which may have the row that is asked"
            raise UserError(f"--num_fewshot is {shots}, but task {task.config.task!r} {found}.")
    for model, end in zip(models, ends, strict=True):
        results: dict | None = {"results": {}, "n-shot": {}, "n-samples": {}, "asked": [], "flattered": False}
        if by_harness:
            results = evaluate(model["model"], specified, names, args)
        if results is None:
            continue
        if places:
            ask_challenge(results, places, model, run, args)
        write_atomically(output / f"results{end}.json", json.dumps(results, indent=2, default=str) + "\n")
        rows.append({**model, "results": results})
        print(text := report.table(results, model), flush=True)
        if args.checkpoints is None:
            write_atomically(output / f"table{end}.md", text + "\n")
    if not rows:
        return
    if args.checkpoints is not None:
        found_curves = report.curves(rows)
        write_atomically(output / "curves.json", json.dumps(found_curves, indent=2) + "\n")
        with atomic_file(output / "curves.png") as file:
            report.draw(found_curves, file.buffer)
    parser.write_settings(output / f"evaluate_run{of_run}.yaml")  # the run.yaml of a model's folder stays
    print(f"written to {output}")
