"""Names of the files in a model's folder, and functions that read them."""

import json
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

Format = Literal["openai", "openai-gpt", "gpt1"]

PARAMS_NAMES = tuple(f"params_{number}.npy" for number in range(10))
SHAPES_NAME = "params_shapes.json"
ENCODER_NAME = "encoder_bpe_40000.json"
MERGES_NAME = "vocab_40000.bpe"
TOKENIZER_NAMES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")
RELEASE_NAMES = (*PARAMS_NAMES, SHAPES_NAME, ENCODER_NAME, MERGES_NAME)
MANIFEST_NAME = "conversion_manifest.json"


def read_json(path: Path, kind: type) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}). Fetch it again.") from error
    if not isinstance(content, kind):
        raise ValueError(f"{path} must hold a JSON {'object' if kind is dict else 'list'}. Fetch it again.")
    return content


def load_tensors(model_class: type[PreTrainedModel], config, tensors: dict[str, torch.Tensor]) -> PreTrainedModel:
    """A model of exactly these tensors, converted as `from_pretrained` converts those of a file."""
    model, report = model_class.from_pretrained(
        None, config=config, state_dict=tensors, dtype=next(iter(tensors.values())).dtype, output_loading_info=True
    )
    wrong = {name: sorted(keys) for name, keys in report.items() if keys}
    if wrong:
        raise RuntimeError(f"The tensors do not match {model_class.__name__}: {wrong}.")
    return model
