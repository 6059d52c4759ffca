"""A page without a server: one file of HTML and JavaScript, with the model in it, that continues texts in a browser.

The JavaScript is this package's own: some 300 lines for the tokenizer and the decoder. It asks no host for anything,
which the page's content security policy also forbids.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from jinja2 import Environment, FileSystemLoader
from transformers import GenerationConfig

from tokenization import GPT1Tokenizer, open_tokenizer
from tokenization.errors import UserError
from tokenization.text.javascript import javascript_tokenizer

from ..configuration_gpt1 import GPT1Config
from ..families.opening import check_has_no_speakers, load_whole
from ..modeling_gpt1 import GPT1ForCausalLM
from ..storage.writing import write_atomically

FOLDER = Path(__file__).parent / "browser"
ACTIVATIONS = ("gelu_pytorch_tanh", "gelu_new", "relu", "silu")  # of model.js
MOST_PARAMETERS = 50_000_000  # a page of 130 MB, which writes a few tokens a second
FIELDS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "layer_norm_epsilon",
    "hidden_act",
    "do_layer_norm_before",
)
# Settings of `generate` that change what it writes without sampling, each with the value that changes nothing.
LACKING_SETTINGS = {
    "repetition_penalty": 1.0,
    "guidance_scale": 1.0,
    "num_beams": 1,
    "no_repeat_ngram_size": 0,
    "min_length": 0,
    "min_new_tokens": 0,
    "bad_words_ids": None,
    "sequence_bias": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "exponential_decay_length_penalty": None,
    "stop_strings": None,
    "watermarking_config": None,
}


@dataclass
class PageData:
    """What a page holds of a model.

    Args:
        settings: the tokenizer, the fields of the configuration, and the weights' names and sizes, for JSON.
        weights: all weights in a row, 16 bits each, in base64.
    """

    settings: dict
    weights: str


def write_page(model_name: str, file: str | Path) -> None:
    """Writes a page that continues texts in a browser without a server.

    Args:
        model_name: a folder or hub id of gpt1, openai-gpt or gpt2 with a tokenizer of GPT-1's kind.
        file: the new file, which appears whole or not at all.

    Raises:
        ValueError: `file` exists; the model has more than 50 million parameters, or something that the page lacks.
    """
    if Path(file).exists():
        raise UserError(f"{file} is there already. Pass another name, or move the file away.")
    model = load_whole(GPT1ForCausalLM, model_name, dtype=torch.float32, use_safetensors=True)
    data = page_data(model, open_tokenizer(model_name))
    environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.get_template("page.html").render(
        name=Path(model_name).absolute().name,
        config=model.config,
        num_parameters=model.num_parameters(),
        style=(FOLDER / "page.css").read_text(encoding="utf-8"),
        scripts=[(FOLDER / name).read_text(encoding="utf-8") for name in ("model.js", "page.js")],
        settings=json.dumps(data.settings, ensure_ascii=True).replace("<", "\\u003c"),  # no tag can begin in it
        weights=data.weights,
    )
    write_atomically(file, page)


def page_data(model: GPT1ForCausalLM, tokenizer) -> PageData:
    """What a page holds of a model. Weights that bfloat16 keeps exactly are in bfloat16, others in half precision."""
    config = model.config
    check_for_page(config, model.num_parameters(), tokenizer)
    check_generation(model.generation_config)
    weights = {}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        weights[name.removeprefix("transformer.")] = weight.flatten()
    numbers = torch.cat(list(weights.values()))
    is_exact = torch.equal(numbers.bfloat16().float(), numbers)
    halves = numbers.to(torch.bfloat16 if is_exact else torch.float16)
    check_finite(weights, halves.dtype)
    end_ids = model.generation_config.eos_token_id
    settings = {
        "config": {
            **{name: getattr(config, name) for name in FIELDS},
            "windows": [config.window_of_layer(layer) for layer in range(config.num_hidden_layers)],
        },
        "tokenizer": javascript_tokenizer(tokenizer),
        "end_ids": [end_ids] if isinstance(end_ids, int) else end_ids or [],
        "format": "bfloat16" if is_exact else "float16",
        "names": [[name, weight.numel()] for name, weight in weights.items()],
    }
    bytes_of_weights = halves.view(torch.int16).numpy().astype("<i2").tobytes()
    return PageData(settings, base64.b64encode(bytes_of_weights).decode("ascii"))


def check_for_page(config: GPT1Config, num_parameters: int, tokenizer) -> None:
    """Refuses what a page cannot hold or compute."""
    check_has_no_speakers(config, "a page")
    if num_parameters > MOST_PARAMETERS:
        raise UserError(
            f"The model has {num_parameters:,} parameters, but a page holds at most {MOST_PARAMETERS:,}. Use "
            "`gpt1 convert --to js` and transformers.js for larger ones."
        )
    if not isinstance(tokenizer, GPT1Tokenizer):
        raise UserError(
            f"The tokenizer is a {type(tokenizer).__name__}, but a page has only GPT-1's. Use `gpt1 convert --to js` "
            "and transformers.js for others."
        )
    if config.hidden_act not in ACTIVATIONS:
        raise UserError(f"`hidden_act` is {config.hidden_act!r}, but a page has only {', '.join(ACTIVATIONS)}.")
    added = [token.content for token in tokenizer.added_tokens_decoder.values() if not token.special]
    if added:
        raise UserError(
            f"The tokenizer has added words, such as {added[0]!r}, which a page does not find in texts. Use "
            "`gpt1 convert --to js` and transformers.js."
        )


def check_generation(generation_config: GenerationConfig) -> None:
    """Refuses saved settings with which `generate` would write another text than a page."""
    for name, neutral in LACKING_SETTINGS.items():
        value = getattr(generation_config, name, None)
        is_unset = value in (None, [], {})  # 0 may be a token's id
        if not is_unset and value != neutral:
            raise UserError(
                f"The model's generation_config.json sets `{name}` to {value!r}, which a page does not do. Remove it "
                "there, or use `gpt1 convert --to js` and transformers.js."
            )


def check_finite(weights: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
    """Refuses weights that are no finite numbers in a page's 16 bits."""
    for name, weight in weights.items():
        if not weight.to(dtype).isfinite().all():
            raise UserError(
                f"The weight {name} has numbers that are NaN, infinite, or too large for half precision (above "
                f"{torch.finfo(torch.float16).max:,.0f}), in which a page holds it. The model's training may have "
                "diverged: use another checkpoint."
            )
