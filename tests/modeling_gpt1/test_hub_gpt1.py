"""What a failed push says, where no hub is needed to find out; pushes themselves are in tests/hub."""

import shlex

import pytest
from huggingface_hub.errors import HFValidationError, LocalTokenNotFoundError, OfflineModeIsEnabled

from modeling_gpt1.hub_gpt1 import PushError, explain_failure, explained, upload_command

LOG_IN = "Log in with `hf auth login`, or set HF_TOKEN to a token with write permission,"


@pytest.mark.parametrize(
    ("error", "cause", "remedy"),
    [
        (OfflineModeIsEnabled("Cannot reach x.\nSecond line"), "Cannot reach x", "Unset HF_HUB_OFFLINE"),
        (LocalTokenNotFoundError("No token"), "No token", LOG_IN),
        (HFValidationError("Bad name:\n 'a b'."), "Bad name: 'a b'", "Correct that (the card is README.md there)"),
        (ConnectionResetError(), "ConnectionResetError", "Wait until the hub answers"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_explanation(error, cause, remedy, tmp_path):
    (tmp_path / "model.safetensors").touch()
    assert explain_failure(error, "me/x", str(tmp_path)) == (
        f"The push to me/x failed: {cause}. Nothing is lost: the whole result lies in {tmp_path}. {remedy} and run:\n"
        f"hf upload me/x {tmp_path}"
    )


def test_the_cause_is_kept(tmp_path):
    cause = ConnectionError("out of reach")
    with pytest.raises(PushError) as error, explained("me/x", str(tmp_path)):
        raise cause
    assert error.value.__cause__ is cause


def test_the_command_leaves_out_what_a_push_leaves_out(tmp_path):
    folder = tmp_path / "my results"
    for name in ("model.safetensors", "checkpoint-4/model.safetensors", "training_args.bin", "_incomplete/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    words = shlex.split(upload_command("me/x", str(folder), "v1.0"))
    excluded = ["--exclude", "_*", "--exclude", "checkpoint-*", "--exclude", "*.bin"]
    assert words == ["hf", "upload", "me/x", str(folder), *excluded, "--revision", "v1.0"]
