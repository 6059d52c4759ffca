"""Batches of the other families' pre-training: literal batches, shares of masks, and what the noise depends on."""

import copy
from types import SimpleNamespace

import pytest
import torch
from support.refusals import refusal
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling

from tokenization import GPT1Tokenizer
from tokenization.corpus import noise
from tokenization.corpus.noise import InfillingCollator, MaskedCollator, NextSentenceCollator, SentenceOrderCollator
from tokenization.text.forms import family_tokenizer

COLLATORS = {"roberta": MaskedCollator, "bert": NextSentenceCollator}
COLLATORS |= {"albert": SentenceOrderCollator, "bart": InfillingCollator}
ROWS = [{"input_ids": [5, 6, 7, 8, 9]}, {"input_ids": [10, 11, 12]}]
PAD, CLS, SEP, MASK = 0, 61, 62, 63


@pytest.fixture(scope="module")
def tokenizer():
    vocab = ["<unk>", *(f"{letter}</w>" for letter in ".abcdefghijklmnopqrstuvwxyz")]
    vocab += [str(index) for index in range(60 - len(vocab))]
    plain = GPT1Tokenizer(vocab={token: index for index, token in enumerate(vocab)}, merges=[])
    made = family_tokenizer(plain, "bert")
    assert (made.pad_token_id, made.cls_token_id, made.sep_token_id, made.mask_token_id) == (PAD, CLS, SEP, MASK)
    return made


def make(family, tokenizer, seed=0, share=None, blocks=ROWS):
    """A collator; `share` 0 masks nothing, 1 masks every token."""
    collator = COLLATORS[family](tokenizer, seed, blocks)
    if share is not None:
        collator._masks = DataCollatorForLanguageModeling(
            tokenizer, mlm_probability=share, mask_replace_prob=1.0, random_replace_prob=0.0
        )
    return collator


def make_rows(number, length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [{"input_ids": torch.randint(1, 60, (length,), generator=generator).tolist()} for _ in range(number)]


def in_turn(monkeypatch, name, *values):
    """Replaces draws of the module by these values, one for each call."""
    rest = iter(values)
    monkeypatch.setattr(noise, name, lambda *arguments: next(rest))


def as_lists(batch):
    return {name: part.tolist() for name, part in batch.items()}


def test_a_masked_block_has_its_tokens_as_labels(tokenizer):
    assert as_lists(make("roberta", tokenizer, share=1.0)(ROWS)) == {
        "input_ids": [[CLS, MASK, MASK, MASK, MASK, MASK, SEP], [CLS, MASK, MASK, MASK, SEP, PAD, PAD]],
        "attention_mask": [[1] * 7, [1, 1, 1, 1, 1, 0, 0]],
        "labels": [[-100, 5, 6, 7, 8, 9, -100], [-100, 10, 11, 12, -100, -100, -100]],
    }
    unmasked = as_lists(make("roberta", tokenizer, share=0.0)(ROWS))
    assert unmasked["input_ids"] == [[CLS, 5, 6, 7, 8, 9, SEP], [CLS, 10, 11, 12, SEP, PAD, PAD]]
    assert unmasked["labels"] == [[-100] * 7] * 2


@pytest.mark.parametrize(
    ("family", "draws", "second", "label"),
    [
        # The second block is cut after 1 + 0 tokens, and gets the end of block 0.
        ("bert", (1, 0, 0, 1, 0), [CLS, 10, SEP, 8, 9, SEP, PAD, PAD], "next_sentence_label"),
        # It is cut after 1 + 1 tokens, and its parts change places.
        ("albert", (1, 0, 1, 1), [CLS, 12, SEP, 10, 11, SEP, PAD, PAD], "sentence_order_label"),
    ],
)
def test_a_block_becomes_a_pair_of_segments_and_a_label_of_their_order(
    family, draws, second, label, tokenizer, monkeypatch
):
    """The first block is cut after 1 + 1 tokens, and goes on."""
    in_turn(monkeypatch, "_draw", *draws)
    assert as_lists(make(family, tokenizer, share=0.0)(ROWS)) == {
        "input_ids": [[CLS, 5, 6, SEP, 7, 8, 9, SEP], second],
        "token_type_ids": [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 0, 0]],
        "attention_mask": [[1] * 8, [1, 1, 1, 1, 1, 1, 0, 0]],
        "labels": [[-100] * 8] * 2,
        label: [0, 1],
    }


def test_a_block_that_is_drawn_for_itself_continues(tokenizer, monkeypatch):
    """What a label calls random must not be the continuation."""
    in_turn(monkeypatch, "_draw", 1, 1, 0)
    batch = make("bert", tokenizer, share=1.0)(ROWS[:1])
    assert batch["labels"].tolist() == [[-100, 5, 6, -100, 7, 8, 9, -100]]
    assert batch["next_sentence_label"].tolist() == [0]


def test_sentences_are_permuted_and_spans_become_one_mask(tokenizer, monkeypatch):
    stop = tokenizer(".", add_special_tokens=False)["input_ids"][0]
    rows = [{"input_ids": [5, 6, stop, 7, stop, 8, 9]}, {"input_ids": [10, 11]}]
    # The sentences come as third, first, second: 8 9 5 6 . 7 . — spans of 2 and 0 tokens are the second and fifth of
    # seven places. The second block has one sentence and no span.
    in_turn(monkeypatch, "_span_lengths", [2, 0], [])
    in_turn(monkeypatch, "_shuffled", [2, 0, 1], [4, 1, 0, 2, 3, 5, 6], [0], [0, 1])
    assert as_lists(make("bart", tokenizer)(rows)) == {
        "input_ids": [[CLS, 8, MASK, 6, stop, MASK, 7, stop, SEP], [CLS, 10, 11, SEP] + [PAD] * 5],
        "attention_mask": [[1] * 9, [1] * 4 + [0] * 5],
        "decoder_input_ids": [[SEP, CLS, 5, 6, stop, 7, stop, 8, 9], [SEP, CLS, 10, 11] + [PAD] * 5],
        "labels": [[CLS, 5, 6, stop, 7, stop, 8, 9, SEP], [CLS, 10, 11, SEP] + [-100] * 5],
    }


@pytest.mark.parametrize("family", ["roberta", "bert", "albert"])
def test_15_percent_of_the_tokens_are_labels_and_most_are_masked(tokenizer, family):
    rows = make_rows(200, 100)
    batch = make(family, tokenizer, blocks=rows)(rows)
    is_label = batch["labels"] != -100
    labels, inputs = batch["labels"][is_label], batch["input_ids"][is_label]
    # Four standard deviations of a share p of n tokens are 4 √(p (1 − p) / n).
    assert abs(len(labels) / 20_000 - 0.15) < 0.0101
    is_masked, is_kept = inputs == MASK, inputs == labels
    assert abs(is_masked.float().mean() - 0.8) < 0.03
    assert abs(is_kept.float().mean() - 0.1) < 0.025  # one in 64 random tokens is the old one
    is_special = (batch["input_ids"] == CLS) | (batch["input_ids"] == SEP)
    assert set(batch["input_ids"][~is_label].tolist()).isdisjoint({MASK})
    assert is_special[:, 0].all()
    assert not is_label[:, 0].any()
    for name in ("next_sentence_label", "sentence_order_label"):
        if name in batch:
            assert abs(batch[name].float().mean() - 0.5) < 0.142


def test_30_percent_of_the_tokens_are_masked_in_spans_of_three(tokenizer):
    rows = [{"input_ids": list(range(2, 52))} for _ in range(40)]
    lengths = []
    for seed, row in enumerate(rows):
        (ids,) = make("bart", tokenizer, seed)([row])["input_ids"].tolist()
        kept = [token for token in ids[1:-1] if token != MASK]
        assert len(kept) == 35  # of 50
        assert kept == sorted(kept)  # they stay in order
        lengths.append(15 / ids.count(MASK))
    assert 2.2 < sum(lengths) / len(lengths) < 3.8


def test_a_short_text_does_not_grow(tokenizer):
    for seed in range(300):
        rows = [{"input_ids": [7] * length} for length in (2, 3, 5)]
        lengths = make("bart", tokenizer, seed)(rows)["attention_mask"].sum(1).tolist()
        assert all(length <= most for length, most in zip(lengths, (4, 5, 7), strict=True))


@pytest.mark.parametrize("family", COLLATORS)
def test_noise_depends_on_seed_pass_and_row_alone(tokenizer, family):
    rows = make_rows(6, 40)
    random_state = torch.get_rng_state()
    batch = make(family, tokenizer, blocks=rows)(rows)
    for index, row in enumerate(rows):  # alone, after other rows, in another collator
        collator = make(family, tokenizer, blocks=rows)
        collator(rows[:index] or rows)
        (alone,) = collator([row])["input_ids"].tolist()
        assert batch["input_ids"][index].tolist()[: len(alone)] == alone
    assert not torch.equal(batch["input_ids"], make(family, tokenizer, 1, blocks=rows)(rows)["input_ids"])
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("family", COLLATORS)
def test_an_evaluation_has_noise_of_its_own(tokenizer, family):
    rows = make_rows(4, 40)
    collator = make(family, tokenizer, blocks=rows)
    before = collator.for_evaluation(rows)(rows)["input_ids"]
    assert not torch.equal(before, collator(rows)["input_ids"])
    collator.set_epoch(3)
    assert torch.equal(before, collator.for_evaluation(rows)(rows)["input_ids"])
    assert collator.for_evaluation(rows[:2]).blocks == rows[:2]  # not those of the training


@pytest.mark.parametrize("family", COLLATORS)
def test_workers_that_last_draw_the_same_noise_as_the_process_itself(tokenizer, family):
    rows = make_rows(6, 20)
    collator = make(family, tokenizer, blocks=rows)
    with_workers = DataLoader(rows, 2, collate_fn=collator, num_workers=2, persistent_workers=True)
    seen = set()
    for epoch in range(2):
        collator.set_epoch(epoch)
        seen.add(str(collator(rows)["input_ids"].tolist()))
        expected = [collator(rows[start : start + 2]) for start in (0, 2, 4)]
        for batch, wanted in zip(with_workers, expected, strict=True):
            assert as_lists(batch) == as_lists(wanted)
    assert len(seen) == 2


# ---- n-grams


class SimpleTokens:
    """A vocabulary that is read for the edges of its words alone."""

    def __init__(self, *tokens):
        self.tokens = tokens

    def get_vocab(self):
        return {token: index for index, token in enumerate(self.tokens)}


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["un", "do</w>", "it</w>"], [[0, 1], [2], [3, 4]]),  # GPT-1's: ends are marked
        (["un", "##do", "it"], [[0, 1], [2], [3, 4]]),  # WordPiece
        (["Ġun", "do", "Ġit"], [[0, 1], [2], [3, 4]]),  # byte-level
        (["▁un", "do", "▁it"], [[0, 1], [2], [3, 4]]),  # SentencePiece
        (["a", "b", "c"], [[0], [1], [2], [3], [4]]),  # characters
    ],
)
def test_words_are_complete_in_each_kind_of_vocabulary(tokens, words):
    assert noise.WordEdges(SimpleTokens(*tokens)).words_of([0, 1, 2, 0, 1]) == words


def test_lengths_of_ngrams_are_drawn_as_one_over_n():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([noise._ngram_length(3, generator) for _ in range(11_000)])
    counts = [(lengths == length).sum().item() for length in (1, 2, 3)]
    assert counts == pytest.approx([6_000, 3_000, 2_000], abs=4 * (11_000 * 6 / 11 * 5 / 11) ** 0.5)


def test_ngrams_of_complete_words_are_masked(monkeypatch):
    words = [[[1, 2], [3], [4, 5]], [[7], [8]]]
    in_turn(monkeypatch, "_shuffled", [0, 4, 3, 1, 2])  # the words at which n-grams begin
    in_turn(monkeypatch, "_ngram_length", 2, 3, 1, 1, 1)
    # Words 0 and 1; then the last word, whose n-gram ends with its segment; then word 3, and word 2 does not fit.
    assert noise._ngram_places(words, 5, 3, torch.Generator()) == [1, 2, 3, 7, 8]


def test_an_ngram_that_reaches_another_is_shortened(monkeypatch):
    words = [[[0], [1], [2], [3]]]
    in_turn(monkeypatch, "_shuffled", [2, 0, 1, 3])
    in_turn(monkeypatch, "_ngram_length", 1, 3)
    assert noise._ngram_places(words, 3, 3, torch.Generator()) == [0, 1, 2]


def test_of_a_word_that_is_longer_than_the_labels_each_token_may_be_masked():
    """Text without spaces is one word: its beginning alone would be learnt."""
    generator = torch.Generator()
    drawn = [noise._ngram_places([[[1, 2, 3, 4, 5, 6]]], 2, 3, generator) for _ in range(60)]
    assert {len(places) for places in drawn} == {2}
    assert {place for places in drawn for place in places} == {1, 2, 3, 4, 5, 6}


def test_a_row_of_one_word_has_a_label(tokenizer):
    ids = tokenizer("incomprehensibility", add_special_tokens=False)["input_ids"]
    collator = COLLATORS["roberta"](tokenizer, 0, [], mask_ngrams=3)
    assert (collator([{"input_ids": ids}])["labels"] != -100).sum().item() == max(1, round(0.15 * len(ids)))


@pytest.mark.parametrize(
    ("tokens", "ids", "words"),
    [
        (["##", "Ġmarket", "ing", "Ġa"], [0, 1, 2, 3], [[0], [1, 2], [3]]),  # byte-level, learnt from Markdown
        (["Ġ", "mar", "ket", "Ċ", "ĊĊ"], [1, 2, 3, 1, 4, 2], [[0, 1], [2], [3], [4], [5]]),  # lines of byte-level text
        (["market", "##ing", "##s", "Ġ"], [0, 1, 3, 0], [[0, 1], [2], [3]]),  # WordPiece
    ],
)
def test_a_single_token_with_the_other_mark_does_not_tell_where_words_begin(tokens, ids, words):
    vocabulary = {token: index for index, token in enumerate(tokens)}
    assert noise.WordEdges(SimpleNamespace(get_vocab=lambda: vocabulary)).words_of(ids) == words


@pytest.mark.parametrize("family", ["roberta", "bert", "albert"])
def test_with_ngrams_exactly_15_percent_of_the_tokens_are_labels(tokenizer, family):
    rows = make_rows(50, 100)
    collator = COLLATORS[family](tokenizer, 0, rows, mask_ngrams=3)
    batch = collator(rows)
    assert (batch["labels"] != -100).sum(1).tolist() == [15] * 50
    assert (batch["input_ids"] == MASK).sum().item() / 750 == pytest.approx(0.8, abs=0.06)


def test_ngrams_make_longer_runs_of_labels_than_single_masks(tokenizer):
    words = [[1 + token % 26 for token in row["input_ids"]] for row in make_rows(200, 100)]  # of one token each
    rows = [{"input_ids": ids} for ids in words]
    runs = []
    for longest in (1, 3):
        is_label = COLLATORS["roberta"](tokenizer, 0, rows, mask_ngrams=longest)(rows)["labels"] != -100
        begins = is_label[:, 1:] & ~is_label[:, :-1]
        runs.append(is_label.sum().item() / begins.sum().item())
    assert runs[0] < 1.3
    assert runs[1] > 1.55  # the mean length of a drawn n-gram is 18/11


def test_the_masks_of_ngrams_depend_on_seed_and_epoch_alone(tokenizer):
    rows = make_rows(4, 60)

    def inputs(seed, epoch):
        collator = COLLATORS["albert"](tokenizer, seed, rows, mask_ngrams=3)
        collator.set_epoch(epoch)
        return collator(rows)["input_ids"]

    assert torch.equal(inputs(0, 1), inputs(0, 1))
    assert not torch.equal(inputs(0, 1), inputs(1, 1))
    assert not torch.equal(inputs(0, 1), inputs(0, 2))


def test_masks_of_no_word_are_refused(tokenizer):
    with pytest.raises(ValueError, match="`mask_ngrams` is 0, but a mask covers at least 1 word"):
        COLLATORS["bert"](tokenizer, mask_ngrams=0)


# ---- Deletion and rotation


def bart(tokenizer, *noises):
    return InfillingCollator(tokenizer, 0, noise=noises)


def test_a_rotated_block_begins_with_a_drawn_token(tokenizer, monkeypatch):
    in_turn(monkeypatch, "_draw", 3)
    batch = bart(tokenizer, "rotation")([{"input_ids": [5, 6, 7, 8, 9]}])
    assert batch["input_ids"].tolist() == [[CLS, 8, 9, 5, 6, 7, SEP]]
    assert batch["labels"].tolist() == [[CLS, 5, 6, 7, 8, 9, SEP]]


def test_each_token_begins_a_rotated_block_equally_often(tokenizer):
    rows = [{"input_ids": [5, 6, 7, 8, 9 + index % 40, 20 + index // 40]} for index in range(1200)]
    begins = bart(tokenizer, "rotation")(rows)["input_ids"][:, 1]
    places = [row["input_ids"].index(token) for row, token in zip(rows, begins.tolist(), strict=True)]
    counts = torch.bincount(torch.tensor(places), minlength=6).tolist()
    assert counts == pytest.approx([200] * 6, abs=4 * (1200 / 6 * 5 / 6) ** 0.5)


def test_30_percent_of_the_tokens_are_deleted_and_the_others_keep_their_order(tokenizer):
    rows = [{"input_ids": list(range(1, 51))}, {"input_ids": list(range(10, 60))}]
    batch = bart(tokenizer, "deletion")(rows)
    for row, ids in zip(rows, batch["input_ids"].tolist(), strict=True):
        kept = ids[1:-1]
        assert (ids[0], ids[-1], len(kept)) == (CLS, SEP, 35)
        assert kept == [token for token in row["input_ids"] if token in set(kept)]
    assert batch["labels"][0].tolist() == [CLS, *range(1, 51), SEP]


def test_a_single_token_is_not_deleted(tokenizer):
    assert bart(tokenizer, "deletion")([{"input_ids": [7]}])["input_ids"].tolist() == [[CLS, 7, SEP]]


def test_deletion_goes_before_infilling(tokenizer):
    rows = make_rows(20, 100)
    ids = bart(tokenizer, "infilling", "deletion")(rows)["input_ids"]
    num_masks = (ids == MASK).sum(1)
    num_kept = (ids != PAD).sum(1) - 2 - num_masks
    assert num_kept.tolist() == [49] * 20  # of 100 tokens 30 are deleted, and 21 of the 70 are masked


def test_the_default_noise_is_permutation_and_infilling(tokenizer):
    rows = make_rows(5, 40)
    expected = InfillingCollator(tokenizer, 0)(rows)["input_ids"]
    assert torch.equal(bart(tokenizer, "infilling", "permutation")(rows)["input_ids"], expected)


@pytest.mark.parametrize(("given", "told"), [(["masking"], "'masking'"), ([], "empty")])
def test_another_noise_is_refused(tokenizer, given, told):
    with pytest.raises(ValueError, match=f"`noise` is {told}, but it must be one or several of permutation, rotation"):
        bart(tokenizer, *given)


def test_random_segments_need_blocks(tokenizer):
    collator = COLLATORS["bert"](tokenizer, 0, [])
    message = refusal(collator, [{"input_ids": [row, 8, 9, 10]} for row in range(20)])
    assert "`blocks` is empty" in message


def test_without_a_known_full_stop_a_text_is_one_sentence(tokenizer, monkeypatch):
    """Else it would end at each unknown token."""
    collator = COLLATORS["bart"](tokenizer, 0, [], noise=["permutation"])
    assert collator.full_stop_id == tokenizer(".", add_special_tokens=False)["input_ids"][-1]
    unknown = {"input_ids": [tokenizer.unk_token_id]}
    without = copy.deepcopy(tokenizer)
    monkeypatch.setattr(type(without), "__call__", lambda *args, **options: unknown)
    collator = COLLATORS["bart"](without, 0, [], noise=["permutation"])
    ids = [5, tokenizer.unk_token_id, 6, tokenizer.unk_token_id, 7]
    assert collator([{"input_ids": ids}])["input_ids"][0, 1:-1].tolist() == ids
