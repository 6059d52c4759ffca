"""The model card: `hub_card.md` filled from the facts of a training run."""

import json
import platform
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

TEMPLATE_NAME = "hub_card.md"
HYPER_PARAMETERS = (
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "num_train_epochs",
    "max_steps",
    "weight_decay",
    "max_grad_norm",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "optim",
    "seed",
    "bf16",
)


def read_template() -> str:
    """Text of the template: from the installed package, or from the top of the checkout that it runs in.

    Raises:
        FileNotFoundError: neither place has it.
    """
    installed = resources.files(__package__) / TEMPLATE_NAME
    checkout = Path(__file__).resolve().parent.parent / TEMPLATE_NAME
    for place in (installed, checkout):
        if place.is_file():
            return place.read_text(encoding="utf-8")
    raise FileNotFoundError(
        f"The model card's template {TEMPLATE_NAME} is neither in the installed package nor at {checkout}. "
        "Install gpt1-hf again."
    )


def write_model_card(trainer, **card_data: Any) -> Path:
    """Render the template with the run's facts into `README.md` of the trainer's output folder; returns its path."""
    path = Path(trainer.args.output_dir) / "README.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_model_card(trainer, **card_data), encoding="utf-8")
    return path


def render_model_card(
    trainer,
    language: str | None = "en",
    license: str | None = None,
    tags: str | list[str] | None = None,
    model_name: str | None = None,
    finetuned_from: str | None = None,
    tasks: str | list[str] | None = None,
    dataset_tags: str | list[str] | None = None,
    dataset: str | list[str] | None = None,
    dataset_args: str | list[str] | None = None,
) -> str:
    """The card as text: YAML metadata with a `model-index` of the last evaluation, then the filled template."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    model = model.get_base_model() if hasattr(model, "get_base_model") else model  # of PEFT
    model_name = model_name or trainer.args.hub_model_id or Path(trainer.args.output_dir).resolve().name
    metrics = last_evaluation(trainer.state.log_history)
    pipeline_tag = _as_list(tasks)[0] if tasks else pipeline_tag_of(model)
    data = ModelCardData(
        language=language,
        license=license,
        library_name="transformers",
        pipeline_tag=pipeline_tag,
        tags=["gpt1", *_as_list(tags)],
        base_model=finetuned_from,
        datasets=_as_list(dataset_tags) or None,
        model_name=model_name,
        eval_results=evaluation_results(metrics, pipeline_tag, dataset_tags, dataset, dataset_args) or None,
    )
    facts = {
        "model_name": model_name,
        "class_name": type(model).__name__,
        "auto_class": auto_class_of(model),
        "num_parameters": f"{model.num_parameters():,}",
        "config": model.config,
        "objective": objective_of(model),
        "finetuned_from": finetuned_from,
        "dataset_name": ", ".join(_as_list(dataset) or _as_list(dataset_tags)),
        "hyper_parameters": {name: _plain(getattr(trainer.args, name)) for name in HYPER_PARAMETERS},
        "metrics": metrics,
        "num_processes": trainer.args.world_size,
        "versions": versions(),
    }
    return str(ModelCard.from_template(data, template_str="---\n{{ card_data }}\n---\n\n" + read_template(), **facts))


def last_evaluation(log_history: list[dict[str, float]]) -> dict[str, float]:
    """Metrics of the last step that was evaluated, on all its data sets, without the prefix and timings."""
    ignored = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
    records = [record for record in log_history if any(key.startswith("eval_") for key in record)]
    return {
        key.removeprefix("eval_"): value
        for record in records
        if record.get("step") == records[-1].get("step")
        for key, value in record.items()
        if key.startswith("eval_") and not key.endswith(ignored) and isinstance(value, (int, float))
    }


def evaluation_results(
    metrics: dict[str, float],
    task_type: str,
    dataset_tags: str | list[str] | None,
    dataset: str | list[str] | None,
    dataset_args: str | list[str] | None,
) -> list[EvalResult]:
    """The metrics as entries of the card's `model-index`; none without the name of a data set."""
    names = _as_list(dataset) or _as_list(dataset_tags)
    if not names:
        return []
    return [
        EvalResult(
            task_type=task_type,
            dataset_type=(_as_list(dataset_tags) or names)[0],
            dataset_name=names[0],
            dataset_config=(_as_list(dataset_args) or [None])[0],
            metric_type=name,
            metric_value=round(value, 4),
        )
        for name, value in metrics.items()
    ]


def pipeline_tag_of(model) -> str:
    """The hub's name of the task that the model does."""
    if type(model).__name__ in ("GPT1ForCausalLM", "GPT1Model"):
        return "text-generation"
    return "multiple-choice" if model.config.traversal == "multiple_choice" else "text-classification"


def auto_class_of(model) -> str:
    """The Auto class that opens the saved model."""
    return {
        "text-generation": "AutoModelForCausalLM",
        "multiple-choice": "AutoModelForMultipleChoice",
        "text-classification": "AutoModelForSequenceClassification",
    }[pipeline_tag_of(model)]


def objective_of(model) -> str:
    """The loss that was minimised, in the paper's terms."""
    if type(model).__name__ == "GPT1ForCausalLM":
        return "L1 (language modelling)"
    if type(model).__name__ == "GPT1DoubleHeadsModel" and model.config.lm_coef > 0:
        return f"L3 = L2 (task) + {model.config.lm_coef} · L1 (language modelling)"
    return "L2 (task)"


def versions() -> dict[str, str]:
    """Versions of what the run used."""
    packages = {name: metadata.version(name) for name in ("transformers", "torch", "tokenizers", "datasets")}
    return {"Python": platform.python_version(), **packages}


def _as_list(value: str | list[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str)) if not hasattr(value, "value") else value.value
