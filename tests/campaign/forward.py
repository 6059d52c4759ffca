"""One call of a random model against the formula: logits, scores, losses, gradients; and calls that mean nothing."""

import random
from pathlib import Path

import torch
from campaign.common import check, check_close, check_refused, is_clear, randomise, weigh
from campaign.formula import ACTIVATIONS, Formula

import modeling_gpt1

DTYPES = {torch.float32: 4, torch.float64: 3, torch.bfloat16: 1}
TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-8, torch.bfloat16: 0.3}
LOSS_TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-5, torch.bfloat16: 0.3}  # sums are float32 at least
LENGTH = 12


def make_model(generator: random.Random, head: str, dtype: torch.dtype = torch.float32, **fields):
    """A random model of the class `GPT1…` or `GPT1LSTM…` with this head."""
    is_lstm = generator.random() < 0.2
    heads = generator.choice([1, 2, 4])
    sizes = {
        "vocab_size": generator.randint(8, 40),
        "hidden_size": heads * generator.choice([8, 12]),
        "num_hidden_layers": generator.randint(1, 3),
        "max_position_embeddings": LENGTH + generator.choice([0, 0, 5]),
        "layer_norm_epsilon": generator.choice([1e-5, 1e-3]),
        "tie_word_embeddings": generator.random() < 0.8,
        **{f"{name}_pdrop": 0.0 for name in ("embd", "resid")},
        "classifier_dropout": 0.0,
        **fields,
    }
    if is_lstm:
        config = modeling_gpt1.GPT1LSTMConfig(lstm_hidden_size=generator.choice([5, 16]), **sizes)
        model = getattr(modeling_gpt1, f"GPT1LSTM{head}")(config)
    else:
        sizes |= {"num_attention_heads": heads, "attn_pdrop": 0.0, "hidden_act": generator.choice([*ACTIVATIONS])}
        sizes |= {"do_layer_norm_before": generator.random() < 0.4}
        if generator.random() < 0.5:
            sizes["sliding_window"] = generator.choice([1, 1, 2, 3, 5, 20])
            if generator.random() < 0.5:
                kinds = ("sliding_attention", "full_attention")
                sizes["layer_types"] = [generator.choice(kinds) for _ in range(sizes["num_hidden_layers"])]
        config = modeling_gpt1.GPT1Config(**sizes)
        config._attn_implementation = generator.choice(["sdpa", "eager"])
        model = getattr(modeling_gpt1, f"GPT1{head}")(config)
    return randomise(model, generator.randrange(2**31)).to(dtype)


def make_mask(generator: random.Random, num_rows: int, length: int, allow_empty: bool = False) -> torch.Tensor:
    """`[S, T]` of 0 and 1: padding on either side, holes, and rows of padding alone where they are allowed."""
    mask = torch.ones(num_rows, length, dtype=torch.long)
    for row in mask:
        kind = weigh(generator, {"none": 2, "right": 3, "left": 3, "both": 1, "holes": 2, "empty": allow_empty * 0.5})
        left = generator.randrange(length) if kind in ("left", "both") else 0
        right = generator.randrange(length - left) if kind in ("right", "both") else 0
        row[:left], row[length - right :] = 0, 0
        if kind == "holes":
            row[torch.tensor([generator.random() < 0.4 for _ in range(length)])] = 0
            row[generator.randrange(length)] = 1
        if kind == "empty":
            row[:] = 0
    return mask


def given_mask(generator: random.Random, mask: torch.Tensor) -> torch.Tensor | None:
    if mask.all() and generator.random() < 0.5:
        return None
    return mask.to(generator.choice([torch.long, torch.long, torch.bool, torch.float32, torch.int32]))


def make_ids(generator: random.Random, model, *shape: int) -> torch.Tensor:
    noise = torch.Generator().manual_seed(generator.randrange(2**31))
    return torch.randint(0, model.config.vocab_size, shape, generator=noise)


def check_gradients(model, formula: Formula, loss: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    loss.backward()
    expected.backward()
    for name, weight in model.named_parameters():
        given, wanted = weight.grad, formula[name].grad
        zeros = torch.zeros_like(formula[name])
        check_close(
            f"The gradient of {name}",
            zeros if given is None else given,
            zeros if wanted is None else wanted,
            10 * tolerance,
        )


def language_model(generator: random.Random, folder: Path) -> None:
    dtype = weigh(generator, DTYPES)
    model = make_model(generator, "ForCausalLM", dtype)
    formula, num_rows, length = Formula(model), generator.randint(1, 4), generator.randint(1, LENGTH)
    ids, mask = make_ids(generator, model, num_rows, length), make_mask(generator, num_rows, length, True)
    batch = {"input_ids": ids, "attention_mask": given_mask(generator, mask), "use_cache": generator.random() < 0.5}
    types = make_ids(generator, model, num_rows, length) if generator.random() < 0.2 else None
    positions, starts = None, [{0} for _ in range(num_rows)]
    if generator.random() < 0.3 and not formula.is_lstm:
        positions = [sorted(generator.sample(range(LENGTH), length)) for _ in range(num_rows)]
        if batch["attention_mask"] is None and generator.random() < 0.5:  # several sequences in a row
            starts = [{0, *generator.sample(range(length), min(length, 2))} for _ in range(num_rows)]
            positions = [
                [place - max(start for start in row if start <= place) for place in range(length)] for row in starts
            ]
            batch["use_cache"] = False
        batch["position_ids"] = torch.tensor(positions)
    labels = ids.masked_fill(torch.rand(ids.shape) < generator.choice([0, 0.3, 1]), -100)
    labels = labels.masked_fill(mask == 0, -100)
    labels[:, 1:][mask[:, :-1] == 0] = -100  # predicted from padding
    is_training = dtype != torch.bfloat16 and generator.random() < 0.4
    if is_training:
        model.train()
        batch["use_cache"] = False
    outputs = model(**batch, token_type_ids=types, labels=labels, skip_logits=False)
    check(not outputs.logits.isnan().any(), "There is NaN in the logits")
    sums, counts = [], []
    for row in range(num_rows):
        real = mask[row].nonzero()[:, 0].tolist()
        bounds = sorted(starts[row]) + [length]
        losses = [formula[next(iter(formula.weights))].sum() * 0]
        for start, end in zip(bounds, bounds[1:], strict=False):
            places = [place for place in real if start <= place < end]
            if not places:
                continue
            hidden = formula.hidden(
                ids[row, places].tolist(),
                None if positions is None else [positions[row][place] for place in places],
                places,
                None if types is None else types[row, places].tolist(),
            )
            logits = formula.logits(hidden)
            check_close(f"Logits of row {row}", outputs.logits[row, places], logits, TOLERANCES[dtype])
            for rank, place in enumerate(places):
                if place + 1 < length and labels[row, place + 1] != -100:
                    losses.append(-logits[rank].log_softmax(-1)[labels[row, place + 1]])
        sums.append(sum(losses))
        counts.append(len(losses) - 1)
    expected = sum(sums) / max(sum(counts), 1)
    check_close("The loss", outputs.loss, expected, LOSS_TOLERANCES[dtype])
    if is_training:
        check_gradients(model, formula, outputs.loss, expected, LOSS_TOLERANCES[dtype])


def swapped(row: list[int], delimiter: int) -> list[int]:
    middle = row.index(delimiter)
    return [row[0], *row[middle + 1 : -1], delimiter, *row[1:middle], row[-1]]


def make_task(generator: random.Random) -> tuple[str, dict]:
    traversal = generator.choice(["classification", "entailment", "similarity", "multiple_choice", "multiple_choice"])
    fields = {"traversal": traversal, "lm_coef": generator.choice([0, 0.5, 0.5, 2.0])}
    if traversal != "multiple_choice":
        fields["num_labels"] = generator.choice([1, 2, 3, 5])
        if fields["num_labels"] > 1 and generator.random() < 0.2:
            fields["problem_type"] = "multi_label_classification"
    alone = "ForMultipleChoice" if traversal == "multiple_choice" else "ForSequenceClassification"
    return generator.choice(["DoubleHeadsModel", "DoubleHeadsModel", alone]), fields


def make_labels(generator: random.Random, config, present: torch.Tensor) -> torch.Tensor:
    def one(row: torch.Tensor):
        if config.problem_type == "multi_label_classification":
            return [generator.choice([0.0, 0.0, 1.0, 1.0, -100.0]) for _ in range(config.num_labels)]
        if config.traversal == "multiple_choice":
            return -100 if generator.random() < 0.2 else generator.choice(row.nonzero()[:, 0].tolist())
        if config.num_labels == 1:
            return generator.uniform(-2, 2)
        return -100 if generator.random() < 0.2 else generator.randrange(config.num_labels)

    return torch.tensor([one(row) for row in present])


def task_batch(generator: random.Random, model) -> tuple[dict, torch.Tensor, torch.Tensor]:
    """What a task model is given, and for the formula the ids `[B, C, T]` and masks of all sequences."""
    config = model.config
    num_rows, length = generator.randint(1, 4), generator.randint(3, LENGTH)
    choices = {"classification": 1, "entailment": 1, "similarity": 2}.get(config.traversal) or generator.randint(1, 4)
    shape = (num_rows, choices, length)
    ids = make_ids(generator, model, *shape)
    if choices > 1 and generator.random() < 0.6:  # a context that the choices share
        shared = generator.randint(1, length)
        ids[:, :, :shared] = ids[:, :1, :shared]
    mask = make_mask(generator, num_rows * choices, length).view(shape)
    present = torch.ones(num_rows, choices, dtype=torch.bool)
    batch = {}
    if config.traversal == "multiple_choice" and generator.random() < 0.5:
        for row in present:
            row[torch.tensor([generator.random() < 0.3 for _ in range(choices)])] = False
            row[generator.randrange(choices)] = True
        batch["choice_mask"] = present
        mask[~present & (torch.rand(present.shape) < 0.7)] = 0
    if config.traversal == "similarity" and generator.random() < 0.5:
        config.delimiter_token_id = delimiter = config.vocab_size - 1
        ids, mask = ids.clamp(max=delimiter - 1), torch.zeros_like(mask)
        for row in range(num_rows):
            start = generator.randrange(length - 2)
            end = generator.randint(start + 3, length)
            ids[row, 0, generator.randint(start + 1, end - 2)] = delimiter
            ids[row, 1, start:end] = torch.tensor(swapped(ids[row, 0, start:end].tolist(), delimiter))
            mask[row, :, start:end] = 1
        batch |= {"input_ids": ids[:, 0], "attention_mask": given_mask(generator, mask[:, 0])}
    else:
        flat = choices == 1 and config.traversal != "multiple_choice" and generator.random() < 0.5
        batch |= {"input_ids": ids, "attention_mask": given_mask(generator, mask)}
        if flat:
            batch = {key: None if value is None else value[:, 0] for key, value in batch.items()}
    batch["present"] = present
    return batch, ids, mask


def task_model(generator: random.Random, folder: Path) -> None:
    dtype, (head, fields) = weigh(generator, DTYPES), make_task(generator)
    model = make_model(generator, head, dtype, **fields)
    batch, ids, mask = task_batch(generator, model)
    present = batch.pop("present")
    formula, config, (num_rows, choices, _) = Formula(model), model.config, ids.shape
    model.pack_sequences = generator.random() < 0.7
    places = [[mask[row, choice].nonzero()[:, 0].tolist() for choice in range(choices)] for row in range(num_rows)]
    extracted = [[real[-1] if real else 0 for real in row] for row in places]
    if batch["input_ids"].dim() == 3 and generator.random() < 0.4:
        extracted = [[generator.choice(real or [0]) for real in row] for row in places]
        batch["mc_token_ids"] = torch.tensor(extracted)
    labels = make_labels(generator, config, present)
    has_lm = head == "DoubleHeadsModel"
    is_target = torch.ones(ids.shape, dtype=torch.bool)
    if has_lm and batch["input_ids"].dim() == 3 and generator.random() < 0.3:
        is_target = torch.rand(ids.shape) < 0.6
        batch["lm_mask"] = is_target
    is_training = dtype != torch.bfloat16 and generator.random() < 0.5
    model.train(is_training)
    outputs = model(**batch, labels=labels)
    total_task = total_lm = formula["task_head.score.bias"].sum() * 0
    counts = (labels != -100).flatten(1).sum(1) if labels.dim() > 1 else (labels != -100).long()
    for row in range(num_rows):
        hidden = [
            formula.hidden(ids[row, choice][real].tolist(), places=real) if real and present[row, choice] else None
            for choice, real in enumerate(places[row])
        ]
        at = [x if x is None else x[places[row][c].index(extracted[row][c])] for c, x in enumerate(hidden)]
        logits = formula.task_logits(at)
        kept = logits.isfinite()
        found = (outputs.task_logits if has_lm else outputs.logits)[row]
        check_close(f"Scores of example {row}", found[kept], logits[kept], TOLERANCES[dtype])
        check(bool((found[~kept] == -torch.inf).all()), f"Absent choices of example {row} have scores")
        if not counts[row]:
            continue
        total_task = total_task + counts[row] * formula.task_loss(logits, labels[row].tolist())
        real_choices = [choice for choice in range(choices) if present[row, choice]]
        for choice in real_choices:
            real = places[row][choice]
            tokens, chosen = ids[row, choice][real].tolist(), is_target[row, choice][real].tolist()
            of_choice = formula.lm_loss(hidden[choice], tokens, chosen)
            total_lm = total_lm + counts[row] * of_choice / len(real_choices)
    num_items = max(int(counts.sum()), 1)
    coefficient = config.lm_coef if has_lm else 0
    expected = total_task / num_items + coefficient * total_lm / num_items
    check_close("The loss", outputs.loss, expected, LOSS_TOLERANCES[dtype])
    if has_lm:
        check_close("L2", outputs.task_loss, total_task / num_items, LOSS_TOLERANCES[dtype])
    if is_training:
        check_gradients(model, formula, outputs.loss, expected, LOSS_TOLERANCES[dtype])


def meaningless(generator: random.Random, folder: Path) -> None:
    """Calls that mean nothing are refused with a sentence."""
    if generator.random() < 0.3:
        return meaningless_language_model(generator)
    head, fields = make_task(generator)
    model = make_model(generator, head, torch.float32, **fields)
    model.pack_sequences = generator.random() < 0.5
    batch, ids, mask = task_batch(generator, model)
    present, config = batch.pop("present"), model.config
    batch["labels"] = make_labels(generator, config, present)
    num_rows, choices, length = ids.shape
    has_classes = batch["labels"].dim() == 1 and not (config.num_labels == 1 and config.traversal != "multiple_choice")
    row, choice = generator.choice(present.nonzero().tolist())
    faults = ["id", "mask value", "mask shape", "empty", "label shape"]
    faults += ["label", "label type"] if has_classes else ["label NaN"]
    if batch["input_ids"].dim() == 3:
        faults += ["position", "position", "padding row"]
        faults += ["position in padding"] if not mask[row, choice].all() else []
        faults += ["absent label"] if not present[row].all() and has_classes else []
    fault = generator.choice(faults)
    if fault == "id":
        batch["input_ids"] = batch["input_ids"].clone()
        batch["input_ids"].view(-1)[generator.randrange(batch["input_ids"].numel())] = generator.choice([-1, 10**6])
        batch["attention_mask"] = None  # what lies in padding is not read
    elif fault == "mask value":
        batch["attention_mask"] = torch.full(batch["input_ids"].shape, 2)
    elif fault == "mask shape":
        batch["attention_mask"] = torch.ones(*batch["input_ids"].shape[:-1], length + 1).long()
    elif fault == "empty":
        batch["input_ids"], batch["attention_mask"] = batch["input_ids"][..., :0], None
    elif fault == "label shape":
        batch["labels"] = torch.cat([batch["labels"], batch["labels"]])
    elif fault == "label":
        batch["labels"][row] = generator.choice([-1, -2, 10**6])
    elif fault == "label type":
        batch["labels"] = batch["labels"].float()
    elif fault == "label NaN":
        batch["labels"][row] = torch.nan
    elif fault == "absent label":
        batch["labels"][row] = (~present[row]).nonzero()[0, 0]
    elif fault == "padding row":
        mask[row, choice] = 0
        batch["attention_mask"] = mask
    else:
        batch["mc_token_ids"] = torch.tensor(
            [[int(real.nonzero()[0, 0]) if real.any() else 0 for real in of_row] for of_row in mask]
        )
        outside = generator.choice([-1, length, 10**6])
        batch["attention_mask"] = mask
        in_padding = fault == "position in padding"
        batch["mc_token_ids"][row, choice] = (mask[row, choice] == 0).nonzero()[0, 0] if in_padding else outside
    check_refused(f"A batch with a fault ({fault})", lambda: model(**batch))


def meaningless_language_model(generator: random.Random) -> None:
    model = make_model(generator, "ForCausalLM")
    ids = make_ids(generator, model, 2, 5)
    batch = {
        "id": {"input_ids": ids - 100},
        "label": {"input_ids": ids, "labels": ids + 1000},
        "label type": {"input_ids": ids, "labels": ids.float()},
        "label shape": {"input_ids": ids, "labels": ids[:, :-1]},
        "mask value": {"input_ids": ids, "attention_mask": ids * 0 + 3},
        "mask shape": {"input_ids": ids, "attention_mask": torch.ones(2, 4).long()},
        "ids of floats": {"input_ids": ids.float()},
        "empty": {"input_ids": ids[:, :0]},
        "no rows": {"input_ids": ids[:0]},
        "nothing": {},
        "types": {"input_ids": ids, "token_type_ids": ids + 1000},
    }
    if model.config.model_type == "gpt1":
        batch["positions"] = {"input_ids": ids, "position_ids": ids * 0 + 1000}
        batch["too long"] = {"input_ids": ids.repeat(1, 10)}
    fault = generator.choice([*batch])
    check_refused(f"A batch with a fault ({fault})", lambda: model(**batch[fault]))


CONFIG_FAULTS = {
    "hidden_act": ("nonsense", "", None, 3),
    "problem_type": ("nonsense", "ranking", 5),
    "num_labels": (0, -1, "two", 1.5),
    "layer_norm_epsilon": (-1.0, float("nan"), float("inf")),
    "num_attention_heads": (0, 5, -1),
    "num_hidden_layers": (0, -1),
    "sliding_window": (0, -3),
    "traversal": ("ranking", 7),
    "lm_coef": (-1.0, float("nan")),
    "resid_pdrop": (-0.1, 2.0),
    "vocab_size": (0, -1),
    "max_position_embeddings": (0,),
}


def configuration(generator: random.Random, folder: Path) -> None:
    """Fields that no model can have end in a sentence, when the configuration is made or the model."""
    name = generator.choice([*CONFIG_FAULTS])
    value = generator.choice(CONFIG_FAULTS[name])
    fields = {"vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, name: value}
    try:
        modeling_gpt1.GPT1DoubleHeadsModel(modeling_gpt1.GPT1Config(**fields))
    except Exception as error:
        is_of_hub = type(error).__module__ == "huggingface_hub.errors"  # documented, and says field and value
        check(is_of_hub or is_clear(error), f"{type(error).__name__} for {name}={value!r}: {error}")
    else:
        check(False, f"{name}={value!r} was taken without a word")


CASES = {language_model: 3, task_model: 5, meaningless: 1, configuration: 0.3}
