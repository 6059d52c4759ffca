"""The model card: `hub_card.md` filled from a training run, or from what a model knows of itself.

Metadata as in https://huggingface.co/docs/hub/model-cards.
"""

import json
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData, hf_hub_download
from huggingface_hub.errors import (
    HFValidationError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import validate_repo_id

from .model_kinds import is_of_gpt1, is_regression, is_task_model
from .run_facts import CardArguments, Run, as_list, cell, write_card

TEMPLATE_NAME = "hub_card.md"
MOST_CLASSES = 20
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
    return write_card(trainer, run_card(trainer, **card_data))


def run_card(trainer, **arguments: Any) -> ModelCard:
    """The card of a run: facts of the model, of the data, of the training, and a `model-index` of the last evaluation.

    Args:
        trainer ([`transformers.Trainer`]): after training, if there was one.
        arguments: fields of [`CardArguments`].
    """
    run = Run(trainer, CardArguments(**arguments))
    model = run.model
    base_model = run.arguments.finetuned_from or base_model_of(model)
    facts = {
        **run.facts(),
        "has_splits": any(result["split"] for result in run.results),
        "objective": objective_of(model),
    }
    if not is_of_gpt1(model):
        facts |= sequences_of(trainer.data_collator)
    data = run.metadata(pipeline_tag_of(model), base_model)
    tags = [*as_list(run.arguments.tags), *as_list(getattr(model, "model_tags", None))]
    return _render(model, run.name, run.repo_id, tags, data, facts)


def model_card(model, repo_id: str, tags: str | list[str] | None = None) -> ModelCard:
    """The card of a model alone: what it is and how it is used, without the run that trained it."""
    data = {"language": "en", "library_name": "transformers"}
    data |= {"base_model": base_model_of(model), "pipeline_tag": pipeline_tag_of(model)}
    return _render(model, repo_id, repo_id, as_list(tags), data, {"data": {}, "results": []})


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
    known = as_list(card.data.get("tags"))
    if EMPTY_CARD in card.text:
        return model_card(model, repo_id, [*known, *as_list(tags)])
    card.data.tags = list(dict.fromkeys([*known, *as_list(tags)])) or None
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
    data = ModelCardData(**data, tags=tags)
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
    template = "---\n{{ card_data }}\n---\n\n" + read_template()
    return ModelCard.from_template(data, template_str=template, **facts)


# ---- Facts of the model


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
    names = [cell(str(config.id2label[index])) for index in range(min(config.num_labels, MOST_CLASSES))]
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


def sequences_of(data_collator) -> dict[str, Any]:
    """The form of another family's examples and their length, by the card's names; nothing of a collator not ours."""
    if not hasattr(data_collator, "describe"):
        return {}
    return {"traversal": data_collator.describe(), "longest": data_collator.max_length}
