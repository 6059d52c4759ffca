"""OpenAI's release ⇄ transformers' openai-gpt ⇄ gpt1: whole folders, every number to the bit.

OpenAI's release is the folder `model` of https://github.com/openai/finetune-transformer-lm: the weights as one row of
numbers cut into ten files, their shapes, and the BPE. The order of the weights is the one in which `train.py` there
makes its variables; convolution kernels have a leading dimension of 1. What the weights of openai-gpt are in gpt1 is
said once, in `DECODER_CONVERSION` of `layouts_gpt1.py`, which `from_pretrained` follows too.

Shapes: P positions, V vocabulary, D hidden, F feed-forward.
"""

import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from zipfile import is_zipfile

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from transformers import (
    OpenAIGPTConfig,
    OpenAIGPTDoubleHeadsModel,
    OpenAIGPTForSequenceClassification,
    OpenAIGPTLMHeadModel,
    OpenAIGPTModel,
    PreTrainedModel,
)
from transformers.core_model_loading import revert_weight_conversion
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.utils import (
    CONFIG_NAME,
    GENERATION_CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
)

from tokenization.tokenization_gpt1 import END_OF_WORD, GPT1Tokenizer

from .configuration_gpt1 import DOUBLE_HEADS_NEEDED, OPENAI_GPT_MODEL_TYPE, GPT1Config
from .layouts_gpt1 import DECODER_CONVERSION
from .modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
    GPT1Model,
    GPT1PreTrainedModel,
)
from .training.checkpoint import flush, flush_folder
from .training.trainer import check_vocabulary

Format = Literal["openai", "openai-gpt", "gpt1"]

PARAMS_NAMES = tuple(f"params_{number}.npy" for number in range(10))
SHAPES_NAME = "params_shapes.json"
ENCODER_NAME = "encoder_bpe_40000.json"
MERGES_NAME = "vocab_40000.bpe"
TOKENIZER_NAMES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")
RELEASE_NAMES = (*PARAMS_NAMES, SHAPES_NAME, ENCODER_NAME, MERGES_NAME)
MANIFEST_NAME = "conversion_manifest.json"
# What `save_pretrained` of models and tokenizers, the hub and the converter write beside the code of a model.
WRITTEN_NAMES = frozenset(
    {
        *(CONFIG_NAME, GENERATION_CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_INDEX_NAME, MANIFEST_NAME),
        *(*TOKENIZER_NAMES, "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
        *("README.md", ".gitattributes"),
    }
)
WEIGHTS_FILE = re.compile(r"(model|pytorch_model)(-\d{5}-of-\d{5})?\.(safetensors|bin)")
MOST_NAMES = 5
NUM_PER_LAYER = 12  # arrays of the release
MASK_BUFFER = re.compile(r"attn\.bias$")  # in openai-gpt files of old releases

CLASSES: dict[str, dict[str, type[PreTrainedModel]]] = {
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
    # Opened as the class of ours that has the same weights.
    "openai-gpt": {
        "OpenAIGPTModel": GPT1Model,
        "OpenAIGPTLMHeadModel": GPT1ForCausalLM,
        "OpenAIGPTDoubleHeadsModel": GPT1DoubleHeadsModel,
        "OpenAIGPTForSequenceClassification": GPT1ForSequenceClassification,
    },
}
OPENAI_GPT_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu", "gelu_new": "gelu", "relu": "relu", "silu": "silu"}
# Fields of the same name and meaning.
SHARED_FIELDS = (
    "vocab_size",
    "embd_pdrop",
    "resid_pdrop",
    "attn_pdrop",
    "layer_norm_epsilon",
    "initializer_range",
    "tie_word_embeddings",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "problem_type",
    "id2label",
    "label2id",
)
# Fields of ours that a folder of openai-gpt keeps for the way back.
KEPT_FIELDS = ("traversal", "lm_coef", "start_token_id", "delimiter_token_id", "extract_token_id")
WITHOUT_HEAD = (
    "Open it with GPT1Model or GPT1ForCausalLM, save that and convert it, to leave out what openai-gpt does not have."
)


def convert_checkpoint(
    source: str | os.PathLike,
    output_dir: str | os.PathLike,
    target: Literal["gpt1", "openai-gpt"] | None = None,
    num_attention_heads: int = 12,
    overwrite: bool = False,
) -> Path:
    """Convert a folder; what kind it is, is seen from its files.

    Args:
        source (path): OpenAI's release, or a folder of transformers' openai-gpt or of gpt1.
        output_dir (path): the new folder. It appears whole, by one rename, or not at all; where it is a link, the
            link stays and the folder that it leads to is the new one.
        target (`str`, *optional*): `"gpt1"` or `"openai-gpt"`. Default: gpt1, and openai-gpt for a folder of gpt1.
        num_attention_heads (`int`, defaults to 12): heads of OpenAI's release, whose files do not say it.
        overwrite (`bool`): replace a model that `output_dir` holds, if it holds nothing else.

    Returns:
        `Path` of the manifest in `output_dir`, which has name, shape, dtype and SHA-256 of every tensor (see
        [`describe_tensors`]) and the SHA-256 of the source's files.

    Raises:
        ValueError: a file of the source is missing, damaged or does not belong to the others; the target's classes
            have no place for a weight; `output_dir` is not empty, or cannot be replaced. The text names the file.
    """
    source, output_dir = Path(source), Path(output_dir)
    given = find_format(source)
    if target is None:
        target = "openai-gpt" if given == "gpt1" else "gpt1"
    if target not in ("gpt1", "openai-gpt") or target == given:
        raise ValueError(
            f"{source} is a folder of the format {given!r} and cannot be converted to {target!r}. Choose "
            f"{' or '.join(repr(name) for name in ('gpt1', 'openai-gpt') if name != given)}."
        )
    check_output(source, output_dir, overwrite)
    if given == "openai":
        model, tokenizer = read_release(source, num_attention_heads)
    else:
        model, tokenizer = read_folder(source, given)
    if target == "openai-gpt":
        model = to_openai_gpt(model, source)
    with whole_or_absent(output_dir.resolve()) as staging:
        model.save_pretrained(staging)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
        manifest = {
            "format": target,
            "architecture": type(model).__name__,
            "source": {"format": given, "files": hash_files(files_of(source, given))},
            "tensors": describe_tensors(staging),
        }
        (staging / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return output_dir / MANIFEST_NAME


def find_format(source: Path) -> Format:
    """What kind of model folder this is.

    Raises:
        ValueError: none that is known.
    """
    if not source.is_dir():
        raise ValueError(
            f"{source} is no folder. Give a folder on this machine; `hf download openai-community/openai-gpt "
            "--local-dir …` fetches one from the hub."
        )
    if not (source / CONFIG_NAME).is_file():
        if any((source / name).is_file() for name in (SHAPES_NAME, *PARAMS_NAMES)):
            return "openai"
        raise ValueError(
            f"{source} has neither {CONFIG_NAME} nor {SHAPES_NAME}. Give OpenAI's release (the folder `model` of "
            "finetune-transformer-lm) or a folder that `save_pretrained` wrote."
        )
    model_type = read_json(source / CONFIG_NAME, dict).get("model_type")
    if model_type not in CLASSES:
        raise ValueError(
            f"{source / CONFIG_NAME}: the `model_type` is {model_type!r}, but only {GPT1Config.model_type!r} and "
            f"{OPENAI_GPT_MODEL_TYPE!r} can be converted."
        )
    return model_type


def read_json(path: Path, kind: type) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}). Fetch it again.") from error
    if not isinstance(content, kind):
        raise ValueError(f"{path} must hold a JSON {'object' if kind is dict else 'list'}. Fetch it again.")
    return content


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
    shapes = read_shapes(folder / SHAPES_NAME)
    config = release_config(shapes, num_attention_heads, folder / SHAPES_NAME)
    if config.vocab_size != len(tokenizer):
        raise ValueError(
            f"{folder / ENCODER_NAME} has {len(tokenizer)} tokens, but {folder / SHAPES_NAME} embeddings of "
            f"{config.vocab_size} (its second shape; the first is of the positions). Give the files of one release."
        )
    config.pad_token_id = tokenizer.pad_token_id
    tokenizer.model_max_length = config.max_position_embeddings
    parameters = FlatParameters(folder, sum(math.prod(shape) for shape in shapes.values()))
    tensors = {f"transformer.{name}": parameters.take(shape) for name, shape in shapes.items()}
    return load_tensors(GPT1ForCausalLM, config, tensors), tokenizer


def read_release_tokenizer(folder: Path) -> GPT1Tokenizer:
    tokenizer = GPT1Tokenizer.from_openai(folder / ENCODER_NAME, folder / MERGES_NAME)
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    merged = {"".join(pair) for pair in model["merges"]}
    foreign = [
        token
        for token in model["vocab"]
        if token not in merged and len(token.removesuffix(END_OF_WORD)) > 1 and token != tokenizer.unk_token
    ]
    if foreign:
        raise ValueError(
            f"{folder / ENCODER_NAME} has {len(foreign)} tokens that no merge of {folder / MERGES_NAME} makes, the "
            f"first {foreign[0]!r}. Give the files of one release."
        )
    return tokenizer


def layer_shapes(hidden: int, inner: int) -> dict[str, tuple[int, ...]]:
    """Names in openai-gpt and shapes of one layer's arrays, in the order of the release."""
    return {
        "attn.c_attn.weight": (1, hidden, 3 * hidden),
        "attn.c_attn.bias": (3 * hidden,),
        "attn.c_proj.weight": (1, hidden, hidden),
        "attn.c_proj.bias": (hidden,),
        "ln_1.weight": (hidden,),
        "ln_1.bias": (hidden,),
        "mlp.c_fc.weight": (1, hidden, inner),
        "mlp.c_fc.bias": (inner,),
        "mlp.c_proj.weight": (1, inner, hidden),
        "mlp.c_proj.bias": (hidden,),
        "ln_2.weight": (hidden,),
        "ln_2.bias": (hidden,),
    }


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Names in openai-gpt and shapes of all arrays, in the order of the release.

    Raises:
        ValueError: not the shapes of a GPT-1.
    """
    shapes = read_json(path, list)
    is_shape = [
        isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape) and len(shape) > 0
        for shape in shapes
    ]
    if not all(is_shape):
        raise ValueError(
            f"{path}: entry {is_shape.index(False)} is {shapes[is_shape.index(False)]!r}, but a shape is needed, a "
            "list of positive sizes. Fetch the file again."
        )
    num_layers, rest = divmod(len(shapes) - 2, NUM_PER_LAYER)
    if num_layers < 1 or rest != 0:
        raise ValueError(
            f"{path} has {len(shapes)} shapes, but 2 for the embeddings and {NUM_PER_LAYER} for each layer are "
            "needed. Fetch the file again."
        )
    hidden, inner = shapes[0][-1], shapes[2 + list(layer_shapes(1, 1)).index("mlp.c_fc.weight")][-1]
    needed = {"positions_embed.weight": (shapes[0][0], hidden), "tokens_embed.weight": (shapes[1][0], hidden)}
    for layer in range(num_layers):
        needed |= {f"h.{layer}.{name}": shape for name, shape in layer_shapes(hidden, inner).items()}
    for index, (name, shape) in enumerate(needed.items()):
        if tuple(shapes[index]) != shape:
            raise ValueError(
                f"{path}: entry {index}, {name}, has the shape {shapes[index]}, but {list(shape)} is needed (width "
                f"{hidden} from entry 0, {inner} from the feed-forward layer). Fetch the file again."
            )
    return needed


def release_config(shapes: dict[str, tuple[int, ...]], num_attention_heads: int, path: Path) -> GPT1Config:
    (max_position_embeddings, hidden_size) = shapes["positions_embed.weight"]
    if num_attention_heads < 1 or hidden_size % num_attention_heads != 0:
        raise ValueError(
            f"{path}: the width {hidden_size} is not divisible by `num_attention_heads` ({num_attention_heads}). Pass "
            "the number of heads that the model was trained with."
        )
    return GPT1Config(
        vocab_size=shapes["tokens_embed.weight"][0],
        hidden_size=hidden_size,
        num_hidden_layers=(len(shapes) - 2) // NUM_PER_LAYER,
        num_attention_heads=num_attention_heads,
        intermediate_size=shapes["h.0.mlp.c_fc.weight"][-1],
        max_position_embeddings=max_position_embeddings,
    )


class FlatParameters:
    """The numbers of `params_0.npy` … `params_9.npy` one after the other, read from the disk as they are taken.

    Args:
        folder (`Path`): where the ten files are.
        needed (`int`): how many numbers they must hold together.

    Raises:
        ValueError: a file is no row of float32; another number of numbers.
    """

    def __init__(self, folder: Path, needed: int):
        self._arrays = [read_array(folder / name) for name in PARAMS_NAMES]
        self._position = 0
        sizes = [len(array) for array in self._arrays]
        if sum(sizes) != needed:
            listed = ", ".join(f"{name} {size}" for name, size in zip(PARAMS_NAMES, sizes, strict=True))
            raise ValueError(
                f"The arrays in {folder} hold {sum(sizes)} numbers, but {folder / SHAPES_NAME} needs {needed}: "
                f"{listed}. Fetch them again."
            )

    def take(self, shape: tuple[int, ...]) -> torch.Tensor:
        """A copy of the next numbers; the kernels of convolutions, `[1, in, out]`, lose their leading dimension."""
        start, stop = self._position, self._position + math.prod(shape)
        self._position = stop
        parts, offset = [], 0
        for array in self._arrays:
            parts.append(array[max(start - offset, 0) : max(stop - offset, 0)])
            offset += len(array)
        taken = torch.from_numpy(np.concatenate(parts).reshape(shape))
        return taken[0] if taken.dim() == 3 else taken


def read_array(path: Path) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is no whole NumPy array ({error}). Fetch it again.") from error
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != np.float32:
        kind = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else "an archive"
        raise ValueError(f"{path} holds {kind}, but one row of float32 is needed. Fetch it again.")
    return array


def load_tensors(model_class: type[PreTrainedModel], config, tensors: dict[str, torch.Tensor]) -> PreTrainedModel:
    """A model of exactly these tensors, converted as `from_pretrained` converts those of a file."""
    model, report = model_class.from_pretrained(
        None, config=config, state_dict=tensors, dtype=next(iter(tensors.values())).dtype, output_loading_info=True
    )
    wrong = {name: sorted(keys) for name, keys in report.items() if keys}
    if wrong:
        raise RuntimeError(f"The tensors do not fill a {model_class.__name__}: {wrong}.")
    return model


# ---- Folders of transformers


def read_folder(folder: Path, given: Format) -> tuple[GPT1PreTrainedModel, GPT1Tokenizer | None]:
    """Model of a folder that `save_pretrained` wrote, and its tokenizer if it has one.

    Raises:
        ValueError: see [`convert_checkpoint`].
    """
    config_path = folder / CONFIG_NAME
    config = read_json(config_path, dict)
    architecture = (config.get("architectures") or [None])[0]
    model_class = CLASSES[given].get(architecture)
    if model_class is None:
        raise ValueError(
            f"{config_path}: `architectures` names {architecture}, but one of {', '.join(CLASSES[given])} is needed."
        )
    if architecture == "OpenAIGPTDoubleHeadsModel":
        check_head(config, config_path)
    dtype = read_dtype(find_weights(folder))
    model, report = model_class.from_pretrained(
        folder, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True
    )
    if report["mismatched_keys"]:
        name, in_file, in_model = sorted(report["mismatched_keys"])[0]
        raise ValueError(
            f"{folder}: {name} has the shape {list(in_file)} in the weights, but {list(in_model)} by {CONFIG_NAME}. "
            "Give files that belong together."
        )
    wrong = [f"{kind.replace('_keys', '')}: {', '.join(sorted(keys))}" for kind, keys in report.items() if keys]
    if wrong:
        raise ValueError(
            f"{folder}: the weights are not those of {architecture}, which {CONFIG_NAME} names ({'; '.join(wrong)}). "
            "Give files that belong together."
        )
    return model, read_tokenizer(folder, model.config)


def check_head(config: dict[str, Any], path: Path) -> None:
    for name, needed in DOUBLE_HEADS_NEEDED.items():
        if config.get(name, needed) != needed:
            raise ValueError(
                f"{path}: `{name}` is {config[name]!r}, but the task head of gpt1 is the one of {needed!r}. Save the "
                "model as OpenAIGPTLMHeadModel to convert it without its task head."
            )


def find_weights(folder: Path) -> list[Path]:
    """The files that hold the weights, as `from_pretrained` chooses them."""
    for name, index in ((SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME), (WEIGHTS_NAME, WEIGHTS_INDEX_NAME)):
        if (folder / name).is_file():
            return [folder / name]
        if (folder / index).is_file():
            shards = sorted(set(read_json(folder / index, dict).get("weight_map", {}).values()))
            missing = [shard for shard in shards if not (folder / shard).is_file()]
            if missing:
                raise ValueError(f"{folder} lacks {', '.join(missing)}, which {index} names. Fetch them again.")
            return [folder / shard for shard in shards]
    raise ValueError(f"{folder} has no weights: {SAFE_WEIGHTS_NAME} is needed. Fetch it again.")


def read_dtype(paths: list[Path]) -> torch.dtype:
    """The type that all weights have, so that loading changes no number, whatever the configuration says."""
    dtypes = {}
    for path in paths:
        dtypes |= safetensors_dtypes(path) if path.suffix == ".safetensors" else pickle_dtypes(path)
    if len(dtypes) != 1:
        raise ValueError(
            f"{paths[0].parent}: the weights are of {len(dtypes)} types ({', '.join(sorted(dtypes))}), but one is "
            "needed. Save the model again with one `dtype`."
        )
    return next(iter(dtypes.values()))


def safetensors_dtypes(path: Path) -> dict[str, torch.dtype]:
    """The types of the weights in a safetensors file, by the names that it has for them."""
    dtypes = {}
    try:
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():
                dtype = tensors.get_slice(name).get_dtype()
                if dtype not in dtypes and not MASK_BUFFER.search(name):
                    dtypes[dtype] = tensors.get_tensor(name).dtype
    except SafetensorError as error:
        raise ValueError(f"{path} is no whole safetensors file ({error}). Fetch it again.") from error
    return dtypes


def pickle_dtypes(path: Path) -> dict[str, torch.dtype]:
    """The types of the weights in a file of `torch.save`, of which nothing but tensors is read."""
    try:
        # Files of torch before 1.6 are no archives and cannot be mapped.
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zipfile(path))
        weights = {name: weight for name, weight in tensors.items() if isinstance(weight, torch.Tensor)}
    except Exception as error:  # a damaged pickle fails in any way
        raise ValueError(
            f"{path} is no whole file of weights, or holds more than weights ({type(error).__name__}). Fetch it again."
        ) from error
    types = {weight.dtype for name, weight in weights.items() if not MASK_BUFFER.search(name)}
    return {str(dtype).removeprefix("torch."): dtype for dtype in types}


def read_tokenizer(folder: Path, config: GPT1Config) -> GPT1Tokenizer | None:
    whole, _, vocab, merges = (folder / name for name in TOKENIZER_NAMES)
    if not whole.is_file() and not vocab.is_file() and not merges.is_file():
        return None
    if not whole.is_file() and vocab.is_file() != merges.is_file():
        present, absent = (vocab, merges) if vocab.is_file() else (merges, vocab)
        raise ValueError(f"{folder} has {present.name}, but lacks {absent.name}. Fetch it, or tokenizer.json.")
    tokenizer = GPT1Tokenizer.from_pretrained(folder)
    try:
        check_vocabulary(config, tokenizer)
    except ValueError as error:
        raise ValueError(f"{whole if whole.is_file() else vocab}: {error}") from error
    return tokenizer


# ---- To openai-gpt


def to_openai_gpt(model: GPT1PreTrainedModel, source: str | os.PathLike = "The model") -> PreTrainedModel:
    """The model of transformers' openai-gpt with the same weights.

    Args:
        model ([`GPT1PreTrainedModel`]): any model of this package; embeddings, norms and biases are shared, not
            copied.
        source (path, *optional*): what errors call the model.

    Raises:
        ValueError: openai-gpt has no class, block, activation, width or weight like this.
    """
    openai_class = find_openai_gpt_class(model, source)
    config = openai_gpt_config(model.config, source)
    converted = load_tensors(openai_class, config, openai_gpt_tensors(model, openai_class, source))
    if converted.can_generate() and model.can_generate():
        converted.generation_config = model.generation_config
    return converted


def find_openai_gpt_class(model: GPT1PreTrainedModel, source: str | os.PathLike) -> type[PreTrainedModel]:
    has_lm_head, traversal = hasattr(model, "lm_head"), model.config.traversal
    if not hasattr(model, "task_head"):
        return OpenAIGPTLMHeadModel if has_lm_head else OpenAIGPTModel
    if traversal == "similarity":
        raise ValueError(
            f"{source}: no class of openai-gpt scores both orders of a pair, as 'similarity' does. {WITHOUT_HEAD}"
        )
    is_choice = traversal == "multiple_choice"
    openai_class = OpenAIGPTDoubleHeadsModel if is_choice else OpenAIGPTForSequenceClassification
    if is_choice != has_lm_head and not model.config.tie_word_embeddings:
        fault = "needs a language-model head" if is_choice else "has no place for the language-model head"
        raise ValueError(
            f"{source}: {openai_class.__name__} {fault}, which is not tied to the embeddings. {WITHOUT_HEAD}"
        )
    return openai_class


def openai_gpt_config(config: GPT1Config, source: str | os.PathLike) -> OpenAIGPTConfig:
    if config.hidden_act not in OPENAI_GPT_ACTIVATIONS:
        raise ValueError(
            f"{source}: `hidden_act` is {config.hidden_act!r}, but openai-gpt has only "
            f"{', '.join(map(repr, OPENAI_GPT_ACTIVATIONS))}."
        )
    if config.intermediate_size != 4 * config.hidden_size:
        raise ValueError(
            f"{source}: `intermediate_size` is {config.intermediate_size}, but in openai-gpt it is 4 × `hidden_size`, "
            f"here {4 * config.hidden_size}."
        )
    for name in ("do_layer_norm_before", "sliding_window"):
        if getattr(config, name):
            raise ValueError(
                f"{source}: `{name}` is {getattr(config, name)}, but the blocks of openai-gpt are GPT-1's own, "
                "without the changes of GPT-2 and GPT-3."
            )
    kept = {name: getattr(config, name) for name in KEPT_FIELDS if getattr(config, name) is not None}
    return OpenAIGPTConfig(
        n_positions=config.max_position_embeddings,
        n_embd=config.hidden_size,
        n_layer=config.num_hidden_layers,
        n_head=config.num_attention_heads,
        afn=OPENAI_GPT_ACTIVATIONS[config.hidden_act],
        summary_first_dropout=config.classifier_dropout,
        **{name: getattr(config, name) for name in SHARED_FIELDS},
        **kept,
    )


def openai_gpt_tensors(
    model: GPT1PreTrainedModel, openai_class: type[PreTrainedModel], source: str | os.PathLike
) -> dict[str, torch.Tensor]:
    """The weights under openai-gpt's names and in its shapes."""
    weights = model.state_dict()
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    head = {name: weights.pop(name) for name in list(weights) if name.startswith("task_head.")}
    layout = SimpleNamespace(config=model.config, _weight_conversions=DECODER_CONVERSION)
    tensors = revert_weight_conversion(layout, weights)
    for name, weight in head.items():
        tensors |= openai_gpt_head(name, weight, openai_class, source)
    return tensors


def openai_gpt_head(
    name: str, weight: torch.Tensor, openai_class: type[PreTrainedModel], source: str | os.PathLike
) -> dict[str, torch.Tensor]:
    if openai_class is OpenAIGPTDoubleHeadsModel:
        return {name.replace("task_head.score", "multiple_choice_head.summary"): weight}
    if name.endswith("weight"):
        return {"score.weight": weight}
    if weight.any():
        raise ValueError(
            f"{source}: {name} is not 0, but the score layer of {openai_class.__name__} has no bias. " + WITHOUT_HEAD
        )
    return {}


# ---- Writing


def check_output(source: Path, output_dir: Path, overwrite: bool) -> None:
    """Whether the new folder can be made, before any work is done.

    Raises:
        ValueError: it is the source, a file, a folder that cannot be moved, or not empty.
    """
    if output_dir.resolve() == source.resolve():
        raise ValueError(f"{output_dir} is the source itself. Pass another output folder.")
    if output_dir.resolve() == Path.cwd() or os.path.ismount(output_dir.resolve()):
        raise ValueError(
            f"{output_dir} is the current folder or the root of a disk, which cannot be replaced by a new folder. "
            f"Pass a folder in it, such as {output_dir / 'model'}."
        )
    if output_dir.exists() and not output_dir.is_dir():
        raise ValueError(f"{output_dir} is a file. Pass another output folder.")
    entries = list(output_dir.iterdir()) if output_dir.is_dir() else []
    if entries and not overwrite:
        raise ValueError(f"{output_dir} is not empty. Pass another output folder, or `overwrite=True` to replace it.")
    if entries and not (output_dir / CONFIG_NAME).is_file():
        raise ValueError(
            f"{output_dir} holds no model ({CONFIG_NAME} is missing), and is not replaced. Pass another output folder."
        )
    others = find_others(entries)
    if others:
        named = ", ".join(others[:MOST_NAMES]) + (f" and {len(others) - MOST_NAMES} more" * (len(others) > MOST_NAMES))
        raise ValueError(
            f"{output_dir} holds more than a model ({named}), and is not replaced. Move that away, or pass another "
            "output folder."
        )


def find_others(entries: list[Path]) -> list[str]:
    """Names of what is no part of a model, in order."""
    start = Path(__file__).with_name("modeling_gpt1.py")
    code = {start.name, *(Path(path).name for path in get_relative_import_files(start))}
    return sorted(
        entry.name
        for entry in entries
        if entry.is_dir() or not (entry.name in WRITTEN_NAMES | code or WEIGHTS_FILE.fullmatch(entry.name))
    )


@contextmanager
def whole_or_absent(output_dir: Path) -> Iterator[Path]:
    """A folder to write to beside `output_dir`, which it becomes by one rename when all went well."""
    output_dir.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{output_dir.name}-", dir=output_dir.parent))
    staging, replaced = beside / "model", beside / "replaced"
    staging.mkdir()  # mkdtemp's own folder is closed to other users
    try:
        yield staging
        flush(staging)
        if output_dir.is_dir():
            os.rename(output_dir, replaced)
        try:
            os.rename(staging, output_dir)
        except OSError:
            if replaced.is_dir():
                os.rename(replaced, output_dir)
            raise
        flush_folder(output_dir.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def describe_tensors(folder: Path) -> list[dict[str, Any]]:
    """Name, shape, dtype and SHA-256 of every tensor in the safetensors files of `folder`, by name.

    The hash is of the tensor's bytes as the file has them: rows first, little end first.
    """
    described = []
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as tensors:
            described += [describe_tensor(name, tensors.get_tensor(name)) for name in tensors.keys()]
    return sorted(described, key=lambda tensor: tensor["name"])


def describe_tensor(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "name": name,
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "sha256": hashlib.sha256(tensor.reshape(-1).view(torch.uint8).numpy()).hexdigest(),
    }


def hash_files(paths: list[Path]) -> dict[str, str]:
    """SHA-256 of files, by name."""
    hashes = {}
    for path in paths:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        hashes[path.name] = digest.hexdigest()
    return hashes


def files_of(source: Path, given: Format) -> list[Path]:
    """The files that a conversion reads."""
    names = RELEASE_NAMES if given == "openai" else (CONFIG_NAME, *TOKENIZER_NAMES, SAFE_WEIGHTS_INDEX_NAME)
    paths = [source / name for name in names if (source / name).is_file()]
    return paths if given == "openai" else [*paths, *find_weights(source)]


__all__ = ["convert_checkpoint", "describe_tensors", "read_release", "to_openai_gpt"]
