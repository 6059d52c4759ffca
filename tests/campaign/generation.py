"""Greedy continuations: with a cache, without, left-padded in a batch, in pieces, with beams; against the formula."""

import random
from pathlib import Path

import torch
from campaign.common import Wrong, check, check_close, weigh
from campaign.formula import Formula
from campaign.forward import LENGTH, make_ids, make_model

SMALL_GAP = 1e-6  # between the best two scores; below it either may win


def by_formula(formula: Formula, ids: list[int], num_new: int) -> tuple[list[int], float]:
    """The tokens that follow, and the least gap between the best two scores."""
    least, new = 1.0, []
    with torch.no_grad():
        for _ in range(num_new):
            scores = formula.logits(formula.hidden([*ids, *new])[-1])
            best = scores.topk(2)
            least = min(least, (best.values[0] - best.values[1]).item())
            new.append(best.indices[0].item())
    return new, least


def continuation(generator: random.Random, folder: Path) -> None:
    model = make_model(generator, "ForCausalLM", torch.float64)
    formula, num_new = Formula(model), generator.randint(1, 7)
    prompts = [
        make_ids(generator, model, generator.randint(1, LENGTH - num_new)).tolist()
        for _ in range(generator.randint(1, 4))
    ]
    expected = [by_formula(formula, prompt, num_new) for prompt in prompts]
    options = {"max_new_tokens": num_new, "min_new_tokens": num_new, "do_sample": False, "pad_token_id": 0}

    def found(**others) -> list[list[int]]:
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        return model.generate(ids, attention_mask=mask, **options, **others)[:, longest:].tolist()

    ways = {"with a cache": {"use_cache": True}, "without a cache": {"use_cache": False}}
    if model.config.model_type == "gpt1":
        ways["with a static cache"] = {"use_cache": True, "cache_implementation": "static"}
    if generator.random() < 0.2:
        ways["in pieces of the prompt"] = {"use_cache": True, "prefill_chunk_size": generator.randint(1, 4)}
        if model.config.model_type != "gpt1":
            del ways["in pieces of the prompt"]
    for way, others in ways.items():
        for row, (new, (wanted, gap)) in enumerate(zip(found(**others), expected, strict=True)):
            check(new == wanted or gap < SMALL_GAP, f"Row {row} {way} goes on with {new}, not {wanted}")


def beams(generator: random.Random, folder: Path) -> None:
    """Beam search moves the rows of a cache."""
    model = make_model(generator, "ForCausalLM", torch.float64)
    num_new = generator.randint(2, 6)
    ids = make_ids(generator, model, 2, generator.randint(1, LENGTH - num_new))
    options = {"num_beams": 3, "max_new_tokens": num_new, "min_new_tokens": num_new, "pad_token_id": 0}
    rows = [
        model.generate(ids, do_sample=False, use_cache=use_cache, **options).tolist() for use_cache in (True, False)
    ]
    check(rows[0] == rows[1], f"Beams with a cache give {rows[0]}, without {rows[1]}")


def pieces(generator: random.Random, folder: Path) -> None:
    """A sequence that is read in pieces, each of which sees the cache of those before; padding in any of them."""
    dtype = weigh(generator, {torch.float64: 2, torch.float32: 1})
    model = make_model(generator, "ForCausalLM", dtype)
    formula, num_rows = Formula(model), generator.randint(1, 3)
    ids = make_ids(generator, model, num_rows, LENGTH)
    left = [generator.choice([0, 0, generator.randrange(LENGTH)]) for _ in range(num_rows)]
    mask = torch.stack([(torch.arange(LENGTH) >= start).long() for start in left])
    cuts, cache, found = sorted(generator.sample(range(1, LENGTH), generator.randint(1, 4))), None, []
    for start, end in zip([0, *cuts], [*cuts, LENGTH], strict=True):
        outputs = model(ids[:, start:end], attention_mask=mask[:, :end], past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        found.append(outputs.logits)
    found = torch.cat(found, 1)
    for row in range(num_rows):
        expected = formula.logits(formula.hidden(ids[row, left[row] :].tolist()))
        tolerance = 1e-8 if dtype == torch.float64 else 1e-3
        check_close(
            f"Logits of row {row} in pieces that begin at {cuts}", found[row, left[row] :], expected, tolerance
        )


def exported(generator: random.Random, folder: Path) -> None:
    """An exported program gives what the model gives, of other numbers of rows and with padding too."""
    model = make_model(generator, "ForCausalLM", torch.float32)
    batch = {"input_ids": make_ids(generator, model, 2, 7), "attention_mask": torch.ones(2, 7).long()}
    shapes = {**{name: {0: torch.export.Dim.AUTO} for name in batch}, "use_cache": None}
    try:
        program = torch.export.export(model, (), {**batch, "use_cache": False}, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        raise Wrong(f"The model cannot be exported: {type(error).__name__}: {error}"[:300]) from error
    other = {"input_ids": make_ids(generator, model, 3, 7), "attention_mask": torch.ones(3, 7).long()}
    other["attention_mask"][0, : generator.randrange(6)] = 0
    real = other["attention_mask"].bool()
    found, expected = (one(**other, use_cache=False).logits[real] for one in (program.module(), model))
    check_close("The logits of the exported program", found, expected, 1e-4)


CASES = {continuation: 4, beams: 1, pieces: 3, exported: 0.1}
