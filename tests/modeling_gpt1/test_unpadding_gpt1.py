"""Packed sequences: literal tensors, parity with padded sequences computed one by one, what falls back, dropout."""

import pytest
import torch

from modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1LSTMForCausalLM,
    batch_gpt1,
)
from modeling_gpt1.unpadding_gpt1 import pack_sequences

START, DELIMITER, EXTRACT = 98, 99, 100


def ragged_choices(num_examples=5):
    """Sequences by example; contexts of 1 to 10 tokens, 1 to 4 choices of 1 to 6 tokens, some of them alike."""
    generator = torch.Generator().manual_seed(0)

    def ids(most):
        return torch.randint(1, 98, (int(torch.randint(1, most + 1, (), generator=generator)),), generator=generator)

    examples = []
    for index in range(num_examples):
        context = [START, *ids(10).tolist(), DELIMITER]
        examples.append([[*context, *ids(6).tolist(), EXTRACT] for _ in range(1 + index % 4)])
    examples[-1] = [
        [START, 5, 6, DELIMITER, 7, EXTRACT],
        [START, 5, 6, DELIMITER, 7, 7, EXTRACT],
    ]  # a shared beginning
    examples.append([[START, 9, EXTRACT]] * 3)  # the very same choice three times
    examples.append([[START, 9, 8, EXTRACT], [DELIMITER, 9, 8, EXTRACT]])  # nothing in common
    return examples


def pad(examples, side="right", extra=0, gap=False):
    """The batch `[B, C, T]`; with `gap` a place of padding within each sequence."""
    num_choices = max(map(len, examples))
    length = extra + gap + max(len(ids) for sequences in examples for ids in sequences)
    shape = (len(examples), num_choices)
    batch = {
        "input_ids": torch.full((*shape, length), 3),
        "attention_mask": torch.zeros(*shape, length, dtype=torch.int64),
        "mc_token_ids": torch.zeros(shape, dtype=torch.int64),
        "choice_mask": torch.zeros(shape, dtype=torch.bool),
        "labels": torch.tensor([index % len(sequences) for index, sequences in enumerate(examples)]),
    }
    for b, sequences in enumerate(examples):
        for c, ids in enumerate(sequences):
            start = length - len(ids) - gap if side == "left" else 0
            places = torch.arange(start, start + len(ids) + gap)
            places = places[places != start + 2] if gap else places
            batch["input_ids"][b, c, places] = torch.tensor(ids)
            batch["attention_mask"][b, c, places] = 1
            batch["mc_token_ids"][b, c] = places[-1]
            batch["choice_mask"][b, c] = True
    return batch


# ---- The layout


def test_a_common_context_lies_there_once():
    input_ids = torch.tensor([[10, 11, 12, 20, 21], [10, 11, 12, 30, 0]])
    packing = pack_sequences(input_ids, torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]), 2, hidden_size=32)
    assert packing.input_ids.tolist() == [[10, 11, 12, 20, 21, 30]]
    assert packing.position_ids.tolist() == [[0, 1, 2, 3, 4, 3]]
    assert packing.packed_index.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 5, 0]]
    assert packing.example_index.tolist() == [0] * 6
    assert packing.row_index.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert packing.row_place.tolist() == [0, 1, 2, 3, 4, 5]
    assert packing.attention_mask.int().tolist() == [
        [
            [
                [1, 0, 0, 0, 0, 0],
                [1, 1, 0, 0, 0, 0],
                [1, 1, 1, 0, 0, 0],
                [1, 1, 1, 1, 0, 0],
                [1, 1, 1, 1, 1, 0],
                [1, 1, 1, 0, 0, 1],
            ]
        ]
    ]


def test_padding_is_left_out_on_either_side():
    packing = pack_sequences(
        torch.tensor([[0, 5, 6], [7, 8, 9], [4, 0, 0]]), torch.tensor([[0, 1, 1], [1, 1, 1], [1, 0, 0]]), 1, 32
    )
    assert packing.input_ids.tolist() == [[5, 6, 7, 8, 9, 4]]
    assert packing.position_ids.tolist() == [[0, 1, 0, 1, 2, 0]]
    assert packing.packed_index.tolist() == [[0, 0, 1], [2, 3, 4], [5, 0, 0]]
    assert packing.example_index.tolist() == [0, 0, 1, 1, 1, 2]
    assert packing.row_index.tolist() == [[0, 1, 0], [2, 3, 4], [5, 0, 0]]
    assert packing.row_place.tolist() == [0, 1, 3, 4, 5, 6]
    assert packing.attention_mask is None
    values = torch.arange(6.0)[None, :, None]
    assert torch.equal(packing.from_rows(packing.to_rows(values)), values)
    assert packing.padded(values)[..., 0].tolist() == [[0, 0, 1], [2, 3, 4], [5, 0, 0]]


def test_nothing_is_packed_where_that_saves_no_token():
    input_ids = torch.tensor([[5, 6, 7], [8, 6, 7]])
    assert pack_sequences(input_ids, None, 1, 32) is None
    assert pack_sequences(input_ids, torch.ones_like(input_ids), 2, 32) is None
    assert pack_sequences(input_ids, torch.zeros_like(input_ids), 2, 32) is None


def test_a_context_is_shared_only_where_that_is_less_work():
    """Two choices of 100 tokens with one in common: one row of 199 has twice the pairs of two rows of 100."""
    input_ids = torch.arange(200).view(2, 100)
    input_ids[1, 0] = input_ids[0, 0]
    assert pack_sequences(input_ids, None, 2, hidden_size=768) is None
    input_ids[1, :60] = input_ids[0, :60]
    assert pack_sequences(input_ids, None, 2, hidden_size=768).input_ids.shape == (1, 140)


# ---- Parity


def results(model, batch, **arguments):
    """What the model gives, and its gradients; the number of tokens that the decoder saw."""
    seen = []
    handle = model.transformer.drop.register_forward_hook(lambda module, args, output: seen.append(output.shape[:-1]))
    model.zero_grad()
    outputs = model(**batch, **arguments)
    outputs.loss.backward()
    handle.remove()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    names = ("loss", "task_loss", "lm_loss", "task_logits", "logits", "example_losses")
    values = {name: outputs[name].detach() for name in names if outputs.get(name) is not None}
    return values | gradients, seen[0].numel()


def assert_packed_equals_padded(model, batch, **arguments):
    model.pack_sequences = True
    packed, num_packed = results(model, batch, **arguments)
    model.pack_sequences = False
    padded, num_padded = results(model, batch, **arguments)
    assert num_packed < batch["attention_mask"].sum() < num_padded == batch["input_ids"].numel()
    assert packed.keys() == padded.keys() and "transformer.h.1.attn.k_proj.weight" in packed
    for name in packed:
        torch.testing.assert_close(packed[name], padded[name], atol=1e-5, rtol=1e-5, msg=lambda text, n=name: n + text)


LAYOUTS = {
    "right": {"side": "right"},
    "left": {"side": "left", "extra": 2},
    "padding within": {"side": "right", "gap": True},
    "left, padding within": {"side": "left", "gap": True},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", ["training", "evaluation"])
@pytest.mark.parametrize("lm_coef", [0.5, 0.0])
def test_ragged_choices_are_exact(tiny_model, layout, mode, lm_coef):
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice", lm_coef=lm_coef)
    batch = pad(ragged_choices(), **LAYOUTS[layout])
    assert_packed_equals_padded(model.train(mode == "training"), batch, num_items_in_batch=11)


@pytest.mark.parametrize("side", ["right", "left"])
def test_targets_chosen_by_the_caller_are_exact(tiny_model, side):
    """Of the common context, some are targets in one choice alone, and some sequences have none."""
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = pad(ragged_choices(), side)
    lm_mask = torch.rand(batch["input_ids"].shape, generator=torch.Generator().manual_seed(2)) < 0.5
    lm_mask[:2] = False
    everything, _ = results(model, batch)
    assert_packed_equals_padded(model, {**batch, "lm_mask": lm_mask})
    assert model(**batch, lm_mask=lm_mask).example_losses[:2, 1].tolist() == [0, 0]
    assert abs(model(**batch, lm_mask=lm_mask).lm_loss - everything["lm_loss"]) > 0.01
    assert model(**batch, lm_mask=torch.zeros_like(lm_mask)).lm_loss == 0
    with pytest.raises(ValueError) as error:
        model(**batch, lm_mask=lm_mask[..., 1:])
    size = list(batch["input_ids"].shape)
    assert str(error.value) == f"`lm_mask` needs shape {size} here, but got {[*size[:2], size[2] - 1]}."


@pytest.mark.parametrize("way", ["packed", "padded", "compiled"])
def test_the_auxiliary_loss_is_the_formula_where_padding_lies_within(tiny_model, way):
    """In float64: each sequence alone, without its padding, every token after the first a target."""
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice").double()
    model.pack_sequences = way == "packed"
    batch = pad(ragged_choices(), gap=True)
    expected = 0.0
    for sequences in ragged_choices():
        for ids in sequences:
            hidden_states = model.transformer(torch.tensor([ids])).last_hidden_state[0]
            losses = torch.nn.functional.cross_entropy(model.lm_head(hidden_states[:-1]), torch.tensor(ids[1:]))
            expected += losses / len(sequences) / len(batch["labels"])
    call = torch.compile(model, fullgraph=True, backend="eager") if way == "compiled" else model
    torch.testing.assert_close(call(**batch).lm_loss.double(), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("gap", [False, True])
def test_a_band_is_exact_where_padding_lies_within(tiny_model, gap):
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice", sliding_window=3)
    batch = pad(ragged_choices(), gap=gap)
    packed, num_packed = results(model, batch)
    model.pack_sequences = False
    padded, num_padded = results(model, batch)
    assert (num_packed < num_padded) is (not gap)
    torch.testing.assert_close(packed, padded, atol=1e-5, rtol=1e-5)


POSITION_MESSAGE = (
    "`mc_token_ids` is {} for sequence 1 of example 0, but the position of the extract token must be {}. Leave "
    "`mc_token_ids` out to read the last real token of each sequence."
)


@pytest.mark.parametrize("pack_sequences", [True, False])
def test_a_sequence_that_is_read_in_its_padding_is_refused(tiny_model, pack_sequences):
    """Packed, padding has no place of its own: another example's first token was read there."""
    model = tiny_model(GPT1ForMultipleChoice)
    model.pack_sequences = pack_sequences
    batch = pad([[[START, 5, 6, 7, EXTRACT], [START, 8, EXTRACT]], [[START, 9, EXTRACT]]])
    expected = model(**batch)
    for position, needed in [
        (3, "that of a real token, not of padding"),
        (5, "from 0 to 4"),
        (-1, "from 0 to 4"),
    ]:
        batch["mc_token_ids"][0, 1] = position
        with pytest.raises(ValueError) as error:
            model(**batch)
        assert str(error.value) == POSITION_MESSAGE.format(position, needed)
    batch["mc_token_ids"][0, 1] = 2
    batch["mc_token_ids"][1, 1] = 4  # of a choice that the example does not have
    assert torch.equal(model(**batch).loss, expected.loss)
    for mc_token_ids in (batch["mc_token_ids"], None):
        with pytest.raises(ValueError) as error:
            model(**{**batch, "choice_mask": None, "mc_token_ids": mc_token_ids})
        assert str(error.value) == (
            "The `attention_mask` of sequence 1 of example 1 has no real token, so there is nothing to score. Remove "
            "the example, or set `choice_mask` to False for a choice that it does not have."
        )


@pytest.mark.parametrize("value", [2, -10000.0, 0.5])
@pytest.mark.parametrize("model_class", [GPT1ForCausalLM, GPT1DoubleHeadsModel, GPT1LSTMForCausalLM])
def test_masks_are_0_and_1(tiny_model, model_class, value):
    fields = {"traversal": "classification"} if model_class is GPT1DoubleHeadsModel else {}
    model = tiny_model(model_class, **fields)
    ids, mask = torch.randint(1, 98, (2, 6)), torch.tensor([[1, 1, 1, 0, 0, 0], [1] * 6])
    expected = model(ids, attention_mask=mask.bool())[0]
    for dtype in (torch.int64, torch.float32, torch.uint8):
        assert torch.equal(model(ids, attention_mask=mask.to(dtype))[0], expected)
    mask = mask.to(torch.float32 if isinstance(value, float) else torch.int64)
    mask[1, 3] = value
    with pytest.raises(ValueError) as error:
        model(ids, attention_mask=mask)
    assert str(error.value) == (
        f"`attention_mask` has the value {value}, but only 1 (a real token) and 0 (padding) are valid. Correct the "
        "mask, or leave it out if nothing is padded."
    )


def test_an_absent_choice_between_others(tiny_model):
    """The first choice is there or not, and one in the middle is missing."""
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = pad([[[START, 5, 6, 7 + c, EXTRACT] for c in range(4)] for _ in range(2)])
    for example, choice in [(0, 2), (1, 0)]:
        batch["attention_mask"][example, choice] = 0
        batch["choice_mask"][example, choice] = False
    batch["labels"] = torch.tensor([3, 1])
    assert_packed_equals_padded(model, batch)


def test_the_comparison_sees_another_context(tiny_model, monkeypatch):
    """Negative control: were one more token taken for shared than is, outputs and gradients would differ."""
    exact = batch_gpt1.pack_sequences

    def with_a_wrong_id(input_ids, *others):
        input_ids = input_ids.clone()
        input_ids.view(-1, 4, input_ids.shape[1])[:, 1:, 2] = input_ids.view(-1, 4, input_ids.shape[1])[:, :1, 2]
        return exact(input_ids, *others)

    monkeypatch.setattr(batch_gpt1, "pack_sequences", with_a_wrong_id)
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = pad([[[START, 5, 20 + c, 30 + c, EXTRACT] for c in range(4)], [[START, 5, 6, 30 + c] for c in range(4)]])
    with pytest.raises(AssertionError, match="loss"):
        assert_packed_equals_padded(model, batch)


@pytest.mark.parametrize("traversal, num_labels", [("classification", 3), ("similarity", 1)])
def test_padding_of_other_traversals_is_left_out(tiny_model, traversal, num_labels):
    model = tiny_model(GPT1DoubleHeadsModel, traversal=traversal, num_labels=num_labels)
    number = 2 if traversal == "similarity" else 1
    lengths = range(2, 12)
    batch = pad([[[START, *range(k, k + length), EXTRACT] for k in range(1, number + 1)] for length in lengths])
    batch["labels"] = torch.arange(10) % 3 if num_labels == 3 else torch.linspace(0, 5, 10)
    del batch["choice_mask"]
    model.pack_sequences = True
    packed, num_packed = results(model, batch)
    model.pack_sequences = False
    padded, num_padded = results(model, batch)
    assert num_packed <= batch["attention_mask"].sum() < num_padded
    torch.testing.assert_close(packed, padded, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradient_checkpointing_is_exact(tiny_model, use_reentrant):
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice").train()
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    assert_packed_equals_padded(model, pad(ragged_choices()))


def test_half_precision_lies_beside_float32(tiny_model):
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = pad(ragged_choices())
    whole, _ = results(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        half, _ = results(model, batch)
    assert abs(half["loss"] - whole["loss"]) / whole["loss"] < 0.01
    for name in whole:
        if name.endswith("weight"):
            assert (half[name] - whole[name]).norm() < 0.05 * whole[name].norm(), name


def test_the_language_models_logits_of_packed_choices(tiny_model):
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = pad(ragged_choices(), side="left")
    packed = model(**batch, output_lm_logits=True).lm_logits
    model.pack_sequences = False
    padded = model(**batch, output_lm_logits=True).lm_logits
    real = batch["attention_mask"].bool()
    assert packed.shape == padded.shape
    torch.testing.assert_close(packed[real], padded[real], atol=1e-5, rtol=1e-5)


def test_the_single_purpose_class_packs_too(tiny_model):
    model = tiny_model(GPT1ForMultipleChoice)
    assert_packed_equals_padded(model, pad(ragged_choices()))


def test_choices_longer_than_the_positions_together(tiny_model):
    """A context of 40 and four choices of 20 tokens make one row of 120, with positions up to 60."""
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice", max_position_embeddings=60)
    context = [START, *range(1, 39), DELIMITER]
    examples = [[[*context, *range(20 + c, 39 + c), EXTRACT] for c in range(4)]]
    examples.append([sequence[:-1] for sequence in examples[0]])
    assert_packed_equals_padded(model, pad(examples))
    with pytest.raises(ValueError) as error:
        model(**pad(examples, extra=1))
    assert str(error.value).startswith("The sequence has 61 tokens, but the model has only 60 positions ")


# ---- What falls back, and dropout


@pytest.mark.parametrize(
    "change",
    [
        lambda model, batch: setattr(model, "pack_sequences", False),
        lambda model, batch: model.set_attn_implementation("eager"),
        lambda model, batch: batch.update(output_hidden_states=True),
        lambda model, batch: batch.update(is_causal=False),
        lambda model, batch: setattr(model.config, "is_causal", False),
        lambda model, batch: batch.update(token_type_ids=torch.ones_like(batch["input_ids"])),
        lambda model, batch: batch.update(
            position_ids=torch.arange(batch["input_ids"].shape[-1]).expand_as(batch["input_ids"])
        ),
    ],
    ids=["switched off", "eager", "hidden states", "not causal", "never causal", "token types", "positions"],
)
def test_the_padded_way_is_taken_where_something_needs_it(tiny_model, change):
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = pad(ragged_choices())
    num_padded, num_real = batch["input_ids"].numel(), int(batch["attention_mask"].sum())
    assert results(model, batch)[1] < num_real
    change(model, batch)
    assert results(model, batch)[1] == num_padded


def test_the_choices_of_an_example_share_the_contexts_dropout(tiny_model):
    """Scores read in the middle of the context are those of the same hidden states, with its dropout."""
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice", embd_pdrop=0.5).train()
    batch = pad([[[START, *range(1, 20), c, EXTRACT] for c in (40, 50)]] * 3)
    batch["mc_token_ids"] = torch.full((3, 2), 10)
    torch.manual_seed(0)
    packed, again = (model(**batch).task_logits for _ in range(2))
    torch.testing.assert_close(packed[:, 0], packed[:, 1], atol=1e-5, rtol=1e-5)
    assert (packed - again).abs().min() > 1e-3 and num_different(packed[:, 0]) == 3
    model.pack_sequences = False
    assert num_different(model(**batch).task_logits) == 6


def num_different(scores):
    """Of numbers that are further apart than rounding."""
    return len((scores.detach().double() * 1e4).round().unique())


def test_a_replica_without_parameters_packs(tiny_model):
    """As torch's DataParallel makes them: a Trainer that sees several GPUs does."""
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = pad(ragged_choices())
    expected, num_packed = results(model, batch)
    replica = replicate(model)
    assert list(replica.parameters()) == []
    seen = []
    replica.transformer.drop.register_forward_hook(lambda module, args, output: seen.append(output.shape[:-1].numel()))
    torch.testing.assert_close(replica(**batch).loss.detach(), expected["loss"], atol=1e-6, rtol=1e-6)
    assert seen == [num_packed]


def replicate(model):
    modules = list(model.modules())
    copies = {module: module._replicate_for_data_parallel() for module in modules}
    for module, copy in copies.items():
        for name, child in module._modules.items():
            setattr(copy, name, copies[child])
        for name, parameter in module._parameters.items():
            setattr(copy, name, None if parameter is None else parameter.detach().clone())
    return copies[model]
