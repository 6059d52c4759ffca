"""The scripts of benchmarks/ as modules, which import each other by name."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@contextmanager
def imported(script: str) -> Iterator[ModuleType]:
    """A script, whose folder and modules are not importable afterwards."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module(script)
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in {path.stem for path in BENCHMARKS.glob("*.py")} & sys.modules.keys():
            if Path(getattr(sys.modules[name], "__file__", None) or "").parent == BENCHMARKS:
                del sys.modules[name]


def module_of(script: str):
    @pytest.fixture(scope="module", name=script)
    def module():
        with imported(script) as made:
            yield made

    return module


accelerator, families, gpu, run, scale = map(module_of, ("accelerator", "families", "gpu", "run", "scale"))
alphabets, decoder_objective, dialogue = map(module_of, ("alphabets", "decoder_objective", "dialogue"))
