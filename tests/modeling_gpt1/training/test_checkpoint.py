"""Exact resume and atomic checkpoints: runs that are cut anywhere end as if they had not been.

A cut inside the test's process is a `Cut`, which no handler of the trainer catches; the real SIGKILL, the file that is
too large and the two processes run outside, as a script: `python test_checkpoint.py CASE FOLDER`.
"""

import json
import os
import re
import resource
import shutil
import signal
import sys
from pathlib import Path

import datasets
import pytest
import torch
import transformers
from safetensors import safe_open
from support.finetuning import QUIET, make_finetuning_trainer, resumes_after, without_times
from support.hub_code import HUB_CODE
from support.launch import fork_together, run_together
from support.pretraining import Collator
from support.refusals import refusal
from torch import nn
from transformers import EarlyStoppingCallback, TrainerCallback

import modeling_gpt1
from modeling_gpt1.commands import env
from modeling_gpt1.storage import writing
from modeling_gpt1.training import checkpoint as checkpoints
from modeling_gpt1.training.checkpoint import CheckpointError, newest_whole_checkpoint

STEPS = {"logging_steps": 4, "save_steps": 3, "eval_strategy": "steps", "eval_steps": 5}
# 10 rows in batches of 3 make epochs of 4 batches, the last of one row: 2 updates, with 3 and 1 batches.
ACCUMULATED = {"max_steps": 9, "gradient_accumulation_steps": 3, "save_strategy": "steps"}
CASES = {
    "shuffled": {**ACCUMULATED, **STEPS, "eval_on_start": True},
    "lstm": {**ACCUMULATED, **STEPS},
    "workers and bf16": {**ACCUMULATED, **STEPS, "dataloader_num_workers": 2, "bf16": True}
    | {"accelerator_config": {"use_seedable_sampler": False}},
    "epochs": {"num_train_epochs": 3, "logging_steps": 3, "eval_strategy": "epoch", "save_strategy": "epoch"}
    | {"load_best_model_at_end": True, "metric_for_best_model": "loss", "save_total_limit": 1}
    | {"greater_is_better": True},  # which makes the first epoch the best
    # Checkpoints fall on the ends of epochs, whose own logs and evaluations come after them in transformers.
    "steps that end epochs": {"num_train_epochs": 2.5, "save_strategy": "steps", "save_steps": 2}
    | {"logging_strategy": "epoch", "eval_strategy": "epoch"},
    "best": {"max_steps": 9, "logging_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    | {"save_strategy": "best", "metric_for_best_model": "loss"},
    "stream": {**ACCUMULATED, **STEPS},
    "by length": {"max_steps": 9, "save_strategy": "steps", "train_sampling_strategy": "group_by_length", **STEPS},
}
ROWS = [{"input_ids": [1 + (3 * row + 7 * place) % 39 for place in range(4 + row)]} for row in range(10)]


class Cut(BaseException):
    """The end of a process, as the trainer sees it: no code of it runs any more."""


class CutAt(TrainerCallback):
    """Ends the run before the update after `step`."""

    def __init__(self, step: int, cut=None):
        self.step, self.cut = step, cut or self._raise

    @staticmethod
    def _raise():
        raise Cut

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.cut()


def make_pretraining(folder, case="shuffled", callbacks=(), **more) -> modeling_gpt1.GPT1PretrainingTrainer:
    torch.manual_seed(7)
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "max_position_embeddings": 16}
    if case == "lstm":
        model = modeling_gpt1.GPT1LSTMForCausalLM(modeling_gpt1.GPT1LSTMConfig(**sizes, lstm_hidden_size=24))
    else:
        model = modeling_gpt1.GPT1ForCausalLM(modeling_gpt1.GPT1Config(**sizes, num_attention_heads=2))
    arguments = {**QUIET, "per_device_train_batch_size": 3, "warmup_steps": 2, "learning_rate": 1e-2, **CASES[case]}
    arguments = modeling_gpt1.GPT1PretrainingArguments(str(folder), **{**arguments, **more})
    rows = datasets.Dataset.from_list(ROWS)
    rows = rows.to_iterable_dataset().shuffle(seed=3, buffer_size=4) if "stream" in case else rows
    parts = {"data_collator": Collator(), "train_dataset": rows, "eval_dataset": ROWS[:5]}
    return modeling_gpt1.GPT1PretrainingTrainer(model, arguments, **parts, callbacks=list(callbacks))


def make_fine_tuning(folder, callbacks=(), **more) -> modeling_gpt1.GPT1Trainer:
    settings = {"max_steps": 9, "optim": "adamw_torch", "train_sampling_strategy": "random", "dropout": 0.1}
    settings.update({"save_strategy": "steps", **STEPS, **more})
    trainer = make_finetuning_trainer("entailment", folder, 5, 2, **settings)
    for callback in callbacks:
        trainer.add_callback(callback)
    return trainer


def end_of(trainer, training_loss: float) -> dict:
    """All that must not depend on where a run was cut."""
    return {
        **{"weights": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()},
        **{"scheduler": trainer.lr_scheduler.state_dict(), "log": without_times(trainer.state.log_history)},
        **{"training_loss": training_loss, "tokens": trainer.state.num_input_tokens_seen},
        "flos": trainer.state.total_flos,
        "best": (trainer.state.best_metric, os.path.basename(trainer.state.best_model_checkpoint or "")),
    }


def train_to_the_end(trainer, resume=None) -> dict:
    return end_of(trainer, trainer.train(resume_from_checkpoint=resume).training_loss)


def train_until_cut(trainer, resume=None) -> None:
    with pytest.raises(Cut):
        trainer.train(resume_from_checkpoint=resume)
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))  # nothing of the old process helps the next


def differing(one, other, name="") -> list[str]:
    """Names of what is not the same to the bit."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [part for key in one for part in differing(one[key], other[key], f"{name}.{key}")]
    if isinstance(one, (list, tuple)) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [part for key, pair in pairs for part in differing(*pair, f"{name}.{key}")]
    is_same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    return [] if is_same else [name]


class TestExactResume:
    @pytest.mark.parametrize("case", CASES)
    def test_a_run_that_was_cut_ends_like_one_that_was_not(self, case, tmp_path):
        expected = train_to_the_end(make_pretraining(tmp_path / "whole", case))
        steps = [record["step"] for record in expected["log"]]
        assert len(expected["log"]) >= 4
        assert steps == sorted(steps)
        cuts = (4, 5, 7) if expected["log"][-1]["step"] > 7 else (2, 4)
        if case == "epochs":  # the best one, which alone is kept
            assert (expected["best"][1], os.listdir(tmp_path / "whole")) == ("checkpoint-4", ["checkpoint-4"])
            state = json.loads((tmp_path / "whole" / "checkpoint-4" / "trainer_state.json").read_text())
            assert state["best_model_checkpoint"] == str(tmp_path / "whole" / "checkpoint-4")
        for cut in cuts:
            train_until_cut(make_pretraining(tmp_path / "cut", case, [CutAt(cut)]), "auto")
        trainer = make_pretraining(tmp_path / "cut", case)
        torch.manual_seed(5)  # as another cell of a notebook does
        with resumes_after(int(newest_whole_checkpoint(tmp_path / "cut").rpartition("-")[2])):
            assert differing(train_to_the_end(trainer, "auto"), expected) == []

    @pytest.mark.parametrize("order", ["random", "group_by_length"])
    def test_fine_tuning(self, order, tmp_path):
        expected = train_to_the_end(make_fine_tuning(tmp_path / "whole", train_sampling_strategy=order))
        assert {"task_loss", "lm_loss"} <= expected["log"][0].keys()
        for cut, last_saved in ((5, 0), (7, 3)):
            trainer = make_fine_tuning(tmp_path / "cut", [CutAt(cut)], train_sampling_strategy=order)
            with resumes_after(last_saved):
                train_until_cut(trainer, "auto")
        trainer = make_fine_tuning(tmp_path / "cut", train_sampling_strategy=order)
        torch.manual_seed(5)
        with resumes_after(6):
            assert differing(train_to_the_end(trainer, True), expected) == []

    def test_a_run_that_is_over_trains_no_further(self, tmp_path):
        expected = train_to_the_end(make_pretraining(tmp_path))
        assert expected["training_loss"] == pytest.approx(expected["log"][-1]["train_loss"], rel=0, abs=0)
        with resumes_after(None):
            assert differing(train_to_the_end(make_pretraining(tmp_path), True), expected) == []
        shutil.rmtree(tmp_path / "checkpoint-9")
        again = make_pretraining(tmp_path)
        with resumes_after(6):
            assert differing(train_to_the_end(again, True), expected) == []
        assert again.evaluate()["eval_loss"] > 0

    def test_negative_control_without_skipping_rows(self, tmp_path):
        expected = train_to_the_end(make_pretraining(tmp_path / "whole"))
        train_until_cut(make_pretraining(tmp_path / "cut", callbacks=[CutAt(4)]))  # goes on in the middle of an epoch
        names = differing(train_to_the_end(make_pretraining(tmp_path / "cut", ignore_data_skip=True), True), expected)
        assert any(name.startswith(".weights") for name in names)

    def test_a_callback_that_saves_in_the_middle_of_an_update_waits_for_its_end(self, tmp_path):
        class SaveBeforeTheOptimizer(TrainerCallback):
            def on_pre_optimizer_step(self, args, state, control, **kwargs):
                if state.global_step == 4:
                    trainer._save_checkpoint(trainer.model, trial=None)

        expected = train_to_the_end(make_pretraining(tmp_path / "whole"))
        trainer = make_pretraining(tmp_path / "cut", callbacks=[SaveBeforeTheOptimizer(), CutAt(5)])
        train_until_cut(trainer)
        assert newest_whole_checkpoint(tmp_path / "cut") == str(tmp_path / "cut" / "checkpoint-5")
        with resumes_after(5):
            assert differing(train_to_the_end(make_pretraining(tmp_path / "cut"), True), expected) == []


@pytest.mark.parametrize("make", [make_pretraining, make_fine_tuning])
@pytest.mark.parametrize("is_tied", [True, False])
def test_a_resume_says_nothing_of_tied_weights(make, is_tied, tmp_path, monkeypatch):
    def start():
        trainer = make(tmp_path, save_total_limit=2, load_best_model_at_end=True, eval_steps=3)
        if not is_tied:
            config = trainer.model.config
            config.tie_word_embeddings = False
            trainer.model = type(trainer.model)(config)
        return trainer

    said = []
    monkeypatch.setattr(transformers.trainer.logger, "warning", said.append)
    train_until_cut(add(start(), CutAt(7)))
    trainer = start()
    with resumes_after(6):
        train_to_the_end(trainer, True)
    assert said == []
    assert trainer.state.best_model_checkpoint is not None
    with safe_open(tmp_path / "checkpoint-9" / "model.safetensors", "pt") as file:
        assert ("lm_head.weight" in file.keys()) != is_tied  # noqa: SIM118


def test_a_head_that_was_untied_after_opening_is_saved(tmp_path):
    trainer = make_pretraining(tmp_path, max_steps=1)
    trainer.train()
    model, head = trainer.model, trainer.model.lm_head
    model.config.tie_word_embeddings, head.weight = False, nn.Parameter(head.weight.detach() + 1)
    for save in (trainer.save_model, lambda: model.save_pretrained(tmp_path / "by hand")):
        save()
    for folder in (tmp_path, tmp_path / "by hand"):
        assert torch.equal(modeling_gpt1.GPT1ForCausalLM.from_pretrained(folder).lm_head.weight, head.weight)


def test_other_settings_are_told(tmp_path, monkeypatch):
    train_until_cut(make_pretraining(tmp_path, callbacks=[CutAt(4)]))
    said = []
    monkeypatch.setattr(checkpoints.logger, "warning", said.append)
    with resumes_after(3):
        train_to_the_end(make_pretraining(tmp_path), True)
    assert said == []
    more = {"max_grad_norm": 0.5, "lr_scheduler_type": "constant", "warmup_steps": 4, "seed": 1}
    for later in ("checkpoint-6", "checkpoint-9"):
        shutil.rmtree(tmp_path / later)
    trainer = make_pretraining(tmp_path, learning_rate=0.5, weight_decay=0.2, per_device_train_batch_size=2, **more)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    told = "learning_rate was 0.01 and is 0.5, weight_decay was 0.01 and is 0.2, per_device_train_batch_size was 3 "
    told += "and is 2, seed was 42 and is 1, lr_scheduler_type was cosine and is constant, warmup_steps was "
    assert f"{told}2 and is 4, max_grad_norm was 1.0 and is 0.5." in said[0]
    assert trainer.lr_scheduler.base_lrs == [0.01, 0.01]
    # What the optimizer did is what the card and the next checkpoint tell.
    decays = {group["weight_decay"] for group in trainer.optimizer.param_groups}
    assert decays == {0.0, trainer.args.weight_decay} == {0.0, 0.01}
    assert trainer.args.learning_rate == 0.01
    found = checkpoints.newest_whole_checkpoint(tmp_path)
    assert checkpoints.read_content(found)["settings"]["weight_decay"] == 0.01
    for optim in ("sgd", "adafactor"):
        told = refusal(make_pretraining(tmp_path, optim=optim).train, resume_from_checkpoint="auto")
        assert f"`optim` is '{optim}', but {found} was trained with 'adamw_torch" in told
    make_fine_tuning(tmp_path / "task", max_steps=3).train()
    trainer = make_fine_tuning(tmp_path / "task", max_steps=6)
    trainer.args.lm_coef = 0.1
    trainer.train(resume_from_checkpoint="auto")
    assert "with other settings: lm_coef was 0.5 and is 0.1. Pass" in said[-2]
    assert "planned over 6 updates now, 3 before: it rises from 0.0e+00 to 2.5e-02. Pass the old length" in said[-1]
    changed = r"train_dataset was (\d+) rows \(\w{8}\) and is \1 rows \(\w{8}\)\."
    placed = [{**row, "row of the file": place} for place, row in enumerate(ROWS)]  # as the command gives them
    for rows, told in ((ROWS, None), (placed, None), (ROWS[::-1], changed)):
        before, settings = len(said), trainer.args
        now = checkpoints.settings_of(settings, datasets.Dataset.from_list(ROWS))
        after = checkpoints.settings_of(settings, datasets.Dataset.from_list(rows))
        checkpoints.keep_settings("it", now, after, settings)
        assert len(said) == before if told is None else re.search(told, said[-1])


def add(trainer, callback):
    trainer.add_callback(callback)
    return trainer


def cut_inside(monkeypatch, owner, name: str, when=lambda *args: True) -> None:
    """Ends the run where `owner.name` is about to be called."""
    original = getattr(owner, name)

    def cut_or_call(*args, **kwargs):
        if when(*args):
            raise Cut
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, cut_or_call)


def is_of_step_6(*args) -> bool:
    return any("checkpoint-6" in str(argument) for argument in args)


WRITES = {
    "the weights": (modeling_gpt1.GPT1ForCausalLM, "save_pretrained", is_of_step_6),
    "the optimizer": (torch, "save", lambda state, path: is_of_step_6(path) and path.endswith("optimizer.pt")),
    "the random state": (torch, "save", lambda state, path: is_of_step_6(path) and path.endswith("rng_state.pth")),
    "the list of files": (Path, "write_text", is_of_step_6),
    "the flush": (writing, "flush", is_of_step_6),
    "the rename": (os, "rename", is_of_step_6),
}


class TestAtomicCheckpoints:
    @pytest.mark.parametrize("write", WRITES)
    def test_a_cut_checkpoint_is_not_there(self, write, tmp_path, monkeypatch):
        expected = train_to_the_end(make_pretraining(tmp_path / "whole"))
        with monkeypatch.context() as patch:
            cut_inside(patch, *WRITES[write])
            train_until_cut(make_pretraining(tmp_path / "cut"))
        assert {path.name for path in (tmp_path / "cut").iterdir()} == {"checkpoint-3", "_incomplete"}
        assert newest_whole_checkpoint(tmp_path / "cut") == str(tmp_path / "cut" / "checkpoint-3")
        with resumes_after(3):
            assert differing(train_to_the_end(make_pretraining(tmp_path / "cut"), True), expected) == []
        assert not (tmp_path / "cut" / "_incomplete").exists()

    def test_old_checkpoints_go_after_the_new_one_is_there(self, tmp_path, monkeypatch):
        deleted = []

        def delete(path, **kwargs):
            if Path(path).name.startswith("deleted-"):
                deleted.append((Path(path).name, sorted(p.name for p in tmp_path.glob("checkpoint-*"))))

        monkeypatch.setattr(shutil, "rmtree", delete)
        train_to_the_end(make_pretraining(tmp_path, save_total_limit=1))
        assert deleted == [("deleted-checkpoint-3", ["checkpoint-6"]), ("deleted-checkpoint-6", ["checkpoint-9"])]
        assert all((tmp_path / "_incomplete" / name).exists() for name, _ in deleted)

    def test_the_limit_counts_steps_and_not_times(self, tmp_path):
        def turn_times_round():
            os.utime(tmp_path / "checkpoint-3", (2e9, 2e9))
            os.utime(tmp_path / "checkpoint-6", (1e9, 1e9))
            shutil.copytree(tmp_path / "checkpoint-3", tmp_path / "checkpoint-3-copy")

        trainer = make_pretraining(tmp_path, save_total_limit=2, callbacks=[CutAt(7, turn_times_round)])
        trainer.get_decay_parameter_names = lambda model: trainer.log({"train_loss": 42.0}) or []  # a user's figure
        train_to_the_end(trainer)
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-3-copy", "checkpoint-6", "checkpoint-9"}
        assert trainer.state.log_history[0]["train_loss"] == 42.0

    def test_a_users_folder_stays_when_only_the_best_is_kept(self, tmp_path):
        def put_a_folder_there():
            (tmp_path / "checkpoint-1").mkdir()
            (tmp_path / "checkpoint-1" / "kept.txt").write_text("a user's")

        settings = {"eval_steps": 3, "load_best_model_at_end": True, "metric_for_best_model": "loss"}
        trainer = make_pretraining(tmp_path, save_total_limit=1, greater_is_better=True, **settings)
        train_to_the_end(add(trainer, CutAt(4, put_a_folder_there)))
        assert trainer.state.best_global_step == 3
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-1", "checkpoint-3"}
        assert (tmp_path / "checkpoint-1" / "kept.txt").read_text() == "a user's"

    def test_a_users_folder_in_the_way_is_told_before_training(self, tmp_path):
        foreign = tmp_path / "checkpoint-6"
        foreign.mkdir()
        (foreign / "kept.txt").write_text("a user's")
        for resume in (None, "auto"):
            trainer = make_pretraining(tmp_path)
            with pytest.raises(ValueError, match=f"`output_dir` holds {foreign}, which .* Move it away"):
                trainer.train(resume_from_checkpoint=resume)
            assert trainer.state.global_step == 0
        assert [path.name for path in foreign.iterdir()] == ["kept.txt"]

    def test_a_second_run_is_told_who_writes(self, tmp_path):
        leftover, said = tmp_path / "_incomplete" / "checkpoint-6" / "model.safetensors", []

        def start_another():
            leftover.parent.mkdir(parents=True)
            leftover.write_text("half")
            said.append(refusal(make_pretraining(tmp_path).train))
            assert leftover.read_text() == "half"

        train_to_the_end(make_pretraining(tmp_path, callbacks=[CutAt(4, start_another)]))
        assert "another run is writing. Wait until it" in said[0]
        train_to_the_end(make_pretraining(tmp_path), "auto")
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-3", "checkpoint-6", "checkpoint-9"}

    def test_a_damaged_checkpoint_of_the_same_step_is_replaced(self, tmp_path):
        train_to_the_end(make_pretraining(tmp_path))
        for damaged in ("checkpoint-6", "checkpoint-9"):
            (tmp_path / damaged / "optimizer.pt").unlink()
        expected = train_to_the_end(make_pretraining(tmp_path, learning_rate=2e-2), str(tmp_path / "checkpoint-3"))
        weights = modeling_gpt1.GPT1ForCausalLM.from_pretrained(tmp_path / "checkpoint-9").state_dict()
        assert differing(weights, expected["weights"]) == []
        assert not (tmp_path / "_incomplete").exists()

    def test_a_run_that_saves_nothing_may_go_back(self, tmp_path):
        train_to_the_end(make_pretraining(tmp_path))
        trainer = make_pretraining(tmp_path, save_strategy="no")
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
        assert trainer.state.global_step == 9
        assert {path.name for path in tmp_path.glob("checkpoint-*")} == {
            "checkpoint-3",
            "checkpoint-6",
            "checkpoint-9",
        }

    def test_a_checkpoint_that_was_about_to_be_replaced_comes_back(self, tmp_path, monkeypatch):
        expected = train_to_the_end(make_pretraining(tmp_path))
        shutil.rmtree(tmp_path / "checkpoint-9")
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "check_is_last", lambda *places: None)  # as if it came there during the run
            cut_inside(patch, os, "rename", lambda old, new: Path(new) == tmp_path / "checkpoint-6")
            train_until_cut(make_pretraining(tmp_path), str(tmp_path / "checkpoint-3"))
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-3", "_incomplete"}
        checkpoints.clear_leftovers(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-3", "checkpoint-6"}
        assert newest_whole_checkpoint(tmp_path) == str(tmp_path / "checkpoint-6")
        assert differing(train_to_the_end(make_pretraining(tmp_path), True), expected) == []

    @pytest.mark.parametrize("sizes", [("4KB", "1GB"), ("1GB", "4KB"), ("4KB", "8KB")])
    def test_weights_of_an_older_save_do_not_stay(self, sizes, tmp_path):
        models = [make_pretraining(tmp_path).model for _ in sizes]
        for weight in models[1].parameters():
            weight.data.add_(1.0)
        kept = {"README.md", "model.safetensors.old", "adapter_model.safetensors", "model-a-of-b.safetensors"}
        for name in kept:
            (tmp_path / name).write_text("a user's")
        numbers = []
        for model, size in zip(models, sizes, strict=True):
            staging = tmp_path / "_incomplete" / "model"
            model.save_pretrained(staging, max_shard_size=size)
            (staging / "README.md").write_text("a form")
            saved = {path.name for path in staging.iterdir()}
            numbers.append(sum("safetensors" in name for name in saved))
            checkpoints.publish_model(staging, tmp_path)
            (tmp_path / "adapter_config.json").touch()  # with the other file, a whole adapter
        (tmp_path / "adapter_config.json").unlink()
        kept.remove("adapter_model.safetensors")
        assert len(set(numbers)) == 2
        assert {path.name for path in tmp_path.iterdir()} == saved | kept
        assert {(tmp_path / name).read_text() for name in kept} == {"a user's"}
        weights = modeling_gpt1.GPT1ForCausalLM.from_pretrained(tmp_path).state_dict()
        assert differing(weights, models[1].state_dict()) == []

    def test_the_newest_checkpoint_is_that_of_the_latest_step(self, tmp_path):
        train_to_the_end(make_pretraining(tmp_path))
        os.rename(tmp_path / "checkpoint-6", tmp_path / "checkpoint-10")
        assert newest_whole_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")

    def test_no_pickle_of_the_arguments_at_any_moment(self, tmp_path, monkeypatch):
        written, save = [], torch.save
        monkeypatch.setattr(torch, "save", lambda state, path: written.append(Path(path).name) or save(state, path))
        trainer = make_fine_tuning(tmp_path, max_steps=3)
        trainer.train()
        trainer.save_model()
        assert written == ["optimizer.pt", "scheduler.pt", "rng_state.pth"]
        model = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", *HUB_CODE}
        assert {path.name for path in tmp_path.iterdir()} == {*model, "checkpoint-3"}
        files = {path.name for path in (tmp_path / "checkpoint-3").iterdir()}
        assert files == {*model, *written, "trainer_state.json", "checkpoint.json"}

    def test_a_saved_model_is_replaced_by_a_whole_one(self, tmp_path, monkeypatch):
        first = make_fine_tuning(tmp_path, save_strategy="no", max_steps=1)
        first.save_model()
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        with monkeypatch.context() as patch:
            cut_inside(patch, writing, "flush")
            first.train()
            with pytest.raises(Cut):
                first.save_model()
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
        first.save_model()
        assert not (tmp_path / "_incomplete").exists()
        weights = modeling_gpt1.GPT1DoubleHeadsModel.from_pretrained(tmp_path).state_dict()
        assert differing(weights, first.model.state_dict()) == []


UNREADABLE = "it has no readable checkpoint.json, which this trainer writes last"


def flip_a_bit(path: Path) -> None:
    """Changes one bit in the middle of a file, as a bad disk does: the size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_an_altered_checkpoint_is_skipped_for_the_one_before(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(checkpoints.logger, "warning", said.append)
    expected = train_to_the_end(make_pretraining(tmp_path / "whole"))
    train_until_cut(add(make_pretraining(tmp_path / "cut"), CutAt(7)))
    flip_a_bit(tmp_path / "cut" / "checkpoint-6" / "optimizer.pt")
    with resumes_after(3):
        found = train_to_the_end(make_pretraining(tmp_path / "cut"), "auto")
    assert "checkpoint-6 is not a complete checkpoint and is skipped: optimizer.pt is not what was written" in said[0]
    assert differing(found, expected) == []


@pytest.fixture(scope="module")
def saved_run(tmp_path_factory):
    """The folder of a run with three checkpoints."""
    folder = tmp_path_factory.mktemp("saved")
    train_to_the_end(make_pretraining(folder))
    return folder


def test_a_check_finds_the_altered_checkpoint_of_a_run(saved_run, tmp_path, capsys):
    run = shutil.copytree(saved_run, tmp_path / "run")
    flip_a_bit(run / "checkpoint-6" / "model.safetensors")
    with pytest.raises(SystemExit) as end:
        env.main(["--check", str(run)])
    assert end.value.code == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{run}/checkpoint-3: as it was written",
        f"{run}/checkpoint-6: damaged: model.safetensors is not what was written: its SHA-256 differs",
        f"{run}/checkpoint-9: as it was written",
    ]


def test_a_check_of_one_checkpoint_says_that_it_is_whole(saved_run, capsys):
    env.main(["--check", str(saved_run / "checkpoint-3")])
    assert capsys.readouterr().out == f"{saved_run}/checkpoint-3: as it was written\n"


def test_a_check_says_where_there_are_no_checksums(saved_run, tmp_path, capsys):
    checkpoint = shutil.copytree(saved_run / "checkpoint-3", tmp_path / "checkpoint-3")
    leave_checksums_out(checkpoint)
    env.main(["--check", str(checkpoint)])
    assert capsys.readouterr().out == f"{checkpoint}: of the sizes that were written; it has no checksums\n"


def test_a_check_of_a_folder_without_checkpoints_is_refused(tmp_path):
    assert f"{tmp_path} has no checkpoint. Pass the" in refusal(env.main, ["--check", str(tmp_path)])


def leave_checksums_out(checkpoint):
    """Makes a checkpoint one of an earlier version."""
    manifest = checkpoint / "checkpoint.json"
    content = json.loads(manifest.read_text())
    for entry in content["files"].values():
        del entry["sha256"]
    manifest.write_text(json.dumps(content))


class TestRefusals:
    @pytest.mark.parametrize("make", [make_pretraining, make_fine_tuning])
    def test_a_new_run_in_the_folder_of_another(self, make, tmp_path):
        train_until_cut(add(make(tmp_path, save_total_limit=1), CutAt(7)))
        trainer = make(tmp_path)
        assert f"{tmp_path}/checkpoint-6 of an earlier run. Pass `resume_from_checkpoint=" in refusal(trainer.train)
        assert trainer.state.global_step == 0
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-6"]
        if make is make_pretraining:
            make(tmp_path, save_strategy="no", max_steps=1).train()  # touches no checkpoint
        train_to_the_end(make(tmp_path), "auto")
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-6", "checkpoint-9"}

    @pytest.mark.parametrize("make", [make_pretraining, make_fine_tuning])
    def test_a_checkpoint_before_others_of_the_same_folder(self, make, tmp_path):
        train_to_the_end(make(tmp_path))
        trainer = make(tmp_path, save_total_limit=1)
        told = refusal(trainer.train, resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
        assert f"'{tmp_path}/checkpoint-3', after 3 updates, but {tmp_path} has later" in told
        assert "checkpoint-6, checkpoint-9. Move those away, or pass another `output_dir`." in told
        assert trainer.state.global_step == 0
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-3", "checkpoint-6", "checkpoint-9"}

    def test_a_checkpoint_of_another_folder_before_those_of_the_runs_own(self, tmp_path):
        for name in ("one", "other"):
            train_to_the_end(make_pretraining(tmp_path / name))
        checkpoint = str(tmp_path / "one" / "checkpoint-6")
        told = refusal(make_pretraining(tmp_path / "other").train, resume_from_checkpoint=checkpoint)
        assert f"{tmp_path}/other has later checkpoints: checkpoint-9. Move" in told

    def test_a_later_checkpoint_of_the_model_alone(self, tmp_path):
        train_until_cut(make_pretraining(tmp_path, callbacks=[CutAt(4)]))
        train_to_the_end(make_pretraining(tmp_path, save_only_model=True), "auto")
        told = refusal(make_pretraining(tmp_path).train, resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
        assert "later checkpoints: checkpoint-6, checkpoint-9. Move" in told

    @pytest.mark.parametrize(
        "damage, fault",
        [
            (lambda folder: (folder / "optimizer.pt").unlink(), "optimizer.pt is missing"),
            (lambda folder: os.truncate(folder / "scheduler.pt", 10), "scheduler.pt has 10 bytes instead of {size}"),
            (lambda folder: (folder / "checkpoint.json").write_text('{"files": {'), UNREADABLE),
            (lambda folder: (folder / "checkpoint.json").write_text('{"files": {}}'), UNREADABLE),
            (lambda folder: shutil.rmtree(folder), "it is not a folder"),
        ],
    )
    def test_a_broken_checkpoint(self, damage, fault, tmp_path):
        train_to_the_end(make_pretraining(tmp_path, max_steps=3))
        folder = tmp_path / "checkpoint-3"
        size = (folder / "scheduler.pt").stat().st_size
        damage(folder)
        trainer = make_pretraining(tmp_path)
        told = refusal(trainer.train, resume_from_checkpoint=str(folder))
        assert f"'{folder}', which is not a complete checkpoint: {fault.format(size=size)}. Pass" in told
        with pytest.raises(ValueError, match="No complete checkpoint in .* Start without `resume_from_checkpoint`"):
            trainer.train(resume_from_checkpoint=True)
        assert trainer.state.global_step == 0

    @pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "rng_state.pth"])
    def test_a_checkpoint_with_a_flipped_bit(self, name, tmp_path):
        train_to_the_end(make_pretraining(tmp_path, max_steps=3))
        folder = tmp_path / "checkpoint-3"
        flip_a_bit(folder / name)
        told = refusal(make_pretraining(tmp_path).train, resume_from_checkpoint=str(folder))
        assert f"{name} is not what was written: its SHA-256 differs" in told

    def test_a_checkpoint_of_a_version_without_checksums(self, tmp_path):
        train_to_the_end(make_pretraining(tmp_path, max_steps=3))
        leave_checksums_out(tmp_path / "checkpoint-3")
        trainer = make_pretraining(tmp_path)
        train_to_the_end(trainer, str(tmp_path / "checkpoint-3"))
        assert trainer.state.global_step == 9

    def test_another_tokenizer_of_as_many_tokens(self, tmp_path):
        def start(*tokens):
            vocabulary = {token: number for number, token in enumerate(["<unk>", *tokens])}
            trainer = make_pretraining(tmp_path, max_steps=3)
            trainer.processing_class = modeling_gpt1.GPT1Tokenizer(vocab=vocabulary, merges=[])
            return trainer

        train_to_the_end(start("a</w>", "b</w>"))
        told = refusal(start("b</w>", "a</w>").train, resume_from_checkpoint="auto")
        assert "checkpoint-3', whose tokenizer has other tokens, ids or merges than this run's. Pass" in told
        train_to_the_end(start("a</w>", "b</w>"), "auto")

    @pytest.mark.parametrize("change", ["merges", "added tokens"])
    def test_a_tokenizer_of_the_same_vocabulary(self, change, tmp_path):
        """Its merges cut words otherwise, or its added tokens have other ids."""

        def make(order):
            vocabulary = ["<unk>", "a", "b", "c</w>", "ab", "bc</w>"]
            merges, added = [("a", "b"), ("b", "c</w>")], ["[one]", "[two]"]
            tokenizer = modeling_gpt1.GPT1Tokenizer(
                vocab={token: number for number, token in enumerate(vocabulary)},
                merges=merges[::order] if change == "merges" else merges,
            )
            tokenizer.add_tokens(added[::order] if change == "added tokens" else added)
            return tokenizer

        make(1).save_pretrained(tmp_path)
        checkpoints.check_tokenizer(str(tmp_path), make(1))
        told = refusal(checkpoints.check_tokenizer, str(tmp_path), make(-1))
        assert f"is '{tmp_path}', whose tokenizer has other tokens, ids or merges than this run's." in told

    def test_a_resume_by_the_word_true_needs_a_checkpoint(self, tmp_path):
        """As a command line gives it."""
        told = refusal(checkpoints.checkpoint_to_resume, "true", tmp_path)
        assert told == f"No complete checkpoint in {tmp_path}. Start without `resume_from_checkpoint`."

    @pytest.mark.parametrize("content", ["null", '{"files": {"model.safetensors": 9}}'])
    def test_a_checkpoint_of_another_version_is_not_skipped(self, content, tmp_path):
        train_to_the_end(make_pretraining(tmp_path, max_steps=3))
        (tmp_path / "checkpoint-3" / "checkpoint.json").write_text(content)
        for resume in ("auto", str(tmp_path / "checkpoint-3")):
            told = refusal(make_pretraining(tmp_path).train, resume_from_checkpoint=resume)
            assert "checkpoint-3 has a checkpoint.json of another version and cannot go on. Pass it as `model`" in told

    def test_a_checkpoint_of_the_model_alone(self, tmp_path):
        train_to_the_end(make_pretraining(tmp_path, max_steps=3, save_only_model=True))
        told = refusal(make_pretraining(tmp_path).train, resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
        assert "not a complete checkpoint: it holds only the model (`save_only_model`). Pass" in told

    def test_auto_beside_checkpoints_of_the_model_alone(self, tmp_path):
        train_to_the_end(make_pretraining(tmp_path, max_steps=3, save_only_model=True))
        weights = (tmp_path / "checkpoint-3" / "model.safetensors").read_bytes()
        told = refusal(make_pretraining(tmp_path, seed=1).train, resume_from_checkpoint="auto")
        assert f"{tmp_path}/checkpoint-3 holds only the model (`save_only_model`), so that no run can" in told
        assert told.endswith("Pass it as `model` and another `output_dir`, or move it away.")
        assert (tmp_path / "checkpoint-3" / "model.safetensors").read_bytes() == weights

    def test_auto_begins_anew_where_the_only_checkpoint_was_altered(self, tmp_path):
        """It is whole, but for its checksums, and holds more than the model."""
        train_to_the_end(make_pretraining(tmp_path, max_steps=3))
        weights = tmp_path / "checkpoint-3" / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        assert checkpoints.checkpoint_to_resume("auto", tmp_path) is None

    @pytest.mark.parametrize("place", ["{tmp_path}/file", "{tmp_path}/file/below", "/proc/checkpoints"])
    def test_a_place_that_cannot_be_written(self, place, tmp_path):
        (tmp_path / "file").write_text("in the way")
        place = place.format(tmp_path=tmp_path)
        with pytest.raises(ValueError, match=f"`output_dir` is '{place}', which is not writable .* Pass a writable"):
            make_pretraining(place)
        assert (tmp_path / "file").read_text() == "in the way"

    def test_early_stopping_remembers_its_patience(self, tmp_path):
        settings = dict(eval_steps=1, save_steps=1, load_best_model_at_end=True, metric_for_best_model="loss")
        train_until_cut(make_pretraining(tmp_path, callbacks=[EarlyStoppingCallback(3, 9.0), CutAt(3)], **settings))
        trainer = make_pretraining(tmp_path, callbacks=[EarlyStoppingCallback(3, 9.0)], **settings)
        trainer.train(resume_from_checkpoint="auto")
        assert trainer.state.global_step == 4  # the first evaluation was the best, and three were not

    def test_another_error_stays_what_it_is(self, tmp_path, monkeypatch):
        def fail(*args, **kwargs):
            raise RuntimeError("not of the disk")

        monkeypatch.setattr(modeling_gpt1.GPT1ForCausalLM, "save_pretrained", fail)
        with pytest.raises(RuntimeError, match="^not of the disk$"):
            make_pretraining(tmp_path).train()
        assert list(tmp_path.iterdir()) == []


def limit_file_size(num_bytes: int) -> None:
    """Larger writes of this process fail from now on: EFBIG, a real error of the system that needs no small disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))


def kill_in_the_middle_of_a_file(folder: str) -> None:
    save = torch.save

    def save_half(state, path):
        save(state, path)
        if is_of_step_6(path) and path.endswith("optimizer.pt"):
            os.truncate(path, os.path.getsize(path) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    torch.save = save_half
    make_pretraining(folder).train()


def kill_in_the_middle_of_an_update(folder: str) -> None:
    kill = CutAt(7, lambda: os.kill(os.getpid(), signal.SIGKILL))
    make_pretraining(folder, callbacks=[kill]).train(resume_from_checkpoint="auto")


def write_too_much(folder: str) -> None:
    """Under the first limit the model's file fits and the optimizer's does not; under the second neither does."""
    modeling_gpt1.GPT1Config._auto_class = None  # no code beside the model: its files are larger than these weights
    trainer = make_pretraining(folder, callbacks=[CutAt(4, lambda: limit_file_size(30_000))])
    with pytest.raises(CheckpointError) as error:
        trainer.train()
    limit_file_size(resource.RLIM_INFINITY)
    print(error.value)
    trainer.save_model()
    nn.init.zeros_(trainer.model.transformer.tokens_embed.weight)
    limit_file_size(10_000)
    with pytest.raises(CheckpointError) as error:
        trainer.save_model()
    limit_file_size(resource.RLIM_INFINITY)
    print(error.value)


def run_two_processes(folder: str) -> None:
    """Whole, cut in the middle of the third epoch, resumed; then the first process fails to write."""
    for order in ("random", "group_by_length"):
        settings = {"train_sampling_strategy": order, "gradient_accumulation_steps": 1, "save_steps": 5}
        expected = train_to_the_end(make_pretraining(f"{folder}/{order}", **settings))
        train_until_cut(make_pretraining(f"{folder}/{order}-cut", callbacks=[CutAt(6)], **settings))
        trainer = make_pretraining(f"{folder}/{order}-cut", **settings)
        with resumes_after(5):
            line = (
                f"rank {trainer.args.process_index} {order}: {differing(train_to_the_end(trainer, True), expected)}\n"
            )
        sys.stdout.write(line)  # at once, so that no line of the other process comes between it and its end
    trainer.accelerator.wait_for_everyone()
    limit = CutAt(4, lambda: trainer.args.should_save and limit_file_size(30_000))
    trainer = make_pretraining(f"{folder}/full", callbacks=[limit])
    trainer.train()


def test_killed_for_real(tmp_path):
    for case in ("kill_in_the_middle_of_a_file", "kill_in_the_middle_of_an_update"):
        codes, output = fork_together(1, __file__, case, tmp_path / "cut")
        assert codes == [-signal.SIGKILL], output[-3000:]
        if case == "kill_in_the_middle_of_a_file":
            assert (tmp_path / "cut" / "_incomplete" / "checkpoint-6" / "optimizer.pt").exists()
            assert newest_whole_checkpoint(tmp_path / "cut") == str(tmp_path / "cut" / "checkpoint-3")
    expected = train_to_the_end(make_pretraining(tmp_path / "whole"))
    with resumes_after(6):
        assert differing(train_to_the_end(make_pretraining(tmp_path / "cut"), True), expected) == []


def test_a_file_that_the_system_refuses(tmp_path):
    output = run_together(1, __file__, "write_too_much", tmp_path)
    checkpoint, model = [line for line in output.splitlines() if "could not be written" in line]
    last = f"The last checkpoint is {tmp_path}/checkpoint-3. Make sure that it can be written and that there is room"
    assert checkpoint.startswith(f"checkpoint-6 could not be written to {tmp_path}: ")
    assert "inline_container.cc" in checkpoint
    assert last in checkpoint
    assert model.startswith(f"model could not be written to {tmp_path}: ")
    assert "(os error 27)" in model
    assert last in model
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"checkpoint-3", "config.json", "generation_config.json", "model.safetensors"}
    assert modeling_gpt1.GPT1ForCausalLM.from_pretrained(tmp_path).transformer.tokens_embed.weight.abs().sum() > 1


def test_two_processes(tmp_path):
    codes, output = fork_together(2, __file__, "run_two_processes", tmp_path)
    assert codes[0] == 1, output[-3000:]
    lines = sorted(line for line in output.splitlines() if line.startswith("rank"))
    orders = ("group_by_length", "random")
    assert lines == [f"rank {rank} {order}: []" for rank in (0, 1) for order in orders], output[-3000:]
    assert f"CheckpointError: checkpoint-6 could not be written to {tmp_path}/full: " in output
    # The other process may write its part after the first has cleared away: the next run clears it.
    assert {path.name for path in (tmp_path / "full").iterdir()} - {"_incomplete"} == {"checkpoint-3"}
    assert newest_whole_checkpoint(tmp_path / "full") == str(tmp_path / "full" / "checkpoint-3")


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])


def test_a_folder_that_is_not_the_trainers_is_not_replaced(tmp_path):
    """Made by somebody during the run, where a checkpoint goes."""
    staging, folder = tmp_path / "_incomplete" / "checkpoint-2", tmp_path / "checkpoint-2"
    staging.mkdir(parents=True), folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="did not write is there"):
        checkpoints.publish_checkpoint(staging, folder, {})
    assert (folder / "notes.txt").read_text() == "mine"


def test_the_log_beside_the_model_names_no_folder_of_this_machine(tmp_path):
    """It is pushed. The log of a checkpoint is not."""
    settings = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1, load_best_model_at_end=True, **settings)
    trainer.train()
    trainer.save_state()
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-2")
    text = (tmp_path / "trainer_state.json").read_text(encoding="utf-8")
    assert json.loads(text)["best_model_checkpoint"] == "checkpoint-2"
    assert str(tmp_path) not in text


def test_log_and_metrics_are_those_of_transformers(tmp_path):
    trainer = make_finetuning_trainer("entailment", tmp_path / "ours", 8, 1, max_steps=1)
    trainer.train()
    for split in ("train", "eval"):
        trainer.save_metrics(split, {f"{split}_loss": 0.5})
    trainer.save_state()
    ours = {path.name: path.read_bytes() for path in (tmp_path / "ours").glob("*.json")}
    trainer.args.output_dir = str(tmp_path / "theirs")
    os.makedirs(tmp_path / "theirs")
    for split in ("train", "eval"):
        transformers.Trainer.save_metrics(trainer, split, {f"{split}_loss": 0.5})
    transformers.Trainer.save_state(trainer)
    assert {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()} == ours
    assert ours.keys() == {"train_results.json", "eval_results.json", "all_results.json", "trainer_state.json"}


def test_metrics_that_were_cut_are_written_anew(tmp_path):
    (tmp_path / "all_results.json").write_text('{"train_loss": 0.', encoding="utf-8")
    trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1, max_steps=1)
    trainer.save_metrics("eval", {"eval_loss": 0.5})
    assert json.loads((tmp_path / "all_results.json").read_text(encoding="utf-8")) == {"eval_loss": 0.5}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_act", "relu"),
        ("layer_norm_epsilon", 1e-3),
        ("do_layer_norm_before", True),
        ("sliding_window", 3),
        ("tie_word_embeddings", False),
        ("traversal", "entailment"),
    ],
)
def test_a_model_of_other_numbers_is_not_resumed(tiny_config, tmp_path, field, value):
    """None of these fields changes the shape of a weight; an id of a token, λ and dropouts are the run's to choose."""
    config = tiny_config(traversal="classification")
    config.save_pretrained(tmp_path)
    free = {"pad_token_id": 5, "lm_coef": 0.1, "embd_pdrop": 0.3}
    checkpoints.check_architecture(str(tmp_path), tiny_config(traversal="classification", **free))
    was = getattr(config, field)
    other = tiny_config(**{"traversal": "classification", field: value})
    told = refusal(checkpoints.check_architecture, str(tmp_path), other)
    assert f"whose model has the {field} {was}, but this run's has {value}." in told


def test_an_optimizer_with_the_same_state_goes_on(tmp_path):
    """transformers' default is the fused AdamW where torch has one."""
    (tmp_path / checkpoints.CHECKPOINT_NAME).write_text('{"settings": {"optim": "adamw_torch"}}')
    for optim in ("adamw_torch", "adamw_torch_fused"):
        args = modeling_gpt1.GPT1TrainingArguments(str(tmp_path), optim=optim, report_to="none", use_cpu=True)
        checkpoints.check_optimizer(str(tmp_path), args)
    args = modeling_gpt1.GPT1TrainingArguments(str(tmp_path), optim="sgd", report_to="none", use_cpu=True)
    assert "`optim` is 'sgd', but" in refusal(checkpoints.check_optimizer, str(tmp_path), args)


def test_another_first_middle_or_last_row_has_another_fingerprint():
    def fingerprint(texts):
        return checkpoints.fingerprint_of(datasets.Dataset.from_list([{"text": text} for text in texts]))

    assert fingerprint("abcde") == fingerprint("abcde")
    others = {fingerprint(texts) for texts in ("abcde", "xbcde", "abxde", "abcdx", "abcdef")}
    assert len(others) == 5


@pytest.mark.parametrize("is_one", [True, False], ids=["one", "several"])
def test_other_rows_to_evaluate_are_noticed(is_one, tmp_path):
    args = modeling_gpt1.GPT1TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)

    def settings(label):
        rows = datasets.Dataset.from_list([{"text": "a", "label": label}])
        same = datasets.Dataset.from_list([{"text": "b", "label": 0}])
        return checkpoints.settings_of(args, None, rows if is_one else {"matched": rows, "other": same})

    assert checkpoints.is_best_comparable(settings(0), settings(0))
    assert not checkpoints.is_best_comparable(settings(0), settings(1))
    assert checkpoints.is_best_comparable({}, settings(1))  # of a checkpoint that was written before


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (transformers.GPT2Config, "activation_function", "relu"),
        (transformers.BertConfig, "layer_norm_eps", 1e-5),
        (transformers.Qwen2Config, "layer_types", ["full_attention", "sliding_attention"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_model_of_another_family_with_other_numbers_is_not_resumed(kind, field, value, tmp_path):
    sizes = {"num_hidden_layers": 2, "sliding_window": 8}
    before = kind(**sizes)
    before.save_pretrained(tmp_path)
    checkpoints.check_architecture(str(tmp_path), kind(**sizes))
    told = refusal(checkpoints.check_architecture, str(tmp_path), kind(**sizes, **{field: value}))
    assert f"whose model has the {field} {getattr(before, field)}, but this run's has {value}." in told


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("adam_beta1", 0.8),
        ("adam_beta2", 0.9),
        ("adam_epsilon", 1e-7),
        ("gradient_accumulation_steps", 2),
        ("world_size", 2),
        ("class_weights", "balanced"),
        ("train_sampling_strategy", "random"),
        ("data_seed", 3),
    ],
)
def test_each_setting_that_a_resumed_run_has_anew_is_told(name, value, tmp_path, monkeypatch):
    def make(**more):
        return modeling_gpt1.GPT1TrainingArguments(str(tmp_path), report_to="none", use_cpu=True, **more)

    said = []
    monkeypatch.setattr(checkpoints.logger, "warning", said.append)
    before = checkpoints.settings_of(make())
    if name == "world_size":
        args = make()
        monkeypatch.setattr(modeling_gpt1.GPT1TrainingArguments, name, value)
    else:
        args = make(**{name: value})
    checkpoints.keep_settings("it", before, checkpoints.settings_of(args), args)
    assert f"with other settings: {name} was {before[name]} and is {value}. Pass" in said[0]


@pytest.mark.parametrize(("was", "now"), [(None, 3), (3, None), (3, 3)])
def test_a_number_of_trained_weights_that_is_not_known_refuses_nothing(was, now, tmp_path):
    content = {} if was is None else {"trained_weights": was}
    (tmp_path / checkpoints.CHECKPOINT_NAME).write_text(json.dumps(content))
    checkpoints.check_trained_weights(str(tmp_path), now)


def make_checkpoint_folders(run_dir: Path, steps: tuple[int, ...]) -> set[str]:
    """Folders that this trainer may delete; their names."""
    for step in steps:
        (run_dir / f"checkpoint-{step}").mkdir()
        (run_dir / f"checkpoint-{step}" / checkpoints.CHECKPOINT_NAME).touch()
    return {path.name for path in run_dir.iterdir()}


@pytest.mark.parametrize("limit", [None, 0, -1])
def test_without_a_limit_every_checkpoint_stays(limit, tmp_path):
    """transformers has no limit below 1 either."""
    names = make_checkpoint_folders(tmp_path, (3, 6, 9))
    checkpoints.delete_old_checkpoints(tmp_path, limit, {"checkpoint-9"})
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_checkpoint_that_cannot_be_deleted_does_not_end_the_run(tmp_path, monkeypatch):
    def fail(*names):
        raise OSError("Permission denied")

    said = []
    monkeypatch.setattr(checkpoints.logger, "warning", said.append)
    monkeypatch.setattr(os, "rename", fail)
    make_checkpoint_folders(tmp_path, (3, 6))
    checkpoints.delete_old_checkpoints(tmp_path, 1, {"checkpoint-6"})
    told = f"{tmp_path}/checkpoint-3 exceeds `save_total_limit`, but could not be deleted: Permission denied."
    assert said == [told]


def test_a_new_checkpoint_stays_where_the_one_that_it_replaced_was_not_yet_deleted(tmp_path):
    for folder, text in (("checkpoint-3", "new"), ("_incomplete/replaced-checkpoint-3", "old")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "weights").write_text(text)
    checkpoints.clear_leftovers(tmp_path)
    assert (tmp_path / "checkpoint-3" / "weights").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]


def test_the_configuration_of_an_older_adapter_goes_before_its_weights(tmp_path, monkeypatch):
    """Without them it would keep the new model from being opened."""
    staging = tmp_path / "_incomplete" / "model"
    staging.mkdir(parents=True)
    (staging / "model.safetensors").touch()
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        (tmp_path / name).touch()
    removed, unlink = [], Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, **options: removed.append(path.name) or unlink(path, **options))
    checkpoints.publish_model(staging, tmp_path)
    assert removed == ["adapter_config.json", "adapter_model.safetensors"]
