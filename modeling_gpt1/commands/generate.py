r"""Continues texts with a GPT-1 language model, in the terminal or in batches.

    gpt1 generate out/books
    gpt1 generate out/books --prompts "it was" "the old farmer" --num_return_sequences 3
    gpt1 generate out/books --prompt_file prompts.txt --temperature 0 --output_file texts.jsonl
    gpt1 generate out/dialogue --chat --persona "i have a dog ." "i live in rome ."

Batches are written as a JSON object a line, `{"prompt": …, "continuations": […]}`. A continuation begins with the
space that it needs behind its prompt: both put together are the text. See docs/generate.md.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed
from transformers.hf_argparser import HfArg

from tokenization.errors import UserError
from tokenization.file_kinds import ROW_FILES

from .. import GPT1Int8Config, continue_prompts
from ..families import family_to_generate
from ..inference.generation import encode_prompts, reply_to
from ..storage.reading import one_save
from .models import OpenedModel, open_output, opening, read_with_model
from .rows import check_unknown, read_utf8_lines


@dataclass
class GenerationArguments(OpenedModel):
    """Which prompts, and how to continue them."""

    prompts: list[str] = HfArg(default_factory=list, help="Texts to continue. Default: ask for them in the terminal.")
    prompt_file: str | None = HfArg(default=None, help="File with a prompt per line.")
    chat: bool = HfArg(default=False, help="Talk with a dialogue model: a line of the input is a message.")
    persona: list[str] = HfArg(default_factory=list, help="Sentences of the model's persona, for --chat.")
    persona_file: str | None = HfArg(default=None, help="File with a sentence of the persona per line, for --chat.")
    output_file: str | None = HfArg(default=None, help="New file for the texts, as JSON lines. Default: the terminal.")
    batch_size: int = HfArg(default=8, help="Prompts per batch.")
    max_new_tokens: int = HfArg(default=40, help="Maximum length of a continuation, in tokens.")
    temperature: float = HfArg(default=1.0, help="Temperature of sampling; 0 always takes the most likely token.")
    top_k: int = HfArg(default=40, help="Number of the most likely tokens to sample from; 0: all.")
    top_p: float = HfArg(default=1.0, help="Probability that the tokens to sample from reach together.")
    num_beams: int = HfArg(
        default=1, help="Beams of a beam search, which does not sample: without --temperature, --top_k, --top_p."
    )
    num_return_sequences: int = HfArg(default=1, help="Continuations per prompt.")
    seed: int = HfArg(default=0, help="Seed of sampling.")
    stop: list[str] = HfArg(default_factory=list, help=r"Strings that end a text, such as \n or [e].")
    capitals: bool = HfArg(default=False, help="Begin sentences with a capital letter.")
    static_cache: bool = HfArg(default=False, help="Compile the decoding on a GPU, which pays for many or long texts.")
    dtype: Literal["float32", "bfloat16", "int8"] = HfArg(default="float32", help="Data type of the weights.")

    def __post_init__(self):
        if not 0 < self.top_p <= 1:
            raise UserError(f"--top_p is {self.top_p}. Pass a number above 0, up to 1.")
        if self.num_beams > 1:
            self._check_not_sampled()
            self._check_number_of_texts(self.num_beams, f"--num_beams {self.num_beams}")
        elif self.temperature == 0:
            self._check_number_of_texts(1, "--temperature 0, which always writes the same text")
        self._check_chat()
        self.stop = [string.replace(r"\n", "\n") for string in self.stop]

    def _check_not_sampled(self) -> None:
        """Refuses flags of sampling beside a beam search."""
        for name in ("temperature", "top_k", "top_p"):
            value = getattr(self, name)
            is_greedy = name == "temperature" and value == 0
            if value != getattr(type(self), name) and not is_greedy:  # a field's default is of the class
                raise UserError(
                    f"--{name} {value} is for sampling, but --num_beams {self.num_beams} searches the most likely "
                    "text. Leave one of them out."
                )

    def _check_number_of_texts(self, most: int, how: str) -> None:
        """Refuses more texts for a prompt than there are without sampling."""
        if self.num_return_sequences > most:
            raise UserError(
                f"--num_return_sequences is {self.num_return_sequences}, but there is at most {most} with {how}. Pass "
                "that, or sample: a --temperature above 0 without --num_beams."
            )

    def _check_chat(self) -> None:
        """Refuses flags that do not go with a chat, or that need one."""
        if self.chat:
            others = {
                "--prompts": self.prompts,
                "--prompt_file": self.prompt_file,
                "--output_file": self.output_file,
                "--num_return_sequences": self.num_return_sequences != 1,
            }
            given = [flag for flag, value in others.items() if value]
            if given:
                raise UserError(f"--chat answers each message of the input with one reply. Leave {given[0]} out.")
        elif self.persona or self.persona_file:
            flag = "--persona" if self.persona else "--persona_file"
            raise UserError(f"{flag} is for a conversation. Add --chat, or leave it out.")

    def choose_device(self) -> None:
        if self.device is not None or self.dtype != "int8":  # int8 chooses its own
            super().choose_device()

    @property
    def is_sampled(self) -> bool:
        """Whether tokens are drawn; a beam search takes the most likely text."""
        return self.temperature != 0 and self.num_beams == 1

    @property
    def generation(self) -> dict[str, Any]:
        """Arguments of `continue_prompts`."""
        options = {
            "do_sample": self.is_sampled,
            "num_beams": self.num_beams,
            "stop": self.stop,
            "max_new_tokens": self.max_new_tokens,
            "num_return_sequences": self.num_return_sequences,
            "capitals": self.capitals,
        }
        if self.is_sampled:
            options["temperature"] = self.temperature
            options["top_k"] = self.top_k
            options["top_p"] = self.top_p
        if self.static_cache:
            options["cache_implementation"] = "static"
        return options


ARGUMENTS = (GenerationArguments,)


def open_model(args: GenerationArguments) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if args.dtype == "int8":
        options = {"dtype": torch.float32, "quantization_config": GPT1Int8Config()}
    else:
        options = {"dtype": args.dtype}
    family = family_to_generate(args.model)
    model = family.open_language_model(args.model, device_map=args.device, **options)
    return model, family.open_tokenizer(args.model)


def read_lines(flag: str, path: Path, thing: str) -> list[str]:
    """The lines of a file that are not blank, each a `thing`."""
    if path.name.lower().endswith(tuple(ROW_FILES)):
        raise UserError(f"{flag} {path} is a table, but a file with a {thing} per line is needed. Write one.")
    lines = [line for line in read_utf8_lines(flag, path) if line.strip()]
    if not lines:
        raise UserError(f"{flag} {path} has no {thing}s. Write one per line.")
    return lines


def read_persona(args: GenerationArguments) -> list[dict[str, str]]:
    """The messages that a conversation begins with: the persona, if there is one."""
    sentences = list(args.persona)
    if args.persona_file:
        sentences += read_lines("--persona_file", Path(args.persona_file), "sentence")
    if not sentences:
        return []
    return [{"role": "system", "content": " ".join(sentence.strip() for sentence in sentences)}]


def chat(model, tokenizer, messages: list[dict[str, str]], args: GenerationArguments) -> None:
    """Answers messages from the terminal until an empty line or the end of the input."""
    messages = list(messages)
    for text in typed_lines("Type a message; an empty line quits."):
        messages.append({"role": "user", "content": text})
        try:
            (reply,) = reply_to(model, tokenizer, messages, **args.generation)
        except UserError as error:  # a message that is too long
            messages.pop()
            print(error)
        else:
            messages.append({"role": "assistant", "content": reply})
            print(reply)


def typed_lines(invitation: str) -> Iterator[str]:
    """Prints an invitation, then gives the lines of the terminal until an empty one or the end of the input."""
    print(invitation)
    if sys.stdin is None:  # closed
        return
    while True:
        try:
            line = input("> ")
        except EOFError:
            print()
            return
        except UnicodeDecodeError as error:
            raise UserError(
                f"The input is not text in {error.encoding}: {error.reason}. Write it in that encoding."
            ) from error
        if not line:
            return
        yield line


def check_talks(model: str, tokenizer: PreTrainedTokenizerBase) -> None:
    if tokenizer.chat_template is None:
        raise UserError(
            f"--model {model} has no chat template, so it is no dialogue model. Pass a folder that "
            "examples/dialogue.py has written, or leave --chat out."
        )


def talk(model, tokenizer, args: GenerationArguments) -> None:
    """Reads prompts from the terminal until an empty line or the end of the input."""
    for prompt in typed_lines("Type a text to continue; an empty line quits."):
        try:
            (texts,) = continue_prompts(model, tokenizer, [prompt], **args.generation)
        except UserError as error:  # a prompt that is too long
            print(error)
        else:
            print("\n".join(text.lstrip(" ") for text in texts))


def write_texts(model, tokenizer, prompts: list[str], args: GenerationArguments) -> None:
    """Continues the prompts in batches, and writes a line for each."""
    with open_output(args.output_file) as file:
        for first in range(0, len(prompts), args.batch_size):
            batch = prompts[first : first + args.batch_size]
            continuations = continue_prompts(model, tokenizer, batch, **args.generation)
            for prompt, texts in zip(batch, continuations, strict=True):
                record = {"prompt": prompt, "continuations": texts}
                print(json.dumps(record, ensure_ascii=False), file=file, flush=True)
    if args.output_file:
        print(f"written to {args.output_file}")


def main(arguments: list[str]) -> None:
    args = read_with_model("generate", arguments)
    prompts = list(args.prompts)
    if args.prompt_file:
        prompts += read_lines("--prompt_file", Path(args.prompt_file), "prompt")
    if args.output_file and not prompts:
        raise UserError("--output_file is for the texts of --prompts and --prompt_file. Pass one, or leave it out.")
    persona = read_persona(args)
    with one_save(args.model), opening(f"--model {args.model}"):
        model, tokenizer = open_model(args)
    set_seed(args.seed)
    if args.chat:
        check_talks(args.model, tokenizer)
        chat(model, tokenizer, persona, args)
        return
    if not prompts:
        talk(model, tokenizer, args)
        return
    encode_prompts(model, tokenizer, prompts, args.max_new_tokens)  # refuses any before the first text
    check_unknown(tokenizer, prompts, "the prompts")
    write_texts(model, tokenizer, prompts, args)
