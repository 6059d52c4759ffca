"""A wheel of the package, built from a copy, so that nothing is left in the checkout."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGED = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "hub_card.md", "modeling_gpt1", "tokenization")


def copy_package(folder: Path) -> None:
    """Everything that a wheel is built from."""
    folder.mkdir(exist_ok=True)
    for name in PACKAGED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)


def pip(command: str, *arguments) -> None:
    quiet = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", command, *quiet, *map(str, arguments)], check=True)


def build_wheel(folder: Path) -> Path:
    copy_package(folder / "source")
    pip("wheel", "--no-build-isolation", "--wheel-dir", folder, folder / "source")
    (wheel,) = folder.glob("*.whl")
    return wheel
