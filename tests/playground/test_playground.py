"""`gpt1 playground` without Gradio and without a browser: what a model's reading holds, is shown and refused."""

import builtins
import json
import logging
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelInfo

from modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
)
from modeling_gpt1.commands import playground as command
from modeling_gpt1.playground import look, opening, space
from modeling_gpt1.playground import page as page_module
from modeling_gpt1.playground.opening import Models, Opened, PlaygroundError, open_folder
from modeling_gpt1.playground.reading import BOXES, check_texts, encode, make_batch, notes_about, read
from modeling_gpt1.playground.writing import check_settings, language_model, make_prompt, write_on

ROOT = Path(__file__).resolve().parents[2]
FARMER = "the old farmer walked"
HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(2)> [s] [$] [e] ${alert(3)} {{7*7}} \" ' & <unk>"


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


def save(opened, folder):
    opened.model.save_pretrained(folder)
    opened.tokenizer.save_pretrained(folder)
    return str(folder)


def open_named(folder):
    return open_folder(str(folder), "tiny")


def message(function, *args):
    with pytest.raises(PlaygroundError) as error:
        function(*args)
    return str(error.value)


# ------------------------------------------------------------------------------------------------- tokens and kinds


def test_tokens_by_kind(opened):
    def sequences(traversal, **boxes):
        return [shown(sequence) for sequence in read(opened(traversal), boxes).sequences]

    assert sequences(None, first=FARMER) == [["text: the old farmer walked"]]
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
    assert notes_about(model, {"answer": ["he"]}) == [
        "With one answer there is nothing to choose: its probability is 100 % whatever it says."
    ]


def test_text_that_spells_a_control_token_stays_text(opened):
    model = opened("classification", max_position_embeddings=48)
    kinds = [token.kind for token in read(model, {"first": "a [e] b [$] c [s]"}).sequences[0]]
    assert kinds == ["control", *["text"] * (len(kinds) - 2), "control"]
    assert len(kinds) > 8


def test_a_new_line_is_seen(opened):
    (sequence,) = read(opened(None), {"first": "the old\nfarmer"}).sequences
    assert shown(sequence) == ["text: the old ↵ farmer"]


def test_what_was_cut_is_said(opened):
    model = opened("multiple_choice", max_position_embeddings=12)
    boxes = {"first": "the " * 6, "question": "the the the", "answers": "he\n" + "he " * 12}
    reading = read(model, boxes)
    assert [shown(sequence) for sequence in reading.sequences] == [
        ["control: [s]", "context: the", "question: the", "control: [$]", "answer: he", "control: [e]"],
        ["control: [s]", "context: the", "question: the", "control: [$]", "answer:" + " he" * 7, "control: [e]"],
    ]
    assert reading.notes == [
        "The model reads 12 tokens at most. The input was longer, so it read only the first 1 of 6 tokens of the "
        "context, the first 1 of 3 tokens of the question, the first 7 of 12 tokens of answer 2."
    ]
    notes = read(opened(None), {"first": "the " * 30}).notes
    assert notes == [
        "The model reads 24 tokens at most. The input was longer, so it read only the first 24 of 30 tokens of the "
        "text.",
        "This model has no task head: it has no classes to choose from.",
    ]


# ------------------------------------------------------------------------------------------------ losses and scores


def reference_losses(model, batch):
    """−log P by a float64 softmax over the logits, `[S, T]`; 0 at the first token."""
    logits = model(**batch, output_lm_logits=True).lm_logits.flatten(0, 1).double()
    targets = batch["input_ids"].view(logits.shape[:2])
    losses = -logits[:, :-1].log_softmax(-1).gather(-1, targets[:, 1:, None])[..., 0]
    return torch.nn.functional.pad(losses, (1, 0))


def test_losses_are_those_of_the_logits(opened):
    model = opened("multiple_choice")
    boxes = {"first": FARMER, "answers": "he smiled\nshe read the letter twice"}
    reading = read(model, boxes)
    batch = make_batch(model, check_texts(model, boxes))
    with torch.no_grad():
        expected = reference_losses(model.model, batch)
        l1 = model.model(**batch, labels=torch.tensor([0])).lm_loss
    for sequence, row in zip(reading.sequences, expected, strict=True):
        assert sequence[0].loss is None
        losses = torch.tensor([token.loss for token in sequence[1:]])
        torch.testing.assert_close(losses, row[1 : len(sequence)].float(), rtol=1e-5, atol=1e-5)
        assert not torch.allclose(losses[:-1], row[2 : len(sequence)].float(), atol=0.1)  # as if one place off
    means = [sum(token.loss for token in tokens[1:]) / (len(tokens) - 1) for tokens in reading.sequences]
    assert sum(means) / 2 == pytest.approx(l1.item(), rel=1e-5)


def test_losses_of_a_language_model(opened):
    model = opened(None)
    (sequence,) = read(model, {"first": FARMER}).sequences
    ids = torch.tensor([encode(model, FARMER)])
    mean = sum(token.loss for token in sequence[1:]) / (len(sequence) - 1)
    with torch.no_grad():
        assert mean == pytest.approx(model.model(ids, labels=ids).loss.item(), rel=1e-5)


def test_scores(opened):
    names = {0: "<b>yes</b>", 1: "no", 2: "maybe"}
    model = opened("entailment", id2label=names)
    boxes = {"first": FARMER, "second": "the train"}
    batch = make_batch(model, check_texts(model, boxes))
    with torch.no_grad():
        probabilities = model.model(**batch).task_logits.softmax(-1)[0].tolist()
    assert read(model, boxes).scores == [
        (name, pytest.approx(value)) for name, value in zip(names.values(), probabilities, strict=True)
    ]
    model = opened("similarity", num_labels=1, problem_type="regression")
    reading = read(model, boxes)
    batch = make_batch(model, check_texts(model, boxes))
    with torch.no_grad():
        value = model.model(**batch).task_logits.item()
    assert reading.is_regression and reading.scores == [("LABEL_0", pytest.approx(value))]


@pytest.mark.parametrize(
    ("model_class", "traversal"),
    [(GPT1ForSequenceClassification, "classification"), (GPT1ForMultipleChoice, "multiple_choice")],
)
def test_a_model_without_language_model_head_has_no_losses_and_says_so(opened, tmp_path, model_class, traversal):
    both = opened(traversal)
    single = opened(traversal, model_class)
    single.model.load_state_dict(both.model.state_dict(), strict=False)
    folder = open_named(save(single, tmp_path))
    assert type(folder.model) is model_class
    boxes = {"first": FARMER, "answers": "he\nthe train"}
    reading = read(folder, boxes)
    assert {token.loss for sequence in reading.sequences for token in sequence} == {None}
    expected = read(both, boxes).scores
    assert reading.scores == [(name, pytest.approx(value, rel=1e-5)) for name, value in expected]
    assert reading.notes == ["This model was saved without its language-model head: it has no auxiliary loss."]
    assert message(make_prompt, folder, boxes, 5) == (
        "This model was saved without its language-model head, so it cannot continue a text. Open a model that has "
        "one."
    )


def test_a_model_without_auxiliary_objective_says_so(opened):
    assert read(opened("classification", lm_coef=0.0), {"first": FARMER}).notes == [
        "This model was fine-tuned without the auxiliary objective (λ = 0)."
    ]


# ---------------------------------------------------------------------------------------------------------- writing


def test_prompts(opened):
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
    assert prompt("entailment", room=20, first="the he " * 10) == (
        "[s] the he [$]",
        "[s] premise [$] (only the last 2 of 20 tokens)",
    )


@pytest.mark.parametrize("traversal", [None, "classification"])
def test_the_continuation_is_streamed(opened, traversal):
    model = opened(traversal, seed=10)
    prompt, _ = make_prompt(model, {"first": FARMER}, 12)
    parts = list(write_on(model, prompt, 12, temperature=0))
    tokenizer = model.tokenizer
    ids = language_model(model.model).generate(
        torch.tensor([prompt]),
        max_new_tokens=12,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=tokenizer.extract_token_id,
        suppress_tokens=[tokenizer.start_token_id, tokenizer.delimiter_token_id, tokenizer.unk_token_id],
    )
    assert parts[-1].strip() == tokenizer.decode(ids[0, len(prompt) :], skip_special_tokens=True).strip()
    assert len(parts) > 2
    assert all(longer.startswith(shorter) for shorter, longer in zip(parts, parts[1:], strict=False))


def test_what_is_written_reads_as_text(opened, monkeypatch):
    model = opened(None)
    ids = model.tokenizer("the old farmer , a ticket .", add_special_tokens=False)["input_ids"]

    def generate(self, input_ids, streamer, **arguments):
        for part in (input_ids, *torch.tensor(ids).split(1)):
            streamer.put(part)
        streamer.end()

    monkeypatch.setattr(GPT1ForCausalLM, "generate", generate)
    parts = list(write_on(model, [1, 2], 12, temperature=0))
    assert parts[-1] == "the old farmer, a ticket."
    assert all(longer.startswith(shorter) for shorter, longer in zip(parts, parts[1:], strict=False))


def test_what_never_is_written(opened, plain_tokenizer, monkeypatch):
    """Without control tokens GPT-1's end of text is `<unk>`, which ends nothing here."""
    model, given = opened(None), {}
    monkeypatch.setattr(GPT1ForCausalLM, "generate", lambda self, **arguments: given.update(arguments))
    list(write_on(Opened("tiny", model.model, plain_tokenizer, None), [1, 2], 3, temperature=0))
    assert (plain_tokenizer.eos_token, given["eos_token_id"], given["suppress_tokens"]) == ("<unk>", None, [0])


def test_sampling_follows_the_seed(opened):
    model = opened(None)
    prompt, _ = make_prompt(model, {"first": FARMER}, 12)
    first, again, other = (list(write_on(model, prompt, 12, 1.5, seed))[-1] for seed in (0, 0, 1))
    assert first == again != other


def test_leaving_the_stream_ends_the_generation(opened):
    model = opened(None, max_position_embeddings=512)
    before = threading.active_count()
    stream = write_on(model, [1, 2], 500, temperature=0)
    next(stream)
    stream.close()
    assert threading.active_count() == before


def test_a_failure_while_writing_is_not_lost(opened):
    with pytest.raises(ValueError, match="the model has only 24 positions"):
        list(write_on(opened(None), [1, 2], 30, temperature=0))


# ---------------------------------------------------------------------------------------------------------- opening


def test_each_folder_opens_with_its_heads(opened, tmp_path):
    for traversal, model_class in ((None, GPT1ForCausalLM), ("similarity", GPT1DoubleHeadsModel)):
        folder = open_named(save(opened(traversal), tmp_path / str(traversal)))
        assert (type(folder.model), folder.traversal, folder.model.training) == (model_class, traversal, False)


def test_code_that_comes_with_a_model_is_not_run(opened, tmp_path):
    folder = save(opened("classification"), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"]
    for file in tmp_path.glob("*.py"):
        file.write_text("raise SystemExit('run')")
    assert type(open_named(folder).model) is GPT1DoubleHeadsModel


def test_a_folder_is_read_again_after_a_new_save(opened, tmp_path):
    models = Models([save(opened(None), tmp_path)])
    (name,) = models.listed
    first = models.open(name)
    assert models.open(name) is first
    weights = tmp_path / "model.safetensors"
    weights.rename(tmp_path / "old")
    shutil.copy(tmp_path / "old", weights)
    assert models.open(name) is not first
    opening._open_listed.cache_clear()


def test_a_visitor_opens_only_what_the_host_allows(opened, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(opened(None), tmp_path / "listed")
    other = save(opened(None), tmp_path / "other" / "model")
    models = Models([str(tmp_path / "listed")])
    assert models.open("listed").name == "listed"

    def words(name):
        return message(models.open, name).replace(f"“{name}”", "NAME")

    there, absent = (
        (other, "/etc", "~", ".", "./other/model", "../", "/"),
        (f"{other}-none", "/none", "~none", "./none"),
    )
    assert {words(name) for name in (*there, *absent, "file:///etc", "a b", "nul\0", "<i>", "\ud800")} == {
        "NAME is neither in the list nor the id of a model on the hub (owner/name). The host of this page can add a "
        "folder to the list."
    }
    # A folder may have the name of a model of the hub: only the hub is asked.
    assert {words(name) for name in ("other/model", "other/none", "other", "none")} == {
        "NAME could not be fetched from the hub (LocalEntryNotFoundError). Check the id, or try again later."
    }
    assert message(models.open, " ") == (
        "No model was given. Choose one from the list, or enter the id of a model on the hub."
    )
    assert len(message(models.open, "/" + "a" * 100_000)) < 300
    assert message(Models([str(tmp_path / "listed")], only_listed=True).open, other) == (
        f"“{other[:96]}{'…' * (len(other) > 96)}” is not one of this page's models. Choose one from the list."
    )
    opening._open_listed.cache_clear()


def test_visitors_see_no_path(tmp_path):
    folders = [tmp_path / name for name in ("rte/final", "sst/final", "books")]
    for folder in folders:
        folder.mkdir(parents=True)
    models = [*map(str, folders), f"{tmp_path}/sst/../books", "me/one"]  # books twice
    assert list(Models(models).listed) == ["rte/final", "sst/final", "books", "me/one"]
    assert list(Models(models[:1]).listed) == ["final"]
    with pytest.raises(OSError) as error:
        Models([f"{tmp_path}/none"])
    assert str(error.value).startswith(f"'{tmp_path}/none' is neither an existing folder nor a model name on the hub")


def test_models_of_the_hub_are_fetched_as_a_stranger_would(opened, tmp_path, monkeypatch):
    folder, asked = save(opened(None), tmp_path), []
    sizes = {"config.json": 1_000, "model.safetensors": 100_000, "pytorch_model.bin": 10**12}

    def download(repo_id, name=None, token=None, allow_patterns=None, revision=None):
        asked.append((repo_id, name, allow_patterns, token, revision))
        return f"{folder}/config.json" if name else folder

    def look_up(repo_id, files_metadata, token):
        asked.append((repo_id, token))
        siblings = [{"rfilename": name, "size": size} for name, size in sizes.items()]
        return ModelInfo(id=repo_id, sha="c0ffee", siblings=siblings if files_metadata else None)

    monkeypatch.setattr(opening, "hf_hub_download", download)
    monkeypatch.setattr(opening, "snapshot_download", download)
    monkeypatch.setattr(opening, "model_info", look_up)
    monkeypatch.setattr(opening, "is_offline_mode", lambda: False)
    models, patterns = Models(["me/one"]), ["*.json", "*.safetensors", "merges.txt"]
    assert [models.open(name).name for name in ("me/one", "somebody/two")] == ["me/one", "somebody/two"]
    assert asked == [
        ("me/one", "config.json", None, None, None),
        ("me/one", None, patterns, None, None),
        ("somebody/two", False),
        ("somebody/two", "config.json", None, False, "c0ffee"),
        ("somebody/two", None, patterns, False, "c0ffee"),
    ]
    asked.clear()
    monkeypatch.setattr(opening, "MOST_WEIGHTS", 25_250)  # of 4 bytes
    assert message(models.open, "somebody/three") == (
        "“somebody/three” has at least 28,000 weights; this page accepts at most 25,250. The host of this page can "
        "add the model to the list."
    )
    assert asked == [("somebody/three", False), ("somebody/three", "config.json", None, False, "c0ffee")]
    asked.clear()
    sizes["more/model.safetensors"] = 1
    assert message(models.open, "somebody/three") == (
        "The files of “somebody/three” are 101,001 bytes large; this page accepts at most 101,000. The host of this "
        "page can add the model to the list."
    )
    assert asked == [("somebody/three", False)]
    opening._open_listed.cache_clear()
    opening._open_public.cache_clear()


def test_what_cannot_be_opened(tmp_path):
    def refusal(config=None):
        if config is not None:
            (tmp_path / "config.json").write_text(config)
        return message(open_named, tmp_path)

    assert refusal() == "“tiny” has no config.json. Save a model there."
    assert refusal("{}") == "“tiny” does not name a model type. This page opens gpt1, openai-gpt and gpt2 models."
    assert refusal('{"model_type": "<i>bert</i>"}') == (
        "“tiny” is a model of type “<i>bert</i>”. This page opens gpt1, openai-gpt and gpt2 models."
    )
    assert refusal('{"model_type": "gpt1"}') == (
        "“tiny” has no safetensors weights. Save the model again: `save_pretrained` writes that format."
    )


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ("[" * 100_000, "RecursionError"),
        ("[]", "AttributeError"),
        ("{", "OSError"),
        ('{"model_type": "gpt1", "architectures": [[]]}', "TypeError"),
        (
            '{"model_type": "gpt1", "quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": true}}',
            "ImportError",
        ),
    ],
    ids=["deep", "list", "torn", "architectures", "quantized"],
)
def test_a_folder_that_fails_in_any_way_is_told_in_a_sentence(opened, tmp_path, caplog, config, error):
    save(opened(None), tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    text = json.dumps({**saved, **json.loads(config)}) if "gpt1" in config else config
    (tmp_path / "config.json").write_text(text)
    with caplog.at_level(logging.WARNING, opening.logger.name):
        assert message(open_named, tmp_path) == (
            f"“tiny” could not be opened ({error}). The server's log has the details."
        )
    assert f"{tmp_path} could not be opened" in caplog.text and f"{error}" in caplog.text


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"num_hidden_layers": 300_000},
            "The configuration of “tiny” needs at least 3,600,000 tensors, but its files hold 34. They do not belong "
            "together: save the model again.",
        ),
        (
            {"max_position_embeddings": 10**9},
            "The configuration of “tiny” needs at least 32,000,027,232 weights, but its files hold 28,832. They do "
            "not belong together: save the model again.",
        ),
        (
            {"num_labels": 10**9},
            "The configuration of “tiny” needs at least 1,000,000,000 weights, but its files hold 28,832. They do not "
            "belong together: save the model again.",
        ),
        (
            {"num_hidden_layers": -1},
            "The configuration of “tiny” has -1 as `num_hidden_layers`, but a whole number of at least 1 is needed.",
        ),
        (
            {"vocab_size": "<b>"},
            "The configuration of “tiny” has '<b>' as `vocab_size`, but a whole number of at least 1 is needed.",
        ),
        (
            {"num_attention_heads": 5},
            "The configuration of “tiny” is not that of a GPT-1: `hidden_size` (32) is not divisible by "
            "`num_attention_heads` (5). Choose a number of heads that divides the hidden size.",
        ),
    ],
)
def test_a_configuration_is_checked_before_a_model_is_built(opened, tmp_path, monkeypatch, fields, expected):
    save(opened(None), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **fields}))
    monkeypatch.setattr(GPT1ForCausalLM, "__init__", lambda *_: pytest.fail("a model was built"))
    assert message(open_named, tmp_path) == expected


def test_weights_and_tokenizers_that_do_not_fit(opened, plain_tokenizer, tmp_path):
    model = opened("classification")
    name = save(model, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    assert message(open_named, name) == (
        "“tiny” could not be opened (SafetensorError). The server's log has the details."
    )
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.model.state_dict(), tmp_path / "pytorch_model.bin")
    assert message(open_named, name).startswith("“tiny” has no safetensors weights.")
    model.model.save_pretrained(name)
    plain_tokenizer.save_pretrained(name)
    assert message(open_named, name) == (
        "“tiny” has a task head, but its tokenizer has no control tokens [s], [$] and [e]. Call "
        "tokenizer.add_control_tokens(model) before fine-tuning, and save the tokenizer with the model."
    )
    name = save(opened(None), tmp_path / "language")
    config = json.loads((tmp_path / "language" / "config.json").read_text())
    config["architectures"] = ["GPT1DoubleHeadsModel"]
    (tmp_path / "language" / "config.json").write_text(json.dumps(config))
    assert message(open_named, name) == (
        "“tiny” lacks weights of its GPT1DoubleHeadsModel: task_head.score.bias, task_head.score.weight. Save the "
        "model again."
    )


def test_a_question_without_a_token_is_left_out(opened):
    model, boxes = opened("multiple_choice"), {"first": "the old", "answers": "he\nthe train"}
    alone = read(model, boxes).sequences
    assert [read(model, {**boxes, "question": text}).sequences for text in ("\ufeff", "\x1b[0m")] == [alone, alone]


def test_inputs_that_cannot_be_read(opened):
    def refusal(traversal, **boxes):
        return message(read, opened(traversal), boxes)

    assert refusal(None, first="") == "The text is empty. Write at least one word."
    assert refusal("classification", first=" \n\t") == "The text is empty. Write at least one word."
    assert refusal("entailment", first="he") == "The hypothesis is empty. Write at least one word."
    assert refusal("similarity", first="", second="he") == "The text a is empty. Write at least one word."
    assert refusal("multiple_choice", first="", answers="he") == "The context is empty. Write at least one word."
    assert refusal("multiple_choice", first="he", answers="\n \n") == (
        "There are no answers. Write at least one, each on a line of its own."
    )
    assert refusal("multiple_choice", first="he", answers="he\n" * 51) == (
        "There are 51 answers; this page accepts at most 50. Remove some."
    )
    assert refusal("classification", first="a" * 100_001) == (
        "The text has 100,001 characters; this page accepts at most 100,000. Shorten it."
    )
    assert message(make_prompt, opened(None), {"first": " "}, 5) == ("The text is empty. Write at least one word.")
    half = "The text contains a lone surrogate, '\\ud800', which is not a valid character. Remove it."
    assert refusal("classification", first="the \ud800 farmer") == half
    assert message(make_prompt, opened(None), {"first": "the \ud800 farmer"}, 5) == half
    assert refusal("multiple_choice", first="he", answers="he\n\udfff") == (
        "The answer contains a lone surrogate, '\\udfff', which is not a valid character. Remove it."
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 10**30, None, "many"])
def test_settings_that_no_slider_gives(value):
    assert message(check_settings, value, 0.7) == (
        "The number of new tokens must be from 1 to 200. Set it with the slider."
    )
    assert message(check_settings, 40, value) == "The temperature must be from 0 to 1.5. Set it with the slider."
    check_settings(1, 0), check_settings(200, 1.5)


def test_no_model_reads_more_than_the_page_allows(opened, monkeypatch):
    monkeypatch.setattr(opening, "MOST_TOKENS", 6)
    reading = read(opened("classification"), {"first": "the " * 10})
    assert len(reading.sequences[0]) == 6
    assert reading.notes == [
        "The page reads 6 tokens at most. The input was longer, so it read only the first 4 of 10 tokens of the text."
    ]


# ---------------------------------------------------------------------------------------------------------- showing


class Parsed(HTMLParser):
    """Tags, attributes and text of what a page would show."""

    def __init__(self, markup):
        super().__init__()
        self.tags, self.attributes, self.text, self.open_tags = set(), set(), [], []
        self.feed(markup)
        self.close()
        assert self.open_tags == []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}
        self.open_tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_hostile_text_is_shown_as_text(opened):
    model = opened("multiple_choice", max_position_embeddings=300)
    reading = read(model, {"first": HOSTILE, "answers": f"{HOSTILE}\nhe"})
    parts = [
        look.show_reading(reading, 100),
        look.show_error(HOSTILE),
        look.show_continuation(HOSTILE, HOSTILE),
        page_module.show_model(Opened(HOSTILE, model.model, model.tokenizer, "multiple_choice")),
    ]
    for part in parts:
        parsed = Parsed(part)
        assert parsed.tags <= {"div", "section", "h3", "p", "span", "b", "details", "summary"}
        assert parsed.attributes <= {"class", "title", "style", "open", "role"}
        assert HOSTILE in "".join(parsed.text)


def test_a_reading_as_a_page_shows_it():
    token = look.ShownToken
    sequence = [token("[s]", "control", None), token("fa", "text", 1.25, ends_word=False), token("<r>", "text", 7.0)]
    reading = look.Reading(["Sequence"], [sequence], [("no", 0.25), ("<yes>", 0.75)], False, ["A & B."])
    markup = look.show_reading(reading, vocab_size=100)
    assert " ".join(text for text in Parsed(markup).text) == (
        "A & B. Probabilities no 25.0 % <yes> 75.0 % What the model reads control text Under each token: its "
        "auxiliary loss, −log P in nats given the tokens before it. The deeper the colour, the less expected; a blind "
        "guess costs 4.6. Sequence   3 tokens, mean loss 4.12 [s] fa 1.2 <r> 7.0"
    )
    assert re.findall(r"width:([\d.]+)%", markup) == ["25.00", "75.00"]
    assert re.findall(r"--heat:(\d+)%", markup) == ["16", "60"]
    assert re.findall(r'<span class="gpt1-token ([^"]*)" title="([^"]*)"', markup) == [
        ("gpt1-control", "control: [s]"),
        ("gpt1-first gpt1-joined", "text: fa (P = 28.7 %)"),
        ("gpt1-first", "text: &lt;r&gt; (P = 0.0912 %)"),
    ]
    regression = look.show_reading(look.Reading(["Sequence"], [sequence[:1]], [("score", 3.14159)], True, []), 100)
    assert " ".join(Parsed(regression).text) == (
        "Score score:  3.142 What the model reads control Sequence   1 tokens [s]"
    )


def test_many_answers_are_folded(opened):
    reading = read(opened("multiple_choice"), {"first": "he", "answers": "he\n" * 6})
    assert look.show_reading(reading, 100).count("<details open>") == 4
    assert look.show_reading(reading, 100).count("<details>") == 2


def luminance(colour):
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    """Ratio of WCAG 2.2, 1.4.3."""
    darker, lighter = sorted([luminance(first), luminance(second)])
    return (lighter + 0.05) / (darker + 0.05)


def mixed(colour, page, share):
    channels = [(int(colour[at : at + 2], 16), int(page[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(share * top + (1 - share) * below):02x}" for top, below in channels)


def test_contrast_is_enough_for_everyone():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    for shade in (0, 1):
        page = {name: pair[shade] for name, pair in look.PAGE.items()}
        pairs = [shades[shade] for shades in look.COLOURS.values()]
        pairs += [(page["page"], page["ink"]), (page["page"], page["faint"]), (page["alarm-page"], page["alarm"])]
        pairs.append((mixed(page["heat"], page["page"], look.STRONGEST_HEAT), page["ink"]))
        assert [pair for pair in pairs if contrast(*pair) < 4.5] == []
        assert contrast(page["bar"], page["line"]) >= 3  # WCAG 1.4.11, of what is no text
    assert set(look.COLOUR_OF) == {
        "control",
        *(part for parts in BOXES.values() for part in parts.values()),
    }


# ------------------------------------------------------------------------------------------------- page and Space


def test_opening_shows_the_boxes_of_the_traversal(opened, tmp_path):
    models = Models([save(opened("multiple_choice"), tmp_path / "endings")])
    name, listed, status, first, second, question, answers, result, shown, continuation = page_module.on_open(
        models, dict, "endings"
    )
    assert name == "endings" and " ".join(Parsed(status).text) == (
        "endings  is open.  GPT1DoubleHeadsModel: task head for multiple choice, with language-model head; 2 layers, "
        "32 wide, 24 positions, vocabulary 83."
    )
    assert listed == {"value": "endings"}
    assert first == {"visible": True, "label": "Context"}
    assert second == {"visible": False}
    assert question == {"visible": True, "label": "Question"}
    assert answers == {"visible": True, "label": "Answers"}
    assert (result, shown, continuation) == (page_module.EMPTY, None, "")
    opening._open_listed.cache_clear()


def test_nothing_stays_that_is_of_another_text(opened, tmp_path):
    models = Models([save(opened("multiple_choice"), tmp_path / "endings")])
    texts, others = ("the old", "", "", "he\nthe"), ("the train", "", "", "he\nthe")
    result, shown, continuation = page_module.on_read(models, "endings", *texts)
    assert "Probabilities" in result and continuation == ""

    def last(shown, *texts, length=5):
        *_, (result, shown, continuation) = page_module.on_write(models, dict, "endings", shown, length, 0, *texts)
        return result, shown, continuation

    kept, still_shown, continuation = last(shown, *texts)
    assert (kept, still_shown) == ({}, shown) and "after: [s] context [$]" in continuation
    assert last(shown, *others)[:2] == (page_module.EMPTY, None)
    failed, shown, continuation = page_module.on_read(models, "endings", "", "", "", "he")
    assert "The context is empty." in failed and (shown, continuation) == (None, "")
    assert last(shown, *texts)[:2] == (page_module.EMPTY, None)
    result, shown, continuation = last(None, "", "", "", "he")
    assert (result, shown) == (page_module.EMPTY, None) and "The context is empty." in continuation
    assert "The number of new tokens must be from 1 to 200." in last(None, *texts, length=float("nan"))[2]
    opening._open_listed.cache_clear()


def test_the_page_refuses_kindly():
    models = Models(["me/one"], only_listed=True)
    name, listed, status, *_ = page_module.on_open(models, dict, "me/two")
    assert (name, listed) == ("", {"value": None}) and "".join(Parsed(status).text) == (
        "“me/two” is not one of this page's models. Choose one from the list."
    )
    nothing = look.show_error("No model is open. Choose one and press Open.")
    assert page_module.on_read(models, "", "a", "", "", "") == [nothing, None, ""]
    assert list(page_module.on_write(models, dict, "", None, 5, 0, "a", "", "", "")) == [
        [page_module.EMPTY, None, nothing]
    ]


def test_whatever_fails_becomes_a_sentence(opened, tmp_path, monkeypatch, caplog):
    models = Models([save(opened(None), tmp_path / "tiny")])
    failure = look.show_error(
        "The model failed (KeyError). Try another text or model. The server's log has the details."
    )

    def fail(*_):
        raise KeyError("/srv/secret")

    monkeypatch.setattr(page_module, "read", fail)
    monkeypatch.setattr(page_module, "make_prompt", fail)
    assert page_module.on_read(models, "tiny", "a", "", "", "") == [failure, None, ""]
    *_, last = page_module.on_write(models, dict, "tiny", None, 5, 0, "a", "", "", "")
    assert last == [page_module.EMPTY, None, failure]
    monkeypatch.setattr(models, "open", fail)
    assert page_module.on_open(models, dict, "tiny")[2] == failure
    assert caplog.text.count("KeyError: '/srv/secret'") == 3
    opening._open_listed.cache_clear()


def test_half_a_character_of_a_model_is_shown():
    assert look.show_error("a \ud800 b") == '<div class="gpt1 gpt1-alarm" role="alert"><p>a ? b</p></div>'


def test_without_gradio(monkeypatch):
    original = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "gradio":
            raise ImportError("No module named 'gradio'")
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError) as error:
        command.main([])
    assert str(error.value) == "The playground needs Gradio: pip install -e '.[playground]'"


def test_space(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(space, "version", lambda name: "6.31.0")
    folder = tmp_path / "space"
    command.main(["--write_space", str(folder), "--models", "me/one", "me/two"])
    assert capsys.readouterr().out == f"written to {folder}\n"
    assert (folder / "app.py").read_text() == (
        "from modeling_gpt1.commands.playground import main\n\n"
        'main(["--server_name", "0.0.0.0", "--only_listed", "--models", "me/one", "me/two"])\n'
    )
    assert (folder / "README.md").read_text() == (
        "---\ntitle: GPT-1 playground\nsdk: gradio\nsdk_version: 6.31.0\napp_file: app.py\nlicense: apache-2.0\n"
        "models:\n- me/one\n- me/two\n---\n\n"
        "Tokens, probabilities, auxiliary losses and continuations of GPT-1 models.\n"
    )
    requirements = (folder / "requirements.txt").read_text().splitlines()
    assert "torch<2.16,>=2.11" in requirements and not [line for line in requirements if "extra" in line]
    for package in ("modeling_gpt1", "tokenization"):
        ours, copied = ROOT / package, folder / package
        files = {file.relative_to(ours): file.read_bytes() for file in ours.rglob("*") if file.is_file()}
        files = {name: content for name, content in files.items() if "__pycache__" not in name.parts}
        assert {file.relative_to(copied): file.read_bytes() for file in copied.rglob("*") if file.is_file()} == files


# app.py up to the point where the page would be built.
START = """
import runpy, sys
import modeling_gpt1.commands.playground as command
from modeling_gpt1.playground.look import style_sheet
def build_page(*arguments):
    print(arguments, command.__file__, len(style_sheet()))
    sys.exit()
command.build_page = build_page
runpy.run_path("app.py")
"""


def test_a_space_starts_from_its_folder_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(space, "version", lambda name: "6.31.0")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    folder = tmp_path / "space"
    space.write_space(str(folder), ["me/one"])
    started = subprocess.run([sys.executable, "-c", START], cwd=folder, capture_output=True, text=True, timeout=300)
    used = folder / "modeling_gpt1" / "commands" / "playground.py"
    assert started.stdout == f"(['me/one'], True, '0.0.0.0') {used} {len(look.style_sheet())}\n", started.stderr


def test_a_space_is_whole_or_not_there(monkeypatch, tmp_path):
    def nowhere(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(space, "version", nowhere)
    with pytest.raises(ImportError) as error:
        space.write_space(str(tmp_path / "space"), ["me/one"])
    assert str(error.value) == "A Space names its version of Gradio: pip install -e '.[playground]'"
    monkeypatch.setattr(space, "version", lambda name: "6.31.0")

    def broken(*args, **kwargs):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", broken)
        with pytest.raises(OSError):
            space.write_space(str(tmp_path / "space"), ["me/one"])
    assert list(tmp_path.iterdir()) == []
    space.write_space(str(tmp_path / "space"), ["me/one"])


def test_space_refusals(tmp_path):
    def refusal(folder, *models):
        with pytest.raises(ValueError) as error:
            space.write_space(str(folder), list(models))
        return str(error.value)

    assert refusal(tmp_path, "me/one") == f"{tmp_path} already exists. Give a new folder."
    assert refusal(tmp_path / "space", str(tmp_path)) == (
        f"{tmp_path} is a local folder, which a Space cannot open. Push it to the hub first and give its id."
    )
    assert not (tmp_path / "space").exists()
