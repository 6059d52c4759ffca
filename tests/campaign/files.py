"""Hostile files, folders and corpora: each is read as it stands, or refused with a sentence."""

import csv
import gzip
import importlib
import io
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import datasets
from campaign.common import Wrong, check, check_refused, randomise, refusal
from campaign.texts import tools, wild_text

import modeling_gpt1
import tokenization
from modeling_gpt1.playground import page as page_module
from modeling_gpt1.playground.reading import PlaygroundError, read
from tokenization import TraversalCollator, load_blocks, load_documents, load_task

WORDS = "a quiet girl read the letter twice and nobody knew why".split()
NAMES = ("own", "own file", "a::b", "rows[1]*", "früh", "x" * 60, "train.csv")
BLANKS = ("", " ", "\t")


def module_of(name: str, example: str):
    """A module, or the example that stood for it in older trees."""
    try:
        return importlib.import_module(name)
    except (ImportError, ValueError):
        sys.path.insert(0, str(Path(modeling_gpt1.__file__).parents[1] / "examples"))
        return importlib.import_module(example)


def load_files(files: dict, columns: dict, **options) -> tuple:
    if hasattr(tokenization, "load_files"):
        return tokenization.load_files(files, columns=columns, **options)
    example = module_of("", "finetune")
    named = {f"{split}_file": str(path) for split, path in files.items()}
    pairs = [f"{role}={name}" for role, name in columns.items()]
    return example.load_own_files(example.DataArguments(columns=pairs, **named, **options), None, True)


# ---- Files of rows


def make_rows(generator: random.Random, kind: str) -> list[dict]:
    names = generator.sample(["good", "bad", "so-so", "none", "NA"], generator.randint(2, 4))
    rows = []
    for number in range(generator.randint(4, 9)):
        text = " ".join(generator.choices(WORDS, k=generator.randint(1, 6)))
        label = {"names": names[number % len(names)], "ids": number % 2, "numbers": round(number * 0.37, 2)}[kind]
        rows.append({"body": text, "other": text[::-1], "label": label})
    return rows


def written(rows: list[dict], ending: str, encoding: str = "utf-8") -> bytes:
    if ending == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, [*rows[0]] if rows else ["body", "other", "label"])
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode(encoding)
    content = "".join(json.dumps(row, ensure_ascii=encoding != "utf-8") + "\n" for row in rows).encode(encoding)
    return gzip.compress(content, mtime=0) if ending == ".jsonl.gz" else content


def spoil_rows(generator: random.Random, rows: list[dict], kind: str, ending: str) -> tuple[str, list[dict], str]:
    """The fault, the rows with it, and what must come of it: "refused" or "either"."""
    row = generator.choice(rows)
    fault = generator.choice(["blank", "blank", "blank", "no column", "no rows", "float", "text", "list", "no text"])
    if fault == "blank":
        row["label"] = generator.choice(BLANKS) if ending == ".csv" else generator.choice([*BLANKS, None])
        return fault, rows, "refused"
    if fault == "no column":
        for row in rows:
            row.pop("label")
        return fault, rows, "refused"
    if fault == "no rows":
        return fault, [], "refused"
    if fault == "float":
        row["label"] = generator.choice([1.5, float("nan"), 1e300, -1, 10**30, True])
        return fault, rows, "either"
    if fault == "text":
        row["label"] = generator.choice(["two", "1", "0x1", "\u0661", "nan"])
        return fault, rows, "refused" if kind == "numbers" and row["label"] in ("two", "0x1") else "either"
    if fault == "list" and ending != ".csv":
        row["label"] = generator.choice([[1], {"a": 1}, []])
        return fault, rows, "either"
    row["body"] = generator.choice([None, "", 7])
    return "no text", rows, "either"


def spoil_bytes(generator: random.Random, content: bytes, ending: str) -> bytes:
    kind, place = generator.randrange(7), generator.randrange(max(len(content), 1))
    if kind == 0:
        return content[:place]
    if kind == 1:
        return content[:place] + bytes([generator.randrange(256)]) + content[place + 1 :]
    if kind == 2:
        return b"\xef\xbb\xbf" + content
    if kind == 3:
        return content + (b'{"body": "b \\ud800", "label": 1}\n' if "json" in ending else b'"x,1\n')
    if kind == 4:
        return content.replace(b"a", b"\xe9", 1)
    if kind == 5:
        return b"\x00" * generator.randint(0, 9)
    return content.decode("utf-8", "replace").encode("utf-16")


def own_file(generator: random.Random, folder: Path) -> None:
    datasets.config.HF_DATASETS_CACHE = folder / "cache"
    kind, ending = (
        generator.choice(["names", "ids", "numbers"]),
        generator.choice([".csv", ".csv", ".jsonl", ".jsonl.gz"]),
    )
    pair = generator.random() < 0.3
    options = {"traversal": "similarity" if pair else "classification"} | (
        {"regression": True} if kind == "numbers" else {}
    )
    columns = {"text_a": "body", "text_b": "other"} if pair else {"text": "body"}
    rows, wanted, fault = make_rows(generator, kind), "exact", "none"
    sound = [dict(row) for row in rows]
    if generator.random() < 0.6:
        fault, rows, wanted = spoil_rows(generator, rows, kind, ending)
    content = written(rows, ending)
    if fault == "none" and generator.random() < 0.5:
        content, wanted, fault = spoil_bytes(generator, content, ending), "either", "bytes"
    path = folder / (generator.choice(NAMES) + ending)
    path.write_bytes(content)
    split = generator.choice(["train", "validation"])
    files = {"train": path}
    if split == "validation":
        files = {"train": folder / f"sound{ending}", "validation": path}
        files["train"].write_bytes(written(sound, ending))
    found = {}

    def read() -> None:
        task, splits = load_files(files, {**columns, "label": "label"}, **options)
        collator = TraversalCollator(
            tools()[0],
            task.traversal,
            task.columns,
            max_length=64,
            num_labels=len(task.label_names) or None,
            regression=task.regression,
            hidden_label=None if task.regression else -1,
        )
        collator.check(splits[split])
        found.update(task=task, rows=list(splits[split]), batch=collator(list(splits[split])))

    message = refusal(read)
    what = f"{path.name} with a fault ({fault})"
    if message is not None:
        has_bad_name = "::" in path.name or ("[" in path.name and path.name.endswith(".gz"))
        check(wanted != "exact" or has_bad_name, f"{what} was refused: {message}")
        return
    check(wanted != "refused", f"{what} was read, with the classes {found['task'].label_names}")
    names = found["task"].label_names
    check(all(name.strip() for name in names), f"{what} has the classes {names}")
    if wanted == "exact":
        labels = [row["label"] for row in found["rows"]]
        labels = [names[label] for label in labels] if kind == "names" else labels
        expected = [row["label"] for row in sound]
        close = len(labels) == len(expected) and all(
            a == b or (kind == "numbers" and abs(a - b) < 1e-5) for a, b in zip(labels, expected, strict=True)
        )
        check(close, f"{what}: labels {labels}, not {expected}")
        check([row["body"] for row in found["rows"]] == [row["body"] for row in sound], f"{what}: other texts")


def paper_task(generator: random.Random, folder: Path) -> None:
    """A row of a test file is never left out, whatever its label; elsewhere those without a label are."""
    datasets.config.HF_DATASETS_CACHE = folder / "cache"
    labels = {
        split: [generator.choice([-1, 0, 1, 2]) for _ in range(8)] + [0, 1, 2]
        for split in ("train", "validation", "test")
    }
    for split, values in labels.items():
        rows = [{"premise": f"a {n}", "hypothesis": f"b {n}", "label": value} for n, value in enumerate(values)]
        (folder / f"{split}.jsonl").write_bytes(written(rows, ".jsonl"))
    splits = load_task("snli", folder)
    for split, values in labels.items():
        kept = [n for n, value in enumerate(values) if value != -1 or split == "test"]
        found = [row["premise"] for row in splits[split]]
        check(found == [f"a {n}" for n in kept], f"{split} of the labels {values} has the rows {found}")


# ---- Folders of models


CONFIG_VALUES = (None, -1, 0, 1.5, "x", "", [], {}, True, 10**12, "../../etc", ["x"], {"0": 1}, "owner/kernel")


def save_model(generator: random.Random, folder: Path) -> None:
    tokenizer = tools()[0]
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16}
    fields = {"vocab_size": len(tokenizer), "start_token_id": tokenizer.start_token_id}
    fields |= {"delimiter_token_id": tokenizer.delimiter_token_id, "extract_token_id": tokenizer.extract_token_id}
    if generator.random() < 0.5:
        model = modeling_gpt1.GPT1ForCausalLM(modeling_gpt1.GPT1Config(**fields, **size))
    else:
        config = modeling_gpt1.GPT1Config(
            **fields, **size, traversal=generator.choice(["entailment", "multiple_choice"])
        )
        model = modeling_gpt1.GPT1DoubleHeadsModel(config)
    randomise(model, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def spoil_folder(generator: random.Random, folder: Path) -> str:
    name = generator.choice(["config.json"] * 4 + ["model.safetensors", "tokenizer.json", "tokenizer_config.json"])
    path, kind = folder / name, generator.choice(["field"] * 4 + ["cut", "byte", "delete", "empty", "folder", "json"])
    content = path.read_bytes()
    if kind == "field" and name.endswith(".json"):
        fields = json.loads(content)
        added = [
            "attn_implementation",
            "_attn_implementation",
            "num_labels",
            "layer_types",
            "id2label",
            "quantization_config",
            "dtype",
            "auto_map",
        ]
        key = generator.choice([*fields, *added] if name == "config.json" else [*fields])
        value = generator.choice(CONFIG_VALUES) if key != "num_hidden_layers" else generator.choice([3, 0, "x", None])
        path.write_text(json.dumps({**fields, key: value}))
        return f"{key}={value!r} in {name}"
    if kind == "cut":
        path.write_bytes(content[: generator.randrange(len(content))])
    elif kind == "byte":
        place = generator.randrange(min(len(content), 2000))
        path.write_bytes(content[:place] + bytes([generator.randrange(256)]) + content[place + 1 :])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "json":
        path.write_text(generator.choice(["[]", "null", "7", '"x"', "{}", "[" * 100_000, '{"model_type": ["gpt1"]}']))
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()
    return f"{kind} of {name}"


def open_for_page(name: str, what: str):
    """As the playground opens a model that its host lists; what fails is a sentence on the page."""
    start = time.monotonic()
    try:
        return page_module.find_model({"listed": name}, "listed")
    except Exception as error:
        sentence = page_module.show_failure(error)
        check(len(sentence.split()) > 3 and name not in sentence, f"{what}: the page says {sentence!r}")
    finally:
        seconds = time.monotonic() - start
        check(seconds < 30, f"{what} takes {seconds:.0f} s")
    return None


def model_folder(generator: random.Random, folder: Path) -> None:
    save_model(generator, folder)
    what = spoil_folder(generator, folder)
    opened = open_for_page(str(folder), what)
    if opened is not None:
        read_on_page(generator, opened)


def read_on_page(generator: random.Random, opened) -> None:
    boxes = {name: wild_text(generator) for name in ("first", "second", "question")}
    boxes["answers"] = "\n".join(wild_text(generator).replace("\n", " ") for _ in range(3))
    try:
        read(opened, boxes)
    except PlaygroundError:
        pass
    except Exception as error:
        raise Wrong(f"{boxes}: {type(error).__name__} instead of a PlaygroundError: {str(error)[:200]}") from error


def page(generator: random.Random, folder: Path) -> None:
    save_model(generator, folder)
    opened = open_for_page(str(folder), "A sound folder")
    check(opened is not None, "A sound folder was not opened")
    for _ in range(5):
        read_on_page(generator, opened)


def foreign_code(generator: random.Random, folder: Path) -> None:
    """A configuration that names code somewhere else is refused, and nothing is fetched."""
    save_model(generator, folder)
    config = json.loads((folder / "config.json").read_text())
    key = generator.choice(["attn_implementation", "_attn_implementation"])
    value = generator.choice(
        ["owner/kernel", "owner/kernel@v1:attention", "paged|owner/kernel", "hf.co/owner/kernel:x"]
    )
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    hub = importlib.import_module("campaign.answers").HUB
    num_requests = len(hub.requests) if hub else 0
    try:
        message = refusal(lambda: modeling_gpt1.GPT1ForCausalLM.from_pretrained(folder))
    finally:
        asked = [request for request in (hub.requests[num_requests:] if hub else []) if "owner" in request]
        check(not asked, f"{key}={value!r} asks for {asked}")
    check(message is not None or key[0] == "_", f"{key}={value!r} was taken without a word")


# ---- Corpora


def corpus(generator: random.Random, folder: Path) -> None:
    """Each document once, whatever links and patterns lead to it."""
    root, expected = folder / "corpus", []
    folders = [root, root / "a", root / "a" / "b", root / "c"]
    for place in folders:
        place.mkdir(parents=True, exist_ok=True)
    for number in range(generator.randint(1, 6)):
        place, content = generator.choice(folders), f"text {number} " + " ".join(generator.choices(WORDS, k=5))
        content += generator.choice(["", "\n", "\n\nmore\n", "\r\nmore"])
        (place / f"{number}.txt").write_bytes(content.encode())
        expected.append(content)
    for number in range(generator.randint(0, 3)):
        target = generator.choice([*folders, root / "missing", *root.rglob("*.txt")])
        link = generator.choice(folders) / (f"link{number}" + (".txt" if target.suffix else ""))
        link.symlink_to(target if generator.random() < 0.5 else os.path.relpath(target, link.parent))
    source = generator.choice(
        [str(root), f"{root}/**/*.txt", f"{root}/**", [f"{root}/**/*.txt", str(root)], [str(root)] * 2]
    )
    found: list[str] = []

    def read() -> None:
        for row in load_documents(source):
            if row["starts_document"]:
                found.append("")
            found[-1] += row["text"]

    message = refusal(read)
    check(message is None or "missing" in message, f"{source} was refused: {message}")
    wanted = Counter(content.replace("\r\n", "\n") for content in expected)
    check(message is not None or Counter(found) == wanted, f"{source} has {len(found)} documents, not {len(expected)}")


def broken_corpus(generator: random.Random, folder: Path) -> None:
    ending = generator.choice([".jsonl", ".csv", ".txt.gz", ".jsonl.bz2", ".parquet", ".txt", ".json"])
    rows = [{"text": " ".join(generator.choices(WORDS, k=5))} for _ in range(3)]
    if generator.random() < 0.3:
        rows[1]["text"] = generator.choice([None, 7, ["x"], {"a": 1}])
    content = written(rows, ".csv" if ending == ".csv" else ".jsonl")
    content = gzip.compress(content) if ending.endswith(".gz") else content
    path = folder / ("corpus" + ending)
    path.write_bytes(spoil_bytes(generator, content, ending))
    refusal(lambda: list(load_documents(str(path))))


def stale(generator: random.Random, folder: Path) -> None:
    """Blocks are those of the file as it is, not of one that had its size and time."""
    path, blocks = folder / "corpus.txt", []
    texts = [" ".join(generator.choices(["abc", "def", "ghi", "jkl"], k=30)) for _ in range(2)]
    for text in texts:
        path.write_text(text)
        os.utime(path, (10**9, 10**9))
        loaded = load_blocks(str(path), tools()[0], 16, cache_dir=folder / "cache")
        blocks.append([token for row in loaded["input_ids"] for token in row])
    for text, found in zip(texts, blocks, strict=True):
        expected = tools()[0](text, add_special_tokens=False)["input_ids"]
        check(found == expected, f"The blocks of {text!r} are of another text")


def unreadable_weights(generator: random.Random, folder: Path) -> None:
    """Cut weights are refused by the model itself."""
    save_model(generator, folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: generator.randrange(path.stat().st_size)])
    try:
        check_refused("A cut file of weights", lambda: modeling_gpt1.GPT1ForCausalLM.from_pretrained(folder))
    except Wrong as error:  # safetensors has a class of its own
        check("SafetensorError" in str(error), str(error))


CASES = {
    own_file: 8,
    paper_task: 1,
    model_folder: 6,
    page: 1,
    foreign_code: 1,
    corpus: 4,
    broken_corpus: 3,
    stale: 1,
    unreadable_weights: 0.5,
}
