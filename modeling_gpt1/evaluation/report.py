"""Results of lm-evaluation-harness as a table and as curves over a run."""

import math
from typing import BinaryIO

from tokenization.wording import counted

FLATTERED = "The tokenizer does not give back case and spaces, which the model therefore need not predict: "
FLATTERED += "perplexities per word and byte are lower than those of a model that predicts them."


def add_facts(results: dict, language_model) -> dict:
    """The results without their samples, but with what the harness leaves out: chance, `token_perplexity` of rolling
    tasks, the split that was read, and whether the tokenizer flatters perplexities.
    """
    for task, samples in results.pop("samples", {}).items():
        config, counts = results["configs"][task], results["n-samples"][task]
        if config["output_type"] == "multiple_choice":
            times = 1 + ("acc_mutual_info,none" in results["results"][task])  # each answer without its question, too
            counts["chance"] = sum(times / len(sample["arguments"]) for sample in samples) / len(samples)
        if config["output_type"] == "loglikelihood_rolling":
            texts = [sample["arguments"][0][0] for sample in samples]
            total = sum(sample["resps"][0][0] for sample in samples)
            tokens = sum(len(language_model.tok_encode(text)) for text in texts)
            results["results"][task]["token_perplexity,none"] = math.exp(-total / tokens)
        counts["split"] = config.get("test_split") or config.get("validation_split")
    if language_model.num_sentences:
        results["sentence_prefix"] = language_model.sentence_prefix
    text = 'He said: "No  ÄB".'
    ids = language_model.tok_encode(text, add_special_tokens=False)
    results["flattered"] = language_model.tokenizer.decode(ids, clean_up_tokenization_spaces=False).strip() != text
    return results


def figures(results: dict, task: str) -> dict[str, tuple[float, float | None]]:
    """Value and standard error of a task's or group's metrics: `acc`, or `acc,FILTER` of a filter that has a name.

    A filter of the harness finds the answer in a generated text; a task may have several.
    """
    of_task = results["results"].get(task) or results.get("groups", {}).get(task, {})
    found = {}
    for key, value in of_task.items():
        name, comma, kind = key.partition(",")
        if comma and not name.endswith("_stderr"):
            error = of_task.get(f"{name}_stderr,{kind}")
            found[key.removesuffix(",none")] = (float(value), error if isinstance(error, float) else None)
    return found


def shown_tasks(results: dict) -> list[str]:
    """What was asked for, with the tasks of a group in its place if it has no metric of its own."""
    return [task for key in results["asked"] for task in ([key] if figures(results, key) else _leaves(results, key))]


def _leaves(results: dict, task: str) -> list[str]:
    members = results.get("group_subtasks", {}).get(task, [])
    return [leaf for member in members for leaf in _leaves(results, member)] or [task]


def chance_of(results: dict, task: str) -> float | None:
    """The accuracy of guessing: the mean over the tasks of a group."""
    leaves = _leaves(results, task)
    chances = [results["n-samples"].get(leaf, {}).get("chance") for leaf in leaves]
    return None if None in chances else sum(chances) / len(chances)


def table(results: dict, model: dict) -> str:
    """A Markdown table with a line per metric of each task of `shown_tasks`."""
    title = model["model"] if model.get("step") is None else f"{model['model']}, {counted(model['step'], 'update')}"
    lines = [f"**{title}**", "", "| task | split | rows | shots | metric | value | chance |", "|" + 7 * "---|"]
    for task in shown_tasks(results):
        counts, chance = results["n-samples"].get(task, {}), chance_of(results, task)
        rows, most = counts.get("effective", ""), counts.get("original", "")
        rows = rows if rows == most else f"{rows} of {most}"
        for metric, (value, error) in figures(results, task).items():
            guess = "" if chance is None or not metric.startswith("acc") else f"{chance:.3f}"
            shown = f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"
            about = (task, counts.get("split", ""), rows, results["n-shot"].get(task, ""))
            lines.append(f"| {' | '.join(map(str, about))} | {metric} | {shown} | {guess} |")
    if results["flattered"] and any("perplexity" in line for line in lines):
        lines += ["", FLATTERED]
    if "sentence_prefix" in results:
        how = "behind the end-of-text token" if results["sentence_prefix"] else "from their second token on"
        lines += ["", f"Whole sentences are scored {how} (`--sentence_prefix`)."]
    return "\n".join(lines)


def curves(rows: list[dict]) -> list[dict]:
    """For each task and its first metric, the values of all checkpoints over updates and tokens."""
    found = []
    for task in shown_tasks(rows[0]["results"]):
        metric = next(iter(figures(rows[0]["results"], task)))
        points = [
            {"step": row["step"], "tokens": row["tokens"], "value": value, "stderr": error}
            for row in rows
            for value, error in [figures(row["results"], task)[metric]]
        ]
        found.append({"task": task, "metric": metric, "chance": chance_of(rows[0]["results"], task), "points": points})
    return found


def draw(found: list[dict], file: BinaryIO) -> None:
    """One panel per task: the metric over the tokens seen, two standard errors, and chance."""
    from matplotlib.figure import Figure  # imported only to draw

    columns = min(3, len(found))
    size = -(-len(found) // columns)
    figure = Figure(figsize=(4 * columns, 2.8 * size), layout="constrained")
    for number, curve in enumerate(found, start=1):
        axes, points = figure.add_subplot(size, columns, number), curve["points"]
        over = "tokens" if all(point["tokens"] for point in points) else "step"
        values, errors = ([point[name] for point in points] for name in ("value", "stderr"))
        doubled = None if None in errors else [2 * error for error in errors]
        axes.errorbar([point[over] for point in points], values, yerr=doubled, marker="o", ms=3, lw=1.2, capsize=2)
        if curve["chance"] is not None:
            axes.axhline(curve["chance"], color="grey", lw=0.8, ls="--")
        axes.set_title(f"{curve['task']}, {curve['metric']}", parse_math=False)
        axes.set_xlabel({"tokens": "tokens seen", "step": "updates"}[over])
        axes.grid(alpha=0.3)
    figure.savefig(file, dpi=150)
