"""Batches by their plans: parity with padded sequences, what refuses a plan, what needs padding, dropout."""

from dataclasses import fields

import pytest
import torch
from accelerate.utils.operations import slice_tensors
from support.finetuning import CASES, Rows, make_double_heads_model, make_letter_tokenizer, make_traversal_collator
from support.packing import DELIMITER, EXTRACT, START, pad, planned, ragged_choices, results, without_plan
from support.refusals import refusal
from transformers import BatchEncoding
from transformers.integrations.neftune import neftune_post_forward_hook

import modeling_gpt1
from modeling_gpt1.packing_gpt1 import Plan
from tokenization import BlockCollator
from tokenization.batches.plan import BatchPlan


@pytest.fixture
def warnings(monkeypatch):
    heard = []
    monkeypatch.setattr(modeling_gpt1.packing_gpt1.logger, "warning_once", heard.append)
    return heard


def test_a_plan_of_tokenization_has_all_that_the_model_reads():
    names = [field.name for field in fields(BatchPlan)]
    assert names == list(Plan.__annotations__)
    assert callable(BatchPlan.to)


# ---- Parity


def assert_packed_equals_padded(model, batch, **arguments):
    packed, num_packed = results(model, planned(batch), **arguments)
    padded, num_padded = results(model, batch, **arguments)
    assert num_packed < batch["attention_mask"].sum() < num_padded == batch["input_ids"].numel()
    assert packed.keys() == padded.keys()
    assert "transformer.h.1.attn.k_proj.weight" in packed
    for name in packed:
        torch.testing.assert_close(packed[name], padded[name], atol=1e-5, rtol=1e-5, msg=lambda text, n=name: n + text)


def test_ragged_choices_are_packed_exactly(tiny_model):
    """Padded batches themselves are held beside a formula, and planned ones at random, in test_properties.py."""
    model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, traversal="multiple_choice").train()
    assert_packed_equals_padded(model, pad(ragged_choices(), extra=2), num_items_in_batch=11)
    banded = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, traversal="multiple_choice", sliding_window=3)
    assert_packed_equals_padded(banded, pad(ragged_choices()))


def test_targets_chosen_by_the_caller_are_packed_exactly(tiny_model):
    """Of the common context, some are targets in one choice alone, and some sequences have none."""
    model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = pad(ragged_choices())
    lm_mask = torch.rand(batch["input_ids"].shape, generator=torch.Generator().manual_seed(2)) < 0.5
    lm_mask[:2] = False
    everything, _ = results(model, batch)
    assert_packed_equals_padded(model, {**batch, "lm_mask": lm_mask})
    assert model(**batch, lm_mask=lm_mask).example_losses[:2, 1].tolist() == [0, 0]
    assert abs(model(**batch, lm_mask=lm_mask).lm_loss - everything["lm_loss"]) > 0.01
    assert model(**batch, lm_mask=torch.zeros_like(lm_mask)).lm_loss == 0
    size = list(batch["input_ids"].shape)
    assert f"`lm_mask` needs shape {size} here, but got" in refusal(model, **batch, lm_mask=lm_mask[..., 1:])


def test_token_types_are_packed_exactly(tiny_model):
    model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = pad(ragged_choices())
    types = torch.where(torch.arange(batch["input_ids"].shape[-1]) < 3, 90, 91).expand_as(batch["input_ids"])
    assert_packed_equals_padded(model, {**batch, "token_type_ids": types})
    assert_packed_equals_padded(model, {**batch, "token_type_ids": types[..., :1]})
    difference = model(**batch, token_type_ids=types).loss - model(**batch).loss
    assert difference.abs() > 0.01


def test_a_plan_of_other_token_types_in_a_shared_context_is_refused(tiny_model, warnings):
    model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = pad(ragged_choices())
    batch["token_type_ids"] = torch.arange(batch["input_ids"].shape[1])[:, None].expand_as(batch["input_ids"]) + 1
    found, expected = results(model, planned(batch))[0], results(model, batch)[0]
    torch.testing.assert_close(found, expected, atol=0, rtol=0)
    assert len(warnings) == 1


@pytest.mark.parametrize("pack_sequences", [True, False])
def test_a_sequence_that_is_read_in_its_padding_is_refused(tiny_model, pack_sequences):
    """Packed, padding has no place of its own: another example's first token was read there."""
    model = tiny_model(modeling_gpt1.GPT1ForMultipleChoice)
    model.pack_sequences = pack_sequences
    batch = planned(pad([[[START, 5, 6, 7, EXTRACT], [START, 8, EXTRACT]], [[START, 9, EXTRACT]]]))
    expected = model(**batch)
    for position in (3, 5, -1):  # in padding, or outside
        batch["mc_token_ids"][0, 1] = position
        message = refusal(model, **batch)
        assert f"Sequence 1 of example 0 has no real token at {position}," in message
        assert "`mc_token_ids`" in message
    batch["mc_token_ids"][0, 1] = 2
    batch["mc_token_ids"][1, 1] = 4  # of a choice that the example does not have
    assert torch.equal(model(**batch).loss, expected.loss)
    for mc_token_ids in (batch["mc_token_ids"], None):
        message = refusal(model, **{**batch, "choice_mask": None, "mc_token_ids": mc_token_ids})
        assert "Sequence 1 of example 1 has no real token" in message
        assert "`choice_mask`" in message


@pytest.mark.parametrize("value", [2, -10000.0, 0.5])
@pytest.mark.parametrize(
    "model_class",
    [modeling_gpt1.GPT1ForCausalLM, modeling_gpt1.GPT1DoubleHeadsModel, modeling_gpt1.GPT1LSTMForCausalLM],
)
def test_masks_are_0_and_1(tiny_model, model_class, value):
    fields = {"traversal": "classification"} if model_class is modeling_gpt1.GPT1DoubleHeadsModel else {}
    model = tiny_model(model_class, **fields)
    ids, mask = torch.randint(1, 98, (2, 6)), torch.tensor([[1, 1, 1, 0, 0, 0], [1] * 6])
    expected = model(ids, attention_mask=mask.bool())[0]
    for dtype in (torch.int64, torch.float32, torch.uint8):
        assert torch.equal(model(ids, attention_mask=mask.to(dtype))[0], expected)
    mask = mask.to(torch.float32 if isinstance(value, float) else torch.int64)
    mask[1, 3] = value
    assert f"`attention_mask` has the value {value}, but only 1" in refusal(model, ids, attention_mask=mask)


def test_the_model_does_what_the_plan_says(tiny_model):
    """Negative control: were a token read at another place, outputs would differ."""
    model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = planned(pad(ragged_choices()))
    expected, _ = results(model, batch)
    batch["plan"].position_ids[0, 40] += 1
    assert abs(results(model, batch)[0]["task_loss"] - expected["task_loss"]) > 1e-4
    batch["plan"].position_ids[0, 40] -= 1
    batch["plan"].row_is_shared.zero_()
    assert abs(results(model, batch)[0]["task_loss"] - expected["task_loss"]) > 1e-4
    batch = planned(pad(ragged_choices()))
    batch["plan"].target_sources += 1
    assert abs(results(model, batch)[0]["lm_loss"] - expected["lm_loss"]) > 1e-4


def test_short_documents_are_packed_where_nothing_reads_their_padding(tiny_model, tiny_tokenizer):
    model = tiny_model(modeling_gpt1.GPT1ForCausalLM).train()
    batch = BlockCollator(tiny_tokenizer)([{"input_ids": list(range(5, end))} for end in (7, 20, 9, 24)])
    batch["labels"][1, 4:8] = -100
    packed, num_packed = results(model, batch)
    padded, num_padded = results(model, without_plan(batch))
    assert (num_packed, num_padded) == (2 + 15 + 4 + 19, 4 * 19)
    for name in packed:
        torch.testing.assert_close(packed[name], padded[name], atol=1e-5, rtol=1e-5)
    assert results(model.eval(), batch, skip_logits=True, use_cache=False)[1] == num_packed
    for needs_padding in ({}, {"skip_logits": True}, {"position_ids": torch.arange(19)[None], "skip_logits": True}):
        found, number = results(model, batch, **needs_padding)
        assert number == num_padded
        assert found["loss"].item() == pytest.approx(padded["loss"].item(), abs=1e-5)
    model.pack_sequences = False
    assert results(model.train(), batch)[1] == num_padded


def test_one_token_type_for_all_of_a_document_is_packed_exactly(tiny_model, tiny_tokenizer):
    model = tiny_model(modeling_gpt1.GPT1ForCausalLM).train()
    batch = BlockCollator(tiny_tokenizer)([{"input_ids": list(range(5, end))} for end in (7, 20, 9, 24)])
    untyped, num_packed = results(model, batch)
    batch["token_type_ids"] = torch.tensor([[3], [4], [5], [6]])
    packed, number = results(model, batch)
    padded, _ = results(model, without_plan(batch))
    assert number == num_packed < batch["input_ids"].numel()
    for name in packed:
        torch.testing.assert_close(packed[name], padded[name], atol=1e-5, rtol=1e-5)
    assert abs(packed["loss"] - untyped["loss"]) > 0.01


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradient_checkpointing_is_exact(tiny_model, use_reentrant):
    model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, traversal="multiple_choice").train()
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    assert_packed_equals_padded(model, pad(ragged_choices()))


def test_the_language_models_logits_of_packed_choices_are_those_of_padded_ones(tiny_model):
    model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = pad(ragged_choices())
    packed = model(**planned(batch), output_lm_logits=True).lm_logits
    padded = model(**batch, output_lm_logits=True).lm_logits
    real = batch["attention_mask"].bool()
    assert packed.shape == padded.shape
    torch.testing.assert_close(packed[real], padded[real], atol=1e-5, rtol=1e-5)


def test_choices_that_are_longer_than_the_positions_together_are_packed(tiny_model):
    """A context of 40 and four choices of 20 tokens make one row of 120, with positions up to 60."""
    model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, traversal="multiple_choice", max_position_embeddings=60)
    context = [START, *range(1, 39), DELIMITER]
    examples = [[[*context, *range(20 + c, 39 + c), EXTRACT] for c in range(4)]]
    examples.append([sequence[:-1] for sequence in examples[0]])
    assert_packed_equals_padded(model, pad(examples))
    assert "has 61 tokens, but the model has only 60 positions" in refusal(model, **planned(pad(examples, extra=1)))


# ---- Batches of the collators

TASKS = [*CASES, "blocks"]


def make(case):
    """A model, a collator and rows of two batches: of unequal lengths, and of equal ones."""
    tokenizer = make_letter_tokenizer()
    if case == "blocks":
        torch.manual_seed(0)
        model = modeling_gpt1.GPT1ForCausalLM(make_double_heads_model("classification", tokenizer).config)
        rows = [[{"input_ids": list(range(1, n + 1))} for n in lengths] for lengths in ([24, 9, 17, 3], [24] * 4)]
        return model.train(), BlockCollator(tokenizer), rows
    model = make_double_heads_model(case, tokenizer)
    return model.train(), make_traversal_collator(model, tokenizer), [list(Rows(case, 8)), [Rows(case)[0]] * 3]


@pytest.mark.parametrize("mode", ["training", "evaluation"])
@pytest.mark.parametrize("case", TASKS)
def test_a_planned_batch_gives_the_same(case, mode):
    model, collate, batches = make(case)
    model.train(mode == "training")
    for rows in batches:
        batch = collate(rows)
        (found, num_tokens), (expected, num_padded) = results(model, batch), results(model, without_plan(batch))
        assert num_tokens <= num_padded
        assert ("example_losses" in expected) is (mode == "evaluation")
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def another_mask(batch):
    batch["attention_mask"][1, ..., 2] = 0


def other_ids(batch):
    batch["input_ids"][0, 1, 2] = 5 + (batch["input_ids"][0, 1, 2] == 5)


@pytest.mark.parametrize(
    "case, change",
    [
        *((case, another_mask) for case in TASKS if case != "blocks"),
        ("multiple_choice", other_ids),
        ("multiple_choice", lambda batch: batch.update(slice_tensors(without_plan(batch), slice(0, 2)))),
        ("blocks", lambda batch: batch.update(slice_tensors(without_plan(batch), slice(2, 4)))),
        ("blocks", another_mask),
        ("blocks", lambda batch: batch["labels"][1].fill_(7)),
    ],
)
def test_a_plan_of_another_batch_is_refused(warnings, case, change):
    """Word dropout within a shared context, an edited mask, targets in the padding, a part of a batch."""
    model, collate, batches = make(case)
    batch = collate(batches[0])
    shape = list(batch["input_ids"].shape)
    change(batch)
    if "mc_token_ids" in batch:
        del batch["mc_token_ids"]
    found, expected = results(model, batch)[0], results(model, without_plan(batch))[0]
    torch.testing.assert_close(found, expected, atol=0, rtol=0)
    assert warnings
    assert all(f"was made for `input_ids` of shape {shape}" in text for text in warnings)


@pytest.mark.parametrize("change", [another_mask, other_ids, lambda batch: batch["mc_token_ids"][0].fill_(-1)])
def test_a_device_stops_where_a_plan_does_not_fit(monkeypatch, change):
    """Where values cannot be read without waiting; the third position is in padding."""

    def assert_as_cuda(condition, message, on_the_cpu=torch._assert_async):
        assert len(message.encode()) < 255, "CUDA refuses the message, also where the condition holds"
        on_the_cpu(condition, message)

    model, collate, batches = make("multiple_choice")
    batch = collate(batches[0])
    for module in (modeling_gpt1.checks_gpt1, modeling_gpt1.packing_gpt1):
        monkeypatch.setattr(module, "can_read", lambda tensor: False)
    monkeypatch.setattr(torch, "_assert_async", assert_as_cuda)
    model(**batch)
    change(batch)
    batch["mc_token_ids"] %= batch["input_ids"].shape[-1]
    with pytest.raises(RuntimeError, match="plan=False|mc_token_ids"):
        model(**batch)


@pytest.mark.parametrize("has_positions", [False, True])
def test_a_device_reads_the_mask_of_a_planned_batch_beside_positions_alone(tiny_model, monkeypatch, has_positions):
    """Without it, a position that is not above the one before it would begin another sequence."""
    model = tiny_model(modeling_gpt1.GPT1ForSequenceClassification)
    model.set_attn_implementation("eager")
    batch = planned(pad([[[START, 5, 6, 7, EXTRACT]], [[START, 8, EXTRACT]]]))
    del batch["choice_mask"]
    if has_positions:
        batch["position_ids"] = torch.tensor([0, 0, 1, 1, 2]).expand_as(batch["input_ids"])
    expected = model(**batch).logits
    masks = []
    model.transformer.register_forward_pre_hook(
        lambda module, args, inputs: masks.append(inputs["attention_mask"]), with_kwargs=True
    )
    for module in (modeling_gpt1.checks_gpt1, modeling_gpt1.packing_gpt1):
        monkeypatch.setattr(module, "can_read", lambda tensor: False)
    torch.testing.assert_close(model(**batch).logits, expected, atol=1e-6, rtol=1e-5)
    assert [mask is not None for mask in masks] == [has_positions]


def test_a_plan_that_stayed_behind_is_fetched_and_a_graph_follows_none(monkeypatch):
    """transformers' `BatchEncoding.to` moves tensors alone."""
    model, collate, batches = make("multiple_choice")
    batch = BatchEncoding(collate(batches[0])).to("cpu")
    found, num_tokens = results(model, batch)
    assert num_tokens < batch["input_ids"].numel()
    torch.testing.assert_close(found, results(model, without_plan(batch))[0], atol=1e-6, rtol=1e-5)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    found, num_tokens = results(model, collate(batches[0]))
    assert num_tokens == batch["input_ids"].numel()
    torch.testing.assert_close(found, results(model, without_plan(batch))[0], atol=0, rtol=0)


# ---- What falls back, and dropout


@pytest.mark.parametrize(
    "change",
    [
        lambda model, batch: setattr(model, "pack_sequences", False),
        lambda model, batch: model.set_attn_implementation("eager"),
        lambda model, batch: batch.update(output_hidden_states=True),
        lambda model, batch: batch.update(is_causal=False),
        lambda model, batch: setattr(model.config, "is_causal", False),
        lambda model, batch: setattr(model.get_input_embeddings(), "neftune_noise_alpha", 5.0),
        lambda model, batch: batch.update(
            position_ids=torch.arange(batch["input_ids"].shape[-1]).expand_as(batch["input_ids"])
        ),
    ],
    ids="switched off,eager,hidden states,not causal,never causal,NEFTune,positions".split(","),
)
def test_the_padded_way_is_taken_where_something_needs_it(tiny_model, change):
    model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = planned(pad(ragged_choices()))
    num_padded, num_real = batch["input_ids"].numel(), int(batch["attention_mask"].sum())
    assert results(model, batch)[1] < num_real
    change(model, batch)
    batch["lm_mask"] = batch["input_ids"] % 3 > 0
    found, num_tokens = results(model, batch)
    assert num_tokens == num_padded
    torch.testing.assert_close(found, results(model, without_plan(batch))[0], atol=1e-6, rtol=1e-5)


def test_the_choices_of_an_example_share_the_contexts_dropout(tiny_model):
    """Scores read in the middle of the context are those of the same hidden states, with its dropout."""
    model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, traversal="multiple_choice", embd_pdrop=0.5).train()
    batch = pad([[[START, *range(1, 20), c, EXTRACT] for c in (40, 50)]] * 3)
    batch["mc_token_ids"] = torch.full((3, 2), 10)
    torch.manual_seed(0)
    packed, again = (model(**planned(batch)).task_logits for _ in range(2))
    torch.testing.assert_close(packed[:, 0], packed[:, 1], atol=1e-5, rtol=1e-5)
    assert (packed - again).abs().min() > 1e-3
    assert num_different(packed[:, 0]) == 3
    assert num_different(model(**batch).task_logits) == 6


def num_different(scores):
    """Of numbers that are further apart than rounding."""
    return len((scores.detach().double() * 1e4).round().unique())


def test_neftune_draws_the_noise_of_the_padded_batch():
    """Its bound has the padded length T of a row: α / √(T · D), not the N tokens of a packed one."""
    model, collate, batches = make("multiple_choice")
    batch, alpha, embeddings = collate(batches[0]), 5.0, model.get_input_embeddings()
    embeddings.neftune_noise_alpha = alpha
    seen = []
    embeddings.register_forward_hook(neftune_post_forward_hook)
    embeddings.register_forward_hook(lambda module, args, output: seen.append(output - module.weight[args[0]]))
    model(**batch)
    bound = alpha / (batch["input_ids"].shape[-1] * model.config.hidden_size) ** 0.5
    assert 0.99 * bound < seen[0].abs().max() <= bound * 1.0001
