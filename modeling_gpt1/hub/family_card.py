"""The model card of a pre-trained model of transformers' own: what was trained, on what, how, and with what result."""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from .run_facts import CardArguments, Run, as_list, cells, write_card

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
{%- for name, value in data.items() %}
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
{% if pipeline_tag == "fill-mask" %}
Text never becomes a special token, so a text with a mask needs a tokenizer that may split it off:

```python
from transformers import AutoTokenizer, pipeline

tokenizer = AutoTokenizer.from_pretrained({{ repo_id }}, split_special_tokens=False)
print(pipeline("fill-mask", model={{ repo_id }}, tokenizer=tokenizer)("he {{ mask }} home .")[0])
```
{% endif %}
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


def write_family_card(trainer, kind: str, has_sentences: bool, **arguments: Any) -> Path:
    """Writes the facts of a run to `README.md` in the trainer's output folder; returns its path.

    Args:
        trainer ([`FamilyPretrainingTrainer`]): after training, if there was one.
        kind: key of `KINDS`.
        has_sentences: whether the loss has the relation between two segments, too.
        arguments: fields of [`CardArguments`].
    """
    run = Run(trainer, CardArguments(**arguments))
    model, config, base_model = run.model, run.model.config, run.arguments.finetuned_from
    pipeline_tag, auto_class, loss = KINDS[kind]
    layers = config.num_hidden_layers
    if kind == "denoising":
        layers = f"{config.encoder_layers} + {config.decoder_layers}"
    sizes = (layers, config.num_attention_heads, config.hidden_size, config.max_position_embeddings)
    tags = list(dict.fromkeys([config.model_type, *as_list(run.arguments.tags)]))
    facts = run.facts()
    facts["data"] |= cells(
        {"layers, heads, width, positions": ", ".join(map(str, sizes)), "vocabulary": config.vocab_size}
    )
    card = ModelCard.from_template(
        ModelCardData(**run.metadata(pipeline_tag, base_model), tags=tags),
        template_str=TEMPLATE,
        name=run.name,
        repo_id=json.dumps(run.repo_id),
        class_name=type(model).__name__,
        num_parameters=f"{model.num_parameters():,}",
        base_model=base_model,
        auto_class=auto_class,
        pipeline_tag=pipeline_tag,
        mask=getattr(trainer.processing_class, "mask_token", None),
        loss=loss + (SENTENCES if has_sentences else ""),
        **facts,
    )
    return write_card(trainer, card)
