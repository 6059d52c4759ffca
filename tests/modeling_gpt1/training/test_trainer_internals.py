"""The private side of transformers' Trainer that this package touches, name by name.

A release that changes one of these names fails here first. What the trainers make of them is in
`modeling_gpt1/training/trainer_internals.py`; that the whole still resumes to the bit is tested in test_checkpoint.py.
"""

import ast
import inspect
import textwrap
from pathlib import Path

import pytest
import transformers
from support.launch import ROOT
from transformers import Trainer

from modeling_gpt1.training.trainer_internals import ResumableTrainer

INTERNALS = ROOT / "modeling_gpt1" / "training" / "trainer_internals.py"
# Parameters are the same from transformers 5.17 to 5.23.
OVERRIDDEN = {
    "_get_dataloader": "dataset description batch_size sampler_fn is_training dataloader_key",
    "_maybe_log_save_evaluate": ("tr_loss grad_norm model trial epoch ignore_keys_for_eval start_time learning_rate"),
    "_run_epoch": (
        "model epoch train_dataloader steps_in_epoch num_update_steps_per_epoch trial ignore_keys_for_eval start_time "
        "resume_from_checkpoint epochs_trained steps_trained_in_current_epoch"
    ),
    "_save": "output_dir state_dict",
    "_save_checkpoint": "model trial",
    "_track_num_input_tokens": "inputs",
}
CALLED = {"_get_output_dir": "trial"}
# What is read or set of Trainer's own, and the method that sets it first.
ATTRIBUTES = dict.fromkeys(("_globalstep_last_logged", "_total_loss_scalar", "_tr_loss"), "_inner_training_loop")
RELEASE = f"transformers {transformers.__version__}"
ADVICE = f"Adapt {INTERNALS.relative_to(ROOT)}, where it is used, and the list in {Path(__file__).name}."


def parse(function) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def names_set_by(tree: ast.AST) -> set[str]:
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}


def private_names_of_trainer() -> set[str]:
    names = {*vars(Trainer), *names_set_by(ast.parse(inspect.getsource(Trainer)))}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def names_used(path: Path) -> set[str]:
    """Names that the file reads, sets or calls on `self`, `super()` or a trainer, and methods that it defines."""
    used = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            used |= {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner in ("self", "super()") or owner.rpartition(".")[2] in ("trainer", "_trainer"):
                used.add(node.attr)
    return used


def sources() -> list[Path]:
    return sorted(path for package in ("modeling_gpt1", "tokenization") for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("name", [*OVERRIDDEN, *CALLED])
def test_a_method_has_the_parameters_it_had(name):
    needed = {**OVERRIDDEN, **CALLED}[name]
    method = getattr(Trainer, name, None)
    found = None if method is None else " ".join(inspect.signature(method).parameters).removeprefix("self ")
    assert found == needed, f"Trainer.{name} of {RELEASE} takes ({found}), not ({needed}). {ADVICE}"


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_is_set_where_it_was(name):
    assert name in names_set_by(parse(getattr(Trainer, ATTRIBUTES[name]))), (
        f"Trainer.{ATTRIBUTES[name]} of {RELEASE} does not set {name} any more. {ADVICE}"
    )


def test_zeros_are_set_before_callbacks_hear_of_the_beginning():
    """`begin_run` gives the values back in between."""
    source = inspect.getsource(Trainer._inner_training_loop)
    places = [source.index(part) for part in ("self._globalstep_last_logged =", "on_train_begin(", "_run_epoch(")]
    assert places == sorted(places), f"Trainer._inner_training_loop goes another way. {ADVICE}"


def test_the_list_is_complete():
    assert names_used(INTERNALS) & private_names_of_trainer() == {*OVERRIDDEN, *CALLED, *ATTRIBUTES}
    overridden = {name for name in vars(ResumableTrainer) if name in vars(Trainer)}
    assert {name for name in overridden if not name.endswith("__") and name.startswith("_")} == {*OVERRIDDEN}
    assert len(OVERRIDDEN) <= 6


def test_no_other_file_touches_the_private_side_of_trainer():
    private = private_names_of_trainer()
    others = {str(path.relative_to(ROOT)): names_used(path) & private for path in sources() if path != INTERNALS}
    assert {path: names for path, names in others.items() if names} == {}
    assert "hub" in {path.split("/")[1] for path in others}
