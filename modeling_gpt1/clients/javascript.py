"""A folder for JavaScript: tokenizer and ONNX file, as `@huggingface/transformers` (transformers.js) opens them.

transformers.js chooses a class by `model_type`, and gpt1 is not among those that it knows. The folder says gpt2, whose
class runs whatever stands in the ONNX file: the decoder with its post-layer-norm blocks, and a cache.
"""

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import DynamicCache, PreTrainedTokenizerBase
from transformers.utils import CONFIG_NAME

from tokenization import GPT1Tokenizer, open_tokenizer
from tokenization.errors import UserError
from tokenization.text.javascript import contents_without_found_tokens, javascript_tokenizer

from ..configuration_gpt1 import GPT1Config
from ..conversion import check_is_new_folder
from ..families.opening import check_has_no_speakers, load_whole
from ..modeling_gpt1 import GPT1ForCausalLM
from ..storage.writing import whole_or_absent

# What transformers.js calls them, from optimum's exporter.
CACHE_INPUT = "past_key_values.{layer}.{part}"
CACHE_OUTPUT = "present.{layer}.{part}"
BATCH, LENGTH, PAST, TOTAL = "batch_size", "sequence_length", "past_sequence_length", "total_sequence_length"
ONNX_FILE = "onnx/model.onnx"
ONNX_FILE_IN_8_BITS = "onnx/model_quantized.onnx"  # what browsers load if nothing else is asked for
WITHOUT_LANGUAGE_MODEL = ("Classification", "MultipleChoice", "QuestionAnswering")  # ends of classes' names
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


def convert_to_javascript(
    source: str | os.PathLike, output_dir: str | os.PathLike, quantize: bool = False
) -> GPT1ForCausalLM:
    """Writes a folder that transformers.js opens: `pipeline("text-generation", folder)`.

    The ids of texts are those of the tokenizer, and the logits those of the model to 1e-4. Decoded text is as
    `decode` gives it, with spaces around punctuation.

    Args:
        source (path): a folder of gpt1, openai-gpt or gpt2 with a language-model head, and its tokenizer.
        output_dir (path): the new folder. It appears whole or not at all.
        quantize (`bool`, defaults to `False`): also write the weights in 8 bits, which browsers then load.

    Returns:
        the model that was written.

    Raises:
        ValueError: the model has no language-model head, or is of another kind; `output_dir` is not empty.
        ImportError: the packages that write ONNX are not installed.
    """
    output_dir = Path(output_dir)
    check_is_new_folder(output_dir)
    check_is_language_model(source)
    check_installed(quantize)
    tokenizer = open_tokenizer(source)
    model = load_whole(GPT1ForCausalLM, source, dtype=torch.float32, attn_implementation="sdpa").eval()
    check_has_no_speakers(model.config, "transformers.js")
    with whole_or_absent(output_dir.resolve()) as staging:
        write_tokenizer(tokenizer, model.config, staging)
        write_settings(model, staging, has_8_bits=quantize)
        (staging / ONNX_FILE).parent.mkdir()
        write_onnx(model, staging / ONNX_FILE)
        if quantize:
            write_in_8_bits(staging / ONNX_FILE, staging / ONNX_FILE_IN_8_BITS)
    return model


def check_is_language_model(source: str | os.PathLike) -> None:
    """Refuses a model that transformers.js could not continue texts with."""
    config_dict, _ = GPT1Config.get_config_dict(source)
    architectures = config_dict.get("architectures") or ["GPT1ForCausalLM"]
    if all(architecture.endswith(WITHOUT_LANGUAGE_MODEL) for architecture in architectures):
        raise UserError(
            f"{source} is a {architectures[0]}, which continues no text. Pass a folder with a language-model head, "
            "such as one of `gpt1 pretrain`."
        )


def check_installed(quantize: bool) -> None:
    """Says what to install before anything is computed."""
    needed = ["onnxscript", "onnxruntime"] if quantize else ["onnxscript"]
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        raise ImportError(
            f"ONNX files need packages that are not installed: {', '.join(missing)}. Install the extra `onnx`, in a "
            'checkout by pip install ".[onnx]".'
        )


def write_tokenizer(tokenizer: PreTrainedTokenizerBase, config: GPT1Config, folder: Path) -> None:
    """Writes `tokenizer.json` and `tokenizer_config.json`. Text that spells a special token stays text."""
    if isinstance(tokenizer, GPT1Tokenizer):
        content = javascript_tokenizer(tokenizer)
        settings = {"tokenizer_class": "PreTrainedTokenizer", "clean_up_tokenization_spaces": False}
        for name in SPECIAL_TOKENS:
            settings[name] = getattr(tokenizer, name)
    else:
        content = contents_without_found_tokens(tokenizer)
        tokenizer.save_pretrained(folder)
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        settings["clean_up_tokenization_spaces"] = tokenizer.clean_up_tokenization_spaces
    settings["model_max_length"] = min(tokenizer.model_max_length, config.max_position_embeddings)
    # Only for decoding: in the list of added tokens they would be found in texts.
    settings["additional_special_tokens"] = list(tokenizer.all_special_tokens)
    write_json(folder / "tokenizer.json", content)
    write_json(folder / "tokenizer_config.json", settings)


def write_settings(model: GPT1ForCausalLM, folder: Path, has_8_bits: bool) -> None:
    """Writes `config.json` and `generation_config.json`."""
    config = model.config
    settings = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab_size,
        "n_embd": config.hidden_size,
        "n_layer": config.num_hidden_layers,
        "n_head": config.num_attention_heads,
        "n_positions": config.max_position_embeddings,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "pad_token_id": config.pad_token_id,
    }
    if not has_8_bits:  # in browsers, transformers.js looks for weights in 8 bits unless it is told
        settings["transformers.js_config"] = {"dtype": "fp32"}
    write_json(folder / CONFIG_NAME, settings)
    model.generation_config.save_pretrained(folder)


def write_json(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


class StepWithCache(torch.nn.Module):
    """A model whose cache is a list of tensors: keys and values of each layer, `[B, H, past, D/H]`."""

    def __init__(self, model: GPT1ForCausalLM):
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.LongTensor, attention_mask: torch.LongTensor, past_key_values: list[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        keys, values = past_key_values[::2], past_key_values[1::2]
        cache = DynamicCache(list(zip(keys, values, strict=True)))
        output = self.model(input_ids, attention_mask, past_key_values=cache, use_cache=True)
        present = []
        for layer in cache.layers:
            present += [layer.keys, layer.values]
        return output.logits, *present


def write_onnx(model: GPT1ForCausalLM, path: Path) -> None:
    """Writes the model as an ONNX file with a cache, for any batch and any length.

    Inputs: `input_ids [B, T]`, `attention_mask [B, past + T]`, and for each layer `past_key_values.N.key` and `.value`
    `[B, H, past, D/H]`, empty at first. Outputs: `logits [B, T, V]` and `present.N.key` and `.value`.
    """
    config = model.config
    input_names, output_names = ["input_ids", "attention_mask"], ["logits"]
    for layer in range(config.num_hidden_layers):
        for part in ("key", "value"):
            input_names.append(CACHE_INPUT.format(layer=layer, part=part))
            output_names.append(CACHE_OUTPUT.format(layer=layer, part=part))
    batch, past, length = 2, 3, 4  # of the example; those of the file are open
    cache_size = (batch, config.num_attention_heads, past, config.hidden_size // config.num_attention_heads)
    num_cached = len(input_names) - 2
    example = {
        "input_ids": torch.ones(batch, length, dtype=torch.long),
        "attention_mask": torch.ones(batch, past + length, dtype=torch.long),
        # A tensor for each: one that stands twice would be one input of the graph.
        "past_key_values": [torch.zeros(cache_size) for _ in range(num_cached)],
    }
    sizes = {
        "input_ids": {0: BATCH, 1: LENGTH},
        "attention_mask": {0: BATCH, 1: TOTAL},
        "past_key_values": [{0: BATCH, 2: PAST}] * num_cached,
    }
    with without_reports():
        torch.onnx.export(
            StepWithCache(model).eval(),
            (),
            path,
            kwargs=example,
            dynamic_shapes=sizes,
            input_names=input_names,
            output_names=output_names,
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def write_in_8_bits(source: Path, target: Path) -> None:
    """Writes an ONNX file with matrices in 8 bits, from which ONNX Runtime computes with the inputs' own ranges."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with without_reports():
        quantize_dynamic(source, target, weight_type=QuantType.QInt8)


@contextmanager
def without_reports() -> Iterator[None]:
    """A context without what exporters say to their authors."""
    earlier = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(earlier)
