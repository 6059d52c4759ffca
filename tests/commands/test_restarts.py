"""A job that torch's launcher starts again: when it resumes by itself, and what it says."""

import os

import psutil
import pytest

from modeling_gpt1 import GPT1PretrainingArguments
from modeling_gpt1.commands.runs import check_output_folder


@pytest.fixture
def restarted(tmp_path, monkeypatch):
    """Arguments of a restarted job, and a function that puts a file of this age, in seconds, into its folder."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    launched = psutil.Process().parent().create_time()

    def put(name, age=0.0):
        path = tmp_path / "run" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        os.utime(path, (launched - age, launched - age))

    return GPT1PretrainingArguments(str(tmp_path / "run"), use_cpu=True), put


def test_a_restarted_job_resumes_by_itself(restarted, monkeypatch, caplog):
    args, put = restarted
    put("run.yaml")
    monkeypatch.setattr("modeling_gpt1.commands.runs.checkpoint_to_resume", lambda given, folder: f"{given}: {folder}")
    check_output_folder(args)
    assert args.resume_from_checkpoint == "auto"
    assert caplog.messages == [
        f"The launcher started this job again (restart 2), which resumes from auto: {args.output_dir}."
    ]


def test_without_a_checkpoint_it_begins_anew(restarted, caplog):
    """It may have ended before the settings were written."""
    args, put = restarted
    put("tokenizer.json")
    check_output_folder(args)
    assert args.resume_from_checkpoint == "auto"
    assert caplog.messages == [
        "The launcher started this job again (restart 2), which begins anew, as there is no complete checkpoint."
    ]


def test_a_job_that_was_refused_stays_refused(restarted):
    """Another run's folder: its files are older than the launcher."""
    args, put = restarted
    for name in ("run.yaml", "model.safetensors"):
        put(name, age=60)
    with pytest.raises(ValueError, match="is not empty. Pass --resume_from_checkpoint auto"):
        check_output_folder(args)


@pytest.mark.parametrize(
    "count, given, part",
    [("0", None, "is not empty"), (None, None, "is not empty"), ("2", "false", "'false', which is not a complete")],
)
def test_the_first_start_and_what_was_asked_for(count, given, part, restarted, monkeypatch, caplog):
    args, put = restarted
    args.resume_from_checkpoint = given
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT")
    if count is not None:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
    put("model.safetensors")
    with pytest.raises(ValueError, match=part):
        check_output_folder(args)
    assert args.resume_from_checkpoint == given and caplog.messages == []
