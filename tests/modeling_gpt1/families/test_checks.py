"""Scores that depend on the padding of a batch are told before training."""

import pytest
import torch
import transformers
from support.families import COLUMNS, POSITIONS, SIZES, make_family_model, make_family_tokenizer

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1Trainer, GPT1TrainingArguments
from modeling_gpt1.families.checks import check_padding
from modeling_gpt1.families.task_scores import TaskScores
from tokenization import TraversalCollator

ROWS = [
    {"a": "ann", "b": "fish", "options": ["home", "park"], "label": 0},
    {"a": "the old cat sees a lazy dog", "b": "ben goes home", "options": ["a park of fish", "old"], "label": 1},
]


def parts_of(family: str, traversal: str, side: str, **options) -> dict:
    """A model, the tokenizer and the collator as they come from a folder."""
    torch.manual_seed(0)
    tokenizer = make_family_tokenizer("bert" if family in ("xlnet", "fnet", "big_bird") else family)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    tokenizer.padding_side = side
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "initializer_range": 0.2}
    if family == "xlnet":
        model = transformers.XLNetForSequenceClassification(
            transformers.XLNetConfig(d_model=32, n_layer=2, n_head=4, d_inner=64, **sizes)
        )
    elif family == "big_bird":
        sparse = {"attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1}
        model = transformers.BigBirdForSequenceClassification(transformers.BigBirdConfig(**SIZES, **sizes, **sparse))
    elif family == "fnet":
        model = transformers.FNetForSequenceClassification(
            transformers.FNetConfig(**{**SIZES, "type_vocab_size": 2, **sizes})
        )
    else:
        head = "ForMultipleChoice" if traversal == "multiple_choice" else "ForSequenceClassification"
        model = make_family_model(family, tokenizer, head)
    collator = TraversalCollator(tokenizer, traversal, COLUMNS[traversal], max_length=POSITIONS, **options)
    return {"model": model, "processing_class": tokenizer, "data_collator": collator}


def trainer_of(parts: dict, folder) -> GPT1Trainer:
    return GPT1Trainer(args=GPT1TrainingArguments(str(folder), use_cpu=True), **parts)


def difference(parts: dict) -> float:
    """Between the scores of the first row alone and beside the second."""
    scores, collator = TaskScores(parts["model"].eval()), parts["data_collator"]
    with torch.no_grad():
        logits = []
        for rows in (ROWS[:1], ROWS):
            batch = collator(rows)
            del batch["labels"]
            logits.append(scores(**batch)["logits"][0])
    return (logits[0] - logits[1]).abs().max().item()


RIGHT = ("bert", "roberta", "modernbert", "bart", "t5", "gpt2")
CASES = [(family, "entailment", "right") for family in RIGHT]
CASES += [("bert", "multiple_choice", "right"), ("xlnet", "entailment", "left")]


@pytest.mark.parametrize(("family", "traversal", "side"), CASES)
def test_the_wrong_side_is_refused(family, traversal, side, tmp_path):
    parts = parts_of(family, traversal, side)
    assert difference(parts) < 1e-4
    trainer_of(parts, tmp_path)
    wrong = "left" if side == "right" else "right"
    parts = parts_of(family, traversal, wrong)
    assert difference(parts) > 1e-2
    with pytest.raises(ValueError, match=f'padded on the {wrong}, .* Set the tokenizer.s `padding_side` to "{side}"'):
        trainer_of(parts, tmp_path)


def test_parts_of_different_kinds_are_refused(tiny_tokenizer, tiny_model, tmp_path):
    bert, other = (parts_of("bert", traversal, "right") for traversal in ("entailment", "multiple_choice"))
    ours = tiny_model(GPT1DoubleHeadsModel, vocab_size=len(bert["processing_class"]), traversal="entailment")
    collator = TraversalCollator(tiny_tokenizer, "entailment", COLUMNS["entailment"])
    for changed, message in (
        ({"data_collator": collator}, "makes sequences of GPT-1, with control tokens, but the model is a Bert"),
        ({"model": ours}, "tokenizer has no control tokens, so its sequences have the form of another family"),
        ({"model": other["model"]}, "makes 'entailment' batches, which BertForMultipleChoice cannot score"),
    ):
        with pytest.raises(ValueError, match=message):
            trainer_of(bert | changed, tmp_path)


def test_a_decoder_without_positions_may_be_padded_on_either_side(tmp_path):
    for side in ("left", "right"):
        trainer_of(parts_of("llama", "entailment", side), tmp_path)


def test_a_model_that_mixes_padding_in_needs_batches_of_one_length(tmp_path):
    """FNet's Fourier transform runs over all columns."""
    parts = parts_of("fnet", "entailment", "right")
    assert difference(parts) > 1e-2
    with pytest.raises(ValueError, match=f"depend on the padding, .* `pad_to_multiple_of={POSITIONS}`"):
        trainer_of(parts, tmp_path)
    trainer_of(parts_of("fnet", "entailment", "right", pad_to_multiple_of=POSITIONS), tmp_path)


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_texts_without_an_end_that_the_model_scores_are_refused(family, tmp_path):
    """The end must not be what pads, either."""
    without_end = parts_of(family, "classification", "right")
    without_end["model"].config.eos_token_id = without_end["processing_class"].unk_token_id
    padded_with_end = parts_of(family, "classification", "right")
    padded_with_end["processing_class"].pad_token = padded_with_end["processing_class"].eos_token
    for parts in (without_end, padded_with_end):
        with pytest.raises(ValueError, match="cannot score what .* token, let the tokenizer write that behind each"):
            trainer_of(parts, tmp_path)


def test_scores_that_are_not_numbers_beside_padding_are_refused():
    parts = parts_of("bert", "entailment", "right")

    def damage_batches(module, inputs, logits):
        return logits * torch.nan if len(logits) > 1 else logits

    check_padding(parts["model"], parts["data_collator"])
    parts["model"].classifier.register_forward_hook(damage_batches)
    with pytest.raises(ValueError, match="the scores of BertForSequenceClassification depend on the padding"):
        check_padding(parts["model"], parts["data_collator"])


def test_the_probe_leaves_no_trace():
    """Neither in the mode of the model, nor in random numbers, nor in the collator's counts."""
    parts = parts_of("bert", "similarity", "right", both_orders=True)
    model, collator, drawn = parts["model"].train(), parts["data_collator"], []
    model.register_forward_pre_hook(lambda *_: drawn.append(torch.rand(1)))
    state = torch.get_rng_state()
    check_padding(model, collator)
    assert len(drawn) == 2
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


def test_the_probe_leaves_the_modules():
    """BigBird replaces its attention for good when it reads a short batch."""
    parts = parts_of("big_bird", "entailment", "right")
    model, long = parts["model"].eval(), torch.arange(5, 35)[None]
    modules, handle = list(model.modules()), model.classifier.register_forward_hook(lambda *_: None)
    with torch.no_grad():
        before = model(long).logits
        check_padding(model, parts["data_collator"])
        assert torch.equal(model(long).logits, before)
    assert all(map(lambda one, other: one is other, model.modules(), modules))
    assert not model.training
    handle.remove()
    assert not model.classifier._forward_hooks
