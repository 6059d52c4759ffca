"""OpenAI's release ⇄ transformers' openai-gpt ⇄ gpt1: whole folders, every number to the bit.

The release is the folder `model` of https://github.com/openai/finetune-transformer-lm: one flat array in ten files,
its shapes and the BPE. Its order is that in which the release's `train.py` creates the variables; kernels of
convolutions have a leading dimension of 1. How weights become each other is defined once, in `DECODER_CONVERSION` of
`layouts_gpt1.py`: `from_pretrained` applies it, and this module reverses it.
"""

import json
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
import torch
from transformers import (
    OpenAIGPTConfig,
    OpenAIGPTDoubleHeadsModel,
    OpenAIGPTForSequenceClassification,
    OpenAIGPTLMHeadModel,
    OpenAIGPTModel,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.core_model_loading import revert_weight_conversion
from transformers.utils import CONFIG_NAME

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
) -> PreTrainedModel:
    """Converts a model folder; its files tell the format.

    Args:
        source (path): OpenAI's release, or a folder of transformers' openai-gpt or of gpt1.
        output_dir (path): the new folder. It appears whole, by one rename, or not at all. If it is a link, the link
            stays and its target is made.
        target (`str`, *optional*): `"gpt1"` or `"openai-gpt"`. Default: gpt1, and openai-gpt for a folder of gpt1.
        num_attention_heads (`int`, defaults to 12): heads of OpenAI's release, whose files do not tell the number.

    Returns:
        the model that was written.

    Raises:
        ValueError: a file of the source does not belong to the others; the target's classes have no place for a
            weight; `output_dir` is not empty.
        OSError: a file of the source is missing or damaged.
    """
    source, output_dir = Path(source), Path(output_dir)
    given = find_format(source)
    target = target or ("openai-gpt" if given == "gpt1" else "gpt1")
    if target not in ("gpt1", "openai-gpt") or target == given:
        choices = " or ".join(repr(name) for name in ("gpt1", "openai-gpt") if name != given)
        raise ValueError(
            f"{source} is in the format {given!r} and cannot be converted to {target!r}. Choose {choices}."
        )
    if output_dir.exists() and (not output_dir.is_dir() or any(output_dir.iterdir())):
        raise ValueError(f"{output_dir} is not an empty folder. Pass another output folder.")
    if given == "openai":
        model, tokenizer = read_release(source, num_attention_heads)
    else:
        model, tokenizer = read_folder(source, given)
    if target == "openai-gpt":
        model = to_openai_gpt(model)
    with whole_or_absent(output_dir.resolve()) as staging:
        model.save_pretrained(staging)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
    return model


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
    model_type = PreTrainedConfig.get_config_dict(source)[0].get("model_type")
    if model_type not in CLASSES:
        raise ValueError(
            f"{source / CONFIG_NAME}: the `model_type` is {model_type!r}, but only {' and '.join(map(repr, CLASSES))} "
            "can be converted."
        )
    return model_type


def load(model_class: type[PreTrainedModel], folder: Path | None, **options) -> PreTrainedModel:
    """A model by `from_pretrained`, which must find a place for each weight and a weight for each place.

    Raises:
        ValueError: the weights are not those that the configuration asks for.
    """
    model, report = model_class.from_pretrained(
        folder, output_loading_info=True, ignore_mismatched_sizes=True, **options
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
    config = GPT1Config.from_pretrained(folder)
    architecture = (config.architectures or [None])[0]
    if architecture not in CLASSES[given]:
        raise ValueError(
            f"{folder / CONFIG_NAME}: `architectures` names {architecture}, but one of {', '.join(CLASSES[given])} is "
            "needed."
        )
    for index in folder.glob("*.index.json"):
        shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        if outside := [shard for shard in shards if Path(shard).name != shard]:
            raise ValueError(f"{index} names {outside[0]!r}, which is no file of its folder. Fetch it again.")
    config.dtype = None  # "auto" then means that of the weights: no number changes
    model = load(CLASSES[given][architecture], folder, config=config, dtype="auto")
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json", "merges.txt")):
        return model, None
    tokenizer = GPT1Tokenizer.from_pretrained(folder)
    try:
        control_tokens.check_vocabulary(model.config, tokenizer)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    return model, tokenizer


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
    return load(GPT1ForCausalLM, None, config=config, state_dict=tensors), tokenizer


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
    try:
        shapes = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}). Fetch it again.") from error
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
    tensors = openai_gpt_tensors(model, openai_class)
    converted = load(openai_class, None, config=config, state_dict=tensors, dtype=model.dtype)
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
