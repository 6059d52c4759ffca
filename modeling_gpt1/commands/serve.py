r"""Answers requests over HTTP: continues texts by OpenAI's interface, or predicts rows with a fine-tuned model.

    gpt1 serve out/books
    curl http://127.0.0.1:8000/v1/completions -H "content-type: application/json" \
        -d '{"prompt": "it was", "max_tokens": 20, "temperature": 0.8}'
    gpt1 serve out/reviews --port 8001
    curl http://127.0.0.1:8001/v1/classify -H "content-type: application/json" -d '{"rows": [{"text": "a fine film"}]}'

A folder that `gpt1 finetune` wrote has /v1/classify, any other language model /v1/completions, and a dialogue model
/v1/chat/completions, too. Needs the extra `serve`. See docs/serve.md.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transformers.hf_argparser import HfArg

from tokenization.errors import UserError

from .. import NOVELS
from ..families import family_of_checkpoint, family_to_generate
from ..storage.reading import one_save
from .models import OpenedModel, opening, read_with_model

if TYPE_CHECKING:
    from fastapi import FastAPI

LAST_PORT = 65535


@dataclass
class ServeArguments(OpenedModel):
    """Where the server listens, and how it answers."""

    host: str = HfArg(default="127.0.0.1", help="Address to listen on; 0.0.0.0 for all, where anybody may ask.")
    port: int = HfArg(default=8000, help="Port to listen on; 0: a free one.")
    max_new_tokens: int = HfArg(
        default=40, help="Length of a continuation, in tokens, where the request has no max_tokens."
    )
    continuous_batching: bool = HfArg(
        default=False,
        help="Compute requests that overlap together. Temperature and top_p are then those of the first request.",
    )

    def __post_init__(self):
        if not 0 <= self.port <= LAST_PORT:
            raise UserError(f"--port is {self.port}. Pass a number from 0 to {LAST_PORT}.")


ARGUMENTS = (ServeArguments,)


def main(arguments: list[str]) -> None:
    args = read_with_model("serve", arguments, writes_file=False)
    from ..clients.serve import run_server  # with the packages of the extra

    with one_save(args.model), opening(f"--model {args.model}"):
        app = open_app(args)
    print(f"Requests call the model {served_name(args.given_model or args.model)}.", flush=True)
    run_server(app, args.host, args.port)


def served_name(model: str) -> str:
    """What requests call a model: as its folder or hub id was written."""
    return Path(NOVELS).name if model == NOVELS else model


def open_app(args: ServeArguments) -> "FastAPI":
    """The server of a folder: for rows if it has a task head, but for texts and messages if it talks or has none."""
    from ..clients.serve import RowClassifier, language_model_app, task_app

    family = family_of_checkpoint(args.model)
    config = family.open_config(args.model)
    is_dialogue_model = getattr(config, "speaker_token_ids", None) is not None
    if family.has_task(config) and not is_dialogue_model:
        return task_app(served_name(args.given_model or args.model), RowClassifier(args.model, args.device))
    family = family_to_generate(args.model)
    model = family.open_language_model(args.model, device_map=args.device)
    tokenizer = family.open_tokenizer(args.model)
    positions = model.config.max_position_embeddings
    if not 1 <= args.max_new_tokens < positions:
        raise UserError(
            f"--max_new_tokens is {args.max_new_tokens}, but {served_name(args.given_model or args.model)} has "
            f"{positions} positions, of which a prompt needs at least one. Pass a number from 1 to {positions - 1}."
        )
    return language_model_app(
        served_name(args.given_model or args.model),
        model.eval(),
        tokenizer,
        max_new_tokens=args.max_new_tokens,
        continuous_batching=args.continuous_batching,
    )
