"""Rows of like length share a batch; predictions and metrics stay in the order of the data set."""

import random
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from helpers_training import COLUMNS, Rows, make_collator, make_model, make_tokenizer, make_trainer
from transformers import Trainer
from transformers.trainer_pt_utils import LengthGroupedSampler

from modeling_gpt1 import GPT1Trainer, GPT1TrainingArguments
from modeling_gpt1.training.batching import LongestFirstSampler, SeededLengthGroupedSampler, read_lengths
from tokenization import TraversalCollator

BY_LENGTH = {"train_sampling_strategy": "group_by_length"}


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
    tokenizer = make_tokenizer()
    model = make_model("classification", tokenizer)
    model.config.num_labels = number  # of labels in the rows; the model is never run
    collator = Recording(TraversalCollator(tokenizer, "classification", COLUMNS["classification"], max_length=96))
    settings = {"use_cpu": True, "report_to": "none", "per_device_train_batch_size": batch_size, **arguments}
    return GPT1Trainer(
        model,
        GPT1TrainingArguments(str(folder), **settings),
        data_collator=collator,
        train_dataset=sentences(number) if dataset is None else dataset,
        processing_class=tokenizer,
    )


def evaluation_order(trainer, dataset) -> list[int]:
    with trainer.grouping.restoring_order():
        return list(trainer.grouping.eval_sampler(dataset))


def training_order(trainer) -> list[int]:
    return list(trainer.grouping.train_sampler(trainer.train_dataset, trainer.args.train_batch_size))


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

    @pytest.mark.parametrize("cut", [{"gradient_accumulation_steps": 4, "batch_size": 2}, {"batch_size": 8}])
    def test_an_update_has_the_same_rows_however_it_is_cut(self, cut, tmp_path):
        trainer = make_grouping_trainer(tmp_path, **cut)
        expected = torch.cat(epoch_of(make_grouping_trainer(tmp_path))).tolist()
        assert torch.cat(epoch_of(trainer)).tolist() == expected

    def test_the_order_of_two_processes_is_that_of_one(self, tmp_path, monkeypatch):
        expected = training_order(make_grouping_trainer(tmp_path))
        trainer = make_grouping_trainer(tmp_path, batch_size=4)
        assert training_order(trainer) != expected
        monkeypatch.setattr(GPT1TrainingArguments, "world_size", 2)
        assert training_order(trainer) == expected

    @pytest.mark.parametrize("number", [1, 7, 40, 333])
    @pytest.mark.parametrize("batch_size", [1, 3, 8])
    def test_the_order_is_that_of_transformers(self, number, batch_size):
        rows = sentences(number)
        collator = TraversalCollator(make_tokenizer(), "classification", COLUMNS["classification"], max_length=20)
        lengths = collator.lengths(rows)
        for epoch in range(3):
            generator = torch.Generator().manual_seed(7 + epoch)
            expected = list(LengthGroupedSampler(batch_size, lengths=lengths, generator=generator))
            sampler = SeededLengthGroupedSampler(batch_size, np.array(lengths), seed=7)
            sampler.set_epoch(epoch)
            assert list(sampler) == expected

    def test_lengths_are_read_once_per_data_set(self, tmp_path, monkeypatch):
        trainer, calls = make_grouping_trainer(tmp_path), []
        read = trainer.data_collator.collator.lengths
        monkeypatch.setattr(trainer.data_collator, "lengths", lambda rows: calls.append(rows) or read(rows), False)
        other = sentences(9)
        for dataset in (trainer.train_dataset, other, trainer.train_dataset, other):
            evaluation_order(trainer, dataset)
        training_order(trainer)
        assert calls == [trainer.train_dataset, other]
        rows = [{"a": "a", "label": 0}]
        assert evaluation_order(trainer, rows) == [0]
        rows.append({"a": "ab", "label": 0})
        assert evaluation_order(trainer, rows) == [1, 0]

    def test_a_row_that_cannot_be_used_stops_before_the_first_step(self, tmp_path):
        trainer = make_grouping_trainer(tmp_path, dataset=[{"a": "ab", "label": 0}, {"a": " ", "label": 1}])
        with pytest.raises(ValueError, match="Row 1 of the data: .* holds ' ' of type str"):
            trainer.train()


class TestFallingBack:
    def test_a_stream_is_read_as_it_comes(self, tmp_path):
        rows = [{"a": "abc"[: 1 + index % 3], "label": 0} for index in range(8)]
        for stream in (datasets.Dataset.from_list(rows).to_iterable_dataset(), self._stream(rows)):
            trainer = make_grouping_trainer(tmp_path, batch_size=4, dataset=stream, max_steps=2, save_strategy="no")
            trainer.model = make_model("classification", make_tokenizer())
            trainer.train()
            masks = [batch["attention_mask"].sum(1).tolist() for batch in trainer.data_collator.batches]
            assert masks == [[3, 4, 5, 3], [4, 5, 3, 4]]

    @staticmethod
    def _stream(rows):
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(rows)

        return Stream()

    def test_rows_of_an_unknown_kind_are_shuffled_as_trainer_does(self, tmp_path):
        trainer = make_grouping_trainer(tmp_path)
        trainer.data_collator = lambda rows: {"labels": torch.tensor([row["label"] for row in rows])}
        orders = []
        for strategy in ("group_by_length", "random"):
            trainer.args.train_sampling_strategy = strategy
            torch.manual_seed(0)
            orders.append(torch.cat([batch["labels"] for batch in trainer.get_train_dataloader()]).tolist())
        assert orders[0] == orders[1] != trainer.train_dataset["label"]
        trainer.args.train_sampling_strategy = "group_by_length"
        assert evaluation_order(trainer, trainer.train_dataset) == list(range(368))

    def test_sources_of_lengths(self):
        rows = [{"input_ids": [1, 2, 3], "length": 7}, {"input_ids": [1], "length": 8}]
        dataset = datasets.Dataset.from_list(rows)
        worded = dataset.remove_columns("length").add_column("length", ["short", "long"])

        def lengths_of(rows, column="length", name="input_ids"):
            tokenizer = SimpleNamespace(model_input_names=[name])
            args = SimpleNamespace(length_column_name=column)
            trainer = SimpleNamespace(args=args, data_collator=None, processing_class=tokenizer)
            lengths = read_lengths(rows, trainer)
            return lengths if lengths is None else lengths.tolist()

        assert lengths_of(rows) == lengths_of(dataset, "words") == lengths_of(worded) == [3, 1]
        assert lengths_of(dataset) == [7, 8]
        assert lengths_of(rows, name="pixel_values") is lengths_of([[1, 2]]) is lengths_of([]) is None


def predict(trainer, **arguments):
    """Predictions, and what the metrics see, for rows whose labels tell them apart."""
    seen = []

    def compute_metrics(prediction):
        seen.append(prediction)
        return {"first": float(prediction.predictions.flat[0])}

    for name, value in arguments.items():
        setattr(trainer.args, name, value)
    trainer.compute_metrics = compute_metrics
    output = trainer.predict(trainer.eval_dataset)
    assert trainer.compute_metrics is compute_metrics
    return output, seen


class TestEvaluation:
    @pytest.mark.parametrize("case", ["regression", "multiple_choice", "entailment"])
    def test_predictions_and_metrics_are_in_the_order_of_the_data_set(self, case, tmp_path):
        results = []
        for strategy in ("random", "group_by_length"):
            trainer = make_trainer(
                *(case, tmp_path, 8, 1), train_sampling_strategy=strategy, per_device_eval_batch_size=4
            )
            trainer.data_collator = Recording(trainer.data_collator)
            results.append((*predict(trainer), trainer.data_collator.padding_share()))
        (expected, expected_seen, expected_share), (output, seen, share) = results
        assert share < 0.8 * expected_share
        # What stands for an absent choice depends on the batch.
        real, expected_real = (np.isfinite(array) & (array != -100) for array in (output.predictions, expected[0]))
        assert (real == expected_real).all()
        np.testing.assert_allclose(output.predictions[real], expected.predictions[real], rtol=1e-5, atol=1e-6)
        assert output.label_ids.tolist() == expected.label_ids.tolist()
        assert seen[0].label_ids.tolist() == expected_seen[0].label_ids.tolist()
        assert seen[0].predictions.tolist() == output.predictions.tolist()
        for name in ("test_loss", "test_task_loss", "test_lm_loss", "test_first"):
            assert output.metrics[name] == pytest.approx(expected.metrics[name], rel=1e-5)

    def test_inputs_of_the_metrics_are_in_order_too(self, tmp_path):
        trainer = make_trainer("entailment", tmp_path, 8, 1, include_for_metrics=["inputs"], **BY_LENGTH)
        inputs = predict(trainer, per_device_eval_batch_size=4)[1][0].inputs
        for row, ids in zip(trainer.eval_dataset, inputs, strict=True):
            expected = trainer.data_collator([row])["input_ids"][0].tolist()
            assert ids[: len(expected)].tolist() == expected

    def test_negative_control_trainer_alone_gives_another_order(self, tmp_path, monkeypatch):
        trainer = make_trainer("regression", tmp_path, 8, 1, per_device_eval_batch_size=4, **BY_LENGTH)
        monkeypatch.setattr(GPT1Trainer, "evaluation_loop", Trainer.evaluation_loop)
        labels = trainer.predict(trainer.eval_dataset).label_ids
        expected = [row["label"] for row in trainer.eval_dataset]
        assert labels.tolist() != pytest.approx(expected) and sorted(labels) == pytest.approx(expected)

    @pytest.mark.parametrize("arguments", [{"eval_do_concat_batches": False}, {"batch_eval_metrics": True}])
    def test_batches_that_are_looked_at_one_by_one_come_in_order(self, arguments, tmp_path):
        trainer = make_trainer("regression", tmp_path, 8, 1, per_device_eval_batch_size=4, **BY_LENGTH, **arguments)
        assert evaluation_order(trainer, trainer.eval_dataset) == list(range(11))
        labels = trainer.predict(trainer.eval_dataset).label_ids
        labels = np.concatenate(labels) if isinstance(labels, list) else labels
        assert labels.tolist() == pytest.approx([0.3 * index for index in range(len(labels))])

    def test_what_is_made_of_logits_is_in_order(self, tmp_path):
        """Also where a row gives two entries, which no order of rows fits; Trainer keeps some of them."""
        outputs = []
        for strategy in ("random", "group_by_length"):
            settings = {"per_device_eval_batch_size": 4, "train_sampling_strategy": strategy}
            trainer = make_trainer("regression", tmp_path, 8, 1, **settings)
            trainer.preprocess_logits_for_metrics = lambda logits, labels: logits.flatten().repeat_interleave(2)
            outputs.append(trainer.predict(trainer.eval_dataset))
        expected, found = outputs
        np.testing.assert_allclose(found.predictions, expected.predictions, rtol=1e-5, atol=1e-6)
        assert found.label_ids.tolist() == expected.label_ids.tolist()

    def test_loaders_that_a_user_asks_for_are_in_order(self, tmp_path):
        trainer = make_trainer("regression", tmp_path, 8, 1, per_device_eval_batch_size=4, **BY_LENGTH)
        assert evaluation_order(trainer, trainer.eval_dataset) != list(range(11))
        for loader in (trainer.get_test_dataloader(trainer.eval_dataset), trainer.get_eval_dataloader()):
            labels = torch.cat([batch["labels"] for batch in loader]).tolist()
            assert labels == pytest.approx([0.3 * index for index in range(11)])

    def test_what_is_made_of_whole_batches_is_left_as_it_is(self):
        sampler = LongestFirstSampler(np.array([2, 5, 3]))
        assert list(sampler) == [1, 2, 0]
        results = {"rows": (np.array([10, 20, 30]), [np.array([[1, 1], [2, 2], [3, 3]])]), "batches": np.array([1, 2])}
        restored = sampler.restore({**results, "none": None, "number": np.array(3.0)})
        assert restored["rows"][0].tolist() == [30, 10, 20]
        assert restored["rows"][1][0].tolist() == [[3, 3], [1, 1], [2, 2]]
        assert restored["batches"].tolist() == [1, 2]
        assert restored["none"] is None and restored["number"] == 3.0


class TestLengths:
    @pytest.mark.parametrize("case", ["classification", "entailment", "similarity", "multiple_choice"])
    @pytest.mark.parametrize("max_length", [96, 30])
    def test_lengths_are_those_of_the_batches(self, case, max_length):
        tokenizer = make_tokenizer()
        collator = make_collator(make_model(case, tokenizer), tokenizer)
        collator.max_length = max_length
        rows = Rows(case)
        longest = [collator([row])["input_ids"].shape[-1] for row in rows.rows]
        assert collator.lengths(rows) == collator.lengths(rows.rows) == longest
        assert collator.lengths(datasets.Dataset.from_list(rows.rows)) == longest
        assert len(set(longest)) > 3 and max(longest) <= max_length

    def test_a_question_counts(self, tiny_tokenizer):
        columns = {"context": "a", "question": "b", "choices": ["c", "d"]}
        collator = TraversalCollator(tiny_tokenizer, "multiple_choice", columns)
        rows = [
            {"a": "the old", "b": "why", "c": "she", "d": "she laughed"},
            {"a": "he", "b": "he", "c": "he", "d": "he"},
        ]
        assert collator.lengths(rows) == [collator([row])["input_ids"].shape[-1] for row in rows]
