"""What a user without this package does with saved folders: run by `test_hub_code.py` in an environment of its own.

    python open_folders.py <folder with cases.json>

Opens every case with `trust_remote_code=True`, writes what it gives as safetensors, saves it again and opens that.
"""

import contextlib
import io
import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.dynamic_module_utils import get_class_from_dynamic_module

ABSENT = ("modeling_gpt1", "tokenization", "datasets", "accelerate", "evaluate")


def outputs_of(model, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        outputs = model(**batch)
    names = ("logits", "task_logits", "start_logits", "end_logits", "last_hidden_state")
    named = {name: outputs[name] for name in names if name in outputs}
    if model.can_generate():
        named["generated"] = model.generate(batch["input_ids"], do_sample=False, max_new_tokens=5)
    return named


def open_case(root: Path, case: dict) -> dict:
    batch = load_file(root / f"{case['name']}.batch.safetensors")
    again = root / "again" / case["name"]
    source = case["source"]
    gone = root / "gone" / case["name"]
    if Path(source).is_dir():  # of a temporary folder, which is gone when the model is saved
        source = shutil.copytree(source, gone)
    auto_class = getattr(transformers, case["opened_with"], None)
    if auto_class is None:  # no Auto class is for two heads
        auto_class = get_class_from_dynamic_module(f"modeling_gpt1.{case['opened_with']}", case["source"])
    config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=True)
    model = auto_class.from_pretrained(source, trust_remote_code=True).eval()
    shutil.rmtree(gone, ignore_errors=True)
    save_file(outputs_of(model, batch), root / f"{case['name']}.opened.safetensors")
    model.save_pretrained(again)
    reopened = auto_class.from_pretrained(again, trust_remote_code=True).eval()
    save_file(outputs_of(reopened, batch), root / f"{case['name']}.reopened.safetensors")
    return {
        "config": type(config).__name__,
        "model": type(model).__name__,
        "is_remote": type(model).__module__.startswith("transformers_modules."),
        "files": sorted(path.name for path in again.iterdir()),
    }


def read_texts(tokenizer, texts: list) -> dict:
    batch = tokenizer([text for text in texts if isinstance(text, str)], padding=True)
    return {
        "class": type(tokenizer).__name__,
        "input_ids": [tokenizer(*([text] if isinstance(text, str) else text))["input_ids"] for text in texts],
        "plain_ids": [
            tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts if isinstance(text, str)
        ],
        "decoded": tokenizer.batch_decode(batch["input_ids"], skip_special_tokens=True),
        "padded": [batch["input_ids"], batch["attention_mask"]],
        "control_ids": [getattr(tokenizer, f"{name}_token_id") for name in ("start", "delimiter", "extract")],
        "pad": [tokenizer.pad_token, tokenizer.pad_token_id, tokenizer.padding_side],
        "model_max_length": tokenizer.model_max_length,
    }


def refused_without_trust(folder: Path) -> str:
    try:
        transformers.AutoModel.from_pretrained(folder)
    except ValueError as error:
        return str(error)
    return ""


def printed_by(code: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(code, {})
    return output.getvalue()


def main(root: Path) -> None:
    cases = json.loads((root / "cases.json").read_text(encoding="utf-8"))
    report = {
        "importable": [name for name in ABSENT if find_spec(name) is not None],
        "opened": {case["name"]: open_case(root, case) for case in cases["models"]},
        "tokenizer": read_texts(transformers.AutoTokenizer.from_pretrained(root / "classifier"), cases["texts"]),
        "refusal": refused_without_trust(root / "classifier"),
        "printed": {folder: printed_by(code) for folder, code in cases["usages"].items()},
    }
    (root / "report.json").write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
