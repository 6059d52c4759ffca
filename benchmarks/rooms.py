"""The lines of each part of the tree, before and after: `python benchmarks/rooms.py v0.1.0 [--to main]`."""

import argparse
import io
import re
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUFFIXES = (".py", ".html", ".css", ".js", ".jinja")
PACKAGES, RESULTS = "packages together", "benchmarks: results, MB"
ROOMS = {  # what the paths of a part begin with; a path belongs to the first part that it fits, and to its package
    "conversion, hub, evaluation": r"modeling_gpt1/(conversion|hub|evaluation)\b",
    "flat part of modeling_gpt1, LSTM": r"modeling_gpt1/[^/]+$",
    "training": "modeling_gpt1/training/",
    "commands": "modeling_gpt1/commands/",
    "reproduction with templates": "modeling_gpt1/reproduction/",
    "playground": "modeling_gpt1/playground/",
    "inference, storage": "modeling_gpt1/(inference|storage)/",
    "tokenization": "tokenization/",
    PACKAGES: "(modeling_gpt1|tokenization)/",
    "benchmarks: scripts": r"benchmarks/[^/]+$",
    RESULTS: "benchmarks/results/",
    "tests": "tests/",
}


def files_of(revision: str | None) -> dict[str, bytes]:
    """The content of each file by its path: of a revision, or of the working tree without what git ignores."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout

    if revision is None:
        names = set(git("ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0"))
        return {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    with tarfile.open(fileobj=io.BytesIO(git("archive", revision))) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}


def sizes_of(files: dict[str, bytes]) -> Counter:
    sizes = Counter()
    for name, content in files.items():
        room = next((room for room, pattern in ROOMS.items() if re.match(pattern, name)), None)
        size = len(content) / 1e6 if room == RESULTS else content.count(b"\n") * name.endswith(SUFFIXES)
        sizes.update({of: size for of in {room, PACKAGES if re.match(ROOMS[PACKAGES], name) else room}})
    return sizes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", help="before")
    parser.add_argument("--to", metavar="REVISION", help="after (default: the working tree)")
    before, after = (sizes_of(files_of(revision)) for revision in vars(parser.parse_args()).values())
    print("| part | before | after | % |\n|---|--:|--:|--:|")
    for room in ROOMS:
        cells = (f"{size[room]:.2f}" if room == RESULTS else f"{size[room]:,}" for size in (before, after))
        print(f"| {room} | {' | '.join(cells)} | {100 * after[room] / max(before[room], 0.01):.0f} |")
