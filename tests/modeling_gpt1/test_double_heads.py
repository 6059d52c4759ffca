"""The task models: L3 against a naive float64 formula, its invariances, shapes, the shared dropout, checkpoints."""

from dataclasses import dataclass

import pytest
import torch
from transformers import AutoModelForMultipleChoice, AutoModelForSequenceClassification

from modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
    GPT1Model,
)
from modeling_gpt1.modeling_gpt1 import GPT1TaskHead

START, DELIMITER, EXTRACT = 98, 99, 100


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
            body = torch.randint(1, 98, (length,), generator=generator).tolist()
            sequences.append([START, *body, EXTRACT])
        classes = len(sequences) if "choice" in kind else KINDS[kind].fields.get("num_labels", 2)
        label = 0.7 * index - 2 if kind == "regression" else index % classes
        examples.append(Example(sequences, label))
    return examples


def collate(examples: list[Example], side: str = "right", extra: int = 0) -> dict[str, torch.Tensor]:
    """`[B, C, T]` tensors with `extra` columns of padding; absent choices are fully masked, if there are any."""
    num_choices = max(len(example.sequences) for example in examples)
    length = extra + max(len(sequence) for example in examples for sequence in example.sequences)
    shape = (len(examples), num_choices)
    batch = {
        "input_ids": torch.zeros(*shape, length, dtype=torch.int64),
        "attention_mask": torch.zeros(*shape, length, dtype=torch.int64),
        "mc_token_ids": torch.zeros(shape, dtype=torch.int64),
        "choice_mask": torch.zeros(shape, dtype=torch.bool),
        "labels": torch.tensor([example.label for example in examples]),
    }
    for b, example in enumerate(examples):
        for c, sequence in enumerate(example.sequences):
            first = length - len(sequence) if side == "left" else 0
            place = slice(first, first + len(sequence))
            batch["input_ids"][b, c, place] = torch.tensor(sequence)
            batch["attention_mask"][b, c, place] = 1
            batch["mc_token_ids"][b, c] = place.stop - 1
            batch["choice_mask"][b, c] = True
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


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("lm_coef", [0, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_l3_and_its_gradient_are_the_naive_formula(tiny_model, kind, lm_coef, side):
    model = tiny_model(GPT1DoubleHeadsModel, lm_coef=lm_coef, **KINDS[kind].fields).train()
    examples = make_examples(kind)
    batch = collate(examples, side, extra=3)
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
    other = task_loss.item() + 0.6 * lm_loss.item()
    assert abs(outputs.loss.item() / other - 1) > 1e-2


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


@pytest.mark.parametrize("lm_coef", [0, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_loss_does_not_depend_on_how_the_batch_is_cut_and_padded(tiny_model, kind, lm_coef):
    """8 examples at once, 2 x 4 and 8 x 1 with N = 8, each micro-batch at a padding of its own."""
    examples = make_examples(kind)

    def accumulated(size, side):
        model = tiny_model(GPT1DoubleHeadsModel, lm_coef=lm_coef, **KINDS[kind].fields).train()
        parts = {"loss": 0.0, "task_loss": 0.0, "lm_loss": 0.0}
        for number, start in enumerate(range(0, 8, size)):
            batch = collate(examples[start : start + size], side, extra=number % 3)
            outputs = model(**batch, num_items_in_batch=8)
            outputs.loss.backward()
            for name in parts:
                parts[name] += outputs.get(name, torch.zeros(())).item()
        return parts, gradients_of(model)

    whole, whole_gradients = accumulated(8, "right")
    assert whole["loss"] == pytest.approx(whole["task_loss"] + lm_coef * whole["lm_loss"], rel=1e-6)
    for size, side in ((8, "left"), (2, "right"), (2, "left"), (1, "right"), (4, "left")):
        parts, gradients = accumulated(size, side)
        assert parts == pytest.approx(whole, rel=1e-5, abs=1e-9)
        assert relative_error(gradients, whole_gradients) < 1e-5


def test_without_a_count_the_loss_is_the_mean_over_the_batch(tiny_model):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["similarity"].fields)
    batch = collate(make_examples("similarity"))
    outputs = model(**batch)
    for number in (4, torch.tensor(4)):
        torch.testing.assert_close(model(**batch, num_items_in_batch=number).loss, 2 * outputs.loss)


@pytest.mark.parametrize("kind", KINDS)
def test_example_losses(tiny_model, kind):
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


@pytest.mark.parametrize("model_class", [GPT1DoubleHeadsModel, GPT1ForMultipleChoice, GPT1ForSequenceClassification])
def test_without_labels_there_is_no_loss(tiny_model, model_class):
    kind = "multiple_choice" if model_class is GPT1ForMultipleChoice else "similarity"
    batch = collate(make_examples(kind))
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "mc_token_ids")}
    assert tiny_model(model_class, **KINDS[kind].fields)(**inputs).loss is None


def test_without_auxiliary_loss_the_lm_head_does_not_run(tiny_model, monkeypatch):
    ran = []
    monkeypatch.setattr("modeling_gpt1.modeling_gpt1.GPT1LMHead.forward", lambda *args: ran.append(args))
    model = tiny_model(GPT1DoubleHeadsModel, lm_coef=0, **KINDS["similarity"].fields).train()
    assert model(**collate(make_examples("similarity"))).loss.requires_grad
    assert ran == []


# ---- Scores.


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("with_positions", [True, False])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_padded_examples_score_as_single_ones(tiny_model, kind, side, with_positions, implementation):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS[kind].fields)
    model.set_attn_implementation(implementation)
    examples = make_examples(kind)
    batch = collate(examples, side, extra=2)
    batch.pop("labels")
    if not with_positions:
        batch.pop("mc_token_ids")
    task_logits = model(**batch).task_logits
    for example, scores in zip(examples, task_logits, strict=True):
        length = max(len(sequence) for sequence in example.sequences)
        single = collate([example], side)
        mask = single["attention_mask"] if length > min(len(s) for s in example.sequences) else None
        alone = model(single["input_ids"], attention_mask=mask, mc_token_ids=single["mc_token_ids"]).task_logits[0]
        torch.testing.assert_close(scores[: len(alone)], alone, atol=1e-5, rtol=1e-5)
        assert scores[len(alone) :].tolist() == [float("-inf")] * (len(scores) - len(alone))


def test_the_position_of_the_extract_token_decides_the_score(tiny_model):
    """The control of the test above."""
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["multiple_choice"].fields)
    batch = collate(make_examples("multiple_choice"))
    batch.pop("labels")
    right = model(**batch).task_logits
    batch["mc_token_ids"] -= 1
    assert (model(**batch).task_logits - right).abs().min() > 1e-4


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_absent_choices_make_no_nan(tiny_model, side, implementation):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["ragged_multiple_choice"].fields).train()
    model.set_attn_implementation(implementation)
    batch = collate(make_examples("ragged_multiple_choice"), side)
    assert (batch["attention_mask"].sum(-1) == 0).sum() == 12
    outputs = model(**batch, output_lm_logits=True, output_hidden_states=True)
    assert torch.isfinite(outputs.loss)
    assert outputs.task_logits.isneginf().tolist() == (~batch["choice_mask"]).tolist()
    for tensor in (outputs.task_logits, outputs.lm_logits, *outputs.hidden_states):
        assert not tensor.isnan().any()
    outputs.loss.backward()
    assert [name for name, gradient in gradients_of(model).items() if gradient.isnan().any()] == []


def test_what_absent_choices_hold_does_not_matter(tiny_model):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["ragged_multiple_choice"].fields).train()
    batch = collate(make_examples("ragged_multiple_choice"))
    results = []
    for filler, mask in ((0, 0), (77, 0), (77, 1)):
        absent = ~batch["choice_mask"]
        batch["input_ids"][absent] = filler
        batch["attention_mask"][absent] = mask
        outputs = model(**batch)
        outputs.loss.backward()
        results.append((outputs.loss.item(), gradients_of(model)))
    for loss, gradients in results[1:]:
        assert loss == pytest.approx(results[0][0], rel=1e-6)
        assert relative_error(gradients, results[0][1]) < 1e-5


@pytest.mark.parametrize("choice_mask_dtype", [torch.bool, torch.int64])
def test_choice_masks_of_integers(tiny_model, choice_mask_dtype):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["ragged_multiple_choice"].fields)
    batch = collate(make_examples("ragged_multiple_choice"))
    expected = model(**batch).loss
    batch["choice_mask"] = batch["choice_mask"].to(choice_mask_dtype)
    assert torch.equal(model(**batch).loss, expected)


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


def test_single_sequences_with_and_without_their_dimension(tiny_model):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["classification"].fields)
    batch = collate(make_examples("classification"))
    expected = model(**batch)
    flat = {name: tensor if name == "labels" else tensor[:, 0] for name, tensor in batch.items()}
    for outputs in (model(**flat), model(**{**flat, "input_ids": batch["input_ids"]})):
        assert torch.equal(outputs.task_logits, expected.task_logits)
        assert torch.equal(outputs.loss, expected.loss)


def test_hidden_states_and_attentions_of_sequences(tiny_model):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["multiple_choice"].fields)
    model.set_attn_implementation("eager")
    batch = collate(make_examples("multiple_choice", 4))
    outputs = model(**batch, output_hidden_states=True, output_attentions=True)
    length = batch["input_ids"].shape[-1]
    assert [tuple(states.shape) for states in outputs.hidden_states] == [(12, length, 32)] * 3
    assert [tuple(weights.shape) for weights in outputs.attentions] == [(12, 4, length, length)] * 2


@pytest.mark.parametrize("kind", ["classification", "similarity", "multiple_choice"])
def test_embeddings_positions_and_token_types_of_examples(tiny_model, kind):
    model = tiny_model(GPT1DoubleHeadsModel, lm_coef=0, **KINDS[kind].fields)
    batch = collate(make_examples(kind))
    expected = model(**batch)
    input_ids = batch.pop("input_ids")
    token_types = torch.full_like(input_ids, 7)
    embedded = model.get_input_embeddings()(input_ids)
    positions = torch.arange(input_ids.shape[-1]).expand_as(input_ids)
    by_embedding = model(inputs_embeds=embedded, position_ids=positions, **batch)
    torch.testing.assert_close(by_embedding.loss, expected.loss)
    typed = model(input_ids=input_ids, token_type_ids=token_types, **batch)
    added = model(inputs_embeds=embedded + model.get_input_embeddings().weight[7], **batch)
    torch.testing.assert_close(typed.task_logits, added.task_logits, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(typed.task_logits, expected.task_logits, atol=1e-3)


@pytest.mark.parametrize("model_class", [GPT1DoubleHeadsModel, GPT1ForSequenceClassification])
def test_use_cache_is_accepted_and_has_no_use(tiny_model, model_class):
    model = tiny_model(model_class, **KINDS["classification"].fields)
    input_ids = torch.randint(1, 98, (2, 5))
    for use_cache in (False, True, None):
        assert torch.equal(model(input_ids, use_cache=use_cache)[0], model(input_ids)[0])


# ---- The shared dropout mask.


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


def test_both_orders_of_a_pair_share_the_dropout_mask(tiny_config):
    """Opposite states cancel under one mask, leaving the bias."""
    torch.manual_seed(0)
    head = GPT1TaskHead(tiny_config(traversal="similarity", num_labels=2, classifier_dropout=0.5)).train()
    torch.nn.init.constant_(head.score.bias, 0.25)
    state = torch.randn(64, 1, 32)
    torch.testing.assert_close(head(torch.cat([state, -state], dim=1)), torch.full((64, 2), 0.25))
    assert (head(torch.cat([state, state], dim=1)) - 0.25).abs().min() > 0


def test_dropout_keeps_the_expected_score(tiny_config):
    torch.manual_seed(0)
    head = GPT1TaskHead(tiny_config(traversal="classification", num_labels=2, classifier_dropout=0.25)).train()
    state = torch.randn(1, 1, 32)
    mean = head(state.expand(20000, 1, 32)).mean(0)
    torch.testing.assert_close(mean, head.eval()(state)[0], atol=0.05, rtol=0)


# ---- Checkpoints: the class of the traversal.


SINGLE_PURPOSE = {
    "classification": (AutoModelForSequenceClassification, GPT1ForSequenceClassification),
    "entailment": (AutoModelForSequenceClassification, GPT1ForSequenceClassification),
    "similarity": (AutoModelForSequenceClassification, GPT1ForSequenceClassification),
    "regression": (AutoModelForSequenceClassification, GPT1ForSequenceClassification),
    "multiple_choice": (AutoModelForMultipleChoice, GPT1ForMultipleChoice),
    "ragged_multiple_choice": (AutoModelForMultipleChoice, GPT1ForMultipleChoice),
}


@pytest.mark.parametrize("kind", KINDS)
def test_double_heads_open_in_the_class_of_their_traversal(tiny_model, kind, tmp_path):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS[kind].fields)
    model.save_pretrained(tmp_path)
    auto_class, single_purpose = SINGLE_PURPOSE[kind]
    opened, report = auto_class.from_pretrained(tmp_path, output_loading_info=True)
    assert type(opened) is single_purpose
    assert {name: keys for name, keys in report.items() if keys} == {}
    batch = collate(make_examples(kind))
    expected, outputs = model(**batch), opened(**batch)
    assert torch.equal(outputs.logits, expected.task_logits)
    assert torch.equal(outputs.loss, expected.task_loss)
    logits = outputs.logits.shape
    assert logits == {"classification": (8, 3), "entailment": (8, 3), "similarity": (8, 2), "regression": (8, 1)}.get(
        kind, (8, 4 if "ragged" in kind else 3)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_other_class_refuses(tiny_model, kind, tmp_path):
    tiny_model(GPT1DoubleHeadsModel, **KINDS[kind].fields).save_pretrained(tmp_path)
    traversal = KINDS[kind].fields["traversal"]
    of_choices = traversal == "multiple_choice"
    other = GPT1ForSequenceClassification if of_choices else GPT1ForMultipleChoice
    with pytest.raises(ValueError) as error:
        other.from_pretrained(tmp_path)
    assert str(error.value) == (
        "GPT1ForSequenceClassification supports the traversals classification, entailment, similarity, but this "
        "configuration's `traversal` is 'multiple_choice'. Open it with GPT1ForMultipleChoice or GPT1DoubleHeadsModel."
        if of_choices
        else "GPT1ForMultipleChoice supports the traversals multiple_choice, but this configuration's `traversal` is "
        f"'{traversal}'. Open it with GPT1ForSequenceClassification or GPT1DoubleHeadsModel."
    )


def test_double_heads_open_as_language_model(tiny_model, tmp_path):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["classification"].fields)
    model.save_pretrained(tmp_path)
    opened = GPT1ForCausalLM.from_pretrained(tmp_path)
    input_ids = torch.randint(1, 98, (2, 5))
    expected = model(input_ids, output_lm_logits=True).lm_logits[:, 0]
    torch.testing.assert_close(opened(input_ids).logits, expected)


@pytest.mark.parametrize("source_class", [GPT1Model, GPT1ForCausalLM])
@pytest.mark.parametrize("traversal", ["classification", "similarity", "multiple_choice"])
def test_pretrained_decoder_opens_with_a_new_task_head(tiny_model, source_class, traversal, tmp_path):
    source = tiny_model(source_class)
    source.save_pretrained(tmp_path)
    opened, report = GPT1DoubleHeadsModel.from_pretrained(tmp_path, traversal=traversal, output_loading_info=True)
    assert report["missing_keys"] == {"task_head.score.weight", "task_head.score.bias"}
    assert opened.config.traversal == traversal
    assert torch.equal(opened.transformer.h[1].mlp.up_proj.weight, source.base_model.h[1].mlp.up_proj.weight)


# ---- Similarity of [B, T] rows.


def pair_row(first, second):
    return [START, *first, DELIMITER, *second, EXTRACT]


PAIRS = [([1, 2, 3], [4]), ([5], [6, 7, 8, 9]), ([10, 11], [12, 13]), ([14], [15])]


def rows_of_pairs(side, extra):
    examples = [Example([pair_row(a, b), pair_row(b, a)], 0) for a, b in PAIRS]
    return collate(examples, side, extra)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("with_positions", [True, False])
@pytest.mark.parametrize("side", ["right", "left"])
def test_similarity_makes_the_other_order_itself(tiny_model, side, with_positions, masked):
    fields = {**KINDS["similarity"].fields, "delimiter_token_id": DELIMITER}
    model = tiny_model(GPT1DoubleHeadsModel, **fields)
    batch = rows_of_pairs(side, extra=3 if masked else 0)
    if not masked:
        batch = {name: tensor[1:2] for name, tensor in batch.items()}
        batch.pop("attention_mask")
    if not with_positions:
        batch.pop("mc_token_ids")
    expected = model(**batch)
    rows = {name: tensor[:, 0] if name != "labels" else tensor for name, tensor in batch.items()}
    positions = [rows["mc_token_ids"], rows["mc_token_ids"][:, None]] if with_positions else [None]
    for mc_token_ids in positions:
        outputs = model(**{**rows, "mc_token_ids": mc_token_ids})
        torch.testing.assert_close(outputs.task_logits, expected.task_logits, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(outputs.loss, expected.loss)
        torch.testing.assert_close(outputs.lm_loss, expected.lm_loss)
    one_order = model(**{**batch, "input_ids": batch["input_ids"][:, :1].expand(-1, 2, -1)})
    assert (one_order.task_logits - expected.task_logits).abs().max() > 1e-2


def test_similarity_does_not_depend_on_the_order(tiny_model):
    fields = {**KINDS["similarity"].fields, "delimiter_token_id": DELIMITER}
    model = tiny_model(GPT1ForSequenceClassification, **fields)
    forwards, backwards = (torch.tensor([row]) for row in (pair_row([1, 2], [3]), pair_row([3], [1, 2])))
    torch.testing.assert_close(model(forwards).logits, model(backwards).logits)


@pytest.mark.parametrize(
    ("delimiter_token_id", "rows", "counts"),
    [
        (DELIMITER, [pair_row([1], [2]), [START, 1, 2, 3, EXTRACT]], [1, 0]),
        (DELIMITER, [pair_row([1, 2], [3, DELIMITER, 4])], [2]),
        (None, [pair_row([1], [2])], [0]),
    ],
)
def test_similarity_rows_without_one_delimiter(tiny_model, delimiter_token_id, rows, counts):
    fields = {**KINDS["similarity"].fields, "delimiter_token_id": delimiter_token_id}
    model = tiny_model(GPT1ForSequenceClassification, **fields)
    with pytest.raises(ValueError) as error:
        model(torch.tensor(rows))
    assert str(error.value) == (
        "Similarity reads both orders of a pair: `input_ids` of shape [B, 2, T], or rows `[s] a [$] b [e]` with one "
        f"delimiter (`config.delimiter_token_id` is {delimiter_token_id}), but the rows have {counts} delimiters. "
        "Give the tokenizer a `text` and a `text_pair`."
    )


def test_a_delimiter_in_the_padding_does_not_count(tiny_model):
    """The padding may hold any id, the delimiter's too."""
    fields = {**KINDS["similarity"].fields, "delimiter_token_id": DELIMITER}
    model = tiny_model(GPT1ForSequenceClassification, **fields)
    batch = rows_of_pairs("right", extra=2)
    rows = {"input_ids": batch["input_ids"][:, 0], "attention_mask": batch["attention_mask"][:, 0]}
    expected = model(**rows).logits
    rows["input_ids"] = rows["input_ids"].masked_fill(rows["attention_mask"] == 0, DELIMITER)
    torch.testing.assert_close(model(**rows).logits, expected, atol=1e-6, rtol=1e-6)


# ---- Errors.


def ids(*shape):
    return torch.ones(shape, dtype=torch.int64)


@pytest.mark.parametrize(
    ("kind", "shape", "needed"),
    [
        ("classification", (2, 2, 5), "[B, T]"),
        ("entailment", (2, 3, 5), "[B, T]"),
        ("similarity", (2, 1, 5), "[B, 2, T]"),
        ("similarity", (2, 3, 5), "[B, 2, T]"),
        ("multiple_choice", (2, 5), "[B, C, T]"),
        ("multiple_choice", (5,), "[B, C, T]"),
        ("classification", (5,), "[B, T]"),
        ("classification", (2, 1, 1, 5), "[B, T]"),
    ],
)
def test_shapes_that_the_traversal_does_not_have(tiny_model, kind, shape, needed):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS[kind].fields)
    with pytest.raises(ValueError) as error:
        model(ids(*shape))
    assert str(error.value) == (
        f"The traversal '{kind}' needs `input_ids` of shape {needed}, but got {list(shape)}. TraversalCollator makes "
        "such batches."
    )


@pytest.mark.parametrize(
    ("kind", "shape", "needed"),
    [
        ("classification", (2, 2, 5, 32), "[B, T, D]"),
        ("similarity", (2, 5, 32), "[B, 2, T, D]"),
        ("multiple_choice", (2, 5, 32), "[B, C, T, D]"),
    ],
)
def test_shapes_of_embeddings_that_the_traversal_does_not_have(tiny_model, kind, shape, needed):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS[kind].fields)
    with pytest.raises(ValueError) as error:
        model(inputs_embeds=torch.zeros(shape))
    assert str(error.value) == (
        f"The traversal '{kind}' needs `inputs_embeds` of shape {needed}, but got {list(shape)}. TraversalCollator "
        "makes such batches."
    )


@pytest.mark.parametrize(
    ("name", "tensor", "needed"),
    [
        ("attention_mask", ids(2, 5), [2, 3, 5]),
        ("attention_mask", ids(2, 3, 4), [2, 3, 5]),
        ("token_type_ids", ids(6, 5), [2, 3, 5]),
        ("position_ids", ids(1, 5), [2, 3, 5]),
        ("mc_token_ids", ids(2), [2, 3]),
        ("mc_token_ids", ids(1), [2, 3]),
        ("mc_token_ids", ids(6), [2, 3]),
        ("choice_mask", ids(3), [2, 3]),
        ("choice_mask", ids(2, 1), [2, 3]),
    ],
)
def test_shapes_beside_the_ids(tiny_model, name, tensor, needed):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["multiple_choice"].fields)
    with pytest.raises(ValueError) as error:
        model(ids(2, 3, 5), **{name: tensor})
    assert str(error.value) == f"`{name}` needs shape {needed} here, but got {list(tensor.shape)}."


@pytest.mark.parametrize("shape", [(2, 5), (3,), (2, 1), ()])
@pytest.mark.parametrize("model_class", [GPT1DoubleHeadsModel, GPT1ForSequenceClassification])
def test_labels_of_another_shape(tiny_model, model_class, shape):
    model = tiny_model(model_class, **KINDS["classification"].fields)
    with pytest.raises(ValueError) as error:
        model(ids(2, 5), labels=ids(*shape))
    assert str(error.value) == (
        f"`labels` are the task's labels, one per example: shape [2] is needed, but got {list(shape)}. "
        "Language-modelling targets are taken from `input_ids`."
    )


def test_auxiliary_loss_without_ids(tiny_model):
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["classification"].fields)
    with pytest.raises(ValueError) as error:
        model(inputs_embeds=torch.zeros(2, 5, 32), labels=ids(2))
    assert str(error.value) == (
        "The auxiliary language-modelling loss needs `input_ids`, but only `inputs_embeds` were given. Pass "
        "`input_ids`, or set `config.lm_coef = 0`."
    )
    model.config.lm_coef = 0
    assert model(inputs_embeds=torch.zeros(2, 5, 32), labels=ids(2)).loss.isfinite()


@pytest.mark.parametrize("model_class", [GPT1DoubleHeadsModel, GPT1ForSequenceClassification])
def test_regression_with_two_labels(tiny_config, model_class):
    with pytest.raises(ValueError) as error:
        model_class(tiny_config(problem_type="regression", num_labels=2))
    assert str(error.value) == (
        "`problem_type` is 'regression', which predicts one number, but `num_labels` is 2. Pass `num_labels=1`."
    )


@pytest.mark.parametrize("problem_type", ["multi_label_classification", "regression"])
@pytest.mark.parametrize("model_class", [GPT1DoubleHeadsModel, GPT1ForMultipleChoice])
def test_problems_that_multiple_choice_does_not_know(tiny_config, model_class, problem_type):
    with pytest.raises(ValueError) as error:
        model_class(tiny_config(problem_type=problem_type, num_labels=1, traversal="multiple_choice"))
    assert str(error.value) == (
        f"`problem_type` is '{problem_type}', but the traversal 'multiple_choice' supports only "
        "'single_label_classification'. Leave `problem_type` out."
    )


@pytest.mark.parametrize("traversal", ["classification", "entailment", "similarity"])
def test_several_labels_at_once(tiny_model, traversal):
    """Every class has a logistic loss of its own; a row's order of classes decides it."""
    fields = {"traversal": traversal, "num_labels": 3, "problem_type": "multi_label_classification"}
    model = tiny_model(GPT1DoubleHeadsModel, **fields)
    single_purpose = tiny_model(GPT1ForSequenceClassification, **fields)
    single_purpose.load_state_dict(model.state_dict(), strict=False)
    shape = (2, 2, 6) if traversal == "similarity" else (2, 6)
    input_ids = torch.randint(1, 98, shape, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    output = model(input_ids, labels=labels)
    probabilities = output.task_logits.double().sigmoid()
    likelihoods = torch.where(labels.bool(), probabilities, 1 - probabilities)
    torch.testing.assert_close(output.task_loss.double(), -likelihoods.log().mean(1).mean())
    torch.testing.assert_close(output.example_losses[:, 0].double(), -likelihoods.log().mean(1))
    torch.testing.assert_close(single_purpose(input_ids, labels=labels.long()).loss, output.task_loss)
    assert abs(model(input_ids, labels=labels.flip(1)[[1, 0]]).task_loss - output.task_loss) > 1e-3


def test_several_labels_at_once_need_a_row_for_every_example(tiny_model):
    model = tiny_model(
        GPT1ForSequenceClassification,
        traversal="classification",
        num_labels=3,
        problem_type="multi_label_classification",
    )
    with pytest.raises(ValueError) as error:
        model(torch.ones(2, 5, dtype=torch.int64), labels=torch.tensor([0, 1]))
    assert str(error.value) == (
        "`labels` are the task's labels, one row per example: shape [2, 3] is needed, but got [2]. Language-modelling "
        "targets are taken from `input_ids`."
    )


@pytest.mark.parametrize("kind", ["classification", "similarity", "regression"])
def test_choice_mask_of_another_traversal(tiny_model, kind):
    """It would mask classes instead of choices."""
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS[kind].fields)
    batch = collate(make_examples(kind))
    choice_mask = torch.ones(batch["input_ids"].shape[:2], dtype=torch.bool)
    with pytest.raises(ValueError) as error:
        model(**batch, choice_mask=choice_mask)
    assert str(error.value) == (
        f"`choice_mask` was given, but the traversal '{model.config.traversal}' has no choices. Leave it out."
    )


def test_a_label_that_points_at_an_absent_choice_is_refused(tiny_model):
    """The collator refuses such rows, too."""
    model = tiny_model(GPT1DoubleHeadsModel, **KINDS["ragged_multiple_choice"].fields)
    batch = collate(make_examples("ragged_multiple_choice"))
    batch["labels"][0] = 3
    with pytest.raises(ValueError) as error:
        model(**batch)
    assert str(error.value) == (
        "The label of example 0 is 3, but `choice_mask` marks that choice as absent. Correct the label or the mask."
    )


# ---- Compiled.


def compiled_training_steps(model, batches, backend):
    """Losses and gradients of the model compiled as one graph, over batches of several shapes."""
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    results = []
    for batch in batches:
        loss = compiled(**batch).loss
        loss.backward()
        results.append((loss.item(), gradients_of(model)))
    return results


def assert_as_uncompiled(model, batches, backend):
    results = compiled_training_steps(model, batches, backend)
    for batch, (loss, gradients) in zip(batches, results, strict=True):
        expected = model(**batch).loss
        expected.backward()
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        assert relative_error(gradients, gradients_of(model)) < 1e-5


def test_compiled_double_heads_train_as_uncompiled(tiny_model):
    """Two batches of different numbers, choices and lengths."""
    model = tiny_model(GPT1DoubleHeadsModel, num_hidden_layers=1, **KINDS["ragged_multiple_choice"].fields).train()
    examples = make_examples("ragged_multiple_choice")
    assert_as_uncompiled(model, [collate(examples[:3]), collate(examples[3:], "left", 2)], "aot_eager")


def test_compiled_language_model_trains_as_uncompiled(tiny_model):
    model = tiny_model(GPT1ForCausalLM, num_hidden_layers=1).train()
    input_ids = torch.randint(1, 98, (3, 9), generator=torch.Generator().manual_seed(0))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, 4:] = 0
    batch = {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "labels": input_ids.masked_fill(attention_mask == 0, -100),
    }
    shorter = {name: tensor[:2, :6] for name, tensor in batch.items()}
    assert_as_uncompiled(model, [batch, shorter], "aot_eager")


def test_compiled_by_inductor(tiny_model):
    model = tiny_model(GPT1DoubleHeadsModel, num_hidden_layers=1, **KINDS["similarity"].fields).train()
    batch = collate(make_examples("similarity", 2))
    assert_as_uncompiled(model, [batch], "inductor")
