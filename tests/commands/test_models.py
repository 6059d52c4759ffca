"""Opening what a user named: what transformers and datasets cannot open is a user's error."""

import json

import pytest
from datasets.exceptions import DatasetsError

from modeling_gpt1.commands import models
from modeling_gpt1.commands.models import opening
from modeling_gpt1.commands.zero_shot import ScoringArguments
from tokenization.errors import UserError


@pytest.mark.parametrize("error", [ValueError("No such\n  type."), DatasetsError("No such\n type.")])
def test_a_librarys_error_becomes_a_sentence_with_the_name(error):
    with pytest.raises(UserError) as told, opening("--model m"):
        raise error
    assert str(told.value) == "--model m cannot be opened: No such type. Pass --debug to see the traceback."


@pytest.mark.parametrize("error", [UserError("Row 1 is empty."), OSError("no folder"), KeyError("key")])
def test_a_users_error_or_a_mistake_passes_unchanged(error):
    with pytest.raises(type(error)) as told, opening("--model m"):
        raise error
    assert told.value is error


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"model_type": "of-nobody"}, "of-nobody"),
        ({"model_type": "own", "auto_map": {"AutoConfig": "code.Config"}}, "trust_remote_code=True"),
    ],
)
def test_a_model_of_an_unknown_type_or_with_its_own_code_is_refused(content, reason, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(content))
    (tmp_path / "code.py").write_text("")
    with pytest.raises(UserError) as told:
        ScoringArguments(model=str(tmp_path)).models()
    assert str(told.value).startswith(f"--model {tmp_path} cannot be opened: ")
    assert reason in str(told.value)


def test_a_model_keeps_the_name_by_which_it_was_asked_for(tmp_path, save_model):
    save_model(tmp_path / "run")
    save_model(tmp_path / "run" / "chck_1M")
    words = [str(tmp_path / "run"), "--revision", "chck_1M", "--device", "cpu"]
    args = models.read_with_model("serve", words, writes_file=False)
    assert args.model == str(tmp_path / "run" / "chck_1M")
    assert args.given_model == str(tmp_path / "run")
