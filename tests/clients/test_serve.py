"""`gpt1 serve`: the real server on a free port, which OpenAI's client and plain requests ask."""

import json
import socket
import threading

import httpx
import pytest
import torch
from support.files import save_folder
from support.finetuning import make_double_heads_model, make_letter_tokenizer

from modeling_gpt1 import (
    NOVELS,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1LSTMConfig,
    GPT1LSTMForCausalLM,
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


def test_a_higher_temperature_gives_another_text_and_the_same_seed_the_same(server):
    hot = server.text(temperature=1.5, seed=1)
    assert hot != server.text()
    assert hot == server.text(temperature=1.5, seed=1)
    assert hot != server.text(temperature=1.5, seed=2)


def test_top_p_alone_samples(server):
    assert server.text(temperature=None, top_p=0.99, seed=1) != server.text(temperature=None, top_p=0.99, seed=2)


def test_without_a_temperature_the_generation_settings_of_the_folder_count(server, novels):
    assert not novels[0].generation_config.do_sample
    assert server.text(temperature=None, seed=1) == server.text()


def test_a_request_without_a_length_gets_that_of_the_server(server):
    assert server.complete(max_tokens=None).usage.completion_tokens == 7


@pytest.mark.parametrize(
    ("stop", "end"), [("sky.", "the sky ."), (["The Sun", "nowhere"], "and the sun"), ("\n", "the sky . \n")]
)
def test_a_stop_string_ends_the_text_as_the_tokenizer_writes_it(server, stop, end):
    text = server.text(max_tokens=20, stop=stop)
    assert text.endswith(end)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"prompt": ""}, "The prompt '' contains no token"),
        ({"prompt": PROMPT, "max_tokens": 600}, "has 5 tokens and `max_tokens` is 600, but the model has only 512"),
        ({"prompt": PROMPT, "stop": " "}, "The stop string ' ' has no token"),
    ],
)
def test_a_mistake_in_a_request_is_answered_with_a_sentence(server, fields, sentence):
    status, message = server.refusal(**fields)
    assert status == 400
    assert sentence in message


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


def test_a_model_with_a_chat_template_answers_messages(novels):
    model, _ = novels
    tokenizer = GPT1Tokenizer.from_pretrained(NOVELS)
    tokenizer.chat_template = TEMPLATE
    with Running(serve.language_model_app("novels", model, tokenizer)) as running:
        messages = [{"role": "user", "content": PROMPT}]
        answer = running.openai.chat.completions.create(
            model="novels", messages=messages, max_tokens=12, temperature=0
        )
    assert answer.choices[0].message.content == greedy_text(novels)


def test_continuous_batching_gives_the_same_text_whole_and_streamed(server, novels):
    pytest.importorskip("transformers", minversion="5.24", reason="paged caches of GPT-1 need transformers 5.24")
    with Running(serve.language_model_app("novels", *novels, continuous_batching=True)) as running:
        whole = running.text(max_tokens=20)
        pieces = [chunk.choices[0].text for chunk in running.complete(max_tokens=20, stream=True)]
    assert whole == server.text(max_tokens=20)
    assert "".join(pieces) == whole


def test_the_lstm_is_served_but_not_with_continuous_batching(novels):
    _, tokenizer = novels
    sizes = {"hidden_size": 16, "lstm_hidden_size": 16, "max_position_embeddings": 64}
    model = GPT1LSTMForCausalLM(GPT1LSTMConfig(vocab_size=len(tokenizer), **sizes)).eval()
    with pytest.raises(UserError, match="LSTM.*Leave `continuous_batching` out"):
        serve.language_model_app("lstm", model, tokenizer, continuous_batching=True)
    with Running(serve.language_model_app("lstm", model, tokenizer)) as running:
        assert running.text(model="lstm") == greedy_text((model, tokenizer))


def test_continuous_batching_needs_the_caches_of_transformers_5_24(novels, monkeypatch):
    monkeypatch.setattr(serve, "CACHE", "past_key_values")
    with pytest.raises(UserError, match="`continuous_batching` needs transformers 5.24"):
        serve.language_model_app("novels", *novels, continuous_batching=True)


def test_the_server_lists_its_model_and_has_no_route_to_unload_it(server):
    assert [model.id for model in server.openai.models.list()] == ["novels"]
    assert server.http.post("/reset").status_code == 404


# ---- Fine-tuned folders


COLUMNS = {"classification": {"text": "a"}, "multiple_choice": {"context": "a", "choices": ["b", "c"]}}


def save_task(case, folder):
    tokenizer = make_letter_tokenizer()
    model = make_double_heads_model(case, tokenizer)
    model.config.columns = COLUMNS[case]
    if case == "multiple_choice":
        model.config.num_labels = 1  # as a fine-tuning writes it
    model.config.extract_token_id = tokenizer.extract_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize("case", ["classification", "multiple_choice"])
def test_rows_are_predicted_as_the_command_predicts_them(case, tmp_path):
    save_task(case, tmp_path / "model")
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


def test_rows_without_the_column_are_refused(tmp_path):
    save_task("classification", tmp_path)
    with Running(serve.task_app("task", serve.RowClassifier(str(tmp_path)))) as running:
        status, message = running.refusal("/v1/classify", rows=[{"text": "ann"}])
        assert running.refusal("/v1/classify", row={"a": "ann"}) == (
            400,
            'The request has no `rows`. Send {"rows": [{column: text, …}, …]}.',
        )
    assert status == 400
    assert "'a'" in message


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


def test_a_port_that_is_none_is_refused():
    with pytest.raises(UserErrorOfCommands, match="--port is 70000. Pass a number from 0 to 65535"):
        serve_command.main([NOVELS, "--port", "70000"])


def test_a_port_that_is_taken_is_an_error_with_its_number():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"`port` {port}.*another `port`"):
            serve.run_server(serve.FastAPI(), "127.0.0.1", port)


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
    with pytest.raises(UserErrorOfCommands, match="--continuous_batching passes no speakers"):
        app_of(dialogue_folder, continuous_batching=True)
