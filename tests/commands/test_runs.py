"""What the commands that train do before a run."""

import pytest
from support.refusals import refusal

from modeling_gpt1 import GPT1TrainingArguments
from modeling_gpt1.commands import runs
from modeling_gpt1.commands.arguments import parser_of
from modeling_gpt1.commands.finetune.run import FineTuningRun
from modeling_gpt1.commands.pretrain.run import PretrainingRun

RUNS = {"finetune": FineTuningRun, "pretrain": PretrainingRun}


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
