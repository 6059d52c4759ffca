"""The model card: `hub_card.md` filled from a training run, or from what a model knows of itself.

Metadata as in https://huggingface.co/docs/hub/model-cards.
"""

import json
import platform
import re
import tempfile
from collections.abc import Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData, hf_hub_download, model_info
from huggingface_hub.errors import (
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import validate_repo_id

from ..storage.writing import write_atomically
from .other_families import HEADS, is_of_gpt1, is_regression, sequences_of

TEMPLATE_NAME = "hub_card.md"
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
MOST_CLASSES, MOST_RECORDS = 20, 20
TIMINGS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
# Names of `evaluate` where ours are shorter.
# Of an evaluation's record in the log: how many blocks were evaluated, if not every evaluation takes all. No metric.
NUM_EVALUATED = "eval_blocks"
METRIC_TYPES = {"pearson": "pearsonr"}
# The beginning of the card that transformers writes where there is none.
EMPTY_CARD = "This is the model card of a 🤗 transformers model that has been pushed on the Hub"

SEQUENCES = {
    "classification": "`[s] text [e]`",
    "entailment": "`[s] premise [$] hypothesis [e]`",
    "similarity": "`[s] a [$] b [e]` and `[s] b [$] a [e]`",
    "multiple_choice": "`[s] context question [$] answer [e]`, one per answer",
}
USAGE = {
    "text-generation": """\
from transformers import pipeline

continue_text = pipeline("text-generation", {name}{trust})
print(continue_text("it was ", max_new_tokens=20))  # the space: what follows is a word of its own""",
    "text-classification": """\
from transformers import pipeline

classify = pipeline("text-classification", {name}{trust})
print(classify({example}))""",
    "multiple-choice": """\
from transformers import AutoModelForMultipleChoice, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({name}{trust})
model = AutoModelForMultipleChoice.from_pretrained({name}{trust})
answers = ["the answer to judge", "another answer"]
batch = tokenizer([["the context and the question"] * 2, answers], padding=True, return_tensors="pt")
print(model(**{{key: value[None] for key, value in batch.items()}}).logits.softmax(-1).tolist())""",
    "feature-extraction": """\
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({name}{trust})
model = AutoModel.from_pretrained({name}{trust})
print(model(**tokenizer("the text to read", return_tensors="pt")).last_hidden_state.shape)""",
}
ONE_TEXT = '"the text to judge"'
TWO_TEXTS = '{"text": "the first text", "text_pair": "the second text"}'


def read_template() -> str:
    """Text of the template: from the installed package, or from the top folder of the checkout.

    Raises:
        FileNotFoundError: neither place has it.
    """
    installed = resources.files("modeling_gpt1") / TEMPLATE_NAME
    checkout = Path(__file__).resolve().parents[2] / TEMPLATE_NAME
    for place in (installed, checkout):
        if place.is_file():
            return place.read_text(encoding="utf-8")
    raise FileNotFoundError(
        f"The model card's template {TEMPLATE_NAME} is neither in the installed package nor at {checkout}. "
        "Install gpt1-hf again."
    )


# ---- Cards


def write_model_card(trainer, **card_data: Any) -> Path:
    """Renders the template with the run's facts to `README.md` in the trainer's output folder; returns its path."""
    path = Path(trainer.args.output_dir) / "README.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, str(run_card(trainer, **card_data)))
    return path


def run_card(
    trainer,
    language: str | list[str] | None = "en",
    license: str | None = None,
    tags: str | list[str] | None = None,
    model_name: str | None = None,
    finetuned_from: str | None = None,
    tasks: str | list[str] | None = None,
    dataset_tags: str | list[str] | None = None,
    dataset: str | list[str] | None = None,
    dataset_args: str | list[str] | None = None,
    dataset_split: str | None = None,
) -> ModelCard:
    """The card of a run: facts of the model, of the data, of the training, and a `model-index` of the last evaluation.

    Args:
        trainer ([`transformers.Trainer`]): after training, if there was one.
        dataset_split (`str`, *optional*): name of the evaluated split, if there is only one.
        others: as in [`transformers.Trainer.create_model_card`].
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    model = without_adapter(model)
    repo_id = getattr(trainer, "hub_model_id", None) or trainer.args.hub_model_id
    name = model_name or repo_id or Path(trainer.args.output_dir).resolve().name
    results = last_evaluation(trainer.state.log_history, _split_names(trainer.eval_dataset), dataset_split)
    base_model = finetuned_from or base_model_of(model)
    names, hub_names = _as_list(dataset) or _as_list(dataset_tags), _as_list(dataset_tags)
    facts = {
        "data": data_of(trainer, model, names, hub_names, _as_list(dataset_args)),
        "results": results,
        "has_splits": any(result["split"] for result in results),
        "hyper_parameters": hyper_parameters_of(trainer, model),
        "objective": objective_of(model),
        "history": history_table(trainer.state.log_history),
        "versions": ", ".join(f"{package} {version}" for package, version in versions().items()),
    }
    if not is_of_gpt1(model):
        facts |= sequences_of(trainer.data_collator)
    pipeline_tag = _as_list(tasks)[0] if tasks else pipeline_tag_of(model)
    data = {
        "language": language,
        "license": license or license_of(base_model),
        "base_model": base_model,
        "datasets": hub_names or None,
        "metrics": metric_types(results) or None,
        "pipeline_tag": pipeline_tag,
        "eval_results": evaluation_results(results, pipeline_tag, names, hub_names, _as_list(dataset_args)) or None,
    }
    tags = [*_as_list(tags), *(_as_list(getattr(model, "model_tags", None)))]
    return _render(model, name, repo_id or name, tags, data, facts)


def model_card(model, repo_id: str, tags: str | list[str] | None = None) -> ModelCard:
    """The card of a model alone: what it is and how it is used, without the run that trained it."""
    data = {"language": "en", "base_model": base_model_of(model), "pipeline_tag": pipeline_tag_of(model)}
    return _render(model, repo_id, repo_id, _as_list(tags), data, {"data": {}, "results": []})


def card_for_push(
    model, repo_id: str, tags: list[str] | None, token: bool | str | None, revision: str | None = None
) -> ModelCard:
    """The repository's card with the tags added; `model_card` if it has none, or only transformers' empty one.

    A branch `revision` that does not exist yet starts from main; `token` is as in [`huggingface_hub.hf_hub_download`].

    Raises:
        OSError: the hub did not say whether there is a card; it may have one that somebody wrote.
    """
    text = download_card(repo_id, token, revision)
    if text is None:
        return model_card(model, repo_id, tags)
    card = ModelCard(text)
    known = _as_list(card.data.get("tags"))
    if EMPTY_CARD in card.text:
        return model_card(model, repo_id, [*known, *_as_list(tags)])
    card.data.tags = list(dict.fromkeys([*known, *_as_list(tags)])) or None
    return card


def download_card(repo_id: str, token: bool | str | None, revision: str | None = None) -> str | None:
    """Text of the repository's card; `None` only where the hub answers that there is none."""
    # An empty cache: the user's own may hold an older card, which would be returned if the hub does not answer.
    with tempfile.TemporaryDirectory(prefix="gpt1-card-") as cache:
        try:
            path = hf_hub_download(repo_id, "README.md", revision=revision, token=token, cache_dir=cache)
            return Path(path).read_text(encoding="utf-8")
        except RevisionNotFoundError:
            if revision is None:  # a repository without any commit
                return None
        except (RemoteEntryNotFoundError, RepositoryNotFoundError):
            return None
        except LocalEntryNotFoundError as error:  # not an answer: a timeout, or a fault of the hub
            raise (error.__cause__ or error) from None
    return download_card(repo_id, token)


def _render(model, name: str, repo_id: str, tags: list[str], data: dict, facts: dict) -> ModelCard:
    pipeline_tag = pipeline_tag_of(model)
    tags = list(dict.fromkeys(["gpt1" if is_of_gpt1(model) else model.config.model_type, *tags]))
    index_name = name if data.get("eval_results") else None  # names the entry of the model-index
    data = ModelCardData(**data, library_name="transformers", model_name=index_name, tags=tags)
    facts = {
        "model_name": name,
        "class_name": type(model).__name__,
        "num_parameters": f"{model.num_parameters():,}",
        "config": model.config,
        "base_model": data.base_model,
        "is_of_gpt1": is_of_gpt1(model),
        "is_finetuned": is_task_model(model),
        "is_generative": pipeline_tag == "text-generation",
        "task": task_of(model),
        "traversal": SEQUENCES.get(model.config.traversal) if hasattr(model, "task_head") else None,
        "reads_both_orders": getattr(model.config, "both_orders", False),
        "classes": classes_of(model),
        "usage": usage_of(model, repo_id),
        "usage_without_package": usage_of(model, repo_id, trust=", trust_remote_code=True"),
        **facts,
    }
    facts |= {key: _cells(facts[key]) for key in ("data", "results", "hyper_parameters") if key in facts}
    template = "---\n{{ card_data }}\n---\n\n" + read_template()
    return ModelCard.from_template(data, template_str=template, **facts)


# ---- Facts of the model


def without_adapter(model):
    """The model inside a PEFT adapter, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def is_task_model(model) -> bool:
    """Whether the model has a task head."""
    return hasattr(model, "task_head") or type(model).__name__.endswith(HEADS)


def pipeline_tag_of(model) -> str:
    """The hub's name of the task that the model does."""
    if not is_task_model(model):
        return "text-generation" if hasattr(model, "lm_head") else "feature-extraction"
    return "multiple-choice" if model.config.traversal == "multiple_choice" else "text-classification"


def task_of(model) -> str:
    """The task in words."""
    if not is_task_model(model):
        return {"text-generation": "language modelling", "feature-extraction": "text representation"}[
            pipeline_tag_of(model)
        ]
    if is_regression(model.config):
        return f"{model.config.traversal} (regression: one number)"
    return model.config.traversal.replace("_", " ")


def classes_of(model) -> str | None:
    """The names of the classes, if the task has any."""
    config = model.config
    if not is_task_model(model) or is_regression(config) or config.traversal == "multiple_choice":
        return None
    names = [_cell(config.id2label[index]) for index in range(min(config.num_labels, MOST_CLASSES))]
    more = config.num_labels - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def base_model_of(model) -> str | None:
    """Hub id of the model that this one was made from; None for a local folder, which means nothing to others."""
    name = getattr(model.config, "_name_or_path", None) or getattr(model, "name_or_path", None)
    if not name or Path(name).exists():
        return None
    try:
        validate_repo_id(name)
    except HFValidationError:  # a folder that is gone
        return None
    return name if name.count("/") <= 1 else None


def license_of(base_model: str | None) -> str | None:
    """The licence of a model on the hub; `None` where the hub does not say, or cannot be reached."""
    if base_model is None:
        return None
    try:
        tags = model_info(base_model, timeout=10).tags or []
    except (HTTPError, OSError, HFValidationError):
        return None
    return next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), None)


def usage_of(model, repo_id: str, trust: str = "") -> str:
    """Python code that opens the model; `trust` is the extra argument for use without this package."""
    is_pair = model.config.traversal in ("entailment", "similarity")
    values = {"name": json.dumps(repo_id), "trust": trust, "example": TWO_TEXTS if is_pair else ONE_TEXT}
    return USAGE[pipeline_tag_of(model)].format(**values)


def objective_of(model) -> str:
    """The loss that was minimised, in the paper's terms."""
    if not is_task_model(model):
        return "Minimised: L1, the mean −log P of each token given those before it."
    if type(model).__name__.endswith("DoubleHeadsModel") and model.config.lm_coef > 0:
        return (
            f"Minimised: L3 = L2 + λ · L1 with λ = {model.config.lm_coef}, where L2 is the task's loss and L1 the "
            "auxiliary language-modelling loss."
        )
    return "Minimised: L2, the task's loss, without the auxiliary language-modelling loss (λ = 0)."


# ---- Facts of the run


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


def _cells(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cells(item) for key, item in value.items()}
    return [_cells(item) for item in value] if isinstance(value, list) else _cell(value)


def _cell(value: Any) -> Any:
    """Text that cannot break out of a table's cell."""
    return re.sub(r"\s+", " ", value).replace("|", "\\|") if isinstance(value, str) else value


def _as_list(value: str | list[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str)) if not hasattr(value, "value") else value.value
