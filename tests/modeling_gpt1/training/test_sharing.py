"""Rows over several processes: an update has the rows of one process, and each counts once, whatever divides."""

import pickle
from itertools import chain

import pytest
import torch
from accelerate.data_loader import prepare_data_loader, skip_first_batches
from support.finetuning import CASES, Rows, make_double_heads_model, make_letter_tokenizer, make_traversal_collator
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from modeling_gpt1 import GPT1ForMultipleChoice, GPT1ForSequenceClassification
from modeling_gpt1.training.batching import SeededLengthGroupedSampler
from modeling_gpt1.training.sharing import CollatorOfRows, SharedRows, UncountedBatch, share_rows


def batched(items, size):
    """Tuples of `size` items each, the last of those left."""
    return [tuple(items[start : start + size]) for start in range(0, len(items), size)]


def collate(numbers):
    return {"rows": numbers, "labels": torch.tensor(numbers)}


def make_loader(kind, num_rows, batch_size, num_processes, rank, is_split=False):
    rows = SharedRows(range(num_rows))
    lengths = [7 * index % 5 + 1 for index in range(num_rows)]
    sampler = {
        "sequential": SequentialSampler(rows),
        "random": RandomSampler(rows),
        "group_by_length": SeededLengthGroupedSampler(batch_size * num_processes, lengths, seed=3),
    }[kind]
    batch_size *= num_processes if is_split else 1
    loader = DataLoader(rows, batch_size, sampler=sampler, collate_fn=collate)
    share = {"num_processes": num_processes, "process_index": rank, "split_batches": is_split, "put_on_device": False}
    loader = prepare_data_loader(loader, **share, use_seedable_sampler=True, data_seed=5)
    share_rows(loader)
    return loader


def rows_of(loader):
    """The rows of each micro-batch that count."""
    batches = list(loader)
    for batch in batches:
        assert isinstance(batch, UncountedBatch) == (batch["labels"] == -100).all()
    return [[] if isinstance(batch, UncountedBatch) else batch["rows"] for batch in batches]


def updates_of(batches, accumulation):
    """The rows of each update, of the micro-batches of all processes."""
    return [list(chain(*chain(*update))) for update in batched(list(zip(*batches, strict=True)), accumulation)]


@pytest.mark.parametrize("kind", ["sequential", "random", "group_by_length"])
def test_an_update_has_the_rows_of_one_process(kind):
    """1 to 25 rows, batches of 1 to 4, accumulated 1 to 3 times, in 1 to 3 processes."""
    for num_rows in range(1, 26):
        for batch_size in range(1, 5):
            for num_processes in (1, 2, 3):
                given = kind, num_rows, batch_size, num_processes
                loaders = [make_loader(*given, rank) for rank in range(num_processes)]
                batches = [rows_of(loader) for loader in loaders]
                assert {len(loader) for loader in loaders} == {len(batches[0])}
                single = list(chain(*rows_of(make_loader(kind, num_rows, batch_size * num_processes, 1, 0))))
                assert sorted(single) == list(range(num_rows))
                for accumulation in (1, 2, 3):
                    size = batch_size * num_processes * accumulation
                    assert updates_of(batches, accumulation) == [list(part) for part in batched(single, size)]


def test_batches_that_are_split_count_once():
    batches = [rows_of(make_loader("sequential", 9, 2, 3, rank, is_split=True)) for rank in range(3)]
    assert batches == [[[0, 1], [6, 7]], [[2, 3], [8]], [[4, 5], []]]


def test_a_loader_that_drops_its_last_rows_stays_as_it_is():
    """9 rows in batches of 2 for 3 processes: one batch each, and 3 rows are dropped."""
    batches = []
    for rank in range(3):
        rows = SharedRows(range(9))
        loader = DataLoader(rows, 2, sampler=SequentialSampler(rows), collate_fn=collate, drop_last=True)
        loader = prepare_data_loader(loader, num_processes=3, process_index=rank, put_on_device=False)
        share_rows(loader)
        batches.append(rows_of(loader))
    assert batches == [[[0, 1]], [[2, 3]], [[4, 5]]]


def test_a_loader_that_skips_and_workers_go_on_with_the_same_batches():
    loader = make_loader("sequential", 11, 2, 3, 2)
    assert rows_of(loader) == [[4, 5], [10]]
    assert rows_of(skip_first_batches(loader, 1)) == [[10]]
    loader = DataLoader(SharedRows(range(9)), 2, collate_fn=collate, num_workers=2, multiprocessing_context="fork")
    loader = prepare_data_loader(loader, num_processes=3, process_index=2)
    share_rows(loader)
    assert rows_of(loader) == [[4, 5], []]
    # A worker that is spawned gets them so.
    rows, collate_shared = pickle.loads(pickle.dumps((loader.dataset, loader.base_dataloader.collate_fn)))
    assert collate_shared(rows.__getitems__([4, 5]))["labels"].tolist() == [4, 5]


def losses_of(model, batch, **kwargs):
    model.zero_grad()
    outputs = model(**batch, **kwargs)
    outputs.loss.backward()
    return outputs.loss.item(), [None if weight.grad is None else weight.grad.clone() for weight in model.parameters()]


@pytest.mark.parametrize("case", CASES)
def test_an_example_whose_label_is_minus_100_counts_for_nothing(case):
    tokenizer = make_letter_tokenizer()
    model = make_double_heads_model(case, tokenizer)
    rows, collator = Rows(case, 3).rows, make_traversal_collator(model, tokenizer)
    batch = collator(rows)
    batch["labels"][1] = -100
    kept = collator([rows[0], rows[2]])
    has_choices = case == "multiple_choice"
    task_model = (GPT1ForMultipleChoice if has_choices else GPT1ForSequenceClassification)(model.config)
    task_model.load_state_dict(model.state_dict(), strict=False)
    for each in (model, task_model):
        loss, gradients = losses_of(each, batch)
        expected_loss, expected_gradients = losses_of(each, kept)
        assert loss == pytest.approx(expected_loss, rel=1e-6)
        torch.testing.assert_close(gradients, expected_gradients, rtol=1e-5, atol=1e-6)
        uncounted = {**batch, "labels": torch.full_like(batch["labels"], -100)}
        for num_items in (None, 0, torch.tensor(0), torch.tensor(5)):
            loss, gradients = losses_of(each, uncounted, num_items_in_batch=num_items)
            assert loss == 0
            assert all((gradient == 0).all() for gradient in gradients)


def test_no_label_of_an_empty_place_counts():
    batch = {"input_ids": torch.tensor([[5, 6]]), "labels": torch.tensor([[5, -100]])}
    batch["next_sentence_label"] = torch.tensor([1])
    made = CollatorOfRows(lambda rows: batch, [{}])([])
    assert isinstance(made, UncountedBatch)
    assert made["input_ids"].tolist() == [[5, 6]]
    assert (made["labels"].tolist(), made["next_sentence_label"].tolist()) == ([[-100, -100]], [-100])
