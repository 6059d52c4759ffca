"""`gpt1 serve`: the real server on a free port, which OpenAI's client and plain requests ask."""

import json
import math
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import torch
from support.files import save_folder
from support.finetuning import make_double_heads_model, make_letter_tokenizer
from support.tiny import SENTENCES, byte_level
from tokenizers.processors import TemplateProcessing
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

from modeling_gpt1 import (
    NOVELS,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1LSTMConfig,
    GPT1LSTMForCausalLM,
    continue_prompts,
    reply_to,
)
from modeling_gpt1.commands import predict
from modeling_gpt1.commands import serve as serve_command
from modeling_gpt1.configuration_gpt1 import UserError
from tokenization import GPT1Tokenizer, add_speaker_tokens, join_words
from tokenization.errors import UserError as UserErrorOfCommands

openai = pytest.importorskip("openai", reason="needs the extra `serve`")
uvicorn = pytest.importorskip("uvicorn", reason="needs the extra `serve`")
serve = pytest.importorskip("modeling_gpt1.clients.serve")

PROMPT = "it was a dark night"
MESSAGES = [{"role": "user", "content": "hello"}]
TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"


class Running:
    """A server in a thread of this process, and what asks it."""

    def __init__(self, app):
        self.server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            threading.Event().wait(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        self.openai = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
        return self

    def __exit__(self, *error):
        self.server.should_exit = True
        self.thread.join()

    def complete(self, **fields):
        request = {"model": "novels", "prompt": PROMPT, "max_tokens": 12, "temperature": 0, **fields}
        return self.openai.completions.create(**request)

    def text(self, **fields):
        return self.complete(**fields).choices[0].text

    def refusal(self, route="/v1/completions", **fields):
        """The status and the sentence of a request that is refused."""
        answer = self.http.post(route, json=fields)
        return answer.status_code, answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def novels():
    return GPT1ForCausalLM.from_pretrained(NOVELS).eval(), GPT1Tokenizer.from_pretrained(NOVELS)


@pytest.fixture(scope="module")
def server(novels):
    with Running(serve.language_model_app("novels", *novels, max_new_tokens=7)) as running:
        yield running


def greedy_text(novels, prompt=PROMPT, max_new_tokens=12):
    model, tokenizer = novels
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    sequence = model.generate(ids, do_sample=False, max_new_tokens=max_new_tokens)[0]
    return tokenizer.decode(sequence[ids.shape[1] :], skip_special_tokens=True)


def test_a_completion_is_the_text_of_generate(server, novels):
    assert server.text() == greedy_text(novels)


def test_the_pieces_of_a_stream_join_to_the_text_that_comes_whole(server):
    pieces = [chunk.choices[0].text for chunk in server.complete(max_tokens=20, stream=True)]
    text = server.text(max_tokens=20)
    assert len(pieces) > 10
    assert "\n" in text  # the spaces around it depend on the token that follows
    assert "".join(pieces) == text


def test_a_model_whose_scores_are_not_numbers_gets_no_text(novels):
    model, tokenizer = novels
    diverged = GPT1ForCausalLM(model.config).eval()
    torch.nn.init.constant_(diverged.transformer.tokens_embed.weight, math.nan)
    said = "scores of the next token by .* are not numbers .NaN.*Use another checkpoint"
    with Running(serve.language_model_app("novels", diverged, tokenizer)) as server:
        with pytest.raises(openai.BadRequestError, match=said):
            server.complete()
        body = {"model": "novels", "prompt": PROMPT, "stream": True}
        assert re.search(said, server.http.post("/v1/completions", json=body).text)


def test_a_higher_temperature_gives_another_text_and_the_same_seed_the_same(server):
    hot = server.text(temperature=1.5, seed=1)
    assert hot != server.text()
    assert hot == server.text(temperature=1.5, seed=1)
    assert hot != server.text(temperature=1.5, seed=2)


def test_a_seed_of_0_is_a_seed(server):
    assert server.text(temperature=1.5, seed=0) == server.text(temperature=1.5, seed=0)


def test_a_stream_draws_what_the_seed_draws_for_a_whole_text(server):
    pieces = [chunk.choices[0].text for chunk in server.complete(temperature=1.5, seed=3, stream=True)]
    assert "".join(pieces) == server.text(temperature=1.5, seed=3)


def test_a_temperature_of_almost_0_takes_the_most_likely_token_where_the_folder_samples(server, novels, monkeypatch):
    expected = greedy_text(novels)
    monkeypatch.setattr(novels[0].generation_config, "do_sample", True)
    assert server.text(temperature=1e-38) == expected


def test_a_seed_repeats_a_text_beside_other_requests(server):
    alone = server.text(temperature=1.0, seed=1)
    with ThreadPoolExecutor(7) as pool:
        texts = list(pool.map(lambda seed: server.text(temperature=1.0, seed=seed), (1, 2, 3, 1, 2, 3, 1)))
    assert [texts[0], texts[3], texts[6]] == [alone] * 3
    assert len(set(texts)) == 3


def test_top_p_alone_samples(server):
    assert server.text(temperature=None, top_p=0.99, seed=1) != server.text(temperature=None, top_p=0.99, seed=2)


def test_without_a_temperature_the_generation_settings_of_the_folder_count(server, novels):
    assert not novels[0].generation_config.do_sample
    assert server.text(temperature=None, seed=1) == server.text()


def test_a_request_without_a_length_gets_that_of_the_server(server):
    assert server.complete(max_tokens=None).usage.completion_tokens == 7


def test_a_length_may_stand_among_the_generation_settings_of_a_request(server):
    settings = {"generation_config": '{"max_new_tokens": 3}'}
    assert server.complete(max_tokens=None, extra_body=settings).usage.completion_tokens == 3


@pytest.mark.parametrize(
    ("stop", "end"), [("sky.", "the sky ."), (["The Sun", "nowhere"], "and the sun"), ("\n", "the sky . \n")]
)
def test_a_stop_string_ends_the_text_as_the_tokenizer_writes_it(server, stop, end):
    text = server.text(max_tokens=20, stop=stop)
    assert text.endswith(end)


# The text begins with ", and the sun was shining in the sky . \n".
STOPS = [
    ("ining in", ", and the sun was shining in"),
    ("un wa", ", and the sun wa"),
    (["sky", "h"], ", and th"),
]


@pytest.mark.parametrize(("stop", "expected"), STOPS)
def test_a_text_ends_exactly_behind_its_stop_string(server, stop, expected):
    assert server.text(max_tokens=20, stop=stop) == expected


@pytest.mark.parametrize(("stop", "expected"), STOPS)
def test_a_stream_ends_exactly_behind_its_stop_string(server, stop, expected):
    pieces = [chunk.choices[0].text for chunk in server.complete(max_tokens=20, stop=stop, stream=True)]
    assert "".join(pieces) == expected


def test_stop_strings_may_stand_among_the_generation_settings_of_a_request(server):
    settings = {"generation_config": '{"stop_strings": ["un wa"]}'}
    assert server.text(extra_body=settings) == ", and the sun wa"


def test_a_token_of_stop_leaves_the_end_of_the_model_in_force(server, novels, monkeypatch):
    model, tokenizer = novels
    monkeypatch.setattr(model.generation_config, "eos_token_id", tokenizer.convert_tokens_to_ids("sun</w>"))
    answer = server.complete(stop="\n")
    assert answer.usage.completion_tokens == 4  # the last of them is the end
    assert answer.choices[0].text.startswith(", and the")


@pytest.mark.parametrize("stop", [[], "你好", "retturer"])
def test_stop_strings_that_do_not_come_change_nothing(server, stop):
    assert server.text(stop=stop) == server.text()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"prompt": ""}, "The prompt '' contains no token"),
        ({"prompt": PROMPT, "max_tokens": 600}, "has 5 tokens and `max_tokens` is 600, but the model has only 512"),
        ({"prompt": PROMPT, "stop": " "}, "The stop string ' ' has no token"),
        ({}, "The request has no `prompt`. Send a text."),
        ({"prompt": [PROMPT]}, "`prompt` is ['it was a dark night']. Send a text."),
        ({"prompt": PROMPT, "max_tokens": "8"}, "`max_tokens` is '8'. Send a whole number of at least 1."),
        ({"prompt": PROMPT, "max_tokens": 0}, "`max_tokens` is 0."),
        ({"prompt": PROMPT, "max_tokens": -3}, "`max_tokens` is -3."),
        ({"prompt": PROMPT, "max_tokens": True}, "`max_tokens` is True."),
        ({"prompt": PROMPT, "temperature": -1}, "`temperature` is -1. Send a number of at least 0."),
        ({"prompt": PROMPT, "temperature": "hot"}, "`temperature` is 'hot'."),
        ({"prompt": PROMPT, "temperature": 10**400}, "`temperature` is …. Send a number of at least 0."),
        ({"prompt": PROMPT, "top_p": 5}, "`top_p` is 5. Send a number from 0 to 1."),
        ({"prompt": PROMPT, "seed": "x"}, "`seed` is 'x'. Send a whole number from -2**63 to 2**63 - 1."),
        ({"prompt": PROMPT, "seed": 2**70}, f"`seed` is {2**70}."),
        ({"prompt": PROMPT, "stop": 5}, "`stop` is 5. Send a text or a list of texts."),
        ({"prompt": PROMPT, "stop": [1]}, "`stop` is [1]."),
        ({"prompt": PROMPT, "suffix": 5}, "`suffix` is 5. Send a text."),
        ({"prompt": PROMPT, "stream": "yes"}, "`stream` is 'yes'. Send true or false."),
        ({"prompt": PROMPT, "frequency_penalty": -1.0}, "`frequency_penalty` is -1.0. Send a number above -1"),
        ({"prompt": PROMPT, "frequency_penalty": -2.0}, "`frequency_penalty` is -2.0."),
        (
            {"prompt": PROMPT, "logit_bias": {"8495": 1}},
            "`logit_bias` has the token 8495, but the last of the model is 8494.",
        ),
        ({"prompt": PROMPT, "logit_bias": {"9" * 5000: 1}}, "Send an object with a number for each token id."),
        ({"prompt": PROMPT, "model": "other"}, "`model` is 'other', but the server has only 'novels'. Send that, or"),
        ({"prompt": PROMPT, "max_token": 5}, "The server knows no field `max_token`. Leave it out."),
        *(
            ({"prompt": PROMPT, field: value}, f"`{field}` is {value!r}, but the server does not support it.")
            for field, value in [("n", 2), ("best_of", 5), ("echo", True), ("logprobs", 3), ("presence_penalty", 0.5)]
        ),
        *(
            ({"prompt": PROMPT, "generation_config": settings}, f"`generation_config` is {settings!r}.")
            for settings in (
                '{"eos_token_id": "x"}',
                '{"return_dict_in_generate": true}',
                '{"num_return_sequences": 2}',
                '{"num_beams": "4"}',
            )
        ),
        *(
            ({"prompt": PROMPT, "generation_config": json.dumps({"do_sample": True, name: value})}, f"`{told}`")
            for name, value, told in [("repetition_penalty", -1, "penalty"), ("top_k", 0.5, "top_k")]
        ),
        (
            {"prompt": PROMPT, "generation_config": '{"num_beams": 2}', "stream": True},
            "A beam search gives its text whole. Leave `stream` out",
        ),
        ({"prompt": PROMPT, "generation_config": "{"}, "`generation_config` is '{'. Send a JSON object"),
        ({"prompt": PROMPT, "generation_config": "[1]"}, "`generation_config` is '[1]'."),
        ({"prompt": PROMPT, "generation_config": '{"max_new_tokens": 0}'}, """is '{"max_new_tokens": 0}'."""),
    ],
)
def test_a_mistake_in_a_request_is_answered_with_a_sentence(server, fields, sentence):
    status, message = server.refusal(**fields)
    assert status == 400
    assert sentence in message


@pytest.mark.parametrize("body", [b"[NaN]", b"{", b"5"])
def test_a_body_that_is_no_object_is_answered_with_a_sentence(server, body):
    answer = server.http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "The body of the request is not a JSON object. Send one."


@pytest.mark.parametrize("field", ["prompt", "stop", "suffix"])
def test_half_a_character_is_answered_with_a_sentence(server, field):
    body = json.dumps({"prompt": PROMPT, field: "\ud800"}).encode()
    answer = server.http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == f"The {field} '\\ud800' is not UTF-8 text. Write it in UTF-8."


def test_a_field_that_asks_for_nothing_is_taken(server, novels):
    neutral = {"n": 1, "best_of": 1, "echo": False, "presence_penalty": 0, "logit_bias": {}}
    assert server.text(extra_body=neutral) == greedy_text(novels)


def test_biases_of_no_token_change_no_reply(chat_server):
    assert reply_of(chat_server, logit_bias={}) == reply_of(chat_server)


def test_a_biased_token_is_written(server, novels):
    (token_id,) = novels[1].convert_tokens_to_ids(["farmer</w>"])
    assert server.text(max_tokens=3, logit_bias={str(token_id): 100}) == "farmer farmer farmer"


@pytest.mark.parametrize(
    ("route", "fields"),
    [("/v1/chat/completions", {"messages": MESSAGES}), ("/v1/responses", {"input": "hello"})],
)
def test_messages_to_a_model_without_a_chat_template_are_refused(server, route, fields):
    status, message = server.refusal(route, model="novels", **fields)
    assert status == 400
    assert "has no chat template" in message
    assert "/v1/completions" in message


def test_the_openai_client_raises_the_sentence(server):
    with pytest.raises(openai.BadRequestError, match="has no chat template"):
        server.openai.chat.completions.create(model="novels", messages=MESSAGES)


@pytest.fixture(scope="module")
def chat_server(novels):
    """The same model with a chat template."""
    tokenizer = GPT1Tokenizer.from_pretrained(NOVELS)
    tokenizer.chat_template = TEMPLATE
    with Running(serve.language_model_app("novels", novels[0], tokenizer)) as running:
        yield running


def reply_of(chat_server, content=PROMPT, **fields):
    messages = [{"role": "user", "content": content}]
    request = {"model": "novels", "messages": messages, "max_tokens": 12, "temperature": 0, **fields}
    return chat_server.openai.chat.completions.create(**request).choices[0].message.content


def test_a_model_with_a_chat_template_answers_messages(chat_server, novels):
    assert reply_of(chat_server) == greedy_text(novels)


def test_the_parts_of_a_message_are_one_text(chat_server):
    parts = [{"type": "text", "text": "it was"}, {"type": "text", "text": "a dark night"}]
    assert reply_of(chat_server, parts) == reply_of(chat_server)


@pytest.mark.parametrize(("stop", "expected"), [("The Sun", ", and the sun"), ("un wa", ", and the sun wa")])
def test_a_reply_ends_exactly_behind_its_stop_string(chat_server, stop, expected):
    assert reply_of(chat_server, stop=stop) == expected


def test_the_length_of_a_reply_may_be_called_max_completion_tokens(chat_server):
    answer = chat_server.openai.chat.completions.create(model="novels", messages=MESSAGES, max_completion_tokens=3)
    assert answer.usage.completion_tokens == 3


def test_messages_and_reply_may_fill_all_positions(chat_server):
    messages = [{"role": "user", "content": "word " * 500}]
    answer = chat_server.openai.chat.completions.create(model="novels", messages=messages, max_tokens=12)
    assert answer.usage.prompt_tokens == 500
    assert answer.usage.completion_tokens == 12


def test_half_a_character_in_a_message_is_answered_with_a_sentence(chat_server):
    for content in ("\ud800", [{"type": "text", "text": "\ud800"}]):
        body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
        headers = {"content-type": "application/json"}
        answer = chat_server.http.post("/v1/chat/completions", content=body, headers=headers)
        assert answer.status_code == 400
        assert "The message '\\ud800' is not UTF-8 text." in answer.json()["error"]["message"]


def test_an_input_gets_its_response(chat_server, novels):
    answer = chat_server.openai.responses.create(
        model="novels", instructions="it was", input="a dark night", max_output_tokens=12, temperature=0
    )
    assert answer.output_text == greedy_text(novels)


def test_a_response_is_streamed_on_request(chat_server, novels):
    events = chat_server.openai.responses.create(
        model="novels", input=PROMPT, max_output_tokens=12, temperature=0, stream=True
    )
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(pieces) == greedy_text(novels)


REPLY = {"role": "assistant", "content": "hi"}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "The request has no `messages`. Send a list of at least one message."),
        ({"messages": []}, "`messages` is []. Send a list of at least one message."),
        ({"messages": ["hi"]}, "`messages` is ['hi']."),
        ({"messages": MESSAGES, "max_tokens": 0}, "`max_tokens` is 0. Send a whole number of at least 1."),
        ({"messages": [{"role": "x", "content": "hi"}]}, "is 'x'. Send system, user or assistant."),
        ({"messages": [{"role": "user"}]}, "The `content` of a message is None. Send a text."),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "has the `type` 'image_url'."),
        ({"messages": [*MESSAGES, REPLY]}, "`messages` must end with a message of the user"),
        ({"messages": MESSAGES, "chat_template_kwargs": {"chat_template": "[s]"}}, "Send an object of variables"),
        ({"messages": MESSAGES, "logit_bias": {"x": 1}}, "`logit_bias` is {'x': 1}."),
        ({"messages": MESSAGES, "logit_bias": {"8495": 1}}, "`logit_bias` has the token 8495"),
        ({"messages": MESSAGES, "top_logprobs": 2}, "`top_logprobs` is 2, but the server does not support it."),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "The `text` of a part of a message is None.",
        ),
        ({"messages": MESSAGES, "response_format": {"type": "json_object"}}, "the server does not support it"),
    ],
)
def test_a_mistake_in_a_conversation_is_answered_with_a_sentence(chat_server, fields, sentence):
    status, message = chat_server.refusal("/v1/chat/completions", **fields)
    assert status == 400
    assert sentence in message


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "The request has no `input`. Send a text or a list of at least one message."),
        ({"input": "hi", "max_output_tokens": 0}, "`max_output_tokens` is 0."),
        ({"input": [REPLY]}, "`messages` must end with a message of the user"),
        ({"input": "hi", "logit_bias": {"8495": 1}}, "`logit_bias` has the token 8495"),
        (
            {"input": "hi", "previous_response_id": "resp_1"},
            "`previous_response_id` is 'resp_1', but the server does not",
        ),
    ],
)
def test_a_mistake_in_an_input_is_answered_with_a_sentence(chat_server, fields, sentence):
    status, message = chat_server.refusal("/v1/responses", **fields)
    assert status == 400
    assert sentence in message


@pytest.fixture(scope="module")
def other_family():
    """A model of GPT-2's class, and a tokenizer that puts a special token before each text."""
    tokenizer = byte_level(SENTENCES)
    special = tokenizer.bos_token
    tokenizer._tokenizer.post_processor = TemplateProcessing(
        single=f"{special} $A", special_tokens=[(special, tokenizer.bos_token_id)]
    )
    tokenizer.pad_token = special
    tokenizer.chat_template = "{{ bos_token }}{{ messages[0].content }}"
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "initializer_range": 0.3}
    ids = {"bos_token_id": None, "eos_token_id": None}
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes, **ids)).eval(), tokenizer


@pytest.fixture(scope="module")
def other_server(other_family):
    with Running(serve.language_model_app("other", *other_family)) as running:
        yield running


SPELLED = "the old<|end|>farmer"


def test_a_prompt_that_spells_a_special_token_stays_text(other_server, other_family):
    model, tokenizer = other_family
    answer = other_server.complete(model="other", prompt=SPELLED, max_tokens=5)
    ids = tokenizer(SPELLED, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert len(tokenizer(SPELLED)["input_ids"]) < len(ids)
    assert answer.usage.prompt_tokens == len(ids)
    assert [[answer.choices[0].text]] == continue_prompts(
        model, tokenizer, [SPELLED], max_new_tokens=5, do_sample=False
    )


def test_a_message_that_spells_a_special_token_stays_text(other_server, other_family):
    _, tokenizer = other_family
    messages = [{"role": "user", "content": SPELLED}]
    answer = other_server.openai.chat.completions.create(model="other", messages=messages, max_tokens=1)
    ids = tokenizer(SPELLED, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert answer.usage.prompt_tokens == 1 + len(ids)


@pytest.fixture(scope="module")
def together(novels):
    """A server that computes requests together."""
    pytest.importorskip("transformers", minversion="5.24", reason="paged caches of GPT-1 need transformers 5.24")
    with Running(serve.language_model_app("novels", *novels, continuous_batching=True)) as running:
        yield running


def test_continuous_batching_gives_the_same_text_whole_and_streamed(server, together):
    whole = together.text(max_tokens=20)
    pieces = [chunk.choices[0].text for chunk in together.complete(max_tokens=20, stream=True)]
    assert whole == server.text(max_tokens=20)
    assert "".join(pieces) == whole


@pytest.fixture(scope="module")
def chat_together(novels):
    """A server that computes conversations together."""
    pytest.importorskip("transformers", minversion="5.24", reason="paged caches of GPT-1 need transformers 5.24")
    tokenizer = GPT1Tokenizer.from_pretrained(NOVELS)
    tokenizer.chat_template = TEMPLATE
    with Running(serve.language_model_app("novels", novels[0], tokenizer, continuous_batching=True)) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("content", "max_tokens", "sentence"),
    [
        ("word " * 600, 12, "The messages have 600 tokens and the reply may have 12, but the model has only 512"),
        ("word " * 490, 40, "The messages have 490 tokens and the reply may have 40, but the model has only 512"),
        ("", 12, "The messages contain no token"),
    ],
)
@pytest.mark.parametrize("kind", ["chat_server", "chat_together"])
def test_messages_without_room_for_a_reply_are_refused_and_the_server_lives(
    request, kind, content, max_tokens, sentence, stream
):
    """An error in the thread that computes requests together would end it."""
    server = request.getfixturevalue(kind)
    messages = [{"role": "user", "content": content}]
    status, message = server.refusal(
        "/v1/chat/completions", messages=messages, max_tokens=max_tokens, temperature=0, stream=stream
    )
    assert status == 400
    assert sentence in message
    assert reply_of(server, max_tokens=3) != ""


@pytest.mark.parametrize(
    ("field", "value"), [("seed", 1), ("stop", "."), ("frequency_penalty", 0.5), ("logit_bias", {"5": 1})]
)
def test_requests_that_are_computed_together_have_none_of_their_own(together, field, value):
    status, message = together.refusal(prompt=PROMPT, **{field: value})
    assert status == 400
    assert f"none has its own `{field}`. Leave it out, or start the server without" in message


@pytest.mark.parametrize(
    ("route", "fields"), [("/v1/chat/completions", {"messages": MESSAGES}), ("/v1/responses", {"input": "hello"})]
)
def test_conversations_that_are_computed_together_have_no_seed_of_their_own(chat_together, route, fields):
    status, message = chat_together.refusal(route, seed=1, **fields)
    assert status == 400
    assert "none has its own `seed`." in message


def test_requests_that_are_computed_together_have_no_stop_strings_among_their_settings(together):
    status, message = together.refusal(prompt=PROMPT, generation_config='{"stop_strings": ["sky"]}')
    assert status == 400
    assert "none has its own `stop_strings`." in message


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("repetition_penalty", 1.5),
        ("no_repeat_ngram_size", 2),
        ("num_beams", 2),
        ("min_new_tokens", 5),
        ("suppress_tokens", [5]),
    ],
)
def test_requests_that_are_computed_together_have_no_such_settings_of_their_own(together, setting, value):
    status, message = together.refusal(prompt=PROMPT, generation_config=json.dumps({setting: value}))
    assert status == 400
    assert f"none has its own `{setting}`." in message


def test_a_request_that_is_computed_with_others_may_send_a_whole_generation_config(server, together):
    """As `transformers chat` does: with its version, ids of tokens and settings that ask for nothing."""
    settings = GenerationConfig(
        max_new_tokens=3, do_sample=False, repetition_penalty=1.0, num_beams=1, pad_token_id=0
    ).to_json_string()
    assert "transformers_version" in settings
    body = {"prompt": PROMPT, "generation_config": settings}
    text = together.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    assert text == server.text(max_tokens=3)


def test_fields_that_ask_for_nothing_are_taken_where_requests_are_computed_together(server, together):
    fields = {"frequency_penalty": 0, "stop": [], "logit_bias": {}}
    assert together.text(**fields) == server.text()


def test_the_lstm_is_served_but_not_with_continuous_batching(novels):
    _, tokenizer = novels
    sizes = {"hidden_size": 16, "lstm_hidden_size": 16, "max_position_embeddings": 64}
    model = GPT1LSTMForCausalLM(GPT1LSTMConfig(vocab_size=len(tokenizer), **sizes)).eval()
    with pytest.raises(UserError, match="LSTM.*Leave `continuous_batching` out"):
        serve.language_model_app("lstm", model, tokenizer, continuous_batching=True)
    with Running(serve.language_model_app("lstm", model, tokenizer)) as running:
        assert running.text(model="lstm") == greedy_text((model, tokenizer))


@pytest.mark.parametrize(("setting", "value"), [("repetition_penalty", 1.2), ("num_beams", 2)])
def test_continuous_batching_refuses_a_setting_of_the_folder_that_it_cannot_do(novels, monkeypatch, setting, value):
    model, tokenizer = novels
    pytest.importorskip("transformers", minversion="5.24", reason="paged caches of GPT-1 need transformers 5.24")
    monkeypatch.setattr(model.generation_config, setting, value)
    told = rf"generation_config.json has {setting}={value}, .*Remove it there, or leave `continuous_batching` out"
    with pytest.raises(UserError, match=told):
        serve.language_model_app("novels", model, tokenizer, continuous_batching=True)
    serve.language_model_app("novels", model, tokenizer)  # one by one they have it


def test_continuous_batching_needs_the_caches_of_transformers_5_24(novels, monkeypatch):
    monkeypatch.setattr(serve, "CACHE", "past_key_values")
    with pytest.raises(UserError, match="`continuous_batching` needs transformers 5.24"):
        serve.language_model_app("novels", *novels, continuous_batching=True)


def test_the_server_lists_its_model_and_has_no_route_to_unload_it(server):
    assert [model.id for model in server.openai.models.list()] == ["novels"]
    assert server.http.post("/reset").status_code == 404


def test_the_model_of_the_server_is_ready(server):
    answer = server.http.post("/load_model", json={"model": "novels"})
    assert '"status": "ready"' in answer.text


@pytest.mark.parametrize("model", [5, "owner/other", None])
def test_another_model_is_not_loaded(server, model):
    status, message = server.refusal("/load_model", model=model)
    assert status == 400
    assert f"`model` is {model!r}, but the server has only 'novels'." in message


# ---- Fine-tuned folders


COLUMNS = {
    "classification": {"text": "a"},
    "similarity": {"text_a": "a", "text_b": "b"},
    "regression": {"text_a": "a", "text_b": "b"},
    "multiple_choice": {"context": "a", "choices": ["b", "c"]},
}


def save_task(case, folder, problem_type=None, max_length=None):
    tokenizer = make_letter_tokenizer()
    if max_length is not None:
        tokenizer.model_max_length = max_length
    model = make_double_heads_model(case, tokenizer)
    model.config.columns = COLUMNS[case]
    if problem_type is not None:
        model.config.problem_type = problem_type
    if case == "multiple_choice":
        model.config.num_labels = 1  # as a fine-tuning writes it
    model.config.extract_token_id = tokenizer.extract_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def classify(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    save_task("classification", folder)
    return serve.RowClassifier(str(folder))


@pytest.mark.parametrize(
    ("case", "problem_type"),
    [
        ("classification", None),
        ("classification", "multi_label_classification"),
        ("similarity", None),
        ("regression", None),
        ("multiple_choice", None),
    ],
)
def test_rows_are_predicted_as_the_command_predicts_them(case, problem_type, tmp_path):
    save_task(case, tmp_path / "model", problem_type)
    rows = [{"a": "ann eats fish", "b": "ben sees", "c": "the park"}, {"a": "my cat", "b": "old", "c": "red dog"}]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    output = tmp_path / "predictions.jsonl"
    predict.main([str(tmp_path / "model"), "--file", str(file), "--output_file", str(output), "--device", "cpu"])
    expected = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    app = serve.task_app("task", serve.RowClassifier(str(tmp_path / "model")))
    with Running(app) as running:
        answer = running.http.post("/v1/classify", json={"rows": rows}).json()
    assert [{"index": index, **row} for index, row in enumerate(answer["predictions"])] == expected


def test_a_row_is_cut_to_the_length_of_the_fine_tuning(tmp_path):
    save_task("classification", tmp_path, max_length=19)
    classify = serve.RowClassifier(str(tmp_path))
    whole, cut = classify([{"a": "ann sees the old park"}, {"a": "ann sees the old park is very warm"}])
    assert "truncated" not in whole
    assert cut["truncated"]
    assert cut["label"] == whole["label"]
    assert cut["scores"] == pytest.approx(whole["scores"], rel=1e-6)


def test_a_folder_that_says_nothing_of_its_rows_is_refused(tmp_path):
    save_task("classification", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    del config["columns"]
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(UserError, match="names no traversal or no columns.*Pass a folder that `gpt1 finetune` wrote"):
        serve.RowClassifier(str(tmp_path))


def test_a_server_of_rows_lists_its_model_and_is_in_health():
    with Running(serve.task_app("task", list)) as running:
        assert [model.id for model in running.openai.models.list()] == ["task"]
        assert running.http.get("/health").json() == {"status": "ok"}


READABLE = {"a": "ann eats fish"}


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"a": 5}, "holds 5 of type int, which is no text"),
        ({"a": {"q": 1}}, "holds {'q': 1} of type dict, which is no text"),
        ({"a": None}, "is empty"),
        ({"b": "ann"}, "is empty"),
        ({"a": "\ud800"}, "is not UTF-8 text"),
    ],
)
def test_a_row_that_cannot_be_read_has_its_own_error(classify, row, sentence):
    (alone,) = classify([READABLE])
    first, bad, last = classify([READABLE, row, READABLE])
    assert first["label"] == last["label"] == alone["label"]
    assert list(bad) == ["error"]
    assert sentence in bad["error"]


def test_requests_of_rows_are_computed_one_after_the_other(classify, monkeypatch):
    """A tokenizer has one state of truncation and padding for all threads."""
    running, most = 0, 0
    predict_rows = serve.predict_rows

    def counted(*args):
        nonlocal running, most
        running += 1
        most = max(most, running)
        threading.Event().wait(0.02)  # for the other threads
        yield from predict_rows(*args)
        running -= 1

    monkeypatch.setattr(serve, "predict_rows", counted)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(classify, [[READABLE]] * 8))
    assert most == 1
    assert all(answer == answers[0] for answer in answers)


def test_columns_that_are_not_read_may_hold_anything(classify):
    labels = [{"label": 7}, {"label": "x"}, {"label": [1]}]
    first, *others = classify([READABLE | label for label in labels])
    for record in others:
        # Equal rows of one batch may differ in their last bits.
        assert record == {**first, "scores": pytest.approx(first["scores"], rel=1e-6)}


def test_rows_without_the_column_are_refused(tmp_path):
    save_task("classification", tmp_path)
    with Running(serve.task_app("task", serve.RowClassifier(str(tmp_path)))) as running:
        status, message = running.refusal("/v1/classify", rows=[{"text": "ann"}])
        assert running.refusal("/v1/classify", row={"a": "ann"}) == (
            400,
            'The request has no `rows`. Send {"rows": [{column: text, …}, …]}.',
        )
        for rows in ([], ["ann"], {"a": "ann"}):
            told = running.refusal("/v1/classify", rows=rows)[1]
            assert told.startswith("The request has `rows` that are no list of objects. Send ")
    assert status == 400
    assert message == "No row has the column 'a'. Send rows with the columns 'a'."


# ---- The command


def test_the_command_listens_on_the_loopback_and_says_where(monkeypatch, capsys):
    addresses = []

    def run(server, sockets):
        addresses.append(sockets[0].getsockname())
        sockets[0].close()

    monkeypatch.setattr(uvicorn.Server, "run", run)
    serve_command.main([NOVELS, "--port", "0", "--device", "cpu"])
    ((host, port),) = addresses
    assert host == "127.0.0.1"
    assert f"http://127.0.0.1:{port}." in capsys.readouterr().out


def test_the_packaged_model_is_called_by_its_short_name(monkeypatch, capsys):
    apps = []
    monkeypatch.setattr(serve, "run_server", lambda app, host, port: apps.append(app))
    serve_command.main(["gpt1-novels", "--device", "cpu"])
    with Running(apps[0]) as running:
        assert [model.id for model in running.openai.models.list()] == ["gpt1-novels"]
    assert "Requests call the model gpt1-novels." in capsys.readouterr().out


def test_the_command_serves_rows_where_the_folder_has_a_task_head(monkeypatch, tmp_path):
    save_task("classification", tmp_path)
    apps = []
    monkeypatch.setattr(serve, "run_server", lambda app, host, port: apps.append(app))
    serve_command.main([str(tmp_path), "--device", "cpu"])
    assert [route.path for route in apps[0].routes if route.path.startswith("/v1")] == ["/v1/classify", "/v1/models"]


def test_the_command_listens_where_it_is_told(monkeypatch):
    addresses = []
    monkeypatch.setattr(serve, "run_server", lambda app, host, port: addresses.append((host, port)))
    serve_command.main([NOVELS, "--host", "0.0.0.0", "--port", "8123", "--device", "cpu"])
    assert addresses == [("0.0.0.0", 8123)]


def test_the_length_of_the_command_is_that_of_a_request_without_one():
    with Running(app_of(NOVELS, max_new_tokens=5)) as running:
        assert running.complete(model="gpt1-novels", max_tokens=None).usage.completion_tokens == 5


@pytest.mark.parametrize("length", [100000, 512, 0])
def test_a_length_that_leaves_no_position_to_a_prompt_is_refused(length):
    with pytest.raises(UserErrorOfCommands, match=f"--max_new_tokens is {length}, but .* has 512 positions.*1 to 511"):
        app_of(NOVELS, max_new_tokens=length)


@pytest.mark.parametrize("port", ["70000", "65536", "-1"])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(UserErrorOfCommands, match=f"--port is {port}. Pass a number from 0 to 65535"):
        serve_command.main([NOVELS, "--port", port])


def test_an_address_of_ipv6_is_listened_on_and_shown_in_brackets(monkeypatch, capsys):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    addresses = []

    def run(server, sockets):
        addresses.append(sockets[0].getsockname())
        sockets[0].close()

    monkeypatch.setattr(uvicorn.Server, "run", run)
    serve.run_server(serve.FastAPI(), "::1", 0)
    ((host, port, *_),) = addresses
    assert host == "::1"
    assert f"http://[::1]:{port}." in capsys.readouterr().out


def test_a_port_that_is_taken_is_an_error_with_its_number():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"`port` {port}.*another `port`"):
            serve.run_server(serve.FastAPI(), "127.0.0.1", port)


def test_an_empty_host_does_not_listen_on_all_addresses():
    with pytest.raises(UserError, match="`host` is empty. Pass 127.0.0.1 for this machine alone, or 0.0.0.0 for"):
        serve.run_server(serve.FastAPI(), "", 0)


def test_a_host_that_is_no_name_is_an_error():
    with pytest.raises(UserError, match="`host` ä..b and `port` 0: .*hostname.* an address of this machine"):
        serve.run_server(serve.FastAPI(), "ä..b", 0)


def test_an_address_of_another_machine_is_an_error_that_names_the_host():
    with pytest.raises(UserError, match="`host` 192.0.2.1 .* an address of this machine as `host`"):
        serve.run_server(serve.FastAPI(), "192.0.2.1", 0)  # of documentation alone


# ---- Dialogue models


@pytest.fixture(scope="module")
def dialogue_folder(novels, tmp_path_factory):
    """A model with both heads and speakers."""
    folder = tmp_path_factory.mktemp("dialogue")
    tokenizer = GPT1Tokenizer.from_pretrained(NOVELS)
    model = GPT1DoubleHeadsModel.from_pretrained(NOVELS, traversal="multiple_choice")
    torch.manual_seed(0)
    add_speaker_tokens(tokenizer, model)
    save_folder(folder, model, tokenizer)
    return folder


def app_of(folder, **options):
    return serve_command.open_app(serve_command.ServeArguments(model=str(folder), device="cpu", **options))


def test_a_dialogue_model_answers_messages_as_the_chat_of_the_command(dialogue_folder):
    messages = [
        {"role": "system", "content": "i live in rome."},
        {"role": "user", "content": "where do you live, <speaker1>?"},
    ]
    model = GPT1ForCausalLM.from_pretrained(dialogue_folder).eval()
    tokenizer = GPT1Tokenizer.from_pretrained(dialogue_folder)
    (expected,) = reply_to(model, tokenizer, messages, max_new_tokens=8, do_sample=False)
    with Running(app_of(dialogue_folder)) as running:
        answer = running.openai.chat.completions.create(
            model=str(dialogue_folder), messages=messages, max_tokens=8, temperature=0
        )
    assert join_words(answer.choices[0].message.content) == expected


def test_requests_that_are_computed_together_have_no_speakers(dialogue_folder):
    with pytest.raises(UserError, match="`continuous_batching` passes no speakers"):
        app_of(dialogue_folder, continuous_batching=True)
