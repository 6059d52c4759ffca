"""Streams: read again and again, in the order of each pass, by every process and worker."""

from itertools import accumulate, chain, islice, pairwise
from types import SimpleNamespace

import datasets
import pytest
import torch
from accelerate.data_loader import prepare_data_loader
from support.pretraining import NUM_ROWS, make_dataset, make_pretraining_trainer
from torch.utils.data import DataLoader

from modeling_gpt1.training.sharing import EndlessStream


def test_each_pass_has_an_order_of_its_own():
    rows = make_dataset(is_stream=True).shuffle(seed=0, buffer_size=NUM_ROWS)
    for _ in range(2):
        numbers = [row["input_ids"][0] for row in islice(EndlessStream(rows), 2 * NUM_ROWS)]
        first, second = numbers[:NUM_ROWS], numbers[NUM_ROWS:]
        assert first != second
        assert sorted(first) == sorted(second) == list(range(NUM_ROWS))
    assert list(EndlessStream(rows.take(0))) == []


def test_batches_go_over_the_end_of_a_pass(tmp_path):
    """5 rows in updates of 8."""
    settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 2}
    trainer = make_pretraining_trainer(tmp_path, 1, is_stream=True, **settings)
    trainer.train_dataset = trainer.train_dataset.take(5)
    first = [row["input_ids"][0] for row in trainer.train_dataset]
    trainer.train()
    assert trainer.data_collator.seen[:16] == (4 * first)[:16]
    assert trainer.state.global_step == 2


def generate_numbers(files):
    for file in files:
        yield from ({"number": number} for number in file)


def make_files(num_files):
    """Numbers in files of 1, 4, 7, … rows."""
    ends = [0, *accumulate(1 + 3 * file for file in range(num_files))]
    return [list(range(start, end)) for start, end in pairwise(ends)]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("num_files", [1, 2, 3, 7])
def test_three_processes_share_the_batches_of_each_worker(num_files, num_workers, monkeypatch):
    """Whose workers are played in turn."""
    files = make_files(num_files)
    rows = datasets.IterableDataset.from_generator(generate_numbers, gen_kwargs={"files": files})
    rows, first_pass = rows.shuffle(seed=1, buffer_size=5), []

    def collate(rows):
        return [row["number"] for row in rows]

    for worker in range(max(num_workers, 1)):
        played = SimpleNamespace(id=worker, num_workers=num_workers, seed=0) if num_workers else None
        monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda played=played: played)
        rows.set_epoch(0)
        num_rows = len(list(rows))
        single = collate(islice(EndlessStream(rows), 144))
        first_pass += single[:num_rows]
        batches = []
        for rank in range(3):
            loader = DataLoader(EndlessStream(rows), 2, collate_fn=collate)
            loader = prepare_data_loader(loader, num_processes=3, process_index=rank, put_on_device=False)
            batches.append(list(islice(DataLoader(loader.dataset, 2, collate_fn=collate), 24)))
        assert list(chain(*chain(*zip(*batches, strict=True)))) == single
    assert sorted(first_pass) == list(range(files[-1][-1] + 1))
