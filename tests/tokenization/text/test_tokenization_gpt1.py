"""GPT1Tokenizer: its files, training, control tokens, safety of text, saving and loading, offsets and decoding."""

import copy
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.refusals import refusal
from support.small_bpe import VOCAB, full_batch
from support.tiny import write_bpe
from tokenizers import AddedToken
from transformers import AutoTokenizer, TokenizersBackend, pipeline

from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM
from tokenization import GPT1Tokenizer, TraversalCollator, join_continuation
from tokenization.text.bpe_training import count_words

SPELLED = "[s] [$] [e] [S] [s][e] a[s]b <unk> <UNK> &#91;s&#93; ［s］ $ $$".split() + ["[ s ]", "< unk >"]


def test_text_becomes_the_released_pieces(tokenizer):
    pieces = tokenizer.tokenize("Hello, don't!\n\nHello…")
    assert pieces == ["hello</w>", ",</w>", "do</w>", "n't</w>", "!</w>", "\n</w>", "hello</w>", ".", ".", ".</w>"]
    assert tokenizer("Hello, q")["input_ids"] == [VOCAB["hello</w>"], VOCAB[",</w>"], 0]
    assert tokenizer("")["input_ids"] == tokenizer(" \n ")["input_ids"] == []


def test_a_plain_tokenizer_pads_with_the_unknown_token(tokenizer):
    assert (tokenizer.unk_token, tokenizer.pad_token, tokenizer.pad_token_id) == ("<unk>", "<unk>", 0)
    assert (tokenizer.has_control_tokens, tokenizer.start_token_id) == (False, None)
    batch = tokenizer(["hello", "hello hello"], padding=True)
    hello = VOCAB["hello</w>"]
    assert batch["input_ids"] == [[hello, 0], [hello, hello]]
    assert batch["attention_mask"] == [[1, 0], [1, 1]]


def test_offsets_point_into_the_original_text(tokenizer):
    text = "  “Hello”—don’t…\r\n hello"
    encoded = tokenizer(text, return_offsets_mapping=True)
    spans = [text[start:end] for start, end in encoded["offset_mapping"]]
    pairs = list(zip(spans, encoded.tokens(), strict=True))
    assert [span for span, piece in pairs if piece.isalpha() or "hello" in piece] == ["Hello", "hello"]
    assert [span for span, piece in pairs if piece in ("do</w>", "n't</w>")] == ["do", "n’t"]
    assert tokenizer("\ufeffhello do", return_offsets_mapping=True)["offset_mapping"] == [(1, 6), (7, 9)]
    assert all(span in ("…", "...") for span, piece in pairs if piece.startswith("."))


@pytest.mark.parametrize("opened_by", [GPT1Tokenizer, TokenizersBackend])
def test_an_added_word_is_found_wherever_it_stands(opened_by, with_control, tmp_path):
    """Given as a text, too, which other tokenizers look for in what they have prepared; also without the package."""
    words, whole = ["helloo", AddedToken("<|user|>"), AddedToken("dodo", single_word=True)], "helloo dodo <|user|>"
    assert with_control.add_tokens(words) == 3
    assert with_control.add_tokens(words) == 0
    with_control.save_pretrained(tmp_path)
    for tokenizer in (with_control, opened_by.from_pretrained(tmp_path)):
        first, user, single = map(tokenizer.convert_tokens_to_ids, map(str, words))
        for text, expected in (("do helloo do", [first]), (whole, [first, single, user]), ("do dodos", [])):
            batch = tokenizer([text, "do"], add_special_tokens=False)
            assert [token for token in batch["input_ids"][0] if token >= first] == expected
            assert batch.data == full_batch(tokenizer, [text, "do"], add_special_tokens=False).data
    assert with_control.decode(with_control("do helloo")["input_ids"], skip_special_tokens=True) == "do helloo"


def test_control_tokens_surround_one_text_and_a_pair(with_control):
    start, delimiter, extract = len(VOCAB), len(VOCAB) + 1, len(VOCAB) + 2
    hello, do = VOCAB["hello</w>"], VOCAB["do</w>"]
    assert with_control("hello")["input_ids"] == [start, hello, extract]
    assert with_control("hello", "do")["input_ids"] == [start, hello, delimiter, do, extract]
    assert with_control("hello", add_special_tokens=False)["input_ids"] == [hello]
    assert with_control.decode(with_control("hello", "do")["input_ids"], skip_special_tokens=True) == "hello do"


@pytest.mark.parametrize("text", SPELLED)
def test_text_never_becomes_a_special_token(with_control, tmp_path, text):
    with_control.save_pretrained(tmp_path)
    reloaded = [opened_by.from_pretrained(tmp_path) for opened_by in (GPT1Tokenizer, AutoTokenizer)]
    special = {with_control.start_token_id, with_control.delimiter_token_id, with_control.extract_token_id}
    for tokenizer in (with_control, copy.deepcopy(with_control), *reloaded):
        plain = tokenizer(f"hello {text} do", add_special_tokens=False)["input_ids"]
        assert not special & set(plain)
        encoded = tokenizer(f"hello {text} do", add_special_tokens=False, split_special_tokens=False)
        assert encoded["input_ids"] == plain
        assert tokenizer.tokenize(f"hello {text} do")[0] == "hello</w>"


def scored(tokenizer, context, continuation, **special):
    """What lm-evaluation-harness 0.4.13 takes for context and continuation (`_encode_pair`, `tok_encode`)."""
    assert tokenizer.decode(tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id)
    whole, first = (tokenizer.encode(text, **special) for text in (context + continuation, context))
    return first, whole[len(first) :]


@pytest.mark.parametrize("opened_by", [AutoTokenizer, TokenizersBackend, GPT1Tokenizer])
def test_the_beginning_of_a_text_is_the_beginning_of_its_ids(with_control, tmp_path, opened_by):
    with_control.save_pretrained(tmp_path)
    hello, start = VOCAB["hello</w>"], with_control.start_token_id
    for add_bos, context in ((True, [start, hello]), (False, [hello])):
        opened = opened_by.from_pretrained(tmp_path, add_bos_token=add_bos)
        assert (opened.bos_token, opened.eos_token) == ("[s]", "[e]")
        assert scored(opened, "hello", " hello,", add_special_tokens=add_bos) == (context, [hello, VOCAB[",</w>"]])
        assert scored(opened, "hello", " hello,") == (context, [hello, VOCAB[",</w>"]])
        opened.save_pretrained(tmp_path / "again")
    again = opened_by.from_pretrained(tmp_path)
    assert again.encode("hello") == [start, hello, with_control.extract_token_id]  # as classifying pipelines need


@pytest.mark.parametrize("opened_by", [AutoTokenizer, TokenizersBackend, GPT1Tokenizer])
def test_a_tokenizer_without_control_tokens_scores_without_a_flag(tokenizer, tmp_path, opened_by):
    tokenizer.save_pretrained(tmp_path)
    opened = opened_by.from_pretrained(tmp_path)
    assert (opened.bos_token, opened.bos_token_id) == ("<unk>", 0)
    assert (opened.eos_token, opened.eos_token_id) == ("<unk>", 0)
    assert scored(opened, "hello", " hello,") == ([VOCAB["hello</w>"]], [VOCAB["hello</w>"], VOCAB[",</w>"]])


def test_a_text_begins_with_no_token_unless_it_is_wanted(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    assert GPT1Tokenizer.from_pretrained(tmp_path)("hello")["input_ids"] == [VOCAB["hello</w>"]]
    with_start = GPT1Tokenizer.from_pretrained(tmp_path, add_bos_token=True)
    assert with_start("hello")["input_ids"] == [0, VOCAB["hello</w>"]]


def test_a_folder_that_names_no_beginning_of_text_gets_one_and_encodes_as_before(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    assert settings.pop("bos_token") == "<unk>"
    path.write_text(json.dumps(settings))
    opened = GPT1Tokenizer.from_pretrained(tmp_path)
    assert opened.bos_token_id == 0
    assert opened("hello do")["input_ids"] == [VOCAB["hello</w>"], VOCAB["do</w>"]]


@pytest.mark.parametrize(("text", "is_told"), [("<unk>hello", True), ("<unk> hello", False), ("hello<unk>", False)])
def test_a_beginning_of_text_written_into_a_text_is_told(tokenizer, caplog, text, is_told):
    """minicons writes it, and would give each word the score of another."""
    logging.Logger.warning_once.cache_clear()
    tokenizer([text, "hello"])
    assert ("open the tokenizer with `add_bos_token=True`" in caplog.text) == is_told


@pytest.mark.parametrize("opened_by", [AutoTokenizer, TokenizersBackend, GPT1Tokenizer])
def test_text_stays_text_where_special_tokens_are_not_to_be_split(with_control, tmp_path, opened_by):
    with_control.save_pretrained(tmp_path)
    opened = opened_by.from_pretrained(tmp_path, split_special_tokens=False)
    opened.split_special_tokens = False
    end = with_control.extract_token_id
    batch = TraversalCollator(opened, "classification", {"text": "text"})([{"text": "hello [e] hello"}])
    assert batch["input_ids"][0].tolist().count(end) == 1
    ids = opened("hello [e] hello", split_special_tokens=False, add_special_tokens=False)["input_ids"]
    assert (end in ids) == (opened_by is TokenizersBackend)


@pytest.mark.parametrize(
    "text", ["he\x00llo", "\x1b[31mhello\x1b[0m, \x1b[1;32mdo", "hello \x00 hello", "a\x00\n\x00b"]
)
def test_zero_bytes_and_colours_of_a_terminal_are_removed(tokenizer, text):
    assert tokenizer(text)["input_ids"] == tokenizer(re.sub(r"\x00|\x1b\[[0-9;]*[A-Za-z]", "", text))["input_ids"]


def test_a_spelled_control_token_is_its_characters(with_control):
    assert with_control.tokenize("[s] $") == ["[</w>", "s</w>", "]</w>", "$</w>"]
    assert with_control.tokenize("<unk>")[0] == "<</w>"
    with_control.backend_tokenizer.encode_special_tokens = False
    assert with_control.backend_tokenizer.encode("[s]", add_special_tokens=False).ids == [with_control.start_token_id]
    assert with_control.start_token_id not in with_control(["é [s]"], add_special_tokens=False)["input_ids"][0]


def test_the_model_grows_with_the_tokenizer(tokenizer, tiny_config):
    torch.manual_seed(0)
    model = GPT1DoubleHeadsModel(tiny_config(vocab_size=len(tokenizer), initializer_range=0.02, hidden_size=64))
    before = model.get_input_embeddings().weight.detach().clone()
    assert tokenizer.add_control_tokens(model) == 3
    rows = model.get_input_embeddings().weight.detach()
    assert rows.shape == (len(tokenizer), 64)
    assert model.config.vocab_size == len(tokenizer)
    assert torch.equal(rows[:-3], before)
    assert 0.01 < rows[-3:].std() < 0.03
    assert abs(rows[-3:].mean()) < 0.01
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    config = model.config
    ids = (config.start_token_id, config.delimiter_token_id, config.extract_token_id, config.pad_token_id)
    assert ids == (len(VOCAB), len(VOCAB) + 1, len(VOCAB) + 2, 0)


def test_a_grown_model_only_gets_the_ids_and_a_second_model_grows_too(tokenizer, tiny_config):
    first = GPT1DoubleHeadsModel(tiny_config(vocab_size=len(tokenizer), pad_token_id=5))
    tokenizer.add_control_tokens(first)
    rows = first.get_input_embeddings().weight.detach().clone()
    assert tokenizer.add_control_tokens(first) == 0
    assert torch.equal(first.get_input_embeddings().weight, rows)
    assert first.config.pad_token_id == 5
    second = GPT1DoubleHeadsModel(tiny_config(vocab_size=len(VOCAB)))
    assert tokenizer.add_control_tokens(second) == 0
    assert second.config.vocab_size == len(tokenizer)


def test_saved_folder_has_one_file_and_no_code(with_control, tmp_path):
    with_control.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    reloaded = GPT1Tokenizer.from_pretrained(tmp_path, auto_map={"AutoTokenizer": ["a/b--tags.Tags", None]})
    assert reloaded.backend_tokenizer.to_str() == with_control.backend_tokenizer.to_str()
    reloaded.save_pretrained(tmp_path)
    assert "auto_map" not in (tmp_path / "tokenizer_config.json").read_text()
    assert reloaded("Hello, don't!", "hello")["input_ids"] == with_control("Hello, don't!", "hello")["input_ids"]
    GPT1Config(vocab_size=len(with_control)).save_pretrained(tmp_path)
    assert type(AutoTokenizer.from_pretrained(tmp_path)) is GPT1Tokenizer


@pytest.mark.parametrize("has_control", [False, True])
def test_a_folder_goes_on_with_a_text_in_a_pipeline(tokenizer, tmp_path, randomise, tiny_config, has_control):
    model_class = GPT1DoubleHeadsModel if has_control else GPT1ForCausalLM
    model = randomise(model_class(tiny_config(vocab_size=len(tokenizer))))
    if has_control:
        tokenizer.add_control_tokens(model)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    options = {"max_new_tokens": 8, "do_sample": False}
    before = torch.tensor([[VOCAB["hello</w>"], VOCAB[",</w>"]]])
    model = GPT1ForCausalLM.from_pretrained(tmp_path)
    ids = model.generate(before, pad_token_id=0, **options)[0, 2:]
    text = join_continuation(tokenizer.decode(ids, skip_special_tokens=True), "hello ,")
    assert text.strip()
    go_on = pipeline("text-generation", str(tmp_path), device="cpu")
    assert go_on("Hello,", **options) == [{"generated_text": f"Hello,{text}"}]
    assert go_on(["Hello,"], return_full_text=False, **options) == [[{"generated_text": text}]]
    assert AutoTokenizer.from_pretrained(tmp_path)("hello,")["input_ids"] == tokenizer("hello,")["input_ids"]
    go_on.tokenizer.save_pretrained(tmp_path / "again")
    assert GPT1Tokenizer.from_pretrained(tmp_path / "again")("hello,")["input_ids"] == tokenizer("hello,")["input_ids"]


@pytest.mark.parametrize("order", [("missing.json", "merges.txt"), ("merges.txt", "vocab.json")])
def test_from_openai_names_the_files_that_it_could_not_read(tokenizer, order, tmp_path):
    write_bpe(tokenizer, tmp_path)
    first, second = (tmp_path / name for name in order)
    told = refusal(GPT1Tokenizer.from_openai, first, second)
    assert told.startswith(f"No tokenizer is in {first} and {second}: ")
    assert told.endswith("Pass the paths of OpenAI's encoder_bpe_40000.json and vocab_40000.bpe, in this order.")


def test_from_openai_and_a_folder_in_the_layout_of_openai_gpt(tokenizer, tmp_path):
    write_bpe(tokenizer, tmp_path)
    released = GPT1Tokenizer.from_openai(tmp_path / "vocab.json", tmp_path / "merges.txt", model_max_length=16)
    assert released.get_vocab() == VOCAB
    assert released.model_max_length == 16
    for loaded in (released, GPT1Tokenizer.from_pretrained(tmp_path)):
        assert loaded("Hello, don't!\nhello")["input_ids"] == tokenizer("Hello, don't!\nhello")["input_ids"]


@pytest.mark.parametrize("texts", [["low low lower", "low"], "low low lower"])
def test_texts_in_place_of_files_are_told_how_they_are_passed(texts):
    told = refusal(GPT1Tokenizer.train, texts, num_merges=2)
    assert "low low lower matches no file." in told
    assert told.endswith("Texts of your own are passed as an iterator, such as `iter(texts)`.")


def test_training_learns_the_merges_in_order():
    tokenizer = GPT1Tokenizer.train(iter(["low low low lower", "low"]), num_merges=2, show_progress=False)
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    alphabet = ["e", "l", "o", "r", "w"]
    assert vocabulary == ["<unk>", *alphabet, *(letter + "</w>" for letter in alphabet), "\n</w>", "lo", "low</w>"]
    assert tokenizer.tokenize("Low lower\nlow") == ["low</w>", "lo", "w", "e", "r</w>", "\n</w>", "low</w>"]


@pytest.mark.parametrize("asked", [1, 5, 12])
def test_training_makes_exactly_as_many_merges_as_asked(asked):
    texts = ["the cat sat on the mat .\nthe dog sat on the log .", "a cat and a dog sat there ."] * 2
    tokenizer = GPT1Tokenizer.train(iter(texts), asked, show_progress=False)
    assert len(json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]) == asked
    few = GPT1Tokenizer.train(iter(["aa aa"]), 100, show_progress=False)
    assert json.loads(few.backend_tokenizer.to_str())["model"]["merges"] == [["a", "a</w>"]]


def test_training_counts_prepared_words():
    texts = ["Low lower, isn't it?", "", "caf\u00e9 \u201clow\u201d &amp; low", 'She said: "Low-er\n\nlow."', "low"]
    counted = count_words(GPT1Tokenizer().backend_tokenizer, texts, show_progress=False)
    assert (counted["low"], counted["lower"], counted["n't"], counted["caf\u00e9"], counted['"']) == (6, 1, 1, 1, 4)
    assert counted["-"] == 1
    assert counted["\n"] == 1
    assert counted["er"] == 1


def test_training_is_the_same_in_every_process():
    """In one with other hashes of strings and with two threads as in this one."""
    texts = ["ab cd ef gh ij kl mn op qr st uv wx yz 中文 日本 한국 \U00020000\U00020001 \ue000\ue001"] * 2
    code = (
        f"from tokenization import GPT1Tokenizer; texts = {ascii(texts)}; "
        "print(GPT1Tokenizer.train(iter(texts), 16, show_progress=False).backend_tokenizer.to_str())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "2", "RAYON_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "true"}
    command = {"args": [sys.executable, "-c", code], "cwd": Path(__file__).parents[3], "env": environment}
    run = subprocess.run(**command, capture_output=True, text=True, encoding="utf-8", check=True)
    tokenizer = GPT1Tokenizer.train(iter(texts), 16, show_progress=False)
    assert run.stdout.rstrip("\n") == tokenizer.backend_tokenizer.to_str()


def test_equally_frequent_merges_come_in_the_order_of_their_letters():
    texts = ["中文 ab 日本 \U00020000\U00020001"] * 2
    model = json.loads(GPT1Tokenizer.train(iter(texts), show_progress=False).backend_tokenizer.to_str())["model"]
    assert model["merges"] == [["a", "b</w>"], ["中", "文</w>"], ["日", "本</w>"], ["\U00020000", "\U00020001</w>"]]


def test_no_character_of_the_training_text_is_unknown():
    signs = [chr(code) for code in range(0x4E00, 0x4E00 + 3000)]
    texts = ["".join(signs[start : start + 6]) for start in range(0, 3000, 6)]
    tokenizer = GPT1Tokenizer.train(iter(texts), 10, show_progress=False)
    assert all(0 not in ids for ids in tokenizer(texts + texts[::-1] + signs)["input_ids"])
    assert len(tokenizer) == 1 + 2 * 3000 + 1
    assert tokenizer("\u3400")["input_ids"] == [0]  # a sign that the text does not have


def test_training_without_words_is_refused():
    for texts in ([], [" \n "]):
        assert "has no words" in refusal(GPT1Tokenizer.train, iter(texts), show_progress=False)
        assert "`num_merges` is -5, but" in refusal(GPT1Tokenizer.train, iter(texts), -5)


def test_a_tokenizer_may_be_trained_with_another_unknown_token():
    tokenizer = GPT1Tokenizer.train(iter(["low low"]), 2, show_progress=False, unk_token="[UNK]")
    assert tokenizer.convert_ids_to_tokens(tokenizer("low z")["input_ids"]) == ["low</w>", "[UNK]"]
