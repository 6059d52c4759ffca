"""The model card, whole: metadata with the last evaluation, facts of the run, and how it is found."""

import pytest
from helpers_training import make_trainer
from huggingface_hub import ModelCard

from modeling_gpt1 import card_gpt1
from modeling_gpt1.card_gpt1 import last_evaluation, read_template, versions

EXPECTED = """---
base_model: me/base
datasets:
- me/words
language: en
library_name: transformers
license: apache-2.0
pipeline_tag: text-classification
tags:
- gpt1
- tiny
model-index:
- name: me/tiny
  results:
  - task:
      type: text-classification
    dataset:
      name: Words
      type: me/words
      config: short
    metrics:
    - type: loss
      value: {loss}
    - type: task_loss
      value: {task_loss}
    - type: lm_loss
      value: {lm_loss}
---

# me/tiny

A GPT-1 model (GPT1DoubleHeadsModel, 30,242 parameters): the Transformer decoder of
[Improving Language Understanding by Generative Pre-Training](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf)
(Radford, Narasimhan, Salimans and Sutskever, 2018), trained with [gpt1-hf](https://pypi.org/project/gpt1-hf/).

It was fine-tuned from `me/base`.

| | |
|---|---|
| layers, heads, width, positions | 2, 4, 32, 96 |
| vocabulary | {vocab_size} |
| objective | L3 = L2 (task) + 0.5 · L1 (language modelling) |
| traversal | entailment |
| data | Words |

## Results

| metric | value |
|---|---|
| loss | {loss:.4f} |
| task_loss | {task_loss:.4f} |
| lm_loss | {lm_loss:.4f} |

## How to use

```python
import modeling_gpt1, tokenization  # pip install gpt1-hf; registers GPT-1 with the Auto classes
from transformers import AutoTokenizer, AutoModelForSequenceClassification

tokenizer = AutoTokenizer.from_pretrained("me/tiny")
model = AutoModelForSequenceClassification.from_pretrained("me/tiny")
```

## Training

| hyper-parameter | value |
|---|---|
| learning_rate | 0.05 |
| lr_scheduler_type | linear |
| warmup_steps | 0 |
| per_device_train_batch_size | 8 |
| gradient_accumulation_steps | 1 |
| num_train_epochs | 3.0 |
| max_steps | 3 |
| weight_decay | 0.01 |
| max_grad_norm | 1.0 |
| adam_beta1 | 0.9 |
| adam_beta2 | 0.999 |
| adam_epsilon | 1e-08 |
| optim | sgd |
| seed | 42 |
| bf16 | False |
| processes | 1 |

{versions}.

## Limits and bias

GPT-1 reads at most 96 tokens of lower-cased English. A language model repeats the
stereotypes and errors of the text it was trained on; check its output before it is shown to or used to judge people.

## Citation

```bibtex
@techreport{{radford2018improving,
  title = {{Improving Language Understanding by Generative Pre-Training}},
  author = {{Radford, Alec and Narasimhan, Karthik and Salimans, Tim and Sutskever, Ilya}},
  institution = {{OpenAI}},
  year = {{2018}}
}}
```
"""


def test_the_whole_card(tmp_path):
    trainer = make_trainer("entailment", tmp_path, 8, 1)
    trainer.train()
    metrics = trainer.evaluate()
    trainer.create_model_card(
        license="apache-2.0",
        tags="tiny",
        model_name="me/tiny",
        finetuned_from="me/base",
        dataset_tags="me/words",
        dataset="Words",
        dataset_args="short",
    )
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    losses = {name: round(metrics[f"eval_{name}"], 4) for name in ("loss", "task_loss", "lm_loss")}
    version_list = ", ".join(f"{name} {version}" for name, version in versions().items())
    vocab_size = trainer.model.config.vocab_size
    assert card.strip() == EXPECTED.format(**losses, versions=version_list, vocab_size=vocab_size).strip()
    assert ModelCard.load(tmp_path / "README.md").data.eval_results[1].metric_value == losses["task_loss"]


def test_without_data_and_evaluation(tmp_path):
    trainer = make_trainer("multiple_choice", tmp_path / "choices", 8, 1, lm_coef=0.0)
    trainer.create_model_card()
    card = (tmp_path / "choices" / "README.md").read_text(encoding="utf-8")
    assert "The run that made this model logged no evaluation." in card
    assert "model-index" not in card and "| data |" not in card
    assert "# choices\n" in card and "| objective | L2 (task) |" in card
    assert "AutoModelForMultipleChoice.from_pretrained" in card


def test_the_last_evaluation_is_that_of_all_data_sets_of_the_last_step():
    log_history = [
        {"loss": 3.0, "step": 1},
        {"eval_matched_accuracy": 0.1, "eval_matched_runtime": 9.0, "step": 1},
        {"eval_matched_accuracy": 0.2, "eval_matched_runtime": 9.0, "step": 2},
        {"eval_mismatched_accuracy": 0.3, "eval_mismatched_samples_per_second": 9.0, "step": 2},
        {"train_loss": 3.0, "step": 2},
    ]
    assert last_evaluation(log_history) == {"matched_accuracy": 0.2, "mismatched_accuracy": 0.3}
    assert last_evaluation([{"loss": 3.0, "step": 1}]) == {}


def test_a_missing_template_is_named(tmp_path, monkeypatch):
    assert read_template().startswith("# {{ model_name }}")
    monkeypatch.setattr(card_gpt1, "TEMPLATE_NAME", "no_such_card.md")
    with pytest.raises(FileNotFoundError) as error:
        read_template()
    place = card_gpt1.Path(card_gpt1.__file__).resolve().parent.parent / "no_such_card.md"
    assert str(error.value) == (
        f"The model card's template no_such_card.md is neither in the installed package nor at {place}. "
        "Install gpt1-hf again."
    )
