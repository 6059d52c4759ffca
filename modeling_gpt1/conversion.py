"""OpenAI's release ⇄ transformers' openai-gpt ⇄ gpt1: whole folders, every number to the bit.

The release is the folder `model` of https://github.com/openai/finetune-transformer-lm: one flat array in ten files,
its shapes and the BPE. Its order is that in which the release's `train.py` creates the variables; kernels of
convolutions have a leading dimension of 1. How weights become each other is defined once, in `DECODER_CONVERSION` of
`layouts_gpt1.py`: `from_pretrained` applies it, and this module reverses it.
"""

import hashlib
import json
import math
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import (
    GenerationConfig,
    OpenAIGPTConfig,
    OpenAIGPTDoubleHeadsModel,
    OpenAIGPTForSequenceClassification,
    OpenAIGPTLMHeadModel,
    OpenAIGPTModel,
    PreTrainedModel,
)
from transformers.core_model_loading import revert_weight_conversion
from transformers.utils import (
    CONFIG_NAME,
    GENERATION_CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
)

from tokenization import GPT1Tokenizer, control_tokens
from tokenization.tokenization_gpt1 import END_OF_WORD

from .configuration_gpt1 import GPT1Config, has_choices
from .layouts_gpt1 import DECODER_CONVERSION
from .modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
    GPT1Model,
    GPT1PreTrainedModel,
)
from .storage.writing import whole_or_absent

PARAMS_NAMES = tuple(f"params_{number}.npy" for number in range(10))
SHAPES_NAME = "params_shapes.json"
ENCODER_NAME = "encoder_bpe_40000.json"
MERGES_NAME = "vocab_40000.bpe"
RELEASE_NAMES = (*PARAMS_NAMES, SHAPES_NAME, ENCODER_NAME, MERGES_NAME)
TOKENIZER_NAMES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")
MANIFEST_NAME = "conversion_manifest.json"
MASK_BUFFER = re.compile(r"\.attn\.bias$")  # in openai-gpt files of old releases
# What a saved model's folder may have, so that a new model may replace it.
SAVED = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|conversion_manifest)"
    r"\.json|merges\.txt|chat_template\.jinja|README\.md|\.gitattributes"
    r"|(attention|batch|checks|configuration|decoding|layouts|loss|modeling|packing|plan|unpadding|versions)_gpt1"
    r"(_lstm)?\.py"
    r"|(model|pytorch_model)(-\d{5}-of-\d{5})?\.(safetensors|bin)(\.index\.json)?"
)
# By format and architecture: the class of ours that holds the same weights.
CLASSES: dict[str, dict[str, type[GPT1PreTrainedModel]]] = {
    "gpt1": {
        model_class.__name__: model_class
        for model_class in (
            GPT1Model,
            GPT1ForCausalLM,
            GPT1DoubleHeadsModel,
            GPT1ForSequenceClassification,
            GPT1ForMultipleChoice,
        )
    },
    "openai-gpt": {
        "OpenAIGPTModel": GPT1Model,
        "OpenAIGPTLMHeadModel": GPT1ForCausalLM,
        "OpenAIGPTDoubleHeadsModel": GPT1DoubleHeadsModel,
        "OpenAIGPTForSequenceClassification": GPT1ForSequenceClassification,
    },
}
ACTIVATIONS = {"gelu_pytorch_tanh": "gelu", "gelu_new": "gelu", "relu": "relu", "silu": "silu"}
# Fields of the same name and meaning; the second line has our own, which openai-gpt keeps for the conversion back.
SHARED_FIELDS = (
    *("vocab_size", "embd_pdrop", "resid_pdrop", "attn_pdrop", "layer_norm_epsilon", "initializer_range"),
    *("tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id", "problem_type", "id2label", "label2id"),
)
OWN_FIELDS = ("traversal", "columns", "lm_coef", "start_token_id", "delimiter_token_id", "extract_token_id")
WITHOUT_HEAD = (
    "To leave out what openai-gpt does not have, open it with GPT1Model or GPT1ForCausalLM, save that and convert the "
    "result."
)

Format = Literal["openai", "openai-gpt", "gpt1"]


def convert_checkpoint(
    source: str | os.PathLike,
    output_dir: str | os.PathLike,
    target: Literal["gpt1", "openai-gpt"] | None = None,
    num_attention_heads: int = 12,
    overwrite: bool = False,
) -> Path:
    """Converts a model folder; its files tell the format.

    Args:
        source (path): OpenAI's release, or a folder of transformers' openai-gpt or of gpt1.
        output_dir (path): the new folder. It appears whole, by one rename, or not at all. If it is a link, the link
            stays and its target is replaced.
        target (`str`, *optional*): `"gpt1"` or `"openai-gpt"`. Default: gpt1, and openai-gpt for a folder of gpt1.
        num_attention_heads (`int`, defaults to 12): heads of OpenAI's release, whose files do not tell the number.
        overwrite (`bool`): replace the model in `output_dir`, if the folder has nothing else in it.

    Returns:
        `Path` of the manifest in `output_dir`, which has name, shape, dtype and SHA-256 of every tensor (see
        [`describe_tensors`]) and the SHA-256 of the source's files.

    Raises:
        ValueError: a file of the source is missing, damaged or does not belong to the others; the target's classes
            have no place for a weight; `output_dir` is not empty, or cannot be replaced.
    """
    source, output_dir = Path(source), Path(output_dir)
    given = find_format(source)
    target = target or ("openai-gpt" if given == "gpt1" else "gpt1")
    if target not in ("gpt1", "openai-gpt") or target == given:
        choices = " or ".join(repr(name) for name in ("gpt1", "openai-gpt") if name != given)
        raise ValueError(
            f"{source} is in the format {given!r} and cannot be converted to {target!r}. Choose {choices}."
        )
    check_output(source, output_dir, overwrite)
    if given == "openai":
        model, tokenizer = read_release(source, num_attention_heads)
        files = [source / name for name in RELEASE_NAMES]
    else:
        model, tokenizer = read_folder(source, given)
        names = (CONFIG_NAME, *TOKENIZER_NAMES, SAFE_WEIGHTS_INDEX_NAME)
        files = [*(source / name for name in names if (source / name).is_file()), *find_weights(source)]
    if target == "openai-gpt":
        model = to_openai_gpt(model)
    with whole_or_absent(output_dir.resolve()) as staging:
        model.save_pretrained(staging)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
        manifest = {
            "format": target,
            "architecture": type(model).__name__,
            "source": {"format": given, "files": {path.name: sha256(path.read_bytes()) for path in files}},
            "tensors": describe_tensors(staging),
        }
        (staging / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return output_dir / MANIFEST_NAME


def find_format(source: Path) -> Format:
    """The format of a model folder.

    Raises:
        ValueError: there is no such folder, or its format is unknown.
    """
    if not source.is_dir():
        raise ValueError(
            f"{source} is not a folder. Give a folder on this machine; `hf download openai-community/openai-gpt "
            "--local-dir …` fetches one from the hub."
        )
    if not (source / CONFIG_NAME).is_file():
        if any((source / name).is_file() for name in (SHAPES_NAME, *PARAMS_NAMES)):
            return "openai"
        raise ValueError(
            f"{source} has neither {CONFIG_NAME} nor {SHAPES_NAME}. Give OpenAI's release (the folder `model` of "
            "finetune-transformer-lm) or a folder that `save_pretrained` wrote."
        )
    model_type = read_json(source / CONFIG_NAME).get("model_type")
    if model_type not in CLASSES:
        raise ValueError(
            f"{source / CONFIG_NAME}: the `model_type` is {model_type!r}, but only {' and '.join(map(repr, CLASSES))} "
            "can be converted."
        )
    return model_type


def check_output(source: Path, output_dir: Path, overwrite: bool) -> None:
    """Checks before any work is done that the new folder can be made.

    Raises:
        ValueError: `output_dir` cannot be moved, is a file, or has something in it that may not be replaced.
    """
    place = output_dir.resolve()
    if place in (source.resolve(), Path.cwd()) or os.path.ismount(place) or (place.exists() and not place.is_dir()):
        raise ValueError(
            f"{output_dir} is the source, the current folder, the root of a disk or a file, and cannot be replaced. "
            f"Pass another folder, such as {output_dir.parent / 'converted'}."
        )
    names = {entry.name for entry in place.iterdir()} if place.is_dir() else set()
    if names and not overwrite:
        raise ValueError(f"{output_dir} is not empty. Pass another output folder, or `overwrite=True` to replace it.")
    others = sorted(name for name in names if not SAVED.fullmatch(name))
    if others or (names and CONFIG_NAME not in names):
        raise ValueError(
            f"{output_dir} is not the folder of a model alone ({', '.join(others) or f'it has no {CONFIG_NAME}'}), so "
            "it was not replaced. Pass another output folder."
        )


def sha256(content) -> str:
    return hashlib.sha256(content).hexdigest()


def describe_tensors(folder: Path) -> list[dict[str, Any]]:
    """Name, shape, dtype and SHA-256 of every tensor in the safetensors files of `folder`, by name.

    The hash is that of the tensor's bytes in the file: row-major, little-endian.
    """
    described = []
    for path in folder.glob("*.safetensors"):
        for name, tensor in load_file(path).items():
            facts = {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
            described.append({**facts, "sha256": sha256(tensor.reshape(-1).view(torch.uint8).numpy())})
    return sorted(described, key=lambda tensor: tensor["name"])


def read_json(path: Path, kind: type = dict) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}). Fetch it again.") from error
    if not isinstance(content, kind):
        raise ValueError(f"{path} must hold a JSON {'object' if kind is dict else 'list'}. Fetch it again.")
    return content


def load_tensors(model_class: type[PreTrainedModel], config, tensors: dict[str, torch.Tensor]) -> PreTrainedModel:
    """A model of exactly these tensors, converted as `from_pretrained` converts those of a file.

    Raises:
        ValueError: the tensors have several dtypes, or are not those that the configuration asks for.
    """
    tensors = {name: tensor for name, tensor in tensors.items() if not MASK_BUFFER.search(name)}
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) != 1:
        raise ValueError(
            f"The weights have {len(dtypes)} dtypes ({', '.join(sorted(map(str, dtypes)))}), but all must have the "
            "same. Save the model again with one `dtype`."
        )
    model, report = model_class.from_pretrained(
        None,
        config=config,
        state_dict=tensors,
        dtype=dtypes.pop(),
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    wrong = {kind.removesuffix("_keys"): sorted(keys) for kind, keys in report.items() if keys}
    if wrong:
        raise ValueError(
            f"The weights do not match {model_class.__name__} and {CONFIG_NAME}: {wrong}. Give files of one model."
        )
    return model


# ---- Folders that `save_pretrained` of gpt1 or of transformers' openai-gpt wrote


def read_folder(folder: Path, given: Format) -> tuple[GPT1PreTrainedModel, GPT1Tokenizer | None]:
    """Reads the model of a folder that `save_pretrained` wrote, and its tokenizer if it has one.

    Raises:
        ValueError: see [`convert_checkpoint`].
    """
    architecture = (read_json(folder / CONFIG_NAME).get("architectures") or [None])[0]
    if architecture not in CLASSES[given]:
        raise ValueError(
            f"{folder / CONFIG_NAME}: `architectures` names {architecture}, but one of {', '.join(CLASSES[given])} is "
            "needed."
        )
    tensors = {}
    for path in find_weights(folder):
        tensors |= read_tensors(path)
    # In the dtype of the weights, whatever the configuration says: no number changes.
    model = load_tensors(CLASSES[given][architecture], GPT1Config.from_pretrained(folder), tensors)
    if model.can_generate() and (folder / GENERATION_CONFIG_NAME).is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    return model, read_tokenizer(folder, model.config)


def find_weights(folder: Path) -> list[Path]:
    """The files that hold the weights, as `from_pretrained` chooses them."""
    for name, index in ((SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME), (WEIGHTS_NAME, WEIGHTS_INDEX_NAME)):
        if (folder / name).is_file():
            return [folder / name]
        if (folder / index).is_file():
            weight_map = read_json(folder / index).get("weight_map")
            shards = sorted(set(map(str, weight_map.values()))) if isinstance(weight_map, dict) else []
            if not shards or any(Path(shard).name != shard for shard in shards):
                raise ValueError(
                    f"{folder / index}: `weight_map` must name a file of this folder for each weight. Fetch it again."
                )
            missing = [shard for shard in shards if not (folder / shard).is_file()]
            if missing:
                raise ValueError(f"{folder} lacks {', '.join(missing)}, which {index} lists. Fetch them again.")
            return [folder / shard for shard in shards]
    raise ValueError(f"{folder} has no weights: {SAFE_WEIGHTS_NAME} is needed. Fetch it again.")


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, or of one of `torch.save`, from which no code is run."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can raise any error
        raise ValueError(
            f"{path} is not a complete file of weights, or contains more than weights ({type(error).__name__}). Fetch "
            "it again."
        ) from error


def read_tokenizer(folder: Path, config: GPT1Config) -> GPT1Tokenizer | None:
    whole, _, *parts = (folder / name for name in TOKENIZER_NAMES)
    if not whole.is_file() and not all(part.is_file() for part in parts):
        if not any(part.is_file() for part in parts):
            return None
        raise ValueError(f"{folder} has only one of {parts[0].name} and {parts[1].name}. Fetch both.")
    if whole.is_file():
        read_json(whole)
    tokenizer = GPT1Tokenizer.from_pretrained(folder)
    try:
        control_tokens.check_vocabulary(config, tokenizer)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    return tokenizer


# ---- OpenAI's release


def read_release(folder: Path, num_attention_heads: int = 12) -> tuple[GPT1ForCausalLM, GPT1Tokenizer]:
    """Model and tokenizer of OpenAI's release.

    Raises:
        ValueError: see [`convert_checkpoint`].
    """
    missing = [name for name in RELEASE_NAMES if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder} lacks {', '.join(missing)}. OpenAI's release has {len(RELEASE_NAMES)} files.")
    tokenizer = read_release_tokenizer(folder)
    config, shapes = read_shapes(folder / SHAPES_NAME, num_attention_heads)
    if config.vocab_size != len(tokenizer):
        raise ValueError(
            f"{folder / ENCODER_NAME} has {len(tokenizer)} tokens, but {folder / SHAPES_NAME} has embeddings for "
            f"{config.vocab_size} (its second shape; the first is that of the positions). Give the files of one "
            "release."
        )
    config.pad_token_id = tokenizer.pad_token_id
    tokenizer.model_max_length = config.max_position_embeddings
    numbers = np.concatenate([read_array(folder / name) for name in PARAMS_NAMES])
    sizes = [math.prod(shape) for shape in shapes.values()]
    if len(numbers) != sum(sizes):
        raise ValueError(
            f"The arrays in {folder} hold {len(numbers)} numbers, but {folder / SHAPES_NAME} needs {sum(sizes)}. "
            "Fetch them again."
        )
    parts = torch.from_numpy(numbers).split(sizes)
    tensors = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
    return load_tensors(GPT1ForCausalLM, config, tensors), tokenizer


def read_release_tokenizer(folder: Path) -> GPT1Tokenizer:
    tokenizer = GPT1Tokenizer.from_openai(folder / ENCODER_NAME, folder / MERGES_NAME)
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    known = {tokenizer.unk_token, *("".join(pair) for pair in model["merges"])}
    foreign = [token for token in model["vocab"] if token not in known and len(token.removesuffix(END_OF_WORD)) > 1]
    if foreign:
        raise ValueError(
            f"{folder / ENCODER_NAME} has {len(foreign)} tokens that no merge in {folder / MERGES_NAME} produces, the "
            f"first being {foreign[0]!r}. Give the files of one release."
        )
    return tokenizer


def read_shapes(path: Path, num_attention_heads: int) -> tuple[GPT1Config, dict[str, torch.Size]]:
    """The configuration, and names and shapes of openai-gpt's weights in the order of the release.

    Raises:
        ValueError: these are not the shapes of a GPT-1.
    """
    shapes = read_json(path, list)
    num_layers, rest = divmod(len(shapes) - 2, 12)
    if num_layers < 1 or rest:
        raise ValueError(
            f"{path} has {len(shapes)} shapes, but 2 for the embeddings and 12 for each layer are needed. Fetch the "
            "file again."
        )
    (positions, hidden_size), (vocab_size, _) = shapes[:2]
    if hidden_size % num_attention_heads != 0:
        raise ValueError(
            f"{path}: the width {hidden_size} is not divisible by `num_attention_heads` ({num_attention_heads}). Pass "
            "the number of heads that the model was trained with."
        )
    config = GPT1Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_attention_heads,
        max_position_embeddings=positions,
    )
    with torch.device("meta"):
        parameters = dict(OpenAIGPTLMHeadModel(openai_gpt_config(config)).transformer.named_parameters())
    names = ["positions_embed.weight", "tokens_embed.weight", *(name for name in parameters if name.startswith("h."))]
    for index, (name, given) in enumerate(zip(names, shapes, strict=True)):
        shape = list(parameters[name].shape)
        needed = [1, *shape] if index > 1 and len(shape) == 2 else shape
        if given != needed:
            raise ValueError(
                f"{path}: entry {index}, {name}, has the shape {given}, but {needed} is needed. Fetch the file again."
            )
    return config, {f"transformer.{name}": parameters[name].shape for name in names}


def read_array(path: Path) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a complete NumPy array ({error}). Fetch it again.") from error
    if array.ndim != 1 or array.dtype != np.float32:
        raise ValueError(
            f"{path} holds {array.dtype} {list(array.shape)}, but a one-dimensional float32 array is needed. Fetch it "
            "again."
        )
    return array


# ---- Models of transformers' openai-gpt


def to_openai_gpt(model: GPT1PreTrainedModel) -> PreTrainedModel:
    """The model of transformers' openai-gpt with the same weights.

    Args:
        model ([`GPT1PreTrainedModel`]): any model of this package; embeddings, norms and biases are shared, not
            copied.

    Raises:
        ValueError: openai-gpt lacks the model's class, block, activation, width or one of its weights.
    """
    openai_class = find_openai_gpt_class(model)
    config = openai_gpt_config(model.config)
    converted = load_tensors(openai_class, config, openai_gpt_tensors(model, openai_class))
    if converted.can_generate() and model.can_generate():
        converted.generation_config = model.generation_config
    return converted


def find_openai_gpt_class(model: GPT1PreTrainedModel) -> type[PreTrainedModel]:
    has_lm_head, traversal = hasattr(model, "lm_head"), model.config.traversal
    if not hasattr(model, "task_head"):
        return OpenAIGPTLMHeadModel if has_lm_head else OpenAIGPTModel
    if traversal == "similarity":
        raise ValueError(f"No class of openai-gpt scores both orders of a pair, as 'similarity' does. {WITHOUT_HEAD}")
    is_choice = has_choices(traversal)
    openai_class = OpenAIGPTDoubleHeadsModel if is_choice else OpenAIGPTForSequenceClassification
    if is_choice != has_lm_head and not model.config.tie_word_embeddings:
        fault = "needs a language-model head" if is_choice else "has no place for a language-model head"
        raise ValueError(
            f"{openai_class.__name__} {fault}, but that of this model is {'absent' if is_choice else 'its own'} and "
            f"not tied to the embeddings. {WITHOUT_HEAD}"
        )
    return openai_class


def openai_gpt_config(config: GPT1Config) -> OpenAIGPTConfig:
    for name, needed in (
        ("hidden_act", tuple(ACTIVATIONS)),
        ("intermediate_size", (4 * config.hidden_size,)),
        ("do_layer_norm_before", (False,)),
        ("sliding_window", (None,)),
    ):
        if getattr(config, name) not in needed:
            raise ValueError(
                f"`{name}` is {getattr(config, name)!r}, but openai-gpt has only {' or '.join(map(repr, needed))}."
            )
    kept = {name: getattr(config, name) for name in OWN_FIELDS if getattr(config, name) is not None}
    return OpenAIGPTConfig(
        n_positions=config.max_position_embeddings,
        n_embd=config.hidden_size,
        n_layer=config.num_hidden_layers,
        n_head=config.num_attention_heads,
        afn=ACTIVATIONS[config.hidden_act],
        summary_first_dropout=config.classifier_dropout,
        **{name: getattr(config, name) for name in SHARED_FIELDS},
        **kept,
    )


def openai_gpt_tensors(model: GPT1PreTrainedModel, openai_class: type[PreTrainedModel]) -> dict[str, torch.Tensor]:
    """The weights under openai-gpt's names and in its shapes."""
    weights = model.state_dict()
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    head = {name: weights.pop(name) for name in list(weights) if name.startswith("task_head.")}
    layout = SimpleNamespace(config=model.config, _weight_conversions=DECODER_CONVERSION)
    tensors = revert_weight_conversion(layout, weights)
    for name, weight in head.items():
        if openai_class is OpenAIGPTDoubleHeadsModel:
            tensors[name.replace("task_head.score", "multiple_choice_head.summary")] = weight
        elif name.endswith("weight"):
            tensors["score.weight"] = weight
        elif weight.any():
            raise ValueError(
                f"{name} is not 0, but the score layer of {openai_class.__name__} has no bias. {WITHOUT_HEAD}"
            )
    return tensors
