"""minicons and surprisal, run on a folder of this package: each word gets its own probability, the first one too."""

import math

import pytest
import torch
from support.tiny import SENTENCES, byte_level
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from modeling_gpt1 import word_surprisals
from modeling_gpt1.inference import surprisal

TEXTS = ["The old farmer walked, quietly, to the market.", "She smiled."]


@pytest.fixture
def folder(save_model, tmp_path):
    return str(save_model(tmp_path / "model"))


def bits_of_tokens(folder: str, text: str) -> list[float]:
    """−log₂ P of each token of a text, the first after id 0, the `bos_token`."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [0, *tokenizer(text, add_special_tokens=False)["input_ids"]]
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([ids])).logits[0, :-1]
    scores = logits.double().log_softmax(-1) / -math.log(2)
    return scores[torch.arange(len(ids) - 1), ids[1:]].tolist()


def test_minicons_scores_every_token_with_a_tokenizer_that_begins_texts(folder):
    scorer = pytest.importorskip("minicons.scorer")
    tokenizer = AutoTokenizer.from_pretrained(folder, add_bos_token=True)
    model = scorer.IncrementalLMScorer(AutoModelForCausalLM.from_pretrained(folder), "cpu", tokenizer=tokenizer)
    scores = model.token_score(TEXTS, surprisal=True, base_two=True)
    for text, tokens in zip(TEXTS, scores, strict=True):
        assert [score for _, score in tokens[1:]] == pytest.approx(bits_of_tokens(folder, text), abs=1e-4)


def test_minicons_gives_the_words_of_word_surprisals(folder):
    scorer = pytest.importorskip("minicons.scorer")
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, add_bos_token=True)
    opened = scorer.IncrementalLMScorer(model, "cpu", tokenizer=tokenizer)
    theirs = opened.word_score_tokenized(TEXTS, str.split, surprisal=True, base_two=True)
    ours = word_surprisals(model, AutoTokenizer.from_pretrained(folder), TEXTS)
    assert [word for of_text in theirs for word, _ in of_text] == ours["word"].tolist()
    assert [bits for of_text in theirs for _, bits in of_text] == pytest.approx(ours["bits"].tolist(), abs=1e-4)


def test_minicons_corrects_leading_blanks_alike_where_only_they_begin_words(monkeypatch):
    """It leaves out that a line end, or the end of the text, also ends a word."""
    scorer = pytest.importorskip("minicons.scorer")
    tokenizer = byte_level(SENTENCES)
    torch.manual_seed(0)
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    sizes = {"vocab_size": len(tokenizer), "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **ids, initializer_range=0.3)).eval()
    blanks = sorted(place for token, place in tokenizer.get_vocab().items() if token.startswith("Ġ"))
    monkeypatch.setattr(surprisal, "ids_of_boundaries", lambda tokenizer, pieces: blanks)
    text = "the old farmer walked to a green market"
    ours = word_surprisals(model, tokenizer, text)
    opened = scorer.IncrementalLMScorer(model, "cpu", tokenizer=tokenizer)
    options = {"bow_correction": True, "bos_token": True, "surprisal": True, "base_two": True}
    (theirs,) = opened.word_score_tokenized([text], str.split, **options)
    assert [bits for _, bits in theirs] == pytest.approx(ours["bits"].tolist(), abs=1e-4)


def test_surprisal_scores_the_first_token_too(folder):
    """It leaves the padding id, 0, out of every distribution, which a text never has."""
    package = pytest.importorskip("surprisal")
    model = package.AutoHuggingFaceModel.from_pretrained(folder, model_class="causal")
    (scored,) = model.surprise(TEXTS[0])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [0, *tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]]
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([ids])).logits[0, :-1]
    logits[:, 0] = -torch.inf
    nats = -logits.log_softmax(-1)[torch.arange(len(ids) - 1), ids[1:]]
    assert [float(score) for _, score in scored] == pytest.approx(nats.tolist(), abs=1e-4)
