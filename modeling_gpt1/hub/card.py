"""The model card: `hub_card.md` filled with the facts of a model and, if there was one, of its training run.

Metadata as in https://huggingface.co/docs/hub/model-cards. A model's family knows its facts: `Family.card_facts`.
"""

import json
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import PreTrainedConfig

from .. import NOVELS
from ..configuration_gpt1 import may_be_hub_id

TEMPLATE_NAME = "hub_card.md"
MOST_CLASSES = 20
TIMINGS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")


@dataclass
class CardFacts:
    """What a model card says. The template `hub_card.md` shows the fields by their names.

    A family fills the first part from a model. The second is of its training: without it the card says that it was
    written without the run.
    """

    # ---- The model

    config: PreTrainedConfig
    """The model's configuration: sizes, traversal, type."""
    class_name: str
    """Of the model, such as `GPT1ForCausalLM`."""
    num_parameters: str
    """With commas."""
    repo_id: str
    """Hub id, or the name that stands for the folder's path."""
    model_name: str
    """The title."""
    model_tag: str
    """The first tag of the metadata: `gpt1`, or the model's type."""
    pipeline_tag: str | None
    """The hub's name of what the model does; None if there is none."""
    is_of_gpt1: bool
    """Whether this package's code opens it."""
    is_finetuned: bool
    """Whether it has a task head."""
    is_adapter: bool = False
    """Whether the files are an adapter of PEFT, not a whole model."""
    needs_package: bool = False
    """Whether it opens only where gpt1-hf is installed: its base is the model that comes with it."""
    is_pair: bool = False
    """Whether it reads two texts."""
    is_regression: bool = False
    """Whether it gives a number, not a class."""
    objective: str | None = None
    """What the pre-training of a model of transformers minimised: "causal", "masked" or "denoising"."""
    has_sentences: bool = False
    """Whether this pre-training was also on the relation of two segments."""
    auto_class: str = "AutoModel"
    """Opens a model for which the template has no pipeline."""
    lm_coef: float = 0
    """λ of the auxiliary objective; 0 without it."""
    sequences: str | None = None
    """The form of GPT-1's sequences."""
    classes: str | None = None
    """Their names, if the task has any."""
    base_model: str | None = None
    """Hub id of the model that it was made from."""

    # ---- Its training

    license: str | None = None
    """Such as `mit`."""
    language: str | list[str] | None = None
    """Such as `en`."""
    tags: list[str] = field(default_factory=list)
    """More tags."""
    task: str | None = None
    """The hub's name of the task, where it is not `pipeline_tag`."""
    datasets: list[str] | None = None
    """Hub ids."""
    metrics: list[str] | None = None
    """The hub's names of the metrics."""
    eval_results: list[EvalResult] | None = None
    """Entries of the `model-index`."""
    results: list[dict[str, Any]] = field(default_factory=list)
    """Name, value and split of each result."""
    data: dict[str, str] = field(default_factory=dict)
    """Rows of the first table about the data."""
    hyper_parameters: dict[str, Any] = field(default_factory=dict)
    """Rows of the table of settings."""
    versions: str = ""
    """Of what the run used."""
    tokenizer: str = ""
    """What the run's tokenizer makes of a text."""
    preparation: str = "text in lower case, split into words by rules for English"
    """What a model of GPT-1 reads of a text; empty if it reads any text as it is."""
    prompt: str = "it was"
    """A text that a language model can continue."""
    mask: str | None = None
    """The mask token."""
    longest: int | None = None
    """Tokens beyond which the run cut texts."""
    limits: list[str] = field(default_factory=list)
    """More lines of "Limits and bias"."""
    place: str | None = None
    """Code that gives the folder of a model that comes with the package."""


def read_template() -> str:
    """Text of the template: from the installed package, or from the top folder of the checkout."""
    installed = resources.files("modeling_gpt1") / TEMPLATE_NAME
    checkout = Path(__file__).resolve().parents[2] / TEMPLATE_NAME
    return (installed if installed.is_file() else checkout).read_text(encoding="utf-8")


def model_card(facts: CardFacts) -> ModelCard:
    """The card of a model, or of an adapter for it: what it is, how it is used, and what is told of its training run.

    Args:
        facts: those of `family_of_model(model).card_facts(model, repo_id)`, with more about its training.
    """
    card_data = ModelCardData(
        language=facts.language,
        license=facts.license,
        library_name="peft" if facts.is_adapter else "transformers",
        base_model=facts.base_model,
        datasets=facts.datasets,
        metrics=facts.metrics,
        eval_results=facts.eval_results,
        model_name=facts.model_name if facts.eval_results else None,  # names their entry
        pipeline_tag=facts.task or facts.pipeline_tag,
        tags=list(dict.fromkeys([facts.model_tag, *facts.tags])),
    )
    code_of_id = json.dumps(facts.repo_id)
    if facts.is_adapter:  # an Auto class would read the configuration of its base on the hub
        code_of_id = f"snapshot_download({code_of_id})"
    template = "---\n{{ card_data }}\n---\n\n" + read_template()
    return ModelCard.from_template(card_data, template_str=template, **{**vars(facts), "repo_id": code_of_id})


# ---- Facts of the model


def names_of_classes(config: PreTrainedConfig) -> str:
    """The names of the classes, as they stand in a table's cell."""
    names = [name_cell(str(config.id2label[index])) for index in range(config.num_labels)]
    shown = ", ".join(names[:MOST_CLASSES])
    num_others = len(names) - MOST_CLASSES
    return f"{shown} and {num_others} more" if num_others > 0 else shown


def base_model_of(model) -> str | None:
    """Hub id of the model that this one was made from; None for a local folder, which means nothing to others."""
    name = getattr(model.config, "_name_or_path", None) or getattr(model, "name_or_path", None)
    return name if name and may_be_hub_id(name) and not Path(name).exists() else None


def is_packaged_model(model) -> bool:
    """Whether the weights were opened from the folder of the model that comes with the package."""
    return bool(model.name_or_path) and Path(model.name_or_path).resolve() == Path(NOVELS).resolve()


# ---- Facts of the run


def last_evaluation(
    log_history: list[dict[str, Any]],
    split_names: Sequence[str] = (),
    split: str | None = None,
    loaded_step: int | None = None,
) -> list[dict[str, Any]]:
    """Name, value and split of each metric of the last evaluated step; of several data sets by their names.

    `loaded_step` is that of the weights that were loaded when the training ended. Only their evaluations count then.
    """
    records = log_history if loaded_step is None else records_of_loaded_weights(log_history, loaded_step)
    found = [
        (record["step"], key.removeprefix("eval_"), value)
        for record in records
        for key, value in record.items()
        if key.startswith("eval_") and isinstance(value, (int, float)) and not key.endswith(TIMINGS)
    ]
    if not found:
        return []
    last_step = found[-1][0]
    last = {name: value for step, name, value in found if step == last_step}
    results = []
    for name, value in last.items():
        # The longest: a name is found before one that it begins with.
        of_split = max((known for known in split_names if name.startswith(f"{known}_")), key=len, default=None)
        results.append({"name": name.removeprefix(f"{of_split}_"), "value": value, "split": of_split or split})
    return results


def records_of_loaded_weights(log_history: list[dict[str, Any]], loaded_step: int) -> list[dict[str, Any]]:
    """The records of the step whose weights were loaded when the training ended, and those after its end."""
    ends = [index for index, record in enumerate(log_history) if "train_runtime" in record]
    if not ends:
        return log_history  # the training goes on, with its last weights
    in_training, afterwards = log_history[: ends[-1]], log_history[ends[-1] :]
    return [record for record in in_training if record["step"] == loaded_step] + afterwards


def metric_type(name: str) -> str | None:
    """The hub's name of a metric; None of a loss."""
    if name.endswith(("loss", "lm_perplexity")):
        return None
    return {"pearson": "pearsonr"}.get(name, name)


def metric_types(results: list[dict[str, Any]]) -> list[str]:
    """The hub's names of the metrics, without losses."""
    found = [metric_type(result["name"]) for result in results]
    return list(dict.fromkeys(name for name in found if name is not None))


def evaluation_results(
    results: list[dict[str, Any]], task_type: str, names: list[str], hub_names: list[str], configurations: list[str]
) -> list[EvalResult]:
    """The metrics as entries of the card's `model-index`; none without the name of a data set."""
    if not names:
        return []
    hub_name = hub_names[0] if hub_names else re.sub(r"[^\w.-]+", "-", names[0]).strip("-")
    entries = []
    for result in results:
        name_on_hub = metric_type(result["name"])
        if name_on_hub is None:
            continue
        entry = EvalResult(
            task_type=task_type,
            dataset_type=hub_name,
            dataset_name=names[0],
            dataset_config=configurations[0] if configurations else None,
            dataset_split=result["split"],
            metric_type=name_on_hub,
            metric_name=result["name"],
            metric_value=round(result["value"], 4),
        )
        entries.append(entry)
    return entries


def versions() -> str:
    """Versions of what the run used; a checkout that was not installed has none of its own."""
    found = []
    for name in ("gpt1-hf", "transformers", "torch", "tokenizers", "datasets"):
        version = version_of(name)
        if version is not None:
            found.append(f"{name} {version}")
    return ", ".join([*found, f"Python {platform.python_version()}"])


def version_of(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    for distribution in metadata.distributions(name=package):
        if distribution.metadata["Name"] is not None:  # what pip has not finished has none
            return distribution.version
    return None


def cell(text: str) -> str:
    """The text as it stands in a table's cell."""
    return " ".join(text.split()).replace("|", r"\|")


def name_cell(name: str) -> str:
    """A name that somebody gave, as text in a table's cell: it begins no link and no tag of HTML."""
    return re.sub(r"[\[<]", r"\\\g<0>", cell(name))


def as_list(value: str | list[str] | None) -> list[str]:
    """One, several or no values as a list."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)
