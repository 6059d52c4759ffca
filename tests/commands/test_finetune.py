"""`gpt1 finetune` and `gpt1 predict` in this process, on made-up rows with a tiny model."""

import csv
import json
import logging
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import support.refusals
import torch
import yaml
from support.files import read_rows, write_rows
from support.finetuning import resumes_after
from support.hub_code import HUB_CODE
from tqdm.auto import tqdm
from transformers import AutoModelForMultipleChoice, AutoModelForSequenceClassification, AutoTokenizer
from transformers.trainer_jit_checkpoint import JITCheckpointCallback

from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM, GPT1TrainingArguments
from modeling_gpt1.commands import entry, finetune, plot, predict, rows, runs
from modeling_gpt1.commands.arguments import parser_of
from modeling_gpt1.commands.entry import one_sentence
from modeling_gpt1.commands.finetune import run as run_module
from modeling_gpt1.commands.finetune.arguments import DataArguments, StartArguments, parse_columns
from modeling_gpt1.commands.finetune.run import FineTuningRun
from modeling_gpt1.commands.rows import warn_of_majority
from modeling_gpt1.commands.starts import parse_overrides
from modeling_gpt1.families.gpt1 import GPT1Family
from modeling_gpt1.storage.locking import writer_of_new_file
from modeling_gpt1.training.arguments import SEED_OF_SCORED_ROWS, draw_places
from tokenization import Task, TraversalCollator
from tokenization.rows import files

SIZE = "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,max_position_embeddings=64"
GOOD, BAD = "the whole room will laugh .", "nobody in the village smiled ."
ROWS = {
    "classification": [{"review": GOOD, "mood": "happy"}, {"review": BAD, "mood": "sad"}],
    "entailment": [
        {"said": "he paid five dollars .", "claim": "he paid .", "label": "yes"},
        {"said": "she read the letter .", "claim": "she walked to the market .", "label": "no"},
    ],
    "similarity": [
        {"one": "the old farmer walked .", "two": "the farmer walked .", "same": True},
        {"one": "the old farmer walked .", "two": "the river had turned green .", "same": False},
    ],
    "multiple_choice": [
        {"story": "he needed a new plough .", "ends": ["he went to the market .", "the film was slow ."], "label": 0},
        {"story": "the letter came .", "ends": ["green .", "she smiled .", "the river turned ."], "label": 1},
    ],
    "regression": [
        {"one": "the film was slow .", "two": "the film was slow .", "score": 1.0},
        {"one": "the film was slow .", "two": "a quiet girl read .", "score": -1.0},
    ],
}
COLUMNS = {
    "classification": ["text=review", "label=mood"],
    "entailment": ["premise=said", "hypothesis=claim"],
    "similarity": ["text_a=one", "text_b=two", "label=same"],
    "multiple_choice": ["context=story", "choices=ends"],
    "regression": ["text_a=one", "text_b=two", "label=score"],
}
LABELS = {"classification": ["happy", "sad"], "entailment": ["no", "yes"]}
LABELS |= {"similarity": ["False", "True"], "multiple_choice": [0, 1, 2]}


@pytest.fixture(scope="module")
def tokenizer_folder(plain_tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    plain_tokenizer.save_pretrained(folder)
    return str(folder)


def read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def read_csv(path: Path) -> list[dict]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def read_predictions(path: Path) -> list[dict]:
    return read_rows(path.read_text(encoding="utf-8"))


def own_data(kind: str, folder: Path, repeat: int = 4) -> list[str]:
    """Arguments that name three files of made-up rows; of entailment, the last row to predict has no label."""
    label = dict(pair.split("=") for pair in COLUMNS[kind]).get("label", "label")
    rows = ROWS[kind]
    test_rows = [*rows * 2, rows[0], {**rows[1], **({label: None} if kind == "entailment" else {})}]
    files = [
        *("--train_file", write_rows(folder / "train.jsonl", rows * repeat)),
        *("--validation_file", write_rows(folder / "validation.jsonl", rows)),
        *("--test_file", write_rows(folder / "test.jsonl", test_rows)),
    ]
    traversal = ["similarity", "--regression"] if kind == "regression" else [kind]
    return [*files, "--traversal", *traversal, "--columns", *COLUMNS[kind]]


def fresh_model(tokenizer_folder: str) -> list[str]:
    return ["--tokenizer_name", tokenizer_folder, "--config_overrides", SIZE]


def training(output: Path, *more: str) -> list[str]:
    return [
        *("--output_dir", str(output), "--use_cpu", "--disable_tqdm", "true", "--do_train"),
        *("--per_device_train_batch_size", "4", "--learning_rate", "1e-2", "--max_steps", "2"),
        *("--save_strategy", "no", "--logging_steps", "1", "--seed", "3", *more),
    ]


@pytest.mark.parametrize(
    ("options", "steps"),
    [([], [*range(2, 23, 2), 23]), (["--logging_steps", "20"], [20]), (["--logging_strategy", "no"], [])],
)
def test_a_short_run_logs_its_losses_and_evaluates_as_before(options, steps, tokenizer_folder, tmp_path):
    words = training(tmp_path / "out", "--max_steps", "23", "--eval_strategy", "steps", "--report_to", "none")
    at = words.index("--logging_steps")
    words = [*words[:at], *words[at + 2 :], *options, "--metric_for_best_model", "task_loss"]  # of no task
    finetune.main([*own_data("classification", tmp_path, repeat=40), *fresh_model(tokenizer_folder), *words])
    history = read_json(tmp_path / "out" / "trainer_state.json")["log_history"]
    assert [record["step"] for record in history if "loss" in record] == steps
    evaluated = [record["step"] for record in history if "eval_loss" in record]
    assert evaluated == ([20] if "20" in options else []) + [23, 23]  # every `logging_steps`; the file of answers


@pytest.fixture(scope="module")
def folders(tokenizer_folder, tmp_path_factory):
    """A model of each kind, fine-tuned for two updates, with its evaluation and its predictions of a test file."""
    root = tmp_path_factory.mktemp("folders")
    for kind in ROWS:
        (root / f"data-{kind}").mkdir()
        data = [*own_data(kind, root / f"data-{kind}"), *fresh_model(tokenizer_folder)]
        finetune.main([*data, *training(root / kind, "--do_eval", "--do_predict")])
    return root


def scores_of_saved_model(folder: Path, kind: str, rows: list[dict]) -> list[torch.Tensor]:
    """Each row's logits, by the Auto class that opens the folder."""
    auto_class = AutoModelForMultipleChoice if kind == "multiple_choice" else AutoModelForSequenceClassification
    model = auto_class.from_pretrained(folder)
    columns = {role: name for role, name in (pair.split("=") for pair in COLUMNS[kind]) if role != "label"}
    collator = TraversalCollator(AutoTokenizer.from_pretrained(folder), model.config.traversal, columns, max_length=64)
    with torch.no_grad():
        return [model(**collator([row])).logits[0] for row in rows]


@pytest.mark.parametrize("kind", ROWS)
def test_own_files(kind, folders):
    output = folders / kind
    names = {path.name for path in output.iterdir()} - {"confusion_matrix.png"}  # of an extra
    assert names == {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"),
        *("train_results.json", "eval_results.json", "predict_results.json", "all_results.json"),
        *("trainer_state.json", "eval_predictions.jsonl", "predictions.jsonl", "run.yaml"),
        *HUB_CODE,
    }
    metrics = {"regression": {"eval_pearson", "eval_spearmanr"}}.get(kind, {"eval_accuracy"})
    assert metrics | {"eval_loss", "eval_task_loss", "eval_lm_loss"} <= read_json(output / "eval_results.json").keys()
    assert {"train_loss", *metrics} <= read_json(output / "all_results.json").keys()

    predictions, rows = read_predictions(output / "predictions.jsonl"), ROWS[kind] * 3
    assert [prediction["index"] for prediction in predictions] == list(range(6))
    for prediction, logits in zip(predictions, scores_of_saved_model(output, kind, rows), strict=True):
        if kind == "regression":
            assert prediction == {"index": prediction["index"], "score": pytest.approx(logits.item(), abs=1e-5)}
        else:
            scores = logits.softmax(-1).tolist()
            scores = scores if kind == "multiple_choice" else dict(zip(LABELS[kind], scores, strict=True))
            assert prediction["scores"] == pytest.approx(scores, abs=1e-5)
            assert prediction["label"] == LABELS[kind][logits.argmax()]
    if kind != "regression":
        label = dict(pair.split("=") for pair in COLUMNS[kind]).get("label", "label")
        hits = [str(line["label"]) == str(row[label]) for line, row in zip(predictions, rows, strict=True)]
        results = read_json(output / "predict_results.json")
        if kind == "entailment":
            assert "predict_accuracy" not in results
        else:
            assert results["predict_accuracy"] == pytest.approx(np.mean(hits))


def test_a_data_set_of_the_hub_trains_as_its_files_do(tokenizer_folder, tmp_path):
    """A folder stands in for the hub; its splits have names of their own."""
    files = own_data("classification", tmp_path)
    (tmp_path / "moods").mkdir()
    for split, name in {"train": "train", "validation": "dev", "test": "test"}.items():
        shutil.copy(tmp_path / f"{split}.jsonl", tmp_path / "moods" / f"{name}.jsonl")
    card = [f"  - split: {name}\n    path: {name}.jsonl\n" for name in ("train", "dev", "test")]
    text = "---\nconfigs:\n- config_name: all\n  data_files:\n" + "".join(card) + "---\n"
    (tmp_path / "moods" / "README.md").write_text(text)
    hub = ["--dataset_name", str(tmp_path / "moods"), "--dataset_config_name", "all", "--validation_split", "dev"]
    weights, more = [], ["--do_eval", "--do_predict", "--max_steps", "2"]
    for name, data in (("files", files), ("hub", [*hub, *files[6:]])):
        finetune.main([*data, *fresh_model(tokenizer_folder), *training(tmp_path / name, *more)])
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
        assert [line["label"] for line in read_predictions(tmp_path / name / "predictions.jsonl")]
        assert "eval_accuracy" in json.loads((tmp_path / name / "eval_results.json").read_text())
    assert weights[0] == weights[1]
    rest = [*files[6:], *fresh_model(tokenizer_folder), *training(tmp_path / "wrong")]
    refusal(
        [*hub[:2], "--do_eval", *rest], "--do_eval needs validation rows", "only train, test", "--validation_split"
    )
    refusal([*hub[:2], *files[:6], *rest], "--train_file and --dataset_name were both given")


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_fine_tuned_folder_evaluates_its_task_without_training(kind, folders, tmp_path):
    words = ["--model", str(folders / kind), "--test_file", str(folders / f"data-{kind}" / "test.jsonl")]
    finetune.main([*words, "--do_predict", "--output_dir", str(tmp_path / "new"), "--use_cpu"])
    again, first = (read_predictions(folder / "predictions.jsonl") for folder in (tmp_path / "new", folders / kind))
    for line, expected in zip(again, first, strict=True):
        assert line == {name: approximately(value) for name, value in expected.items()}
    assert not (tmp_path / "new" / "run.yaml").exists()


def approximately(value):
    return value if isinstance(value, str | int) else pytest.approx(value, abs=1e-6)


def write_mnli(folder: Path) -> str:
    rows = [
        {"premise": "the film was slow .", "hypothesis": "the film was slow .", "label": 0},
        {"premise": "the film was slow .", "hypothesis": "he paid .", "label": 1},
        {"premise": "the film was slow .", "hypothesis": "the film was green .", "label": 2},
    ]
    hidden = [{**row, "label": -1} for row in rows]
    (folder / "mnli").mkdir()
    write_rows(folder / "mnli" / "train.jsonl", rows * 3)
    for part in ("matched", "mismatched"):
        write_rows(folder / "mnli" / f"validation_{part}.jsonl", rows)
        write_rows(folder / "mnli" / f"test_{part}.jsonl", hidden)
    return str(folder)


def test_task_with_two_validation_and_test_splits(tokenizer_folder, tmp_path, caplog):
    output = tmp_path / "model"
    data = ["--task", "MNLI", "--data_dir", write_mnli(tmp_path), "--max_train_samples", "4"]
    data += ["--max_eval_samples", "1", "--max_predict_samples", "2"]
    more = ["--do_eval", "--do_predict", "--eval_strategy", "steps", "--eval_steps", "1"]
    finetune.main([*data, *fresh_model(tokenizer_folder), *training(output, *more)])
    (told,) = [line for line in caplog.messages if line.startswith("eval: 1 row of split 'validation_matched' (")]
    assert told.endswith(" 1), 0.0% of the tokens unknown")
    assert told.count(",") == 1  # no class without a row
    metrics = read_json(output / "eval_results.json")
    assert {"eval_validation_matched_accuracy", "eval_validation_mismatched_accuracy"} <= metrics.keys()
    for part in ("matched", "mismatched"):
        predictions = read_predictions(output / f"predictions_test_{part}.jsonl")
        assert [prediction["index"] for prediction in predictions] == draw_places(3, 2, SEED_OF_SCORED_ROWS).tolist()
        assert {prediction["label"] for prediction in predictions} <= {"entailment", "neutral", "contradiction"}
    assert GPT1Config.from_pretrained(output).id2label == {0: "entailment", 1: "neutral", 2: "contradiction"}
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "- nyu-mll/glue" in card
    assert "base_model" not in card
    assert str(tmp_path) not in card
    assert "language:" not in card  # none was given


@pytest.mark.parametrize("seed", ["3", "4"])
def test_scored_rows_are_the_same_for_every_seed(seed, tokenizer_folder, tmp_path):
    """Seed 4 draws other rows of ten than 0."""
    assert draw_places(10, 3, 4).tolist() != draw_places(10, 3, SEED_OF_SCORED_ROWS).tolist()
    rows = [{"sentence": f"the film was {'good' if n % 2 else 'slow'} .", "label": n % 2} for n in range(10)]
    for split in ("train", "validation"):
        write_rows(tmp_path / "data" / "sst2" / f"{split}.jsonl", rows)
    data = ["--task", "sst2", "--data_dir", str(tmp_path / "data"), "--max_eval_samples", "3"]
    words = [*data, *fresh_model(tokenizer_folder), *training(tmp_path / "model", "--do_eval"), "--seed", seed]
    finetune.main(words)
    predictions = read_predictions(tmp_path / "model" / "eval_predictions.jsonl")
    expected = draw_places(10, 3, SEED_OF_SCORED_ROWS).tolist()
    assert [prediction["index"] for prediction in predictions] == expected


def test_limits_draw_from_the_whole_split_with_the_seed():
    drawn = draw_places(80, 20, seed=42).tolist()
    assert len(drawn) == 20
    assert drawn == sorted({*drawn}) == draw_places(80, 20, seed=42).tolist()
    assert min(drawn) < 20
    assert max(drawn) >= 60
    assert drawn != draw_places(80, 20, seed=7).tolist()
    assert draw_places(3, None, seed=1).tolist() == draw_places(3, 5, seed=1).tolist() == [0, 1, 2]


@pytest.mark.parametrize(("given", "transfer"), [("true", []), ("auto", ["--n_transfer", "0"])])
def test_a_cut_run_goes_on_to_the_same_weights(given, transfer, plain_tokenizer, tmp_path):
    """The same command starts a run, for which `true` has nothing to go on from, and goes on with it."""
    start, output = pretrained_model(tmp_path / "start", plain_tokenizer), tmp_path / "model"
    steps = ["--max_steps", "4", "--save_strategy", "steps", "--save_steps", "2"]
    command = [*own_data("multiple_choice", tmp_path), "--model", str(start), *transfer, *training(output, *steps)]
    resume = ["--resume_from_checkpoint", given]
    finetune.main([*command, *(resume if given == "auto" else [])])
    weights = GPT1DoubleHeadsModel.from_pretrained(output).state_dict()
    shutil.rmtree(output / "checkpoint-4")
    (output / "model.safetensors").unlink()
    with resumes_after(2):
        finetune.main([*command, *resume])
    resumed = GPT1DoubleHeadsModel.from_pretrained(output).state_dict()
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)
    assert read_json(output / "trainer_state.json")["global_step"] == 4
    middle = GPT1DoubleHeadsModel.from_pretrained(output / "checkpoint-2").state_dict()
    assert not torch.equal(weights["task_head.score.weight"], middle["task_head.score.weight"])


@pytest.mark.parametrize("save_steps", [2, 100])
def test_an_interrupted_run_says_how_to_go_on(save_steps, tokenizer_folder, tmp_path, monkeypatch, capsys):
    def interrupt(self, args, state, control, **kwargs):
        if state.global_step == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(runs.RunCallback, "on_step_end", interrupt)
    data, bar = own_data("classification", tmp_path), tqdm(total=5, disable=False)
    run = training(tmp_path / "run", "--max_steps", "5", "--save_strategy", "steps", "--save_steps", str(save_steps))
    with pytest.raises(SystemExit) as end, one_sentence("finetune", False):
        finetune.main([*data, *fresh_model(tokenizer_folder), *run])
    assert end.value.code == 130
    assert bar.disable  # as it is closed
    how = f"The same command with --resume_from_checkpoint auto resumes from {tmp_path / 'run' / 'checkpoint-2'}."
    how = how if save_steps == 2 else "There is no complete checkpoint to resume from."
    assert capsys.readouterr().err.splitlines()[-1] == f"gpt1 finetune: interrupted after update 3 of 5. {how}"


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_run_stopped_before_its_first_checkpoint_leaves_its_log(error, tokenizer_folder, tmp_path, monkeypatch):
    def stop(self, args, state, control, **kwargs):
        if state.global_step == 3:
            raise error

    monkeypatch.setattr(runs.RunCallback, "on_step_end", stop)
    run = training(tmp_path / "run", "--max_steps", "5")
    with pytest.raises(error):
        finetune.main([*own_data("classification", tmp_path), *fresh_model(tokenizer_folder), *run])
    assert [record["step"] for record in plot.read_run(tmp_path / "run")] == [1, 2]


def test_a_run_stopped_at_a_second_try_keeps_the_log_of_its_checkpoint(tokenizer_folder, tmp_path, monkeypatch):
    saving = ["--max_steps", "2", "--save_strategy", "steps", "--resume_from_checkpoint", "auto", "--save_steps", "2"]
    command = [*own_data("classification", tmp_path), *fresh_model(tokenizer_folder)]
    finetune.main([*command, *training(tmp_path / "run", *saving)])
    log = (tmp_path / "run" / "trainer_state.json").read_bytes()

    def stop(self, args, state, control, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs.RunCallback, "on_step_end", stop)
    with pytest.raises(KeyboardInterrupt):
        finetune.main([*command, *training(tmp_path / "run", *saving), "--max_steps", "4"])
    assert (tmp_path / "run" / "trainer_state.json").read_bytes() == log


def test_a_terminated_run_has_no_results_and_says_how_to_go_on(tokenizer_folder, tmp_path, monkeypatch, caplog):
    def terminate(self, args, state, control, **kwargs):
        (callback,) = (
            callback
            for callback in self.trainer.callback_handler.callbacks
            if isinstance(callback, JITCheckpointCallback)
        )
        callback.jit_manager.is_checkpoint_requested = True

    more = ["--enable_jit_checkpoint", "--max_steps", "5", "--save_strategy", "steps", "--do_eval"]
    more += ["--eval_strategy", "epoch", "--early_stopping_patience", "3"]
    command = [
        *own_data("classification", tmp_path),
        *fresh_model(tokenizer_folder),
        *training(tmp_path / "run", *more),
    ]
    monkeypatch.setattr(runs.RunCallback, "on_step_begin", terminate)
    with pytest.raises(KeyboardInterrupt) as interruption:
        finetune.main(command)
    how = f"--resume_from_checkpoint auto resumes from {tmp_path / 'run' / 'checkpoint-1'}"
    assert "after update 1 of 5" in str(interruption.value)
    assert how in str(interruption.value)
    assert not (tmp_path / "run" / "eval_results.json").exists()
    assert "stopped early" not in caplog.text


@pytest.mark.parametrize("name", ["trainer_state.json", "all_results.json"])
def test_results_of_which_one_was_cut_are_written_again(name, tokenizer_folder, tmp_path):
    more = ["--do_eval", "--save_strategy", "steps", "--save_steps", "2", "--resume_from_checkpoint", "auto"]
    command = [
        *own_data("classification", tmp_path),
        *fresh_model(tokenizer_folder),
        *training(tmp_path / "run", *more),
    ]
    finetune.main(command)
    expected = read_json(tmp_path / "run" / "all_results.json")
    path = tmp_path / "run" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (tmp_path / "run" / runs.UNFINISHED).write_text("", encoding="utf-8")
    finetune.main(command)
    results = read_json(tmp_path / "run" / "all_results.json")
    assert results["eval_loss"] == expected["eval_loss"]
    assert read_json(tmp_path / "run" / "trainer_state.json")["global_step"] == 2
    assert not (tmp_path / "run" / runs.UNFINISHED).exists()


def test_auto_in_a_folder_of_others_is_refused(tokenizer_folder, tmp_path):
    command = [*own_data("classification", tmp_path), *fresh_model(tokenizer_folder)]
    command += training(tmp_path / "mine", "--resume_from_checkpoint", "auto")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.log").write_text("of a scheduler", encoding="utf-8")
    for name in ("README.md", "predictions.jsonl"):
        (tmp_path / "mine" / name).write_text("mine", encoding="utf-8")
    refusal(
        command,
        "README.md and predictions.jsonl",
        "would be replaced. Pass another folder",
        "holds no training to resume",
    )
    for name in ("README.md", "predictions.jsonl"):
        assert (tmp_path / "mine" / name).read_text(encoding="utf-8") == "mine"
        (tmp_path / "mine" / name).unlink()
    finetune.main(command)  # a log alone is no result
    assert (tmp_path / "mine" / "model.safetensors").is_file()


def test_auto_in_the_folder_of_the_model_is_refused(folders, tmp_path):
    model = shutil.copytree(folders / "classification", tmp_path / "model")
    (model / runs.SETTINGS).write_text("seed: 1\n", encoding="utf-8")  # as of a run that kept no checkpoint
    weights = (model / "model.safetensors").read_bytes()
    command = [*own_data("classification", tmp_path), "--model", str(model)]
    refusal(
        [*command, *training(model, "--resume_from_checkpoint", "auto")],
        "is the folder of --model, which the run would replace: there is no checkpoint to resume. Pass another",
    )
    assert (model / "model.safetensors").read_bytes() == weights


def test_a_run_that_does_not_train_replaces_no_results(folders, tmp_path):
    data = own_data("classification", tmp_path)
    model = [
        "--model",
        str(folders / "classification"),
        "--use_cpu",
        "--do_eval",
        "--output_dir",
        str(tmp_path / "out"),
    ]
    finetune.main([*data, *model])
    before = (tmp_path / "out" / "eval_predictions.jsonl").read_bytes()
    told = "eval_results.json and eval_predictions.jsonl of an earlier run"
    refusal([*data, *model], told, "Pass another folder")
    finetune.main([*data, *[word.replace("--do_eval", "--do_predict") for word in model]])  # replaces none
    assert (tmp_path / "out" / "predictions.jsonl").is_file()
    assert (tmp_path / "out" / "eval_predictions.jsonl").read_bytes() == before


def test_a_run_that_stops_early_says_so_and_keeps_its_best_weights(tokenizer_folder, tmp_path, caplog):
    more = ["--early_stopping_patience", "1", "--max_steps", "-1", "--num_train_epochs", "4", "--learning_rate", "0"]
    words = [word for word in training(tmp_path / "run") if word not in ("--save_strategy", "no")]
    finetune.main([*own_data("classification", tmp_path), *fresh_model(tokenizer_folder), *words, *more])
    told = f"stopped early: no better loss for 1 evaluation; the weights are those of {tmp_path / 'run'}/checkpoint-2"
    assert told in caplog.messages
    assert read_json(tmp_path / "run" / "trainer_state.json")["global_step"] == 4  # of 8


def test_class_weights_by_name_are_in_settings_and_card(tokenizer_folder, tmp_path):
    run = training(tmp_path / "run", "--class_weights", "sad=3")
    finetune.main([*own_data("classification", tmp_path), *fresh_model(tokenizer_folder), *run])
    assert "class_weights:\n- sad=3\n" in (tmp_path / "run" / "run.yaml").read_text(encoding="utf-8")
    assert "| class_weights | ['sad=3'] |" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_early_stopping_needs_rows_to_evaluate(tokenizer_folder, tmp_path):
    words = own_data("classification", tmp_path)
    at = words.index("--validation_file")
    words = [*words[:at], *words[at + 2 :], *fresh_model(tokenizer_folder), *training(tmp_path / "run")]
    refusal(
        [*words, "--early_stopping_patience", "2", "--save_strategy", "epoch"],
        "--early_stopping_patience needs validation rows",
    )


def test_the_screen_of_a_run(plain_tokenizer, tmp_path, caplog, capsys):
    """What it will do, a line for each log, what follows; then the same for a resumed run and a finished one."""
    start, output = pretrained_model(tmp_path / "start", plain_tokenizer), tmp_path / "a run"
    data = [*own_data("classification", tmp_path), "--model", str(start), "--do_eval"]
    saving = ["--save_strategy", "steps", "--save_steps", "1", "--report_to", "none"]
    command = [*data, *training(output, *saving), "--resume_from_checkpoint", "auto"]
    finetune.main(command)
    lines = [line for line in caplog.messages if not line.startswith(("step ", "--test_file is checked"))]
    assert lines[0] == "New classification head (normal before fine-tuning)."
    model = GPT1DoubleHeadsModel.from_pretrained(output)
    about = f"{model.num_parameters():,} parameters, from {start}; on CPU, float32"
    assert lines[1] == f"model: GPT1DoubleHeadsModel, {about}"
    assert lines[2] == f"train: 8 rows of {data[1]} (happy 4, sad 4), 0.0% of the tokens unknown"
    assert lines[3] == f"eval: 2 rows of {data[3]} (happy 1, sad 1), 0.0% of the tokens unknown"
    assert lines[4] == f"training: 2 updates of 4 rows, 1 epoch, into {output}"
    assert lines[5] == f"predictions of 2 rows of {data[3]}: {output / 'eval_predictions.jsonl'}"
    assert lines[6].startswith(f"{data[3]} · recall: happy ")
    assert lines[-1].startswith(f"written to {output}")
    assert lines[-1].endswith(f"predict '{output}' --file ROWS.csv")
    assert len(lines) == 8 + (output / "confusion_matrix.png").exists()
    steps = [line for line in caplog.messages if line.startswith("step ")]
    assert steps[0].startswith("step 1/2 · loss ")
    assert " · task loss " in steps[0]
    assert steps[-1].startswith(f"step 2/2 · evaluation of {data[3]} · loss ")
    assert " · accuracy " in steps[-1]
    assert "{" not in capsys.readouterr().out

    results = {name: (output / name).read_bytes() for name in ("train_results.json", "eval_results.json")}
    results |= {name: (output / name).read_bytes() for name in ("README.md", "run.yaml")}
    state = read_json(output / "trainer_state.json")
    caplog.clear()
    finetune.main([*(word for word in command if word != "--do_eval"), "--seed", "7"])  # nothing is left to do
    assert f"finished: {output / 'checkpoint-2'} has 2 updates of 2; nothing is left to train" in caplog.messages
    assert "--validation_file is checked, but not used without --do_eval." in caplog.messages
    assert results == {name: (output / name).read_bytes() for name in results}
    assert read_json(output / "trainer_state.json") == state

    shutil.rmtree(output / "checkpoint-2")
    (output / "predictions.jsonl").touch()
    (output / "my_predictions.jsonl").touch()
    caplog.clear()
    again = ["--logging_steps", "1", "--weight_decay", "0.5"]  # they were 500 and 0.01
    finetune.main([*(word for word in command if word != "--do_eval"), *again])
    assert "\nweight_decay: 0.01\n" in (output / "run.yaml").read_text(encoding="utf-8")
    assert "| weight_decay | 0.01 |" in (output / "README.md").read_text(encoding="utf-8")
    assert f"; resumed from {output / 'checkpoint-1'}" in "".join(caplog.messages)
    assert "New classification head" not in caplog.text  # its head is that of the checkpoint
    assert f" parameters, from {output / 'checkpoint-1'}; on CPU" in "".join(caplog.messages)
    assert [line for line in caplog.messages if line.startswith("step 2/2 · loss ")]
    assert not [*output.glob("eval_results.json"), *output.glob("predictions*")]  # of the weights before
    assert (output / "my_predictions.jsonl").exists()
    assert not [name for name in read_json(output / "all_results.json") if name.startswith("eval_")]


@pytest.mark.parametrize("kind, how", [("linear", "rises from 0.0e+00 to 6.7e-03"), ("constant_with_warmup", None)])
def test_a_longer_run_tells_where_its_learning_rate_jumps(kind, how, tokenizer_folder, tmp_path, caplog):
    saving = ["--save_strategy", "steps", "--save_steps", "2", "--lr_scheduler_type", kind]
    command = [*own_data("classification", tmp_path), *fresh_model(tokenizer_folder)]
    command += [*training(tmp_path / "run", *saving), "--resume_from_checkpoint", "auto"]
    finetune.main(command)
    finetune.main([*command, "--max_steps", "4"])
    told = [line for line in caplog.messages if line.startswith("The learning rate is planned over")]
    before = f"The learning rate is planned over 4 updates now, 2 before: it {how}"
    assert told == ([] if how is None else [f"{before}. Pass the old length to go on as before."])
    log = read_json(tmp_path / "run" / "trainer_state.json")["log_history"]
    rates = {record["step"]: record["learning_rate"] for record in log if "learning_rate" in record}
    assert how is None or rates[3] == pytest.approx(6.7e-3, rel=1e-2)  # of the first update of the new plan


@pytest.mark.parametrize(
    ("kind", "numbers", "is_told"),
    [("classification", (20, 0), True), ("classification", (19, 0), False), ("classification", (20, 1), False)]
    + [("regression", (20, 0), False)],
)
def test_many_rows_of_one_predicted_class_are_reported(kind, numbers, is_told, folders, tmp_path, caplog):
    rows = [row for row, number in zip(ROWS[kind], numbers, strict=True) for _ in range(number)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    evaluation = ["--model", str(folders / kind), "--validation_file", file, "--do_eval", "--use_cpu"]
    finetune.main([*evaluation, "--output_dir", str(tmp_path / "scores")])
    predict.main([str(folders / kind), "--file", file, "--device", "cpu"])
    told = [line for line in caplog.messages if "predicted as" in line]
    assert len(told) == 2 * is_told
    assert all(line.startswith(f"All 20 rows of {file} are predicted as 'happy'. If") for line in told)
    (closing,) = [line for line in caplog.messages if line.startswith(f"evaluation of {file} · loss ")]
    assert (" · accuracy 1.00" in closing) == (kind == "classification")


@pytest.mark.parametrize(
    ("moods", "told"),
    [
        (["happy", "sad"] * 9 + ["hapy"], "A single row of {} has each of these classes: hapy. Is one mistyped?"),
        (["happy"] * 9 + ["hapy", "sad"], "A single row of {} has each of these classes: hapy, sad. Is one mistyped?"),
        (["happy"] * 9 + ["sad"] * 9 + ["hapy"] * 2, None),
        (["happy", "sad"] + ["hapy"] * 2, "--max_train_samples 3"),  # few of a class, by the draw
        (list(map(str, range(100, 124))), "Column 'mood' has 24 classes in 24 rows: is it the label?"),
        (list(map(str, range(100, 124))) * 2, None),
    ],
)
def test_classes_that_look_mistaken_are_reported(moods, told, tokenizer_folder, tmp_path, caplog):
    file = write_rows(tmp_path / "train.jsonl", [{"review": GOOD, "mood": mood} for mood in moods])
    data = ["--train_file", file, "--traversal", "classification", "--columns", *COLUMNS["classification"]]
    more, told = (told.split(), None) if (told or "").startswith("--") else ([], told)
    finetune.main([*data, *fresh_model(tokenizer_folder), *training(tmp_path / "run", "--max_steps", "1", *more)])
    found = [line for line in caplog.messages if line.endswith("?")]
    assert found == ([] if told is None else [told.format(file)])


def test_lines_stand_above_the_bar(monkeypatch):
    written = []
    monkeypatch.setattr(runs.tqdm, "write", lambda text, file: written.append((text, file.name)))
    for level in (logging.INFO, logging.WARNING):
        record = logging.makeLogRecord({"msg": "`task` `text`", "levelno": level})
        runs.AboveTheBar(parser_of("finetune")).handle(record)
    assert written == [("`task` `text`", sys.stdout.name), ("--task `text`", sys.stderr.name)]


def pretrained_model(folder: Path, tokenizer) -> Path:
    """A language model with its tokenizer, every weight large."""
    torch.manual_seed(0)
    size = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": len(tokenizer)}
    GPT1ForCausalLM(GPT1Config(**size, initializer_range=0.3)).save_pretrained(folder)
    config = GPT1Config.from_pretrained(folder)
    config.initializer_range = 0.02
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("n_transfer", [-1, 1])
def test_layer_transfer(n_transfer, plain_tokenizer, tmp_path):
    """One update of learning rate 0 shows what training starts from."""
    start, output = pretrained_model(tmp_path / "start", plain_tokenizer), tmp_path / "model"
    more = ["--learning_rate", "0", "--weight_decay", "0", "--max_steps", "1", "--n_transfer", str(n_transfer)]
    finetune.main([*own_data("classification", tmp_path), "--model", str(start), *training(output, *more)])
    before, after = (GPT1DoubleHeadsModel.from_pretrained(folder).transformer for folder in (start, output))
    kept = [torch.equal(before.h[layer].mlp.up_proj.weight, after.h[layer].mlp.up_proj.weight) for layer in (0, 1)]
    assert kept == [n_transfer == 1, False]
    assert 0.015 < after.h[1].mlp.up_proj.weight.std().item() < 0.025  # drawn anew, and not from the start's 0.3


def test_frozen_layers_are_those_of_the_start(plain_tokenizer, tmp_path):
    start, output = pretrained_model(tmp_path / "start", plain_tokenizer), tmp_path / "model"
    more = ["--learning_rate", "0.1", "--warmup_steps", "0", "--max_steps", "1", "--freeze", "1"]
    finetune.main([*own_data("classification", tmp_path), "--model", str(start), *training(output, *more)])
    before, after = (GPT1DoubleHeadsModel.from_pretrained(folder).transformer for folder in (start, output))
    kept = [torch.equal(before.h[layer].mlp.up_proj.weight, after.h[layer].mlp.up_proj.weight) for layer in (0, 1)]
    assert kept == [True, False]
    assert "| frozen | embeddings and first 1 layer (" in (output / "README.md").read_text(encoding="utf-8")


def test_another_task_is_not_resumed(tokenizer_folder, tmp_path):
    output, data_dir = tmp_path / "task", write_mnli(tmp_path)
    saving = training(output, "--save_strategy", "steps", "--save_steps", "2", "--resume_from_checkpoint", "auto")
    mnli = ["--task", "mnli", "--data_dir", data_dir, *fresh_model(tokenizer_folder), *saving]
    finetune.main(mnli)
    weights, settings = ((output / name).read_bytes() for name in ("model.safetensors", "run.yaml"))
    (checkpoint,) = output.glob("checkpoint-*")
    told = support.refusals.refusal(finetune.main, ["snli" if word == "mnli" else word for word in mnli])
    assert f"{checkpoint} was trained with --task mnli, and a run cannot go on with snli. Pass" in told
    assert [(output / name).read_bytes() for name in ("model.safetensors", "run.yaml")] == [weights, settings]
    for flag in ("--max_train_samples", "--max_length"):
        told = f"{flag} None, and a run cannot go on with 9. Pass what that run had"
        assert told in support.refusals.refusal(finetune.main, [*mnli, flag, "9"])
    (output / "predictions_test_of_mine.jsonl").touch()
    finetune.main([*mnli, "--max_steps", "3"])  # the same task goes on
    assert (output / "predictions_test_of_mine.jsonl").is_file()
    assert (output / "checkpoint-3").is_dir()


def test_other_classes_are_not_resumed(tokenizer_folder, tmp_path):
    """As many, whose weights would fit; also another file of the same classes."""
    output, data = tmp_path / "run", own_data("classification", tmp_path)
    saving = training(output, "--save_strategy", "steps", "--save_steps", "1", "--resume_from_checkpoint", "auto")
    command = [*data, *fresh_model(tokenizer_folder), *saving]
    finetune.main(command)
    before = {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()}
    other = {word: write_rows(tmp_path / "other.jsonl", ROWS["classification"]) for word in [data[1]]}
    with pytest.raises(ValueError, match="--train_file .*train.jsonl, and a run cannot go on with .*other.jsonl"):
        finetune.main([other.get(word, word) for word in command])
    rows = [{**ROWS["classification"][0], "mood": label} for label in ("sad", "glad")]
    for name in ("train", "validation", "test"):
        write_rows(tmp_path / f"{name}.jsonl", rows * 4)
    was, now = {0: "happy", 1: "sad"}, {0: "glad", 1: "sad"}
    told = f"checkpoint-2', whose model has the id2label {was}, but this run's has {now}. Give the model"
    assert told in support.refusals.refusal(finetune.main, [*command, "--max_steps", "9"])
    assert {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()} == before


def test_absent_choices_have_no_score():
    # Absent inside a batch: -inf; absent because its batch had fewer choices: -100, Trainer's padding.
    logits, columns = torch.tensor([1.0, 1.0, -torch.inf, -100.0]), {"label": "label"}
    choices = Task("own", "multiple_choice", columns)
    assert run_module.describe_prediction(logits, choices) == {"label": 0, "scores": [0.5, 0.5]}
    classes = Task("own", "classification", columns, ("no", "yes"))
    found = run_module.describe_prediction(torch.tensor([-100.0, -200.0]), classes)
    assert found == {"label": "no", "scores": {"no": 1.0, "yes": pytest.approx(0)}}
    several = Task("own", "classification", columns, ("a", "b", "c"), multi_label=True)
    found = run_module.describe_prediction(torch.tensor([0.5, -1.0, 2.0]), several)
    scores = {"a": 0.62246, "b": 0.26894, "c": 0.88080}
    assert found == {"label": ["a", "c"], "scores": pytest.approx(scores, abs=1e-5)}


def test_config_overrides_and_columns_whose_names_have_a_comma():
    found = parse_columns(["text=a b", 'label="is it, so"', 'choices=x,"y,z"'])
    assert found == {"text": "a b", "label": "is it, so", "choices": ["x", "y,z"]}
    numbers = {"n_embd": 64, "resid_pdrop": 0.0, "hidden_act": "relu", "do_layer_norm_before": True}
    words = "n_embd=64,resid_pdrop=0.0, hidden_act=relu, do_layer_norm_before=true,use_cache=FALSE,sliding_window=none"
    assert parse_overrides(words) == {**numbers, "use_cache": False, "sliding_window": None}
    assert parse_overrides("") == {}


OWN = ["--train_file", "{train}", "--traversal", "classification", "--columns", "text=review", "label=mood"]
MODEL = ["--model", "{model}"]
FRESH = ["--tokenizer_name", "t", "--config_overrides"]
# Words of the command line, and parts of the sentence.
REFUSALS = [
    (["--task", "sst2"], "No --model was given", "--tokenizer_name"),
    (
        ["--task", "sst2", "--tokenizer_name", "t", "--n_transfer", "3"],
        "--n_transfer 3 keeps layers of a --model",
        "leave --n_transfer",
    ),
    (["--task", "sst2", "--model", "gpt", "--config_overrides", "n_embd=8"], "n_embd=8", "--model gpt", "Leave one"),
    (["--task", "sst2", "--model", "gpt", "--family", "gpt1-lstm"], "--family gpt1-lstm", "--model gpt", "Leave one"),
    (MODEL, "No data was given. Pass --task", "--train_file"),
    ([*OWN, "--data_dir", "d", *MODEL], "--data_dir is for a --task, and none was given. Pass --task"),
    (["--task", "sst2", *OWN, *MODEL], "--task sst2", "--train_file was given too"),
    (["--train_file", "{train}", *MODEL], "--traversal is missing", "classification, entailment"),
    ([*OWN[:4], *MODEL], "--columns is missing", "text=review label=stars"),
    ([*OWN[:4], "--columns", "review", *MODEL], "--columns has 'review'", "role=column, or role=column,column"),
    ([*OWN, "--do_eval", *MODEL], "--do_eval", "only train", "Pass --validation_file ", "or leave --do_eval out"),
    (["--task", "sst2", "--data_dir", "{task}", "--do_predict", *MODEL], "--do_predict", "only train", "--data_dir"),
    ([*OWN, *FRESH, "n_embd=8,vocab_size=9"], "'vocab_size=9'", "does not come from the tokenizer"),
    ([*OWN, "--validation_file", "{strange}", *MODEL], "1 of 1 row of {strange}", "'angry'", "happy, sad"),
]


@pytest.fixture
def places(tmp_path):
    """Files and folders that the refusals are about, by the names in their arguments."""
    GPT1Config(hidden_size=8, num_attention_heads=2).save_pretrained(tmp_path / "model")
    (tmp_path / "task").mkdir()
    write_rows(tmp_path / "task" / "train.jsonl", [{"sentence": GOOD, "label": 1}])
    rows = {"train": ROWS["classification"], "strange": [{"review": GOOD, "mood": "angry"}]}
    files = {name: write_rows(tmp_path / f"{name}.jsonl", some) for name, some in rows.items()}
    return {**files, "model": tmp_path / "model", "task": tmp_path / "task"}


def no_model_is_opened(monkeypatch) -> None:
    monkeypatch.setattr(GPT1Family, "make_task_model", None)
    monkeypatch.setattr(GPT1Family, "open_task_model", None)


def refusal(words: list[str], *parts: str, **places) -> None:
    """The command ends with a sentence that has the parts."""
    told = support.refusals.refusal(finetune.main, [word.format(**places) for word in words])
    assert [part for part in parts if part.format(**places) not in told] == [], told


@pytest.mark.parametrize(("words", "parts"), [(words, parts) for words, *parts in REFUSALS])
def test_refuses_before_a_model_is_loaded(words, parts, places, tmp_path, monkeypatch):
    no_model_is_opened(monkeypatch)
    refusal([*words, *training(tmp_path / "output")], *parts, **places)


@pytest.mark.parametrize("more", [["--max_length", "65"], ["--max_length", "60", "--pad_to_multiple_of", "65"]])
def test_refuses_too_long_sequences_before_rows_are_read(more, tokenizer_folder, tmp_path, monkeypatch):
    no_model_is_opened(monkeypatch)
    monkeypatch.setattr(FineTuningRun, "check_rows", lambda _: pytest.fail("rows were read"))
    words = [*own_data("classification", tmp_path), *fresh_model(tokenizer_folder), *more]
    refusal([*words, *training(tmp_path / "output")], "up to 65 tokens", "positions for 64", "smaller `max_length`")


def test_refuses_runs_that_cannot_be(places, tmp_path):
    """Nothing to do; another run's folder; nothing to resume from."""
    run = [*OWN, *MODEL, "--use_cpu", "--output_dir"]
    refusal([*run, str(tmp_path / "out")], "nothing to do. Pass --do_train", **places)
    refusal([*run, str(tmp_path / "out"), "--do_eval", "--push_to_hub"], "--push_to_hub", "--do_train", **places)
    output = tmp_path / "task"
    train = [*run, str(output), "--do_train"]
    refusal(train, f"{output} is not empty", "--resume_from_checkpoint auto", **places)
    train += ["--resume_from_checkpoint"]
    refusal([*train, "true"], f"No complete checkpoint in {output}", **places)
    refusal([*train, "checkpoint-9"], "'checkpoint-9'", f"`auto` for the newest complete one in {output}", **places)


def test_refuses_processes_that_do_not_know_each_other(tmp_path, monkeypatch):
    training_args = GPT1TrainingArguments(str(tmp_path / "out"), use_cpu=True, do_train=True)
    run = FineTuningRun(parser_of("finetune"), StartArguments(model="m"), DataArguments(task="sst2"), training_args)
    run.check_settings()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="2 processes were launched, but each would train alone. Pass `use_cpu=True`"):
        run.check_settings()


@pytest.mark.parametrize(
    ("traversal", "head", "has"),
    [(None, False, "none"), ("similarity", True, "one for similarity"), ("classification", False, "none")],
)
def test_refuses_to_predict_without_the_task_head(traversal, head, has, places, tmp_path):
    """A folder that knows its task may have the weights of the decoder alone: a new head would be random."""
    model, heads = tmp_path / "other", ["GPT1DoubleHeadsModel"] if head else ["GPT1Model"]
    fields = {"traversal": traversal, "architectures": heads, "extract_token_id": 3}
    GPT1Config(hidden_size=8, num_attention_heads=2, **fields).save_pretrained(model)
    words = ["--test_file", "{train}", *OWN[2:], "--model", str(model), "--output_dir", str(tmp_path / "output")]
    parts = "task head for classification, named in", f"but {model} has {has}", "--do_train"
    refusal([*words, "--use_cpu", "--do_predict"], *parts, **places)


@pytest.mark.parametrize("flag", ["--do_predict", "--do_eval"])
def test_refuses_one_label_of_a_model_that_gives_several(flag, places, tmp_path):
    """Its probabilities would add up to 1."""
    fields = {"traversal": "classification", "architectures": ["GPT1DoubleHeadsModel"], "extract_token_id": 3}
    several = {"problem_type": "multi_label_classification", "id2label": {0: "happy", 1: "sad"}}
    GPT1Config(hidden_size=8, num_attention_heads=2, **fields, **several).save_pretrained(tmp_path / "model")
    words = ["--test_file", "{train}", "--validation_file", "{train}", *OWN[2:], "--model", str(tmp_path / "model")]
    words += ["--output_dir", str(tmp_path / "output"), "--use_cpu", flag]
    refusal(words, "predicts several labels for a row", "each row has one label", "--do_train", **places)


@pytest.mark.parametrize("kind", ROWS)
def test_a_folder_predicts_what_its_run_predicted(kind, folders, tmp_path, capsys):
    words = [str(folders / kind), "--file", str(folders / f"data-{kind}" / "test.jsonl"), "--device", "cpu"]
    capsys.readouterr()
    predict.main(words)
    records = read_rows(capsys.readouterr().out)
    for record, of_run in zip(records, read_predictions(folders / kind / "predictions.jsonl"), strict=True):
        assert record == {name: approximately(value) for name, value in of_run.items()}
    predict.main([*words, "--output_file", str(tmp_path / "out.csv")])
    lines, scores = read_csv(tmp_path / "out.csv"), [f"score_{label}" for label in LABELS.get(kind, ())]
    found = {"multiple_choice": ["label", "scores"], "regression": ["score"]}.get(kind, ["label", *scores])
    assert list(lines[0]) == ["index", *found, "truncated", "error"]
    if kind == "multiple_choice":
        assert [len(line["scores"].split()) for line in lines[:2]] == [2, 3]


@pytest.mark.parametrize("kind", ["lists", "columns"])
def test_rows_of_several_labels_are_learnt_scored_and_predicted(kind, tokenizer_folder, tmp_path, capsys, caplog):
    tags = {GOOD: ["glad", "loud"], BAD: ["sad"], "the river had turned green .": [], "a quiet girl read .": ["glad"]}
    names = ["glad", "loud", "sad"]
    label, output = "tags" if kind == "lists" else ",".join(names), tmp_path / "output"
    if kind == "lists":
        file = write_rows(tmp_path / "rows.jsonl", [{"review": text, "tags": of} for text, of in tags.items()])
    else:
        rows = [{"review": text, **{name: int(name in of) for name in names}} for text, of in tags.items()]
        file = write_rows(tmp_path / "rows.csv", rows)
    words = ["--train_file", file, "--validation_file", file, "--test_file", file, "--traversal", "classification"]
    words += ["--columns", "text=review", f"label={label}", "--do_eval", "--do_predict"]
    more = ["--max_steps", "40", "--lr_scheduler_type", "constant"]
    finetune.main([*words, *fresh_model(tokenizer_folder), *training(output, *more)])
    assert "The same file is given twice" in caplog.text
    config = read_json(output / "config.json")
    assert config["problem_type"] == "multi_label_classification"
    assert list(config["label2id"]) == names
    results = read_json(output / "all_results.json")
    assert results["eval_f1_micro"] == results["eval_accuracy"] == results["predict_f1_micro"] == 1
    assert [line["label"] for line in read_predictions(output / "predictions.jsonl")] == list(tags.values())

    capsys.readouterr()
    predict.main([str(output), "--file", file, "--device", "cpu", "--output_file", str(tmp_path / "out.csv")])
    found = [line["label"] for line in read_csv(tmp_path / "out.csv")]
    assert found == ["|".join(of_text) for of_text in tags.values()]
    recall = "recall: glad 1.00 (2 of 2) · loud 1.00 (1 of 1) · sad 1.00 (1 of 1)"
    assert capsys.readouterr().out.splitlines()[-2:] == ["4 rows have a label · f1 micro 1.00 · accuracy 1.00", recall]
    predict.main([str(output), "--file", write_rows(tmp_path / "one.jsonl", [{"review": GOOD, label: "glad"}])])
    assert "No score: The model predicts several labels for a row" in capsys.readouterr().err
    # The saved model is asked for the scores of the same file, by the columns that it knows.
    evaluation = ["--model", str(output), "--validation_file", file, "--do_eval", "--use_cpu"]
    finetune.main([*evaluation, "--output_dir", str(tmp_path / "scores"), "--metric_name", "f1_macro"])
    assert read_json(tmp_path / "scores" / "eval_results.json")["eval_f1_macro"] == 1


def test_a_share_of_the_training_rows_is_held_out_and_evaluated(tokenizer_folder, tmp_path, caplog):
    file = write_rows(tmp_path / "rows.jsonl", ROWS["classification"] * 8)
    settings = {"train_file": file, "traversal": "classification", "validation_split": 0.25, "do_eval": True}
    settings["columns"] = dict(pair.split("=") for pair in COLUMNS["classification"])
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    words = ["--config", str(tmp_path / "run.yaml"), *fresh_model(tokenizer_folder), *training(tmp_path / "out")]
    finetune.main(words)
    predicted = read_predictions(tmp_path / "out" / "eval_predictions.jsonl")
    assert [record["index"] % 2 for record in predicted].count(0) == 2  # of each class
    assert len(predicted) == 4
    assert f"train: 12 rows of {file} (happy 6, sad 6)" in caplog.text
    assert f"eval: 4 rows of {file} (happy 2, sad 2)" in caplog.text


def test_a_csv_file_has_a_line_for_each_row_whatever_it_holds(folders, tmp_path):
    rows = ["text,note", f"{BAD},a", '"",b', f"{GOOD},c", "  ,d", f"{BAD},e"]
    (tmp_path / "new.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    words = [str(folders / "classification"), "--file", str(tmp_path / "new.csv"), "--columns", "text=text"]
    predict.main([*words, "--output_file", str(tmp_path / "out.csv"), "--batch_size", "2", "--skip_bad_rows"])
    lines = read_csv(tmp_path / "out.csv")
    assert list(lines[0]) == ["index", "label", "score_happy", "score_sad", "truncated", "error"]
    assert [line["index"] for line in lines] == ["0", "1", "2", "3", "4"]
    is_empty = "text (column 'text') is empty. Remove or correct the row."
    assert [line["error"] for line in lines] == ["", is_empty, "", is_empty, ""]
    assert lines[1]["label"] == lines[1]["score_sad"] == ""
    assert {**lines[0], "index": "4"} == lines[4] != {**lines[2], "index": "4"}
    assert float(lines[0]["score_happy"]) + float(lines[0]["score_sad"]) == pytest.approx(1)


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_a_kept_cell_has_the_characters_of_the_file(folders, tmp_path, name):
    """The first cell is a number that no float holds, the last one has another kind than the cells before it."""
    kept = ["13835058055282163713", "1.50", "true", '"2020-01-01T00:00:00Z"', '"+a"']
    lines = [f'{{"review": "{GOOD}", "x": {cell}}}\n' for cell in kept]
    (tmp_path / "new.jsonl").write_text("".join(lines), encoding="utf-8")
    words = [str(folders / "classification"), "--file", str(tmp_path / "new.jsonl"), "--keep", "x"]
    predict.main([*words, "--output_file", str(tmp_path / name)])
    written = (tmp_path / name).read_text(encoding="utf-8").splitlines()
    if name == "out.csv":
        cells = [line.split(",")[1] for line in written[1:]]
        assert cells == ["13835058055282163713", "1.50", "true", "2020-01-01T00:00:00Z", "'+a"]
    else:
        assert [f'{{"index": {row}, "x": {cell}, ' in written[row] for row, cell in enumerate(kept)] == [True] * 5


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_a_blank_line_of_a_single_column_is_a_row_that_cannot_be_read(folders, tmp_path, ending):
    path = tmp_path / f"new{ending}"
    path.write_text(f"review\n{GOOD}\n\n   \n{BAD}\n", encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        predict.main(
            [str(folders / "classification"), "--file", str(path), "--output_file", str(tmp_path / "out.csv")]
        )
    assert end.value.code == 1
    assert [line["label"] for line in read_csv(tmp_path / "out.csv")] == ["happy", "", "", "sad"]


def test_a_blank_line_of_several_columns_is_told_and_is_no_row(folders, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(files.logger, "warning_once", said.append)
    path = tmp_path / "new.csv"
    path.write_text(f"review,x\n{GOOD},1\n\n{BAD},2\n", encoding="utf-8")
    predict.main([str(folders / "classification"), "--file", str(path), "--output_file", str(tmp_path / "out.csv")])
    assert [(line["index"], line["label"]) for line in read_csv(tmp_path / "out.csv")] == [
        ("0", "happy"),
        ("1", "sad"),
    ]
    assert said == [f"{path}: 1 blank line is skipped; it is not counted as a row."]


def test_predictions_keep_columns_and_rows_are_counted(folders, tmp_path, capsys):
    rows = [{"id": number, **row} for number, row in enumerate([*ROWS["classification"] * 3, {"review": ""}])]
    file, output = write_rows(tmp_path / "new.jsonl", rows), tmp_path / "out.csv"
    words = [str(folders / "classification"), "--file", file, "--device", "cpu", "--keep", "id", "mood"]
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        predict.main([*words, "--output_file", str(output)])
    assert end.value.code == 1  # for the row without a text
    found = [(line["id"], line["mood"]) for line in read_csv(output)]
    assert found == [(str(row["id"]), row.get("mood", "")) for row in rows]
    told = "6 of 7 rows predicted, 1 could not be read: those with the field `error`"
    scored = ["6 rows have a label · accuracy 1.00", "recall: happy 1.00 (3 of 3) · sad 1.00 (3 of 3)"]
    assert capsys.readouterr().out.splitlines() == [f"{told}; written to {output}", *scored]
    predict.main([*words, "--skip_bad_rows"])
    printed = capsys.readouterr()
    assert [record["id"] for record in read_rows(printed.out)] == list(range(7))
    assert printed.err.splitlines()[-3:] == [told, *scored]
    out = ["--output_dir", str(tmp_path / "eval"), "--use_cpu", "--report_to", "none"]
    named = [{"body": row["review"], "mood": row["mood"]} for row in ROWS["classification"]]
    renamed = write_rows(tmp_path / "renamed.jsonl", named)
    predict.main([words[0], "--file", renamed, "--columns", "text=body", "--device", "cpu"])
    assert capsys.readouterr().err.splitlines()[-2] == "2 rows have a label · accuracy 1.00"  # of the folder's column
    finetune.main(["--model", words[0], "--validation_file", renamed, "--columns", "text=body", "--do_eval", *out])
    assert read_json(tmp_path / "eval" / "eval_results.json")["eval_accuracy"] == 1
    torn = write_rows(tmp_path / "torn.jsonl", [{"review": GOOD, "note": "one\rtwo"}])
    predict.main([words[0], "--file", torn, "--keep", "note", "note", "--output_file", str(tmp_path / "torn.csv")])
    assert (tmp_path / "torn.csv").read_text(encoding="utf-8").splitlines()[0].count("note") == 1
    assert [line["note"] for line in read_csv(tmp_path / "torn.csv")] == ["one\rtwo"]
    assert "no column 'idd' to keep (did you mean 'id'?)" in refused(*words, "idd")
    assert "--keep label is also a field of each prediction" in refused(*words, "label")


@pytest.mark.parametrize(
    ("kind", "labels", "metrics"),
    [
        ("classification", ["happy", "happy", None, ""], "accuracy 0.500"),
        ("classification", [0, 0, -1, -1], "accuracy 0.500"),
        ("classification", [1, 1, None, -1], "f1 0.667"),
        ("classification", ["happy", "angry", "happy", None], "accuracy 1.00"),
        ("multiple_choice", [0, 0, -1, -1], "accuracy {}"),
        ("multiple_choice", [0, 0, 2, -1], "accuracy {}"),
        ("regression", [3, -1, None, None], "pearson · spearmanr"),
        ("regression", ["3", "-1", "-", None], "pearson · spearmanr"),
    ],
)
def test_labelled_rows_are_scored(kind, labels, metrics, folders, tmp_path, capsys):
    column = dict(pair.split("=") for pair in COLUMNS[kind]).get("label", "label")
    rows = [{**row, column: label} for row, label in zip(ROWS[kind] * 2, labels, strict=True)]
    words = [str(folders / kind), "--file", write_rows(tmp_path / "new.jsonl", rows), "--device", "cpu"]
    capsys.readouterr()
    predict.main([*words, *(["--metric_name", "f1"] if metrics.startswith("f1") else [])])
    printed = capsys.readouterr()
    first, second, *_ = (record.get("label", record.get("score")) for record in read_rows(printed.out))
    expected = metrics.format(f"{np.mean([first == 0, second == 0]):#.3g}")
    if kind == "regression":  # of two rows
        expected = "pearson {0} · spearmanr {0}".format("1.00" if first > second else "-1.00")
    assert [line for line in printed.err.splitlines() if "have a label" in line] == [
        f"2 rows have a label · {expected}"
    ]


@pytest.mark.parametrize(
    "more, needed", [(["--columns", "label=moood"], "'moood'"), (["--metric_name", "f1"], "'mood'")]
)
def test_a_requested_score_needs_labels(more, needed, folders, tmp_path):
    file = write_rows(tmp_path / "new.jsonl", [{"review": GOOD, "mod": "happy"}])
    words = [str(folders / "classification"), "--file", file, "--device", "cpu", *more]
    told = support.refusals.refusal(predict.main, words)
    assert f"{file} has no column {needed} for the role label (did you mean 'mod'?)" in told


def test_no_class_name_is_run_as_a_formula(folders, tmp_path, capsys, monkeypatch):
    names = ["=1+1", "-x", "@a", "+b", "-1", "+2.5", "a=b"]
    cells = [predict.as_cells({"label": name})["label"] for name in names]
    assert cells == ["'=1+1", "'-x", "'@a", "'+b", "-1", "+2.5", "a=b"]
    shutil.copytree(folders / "classification", tmp_path / "model")
    config = (tmp_path / "model" / "config.json").read_text(encoding="utf-8")
    (tmp_path / "model" / "config.json").write_text(config.replace('"happy', '"+happy'), encoding="utf-8")
    words = [str(tmp_path / "model"), "--file", write_rows(tmp_path / "new.jsonl", [{"review": GOOD, "id": "=1"}])]
    predict.main([*words, "--output_file", str(tmp_path / "out.csv"), "--keep", "id"])
    written = (tmp_path / "out.csv").read_text(encoding="utf-8")
    assert "'+happy" in written
    assert "'=1" in written
    assert "In front of a text that a spreadsheet would run" in capsys.readouterr().err
    monkeypatch.setattr(predict, "predict_rows", lambda rows, *_: iter([{"label": ["+a", "b"], "scores": {}}]))
    predict.main([*words, "--output_file", str(tmp_path / "several.csv")])
    assert "'+a|b" in (tmp_path / "several.csv").read_text(encoding="utf-8")
    assert "In front of a text that a spreadsheet would run" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--max_train_samples", "6"], ["--skip_bad_rows"]])
def test_an_error_names_the_row_of_the_file(more, tokenizer_folder, tmp_path):
    """Whatever rows were drawn, or left out before it."""
    rows = [{"story": GOOD, "ends": ["green .", "she smiled ."], "label": 0} for _ in range(12)]
    bad = int(draw_places(12, 6, 3)[-1])
    rows[bad]["ends"] = ["", "green ."]
    rows[0]["label"] = None if more == ["--skip_bad_rows"] else 0
    file = write_rows(tmp_path / "rows.jsonl", rows)
    words = ["--train_file", file, "--traversal", "multiple_choice", "--columns", *COLUMNS["multiple_choice"]]
    words += [*fresh_model(tokenizer_folder), *training(tmp_path / "out", *more)]
    told = support.refusals.refusal(finetune.main, words)
    assert bad > 5
    assert f"Row {bad} of {file}" in told
    assert "is empty" in told


def test_texts_that_the_tokenizer_does_not_know(folders, tokenizer_folder, tmp_path, capsys, caplog):
    rows = [{"review": "日本語", "mood": "sad"}, {"review": "日本", "mood": "happy"}]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    data = ["--train_file", file, "--traversal", "classification", "--columns", *COLUMNS["classification"]]
    words = [*data, *fresh_model(tokenizer_folder)]
    with pytest.raises(ValueError, match=r"100% .*rows.jsonl, as in '日本語', '日本'\. .*--allow_unknown_text"):
        finetune.main([*words, *training(tmp_path / "out")])
    ok = write_rows(tmp_path / "known.jsonl", [*ROWS["classification"], *[{"review": "日", "mood": "sad"}] * 3])
    with pytest.raises(ValueError, match=r"100% .*rows.jsonl, as in "):
        finetune.main([*words, *training(tmp_path / "a", "--do_eval", "--train_file", ok, "--validation_file", file)])
    assert "known.jsonl are unknown to the tokenizer, as in '日', '日', '日'." in capsys.readouterr().err
    finetune.main([*words, *training(tmp_path / "out"), "--allow_unknown_text"])
    assert "100.0% of the tokens unknown" in caplog.text
    predict.main([str(folders / "classification"), "--file", file])
    assert "unknown to the tokenizer, as in '日本語', '日本'." in capsys.readouterr().err


def test_predict_reads_as_much_as_fine_tuning_did_and_tells_what_is_cut(tokenizer_folder, tmp_path, capsys):
    rows = [*ROWS["classification"], {"review": " ".join([GOOD, BAD] * 2), "mood": "sad"}]
    output, file = tmp_path / "short", write_rows(tmp_path / "rows.jsonl", rows)
    data = ["--train_file", file, "--test_file", file, "--traversal", "classification"]
    exact = str(max(len(ids) for ids in AutoTokenizer.from_pretrained(tokenizer_folder)([GOOD, BAD])["input_ids"]) + 2)
    words = [*data, "--columns", *COLUMNS["classification"], *fresh_model(tokenizer_folder), "--max_length", exact]
    finetune.main([*words, *training(output, "--do_predict")])
    words = ["--model", str(output), "--test_file", file, "--use_cpu", "--do_predict", "--disable_tqdm", "true"]
    finetune.main([*words, "--output_dir", str(tmp_path / "again")])
    capsys.readouterr()
    predict.main([str(output), "--file", file, "--device", "cpu"])
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1] == f"1 of 3 rows were cut to {exact} tokens: those with the field `truncated`."
    first, again = (read_predictions(folder / "predictions.jsonl") for folder in (output, tmp_path / "again"))
    found = read_rows(printed.out)
    assert [record.pop("truncated", None) for record in found] == [None, None, True]
    for of_file in (again, found):
        for one, other in zip(first, of_file, strict=True):
            assert other["scores"] == pytest.approx(one["scores"], abs=1e-6)
    predict.main([str(output), "--file", file, "--output_file", str(tmp_path / "out.csv")])
    assert [line["truncated"] for line in read_csv(tmp_path / "out.csv")] == ["", "", "True"]


def test_a_run_is_repeated_by_its_settings(folders, tmp_path):
    settings = ["--config", str(folders / "classification" / "run.yaml")]
    entry.main(["finetune", *settings, "--output_dir", str(tmp_path)])
    first = GPT1DoubleHeadsModel.from_pretrained(folders / "classification").state_dict()
    again = GPT1DoubleHeadsModel.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


def refused(*words: str) -> str:
    return support.refusals.refusal(predict.main, list(words))


def test_an_interrupted_prediction_leaves_no_file(folders, tmp_path, monkeypatch):
    def interrupted(*_):
        yield {"error": "none"}
        raise KeyboardInterrupt

    monkeypatch.setattr(predict, "predict_rows", interrupted)
    words = [str(folders / "classification"), "--file", str(folders / "data-classification" / "train.jsonl")]
    with pytest.raises(KeyboardInterrupt):
        predict.main([*words, "--output_file", str(tmp_path / "out.csv")])
    assert not [*tmp_path.iterdir()]


def test_predict_refuses(folders, tmp_path, capsys):
    file, model = str(folders / "data-classification" / "train.jsonl"), str(folders / "classification")
    other = write_rows(tmp_path / "other.jsonl", [{"text": GOOD}])
    GPT1Config(n_embd=8, n_head=2).save_pretrained(tmp_path / "plain")
    fields = {"traversal": "classification", "architectures": ["GPT1DoubleHeadsModel"]}
    GPT1Config(n_embd=8, n_head=2, **fields).save_pretrained(tmp_path / "old")
    assert "No model was given" in refused("--file", file)
    capsys.readouterr()
    assert "'f2' is unknown" in refused(model, "--file", file, "--metric_name", "f2")
    assert capsys.readouterr().out == ""  # before a row is predicted
    assert f"{other} has no column 'review' for the role text" in refused(model, "--file", other)
    assert "plain has no task head" in refused(str(tmp_path / "plain"), "--file", file)
    assert "old has no task head. Pass a folder" in refused(str(tmp_path / "old"), "--file", file)
    GPT1Config(n_embd=8, n_head=2, **fields, extract_token_id=3).save_pretrained(tmp_path / "old")
    assert "old names no traversal or no columns. Pass --columns" in refused(str(tmp_path / "old"), "--file", file)
    assert f"--output_file {other} is there already" in refused(model, "--file", file, "--output_file", other)
    assert read_rows(Path(other).read_text(encoding="utf-8")) == [{"text": GOOD}]


def test_two_predictions_do_not_write_one_file(folders, tmp_path):
    file, output = folders / "data-classification" / "train.jsonl", tmp_path / "predictions.jsonl"
    with writer_of_new_file(output):
        said = refused(str(folders / "classification"), "--file", str(file), "--output_file", str(output))
    assert f"`output_file` is '{output}', which another command is writing. Pass another name." in said


def test_a_run_that_was_stopped_while_it_predicted_writes_its_card_when_it_is_resumed(
    tokenizer_folder, tmp_path, monkeypatch
):
    saving = ["--save_strategy", "steps", "--save_steps", "2", "--resume_from_checkpoint", "auto"]
    command = [*own_data("classification", tmp_path), *fresh_model(tokenizer_folder), "--do_eval"]
    command += training(tmp_path / "run", *saving)

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FineTuningRun, "write_predictions", interrupt)
        with pytest.raises(KeyboardInterrupt):
            finetune.main(command)
    finetune.main(command)
    accuracy = read_json(tmp_path / "run" / "eval_results.json")["eval_accuracy"]
    assert f"accuracy | {accuracy}" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_a_given_length_is_said_by_the_run_and_its_card(tokenizer_folder, tmp_path, caplog):
    command = [*own_data("classification", tmp_path), *fresh_model(tokenizer_folder), *training(tmp_path / "run")]
    finetune.main([*command, "--max_length", "9"])
    assert "length: texts are cut to 9 tokens, also by `gpt1 predict`" in caplog.messages
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "The model reads at most 9 tokens at a time" in card
    assert "| trained positions | the first 9 |" in card


@pytest.mark.parametrize(("rate", "is_told"), [("6.25e-5", True), ("1e-3", False)])
def test_a_rate_is_proposed_for_a_small_model_before_it_trains(rate, is_told, tokenizer_folder, tmp_path, caplog):
    run = training(tmp_path / "run", "--learning_rate", rate)
    finetune.main([*own_data("classification", tmp_path), *fresh_model(tokenizer_folder), *run])
    told = [number for number, line in enumerate(caplog.messages) if "pass --learning_rate 0.001" in line]
    first_step = [number for number, line in enumerate(caplog.messages) if line.startswith("step ")][0]
    assert [number < first_step for number in told] == [True] * is_told


def test_an_accuracy_that_is_no_better_than_the_most_frequent_class_is_reported(caplog):
    task = Task("own", "classification", {"text": "text", "label": "label"}, ("sad", "happy"))
    labels = np.array([1] * 11 + [0] * 9)
    warn_of_majority(np.array([1] * 10 + [0] * 10), labels, task, "rows.csv")
    assert caplog.messages == []  # 19 of 20
    warn_of_majority(np.array([1] * 10 + [0] + [1] * 8 + [0]), labels, task, "rows.csv")
    (line,) = caplog.messages
    assert line.startswith(
        "The accuracy on rows.csv, 0.550, is no better than that of always answering 'happy', 0.550"
    )


def test_a_run_reports_that_it_is_no_better_than_the_most_frequent_class(
    tokenizer_folder, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(rows, "MANY_ROWS", 2)
    monkeypatch.setattr(run_module, "predictions_from_logits", lambda task, logits: np.zeros(2, dtype=int))
    run = training(tmp_path / "run")
    finetune.main([*own_data("classification", tmp_path), *fresh_model(tokenizer_folder), *run, "--do_eval"])
    assert "is no better than that of always answering 'happy', 0.500" in caplog.text
