"""The task models: L3 against a naive float64 formula, its invariances, shapes, the shared dropout, checkpoints."""

from dataclasses import dataclass

import pytest
import torch
from support.packing import DELIMITER, EXTRACT, START, pad
from support.refusals import refusal
from transformers import AutoModelForMultipleChoice, AutoModelForSequenceClassification

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM, GPT1ForMultipleChoice, GPT1ForSequenceClassification
from modeling_gpt1.modeling_gpt1 import GPT1TaskHead


@dataclass
class Example:
    sequences: list[list[int]]
    label: int | float


@dataclass
class Kind:
    """A kind of task: the configuration's fields and how many sequences the i-th example has."""

    fields: dict
    num_sequences: tuple[int, ...]


KINDS = {
    "classification": Kind({"traversal": "classification", "num_labels": 3}, (1,)),
    "entailment": Kind({"traversal": "entailment", "num_labels": 3}, (1,)),
    "similarity": Kind({"traversal": "similarity", "num_labels": 2}, (2,)),
    "regression": Kind({"traversal": "similarity", "num_labels": 1}, (2,)),
    "multiple_choice": Kind({"traversal": "multiple_choice"}, (3,)),
    "ragged_multiple_choice": Kind({"traversal": "multiple_choice"}, (2, 4, 1, 3)),
}


def make_examples(kind: str, number: int = 8) -> list[Example]:
    """Sequences of 3 to 12 tokens, so that every micro-batch has a padding of its own."""
    generator = torch.Generator().manual_seed(0)
    examples = []
    for index in range(number):
        sequences = []
        for _ in range(KINDS[kind].num_sequences[index % len(KINDS[kind].num_sequences)]):
            length = int(torch.randint(1, 11, (), generator=generator))
            sequences.append([START, *torch.randint(1, 98, (length,), generator=generator).tolist(), EXTRACT])
        classes = len(sequences) if "choice" in kind else KINDS[kind].fields.get("num_labels", 2)
        label = 0.7 * index - 2 if kind == "regression" else index % classes
        examples.append(Example(sequences, label))
    return examples


def collate(examples: list[Example], side: str = "right", extra: int = 0) -> dict[str, torch.Tensor]:
    """`[B, C, T]` tensors with `extra` columns of padding; absent choices are fully masked, if there are any."""
    batch = pad([example.sequences for example in examples], side, extra)
    batch["labels"] = torch.tensor([example.label for example in examples])
    if batch["choice_mask"].all():
        del batch["choice_mask"]
    return batch


def naive_losses(model: GPT1DoubleHeadsModel, examples: list[Example]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """L2 and L1 / C of each example, in float64, one sequence at a time, with the whole logits."""
    traversal, head = model.config.traversal, model.task_head.score
    losses = []
    for example in examples:
        scores, sequence_losses = [], []
        for sequence in example.sequences:
            ids = torch.tensor(sequence)
            hidden_states = model.transformer(ids[None], use_cache=False).last_hidden_state[0]  # [T, D]
            log_probabilities = torch.log_softmax(hidden_states @ model.lm_head.weight.T, dim=-1)
            token_losses = [-log_probabilities[t, ids[t + 1]] for t in range(len(ids) - 1)]
            sequence_losses.append(sum(token_losses) / len(token_losses))
            scores.append(hidden_states[-1])
        if traversal == "multiple_choice":
            task_logits = torch.stack([head.weight[0] @ state + head.bias[0] for state in scores])
        else:
            task_logits = head.weight @ sum(scores) + head.bias
        if model.config.num_labels == 1 and traversal != "multiple_choice":
            task_loss = (task_logits[0] - example.label) ** 2
        else:
            task_loss = -torch.log_softmax(task_logits, dim=-1)[example.label]
        losses.append((task_loss, sum(sequence_losses) / len(sequence_losses)))
    return losses


def gradients_of(model) -> dict[str, torch.Tensor]:
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return gradients


def relative_error(actual: dict, expected: dict) -> float:
    """Of all gradients as one vector."""
    assert actual.keys() == expected.keys()
    flat = [torch.cat([side[name].double().flatten() for name in expected]) for side in (actual, expected)]
    return ((flat[0] - flat[1]).norm() / flat[1].norm()).item()


@pytest.mark.parametrize(("lm_coef", "side"), [(0, "right"), (0.5, "left")])
@pytest.mark.parametrize("kind", KINDS)
def test_l3_and_its_gradient_are_the_naive_formula(tiny_model, kind, lm_coef, side):
    model = tiny_model(GPT1DoubleHeadsModel, lm_coef=lm_coef, **KINDS[kind].fields).train()
    examples = make_examples(kind)
    batch = collate(examples, side, extra=3)
    if side == "left":
        del batch["mc_token_ids"]  # the last real token
    outputs = model(**batch)
    outputs.loss.backward()
    ours = gradients_of(model)

    exact = tiny_model(GPT1DoubleHeadsModel, lm_coef=lm_coef, **KINDS[kind].fields).double()
    losses = naive_losses(exact, examples)
    task_loss = sum(task for task, _ in losses) / len(examples)
    lm_loss = sum(lm for _, lm in losses) / len(examples)
    loss = task_loss + lm_coef * lm_loss
    loss.backward()
    expected = gradients_of(exact)

    assert abs(outputs.loss.item() / loss.item() - 1) < 1e-5
    assert abs(outputs.task_loss.item() / task_loss.item() - 1) < 1e-5
    if lm_coef:
        assert abs(outputs.lm_loss.item() / lm_loss.item() - 1) < 1e-5
    else:
        assert outputs.lm_loss is None
    assert relative_error(ours, expected) < 1e-5
    assert abs(outputs.loss.item() / (task_loss.item() + 0.6 * lm_loss.item()) - 1) > 1e-2


@pytest.mark.parametrize("fault", ["mean over all tokens", "C counts absent choices", "first token is a target"])
def test_the_formula_sees_another_normalisation(tiny_model, fault):
    """The control of the test above, on the auxiliary loss of ragged choices."""
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["ragged_multiple_choice"].fields)
    examples = make_examples("ragged_multiple_choice")
    exact = sum(lm for _, lm in naive_losses(model, examples)) / 8
    batch = collate(examples)
    assert abs(model(**batch).lm_loss.item() / exact.item() - 1) < 1e-5
    if fault == "mean over all tokens":
        losses = [naive_losses(model, [Example([s], 0)])[0][1] * (len(s) - 1) for e in examples for s in e.sequences]
        wrong = sum(losses) / sum(len(s) - 1 for e in examples for s in e.sequences)
    elif fault == "C counts absent choices":
        pairs = zip(naive_losses(model, examples), examples, strict=True)
        wrong = sum(lm * len(e.sequences) / 4 for (_, lm), e in pairs) / 8
    else:
        batch["attention_mask"] = torch.ones_like(batch["attention_mask"])
        wrong = model(**batch).lm_loss
    assert abs(wrong.item() / exact.item() - 1) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_loss_does_not_depend_on_how_the_batch_is_cut_and_padded(tiny_model, kind):
    """8 examples at once, 2 x 4 and 8 x 1 with N = 8, each micro-batch at a padding of its own."""
    examples = make_examples(kind)

    def accumulated(size, side):
        model = tiny_model(GPT1DoubleHeadsModel, **KINDS[kind].fields).train()
        parts = {"loss": 0.0, "task_loss": 0.0, "lm_loss": 0.0}
        for number, start in enumerate(range(0, 8, size)):
            outputs = model(**collate(examples[start : start + size], side, extra=number % 3), num_items_in_batch=8)
            outputs.loss.backward()
            for name in parts:
                parts[name] += outputs.get(name, torch.zeros(())).item()
        return parts, gradients_of(model)

    whole, whole_gradients = accumulated(8, "right")
    assert whole["loss"] == pytest.approx(whole["task_loss"] + 0.5 * whole["lm_loss"], rel=1e-6)
    for size, side in ((8, "left"), (2, "right"), (2, "left"), (1, "right"), (4, "left")):
        parts, gradients = accumulated(size, side)
        assert parts == pytest.approx(whole, rel=1e-5, abs=1e-9)
        assert relative_error(gradients, whole_gradients) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_example_losses_are_those_of_each_example_alone(tiny_model, kind):
    """L2, L1 / C and the one label of each example, whatever it was batched with; none in training."""
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS[kind].fields)
    examples = make_examples(kind)
    outputs = model(**collate(examples, extra=2))
    expected = torch.stack([torch.stack(pair) for pair in naive_losses(model, examples)])
    torch.testing.assert_close(outputs.example_losses[:, :2], expected, rtol=1e-5, atol=1e-5)
    assert outputs.example_losses[:, 2].tolist() == [1] * len(examples)
    assert not outputs.example_losses.requires_grad
    task_loss, lm_loss, _ = outputs.example_losses.mean(0)
    torch.testing.assert_close(task_loss, outputs.task_loss)
    torch.testing.assert_close(lm_loss, outputs.lm_loss)
    assert model.train()(**collate(examples)).example_losses is None
    halved = model(**collate(examples, extra=2), num_items_in_batch=torch.tensor(2 * len(examples)))
    torch.testing.assert_close(2 * halved.loss, outputs.loss)


def test_example_losses_of_several_labels_are_weighted_by_their_number(tiny_model):
    """Their means, weighted by the number of labels, are the losses of the batch."""
    several = {"num_labels": 3, "problem_type": "multi_label_classification"}
    model = tiny_model(GPT1DoubleHeadsModel, traversal="classification", **several)
    input_ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
    outputs = model(input_ids=input_ids, labels=torch.tensor([[1.0, 0.0, 1.0], [0.0, -100.0, -100.0]]))
    *losses, weights = outputs.example_losses.T
    assert weights.tolist() == [3, 1]
    means = [(loss * weights).sum() / weights.sum() for loss in losses]
    torch.testing.assert_close(means, [outputs.task_loss, outputs.lm_loss])


def test_a_replaced_lm_head_weighs_the_targets_alike(tiny_model):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["multiple_choice"].fields)
    batch = collate(make_examples("multiple_choice"))
    expected = model(**batch).lm_loss
    model.lm_head = torch.nn.Sequential(model.lm_head)  # as an adapter leaves it: logits only
    outputs = model(**batch)
    torch.testing.assert_close(outputs.lm_loss, expected, rtol=1e-5, atol=1e-6)
    assert outputs.lm_loss.requires_grad
    assert not outputs.example_losses.requires_grad


def test_without_auxiliary_loss_the_lm_head_does_not_run(tiny_model, monkeypatch):
    ran = []
    monkeypatch.setattr("modeling_gpt1.modeling_gpt1.GPT1LMHead.forward", lambda *args: ran.append(args))
    model = tiny_model(GPT1DoubleHeadsModel, lm_coef=0, **KINDS["similarity"].fields).train()
    assert model(**collate(make_examples("similarity"))).loss.requires_grad
    assert ran == []


def test_lm_logits_are_those_of_the_language_model(tiny_model):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["multiple_choice"].fields)
    language_model = tiny_model(GPT1ForCausalLM)
    language_model.transformer.load_state_dict(model.transformer.state_dict())
    batch = collate(make_examples("multiple_choice", 4))
    lm_logits = model(**batch, output_lm_logits=True).lm_logits
    assert lm_logits.shape == (4, 3, batch["input_ids"].shape[-1], 101)
    for b in range(4):
        rows = {name: batch[name][b] for name in ("input_ids", "attention_mask")}
        real = rows["attention_mask"].bool()
        torch.testing.assert_close(lm_logits[b][real], language_model(**rows).logits[real], atol=1e-5, rtol=1e-5)
    assert model(**batch).lm_logits is None


@pytest.mark.parametrize("kind", ["classification", "similarity", "multiple_choice"])
def test_embeddings_positions_and_token_types_of_examples_are_read(tiny_model, kind):
    model = tiny_model(GPT1DoubleHeadsModel, lm_coef=0, **KINDS[kind].fields)
    batch = collate(make_examples(kind))
    expected = model(**batch)
    input_ids = batch.pop("input_ids")
    token_types = torch.full_like(input_ids, 7)
    embedded = model.get_input_embeddings()(input_ids)
    positions = torch.arange(input_ids.shape[-1]).expand_as(input_ids)
    by_embedding = model(inputs_embeds=embedded, position_ids=positions, use_cache=True, **batch)
    torch.testing.assert_close(by_embedding.loss, expected.loss)
    typed = model(input_ids=input_ids, token_type_ids=token_types, **batch)
    added = model(inputs_embeds=embedded + model.get_input_embeddings().weight[7], **batch)
    torch.testing.assert_close(typed.task_logits, added.task_logits, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(typed.task_logits, expected.task_logits, atol=1e-3)


def test_sequences_of_an_example_share_the_dropout_mask(tiny_model, monkeypatch):
    """Two equal sequences of an example score equally; with a mask for each sequence they would not."""
    model = tiny_model(GPT1DoubleHeadsModel, classifier_dropout=0.5, **KINDS["multiple_choice"].fields).train()
    input_ids = torch.randint(1, 98, (1, 1, 6), generator=torch.Generator().manual_seed(0)).expand(64, 2, 6)
    torch.manual_seed(0)
    scores = model(input_ids).task_logits
    torch.testing.assert_close(scores[:, 0], scores[:, 1])
    assert len(scores[:, 0].unique()) > 60  # examples do not share it

    def mask_for_each_sequence(self, extracted, is_present=None):
        return self.score(self.dropout(extracted)).squeeze(-1)

    monkeypatch.setattr(GPT1TaskHead, "forward", mask_for_each_sequence)
    scores = model(input_ids).task_logits
    assert (scores[:, 0] - scores[:, 1]).abs().median() > 0.1


@pytest.mark.parametrize("kind", ["classification", "similarity", "regression", "ragged_multiple_choice"])
def test_double_heads_open_in_the_class_of_their_traversal_alone(tiny_model, kind, tmp_path):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS[kind].fields)
    model.save_pretrained(tmp_path)
    classes = [
        (AutoModelForSequenceClassification, GPT1ForSequenceClassification),
        (AutoModelForMultipleChoice, GPT1ForMultipleChoice),
    ]
    (auto_class, ours), (_, other) = reversed(classes) if "choice" in kind else classes
    opened, report = auto_class.from_pretrained(tmp_path, output_loading_info=True)
    assert type(opened) is ours
    assert {name: keys for name, keys in report.items() if keys} == {}
    batch = collate(make_examples(kind))
    expected, outputs = model(**batch), opened(**batch)
    assert torch.equal(outputs.logits, expected.task_logits)
    assert torch.equal(outputs.loss, expected.task_loss)
    assert opened(**{**batch, "labels": None}).loss is None is model(**{**batch, "labels": None}).loss
    told = refusal(other.from_pretrained, tmp_path)
    assert f"`traversal` is '{model.config.traversal}'. Open it with {ours.__name__} or GPT1DoubleHeadsModel" in told


def pair_row(first, second):
    return [START, *first, DELIMITER, *second, EXTRACT]


@pytest.mark.parametrize("side, given, mask", [("right", True, True), ("left", False, True), ("right", False, False)])
def test_similarity_makes_the_other_order_itself(tiny_model, side, given, mask):
    """The padding may hold any id, the delimiter's too."""
    model = tiny_model(GPT1DoubleHeadsModel, delimiter_token_id=DELIMITER, **KINDS["similarity"].fields)
    pairs = [([1, 2, 3], [4]), ([5], [6, 7, 8, 9]), ([10, 11], [12, 13]), ([14], [15])]
    examples = [Example([pair_row(a, b), pair_row(b, a)], 0) for a, b in pairs]
    batch = collate(examples, side, extra=3 if mask else 0)
    if mask:
        batch["input_ids"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, DELIMITER)
    else:
        batch = {name: tensor[1:2] for name, tensor in batch.items()}
        batch.pop("attention_mask")
    if not given:
        batch.pop("mc_token_ids")
    expected = model(**batch)
    rows = {name: tensor[:, 0] if name != "labels" else tensor for name, tensor in batch.items()}
    positions = [rows["mc_token_ids"], rows["mc_token_ids"][:, None]] if given else [None]
    for mc_token_ids in positions:
        outputs = model(**{**rows, "mc_token_ids": mc_token_ids})
        torch.testing.assert_close(outputs.task_logits, expected.task_logits, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(outputs.loss, expected.loss)
        torch.testing.assert_close(outputs.lm_loss, expected.lm_loss)
    one_order = model(**{**batch, "input_ids": batch["input_ids"][:, :1].expand(-1, 2, -1)})
    assert (one_order.task_logits - expected.task_logits).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("delimiter", "rows", "counts"),
    [
        (DELIMITER, [pair_row([1], [2]), [START, 1, 2, 3, EXTRACT]], [1, 0]),
        (DELIMITER, [pair_row([1, 2], [3, DELIMITER, 4])], [2]),
        (None, [pair_row([1], [2])], [0]),
    ],
)
def test_similarity_pairs_without_one_delimiter_are_refused(tiny_model, delimiter, rows, counts):
    model = tiny_model(GPT1ForSequenceClassification, delimiter_token_id=delimiter, **KINDS["similarity"].fields)
    message = refusal(model, torch.tensor(rows))
    assert f"the rows have {counts} delimiters. Give the tokenizer a `text` and a `text_pair`" in message


def ids(*shape):
    return torch.ones(shape, dtype=torch.int64)


@pytest.mark.parametrize(
    ("kind", "name", "shape", "needed"),
    [
        *(("classification", "input_ids", shape, "[B, T]") for shape in ((2, 2, 5), (5,), (2, 1, 1, 5))),
        *(("similarity", "input_ids", shape, "[B, 2, T]") for shape in ((2, 1, 5), (2, 3, 5))),
        *(("multiple_choice", "input_ids", shape, "[B, C, T]") for shape in ((2, 5), (5,))),
        ("similarity", "inputs_embeds", (2, 5, 32), "[B, 2, T]"),
    ],
)
def test_shapes_that_the_traversal_does_not_have_are_refused(tiny_model, kind, name, shape, needed):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS[kind].fields)
    given = ids(*shape) if name == "input_ids" else torch.zeros(shape)
    message = refusal(model, **{name: given})
    given = list(shape) if name == "input_ids" else list(shape[:-1])
    assert f"'{kind}' needs tokens of shape {needed}, but got {given}. TraversalCollator" in message


@pytest.mark.parametrize(
    ("name", "shape", "needed"),
    [
        *(("attention_mask", (2, 3, 4), [2, 3, 5]), ("token_type_ids", (6, 5), [2, 3, 5])),
        *(("position_ids", (1, 5), [2, 3, 5]), ("mc_token_ids", (2,), [2, 3]), ("mc_token_ids", (6,), [2, 3])),
        *(("choice_mask", (3,), [2, 3]), ("choice_mask", (2, 1), [2, 3])),
    ],
)
def test_shapes_that_do_not_fit_the_ids_are_refused(tiny_model, name, shape, needed):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["multiple_choice"].fields)
    found = refusal(model, ids(2, 3, 5), **{name: ids(*shape)})
    assert f"`{name}` needs shape {needed} here, but got {list(shape)}" in found


@pytest.mark.parametrize(
    ("shape", "problem_type", "needed"),
    [((2, 5), None, [2]), ((3,), None, [2]), ((2,), "multi_label_classification", [2, 3])],
)
@pytest.mark.parametrize("model_class", [GPT1DoubleHeadsModel, GPT1ForSequenceClassification])
def test_labels_of_another_shape_are_refused(tiny_model, model_class, shape, problem_type, needed):
    model = tiny_model(model_class, problem_type=problem_type, **KINDS["classification"].fields)
    message = refusal(model, ids(2, 5), labels=ids(*shape))
    assert f"shape {needed} is needed, but got {list(shape)}. Language-modelling targets are taken" in message
    if problem_type is None:  # a column of labels is read, as transformers' classes do
        losses = [model(ids(2, 5), labels=labels).loss for labels in (ids(2), ids(2, 1))]
        assert losses[0] == losses[1]


def test_the_auxiliary_loss_without_ids_is_refused(tiny_model):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["classification"].fields)
    inputs = {"inputs_embeds": torch.zeros(2, 5, 32), "labels": ids(2)}
    assert "only `inputs_embeds` were given. Pass `input_ids`, or set `config.lm_coef = 0`" in refusal(model, **inputs)
    model.config.lm_coef = 0
    assert model(**inputs).loss.isfinite()


@pytest.mark.parametrize(
    ("traversal", "problem_type", "num_labels", "message"),
    [
        ("classification", "regression", 2, "one number, but `num_labels` is 2. Pass `num_labels=1`"),
        ("classification", "regression", 3, "for classes pass `problem_type='single_label_classification'`"),
        ("multiple_choice", "regression", 1, "'regression', but the traversal 'multiple_choice' supports only"),
        ("multiple_choice", "multi_label_classification", 1, "'multi_label_classification', but the traversal"),
    ],
)
def test_problems_that_a_traversal_does_not_know_are_refused(
    tiny_config, traversal, problem_type, num_labels, message
):
    config = tiny_config(problem_type=problem_type, num_labels=num_labels, traversal=traversal)
    single_purpose = GPT1ForMultipleChoice if traversal == "multiple_choice" else GPT1ForSequenceClassification
    for model_class in (GPT1DoubleHeadsModel, single_purpose):
        assert message in refusal(model_class, config)


def test_a_choice_mask_of_another_traversal_is_refused(tiny_model):
    """It would mask classes instead of choices."""
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["similarity"].fields)
    message = refusal(model, ids(2, 2, 5), choice_mask=torch.ones(2, 2, dtype=torch.bool))
    assert "traversal 'similarity' has no choices. Leave it out" in message


def test_a_compiled_model_trains_as_uncompiled(tiny_model):
    """As one graph, with its backward pass."""
    model = tiny_model(GPT1DoubleHeadsModel, num_hidden_layers=1, **KINDS["ragged_multiple_choice"].fields).train()
    batch = collate(make_examples("ragged_multiple_choice"), "left", 2)
    torch._dynamo.reset()
    loss = torch.compile(model, fullgraph=True, backend="aot_eager")(**batch).loss
    loss.backward()
    gradients = gradients_of(model)
    expected = model(**batch).loss
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert relative_error(gradients, gradients_of(model)) < 1e-5
