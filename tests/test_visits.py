"""How far a reader is sent: the files that one forward pass of a fine-tuned model visits, and how often it changes."""

import sys
from pathlib import Path

import torch
from helpers_packing import pad, planned, ragged_choices

from modeling_gpt1 import GPT1DoubleHeadsModel

PACKAGE = Path(sys.modules["modeling_gpt1"].__file__).parent


def visits(call) -> list[str]:
    """The files of the package whose functions a call enters, in order, each once in a row."""
    files = []

    def see(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.parent == PACKAGE and files[-1:] != [path.name]:
            files.append(path.name)

    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return files


def test_one_forward_pass_is_read_in_few_files(tiny_model, capsys):
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice").train()
    batch = planned(pad(ragged_choices()))
    model(**batch)
    files = visits(lambda: model(**batch))
    with capsys.disabled():
        print(f"\n{len(set(files))} files, {len(files)} changes: {' '.join(name.split('_')[0] for name in files)}")
    assert {"modeling_gpt1.py", "packing_gpt1.py", "loss_gpt1.py"} <= set(files)
    assert len(set(files)) <= 5 and len(files) <= 15
    assert visits(lambda: torch.ones(2) + 1) == []
