"""The chunked language-modelling loss against the plain formula, and the weights and targets that go into it."""

import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM, loss_gpt1
from modeling_gpt1.loss_gpt1 import linear_cross_entropy, span_loss, task_loss, task_losses, token_loss
from modeling_gpt1.packing_gpt1 import next_tokens, predicted_places

VOCABULARY, HIDDEN = 53, 16


def loss_only(hidden_states, weight, target_ids, target_weights):
    return linear_cross_entropy(hidden_states, weight, target_ids, target_weights)[0]


def plain_formula(hidden_states, weight, target_ids, target_weights):
    logits = nn.functional.linear(hidden_states, weight).float()
    return (nn.functional.cross_entropy(logits, target_ids, reduction="none") * target_weights).sum()


def plain_formula_in_float64(hidden_states, weight, target_ids, target_weights):
    log_probabilities = torch.log_softmax(hidden_states.double() @ weight.double().T, dim=-1)
    return -(log_probabilities[torch.arange(len(target_ids)), target_ids] * target_weights.double()).sum()


def make_inputs(num_targets=23, dtype=torch.float32, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    hidden_states = torch.randn(num_targets, HIDDEN, generator=generator, dtype=torch.float64) * scale
    weight = torch.randn(VOCABULARY, HIDDEN, generator=generator, dtype=torch.float64)
    target_ids = torch.randint(VOCABULARY, (num_targets,), generator=generator)
    return hidden_states.to(dtype), weight.to(dtype), target_ids, torch.rand(num_targets, generator=generator)


def loss_and_gradients(function, hidden_states, weight, *others, factor=1.0):
    hidden_states, weight = hidden_states.clone().requires_grad_(), weight.clone().requires_grad_()
    loss = function(hidden_states, weight, *others)
    (factor * loss).backward()
    return loss.detach(), hidden_states.grad, weight.grad


def relative_error(actual, expected):
    return ((actual.double() - expected.double()).norm() / expected.double().norm()).item()


@pytest.fixture
def chunks_of(monkeypatch):
    """Sets how many tokens a chunk has at most, in float32."""

    def set_chunk(num_tokens, vocabulary=VOCABULARY):
        monkeypatch.setattr(loss_gpt1, "CHUNK_BYTES", 4 * num_tokens * vocabulary)

    return set_chunk


@pytest.mark.parametrize("num_tokens", [1, 5, 22, 23, 24, 1000])
def test_loss_and_gradients_are_the_plain_formula(chunks_of, num_tokens):
    """23 targets: chunks of at most 5 and 22 tokens are not of one length."""
    chunks_of(num_tokens)
    inputs = make_inputs()
    exact = loss_and_gradients(plain_formula_in_float64, *inputs, factor=0.7)
    ours = loss_and_gradients(loss_only, *inputs, factor=0.7)
    assert [relative_error(*pair) < 1e-6 for pair in zip(ours, exact, strict=True)] == [True] * 3
    assert ours[0].dtype == torch.float32
    assert all(torch.equal(*pair) for pair in zip(inputs, make_inputs(), strict=True))  # left as they were


def test_large_logits_are_as_exact_as_in_the_plain_formula(chunks_of):
    """Logits of ±300, whose exponentials overflow."""
    chunks_of(5)
    inputs = make_inputs(scale=30.0)
    exact = loss_and_gradients(plain_formula_in_float64, *inputs)
    for function in (plain_formula, loss_only):
        errors = [relative_error(*pair) for pair in zip(loss_and_gradients(function, *inputs), exact, strict=True)]
        assert max(errors) < 1e-6


def test_the_comparison_sees_a_wrong_target_and_a_lost_chunk(chunks_of):
    chunks_of(5)
    hidden_states, weight, target_ids, target_weights = make_inputs()
    exact = loss_and_gradients(plain_formula_in_float64, hidden_states, weight, target_ids, target_weights)
    wrong_ids = target_ids.clone()
    wrong_ids[20] = (wrong_ids[20] + 1) % VOCABULARY
    wrong = loss_and_gradients(loss_only, hidden_states, weight, wrong_ids, target_weights)
    lost = loss_and_gradients(loss_only, hidden_states, weight, target_ids, target_weights * (torch.arange(23) < 20))
    for other in (wrong, lost):
        assert [relative_error(*pair) > 1e-4 for pair in zip(other, exact, strict=True)] == [True] * 3


def test_gradients_pass_gradcheck_in_float64(chunks_of):
    chunks_of(2)
    hidden_states, weight, target_ids, target_weights = make_inputs(num_targets=5, dtype=torch.float64)
    inputs = (hidden_states.requires_grad_(), weight.requires_grad_())
    assert torch.autograd.gradcheck(lambda *given: loss_only(*given, target_ids, target_weights), inputs)
    assert loss_only(*inputs, target_ids, target_weights).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_as_near_to_the_truth_as_the_plain_formula(chunks_of, dtype):
    """Half precision: both are off by the rounding of inputs and logits, ours by no more than 1.1 times as much."""
    chunks_of(5)
    inputs = make_inputs()

    def under_autocast(function):
        with torch.autocast("cpu", dtype=dtype):
            return loss_and_gradients(function, *inputs)

    exact = loss_and_gradients(plain_formula_in_float64, *inputs)
    plain, ours = under_autocast(plain_formula), under_autocast(loss_only)
    assert [tensor.dtype for tensor in ours] == [torch.float32] * 3
    plain_errors = [relative_error(*pair) for pair in zip(plain, exact, strict=True)]
    our_errors = [relative_error(*pair) for pair in zip(ours, exact, strict=True)]
    assert [ours <= 1.1 * plain + 1e-4 for ours, plain in zip(our_errors, plain_errors, strict=True)] == [True] * 3
    assert max(our_errors) < 0.01
    assert min(our_errors[1:]) > 1e-6  # the products did run in half precision


def test_what_memory_held_before_reaches_no_gradient():
    """With AMX, oneDNN multiplies what lies behind the rows of logits by 0: a NaN there made gradients of 32 NaN."""
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN
    try:
        buffer = loss_gpt1._logits_buffer(torch.ones(86, HIDDEN), torch.ones(101, HIDDEN), torch.bfloat16)
        inputs = torch.randn(86, 32), torch.randn(101, 32), torch.arange(86), torch.ones(86)
        with torch.autocast("cpu", torch.bfloat16):
            loss, *gradients = loss_and_gradients(loss_only, *inputs)
    finally:
        torch.use_deterministic_algorithms(False)
    rows = buffer.as_strided((86, buffer.stride(0)), buffer.stride())
    assert rows[:, :101].isnan().all()
    assert (rows[:, 101:] == 0).all()
    assert all(tensor.isfinite().all() for tensor in (loss, *gradients))


def test_the_weights_gradient_in_parts_is_the_whole_in_half_precision(chunks_of, monkeypatch):
    chunks_of(5)
    with torch.autocast("cpu", torch.bfloat16):
        whole = loss_and_gradients(loss_only, *make_inputs())
        monkeypatch.setattr(loss_gpt1, "GRADIENT_ROWS", 10)  # 53 rows: five parts and a ragged one
        parts = loss_and_gradients(loss_only, *make_inputs())
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_the_chunks_memory_held_before_does_not_matter(chunks_of, dtype):
    chunks_of(5)
    inputs = make_inputs(dtype=dtype)
    expected = loss_and_gradients(loss_only, *inputs)
    torch.use_deterministic_algorithms(True)  # fills fresh memory with NaN
    try:
        assert torch.empty(3).isnan().all()
        actual = loss_and_gradients(loss_only, *inputs)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(actual, expected, atol=0, rtol=0)


def test_scaled_loss_keeps_small_gradients_in_float16():
    """Loss scaling must reach the products: the probabilities times the weights here are below float16's smallest."""
    generator = torch.Generator().manual_seed(0)
    hidden_states = torch.randn(64, HIDDEN, generator=generator) * 0.1
    weight = torch.randn(4096, HIDDEN, generator=generator) * 0.1
    target_ids = torch.randint(4096, (64,), generator=generator)
    inputs = (hidden_states, weight, target_ids, torch.full((64,), 1e-4))
    exact = loss_and_gradients(plain_formula_in_float64, *inputs)

    def error_of(function):
        with torch.autocast("cpu", dtype=torch.float16):
            scaled = loss_and_gradients(function, *inputs, factor=2.0**14)
        return [relative_error(gradient / 2**14, true) for gradient, true in zip(scaled[1:], exact[1:], strict=True)]

    assert max(error_of(plain_formula)) < 0.01
    assert max(error_of(loss_only)) < 0.01
    narrow, scale = [hidden_states.half(), weight.half(), target_ids, torch.full((64,), 1.0)], 2.0**16
    found = loss_and_gradients(
        lambda *given: linear_cross_entropy(*given, 2.0**-14)[0] * 2.0**-14, *narrow, factor=scale
    )
    assert [gradient.dtype for gradient in found[1:]] == [torch.float16] * 2
    for gradient, true in zip(found[1:], exact[1:], strict=True):
        assert relative_error(gradient / scale * 2**14 / 1e4, true) < 0.03


def test_the_loss_in_half_precision_is_near_the_exact_one(chunks_of):
    chunks_of(5)
    inputs = make_inputs(dtype=torch.bfloat16)
    exact = loss_and_gradients(plain_formula_in_float64, *inputs)
    ours = loss_and_gradients(loss_only, *inputs)
    assert [tensor.dtype for tensor in ours] == [torch.float32, torch.bfloat16, torch.bfloat16]
    assert [relative_error(*pair) < 0.01 for pair in zip(ours, exact, strict=True)] == [True] * 3


def test_without_targets_the_loss_and_its_gradient_are_0():
    loss, hidden_grad, weight_grad = loss_and_gradients(loss_only, *make_inputs(num_targets=0))
    assert loss.item() == 0
    assert hidden_grad.shape == (0, HIDDEN)
    assert torch.equal(weight_grad, torch.zeros(VOCABULARY, HIDDEN))


def test_weights_of_zero_leave_tokens_out(chunks_of):
    chunks_of(5)
    hidden_states, weight, target_ids, target_weights = make_inputs()
    target_weights[::3] = 0
    loss, hidden_grad, weight_grad = loss_and_gradients(loss_only, hidden_states, weight, target_ids, target_weights)
    kept = target_weights != 0
    part = loss_and_gradients(loss_only, hidden_states[kept], weight, target_ids[kept], target_weights[kept])
    torch.testing.assert_close(loss, part[0])
    torch.testing.assert_close(hidden_grad[kept], part[1])
    torch.testing.assert_close(weight_grad, part[2])
    assert torch.count_nonzero(hidden_grad[~kept]) == 0


@pytest.mark.parametrize("trained", ["hidden_states", "weight"])
def test_a_frozen_side_gets_no_gradient(trained, monkeypatch):
    """Nothing is computed or kept for it."""
    hidden_states, weight, *others = make_inputs()
    exact = loss_and_gradients(plain_formula_in_float64, hidden_states, weight, *others)
    leaf, frozen = (hidden_states, weight) if trained == "hidden_states" else (weight, hidden_states)
    leaf.requires_grad_()
    add, added, kept = loss_gpt1._accumulate, [], []
    monkeypatch.setattr(loss_gpt1, "_accumulate", lambda *args, **kwargs: added.append(add(*args, **kwargs)))
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.shape) or tensor, lambda x: x):
        loss = loss_only(hidden_states, weight, *others)
    assert kept == [leaf.shape, ()]  # and the expected gradient
    assert bool(added) is (trained == "weight")
    loss.backward()
    assert frozen.grad is None
    assert relative_error(leaf.grad, exact[1 if trained == "hidden_states" else 2]) < 1e-6


@pytest.mark.parametrize("power", [1, 2])
def test_gradient_of_a_gradient_is_refused(power):
    """Without this a loss as it is, whose own gradient is no variable, gave second derivatives that were wrong."""
    hidden_states, *others = make_inputs()
    hidden_states.requires_grad_()
    loss = loss_only(hidden_states, *others) ** power
    with pytest.raises(RuntimeError, match="has no second derivative. Take `logits` for one .`skip_logits=False`"):
        torch.autograd.grad(loss, hidden_states, create_graph=True)
    assert torch.autograd.grad(loss_only(hidden_states, *others), hidden_states)[0].abs().sum() > 0


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_gives_the_same_gradients(use_reentrant):
    def inside(*inputs):
        return checkpoint(loss_only, *inputs, use_reentrant=use_reentrant)

    inputs = make_inputs()
    outside = loss_and_gradients(loss_only, *inputs)
    for actual, expected in zip(loss_and_gradients(inside, *inputs), outside, strict=True):
        assert torch.equal(actual, expected)


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation makes."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return made


@pytest.mark.parametrize("function, largest", [(loss_only, VOCABULARY * HIDDEN), (plain_formula, VOCABULARY * 200)])
@pytest.mark.parametrize("autocast", [False, True])
def test_the_logits_of_all_targets_never_exist(chunks_of, function, largest, autocast):
    """The largest tensor is the weight's gradient; the plain formula makes [N, V]."""
    chunks_of(5)
    inputs = make_inputs(num_targets=200)
    with LargestTensor() as recorded, torch.autocast("cpu", enabled=autocast):
        loss_and_gradients(function, *inputs)
    assert recorded.elements == max(largest, 200 * HIDDEN)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_parts_of_the_softmax_do_not_matter(chunks_of, monkeypatch, dtype):
    chunks_of(10)
    whole = loss_and_gradients(loss_only, *make_inputs(dtype=dtype))
    monkeypatch.setattr(loss_gpt1, "SOFTMAX_ELEMENTS", 3 * 64)  # chunks of 8 and 7 targets in parts of 3
    torch.testing.assert_close(loss_and_gradients(loss_only, *make_inputs(dtype=dtype)), whole, atol=0, rtol=0)


def scaled_loss(expected_grad):
    def function(*inputs):
        return linear_cross_entropy(*inputs, expected_grad)[0]

    return function


@pytest.mark.parametrize("expected_grad", [1.0, 0.7, torch.tensor(0.7), torch.tensor(3.0)])
def test_the_expected_gradient_changes_no_result(expected_grad):
    inputs = make_inputs()
    exact = loss_and_gradients(plain_formula_in_float64, *inputs, factor=0.7)
    ours = loss_and_gradients(scaled_loss(expected_grad), *inputs, factor=0.7)
    assert [relative_error(*pair) < 1e-6 for pair in zip(ours, exact, strict=True)] == [True] * 3


class NewTensors(TorchDispatchMode):
    """Counts the operations that make a tensor of one size in new memory."""

    def __init__(self, elements):
        super().__init__()
        self.elements, self.number = elements, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {tensor.untyped_storage().data_ptr() for tensor in args if isinstance(tensor, torch.Tensor)}
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.numel() == self.elements:
            self.number += made.untyped_storage().data_ptr() not in given
        return made


@pytest.mark.parametrize(("factor", "number"), [(1.0, 3), (3.0, 4)])
def test_the_models_loss_makes_one_gradient_of_the_head(tiny_model, factor, number):
    """The others are the embedding's and their sum, which is in place unless operations are recorded.

    A loss that is multiplied afterwards is the control: it needs another.
    """
    model = tiny_model(GPT1ForCausalLM, vocab_size=990, num_hidden_layers=1).train()
    input_ids = torch.randint(990, (3, 9), generator=torch.Generator().manual_seed(0))
    with NewTensors(990 * 32) as made:
        (model(input_ids, labels=input_ids).loss * factor).backward()
    assert made.number == number


@pytest.mark.parametrize("resized", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("fused", [True, False])
def test_the_model_does_not_hold_all_logits_in_training(tiny_model, chunks_of, tied, resized, fused):
    """A plain head in place of the model's own is the control: it does hold them."""
    chunks_of(4, vocabulary=1000)
    model = tiny_model(GPT1ForCausalLM, vocab_size=990, num_hidden_layers=1, tie_word_embeddings=tied).train()
    if resized:
        model.resize_token_embeddings(1000)
    if not fused:
        head = nn.Linear(32, model.config.vocab_size, bias=False)
        head.weight = model.lm_head.weight
        model.lm_head = head
    input_ids = torch.randint(990, (8, 24), generator=torch.Generator().manual_seed(0))
    with LargestTensor() as recorded:
        model(input_ids, labels=input_ids).loss.backward()
    vocabulary = model.config.vocab_size
    assert recorded.elements == (vocabulary * 32 if fused else 8 * 23 * vocabulary)


@pytest.mark.parametrize("amp", [False, True])
def test_a_replaced_head_gives_the_same_loss(tiny_model, amp):
    """As an adapter or a quantiser leaves it: a module that gives logits only."""
    input_ids = torch.randint(101, (3, 9), generator=torch.Generator().manual_seed(1))
    labels = input_ids.masked_fill(torch.arange(9) < torch.tensor([[0], [2], [7]]), -100)
    losses, gradients = [], []
    for replaced in (False, True):
        model = tiny_model(GPT1ForCausalLM).train()
        if replaced:
            model.lm_head = nn.Sequential(model.lm_head)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            loss = model(input_ids, labels=labels).loss
        loss.backward()
        assert loss.dtype == torch.float32
        losses.append(loss.item())
        gradients.append(model.transformer.tokens_embed.weight.grad)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert relative_error(*gradients) < (0.01 if amp else 1e-6)


def test_a_replaced_head_in_half_precision_gives_the_loss_in_float32(tiny_model):
    input_ids = torch.randint(101, (3, 9), generator=torch.Generator().manual_seed(1))
    model = tiny_model(GPT1ForCausalLM).to(torch.bfloat16)
    expected = model(input_ids, labels=input_ids).loss
    model.lm_head = nn.Sequential(model.lm_head)
    torch.testing.assert_close(model(input_ids, labels=input_ids).loss, expected, rtol=1e-5, atol=0)


def test_a_graph_has_a_power_of_two_of_chunks(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    sizes = {rows: [len(range(rows)[chunk]) for chunk in loss_gpt1._chunks(rows, 20)] for rows in (28, 32, 92)}
    assert sizes == {28: [28], 32: [16, 16], 92: [23, 23, 23, 23]}


def test_a_target_after_padding_within_a_sequence_is_predicted_by_the_token_before_the_padding():
    input_ids = torch.tensor([[0, 5, 6, 0, 0, 7, 8, 0]])
    attention_mask = torch.tensor([[0, 1, 1, 0, 0, 1, 1, 0]])
    is_target = next_tokens(input_ids, attention_mask)
    assert is_target.int().tolist() == [[0, 0, 1, 0, 0, 1, 1, 0]]
    places, sources = predicted_places(attention_mask.bool(), is_target)
    assert places.tolist() == [2, 5, 6]
    assert sources.tolist() == [1, 2, 5]
    places, sources = predicted_places(None, torch.tensor([[0, 1, 1], [0, 1, 0]]))
    assert places.tolist() == [1, 2, 4]
    assert sources.tolist() == [0, 1, 3]


def test_task_losses_of_classes_and_choices_are_cross_entropies():
    """A choice of −∞ is absent, and has no gradient."""
    task_logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])
    losses = task_losses(task_logits, torch.tensor([1, 0]), GPT1Config())
    torch.testing.assert_close(losses, torch.tensor([math.log(4 / 3), math.log(2)]))
    task_logits = torch.tensor([[1.0, 1.0, float("-inf")]], requires_grad=True)
    losses = task_losses(task_logits, torch.tensor([0]), GPT1Config())
    torch.testing.assert_close(losses, torch.tensor([math.log(2)]))
    losses.sum().backward()
    assert task_logits.grad.tolist() == [[-0.5, 0.5, 0.0]]


def test_a_label_of_minus_100_among_several_is_left_out():
    task_logits = torch.tensor([[0.0, math.log(3.0)], [math.log(3.0), 0.0], [1.0, 1.0]], requires_grad=True)
    labels = torch.tensor([[-100.0, 1.0], [0.0, 0.0], [-100.0, -100.0]])
    config = GPT1Config(problem_type="multi_label_classification")
    losses = task_losses(task_logits, labels, config)
    torch.testing.assert_close(losses, torch.tensor([math.log(4 / 3), (math.log(4) + math.log(2)) / 2, 0.0]))
    loss = task_loss(task_logits, labels, config, None)
    torch.testing.assert_close(loss, torch.tensor((math.log(4 / 3) + math.log(4) + math.log(2)) / 3))
    assert task_loss(task_logits, labels, config, torch.tensor(6)) == loss / 2
    loss.backward()
    assert (task_logits.grad == 0).tolist() == [[True, False], [False, False], [True, True]]


def test_task_losses_of_regression_are_squared_errors_and_a_missing_number_costs_nothing():
    config = GPT1Config(problem_type="regression", num_labels=1, traversal="classification")
    assert task_losses(torch.tensor([[1.5], [3.0]]), torch.tensor([-100.0, 2.0]), config).tolist() == [0.0, 1.0]
    assert task_losses(torch.tensor([[1.5], [-1.0]]), torch.tensor([2, 1]), config).tolist() == [0.25, 4.0]
    assert task_losses(torch.tensor([[1.5]], dtype=torch.bfloat16), torch.tensor([2.0]), config).dtype == torch.float32


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda scores: task_losses(scores, torch.tensor([2, 0]), GPT1Config()),
        lambda scores: task_losses(
            scores,
            torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
            GPT1Config(problem_type="multi_label_classification"),
        ),
        lambda scores: token_loss(scores[None], torch.tensor([[2, 0]]), None),
        lambda scores: span_loss(scores, torch.tensor([2, 0]), None),
    ],
    ids=["classes", "several labels", "tokens", "answers"],
)
def test_losses_of_scores_in_half_precision_are_computed_in_float32(loss_of):
    scores = torch.tensor([[1.5, -0.25, 0.75], [0.5, 2.0, -1.0]])  # exact in both
    torch.testing.assert_close(loss_of(scores.bfloat16()), loss_of(scores), rtol=0, atol=0)


def test_without_gradients_none_is_computed(monkeypatch):
    monkeypatch.setattr(loss_gpt1, "_accumulate", None)
    hidden_states, weight = torch.randn(4, 8, requires_grad=True), torch.randn(9, 8, requires_grad=True)
    with torch.no_grad():
        linear_cross_entropy(hidden_states, weight, torch.arange(4), torch.ones(4))


@pytest.mark.parametrize("amp", [False, True])
def test_causal_lm_loss_is_the_mean_over_targets(tiny_model, amp):
    """The same in evaluation with logits and in training without; to 2 % under autocast."""
    model = tiny_model(GPT1ForCausalLM)
    input_ids = torch.randint(101, (3, 9), generator=torch.Generator().manual_seed(1))
    labels = input_ids.masked_fill(torch.arange(9) < torch.tensor([[0], [2], [7]]), -100)
    logits = model(input_ids).logits.double()
    expected = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    with torch.autocast("cpu", dtype=torch.bfloat16) if amp else nullcontext():
        in_evaluation = model(input_ids, labels=labels)
        in_training = model.train()(input_ids, labels=labels)
    assert in_evaluation.logits.shape == (3, 9, 101)
    assert in_training.logits is None
    for loss in (in_evaluation.loss, in_training.loss):
        assert math.isclose(loss.item(), expected.item(), rel_tol=0.02 if amp else 1e-6)
    halved = model(input_ids, labels=labels, num_items_in_batch=2 * (labels[:, 1:] != -100).sum()).loss
    if not amp:
        summed = model(input_ids, labels=labels, num_items_in_batch=1).loss
        torch.testing.assert_close(summed, in_training.loss * (labels[:, 1:] != -100).sum())
        torch.testing.assert_close(halved * 2, in_training.loss)


@pytest.mark.parametrize(("vocab_size", "num_targets"), [(40_478, 414), (50_257, 333), (150_000, 223)])
def test_a_chunk_has_hundreds_of_targets_for_large_vocabularies_too(vocab_size, num_targets):
    weight = torch.empty(1, 1).expand(vocab_size, 1)
    assert loss_gpt1._chunk_size(weight, torch.float32, torch.float32) == num_targets
