"""The model card of a pre-trained model of transformers' own: what was trained, on what, how, and with what result."""

import json
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from ..storage.writing import write_atomically
from .card import (
    _as_list,
    _cells,
    data_of,
    evaluation_results,
    history_table,
    hyper_parameters_of,
    last_evaluation,
    license_of,
    metric_types,
    versions,
    without_adapter,
)

# By the objective: the hub's name of the task, the Auto class, and the loss that was minimised.
KINDS = {
    "causal": ("text-generation", "AutoModelForCausalLM", "the mean −log P of each token given those before it"),
    "masked": ("fill-mask", "AutoModelForMaskedLM", "the mean −log P of the masked tokens"),
    "denoising": (
        None,
        "AutoModelForSeq2SeqLM",
        "the mean −log P of each token of a text, given its damaged form and the tokens before it",
    ),
}
SENTENCES = ", plus the mean −log P of the relation between two segments"
TEMPLATE = """---
{{ card_data }}
---

# {{ name }}

A {{ class_name }} of transformers ({{ num_parameters }} parameters), pre-trained with gpt1-hf.
{% if base_model %}
It was trained further from [{{ base_model }}](https://huggingface.co/{{ base_model }}).
{% endif %}
| | |
|---|---|
{%- for name, value in facts.items() %}
| {{ name }} | {{ value }} |
{%- endfor %}

## Results
{% if results %}
| metric | value |
|---|---|
{%- for result in results %}
| {{ result.name }} | {{ "%.4f" | format(result.value) }} |
{%- endfor %}
{% else %}
This card has no evaluation results.
{% endif %}
## How to use

```python
from transformers import {{ auto_class }}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({{ repo_id }})
model = {{ auto_class }}.from_pretrained({{ repo_id }})
print(model(**tokenizer("the text to read", return_tensors="pt")).logits.shape)
```

## Training

Minimised: {{ loss }}.

| hyper-parameter | value |
|---|---|
{%- for name, value in hyper_parameters.items() %}
| {{ name }} | {{ value }} |
{%- endfor %}
{% if history %}
| {{ history[0] | join(" | ") }} |
|{{ "---|" * (history[0] | length) }}
{%- for row in history[1:] %}
| {{ row | join(" | ") }} |
{%- endfor %}
{% endif %}
{{ versions }}.

## Limits and bias

- It repeats the stereotypes and errors of the text that it was trained on. Measure this on your own cases before you
  show its output to others.
"""


def write_family_card(
    trainer,
    kind: str,
    has_sentences: bool,
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
) -> Path:
    """Writes the facts of a run to `README.md` in the trainer's output folder; returns its path.

    Args:
        trainer ([`FamilyPretrainingTrainer`]): after training, if there was one.
        kind: key of `KINDS`.
        has_sentences: whether the loss has the relation between two segments, too.
        others: as in [`GPT1PretrainingTrainer.create_model_card`].
    """
    model = without_adapter(trainer.accelerator.unwrap_model(trainer.model))
    config, (pipeline_tag, auto_class, loss) = model.config, KINDS[kind]
    repo_id = getattr(trainer, "hub_model_id", None) or trainer.args.hub_model_id
    name = model_name or repo_id or Path(trainer.args.output_dir).resolve().name
    names, hub_names, configurations = _as_list(dataset), _as_list(dataset_tags), _as_list(dataset_args)
    results = last_evaluation(trainer.state.log_history, split=dataset_split)
    index = evaluation_results(results, pipeline_tag, names, hub_names, configurations) if pipeline_tag else []
    layers = config.num_hidden_layers
    if kind == "denoising":
        layers = f"{config.encoder_layers} + {config.decoder_layers}"
    sizes = (layers, config.num_attention_heads, config.hidden_size, config.max_position_embeddings)
    card_data = ModelCardData(
        language=language,
        license=license or license_of(finetuned_from),
        base_model=finetuned_from,
        datasets=hub_names or None,
        metrics=metric_types(results) or None,
        pipeline_tag=_as_list(tasks)[0] if tasks else pipeline_tag,
        tags=list(dict.fromkeys([config.model_type, *_as_list(tags)])),
        library_name="transformers",
        model_name=name if index else None,
        eval_results=index or None,
    )
    card = ModelCard.from_template(
        card_data,
        template_str=TEMPLATE,
        name=name,
        repo_id=json.dumps(repo_id or name),
        class_name=type(model).__name__,
        num_parameters=f"{model.num_parameters():,}",
        base_model=finetuned_from,
        facts=_cells(
            {
                **data_of(trainer, model, names, hub_names, configurations),
                "layers, heads, width, positions": ", ".join(map(str, sizes)),
                "vocabulary": config.vocab_size,
            }
        ),
        results=_cells(results),
        auto_class=auto_class,
        loss=loss + (SENTENCES if has_sentences else ""),
        hyper_parameters=_cells(hyper_parameters_of(trainer, model)),
        history=history_table(trainer.state.log_history),
        versions=", ".join(f"{package} {version}" for package, version in versions().items()),
    )
    path = Path(trainer.args.output_dir, "README.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, str(card))
    return path
