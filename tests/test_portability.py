"""What would not work on macOS or Windows: modules, calls, paths and encodings of one system."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from modeling_gpt1.commands import generate, zero_shot
from modeling_gpt1.inference import devices

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path for folder in ("modeling_gpt1", "tokenization", "examples") for path in (ROOT / folder).rglob("*.py")
)
MODULES = {"fcntl", "grp", "msvcrt", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty", "winreg"}
NAMES = {
    *(
        "os.fork",
        "os.forkpty",
        "os.getuid",
        "os.geteuid",
        "os.getpgid",
        "os.killpg",
        "os.mkfifo",
        "os.register_at_fork",
    ),
    *("os.setsid", "os.uname", "signal.SIGALRM", "signal.SIGHUP", "signal.SIGKILL", "signal.SIGUSR1", "signal.alarm"),
    # The device is chosen in one place, whatever its make.
    *("torch.accelerator", "torch.backends", "torch.cuda", "torch.mps", "torch.xpu"),
}
KEYWORDS = {"pass_fds", "preexec_fn", "start_new_session"}
PATHS = ("/dev/", "/proc/", "/tmp")
# Where it is, for a reason: guarded by a look at the system, or about devices.
ALLOWED = {
    ("modeling_gpt1/storage/locking.py", "os.register_at_fork"),
    ("modeling_gpt1/reproduction/models.py", "/proc/cpuinfo"),
    ("modeling_gpt1/inference/devices.py", "torch.accelerator"),
    ("modeling_gpt1/commands/env.py", "torch.accelerator"),
    ("modeling_gpt1/modeling_gpt1.py", "torch.backends"),
    ("modeling_gpt1/inference/quantization.py", "torch.backends"),
}


def not_portable(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from MODULES & {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            yield from MODULES & {node.module}
            yield from NAMES & {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield from NAMES & {f"{node.value.id}.{node.attr}"}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(PATHS):
            yield node.value
        elif isinstance(node, ast.Call):
            yield from KEYWORDS & {keyword.arg for keyword in node.keywords}
            if opens_text(node) and "encoding" not in {keyword.arg for keyword in node.keywords}:
                yield f"line {node.lineno} without encoding"


def opens_text(node: ast.Call) -> bool:
    """Whether a call opens a file as text: `open(path)`, `path.open("w")`, `path.read_text()`, …"""
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in ("read_text", "write_text"):
        return True
    of_module = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") in ("gzip", "os")
    # The first argument of `Path.open` is the mode; other methods of that name open other things.
    is_other = isinstance(node.func, ast.Attribute) and node.args and not isinstance(node.args[0], ast.Constant)
    if name != "open" or of_module or is_other:
        return False
    words = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
    modes = [word.value for word in words if isinstance(word, ast.Constant) and set(str(word.value)) <= set("rwaxbt+")]
    return not any("b" in mode for mode in modes)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_works_on_every_system(path):
    name = path.relative_to(ROOT).as_posix()
    found = {what for what in not_portable(path.read_text(encoding="utf-8")) if (name, what) not in ALLOWED}
    assert found == set()


def test_what_is_allowed_is_there():
    for name, what in ALLOWED:
        assert what in set(not_portable((ROOT / name).read_text(encoding="utf-8"))), (name, what)


def test_each_kind_is_found():
    code = """
import fcntl, os.path
from signal import SIGKILL
import torch, os
os.killpg(1, 2)
torch.cuda.is_available()
subprocess.run([], start_new_session=True)
open("/proc/self")
path.open("w")
path.open("rb")
path.read_text()
open(path, "w", encoding="utf-8")
gzip.open(path)
models.open(name)
"""
    assert sorted(not_portable(code)) == [
        *("/proc/self", "fcntl", "line 11 without encoding", "line 8 without encoding", "line 9 without encoding"),
        *("os.killpg", "signal.SIGKILL", "start_new_session", "torch.cuda"),
    ]


def test_an_accelerator_of_any_make_is_taken(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("mps"))
    assert devices.default_device() == torch.device("mps")
    monkeypatch.setattr(torch, "get_device_module", lambda _: ModuleType("mps"))  # which tells no name
    assert devices.accelerator_name() == "mps"
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    assert (devices.default_device(), devices.accelerator_name()) == (torch.device("cpu"), None)


def test_commands_compute_on_it(monkeypatch):
    monkeypatch.setattr("modeling_gpt1.commands.arguments.default_device", lambda: torch.device("mps"))
    assert generate.GenerationArguments("model").device == "mps"
    assert generate.GenerationArguments("model", dtype="int8").device is None  # is for the CPU
    assert zero_shot.ZeroShotArguments("model").device == "mps"
    assert zero_shot.ZeroShotArguments("model", device="cpu").device == "cpu"


@pytest.mark.parametrize("arguments", [generate.GenerationArguments, zero_shot.ZeroShotArguments])
def test_a_device_that_is_not_there_is_told_at_once(arguments):
    with pytest.raises(ValueError) as error:
        arguments("model", device="gpu")
    assert str(error.value).startswith("--device gpu cannot be used: Expected one of cpu, ")
    assert str(error.value).endswith(f". Pass {devices.default_device()}, or leave it out.")
