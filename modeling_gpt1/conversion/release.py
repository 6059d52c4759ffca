"""OpenAI's release: the folder `model` of https://github.com/openai/finetune-transformer-lm.

The weights are one flat array in ten files; their shapes and the BPE have files of their own. The order of the weights
is that in which the release's `train.py` creates its variables; convolution kernels have a leading dimension of 1.

Shapes: P positions, V vocabulary, D hidden, F feed-forward.
"""

import json
import math
from pathlib import Path

import numpy as np
import torch

from tokenization import GPT1Tokenizer
from tokenization.tokenization_gpt1 import END_OF_WORD

from ..configuration_gpt1 import GPT1Config
from ..modeling_gpt1 import GPT1ForCausalLM
from .files import ENCODER_NAME, MERGES_NAME, PARAMS_NAMES, RELEASE_NAMES, SHAPES_NAME, load_tensors, read_json

NUM_PER_LAYER = 12  # arrays per layer of the release


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
            f"{folder / ENCODER_NAME} has {len(tokenizer)} tokens, but {folder / SHAPES_NAME} has embeddings for "
            f"{config.vocab_size} (its second shape; the first is that of the positions). Give the files of one "
            "release."
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
            f"{folder / ENCODER_NAME} has {len(foreign)} tokens that no merge in {folder / MERGES_NAME} produces, the "
            f"first being {foreign[0]!r}. Give the files of one release."
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
        ValueError: these are not the shapes of a GPT-1.
    """
    shapes = read_json(path, list)
    is_shape = [
        isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape) and len(shape) > 0
        for shape in shapes
    ]
    if not all(is_shape):
        raise ValueError(
            f"{path}: entry {is_shape.index(False)} is {shapes[is_shape.index(False)]!r}, but a shape (a list of "
            "positive sizes) is needed. Fetch the file again."
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
        needed (`int`): how many numbers they must hold in total.

    Raises:
        ValueError: a file is not a one-dimensional float32 array; the files do not hold `needed` numbers.
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
        raise ValueError(f"{path} is not a complete NumPy array ({error}). Fetch it again.") from error
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != np.float32:
        kind = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else "an archive"
        raise ValueError(f"{path} holds {kind}, but a one-dimensional float32 array is needed. Fetch it again.")
    return array
