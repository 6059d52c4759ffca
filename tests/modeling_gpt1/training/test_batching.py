"""Rows of like length share a batch in training; an evaluation stays in the order of the data set."""

import random

import datasets
import pytest
import torch
from support.finetuning import (
    COLUMNS,
    Rows,
    make_double_heads_model,
    make_finetuning_trainer,
    make_letter_tokenizer,
    make_traversal_collator,
)

from modeling_gpt1 import GPT1Trainer, GPT1TrainingArguments
from modeling_gpt1.training.batching import length_sampler, read_lengths
from modeling_gpt1.training.card import hyper_parameters_of
from tokenization import TraversalCollator


class Recording:
    """A TraversalCollator that keeps the batches it made."""

    def __init__(self, collator):
        self.collator, self.batches = collator, []

    def __getattr__(self, name):
        return getattr(self.collator, name)

    def __call__(self, rows):
        self.batches.append(self.collator(rows))
        return self.batches[-1]

    def padding_share(self) -> float:
        masks = [batch["attention_mask"] for batch in self.batches]
        return 1 - sum(mask.sum().item() for mask in masks) / sum(mask.numel() for mask in masks)


def sentences(number: int) -> datasets.Dataset:
    """Sentences of 1 to 23 letters, each letter a token, in random order and each with a label of its own."""
    rows = [{"a": "abcdefghijklmnopqrstuvw"[: 1 + index % 23], "label": index} for index in range(number)]
    random.Random(0).shuffle(rows)
    return datasets.Dataset.from_list(rows)


def make_grouping_trainer(folder, batch_size=8, number=368, dataset=None, **arguments) -> GPT1Trainer:
    tokenizer = make_letter_tokenizer()
    model = make_double_heads_model("classification", tokenizer)
    model.config.num_labels = number  # of labels in the rows; the model is never run
    collator = Recording(TraversalCollator(tokenizer, "classification", COLUMNS["classification"], max_length=96))
    settings = {"use_cpu": True, "report_to": "none", "per_device_train_batch_size": batch_size, **arguments}
    parts = {"data_collator": collator, "processing_class": tokenizer}
    rows = sentences(number) if dataset is None else dataset
    return GPT1Trainer(model, GPT1TrainingArguments(str(folder), **settings), train_dataset=rows, **parts)


def training_order(trainer) -> list[int]:
    return list(length_sampler(trainer, trainer.train_dataset))


def epoch_of(trainer, epoch=0) -> list[torch.Tensor]:
    loader = trainer.get_train_dataloader()
    loader.set_epoch(epoch)
    return [batch["labels"] for batch in loader]


class TestTraining:
    def test_every_row_once_per_epoch_and_epochs_differ(self, tmp_path):
        trainer = make_grouping_trainer(tmp_path)
        epochs = [torch.cat(epoch_of(trainer, epoch)).tolist() for epoch in (0, 1, 0)]
        assert [sorted(epoch) for epoch in epochs] == [list(range(368))] * 3
        assert epochs[0] == epochs[2] != epochs[1]

    def test_padding_falls(self, tmp_path):
        """Groups of 11 updates of 8 rows hold each of 23 lengths about 4 times."""
        shares = {}
        for strategy in ("random", "group_by_length"):
            trainer = make_grouping_trainer(tmp_path, train_sampling_strategy=strategy)
            epoch_of(trainer)
            shares[strategy] = trainer.data_collator.padding_share()
        assert shares["random"] > 0.3
        assert shares["group_by_length"] < 0.07

    def test_an_update_has_the_same_rows_however_it_is_cut(self, tmp_path):
        trainer = make_grouping_trainer(tmp_path, batch_size=2, gradient_accumulation_steps=4)
        expected = torch.cat(epoch_of(make_grouping_trainer(tmp_path))).tolist()
        assert torch.cat(epoch_of(trainer)).tolist() == expected

    def test_the_order_of_two_processes_is_that_of_one(self, tmp_path, monkeypatch):
        expected = training_order(make_grouping_trainer(tmp_path))
        trainer = make_grouping_trainer(tmp_path, batch_size=4)
        assert training_order(trainer) != expected
        monkeypatch.setattr(GPT1TrainingArguments, "world_size", 2)
        assert training_order(trainer) == expected

    def test_a_row_that_cannot_be_used_stops_before_the_first_step(self, tmp_path):
        trainer = make_grouping_trainer(tmp_path, dataset=[{"a": "ab", "label": 0}, {"a": " ", "label": 1}])
        with pytest.raises(ValueError, match="Row 1 of the data: .* is empty"):
            trainer.train()


@pytest.mark.parametrize("name", ["seed", "data_seed"])
@pytest.mark.parametrize("strategy", ["random", "group_by_length"])
def test_the_seed_of_the_run_or_of_its_data_alone_decides_the_order(strategy, name, tmp_path):
    """Whatever has seeded torch's generator before."""
    orders = []
    for seed_of_torch, seed in ((1, 5), (2, 5), (2, 6)):
        trainer = make_grouping_trainer(tmp_path, train_sampling_strategy=strategy, **{name: seed})
        torch.manual_seed(seed_of_torch)
        orders.append(torch.cat(epoch_of(trainer)).tolist())
    assert orders[0] == orders[1] != orders[2]


class TestOtherRows:
    def test_rows_of_an_unknown_kind_are_shuffled_as_trainer_does(self, tmp_path):
        trainer = make_grouping_trainer(tmp_path)
        trainer.data_collator = lambda rows: {"labels": torch.tensor([row["label"] for row in rows])}
        orders = []
        for strategy in ("group_by_length", "random"):
            trainer.args.train_sampling_strategy = strategy
            torch.manual_seed(0)
            orders.append(torch.cat([batch["labels"] for batch in trainer.get_train_dataloader()]).tolist())
        assert orders[0] == orders[1] != trainer.train_dataset["label"]

    def test_sources_of_lengths(self):
        rows = [{"input_ids": [1, 2, 3], "length": 7}, {"input_ids": [1], "length": 8}]
        dataset = datasets.Dataset.from_list(rows)
        assert read_lengths(rows, None, "length") == read_lengths(dataset, None, "words") == [3, 1]
        assert read_lengths(dataset, None, "length") == [7, 8]
        assert read_lengths([[1, 2]], None, "length") is read_lengths([], None, "length") is None


def test_a_batch_size_that_was_found_is_that_of_the_groups_and_of_the_card(tmp_path):
    settings = {"auto_find_batch_size": True, "train_sampling_strategy": "group_by_length", "max_steps": 1}
    trainer = make_finetuning_trainer("classification", tmp_path, 8, 2, **settings)
    sizes, step = [], trainer.training_step

    def training_step(model, inputs, *others):
        sizes.append(len(inputs["labels"]))
        if sizes[-1] > 6:
            raise RuntimeError("CUDA out of memory.")
        return step(model, inputs, *others)

    trainer.training_step = training_step
    trainer.train()
    assert sizes == [8, 7, 6, 6]
    assert length_sampler(trainer, trainer.train_dataset).batch_size == 12
    told = hyper_parameters_of(trainer, trainer.family)
    assert (told["per_device_train_batch_size"], told["batch size per update"]) == (6, 12)


def test_an_evaluation_is_in_the_order_of_the_data_set(tmp_path):
    trainer = make_finetuning_trainer("regression", tmp_path, 8, 1, train_sampling_strategy="group_by_length")
    expected = pytest.approx([0.3 * index for index in range(11)])
    assert trainer.predict(trainer.eval_dataset).label_ids.tolist() == expected
    assert torch.cat([batch["labels"] for batch in trainer.get_eval_dataloader()]).tolist() == expected


class TestLengths:
    @pytest.mark.parametrize("case", ["classification", "entailment", "similarity", "multiple_choice"])
    @pytest.mark.parametrize("max_length", [96, 30])
    def test_lengths_are_those_of_the_batches(self, case, max_length):
        tokenizer = make_letter_tokenizer()
        collator = make_traversal_collator(make_double_heads_model(case, tokenizer), tokenizer)
        collator.max_length = max_length
        rows = Rows(case)
        longest = [collator([row])["input_ids"].shape[-1] for row in rows.rows]
        assert collator.lengths(rows) == collator.lengths(rows.rows) == longest
        assert collator.lengths(datasets.Dataset.from_list(rows.rows)) == longest
        assert len(set(longest)) > 3
        assert max(longest) <= max_length

    def test_a_question_counts(self, tiny_tokenizer):
        columns = {"context": "a", "question": "b", "choices": ["c", "d"]}
        collator = TraversalCollator(tiny_tokenizer, "multiple_choice", columns)
        rows = [dict(a="the old", b="why", c="she", d="she laughed"), dict.fromkeys("abcd", "he")]
        assert collator.lengths(rows) == [collator([row])["input_ids"].shape[-1] for row in rows]
