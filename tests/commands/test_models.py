"""Where a model is looked for: folders and what is like them, the hub, which is asked once."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled, RemoteEntryNotFoundError, RepositoryNotFoundError

from modeling_gpt1.commands import arguments
from modeling_gpt1.commands.arguments import MODEL, TOKENIZER, check_model


def made(error_class: type, text: str) -> Exception:
    """An error of the hub without its request."""
    error = error_class.__new__(error_class)
    Exception.__init__(error, text)
    error.response = SimpleNamespace(status_code=404)
    return error


def refusal(name: str, files: tuple[str, ...] = MODEL) -> str:
    with pytest.raises(ValueError) as error:
        check_model("--model", name, files)
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

        monkeypatch.setattr(arguments, "try_to_load_from_cache", lambda *_: None)
        monkeypatch.setattr(arguments, "get_hf_file_metadata", ask)
        return requests

    return answer


@pytest.mark.parametrize(
    "error",
    [
        OfflineModeIsEnabled("offline mode is enabled, unset HF_HUB_OFFLINE"),
        HTTPError("no\nroute"),
        made(RepositoryNotFoundError, "Repository Not Found"),
        made(RemoteEntryNotFoundError, "no config.json"),
    ],
)
def test_what_the_hub_answers(error, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    requests = hub(error)
    told = refusal("me/books")
    assert told.startswith("--model me/books is no folder and no model of the hub") and requests == [("me/books", 5)]
    assert " ".join(str(error).split()) in told and told.endswith("Pass a folder, or a hub id such as owner/name.")


def test_a_model_of_the_hub_or_its_cache_passes(hub, monkeypatch, tmp_path):
    requests = hub()
    check_model("--model", "me/books")
    assert len(requests) == 1
    hub(made(RemoteEntryNotFoundError, "none"))
    check_model("--tokenizer_name", "me/books", TOKENIZER)  # may have vocab.json
    monkeypatch.setattr(arguments, "try_to_load_from_cache", lambda *_: "/cache/config.json")
    monkeypatch.setattr(arguments, "get_hf_file_metadata", lambda *_, **__: pytest.fail("the hub was asked"))
    check_model("--model", "me/books")
    (tmp_path / "config.json").touch()
    check_model("--model", str(tmp_path))
    check_model("--model", None)


def test_folders_of_like_names_are_named(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub(OfflineModeIsEnabled("offline"))
    (tmp_path / "out" / "sst2").mkdir(parents=True)
    assert "did you mean" not in refusal("./nope")
    for name in ("./out/sts2", "out/sts2", str(tmp_path / "out" / "sts2")):
        assert f"did you mean {Path(name).parent / 'sst2'}?" in refusal(name)
