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
from .configuration_gpt1 import GPT1Config, has_choices
from .layouts_gpt1 import DECODER_CONVERSION
from .storage.writing import whole_or_absent

SHAPES_NAME = "params_shapes.json"
OURS = "GPT1Model GPT1ForCausalLM GPT1DoubleHeadsModel GPT1ForSequenceClassification GPT1ForMultipleChoice".split()
# By architecture: the class of ours that holds the same weights.
CLASSES: dict[str, type[gpt1.GPT1PreTrainedModel]] = {name: getattr(gpt1, name) for name in OURS} | {
    "OpenAIGPTModel": gpt1.GPT1Model,
    "OpenAIGPTLMHeadModel": gpt1.GPT1ForCausalLM,
    "OpenAIGPTDoubleHeadsModel": gpt1.GPT1DoubleHeadsModel,
    "OpenAIGPTForSequenceClassification": gpt1.GPT1ForSequenceClassification,
}
# A layer's variables in the order of the release, each with a weight and a bias.
LAYER = ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
ACTIVATIONS = {"gelu_pytorch_tanh": "gelu", "gelu_new": "gelu", "relu": "relu", "silu": "silu"}
# By openai-gpt's names, which ours knows, too; the last line has our own, which it keeps for the conversion back.
FIELDS = "n_positions n_embd n_layer n_head summary_first_dropout".split()
FIELDS += "vocab_size embd_pdrop resid_pdrop attn_pdrop layer_norm_epsilon initializer_range pad_token_id".split()
FIELDS += "bos_token_id eos_token_id tie_word_embeddings problem_type id2label label2id".split()
FIELDS += "traversal columns lm_coef start_token_id delimiter_token_id extract_token_id".split()


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
    if output_dir.exists() and (not output_dir.is_dir() or any(output_dir.iterdir())):
        raise UserError(f"{output_dir} is not an empty folder. Pass another output folder.")
    is_release = (source / SHAPES_NAME).is_file()
    model, tokenizer = read_release(source, num_attention_heads) if is_release else read_folder(source)
    with whole_or_absent(output_dir.resolve()) as staging:
        model.save_pretrained(staging)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
    return model


def load(model_class: type[PreTrainedModel], folder: Path | None, **options) -> PreTrainedModel:
    """A model by `from_pretrained`, which must find a place for each weight and a weight for each place."""
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
    model, report = model_class.from_pretrained(folder, **options)
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
    architecture = (GPT1Config.get_config_dict(folder)[0].get("architectures") or [None])[0]
    if architecture not in CLASSES:
        needed = f"one of {', '.join(CLASSES)} is needed"
        raise UserError(f"{folder / CONFIG_NAME}: `architectures` names {architecture}, but {needed}.")
    config = GPT1Config.from_pretrained(folder)
    config.dtype = None  # "auto" then means that of the weights: no number changes
    model_class = CLASSES[architecture]
    model = load(model_class, folder, config=config, dtype="auto")
    if architecture == model_class.__name__:
        model = to_openai_gpt(model)
    has_tokenizer = any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    return model, GPT1Tokenizer.from_pretrained(folder) if has_tokenizer else None


def read_release(folder: Path, num_attention_heads: int = 12) -> tuple[gpt1.GPT1ForCausalLM, GPT1Tokenizer]:
    """Model and tokenizer of OpenAI's release."""
    try:
        tokenizer = GPT1Tokenizer.from_openai(folder / "encoder_bpe_40000.json", folder / "vocab_40000.bpe")
        shapes = json.loads((folder / SHAPES_NAME).read_text(encoding="utf-8"))
        arrays = [np.load(folder / f"params_{number}.npy", allow_pickle=False) for number in range(10)]
        parts = torch.from_numpy(np.concatenate(arrays)).split([math.prod(shape) for shape in shapes])
    except Exception as error:  # the reader of the BPE raises no narrower class
        raise UserError(f"{folder} is no complete copy of OpenAI's release: {error}. Fetch it again.") from error
    (positions, hidden_size), (vocab_size, _) = shapes[:2]
    if vocab_size != len(tokenizer):
        raise UserError(
            f"The tokenizer of {folder} has {len(tokenizer)} tokens, but {SHAPES_NAME} has embeddings for "
            f"{vocab_size} (its second shape; the first is that of the positions). Give the files of one release."
        )
    sizes = {"vocab_size": vocab_size, "hidden_size": hidden_size, "num_hidden_layers": (len(shapes) - 2) // 12}
    sizes |= {"num_attention_heads": num_attention_heads, "max_position_embeddings": positions}
    config = GPT1Config(**sizes, pad_token_id=tokenizer.pad_token_id)
    tokenizer.model_max_length = positions
    layers = range(config.num_hidden_layers)
    names = ["positions_embed.weight", "tokens_embed.weight"]
    names += [f"h.{layer}.{part}.{kind}" for layer in layers for part in LAYER for kind in ("weight", "bias")]
    tensors = {
        f"transformer.{name}": part.view(shape[1:] if len(shape) == 3 else shape)
        for name, shape, part in zip(names, shapes, parts, strict=True)
    }
    return load(gpt1.GPT1ForCausalLM, None, config=config, state_dict=tensors), tokenizer


def to_openai_gpt(model: gpt1.GPT1PreTrainedModel) -> PreTrainedModel:
    """The model of transformers' openai-gpt with the same weights; refused where that lacks something of the model."""
    config, has_task = model.config, hasattr(model, "task_head")
    supported = {"hidden_act": tuple(ACTIVATIONS), "do_layer_norm_before": (False,), "sliding_window": (None,)}
    if has_task:
        supported["traversal"] = ("classification", "entailment", "multiple_choice")
    for name, known in supported.items():
        if getattr(config, name) not in known:
            needed = " or ".join(map(repr, known))
            raise UserError(f"`{name}` is {getattr(config, name)!r}, but openai-gpt has only {needed}.")
    openai_class = openai.OpenAIGPTLMHeadModel if hasattr(model, "lm_head") else openai.OpenAIGPTModel
    is_choice = has_task and has_choices(config.traversal)
    if has_task:
        openai_class = openai.OpenAIGPTDoubleHeadsModel if is_choice else openai.OpenAIGPTForSequenceClassification
    fields = {name: getattr(config, name) for name in FIELDS if getattr(config, name) is not None}
    openai_config = openai.OpenAIGPTConfig(afn=ACTIVATIONS[config.hidden_act], **fields)
    weights = model.state_dict()
    if config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    if has_task and not is_choice and weights.pop("task_head.score.bias").any():
        how = "To leave out the head, open the model with GPT1ForCausalLM and save that first."
        raise UserError(f"The task head has a bias, but {openai_class.__name__} has no place for one. {how}")
    head = "multiple_choice_head.summary" if is_choice else "score"
    weights = {name.replace("task_head.score", head): weight for name, weight in weights.items()}
    tensors = revert_weight_conversion(SimpleNamespace(config=config, _weight_conversions=DECODER_CONVERSION), weights)
    converted = load(openai_class, None, config=openai_config, state_dict=tensors, dtype=model.dtype)
    if converted.can_generate() and model.can_generate():
        converted.generation_config = model.generation_config
    return converted
