"""Opening what a user named: what transformers and datasets cannot open is a user's error."""

import json

import pytest
from datasets.exceptions import DatasetsError

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
