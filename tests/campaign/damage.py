"""Runs that are killed, damaged, made to diverge, gone on from with other settings, or disturbed by others."""

import json
import logging
import os
import random
import shutil
import time
from pathlib import Path

import torch
from campaign.common import Child, check, check_refused, randomise, refusal
from safetensors.torch import load_file
from transformers import TrainerCallback

import modeling_gpt1

UPDATES, LENGTH, VOCABULARY = 6, 8, 20
SETTINGS = {
    "optim": ["adamw_torch", "sgd", "adafactor"],
    "learning_rate": [1e-2, 1e-3],
    "weight_decay": [0.01, 0.1],
    "lr_scheduler_type": ["linear", "cosine"],
    "warmup_steps": [0, 3],
    "max_grad_norm": [1.0, 0.1],
    "adam_beta2": [0.999, 0.9],
    "lm_coef": [0.5, 0.25],
    "resid_pdrop": [0.0, 0.1],
    "rows": [0, 1],
    "seed": [42, 43],
}


class Watch(TrainerCallback):
    """Where a run began; what is done in its updates."""

    def __init__(self, in_update=None):
        self.begin, self.in_update = None, in_update

    def on_train_begin(self, args, state, control, **kwargs):
        self.begin = state.global_step

    def on_step_begin(self, args, state, control, **kwargs):
        if self.in_update is not None:
            self.in_update(state.global_step, kwargs["model"])


def make_settings(generator: random.Random) -> dict:
    settings = {name: generator.choice(values) for name, values in SETTINGS.items()}
    if settings["optim"] == "adafactor":
        settings["weight_decay"] = 0.0
    settings |= {"batch": generator.randint(1, 3), "accumulation": generator.randint(1, 3), "limit": None}
    return settings | {"is_task": generator.random() < 0.5, "logging_steps": generator.randint(1, 4), "save_steps": 2}


def make_rows(seed: int) -> list[dict]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCABULARY, (20, LENGTH), generator=generator).tolist()
    return [{"input_ids": row, "label": row[0] % 2} for row in ids]


def make_trainer(settings: dict, folder: Path, in_update=None):
    torch.manual_seed(0)
    config = modeling_gpt1.GPT1Config(
        vocab_size=VOCABULARY,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=LENGTH,
        resid_pdrop=settings["resid_pdrop"],
        lm_coef=settings["lm_coef"],
        pad_token_id=0,
        num_labels=2,
    )
    arguments = {
        "max_steps": UPDATES,
        "per_device_train_batch_size": settings["batch"],
        "gradient_accumulation_steps": settings["accumulation"],
        "save_strategy": "steps",
        "save_total_limit": settings["limit"],
        "remove_unused_columns": False,
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": "none",
        **{name: settings[name] for name in ("optim", "learning_rate", "weight_decay", "lr_scheduler_type", "seed")},
        **{name: settings[name] for name in ("warmup_steps", "max_grad_norm", "adam_beta2", "logging_steps")},
        **{name: settings[name] for name in ("save_steps",)},
    }
    others = {"train_dataset": make_rows(settings["rows"]), "callbacks": [Watch(in_update)]}

    def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
        ids = torch.tensor([row["input_ids"] for row in rows])
        labels = torch.tensor([row["label"] for row in rows]) if settings["is_task"] else ids
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}

    if settings["is_task"]:
        model, made = modeling_gpt1.GPT1DoubleHeadsModel(config), modeling_gpt1.GPT1TrainingArguments
        trainer_class = modeling_gpt1.GPT1Trainer
    else:
        model, made = modeling_gpt1.GPT1ForCausalLM(config), modeling_gpt1.GPT1PretrainingArguments
        trainer_class = modeling_gpt1.GPT1PretrainingTrainer
    model = randomise(model, 0, 0.2)
    return trainer_class(model, made(str(folder), **arguments), data_collator=collate, **others)


def train(settings: dict, folder: Path, resume=None, in_update=None) -> dict:
    """Where the run began, and its end: weights and log without times."""
    trainer = make_trainer(settings, folder, in_update)
    trainer.train(resume_from_checkpoint=resume)
    logs = [
        {key: value for key, value in log.items() if not key.endswith(("_runtime", "_second", "mfu"))}
        for log in trainer.state.log_history
    ]
    (watch,) = (one for one in trainer.callback_handler.callbacks if isinstance(one, Watch))
    weights = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    return {"begin": watch.begin, "logs": logs, "weights": weights}


def check_same(what: str, found: dict, expected: dict) -> None:
    check(found["logs"] == expected["logs"], f"{what}: the log is {found['logs']}, not {expected['logs']}")
    for name, weight in expected["weights"].items():
        check(torch.equal(found["weights"][name], weight), f"{what}: {name} is not the same to the bit")


def spoil(generator: random.Random, checkpoint: Path) -> str:
    """Damages a file, and says how."""
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file())
    path, other = generator.choice(files), generator.choice(files)
    content, kind = path.read_bytes(), generator.choice(["flip"] * 5 + ["cut", "grow", "delete", "swap", "older"])
    older = checkpoint.parent / f"checkpoint-{UPDATES - 4}" / path.relative_to(checkpoint)
    if kind == "flip":
        place = generator.randrange(len(content))
        flipped = bytes([content[place] ^ (1 << generator.randrange(8))])
        path.write_bytes(content[:place] + flipped + content[place + 1 :])
    elif kind == "cut":
        path.write_bytes(content[: generator.randrange(len(content))])
    elif kind == "grow":
        path.write_bytes(content + b"\0")
    elif kind == "delete":
        path.unlink()
    elif kind == "swap":
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
    else:
        path.write_bytes(older.read_bytes())
    is_changed = not path.is_file() or path.read_bytes() != content
    return f"{kind} of {path.name}" if is_changed else ""


def damaged(generator: random.Random, folder: Path) -> None:
    """A checkpoint with damage is never loaded; from the one before it the run ends the same to the bit."""
    settings = make_settings(generator)
    expected = train(settings, folder / "run")
    shutil.rmtree(folder / "run" / f"checkpoint-{UPDATES}")
    newest = folder / "run" / f"checkpoint-{UPDATES - 2}"
    what = spoil(generator, newest)
    resume = generator.choice([True, "auto", str(newest)])
    if not what:
        return
    if resume == str(newest) and what != "flip of checkpoint.json":  # whose blanks mean nothing
        message = check_refused(f"A checkpoint with damage ({what})", lambda: train(settings, folder / "run", resume))
        check("checkpoint" in message, f"The refusal of {what} does not speak of the checkpoint: {message}")
        return
    found: dict = {}
    message = refusal(lambda: found.update(train(settings, folder / "run", resume)))
    if message is None:
        is_loaded = found["begin"] == UPDATES - 2 and what != "flip of checkpoint.json"
        check(not is_loaded, f"A checkpoint with damage ({what}) was loaded")
        check_same(f"After damage ({what})", found, expected)
    else:
        # Without its list of files the folder may be somebody's, where the run would write.
        may_refuse = resume == str(newest) or what == "delete of checkpoint.json"
        check(may_refuse, f"{resume!r} does not pass over damage ({what}): {message}")


def killed(generator: random.Random, folder: Path) -> None:
    """Killed again and again at any moment, a run ends the same to the bit."""
    settings = make_settings(generator) | {"limit": generator.choice([None, 1, 2])}
    start = time.monotonic()
    expected = train(settings, folder / "whole")
    seconds = time.monotonic() - start

    def live() -> None:
        torch.save(train(settings, folder / "run", "auto"), folder / "end.pt")

    kills = 0
    while kills < 4 and Child(live).kill_after(generator.uniform(0, 1.2 * seconds)):
        kills += 1
    found = train(settings, folder / "run", "auto")
    check_same(f"After {kills} kills", found, expected)
    left = [path.name for path in (folder / "run").rglob("*") if "incomplete" in path.name]
    check(not left, f"After {kills} kills there is still {left}")


def diverged(generator: random.Random, folder: Path) -> None:
    """Numbers that are not finite stop a run, and no checkpoint holds them."""
    settings = make_settings(generator) | {"save_steps": 1, "limit": 1, "logging_steps": 1}
    when, value = generator.randrange(UPDATES), generator.choice([float("nan"), float("inf"), -float("inf")])

    def in_update(step: int, model) -> None:
        if step == when:
            weights = [weight for weight in model.parameters() if weight.requires_grad]
            weight = generator.choice(weights).data.view(-1)
            weight[generator.randrange(len(weight))] = value

    message = check_refused(f"{value} in a weight at update {when}", lambda: train(settings, folder, None, in_update))
    check("finite" in message or "nan" in message.lower() or "inf" in message, f"The message is {message!r}")
    kept = [path for path in folder.glob("checkpoint-*") if path.is_dir()]
    check([path.name for path in kept] == [f"checkpoint-{when}"] * (when > 0), f"{when}: left are {kept}")
    for path in kept:
        for name, weight in load_file(path / "model.safetensors").items():
            check(bool(weight.isfinite().all()), f"{name} of {path.name} is not finite")


class Messages(logging.Handler):
    """Warnings, of whatever logger."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def changed(generator: random.Random, folder: Path) -> None:
    """A run that goes on with another setting is refused or says so; with none it says nothing and is the same."""
    settings = make_settings(generator)
    names = [name for name in SETTINGS if settings["is_task"] or name != "lm_coef"]
    name = generator.choice([*names, "optim", "rows", "nothing"])
    expected = train(settings, folder)
    shutil.rmtree(folder / f"checkpoint-{UPDATES}")
    others = [value for value in SETTINGS.get(name, []) if value != settings[name]]
    value = generator.choice(others) if others else None
    now = settings | ({name: value} if others else {})
    if name == "adam_beta2" and settings["optim"] != "adamw_torch":
        return
    messages, found = Messages(), {}
    logging.getLogger().addHandler(messages)
    try:
        message = refusal(lambda: found.update(train(now, folder, True)))
    finally:
        logging.getLogger().removeHandler(messages)
    said = [text for text in messages.texts if "resumes from" in text]
    if name == "nothing":
        check(message is None and not said, f"Without a change there is {message or said}")
        check_same("Without a change", found, expected)
    elif message is None:
        check(any(name in text for text in said), f"{name} was {settings[name]} and is {value} without a word")


def foreign(generator: random.Random, folder: Path) -> None:
    """What other programs or users put beside the checkpoints stays."""
    settings = make_settings(generator) | {"limit": generator.choice([1, 2])}
    steps = generator.sample(range(UPDATES + 3), generator.randint(1, 2))
    names = [f"checkpoint-{step}" for step in steps] + generator.sample(["checkpoint-best", "_incomplete/own"], 1)
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "notes.txt").write_text("mine")
    refusal(lambda: train(settings, folder, generator.choice([None, "auto"])))
    for name in names:
        check((folder / name / "notes.txt").is_file(), f"{name} of another program is deleted")


def old_times(generator: random.Random, folder: Path) -> None:
    """`save_total_limit` counts steps, whatever the times of the folders."""
    settings = make_settings(generator)
    train(settings, folder)
    shutil.rmtree(folder / f"checkpoint-{UPDATES}")
    for path in folder.glob("checkpoint-*"):
        os.utime(path, (generator.randrange(2**31),) * 2)
    train(settings | {"limit": 2}, folder, "auto")
    left = sorted(path.name for path in folder.glob("checkpoint-*"))
    check(left == [f"checkpoint-{step}" for step in (UPDATES - 2, UPDATES)], f"Left are {left}")


def two_writers(generator: random.Random, folder: Path) -> None:
    """The second run that writes into a folder is told of the first, whose result stays what it is."""
    settings = make_settings(generator)
    expected = train(settings, folder / "alone")

    def slowly(step: int, model) -> None:
        (folder / f"begun-{step}").touch()
        time.sleep(0.15)

    def first() -> None:
        record = train(settings, folder / "run", "auto", slowly)
        (folder / "logs.json").write_text(json.dumps(record["logs"]))

    child = Child(first)
    while not (folder / f"begun-{generator.randrange(3)}").exists():
        time.sleep(0.01)
    try:
        check_refused("A second run in the same folder", lambda: train(settings, folder / "run", "auto"))
    finally:
        is_slow = child.kill_after(30)
    check(not is_slow and (folder / "logs.json").is_file(), "The first of two runs did not end well")
    check(json.loads((folder / "logs.json").read_text()) == expected["logs"], "The first of two runs has another log")


CASES = {damaged: 8, killed: 3, diverged: 3, changed: 4, foreign: 1, old_times: 1, two_writers: 0.7}
