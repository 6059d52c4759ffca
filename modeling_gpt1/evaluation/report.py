"""Results of lm-evaluation-harness as a table and as curves over a run."""

import math
from typing import BinaryIO

from tokenization.wording import counted

FLATTERED = (
    "The tokenizer does not give back case and spaces, which the model therefore need not predict: "
    "perplexities per word and byte are lower than those of a model that predicts them."
)


def add_facts(results: dict, language_model) -> dict:
    """The results without their samples, but with what the harness leaves out: chance, `token_perplexity` of rolling
    tasks, WikiText's `word_perplexity_eol`, the split that was read, and whether the tokenizer flatters perplexities.
    """
    for task, samples in results.pop("samples", {}).items():
        config = results["configs"][task]
        counts = results["n-samples"][task]
        metrics = results["results"][task]
        counts["split"] = config.get("test_split") or config.get("validation_split")
        if config["output_type"] == "multiple_choice":
            counts["chance"] = _chance(samples, is_calibrated="acc_mutual_info,none" in metrics)
        elif config["output_type"] == "loglikelihood_rolling":
            metrics["token_perplexity,none"] = _token_perplexity(samples, language_model)
            if task == "wikitext":
                metrics["word_perplexity_eol,none"] = _perplexity_with_line_ends(samples)
    if language_model.num_sentences:
        results["sentence_prefix"] = language_model.sentence_prefix
    results["flattered"] = _loses_case_or_spaces(language_model)
    return results


def _chance(samples: list[dict], is_calibrated: bool) -> float:
    """The accuracy of guessing. In a calibrated task each answer is scored without its question, too."""
    chances = []
    for sample in samples:
        num_scored = len(sample["arguments"])
        num_answers = num_scored / 2 if is_calibrated else num_scored
        chances.append(1 / num_answers)
    return sum(chances) / len(chances)


def _token_perplexity(samples: list[dict], language_model) -> float:
    log_prob, num_tokens = 0.0, 0
    for sample in samples:
        text = sample["arguments"][0][0]
        log_prob += sample["resps"][0][0]
        num_tokens += len(language_model.tok_encode(text))
    return math.exp(-log_prob / num_tokens)


def _perplexity_with_line_ends(samples: list[dict]) -> float:
    """Perplexity of a detokenised text by the words of the original, each line end one more.

    So are the published perplexities of WikiText normalised: 245,569 tokens of WikiText-2's test part (Merity et al.
    2017, https://arxiv.org/abs/1609.07843; section 3.1 of GPT-2's paper). The harness's `word_perplexity` counts no
    line ends.
    """
    log_prob, num_words = 0.0, 0
    for sample in samples:
        page = sample["doc"]["page"]
        log_prob += sample["resps"][0][0]
        num_words += len(page.split()) + page.count("\n")
    return math.exp(-log_prob / num_words)


def _loses_case_or_spaces(language_model) -> bool:
    text = 'He said: "No  ÄB".'
    ids = language_model.tok_encode(text, add_special_tokens=False)
    return language_model.tokenizer.decode(ids, clean_up_tokenization_spaces=False).strip() != text


def figures(results: dict, task: str) -> dict[str, tuple[float, float | None]]:
    """Value and standard error of a task's or group's metrics: `acc`, or `acc,FILTER` of a filter that has a name.

    A filter of the harness finds the answer in a generated text; a task may have several.
    """
    of_task = results["results"].get(task) or results.get("groups", {}).get(task, {})
    found = {}
    for key, value in of_task.items():
        name, comma, filter_name = key.partition(",")
        if not comma or name.endswith("_stderr"):
            continue
        error = of_task.get(f"{name}_stderr,{filter_name}")
        if not isinstance(error, float):  # the harness writes "N/A"
            error = None
        found[key.removesuffix(",none")] = (float(value), error)
    return found


def shown_tasks(results: dict) -> list[str]:
    """What was asked for, with the tasks of a group in its place if it has no metric of its own."""
    shown = []
    for name in results["asked"]:
        shown += [name] if figures(results, name) else _leaves(results, name)
    return shown


def _leaves(results: dict, task: str) -> list[str]:
    """The tasks of a group, and of the groups in it; a task itself."""
    leaves = []
    for member in results.get("group_subtasks", {}).get(task, []):
        leaves += _leaves(results, member)
    return leaves or [task]


def chance_of(results: dict, task: str) -> float | None:
    """The accuracy of guessing: the mean over the tasks of a group."""
    chances = [results["n-samples"].get(leaf, {}).get("chance") for leaf in _leaves(results, task)]
    if None in chances:
        return None
    return sum(chances) / len(chances)


def table(results: dict, model: dict) -> str:
    """A Markdown table with a line per metric of each task of `shown_tasks`."""
    title = model["model"]
    if model.get("step") is not None:
        title += f", {counted(model['step'], 'update')}"
    lines = [f"**{title}**", "", "| task | split | rows | shots | metric | value | chance |", "|" + 7 * "---|"]
    for task in shown_tasks(results):
        lines += _lines_of(results, task)
    if results["flattered"] and any("perplexity" in line for line in lines):
        lines += ["", FLATTERED]
    if "sentence_prefix" in results:
        how = "behind the end-of-text token" if results["sentence_prefix"] else "from their second token on"
        lines += ["", f"Whole sentences are scored {how} (`--sentence_prefix`)."]
    return "\n".join(lines)


def _lines_of(results: dict, task: str) -> list[str]:
    """The lines of a task's metrics."""
    counts = results["n-samples"].get(task, {})
    rows = counts.get("effective", "")
    all_rows = counts.get("original", "")
    if rows != all_rows:
        rows = f"{rows} of {all_rows}"
    shots = results["n-shot"].get(task, "")
    chance = chance_of(results, task)
    lines = []
    for metric, (value, error) in figures(results, task).items():
        shown_value = f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"
        has_chance = chance is not None and metric.startswith("acc")
        shown_chance = f"{chance:.3f}" if has_chance else ""
        cells = [task, counts.get("split", ""), rows, shots, metric, shown_value, shown_chance]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def curves(rows: list[dict]) -> list[dict]:
    """For each task and its first metric, the values of all checkpoints over updates and tokens."""
    first_results = rows[0]["results"]
    found = []
    for task in shown_tasks(first_results):
        metric = next(iter(figures(first_results, task)))
        points = []
        for row in rows:
            value, error = figures(row["results"], task)[metric]
            points.append({"step": row["step"], "tokens": row["tokens"], "value": value, "stderr": error})
        found.append({"task": task, "metric": metric, "chance": chance_of(first_results, task), "points": points})
    return found


def draw(found: list[dict], file: BinaryIO) -> None:
    """One panel per task: the metric over the tokens seen, two standard errors, and chance."""
    from matplotlib.figure import Figure  # imported only to draw

    num_columns = min(3, len(found))
    num_rows = math.ceil(len(found) / num_columns)
    figure = Figure(figsize=(4 * num_columns, 2.8 * num_rows), layout="constrained")
    for number, curve in enumerate(found, start=1):
        _draw_curve(figure.add_subplot(num_rows, num_columns, number), curve)
    figure.savefig(file, dpi=150)


def _draw_curve(axes, curve: dict) -> None:
    points = curve["points"]
    if all(point["tokens"] for point in points):
        over, label = "tokens", "tokens seen"
    else:
        over, label = "step", "updates"
    errors = [point["stderr"] for point in points]
    two_errors = None if None in errors else [2 * error for error in errors]
    places = [point[over] for point in points]
    values = [point["value"] for point in points]
    axes.errorbar(places, values, yerr=two_errors, marker="o", ms=3, lw=1.2, capsize=2)
    if curve["chance"] is not None:
        axes.axhline(curve["chance"], color="grey", lw=0.8, ls="--")
    axes.set_title(f"{curve['task']}, {curve['metric']}", parse_math=False)
    axes.set_xlabel(label)
    axes.grid(alpha=0.3)
