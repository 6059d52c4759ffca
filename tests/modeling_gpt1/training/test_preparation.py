"""What a fine-tuning gets from a checkpoint and a task: each part knows the task, and they fit each other."""

from dataclasses import replace

import pytest
import torch

import modeling_gpt1
from tokenization import Task, open_tokenizer

OWN = Task("own", "similarity", {"text_a": "a", "text_b": "b", "label": "label"}, ("no", "yes"))
ROWS = [{"a": "the film was slow .", "b": "he paid .", "label": 1}, {"a": "she read .", "b": "she read .", "label": 0}]


@pytest.fixture(params=[modeling_gpt1.GPT1ForCausalLM, modeling_gpt1.GPT1LSTMForCausalLM], ids=["gpt1", "gpt1-lstm"])
def start(request, tiny_model, plain_tokenizer, tmp_path):
    """A language model with its tokenizer, in a folder."""
    model = tiny_model(request.param, vocab_size=len(plain_tokenizer))
    model.save_pretrained(tmp_path)
    plain_tokenizer.save_pretrained(tmp_path)
    return model, tmp_path


def test_a_checkpoint_is_made_ready_for_a_task(start, plain_tokenizer):
    before, folder = start
    parts = modeling_gpt1.prepare_finetuning(folder, OWN, max_length=16, pad_to_multiple_of=4)
    model, tokenizer, collator = parts["model"], parts["processing_class"], parts["data_collator"]
    is_lstm = isinstance(before.config, modeling_gpt1.GPT1LSTMConfig)
    assert type(model) is (modeling_gpt1.GPT1LSTMDoubleHeadsModel if is_lstm else modeling_gpt1.GPT1DoubleHeadsModel)
    assert (model.config.traversal, model.config.id2label) == ("similarity", {0: "no", 1: "yes"})
    assert model.config.problem_type == "single_label_classification"
    assert len(tokenizer) == model.config.vocab_size == len(plain_tokenizer) + 3
    assert model.config.extract_token_id == tokenizer.extract_token_id
    kept = model.transformer.tokens_embed.weight[: len(plain_tokenizer)]
    assert torch.equal(kept, before.transformer.tokens_embed.weight)
    batch = collator(ROWS)
    assert batch["input_ids"].shape[:2] == (2, 2)
    assert batch["input_ids"].shape[2] % 4 == 0
    assert (collator.max_length, collator.num_labels, batch["labels"].tolist()) == (16, 2, [1, 0])
    assert tokenizer.model_max_length == 16  # what `gpt1 predict` reads
    assert model(**batch).loss.isfinite()
    assert parts.keys() == {"model", "processing_class", "data_collator", "compute_metrics"}


def test_a_task_of_the_paper_is_known_by_its_name(start):
    parts = modeling_gpt1.prepare_finetuning(start[1], "STS-B")
    assert (parts["model"].config.problem_type, parts["model"].config.num_labels) == ("regression", 1)
    assert parts["data_collator"].regression
    assert parts["data_collator"].max_length == start[0].config.max_position_embeddings


def test_a_fresh_model_has_the_vocabulary_of_its_tokenizer(tiny_config, plain_tokenizer, tmp_path):
    plain_tokenizer.save_pretrained(tmp_path)
    model = modeling_gpt1.prepare_finetuning(tiny_config(), OWN, tmp_path)["model"]
    assert type(model) is modeling_gpt1.GPT1DoubleHeadsModel
    assert model.config.vocab_size == len(plain_tokenizer) + 3
    with pytest.raises(ValueError, match="Pass one as `tokenizer`"):
        modeling_gpt1.prepare_finetuning(tiny_config(), OWN)


def test_a_head_of_another_size_is_replaced_on_demand(start):
    modeling_gpt1.prepare_finetuning(start[1], OWN)["model"].save_pretrained(start[1])
    three = Task("three", "entailment", {"premise": "a", "hypothesis": "b", "label": "label"}, ("x", "y", "z"))
    with pytest.raises(ValueError, match="has 2 scores, but three needs 3. Pass `ignore_mismatched_sizes`"):
        modeling_gpt1.prepare_finetuning(start[1], three)
    model = modeling_gpt1.prepare_finetuning(start[1], three, ignore_mismatched_sizes=True)["model"]
    assert model.task_head.score.weight.shape[0] == 3


def test_a_head_of_choices_has_one_score_each_whatever_the_number_of_labels(start):
    """A dialogue model opens without `num_labels`, of which the default is 2."""
    before, folder = start
    task = Task("story", "multiple_choice", {"context": "a", "choices": "b", "label": "label"})
    is_lstm = isinstance(before.config, modeling_gpt1.GPT1LSTMConfig)
    kind = modeling_gpt1.GPT1LSTMDoubleHeadsModel if is_lstm else modeling_gpt1.GPT1DoubleHeadsModel
    model = kind.from_pretrained(folder, traversal="multiple_choice")
    tokenizer = open_tokenizer(folder)
    modeling_gpt1.add_control_tokens(tokenizer, model)
    assert model.config.num_labels == 2
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    opened = modeling_gpt1.prepare_finetuning(folder, task)["model"]
    assert torch.equal(opened.task_head.score.weight, model.task_head.score.weight)


def test_a_head_of_other_classes_is_replaced_on_demand(start, caplog):
    """Also where it has as many scores, or the same classes in another order."""
    parts = modeling_gpt1.prepare_finetuning(start[1], OWN)
    parts["model"].save_pretrained(start[1])
    before = parts["model"].task_head.score.weight
    assert torch.equal(modeling_gpt1.prepare_finetuning(start[1], OWN)["model"].task_head.score.weight, before)
    for names in (("x", "y"), OWN.label_names[::-1]):
        other = replace(OWN, label_names=names)
        given = f"scores the classes {', '.join(OWN.label_names)}, but those of {OWN.name} are {', '.join(names)}"
        with pytest.raises(ValueError, match=f"{given}. Pass `ignore_mismatched_sizes` to train a new head"):
            modeling_gpt1.prepare_finetuning(start[1], other)
        model = modeling_gpt1.prepare_finetuning(start[1], other, ignore_mismatched_sizes=True)["model"]
        assert not torch.equal(model.task_head.score.weight, before)
        assert list(model.config.id2label.values()) == [*names]
        assert caplog.messages[-1] == "New classification head (normal before fine-tuning)."


def test_layers_start_afresh(start):
    before, folder = start
    torch.manual_seed(0)
    model = modeling_gpt1.prepare_finetuning(folder, OWN, n_transfer=0)["model"]
    old, new = before.transformer.state_dict(), model.transformer.state_dict()
    matrices = {name for name in old if old[name].dim() == 2 and name.startswith("h.")}
    assert matrices
    assert not any(torch.equal(old[name], new[name]) for name in matrices)
    with pytest.raises(ValueError, match="^`n_transfer` is 99, but the model has "):
        modeling_gpt1.prepare_finetuning(folder, OWN, n_transfer=99)
