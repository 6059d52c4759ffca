r"""Evaluates causal language models with lm-evaluation-harness: its tasks, prompts, metrics and results file.

    gpt1 evaluate --model out/books --tasks lambada_openai piqa "blimp*" --output_dir out/evaluation

Any causal language model of transformers can be evaluated. A context with several answers is read once, which gives
the numbers of the harness's model `hf` in less time. Rows come from the hub, or from files in a folder with a folder
per task:

    gpt1 evaluate --model out/books --data_dir data --tasks storycloze_2016 race arc_easy --num_fewshot 4

`paper_sst2`, `paper_story_cloze`, … are the heuristics of `gpt1 zero-shot` in the same table. `--calibrate` compares
answers by how much the question makes them more probable: `acc_mutual_info` for tasks of the harness, contextual
calibration for those of the paper.

Curves over a pre-training run, with their standard errors:

    gpt1 evaluate --checkpoints out/books --data_dir data --tasks blimp lambada_standard --output_dir out/curves

For a model the output folder gets results.json in the harness's own format, and table.md with chance and published
figures. For checkpoints it gets results-<updates>.json of each, curves.json and curves.png; tables are printed. The
settings are in evaluate_run.yaml. Needs the extra `eval`: `pip install -e ".[eval]"`.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoConfig
from transformers.hf_argparser import HfArg

from ..inference.checkpoints import saved_checkpoints
from ..inference.devices import check_device, default_device
from ..inference.scoring import check_continues_text
from ..storage.writing import write_atomically
from .arguments import parser_of
from .models import TOKENIZER, check_model, tokenizer_of

PAPER = "paper_"


@dataclass
class EvaluationArguments:
    """Which models, which tasks, and how."""

    tasks: list[str] = HfArg(help="Tasks, groups or patterns of the harness, and paper_<task> of gpt1 zero-shot.")
    model: str | None = HfArg(
        default=None, help="A causal language model: folder or hub id. Instead of --checkpoints."
    )
    checkpoints: str | None = HfArg(
        default=None, help="Output folder of a run, each of whose checkpoints is evaluated."
    )
    tokenizer_name: str | None = HfArg(
        default=None, help="Tokenizer: folder or hub id. Default: that of the model or run."
    )
    output_dir: str = HfArg(default="evaluation", help="Folder of the results.")
    data_dir: str | None = HfArg(default=None, help="Folder with a folder per task. Default: the rows of the hub.")
    num_fewshot: int | None = HfArg(
        default=None, help="Answered rows before each row. Default: the task's own number."
    )
    calibrate: bool = HfArg(default=False, help="Also compare answers by what the question adds to them.")
    max_eval_samples: int | None = HfArg(
        default=None, help="Rows of each task: the first, or drawn with the seed for paper_<task>. Default: all."
    )
    seed: int = HfArg(default=1234, help="Of the rows that are shown or drawn.")
    batch_tokens: int = HfArg(default=2048, help="Tokens of a batch while scoring, with padding.")
    dtype: str = HfArg(default="float32", help="Of the weights: float32, bfloat16, float16 or auto.")
    device: str | None = HfArg(default=None, help="Default: an accelerator, if there is one, else cpu.")
    trust_remote_code: bool = HfArg(default=False, help="Run the code that a model of the hub brings.")
    update_card: bool = HfArg(default=False, help="Write the results into the card of the model's folder.")

    def __post_init__(self):
        if (self.model is None) == (self.checkpoints is None):
            given = "neither" if self.checkpoints is None else "both"
            raise ValueError(f"One of --model and --checkpoints is needed; there is {given}.")
        for flag in ("num_fewshot", "max_eval_samples", "batch_tokens"):
            value, least = getattr(self, flag), 0 if flag == "num_fewshot" else 1
            if value is not None and value < least:
                raise ValueError(f"--{flag} is {value}. It must be at least {least}.")
        if self.update_card and (self.model is None or not Path(self.model, "README.md").is_file()):
            raise ValueError("--update_card needs a --model folder with a README.md, to which the results are added.")
        if self.device is None:
            self.device = str(default_device())
        else:
            check_device(self.device)


def evaluate(model: str, tokenizer: str, tasks: list, names: list[str], arguments: EvaluationArguments) -> dict | None:
    """The harness's results of one model, with the paper's heuristics among them; None in other processes than 0.

    Args:
        tasks, names: of the harness, from `specify_tasks`.
    """
    from lm_eval.evaluator import simple_evaluate

    from ..evaluation.harness import SharedContextLM
    from ..evaluation.local_rows import all_tasks
    from ..evaluation.report import add_facts

    language_model = SharedContextLM(
        model,
        tokenizer=tokenizer,
        batch_tokens=arguments.batch_tokens,
        dtype=arguments.dtype,
        device=arguments.device,
        trust_remote_code=arguments.trust_remote_code,
    )
    from_paper = {}
    for task in arguments.tasks:
        if task.startswith(PAPER):
            add_heuristic(from_paper, task, language_model, arguments)
    results = {"results": {}, "n-shot": {}, "n-samples": {}}
    if names:
        try:
            results = simple_evaluate(
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
    for task, entries in from_paper.items():
        for key, entry in entries.items():
            results[key][task] = entry
    results["asked"] = [*names, *from_paper]
    return add_facts(results, language_model, arguments.calibrate)


def add_heuristic(found: dict, task: str, language_model, arguments: EvaluationArguments) -> None:
    """One task of `gpt1 zero-shot`, as entries of the harness's results: few-shot and calibrated where it can be."""
    from ..inference.heuristics import get_heuristic
    from ..inference.scoring import CausalLMScorer
    from .zero_shot import ZeroShotArguments, ask, load_questions

    heuristic = get_heuristic(task.removeprefix(PAPER))
    number = 0 if heuristic.has_threshold else arguments.num_fewshot or 0
    options = ZeroShotArguments(
        model="",
        tasks=[task],
        data_dir=arguments.data_dir,
        max_eval_samples=arguments.max_eval_samples,
        num_shots=number,
        calibrate=arguments.calibrate and bool(heuristic.content),
        seed=arguments.seed,
        device=arguments.device,
    )
    scorer = CausalLMScorer(language_model.model, language_model.tokenizer, batch_tokens=arguments.batch_tokens)
    questions = load_questions(heuristic.task.name, options)
    answer = ask(scorer, questions, options)
    value, rows = answer[answer["metric"]], answer["num_rows"]
    error = (value * (1 - value) / max(rows - 1, 1)) ** 0.5 if answer["metric"] == "accuracy" else "N/A"
    metric = {"accuracy": "acc", "matthews_correlation": "mcc"}.get(answer["metric"], answer["metric"])
    found[task] = {
        "results": {"alias": task, f"{metric},none": value, f"{metric}_stderr,none": error},
        "n-shot": number,
        "n-samples": {
            "original": questions.split_size,
            "effective": rows,
            "chance": answer["chance"],
            "split": answer["split"],
        },
    }


ARGUMENTS = (EvaluationArguments,)


def main(arguments: list[str]) -> None:
    parser = parser_of("evaluate")
    (args,) = parser.read(arguments)
    check_model("--model", args.model)
    check_model("--tokenizer_name", args.tokenizer_name, TOKENIZER)
    if args.model is not None:
        config = AutoConfig.from_pretrained(args.model, trust_remote_code=args.trust_remote_code)
        check_continues_text(args.model, config)
    import lm_eval  # noqa: F401  # a missing package is reported before anything is read

    if args.checkpoints is not None:
        import matplotlib  # noqa: F401

    from ..evaluation.local_rows import specify_tasks
    from ..evaluation.report import curves, draw, table, update_card

    models = [{"model": args.model}] if args.checkpoints is None else saved_checkpoints(args.checkpoints)
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
