"""What changes in a model's folder with each save."""

import os
from contextlib import suppress
from pathlib import Path


def saved_files(folder: str | os.PathLike) -> dict[str, tuple[int, int]]:
    """Of a model's files, by name, what changes with each save; empty for a hub id."""
    found = {}
    for pattern in ("*config.json", "tokenizer*.json", "*.safetensors*"):
        for path in Path(folder).glob(pattern):
            with suppress(FileNotFoundError):
                status = path.stat()
                found[path.name] = status.st_ino, status.st_mtime_ns
    return found
