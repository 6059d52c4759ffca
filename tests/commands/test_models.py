"""Where a model is looked for: folders and what is like them, the hub, which is asked once."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from modeling_gpt1.commands import models

PLACE = "there is no such folder"


def made(error_class: type, status: int = 500) -> Exception:
    """An error of the hub without its request."""
    error = error_class.__new__(error_class)
    Exception.__init__(error, "no route")
    error.response = SimpleNamespace(status_code=status)
    return error


def refusal(name: str, files: tuple[str, ...] = models.MODEL) -> str:
    with pytest.raises(ValueError) as error:
        models.check_model("--model", name, files)
    return str(error.value)


@pytest.fixture
def hub(monkeypatch):
    """Requests to the hub, which end in an error or in none."""

    def answer(error: Exception | None = None) -> list:
        requests = []

        def ask(url, timeout):
            requests.append((url.partition("/resolve/")[0].rpartition("co/")[2], timeout))
            if error is not None:
                raise error

        monkeypatch.setattr(models, "try_to_load_from_cache", lambda *_: None)
        monkeypatch.setattr(models, "get_hf_file_metadata", ask)
        return requests

    return answer


ANSWERS = {
    "offline": (
        OfflineModeIsEnabled("offline"),
        "and HF_HUB_OFFLINE blocks access to the hub. Pass a folder, or unset it.",
    ),
    "unreachable": (
        HTTPError("no route"),
        "and the hub ({endpoint}) cannot be reached: no route. Pass a folder, or connect to it.",
    ),
    "unknown": (
        made(RepositoryNotFoundError, 404),
        "and the hub has no such model that you can access. Correct the id, or log in with `hf auth login`.",
    ),
    "gated": (
        made(GatedRepoError, 403),
        "and the model on the hub is gated. Request access on its page, and log in with `hf auth login`.",
    ),
    "no model": (
        made(EntryNotFoundError, 404),
        "and the repository on the hub has no config.json. Pass the id of a model.",
    ),
    "not logged in": (
        made(HfHubHTTPError, 401),
        "and the hub answered with status 401. Log in with `hf auth login` and a token with read access, or pass a "
        "folder.",
    ),
    "forbidden": (
        made(HfHubHTTPError, 403),
        "and the hub answered with status 403. Log in with `hf auth login` and a token with read access, or pass a "
        "folder.",
    ),
    "broken": (
        made(HfHubHTTPError, 503),
        "and the hub answered with status 503. Try again later, or pass a folder.",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_the_hub_answers(case, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error, message = ANSWERS[case]
    requests = hub(error)
    assert refusal("me/books") == f"--model me/books: {PLACE}, {message.format(endpoint=models.constants.ENDPOINT)}"
    assert requests == [("me/books", 5)]


def test_a_model_of_the_hub_or_its_cache_passes(hub, monkeypatch, tmp_path):
    requests = hub()
    models.check_model("--model", "me/books")
    assert len(requests) == 1
    hub(made(EntryNotFoundError))
    models.check_model("--tokenizer_name", "me/books", models.TOKENIZER)  # may have vocab.json
    monkeypatch.setattr(models, "try_to_load_from_cache", lambda *_: "/cache/config.json")
    monkeypatch.setattr(models, "get_hf_file_metadata", lambda *_, **__: pytest.fail("the hub was asked"))
    models.check_model("--model", "me/books")
    (tmp_path / "config.json").touch()
    models.check_model("--model", str(tmp_path))
    models.check_model("--model", None)


def test_folders_of_like_names_are_named(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub(OfflineModeIsEnabled("offline"))
    for name in ("out/sst2", "out/rte"):
        (tmp_path / name).mkdir(parents=True)
    advice = "Pass a folder, or a hub id such as owner/name."
    assert refusal("./nope") == f"--model ./nope does not exist. {advice}"
    assert refusal("./out/sts2") == f"--model ./out/sts2 does not exist. Did you mean {Path('out/sst2')}? {advice}"
    offline = "and HF_HUB_OFFLINE blocks access to the hub. Pass a folder, or unset it."
    assert refusal("out/sts2") == f"--model out/sts2: {PLACE} (did you mean {Path('out/sst2')}?), {offline}"
