"""A server: a language model continues texts by OpenAI's interface, and a fine-tuned model predicts rows.

The server is that of transformers (`transformers serve`), which looks for models in transformers alone. Here it gets a
model that is open already, and the few settings that differ for GPT-1. Of its parts these are replaced:

- its table of models by [`OpenModels`], whose tokenizer is a [`PlainText`]
- its handlers of requests by [`Completions`], [`Conversations`] and [`Responses`], which check a request first
- its threads that generate by [`TextManager`]s, which [`Managers`] hands out. They give the model as a
  [`RequestedModel`], which knows seed and stop strings of one request, and a stream as [`Pieces`].
"""

import asyncio
import inspect
import json
import os
import socket
from collections.abc import Callable
from itertools import chain
from threading import Lock
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.import_utils import is_serve_available

from tokenization import GPT1Tokenizer, Task, TraversalCollator
from tokenization import errors as tokenization_errors
from tokenization.text.conversations import encode_conversation

from ..configuration_gpt1 import UserError, has_choices, is_regression
from ..configuration_gpt1_lstm import GPT1LSTMConfig
from ..families import family_of_checkpoint
from ..inference.generation import (
    RefuseNaN,
    StopAtStrings,
    check_is_text,
    encode_as_text,
    encode_prompts,
    tokens_that_stop,
)
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
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from transformers.generation.configuration_utils import ContinuousBatchingConfig, GenerationConfig
from transformers.tokenization_utils_base import BatchEncoding

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

from .requests import (
    SETTINGS_NOT_TOGETHER,
    check_ids,
    check_messages,
    check_request,
    refuse_together,
    requested_length,
)

# Routes of transformers' server that these models cannot answer, one with which anybody could unload the model, and
# one that would load others.
UNSERVED = ("/v1/audio/transcriptions", "/v1/systemone", "/reset", "/load_model")
# As in vLLM: logits divided by a smaller one could overflow. The most likely token is chosen instead.
LOWEST_TEMPERATURE = 1e-5
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
        UserError: `continuous_batching` with a model or a release of transformers that has no paged caches, or with
            a model whose generation settings may not hold there.
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
        handler.continuous_batching = continuous_batching
    app = build_server(manager, generation_state=state, **handlers)
    app.router.routes = [route for route in app.router.routes if route.path not in UNSERVED]

    @app.post("/load_model")
    def load_model(body: dict):  # `transformers chat` asks for it first
        if body.get("model") != name:
            raise UserError(f"`model` is {body.get('model')!r}, but the server has only {name!r}. Ask for that.")
        return StreamingResponse(manager.load_model_streaming(name), media_type="text/event-stream")

    answer_user_errors(app)
    return app


def check_paged_caches(model: PreTrainedModel) -> None:
    """Refuses a model that continuous batching cannot compute."""
    if model.config.model_type == GPT1LSTMConfig.model_type:
        raise UserError(
            "The model is an LSTM, which has no cache of keys and values to share. Leave `continuous_batching` out."
        )
    if model.config.speaker_token_ids is not None:
        raise UserError(
            "`continuous_batching` passes no speakers to the model, and this is a dialogue model, which reads them. "
            "Leave `continuous_batching` out."
        )
    if CACHE != "cache":
        raise UserError(
            f"`continuous_batching` needs transformers 5.24 or newer, but this is {transformers.__version__}. Install "
            "that, or leave `continuous_batching` out."
        )
    for setting, neutral in SETTINGS_NOT_TOGETHER.items():
        value = getattr(model.generation_config, setting)
        if value not in (None, neutral):
            raise UserError(
                f"The model's generation_config.json has {setting}={value!r}, which transformers may leave out or get "
                "wrong with `continuous_batching`. Remove it there, or leave `continuous_batching` out."
            )


class OpenModels(ModelManager):
    """transformers' table of models, with one that is open and stays open."""

    def __init__(self, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        super().__init__()
        self.force_model = name
        self.plain_text = PlainText(tokenizer)
        self.loaded_models[name] = TimedModel(model, timeout_seconds=-1, processor=tokenizer)

    def process_model_name(self, model_id: str) -> str:
        """The name as it is; transformers adds a branch of the hub."""
        return model_id

    def load_model_and_processor(self, *args, **kwargs) -> tuple[PreTrainedModel, "PlainText"]:
        """The model, whatever is asked for: the server opens no other."""
        return self.loaded_models[self.force_model].model, self.plain_text

    def get_model_modality(self, model: PreTrainedModel, processor: Any = None) -> Any:
        """That of a model with a tokenizer, which reads texts alone."""
        return super().get_model_modality(model, processor=self.plain_text.reads)

    def list_models(self, cache_dir: str | None = None) -> list[dict]:
        """The model for /v1/models; transformers 5.17 would list those of the hub's cache."""
        return [describe_model(self.force_model)]

    get_gen_models = list_models  # its name in transformers 5.17


class PlainText:
    """A tokenizer to which a request's texts are text: what they spell becomes no control token.

    It gives the ids that `continue_prompts` and `reply_to` read.
    """

    def __init__(self, reads: PreTrainedTokenizerBase):
        self.reads = reads

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reads, name)

    def __call__(self, prompt: str, return_tensors: str | None = None) -> BatchEncoding:
        return self._encoding(encode_as_text(self.reads, prompt), return_tensors)

    def apply_chat_template(
        self,
        messages: list[dict],
        return_tensors: str | None = None,
        tokenize: bool = True,
        return_dict: bool = True,
        load_audio_from_video: bool = False,
        **options: Any,
    ) -> BatchEncoding:
        """The ids of messages. transformers' handlers always want a dictionary of them, and have no video here."""
        return self._encoding(encode_conversation(self.reads, messages, **options), return_tensors)

    def _encoding(self, ids: list[int], return_tensors: str | None) -> BatchEncoding:
        if return_tensors is None:
            return BatchEncoding({"input_ids": ids})
        rows = {"input_ids": [ids], "attention_mask": [[1] * len(ids)]}
        return BatchEncoding(rows, tensor_type=return_tensors)


class Managers(GenerationState):
    """transformers' threads that generate, with seeds, stop strings and streams as this package has them."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, **options: Any):
        super().__init__(**options)
        self.tokenizer = tokenizer

    def get_manager(self, model_id: str, use_cb: bool = False) -> "TextManager":
        return TextManager(super().get_manager(model_id, use_cb), self.tokenizer)


class TextManager:
    """A thread that generates. It seeds itself for each text, and a text ends where its stop string ends."""

    def __init__(self, manager: BaseGenerateManager, tokenizer: PreTrainedTokenizerBase):
        self.manager = manager
        self.tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.manager, name)

    def generate_streaming(
        self, model: PreTrainedModel, processor: Any, inputs: Any, gen_config: GenerationConfig, **options: Any
    ) -> tuple[Any, Any]:
        check_room(model, inputs, gen_config)
        at_strings = self._stop_of(inputs, gen_config)
        queue, streamer = self.manager.generate_streaming(
            RequestedModel(model, gen_config.seed, at_strings), processor, inputs, gen_config, **options
        )
        return Pieces(queue, self.tokenizer, at_strings), streamer

    async def generate_non_streaming(
        self, model: PreTrainedModel, processor: Any, inputs: Any, gen_config: GenerationConfig, **options: Any
    ) -> tuple[str, int, Any]:
        check_room(model, inputs, gen_config)
        at_strings = self._stop_of(inputs, gen_config)
        try:
            text, input_length, ids = await self.manager.generate_non_streaming(
                RequestedModel(model, gen_config.seed, at_strings), processor, inputs, gen_config, **options
            )
        except ValueError as error:  # what `generate` says of a setting, such as a penalty that is negative
            raise UserError(f"The request cannot be generated: {error}") from error
        if at_strings.strings:
            decoded = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            text = tidied(self.tokenizer, at_strings.cut_behind(decoded))
        return text, input_length, ids

    def _stop_of(self, inputs: Any, gen_config: GenerationConfig) -> StopAtStrings:
        if not gen_config.stop:  # as always with continuous batching, whose ids are no tensor
            return StopAtStrings(self.tokenizer, (), prompt_length=0)
        return StopAtStrings(self.tokenizer, gen_config.stop, prompt_length=inputs["input_ids"].shape[-1])


def check_room(model: PreTrainedModel, inputs: Any, gen_config: GenerationConfig) -> None:
    """Refuses messages that leave no room for a reply; an error of the generating thread could end it for good.

    Raises:
        UserError: there is no token to continue, or there are too many.
    """
    ids = inputs["input_ids"]
    length = len(ids) if isinstance(ids, list) else ids.shape[-1]
    if length == 0:
        raise UserError("The messages contain no token, but the model continues from one. Send a word.")
    positions = model.config.max_position_embeddings
    if length + gen_config.max_new_tokens > positions:
        raise UserError(
            f"The messages have {length} tokens and the reply may have {gen_config.max_new_tokens}, but the model has "
            f"only {positions} positions (`max_position_embeddings`). Send fewer or shorter messages, or a smaller "
            "`max_tokens`."
        )


class RequestedModel:
    """A model that generates the text of one request.

    The seed is set where the text is generated: another text may be generated between the request and its own.
    """

    def __init__(self, model: PreTrainedModel, seed: int | None, at_strings: StopAtStrings):
        self.model = model
        self.seed = seed
        self.at_strings = at_strings

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def generate(self, **options: Any) -> torch.Tensor:
        if self.seed is not None:
            torch.manual_seed(self.seed)
        if self.at_strings.strings:
            options["stopping_criteria"] = [self.at_strings]
        return self.model.generate(**options, logits_processor=[RefuseNaN(self.model)])


class Pieces:
    """The pieces of a streamed text, which join to what the tokenizer decodes from all tokens at once.

    Except for a character of several tokens that the end of the text cuts: a stream leaves it out, and a whole text
    has the replacement character there.

    transformers decodes token by token. GPT-1's tokenizer leaves out the spaces around a line end, and some clean up
    punctuation: a piece is sent once the next token can no longer change it.
    """

    def __init__(self, queue: asyncio.Queue, tokenizer: PreTrainedTokenizerBase, at_strings: StopAtStrings):
        self.queue = queue
        self.tokenizer = tokenizer
        self.at_strings = at_strings
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
        if isinstance(self.tokenizer, GPT1Tokenizer):
            text = text.replace(" \n ", "\n")
        return tidied(self.tokenizer, self.at_strings.cut_behind(text))


def tidied(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """A text that was decoded without a clean-up, after that of GPT-1's tokenizer if it has one."""
    is_of_gpt1 = isinstance(tokenizer, GPT1Tokenizer)
    if is_of_gpt1 and (tokenizer.clean_up_tokenization_spaces or tokenizer.goes_on):
        return tokenizer.clean_up_tokenization(text)
    return text


class Settings:
    """How a request becomes arguments of `generate`, for all handlers."""

    max_new_tokens: int
    continuous_batching: bool

    async def handle_request(self, body: dict, request_id: str):
        served = self.model_manager.force_model
        if body.get("model") not in (None, served):
            raise UserError(
                f"`model` is {body['model']!r}, but the server has only {served!r}. Send that, or leave `model` out."
            )
        name, model, plain_text = self._resolve_model(body)
        self.check(body, name, model, plain_text.reads)
        # OpenAI's interface streams on request alone; transformers streams a response that does not say.
        return await super().handle_request({"stream": False, **body}, request_id)

    def check(self, body: dict, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuses a request that cannot be answered as it asks.

        Raises:
            UserError: what is wrong, and what to send.
        """
        raise NotImplementedError

    def _validate_request(self, body: dict) -> None:
        known = self._valid_params_class.__mutable_keys__
        for field in body:
            if field not in known:
                raise UserError(f"The server knows no field `{field}`. Leave it out.")
        super()._validate_request(body)

    def _build_generation_config(
        self, body: dict, model_generation_config: GenerationConfig, use_cb: bool = False
    ) -> GenerationConfig:
        # transformers would seed this thread, which is not the one that generates, miss some stop strings, and read
        # the biases of messages alone.
        read_by_transformers = {**body, "seed": None, "stop": None, "logit_bias": None}
        settings = super()._build_generation_config(read_by_transformers, model_generation_config, use_cb=use_cb)
        settings.max_new_tokens = requested_length(body, self.max_new_tokens)
        temperature = body.get("temperature")
        if temperature is not None and temperature < LOWEST_TEMPERATURE:
            settings.do_sample = False
            settings.temperature = None
        elif temperature is not None or body.get("top_p") is not None:
            settings.do_sample = True  # else `generate` would leave both out
        if body.get("logit_bias"):
            settings.sequence_bias = {(int(token_id),): float(bias) for token_id, bias in body["logit_bias"].items()}
        if body.get("stream") and (settings.num_beams or 1) > 1:
            raise UserError("A beam search gives its text whole. Leave `stream` out, or `num_beams`.")
        settings.seed = body.get("seed")  # read by `TextManager`, as is `stop`
        self._set_stop(settings, body.get("stop"))
        return settings

    def _set_stop(self, settings: GenerationConfig, stop: str | list[str] | None) -> None:
        """Divides what ends a text into tokens, at which `generate` ends by itself, and strings."""
        stop = settings.stop_strings if stop is None else stop
        stop = [stop] if isinstance(stop, str) else list(stop or ())
        settings.stop_strings = None
        tokens = tokens_that_stop(self.model_manager.plain_text.reads)
        own_end = settings.eos_token_id
        end_ids = [own_end] if isinstance(own_end, int) else list(own_end or ())
        end_ids += [tokens[string] for string in stop if string in tokens]
        settings.eos_token_id = end_ids or None
        settings.stop = [string for string in stop if string not in tokens]
        if settings.stop and self.continuous_batching:
            refuse_together("stop_strings")


class Completions(Settings, CompletionHandler):
    """Continues a text."""

    def check(self, body: dict, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        check_request(body, needed="prompt", continuous_batching=self.continuous_batching)
        check_ids(body.get("logit_bias"), model.config.vocab_size)
        encode_prompts(model, tokenizer, [body["prompt"]], requested_length(body, self.max_new_tokens))


class Conversations(Settings, ChatCompletionHandler):
    """Answers messages, if the tokenizer has a template for them."""

    def check(self, body: dict, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        check_template(name, tokenizer)
        check_request(body, needed="messages", continuous_batching=self.continuous_batching)
        check_ids(body.get("logit_bias"), model.config.vocab_size)
        check_messages(body["messages"])


class Responses(Settings, ResponseHandler):
    """Answers messages by OpenAI's newer interface."""

    def check(self, body: dict, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        check_template(name, tokenizer)
        check_request(body, needed="input", continuous_batching=self.continuous_batching)
        check_ids(body.get("logit_bias"), model.config.vocab_size)
        check_messages(self._normalize_input(body))


def check_template(name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuses messages to a model without a chat template."""
    if tokenizer.chat_template is None:
        raise UserError(
            f"{name} continues texts and has no chat template, so it answers no messages. Send a `prompt` to "
            "/v1/completions, or serve a model whose tokenizer has a `chat_template`."
        )


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
            found = "has no `rows`" if rows is None else "has `rows` that are no list of objects"
            raise UserError(f'The request {found}. Send {{"rows": [{{column: text, …}}, …]}}.')
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
            metrics=(),  # no prediction is compared with a label
        )
        tokenizer = family.open_tokenizer(checkpoint)
        parts = prepare_finetuning(checkpoint, self.task, tokenizer, both_orders=family.reads_both_orders(config))
        self.model: PreTrainedModel = parts["model"].eval().to(device)
        self.collator: TraversalCollator = parts["data_collator"]
        self.collator.max_length = min(self.collator.max_length, tokenizer.model_max_length)
        self.lock = Lock()

    def __call__(self, rows: list[dict]) -> list[dict]:
        """A prediction for each row: `label` and `scores`, or a regression's `score`; `error` if it cannot be read.

        Raises:
            UserError: no row has one of the columns.
        """
        names = set(chain.from_iterable(rows))
        for column in self.task.text_columns:
            if column not in names:
                needed = ", ".join(map(repr, self.task.text_columns))
                raise UserError(f"No row has the column {column!r}. Send rows with the columns {needed}.")
        errors = [row_error(row) for row in rows]
        readable = [row for row, error in zip(rows, errors, strict=True) if error is None]
        texts = [{column: row.get(column) for column in self.task.text_columns} for row in readable]
        # One request at a time: a tokenizer switches truncation and padding on and off for all threads.
        with self.lock:
            predictions = iter(list(predict_rows(texts, self.task, self.model, self.collator)))
        return [next(predictions) if error is None else {"error": error} for error in errors]


def row_error(row: dict) -> str | None:
    """Why no tokenizer can read a row, whatever its columns are for."""
    try:
        check_is_text("row", json.dumps(row, ensure_ascii=False))
    except tokenization_errors.UserError as error:
        return str(error)
    return None


# ---- Both


def describe_model(name: str) -> dict:
    """A model's entry in the list of /v1/models."""
    return {"id": name, "object": "model", "created": 0, "owned_by": ""}


def answer_user_errors(app: FastAPI) -> None:
    """Makes the server answer 400 with the sentence of what a request got wrong."""

    async def refuse(request: Request, error: Exception) -> JSONResponse:
        message = str(error).replace("`max_new_tokens`", "`max_tokens`")  # as a request calls it
        return JSONResponse({"error": {"message": message, "type": "invalid_request_error"}}, status_code=400)

    async def refuse_body(request: Request, error: RequestValidationError) -> JSONResponse:
        # FastAPI's own answer quotes the body, and fails itself for one that JSON cannot express.
        return await refuse(request, UserError("The body of the request is not a JSON object. Send one."))

    for kind in (UserError, tokenization_errors.UserError):
        app.add_exception_handler(kind, refuse)
    app.add_exception_handler(RequestValidationError, refuse_body)


def run_server(app: FastAPI, host: str, port: int) -> None:
    """Answers until it is interrupted. Prints the address first.

    Raises:
        UserError: nothing can listen there, such as beside another program.
    """
    if not host:  # which would be all addresses
        raise UserError("`host` is empty. Pass 127.0.0.1 for this machine alone, or 0.0.0.0 for all addresses.")
    is_ipv6 = ":" in host
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if is_ipv6 else socket.AF_INET)
    except (OSError, TypeError, UnicodeError) as error:  # the last two of a name that is none, such as ä..b
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(
            f"Nothing can listen on `host` {host} and `port` {port}: {reason}. Pass another `port`, or "
            "an address of this machine as `host`."
        ) from error
    address = f"[{host}]" if is_ipv6 else host
    print(f"The server is at http://{address}:{listening.getsockname()[1]}. Ctrl-C ends it.", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    server.run(sockets=[listening])
