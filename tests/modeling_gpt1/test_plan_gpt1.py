"""Plans of batches: literal tensors, the same results as without, what becomes of them on the way to the model."""

import pytest
import torch
from accelerate.utils import send_to_device
from accelerate.utils.operations import slice_tensors
from helpers_training import CASES, Rows, make_collator, make_model, make_tokenizer
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory
from transformers import BatchEncoding

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM, GPT1ForMultipleChoice, batch_gpt1, plan_gpt1
from modeling_gpt1.attention_gpt1 import MASKED_ROWS
from modeling_gpt1.plan_gpt1 import planner_of
from modeling_gpt1.training.planning import PlanningCollator
from tokenization import BlockCollator

TASKS = [*CASES, "blocks"]


def make(case):
    """A model and batches of a collator: of unequal lengths, but the last, which is full."""
    tokenizer = make_tokenizer()
    if case == "blocks":
        torch.manual_seed(0)
        model, collator = GPT1ForCausalLM(make_model("classification", tokenizer).config), BlockCollator(tokenizer)
        batches = [[24, 9, 17, 3], [24] * 4]
        rows = [[{"input_ids": list(range(1, length + 1))} for length in lengths] for lengths in batches]
    else:
        model = make_model(case, tokenizer)
        collator, rows = make_collator(model, tokenizer), [list(Rows(case, 8)), [Rows(case)[0]] * 3]
    return model.train(), PlanningCollator(collator, planner_of(model)), rows


def results(model, batch, **arguments):
    model.zero_grad()
    outputs = model(**batch, **arguments)
    outputs.loss.backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    names = ("loss", "task_loss", "lm_loss", "task_logits", "example_losses")
    return {name: outputs[name].detach() for name in names if outputs.get(name) is not None} | gradients


def without_plan(batch):
    return {name: value for name, value in batch.items() if name != "plan"}


def test_what_is_planned_of_a_batch():
    model = make_model("multiple_choice", make_tokenizer())
    batch = {
        "input_ids": torch.tensor([[[10, 11, 12, 20, 21], [10, 11, 12, 30, 0]]]),
        "attention_mask": torch.tensor([[[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]]),
        "labels": torch.tensor([1]),
    }
    plan = planner_of(model)(batch)
    assert plan.shape == (1, 2, 5) and plan.packing.token_index.tolist() == [0, 1, 2, 3, 4, 8]
    assert plan.targets.tokens.tolist() == [1, 2, 3, 4, 5]  # 11 and 12 are targets of both sequences
    assert plan.targets.sources.tolist() == [0, 1, 2, 3, 2]
    torch.testing.assert_close(plan.targets.weights, torch.tensor([7 / 24, 7 / 24, 1 / 8, 1 / 8, 1 / 6]))
    assert plan.targets.rows.tolist() == [0] * 5
    assert planner_of(model)(without_labels := {**batch, "labels": None}).targets is None
    model.config.lm_coef = 0.0
    assert planner_of(model)(batch).targets is None and planner_of(model)(without_labels).packing is not None


def test_what_is_planned_of_blocks():
    model, collate, _ = make("blocks")
    plan = collate([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])["plan"]
    assert (plan.shape, plan.num_tokens, plan.is_right_padded, plan.packing) == ((2, 3), 5, True, None)
    assert [part.tolist() for part in plan.targets] == [[0, 1, 3], [1, 2, 4], [1, 1, 1], [0, 0, 1]]


def test_the_quick_way_plans_what_the_general_one_does(monkeypatch):
    """Batches of the collator take the quick way, unless choices are missing or padding is on the left."""
    for case in CASES:
        model = make_model(case, tokenizer := make_tokenizer())
        collator, rows = make_collator(model, tokenizer), list(Rows(case, 24))
        rows = rows[2::3] if case == "multiple_choice" else rows  # four options each
        with monkeypatch.context() as patch:
            patch.setattr(batch_gpt1, "pack_sequences", None)
            plans = [planner_of(model)(collator(rows[start : start + 4])) for start in range(0, len(rows), 4)]
        monkeypatch.setattr(plan_gpt1, "_plan_collated", lambda *given: None)
        for start, plan in zip(range(0, len(rows), 4), plans, strict=True):
            expected = planner_of(model)(collator(rows[start : start + 4]))
            assert (plan.shape, plan.is_right_padded) == (expected.shape, expected.is_right_padded)
            torch.testing.assert_close(plan.packing[1:], expected.packing[1:], atol=0, rtol=0)
            torch.testing.assert_close(plan.targets, expected.targets, atol=0, rtol=0)
        monkeypatch.undo()


@pytest.mark.parametrize(
    "change",
    [
        lambda batch: batch["attention_mask"][0, 1].copy_(batch["attention_mask"][0, 1].flip(0)),
        lambda batch: batch["attention_mask"][0, 0, 1].zero_(),
        lambda batch: batch["mc_token_ids"].sub_(1),
        lambda batch: batch.update(choice_mask=torch.ones(2, 2, dtype=torch.bool)),
        lambda batch: batch.update(mc_token_ids=batch["mc_token_ids"].tolist()),
    ],
    ids=["left", "within", "other places", "choices", "no tensor"],
)
def test_what_the_quick_way_leaves_to_the_general_one(change):
    config = make_model("multiple_choice", make_tokenizer()).config
    ids = torch.tensor([[[10, 11, 12, 20, 21], [10, 11, 12, 30, 0]], [[10, 11, 40, 20, 21], [10, 11, 40, 30, 31]]])
    batch = {"input_ids": ids, "attention_mask": (ids > 0).long(), "mc_token_ids": (ids > 0).sum(-1) - 1}
    assert plan_gpt1._plan_collated(config, MASKED_ROWS, True, batch) is not None
    change(batch)
    assert plan_gpt1._plan_collated(config, MASKED_ROWS, True, batch) is None


# ---- The same result


@pytest.mark.parametrize("mode", ["training", "evaluation"])
@pytest.mark.parametrize("case", TASKS)
def test_a_planned_batch_gives_the_same(case, mode):
    model, collate, batches = make(case)
    model.train(mode == "training")
    for rows in batches:
        batch = collate(rows)
        expected = results(model, without_plan(batch))
        assert len(expected) > 20 and (("example_losses" in expected) is (mode == "evaluation"))
        torch.testing.assert_close(results(model, batch), expected, atol=0, rtol=0)


@pytest.mark.parametrize("side", ["right", "left", "within"])
@pytest.mark.parametrize("packs", [True, False])
def test_wherever_padding_lies(side, packs):
    model, collate, batches = make("multiple_choice")
    model.pack_sequences = packs
    batch = collate.collator(batches[0])
    if side == "left":
        collate.collator.padding_side = "left"
        batch = collate.collator(batches[0])
    elif side == "within":
        batch["attention_mask"][:, :, 1] = 0
    batch["lm_mask"] = torch.rand(batch["input_ids"].shape, generator=torch.Generator().manual_seed(0)) < 0.7
    batch["labels"][1] = -100  # an example that counts for nothing
    plan = planner_of(model)(batch)
    assert (plan.packing is not None) is packs and (plan.is_right_padded is (side == "right" and not packs))
    expected = results(model, batch)
    torch.testing.assert_close(results(model, batch, plan=plan), expected, atol=1e-6, rtol=1e-6)


def test_the_model_does_what_the_plan_says(monkeypatch):
    """Negative control: with another plan the loss is another; and nothing is planned a second time."""
    model, collate, batches = make("multiple_choice")
    batch = collate(batches[0])
    expected = results(model, batch)
    monkeypatch.setattr(batch_gpt1, "pack_sequences", None)
    torch.testing.assert_close(results(model, batch), expected, atol=0, rtol=0)
    batch["plan"].targets.weights.mul_(2)
    assert results(model, batch)["lm_loss"] == 2 * expected["lm_loss"]
    batch["plan"].packing.position_ids[0, 3] += 1
    assert results(model, batch)["task_loss"] != expected["task_loss"]


def test_ids_are_those_of_the_batch():
    """A plan has places and no ids: whoever changes some on the way, as to train with noise, finds them changed."""
    model, collate, batches = make("multiple_choice")
    batch = collate(batches[0])
    before = results(model, batch)["loss"]
    batch["input_ids"] = torch.where(batch["input_ids"] == batch["input_ids"][0, 0, 3], 5, batch["input_ids"])
    torch.testing.assert_close(results(model, batch), results(model, without_plan(batch)), atol=0, rtol=0)
    assert results(model, batch)["loss"] != before


# ---- Where the plan is that of another batch, or the call needs what it lacks


@pytest.mark.parametrize("case", TASKS)
@pytest.mark.parametrize("part", [slice(0, 2), slice(2, 4)])
def test_a_part_of_a_batch_is_planned_anew(case, part):
    """accelerate's `split_batches` and `dispatch_batches` cut tensors and pass on the rest, as DataParallel does."""
    model, collate, batches = make(case)
    batch = slice_tensors(collate(batches[0][:4]), part)
    assert batch["plan"].shape[0] == 4
    torch.testing.assert_close(results(model, batch), results(model, without_plan(batch)), atol=0, rtol=0)


@pytest.mark.parametrize(
    "change",
    [
        lambda model, batch: setattr(model, "pack_sequences", False),
        lambda model, batch: model.set_attn_implementation("eager"),
        lambda model, batch: batch.update(output_hidden_states=True),
        lambda model, batch: batch.update(is_causal=False),
        lambda model, batch: setattr(model.config, "is_causal", False),
    ],
    ids=["switched off", "eager", "hidden states", "not causal", "never causal"],
)
def test_a_call_that_needs_padding_follows_no_plan(change):
    model, collate, batches = make("multiple_choice")
    batch = collate(batches[0])
    change(model, batch)
    torch.testing.assert_close(results(model, batch), results(model, without_plan(batch)), atol=0, rtol=0)


def test_a_graph_follows_no_plan(monkeypatch):
    model, collate, batches = make("multiple_choice")
    batch = collate(batches[0])
    batch["plan"].targets.weights.mul_(2)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(results(model, batch), results(model, without_plan(batch)), atol=0, rtol=0)


def test_shifted_labels_are_other_targets():
    model, collate, batches = make("blocks")
    batch = collate(batches[0])
    shifted = torch.cat([batch["labels"][:, 1:], torch.full((4, 1), -100)], 1)
    expected = model(**without_plan(batch)).loss
    torch.testing.assert_close(model(**{**batch, "labels": None}, shift_labels=shifted).loss, expected)
    shifted[0, 0] = -100
    assert model(**{**batch, "labels": None}, shift_labels=shifted).loss != expected


# ---- On the way to the model


@pytest.mark.parametrize("case", ["multiple_choice", "blocks"])
def test_a_loaders_workers_plan(case):
    model, collate, batches = make(case)
    rows = batches[0][:4]
    (batch,) = DataLoader(rows, batch_size=4, collate_fn=collate, num_workers=1)
    torch.testing.assert_close(results(model, batch), results(model, without_plan(collate(rows))), atol=0, rtol=0)


def test_a_plan_moves_with_its_batch(monkeypatch):
    model, collate, batches = make("multiple_choice")
    batch = collate(batches[0])
    moved = send_to_device(batch, torch.device("meta"), non_blocking=True)["plan"]
    assert moved.shape == batch["plan"].shape
    tensors = [*moved.packing[1:], *moved.targets]
    assert len(tensors) == 12 and all(tensor.device.type == "meta" for tensor in tensors)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1)
    pinned = pin_memory(batch)["plan"]
    given = (*batch["plan"].packing[1:], *batch["plan"].targets)
    for part, before in zip((*pinned.packing[1:], *pinned.targets), given, strict=True):
        torch.testing.assert_close(part, before + 1)


def test_a_plan_that_stayed_behind_is_fetched():
    """transformers' `BatchEncoding.to` moves tensors alone."""
    model, collate, batches = make("multiple_choice")
    batch = BatchEncoding(collate(batches[0])).to("cpu")
    torch.testing.assert_close(results(model, batch), results(model, without_plan(batch)), atol=0, rtol=0)


# ---- Other collators and models


def test_a_collator_of_the_users_own_keeps_working():
    model, collate, _ = make("multiple_choice")
    for batch in (
        [torch.ones(2)],
        (torch.ones(2), torch.ones(2)),
        {"pixels": torch.ones(2)},
        {"input_ids": [[1, 2]]},
        {"input_ids": torch.ones(2, 2, 2, device="meta", dtype=torch.int64)},
        {"inputs_embeds": torch.ones(1, 2, 3, 32)},
    ):
        assert PlanningCollator(lambda rows, given=batch: given, collate.planner)([]) is batch and "plan" not in batch
    of_library = PlanningCollator(lambda rows: BatchEncoding(collate.collator(rows)), collate.planner)
    batch = of_library(list(Rows("multiple_choice", 4)))
    assert isinstance(batch, BatchEncoding) and batch["plan"].packing is not None


def test_models_that_take_no_plan_have_no_planner():
    class Own(GPT1DoubleHeadsModel):
        def forward(self, input_ids, attention_mask=None, **kwargs):
            return super().forward(input_ids, attention_mask, **kwargs)

    model = make_model("multiple_choice", make_tokenizer())
    assert planner_of(model) is not None and planner_of(Own(model.config)) is None


def test_a_task_head_alone_has_no_targets():
    model = make_model("multiple_choice", make_tokenizer())
    batch = make_collator(model, make_tokenizer())(list(Rows("multiple_choice", 4)))
    plan = planner_of(GPT1ForMultipleChoice(model.config))(batch)
    assert plan.packing is not None and plan.targets is None


def test_a_batch_that_the_model_refuses_is_refused_by_the_plan():
    model, collate, batches = make("multiple_choice")
    batch = collate.collator(batches[0])
    batch["mc_token_ids"][0, 1] = 400
    with pytest.raises(ValueError) as planned:
        collate.planner(batch)
    with pytest.raises(ValueError) as unplanned:
        model(**batch)
    assert str(planned.value) == str(unplanned.value)
