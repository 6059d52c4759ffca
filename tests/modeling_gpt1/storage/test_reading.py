"""Models are read as one save wrote them."""

import shutil

import pytest

from modeling_gpt1.storage.reading import SavedMeanwhileError, one_save


@pytest.fixture
def folder(tmp_path):
    for name in ("config.json", "tokenizer.json", "model-00001-of-00002.safetensors", "trainer_state.json"):
        (tmp_path / name).write_text(name)
    return tmp_path


def save_again(path):
    """The same bytes in another file, as a save replaces it."""
    shutil.copy(path, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model-00001-of-00002.safetensors"])
def test_a_save_meanwhile_is_noticed(folder, name):
    with pytest.raises(SavedMeanwhileError, match="Run the command again"), one_save(folder):
        save_again(folder / name)
    with pytest.raises(SavedMeanwhileError) as error, one_save(str(folder)):
        (folder / name).unlink()
        (folder / name).read_text()
    assert isinstance(error.value.__cause__, FileNotFoundError)


def test_what_is_no_save_passes(folder):
    with one_save(folder):
        save_again(folder / "trainer_state.json")
        (folder / "checkpoint-3").mkdir()
        (folder / "checkpoint-3" / "config.json").touch()
    with one_save("someone/a-model"):
        pass
    with pytest.raises(KeyError), one_save(folder):
        raise KeyError
