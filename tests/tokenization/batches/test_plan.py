"""Plans of batches: literal tensors, and properties of random ones."""

from dataclasses import fields

import pytest
import torch
from accelerate.utils import send_to_device
from support.packing import pad, planned, ragged_choices
from torch.utils.data._utils.pin_memory import pin_memory

from tokenization import BlockCollator, TraversalCollator
from tokenization.batches.plan import plan_batch, plan_blocks


def lists(plan, *names):
    return [getattr(plan, name).tolist() for name in names]


def tensors(plan):
    return {field.name: value for field in fields(plan) if torch.is_tensor(value := getattr(plan, field.name))}


def test_a_common_context_lies_there_once():
    plan = plan_batch(torch.tensor([[[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]]), [3])
    assert (plan.shape, plan.num_tokens) == ((1, 2, 5), 9)
    assert plan.is_real.tolist() == [[True] * 5, [True] * 4 + [False]]
    assert lists(plan, "token_index", "position_ids") == [[0, 1, 2, 3, 4, 8], [[0, 1, 2, 3, 4, 3]]]
    assert lists(plan, "packed_index") == [[[0, 1, 2, 3, 4], [0, 1, 2, 5, 0]]]
    assert lists(plan, "row_index", "row_place") == [[[0, 1, 2, 3, 4, 5]], [0, 1, 2, 3, 4, 5]]
    assert lists(plan, "row_sequence", "row_is_shared") == [[[0, 0, 0, 0, 0, 1]], [[True] * 3 + [False] * 3]]
    # The last shared token, 2, predicts the first token of either sequence.
    assert lists(plan, "target_tokens", "target_sources") == [[1, 2, 3, 4, 5], [0, 1, 2, 3, 2]]


def test_a_sequence_that_adds_nothing_has_no_tokens_of_its_own():
    plan = plan_batch(torch.tensor([[[1, 1, 1], [1, 1, 0], [1, 1, 1]]]), [2])
    assert lists(plan, "token_index", "position_ids") == [[0, 1, 2, 8], [[0, 1, 2, 2]]]
    assert lists(plan, "packed_index", "row_index") == [[[0, 1, 2], [0, 1, 0], [0, 1, 3]], [[0, 1, 2, 3]]]
    assert lists(plan, "target_tokens", "target_sources") == [[1, 2, 3], [0, 1, 1]]


def test_padding_is_left_out():
    plan = plan_batch(torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0]]), [0, 0, 0])
    assert plan.row_sequence is None
    assert plan.row_is_shared is None
    assert lists(plan, "token_index", "position_ids") == [[0, 1, 3, 4, 5, 6], [[0, 1, 0, 1, 2, 0]]]
    assert lists(plan, "packed_index") == [[[0, 1, 0], [2, 3, 4], [5, 0, 0]]]
    assert lists(plan, "row_index", "row_place") == [[[0, 1, 0], [2, 3, 4], [5, 0, 0]], [0, 1, 3, 4, 5, 6]]
    assert plan.row_is_padding.long().tolist() == [[0, 0, 1], [0, 0, 0], [0, 1, 1]]
    assert lists(plan, "target_tokens", "target_sources") == [[1, 3, 4], [0, 2, 3]]


@pytest.mark.parametrize("mask", [[[0, 1, 1]], [[1, 0, 1]]])
def test_padding_before_a_token_is_refused(mask):
    with pytest.raises(ValueError, match="needs all padding at the end of a sequence. Pad on the right"):
        plan_batch(torch.tensor(mask), [0])


def test_a_full_batch_is_computed_as_it_is():
    plan = plan_batch(torch.ones(2, 3, dtype=torch.int64), [0, 0])
    assert plan.token_index is None
    assert plan.row_index is None
    assert lists(plan, "target_tokens", "target_sources") == [[1, 2, 4, 5], [0, 1, 3, 4]]


def test_blocks_are_computed_as_they_are_unless_many_places_are_padding():
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    plan = plan_blocks(mask)
    assert (plan.shape, plan.num_tokens, plan.token_index) == ((2, 5), 9, None)
    assert lists(plan, "target_tokens", "target_sources") == [[1, 2, 3, 4, 6, 7, 8], [0, 1, 2, 3, 5, 6, 7]]
    mask[1, 3] = 0
    torch.testing.assert_close(tensors(plan_blocks(mask)), tensors(plan_batch(mask, [0, 0])))
    assert plan_blocks(mask).token_index.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert plan_blocks(mask * 0).num_tokens == 0  # nothing to pack


def test_a_context_is_shared_only_where_that_is_less_work():
    """Two choices of 100 tokens with one in common: one row of 199 has twice the pairs of two rows of 100."""
    mask = torch.ones(1, 2, 100, dtype=torch.int64)
    assert plan_batch(mask, [1]).token_index is None
    assert plan_batch(mask, [60]).token_index.shape == (140,)
    # Two examples of one batch decide by themselves.
    plan = plan_batch(torch.ones(2, 2, 100, dtype=torch.int64), [1, 60])
    assert plan.token_index.shape == (340,)
    assert plan.row_index.shape == (3, 140)


def test_every_real_token_is_computed_once():
    for extra in (0, 2):
        batch = planned(pad(ragged_choices(), extra=extra))
        plan, ids = batch["plan"], batch["input_ids"].flatten()
        real = batch["attention_mask"].flatten(0, 1).bool()
        assert plan.num_tokens == int(real.sum()) > len(plan.token_index)
        packed = ids[plan.token_index][plan.packed_index]
        assert torch.equal(packed[real], ids.view_as(packed)[real])
        assert torch.equal(plan.position_ids[0][plan.packed_index][real], (real.cumsum(1) - 1)[real])
        # Each target is predicted by the token before it in every sequence that has it.
        before = {}
        for row, is_real in zip(plan.packed_index.tolist(), real.tolist(), strict=True):
            tokens = [token for token, is_token in zip(row, is_real, strict=True) if is_token]
            for source, token in zip(tokens, tokens[1:], strict=False):
                assert before.setdefault(token, source) == source
        assert before == dict(zip(*lists(plan, "target_tokens", "target_sources"), strict=True))


EXAMPLES = {
    "classification": [{"text": "the old farmer"}, {"text": "a girl"}],
    "entailment": [{"premise": "the old farmer", "hypothesis": "he walked"}, {"premise": "a", "hypothesis": "b"}],
    "similarity": [{"text_a": "the old farmer", "text_b": "the old market"}, {"text_a": "a", "text_b": "b"}],
    "multiple_choice": [
        {"context": "the old farmer walked", "choices": ["he knew why", "he knew the river", "a"]},
        {"context": "the film was slow", "choices": ["he paid", "he"]},
    ],
}


@pytest.mark.parametrize("traversal", EXAMPLES)
def test_what_a_traversal_says_of_shared_tokens_gives_the_plan_of_a_comparison(tiny_tokenizer, traversal):
    examples = EXAMPLES[traversal]
    collator = TraversalCollator(tiny_tokenizer, traversal, {name: name for name in examples[0]}, max_length=24)
    batch = collator(examples)
    assert list(batch)[-1] == "plan"
    found = tensors(batch["plan"])
    assert ("row_is_shared" in found) is (traversal in ("similarity", "multiple_choice"))
    torch.testing.assert_close(found, tensors(planned(batch)["plan"]), atol=0, rtol=0)


@pytest.mark.parametrize("traversal", EXAMPLES)
def test_a_batch_of_rows_has_no_plan_where_none_is_wanted(tiny_tokenizer, traversal):
    examples = EXAMPLES[traversal]
    collator = TraversalCollator(tiny_tokenizer, traversal, {name: name for name in examples[0]}, max_length=24)
    collator.plan = False
    assert "plan" not in collator(examples)


def test_a_batch_of_blocks_has_their_plan(tiny_tokenizer):
    batch = BlockCollator(tiny_tokenizer)([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
    torch.testing.assert_close(tensors(batch["plan"]), tensors(plan_blocks(batch["attention_mask"])))


def test_a_batch_of_blocks_has_no_plan_where_none_is_wanted(tiny_tokenizer):
    assert "plan" not in BlockCollator(tiny_tokenizer, plan=False)([{"input_ids": [5, 6, 7]}])


def test_a_plan_moves_with_its_batch(monkeypatch):
    batch = planned(pad(ragged_choices()))
    given = tensors(batch["plan"])
    assert len(given) == 11
    moved = send_to_device(batch, torch.device("meta"), non_blocking=True)["plan"]
    assert moved.shape == batch["plan"].shape
    assert all(part.is_meta for part in tensors(moved).values())
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: ~tensor)
    torch.testing.assert_close(tensors(pin_memory(batch)["plan"]), {name: ~part for name, part in given.items()})
