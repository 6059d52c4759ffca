"""What a model card says of a training run: data, results, settings, versions.

Metadata as in https://huggingface.co/docs/hub/model-cards.
"""

import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, model_info
from huggingface_hub.errors import HFValidationError, HTTPError

from ..storage.writing import write_atomically
from .model_kinds import is_task_model, without_adapter

PACKAGE = "gpt1-hf"
HYPER_PARAMETERS = (
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "weight_decay",
    "max_grad_norm",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "optim",
    "seed",
)
MOST_RECORDS = 20
TIMINGS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
# Of an evaluation's record in the log: how many blocks were evaluated, if not every evaluation takes all. No metric.
NUM_EVALUATED = "eval_blocks"
# Names of `evaluate` where ours are shorter.
METRIC_TYPES = {"pearson": "pearsonr"}


@dataclass
class CardArguments:
    """The arguments of [`transformers.Trainer.create_model_card`], and the evaluated split."""

    language: str | list[str] | None = "en"
    license: str | None = None
    tags: str | list[str] | None = None
    model_name: str | None = None
    finetuned_from: str | None = None
    tasks: str | list[str] | None = None
    dataset_tags: str | list[str] | None = None
    dataset: str | list[str] | None = None
    dataset_args: str | list[str] | None = None
    dataset_split: str | None = None
    """Name of the evaluated split, if there is only one."""


class Run:
    """A training run, as a card tells of it.

    Args:
        trainer ([`transformers.Trainer`]): after training, if there was one.
        arguments ([`CardArguments`]): what the caller says of it.
    """

    def __init__(self, trainer, arguments: CardArguments):
        self.trainer, self.arguments = trainer, arguments
        self.model = without_adapter(trainer.accelerator.unwrap_model(trainer.model))
        repo_id = getattr(trainer, "hub_model_id", None) or trainer.args.hub_model_id
        self.name = arguments.model_name or repo_id or Path(trainer.args.output_dir).resolve().name
        self.repo_id = repo_id or self.name
        self.names = as_list(arguments.dataset) or as_list(arguments.dataset_tags)
        self.hub_names = as_list(arguments.dataset_tags)
        self.configurations = as_list(arguments.dataset_args)
        split_names = _split_names(trainer.eval_dataset)
        self.results = last_evaluation(trainer.state.log_history, split_names, arguments.dataset_split)

    def facts(self) -> dict[str, Any]:
        """The values of the template that are of the run."""
        data = data_of(self.trainer, self.model, self.names, self.hub_names, self.configurations)
        return {
            "data": cells(data),
            "results": cells(self.results),
            "hyper_parameters": cells(hyper_parameters_of(self.trainer, self.model)),
            "history": history_table(self.trainer.state.log_history),
            "versions": ", ".join(f"{package} {version}" for package, version in versions().items()),
        }

    def metadata(self, pipeline_tag: str | None, base_model: str | None) -> dict[str, Any]:
        """Fields of the card's metadata.

        Args:
            pipeline_tag (`str`, *optional*): the hub's name of the model's task, if the caller names none.
            base_model (`str`, *optional*): hub id of the model that this one was made from.
        """
        tag = as_list(self.arguments.tasks)[0] if self.arguments.tasks else pipeline_tag
        index = evaluation_results(self.results, tag, self.names, self.hub_names, self.configurations) if tag else []
        return {
            "language": self.arguments.language,
            "license": self.arguments.license or license_of(base_model),
            "base_model": base_model,
            "datasets": self.hub_names or None,
            "metrics": metric_types(self.results) or None,
            "pipeline_tag": tag,
            "eval_results": index or None,
            "model_name": self.name if index else None,  # names the entry of the model-index
            "library_name": "transformers",
        }


def write_card(trainer, card: ModelCard) -> Path:
    """Writes `README.md` in the trainer's output folder; returns its path."""
    path = Path(trainer.args.output_dir, "README.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, str(card))
    return path


def license_of(base_model: str | None) -> str | None:
    """The licence of a model on the hub; `None` where the hub does not say, or cannot be reached."""
    if base_model is None:
        return None
    try:
        tags = model_info(base_model, timeout=10).tags or []
    except (HTTPError, OSError, HFValidationError):
        return None
    return next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), None)


def data_of(trainer, model, names: list[str], hub_names: list[str], configurations: list[str]) -> dict[str, str]:
    """The data for training and evaluation, by rows of the card's first table."""
    facts = {}
    if names:
        links = [f"https://huggingface.co/datasets/{hub_name}" for hub_name in hub_names]
        named = [f"[{name}]({link})" for name, link in zip(names, links, strict=False)]
        facts["data"] = ", ".join([*named, *names[len(named) :]])
        facts["data"] += f" ({', '.join(configurations)})" if configurations else ""
    rows = {"training": trainer.train_dataset, **_named_datasets(trainer.eval_dataset)}
    counts = [f"{len(dataset):,} for {use}" for use, dataset in rows.items() if hasattr(dataset, "__len__")]
    if counts:
        facts["examples" if is_task_model(model) else "blocks"] = ", ".join(counts)
    if trainer.state.num_input_tokens_seen:
        facts["tokens seen in training"] = f"{trainer.state.num_input_tokens_seen:,}"
    return facts


def hyper_parameters_of(trainer, model) -> dict[str, Any]:
    """The run's settings: those of the paper's table, and how long it ran."""
    args, state = trainer.args, trainer.state
    values = {name: _plain(getattr(args, name)) for name in HYPER_PARAMETERS}
    if is_task_model(model):
        values["lm_coef (λ)"] = model.config.lm_coef if hasattr(model, "lm_head") else 0
    return {
        **values,
        "mixed_precision": trainer.accelerator.mixed_precision,
        "processes": args.world_size,
        "batch size per update": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "updates": state.global_step,
        "epochs": round(state.epoch or 0, 2),
    }


def last_evaluation(
    log_history: list[dict[str, Any]], split_names: list[str] = (), split: str | None = None
) -> list[dict[str, Any]]:
    """Metrics of the last evaluated step, on all its data sets, without prefix and timings.

    Args:
        log_history (`list[dict]`): of the trainer's state.
        split_names (`list[str]`): names of the data sets, with which their metrics' names begin.
        split (`str`, *optional*): name of the data set if there is only one.

    Returns:
        `list[dict]`: `name`, `value` and `split` of each.
    """
    records = [record for record in log_history if any(key.startswith("eval_") for key in record)]
    metrics: dict[str, float] = {}
    for record in records:
        if record.get("step") == records[-1].get("step"):
            metrics |= metrics_of(record)
    results = []
    metrics.pop(NUM_EVALUATED, None)
    for key, value in metrics.items():
        name = key.removeprefix("eval_")
        of_split = next((known for known in split_names if name.startswith(f"{known}_")), None)
        name = name.removeprefix(f"{of_split}_")
        results.append({"name": name, "value": value, "split": of_split or split})
    return results


def metrics_of(record: dict[str, Any]) -> dict[str, float]:
    """The metrics of an evaluation in a record of the log, without its timings."""
    numbers = {key: value for key, value in record.items() if isinstance(value, (int, float))}
    return {key: value for key, value in numbers.items() if key.startswith("eval_") and not key.endswith(TIMINGS)}


def metric_types(results: list[dict[str, Any]]) -> list[str]:
    """The hub's names of the metrics, without losses."""
    names = [METRIC_TYPES.get(result["name"], result["name"]) for result in results]
    return list(dict.fromkeys(name for name in names if not name.endswith("loss")))


def evaluation_results(
    results: list[dict[str, Any]],
    task_type: str,
    names: list[str],
    hub_names: list[str],
    configurations: list[str],
) -> list[EvalResult]:
    """The metrics as entries of the card's `model-index`; none without the name of a data set."""
    if not names:
        return []
    return [
        EvalResult(
            task_type=task_type,
            dataset_type=(hub_names or [re.sub(r"[^\w.-]+", "-", names[0]).strip("-")])[0],
            dataset_name=names[0],
            dataset_config=(configurations or [None])[0],
            dataset_split=result["split"],
            metric_type=METRIC_TYPES.get(result["name"], result["name"]),
            metric_name=result["name"],
            metric_value=round(result["value"], 4),
        )
        for result in results
        if metric_types([result])
    ]


def history_table(log_history: list[dict[str, Any]]) -> list[list[str]]:
    """Losses and metrics over the run: a row of names, then one per evaluated step (or the last logged one)."""
    steps: dict[int, dict[str, Any]] = {}
    training: dict[str, Any] = {}
    for record in log_history:
        losses = {key: value for key, value in record.items() if key in ("loss", "task_loss", "lm_loss", "perplexity")}
        metrics = metrics_of(record)
        training = losses or training
        if metrics:
            row = {"epoch": record.get("epoch"), **training, **steps.get(record["step"], {}), **metrics}
            steps[record["step"]] = row
    if not steps:
        logged = [record for record in log_history if "loss" in record][-1:]
        steps = {record["step"]: {"epoch": record.get("epoch"), **training} for record in logged}
    steps = _thinned(steps)
    columns = list(dict.fromkeys(key for row in steps.values() for key in row))
    if not columns:
        return []
    rows = [[str(step), *(_number(row.get(key)) for key in columns)] for step, row in steps.items()]
    return [["step", *columns], *rows]


def versions() -> dict[str, str]:
    """Versions of what the run used."""
    packages = {}
    for name in (PACKAGE, "transformers", "torch", "tokenizers", "datasets"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # a checkout that was not installed
            continue
    return {**packages, "Python": platform.python_version()}


def _split_names(eval_dataset: Any) -> list[str]:
    """Names of the data sets, longest first, so that a name is found before one that it begins with."""
    return sorted(eval_dataset, key=len, reverse=True) if isinstance(eval_dataset, Mapping) else []


def _named_datasets(eval_dataset: Any) -> dict[str, Any]:
    return dict(eval_dataset) if isinstance(eval_dataset, Mapping) else {"evaluation": eval_dataset}


def _thinned(steps: dict[int, dict]) -> dict[int, dict]:
    """At most `MOST_RECORDS` steps, evenly spaced, including the last one."""
    kept = list(steps)
    if len(kept) > MOST_RECORDS:
        kept = [kept[-1 - index * len(kept) // MOST_RECORDS] for index in reversed(range(MOST_RECORDS))]
    return {step: steps[step] for step in kept}


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def cells(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: cells(item) for key, item in value.items()}
    return [cells(item) for item in value] if isinstance(value, list) else cell(value)


def cell(value: Any) -> Any:
    """Text that cannot break out of a table's cell."""
    return re.sub(r"\s+", " ", value).replace("|", "\\|") if isinstance(value, str) else value


def as_list(value: str | list[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str)) if not hasattr(value, "value") else value.value
