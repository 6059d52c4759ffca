"""The model card: `hub_card.md` filled from a training run, or from what a model knows of itself.

Metadata as in https://huggingface.co/docs/hub/model-cards.
"""

import json
import platform
import re
from collections.abc import Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from tokenization.rows.traversals import TRAVERSALS

from ..configuration_gpt1 import has_choices, is_regression
from ..storage.writing import write_atomically
from .model_kinds import is_of_gpt1, is_task_model, without_adapter

TEMPLATE_NAME = "hub_card.md"
# By the objective of another family: the hub's name of the task, if it has one.
PIPELINE_TAGS = {"causal": "text-generation", "masked": "fill-mask", "denoising": None}
HYPER_PARAMETERS = "learning_rate lr_scheduler_type warmup_steps per_device_train_batch_size".split()
HYPER_PARAMETERS += "gradient_accumulation_steps weight_decay max_grad_norm adam_beta1 adam_beta2 adam_epsilon".split()
HYPER_PARAMETERS += ["optim", "seed"]
MOST_CLASSES = 20
TIMINGS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")


def read_template() -> str:
    """Text of the template: from the installed package, or from the top folder of the checkout."""
    installed = resources.files("modeling_gpt1") / TEMPLATE_NAME
    checkout = Path(__file__).resolve().parents[2] / TEMPLATE_NAME
    return (installed if installed.is_file() else checkout).read_text(encoding="utf-8")


# ---- Cards


def write_model_card(
    trainer,
    *,
    language: str | list[str] | None = None,
    license: str | None = None,
    tags: str | list[str] | None = None,
    model_name: str | None = None,
    finetuned_from: str | None = None,
    tasks: str | list[str] | None = None,
    dataset_tags: str | list[str] | None = None,
    dataset: str | list[str] | None = None,
    dataset_args: str | list[str] | None = None,
    dataset_split: str | None = None,
    objective: str | None = None,
    has_sentences: bool = False,
) -> None:
    """Writes the card of a run to `README.md` in the trainer's output folder.

    It has facts of model, data and training, and a `model-index` of the last evaluation. The arguments
    are those of [`transformers.Trainer.create_model_card`], and `dataset_split`, the name of the evaluated split if
    there is only one. A pre-training of another family has an `objective`, which may be of two segments, too.
    """
    whole = trainer.accelerator.unwrap_model(trainer.model)
    model = without_adapter(whole)
    repo_id = getattr(trainer, "hub_model_id", None) or trainer.args.hub_model_id
    name = model_name or repo_id or Path(trainer.args.output_dir).resolve().name
    names, hub_names, configurations = map(as_list, (dataset or dataset_tags, dataset_tags, dataset_args))
    splits = list(trainer.eval_dataset) if isinstance(trainer.eval_dataset, Mapping) else []
    results = last_evaluation(trainer.state.log_history, splits, dataset_split)
    tag = (as_list(tasks) or [pipeline_tag_of(model, objective)])[0]
    index = evaluation_results(results, tag, names, hub_names, configurations) if tag else []
    card = model_card(
        model,
        repo_id or name,
        model is not whole,
        license,
        model_name=name,
        language=language,
        base_model=finetuned_from or base_model_of(model),
        task=tag,
        tags=[*as_list(tags), *as_list(getattr(model, "model_tags", None))],
        datasets=hub_names or None,
        metrics=metric_types(results) or None,
        eval_results=index or None,
        results=[{**result, "split": result["split"] and cell(result["split"])} for result in results],
        hyper_parameters={**hyper_parameters_of(trainer, model), **adapter_of(whole)},
        data=data_of(trainer, model, names, hub_names, configurations),
        objective=objective,
        has_sentences=has_sentences,
        versions=versions(),
        tokenizer=type(trainer.processing_class).__name__,
        mask=getattr(trainer.processing_class, "special_tokens_map", {}).get("mask_token"),
        longest=getattr(trainer.data_collator, "max_length", None),
    )
    write_atomically(Path(trainer.args.output_dir, "README.md"), str(card))


def model_card(model, repo_id: str, adapter: bool = False, license: str | None = None, **facts: Any) -> ModelCard:
    """The card of a model, or of an adapter for it: what it is, how it is used, and what is told of its training run.

    Args:
        facts: `language` and other metadata, and what the template shows, such as `data`, `results`,
            `hyper_parameters` and `limits`.
    """
    config, objective = model.config, facts.get("objective")
    known = {"config": config, "pipeline_tag": pipeline_tag_of(model, objective), "is_adapter": adapter}
    known |= {"is_of_gpt1": is_of_gpt1(model), "is_finetuned": is_task_model(model), "data": {}, "tokenizer": ""}
    facts = {
        **known,
        "model_name": repo_id,
        # An Auto class would read the configuration of an adapter's base on the hub.
        "repo_id": f"snapshot_download({json.dumps(repo_id)})" if adapter else json.dumps(repo_id),
        "base_model": base_model_of(model),
        "class_name": type(model).__name__,
        "auto_class": "AutoModelForSeq2SeqLM" if objective == "denoising" else "AutoModel",
        "num_parameters": f"{model.num_parameters():,}",
        "is_pair": getattr(config, "traversal", None) in ("entailment", "similarity"),
        "is_regression": is_task_model(model) and is_regression(config),
        "lm_coef": config.lm_coef if hasattr(model, "task_head") and hasattr(model, "lm_head") else 0,
        "sequences": TRAVERSALS[config.traversal].form if hasattr(model, "task_head") else None,
        "classes": classes_of(model),
        **facts,
    }
    card_data = {name: facts.get(name) for name in ("language", "base_model", "datasets", "metrics", "eval_results")}
    card_data |= {"license": license, "pipeline_tag": facts.get("task", facts["pipeline_tag"])}
    card_data["library_name"] = "peft" if adapter else "transformers"
    card_data["model_name"] = facts["model_name"] if card_data["eval_results"] else None  # names their entry
    tags = dict.fromkeys(["gpt1" if is_of_gpt1(model) else config.model_type, *facts.get("tags", ())])
    template = "---\n{{ card_data }}\n---\n\n" + read_template()
    return ModelCard.from_template(ModelCardData(**card_data, tags=list(tags)), template_str=template, **facts)


# ---- Facts of the model


def pipeline_tag_of(model, objective: str | None = None) -> str | None:
    """The hub's name of the task that the model does; another family's by the objective of its pre-training."""
    if objective is not None:
        return PIPELINE_TAGS[objective]
    if not is_task_model(model):
        return "text-generation" if hasattr(model, "lm_head") else "feature-extraction"
    return "multiple-choice" if has_choices(model.config.traversal) else "text-classification"


def classes_of(model) -> str | None:
    """The names of the classes, if the task has any."""
    config = model.config
    if not is_task_model(model) or is_regression(config) or has_choices(config.traversal):
        return None
    names = [re.sub(r"[\[<]", r"\\\g<0>", cell(str(config.id2label[index]))) for index in range(config.num_labels)]
    more = len(names) - MOST_CLASSES
    return ", ".join(names[:MOST_CLASSES]) + (f" and {more} more" if more > 0 else "")


def base_model_of(model) -> str | None:
    """Hub id of the model that this one was made from; None for a local folder, which means nothing to others."""
    name = getattr(model.config, "_name_or_path", None) or getattr(model, "name_or_path", None)
    return name if name and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) and not Path(name).exists() else None


# ---- Facts of the run


def data_of(trainer, model, names: list[str], hub_names: list[str], configurations: list[str]) -> dict[str, str]:
    """The data for training and evaluation, by rows of the card's first table."""
    facts = {}
    if names:
        links = [f"https://huggingface.co/datasets/{hub_name}" for hub_name in hub_names]
        named = [f"[{name}]({link})" for name, link in zip(names, links, strict=False)]
        facts["data"] = cell(", ".join([*named, *names[len(named) :]]))
        facts["data"] += f" ({', '.join(configurations)})" if configurations else ""
    evaluated = trainer.eval_dataset
    evaluated = evaluated if isinstance(evaluated, Mapping) else {"evaluation": evaluated}
    rows = {"training": trainer.train_dataset, **evaluated}
    if counts := [f"{len(one):,} for {cell(use)}" for use, one in rows.items() if hasattr(one, "__len__")]:
        facts["examples" if is_task_model(model) else "blocks"] = ", ".join(counts)
    if trainer.state.num_input_tokens_seen:
        facts["tokens seen in training"] = f"{trainer.state.num_input_tokens_seen:,}"
    if words := [record["words_seen"] for record in trainer.state.log_history if "words_seen" in record]:
        facts["words read in training"] = f"{words[-1]:,}"
    return facts


def hyper_parameters_of(trainer, model) -> dict[str, Any]:
    """The run's settings: those of the paper's table, and how long it ran."""
    args, state = trainer.args, trainer.state
    values = {name: getattr(args, name) for name in HYPER_PARAMETERS}
    values = {name: getattr(value, "value", value) for name, value in values.items()}  # of enumerations
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


def adapter_of(model) -> dict[str, Any]:
    """The settings of an adapter of PEFT; nothing for a whole model."""
    if without_adapter(model) is model:
        return {}
    config, (trained, _) = model.active_peft_config, model.get_nb_trainable_parameters()
    settings = {name: getattr(config, name) for name in ("r", "lora_alpha", "lora_dropout") if hasattr(config, name)}
    return {"adapter": config.peft_type.value, **settings, "trained parameters": f"{trained:,}"}


def last_evaluation(
    log_history: list[dict[str, Any]], split_names: list[str] = (), split: str | None = None
) -> list[dict[str, Any]]:
    """Name, value and split of each metric of the last evaluated step; of several data sets by their names."""
    found = [
        (record["step"], key.removeprefix("eval_"), value)
        for record in log_history
        for key, value in record.items()
        if key.startswith("eval_") and isinstance(value, (int, float)) and not key.endswith(TIMINGS)
    ]
    last = {name: value for step, name, value in found if step == found[-1][0]}
    results = []
    for name, value in last.items():
        # The longest: a name is found before one that it begins with.
        of_split = max((known for known in split_names if name.startswith(f"{known}_")), key=len, default=None)
        results.append({"name": name.removeprefix(f"{of_split}_"), "value": value, "split": of_split or split})
    return results


def metric_types(results: list[dict[str, Any]]) -> list[str]:
    """The hub's names of the metrics, without losses."""
    names = [{"pearson": "pearsonr"}.get(result["name"], result["name"]) for result in results]
    return list(dict.fromkeys(name for name in names if not name.endswith("loss")))


def evaluation_results(
    results: list[dict[str, Any]], task_type: str, names: list[str], hub_names: list[str], configurations: list[str]
) -> list[EvalResult]:
    """The metrics as entries of the card's `model-index`; none without the name of a data set."""
    return [
        EvalResult(
            task_type=task_type,
            dataset_type=(hub_names or [re.sub(r"[^\w.-]+", "-", names[0]).strip("-")])[0],
            dataset_name=names[0],
            dataset_config=(configurations or [None])[0],
            dataset_split=result["split"],
            metric_type=metric_type,
            metric_name=result["name"],
            metric_value=round(result["value"], 4),
        )
        for result in results
        for metric_type in (metric_types([result]) if names else [])
    ]


def versions() -> str:
    """Versions of what the run used; a checkout that was not installed has none of its own."""
    names = ("gpt1-hf", "transformers", "torch", "tokenizers", "datasets")
    found = [f"{name} {one.version}" for name in names for one in [*metadata.distributions(name=name)][:1]]
    return ", ".join([*found, f"Python {platform.python_version()}"])


def cell(text: str) -> str:
    """The text as it stands in a table's cell."""
    return " ".join(text.split()).replace("|", r"\|")


def as_list(value: str | list[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)
