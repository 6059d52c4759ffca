"""What the commands that train do before a run, and with its results."""

from types import SimpleNamespace

import pytest
from datasets import Dataset
from support.refusals import refusal

from modeling_gpt1 import GPT1TrainingArguments
from modeling_gpt1.commands import runs
from modeling_gpt1.commands.arguments import parser_of
from modeling_gpt1.commands.finetune import run as finetune_run
from modeling_gpt1.commands.pretrain.run import PretrainingRun
from tokenization import TASKS, get_task

RUNS = {"finetune": finetune_run.FineTuningRun, "pretrain": PretrainingRun}


@pytest.mark.parametrize(
    ("report_to", "run_name", "expected"),
    [("trackio", None, "out/here"), ("trackio", "mine", "mine"), ("tensorboard", None, None)],
    ids=["trackio", "named", "tensorboard"],
)
def test_a_run_that_trackio_records_has_a_name(report_to, run_name, expected, monkeypatch):
    """Without one, Trackio puts the evaluation after the training into a record of its own."""
    monkeypatch.setattr(runs, "get_reporting_integration_callbacks", lambda names: [])
    args = GPT1TrainingArguments("out/here", report_to=report_to, run_name=run_name, use_cpu=True)
    runs.check_reporters(args)
    assert args.run_name == expected


PRETRAIN_FILES = ["--train_files", "books.txt"]
MIXTURE = ["--train_files", "a=a", "b=b", "--train_weights", "a=1", "b=1"]
PRETRAIN_HUB = ["--dataset_name", "me/tales", "--dataset_config_name", "short", "--train_split", "first"]
FINETUNE_FILES = ["--train_file", "a.csv", "--traversal", "classification", "--columns", "text=a", "label=b"]
FINETUNE_HUB = [*PRETRAIN_HUB, "--traversal", "classification", "--columns", "text=a", "label=b"]


@pytest.mark.parametrize(
    ("command", "words", "changed"),
    [
        ("pretrain", PRETRAIN_FILES, ["--text_column", "body"]),
        ("pretrain", PRETRAIN_FILES, ["--document_per", "line"]),
        ("pretrain", PRETRAIN_FILES, ["--fix_text", "true"]),
        ("pretrain", PRETRAIN_FILES, ["--mix_documents", "true"]),
        ("pretrain", PRETRAIN_FILES, ["--streaming", "true"]),
        ("pretrain", PRETRAIN_FILES, ["--noise", "rotation"]),
        ("pretrain", PRETRAIN_FILES, ["--mask_ngrams", "3"]),
        ("pretrain", MIXTURE, ["--train_weights", "a=1", "b=2"]),
        ("pretrain", PRETRAIN_HUB, ["--dataset_name", "me/sagas"]),
        ("pretrain", PRETRAIN_HUB, ["--dataset_config_name", "long"]),
        ("pretrain", PRETRAIN_HUB, ["--train_split", "second"]),
        ("finetune", FINETUNE_FILES, ["--columns", "text=a", "label=c"]),
        ("finetune", FINETUNE_FILES, ["--validation_split", "0.2"]),
        ("finetune", FINETUNE_HUB, ["--dataset_name", "me/sagas"]),
        ("finetune", FINETUNE_HUB, ["--dataset_config_name", "long"]),
        ("finetune", FINETUNE_HUB, ["--train_split", "second"]),
        ("finetune", FINETUNE_FILES, ["--lora_r", "4"]),
        ("finetune", FINETUNE_FILES, ["--freeze", "base"]),
        ("finetune", FINETUNE_FILES, ["--freeze_lm_head", "true"]),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else given,
)
def test_a_run_does_not_go_on_with_other_data(command, words, changed, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "checkpoint_to_resume", lambda *args: str(tmp_path / "run" / "checkpoint-2"))
    monkeypatch.setattr(runs, "check_is_last", lambda *args: None)
    common = ["--output_dir", str(tmp_path / "run"), "--resume_from_checkpoint", "auto", "--use_cpu"]
    if command == "finetune":
        common += ["--model", "me/model", "--do_train", "--do_eval"]

    def run_with(words):
        parser = parser_of(command)
        return RUNS[command](parser, *parser.read([*words, *common]))

    before = run_with(words)
    before.parser.write_settings(tmp_path / "run" / "run.yaml")
    before.check_output_folder()
    flag = changed[0]
    place = words.index(flag) if flag in words else len(words)
    message = refusal(run_with([*words[:place], *changed, *words[place + len(changed) :]]).check_output_folder)
    assert f"checkpoint-2 was trained with {flag} " in message
    assert "a run cannot go on with" in message


@pytest.mark.parametrize(("words", "expected"), [(["--seed", "7"], 7), (["--seed", "7", "--data_seed", "3"], 3)])
def test_the_seed_of_a_run_draws_the_rows_that_are_held_out(words, expected, tmp_path, monkeypatch):
    seeds = []
    monkeypatch.setattr(finetune_run, "load_files", lambda *args, **options: seeds.append(options["seed"]))
    parser = parser_of("finetune")
    common = ["--output_dir", str(tmp_path), "--model", "me/model", "--do_train", "--do_eval", "--use_cpu"]
    share = ["--validation_split", "0.2"]
    run = finetune_run.FineTuningRun(parser, *parser.read([*FINETUNE_FILES, *share, *common, *words]))
    run.config = SimpleNamespace(traversal=None)
    run.load_own_data()
    assert seeds == [expected]


@pytest.mark.parametrize(("n_transfer", "expected"), [("-1", None), ("0", "me/model")])
def test_a_model_that_keeps_nothing_of_a_checkpoint_is_not_made_from_it(n_transfer, expected, tmp_path, monkeypatch):
    starts = []
    monkeypatch.setattr(runs, "publish", lambda trainer, start, following, **facts: starts.append(start))
    parser = parser_of("finetune")
    words = ["--task", "rte", "--output_dir", str(tmp_path), "--model", "me/model", "--do_train", "--use_cpu"]
    run = finetune_run.FineTuningRun(parser, *parser.read([*words, "--n_transfer", n_transfer]))
    run.start = run.model_args.model
    run.task = get_task("rte")
    run.trainer = SimpleNamespace(save_state=lambda: None)
    run.publish()
    assert starts == [expected]


def test_a_link_to_a_file_of_the_training_text_is_not_held_out(tmp_path):
    (tmp_path / "books.txt").write_text("the old farmer", encoding="utf-8")
    (tmp_path / "held_out.txt").symlink_to(tmp_path / "books.txt")
    files = ["--train_files", str(tmp_path / "books.txt"), "--validation_files", str(tmp_path / "held_out.txt")]
    parser = parser_of("pretrain")
    run = PretrainingRun(parser, *parser.read([*files, "--output_dir", str(tmp_path / "run"), "--use_cpu"]))
    assert f"{tmp_path}/held_out.txt is in --train_files and in --validation_files." in refusal(run.check_text)


def test_the_seed_of_a_run_draws_the_texts_of_a_mixture(tmp_path, monkeypatch):
    def blocks_of(self, source, **options):
        (name,) = source["source"]
        return Dataset.from_dict({"input_ids": [[ord(name), number] for number in range(20)]})

    monkeypatch.setattr(PretrainingRun, "blocks_of", blocks_of)
    drawn = []
    for seed in ("7", "7", "8"):
        parser = parser_of("pretrain")
        words = [*MIXTURE, "--output_dir", str(tmp_path), "--use_cpu", "--seed", seed]
        drawn.append(PretrainingRun(parser, *parser.read(words)).blocks_to_train_on()["input_ids"][:])
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_a_new_training_removes_what_an_earlier_one_wrote_of_any_task():
    written = {"all_results.json", "train_results.json", "eval_results.json", "predict_results.json"}
    for task in TASKS.values():
        for beginning, ending, splits in (
            ("eval_predictions", ".jsonl", task.validation_splits),
            ("confusion_matrix", ".png", task.validation_splits),
            ("predictions", ".jsonl", task.test_splits),
        ):
            for split in splits:
                suffix = "" if len(splits) == 1 else f"_{split}"
                written.add(f"{beginning}{suffix}{ending}")
    assert written == set(runs.RESULTS)
