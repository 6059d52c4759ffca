r"""Converts whole model folders between OpenAI's release, transformers' openai-gpt and gpt1, every number to the bit.
With `--to js`, writes a folder for JavaScript.

    gpt1 convert finetune-transformer-lm/model --output_dir gpt1
    gpt1 convert openai-gpt --output_dir gpt1
    gpt1 convert gpt1 --output_dir openai-gpt
    gpt1 convert gpt1 --to js --output_dir gpt1-js

The release is the folder `model` of https://github.com/openai/finetune-transformer-lm. The output folder appears whole
or not at all. For JavaScript it holds a tokenizer file and an ONNX file: see docs/javascript.md.
"""

from dataclasses import dataclass
from typing import Literal

from transformers.hf_argparser import HfArg

from tokenization.errors import UserError

from ..clients.javascript import convert_to_javascript
from ..conversion import convert_checkpoint
from .arguments import parser_of
from .models import check_named_once


@dataclass
class ConversionArguments:
    """What to convert, and where to."""

    source: str | None = HfArg(default=None, help="Folder to convert: OpenAI's release, openai-gpt or gpt1.")
    output_dir: str | None = HfArg(default=None, help="New folder for the converted model. (required)")
    to: Literal["js"] | None = HfArg(
        default=None,
        help="Form of the new folder: js for transformers.js, with an ONNX file (needs the extra onnx). "
        "Default: gpt1 for OpenAI's release and openai-gpt, openai-gpt for gpt1.",
    )
    quantize: bool = HfArg(default=False, help="With --to js, also write the weights in 8 bits for browsers.")
    num_attention_heads: int = HfArg(default=12, help="Attention heads of OpenAI's release, whose files do not say.")


ARGUMENTS = (ConversionArguments,)


def main(arguments: list[str]) -> None:
    parser = parser_of("convert")
    parser.add_argument("folder", nargs="?", help="Folder to convert, in place of --source.")
    args, positional = parser.read(arguments)
    check_named_once(arguments, "--source", args.source, positional.folder)
    args.source = positional.folder or args.source
    if args.source is None or args.output_dir is None:
        missing = "folder to convert" if args.source is None else "--output_dir"
        raise UserError(f"No {missing} was given. Write: gpt1 convert FOLDER --output_dir NEW_FOLDER.")
    if args.quantize and args.to != "js":
        raise UserError("--quantize is for folders for JavaScript. Add --to js, or leave it out.")
    if args.to == "js":
        model = convert_to_javascript(args.source, args.output_dir, args.quantize)
    else:
        model = convert_checkpoint(args.source, args.output_dir, args.num_attention_heads)
    print(f"{type(model).__name__}, {model.num_parameters():,} parameters, written to {args.output_dir}")
