"""Surprisal of words: it adds up to the text's, is that of a probability, and does not depend on batches."""

import copy
import itertools
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from support.families import make_family_model, make_family_tokenizer
from support.refusals import refusal
from support.tiny import SENTENCES, byte_level
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTTokenizer, TokenizersBackend

from modeling_gpt1 import GPT1ForCausalLM, word_surprisals
from modeling_gpt1.inference.surprisal import COLUMNS, ids_of_boundaries, pieces_of
from tokenization import GPT1Tokenizer

TEXTS = ["The old farmer didn't smile.\n\n“Why?” she said; nobody knew.  ", "\tA quiet girl …", "He paid five dollars"]


@pytest.fixture
def gpt1(tiny_model, plain_tokenizer):
    model = tiny_model(GPT1ForCausalLM, vocab_size=len(plain_tokenizer), max_position_embeddings=64).double()
    return model, plain_tokenizer


@pytest.fixture
def gpt2():
    """A model whose tokens begin with their blank."""
    tokenizer = byte_level(SENTENCES)
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer), "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return GPT2LMHeadModel(GPT2Config(**sizes, **ids, initializer_range=0.3)).eval().double(), tokenizer


def log_probs_of(model, ids: list[int]) -> torch.Tensor:
    """The log-probabilities of every token after each of the ids, `[T, V]`."""
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].log_softmax(-1)


def bits_of_text(model, tokenizer, text: str) -> float:
    ids = [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]
    return -log_probs_of(model, ids)[torch.arange(len(ids) - 1), ids[1:]].sum().item() / math.log(2)


# ---- Words


@pytest.mark.parametrize("family", ["gpt1", "gpt2"])
def test_words_are_those_between_white_space_at_their_places(family, request):
    words = word_surprisals(*request.getfixturevalue(family), TEXTS)
    for number, of_text in words.groupby("text"):
        text = TEXTS[number]
        assert of_text["word"].tolist() == text.split()
        assert [text[start:end] for start, end in zip(of_text["start"], of_text["end"], strict=True)] == text.split()


@pytest.mark.parametrize("family", ["gpt1", "gpt2"])
def test_the_tokens_of_words_are_those_of_the_text(family, request):
    model, tokenizer = request.getfixturevalue(family)
    words = word_surprisals(model, tokenizer, TEXTS)
    for number, of_text in words.groupby("text"):
        tokens = tokenizer.tokenize(TEXTS[number], add_special_tokens=False)
        assert " ".join(of_text["tokens"]).split(" ") == tokens
        assert of_text["num_tokens"].sum() == len(tokens)


def test_a_sentence_ends_with_a_mark_before_no_small_letter(gpt1):
    words = word_surprisals(*gpt1, "“Why?” she said. (No!) He went")
    assert words["sentence"].tolist() == [1, 1, 1, 2, 3, 3]
    assert words["position"].tolist() == [1, 2, 3, 1, 1, 2]


def test_texts_without_words_have_no_rows(gpt1):
    words = word_surprisals(*gpt1, ["", " \n ", "the"])
    assert words["text"].tolist() == [2]


# ---- Probabilities


def test_words_of_gpt1_have_the_bits_of_their_text(gpt1):
    words = word_surprisals(*gpt1, TEXTS)
    sums = words.groupby("text")["bits"].sum().tolist()
    assert sums == pytest.approx([bits_of_text(*gpt1, text) for text in TEXTS], abs=1e-4)


def test_words_of_gpt2_have_the_bits_of_their_text_and_of_its_end(gpt2):
    model, tokenizer = gpt2
    text = TEXTS[2]
    ids = [tokenizer.bos_token_id, *tokenizer(text)["input_ids"]]
    boundaries = ids_of_boundaries(tokenizer, pieces_of(tokenizer))
    end = log_probs_of(model, ids)[-1, boundaries].logsumexp(-1).item() / math.log(2)
    words = word_surprisals(model, tokenizer, text)
    assert words["bits"].sum() == pytest.approx(bits_of_text(model, tokenizer, text) - end, abs=1e-4)


def test_the_first_word_stands_after_id_0(gpt1):
    model, tokenizer = gpt1
    (token,) = tokenizer("the")["input_ids"]
    expected = -log_probs_of(model, [0])[0, token].item() / math.log(2)
    assert word_surprisals(model, tokenizer, "the")["bits"].tolist() == pytest.approx([expected], abs=1e-6)


LETTERS = "ab"
LONGEST = 5  # letters of the words that are tried


def all_words() -> list[str]:
    return ["".join(word) for n in range(1, LONGEST + 1) for word in itertools.product(LETTERS, repeat=n)]


def probability_of_any(model, tokenizer, context: str) -> float:
    """The probability that the word after a context is one of `all_words`."""
    texts = [f"{context} {word}" for word in all_words()]
    last = word_surprisals(model, tokenizer, texts).groupby("text")["bits"].last()
    return float((2.0**-last).sum())


def test_the_words_of_gpt1_and_the_rest_have_a_probability_of_1(tiny_model):
    """The rest: longer words, a line end and the unknown token."""
    vocab = ["<unk>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS), "\n</w>"]
    tokenizer = GPT1Tokenizer(vocab={token: index for index, token in enumerate(vocab)}, merges=[])
    model = tiny_model(GPT1ForCausalLM, vocab_size=len(vocab)).double()
    context = [0, *tokenizer("ab ba")["input_ids"]]
    rest = 0.0
    for num_letters in range(LONGEST):
        for letters in itertools.product([1, 2], repeat=num_letters):
            ids = [*context, *letters]
            log_probs = log_probs_of(model, ids)
            begun = log_probs[torch.arange(len(context) - 1, len(ids) - 1), ids[len(context) :]].sum()
            after = log_probs[-1].exp()
            is_longest = num_letters == LONGEST - 1
            rest += (begun.exp() * (after[0] + after[5] + is_longest * after[1:3].sum())).item()
    assert probability_of_any(model, tokenizer, "ab ba") + rest == pytest.approx(1, abs=1e-6)


class OfLetters:
    """A model of GPT-2's kind over two letters: a word begins with a blank, here on its first letter."""

    def __init__(self):
        vocab = ["<|end|>", *LETTERS, *(f"Ġ{letter}" for letter in LETTERS)]
        ids = {token: index for index, token in enumerate([*vocab, "Ġ"])}
        backend = Tokenizer(models.BPE(vocab=ids, merges=[("Ġ", letter) for letter in LETTERS]))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        self.tokenizer = TokenizersBackend(tokenizer_object=backend, bos_token="<|end|>", eos_token="<|end|>")
        torch.manual_seed(0)
        sizes = {"vocab_size": len(ids), "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 32}
        self.model = GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.3, bos_token_id=0, eos_token_id=0))
        self.model = self.model.eval().double()
        self.context = [0, *self.tokenizer("ab ba")["input_ids"]]

    def sum_over_beginnings(self) -> tuple[float, float]:
        """Of all words as sums of tokens alone; and the probability that no word of `LONGEST` letters or less ends."""
        naive, rest = 0.0, 0.0
        for word in all_words():
            ids = [*self.context, *self.tokenizer(f" {word}")["input_ids"]]
            log_probs = log_probs_of(self.model, ids)
            begun = log_probs[torch.arange(len(self.context) - 1, len(ids) - 1), ids[len(self.context) :]].sum().exp()
            naive += begun.item()
            if len(word) == LONGEST:
                rest += (begun * log_probs[-1, 1:3].exp().sum()).item()
        boundary = log_probs_of(self.model, self.context)[-1, [0, 3, 4, 5]].exp()
        other = (boundary[0] + boundary[3]).item()  # the text ends, or a blank alone follows
        return naive, (rest + other) / boundary.sum().item()


def test_the_words_of_gpt2_and_the_rest_have_a_probability_of_1():
    letters = OfLetters()
    _, rest = letters.sum_over_beginnings()
    assert probability_of_any(letters.model, letters.tokenizer, "ab ba") + rest == pytest.approx(1, abs=1e-6)


def test_the_tokens_of_gpt2_alone_give_no_probability_of_words():
    letters = OfLetters()
    naive, _ = letters.sum_over_beginnings()
    assert abs(naive - 1) > 0.1


# ---- White space of other kinds, and tokens that join it

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
# Of Llama 3, and alike of Qwen 2 and GPT-4: punctuation takes the line ends behind it.
LLAMA3 = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS = {
    "gpt2": BYTES,
    "llama3": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(LLAMA3, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
}
# `Âł` is U+00A0, `ãĢĢ` U+3000.
MERGES = ["Ġ a", "Ġ b", ". Ċ", "Â ł", "Âł a", "ã Ģ", "ãĢ Ģ", ", Ċ"]


SPACES = (b" ", b"\n", "\u00a0".encode(), "\u3000".encode())


def begins_space(written: bytes) -> bool:
    return any(space.startswith(written) for space in SPACES)


class OfSplit:
    """A random model over two letters whose tokenizer splits texts as another family's does."""

    def __init__(self, split: str, merges: list[str], characters: str = "ab.,ĠĊÂłãĢ"):
        vocab = ["<|end|>", *characters, *(merge.replace(" ", "") for merge in merges)]
        ids = {token: index for index, token in enumerate(vocab)}
        backend = Tokenizer(models.BPE(vocab=ids, merges=[tuple(merge.split(" ")) for merge in merges]))
        backend.pre_tokenizer = SPLITS[split]
        backend.decoder = decoders.ByteLevel()
        self.tokenizer = TokenizersBackend(tokenizer_object=backend, bos_token="<|end|>", eos_token="<|end|>")
        self.pieces = pieces_of(self.tokenizer)
        torch.manual_seed(0)
        sizes = {"vocab_size": len(ids), "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 32}
        self.model = GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.5, bos_token_id=0, eos_token_id=0))
        self.model = self.model.eval().double()

    def bits(self, text: str) -> list[float]:
        return word_surprisals(self.model, self.tokenizer, text)["bits"].tolist()

    def probability(self, beginning: str) -> float:
        """That a text begins so, and white space or its end follows: the sum over all such sequences of tokens.

        They are what the tokenizer writes; a last token with all of the white space may be any.
        """
        return self.continued(beginning.encode(), [], 1.0)

    def continued(self, beginning: bytes, ids: list[int], probability: float) -> float:
        after = log_probs_of(self.model, [0, *ids])[-1].exp().tolist()
        written = b"".join(self.pieces[token_id] for token_id in ids)
        total = after[0] * probability if written == beginning else 0.0
        for token_id in range(1, len(after)):
            longer = written + self.pieces[token_id]
            rest = longer[len(beginning) :]
            has_ended = longer.startswith(beginning) and rest.startswith(SPACES)
            is_on_its_way = beginning.startswith(longer) or (longer.startswith(beginning) and begins_space(rest))
            if has_ended and len(written) <= len(beginning):
                total += probability * after[token_id]
            elif not (has_ended or is_on_its_way) or not self.is_own([*ids, token_id], longer):
                continue
            elif has_ended:
                total += probability * after[token_id]
            else:
                total += self.continued(beginning, [*ids, token_id], probability * after[token_id])
        return total

    def is_own(self, ids: list[int], written: bytes) -> bool:
        """Whether the tokenizer writes a text by these ids; a part of a character may become one."""
        text = written.decode(errors="replace")
        return "�" in text or self.tokenizer(text)["input_ids"] == ids

    def bits_by_sums(self, text: str) -> list[float]:
        ends = [match.end() for match in re.finditer(r"\S+", text)]
        probabilities = [1.0, *(self.probability(text[:end]) for end in ends)]
        return [math.log2(before / after) for before, after in itertools.pairwise(probabilities)]


TEXTS_OF_SPLITS = ["a b. ba", "a.\nb a", "ab.\n\nb, a.", "a.\u00a0b a", "a.\u3000a b,\u3000b", "a\u00a0a\u3000b.\na"]


@pytest.mark.parametrize("text", TEXTS_OF_SPLITS)
@pytest.mark.parametrize("split", SPLITS)
def test_a_word_has_the_probability_of_all_continuations_that_begin_by_it(split, text):
    model = OfSplit(split, MERGES)
    assert model.bits(text) == pytest.approx(model.bits_by_sums(text), abs=1e-6)


@pytest.mark.parametrize("text", TEXTS_OF_SPLITS)
@pytest.mark.parametrize("split", SPLITS)
def test_no_word_has_bits_below_0(split, text):
    assert min(OfSplit(split, MERGES).bits(text)) >= -1e-6


@pytest.mark.parametrize("text", TEXTS_OF_SPLITS)
@pytest.mark.parametrize("split", SPLITS)
def test_words_have_the_bits_of_a_text_that_ends_in_a_line_end(split, text):
    model = OfSplit(split, MERGES)
    text += "\n"
    assert sum(model.bits(text)) == pytest.approx(bits_of_text(model.model, model.tokenizer, text), abs=1e-4)


def test_the_line_end_of_a_joined_token_belongs_to_the_word_after_it():
    model = OfSplit("llama3", MERGES)
    assert model.tokenizer.tokenize("b a.\na") == ["b", "Ġa", ".Ċ", "a"]
    assert model.bits("b a.\na")[1] == pytest.approx(model.bits("b a. a")[1], abs=1e-6)


@pytest.mark.parametrize("space", ["\u00a0", "\u3000"])
@pytest.mark.parametrize("split", SPLITS)
def test_white_space_that_several_tokens_write_begins_a_word(split, space):
    model = OfSplit(split, ["Ġ a", ". Ċ"], "ab.ĠĊÂł" if space == "\u00a0" else "ab.ĠĊãĢ")
    text = f"a.{space}b{space}ab"
    expected = model.bits_by_sums(text)[:-1]  # behind the last word this white space does not stand
    assert model.bits(text)[:-1] == pytest.approx(expected, abs=1e-6)


def test_words_behind_the_first_window_have_no_bits_below_0_with_joined_tokens():
    model = OfSplit("llama3", MERGES)
    text = "a b.\nb, a.\n\n" * 12
    bits = word_surprisals(model.model, model.tokenizer, text, stride=5)["bits"]
    assert min(bits) >= -1e-6


def test_white_space_and_letters_in_tokens_of_parts_are_refused():
    model = OfSplit("llama3", ["ł a"], "abĠĊÂł")
    told = refusal(model.bits, "b\u00a0a")
    assert r"The tokens of text 0 do not show the white space '\xa0' before 'a'" in told
    assert "Replace it by a blank." in told


def test_a_tokenizer_with_tokens_of_several_words_is_refused():
    model, tokenizer = OfLetters().model, OfLetters().tokenizer
    tokenizer.backend_tokenizer.model = models.BPE(
        vocab={"<|end|>": 0, "a": 1, "b": 2, "Ġa": 3, "Ġ": 4, "ĠaĠa": 5}, merges=[("Ġ", "a"), ("Ġa", "Ġa")]
    )
    told = refusal(word_surprisals, model, tokenizer, "a")
    assert "The tokenizer has a token of several words, ' a a'" in told
    assert "Pass a model whose tokens hold one word at most." in told


def test_added_tags_change_no_word_of_gpt2(gpt2):
    model, tokenizer = gpt2
    bits = word_surprisals(model, tokenizer, TEXTS)["bits"]
    wider = copy.deepcopy(model)
    wider.resize_token_embeddings(len(tokenizer) + 2, mean_resizing=False)
    with torch.no_grad():  # two rows without any probability, so that the others keep theirs
        wider.lm_head = torch.nn.Linear(32, len(tokenizer) + 2).double()
        wider.lm_head.weight[:-2], wider.lm_head.weight[-2:] = model.lm_head.weight, 0
        wider.lm_head.bias[:-2], wider.lm_head.bias[-2:] = 0, -1e9
    tokenizer.add_tokens(["<w>", "</w>"])
    assert word_surprisals(wider, tokenizer, TEXTS)["bits"].tolist() == pytest.approx(bits.tolist(), abs=1e-9)


def test_an_added_token_with_a_blank_begins_no_words():
    tokenizer = make_family_tokenizer("bert")
    tokenizer.add_tokens(["▁word"])
    assert "mark neither where words end" in refusal(pieces_of, tokenizer)


def test_tokens_of_openai_gpt_end_words(openai_gpt_folder):
    assert pieces_of(OpenAIGPTTokenizer.from_pretrained(openai_gpt_folder)) is None


# ---- Windows and batches


@pytest.mark.parametrize("family", ["gpt1", "gpt2"])
def test_a_text_scores_in_a_batch_as_alone(family, request):
    model, tokenizer = request.getfixturevalue(family)
    together = word_surprisals(model, tokenizer, TEXTS)["bits"]
    alone = [word_surprisals(model, tokenizer, text)["bits"] for text in TEXTS]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-9)


def long_text() -> str:
    return " ".join(SENTENCES)


def test_each_token_behind_the_first_window_is_read_behind_the_tokens_before_it(gpt1):
    model, tokenizer = gpt1
    stride, length = 16, model.config.max_position_embeddings
    ids = tokenizer(long_text())["input_ids"]
    bits = []
    for place in range(len(ids)):
        if place < length:
            before = [0, *ids[:place]]
        else:
            end = min(length + ((place - length) // stride + 1) * stride, len(ids))
            before = ids[end - length - 1 : place]
        bits.append(-log_probs_of(model, before)[-1, ids[place]].item() / math.log(2))
    words = word_surprisals(model, tokenizer, long_text(), stride=stride)
    assert len(ids) > 2 * length
    assert words["bits"].sum() == pytest.approx(sum(bits), abs=1e-4)


def test_a_stride_beyond_the_positions_is_refused(gpt1):
    told = refusal(word_surprisals, *gpt1, "the", stride=65)
    assert "`stride` is 65, but the model reads 64 tokens at once. Pass 1 to 64." in told


# ---- What cannot be scored


def test_a_model_that_is_not_causal_is_refused():
    tokenizer = make_family_tokenizer("bert")
    told = refusal(word_surprisals, make_family_model("bert", tokenizer, "ForMaskedLM"), tokenizer, "ann eats")
    assert "BertForMaskedLM does not predict each word from those before it" in told


def test_a_tokenizer_without_a_beginning_of_text_is_refused(gpt2):
    model, tokenizer = gpt2
    tokenizer.bos_token = tokenizer.eos_token = None
    assert "Set its `bos_token`" in refusal(word_surprisals, model, tokenizer, "the")


def test_a_model_with_sentencepiece_scores_words():
    tokenizer = make_family_tokenizer("llama")
    words = word_surprisals(make_family_model("llama", tokenizer, "ForCausalLM"), tokenizer, "ann eats fish")
    assert words["word"].tolist() == ["ann", "eats", "fish"]
    assert (words["bits"] > 0).all()


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(gpt2):
    model, tokenizer = gpt2
    num_tokens = len(tokenizer)
    tokenizer.add_tokens([" newword"])
    told = refusal(word_surprisals, model, tokenizer, "the")
    assert f"The tokenizer has {num_tokens + 1} tokens, but the model has embeddings for {num_tokens}" in told


@pytest.mark.parametrize("family", ["gpt1", "gpt2"])
def test_a_model_whose_scores_are_not_numbers_is_refused(family, request):
    model, tokenizer = request.getfixturevalue(family)
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(math.nan)
    said = refusal(word_surprisals, model, tokenizer, TEXTS)
    assert "are not numbers (NaN)" in said
    assert "Use another checkpoint" in said


def test_a_text_that_is_none_is_refused(gpt1):
    told = refusal(word_surprisals, *gpt1, ["the", None])
    assert "Text 1 is None, where a text is needed. Leave it out, or write it as a text." in told


def test_half_a_character_is_refused(gpt1):
    told = refusal(word_surprisals, *gpt1, ["the", "a \ud800 b"])
    assert r"Text 1 has half a character, '\ud800', at place 2. Write the whole character." in told


def test_texts_may_be_a_column_or_an_iterator(gpt1):
    expected = word_surprisals(*gpt1, TEXTS)
    for texts in (pd.Series(TEXTS, index=[5, 6, 7]), np.array(TEXTS), iter(TEXTS)):
        pd.testing.assert_frame_equal(word_surprisals(*gpt1, texts), expected)


def test_a_name_in_place_of_a_model_or_a_tokenizer_is_refused(gpt1):
    model, tokenizer = gpt1
    assert "`model` is 'runs/books'. Pass an opened model" in refusal(word_surprisals, "runs/books", tokenizer, "a")
    assert "`tokenizer` is a str. Pass what `open_tokenizer` returns." in refusal(word_surprisals, model, "a", "a")


def test_no_texts_give_a_table_without_rows(gpt1):
    words = word_surprisals(*gpt1, [])
    assert len(words) == 0
    assert words.columns.tolist() == list(COLUMNS)


def test_a_word_without_tokens_has_0_bits(gpt1):
    bits = word_surprisals(*gpt1, "the \x00 old")["bits"].tolist()
    assert math.copysign(1, bits[1]) == 1
    assert bits[1] == 0
