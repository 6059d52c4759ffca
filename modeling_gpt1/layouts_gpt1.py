# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""Layouts of weights: reading transformers' openai-gpt and GPT-2 checkpoints and adapters, writing safetensors files.

openai-gpt and GPT-2 store their linear layers transposed. These layers have other names here, so the names in a file
decide what is converted: a checkpoint of this package has no name that is converted.

Sources: `OpenAIGPTDoubleHeadsModel`, `GPT2DoubleHeadsModel` and their kin in transformers
(https://github.com/huggingface/transformers/blob/main/src/transformers/models/openai/modeling_openai.py and
https://github.com/huggingface/transformers/blob/main/src/transformers/models/gpt2/modeling_gpt2.py).
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import Chunk, ConversionOps, Transpose, WeightConverter, WeightRenaming
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, find_adapter_config_file, logging

from .configuration_gpt1 import PACKAGED_MODEL, UserError, check_place, may_be_hub_id

logger = logging.get_logger(__name__)

# Classes without a language-model head. They may find the tied embeddings only under the head's name.
HEADLESS_CLASSES = (
    "GPT1Model",
    "GPT1ForSequenceClassification",
    "GPT1ForMultipleChoice",
    "GPT1ForTokenClassification",
    "GPT1ForQuestionAnswering",
)


class AddZeroBias(ConversionOps):
    """Adds a zero bias to the weight of a layer that has no bias."""

    def convert(self, input_dict: dict, source_patterns: list[str], target_patterns: list[str], **kwargs) -> dict:
        (weight,) = input_dict.values()
        weight = weight[0] if isinstance(weight, list) else weight
        return dict(zip(target_patterns, [weight, weight.new_zeros(weight.shape[0])], strict=True))


class ReadTiedEmbeddings(ConversionOps):
    """Reads the embeddings under their own name, or else under the name of the head that is tied to them."""

    def convert(self, input_dict: dict, source_patterns: list[str], target_patterns: list[str], **kwargs) -> dict:
        tensors = {name: given[0] if isinstance(given, list) else given for name, given in input_dict.items()}
        (name_of_head,) = source_patterns
        head = tensors.pop(name_of_head)
        embeddings = head
        if tensors:
            (embeddings,) = tensors.values()
        if not torch.equal(embeddings, head):
            logger.warning("lm_head.weight was not loaded: the requested model has no language-model head.")
        return {target_patterns[0]: embeddings}


class TiedHead(WeightConverter):
    """Converts the head of a file for a model without a head; a decoder inside of another model ignores the head."""

    __slots__ = ()

    def rename_source_key(self, source_key: str) -> tuple[str, str | None]:
        return super().rename_source_key(source_key) if self.scope_prefix is None else (source_key, None)


def transposed(theirs: str, ours: str) -> list[WeightConverter | WeightRenaming]:
    """The conversion of a linear layer that they store transposed."""
    return [
        WeightConverter(f"{theirs}.weight", f"{ours}.weight", operations=[Transpose(0, 1)]),
        WeightRenaming(f"{theirs}.bias", f"{ours}.bias"),
    ]


DECODER_CONVERSION = [
    WeightConverter(
        "attn.c_attn.weight",
        ["attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight"],
        operations=[Transpose(0, 1), Chunk(dim=0)],
    ),
    WeightConverter(
        "attn.c_attn.bias", ["attn.q_proj.bias", "attn.k_proj.bias", "attn.v_proj.bias"], operations=[Chunk(dim=0)]
    ),
    *transposed("attn.c_proj", "attn.o_proj"),
    *transposed("mlp.c_fc", "mlp.up_proj"),
    *transposed("mlp.c_proj", "mlp.down_proj"),
]
OTHER_CONVERSION = [  # embeddings of GPT-2, and heads
    WeightRenaming("wte.weight", "tokens_embed.weight"),
    WeightRenaming("wpe.weight", "positions_embed.weight"),
    WeightRenaming("multiple_choice_head.summary", "task_head.score"),
    WeightConverter("^score.weight", ["task_head.score.weight", "task_head.score.bias"], operations=[AddZeroBias()]),
]


def register_foreign_layouts() -> None:
    """Registers the layouts of openai-gpt and GPT-2 for transformers' `from_pretrained`."""
    conversion = [*DECODER_CONVERSION, *OTHER_CONVERSION]
    register_checkpoint_conversion_mapping("gpt1", conversion, overwrite=True)
    # Double-heads files have the tied embeddings under the head's name only.
    tied = TiedHead("^lm_head.weight$", "tokens_embed.weight", operations=[ReadTiedEmbeddings()])
    for class_name in HEADLESS_CLASSES:
        register_checkpoint_conversion_mapping(class_name, [*conversion, tied], overwrite=True)


# ---- Adapters of PEFT

# Arguments that say where a file is found. The last two are of one repository alone, not of an adapter's base.
PLACES = ("cache_dir", "force_download", "proxies", "token", "local_files_only", "revision", "subfolder")


def places_of(options: dict) -> dict:
    """Those of `from_pretrained`'s options that say where a file is found."""
    return {key: options[key] for key in PLACES if options.get(key) is not None}


def base_of_adapter(name: str, **kwargs) -> str | None:
    """The model that an adapter's folder or hub id was trained on; `None` for a whole model.

    Args:
        kwargs: those of `from_pretrained`.

    Raises:
        ValueError: the base is not here, or the folder does not say what it is.
    """
    places = places_of(kwargs)
    folder = name
    if Path(name).is_dir():  # transformers before 5.23 look into no subfolder of it
        folder = Path(name, places.pop("subfolder", ""))
    path = find_adapter_config_file(str(folder), **places)
    if path is None:
        return None
    base = json.loads(Path(path).read_text(encoding="utf-8")).get("base_model_name_or_path")
    if any(Path(path).with_name(file).exists() for file in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME)):
        if base == str(name):  # on whose weights it was trained
            return None
        raise UserError(
            f"{name} holds a whole model and an adapter that was trained on another, {base}. Move adapter_config.json "
            f"away to open the model, or {SAFE_WEIGHTS_NAME} to open the adapter."
        )
    if not base or base == str(name):
        raise UserError(
            f"{name} holds an adapter, but its adapter_config.json names no other `base_model_name_or_path`: the "
            "model that it was trained on was not opened from a folder or the hub. Write its place there."
        )
    if Path(base).exists():
        return base
    packaged = Path(__file__).with_name(PACKAGED_MODEL)
    is_named = base == PACKAGED_MODEL or (Path(base).is_absolute() and Path(base).name == PACKAGED_MODEL)
    if is_named and Path(packaged, "config.json").is_file():
        return str(packaged)
    if not may_be_hub_id(base):
        raise UserError(
            f"{name} is an adapter, but its base, {base}, is not here. Put the model that it was trained on there, or "
            "write its place as `base_model_name_or_path` into the adapter's adapter_config.json."
        )
    return base


def open_adapter(
    open_model: Callable, name: str, base: str, config: PreTrainedConfig, places: dict | None = None, **kwargs
) -> PreTrainedModel:
    """An adapter's base with the adapter merged into its weights: a model like any other.

    Args:
        open_model: opens the base, called with its name, `config` and `kwargs`.
        name: the adapter's folder or hub id.
        base: its base, see [`base_of_adapter`].
        config: saved with the adapter; the base may have fewer tokens and another head.
        places: where the adapter is found, such as its `revision` and `subfolder`.

    Raises:
        ImportError: PEFT is not installed.
        ValueError: the base is another model than the adapter was trained on.
    """
    try:
        from peft import PeftModel
    except ImportError as error:
        raise ImportError(
            f"{name} holds an adapter of PEFT, which is not installed. Run `pip install peft`, and open it again."
        ) from error
    model = open_base(open_model, name, base, config, **kwargs)
    if getattr(model, "is_quantized", False):
        model = model.dequantize()  # an adapter merged into few bits would be rounded away
    if model.config.vocab_size != config.vocab_size:
        model.resize_token_embeddings(config.vocab_size, mean_resizing=False)
    options = dict(places or {})
    options["ignore_mismatched_sizes"] = kwargs.get("ignore_mismatched_sizes", False)
    adapted = PeftModel.from_pretrained(model, name, **options)
    if adapts_one_of_tied_weights(model, adapted.active_peft_config):
        head = model.get_output_embeddings()
        head = next(part for part in head.modules() if "weight" in part._parameters)  # below what adapts it
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
        model.config.tie_word_embeddings = False
    model = adapted.merge_and_unload()
    model.name_or_path = model.config._name_or_path = str(name)
    return model.requires_grad_().eval()


def open_base(open_model: Callable, name: str, base: str, config: PreTrainedConfig, **kwargs) -> PreTrainedModel:
    """An adapter's base, whose head and number of tokens may differ; see [`open_adapter`].

    An adapter trained by QLoRA lies on its base in few bits. Its base opens as it is on disk.
    """
    saved_config = type(config).from_pretrained(base)
    config_of_base = copy.deepcopy(config)
    config_of_base.vocab_size = saved_config.vocab_size
    vars(config_of_base).pop("quantization_config", None)
    if hasattr(saved_config, "quantization_config"):
        config_of_base.quantization_config = saved_config.quantization_config
    reports = [logging.get_logger(f"transformers.{module}") for module in ("modeling_utils", "configuration_utils")]
    for report in reports:
        report.disabled = True  # what the base lacks, the adapter has
    options = {**kwargs, "ignore_mismatched_sizes": True, "output_loading_info": True}
    try:
        model, found = open_model(base, config=config_of_base, **options)
    finally:
        for report in reports:
            report.disabled = False
    mismatched = {weight for weight, *_ in found["mismatched_keys"]}
    drawn_anew = sorted({*found["missing_keys"], *mismatched})
    lacking = [weight for weight in drawn_anew if ".h." in f".{weight}" or "_embed" in weight]  # no head
    if lacking:
        raise UserError(
            f"{base}, the base model of the adapter {name}, has changed: its {lacking[0]} is missing or has another "
            "size. Put back the model that the adapter was trained on."
        )
    return model


def adapts_one_of_tied_weights(model: PreTrainedModel, peft_config: Any) -> bool:
    """Whether an adapter changes the embeddings or the head, which share a weight, but not both alike."""
    head = model.get_output_embeddings()
    if head is None:
        return False
    # PEFT 0.21 saves an adapter of both, with equal changes, by this name.
    if getattr(peft_config, "ensure_weight_tying", False) and "transformer.tokens_embed" in peft_config.target_modules:
        return False
    return hasattr(model.get_input_embeddings(), "base_layer") or hasattr(head, "base_layer")


class FolderMixin:
    """Additions to transformers' methods for opening and saving models."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """As in transformers. A folder with an adapter of PEFT opens as its base with the adapter merged into it.

        Raises:
            ImportError: the folder holds an adapter, and PEFT is not installed.
        """
        name = pretrained_model_name_or_path
        if name is not None:
            check_place(name, **kwargs)
        # An Auto class names the base in place of an adapter on the hub.
        adapter = (kwargs.get("adapter_kwargs") or {}).get("_adapter_model_path") or name
        base = None if name is None else base_of_adapter(adapter, **kwargs)
        if base is None:
            return super().from_pretrained(name, *args, **kwargs)
        if kwargs.get("quantization_config") is not None:
            raise UserError(
                f"{name} is an adapter, which is not merged into quantised weights: rounding would undo it. Save what "
                "opens without `quantization_config`, and open that."
            )
        places = places_of(kwargs)
        config = kwargs.pop("config", None)
        returns_report = kwargs.pop("output_loading_info", False)
        is_config_given = isinstance(config, PreTrainedConfig)
        saved_config, _ = cls.config_class.get_config_dict(adapter, **places)
        if not saved_config:  # PEFT alone saves none
            config = config if is_config_given else cls.config_class.from_pretrained(base)
        elif adapter != name or not is_config_given:
            config = cls.config_class.from_pretrained(adapter, **places)
        for key in ("adapter_kwargs", "revision", "subfolder"):
            kwargs.pop(key, None)
        model = open_adapter(cls.from_pretrained, str(adapter), base, config, places, **kwargs)
        if not returns_report:
            return model
        report = {"missing_keys": set(), "unexpected_keys": set(), "mismatched_keys": set(), "error_msgs": []}
        return model, report

    def _check_and_adjust_attn_implementation(
        self, attn_implementation: str | None, is_init_check: bool = False, allow_all_kernels: bool = False
    ) -> str:
        """As in transformers, but code from the hub (`owner/kernel`) is fetched and run only if the user agrees.

        Raises:
            ValueError: the configuration names such code, to which the user has not agreed.
        """
        name = (attn_implementation or "").removeprefix("paged|")
        is_of_the_hub = "/" in name and name not in ALL_ATTENTION_FUNCTIONS
        if is_init_check and is_of_the_hub and not allow_all_kernels:
            raise UserError(
                f"The attention implementation of the configuration is {attn_implementation!r}, which would download "
                "code from the hub and run it. Pass `allow_all_kernels=True` to `from_pretrained` if you trust that "
                "code, or `attn_implementation='sdpa'` if not."
            )
        return super()._check_and_adjust_attn_implementation(attn_implementation, is_init_check, allow_all_kernels)

    def save_pretrained(self, *args, **kwargs):
        """As in transformers. The layout on disk is always this package's own, whatever layout was read."""
        kwargs["save_original_format"] = False
        return super().save_pretrained(*args, **kwargs)
