"""Files of rows in every kind that the readers know, and a folder of a model."""

import bz2
import csv
import gzip
import io
import json
import lzma
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import transformers
from torch import nn

COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def content_of(rows: list[dict], kind: str, packed: str = "") -> bytes:
    """The bytes of a file of rows."""
    if kind == ".parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), content := io.BytesIO())
        return content.getvalue()
    text = io.StringIO(newline="")
    if kind == ".csv":
        writer = csv.DictWriter(text, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    else:
        text.write(json.dumps(rows) if kind == ".json" else "".join(json.dumps(row) + "\n" for row in rows))
    return COMPRESS[packed](text.getvalue().encode())


def write_rows(path: Path, rows: list[dict]) -> str:
    """A file of the kind that its endings name, and its folder if there is none; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content_of(rows, *path.suffixes[-2 if path.suffix in COMPRESS else -1 :]))
    return str(path)


def read_rows(text: str) -> list[dict]:
    """The records of a text that has one in each line."""
    return [json.loads(line) for line in text.splitlines()]


def save_folder(folder: Path, model: nn.Module, tokenizer: transformers.PreTrainedTokenizerBase) -> str:
    """A folder as a training leaves it; its path."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
