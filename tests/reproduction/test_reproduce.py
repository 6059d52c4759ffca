"""`gpt1 reproduce`: which runs it makes and in which order, what it keeps, and that nothing is run twice.

Small scripts stand in for `gpt1 finetune` and `gpt1 zero-shot`, so that processes are real and cost nothing; one cell
is trained in earnest.
"""

import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import dill
import pytest
from support.files import read_rows, write_rows
from support.launch import TIMEOUT
from support.refusals import refusal
from transformers import BertConfig, GPT2Config, OpenAIGPTConfig

from modeling_gpt1 import GPT1ForCausalLM
from modeling_gpt1.commands import finetune
from modeling_gpt1.commands import reproduce as reproduce_command
from modeling_gpt1.commands.arguments import parser_of
from modeling_gpt1.hub.card import versions
from modeling_gpt1.reproduction import cells as cells_module
from modeling_gpt1.reproduction import grid
from modeling_gpt1.reproduction import models as models_module
from modeling_gpt1.reproduction.arguments import (
    NEUTRAL_FLAGS,
    PAPER_TASKS,
    ReproduceArguments,
    as_settings,
    behind,
    rehearsal_of,
)
from modeling_gpt1.reproduction.cells import Cell, plan, pretraining_cells
from modeling_gpt1.reproduction.grid import CellStore, write_json
from modeling_gpt1.reproduction.models import (
    checksum_of_file,
    data_fingerprint,
    describe_model,
    model_fingerprint,
    processor_name,
    text_fingerprint,
)
from modeling_gpt1.reproduction.report import build_report, page
from modeling_gpt1.training.checkpoint import DIVERGED
from tokenization import get_task
from tokenization.rows import files as rows_module

# Stands in for `gpt1 NAME`: writes down how it was called, and results that its arguments decide.
GPT1 = """
import json, pathlib, shutil, sys
command, *words = sys.argv[1:]
here = pathlib.Path(__file__).parent
with (here / "calls.jsonl").open("a") as file:
    file.write(json.dumps(words) + "\\n")
value = lambda flag: words[len(words) - words[::-1].index(flag)]
output = pathlib.Path(value("--output_file" if command == "zero-shot" else "--output_dir"))
if command == "zero-shot":
    of_task = {"matthews_correlation": 0.1, "normalised": 0.3, "metric": "matthews_correlation", "chance": 0.0}
    of_task |= {"best_known": 0.35, "split": "validation", "num_rows": 20}
    output.write_text(json.dumps({"settings": {}, "results": [{"model": "m", "tasks": {"cola": of_task}}]}))
    sys.exit()
if command == "pretrain":  # leaves the folder of a model of the family
    if "bad" in value("--train_files"):
        sys.exit("ValueError: there is no text")
    shutil.copytree(json.loads((here / "models.json").read_text())["gpt1-lstm" in words], output, dirs_exist_ok=True)
    results = {"eval_perplexity": 53.21}
else:
    if value("--task") == (here / "bad_task").read_text():
        print("reading the data")
        sys.exit("ValueError: row 7 has no label")
    score = {"full": 0.5, "--n_transfer": 0.4, "--lm_coef": 0.6}
    score = next((score[word] for word in words if word in score), 0.5) + int(value("--seed")) / 100
    names = "accuracy f1 pearson matthews_correlation validation_matched_accuracy".split()
    results = {f"eval_{name}": score for name in names} | {"eval_validation_mismatched_accuracy": score + 0.1}
    if "--do_predict" in words:
        results["predict_accuracy"] = score + 0.2
    output.mkdir(parents=True)
    rate = float(value("--learning_rate")) if "--learning_rate" in words else 6.25e-5
    settings = {"num_train_epochs": 3.0, "per_device_train_batch_size": 32, "learning_rate": rate}
    settings |= {"lr_scheduler_type": "linear", "warmup_steps": 0.002, "weight_decay": 0.01, "max_length": None}
    (output / "run.yaml").write_text(json.dumps({"model": "m", **settings}))
    (output / "config.json").write_text(json.dumps({"lm_coef": 0.5, "max_position_embeddings": 64}))
(output / "all_results.json").write_text(json.dumps(results))
"""


@pytest.fixture(autouse=True)
def usual_signals():
    """Processes that are forked later could miss the signal that ends them."""
    usual = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, usual)


def reproduce(words: list[str]) -> int:
    """The exit status of the command, without what it does to this process."""
    return grid.run_grid(reproduce_command.parse_arguments(words)[0], ["gpt1", "reproduce", *words])


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """Gives a function that tells how the commands were called since it was last asked."""
    cells_module.scored_splits.cache_clear()
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "gpt1.py").write_text(GPT1)
    (folder / "bad_task").write_text("none")
    monkeypatch.setattr(cells_module, "COMMAND", (sys.executable, str(folder / "gpt1.py")))

    def calls() -> list[list[str]]:
        path = folder / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    calls.folder = folder
    return calls


def finished(folder: Path) -> dict[str, dict]:
    """Cells by their readable names."""
    return {path.stem.rpartition("-")[0]: json.loads(path.read_text()) for path in (folder / "cells").iterdir()}


def test_flags_can_be_completed_without_the_extra():
    """SciPy and matplotlib are imported when the command runs."""
    assert not {"run_grid", "grid"} & set(vars(reproduce_command))


def told(capsys) -> str:
    return re.sub(r"\d+:\d\d:\d\d", "TIME", capsys.readouterr().out)


def test_settings_leave_those_of_a_run_as_they_are(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "run.yaml").write_text("seed: 1\n")
    monkeypatch.setattr(grid, "run_grid", lambda *_: 3)
    with pytest.raises(SystemExit) as end:
        reproduce_command.main(["--model", str(tmp_path), "--output_dir", str(tmp_path), "--tasks", "rte"])
    assert end.value.code == 3
    assert (tmp_path / "run.yaml").read_text() == "seed: 1\n"
    assert "- rte\n" in (tmp_path / "reproduce_run.yaml").read_text()


def names_of(arguments: list[str]) -> list[str]:
    return [cell.name for cell in plan(reproduce_command.parse_arguments(arguments)[0])]


def test_whole_seeds_come_first_and_shared_cells_once(command, models, tmp_path):
    shutil.copytree(models[0], tmp_path / "checkpoint-5")
    more = ["--checkpoints", str(tmp_path), "--lstm_model", str(models[1]), "--tasks", "RTE", "mrpc"]
    more += ["--transfer_tasks", "rte", "--seeds", "1", "2"]
    ablations = ["without_auxiliary", "without_pretraining", "lstm"]
    of_a_seed = ["rte-full", "mrpc-full", *(f"{task}-{row}" for task in ("rte", "mrpc") for row in ablations)]
    of_a_seed += ["rte-transfer-0", "rte-transfer-1", "rte-ngrams", "rte-ngrams_of_last", "mrpc-ngrams"]
    first, second = ([f"{name}-seed{seed}" for name in of_a_seed] for seed in (1, 2))
    assert names_of(command(*more)) == [*first, "zero-shot-gpt1-checkpoint-5", *second]


def test_a_part_of_the_experiments(command):
    words = ["--experiments", "ablations", "--tasks", "rte", "stsb", "--variants", "without_auxiliary"]
    assert names_of(command(*words, "--seeds", "7")) == [f"{task}-without_auxiliary-seed7" for task in ("rte", "stsb")]
    layers = ["--experiments", "layer_transfer", "--transfer_tasks", "rte", "--transfer_layers", "-1", "1", "2"]
    rows = ("without_pretraining", "transfer-1", "full")
    assert names_of(command(*layers, "--seeds", "7")) == [f"rte-{row}-seed7" for row in rows]
    every = names_of(command("--experiments", "fine_tuning", "--seeds", "1"))
    assert every == [f"{task}-full-seed1" for task in PAPER_TASKS]
    assert len(every) == 12


def keys_of(arguments: list[str]) -> set[str]:
    return {cell.key for cell in plan(reproduce_command.parse_arguments(arguments)[0])}


def test_what_makes_another_cell(command, models, data_dir, tmp_path):
    settings = ["--experiments", "fine_tuning", "--tasks", "rte", "--seeds", "1"]
    first = keys_of(command(*settings))
    neutral = []
    for name in NEUTRAL_FLAGS:
        if name != "use_cpu" and not name.startswith("logging_"):  # as on a GPU; every cell logs alike
            neutral += [f"--{name}", "1"]
    again = command(*settings, "--only_report", "--title", "x", finetune=("--learning_rate=5e-4", *neutral))
    elsewhere = [str(tmp_path / "other") if word == str(tmp_path / "out") else word for word in again]
    copy = str(shutil.copytree(models[0], tmp_path / "copy"))
    assert keys_of([copy if word == str(models[0]) else word for word in elsewhere]) == first

    another_rate = keys_of(command(*settings, finetune=("--learning_rate", "1e-4", "--use_cpu")))
    another_model = keys_of([str(models[1]) if word == str(models[0]) else word for word in again])
    rows = data_dir / "rte" / "train.jsonl"
    rows.write_text(rows.read_text().replace('"label": 0', '"label": 1', 1))  # of the same size
    data_fingerprint.cache_clear()
    assert len(first | another_rate | another_model | keys_of(command(*settings))) == 4


def test_a_hidden_file_makes_no_other_cell(command, data_dir):
    """As Finder adds one to each folder that it shows: all runs of the task would be made again."""
    settings = ["--experiments", "fine_tuning", "--tasks", "rte", "--seeds", "1"]
    before = keys_of(command(*settings))
    (data_dir / "rte" / ".DS_Store").write_text("icons")
    data_fingerprint.cache_clear()
    assert keys_of(command(*settings)) == before


def test_a_model_is_told_by_what_its_files_hold(models, tmp_path):
    copy = shutil.copytree(models[0], tmp_path / "copy")
    (copy / "README.md").write_text("A card decides nothing.")
    assert model_fingerprint(str(copy)) == model_fingerprint(str(models[0]))
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    model_fingerprint.cache_clear()
    assert model_fingerprint(str(copy)) != model_fingerprint(str(models[0]))


def test_a_model_of_the_hub_is_told_by_its_commit(monkeypatch):
    told = []
    for letter in "ab":
        place = f"/cache/models--me--books/snapshots/{40 * letter}/config.json"
        monkeypatch.setattr(models_module, "cached_file", lambda model, name, place=place: place)
        model_fingerprint.cache_clear()
        told.append(model_fingerprint("me/books"))
    model_fingerprint.cache_clear()
    assert told == [f"me/books@{40 * letter}" for letter in "ab"]


def test_finished_cells_of_a_folder_stay_its_cells():
    """The name of a cell's file follows from its facts, whatever made it."""
    facts = {"kind": "fine_tuning", "task": "rte", "seed": 1, "settings": {"learning_rate": "5e-4"}}
    assert Cell("rte-full-seed1", facts, {"model": "GPT-1"}, print).key == "rte-full-seed1-4841dd6fd6f9"


def test_cells_and_commands(stand_ins, command, models, data_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(grid, "accelerator_name", lambda: "a GPU that --use_cpu leaves alone")
    more = ["--lstm_model", str(models[1]), "--experiments", "fine_tuning", "ablations", "layer_transfer"]
    tasks = ["--tasks", "rte", "--transfer_tasks", "story_cloze", "--transfer_layers", "1", "--seeds", "3"]
    assert reproduce(command(*more, *tasks)) == 0
    model, lstm = (["--model", str(folder)] for folder in models)
    calls = stand_ins()
    work = [Path(call.pop(call.index("--output_dir") + 1)) for call in calls]
    common = ["--data_dir", str(data_dir), "--seed", "3", "--output_dir", "--save_strategy", "no"]
    common += ["--disable_tqdm", "true", "--logging_strategy", "epoch", "--learning_rate", "5e-4", "--use_cpu"]
    uses = ["--do_train", "--do_eval"]
    assert calls == [
        ["--task", "rte", *common, *model, *uses],
        ["--task", "rte", *common, *model, "--lm_coef", "0", *uses],
        ["--task", "rte", *common, *model, "--n_transfer", "-1", *uses],
        ["--task", "rte", *common, *lstm, *uses],
        ["--task", "story_cloze", *common, *model, "--n_transfer", "1", *uses, "--do_predict"],
    ]
    assert len(set(work)) == 5
    assert not any(folder.exists() for folder in work)
    lines = told(capsys).splitlines()
    assert lines[1] == "[2/5, TIME] rte-without_auxiliary-seed3: rte 63.0, TIME"
    assert lines[4] == "[5/5, TIME] story_cloze-transfer-1-seed3: story_cloze 63.0, TIME"
    assert lines[5:] == [f"{tmp_path}/out/report.html and report.json cover 5 of 5 cells."]
    cells = finished(tmp_path / "out")
    assert cells["rte-lstm-seed3"]["model"] == "LSTM (1 layer, 24 wide)"
    fields = ("variant", "n_transfer", "lm_coef", "model_fingerprint")
    transformer, of_lstm = (model_fingerprint(str(folder)) for folder in models)
    assert [tuple(cells[name][field] for field in fields) for name in sorted(cells)] == [
        *(("full", None, None, transformer), ("lstm", None, None, of_lstm)),
        *(("without_auxiliary", None, 0.0, transformer), ("without_pretraining", -1, None, transformer)),
        ("transfer", 1, None, transformer),
    ]
    cell = cells["rte-full-seed3"]
    at = common.index("--save_strategy")
    given = ["finetune", "--task", "rte", *common[:at], "WORK/rte", *common[at:], *model, *uses]
    assert cell.pop("seconds") < 60
    assert cell.pop("metrics")["eval_accuracy"] == 0.53
    assert cell.pop("machine") == processor_name()
    assert cell.pop("commands") == [shlex.join(["gpt1", *given])]
    assert cell.pop("versions") == versions()
    assert cell.pop("ran_with") == {
        **{"num_train_epochs": 3.0, "per_device_train_batch_size": 32, "learning_rate": 5e-4},
        **{"lr_scheduler_type": "linear", "warmup_steps": 0.002, "weight_decay": 0.01},
        **{"max_length": 64, "lm_coef": 0.5},
    }
    files = {path.name: checksum_of_file(path) for path in (data_dir / "rte").iterdir()}
    assert cell == {
        **{"kind": "fine_tuning", "task": "rte", "variant": "full", "n_transfer": None, "lm_coef": None, "seed": 3},
        **{"settings": {"learning_rate": "5e-4"}, "model_fingerprint": transformer},
        **{"data": files, "model": "GPT-1 (2 layers, 16 wide)"},
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--use_cpu", "--seed", "1"], True),
        (["--use-cpu"], True),
        (["--use_cpu=true"], True),
        (["--use_cpu", "false"], False),
        (["--use_cpu", "--use_cpu=false"], False),
        (["--seed", "1"], False),
    ],
)
def test_a_command_on_the_cpu_is_told_by_its_flag(words, expected):
    assert grid.uses_cpu(["python", "finetune", *words]) == expected


def test_linear_models_run_on_the_processor(command, tmp_path, data_dir, monkeypatch):
    """Beside a GPU, too: the report counts the cells of each machine."""
    rows = [{"sentence1": f"he paid {n} .", "sentence2": "he paid .", "label": n % 2} for n in range(20)]
    write_rows(data_dir / "rte" / "train.jsonl", rows)
    monkeypatch.setattr(grid, "accelerator_name", lambda: "a GPU")
    assert reproduce(command("--experiments", "baselines", "--tasks", "rte", "--seeds", "1")) == 0
    assert {cell["machine"] for cell in finished(tmp_path / "out").values()} == {processor_name()}


def test_a_test_split_is_cut_as_validation_rows_are(stand_ins, command):
    words = command("--experiments", "fine_tuning", "--tasks", "story_cloze", "--seeds", "1", finetune=())
    for given, rows in ([], "4"), (["--max_predict_samples", "3"], "3"):
        assert reproduce([*words, "--max_eval_samples", "4", *given]) == 0
        (call,) = stand_ins()
        assert [call[at + 1] for at, word in enumerate(call) if word == "--max_predict_samples"] == [rows]


def test_cells_of_drawn_rows_name_how_they_were_drawn(command):
    """Cells that drew their scored rows otherwise are not taken for finished ones."""
    for given, drawn in ([], None), (["--max_eval_samples", "4"], 0), (["--max_predict_samples", "4"], 0):
        words = command("--experiments", "fine_tuning", "baselines", "--tasks", "rte", "--seeds", "1", finetune=given)
        cells = plan(reproduce_command.parse_arguments(words)[0])
        assert {cell.facts["kind"] for cell in cells} == {"fine_tuning", "baseline"}
        assert {cell.facts.get("seed_of_scored_rows") for cell in cells} == {drawn}


def test_variants_have_arguments_of_their_own(stand_ins, command, models, tmp_path):
    """The LSTM those behind its flag, and the ablation its λ; each is told. The last of two flags counts."""
    words = ["--lstm_model", str(models[1]), "--experiments", "ablations", "--tasks", "rte", "--seeds", "1"]
    words += ["--variants", "full", "without_auxiliary", "lstm"]
    arguments = command(*words, finetune=("--use_cpu", "--learning_rate", "5e-4", "--lm_coef", "0.25"))
    assert reproduce([*arguments, "--lstm_finetune_arguments", "--learning_rate", "2e-3"]) == 0
    flags = ("--learning_rate", "--lm_coef")
    given = [[call[at + 1] for at, word in enumerate(call) if word in flags] for call in stand_ins()]
    assert given == [["5e-4", "0.25"], ["5e-4", "0.25", "0"], ["0.25", "2e-3"]]
    rows = json.loads((tmp_path / "out" / "report.json").read_text())["tables"][3]["rows"]
    assert [rows[at]["cells"]["rte"]["settings"] for at in (0, 2, 3)] == [
        "validation; learning_rate 5e-4; lm_coef 0.25",
        "validation; learning_rate 5e-4",
        "validation; lm_coef 0.25; learning_rate 2e-3",
    ]
    assert as_settings(["--a", "b", "c", "--d=e", "--f"]) == {"a": ["b", "c"], "d": "e", "f": True}
    with pytest.raises(ValueError, match="--lstm_finetune_arguments has --seed, .*Leave it out"):
        reproduce([*arguments, "--lstm_finetune_arguments", "--seed", "2"])


def test_finished_cells_are_not_run_again(stand_ins, command, tmp_path, capsys):
    settings = ["--experiments", "fine_tuning", "--seeds", "1", "--tasks"]
    assert reproduce(command(*settings, "rte")) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out" / "cells").iterdir()}
    assert len(stand_ins()) == 1
    told(capsys)
    assert reproduce(command(*settings, "mrpc", "rte")) == 0
    assert [call[1] for call in stand_ins()] == ["mrpc"]
    assert told(capsys) == (
        "[1/2, TIME] mrpc-full-seed1: mrpc 51.0, TIME\n"
        "[2/2, TIME] rte-full-seed1: finished before\n"
        f"{tmp_path}/out/report.html and report.json cover 2 of 2 cells.\n"
    )
    assert before.items() <= {path: path.read_bytes() for path in (tmp_path / "out" / "cells").iterdir()}.items()


@pytest.mark.parametrize("content", ["", '{"kind": "fine_tun'])
def test_a_damaged_cell_is_named(content, tmp_path):
    cell = Cell("rte-full-seed1", {"seed": 1}, {}, print)
    path = tmp_path / "cells" / f"{cell.key}.json"
    path.parent.mkdir()
    path.write_text(content)
    told = refusal(CellStore(tmp_path).read, cell)
    assert str(path) in told
    assert "Delete it" in told


def test_a_damaged_cell_is_named_before_the_others_run(tmp_path):
    """Not in hours, when it is its turn, with others that are then killed."""
    sound, damaged = (Cell(f"rte-full-seed{seed}", {"seed": seed}, {}, pytest.fail) for seed in (1, 2))
    path = tmp_path / "cells" / f"{damaged.key}.json"
    path.parent.mkdir()
    path.write_text("")
    told = refusal(CellStore(tmp_path).run_all, [sound, damaged], lambda: None)
    assert str(path) in told
    assert not (tmp_path / "logs").exists()


def test_a_failing_cell_does_not_stop_the_others(stand_ins, command, tmp_path, capsys):
    (stand_ins.folder / "bad_task").write_text("mrpc")
    arguments = command("--experiments", "fine_tuning", "--tasks", "mrpc", "rte", "story_cloze", "--seeds", "1")
    shutil.rmtree(tmp_path / "data" / "story_cloze")
    assert reproduce(arguments) == 1
    (log,) = (tmp_path / "out" / "logs").glob("mrpc-*")
    first, *rest = log.read_text().splitlines()
    assert first.startswith(f"$ {sys.executable} {stand_ins.folder}/gpt1.py finetune --task mrpc")
    assert rest == ["reading the data", "ValueError: row 7 has no label"]
    lines = told(capsys).splitlines()
    assert lines[:5] == [
        f"[1/3, TIME] mrpc-full-seed1: FAILED, its command exited with status 1. The end of {log}:",
        f"    {first}",
        "    reading the data",
        "    ValueError: row 7 has no label",
        "[2/3, TIME] rte-full-seed1: rte 51.0, TIME",
    ]
    assert "story_cloze-full-seed1: FAILED, No file of task 'story_cloze' was found in" in lines[5]
    assert lines[7] == "2 of 3 cells failed: mrpc-full-seed1, story_cloze-full-seed1"
    assert set(finished(tmp_path / "out")) == {"rte-full-seed1"}
    assert not list((tmp_path / "out" / "work").iterdir())
    rows = json.loads((tmp_path / "out" / "report.json").read_text())["tables"][2]["rows"][0]["cells"]
    assert rows["mrpc"]["missing"] == f"seed 1: its command exited with status 1. The end of {log}:"

    (stand_ins.folder / "bad_task").write_text("none")
    stand_ins()
    assert reproduce(command("--experiments", "fine_tuning", "--tasks", "mrpc", "rte", "--seeds", "1")) == 0
    assert [call[1] for call in stand_ins()] == ["mrpc"]


def test_scores_of_tasks_in_parts(stand_ins, command, capsys):
    assert reproduce(command("--experiments", "fine_tuning", "--tasks", "mnli", "race", "--seeds", "1")) == 0
    shown = told(capsys)
    assert "mnli-full-seed1: mnli-m 51.0, mnli-mm 61.0, mnli 56.0, TIME" in shown
    # Without test splits RACE is scored on validation; the same model is scored on both parts.
    assert "race-full-seed1: race-m 51.0, race-h 51.0, race 51.0, TIME" in shown
    _, trained, *parts = stand_ins()
    assert "--do_train" in trained
    assert not any("--do_train" in call or "--do_predict" in call for call in parts)
    model = trained[trained.index("--output_dir") + 1]
    expected = [("race-middle", model), ("race-high", model)]
    assert [(call[1], call[call.index("--model") + 1]) for call in parts] == expected


def test_what_cannot_be_scored_is_not_trained(stand_ins, command, data_dir, capsys):
    (data_dir / "mnli" / "validation_mismatched.jsonl").unlink()
    for split in ("validation", "test"):
        (data_dir / "story_cloze" / f"{split}.jsonl").unlink()
    assert reproduce(command("--experiments", "fine_tuning", "--tasks", "mnli", "story_cloze", "--seeds", "1")) == 1
    assert stand_ins() == []
    unscored = "FAILED, Task {} has no labelled rows in {} to score a run on. Add them to"
    first, second, *_ = told(capsys).splitlines()
    assert unscored.format("mnli", "validation_matched and validation_mismatched") in first
    assert unscored.format("story_cloze", "validation") in second


# ---- Tuning


@pytest.fixture
def tuned(stand_ins, command, data_dir, monkeypatch):
    """Words of a command whose best learning rate is 1e-3; without pre-training it is 1e-4.

    The page is not drawn after each of its twelve cells, which would take seconds.
    """
    monkeypatch.setattr(grid, "page", lambda report: "not drawn")
    rows = [{"sentence1": f"he paid {n} .", "sentence2": "he paid .", "label": n % 2} for n in range(20)]
    write_rows(data_dir / "rte" / "train.jsonl", rows)
    score = """
best = 1e-4 if "--n_transfer" in words else 1e-3
score -= abs(float(value("--learning_rate")) - best)
names ="""
    (stand_ins.folder / "gpt1.py").write_text(GPT1.replace("\n    names =", score.replace("\n", "\n    "), 1))

    def words(*more: str) -> list[str]:
        return command(
            *("--tune", "true", "--tune_learning_rates", "1e-4", "1e-3", "--tune_warmups", "0.1"),
            *("--tune_lm_coefs", "0", "0.5", "--experiments", "ablations", "--tasks", "rte", "--seeds", "1", "2"),
            *("--variants", "full", "without_auxiliary", "without_pretraining", *more),
        )

    return words


def flags_of(call: list[str], *names: str) -> list[str | None]:
    """The last value of each flag, or None."""
    return [call[len(call) - call[::-1].index(name)] if name in call else None for name in names]


def test_seeds_run_with_the_settings_that_each_condition_was_tuned_to(stand_ins, tuned, data_dir):
    assert reproduce(tuned()) == 0
    calls = stand_ins()
    trials, seeds = calls[:6], calls[6:]
    flags = ("--learning_rate", "--warmup_steps", "--lm_coef", "--seed")
    assert [flags_of(call, *flags) for call in trials] == [
        ["0.0001", "0.1", None, "0"],
        ["0.001", "0.1", None, "0"],
        ["0.0001", "0.1", "0", "0"],  # without the auxiliary objective
        ["0.001", "0.1", "0", "0"],
        ["0.0001", "0.1", "0", "0"],  # without pre-training, which tunes λ too
        ["0.001", "0.1", "0.5", "0"],
    ]
    assert [flags_of(call, *flags) for call in seeds] == [
        [rate, "0.1", lm_coef, seed]
        for seed in ("1", "2")
        for rate, lm_coef in (("0.001", None), ("0.001", "0"), ("0.0001", "0"))
    ]


def test_trials_never_see_the_rows_that_are_scored(stand_ins, tuned, data_dir):
    reproduce(tuned())
    folders = [flags_of(call, "--data_dir")[0] for call in stand_ins()]
    assert str(data_dir) not in folders[:6]
    assert set(folders[6:]) == {str(data_dir)}


def test_trials_are_cells_that_are_kept(stand_ins, tuned, tmp_path, capsys):
    assert reproduce(tuned()) == 0
    stand_ins()
    told(capsys)
    assert reproduce(tuned()) == 0
    assert stand_ins() == []
    assert "[1/6, TIME] rte-full-learningrate0.0001-warmupsteps0.1: finished before\n" in told(capsys)
    trial = finished(tmp_path / "out")["rte-without_pretraining-learningrate0.001-warmupsteps0.1-lmcoef0.5"]
    assert (trial["kind"], trial["seed"], trial["n_transfer"]) == ("tuning", 0, -1)
    assert trial["cut"] == {"share": 0.2, "most": 1000, "seed": 0}


def test_the_report_shows_the_trials_and_the_chosen_settings(stand_ins, tuned, tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "page", page)
    reproduce(tuned())
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    full, _, fresh = report["tuning"]
    assert (full["chosen"]["learning_rate"], full["chosen"]["lm_coef"]) == (1e-3, None)
    assert (fresh["chosen"]["learning_rate"], fresh["chosen"]["lm_coef"]) == (1e-4, 0.0)
    assert [trial["score"] for trial in full["trials"]] == pytest.approx([49.91, 50.0])
    assert list(report["figures"][2]["panels"]) == [
        "RTE: Transformer, auxiliary LM (full)",
        "RTE: Transformer, without auxiliary LM",
        "RTE: Transformer, without pre-training",
    ]
    assert "held-out score" in (tmp_path / "out" / "report.html").read_text()


def test_a_condition_whose_trials_are_not_finished_waits(stand_ins, tuned, tmp_path):
    reproduce(tuned())
    trials = (tmp_path / "out" / "cells").glob("rte-full-learningrate*")
    next(trials).unlink()
    reproduce([*tuned()[:6], "--only_report", "true", *tuned()[6:]])
    row = json.loads((tmp_path / "out" / "report.json").read_text())["tables"][3]["rows"][0]["cells"]["rte"]
    reason = "its tuning is not finished"
    assert row["missing"] == f"seed 1: {reason}; seed 2: {reason}"


def test_the_report_line_counts_and_names_a_condition_that_waits(stand_ins, tuned, tmp_path, capsys):
    reproduce(tuned())
    next((tmp_path / "out" / "cells").glob("rte-full-learningrate*")).unlink()
    told(capsys)
    reproduce([*tuned()[:6], "--only_report", "true", *tuned()[6:]])
    line = told(capsys)
    assert "cover 4 of 6 cells." in line
    assert "Without settings: rte full (its tuning is not finished)." in line


def test_a_report_of_trials_alone_is_written(stand_ins, tuned, tmp_path, capsys):
    """The flags are right, and the trials are worth a look before any seed has run."""
    reproduce(tuned())
    for path in (tmp_path / "out" / "cells").glob("*-seed*"):
        path.unlink()
    told(capsys)
    assert reproduce([*tuned()[:6], "--only_report", "true", *tuned()[6:]]) == 0
    assert "cover 0 of 6 cells." in told(capsys)


def test_the_report_is_written_after_each_trial(stand_ins, tuned, monkeypatch):
    written = []

    def count(arguments, command, tunings, cells, store):
        written.append((sum(len(tuning.trials) for tuning in tunings), sum(bool(store.read(cell)) for cell in cells)))
        return ""

    monkeypatch.setattr(grid, "write_reports", count)
    reproduce(tuned())
    assert written == [*((trials, 0) for trials in range(1, 7)), *((6, seeds) for seeds in range(1, 7)), (6, 6)]


def test_a_command_without_a_finished_cell_leaves_an_earlier_report(stand_ins, command, tmp_path, capsys):
    words = command("--experiments", "fine_tuning", "--tasks", "rte", "--seeds", "1")
    reproduce(words)
    kept = {path: path.read_bytes() for path in (tmp_path / "out").glob("*.*")}
    assert {path.name for path in kept} == {"report.json", "report.html", "cells.json.gz"}
    told(capsys)
    (stand_ins.folder / "bad_task").write_text("mrpc")
    assert reproduce(command("--experiments", "fine_tuning", "--tasks", "mrpc", "--seeds", "1")) == 1
    assert f"No cell is finished, so {tmp_path / 'out' / 'report.html'} is left as it is." in told(capsys)
    assert {path: path.read_bytes() for path in kept} == kept


def test_the_report_names_the_packages_where_cells_have_different_ones(stand_ins, command, tmp_path, monkeypatch):
    def environment_of(tasks: str) -> dict:
        reproduce(command("--experiments", "fine_tuning", "--tasks", *tasks.split(), "--seeds", "1"))
        return json.loads((tmp_path / "out" / "report.json").read_text())["environment"]

    monkeypatch.setattr(grid, "versions", lambda: "gpt1-hf 1.0")
    assert "cells_made_with" not in environment_of("rte mrpc")
    monkeypatch.setattr(grid, "versions", lambda: "gpt1-hf 1.1")
    assert environment_of("rte mrpc stsb")["cells_made_with"] == "gpt1-hf 1.0 (2); gpt1-hf 1.1 (1)"


@pytest.fixture
def diverging(stand_ins, tuned):
    """Gives a function that lets the runs diverge whose command line has a word."""

    def at(word: str) -> None:
        script = stand_ins.folder / "gpt1.py"
        message = f"gpt1 finetune: `loss` is nan after update 4. {DIVERGED} There is no checkpoint to resume from."
        lines = f"    if {word!r} in words:\n        sys.exit({message!r})\n    names ="
        script.write_text(script.read_text().replace("    names =", lines, 1))

    return at


def test_a_trial_that_diverges_is_finished_and_not_chosen(stand_ins, tuned, diverging, tmp_path):
    diverging("0.001")
    assert reproduce(tuned()) == 0
    full, *_ = json.loads((tmp_path / "out" / "report.json").read_text())["tuning"]
    assert [trial["score"] for trial in full["trials"]] == [pytest.approx(49.91), None]
    assert full["chosen"]["learning_rate"] == 1e-4
    stand_ins()
    reproduce(tuned())
    assert stand_ins() == []


def test_a_seed_that_diverges_has_failed_to_train(tuned, diverging, tmp_path):
    diverging("2")
    assert reproduce(tuned()) == 0
    row = json.loads((tmp_path / "out" / "report.json").read_text())["tables"][3]["rows"][0]["cells"]["rte"]
    assert row["failed"] == [2]
    assert row["measured"]["seeds"] == [1]


def test_a_folder_without_checkpoints_is_refused_before_the_first_trial(stand_ins, tuned, tmp_path):
    words = tuned("--checkpoints", str(tmp_path / "none"), "--zero_shot_tasks", "cola")
    words[words.index("ablations")] = "zero_shot"
    words.insert(words.index("zero_shot"), "ablations")
    assert "has no checkpoint with a model" in refusal(reproduce, words)
    assert stand_ins() == []


def test_trials_that_fail_are_named(stand_ins, tuned, capsys):
    (stand_ins.folder / "bad_task").write_text("rte")
    assert reproduce(tuned()) == 1
    first = "rte-full-learningrate0.0001-warmupsteps0.1"
    assert f"6 of 6 cells failed: {first}, " in told(capsys)


def test_without_tune_nothing_is_tuned(stand_ins, command):
    assert reproduce(command("--experiments", "fine_tuning", "--tasks", "rte", "--seeds", "1")) == 0
    assert len(stand_ins()) == 1


def test_the_report_can_be_recomputed_from_the_kept_cells(stand_ins, tuned, tmp_path):
    reproduce(tuned())
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    kept = models_module.read_finished_cells(tmp_path / "out" / "cells.json.gz")
    again = build_report(kept, title=report["title"], models=report["models"])
    assert again["tables"] == report["tables"]
    assert again["effects"] == report["effects"]


def test_the_same_cells_give_the_same_bytes(tmp_path):
    for name in ("first.gz", "second.gz"):
        models_module.write_finished_cells(tmp_path / name, [{"kind": "fine_tuning", "answers": "0 1"}])
    first, second = ((tmp_path / name).read_bytes() for name in ("first.gz", "second.gz"))
    assert first == second
    assert first[4:8] == bytes(4)  # the time of writing, in seconds


def test_a_cell_that_cannot_be_written_whole_is_no_finished_one(tmp_path, monkeypatch):
    def fail(*places):
        raise OSError("No space left on device")

    write_json(tmp_path / "cell.json", {"seed": 1})
    monkeypatch.setattr(os, "replace", fail)
    for name in ("cell.json", "other.json"):
        with pytest.raises(OSError, match="No space left"):
            write_json(tmp_path / name, {"seed": 2})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"cell.json": '{\n  "seed": 1\n}\n'}


# ---- Parts and checkpoints


def test_race_without_files_of_its_parts(stand_ins, command, data_dir, tmp_path):
    for part in ("middle", "high"):
        for split in ("train", "validation"):
            (data_dir / "race" / f"{part}_{split}.jsonl").rename(data_dir / "race" / f"{split}.jsonl")
    (data_dir / "race" / "middle_school.txt").write_text("notes", encoding="utf-8")  # no split of a part
    assert reproduce(command("--experiments", "fine_tuning", "--tasks", "race", "--seeds", "1")) == 0
    assert [call[1] for call in stand_ins()] == ["race"]
    assert "parts" not in finished(tmp_path / "out")["race-full-seed1"]
    table = json.loads((tmp_path / "out" / "report.json").read_text())["tables"][1]["rows"][0]["cells"]
    assert table["race-m"]["missing"] == "not measured"


def test_race_as_the_hub_names_its_files_has_its_parts(stand_ins, command, data_dir, tmp_path):
    race = data_dir / "race"
    for part in ("middle", "high"):
        for split in ("train", "validation"):
            rows = read_rows((race / f"{part}_{split}.jsonl").read_text(encoding="utf-8"))
            for folder in (part, "all"):
                write_rows(race / folder / f"{split}-00000-of-00001.parquet", rows)
            (race / f"{part}_{split}.jsonl").unlink()
    words = command("--experiments", "fine_tuning", "--tasks", "race", "--seeds", "1")
    words[words.index("--data_dir") + 1] = str(race)
    assert reproduce(words) == 0
    assert sorted(finished(tmp_path / "out")["race-full-seed1"]["parts"]) == ["race-high", "race-middle"]


def test_data_beside_a_folder_of_notes_are_told_by_what_they_hold(data_dir):
    """The folder of a task counts only if it has a split of the task."""
    (data_dir / "rte").rename(data_dir / "elsewhere")
    for file in (data_dir / "elsewhere").iterdir():
        file.rename(data_dir / file.name)
    (data_dir / "rte").mkdir()
    (data_dir / "rte" / "README.md").write_text("notes", encoding="utf-8")
    arguments = SimpleNamespace(data_dir=str(data_dir))
    told = cells_module.data_of(arguments, get_task("rte"))
    assert {"train.jsonl", "validation.jsonl"} <= told.keys()
    assert "README.md" not in told


def test_zero_shot_of_every_checkpoint(stand_ins, command, models, tmp_path, capsys):
    run = tmp_path / "books"
    for step in (20, 100):
        checkpoint = run / f"checkpoint-{step}"
        shutil.copytree(models[0], checkpoint)
        state = {"num_input_tokens_seen": 64 * step, "global_step": step}
        for folder in (run, checkpoint):
            (folder / "trainer_state.json").write_text(json.dumps(state))
    rows = ["--zero_shot_max_eval_samples", "20", "--zero_shot_max_train_samples", "30", "--zero_shot_tasks", "CoLA"]
    assert reproduce(command("--experiments", "zero_shot", "--checkpoints", str(run), *rows)) == 0
    calls = stand_ins()
    assert [call.pop(call.index("--output_file") + 1).rpartition("/")[2] for call in calls] == ["zero_shot.json"] * 2
    data = ["--tasks", "cola", "--data_dir", str(tmp_path / "data"), "--output_file"]
    data += ["--max_eval_samples", "20", "--max_train_samples", "30"]
    assert calls == [["--model", str(run / f"checkpoint-{step}"), *data] for step in (20, 100)]
    assert "[2/2, TIME] zero-shot-gpt1-checkpoint-100: cola 10.0, TIME\n" in told(capsys)
    cell = finished(tmp_path / "out")["zero-shot-gpt1-checkpoint-100"]
    assert (cell["kind"], cell["family"], cell["step"], cell["tokens"]) == ("zero_shot", "gpt1", 100, 6400)
    assert cell["settings"] == {"tasks": ["cola"], "max_rows": 20, "max_train_rows": 30}
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (points,) = report["figures"][1]["panels"]["CoLA"]["curves"].values()
    error = 2 * (1 - 0.1**2) / 20**0.5 / 0.35  # of a correlation of 0.1 on 20 rows, where 0.35 is the best known
    low, high = round(0.3 - error, 4), round(0.3 + error, 4)
    assert points == [{"x": step, "y": 0.3, "lowest": low, "highest": high} for step in (20, 100)]
    assert report["models"][0]["pretraining"] == {"tokens": 6400, "updates": 100, "perplexity": None}
    of_one = describe_model(str(run / "checkpoint-20"), str(run))
    assert of_one["pretraining"]["updates"] == 20  # and not of the whole run


@pytest.mark.parametrize(("config_class", "measured"), [(OpenAIGPTConfig, None), (GPT2Config, 7.5)])
def test_a_folder_that_is_opened_as_gpt1_is_described_by_our_names(config_class, measured, tmp_path):
    size = {"n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 64, "vocab_size": 99}
    config_class(**size).save_pretrained(tmp_path)
    results = {"eval_perplexity": measured or float("nan")}  # NaN of a run that diverged
    (tmp_path / "all_results.json").write_text(json.dumps(results))
    found = describe_model(str(tmp_path), None)
    assert (found["config"]["num_hidden_layers"], found["config"]["hidden_size"]) == (3, 16)
    assert found["pretraining"] == {"tokens": None, "updates": None, "perplexity": measured}


def test_a_report_alone(stand_ins, command, models, tmp_path, capsys):
    """It has the cells of its flags, whoever ran them."""
    settings = ["--experiments", "fine_tuning", "--seeds", "1", "2", "--tasks"]
    reproduce(command(*settings, "rte"))
    reproduce(command(*settings, "rte", "stsb", finetune=("--learning_rate", "1e-4")))
    assert len(stand_ins()) == 6
    told(capsys)
    arguments = command(*settings, "rte", "cola", "--only_report", "--title", "A small one")
    assert reproduce(arguments) == 0
    assert stand_ins() == []
    out = tmp_path / "out"
    assert told(capsys) == f"{out / 'report.html'} and report.json cover 2 of 4 cells.\n"
    report = json.loads((out / "report.json").read_text())
    assert report["title"] == "A small one"
    assert (out / "report.html").read_text() == page(report)
    assert report["settings"] == {"seeds": [1, 2], "learning_rate": "5e-4"}
    (model,) = report["models"]
    parameters = GPT1ForCausalLM.from_pretrained(models[0]).num_parameters()
    assert (model["name"], model["parameters"]) == ("GPT-1 (2 layers, 16 wide)", parameters)
    rte = report["tables"][0]["rows"][0]["cells"]["rte"]
    assert rte["measured"] == {"mean": 51.5, "median": 51.5, "lowest": 51.0, "highest": 52.0, "seeds": [1, 2]}
    assert report["tables"][2]["rows"][0]["cells"]["cola"]["missing"] == "seed 1: not run yet; seed 2: not run yet"
    assert report["commands"] == [f"gpt1 reproduce {' '.join(arguments)}".replace("A small one", "'A small one'")]
    with pytest.raises(ValueError, match="No cell in .* has these settings, .* or pass --config"):
        reproduce(command(*settings, "mrpc", "--only_report"))
    assert json.loads((out / "report.json").read_text()) == report


def test_a_report_that_fails_costs_no_cell(stand_ins, command, tmp_path, capsys, monkeypatch):
    def fail(*arguments, **fields):
        raise KeyError("perplexity")

    monkeypatch.setattr(grid, "build_report", fail)
    with pytest.raises(KeyError):
        reproduce(command("--experiments", "fine_tuning", "--tasks", "rte", "mrpc", "--seeds", "1"))
    assert told(capsys).count("The report could not be written: KeyError: 'perplexity'\n") == 2
    assert set(finished(tmp_path / "out")) == {"rte-full-seed1", "mrpc-full-seed1"}


def test_lines_are_shown_while_another_thread_reads_a_data_set(tmp_path, capsys):
    has_begun, is_shown = threading.Event(), threading.Event()

    def ends_meanwhile(run, work):
        assert has_begun.wait(TIMEOUT)
        return {"kind": "pretraining"}

    def reads(run, work):
        with dill.temp.capture("stdout"):  # as for a fingerprint
            has_begun.set()
            assert is_shown.wait(TIMEOUT)
        return {"kind": "pretraining"}

    cells = [Cell(name, {"name": name}, {}, run) for name, run in (("first", ends_meanwhile), ("second", reads))]
    CellStore(tmp_path, jobs=2).run_all(cells, is_shown.set)
    lines = ["[1/2, TIME] first: trained, TIME", "[2/2, TIME] second: trained, TIME"]
    assert told(capsys).splitlines() == lines


def test_cells_that_read_at_once_leave_the_output_as_it_was(tmp_path, capsys):
    """The one that began first ends first, and its stream is what the other one puts back."""
    first_began, second_began, first_ended = threading.Event(), threading.Event(), threading.Event()

    def first(run, work):
        with dill.temp.capture("stdout"):
            first_began.set()
            assert second_began.wait(TIMEOUT)
        first_ended.set()
        return {"kind": "pretraining"}

    def second(run, work):
        assert first_began.wait(TIMEOUT)
        with dill.temp.capture("stdout"):
            second_began.set()
            assert first_ended.wait(TIMEOUT)
        return {"kind": "pretraining"}

    cells = [Cell(name, {"name": name}, {}, run) for name, run in (("first", first), ("second", second))]
    usual = sys.stdout
    CellStore(tmp_path, jobs=2).run_all(cells, lambda: None)
    assert sys.stdout is usual
    assert len(told(capsys).splitlines()) == 2


def wait_for(condition):
    end = time.monotonic() + TIMEOUT
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


SLEEP = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"


def run_slowly(folder: Path, paths: list[Path]) -> None:
    """What a command does that runs slow cells at once, each of which leaves its process id in its file."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    grid.end_on_termination()

    def run(path, run_command, work):
        run_command([sys.executable, "-c", SLEEP, str(path)])

    cells = [Cell("slow", {"seed": seed}, {}, partial(run, path)) for seed, path in enumerate(paths)]
    CellStore(folder, len(cells)).run_all(cells, lambda: None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_commands_and_leaves_the_cells_to_others(number, tmp_path, capsys):
    cells = [Cell("slow", {"seed": 0}, {}, lambda run, work: {"kind": "pretraining"})]
    store, paths = CellStore(tmp_path / "out"), [tmp_path / name for name in ("first", "second")]
    runner = multiprocessing.get_context("fork").Process(target=run_slowly, args=(store.folder, paths))
    runner.start()
    children = [int(wait_for(lambda path=path: path.exists() and path.read_text())) for path in paths]
    store.run_all(cells, lambda: pytest.fail("nothing was run"))
    os.kill(runner.pid, number)  # the runner alone, which does not wait for its cells
    runner.join(60)
    left = list(filter(is_running, children))
    for child in left:
        os.kill(child, signal.SIGKILL)
    assert runner.exitcode not in (None, 0)
    assert left == []
    assert not store.read(cells[0])
    assert not list((store.folder / "work").iterdir())
    (store.folder / "work" / f"{cells[0].key}-abcd").mkdir()  # of an attempt that had no time to remove it
    store.run_all(cells, lambda: None)
    assert not list((store.folder / "work").iterdir())
    store.run_all(cells, lambda: pytest.fail("nothing was run"))
    outcomes = ("left to another process that is running it", "trained, TIME", "finished before")
    assert told(capsys).splitlines() == [f"[1/1, TIME] slow: {outcome}" for outcome in outcomes]


def test_cells_at_once(stand_ins, command, tmp_path, capsys, monkeypatch):
    """Each of the first two ends only when the other has begun; those of the second seed begin after them.

    Rows are loaded one task at a time: now and then `datasets` fails in two threads.
    """
    is_free, load = threading.Lock(), rows_module.load_dataset

    def load_alone(*of, **options):
        assert is_free.acquire(blocking=False), "another thread is loading"
        time.sleep(0.05)
        is_free.release()
        return load(*of, **options)

    monkeypatch.setattr(rows_module, "load_dataset", load_alone)
    meet = """
import time
(here / f"begun-{value('--task')}-{value('--seed')}").touch()
end = time.monotonic() + 60
while len(list(here.glob("begun-*"))) < 2:
    assert time.monotonic() < end, "no other cell runs"
    time.sleep(0.02)
"""
    (stand_ins.folder / "gpt1.py").write_text(GPT1.replace("output = ", f"{meet}output = ", 1))
    settings = ["--experiments", "fine_tuning", "--tasks", "rte", "mrpc", "--seeds", "1", "2", "--jobs", "2"]
    assert reproduce(command(*settings)) == 0
    seeds = [call[call.index("--seed") + 1] for call in stand_ins()]
    assert sorted(seeds[:2]) == ["1", "1"]
    assert len(seeds) == 4
    assert len(finished(tmp_path / "out")) == 4
    assert [line[:5] for line in told(capsys).splitlines()[:4]] == [f"[{number}/4," for number in range(1, 5)]


@pytest.fixture
def in_earnest(monkeypatch):
    """The commands of cells are taken by `gpt1 finetune`, here in this process."""
    monkeypatch.setattr("modeling_gpt1.commands.finetune.run.end_processes", lambda trainer: None)

    def run_here(_, line, log):
        assert line[:4] == [sys.executable, "-m", "modeling_gpt1.commands", "finetune"]
        finetune.main(line[4:])

    monkeypatch.setattr(CellStore, "run_command", run_here)


def test_a_cell_in_earnest(in_earnest, command, tmp_path):
    arguments = command(
        *("--experiments", "ablations", "--tasks", "rte", "--seeds", "1", "--variants", "without_pretraining"),
        finetune=("--use_cpu", "--num_train_epochs", "1", "--max_train_samples", "4", "--report_to", "none"),
    )
    assert reproduce(arguments) == 0
    (cell,) = finished(tmp_path / "out").values()
    assert cell["metrics"]["epoch"] == 1.0
    assert cell["metrics"]["train_loss"] > 0
    assert cell["train_rows"] == 4  # --max_train_samples
    labels, predictions = (cell["answers"]["validation"][name].split() for name in ("labels", "predictions"))
    assert labels == ["0"] * 4 + ["1"] * 4
    right = sum(label == prediction for label, prediction in zip(labels, predictions, strict=True))
    assert right / 8 == cell["metrics"]["eval_accuracy"]
    assert not list((tmp_path / "out" / "work").iterdir())


def test_a_rehearsal_in_earnest(in_earnest, command, tmp_path, capsys):
    """One seed, a few updates, its time and memory; it goes on where it stopped and stays out of the report."""
    words = command("--experiments", "fine_tuning", "--tasks", "rte", "snli", "--seeds", "2", "3", "--rehearse", "3")
    assert reproduce([*words, "--report_to", "none"]) == 1  # there is no SNLI
    shown = told(capsys)
    line = r"\[1/2, TIME\] rte-full-seed2: rte \d+\.0, updates in \d+\.\d s, (\d+\.\d\d) GiB of the CPU(, .*)?, TIME\n"
    assert 0.1 < float(re.match(line, shown)[1]) < 64
    assert "1 of 2 cells failed: snli-full-seed2" in shown
    (cell,) = finished(tmp_path / "out" / "rehearsal").values()
    assert cell["metrics"]["epoch"] == 3.0
    assert cell["settings"]["max_eval_samples"] == "16"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rehearsal"]
    reproduce([*words, "--report_to", "none"])
    assert "rte-full-seed2: finished before" in told(capsys)


@pytest.mark.parametrize(("given", "fitted"), [([], "1000"), (["--max_train_samples", "20"], "20")])
def test_a_rehearsal_fits_linear_models_to_few_rows(given, fitted, command, tmp_path):
    """On all rows of MNLI they alone would take an hour."""
    words = command("--experiments", "baselines", "--tasks", "rte", "--rehearse", "3", finetune=tuple(given))
    arguments, _ = reproduce_command.parse_arguments(words)
    rehearsed = [cell.facts["settings"] for cell in plan(rehearsal_of(arguments))]
    assert [settings["max_train_samples"] for settings in rehearsed] == [fitted, fitted]  # of all texts, of the last
    in_earnest, _ = reproduce_command.parse_arguments([word for word in words if word not in ("--rehearse", "3")])
    assert plan(in_earnest)[0].facts["settings"].get("max_train_samples") == (given[1] if given else None)


def test_more_jobs_than_the_rehearsed_memory_allows_are_refused(stand_ins, command, tmp_path, monkeypatch):
    """Of the largest cell, by all that its process had; a text where a device tells no peak."""
    folder = tmp_path / "out" / "rehearsal"
    (folder / "cells").mkdir(parents=True)
    for size in (1, 3):
        sizes = {"before_init_mem_cpu": size << 29, "train_mem_cpu_peaked_delta": size << 29, "init_mem_cpu_peak": "?"}
        write_json(folder / "cells" / f"{size}.json", {"metrics": sizes})
    monkeypatch.setattr(grid.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(grid.psutil, "virtual_memory", lambda: SimpleNamespace(total=7 << 30))
    words = ["--experiments", "fine_tuning", "--tasks", "rte", "--seeds", "1", "--jobs"]
    assert reproduce(command(*words, "2")) == 0  # 6 of 7 GiB
    expected = f"--jobs 3 may need 9.0 GiB of memory, as measured in {folder}, but there are only 7.0. Pass fewer jobs"
    assert expected in refusal(reproduce, command(*words, "3"))


@pytest.mark.parametrize(
    ("words", "given", "remedy"),
    [
        (["--variants", "lstm"], "The variant lstm needs a model", "Pass one as --lstm_model"),
        (["--tune_learning_rates", "1e-4", "0.0001"], "--tune_learning_rates has 0.0001 twice", "each value once"),
        (["--tune_warmups", "0.1", "2", "0.1"], "--tune_warmups has 0.1 twice", "each value once"),
        (["--tune_learning_rates", "1e-4"], "--tune_learning_rates was given, but nothing is tuned", "--tune true"),
        (["--tune_lm_coefs", "0"], "--tune_lm_coefs was given, but nothing is tuned", "leave it out"),
        (["--zero_shot_tasks", "mrpc"], "Task 'mrpc' has no zero-shot heuristic", "cola, sst2, race"),
        (["--finetune_arguments", "--data-dir=elsewhere"], "has --data_dir", "Leave it out"),
        (["--finetune_arguments", "--config", "own.yaml"], "has --config", "Leave it out"),
        (["--finetune_arguments", "--logging_steps", "500"], "has --logging_steps", "Leave it out"),
        (["--finetune_arguments", "--class_weights", "balanced"], "--class_weights was given", "Leave it out"),
        (["--finetune_arguments", "--metric_name", "f1_macro"], "--metric_name was given to the runs", "Leave it out"),
        (["--lstm_finetune_arguments", "--class-weights=1,2"], "--class_weights was given", "Leave it out"),
        (["--finetune_arguments", "5e-4"], "begins with '5e-4'", "such as --learning_rate"),
        (
            ["--experiments", "layer_transfer", "--transfer_layers", "1", "3"],
            "--transfer_layers has 3, but",
            "numbers up to 2",
        ),
        (["--experiments", "layer_transfer", "--transfer_layers", "-2"], "--transfer_layers has -2", "-1 for nothing"),
        (["--lstm_model", "TRANSFORMER"], "has the model type gpt1.", "--family gpt1-lstm"),
        (["--model", "LSTM"], "has the model type gpt1-lstm", "--family gpt1."),
        (["--model", "BERT"], "has the model type bert.", "--family gpt1."),
        (["--model", "pretrain"], "--model or --lstm_model is pretrain", "Pass them"),
        (["--pretrain_arguments", "--max_steps", "2"], "neither --model nor --lstm_model is pretrain", "Leave"),
        (["--pretrain_arguments", "--output_dir", "o"], "has --output_dir, which `gpt1 reproduce`", "Leave it out"),
    ],
)
def test_refuses(words, given, remedy, models, stand_ins, tmp_path):
    places = {"TRANSFORMER": str(models[0]), "LSTM": str(models[1]), "BERT": str(tmp_path / "bert")}
    BertConfig().save_pretrained(tmp_path / "bert")
    words = [places.get(word, word) for word in words]
    told = refusal(reproduce, ["--model", str(models[0]), "--output_dir", str(tmp_path / "out"), *words])
    assert given in told
    assert remedy in told
    assert stand_ins() == []


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--lstm_finetune_arguments", "--learning_rate", "1e-3"], "Pass one as --lstm_model"),
        (["--lstm_pretrain_arguments", "--learning_rate", "1e-3"], "or pass --lstm_model pretrain"),
    ],
)
def test_arguments_for_an_lstm_that_is_not_run_are_refused(words, remedy, models, tmp_path):
    told = refusal(reproduce_command.main, ["--model", str(models[0]), "--output_dir", str(tmp_path / "out"), *words])
    assert f"{words[0]} was given, but" in told
    assert remedy in told
    assert not (tmp_path / "out").exists()


@pytest.fixture
def from_text(stand_ins, models, data_dir, tmp_path):
    """The words of one command that pre-trains both models and fine-tunes them."""
    (stand_ins.folder / "models.json").write_text(json.dumps(list(map(str, models))))
    for name in ("books", "bad"):
        (tmp_path / f"{name}.txt").write_text("the old farmer smiled at her .")

    def words(*more: str, text: str = "books", lstm: tuple[str, ...] = ("--learning_rate", "2e-3")) -> list[str]:
        return [
            *("--model", "pretrain", "--lstm_model", "pretrain", "--data_dir", str(data_dir), "--tasks", "rte"),
            *("--experiments", "ablations", "--variants", "full", "lstm", "--seeds", "1"),
            *("--output_dir", str(tmp_path / "out"), *more),
            *("--pretrain_arguments", "--train_files", str(tmp_path / f"{text}.txt"), "--learning_rate", "1e-3"),
            *("--finetune_arguments", "--use_cpu"),
            *("--lstm_pretrain_arguments", *lstm),
        ]

    return words


def test_one_command_goes_from_a_text_to_the_report(from_text, stand_ins, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(grid, "accelerator_name", lambda: None)
    assert reproduce(from_text()) == 0
    transformer, lstm, *tuned = stand_ins()
    assert transformer[:4] == ["--train_files", str(tmp_path / "books.txt"), "--learning_rate", "1e-3"]
    assert lstm[:7] == [*transformer[:2], "--learning_rate", "2e-3", "--family", "gpt1-lstm", "--output_dir"]
    # The command of the page for size B: a flag that is refused twice.
    sizes, again = ["--train_files", "a", "b", "--config_overrides", "n_embd=8"], ["--config-overrides=n_embd=16"]
    assert behind(sizes, again) == ["--train_files", "a", "b", *again]
    assert "n_embd=16" in vars(parser_of("pretrain").parse_known_args(behind(sizes, again))[0])["config_overrides"]
    folders = [words[words.index("--output_dir") + 1] for words in (transformer, lstm)]
    assert transformer[-4:] == lstm[-4:] == ["--resume_from_checkpoint", "auto", "--disable_tqdm", "true"]
    assert [words[words.index("--model") + 1] for words in tuned] == folders
    shown = told(capsys)
    assert "pretraining-gpt1: perplexity 53.2" in shown
    assert "cover 2 of 2 cells." in shown
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [model["family"] for model in report["models"]] == ["gpt1", "gpt1-lstm"]
    assert report["environment"]["cells_ran_on"] == f"{processor_name()} (2)"

    assert reproduce(from_text()) == 0  # all is finished
    assert stand_ins() == []
    assert reproduce(from_text("--only_report")) == 0
    assert stand_ins() == []
    assert reproduce(from_text(lstm=("--learning_rate", "4e-3"))) == 0
    assert [words[0] for words in stand_ins()] == ["--train_files"]  # the LSTM alone, whose files are the same here
    (tmp_path / "books.txt").write_text("another text")
    text_fingerprint.cache_clear()  # as in another process
    assert reproduce(from_text()) == 0
    assert len(stand_ins()) == 2


def test_a_flag_takes_the_place_of_the_same_flag_however_both_are_spelled():
    own = ["--learning_rate", "2e-3", "--config_overrides=n_embd=16"]
    words = ["--learning-rate", "1e-3", "--use-cpu", "--config-overrides", "n_embd=8"]
    assert behind(words, own) == ["--use-cpu", *own]


def test_a_model_that_cannot_be_pre_trained_ends_the_command(from_text, stand_ins, capsys):
    assert reproduce(from_text("--only_report")) == 1
    assert stand_ins() == []
    assert "Not every model is pre-trained" in told(capsys)
    assert reproduce(from_text(text="bad")) == 1
    shown = told(capsys)
    assert "pretraining-gpt1: FAILED, its command exited" in shown
    assert "so nothing is fine-tuned" in shown
    assert "ValueError: there is no text" in shown
    assert {words[0] for words in stand_ins()} == {"--train_files"}  # no cell began


def test_other_texts_and_tokenizers_are_other_cells(tmp_path):
    keys = []
    for held_out, tokenizer in (("a", "{}"), ("b", "{}"), ("b", "{ }"), ("b", "{ }")):
        text_fingerprint.cache_clear()
        (tmp_path / "tok").mkdir(exist_ok=True)
        for name, text in (("train.txt", "x"), ("held.txt", held_out), ("tok/tokenizer.json", tokenizer)):
            (tmp_path / name).write_text(text)
        given = ["--train_files", str(tmp_path / "train.txt"), "--validation_files", str(tmp_path / "held.txt")]
        words = [*given, "--tokenizer_name", str(tmp_path / "tok")]
        arguments = ReproduceArguments(output_dir="o", model="pretrain", pretrain_arguments=words)
        keys.append(pretraining_cells(arguments, tmp_path)["model"].key)
    assert len(set(keys)) == 3
    assert keys[2] == keys[3]


@pytest.mark.parametrize(
    "words",
    [
        ["--train_files", "en={text}", "--train_weights", "en=1"],
        ["--dataset_name", "{folder}"],
    ],
    ids=lambda words: words[0],
)
def test_another_text_makes_another_cell_however_it_is_given(tmp_path, words):
    text = tmp_path / "texts" / "books.txt"
    text.parent.mkdir()
    keys = []
    for content in ("x", "y"):
        text.write_text(content)
        text_fingerprint.cache_clear()
        given = [word.format(text=text, folder=text.parent) for word in words]
        arguments = ReproduceArguments(output_dir="o", model="pretrain", pretrain_arguments=given)
        keys.append(pretraining_cells(arguments, tmp_path)["model"].key)
    assert keys[0] != keys[1]


def test_another_model_to_go_on_with_makes_another_cell(models, tmp_path):
    keys = []
    for number in range(2):
        given = ["--train_files", "books", "--model", str(models[number])]
        arguments = ReproduceArguments(output_dir="o", model="pretrain", pretrain_arguments=given)
        facts = pretraining_cells(arguments, tmp_path)["model"].facts
        keys.append(facts["data"])
    assert keys[0] != keys[1]


def test_a_rehearsal_pre_trains_for_as_many_updates(from_text, stand_ins, tmp_path):
    reproduce(from_text("--rehearse", "3", lstm=("--max_steps", "9", "--max_words", "5")))
    for words in stand_ins()[:2]:
        pairs = {name: value for name, value in zip(words, words[1:], strict=False) if name.startswith("--")}
        assert pairs["--max_steps"] == "3"
        assert pairs["--eval_strategy"] == "no"
        assert "--max_words=" in pairs
        assert pairs["--load_best_model_at_end"] == "false"
        assert pairs["--max_eval_blocks"] == "16"
        assert Path(words[words.index("--output_dir") + 1]).parent == tmp_path / "out" / "rehearsal" / "pretraining"
