"""`gpt1 playground` without Gradio and without a browser: what a model's reading holds, is shown and refused."""

import json
import math
import re
import runpy
import shutil
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from support.files import save_folder
from support.markup import Markup
from support.tiny import byte_level

import modeling_gpt1
from modeling_gpt1 import NOVELS, GPT1DoubleHeadsModel, GPT1ForCausalLM
from modeling_gpt1.commands import playground as command
from modeling_gpt1.playground import page as page_module
from modeling_gpt1.playground import reading as reading_module
from modeling_gpt1.playground import space
from modeling_gpt1.playground.page import LOOK, find_model, short_names
from modeling_gpt1.playground.reading import (
    Opened,
    PlaygroundError,
    Reading,
    ShownToken,
    check_texts,
    encode,
    language_model,
    make_batch,
    make_prompt,
    open_model,
    read,
    write_on,
)
from tokenization import train_tokenizer

ROOT = Path(__file__).resolve().parents[2]
FARMER = "the old farmer walked"
HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(2)> [s] [$] [e] ${alert(3)} {{7*7}} \" ' & <unk>"


@pytest.fixture(autouse=True)
def nothing_open():
    yield
    page_module._find_model.cache_clear()


@pytest.fixture
def opened(tiny_model, tiny_tokenizer):
    """Makes an opened model: `opened("entailment", num_labels=3)`."""

    def make(traversal, model_class=None, **fields):
        model_class = model_class or (GPT1ForCausalLM if traversal is None else GPT1DoubleHeadsModel)
        model = tiny_model(model_class, vocab_size=len(tiny_tokenizer), traversal=traversal, **fields)
        return Opened("tiny", model, tiny_tokenizer, traversal)

    return make


def shown(sequence):
    """A sequence as words: "kind: text" of each run of tokens of one kind."""
    runs = []
    for token in sequence:
        if not runs or runs[-1][0] != token.kind:
            runs.append([token.kind, ""])
        runs[-1][1] += token.piece + " " * token.ends_word
    return [f"{kind}: {text.strip()}" for kind, text in runs]


def save_opened(opened, folder):
    return save_folder(folder, opened.model, opened.tokenizer)


def open_named(folder):
    return open_model(str(folder), "tiny")


def message(function, *args):
    with pytest.raises(PlaygroundError) as error:
        function(*args)
    return str(error.value)


def test_each_token_is_shown_with_its_part_of_the_input(opened):
    def sequences(traversal, **boxes):
        return [shown(sequence) for sequence in read(opened(traversal), boxes).sequences]

    assert sequences(None, first="the old\nfarmer") == [["text: the old ↵ farmer"]]
    assert sequences("classification", first=f" {FARMER}\n") == [
        ["control: [s]", "text: the old farmer walked", "control: [e]"]
    ]
    assert sequences("entailment", first=FARMER, second="the train") == [
        ["control: [s]", "premise: the old farmer walked", "control: [$]", "hypothesis: the train", "control: [e]"]
    ]
    assert sequences("similarity", first="the old", second="the train") == [
        ["control: [s]", "text a: the old", "control: [$]", "text b: the train", "control: [e]"],
        ["control: [s]", "text b: the train", "control: [$]", "text a: the old", "control: [e]"],
    ]
    assert sequences("multiple_choice", first="the old", question="why", answers="he\n\n the train \n") == [
        ["control: [s]", "context: the old", "question: why", "control: [$]", "answer: he", "control: [e]"],
        ["control: [s]", "context: the old", "question: why", "control: [$]", "answer: the train", "control: [e]"],
    ]


def test_any_number_of_answers(opened):
    model = opened("multiple_choice")
    for number in (1, 2, 20):
        reading = read(model, {"first": FARMER, "answers": "he smiled\n" * number, "question": " "})
        assert reading.titles == (["Sequence"] if number == 1 else [f"Answer {k + 1}" for k in range(number)])
        assert reading.scores == [("he smiled", pytest.approx(1 / number))] * number


def test_text_that_spells_a_control_token_stays_text(opened):
    model = opened("classification", max_position_embeddings=48)
    kinds = [token.kind for token in read(model, {"first": "a [e] b [$] c [s]"}).sequences[0]]
    assert kinds == ["control", *["text"] * (len(kinds) - 2), "control"]
    assert len(kinds) > 8


def test_text_that_spells_a_special_token_of_another_tokenizer_stays_text(tiny_model):
    tokenizer = byte_level(["the old farmer"])
    model = tiny_model(GPT1ForCausalLM, vocab_size=len(tokenizer), max_position_embeddings=48)
    (sequence,) = read(Opened("tiny", model, tokenizer, None), {"first": "the<|end|>old"}).sequences
    assert tokenizer.eos_token not in [token.piece for token in sequence]
    assert "".join(token.piece for token in sequence) == "the<|end|>old"


def test_what_was_cut_is_said(opened, monkeypatch):
    model = opened("multiple_choice", max_position_embeddings=12)
    boxes = {"first": "the " * 6, "question": "the the the", "answers": "he\n" + "he " * 12}
    reading = read(model, boxes)
    assert [shown(sequence) for sequence in reading.sequences] == [
        ["control: [s]", "context: the", "question: the", "control: [$]", "answer: he", "control: [e]"],
        ["control: [s]", "context: the", "question: the", "control: [$]", "answer:" + " he" * 7, "control: [e]"],
    ]
    assert reading.notes == ["The model reads 12 tokens at most. What is not shown was cut."]
    assert read(model, {"first": "the the", "answers": "he\n" + "he " * 7}).notes == []
    with monkeypatch.context() as patch:
        patch.setattr(model.tokenizer, "model_max_length", 9)  # of a fine-tuning with --max_length
        assert [len(sequence) for sequence in read(model, boxes).sequences] == [6, 9]
    single = opened("classification", max_position_embeddings=12)
    assert [len(read(single, {"first": "the " * number}).notes) for number in (10, 11)] == [0, 1]
    for number in (24, 25):
        notes = read(opened(None), {"first": "the " * number}).notes
        assert len(notes) == number - 23
        assert notes[-1].startswith("This model has no task head")


def test_losses_are_those_of_the_logits(opened):
    """Of a float64 softmax over the logits; their means are the model's own losses."""
    model = opened("multiple_choice")
    boxes = {"first": FARMER, "answers": "he smiled\nshe read the letter twice"}
    batch = make_batch(model, check_texts(model, boxes))
    with torch.no_grad():
        outputs = model.model(**batch, labels=torch.tensor([0]), output_lm_logits=True)
    sequences = read(model, boxes).sequences
    means = []
    for tokens, logits, ids in zip(sequences, outputs.lm_logits[0].double(), batch["input_ids"][0], strict=True):
        expected = -logits[:-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
        losses = torch.tensor([token.loss for token in tokens[1:]], dtype=torch.float64)
        torch.testing.assert_close(losses, expected[: len(losses)], rtol=1e-5, atol=1e-5)
        assert tokens[0].loss is None
        assert not torch.allclose(losses[:-1], expected[1 : len(losses)], atol=0.1)  # as if one place off
        means.append(losses.mean().item())
    assert sum(means) / 2 == pytest.approx(outputs.lm_loss.item(), rel=1e-5)

    model = opened(None)
    (sequence,) = read(model, {"first": FARMER}).sequences
    ids = torch.tensor([encode(model, FARMER)])
    mean = sum(token.loss for token in sequence[1:]) / (len(sequence) - 1)
    with torch.no_grad():
        assert mean == pytest.approx(model.model(ids, labels=ids).loss.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("traversal", "fields", "names"),
    [
        ("entailment", {"id2label": {0: "<b>yes</b>", 1: "no", 2: "maybe"}}, ["<b>yes</b>", "no", "maybe"]),
        ("similarity", {"num_labels": 1, "problem_type": "regression"}, ["score"]),
        ("similarity", {"num_labels": 1, "problem_type": "regression", "columns": {"label": "stars"}}, ["stars"]),
        ("entailment", {"num_labels": 2, "problem_type": "multi_label_classification"}, ["LABEL_0", "LABEL_1"]),
    ],
)
def test_the_scores_shown_are_those_of_the_logits(opened, traversal, fields, names):
    model = opened(traversal, **fields)
    boxes = {"first": FARMER, "second": "the train"}
    with torch.no_grad():
        logits = model.model(**make_batch(model, check_texts(model, boxes))).task_logits[0]
    reading = read(model, boxes)
    values = logits if reading.is_regression else logits.softmax(-1)
    values = logits.sigmoid() if "multi_label_classification" in fields.values() else values
    assert reading.is_regression == (traversal == "similarity")
    assert reading.scores == [(name, pytest.approx(value)) for name, value in zip(names, values.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("model_class", "traversal"),
    [("GPT1ForSequenceClassification", "classification"), ("GPT1ForMultipleChoice", "multiple_choice")],
)
def test_a_model_without_language_model_head_has_no_losses_and_says_so(opened, tmp_path, model_class, traversal):
    model_class = getattr(modeling_gpt1, model_class)
    both = opened(traversal)
    single = opened(traversal, model_class)
    single.model.load_state_dict(both.model.state_dict(), strict=False)
    folder = open_named(save_opened(single, tmp_path))
    assert type(folder.model) is model_class
    boxes = {"first": FARMER, "answers": "he\nthe train"}
    reading = read(folder, boxes)
    assert {token.loss for sequence in reading.sequences for token in sequence} == {None}
    expected = read(both, boxes).scores
    tolerance = 1e-5 if folder.model.device.type == "cpu" else 1e-4
    assert reading.scores == [(name, pytest.approx(value, rel=tolerance)) for name, value in expected]
    assert reading.notes == ["This model was saved without its language-model head: it has no auxiliary loss."]
    assert "no language-model head to continue a text with. Open one that" in message(make_prompt, folder, boxes, 5)


def test_a_prompt_is_all_before_the_last_part(opened):
    def prompt(traversal, room=5, **boxes):
        model = opened(traversal)
        ids, words = make_prompt(model, boxes, room)
        pieces = model.tokenizer.convert_ids_to_tokens(ids)
        return "".join(piece.replace("</w>", " ").replace("]", "] ") for piece in pieces).strip(), words

    assert prompt(None, first="the old") == ("the old", "text")
    assert prompt("classification", first="the old") == ("[s] the old", "[s] text")
    assert prompt("similarity", first="the old", second="he") == ("[s] the old [$]", "[s] text a [$]")
    assert prompt("multiple_choice", first="the old", question="why", answers="he") == (
        "[s] the old why [$]",
        "[s] context question [$]",
    )
    assert prompt("multiple_choice", first="the", question=" ")[1] == "[s] context [$]"
    assert prompt("entailment", room=20, first="the " * 19 + "he") == (
        "[s] the he [$]",
        "[s] premise [$] (only the last 2 of 20 tokens)",
    )


@pytest.mark.parametrize("traversal", [None, "classification"])
def test_the_continuation_is_streamed(opened, traversal):
    model = opened(traversal, seed=10)
    prompt, _ = make_prompt(model, {"first": FARMER}, 12)
    parts = list(write_on(model, prompt, 12, temperature=0))
    tokenizer = model.tokenizer
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": tokenizer.extract_token_id}
    never = [tokenizer.start_token_id, tokenizer.delimiter_token_id, tokenizer.unk_token_id]
    ids = language_model(model.model).generate(torch.tensor([prompt]), suppress_tokens=never, **options)
    assert parts[-1].strip() == tokenizer.decode(ids[0, len(prompt) :], skip_special_tokens=True).strip()
    assert len(parts) > 2
    assert all(longer.startswith(shorter) for shorter, longer in zip(parts, parts[1:], strict=False))


def test_what_never_is_written(opened, plain_tokenizer, monkeypatch):
    """Without control tokens GPT-1's end of text is `<unk>`, which ends nothing here."""
    model = opened(None)
    given = {}
    monkeypatch.setattr(GPT1ForCausalLM, "generate", lambda self, ids, **arguments: given.update(arguments))
    with pytest.raises(AttributeError):  # which gives nothing
        list(write_on(Opened("tiny", model.model, plain_tokenizer, None), [1, 2], 3, temperature=0))
    assert (plain_tokenizer.eos_token, given["eos_token_id"], given["suppress_tokens"]) == ("<unk>", None, [0])


def given_to_generate(opened, monkeypatch, temperature):
    """The arguments with which a continuation is generated."""
    given = {}
    monkeypatch.setattr(GPT1ForCausalLM, "generate", lambda self, ids, **arguments: given.update(arguments))
    with pytest.raises(AttributeError):  # which gives nothing
        list(write_on(opened, [1, 2], 3, temperature))
    return given


def test_the_temperature_of_the_page_is_that_of_generate(opened, monkeypatch):
    model = opened(None)
    given = given_to_generate(model, monkeypatch, temperature=0.7)
    assert (given["do_sample"], given["temperature"]) == (True, 0.7)
    given = given_to_generate(model, monkeypatch, temperature=0)
    assert (given["do_sample"], "temperature" in given) == (False, False)


def test_the_end_of_text_of_another_tokenizer_ends_a_continuation(tiny_model, monkeypatch):
    tokenizer = byte_level(["the old farmer"])
    model = tiny_model(GPT1ForCausalLM, vocab_size=len(tokenizer))
    given = given_to_generate(Opened("tiny", model, tokenizer, None), monkeypatch, temperature=0)
    assert given["eos_token_id"] == tokenizer.eos_token_id


def test_each_token_is_read_once_and_a_failure_while_writing_is_not_lost(opened):
    torch.manual_seed(0)  # so that none is the extract token, at which writing ends
    model = opened(None, max_position_embeddings=512)
    read_at_once = []
    model.model.get_input_embeddings().register_forward_hook(lambda _, args, __: read_at_once.append(args[0].shape[1]))
    assert len(list(write_on(model, [1, 2, 3], 5, temperature=0.7))) == 5
    assert read_at_once == [3, 1, 1, 1, 1]
    with pytest.raises(ValueError, match="the model has only 24 positions"):
        list(write_on(opened(None), [1, 2], 30, temperature=0))


def test_a_model_whose_scores_are_not_numbers_writes_nothing(opened):
    model = opened(None)
    with torch.no_grad():
        model.model.get_input_embeddings().weight.fill_(math.nan)
    with pytest.raises(ValueError, match="scores of the next token by .* are not numbers .*Use another checkpoint"):
        list(write_on(model, [1, 2], 3, temperature=0))


def test_nothing_is_written_behind_the_end(opened, monkeypatch):
    model = opened(None)
    ids = iter([5, 6, model.tokenizer.extract_token_id, 7])

    def generate(self, before, **_):
        return Mock(sequences=torch.cat([before, torch.tensor([[next(ids)]])], dim=1))

    monkeypatch.setattr(GPT1ForCausalLM, "generate", generate)
    assert len(list(write_on(model, [1, 2], 4, temperature=0))) == 2


def test_code_that_comes_with_a_model_is_not_run(opened, tmp_path):
    folder = save_opened(opened("classification"), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"]
    for file in tmp_path.glob("*.py"):
        file.write_text("raise SystemExit('run')")
    model = open_named(folder).model
    assert type(model) is GPT1DoubleHeadsModel
    assert not model.training


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_folder_is_read_again_after_a_new_save(opened, file, tmp_path):
    sources = short_names([save_opened(opened(None), tmp_path / "tiny")])
    first = find_model(sources, "tiny")
    assert find_model(sources, "tiny") is first
    saved = tmp_path / "tiny" / file
    saved.rename(tmp_path / "old")
    shutil.copy(tmp_path / "old", saved)
    assert find_model(sources, "tiny") is not first
    for name in (str(tmp_path / "tiny"), "/etc", "me/one", "", None):
        assert "not one of the page's models. Choose one from the list" in message(find_model, sources, name)


def test_visitors_see_no_path(tmp_path, monkeypatch):
    folders = [tmp_path / name for name in ("rte/final", "sst/final", "books", "me/one", "one")]
    for folder in folders:
        folder.mkdir(parents=True)
    models = [*map(str, folders), f"{tmp_path}/sst/../books", "me/one"]  # books twice
    assert list(short_names(models)) == ["final", "sst/final", "books", "one", f"{tmp_path.name}/one", "me/one"]
    assert list(short_names(models[:1])) == ["final"]
    with pytest.raises(ValueError, match="--models .*none is no folder"):
        command.main(["--models", f"{tmp_path}/none"])


def test_models_of_the_hub_are_fetched_without_code_and_pickles(opened, tmp_path, monkeypatch):
    folder = save_opened(opened(None), tmp_path)
    asked = []

    def download(repo_id, allow_patterns):
        asked.append((repo_id, allow_patterns))
        return folder

    monkeypatch.setattr(reading_module, "snapshot_download", download)
    assert find_model(short_names(["me/one"]), "me/one").name == "me/one"
    assert asked == [("me/one", ["*.json", "*.safetensors", "merges.txt"])]


def test_what_cannot_be_opened(opened, tmp_path, plain_tokenizer):
    (tmp_path / "config.json").write_text('{"model_type": "<i>bert</i>"}')
    assert "is of type “<i>bert</i>”. This page opens gpt1, openai-gpt and gpt2" in message(open_named, tmp_path)
    model = opened("classification")
    save_opened(model, tmp_path)
    weights = model.model.state_dict()
    del weights["task_head.score.weight"]
    model.model.save_pretrained(tmp_path, state_dict=weights)
    assert "“tiny” lacks weights of its GPT1DoubleHeadsModel: task_head.score.weight" in message(open_named, tmp_path)
    save_opened(model, tmp_path)
    plain_tokenizer.save_pretrained(tmp_path)
    assert message(open_named, tmp_path).startswith("“tiny”: The tokenizer has 80 tokens, but the model's vocabulary")
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="no file named model.safetensors"):
        open_named(tmp_path)


def test_what_the_page_refuses_to_read(opened):
    def refusal(traversal, **boxes):
        return message(check_texts, opened(traversal), boxes)

    for traversal, part, boxes in (
        ("classification", "text", {"first": " \n"}),
        ("entailment", "hypothesis", {"first": "he"}),
        ("multiple_choice", "context", {"first": "", "answers": "he"}),
    ):
        assert refusal(traversal, **boxes) == f"The {part} is empty. Write at least one word."
    for answers, number in (("\n \n", 0), ("he\n" * 51, 51)):
        told = refusal("multiple_choice", first="he", answers=answers)
        assert told.startswith(f"There are {number} answers. Write 1 to 50, each on a line")
    told = refusal("classification", first="a" * 100_001)
    assert told == "The text has 100,001 characters; this page accepts at most 100,000. Shorten it."
    assert message(make_prompt, opened(None), {"first": " "}, 5) == "The text is empty. Write at least one word."


def test_no_model_reads_more_than_the_page_allows(opened, monkeypatch):
    monkeypatch.setattr(reading_module, "MOST_TOKENS", 6)
    reading = read(opened("classification"), {"first": "the " * 10})
    assert len(reading.sequences[0]) == 6
    assert reading.notes == ["The page reads 6 tokens at most. What is not shown was cut."]


def test_hostile_text_is_shown_as_text(opened):
    model = opened("multiple_choice", max_position_embeddings=300)
    reading = read(model, {"first": HOSTILE, "answers": f"{HOSTILE}\nhe"})
    named = Opened(HOSTILE, model.model, model.tokenizer, "multiple_choice")
    parts = [LOOK.reading(reading, 4.6), LOOK.error(HOSTILE), LOOK.continuation(HOSTILE, HOSTILE)]
    for part in (*parts, LOOK.model(named, model.model.config)):
        parsed = Markup(part)
        assert {tag for tag, _ in parsed.tags} <= {"div", "section", "h3", "p", "span", "b", "details", "summary"}
        assert parsed.attributes <= {"class", "title", "style", "open", "role"}
        assert HOSTILE in "".join(parsed.texts)


def words(markup) -> str:
    return Markup(markup).text


def test_a_reading_as_a_page_shows_it():
    sequence = [ShownToken("[s]", "control", None), ShownToken("fa", "text", 1.25, ends_word=False)]
    sequence.append(ShownToken("<r>", "text", 7.0))
    reading = Reading(["Sequence"], [sequence], [("no", 0.25), ("<yes>", 0.75)], False, ["A & B."])
    markup = LOOK.reading(reading, 4.605)
    assert words(markup) == (
        "A & B. Probabilities no 25.0 % <yes> 75.0 % What the model reads control text Under each token: its "
        "auxiliary loss, −log P in nats given the tokens before it. The deeper the colour, the less expected; a blind "
        "guess costs 4.6. Sequence 3 tokens, mean loss 4.12 [s] fa 1.2 <r> 7.0"
    )
    assert re.findall(r"width:([\d.]+)%", markup) == ["25.00", "75.00"]
    assert re.findall(r"--heat:(\d+)%", markup) == ["16", "60"]
    assert re.findall(r'<span class="gpt1-token ([^"]*)" title="([^"]*)"', markup) == [
        ("gpt1-control", "control: [s]"),
        ("gpt1-first gpt1-joined", "text: fa (P = 28.7 %)"),
        ("gpt1-first", "text: &lt;r&gt; (P = 0.0912 %)"),
    ]
    regression = LOOK.reading(Reading(["Sequence"], [sequence[:1]], [("score", 3.14159)], True, []), 4.605)
    assert words(regression) == "Score score: 3.142 What the model reads control Sequence 1 tokens [s]"


def test_what_the_buttons_do(opened, tmp_path):
    sources = short_names([save_opened(opened("multiple_choice"), tmp_path / "endings")])
    listed, open_now, status, *rest = page_module.on_open(sources, dict, "endings")
    assert (listed, open_now) == ({}, "endings")
    first, second, question, answers, result, continuation = rest
    assert words(status) == (
        "endings is open. GPT1DoubleHeadsModel: task head for multiple choice, with language-model head; 2 layers, "
        "32 wide, 24 positions, vocabulary 83."
    )
    assert first == {"visible": True, "label": "Context"}
    assert second == {"visible": False}
    assert question == {"visible": True, "label": "Question"}
    assert answers == {"visible": True, "label": "Answers"}
    assert (result, continuation) == (page_module.EMPTY, "")
    result, continuation = page_module.on_read(sources, "endings", "the old", "", "", "he\nthe")
    assert "Probabilities" in result
    assert continuation == ""
    *_, continuation = page_module.on_write(sources, "endings", 5, 0, "the old", "", "", "")
    assert words(continuation).endswith("after: [s] context [$]")
    for refused in (
        page_module.on_read(sources, "endings", "", "", "", "he")[0],
        *page_module.on_write(sources, "endings", 5, 0, "", "", "", "he"),
    ):
        assert words(refused) == "The context is empty. Write at least one word."
    listed, open_now, told, *rest = page_module.on_open(sources, dict, "me/two", "endings")  # the open model stays
    assert (listed, open_now, rest) == ({"value": "endings"}, "endings", [{}] * 6)
    assert "one from the list" in told


def test_a_continuation_leaves_half_of_the_positions_to_the_text(opened, tmp_path):
    sources = short_names([save_opened(opened(None, seed=10), tmp_path / "tiny")])
    *_, continuation = page_module.on_write(sources, "tiny", 200, 0, "the " * 20, "", "", "")
    assert words(continuation).endswith("after: text (only the last 12 of 20 tokens)")


def test_whatever_fails_becomes_a_sentence(opened, tmp_path, monkeypatch, caplog):
    sources = short_names([save_opened(opened(None), tmp_path / "tiny")])

    def fail(*_):
        raise KeyError("/srv/secret")

    for name in ("read", "make_prompt", "find_model"):
        monkeypatch.setattr(page_module, name, fail)
        for shown in (
            page_module.on_read(sources, "tiny", "a", "", "", "")[0],
            *page_module.on_write(sources, "tiny", 5, 0, "a", "", "", ""),
            page_module.on_open(sources, dict, "tiny")[2],
        ):
            failure = "The model failed (KeyError). Try another text or model. The server's log has the details."
            assert words(shown) == failure or name != "find_model" and "failed" not in words(shown)
    assert caplog.text.count("KeyError: '/srv/secret'") == 6


def test_the_command_says_where_the_page_is(monkeypatch, capsys):
    page = Mock()
    page.launch.return_value = (None, "http://127.0.0.1:7861/", None)
    monkeypatch.setattr(command, "build_page", lambda models: (page, {}))
    monkeypatch.setattr(command, "check_model", lambda *_: None)
    command.main(["--models", "me/one", "--server_port", "7861"])
    given = page.launch.call_args.kwargs
    assert given["quiet"]
    assert given["server_port"] == 7861
    assert not given["share"]
    assert page.block_thread.called
    assert capsys.readouterr().out == "The page is at http://127.0.0.1:7861/. Ctrl-C ends it.\n"


@pytest.mark.parametrize(("arguments", "address"), [([], "127.0.0.1"), (["--server_name", "0.0.0.0"], "0.0.0.0")])
def test_the_page_is_for_this_machine_unless_an_address_is_given(monkeypatch, arguments, address):
    page = Mock()
    page.launch.return_value = (None, "http://127.0.0.1:7860/", None)
    monkeypatch.setattr(command, "build_page", lambda models: (page, {}))
    command.main(["--models", "gpt1-novels", *arguments])
    assert page.launch.call_args.kwargs["server_name"] == address


def test_a_space_has_all_that_its_page_needs(monkeypatch, tmp_path, capsys):
    if not list(Distribution.discover(name="gpt1-hf")):
        pytest.skip("gpt1-hf is not installed, so nothing tells what it requires")
    monkeypatch.setattr(space, "version", lambda name: "6.31.0")
    folder = tmp_path / "space"
    command.main(["--write_space", str(folder), "--models", "me/one", "me/two", "gpt1-novels"])
    assert capsys.readouterr().out == f"written to {folder}\n"
    readme = (folder / "README.md").read_text()
    assert "sdk: gradio\nsdk_version: 6.31.0\napp_file: app.py\n" in readme
    assert "- me/one\n- me/two\n" in readme
    requirements = (folder / "requirements.txt").read_text().splitlines()
    assert "torch<2.16,>=2.11" in requirements
    assert not [line for line in requirements if "extra" in line]
    for package in ("modeling_gpt1", "tokenization"):
        files = [{file.relative_to(root) for file in (root / package).rglob("*.*")} for root in (ROOT, folder)]
        assert files[1] == {file for file in files[0] if "__pycache__" not in file.parts}
    built = Mock(side_effect=SystemExit)  # app.py up to the point where the page would be built
    monkeypatch.setattr(command, "build_page", built)
    monkeypatch.setattr(command, "check_model", lambda *_: None)
    with pytest.raises(SystemExit):
        runpy.run_path(str(folder / "app.py"))
    assert built.call_args.args == (["me/one", "me/two", NOVELS],)


def test_what_a_space_cannot_be(monkeypatch, tmp_path):
    monkeypatch.setattr(space, "version", lambda name: "6.31.0")
    with pytest.raises(ValueError, match="already exists. Give a new folder."):
        space.write_space(str(tmp_path), ["me/one"])
    with pytest.raises(ValueError, match="is a local folder, which a Space cannot open. Push it to the hub first"):
        space.write_space(str(tmp_path / "space"), [str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_a_space_without_gradio_names_what_to_install(monkeypatch, tmp_path):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(space, "version", version)
    with pytest.raises(ImportError, match='pip install "gradio>='):
        space.write_space(str(tmp_path / "space"), ["me/one"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("wordpiece", ["the</w>", "old</w>", "Émile</w>", "中</w>", "文</w>"]),
        ("bytes", ["the</w>", "old</w>", "Émile</w>", "中文</w>"]),
    ],
)
def test_tokens_of_other_tokenizers_are_shown_as_words(kind, expected):
    """WordPiece writes no blanks, and a character may have several byte-level tokens."""
    tokenizer = train_tokenizer(iter(["the old Émile 中文"] * 3), kind, show_progress=False)
    ids = tokenizer("the old Émile 中文", add_special_tokens=False)["input_ids"]
    assert reading_module.pieces_of(tokenizer, ids) == expected


def test_the_last_byte_of_a_character_shows_all_of_it():
    tokenizer = train_tokenizer(iter(["ab"] * 3), "bytes", show_progress=False)
    assert reading_module.texts_of(tokenizer, tokenizer("a字")["input_ids"]) == ["a", "", "", "字"]
