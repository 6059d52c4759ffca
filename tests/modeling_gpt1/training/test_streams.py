"""Streams: passes that do not divide into updates, and files that do not divide by processes and workers."""

from itertools import accumulate, chain, pairwise
from types import SimpleNamespace

import datasets
import pytest
import torch
from accelerate.data_loader import prepare_data_loader
from datasets.distributed import split_dataset_by_node
from helpers_pretraining import make_trainer
from helpers_training import resumes_after
from torch.utils.data import DataLoader

from modeling_gpt1.training.sharing import SharedStream, UncountedBatch, share_rows


def make_stream_trainer(folder, num_rows, accumulation, **arguments):
    settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": accumulation, "max_steps": 4}
    trainer = make_trainer(folder, 1, is_stream=True, **settings, **arguments)
    trainer.train_dataset = trainer.train_dataset.take(num_rows)
    return trainer


@pytest.mark.parametrize("num_rows", [1, 11])
def test_a_stream_with_fewer_batches_than_an_update_is_refused(num_rows, tmp_path):
    message = f"stream has {(num_rows + 3) // 4} batches .*needs 4 .*Lower `gradient_accumulation_steps`"
    with pytest.raises(ValueError, match=message):
        make_stream_trainer(tmp_path, num_rows, 4).train()


def test_batches_that_fill_no_update_are_in_no_loss(tmp_path):
    """The third of each pass; the learning rate is 0, so that all updates have the loss of the first."""
    settings = {"learning_rate": 0.0, "logging_first_step": True}
    trainer = make_stream_trainer(tmp_path, 12, 2, logging_steps=2, **settings)
    trainer.train()
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)
    assert trainer.state.log_history[-1]["train_loss"] == pytest.approx(losses[0], rel=1e-6)


def test_a_run_that_is_resumed_where_a_pass_ends_goes_on(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 1, "logging_steps": 3}
    whole = make_stream_trainer(tmp_path / "whole", 12, 2, **settings)
    whole.train()
    resumed = make_stream_trainer(tmp_path / "resumed", 12, 2, **settings)
    with resumes_after(2):
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    logs = [[log["loss"] for log in trainer.state.log_history if "loss" in log] for trainer in (whole, resumed)]
    assert logs[0] == logs[1] and len(logs[0]) > 0


def generate_numbers(files):
    for file in files:
        yield from ({"number": number} for number in file)


def make_files(num_files):
    """Numbers in files of 1, 4, 7, … rows."""
    ends = [0, *accumulate(1 + 3 * file for file in range(num_files))]
    return [list(range(start, end)) for start, end in pairwise(ends)]


def numbers_of_a_process(stream, rank, num_workers, monkeypatch):
    """The numbers of each batch of one process of three, whose workers are played in turn."""
    loader = prepare_data_loader(
        DataLoader(
            SharedStream(stream), 2, collate_fn=lambda rows: {"labels": torch.tensor([r["number"] for r in rows])}
        ),
        num_processes=3,
        process_index=rank,
        put_on_device=False,
    )
    share_rows(loader)
    batches = []
    for worker in range(max(num_workers, 1)):
        played = SimpleNamespace(id=worker, num_workers=num_workers, seed=0) if num_workers else None
        monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda played=played: played)
        batches += [
            [] if isinstance(batch, UncountedBatch) else batch["labels"].tolist()
            for batch in DataLoader(loader.dataset, 2, collate_fn=loader.base_dataloader.collate_fn)
        ]
    return batches


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("num_files", [1, 2, 3, 5, 7])
def test_a_stream_of_files_over_three_processes_and_workers(num_files, num_workers, monkeypatch):
    """Each row once in each pass, and as many batches in each process, whatever divides."""
    files = make_files(num_files)
    stream = datasets.IterableDataset.from_generator(generate_numbers, gen_kwargs={"files": files})
    for rows in (stream, stream.shuffle(seed=1, buffer_size=5)):
        for epoch in range(2):
            rows.set_epoch(epoch)
            batches = [numbers_of_a_process(rows, rank, num_workers, monkeypatch) for rank in range(3)]
            assert len({len(own) for own in batches}) == 1
            assert sorted(chain(*chain(*batches))) == list(range(files[-1][-1] + 1))


def test_a_stream_that_was_split_beforehand_is_refused(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path, 1, is_stream=True)
    trainer.train_dataset = split_dataset_by_node(trainer.train_dataset, rank=0, world_size=3)
    monkeypatch.setattr(type(trainer.args), "world_size", 3)
    for make_loader_of in (trainer.get_train_dataloader, lambda: trainer.get_eval_dataloader(trainer.train_dataset)):
        with pytest.raises(ValueError, match="`split_dataset_by_node`.*Pass the whole stream"):
            make_loader_of()
