"""A server: a language model continues texts by OpenAI's interface, and a fine-tuned model predicts rows.

The server is that of transformers (`transformers serve`), which looks for models in transformers alone. Here it gets a
model that is open already, and the few settings that differ for GPT-1.
"""

import asyncio
import inspect
import os
import socket
from collections.abc import Callable
from typing import Any

import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.import_utils import is_serve_available

from tokenization import GPT1Tokenizer, Task, TraversalCollator, load_files
from tokenization import errors as tokenization_errors

from ..configuration_gpt1 import UserError, has_choices, is_regression
from ..configuration_gpt1_lstm import GPT1LSTMConfig
from ..families import family_of_checkpoint
from ..inference.generation import encode_prompts, tokens_that_stop
from ..inference.predictions import predict_rows
from ..modeling_gpt1 import CACHE
from ..training.preparation import prepare_finetuning

if not is_serve_available():
    raise UserError(
        "A server needs fastapi, uvicorn, openai and pydantic. Install them, or install this package with the extra "
        "'serve'."
    )

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from transformers.generation.configuration_utils import ContinuousBatchingConfig, GenerationConfig

try:
    from transformers.cli.serving.chat_completion import ChatCompletionHandler
    from transformers.cli.serving.completion import CompletionHandler
    from transformers.cli.serving.model_manager import ModelManager, TimedModel
    from transformers.cli.serving.response import ResponseHandler
    from transformers.cli.serving.server import build_server
    from transformers.cli.serving.utils import BaseGenerateManager, GenerationState
except ImportError as error:
    raise UserError(
        f"transformers {transformers.__version__} has no server that this package knows ({error}). Install "
        "transformers 5.24."
    ) from error

# Fields of a request that limit the new tokens.
LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "generation_config")
# Routes of transformers' server that these models cannot answer, and one with which anybody could unload the model.
UNSERVED = ("/v1/audio/transcriptions", "/v1/systemone", "/reset")
# Continuous batching on a CPU, where transformers does not measure the memory: 16,384 cached tokens.
ROOM_ON_CPU = {"num_blocks": 64, "max_batch_tokens": 512}


# ---- Language models


def language_model_app(
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    max_new_tokens: int = 40,
    continuous_batching: bool = False,
) -> FastAPI:
    """A server that continues texts: /v1/completions, and where the tokenizer has a chat template, conversations.

    Args:
        name: what requests call the model.
        model: a model with `generate`, in evaluation mode.
        tokenizer: of the same folder.
        max_new_tokens: length of a continuation whose request names none.
        continuous_batching: compute requests that overlap together, from paged caches.

    Raises:
        UserError: `continuous_batching` with a model or a release of transformers that has no paged caches.
    """
    if continuous_batching:
        check_paged_caches(model)
    manager = OpenModels(name, model, tokenizer)
    room = ContinuousBatchingConfig(**ROOM_ON_CPU) if model.device.type == "cpu" else None
    state = Managers(tokenizer, continuous_batching=continuous_batching, cb_config=room)
    handlers: dict[str, Any] = {
        parameter: None for parameter in inspect.signature(build_server).parameters if parameter.endswith("_handler")
    }
    handlers["chat_handler"] = Conversations(manager, state)
    handlers["completion_handler"] = Completions(manager, state)
    handlers["response_handler"] = Responses(manager, state)
    for handler in (handlers["chat_handler"], handlers["completion_handler"], handlers["response_handler"]):
        handler.max_new_tokens = max_new_tokens
    app = build_server(manager, generation_state=state, **handlers)
    app.router.routes = [route for route in app.router.routes if route.path not in UNSERVED]
    answer_user_errors(app)
    return app


def check_paged_caches(model: PreTrainedModel) -> None:
    """Refuses a model that continuous batching cannot compute."""
    if model.config.model_type == GPT1LSTMConfig.model_type:
        raise UserError(
            "The model is an LSTM, which has no cache of keys and values to share. Leave `continuous_batching` out."
        )
    if CACHE != "cache":
        raise UserError(
            f"`continuous_batching` needs transformers 5.24 or newer, but this is {transformers.__version__}. Install "
            "that, or leave `continuous_batching` out."
        )


class OpenModels(ModelManager):
    """transformers' table of models, with one that is open and stays open."""

    def __init__(self, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        super().__init__()
        self.force_model = name
        self.loaded_models[name] = TimedModel(model, timeout_seconds=-1, processor=tokenizer)

    def process_model_name(self, model_id: str) -> str:
        """The name as it is; transformers adds a branch of the hub."""
        return model_id

    def load_model_and_processor(self, *args, **kwargs) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """The model, whatever is asked for: the server opens no other."""
        opened = self.loaded_models[self.force_model]
        return opened.model, opened.processor

    def list_models(self, cache_dir: str | None = None) -> list[dict]:
        """The model for /v1/models; transformers 5.17 would list those of the hub's cache."""
        return [describe_model(self.force_model)]

    get_gen_models = list_models  # its name in transformers 5.17


class Managers(GenerationState):
    """transformers' threads that generate, whose streams join to the text that comes without streaming."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, **options: Any):
        super().__init__(**options)
        self.tokenizer = tokenizer

    def get_manager(self, model_id: str, use_cb: bool = False) -> "StreamingManager":
        return StreamingManager(super().get_manager(model_id, use_cb), self.tokenizer)


class StreamingManager:
    """A thread that generates, with the streams of `Pieces`."""

    def __init__(self, manager: BaseGenerateManager, tokenizer: PreTrainedTokenizerBase):
        self.manager = manager
        self.tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.manager, name)

    def generate_streaming(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        queue, streamer = self.manager.generate_streaming(*args, **kwargs)
        return Pieces(queue, self.tokenizer), streamer


class Pieces:
    """The pieces of a streamed text, which join to what the tokenizer decodes from all tokens at once.

    transformers decodes token by token. GPT-1's tokenizer leaves out the spaces around a line end, and some clean up
    punctuation: a piece is sent once the next token can no longer change it.
    """

    def __init__(self, queue: asyncio.Queue, tokenizer: PreTrainedTokenizerBase):
        self.queue = queue
        self.tokenizer = tokenizer
        self.received = ""
        self.sent = ""

    async def get(self) -> Any:
        return self._next(await self.queue.get())

    def get_nowait(self) -> Any:
        return self._next(self.queue.get_nowait())

    def _next(self, piece: Any) -> Any:
        """What is sent for a piece. None ends the text; other objects than texts, such as an error, are sent on."""
        if piece is None:
            rest = self._tidied(self.received)[len(self.sent) :]
            if not rest:
                return None
            self.queue.put_nowait(None)
            self.sent += rest
            return rest
        if type(piece) is not str:
            return piece
        before = self._tidied(self.received)
        self.received += piece
        certain = os.path.commonprefix([before, self._tidied(self.received)])
        new = certain[len(self.sent) :]
        self.sent += new
        return new

    def _tidied(self, text: str) -> str:
        if not isinstance(self.tokenizer, GPT1Tokenizer):
            return text
        text = text.replace(" \n ", "\n")
        if self.tokenizer.clean_up_tokenization_spaces or self.tokenizer.goes_on:
            text = self.tokenizer.clean_up_tokenization(text)
        return text


class Settings:
    """How a request becomes arguments of `generate`, for all handlers."""

    max_new_tokens: int

    def _build_generation_config(
        self, body: dict, model_generation_config: GenerationConfig, use_cb: bool = False
    ) -> GenerationConfig:
        settings = super()._build_generation_config(body, model_generation_config, use_cb=use_cb)
        if all(body.get(field) is None for field in LENGTHS):
            settings.max_new_tokens = self.max_new_tokens
        if body.get("temperature") == 0:
            settings.temperature = None
        elif body.get("temperature") is not None or body.get("top_p") is not None:
            settings.do_sample = True  # else `generate` would leave both out
        return settings


class Completions(Settings, CompletionHandler):
    """Continues a text."""

    async def handle_request(self, body: dict, request_id: str):
        _, model, tokenizer = self._resolve_model(body)
        if isinstance(body.get("prompt"), str):
            max_new_tokens = body.get("max_tokens")
            encode_prompts(
                model, tokenizer, [body["prompt"]], self.max_new_tokens if max_new_tokens is None else max_new_tokens
            )
        body["stop"] = as_decoded(tokenizer, body.get("stop"))
        return await super().handle_request(body, request_id)


class Conversations(Settings, ChatCompletionHandler):
    """Answers messages, if the tokenizer has a template for them."""

    async def handle_request(self, body: dict, request_id: str):
        check_template(self, body)
        return await super().handle_request(body, request_id)


class Responses(Settings, ResponseHandler):
    """Answers messages by OpenAI's newer interface."""

    async def handle_request(self, body: dict, request_id: str):
        check_template(self, body)
        return await super().handle_request(body, request_id)


def check_template(handler: Conversations | Responses, body: dict) -> None:
    """Refuses messages to a model without a chat template."""
    name, _, tokenizer = handler._resolve_model(body)
    if tokenizer.chat_template is None:
        raise UserError(
            f"{name} continues texts and has no chat template, so it answers no messages. Send a `prompt` to "
            "/v1/completions, or serve a model whose tokenizer has a `chat_template`."
        )


def as_decoded(tokenizer: PreTrainedTokenizerBase, stop: str | list[str] | None) -> list[str] | None:
    """The strings that end a text as the tokenizer decodes them: GPT-1's in lower case, punctuation apart."""
    if stop is None:
        return None
    decoded = []
    for string in [stop] if isinstance(stop, str) else stop:
        ids = tokenizer(string, add_special_tokens=False)["input_ids"]
        if string in tokens_that_stop(tokenizer):
            decoded.append(string)
        elif ids:
            decoded.append(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
        else:
            raise UserError(f"The stop string {string!r} has no token. Give a word, or '\\n' alone for a line end.")
    return decoded


# ---- Fine-tuned models


def task_app(name: str, classify: Callable[[list[dict]], list[dict]]) -> FastAPI:
    """A server that predicts rows: POST /v1/classify with `{"rows": [{column: text, …}, …]}`.

    Args:
        name: what /v1/models calls the model.
        classify: a [`RowClassifier`].
    """
    app = FastAPI()

    @app.post("/v1/classify")
    def predictions(body: dict):
        rows = body.get("rows")
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            raise UserError('The request has no `rows`. Send {"rows": [{column: text, …}, …]}.')
        return JSONResponse({"model": name, "predictions": classify(rows)})

    @app.get("/v1/models")
    def models():
        return JSONResponse({"object": "list", "data": [describe_model(name)]})

    @app.get("/health")
    def health():
        return JSONResponse({"status": "ok"})

    answer_user_errors(app)
    return app


class RowClassifier:
    """Predicts rows in memory as `gpt1 predict` predicts those of a file.

    Args:
        checkpoint: a folder or hub id that `gpt1 finetune` wrote.
        device: where the model is computed.
    """

    def __init__(self, checkpoint: str, device: str = "cpu"):
        family = family_of_checkpoint(checkpoint)
        config = family.open_config(checkpoint)
        if config.traversal is None or not config.columns:
            raise UserError(
                f"The config.json of {checkpoint} names no traversal or no columns, so nothing says what a row is. "
                "Pass a folder that `gpt1 finetune` wrote."
            )
        has_names = not (is_regression(config) or has_choices(config.traversal))
        self.task = Task(
            name=checkpoint,
            traversal=config.traversal,
            columns={"label": "label", **config.columns},
            label_names=tuple(config.id2label.values()) if has_names else (),
            regression=is_regression(config),
            multi_label=config.problem_type == "multi_label_classification",
        )
        tokenizer = family.open_tokenizer(checkpoint)
        parts = prepare_finetuning(checkpoint, self.task, tokenizer, both_orders=family.reads_both_orders(config))
        self.model: PreTrainedModel = parts["model"].eval().to(device)
        self.collator: TraversalCollator = parts["data_collator"]
        self.collator.max_length = min(self.collator.max_length, tokenizer.model_max_length)

    def __call__(self, rows: list[dict]) -> list[dict]:
        """A prediction for each row: `label` and `scores`, or a regression's `score`; `error` if it cannot be read."""
        _, splits = load_files(
            {"test": rows},
            self.task.traversal,
            self.task.columns,
            regression=self.task.regression,
            label_names=self.task.label_names or None,
            hide_unknown_labels=True,
        )
        return list(predict_rows(splits["test"], self.task, self.model, self.collator))


# ---- Both


def describe_model(name: str) -> dict:
    """A model's entry in the list of /v1/models."""
    return {"id": name, "object": "model", "created": 0, "owned_by": ""}


def answer_user_errors(app: FastAPI) -> None:
    """Makes the server answer 400 with the sentence of what a request got wrong."""

    async def refuse(request: Request, error: Exception) -> JSONResponse:
        message = str(error).replace("`max_new_tokens`", "`max_tokens`")  # as a request calls it
        return JSONResponse({"error": {"message": message, "type": "invalid_request_error"}}, status_code=400)

    for kind in (UserError, tokenization_errors.UserError):
        app.add_exception_handler(kind, refuse)


def run_server(app: FastAPI, host: str, port: int) -> None:
    """Answers until it is interrupted. Prints the address first.

    Raises:
        UserError: nothing can listen there, such as beside another program.
    """
    is_ipv6 = ":" in host
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if is_ipv6 else socket.AF_INET)
    except OSError as error:
        raise UserError(
            f"Nothing can listen on `host` {host} and `port` {port}: {error.strerror}. Pass another `port`."
        ) from error
    address = f"[{host}]" if is_ipv6 else host
    print(f"The server is at http://{address}:{listening.getsockname()[1]}. Ctrl-C ends it.", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    server.run(sockets=[listening])
