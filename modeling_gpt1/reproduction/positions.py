"""The loss of a language model by the number of tokens it has read: what a model gains from a longer context.

python -m modeling_gpt1.reproduction.positions MODEL OUTPUT_FILE BLOCK_LENGTH NUM_BLOCKS FILES…
"""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from tokenization import load_blocks, open_tokenizer

from ..inference.devices import default_device

BATCH_TOKENS = 2048


def ranges_of(length: int) -> list[tuple[int, int]]:
    """Numbers of tokens read, as ranges that double: (1, 1), (2, 3), (4, 7), … up to `length - 1`."""
    starts = [2**power for power in range((length - 1).bit_length())]
    return [(start, min(2 * start, length) - 1) for start in starts if start < length]


def position_losses(model: PreTrainedModel, blocks: list[list[int]]) -> Iterator[torch.Tensor]:
    """The loss of each target of the blocks, `[B, T - 1]` for each batch of B blocks of T tokens."""
    size = max(1, BATCH_TOKENS // len(blocks[0]))
    for start in range(0, len(blocks), size):
        ids = torch.tensor(blocks[start : start + size], device=model.device)
        with torch.inference_mode():
            logits = model(input_ids=ids).logits[:, :-1].float()
        yield torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none").cpu()


def losses_by_range(model: PreTrainedModel, blocks: list[list[int]]) -> list[dict]:
    """Mean loss of each range of positions, with its standard error over the blocks."""
    losses = torch.cat(list(position_losses(model, blocks))).double()  # [N, T - 1]
    found = []
    for first, last in ranges_of(len(blocks[0])):
        means = losses[:, first - 1 : last].mean(dim=1)
        error = means.std().item() / math.sqrt(len(means)) if len(means) > 1 else None
        found.append({"first": first, "last": last, "loss": means.mean().item(), "error": error})
    return found


def read_blocks(files: list[str], tokenizer, length: int, number: int) -> list[list[int]]:
    """Evenly spaced whole blocks.

    Raises:
        ValueError: no document has as many tokens.
    """
    blocks = load_blocks(files, tokenizer, length)
    whole = [place for place, ids in enumerate(blocks["input_ids"]) if len(ids) == length]
    if not whole:
        raise ValueError(f"No document of {', '.join(files)} has {length} tokens. Pass longer texts.")
    number = min(number, len(whole))
    chosen = [whole[place * len(whole) // number] for place in range(number)]
    return [list(blocks[place]["input_ids"]) for place in chosen]


def main(words: list[str]) -> None:
    name, output, length, number, *files = words
    model = AutoModelForCausalLM.from_pretrained(name).to(default_device()).eval()
    blocks = read_blocks(files, open_tokenizer(name), int(length), int(number))
    found = {"num_blocks": len(blocks), "ranges": losses_by_range(model, blocks)}
    Path(output).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
