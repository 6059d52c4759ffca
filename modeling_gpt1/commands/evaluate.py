r"""Evaluates causal language models with lm-evaluation-harness, on the hub's rows or on files at hand.

    gpt1 evaluate --model openai-community/openai-gpt --tasks piqa arc_easy "blimp_*" --max_eval_samples 200
    gpt1 evaluate --model out/books --data_dir data --tasks rte race paper_sst2 --num_fewshot 4 --calibrate
    gpt1 evaluate --checkpoints out/books --data_dir data --tasks blimp lambada_standard --output_dir out/curves

For a model the output folder gets results.json in the harness's own format, and table.md with chance and published
figures. For checkpoints it gets results-<updates>.json of each, curves.json and curves.png; tables are printed. The
settings are in evaluate_run.yaml. Needs the extra `eval`. See docs/evaluate.md.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoConfig
from transformers.hf_argparser import HfArg

from ..inference.heuristics import get_heuristic
from ..inference.scoring import CausalLMScorer, check_continues_text
from ..storage.reading import one_save
from ..storage.writing import write_atomically
from .arguments import parser_of, tokenizer_of
from .zero_shot import ScoringArguments, ZeroShotArguments, ask, load_questions

PAPER = "paper_"


@dataclass
class EvaluationArguments(ScoringArguments):
    """Which models, which tasks, and how."""

    tasks: list[str] = HfArg(kw_only=True, help="Of the harness, groups and patterns too; paper_<task> of zero-shot.")
    output_dir: str = HfArg(default="evaluation", help="Folder of the results.")
    num_fewshot: int | None = HfArg(default=None, help="Answered rows before each row. Default: the task's own.")
    sentence_prefix: bool = HfArg(default=False, help="Score the first token of whole sentences, too, as `hf` does.")
    seed: int = HfArg(default=1234, help="Of the rows that are shown or drawn.")
    trust_remote_code: bool = HfArg(default=False, help="Run the code that a model of the hub brings.")
    update_card: bool = HfArg(default=False, help="Write the results into the card of the model's folder.")

    def __post_init__(self):
        super().__post_init__()
        if self.num_fewshot is not None and self.num_fewshot < 0:
            raise ValueError(f"--num_fewshot is {self.num_fewshot}. It must be at least 0.")
        if self.update_card and (self.model is None or not Path(self.model, "README.md").is_file()):
            raise ValueError("--update_card needs a --model folder with a README.md, to which the results are added.")


def evaluate(model: str, tokenizer: str, tasks: list, names: list[str], arguments: EvaluationArguments) -> dict | None:
    """The harness's results of one model, with the paper's heuristics among them; None in other processes than 0.

    Args:
        tasks, names: of the harness, from `specify_tasks`.
    """
    from lm_eval import evaluator

    from ..evaluation.harness import SharedContextLM
    from ..evaluation.local_rows import all_tasks
    from ..evaluation.report import add_facts

    options = {name: getattr(arguments, name) for name in ("batch_tokens", "dtype", "device", "trust_remote_code")}
    # An answer without its question is scored from its first token on.
    options["sentence_prefix"] = arguments.sentence_prefix or arguments.calibrate
    with one_save(model):
        language_model = SharedContextLM(model, tokenizer=tokenizer, **options)
    results = {"results": {}, "n-shot": {}, "n-samples": {}}
    if names:
        try:
            evaluator.get_git_commit_hash = lambda: None  # outside a repository git complains on the screen
            results = evaluator.simple_evaluate(
                language_model,
                tasks=tasks,
                task_manager=all_tasks(),
                num_fewshot=arguments.num_fewshot,
                limit=arguments.max_eval_samples,
                bootstrap_iters=1000,
                fewshot_random_seed=arguments.seed,
            )
        except ValueError as error:
            if arguments.num_fewshot is None or "Sample larger than population" not in str(error):
                raise
            raise ValueError(
                f"--num_fewshot {arguments.num_fewshot} needs as many rows and one more to draw from, all different, "
                "and a task has fewer. Add a train split to --data_dir, or pass a smaller number."
            ) from error
    if results is None:
        return None
    from_paper = [task for task in arguments.tasks if task.startswith(PAPER)]
    scorer = CausalLMScorer(language_model.model, language_model.tokenizer, batch_tokens=arguments.batch_tokens)
    for task in from_paper:
        for key, value in ask_heuristic(task, scorer, arguments).items():
            results[key][task] = value
    results["asked"] = [*names, *from_paper]
    return add_facts(results, language_model, arguments.calibrate)


def ask_heuristic(task: str, scorer: CausalLMScorer, arguments: EvaluationArguments) -> dict:
    """One task of `gpt1 zero-shot`, as entries of the harness's results: few-shot and calibrated where it can be."""
    heuristic = get_heuristic(task.removeprefix(PAPER))
    number = 0 if heuristic.has_threshold else arguments.num_fewshot or 0
    same = {name: getattr(arguments, name) for name in ("data_dir", "max_eval_samples", "seed", "device")}
    calibrate = arguments.calibrate and bool(heuristic.content)
    options = ZeroShotArguments(model="", num_shots=number, calibrate=calibrate, **same)
    questions = load_questions(heuristic.task.name, options)
    answer = ask(scorer, questions, options)
    value, rows = answer[answer["metric"]], answer["num_rows"]
    error = (value * (1 - value) / max(rows - 1, 1)) ** 0.5 if answer["metric"] == "accuracy" else "N/A"
    metric = {"accuracy": "acc", "matthews_correlation": "mcc"}.get(answer["metric"], answer["metric"])
    about = {"effective": rows, "chance": answer["chance"], "split": answer["split"]}
    return {
        "results": {"alias": task, f"{metric},none": value, f"{metric}_stderr,none": error},
        "n-shot": number,
        "n-samples": {"original": questions.split_size, **about},
    }


ARGUMENTS = (EvaluationArguments,)


def main(arguments: list[str]) -> None:
    parser = parser_of("evaluate")
    (args,) = parser.read(arguments)
    models = args.models()
    if args.model is not None:
        config = AutoConfig.from_pretrained(args.model, trust_remote_code=args.trust_remote_code)
        check_continues_text(args.model, config)
    import lm_eval  # noqa: F401  # a missing package is reported before anything is read
    import matplotlib  # noqa: F401

    from ..evaluation.local_rows import specify_tasks
    from ..evaluation.report import curves, draw, table, update_card

    output, rows = Path(args.output_dir), []
    output.mkdir(parents=True, exist_ok=True)
    from_harness = [task for task in args.tasks if not task.startswith(PAPER)]
    specified, names = specify_tasks(from_harness, args.data_dir, args.calibrate)
    for model in models:
        tokenizer = tokenizer_of(model["model"], args.tokenizer_name, args.checkpoints)
        results = evaluate(model["model"], tokenizer, specified, names, args)
        if results is None:
            continue
        name = "results.json" if args.checkpoints is None else f"results-{model['step']}.json"
        write_atomically(output / name, json.dumps(results, indent=2, default=str) + "\n")
        rows.append({**model, "results": results})
        print(text := table(results, model), flush=True)
        if args.checkpoints is None:
            write_atomically(output / "table.md", text + "\n")
    if not rows:
        return
    if args.checkpoints is not None:
        found_curves = curves(rows)
        write_atomically(output / "curves.json", json.dumps(found_curves, indent=2) + "\n")
        draw(found_curves, output / "curves.png")
    if args.update_card:
        update_card(Path(args.model, "README.md"), rows[0]["results"])
    parser.write_settings(output / "evaluate_run.yaml")  # the run.yaml of a model's folder stays
    print(f"written to {output}")
