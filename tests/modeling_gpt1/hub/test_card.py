"""The model card, whole: metadata with the last evaluation, facts of the run, and how it is found."""

import json

import pytest
import support.pretraining
import torch
import transformers
import yaml
from hub.stand_in import faults_of_card
from huggingface_hub import ModelCard, ModelCardData
from support.finetuning import (
    CASES,
    make_double_heads_model,
    make_finetuning_trainer,
    make_letter_tokenizer,
    make_traversal_collator,
)
from support.launch import IS_AFTER_5_17

from modeling_gpt1 import NOVELS, GPT1DoubleHeadsModel, GPT1ForCausalLM, GPT1LSTMDoubleHeadsModel, GPT1Model
from modeling_gpt1.families import family_of_model
from modeling_gpt1.hub.card import (
    base_model_of,
    evaluation_results,
    last_evaluation,
    metric_types,
    model_card,
    names_of_classes,
    versions,
)
from tokenization import GPT1Tokenizer

METADATA = {
    **{"base_model": "me/base", "datasets": ["me/words"], "language": "en", "library_name": "transformers"},
    **{"license": "apache-2.0", "metrics": ["accuracy"], "pipeline_tag": "text-classification"},
    "tags": ["gpt1", "tiny"],
}
FACTS_OF_A_RUN = """
It was fine-tuned from [me/base](https://huggingface.co/me/base).

| | |
|---|---|
| task | entailment |
| sequences (traversal `entailment`) | `[s] premise [$] hypothesis [e]` |
| classes | no, yes \\| \\<i>\\[perhaps](a.b) |
| data | [Words](https://huggingface.co/datasets/me/words) (short) |
| examples | 24 for training, 11 for evaluation |
| layers, heads, width, positions | 2, 4, 32, 96 |
"""
HYPER_PARAMETERS = """\
learning_rate 0.05, lr_scheduler_type linear, warmup_steps 0, per_device_train_batch_size 4,
gradient_accumulation_steps 2, weight_decay 0.01, max_grad_norm 1.0, adam_beta1 0.9, adam_beta2 0.999,
adam_epsilon 1e-08, optim sgd, seed 42, lm_coef (λ) 0.5, mixed_precision no, processes 1, batch size per update 8,
updates 3, epochs 1.0"""


def card_of(model, repo_id: str) -> ModelCard:
    return model_card(family_of_model(model).card_facts(model, repo_id))


def accuracy(prediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def test_the_card_of_a_run(tmp_path):
    trainer = make_finetuning_trainer("entailment", tmp_path, 4, 2)
    trainer.compute_metrics = accuracy
    trainer.model.config.id2label = {0: "no", 1: "yes | <i>[perhaps](a.b)"}
    trainer.train()
    metrics = trainer.evaluate()
    of_data = {"dataset_tags": "me/words", "dataset": "Words", "dataset_args": "short", "dataset_split": "held-out"}
    names = {"model_name": "me/tiny", "finetuned_from": "me/base", "license": "apache-2.0", "tags": "tiny"}
    trainer.create_model_card(**names, **of_data, language="en")
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    evaluated = {name: metrics[f"eval_{name}"] for name in ("loss", "accuracy", "task_loss", "lm_loss")}
    metadata = yaml.safe_load(card.split("---")[1])
    (index,) = metadata.pop("model-index")
    (result,) = index["results"]
    assert metadata == METADATA
    assert index["name"] == "me/tiny"
    assert "stands for" not in card
    assert result == {
        "task": {"type": "text-classification"},
        "dataset": {"name": "Words", "type": "me/words", "config": "short", "split": "held-out"},
        "metrics": [{"type": "accuracy", "value": round(evaluated["accuracy"], 4), "name": "accuracy"}],
    }
    settings = HYPER_PARAMETERS.replace("\n", " ").split(", ")
    for part in (
        "# me/tiny\n\nA GPT-1 model (GPT1DoubleHeadsModel, 30,242 parameters): the Transformer decoder of",
        f"{FACTS_OF_A_RUN}| vocabulary | {trainer.model.config.vocab_size} |\n| tokenizer | ",
        "".join(f"| held-out | {name} | {value:.4f} |\n" for name, value in evaluated.items()),
        "Minimised: L3 = L2 + λ · L1 with λ = 0.5, where L2 is",
        "| value |\n|---|---|\n" + "".join(f"| {' | '.join(setting.rsplit(' ', 1))} |\n" for setting in settings),
        f"\n{versions()}.\n",
        "reads at most 96 tokens at a time, and all text in lower case",
        "includes all that\n  [me/base](https://huggingface.co/me/base) was trained on",
    ):
        assert part in card, part
    assert f"transformers {transformers.__version__}, torch " in card
    assert faults_of_card(card) == []


FACTS = {
    GPT1DoubleHeadsModel: (
        "(GPT1DoubleHeadsModel, 29,441 parameters): the Transformer decoder of",
        "| layers, heads, width, positions | 2, 4, 32, 24 |\n| vocabulary | 101 |",
    ),
    GPT1LSTMDoubleHeadsModel: (
        "(GPT1LSTMDoubleHeadsModel, 16,257 parameters): the LSTM that the Transformer is compared with in",
        "| layers, units, width, tokens per sequence | 2, 24, 32, 24 |\n| vocabulary | 101 |",
    ),
}


@pytest.mark.parametrize(("model_class", "facts"), FACTS.items())
def test_the_card_of_a_model_alone(tiny_model, model_class, facts):
    card = str(card_of(tiny_model(model_class, traversal="multiple_choice", lm_coef=0.25), "me/choices"))
    metadata = {"library_name": "transformers", "pipeline_tag": "multiple-choice"}  # no language that was not given
    assert yaml.safe_load(card.split("---")[1]) == {**metadata, "tags": ["gpt1"]}
    for part in (
        *facts,
        "# me/choices\n",
        "| task | multiple choice |\n| sequences (traversal `multiple_choice`) | `[s] context question [$] answer",
        'AutoModelForMultipleChoice.from_pretrained("me/choices")\n',
        'AutoModelForMultipleChoice.from_pretrained("me/choices", trust_remote_code=True)\n',
        "This card has no evaluation results.",
        "This card was written without the training run",
        "reads at most 24 tokens",
    ):
        assert part in card, part
    assert faults_of_card(card) == []


@pytest.mark.parametrize(("base", "needs"), [(NOVELS, True), ("me/books", False)])
def test_the_card_of_an_adapter_of_the_packaged_model_shows_no_way_without_the_package(tiny_model, base, needs):
    model = tiny_model(GPT1DoubleHeadsModel, traversal="classification")
    model.name_or_path = base
    card = str(model_card(family_of_model(model).card_facts(model, "me/adapter", is_adapter=True)))
    assert ("It does not open without the package, which its base comes with." in card) == needs
    assert ("trust_remote_code=True" in card) == (not needs)
    assert faults_of_card(card) == []


def test_the_card_of_a_pre_training(tmp_path):
    trainer = support.pretraining.make_pretraining_trainer(
        tmp_path, 1, max_steps=2, eval_strategy="steps", eval_steps=1
    )
    trainer.train()
    trainer.create_model_card(language="de", dataset=["books/one.txt", "books/two.txt"])
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    history = [record for record in trainer.state.log_history if "eval_perplexity" in record]
    perplexity, tokens = history[-1]["eval_perplexity"], trainer.state.num_input_tokens_seen
    metadata = yaml.safe_load(card.split("---")[1])
    (result,) = metadata.pop("model-index")[0]["results"]
    assert result == {
        "task": {"type": "text-generation"},
        "dataset": {"name": "books/one.txt", "type": "books-one.txt"},
        "metrics": [{"type": "perplexity", "value": round(perplexity, 4), "name": "perplexity"}],
    }
    assert (metadata["language"], metadata["metrics"], metadata["tags"]) == ("de", ["perplexity"], ["gpt1"])
    assert "| task | language modelling |\n| data | books/one.txt, books/two.txt |\n| blocks | 24 for tr" in card
    assert f"| tokens seen in training | {tokens:,} |" in card
    assert tokens > 0
    assert f"| metric | value |\n|---|---|\n| loss | {history[-1]['eval_loss']:.4f} |\n" in card
    assert f"| perplexity | {perplexity:.4f} |" in card
    assert "Minimised: L1, the mean −log P of each token given those before it." in card
    assert "- It writes plausible text, which may be false" in card
    assert "classifier" not in card
    assert faults_of_card(card) == []


def test_without_data_and_evaluation(tmp_path):
    trainer = make_finetuning_trainer("multiple_choice", tmp_path / "choices", 8, 1, lm_coef=0.0)
    trainer.processing_class = None  # or another than GPT-1's
    trainer.create_model_card()
    card = (tmp_path / "choices" / "README.md").read_text(encoding="utf-8")
    assert "This card has no evaluation results." in card
    assert "lower case" not in card
    assert "model-index" not in card
    assert "| data |" not in card
    assert "# choices\n" in card
    assert "`choices` stands for the path" in card
    assert "| lm_coef (λ) | 0.0 |" in card
    assert "Minimised: L2, the task's loss, without the auxiliary language-modelling loss (λ = 0)." in card


@pytest.mark.parametrize("case", [*CASES, "language model", "base model"])
def test_the_code_of_the_card_runs(case, tmp_path, capsys, tiny_config):
    tokenizer = make_letter_tokenizer()
    if case in CASES:
        model = make_double_heads_model(case, tokenizer)
    else:
        model_class = GPT1ForCausalLM if case == "language model" else GPT1Model
        model = model_class(tiny_config(vocab_size=len(tokenizer), max_position_embeddings=96))
    tokenizer.add_control_tokens(model)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    code = card_of(model, str(tmp_path)).text.split("```python\n")[1].split("```")[0]
    exec(compile(code, "card", "exec"), {})
    shown = {"multiple_choice": "[[0.", "language model": "'generated_text': 'it was", "base model": "torch.Size([1, "}
    printed = capsys.readouterr().out
    assert shown.get(case, "'label': 'LABEL_") in printed
    assert "it was  " not in printed


def code_of_choices(folder) -> str:
    """The card's code for a model of multiple choice in a folder, which is saved with its tokenizer."""
    tokenizer = make_letter_tokenizer()
    model = make_double_heads_model("multiple_choice", tokenizer)
    tokenizer.add_control_tokens(model)
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    return card_of(model, str(folder)).text.split("```python\n")[1].split("```")[0]


def test_the_code_of_choices_scores_each_answer_behind_the_context(tmp_path, capsys):
    exec(compile(code_of_choices(tmp_path), "card", "exec"), {})
    printed = json.loads(capsys.readouterr().out)
    model = GPT1DoubleHeadsModel.from_pretrained(tmp_path)
    collator = make_traversal_collator(model, GPT1Tokenizer.from_pretrained(tmp_path))
    row = {"a": "the context and the question", "options": ["the answer to judge", "another answer"], "label": 0}
    with torch.no_grad():
        expected = model.eval()(**collator([row])).task_logits.softmax(-1)
    assert printed[0] == pytest.approx(expected[0].tolist(), abs=1e-6)
    row["a"] = "another context"  # negative control
    with torch.no_grad():
        others = model(**collator([row])).task_logits.softmax(-1)
    assert printed[0] != pytest.approx(others[0].tolist(), abs=1e-6)


def test_the_code_of_choices_cuts_a_long_context(tmp_path, capsys):
    code = code_of_choices(tmp_path).replace("the context and the question", "the context " * 60)
    exec(compile(code, "card", "exec"), {})
    assert sum(json.loads(capsys.readouterr().out)[0]) == pytest.approx(1)


def test_the_last_evaluation_is_that_of_all_data_sets_of_the_last_step():
    log_history = [
        {"loss": 3.0, "step": 1},
        {"eval_matched_accuracy": 0.1, "eval_matched_runtime": 9.0, "step": 1},
        {"eval_matched_accuracy": 0.15, "eval_matched_runtime": 9.0, "step": 2},
        {"eval_matched_accuracy": 0.2, "eval_matched_runtime": 9.0, "step": 2},
        {"eval_matched_more_accuracy": 0.3, "eval_matched_more_samples_per_second": 9.0, "step": 2},
        {"train_loss": 3.0, "step": 2},
    ]
    results = last_evaluation(log_history, ["matched_more", "matched"])
    assert results == [
        {"name": "accuracy", "value": 0.2, "split": "matched"},
        {"name": "accuracy", "value": 0.3, "split": "matched_more"},
    ]
    entries = evaluation_results(results, "text-classification", ["mnli"], ["nyu-mll/glue"], ["mnli"])
    data = ModelCardData(model_name="me/tiny", eval_results=entries).to_dict()
    assert [result["dataset"]["split"] for result in data["model-index"][0]["results"]] == ["matched", "matched_more"]
    assert last_evaluation([{"loss": 3.0, "step": 1}]) == []


BEST_IS_THE_FIRST = [
    {"eval_accuracy": 0.9, "step": 3},
    {"eval_accuracy": 0.7, "step": 6},
    {"train_runtime": 9.0, "train_loss": 3.0, "step": 6},
]


def test_the_last_evaluation_is_that_of_the_weights_that_were_loaded_at_the_end():
    results = last_evaluation(BEST_IS_THE_FIRST, loaded_step=3)
    assert results == [{"name": "accuracy", "value": 0.9, "split": None}]


def test_an_evaluation_after_the_training_is_of_the_loaded_weights():
    results = last_evaluation([*BEST_IS_THE_FIRST, {"eval_accuracy": 0.8, "step": 6}], loaded_step=3)
    assert results == [{"name": "accuracy", "value": 0.8, "split": None}]


def test_the_last_evaluation_is_of_the_weights_that_the_last_of_two_trainings_loaded():
    second = [{"eval_accuracy": 0.95, "step": 9}, {"eval_accuracy": 0.6, "step": 12}]
    results = last_evaluation([*BEST_IS_THE_FIRST, *second, {"train_runtime": 9.0, "step": 12}], loaded_step=9)
    assert results == [{"name": "accuracy", "value": 0.95, "split": None}]


def test_the_last_evaluation_is_that_of_the_last_step_while_the_training_goes_on():
    results = last_evaluation(BEST_IS_THE_FIRST[:-1], loaded_step=3)
    assert results == [{"name": "accuracy", "value": 0.7, "split": None}]


@pytest.mark.parametrize(("save_steps", "best"), [(3, "checkpoint-9"), (6, "checkpoint-6")])
def test_the_card_has_the_evaluation_of_the_best_checkpoint(tmp_path, save_steps, best):
    """The third evaluation is the best; with checkpoints at every second one, it has none."""
    settings = dict(max_steps=-1, num_train_epochs=4, load_best_model_at_end=True, metric_for_best_model="score")
    settings |= dict(eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=save_steps)
    trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1, **settings)
    scores = iter([0.1, 0.2, 0.3, 0.0, 0.0])  # the last is of the evaluation below
    trainer.compute_metrics = lambda prediction: {"score": next(scores)}
    trainer.train()
    assert trainer.state.best_model_checkpoint == str(tmp_path / best)
    trainer.create_model_card(dataset="words")
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    last = [record["eval_loss"] for record in trainer.state.log_history if "eval_loss" in record][-1]
    metrics = trainer.evaluate()
    assert f"| loss | {metrics['eval_loss']:.4f} |" in card
    assert f"| loss | {last:.4f} |" not in card  # negative control


def test_metrics_have_the_names_of_the_hub():
    results = [{"name": name, "value": 0.5, "split": None} for name in ("loss", "lm_loss", "pearson", "spearmanr")]
    assert metric_types(results) == ["pearsonr", "spearmanr"]
    entries = evaluation_results(results, "t", ["stsb"], [], [])
    assert [entry.metric_type for entry in entries] == ["pearsonr", "spearmanr"]
    assert evaluation_results(results, "t", [], [], []) == []


def test_names_of_classes():
    model = make_double_heads_model("classification", make_letter_tokenizer())
    model.config.id2label = {index: f"class {index}" for index in range(20)}
    assert names_of_classes(model.config) == ", ".join(f"class {index}" for index in range(20))
    model.config.id2label = {index: f"class {index}" for index in range(23)}
    assert names_of_classes(model.config) == ", ".join(f"class {index}" for index in range(20)) + " and 3 more"
    if IS_AFTER_5_17:  # before, transformers refuses class names that are not text
        model.config.id2label = {0: 0, 1: 1, 2: 2}
        assert names_of_classes(model.config) == "0, 1, 2"


def test_names_do_not_break_a_table(tmp_path):
    """Classes and data sets are named by whoever made the data."""
    trainer = make_finetuning_trainer("entailment", tmp_path, 4, 2, max_steps=1, logging_steps=1)
    trainer.model.config.id2label = {0: "one\nline", 1: "a | b"}
    trainer.eval_dataset = {"dev | one": trainer.eval_dataset}
    trainer.train()
    trainer.evaluate()
    trainer.create_model_card(dataset="my | data")
    card = (tmp_path / "README.md").read_text(encoding="utf-8").split("\n---\n", 1)[1]
    assert "| classes | one line, a \\| b |" in card
    assert "| data | my \\| data |" in card
    assert "11 for dev \\| one |" in card
    assert "| dev \\| one | task_loss |" in card


def test_a_name_of_data_is_no_tag_and_no_link(tmp_path):
    trainer = make_finetuning_trainer("entailment", tmp_path, 4, 2, max_steps=1, logging_steps=1)
    trainer.eval_dataset = {"<b>dev": trainer.eval_dataset}
    trainer.train()
    trainer.evaluate()
    trainer.create_model_card(dataset=["[one](a.b)", "<img src=x>"], dataset_tags="me/one", dataset_args="<i>short")
    card = (tmp_path / "README.md").read_text(encoding="utf-8").split("\n---\n", 1)[1]
    link = "[\\[one](a.b)](https://huggingface.co/datasets/me/one)"
    assert f"| data | {link}, \\<img src=x> (\\<i>short) |" in card
    assert "11 for \\<b>dev |" in card
    assert "| \\<b>dev | task_loss |" in card


def test_a_folder_is_no_base_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "books").mkdir(parents=True)
    model = make_double_heads_model("classification", make_letter_tokenizer())
    assert base_model_of(model) is None
    of_the_hub = "openai-community/openai-gpt"
    for name in (of_the_hub, str(tmp_path), "runs/books", "/gone/from/here"):
        base_model = of_the_hub if name == of_the_hub else None
        model.config._name_or_path = name
        assert base_model_of(model) == base_model
