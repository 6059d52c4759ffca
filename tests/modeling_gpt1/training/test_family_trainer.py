"""Pre-training of transformers' own models: exact resume, losses of whole updates, evaluation, and what is logged."""

import pytest
import torch
from datasets import Dataset
from support.finetuning import QUIET, resumes_after, without_times
from support.refusals import refusal
from transformers import default_data_collator

from modeling_gpt1 import GPT1PretrainingArguments
from modeling_gpt1.families import FAMILIES
from modeling_gpt1.families.classifiers import SENTENCE_LOGITS
from modeling_gpt1.training.families import FamilyPretrainingTrainer
from tokenization import GPT1Tokenizer

OTHERS = ("gpt2", "bert", "roberta", "albert", "bart")
DROPOUTS = {
    "gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    "bart": ("dropout", "attention_dropout"),
    "albert": ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"),
    **dict.fromkeys(("bert", "roberta"), ("hidden_dropout_prob", "attention_probs_dropout_prob")),
}
LENGTH = 14
NAMES = {
    "gpt2": {"perplexity"},
    **dict.fromkeys(("bert", "albert"), {"mlm_loss", "sentence_loss"}),
    "roberta": {"mlm_loss"},
    "bart": {"denoising_loss"},
}


def make_rows(number=12):
    """Blocks of six letters in turn, some of them short, so that masks differ in number."""
    rows = []
    for index in range(number):
        length = LENGTH if index % 3 else 4 + index % 5
        rows.append({"input_ids": [2 + (5 * index + place) % 6 for place in range(length)]})
    return Dataset.from_list(rows)


@pytest.fixture(scope="module")
def plain():
    tokens = ["<unk>", *(f"{letter}</w>" for letter in ".abcdefghijklmnopqrstuvwxyz")]
    return GPT1Tokenizer(vocab={token: index for index, token in enumerate(tokens)}, merges=[])


@pytest.fixture
def make_family_pretraining_trainer(plain, tmp_path):
    def make(family, folder="out", dropout=0.0, rows=None, collator=None, **arguments):
        family = FAMILIES[family]
        tokenizer, rows = family.pretraining_tokenizer(plain), make_rows() if rows is None else rows
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        config = family.make_config(
            tokenizer, **sizes, max_position_embeddings=LENGTH + 3, **dict.fromkeys(DROPOUTS[family.name], dropout)
        )
        torch.manual_seed(3)
        arguments = {**QUIET, "per_device_train_batch_size": 4, "max_steps": 6, "learning_rate": 0.01, **arguments}
        args = GPT1PretrainingArguments(str(tmp_path / folder), **arguments)
        model, collator = family.model_class(config), collator or family.pretraining_collator(tokenizer, 0, rows)
        parts = {"train_dataset": rows, "eval_dataset": rows, "processing_class": tokenizer}
        return FamilyPretrainingTrainer(model, args, data_collator=collator, **parts)

    return make


def weights_of(trainer):
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


def log_of(trainer):
    return without_times(trainer.state.log_history)


def test_losses_of_a_model_in_half_precision_are_computed_in_float32(make_family_pretraining_trainer):
    trainer = make_family_pretraining_trainer("gpt2")
    model = trainer.model.to(torch.bfloat16).eval()
    batch = trainer.data_collator(list(trainer.eval_dataset))
    labels = batch.pop("labels")
    with torch.no_grad():
        logits = model(**batch).logits.double()
    expected = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    trainer.args.per_device_eval_batch_size = len(labels)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("family", OTHERS)
def test_a_resumed_run_is_the_whole_run_to_the_bit(make_family_pretraining_trainer, tmp_path, family):
    settings = {"save_strategy": "steps", "save_steps": 4, "eval_strategy": "steps", "eval_steps": 4, "max_steps": 6}
    whole = make_family_pretraining_trainer(family, dropout=0.1, **settings)
    whole.train()
    resumed = make_family_pretraining_trainer(family, "resumed", dropout=0.1, **settings)
    torch.rand(7)  # another random state than that of the whole run
    # Three updates are a pass: the run goes on within its second one.
    with resumes_after(4):
        resumed.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))
    for name, weight in weights_of(whole).items():
        assert torch.equal(weight, resumed.model.get_parameter(name)), name
    assert log_of(resumed) == log_of(whole)
    noise_of = getattr(resumed.data_collator, "_epoch", None)
    assert noise_of is None or noise_of.item() == 1


@pytest.mark.parametrize("family", OTHERS)
def test_an_update_is_the_same_however_it_is_cut(make_family_pretraining_trainer, family):
    records, weights = [], []
    for size, steps in ((8, 1), (2, 4)):
        trainer = make_family_pretraining_trainer(
            family, per_device_train_batch_size=size, gradient_accumulation_steps=steps, max_steps=2, adam_epsilon=1e-3
        )
        trainer.train()
        names = ("loss", "grad_norm", *NAMES[family])
        assert log_of(trainer)[0].keys() == {*names, "learning_rate", "epoch", "step", "num_input_tokens_seen"}
        records.append([[record[name] for name in names] for record in log_of(trainer) if "loss" in record])
        weights.append(weights_of(trainer))
    torch.testing.assert_close(torch.tensor(records[1]), torch.tensor(records[0]), rtol=1e-6, atol=1e-6)
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", OTHERS)
def test_the_loss_of_one_batch_is_that_of_transformers(make_family_pretraining_trainer, family, monkeypatch):
    trainer = make_family_pretraining_trainer(family)
    rows = list(trainer.train_dataset)
    batch, model = trainer.data_collator(rows), trainer.model.train()
    trainer.get_batch_samples(iter([batch]), 1, torch.device("cpu"))
    ours = trainer.compute_loss(model, dict(batch))
    assert torch.isclose(ours, model(**batch).loss, rtol=1e-6, atol=0)
    monkeypatch.setattr(type(trainer.accelerator), "num_processes", 2)  # which average their gradients
    assert torch.isclose(trainer.compute_loss(model, dict(batch)), 2 * ours, rtol=1e-6, atol=0)
    # Batches of other rows have other numbers of targets, so a mean of their means is another loss.
    halves = [trainer.data_collator(rows[:3]), trainer.data_collator(rows[3:])]
    assert not torch.isclose(sum(model(**half).loss for half in halves) / 2, ours, rtol=1e-5, atol=0)


@pytest.mark.parametrize("family", OTHERS)
def test_the_evaluation_is_exact_and_the_same_each_time(make_family_pretraining_trainer, family):
    found = []
    for size in (1, 5, 12):
        trainer = make_family_pretraining_trainer(family, per_device_eval_batch_size=size)
        if hasattr(trainer.data_collator, "set_epoch"):
            trainer.data_collator.set_epoch(size)
        metrics = trainer.evaluate().items()
        timed = ("second", "time", "epoch", "tokens_seen")
        found.append({name: value for name, value in metrics if not any(word in name for word in timed)})
    stream = trainer.evaluate(trainer.eval_dataset.to_iterable_dataset())
    assert stream["eval_loss"] == pytest.approx(found[0]["eval_loss"], rel=1e-6)
    expected = {f"eval_{name}" for name in ("loss", *NAMES[family])}
    assert found[0].keys() == expected | ({"eval_sentence_accuracy"} if "sentence_loss" in NAMES[family] else set())
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert found[0] == pytest.approx(found[2], rel=1e-6)
    for name, logits in SENTENCE_LOGITS.items():
        rows = list(trainer.eval_dataset)
        batch = trainer.data_collator.for_evaluation(rows)(rows) if "sentence_loss" in NAMES[family] else {}
        if name in batch:
            is_right = trainer.model.eval()(**batch)[logits].argmax(-1) == batch[name]
            expected = is_right.sum() / (batch[name] != -100).sum()
            assert found[0]["eval_sentence_accuracy"] == pytest.approx(expected.item())
            assert expected < 1


def test_predictions_of_labelled_rows(make_family_pretraining_trainer):
    trainer = make_family_pretraining_trainer("gpt2")
    assert trainer.predict(trainer.eval_dataset).predictions.shape == (12, LENGTH, trainer.model.config.vocab_size)


def test_the_card_says_what_was_trained(make_family_pretraining_trainer, tmp_path, capsys):
    trainer = make_family_pretraining_trainer("bert", "tiny")
    trainer.create_model_card(dataset="novels", license="mit", dataset_split="validation", model_name=str(tmp_path))
    text = (tmp_path / "tiny" / "README.md").read_text(encoding="utf-8")
    for part in (
        "license: mit\npipeline_tag: fill-mask\ntags:\n- bert\n---\n",
        "A model of transformers' type `bert` (BertForPreTraining, 5,938 parameters), pre-trained with gpt1-hf.\n",
        "| data | novels |\n| blocks | 12 for training, 12 for evaluation |\n",
        "| layers, heads, width, positions | 2, 2, 16, 17 |\n| vocabulary | 32 |\n",
        "Minimised: the mean −log P of the masked tokens, plus the mean −log P of the relation between two segments.",
        "| learning_rate | 0.01 |\n",
    ):
        assert part in text, part
    assert "GPT-1" not in text
    assert "were cut" not in text
    for part in (trainer.model, trainer.processing_class):
        part.save_pretrained(tmp_path)
    exec(compile(text.split("```python\n")[1].split("```")[0], "card", "exec"), {})
    assert "'token_str'" in capsys.readouterr().out

    make_family_pretraining_trainer("bart", "tiny").create_model_card()
    text = (tmp_path / "tiny" / "README.md").read_text(encoding="utf-8")
    assert "| layers, heads, width, positions | 1 + 1, 2, 16, 17 |\n" in text
    loss = "the mean −log P of each token of a text, given its damaged form and the tokens before it."
    assert f"Minimised: {loss}\n" in text
    assert "pipeline_tag" not in text


def test_a_tokenizer_of_another_model_is_refused(make_family_pretraining_trainer):
    trainer = make_family_pretraining_trainer("roberta")
    trainer.model.resize_token_embeddings(20)
    with pytest.raises(ValueError, match="has 32 tokens, but the model has embeddings for 20. Open"):
        trainer._set_up_own_model(trainer.model)


@pytest.fixture
def trainer_without_sentence_labels(make_family_pretraining_trainer):
    """Of a model with a head for pairs of sentences, on batches that have none."""
    rows = [{"input_ids": [3, 4, 5, 6], "labels": [-100, 4, -100, 6]} for _ in range(4)]
    return make_family_pretraining_trainer("bert", rows=Dataset.from_list(rows), collator=default_data_collator)


@pytest.mark.parametrize("step", ["train", "evaluate"])
def test_batches_without_labels_of_the_sentence_head_are_refused(step, trainer_without_sentence_labels):
    said = refusal(getattr(trainer_without_sentence_labels, step))
    assert "BertForPreTraining has a head for pairs of sentences, but a batch has only" in said
    assert "NextSentenceCollator (BERT)" in said


def test_a_loss_of_ones_own_may_leave_the_sentence_head_out(trainer_without_sentence_labels):
    class OnTokens(FamilyPretrainingTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(input_ids=inputs["input_ids"])
            logits = outputs["prediction_logits"].flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits, inputs["labels"].flatten())
            return (loss, outputs) if return_outputs else loss

    trainer = trainer_without_sentence_labels
    trainer.__class__ = OnTokens
    trainer.train()
    assert "eval_runtime" in trainer.evaluate()


def test_rows_without_any_labels_are_predicted_beside_a_sentence_head(trainer_without_sentence_labels):
    rows = trainer_without_sentence_labels.eval_dataset.remove_columns("labels")
    tokens, pairs = trainer_without_sentence_labels.predict(rows).predictions
    assert tokens.shape == (4, 4, trainer_without_sentence_labels.model.config.vocab_size)
    assert pairs.shape == (4, 2)


def test_a_decoder_without_inputs_reads_the_shifted_labels(make_family_pretraining_trainer):
    """As transformers' own loss has it. Without them, BART would shift the damaged text of its encoder."""
    trainer = make_family_pretraining_trainer("bart")
    labels = torch.tensor([[7, 3, 9, 4, 2], [5, 6, 8, 2, -100]])
    batch = {"input_ids": torch.tensor([[7, 1, 4, 2, 0], [5, 1, 2, 0, 0]]), "labels": labels}
    batch["attention_mask"] = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]])
    with torch.no_grad():
        model = trainer.model.eval()
        loss = trainer.compute_loss(model, batch)
        assert loss.item() == pytest.approx(model(**batch).loss.item(), rel=1e-6)
        decoder_input_ids = torch.tensor([[2, 7, 1, 4, 2], [2, 5, 1, 2, 0]])  # the damaged text, as a control
        other = trainer.compute_loss(model, {**batch, "decoder_input_ids": decoder_input_ids})
    assert abs(other.item() - loss.item()) > 1e-3
