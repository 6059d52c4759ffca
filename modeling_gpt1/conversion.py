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

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.models import openai
from transformers.utils import CONFIG_NAME

from tokenization import GPT1Tokenizer
from tokenization.errors import UserError

from . import modeling_gpt1 as gpt1
from .configuration_gpt1 import TRAVERSALS, GPT1Config, has_choices
from .layouts_gpt1 import DECODER_CONVERSION
from .storage.writing import whole_or_absent

SHAPES_NAME = "params_shapes.json"
# By architecture: the class of ours that holds the same weights.
CLASSES: dict[str, type[gpt1.GPT1PreTrainedModel]] = {
    "GPT1Model": gpt1.GPT1Model,
    "GPT1ForCausalLM": gpt1.GPT1ForCausalLM,
    "GPT1DoubleHeadsModel": gpt1.GPT1DoubleHeadsModel,
    "GPT1ForSequenceClassification": gpt1.GPT1ForSequenceClassification,
    "GPT1ForMultipleChoice": gpt1.GPT1ForMultipleChoice,
    "OpenAIGPTModel": gpt1.GPT1Model,
    "OpenAIGPTLMHeadModel": gpt1.GPT1ForCausalLM,
    "OpenAIGPTDoubleHeadsModel": gpt1.GPT1DoubleHeadsModel,
    "OpenAIGPTForSequenceClassification": gpt1.GPT1ForSequenceClassification,
}
# A layer's variables in the order of the release, each with a weight and a bias.
LAYER = ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
ACTIVATIONS = {"gelu_pytorch_tanh": "gelu", "gelu_new": "gelu", "relu": "relu", "silu": "silu"}
# By openai-gpt's names, which ours knows, too.
FIELDS_OF_BOTH = (
    "n_positions",
    "n_embd",
    "n_layer",
    "n_head",
    "summary_first_dropout",
    "vocab_size",
    "embd_pdrop",
    "resid_pdrop",
    "attn_pdrop",
    "layer_norm_epsilon",
    "initializer_range",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "tie_word_embeddings",
    "problem_type",
    "id2label",
    "label2id",
)
# openai-gpt does not read these. They are kept for the conversion back.
FIELDS_OF_OURS = (
    "traversal",
    "columns",
    "lm_coef",
    "start_token_id",
    "delimiter_token_id",
    "extract_token_id",
    "speaker_token_ids",
    "trained_positions",
)


def convert_checkpoint(
    source: str | os.PathLike, output_dir: str | os.PathLike, num_attention_heads: int = 12
) -> PreTrainedModel:
    """Converts a model folder: OpenAI's release or openai-gpt to gpt1, and gpt1 to openai-gpt.

    Args:
        source (path): OpenAI's release, or a folder of transformers' openai-gpt or of gpt1.
        output_dir (path): the new folder. It appears whole, by one rename, or not at all. If it is a link, the link
            stays and its target is made.
        num_attention_heads (`int`, defaults to 12): heads of OpenAI's release, whose files do not tell the number.

    Returns:
        the model that was written.

    Raises:
        ValueError: the files of the source are no model, or do not belong to each other; openai-gpt has no place for
            what the model has; `output_dir` is not empty.
        OSError, SafetensorError: a file of a folder is missing or damaged.
    """
    source, output_dir = Path(source), Path(output_dir)
    check_is_new_folder(output_dir)
    if (source / SHAPES_NAME).is_file():
        model, tokenizer = read_release(source, num_attention_heads)
    else:
        model, tokenizer = read_folder(source)
    with whole_or_absent(output_dir.resolve()) as staging:
        model.save_pretrained(staging)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
    return model


def check_is_new_folder(folder: Path) -> None:
    """Refuses an output folder that has something in it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not an empty folder. Pass another output folder.")


def load(model_class: type[PreTrainedModel], folder: Path | None, **options) -> PreTrainedModel:
    """A model by `from_pretrained`, which must find a place for each weight and a weight for each place."""
    model, report = model_class.from_pretrained(
        folder, output_loading_info=True, ignore_mismatched_sizes=True, **options
    )
    wrong = {kind.removesuffix("_keys"): sorted(keys) for kind, keys in report.items() if keys}
    if wrong:
        raise UserError(
            f"The weights do not match {model_class.__name__} and {CONFIG_NAME}: {wrong}. Give files of one model. To "
            "leave out a head, open the model with GPT1Model or GPT1ForCausalLM and save that first."
        )
    return model


def read_folder(folder: Path) -> tuple[PreTrainedModel, GPT1Tokenizer | None]:
    """The model of a folder that `save_pretrained` wrote, in the other format, and its tokenizer if it has one."""
    if not (folder / CONFIG_NAME).is_file():
        raise UserError(
            f"{folder} has neither {CONFIG_NAME} nor {SHAPES_NAME}. Give OpenAI's release (the folder `model` of "
            "finetune-transformer-lm) or a folder that `save_pretrained` wrote; `hf download "
            "openai-community/openai-gpt --local-dir …` fetches one from the hub."
        )
    config_dict, _ = GPT1Config.get_config_dict(folder)
    architectures = config_dict.get("architectures") or [None]
    architecture = architectures[0]
    if architecture not in CLASSES:
        raise UserError(
            f"{folder / CONFIG_NAME}: `architectures` names {architecture}, but one of {', '.join(CLASSES)} is needed."
        )
    config = GPT1Config.from_pretrained(folder)
    config.dtype = None  # "auto" then means that of the weights: no number changes
    model_class = CLASSES[architecture]
    model = load(model_class, folder, config=config, dtype="auto")
    if architecture == model_class.__name__:  # of ours
        model = to_openai_gpt(model)
    tokenizer = None
    if any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json", "merges.txt")):
        tokenizer = GPT1Tokenizer.from_pretrained(folder)
    return model, tokenizer


def read_release(folder: Path, num_attention_heads: int) -> tuple[gpt1.GPT1ForCausalLM, GPT1Tokenizer]:
    """Model and tokenizer of OpenAI's release."""
    try:
        tokenizer = GPT1Tokenizer.from_openai(folder / "encoder_bpe_40000.json", folder / "vocab_40000.bpe")
        shapes, parameters = read_parameters(folder)
    except Exception as error:  # the reader of the BPE raises no narrower class
        raise UserError(f"{folder} is no complete copy of OpenAI's release: {error}. Fetch it again.") from error
    num_positions, hidden_size = shapes[0]
    vocab_size, _ = shapes[1]
    if vocab_size != len(tokenizer):
        raise UserError(
            f"The tokenizer of {folder} has {len(tokenizer)} tokens, but {SHAPES_NAME} has embeddings for "
            f"{vocab_size} (its second shape; the first is that of the positions). Give the files of one release."
        )
    tokenizer.model_max_length = num_positions
    config = GPT1Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=(len(shapes) - 2) // (2 * len(LAYER)),
        num_attention_heads=num_attention_heads,
        max_position_embeddings=num_positions,
        pad_token_id=tokenizer.pad_token_id,
    )
    names = names_of_parameters(config.num_hidden_layers)
    weights = dict(zip(names, parameters, strict=True))
    return load(gpt1.GPT1ForCausalLM, None, config=config, state_dict=weights), tokenizer


def read_parameters(folder: Path) -> tuple[list[list[int]], list[torch.Tensor]]:
    """The shapes of the release's variables, and these without the leading dimension of convolutions."""
    shapes = json.loads((folder / SHAPES_NAME).read_text(encoding="utf-8"))
    arrays = [np.load(folder / f"params_{number}.npy", allow_pickle=False) for number in range(10)]
    numbers = torch.from_numpy(np.concatenate(arrays))
    parts = numbers.split([math.prod(shape) for shape in shapes])
    parameters = []
    for shape, part in zip(shapes, parts, strict=True):
        is_convolution = len(shape) == 3
        parameters.append(part.view(shape[1:] if is_convolution else shape))
    return shapes, parameters


def names_of_parameters(num_layers: int) -> list[str]:
    """openai-gpt's names of the release's variables, in their order."""
    names = ["transformer.positions_embed.weight", "transformer.tokens_embed.weight"]
    for layer in range(num_layers):
        for part in LAYER:
            names.append(f"transformer.h.{layer}.{part}.weight")
            names.append(f"transformer.h.{layer}.{part}.bias")
    return names


def to_openai_gpt(model: gpt1.GPT1PreTrainedModel) -> PreTrainedModel:
    """The model of transformers' openai-gpt with the same weights; refused where that lacks something of the model."""
    config = model.config
    has_task = isinstance(model, gpt1.GPT1TaskModel)
    check_supported(config, has_task)
    openai_class, head = class_of_openai_gpt(model)
    weights = model.state_dict()
    if config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    if openai_class is openai.OpenAIGPTForSequenceClassification and weights.pop("task_head.score.bias").any():
        raise UserError(
            f"The task head has a bias, but {openai_class.__name__} has no place for one. To leave out the head, open "
            "the model with GPT1ForCausalLM and save that first."
        )
    weights = {name.replace("task_head.score", head): weight for name, weight in weights.items()}
    conversion = SimpleNamespace(config=config, _weight_conversions=DECODER_CONVERSION)
    converted_weights = revert_weight_conversion(conversion, weights)
    converted = load(
        openai_class, None, config=config_of_openai_gpt(config), state_dict=converted_weights, dtype=model.dtype
    )
    if converted.can_generate() and model.can_generate():
        converted.generation_config = model.generation_config
    return converted


def check_supported(config: GPT1Config, has_task: bool) -> None:
    """Checks that openai-gpt has the functions that a model uses."""
    supported = {"hidden_act": tuple(ACTIVATIONS), "do_layer_norm_before": (False,), "sliding_window": (None,)}
    if has_task:  # openai-gpt scores each sequence alone
        supported["traversal"] = [name for name, shape in TRAVERSALS.items() if shape.num_sequences in (1, None)]
    for name, known in supported.items():
        value = getattr(config, name)
        if value not in known:
            raise UserError(f"`{name}` is {value!r}, but openai-gpt has only {' or '.join(map(repr, known))}.")


def class_of_openai_gpt(model: gpt1.GPT1PreTrainedModel) -> tuple[type[PreTrainedModel], str]:
    """The class that holds a model's weights, and its name for the weights of the task head."""
    if isinstance(model, gpt1.GPT1TaskModel):
        if has_choices(model.config.traversal):
            return openai.OpenAIGPTDoubleHeadsModel, "multiple_choice_head.summary"
        return openai.OpenAIGPTForSequenceClassification, "score"
    if isinstance(model, gpt1.LMHeadMixin):
        return openai.OpenAIGPTLMHeadModel, ""
    return openai.OpenAIGPTModel, ""


def config_of_openai_gpt(config: GPT1Config) -> openai.OpenAIGPTConfig:
    """The configuration of transformers' openai-gpt, with all that ours needs for the way back."""
    fields = {}
    for name in (*FIELDS_OF_BOTH, *FIELDS_OF_OURS):
        value = getattr(config, name)
        if value is not None:
            fields[name] = value
    return openai.OpenAIGPTConfig(afn=ACTIVATIONS[config.hidden_act], **fields)
