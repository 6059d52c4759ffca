"""The decoder and the language model: attention, padding, packing, checkpointing, saving and loading."""

import copy
import warnings

import pytest
import torch
from helpers_hub_code import HUB_CODE
from torch import nn
from torch._inductor.exc import InductorError
from transformers import AutoModel, AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
    GPT1Model,
)
from modeling_gpt1.modeling_gpt1 import GPT1LMHead

disable_progress_bar()

CLASSES = [GPT1Model, GPT1ForCausalLM, GPT1DoubleHeadsModel, GPT1ForSequenceClassification, GPT1ForMultipleChoice]


def random_ids(*shape, seed=0):
    return torch.randint(1, 101, shape, generator=torch.Generator().manual_seed(seed))


def close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def padded(rows: list[torch.Tensor], side: str, length: int) -> dict[str, torch.Tensor]:
    """Rows of unequal length as one batch `[B, length]` with its mask."""
    input_ids = torch.zeros(len(rows), length, dtype=torch.int64)
    attention_mask = torch.zeros_like(input_ids)
    for index, row in enumerate(rows):
        place = slice(length - len(row), length) if side == "left" else slice(len(row))
        input_ids[index, place], attention_mask[index, place] = row, 1
    return {"input_ids": input_ids, "attention_mask": attention_mask}


# ---- Initial weights.


def test_initial_weights_are_the_papers(tiny_config):
    torch.manual_seed(0)
    model = GPT1DoubleHeadsModel(tiny_config(hidden_size=128, initializer_range=0.02))
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            assert torch.count_nonzero(weight) == 0, name
        elif ".ln_" in name:
            assert torch.equal(weight, torch.ones_like(weight)), name
        else:
            assert abs(weight.mean().item()) < 0.01 and 0.015 < weight.std().item() < 0.025, name


def test_fresh_classifier_bias_starts_at_0_in_a_loaded_model(tiny_model, tmp_path):
    tiny_model(GPT1Model).save_pretrained(tmp_path)
    loaded = GPT1DoubleHeadsModel.from_pretrained(tmp_path)
    assert loaded.task_head.score.bias.tolist() == [0.0, 0.0]
    assert 0 < loaded.task_head.score.weight.std().item() < 0.04


# ---- Attention implementations.


@pytest.mark.parametrize("model_class", CLASSES)
def test_flags_of_attention_implementations(model_class):
    assert model_class._supports_sdpa is True
    assert model_class._supports_flash_attn is True
    assert model_class._supports_flex_attn is True
    assert model_class._supports_attention_backend is True
    assert model_class._can_compile_fullgraph is True
    assert model_class.supports_gradient_checkpointing is True


MASKS = {
    "none": None,
    "all real": [[1] * 8] * 3,
    "right": [[1] * 8, [1] * 5 + [0] * 3, [1] + [0] * 7],
    "left": [[1] * 8, [0] * 3 + [1] * 5, [0] * 7 + [1]],
    "both": [[0] * 2 + [1] * 4 + [0] * 2, [1] * 8, [0] + [1] * 7],
    "a row without tokens": [[1] * 8, [0] * 8, [1] * 3 + [0] * 5],
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("training", [False, True])
def test_eager_and_sdpa_agree(tiny_model, mask, training):
    """Also in the gradients, and without NaN where a row has no tokens at all."""
    attention_mask = None if MASKS[mask] is None else torch.tensor(MASKS[mask])
    real = torch.ones(3, 8, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    outputs, gradients = {}, {}
    for implementation in ("eager", "sdpa"):
        model = tiny_model(GPT1Model).train(training)
        model.set_attn_implementation(implementation)
        assert model.config._attn_implementation == implementation
        hidden_states = model(random_ids(3, 8), attention_mask=attention_mask).last_hidden_state
        assert not hidden_states.isnan().any()
        hidden_states[real].square().mean().backward()
        outputs[implementation] = hidden_states[real]
        gradients[implementation] = {name: weight.grad for name, weight in model.named_parameters()}
    close(outputs["eager"], outputs["sdpa"])
    for name, gradient in gradients["eager"].items():
        assert not gradient.isnan().any()
        close(gradient, gradients["sdpa"][name])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_rows_of_padding_are_finite_in_every_dtype(tiny_model, dtype):
    """Scores far below 0 beside the mask's least number; where nothing is masked, both implementations agree."""
    model = tiny_model(GPT1Model)
    model.tokens_embed.weight.data += 2
    for block in model.h:
        block.attn.q_proj.bias.data += 8
        block.attn.k_proj.bias.data -= 8
    mask = torch.tensor(MASKS["left"])
    states = {}
    for implementation in ("eager", "sdpa"):
        model.to(dtype).set_attn_implementation(implementation)
        states[implementation] = model(random_ids(3, 8), attention_mask=mask).last_hidden_state
        assert states[implementation].isfinite().all(), implementation
    tolerance = {torch.float64: 1e-12, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
    close(states["eager"][mask.bool()], states["sdpa"][mask.bool()], tolerance)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_positions_with_gaps_are_one_sequence(tiny_model, implementation):
    """Another sequence begins only where a position is not above the one before it."""
    model = tiny_model(GPT1Model).double()
    model.set_attn_implementation(implementation)
    ids, positions = random_ids(1, 9), torch.tensor([[3, 4, 9, 10, 20, 0, 2, 3, 7]])
    first, second = (
        model(part, attention_mask=torch.ones_like(part), position_ids=places).last_hidden_state
        for part, places in zip(ids.split([5, 4], dim=1), positions.split([5, 4], dim=1), strict=True)
    )
    close(model(ids, position_ids=positions, use_cache=False).last_hidden_state, torch.cat([first, second], 1), 1e-6)
    close(model(ids[:, :5], position_ids=positions[:, :5], use_cache=False).last_hidden_state, first, 1e-6)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    close(
        compiled(ids, position_ids=positions, use_cache=False).last_hidden_state, torch.cat([first, second], 1), 1e-6
    )


def test_a_mask_changes_what_is_attended(tiny_model):
    """The control of the agreement above: without its mask the left-padded batch gives other states."""
    model = tiny_model(GPT1Model)
    masked = model(random_ids(3, 8), attention_mask=torch.tensor(MASKS["left"])).last_hidden_state
    unmasked = model(random_ids(3, 8)).last_hidden_state
    close(masked[0], unmasked[0])
    assert (masked[1, 3:] - unmasked[1, 3:]).abs().max() > 0.1


def test_a_token_sees_nothing_after_it(tiny_model):
    for implementation in ("eager", "sdpa"):
        model = tiny_model(GPT1Model)
        model.set_attn_implementation(implementation)
        input_ids = random_ids(1, 8)
        other = input_ids.clone()
        other[0, 5] = 1 + other[0, 5] % 100
        before, after = model(input_ids).last_hidden_state, model(other).last_hidden_state
        close(before[:, :5], after[:, :5], 1e-6)
        assert (before[:, 5:] - after[:, 5:]).abs().amax(-1).min() > 1e-3


def test_flex_attention_agrees(tiny_config, randomise):
    """Forward only: torch has no backward of flex attention on the CPU. Heads of 16, the least that it takes."""
    attention_mask = torch.tensor(MASKS["both"])
    real = attention_mask.bool()
    outputs = {}
    for implementation in ("eager", "flex_attention"):
        model = randomise(GPT1Model(tiny_config(hidden_size=32, num_attention_heads=2, num_hidden_layers=1))).eval()
        model.set_attn_implementation(implementation)
        try:
            with torch.no_grad():
                outputs[implementation] = model(random_ids(3, 8), attention_mask=attention_mask).last_hidden_state
        except InductorError as error:  # no C++ compiler, or one that is too old
            pytest.skip(f"flex attention cannot be compiled here: {str(error).splitlines()[0]}")
    close(outputs["flex_attention"][real], outputs["eager"][real])


def test_attentions_are_softmax_weights(tiny_model):
    model = tiny_model(GPT1Model)
    model.set_attn_implementation("eager")
    input_ids = random_ids(2, 5)
    attention_mask = torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])
    attentions = model(input_ids, attention_mask=attention_mask, output_attentions=True).attentions
    assert [tuple(weights.shape) for weights in attentions] == [(2, 4, 5, 5)] * 2
    for weights in attentions:
        close(weights.sum(-1), torch.ones(2, 4, 5))
        assert torch.count_nonzero(weights.triu(1)) == 0
        assert torch.count_nonzero(weights[1, :, :, 3:]) == 0
    embedded = model.tokens_embed(input_ids[:1]) + model.positions_embed.weight[:5]
    attn = model.h[0].attn
    queries, keys = (layer(embedded).view(5, 4, 8).transpose(0, 1) for layer in (attn.q_proj, attn.k_proj))
    scores = (queries @ keys.transpose(1, 2) / 8**0.5).masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf"))
    close(attentions[0][0], scores.softmax(-1))


def test_hidden_states_are_embeddings_then_blocks(tiny_model):
    model = tiny_model(GPT1ForCausalLM)
    input_ids = random_ids(2, 5)
    outputs = model(input_ids, output_hidden_states=True)
    assert [tuple(states.shape) for states in outputs.hidden_states] == [(2, 5, 32)] * 3
    transformer = model.transformer
    embedded = transformer.tokens_embed(input_ids) + transformer.positions_embed.weight[:5]
    close(outputs.hidden_states[0], embedded)
    close(outputs.hidden_states[2], transformer(input_ids).last_hidden_state)
    close(model.lm_head(outputs.hidden_states[2]), outputs.logits)
    assert not torch.allclose(outputs.hidden_states[1], outputs.hidden_states[2], atol=0.1)
    assert model(input_ids).hidden_states is None


# ---- Padding, positions, packing.

LENGTHS = (1, 4, 9)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("model_class", [GPT1Model, GPT1ForCausalLM])
def test_padded_rows_are_as_single_rows(tiny_model, model_class, side, implementation):
    model = tiny_model(model_class)
    model.set_attn_implementation(implementation)
    rows = [random_ids(length, seed=length) for length in LENGTHS]
    batch = padded(rows, side, length=12)
    name = "logits" if model_class is GPT1ForCausalLM else "last_hidden_state"
    outputs = model(**batch)[name]
    for row, output, mask in zip(rows, outputs, batch["attention_mask"], strict=True):
        close(output[mask.bool()], model(row[None])[name][0])


def test_padding_without_a_mask_is_not_as_single_rows(tiny_model):
    model = tiny_model(GPT1Model)
    row = random_ids(4)
    output = model(padded([row], "left", 12)["input_ids"]).last_hidden_state[0, -4:]
    assert (output - model(row[None]).last_hidden_state[0]).abs().max() > 0.1


@pytest.mark.parametrize("mask_dtype", [torch.int64, torch.bool, torch.float32])
def test_masks_of_any_dtype(tiny_model, mask_dtype):
    model = tiny_model(GPT1Model)
    batch = padded([random_ids(4), random_ids(7)], "left", 9)
    expected = model(**batch).last_hidden_state
    actual = model(batch["input_ids"], attention_mask=batch["attention_mask"].to(mask_dtype)).last_hidden_state
    assert torch.equal(actual, expected)


def test_positions_given_and_default(tiny_model):
    model = tiny_model(GPT1Model)
    input_ids = random_ids(2, 6)
    default = model(input_ids).last_hidden_state
    close(model(input_ids, position_ids=torch.arange(6)[None]).last_hidden_state, default, 1e-6)
    later = model(input_ids, position_ids=torch.arange(10, 16)[None], use_cache=False).last_hidden_state
    assert (later - default).abs().max() > 0.1
    embedded = model.tokens_embed(input_ids) + model.positions_embed.weight[10:16] - model.positions_embed.weight[:6]
    close(model(inputs_embeds=embedded).last_hidden_state, later)


def test_inputs_embeds_are_the_embedded_ids(tiny_model):
    model = tiny_model(GPT1ForCausalLM)
    batch = padded([random_ids(4), random_ids(7)], "left", 9)
    inputs_embeds = model.get_input_embeddings()(batch["input_ids"])
    close(model(inputs_embeds=inputs_embeds, attention_mask=batch["attention_mask"]).logits, model(**batch).logits)


def test_token_types_are_added_embeddings(tiny_model):
    model = tiny_model(GPT1Model)
    input_ids, token_type_ids = random_ids(2, 6), random_ids(2, 6, seed=1)
    embedded = model.tokens_embed(input_ids) + model.tokens_embed(token_type_ids)
    expected = model(inputs_embeds=embedded).last_hidden_state
    close(model(input_ids, token_type_ids=token_type_ids).last_hidden_state, expected)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize(("training", "use_cache"), [(False, False), (False, None), (False, True), (True, None)])
def test_packed_sequences_stay_apart(tiny_model, implementation, training, use_cache):
    """Also where the model makes a cache by itself, as in evaluation."""
    model = tiny_model(GPT1Model).train(training)
    model.set_attn_implementation(implementation)
    first, second = random_ids(5), random_ids(7, seed=1)
    positions = torch.cat([torch.arange(5), torch.arange(7)])[None]
    packed = model(torch.cat([first, second])[None], position_ids=positions, use_cache=use_cache).last_hidden_state[0]
    close(packed[:5], model(first[None]).last_hidden_state[0])
    close(packed[5:], model(second[None]).last_hidden_state[0])
    joined = model(torch.cat([first, second])[None]).last_hidden_state[0]
    assert (packed[5:] - joined[5:]).abs().max() > 0.1


# ---- Logits.


def test_logits_to_keep(tiny_model):
    model = tiny_model(GPT1ForCausalLM)
    input_ids = random_ids(2, 6)
    logits = model(input_ids).logits
    assert logits.shape == (2, 6, 101)
    for kept, expected in (
        (0, logits),
        (1, logits[:, -1:]),
        (3, logits[:, 3:]),
        (torch.tensor([4, 0]), logits[:, [4, 0]]),
    ):
        close(model(input_ids, logits_to_keep=kept).logits, expected, 1e-6)


def test_skip_logits(tiny_model):
    model = tiny_model(GPT1ForCausalLM)
    input_ids = random_ids(2, 6)

    def shapes(**kwargs):
        outputs = model(input_ids, **kwargs)
        return None if outputs.logits is None else tuple(outputs.logits.shape)

    assert shapes(labels=input_ids) == shapes() == (2, 6, 101)
    assert shapes(labels=input_ids, skip_logits=True) is None
    model.train()
    assert shapes() == (2, 6, 101)
    assert shapes(labels=input_ids) is None
    assert shapes(labels=input_ids, skip_logits=False) == (2, 6, 101)


def test_example_losses_of_rows(tiny_model):
    """Their sums give the loss of any batch; training has none."""
    model = tiny_model(GPT1ForCausalLM)
    input_ids = random_ids(3, 6)
    labels = input_ids.masked_fill(torch.arange(6) < torch.tensor([[0], [3], [6]]), -100)
    outputs = model(input_ids, labels=labels)
    sums, counts = outputs.example_losses.T
    assert counts.tolist() == [5.0, 3.0, 0.0]
    assert sums[2].item() == 0
    close(sums.sum() / counts.sum(), outputs.loss)
    for row in range(2):
        close(sums[row] / counts[row], model(input_ids[row : row + 1], labels=labels[row : row + 1]).loss)
    assert not outputs.example_losses.requires_grad
    assert model.train()(input_ids, labels=labels).example_losses is None


def test_targets_of_shards_are_already_shifted(tiny_model):
    """As sequence-parallel training gives them: `shift_labels` alone, or beside `labels`, which they replace."""
    model = tiny_model(GPT1ForCausalLM)
    input_ids = random_ids(3, 6)
    labels = input_ids.masked_fill(torch.arange(6) < torch.tensor([[0], [3], [5]]), -100)
    shifted = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
    expected = model(input_ids, labels=labels)
    for given in ({}, {"labels": random_ids(3, 6, seed=1)}):
        output = model(input_ids, shift_labels=shifted, **given)
        close(output.loss, expected.loss)
        close(output.example_losses, expected.example_losses)
    last_too = torch.where(torch.arange(6) < 5, shifted, 7)
    log_probabilities = model(input_ids).logits.log_softmax(-1)
    chosen = log_probabilities.gather(-1, last_too.clamp(min=0)[..., None])[..., 0]
    close(model(input_ids, shift_labels=last_too).loss, -chosen[last_too != -100].mean())
    model.train()
    output = model(input_ids, shift_labels=shifted, num_items_in_batch=4)
    close(output.loss, expected.loss * (shifted != -100).sum() / 4)
    assert output.logits is None


# ---- Too long, both or neither.


TOO_LONG = (
    "The sequence has {length} tokens, but the model has only 24 positions (`max_position_embeddings`). Shorten the "
    "input: pass `truncation=True, max_length=…` to the tokenizer, `max_length` to the collator or a smaller "
    "`max_new_tokens` to `generate`."
)


@pytest.mark.parametrize(
    "model_class", [GPT1Model, GPT1ForCausalLM, GPT1DoubleHeadsModel, GPT1ForSequenceClassification]
)
def test_a_sequence_longer_than_the_positions(tiny_model, model_class):
    model = tiny_model(model_class)
    model(random_ids(1, 24))
    with pytest.raises(ValueError) as error:
        model(random_ids(1, 25))
    assert str(error.value) == TOO_LONG.format(length=25)


def test_embeddings_longer_than_the_positions(tiny_model):
    with pytest.raises(ValueError) as error:
        tiny_model(GPT1Model)(inputs_embeds=torch.zeros(1, 30, 32))
    assert str(error.value) == TOO_LONG.format(length=30)


BOTH_OR_NEITHER = "Exactly one of `input_ids` and `inputs_embeds` is needed."


@pytest.mark.parametrize(
    "model_class", [GPT1Model, GPT1ForCausalLM, GPT1DoubleHeadsModel, GPT1ForSequenceClassification]
)
@pytest.mark.parametrize("both", [True, False])
def test_both_or_neither_of_ids_and_embeddings(tiny_model, model_class, both):
    inputs = {"input_ids": random_ids(2, 3), "inputs_embeds": torch.zeros(2, 3, 32)} if both else {}
    with pytest.raises(ValueError) as error:
        tiny_model(model_class)(**inputs)
    assert str(error.value) == BOTH_OR_NEITHER


# ---- Outputs as tuples.


def test_tuples_instead_of_outputs(tiny_model):
    input_ids = random_ids(2, 3)
    model = tiny_model(GPT1ForCausalLM, use_cache=False)
    loss, logits, example_losses = model(input_ids, labels=input_ids, return_dict=False)
    outputs = model(input_ids, labels=input_ids)
    assert torch.equal(loss, outputs.loss)
    assert torch.equal(logits, outputs.logits)
    assert torch.equal(example_losses, outputs.example_losses)
    (hidden_states,) = model.transformer(input_ids, return_dict=False)
    assert torch.equal(hidden_states, model.transformer(input_ids).last_hidden_state)


@pytest.mark.parametrize("model_class", CLASSES)
def test_a_configuration_that_asks_for_tuples(tiny_model, model_class):
    model = tiny_model(model_class)
    input_ids = random_ids(2, 2, 3) if model_class is GPT1ForMultipleChoice else random_ids(2, 3)
    expected = model(input_ids)
    model.config.return_dict = False
    outputs = model(input_ids)
    assert isinstance(outputs, tuple)
    assert torch.equal(outputs[0], expected[0])


# ---- Gradient checkpointing.


def enable_checkpointing(model, use_reentrant):
    """By the name that this release of transformers prefers."""
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    keyword = "activation_checkpointing_kwargs" if "activation" in enable.__name__ else "gradient_checkpointing_kwargs"
    try:
        enable(**{keyword: {"use_reentrant": use_reentrant}})
    except TypeError:
        enable({"use_reentrant": use_reentrant})


def training_step(model):
    """The loss, the gradients and the number of elements that were kept for the backward pass."""
    saved = []

    def record(tensor):
        saved.append(tensor.numel())
        return tensor

    input_ids = random_ids(3, 12)
    torch.manual_seed(0)
    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        loss = model(input_ids, labels=input_ids).loss
    loss.backward()
    return loss.item(), {name: weight.grad for name, weight in model.named_parameters()}, sum(saved)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_gives_the_same_gradients_and_keeps_less(tiny_model, use_reentrant):
    """With dropout, so that the second forward has to draw the same masks."""
    dropouts = {"embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.1}
    expected_loss, expected, kept = training_step(tiny_model(GPT1ForCausalLM, **dropouts).train())
    model = tiny_model(GPT1ForCausalLM, **dropouts).train()
    enable_checkpointing(model, use_reentrant)
    assert model.transformer.gradient_checkpointing or model.transformer.h[0].gradient_checkpointing
    loss, gradients, kept_less = training_step(model)
    assert loss == expected_loss
    for name, gradient in gradients.items():
        close(gradient, expected[name], 1e-6)
    assert kept_less < kept


def test_checkpointing_by_its_older_name(tiny_model):
    model = tiny_model(GPT1ForCausalLM).train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable()
    assert model.transformer.gradient_checkpointing or model.transformer.h[0].gradient_checkpointing
    _, gradients, _ = training_step(model)
    _, expected, _ = training_step(tiny_model(GPT1ForCausalLM).train())
    for name, gradient in gradients.items():
        close(gradient, expected[name], 1e-6)


def test_evaluation_with_checkpointing_still_caches(tiny_model):
    model = tiny_model(GPT1ForCausalLM)
    enable_checkpointing(model, False)
    model.eval()
    assert model(random_ids(1, 4)).past_key_values.get_seq_length() == 4


# ---- Embeddings that grow, saving, loading.


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("model_class", [GPT1ForCausalLM, GPT1DoubleHeadsModel])
def test_resized_embeddings(tiny_model, model_class, tied, tmp_path):
    model = tiny_model(model_class, tie_word_embeddings=tied)
    old_head = model.lm_head.weight.detach().clone()
    model.resize_token_embeddings(110)
    assert model.config.vocab_size == 110
    assert model.get_input_embeddings().weight.shape == (110, 32)
    assert model.lm_head.weight.shape == (110, 32)
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == tied
    assert type(model.lm_head) is GPT1LMHead
    assert (model.lm_head.in_features, model.lm_head.out_features) == (32, 110)
    assert torch.equal(model.lm_head.weight[:101], old_head)

    head = model.lm_head.weight.detach().clone()
    model.post_init()
    assert torch.equal(model.lm_head.weight, head)  # what was resized is not initialised anew

    labels = random_ids(2, 5) if model_class is GPT1ForCausalLM else torch.tensor([0, 1])
    model.train()(torch.full((2, 5), 109), labels=labels).loss.backward()
    assert model.get_input_embeddings().weight.grad[109].abs().sum() > 0
    assert model.lm_head.weight.grad.shape == (110, 32)

    model.eval().save_pretrained(tmp_path)
    reopened = model_class.from_pretrained(tmp_path).eval()
    assert (reopened.lm_head.weight is reopened.get_input_embeddings().weight) == tied
    assert torch.equal(reopened.lm_head.weight, model.lm_head.weight)


@pytest.mark.parametrize("model_class", CLASSES)
@pytest.mark.parametrize("tied", [True, False])
def test_saved_and_loaded_model_is_the_same(tiny_model, model_class, tied, tmp_path):
    model = tiny_model(model_class, tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    assert files - {"generation_config.json"} == {"config.json", "model.safetensors", *HUB_CODE}
    loaded, report = model_class.from_pretrained(tmp_path, output_loading_info=True)
    assert {name: keys for name, keys in report.items() if keys} == {}
    assert not loaded.training
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight), name
    if hasattr(loaded, "lm_head"):
        assert (loaded.lm_head.weight is loaded.transformer.tokens_embed.weight) == tied


def test_a_head_with_a_bias_stays_what_it_is(tiny_model):
    """Its loss is that of its logits, which the fused loss would take without the bias."""
    model = tiny_model(GPT1ForCausalLM, tie_word_embeddings=False)
    model.set_output_embeddings(nn.Linear(32, 101))
    nn.init.normal_(model.lm_head.bias)
    input_ids = random_ids(2, 6)
    output = model(input_ids, labels=input_ids)
    close(output.loss, nn.functional.cross_entropy(output.logits[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten()))


def test_one_weight_changed_on_disk_is_seen(tiny_model, tmp_path):
    """The control of the test above."""
    model = tiny_model(GPT1Model)
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        model.h[0].attn.q_proj.weight[0, 0] += 1e-3
    loaded = GPT1Model.from_pretrained(tmp_path)
    assert not torch.equal(loaded.h[0].attn.q_proj.weight, model.h[0].attn.q_proj.weight)


def test_auto_classes_open_the_folder(tiny_model, tmp_path):
    model = tiny_model(GPT1ForCausalLM)
    model.save_pretrained(tmp_path)
    input_ids = random_ids(2, 5)
    opened = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(opened) is GPT1ForCausalLM
    assert torch.equal(opened(input_ids).logits, model(input_ids).logits)
    base = AutoModel.from_pretrained(tmp_path)
    assert type(base) is GPT1Model
    assert torch.equal(base(input_ids).last_hidden_state, model.transformer(input_ids).last_hidden_state)


def test_half_precision_folder(tiny_model, tmp_path):
    tiny_model(GPT1ForCausalLM).to(torch.bfloat16).save_pretrained(tmp_path)
    loaded = GPT1ForCausalLM.from_pretrained(tmp_path)
    assert {weight.dtype for weight in loaded.parameters()} == {torch.bfloat16}
    input_ids = random_ids(2, 5)
    logits = loaded(input_ids).logits
    assert logits.dtype == torch.bfloat16
    widened = GPT1ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert {weight.dtype for weight in widened.parameters()} == {torch.float32}
    assert (logits.float() - widened(input_ids).logits).norm() < 0.05 * widened(input_ids).logits.norm()


def test_half_precision_training_step(tiny_model):
    model = tiny_model(GPT1ForCausalLM).to(torch.bfloat16).train()
    input_ids = random_ids(2, 5)
    loss = model(input_ids, labels=input_ids).loss
    loss.backward()
    assert loss.dtype == torch.float32
    assert {weight.grad.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert not any(weight.grad.isnan().any() for weight in model.parameters())


def test_model_of_the_configurations_own_copy(tiny_config):
    """A class that fills in its traversal leaves the caller's configuration alone."""
    config = tiny_config()
    before = copy.deepcopy(config.to_dict())
    assert GPT1ForMultipleChoice(config).config.traversal == "multiple_choice"
    assert GPT1DoubleHeadsModel(config).config.traversal == "classification"
    assert config.to_dict() == before


def test_dropout_is_on_in_training_only(tiny_model):
    input_ids = random_ids(1, 6)
    for name in ("embd_pdrop", "resid_pdrop", "attn_pdrop"):
        for implementation in ("eager", "sdpa"):
            model = tiny_model(GPT1Model, **{name: 0.5})
            model.set_attn_implementation(implementation)
            first, second = (model(input_ids).last_hidden_state for _ in range(2))
            assert torch.equal(first, second)
            model.train()
            first, second = (model(input_ids).last_hidden_state for _ in range(2))
            assert not torch.allclose(first, second, atol=1e-3), (name, implementation)


def test_places_of_dropout(tiny_model):
    """With everything dropped at one place, what is left is known."""
    input_ids = random_ids(2, 6)

    def state(**dropout):
        model = tiny_model(GPT1Model, num_hidden_layers=1, **dropout).train()
        return model, model.h[0], model(input_ids).last_hidden_state

    model, block, without_embeddings = state(embd_pdrop=1.0)
    close(without_embeddings, block(torch.zeros(2, 6, 32)))
    model, block, without_sublayers = state(resid_pdrop=1.0)
    embedded = model.tokens_embed(input_ids) + model.positions_embed.weight[:6]
    close(without_sublayers, block.ln_2(block.ln_1(embedded)))
    model, block, without_attention = state(attn_pdrop=1.0)
    normed = block.ln_1(embedded + block.attn.o_proj.bias)
    close(without_attention, block.ln_2(normed + block.mlp(normed)))


def test_plans_name_modules_that_exist(tiny_model):
    """A pattern that matches nothing would be left out silently."""
    model = tiny_model(GPT1ForCausalLM)
    modules = {name for name, _ in model.named_modules()}
    for pattern in GPT1Config.base_model_tp_plan:
        assert "transformer." + pattern.replace("*", "1") in modules
    linear = {name for name, module in model.transformer.named_modules() if type(module) is nn.Linear}
    planned = {pattern.replace("*", str(layer)) for pattern in GPT1Config.base_model_tp_plan for layer in range(2)}
    assert linear <= planned
