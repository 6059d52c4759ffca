"""`gpt1 playground` as a server, attacked over HTTP without its page."""

import json

import pytest

from modeling_gpt1 import GPT1ForCausalLM
from modeling_gpt1.playground import page as page_module
from modeling_gpt1.playground.page import build_page

pytest.importorskip("gradio", reason="no gradio: pip install -e '.[playground]'")
httpx = pytest.importorskip("httpx")


@pytest.fixture(scope="module")
def served(tiny_model, tiny_tokenizer, tmp_path_factory):
    """A client of a page that this process serves, and the page's configuration."""
    folder = tmp_path_factory.mktemp("served") / "tiny"
    tiny_model(GPT1ForCausalLM, vocab_size=len(tiny_tokenizer)).save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    page, settings = build_page([str(folder)])
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, share=False, **settings)
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client, client.get("/config").json(), folder
    page.close()
    page_module._find_model.cache_clear()


def function_of(config, button, event="click"):
    ids = {part["props"].get("elem_id"): part["id"] for part in config["components"]}
    return next(
        function
        for function in config["dependencies"]
        if [ids[button], event] in function["targets"] and function["backend_fn"]
    )


def join(client, body, session="visitor"):
    """The last message of the queue about a request."""
    joined = client.post("/gradio_api/queue/join", json={"session_hash": session, **body})
    assert joined.status_code == 200, joined.text
    with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as stream:
        for line in stream.iter_lines():
            message = json.loads(line.removeprefix("data:")) if line else {}
            if message.get("msg") == "process_completed":
                return message


def test_the_page_answers_with_a_reading(served):
    client, config, _ = served
    opened = join(client, {"data": ["tiny", None], "fn_index": function_of(config, "listed", "input")["id"]})
    assert "is open" in json.dumps(opened["output"])
    reading = function_of(config, "read")
    assert len(reading["inputs"]) == 5
    read = join(client, {"data": ["tiny", "the old farmer", "", "", ""], "fn_index": reading["id"]})
    assert "mean loss" in read["output"]["data"][0]
    long = join(client, {"data": ["tiny", "a" * 1_000_000, "", "", ""], "fn_index": reading["id"]})
    assert "The text has 1,000,000 characters; this page accepts at most 100,000." in long["output"]["data"][0]


def test_an_example_fills_the_boxes(served):
    client, config, _ = served
    (dataset,) = (part for part in config["components"] if part["type"] == "dataset")
    assert dataset["props"]["sample_labels"] == list(page_module.EXAMPLES)
    (filling,) = (one for one in config["dependencies"] if dataset["id"] in [target[0] for target in one["targets"]])
    filled = join(client, {"data": [2], "fn_index": filling["id"]})["output"]["data"]
    texts = [one["value"] if isinstance(one, dict) else one for one in filled]
    assert texts == page_module.EXAMPLES["A beginning"]
    assert filling["api_visibility"] == "private"


def test_no_path_of_the_server_is_named_or_read_and_nothing_gets_past_the_queue(served):
    client, config, folder = served
    assert str(folder.parent) not in json.dumps(config)
    for path in (folder / "config.json", "/etc/passwd"):
        assert client.get(f"/gradio_api/file={path}").status_code == 403
    assert client.post("/gradio_api/upload", files={"files": ("a.txt", b"a")}).status_code == 413
    body = {"data": ["tiny", "the", "", "", ""], "fn_index": function_of(config, "read")["id"]}
    response = client.post("/gradio_api/run/predict", json=body)
    assert response.status_code == 404
    assert "Please join the queue" in response.text
    assert config["max_file_size"] == 0


def test_only_listed_models_and_settings_of_the_sliders(served):
    client, config, folder = served
    for name in (str(folder), "/etc", "me/one"):
        answer = join(client, {"data": [name, "the", "", "", ""], "fn_index": function_of(config, "read")["id"]})
        assert not answer["success"]
        assert "not in the list of choices" in answer["output"]["error"]
    writing = function_of(config, "write")["id"]
    for length, temperature in ((10**30, 0.7), (-1, 0.7), (5, 10.0)):
        data = ["tiny", length, temperature, "the", "", "", ""]
        assert not join(client, {"data": data, "fn_index": writing})["success"]
