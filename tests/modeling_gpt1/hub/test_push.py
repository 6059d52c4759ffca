"""What a failed push says, where no hub is needed to find out; pushes themselves are in tests/hub."""

import json
import traceback
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError
from huggingface_hub.utils import filter_repo_objects
from support.finetuning import make_finetuning_trainer
from support.refusals import refusal
from transformers import Trainer

from modeling_gpt1.commands import push as push_command
from modeling_gpt1.configuration_gpt1 import PACKAGED_MODEL
from modeling_gpt1.hub import push
from modeling_gpt1.hub.push import NEVER_PUSHED, REMEDY, PushError, explained, upload_result


def write_adapter(folder, base):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}), encoding="utf-8")


@pytest.mark.parametrize("place", [".", "named-style"])
def test_an_adapter_with_a_path_of_this_machine_is_not_pushed(place, tmp_path):
    write_adapter(tmp_path / place, "/home/me/books")
    message = refusal(push.check_bases_of_adapters, tmp_path)
    assert "The adapter's base, /home/me/books, is on this machine only" in message
    assert "write its name there as `base_model_name_or_path` into the adapter's adapter_config.json" in message


def test_adapters_that_are_not_pushed_are_not_checked(tmp_path):
    write_adapter(tmp_path, "openai-community/openai-gpt")
    write_adapter(tmp_path / "checkpoint-5", "/home/me/books")
    push.check_bases_of_adapters(tmp_path)


def test_a_folder_here_named_like_a_model_of_the_hub_is_told_of(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "openai-community" / "openai-gpt").mkdir(parents=True)
    write_adapter(tmp_path / "run", "openai-community/openai-gpt")
    push.check_bases_of_adapters("run")
    assert (
        "openai-community/openai-gpt, is a folder here. Others will open the hub's model of this name" in caplog.text
    )


def test_a_folder_here_named_like_the_packaged_model_is_told_of(tmp_path, monkeypatch, caplog):
    """Its weights may be others than those that the name opens elsewhere."""
    monkeypatch.chdir(tmp_path)
    write_adapter(tmp_path / "run", PACKAGED_MODEL)
    push.check_bases_of_adapters("run")
    assert caplog.text == ""
    (tmp_path / PACKAGED_MODEL).mkdir()
    push.check_bases_of_adapters("run")
    assert f"The adapter's base, {PACKAGED_MODEL}, is a folder here." in caplog.text


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (HFValidationError("Bad name:\n 'a b'."), "Bad name: 'a b'"),
        (ConnectionResetError(), "ConnectionResetError"),
        (
            RuntimeError(f"Illegal header value {b'Bearer hf_SECRET of mine' + bytes([10])!r}"),
            "Illegal header value b'***",
        ),
        (OSError("No user hf_oauth_eyJ0.e30.x-Y_z here"), "No user *** here"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("revision", [None, "v1.0"])
def test_explanation(error, cause, revision, tmp_path):
    folder = str(tmp_path / "my results")
    with pytest.raises(PushError) as failure, explained("me/x", folder, revision, more=["--branches"]):
        raise error
    assert failure.value.__cause__ is (None if "hf_" in str(error) else error)
    assert str(failure.value) == (
        f"The push to me/x failed: {cause}. Nothing is lost: the complete result is in {folder}. {REMEDY} and run:\n"
        f"gpt1 push '{folder}' --repo_id me/x" + (" --revision v1.0" if revision else "") + " --branches"
    )


def test_before_training_nothing_is_said_of_an_older_result(tmp_path):
    with pytest.raises(PushError) as failure:  # its traceback passes hf_api.py, which is no token
        upload_result(str(tmp_path), "no/valid/id")
    assert failure.value.__cause__ is not None
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(PushError) as error, explained("me/x", str(tmp_path), is_trained=False):
        raise LocalTokenNotFoundError("No token")
    assert str(error.value) == (
        f"me/x cannot be pushed to: No token. Nothing is lost, because training has not started. {REMEDY} and start "
        "again, or leave `push_to_hub` out and upload the result later."
    )


@pytest.mark.parametrize("kind", ["the error", "its cause", "its context", "no secret"])
def test_no_token_is_in_a_traceback_or_a_log(kind, tmp_path, monkeypatch):
    secret, logged = RuntimeError("Bearer " + "hf_" + "SECRET"), []
    error = {"the error": secret, "no secret": RuntimeError("out of reach")}.get(kind, RuntimeError("failed"))
    if kind.startswith("its"):
        setattr(error, f"__{kind.split()[1]}__", secret)
    with pytest.raises(PushError) as failure, explained("me/x", str(tmp_path)):
        raise error
    future = Future()
    future.set_exception(failure.value)
    monkeypatch.setattr(push.logger, "error", logged.append)
    push.log_failure(future)
    shown = "".join(traceback.format_exception(failure.value))
    assert logged == [str(failure.value)]
    assert "SECRET" not in shown + logged[0]
    assert ("out of reach\n\nThe above exception" in shown) == (kind == "no secret")


def test_what_is_never_pushed():
    pushed = ["model.safetensors", "modeling_gpt1.py", "log.jsonl", "runs/environment.txt", "a_b/c_d.json"]
    kept = [
        *(".env", ".env.local", "data/.env", "data/.env.local", "prod.env", "sub/.netrc"),
        *("_incomplete/x", "runs/_private/x", "runs/_x.json"),
        *("x.joblib", "x.npz", "runs/x.npy", "training_args.bin", "sub/optimizer.pt", "rng_state.pth", "x.pth.tar"),
        *("x.pkl", "x.pkl.gz", "x.pickle", "x.p", "x.ckpt", "x.dill", "x.h5", "chck_1M/model.safetensors"),
        *("checkpoint-5/model.safetensors", "trial/checkpoint-7/model.safetensors"),
        *("eval_predictions.jsonl", "sub/eval_predictions_validation_matched.jsonl"),  # the user's texts
        "checkpoint.json",
        *("run.yaml", "parts/eval_run.yaml", "evaluate_run-chck_1M.yaml", ".netrc", "pytorch_model_fsdp_0/.metadata"),
        *("events.out.tfevents.1.this-machine.2.0", "runs/Jan01_this-machine/events.out.tfevents.1.this-machine.2.0"),
    ]
    assert list(filter_repo_objects([*pushed, *kept], ignore_patterns=list(NEVER_PUSHED))) == pushed


@pytest.mark.parametrize("is_checkpoint", [True, False])
def test_of_a_checkpoint_only_the_model_is_pushed(is_checkpoint, tmp_path, monkeypatch):
    """The log of a checkpoint names folders of this machine. That of a run does not."""
    names = ["config.json", "model.safetensors", "trainer_state.json"]
    if is_checkpoint:
        names += ["checkpoint.json", "optimizer.pt"]
    for name in names:
        (tmp_path / name).touch()
    asked = []
    monkeypatch.setattr(push, "hf_api", lambda: SimpleNamespace(upload_folder=lambda **options: asked.append(options)))
    push.upload(str(tmp_path), "me/x")
    pushed = list(filter_repo_objects(names, ignore_patterns=asked[0]["ignore_patterns"]))
    assert pushed == names[: 2 if is_checkpoint else 3]


class Hub:
    """Answers as the hub does for a repository that is there."""

    def __init__(self, is_private: bool | None):
        self.is_private = is_private
        self.asked = []
        self.branches = []

    def create_repo(self, repo_id, private, exist_ok):
        self.asked.append(private)
        return SimpleNamespace(repo_id=repo_id if "/" in repo_id else f"me/{repo_id}")

    def create_branch(self, repo_id, branch, exist_ok):
        self.branches.append((repo_id, branch, exist_ok))

    def repo_info(self, repo_id, token):
        return SimpleNamespace(private=self.is_private)


@pytest.mark.parametrize(
    ("words", "is_private", "asked"), [([], False, None), (["--private"], True, True), (["--private"], False, True)]
)
def test_who_sees_a_repository_is_the_owners_choice(words, is_private, asked, tmp_path, monkeypatch, capsys):
    """False would make it public, also where an organisation's are private."""
    hub, uploads = Hub(is_private), []
    monkeypatch.setattr(push_command, "hf_api", lambda: hub)
    monkeypatch.setattr(push, "hf_api", lambda: hub)
    monkeypatch.setattr(push_command, "upload", lambda *args, **options: uploads.append(args))
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    command = [str(tmp_path), "--repo_id", "me/x", *words]
    if words and not is_private:
        message = refusal(push_command.main, command)
        assert message == (
            "me/x was there before, and everybody sees it. Make it private first, or leave `--private` out."
        )
        assert uploads == []
    else:
        push_command.main(command)
        assert len(uploads) == 1
    assert hub.asked == [asked]


@pytest.mark.parametrize("is_private", [True, False])
def test_a_run_that_asks_for_a_private_repository_uploads_to_no_public_one(is_private, tmp_path, monkeypatch):
    trainer = make_finetuning_trainer("classification", tmp_path, 8, 1, hub_private_repo=True)
    trainer.hub_model_id = "me/x"
    monkeypatch.setattr(Trainer, "init_hf_repo", lambda self, **options: None)
    monkeypatch.setattr(push, "hf_api", lambda: Hub(is_private))
    if is_private:
        trainer.init_hf_repo(is_trained=True)
    else:
        message = refusal(trainer.init_hf_repo, is_trained=True)
        assert "me/x was there before, and everybody sees it" in message
        assert "leave `hub_private_repo` out" in message


def write_run(folder):
    """A run with a checkpoint of a number of words."""
    for place in (folder, folder / "chck_1M"):
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text("{}", encoding="utf-8")


def test_a_second_attempt_uploads_to_the_branches_of_the_first(tmp_path, monkeypatch):
    """Under the whole name of the repository, which the hub tells."""
    hub, uploads = Hub(is_private=None), []
    monkeypatch.setattr(push_command, "hf_api", lambda: hub)
    monkeypatch.setattr(push_command, "upload", lambda *args, **options: uploads.append(args))
    write_run(tmp_path)
    push_command.main([str(tmp_path), "--repo_id", "x", "--branches"])
    assert hub.branches == [("me/x", "chck_1M", True)]
    assert uploads == [(str(tmp_path / "chck_1M"), "me/x", "chck_1M"), (str(tmp_path), "me/x", None)]


def test_the_adapter_of_a_branch_is_checked_before_anything_is_uploaded(tmp_path, monkeypatch):
    hub = Hub(is_private=None)
    monkeypatch.setattr(push_command, "hf_api", lambda: hub)
    write_run(tmp_path)
    write_adapter(tmp_path / "chck_1M", "/home/me/books")
    message = refusal(push_command.main, [str(tmp_path), "--repo_id", "me/x", "--branches"])
    assert "The adapter's base, /home/me/books, is on this machine only" in message
    assert hub.asked == []


@pytest.mark.parametrize("words", [[], ["--branches"]])
def test_a_folder_that_is_no_run_is_not_uploaded(words, tmp_path, monkeypatch):
    hub = Hub(is_private=None)
    monkeypatch.setattr(push_command, "hf_api", lambda: hub)
    if words:
        (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    message = refusal(push_command.main, [str(tmp_path), "--repo_id", "me/x", *words])
    assert f"{tmp_path} {'has no folders chck_' if words else 'is no folder with a config.json'}" in message
    assert hub.asked == []


def fail_to_answer(*args, **options):
    raise ConnectionError("no answer")


def test_the_next_attempt_makes_a_private_repository_too(tmp_path, monkeypatch):
    monkeypatch.setattr(push_command, "hf_api", lambda: SimpleNamespace(create_repo=fail_to_answer))
    write_run(tmp_path)
    with pytest.raises(PushError) as failure:
        push_command.main([str(tmp_path), "--repo_id", "me/x", "--private", "--branches"])
    assert str(failure.value).endswith(f"gpt1 push {tmp_path} --repo_id me/x --branches --private")


@pytest.mark.parametrize("place", ["argument", "arguments of the run"])
def test_the_command_after_a_failed_push_keeps_its_privacy_and_its_branch(place, tmp_path, monkeypatch):
    is_argument = place == "argument"
    settings = {"hub_model_id": "me/x", "max_steps": 1}
    if not is_argument:
        settings |= {"hub_private_repo": True, "hub_revision": "v1"}
    trainer = make_finetuning_trainer("classification", tmp_path, 8, 1, **settings)
    monkeypatch.setattr(Trainer, "init_hf_repo", fail_to_answer)
    with pytest.raises(PushError) as failure:
        trainer.push_to_hub(**({"private": True, "revision": "v1"} if is_argument else {}))
    assert str(failure.value).endswith(f"gpt1 push {tmp_path} --repo_id me/x --revision v1 --private")


@pytest.mark.parametrize(("status", "is_told"), [(401, True), (403, True), (404, False), (501, False)])
def test_a_hub_that_does_not_know_the_question_of_rights_stops_no_run(status, is_told, monkeypatch):
    def auth_check(repo_id, token, write):
        response = SimpleNamespace(status_code=status, headers={}, request=None)
        raise HfHubHTTPError("refused", response=response)

    monkeypatch.setattr(push, "hf_api", lambda: SimpleNamespace(auth_check=auth_check))
    with pytest.raises(HfHubHTTPError) if is_told else nullcontext():
        push.check_right_to_write("me/x", None)
