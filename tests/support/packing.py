"""Ragged batches of choices, their plans, and what a model makes of a batch, for the tests of packing."""

from os.path import commonprefix

import torch

from tokenization.batches.plan import plan_batch

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
    examples[-1] = [[START, 5, 6, DELIMITER, 7, EXTRACT], [START, 5, 6, DELIMITER, 7, 7, EXTRACT]]  # a shared start
    examples.append([[START, 9, EXTRACT]] * 3)  # the very same choice three times
    examples.append([[START, 9, 8, EXTRACT], [DELIMITER, 9, 8, EXTRACT]])  # nothing in common
    return examples


def pad(examples, side="right", extra=0):
    """The batch `[B, C, T]`."""
    num_choices = max(map(len, examples))
    length = extra + max(len(ids) for sequences in examples for ids in sequences)
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
            places = torch.arange(len(ids)) + (length - len(ids) if side == "left" else 0)
            batch["input_ids"][b, c, places] = torch.tensor(ids)
            batch["attention_mask"][b, c, places] = 1
            batch["mc_token_ids"][b, c] = places[-1]
            batch["choice_mask"][b, c] = True
    return batch


def planned(batch):
    """The batch with its plan; what the sequences of an example share is found by comparing them."""
    ids = batch["input_ids"]
    mask = batch["attention_mask"]
    num_shared = []
    for sequences, masks in zip(*(part.view(len(ids), -1, ids.shape[-1]) for part in (ids, mask.bool())), strict=True):
        real = [row[is_real].tolist() for row, is_real in zip(sequences, masks, strict=True) if is_real.any()]
        num_shared.append(min(len(commonprefix(real)), *(len(row) - 1 for row in real)) if len(real) > 1 else 0)
    return {**batch, "plan": plan_batch(mask, num_shared)}


def without_plan(batch):
    return {name: value for name, value in batch.items() if name != "plan"}


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
