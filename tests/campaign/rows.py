"""Random numbers of rows, batches, accumulation and tasks: several processes see and learn what one does.

Most cases only ask which rows each of several processes would be given, which needs no processes. A few train in real
ones over gloo, and run this file as their script: `torchrun --nproc_per_node 3 -m campaign.rows FOLDER`.
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import datasets
import torch
from accelerate.state import AcceleratorState, PartialState
from campaign.common import check, check_refused, randomise
from torch.utils.data import DataLoader

import modeling_gpt1

TASKS = ("classification", "entailment", "similarity", "multiple_choice", "regression", "multi-label", "blocks")
ORDERS = ("random", "sequential", "group_by_length")
LENGTH, VOCABULARY = 12, 64  # the first id of a row is its number


def make_rows(task: str, num_rows: int) -> list[dict]:
    generator = random.Random(num_rows)
    rows = []
    for number in range(num_rows):
        choices = {"similarity": 2, "multiple_choice": 2 + number % 3}.get(task, 1)
        ids = [
            [number, *(generator.randrange(VOCABULARY) for _ in range(generator.randint(2, LENGTH - 1)))]
            for _ in range(choices)
        ]
        label = {"regression": 0.3 * number, "multi-label": [float(number % 2), 1.0, 0.0]}.get(task, number % 2)
        rows.append({"input_ids": ids[0] if task == "blocks" else ids, "labels": label, "length": len(ids[0])})
    return rows


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    if isinstance(rows[0]["input_ids"][0], int):  # blocks
        batch = collate([{**row, "input_ids": [row["input_ids"]]} for row in rows])
        ids, mask = batch["input_ids"][:, 0], batch["attention_mask"][:, 0]
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
    choices = max(len(row["input_ids"]) for row in rows)
    ids, mask = torch.zeros(len(rows), choices, LENGTH).long(), torch.zeros(len(rows), choices, LENGTH).long()
    for number, row in enumerate(rows):
        for choice, tokens in enumerate(row["input_ids"]):
            ids[number, choice, : len(tokens)], mask[number, choice, : len(tokens)] = torch.tensor(tokens), 1
    batch = {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([row["labels"] for row in rows])}
    if choices > 2 or len({len(row["input_ids"]) for row in rows}) > 1:
        batch["choice_mask"] = mask[..., 0].bool()
    return batch


def make_trainer(case: dict, folder: Path, batch_size: int):
    """The same model and rows in every process; `batch_size` is that of one of them."""
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": LENGTH}
    dropout = dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop", "classifier_dropout"), 0.0)
    kinds = {
        "regression": {"traversal": "classification", "num_labels": 1},
        "multi-label": {
            "traversal": "classification",
            "num_labels": 3,
            "problem_type": "multi_label_classification",
        },
    }
    is_blocks = case["task"] == "blocks"
    fields = {} if is_blocks else kinds.get(case["task"], {"traversal": case["task"], "num_labels": 2})
    config = modeling_gpt1.GPT1Config(
        vocab_size=VOCABULARY, lm_coef=case["lm_coef"], pad_token_id=0, **size, **dropout, **fields
    )
    model = (modeling_gpt1.GPT1ForCausalLM if is_blocks else modeling_gpt1.GPT1DoubleHeadsModel)(config)
    rows = make_rows(case["task"], case["rows"])
    arguments = {
        "per_device_train_batch_size": batch_size,
        "gradient_accumulation_steps": case["accumulation"],
        "optim": "sgd",
        "learning_rate": 0.05,
        "warmup_steps": 0,
        "logging_steps": 1,
        "save_strategy": "no",
        "remove_unused_columns": False,
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": "none",
        "seed": case["seed"],
        "num_train_epochs": 2,
    }
    if case["order"] == "stream":
        rows = datasets.Dataset.from_list(rows).to_iterable_dataset()
        arguments["max_steps"] = case["updates"]
    else:
        arguments["train_sampling_strategy"] = case["order"]
    if is_blocks:
        made = modeling_gpt1.GPT1PretrainingArguments(str(folder), **arguments)
        trainer_class = modeling_gpt1.GPT1PretrainingTrainer
    else:
        made = modeling_gpt1.GPT1TrainingArguments(str(folder), **arguments)
        trainer_class = modeling_gpt1.GPT1Trainer
    return trainer_class(randomise(model, 0, 0.1), made, data_collator=collate, train_dataset=rows)


def make_case(generator: random.Random) -> dict:
    return {
        "task": generator.choice(TASKS),
        "rows": generator.randint(1, 25),
        "batch": generator.randint(1, 4),
        "accumulation": generator.randint(1, 3),
        "processes": generator.choice([2, 3]),
        "order": generator.choice(ORDERS),
        "lm_coef": generator.choice([0.0, 0.5]),
        "seed": generator.randrange(1000),
        "updates": generator.randint(2, 5),
    }


# ---- Which rows each process would be given


@contextmanager
def one_of(rank: int, number: int) -> Iterator[None]:
    """Within, accelerate takes this process for one of several; nothing is sent between them."""
    states = [state for state in (PartialState._shared_state, AcceleratorState._shared_state) if state]
    before = [dict(state) for state in states]
    for state in states:
        state |= {"num_processes": number, "process_index": rank, "local_process_index": rank}
    try:
        yield
    finally:
        for state, was in zip(states, before, strict=True):
            state.clear()
            state |= was


def rows_seen(loader: DataLoader, epoch: int) -> list[list[int]]:
    """The rows that count of each micro-batch."""
    if hasattr(loader, "set_epoch"):
        loader.set_epoch(epoch)
    seen = []
    for batch in loader:
        ids = batch["input_ids"].flatten(1)[:, 0]
        # Whatever a batch without a row looks like, its labels are all -100.
        seen.append([] if (batch["labels"] == -100).all() else ids.tolist())
    return seen


def by_update(seen: list[list[int]], accumulation: int) -> list[Counter]:
    updates = [seen[start : start + accumulation] for start in range(0, len(seen), accumulation)]
    return [Counter(row for batch in update for row in batch) for update in updates]


def shares(generator: random.Random, folder: Path) -> None:
    case = make_case(generator)
    number, epoch = case["processes"], generator.randrange(2)
    trainer = make_trainer(case, folder, case["batch"] * number)
    torch.manual_seed(case["seed"])
    expected = by_update(rows_seen(trainer.get_train_dataloader(), epoch), case["accumulation"])
    every = Counter(range(case["rows"]))
    check(sum(expected, Counter()) == every, f"{case}: one process sees {expected}")
    found = []
    for rank in range(number):
        trainer = make_trainer(case, folder, case["batch"])
        with one_of(rank, number):
            torch.manual_seed(case["seed"])
            found.append(by_update(rows_seen(trainer.get_train_dataloader(), epoch), case["accumulation"]))
    check(len(set(map(len, found))) == 1, f"{case}: the processes make {[*map(len, found)]} updates")
    together = [sum(update, Counter()) for update in zip(*found, strict=True)]
    check(together == expected, f"{case}: together they see {together}, one process {expected}")


# ---- One process, another cut of the same updates


def accumulation(generator: random.Random, folder: Path) -> None:
    """Losses, gradient norms and weights do not depend on how the rows of an update are cut into batches."""
    case = make_case(generator)
    case["order"] = generator.choice(["sequential", "random", "stream"])
    if case["order"] == "stream" and case["rows"] < case["batch"] * case["accumulation"]:
        case["rows"] = case["batch"] * case["accumulation"]
    if case["order"] == "stream":  # what fills no update is left out, which depends on the cut
        case["rows"] -= case["rows"] % (case["batch"] * case["accumulation"])
    whole = {**case, "accumulation": 1}
    records = [
        record_of(make_trainer(one, folder / str(number), size))
        for number, (one, size) in enumerate([(case, case["batch"]), (whole, case["batch"] * case["accumulation"])])
    ]
    compare(case, *records)


def short_stream(generator: random.Random, folder: Path) -> None:
    """A pass that never fills an update is refused; the training would go on for ever."""
    case = make_case(generator) | {"order": "stream", "batch": 2, "accumulation": 3, "rows": generator.randint(1, 4)}
    check_refused(str(case), make_trainer(case, folder, case["batch"]).train)


def record_of(trainer) -> dict:
    trainer.train()
    names = ("loss", "task_loss", "lm_loss", "grad_norm")
    logs = [[log.get(name) for name in names] for log in trainer.state.log_history if "loss" in log]
    weights = {name: weight.tolist() for name, weight in trainer.model.state_dict().items()}
    return {"logs": logs, "weights": weights}


def compare(case: dict, found: dict, expected: dict) -> None:
    check(len(found["logs"]) == len(expected["logs"]), f"{case}: {len(found['logs'])} updates")
    for number, (log, wanted) in enumerate(zip(found["logs"], expected["logs"], strict=True)):
        pairs = [(a, b) for a, b in zip(log, wanted, strict=True) if b is not None or a is not None]
        close = all(a is not None and b is not None and abs(a - b) <= 1e-5 * (1 + abs(b)) for a, b in pairs)
        check(close, f"{case}: update {number} has {log}, not {wanted}")
    for name, weight in expected["weights"].items():
        error = (torch.tensor(found["weights"][name]) - torch.tensor(weight)).abs().max().item()
        check(error <= 1e-5, f"{case}: {name} differs by {error}")


# ---- Real processes


def processes(generator: random.Random, folder: Path) -> None:
    """Several runs in one launch, as the start of the processes takes most of its time."""
    number, cases = generator.choice([2, 3]), [make_case(generator) for _ in range(6)]
    for case in cases[:2]:
        case["order"] = "stream"
        case["rows"] = max(case["rows"], case["batch"] * case["accumulation"] * number)
    (folder / "cases.json").write_text(json.dumps(cases))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(number)]
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "campaign.rows", str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=200,
    )
    check(done.returncode == 0, f"{number} processes ended with {done.returncode}: {done.stderr[-300:]}")
    records = json.loads((folder / "records.json").read_text())
    for index, (case, record) in enumerate(zip(cases, records, strict=True)):
        compare(
            {**case, "processes": number},
            record,
            record_of(make_trainer(case, folder / str(index), case["batch"] * number)),
        )


def main(folder: str) -> None:
    torch.set_num_threads(1)
    cases, records = json.loads(Path(folder, "cases.json").read_text()), []
    for case in cases:
        trainer = make_trainer(case, Path(folder, "several"), case["batch"])
        records.append(record_of(trainer))
    if trainer.is_world_process_zero():
        Path(folder, "records.json").write_text(json.dumps(records))
    trainer.accelerator.wait_for_everyone()
    sys.stdout.flush()
    os._exit(0)


CASES = {shares: 60, accumulation: 20, short_stream: 1, processes: 1}

if __name__ == "__main__":
    main(*sys.argv[1:])
