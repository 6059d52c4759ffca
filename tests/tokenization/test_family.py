"""The form of other families' tokenizers: whole batches, beside what the tokenizers themselves make of the texts."""

import pytest
import torch
from helpers_families import FAMILIES, make_family_tokenizer
from transformers import BertTokenizer, PreTrainedTokenizerBase

from modeling_gpt1.training.task_models import pad_with_end
from tokenization import TraversalCollator

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PAIR = {"text_a": "one", "text_b": "two"}
ROWS = [{"one": "ann sees ben", "two": "he is old", "label": 1}, {"one": "fish", "two": "just a new cat", "label": 0}]
CHOICE = {"context": "story", "choices": "ends", "label": "label"}


@pytest.fixture(scope="module")
def bert() -> BertTokenizer:
    """Each letter is one token, a to z from 5 on."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS]
    return BertTokenizer(vocab={token: index for index, token in enumerate(tokens)})


def tokenizer_of(family: str) -> PreTrainedTokenizerBase:
    tokenizer = make_family_tokenizer(family)
    pad_with_end(tokenizer)
    return tokenizer


def lists(batch: dict) -> dict:
    return {name: tensor.tolist() for name, tensor in batch.items()}


def error_of(function, *args, **kwargs) -> str:
    with pytest.raises(ValueError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_batch_is_what_the_tokenizer_makes_of_the_texts(family, side):
    tokenizer = tokenizer_of(family)
    tokenizer.padding_side = side
    ones, twos = ([row[name] for row in ROWS] for name in ("one", "two"))
    batch = TraversalCollator(tokenizer, "similarity", PAIR)(ROWS)
    assert lists(batch) == lists(tokenizer(ones, twos, padding=True, return_tensors="pt"))
    batch = TraversalCollator(tokenizer, "classification", {"text": "one", "label": "label"})(ROWS)
    labels = torch.tensor([1, 0])
    assert lists(batch) == lists(tokenizer(ones, padding=True, return_tensors="pt") | {"labels": labels})


@pytest.mark.parametrize("family", FAMILIES)
def test_no_text_becomes_a_special_token(family):
    tokenizer = tokenizer_of(family)
    special = next(token for token in (tokenizer.sep_token, tokenizer.eos_token) if token is not None)
    collator = TraversalCollator(tokenizer, "classification", {"text": "text"})
    ids, plain = (collator([{"text": text}])["input_ids"][0].tolist() for text in (f"a {special} b", "a b"))
    assert ids.count(tokenizer.convert_tokens_to_ids(special)) == plain.count(tokenizer.convert_tokens_to_ids(special))
    assert collator.lengths([{"text": f"a {special} b"}]) == [len(ids)]


def test_literal_batch_of_both_orders(bert):
    collator = TraversalCollator(bert, "similarity", PAIR, both_orders=True)
    rows = [{"one": "a b", "two": "c"}, {"one": "d", "two": "e"}]
    assert lists(collator(rows)) == {
        "input_ids": [
            [[2, 5, 6, 3, 7, 3], [2, 7, 3, 5, 6, 3]],
            [[2, 8, 3, 9, 3, 0], [2, 9, 3, 8, 3, 0]],
        ],
        "token_type_ids": [
            [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1]],
            [[0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 0]],
        ],
        "attention_mask": [
            [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]],
            [[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0]],
        ],
    }
    assert collator.describe() == "`[CLS] a [SEP] b [SEP]` and `[CLS] b [SEP] a [SEP]`"


def test_literal_batch_of_choices(bert):
    """The second example has no third choice: its place repeats the first."""
    rows = [
        {"story": "a b", "ask": "q", "ends": ["c", "d", "e f"], "label": 2},
        {"story": "g", "ask": "r", "ends": ["h", "i"], "label": 0},
    ]
    collator = TraversalCollator(bert, "multiple_choice", CHOICE | {"question": "ask"})
    assert lists(collator(rows)) == {
        "input_ids": [
            [[2, 5, 6, 3, 21, 7, 3, 0], [2, 5, 6, 3, 21, 8, 3, 0], [2, 5, 6, 3, 21, 9, 10, 3]],
            [[2, 11, 3, 22, 12, 3, 0, 0], [2, 11, 3, 22, 13, 3, 0, 0], [2, 11, 3, 22, 12, 3, 0, 0]],
        ],
        "token_type_ids": [
            [[0, 0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1, 1]],
            [[0, 0, 0, 1, 1, 1, 0, 0]] * 3,
        ],
        "attention_mask": [
            [[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1, 1]],
            [[1, 1, 1, 1, 1, 1, 0, 0]] * 3,
        ],
        "choice_mask": [[True, True, True], [True, True, False]],
        "labels": [2, 0],
    }
    assert collator.lengths(rows) == [8, 6]
    assert collator.describe() == "`[CLS] context [SEP] question answer [SEP]`, one per answer"


@pytest.mark.parametrize(
    ("traversal", "columns", "row", "ids", "max_length"),
    [
        ("classification", {"text": "one"}, {"one": "a b c d"}, [2, 5, 6, 7, 3], 5),
        ("similarity", PAIR, {"one": "a b c d", "two": "e"}, [2, 5, 6, 3, 9, 3], 6),
        ("similarity", PAIR, {"one": "a b c d", "two": "e f g"}, [2, 5, 6, 3, 9, 10, 3], 7),
        # The context is cut first, then the choice.
        ("multiple_choice", CHOICE, {"story": "a b c", "ends": ["e f"]}, [[2, 5, 3, 9, 10, 3]], 6),
        ("multiple_choice", CHOICE, {"story": "a b c", "ends": ["e f g"]}, [[2, 5, 3, 9, 3]], 5),
    ],
)
def test_long_texts_are_cut_as_gpt1s_and_counted(traversal, columns, row, ids, max_length, bert):
    collator = TraversalCollator(bert, traversal, columns, max_length=max_length)
    assert collator([row])["input_ids"].tolist() == [ids]
    assert (collator.num_examples, collator.num_truncated, collator.lengths([row])) == (1, 1, [max_length])
    assert collator.check([row]) == (1, 1)


def test_pad_to_a_multiple(bert):
    collator = TraversalCollator(bert, "similarity", PAIR, pad_to_multiple_of=8)
    assert collator([{"one": "a", "two": "b"}])["input_ids"].tolist() == [[2, 5, 3, 6, 3, 0, 0, 0]]


def test_gpt1s_tokenizer_without_control_tokens_is_still_refused(plain_tokenizer):
    assert error_of(TraversalCollator, plain_tokenizer, "similarity", PAIR).startswith("The tokenizer has no start")


def test_a_tokenizer_without_padding_token():
    assert error_of(TraversalCollator, make_family_tokenizer("llama"), "similarity", PAIR) == (
        "LlamaTokenizer has no padding token, but batches are padded. Set its `pad_token`, for example to its "
        "end-of-text token: `tokenizer.pad_token = tokenizer.eos_token`."
    )


def test_no_room_for_the_special_tokens(bert):
    assert error_of(TraversalCollator, bert, "similarity", PAIR, max_length=4) == (
        "max_length is 4, but similarity needs at least 5 with BertTokenizer: its special tokens and one token of "
        "each text. Raise max_length."
    )


def test_both_orders_of_one_text(bert):
    assert error_of(TraversalCollator, bert, "classification", {"text": "one"}, both_orders=True) == (
        "both_orders is for the pairs of similarity, but the traversal is classification. Leave it out."
    )
