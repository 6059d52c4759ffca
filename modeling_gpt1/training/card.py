"""The model card of a run: facts of its data, settings and results, beside what the model's family knows of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase, Trainer

from tokenization import GPT1Tokenizer
from tokenization.text.training import describe_tokenizer

from ..families import Family, without_adapter
from ..hub.card import (
    as_list,
    cell,
    evaluation_results,
    last_evaluation,
    metric_types,
    model_card,
    name_cell,
    versions,
)
from ..storage.writing import write_atomically
from .arguments import sets_by_name
from .callbacks import SampleCallback
from .checkpoint import step_of
from .freezing import describe_freezing

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
OF_ADAPTERS = ("r", "lora_alpha", "lora_dropout")


def write_model_card(
    trainer: Trainer,
    family: Family,
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
) -> None:
    """Writes the card of a run to `README.md` in the trainer's output folder.

    It has facts of model, data and training, and a `model-index` of the last evaluation of the trained weights.

    Args:
        trainer: of the run.
        family: of its model.
        language, license, tags, model_name, finetuned_from, tasks, dataset_tags, dataset, dataset_args: as in
            [`transformers.Trainer.create_model_card`].
        dataset_split: the name of the evaluated split if there is only one.
    """
    whole = trainer.accelerator.unwrap_model(trainer.model)
    model = without_adapter(whole)
    repo_id = trainer.hub_model_id or trainer.args.hub_model_id
    name = model_name or repo_id or Path(trainer.args.output_dir).resolve().name
    facts = family.card_facts(model, repo_id or name, is_adapter=model is not whole)
    names = as_list(dataset or dataset_tags)
    hub_names = as_list(dataset_tags)
    configurations = as_list(dataset_args)
    splits = list(sets_by_name(trainer.eval_dataset))
    results = last_evaluation(trainer.state.log_history, splits, dataset_split, loaded_step_of(trainer))
    task = as_list(tasks)[0] if tasks else facts.pipeline_tag
    index = evaluation_results(results, task, names, hub_names, configurations) if task else []
    facts = replace(
        facts,
        model_name=name,
        base_model=finetuned_from or facts.base_model,
        license=license,
        language=language,
        tags=[*as_list(tags), *as_list(model.model_tags)],
        task=task,
        datasets=hub_names or None,
        metrics=metric_types(results) or None,
        eval_results=index or None,
        results=rows_of_results(results),
        data=data_of(trainer, facts.is_finetuned, names, hub_names, configurations),
        hyper_parameters={**hyper_parameters_of(trainer, family), **adapter_of(whole)},
        versions=versions(),
        **facts_of_tokenizer(trainer.processing_class),
        prompt=prompt_of(trainer) or facts.prompt,
        longest=getattr(trainer.data_collator, "max_length", None),  # any collator may be given
    )
    write_atomically(Path(trainer.args.output_dir, "README.md"), str(model_card(facts)))


def loaded_step_of(trainer: Trainer) -> int | None:
    """The step of the best checkpoint, whose weights Trainer loads when a run ends; None if the last weights stay."""
    best = trainer.state.best_model_checkpoint
    if best is None or not trainer.args.load_best_model_at_end:
        return None
    return step_of(Path(best))


def rows_of_results(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results as the card's table shows them: the name of a split may have characters that a table needs."""
    rows = []
    for result in results:
        row = dict(result)
        if row["split"] is not None:
            row["split"] = name_cell(row["split"])
        rows.append(row)
    return rows


def facts_of_tokenizer(tokenizer: Any) -> dict[str, Any]:
    """The card's fields about a tokenizer; nothing of texts about a feature extractor, or None."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return {"preparation": ""}
    if isinstance(tokenizer, GPT1Tokenizer):
        case = "in lower case" if tokenizer.do_lower_case else "with its capitals"
        preparation = f"text {case}, split into words by rules for English"
    else:
        preparation = ""
    return {"tokenizer": describe_tokenizer(tokenizer), "preparation": preparation, "mask": tokenizer.mask_token}


def prompt_of(trainer: Trainer) -> str | None:
    """The first text that each evaluation of the run continued."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, SampleCallback):
            return callback.prompts[0]
    return None


def data_of(
    trainer: Trainer, is_finetuned: bool, names: list[str], hub_names: list[str], configurations: list[str]
) -> dict[str, str]:
    """The data for training and evaluation, by rows of the card's first table."""
    facts = {}
    if names:
        links = [f"https://huggingface.co/datasets/{hub_name}" for hub_name in hub_names]
        texts = [name_cell(name) for name in names]
        linked = [f"[{text}]({link})" for text, link in zip(texts, links, strict=False)]
        facts["data"] = ", ".join([*linked, *texts[len(linked) :]])
        if configurations:
            facts["data"] += f" ({', '.join(map(name_cell, configurations))})"
    evaluated = sets_by_name(trainer.eval_dataset) or {"evaluation": trainer.eval_dataset}
    rows = {"training": trainer.train_dataset, **evaluated}
    counts = [f"{len(one):,} for {name_cell(use)}" for use, one in rows.items() if hasattr(one, "__len__")]
    if counts:
        facts["examples" if is_finetuned else "blocks"] = ", ".join(counts)
    if trainer.state.num_input_tokens_seen:
        facts["tokens seen in training"] = f"{trainer.state.num_input_tokens_seen:,}"
    words = [record["words_seen"] for record in trainer.state.log_history if "words_seen" in record]
    if words:
        facts["words read in training"] = f"{words[-1]:,}"
    return facts


def hyper_parameters_of(trainer: Trainer, family: Family) -> dict[str, Any]:
    """The run's settings: those of the paper's table, and how long it ran."""
    args, state = trainer.args, trainer.state
    model = without_adapter(trainer.accelerator.unwrap_model(trainer.model))
    values = {name: getattr(args, name) for name in HYPER_PARAMETERS}
    values = {name: getattr(value, "value", value) for name, value in values.items()}  # of enumerations
    if state.train_batch_size is not None:  # `auto_find_batch_size` may have made it smaller
        values["per_device_train_batch_size"] = state.train_batch_size
    if family.has_task_head(model):
        values["lm_coef (λ)"] = model.config.lm_coef if family.has_auxiliary_loss(model) else 0
    class_weights = getattr(args, "class_weights", None)  # transformers' arguments have no such one
    if class_weights is not None:
        values["class_weights"] = cell(str(class_weights))
    values |= getattr(trainer.data_collator, "chosen_options", {})  # of the noise in pre-training
    frozen = describe_freezing(trainer.accelerator.unwrap_model(trainer.model))
    if frozen is not None:
        values["frozen"] = frozen
    return {
        **values,
        "mixed_precision": trainer.accelerator.mixed_precision,
        "processes": args.world_size,
        "batch size per update": trainer.get_total_train_batch_size(args),
        "updates": state.global_step,
        "epochs": round(state.epoch or 0, 2),
    }


def adapter_of(model) -> dict[str, Any]:
    """The settings of an adapter of PEFT; nothing for a whole model."""
    if without_adapter(model) is model:
        return {}
    config = model.active_peft_config
    num_trained, _ = model.get_nb_trainable_parameters()
    settings = {name: getattr(config, name) for name in OF_ADAPTERS if hasattr(config, name)}
    return {"adapter": config.peft_type.value, **settings, "trained parameters": f"{num_trained:,}"}
