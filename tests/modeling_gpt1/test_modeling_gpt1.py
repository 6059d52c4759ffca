"""The decoder and the language model: attention, padding, packing, checkpointing, saving and loading."""

import copy
import warnings

import pytest
import torch
from support.hub_code import HUB_CODE
from support.refusals import refusal
from support.tensors import close, random_ids
from torch import nn
from torch.func import functional_call, grad, vmap
from transformers import AutoModel, AutoModelForCausalLM, DynamicCache, Trainer, TrainingArguments
from transformers.utils.logging import disable_progress_bar

from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForQuestionAnswering,
    GPT1ForSequenceClassification,
    GPT1ForTokenClassification,
    GPT1LSTMForCausalLM,
    GPT1Model,
)
from modeling_gpt1.modeling_gpt1 import GPT1LMHead
from tokenization.batches.plan import plan_batch

disable_progress_bar()

CLASSES = [
    GPT1Model,
    GPT1ForCausalLM,
    GPT1DoubleHeadsModel,
    GPT1ForSequenceClassification,
    GPT1ForMultipleChoice,
    GPT1ForTokenClassification,
    GPT1ForQuestionAnswering,
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_rows_of_padding_are_finite_in_every_dtype(tiny_model, dtype):
    """Scores far below 0 beside the mask's least number; where nothing is masked, both implementations agree."""
    model = tiny_model(GPT1Model)
    model.tokens_embed.weight.data += 2
    for block in model.h:
        block.attn.q_proj.bias.data += 8
        block.attn.k_proj.bias.data -= 8
    mask = torch.tensor([[1] * 8, [0] * 3 + [1] * 5, [0] * 7 + [1]])
    states = {}
    for implementation in ("eager", "sdpa"):
        model.to(dtype).set_attn_implementation(implementation)
        states[implementation] = model(random_ids(3, 8), attention_mask=mask).last_hidden_state
        assert states[implementation].isfinite().all(), implementation
    tolerance = {torch.float64: 1e-12, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
    close(states["eager"][mask.bool()], states["sdpa"][mask.bool()], tolerance)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_row_that_sees_nothing_in_a_mask_of_the_callers_own_is_finite(tiny_model, implementation):
    """One NaN would be in all tokens after the next block, because 0 · NaN is NaN."""
    model, ids = tiny_model(GPT1Model), random_ids(2, 6)
    model.set_attn_implementation(implementation)
    padding = torch.tensor([[1] * 6, [0] * 2 + [1] * 4])
    positions = (padding.cumsum(-1) - 1).clamp(min=0)
    seen = padding.bool()[:, None, None] & torch.ones(6, 6).tril().bool()  # [B, 1, T, T]
    assert not seen[1, 0, 0].any()
    states = model(ids, attention_mask=seen, position_ids=positions).last_hidden_state
    expected = model(ids, attention_mask=padding, position_ids=positions).last_hidden_state
    assert states.isfinite().all()
    close(states[padding.bool()], expected[padding.bool()])


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
    if implementation == "sdpa":
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        states = compiled(ids, position_ids=positions, use_cache=False).last_hidden_state
        close(states, torch.cat([first, second], 1), 1e-6)


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


def test_logits_to_keep_are_the_last_or_those_listed(tiny_model):
    model = tiny_model(GPT1ForCausalLM)
    input_ids = random_ids(2, 6)
    logits = model(input_ids).logits
    assert logits.shape == (2, 6, 101)
    for kept, part in (0, logits), (1, logits[:, -1:]), (3, logits[:, 3:]), (torch.tensor([4, 0]), logits[:, [4, 0]]):
        close(model(input_ids, logits_to_keep=kept).logits, part, 1e-6)


def test_logits_are_skipped_by_default_in_training_with_labels(tiny_model):
    """By default in training with labels."""
    model, input_ids = tiny_model(GPT1ForCausalLM), random_ids(2, 6)
    ways = [(False, None, None, True), (False, input_ids, None, True), (False, input_ids, True, False)]
    ways += [(True, None, None, True), (True, input_ids, None, False), (True, input_ids, False, True)]
    for training, labels, skip_logits, has_logits in ways:
        logits = model.train(training)(input_ids, labels=labels, skip_logits=skip_logits).logits
        assert (logits is not None) == has_logits


def test_example_losses_are_those_of_each_sequence(tiny_model):
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


def test_gradients_by_torch_func_are_those_of_autograd(tiny_model):
    """Of a batch with padding and its plan; of one without; and of each row, as influence functions need them."""
    model, ids, mask = tiny_model(GPT1ForCausalLM).eval(), random_ids(2, 6), torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    padded = {"labels": ids.masked_fill(mask == 0, -100), "attention_mask": mask, "plan": plan_batch(mask, [0, 0])}
    weights = dict(model.named_parameters())

    def loss(weights, ids, **batch):
        return functional_call(model, weights, (ids,), batch).loss

    for batch in (padded, {"labels": ids}):
        model.zero_grad()
        model(ids, **batch).loss.backward()
        found = grad(loss)(weights, ids, **batch)
        torch.testing.assert_close(found, {name: weight.grad for name, weight in weights.items()})
    of_rows = vmap(grad(lambda weights, row: loss(weights, row, labels=row)), (None, 0))(weights, ids[:, None])
    torch.testing.assert_close({name: rows.mean(0) for name, rows in of_rows.items()}, found)
    heads, batch = tiny_model(GPT1DoubleHeadsModel, traversal="entailment").eval(), {"labels": torch.tensor([0, 1])}
    heads(ids, **batch).loss.backward()
    found = grad(lambda weights: functional_call(heads, weights, (ids,), batch).loss)(dict(heads.named_parameters()))
    torch.testing.assert_close(found, {name: weight.grad for name, weight in heads.named_parameters()})


def test_a_loss_function_of_the_users_own_is_refused(tiny_model):
    with pytest.raises(ValueError, match="`loss_function` is never called: .* Compute your loss from `logits`"):
        tiny_model(GPT1ForCausalLM).loss_function = nn.functional.cross_entropy


def test_targets_of_sharded_sequences_are_refused(tiny_model):
    input_ids = random_ids(2, 6)
    with pytest.raises(ValueError, match="Pass `labels` alone"):  # they would be predicted across the shards' borders
        tiny_model(GPT1ForCausalLM)(input_ids, labels=input_ids, shift_labels=input_ids)


@pytest.mark.parametrize(
    "inputs, length",
    [
        ({"input_ids": random_ids(1, 25)}, 25),
        ({"inputs_embeds": torch.zeros(1, 30, 32)}, 30),
        ({"input_ids": random_ids(1, 3), "position_ids": torch.tensor([[22, 23, 24]])}, 25),
    ],
    ids=["ids", "embeddings", "positions"],
)
@pytest.mark.parametrize("model_class", [GPT1ForCausalLM, GPT1DoubleHeadsModel])
def test_a_sequence_past_the_positions_is_refused(tiny_model, model_class, inputs, length):
    message = refusal(tiny_model(model_class), **inputs)
    assert f"has {length} tokens, but the model has only 24 positions" in message
    assert "`max_length`" in message


@pytest.mark.parametrize("model_class", [GPT1ForCausalLM, GPT1DoubleHeadsModel])
def test_a_sequence_of_all_positions_is_read(tiny_model, model_class):
    model = tiny_model(model_class)
    assert model(random_ids(1, 24))[0].isfinite().all()


@pytest.mark.parametrize(
    "inputs",
    [{}, {"input_ids": random_ids(2, 3), "inputs_embeds": torch.zeros(2, 3, 32)}],
    ids=["neither", "both"],
)
@pytest.mark.parametrize("model_class", [GPT1ForCausalLM, GPT1DoubleHeadsModel])
def test_ids_and_embeddings_at_once_or_neither_are_refused(tiny_model, model_class, inputs):
    message = refusal(tiny_model(model_class), **inputs)
    assert message == "Exactly one of `input_ids` and `inputs_embeds` is needed."


@pytest.mark.parametrize("model_class", CLASSES)
def test_a_configuration_that_asks_for_tuples_gets_them(tiny_model, model_class):
    model = tiny_model(model_class)
    input_ids = random_ids(2, 2, 3) if model_class is GPT1ForMultipleChoice else random_ids(2, 3)
    expected = model(input_ids)
    model.config.return_dict = False
    outputs = model(input_ids)
    assert isinstance(outputs, tuple)
    assert torch.equal(outputs[0], expected[0])


def enable_checkpointing(model, use_reentrant):
    """By the name that this release of transformers prefers; for `None` by its older name."""
    if use_reentrant is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return model.gradient_checkpointing_enable()
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


@pytest.mark.parametrize("use_reentrant", [True, False, None])
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
    assert model.eval()(random_ids(1, 4)).past_key_values.get_seq_length() == 4


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_leaves_an_empty_cache_empty_and_its_gradients_are_the_same(tiny_model, use_reentrant):
    """Blocks that wrote into it would write once more in the backward pass."""
    input_ids = random_ids(2, 6)
    attention_mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    gradients = []
    for is_checkpointed in (False, True):
        model = tiny_model(GPT1ForCausalLM).train()
        inputs_embeds = model.get_input_embeddings()(input_ids).detach().requires_grad_()
        inputs = {"inputs_embeds": inputs_embeds, "attention_mask": attention_mask, "labels": input_ids}
        if is_checkpointed:
            enable_checkpointing(model, use_reentrant)
            inputs["past_key_values"] = DynamicCache(config=model.config)
        model(**inputs).loss.backward()
        gradients.append(inputs_embeds.grad)
    assert inputs["past_key_values"].get_seq_length() == 0
    close(gradients[1], gradients[0], 1e-6)


@pytest.mark.parametrize("model_class", [GPT1ForCausalLM, GPT1LSTMForCausalLM])
def test_trainers_smoothed_loss_is_that_of_the_next_token(tiny_model, tmp_path, model_class):
    """Trainer shifts the labels of the language models that it knows by name, and else teaches a model to copy."""
    model = tiny_model(model_class)
    args = TrainingArguments(str(tmp_path), label_smoothing_factor=0.1, report_to="none", use_cpu=True)
    input_ids = random_ids(2, 6)
    loss = Trainer(model, args).compute_loss(model, {"input_ids": input_ids, "labels": input_ids.clone()})
    logits = model(input_ids).logits[:, :-1]
    expected = nn.functional.cross_entropy(logits.flatten(0, 1), input_ids[:, 1:].flatten(), label_smoothing=0.1)
    close(loss, expected, 1e-6)


@pytest.mark.parametrize("model_class", [GPT1ForCausalLM, GPT1LSTMForCausalLM])
def test_a_subclass_of_any_name_trains_on_the_mean_over_its_targets(tiny_model, tmp_path, model_class):
    """Trainer counts the targets of an update by the class's name, if the model does not say what its loss is."""

    class Storyteller(model_class):
        pass

    model, ids = tiny_model(Storyteller), random_ids(8, 5)
    args = TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        num_train_epochs=1,
        learning_rate=0,
        report_to="none",
        use_cpu=True,
    )
    expected = model(ids, labels=ids).loss.item()
    trained = Trainer(model, args, train_dataset=[{"input_ids": row, "labels": row} for row in ids]).train()
    assert trained.training_loss == pytest.approx(expected, rel=1e-5)


def test_a_configuration_that_has_become_impossible_is_refused(tiny_config):
    config = tiny_config()
    config.num_attention_heads = 3
    assert "`hidden_size` (32), `num_attention_heads` (3)" in refusal(GPT1ForCausalLM, config)


def test_an_unknown_activation_is_refused(tiny_model):
    message = refusal(tiny_model, GPT1ForCausalLM, hidden_act="gelu_tanh")
    assert "`hidden_act` is 'gelu_tanh', but it must be one of transformers' activations: " in message
    assert " gelu_pytorch_tanh, " in message


def test_checkpointing_behind_preceding_tokens_is_refused(tiny_model):
    model = tiny_model(GPT1ForCausalLM)
    with torch.no_grad():
        cache = model(random_ids(2, 5)).past_key_values
    enable_checkpointing(model.train(), False)
    message = refusal(model, random_ids(2, 3), past_key_values=cache)
    assert "The cache holds 5 tokens" in message
    assert "`model.gradient_checkpointing_disable()`" in message
    with torch.no_grad():
        assert model(random_ids(2, 3), past_key_values=cache).logits.shape == (2, 3, 101)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("model_class", [GPT1ForCausalLM, GPT1DoubleHeadsModel])
def test_resized_embeddings_stay_tied_as_they_were(tiny_model, model_class, tied, tmp_path):
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
    if model_class is GPT1ForCausalLM:
        assert type(AutoModelForCausalLM.from_pretrained(tmp_path)) is GPT1ForCausalLM
        base = AutoModel.from_pretrained(tmp_path)
        assert type(base) is GPT1Model
        assert torch.equal(base.h[1].ln_2.weight, model.transformer.h[1].ln_2.weight)
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


def test_a_folder_in_half_precision_opens_in_half_precision(tiny_model, tmp_path):
    tiny_model(GPT1ForCausalLM).to(torch.bfloat16).save_pretrained(tmp_path)
    loaded = GPT1ForCausalLM.from_pretrained(tmp_path)
    assert {weight.dtype for weight in loaded.parameters()} == {torch.bfloat16}
    input_ids = random_ids(2, 5)
    logits = loaded(input_ids).logits
    assert logits.dtype == torch.bfloat16
    widened = GPT1ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert {weight.dtype for weight in widened.parameters()} == {torch.float32}
    assert (logits.float() - widened(input_ids).logits).norm() < 0.05 * widened(input_ids).logits.norm()
    loss = loaded.train()(input_ids, labels=input_ids).loss
    loss.backward()
    assert loss.dtype == torch.float32
    assert {weight.grad.dtype for weight in loaded.parameters()} == {torch.bfloat16}
    assert not any(weight.grad.isnan().any() for weight in loaded.parameters())


def test_a_model_keeps_a_copy_of_the_configuration(tiny_config):
    """A class that fills in its traversal leaves the caller's configuration alone."""
    config = tiny_config()
    before = copy.deepcopy(config.to_dict())
    assert GPT1ForMultipleChoice(config).config.traversal == "multiple_choice"
    assert GPT1DoubleHeadsModel(config).config.traversal == "classification"
    assert config.to_dict() == before


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_dropout_is_at_the_papers_places(tiny_model, implementation):
    """With everything dropped at one place, what is left is known; in evaluation nothing is dropped."""
    input_ids = random_ids(2, 6)
    whole = tiny_model(GPT1Model, num_hidden_layers=1)(input_ids).last_hidden_state

    def state(**dropout):
        model = tiny_model(GPT1Model, num_hidden_layers=1, **dropout)
        model.set_attn_implementation(implementation)
        close(model(input_ids).last_hidden_state, whole)
        model.train()
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
