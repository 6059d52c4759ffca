"""Random models on random batches against formulas: logits, scores, losses, gradients, continuations.

The formulas compute one sequence at a time in float64, without padding, and use nothing of the package. Sources:
equations 1 to 5 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018), the released
code for the means of L1, and section 2 of the papers of GPT-2 and GPT-3 for norms and bands.
"""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.packing import planned
from transformers import StaticCache

import modeling_gpt1
from modeling_gpt1 import GPT1Config
from tokenization.batches.plan import plan_blocks

LENGTH = 12
TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-8}
LOSS_TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-5}  # sums are float32 at least
SMALL_GAP = 1e-6  # between the best two scores; below it either may win
THRICE = settings(max_examples=3 * settings.default.max_examples)  # for what no other test holds
CHOICES = st.randoms(use_true_random=False)
ACTIVATIONS = {
    "gelu_pytorch_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "relu": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


class Formula:
    """The weights of a model as float64 leaves, and what they make of token ids."""

    def __init__(self, model: torch.nn.Module):
        self.config = model.config
        self.is_lstm = model.config.model_type == "gpt1-lstm"
        self.weights = {name: weight.detach().double().requires_grad_() for name, weight in model.named_parameters()}
        self.zero = next(iter(self.weights.values())).sum() * 0

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + self.config.layer_norm_epsilon)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def hidden(self, ids, positions=None, places=None, types=None) -> torch.Tensor:
        """`[n, D]` of the n real tokens of one sequence; `places` are those in its row, by which bands are counted."""
        embeddings, ranks = self.weights["transformer.tokens_embed.weight"], torch.arange(len(ids))
        x = embeddings[torch.tensor(ids)] + (0 if types is None else embeddings[torch.tensor(types)])
        layers = range(self.config.num_hidden_layers)
        if self.is_lstm:
            for layer in layers:
                x = self.lstm_layer(f"transformer.h.{layer}", x)
            return x
        positions = ranks if positions is None else torch.tensor(positions)
        x = x + self.weights["transformer.positions_embed.weight"][positions]
        places = ranks if places is None else torch.tensor(places)
        for layer in layers:
            x = self.block(f"transformer.h.{layer}", layer, x, places[:, None] - places)
        return self.norm("transformer.ln_f", x) if self.config.do_layer_norm_before else x

    def block(self, name: str, layer: int, x: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
        sees = distances >= 0
        layer_types = getattr(self.config, "layer_types", None)
        if layer_types and layer_types[layer] == "sliding_attention":
            sees = sees & (distances < self.config.sliding_window)

        def attend(x):
            size = self.config.hidden_size // self.config.num_attention_heads
            heads = zip(*(self.linear(f"{name}.attn.{part}_proj", x).split(size, -1) for part in "qkv"), strict=True)
            mixed = [
                (query @ key.T / math.sqrt(size)).masked_fill(~sees, -math.inf).softmax(-1) @ value
                for query, key, value in heads
            ]
            return self.linear(f"{name}.attn.o_proj", torch.cat(mixed, -1))

        def feed_forward(x):
            act = ACTIVATIONS[self.config.hidden_act]
            return self.linear(f"{name}.mlp.down_proj", act(self.linear(f"{name}.mlp.up_proj", x)))

        if self.config.do_layer_norm_before:
            x = x + attend(self.norm(f"{name}.ln_1", x))
            return x + feed_forward(self.norm(f"{name}.ln_2", x))
        x = self.norm(f"{name}.ln_1", x + attend(x))
        return self.norm(f"{name}.ln_2", x + feed_forward(x))

    def lstm_layer(self, name: str, x: torch.Tensor) -> torch.Tensor:
        x, units = self.norm(f"{name}.ln_1", x), self.config.lstm_hidden_size
        hidden, cell, outputs = x.new_zeros(units), x.new_zeros(units), []
        for token in x:
            gates = self.weights[f"{name}.lstm.weight_ih_l0"] @ token + self.weights[f"{name}.lstm.bias_ih_l0"]
            gates = gates + self.weights[f"{name}.lstm.weight_hh_l0"] @ hidden
            enter, forget, new, leave = (gates + self.weights[f"{name}.lstm.bias_hh_l0"]).split(units)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            hidden = leave.sigmoid() * cell.tanh()
            outputs.append(hidden)
        return self.norm(f"{name}.ln_2", self.linear(f"{name}.c_proj", torch.stack(outputs)))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.weights.get("lm_head.weight", self.weights["transformer.tokens_embed.weight"]).T

    def task_logits(self, extracted: list[torch.Tensor | None]) -> torch.Tensor:
        """`[K]`, or `[C]` for multiple choice, of an example's sequences at their extract tokens; `None` is absent."""
        if self.config.traversal != "multiple_choice":
            return self.linear("task_head.score", sum(extracted))
        absent = torch.tensor(-math.inf).double()
        return torch.stack([absent if x is None else self.linear("task_head.score", x)[0] for x in extracted])

    def task_loss(self, logits: torch.Tensor, label) -> torch.Tensor:
        if self.config.problem_type == "multi_label_classification":
            label = torch.tensor(label).double()
            return -(label * logits.sigmoid().log() + (1 - label) * (-logits).sigmoid().log())[label != -100].mean()
        if self.config.num_labels == 1 and self.config.traversal != "multiple_choice":
            return (logits[0] - label) ** 2
        return -logits.log_softmax(-1)[label]

    def lm_loss(self, hidden: torch.Tensor, ids: list[int], is_target: list[bool]) -> torch.Tensor:
        """Mean −log P of the targets among the real tokens after the first."""
        losses = -self.logits(hidden[:-1]).log_softmax(-1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:]).long()]
        chosen = torch.tensor(is_target[1:], dtype=torch.bool)
        return losses[chosen].mean() if chosen.any() else losses.sum() * 0


def check_close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Within the tolerance times one more than the largest expected number."""
    found, expected = found.detach().double(), expected.detach().double()
    scale = 1 + (expected.abs().max().item() if expected.numel() else 0)
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * scale)


def check_gradients(model, formula: Formula, loss: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    loss.backward()
    expected.backward()
    for name, weight in model.named_parameters():
        zeros = torch.zeros_like(formula.weights[name])
        given, wanted = (zeros if grad is None else grad for grad in (weight.grad, formula.weights[name].grad))
        check_close(given, wanted, 10 * tolerance)


@pytest.fixture(scope="module")
def make_random_model(randomise):
    """Makes a random model in evaluation mode of the class `GPT1…` or `GPT1LSTM…` with this head."""

    def make(choose, head: str, dtype: torch.dtype = torch.float32, **fields):
        heads, is_lstm = choose.choice([1, 2, 4]), choose.random() < 0.25
        sizes = {
            "vocab_size": choose.randint(8, 40),
            "hidden_size": heads * choose.choice([8, 12]),
            "num_hidden_layers": choose.randint(1, 3),
            "max_position_embeddings": LENGTH + choose.choice([0, 0, 5]),
            "layer_norm_epsilon": choose.choice([1e-5, 1e-3]),
            "tie_word_embeddings": choose.random() < 0.8,
            **dict.fromkeys(("embd_pdrop", "resid_pdrop", "classifier_dropout"), 0.0),
            **fields,
        }
        if is_lstm:
            config = modeling_gpt1.GPT1LSTMConfig(lstm_hidden_size=choose.choice([5, 16]), **sizes)
        else:
            sizes |= {"num_attention_heads": heads, "attn_pdrop": 0.0, "hidden_act": choose.choice([*ACTIVATIONS])}
            sizes |= {"do_layer_norm_before": choose.random() < 0.4}
            if choose.random() < 0.5:
                kinds = choose.choices(("sliding_attention", "full_attention"), k=sizes["num_hidden_layers"])
                sizes |= {"sliding_window": choose.choice([1, 2, 3, 5, 20]), "layer_types": kinds}
            config = GPT1Config(**sizes, attn_implementation=choose.choice(["sdpa", "sdpa", "eager"]))
        model = getattr(modeling_gpt1, f"GPT1{'LSTM' * is_lstm}{head}")(config)
        return randomise(model, choose.randrange(2**31)).to(dtype).eval()

    return make


def make_mask(choose, num_rows: int, length: int, allow_empty: bool = False) -> torch.Tensor:
    """`[S, T]` of 0 and 1: padding on either side, holes, and rows of padding alone where they are allowed."""
    mask = torch.ones(num_rows, length, dtype=torch.long)
    kinds = ["none", "right", *["left", "both", "holes"] * (choose.random() < 0.5), *["empty"] * allow_empty]
    for row in mask:
        kind = choose.choice(kinds)
        left = choose.randrange(length) if kind in ("left", "both") else 0
        right = choose.randrange(length - left) if kind in ("right", "both") else 0
        row[:left], row[length - right :] = 0, 0
        if kind == "holes":
            row[torch.tensor([choose.random() < 0.4 for _ in range(length)])] = 0
            row[choose.randrange(length)] = 1
        if kind == "empty":
            row[:] = 0
    return mask


def given_mask(choose, mask: torch.Tensor) -> torch.Tensor | None:
    if mask.all() and choose.random() < 0.5:
        return None
    return mask.to(choose.choice([torch.long, torch.bool, torch.float32]))


def make_ids(choose, model, *shape: int) -> torch.Tensor:
    noise = torch.Generator().manual_seed(choose.randrange(2**31))
    return torch.randint(0, model.config.vocab_size, shape, generator=noise)


@THRICE
@given(choose=CHOICES)
def test_language_models_equal_the_formula(make_random_model, choose):
    dtype = choose.choice([*TOLERANCES])
    model = make_random_model(choose, "ForCausalLM", dtype)
    formula, num_rows, length = Formula(model), choose.randint(1, 4), choose.randint(1, LENGTH)
    ids, mask = make_ids(choose, model, num_rows, length), make_mask(choose, num_rows, length, True)
    batch = {"input_ids": ids, "attention_mask": given_mask(choose, mask), "use_cache": choose.random() < 0.5}
    types = make_ids(choose, model, num_rows, length) if choose.random() < 0.2 else None
    positions, starts = None, [{0} for _ in range(num_rows)]
    if choose.random() < 0.3 and not formula.is_lstm:
        positions = [sorted(choose.sample(range(LENGTH), length)) for _ in range(num_rows)]
        if batch["attention_mask"] is None and choose.random() < 0.5:  # several sequences in a row
            starts = [{0, *choose.sample(range(length), min(length, 2))} for _ in range(num_rows)]
            positions = [[place - max(s for s in row if s <= place) for place in range(length)] for row in starts]
        batch["position_ids"] = torch.tensor(positions)
    noise = torch.rand(ids.shape, generator=torch.Generator().manual_seed(choose.randrange(2**31)))
    labels = ids.masked_fill((noise < choose.choice([0, 0.3, 1])) | (mask == 0), -100)
    labels[:, 1:][mask[:, :-1] == 0] = -100  # predicted from padding
    if is_training := choose.random() < 0.4:
        model.train()
        batch["use_cache"] = False
    if positions is None and is_right_padded(mask) and choose.random() < 0.5:
        batch["plan"] = plan_blocks(mask)
    skip_logits = "plan" in batch and choose.random() < 0.5
    outputs = model(**batch, token_type_ids=types, labels=labels, skip_logits=skip_logits)
    losses = [formula.zero]
    for row in range(num_rows):
        real, bounds = mask[row].nonzero()[:, 0].tolist(), [*sorted(starts[row]), length]
        for start, end in zip(bounds, bounds[1:], strict=False):
            if not (places := [place for place in real if start <= place < end]):
                continue
            of_row = None if positions is None else [positions[row][place] for place in places]
            of_types = None if types is None else types[row, places].tolist()
            logits = formula.logits(formula.hidden(ids[row, places].tolist(), of_row, places, of_types))
            if outputs.logits is not None:
                check_close(outputs.logits[row, places], logits, TOLERANCES[dtype])
            for rank, place in enumerate(places):
                if place + 1 < length and labels[row, place + 1] != -100:
                    losses.append(-logits[rank].log_softmax(-1)[labels[row, place + 1]])
    expected = sum(losses) / max(len(losses) - 1, 1)
    check_close(outputs.loss, expected, LOSS_TOLERANCES[dtype])
    if is_training:
        check_gradients(model, formula, outputs.loss, expected, LOSS_TOLERANCES[dtype])


def is_right_padded(mask: torch.Tensor) -> bool:
    return not (mask.diff(dim=-1) > 0).any()


def make_task_model(choose, make_random_model, dtype: torch.dtype = torch.float32):
    traversal = choose.choice(["classification", "entailment", "similarity", "multiple_choice"])
    fields = {"traversal": traversal, "lm_coef": choose.choice([0, 0.5, 2.0])}
    if traversal != "multiple_choice":
        fields["num_labels"] = choose.choice([1, 2, 3, 5])
        if fields["num_labels"] > 1 and choose.random() < 0.2:
            fields["problem_type"] = "multi_label_classification"
    alone = "ForMultipleChoice" if traversal == "multiple_choice" else "ForSequenceClassification"
    return make_random_model(choose, choose.choice(["DoubleHeadsModel", "DoubleHeadsModel", alone]), dtype, **fields)


def make_labels(choose, config, present: torch.Tensor) -> torch.Tensor:
    def one(row: torch.Tensor):
        if config.problem_type == "multi_label_classification":
            return [choose.choice([0.0, 0.0, 1.0, 1.0, -100.0]) for _ in range(config.num_labels)]
        if config.num_labels == 1 and config.traversal != "multiple_choice":
            return choose.uniform(-2, 2)
        classes = row.nonzero()[:, 0].tolist() if config.traversal == "multiple_choice" else range(config.num_labels)
        return -100 if choose.random() < 0.2 else choose.choice(classes)

    return torch.tensor([one(row) for row in present])


def make_task_batch(choose, model) -> tuple[dict, torch.Tensor, torch.Tensor, torch.Tensor]:
    """What a task model is given; and for the formula the ids `[B, C, T]`, the masks, and the present choices."""
    config, num_rows, length = model.config, choose.randint(1, 4), choose.randint(3, LENGTH)
    choices = {"classification": 1, "entailment": 1, "similarity": 2}.get(config.traversal) or choose.randint(1, 4)
    ids, shape = make_ids(choose, model, num_rows, choices, length), (num_rows, choices, length)
    if choices > 1 and choose.random() < 0.6:  # a context that the choices share
        shared = choose.randint(1, length)
        ids[:, :, :shared] = ids[:, :1, :shared]
    mask = make_mask(choose, num_rows * choices, length).view(shape)
    present, batch = torch.ones(num_rows, choices, dtype=torch.bool), {}
    if config.traversal == "multiple_choice" and choose.random() < 0.5:
        for row, of_row in zip(present, mask, strict=True):
            row[torch.tensor([choose.random() < 0.3 for _ in range(choices)])] = False
            row[choose.randrange(choices)] = True
            of_row[~row & torch.tensor([choose.random() < 0.7 for _ in range(choices)])] = 0
        batch["choice_mask"] = present
    if config.traversal == "similarity" and choose.random() < 0.5:  # one order, which the model swaps
        config.delimiter_token_id = delimiter = config.vocab_size - 1
        ids, mask = ids.clamp(max=delimiter - 1), torch.zeros_like(mask)
        for row in range(num_rows):
            start = choose.randrange(length - 2)
            end = choose.randint(start + 3, length)
            ids[row, 0, middle := choose.randint(start + 1, end - 2)] = delimiter
            pair = ids[row, 0, start:end].tolist()
            first, second = pair[1 : middle - start], pair[middle - start + 1 : -1]
            ids[row, 1, start:end] = torch.tensor([pair[0], *second, delimiter, *first, pair[-1]])
            mask[row, :, start:end] = 1
        return batch | {"input_ids": ids[:, 0], "attention_mask": given_mask(choose, mask[:, 0])}, ids, mask, present
    batch |= {"input_ids": ids, "attention_mask": given_mask(choose, mask)}
    if choices == 1 and config.traversal != "multiple_choice" and choose.random() < 0.5:
        batch = {key: None if value is None else value[:, 0] for key, value in batch.items()}
    return batch, ids, mask, present


@THRICE
@given(choose=CHOICES)
def test_task_models_equal_the_formula(make_random_model, choose):
    dtype = choose.choice([*TOLERANCES])
    model = make_task_model(choose, make_random_model, dtype)
    batch, ids, mask, present = make_task_batch(choose, model)
    formula, config, (num_rows, choices, _) = Formula(model), model.config, ids.shape
    places = [[mask[row, choice].nonzero()[:, 0].tolist() for choice in range(choices)] for row in range(num_rows)]
    extracted = [[real[-1] if real else 0 for real in row] for row in places]
    if batch["input_ids"].dim() == 3 and choose.random() < 0.4:
        extracted = [[choose.choice(real or [0]) for real in row] for row in places]
        batch["mc_token_ids"] = torch.tensor(extracted)
    if batch["input_ids"].dim() == 3 and is_right_padded(mask) and choose.random() < 0.9:
        batch = planned({**batch, "attention_mask": mask})
    labels = make_labels(choose, config, present)
    has_lm = type(model).__name__.endswith("DoubleHeadsModel")
    is_target = torch.ones(ids.shape, dtype=torch.bool)
    if has_lm and batch["input_ids"].dim() == 3 and choose.random() < 0.3:
        noise = torch.rand(ids.shape, generator=torch.Generator().manual_seed(choose.randrange(2**31)))
        is_target = batch["lm_mask"] = noise < 0.6
    model.train(is_training := choose.random() < 0.5)
    outputs = model(**batch, labels=labels)
    total_task = total_lm = formula.zero
    counts = (labels != -100).flatten(1).sum(1) if labels.dim() > 1 else (labels != -100).long()
    for row in range(num_rows):
        hidden = [
            formula.hidden(ids[row, choice][real].tolist(), places=real) if real and present[row, choice] else None
            for choice, real in enumerate(places[row])
        ]
        at = [x if x is None else x[places[row][c].index(extracted[row][c])] for c, x in enumerate(hidden)]
        logits = formula.task_logits(at)
        kept, found = logits.isfinite(), (outputs.task_logits if has_lm else outputs.logits)[row]
        check_close(found[kept], logits[kept], TOLERANCES[dtype])
        assert (found[~kept] == -torch.inf).all()
        if not counts[row]:
            continue
        total_task = total_task + counts[row] * formula.task_loss(logits, labels[row].tolist())
        real_choices = [choice for choice in range(choices) if present[row, choice]]
        for choice in real_choices:
            real = places[row][choice]
            tokens, chosen = ids[row, choice][real].tolist(), is_target[row, choice][real].tolist()
            total_lm = total_lm + counts[row] * formula.lm_loss(hidden[choice], tokens, chosen) / len(real_choices)
    num_items = max(int(counts.sum()), 1)
    expected = (total_task + (config.lm_coef if has_lm else 0) * total_lm) / num_items
    check_close(outputs.loss, expected, LOSS_TOLERANCES[dtype])
    if has_lm:
        check_close(outputs.task_loss, total_task / num_items, LOSS_TOLERANCES[dtype])
    if is_training:
        check_gradients(model, formula, outputs.loss, expected, LOSS_TOLERANCES[dtype])


@given(choose=CHOICES)
def test_negative_control_another_norm_is_found(make_random_model, choose):
    model = make_random_model(choose, "ForCausalLM", torch.float64)
    formula, ids = Formula(model), make_ids(choose, model, 1, 5)
    name = "transformer.h.0.ln_2.weight"
    formula.weights[name] = formula.weights[name] * 1.01
    with pytest.raises(AssertionError):
        check_close(model(ids).logits[0], formula.logits(formula.hidden(ids[0].tolist())), TOLERANCES[torch.float64])


def continuation(formula: Formula, ids: list[int], num_new: int) -> list[int] | None:
    """The tokens that follow; None where two scores are too close to tell."""
    new: list[int] = []
    for _ in range(num_new):
        with torch.no_grad():
            best = formula.logits(formula.hidden([*ids, *new])[-1]).topk(2)
        if best.values[0] - best.values[1] < SMALL_GAP:
            return None
        new.append(best.indices[0].item())
    return new


@given(choose=CHOICES)
def test_continuations_equal_the_formula(make_random_model, choose):
    """Greedy, with and without a cache, left-padded in a batch, in pieces of the prompt; beams with and without."""
    model = make_random_model(choose, "ForCausalLM", torch.float64)
    formula, num_new = Formula(model), choose.randint(1, 7)
    lengths = [choose.randint(1, LENGTH - num_new) for _ in range(choose.randint(1, 4))]
    prompts = [make_ids(choose, model, length).tolist() for length in lengths]
    expected = [continuation(formula, prompt, num_new) for prompt in prompts]
    assume(None not in expected)
    ids = torch.tensor([[0] * (max(lengths) - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (max(lengths) - length) + [1] * length for length in lengths])
    options = {"max_new_tokens": num_new, "min_new_tokens": num_new, "do_sample": False, "pad_token_id": 0}

    def generate(**others) -> list[list[int]]:
        return model.generate(ids, attention_mask=mask, **options, **others)[:, max(lengths) :].tolist()

    ways = [{"use_cache": True}, {"use_cache": False}]
    if not formula.is_lstm:
        ways += [{"cache_implementation": "static"}, {"prefill_chunk_size": choose.randint(1, 4)}]
    for way in ways:
        assert generate(**way) == expected, way
    assert generate(num_beams=3, use_cache=True) == generate(num_beams=3, use_cache=False)


@THRICE
@given(choose=CHOICES)
def test_a_sequence_in_pieces_equals_the_formula(make_random_model, choose):
    """Each piece sees the cache of those before; padding may end in any of them."""
    dtype = choose.choice([*TOLERANCES])
    model = make_random_model(choose, "ForCausalLM", dtype)
    formula, num_rows = Formula(model), choose.randint(1, 3)
    ids = make_ids(choose, model, num_rows, LENGTH)
    left = [choose.choice([0, 0, choose.randrange(LENGTH)]) for _ in range(num_rows)]
    mask = torch.stack([(torch.arange(LENGTH) >= start).long() for start in left])
    cuts, cache, found = sorted(choose.sample(range(1, LENGTH), choose.randint(1, 4))), None, []
    if not formula.is_lstm and choose.random() < 0.5:
        cache = StaticCache(config=model.config, max_cache_len=LENGTH)
    for start, end in zip([0, *cuts], [*cuts, LENGTH], strict=True):
        name = choose.choice(["past_key_values", "cache"])  # transformers' names until 5.23, and since
        outputs = model(ids[:, start:end], attention_mask=mask[:, :end], use_cache=True, **{name: cache})
        cache = outputs.past_key_values
        found.append(outputs.logits)
    for row, logits in enumerate(torch.cat(found, 1)):
        expected = formula.logits(formula.hidden(ids[row, left[row] :].tolist()))
        check_close(logits[left[row] :], expected, TOLERANCES[dtype])
