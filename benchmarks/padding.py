"""The share of padding in a batch, with random batches and with batches of similar length.

    python benchmarks/padding.py --data data                       # SST-2, MRPC, RTE and Story Cloze, minutes
    python benchmarks/padding.py --data data --tasks sst2 --save   # also benchmarks/results/<date>-padding.json

Batches have 32 training rows in OpenAI's BPE, and the share is the mean of three epochs. It is the fraction of the
positions of a batch `[B, C, T]` that are padding. "Evaluation" reads the same rows from the longest to the shortest.
The data folder has the tasks' folders and openai_gpt_bpe/.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import torch
from harness import machine, released_tokenizer, save_result
from transformers.trainer_pt_utils import LengthGroupedSampler

from modeling_gpt1.training.batching import EpochSeededSampler, LongestFirstSampler
from tokenization import GPT1Tokenizer, TraversalCollator, get_task, load_task

BATCH_SIZE, NUM_EPOCHS = 32, 3


def sequence_lengths(collator: TraversalCollator, rows: list[dict]) -> list[list[int]]:
    """Number of tokens of each sequence of each row."""
    lengths = []
    for row in rows:
        mask = collator([row])["attention_mask"]
        lengths.append(mask.sum(-1).flatten().tolist())
    return lengths


def padding_share(order: Iterable[int], lengths: list[list[int]]) -> float:
    order, places, tokens = list(order), 0, 0
    for start in range(0, len(order), BATCH_SIZE):
        batch = [lengths[index] for index in order[start : start + BATCH_SIZE]]
        places += len(batch) * max(map(len, batch)) * max(map(max, batch))
        tokens += sum(map(sum, batch))
    return 1 - tokens / places


def measure(name: str, data: Path, tokenizer: GPT1Tokenizer) -> dict:
    task = get_task(name)
    rows = load_task(task, data)[task.train_split]
    settings = {"num_labels": len(task.label_names) or None, "regression": task.regression}
    collator = TraversalCollator(tokenizer, task.traversal, task.columns, **settings)
    lengths, longest = sequence_lengths(collator, list(rows)), collator.lengths(rows)
    grouped = EpochSeededSampler(LengthGroupedSampler(BATCH_SIZE, lengths=longest), 0)
    shares = {"random": [], "by length": []}
    for epoch in range(NUM_EPOCHS):
        generator = torch.Generator().manual_seed(epoch)
        shares["random"].append(padding_share(torch.randperm(len(rows), generator=generator).tolist(), lengths))
        grouped.set_epoch(epoch)
        shares["by length"].append(padding_share(grouped, lengths))
    means = {order: sum(values) / NUM_EPOCHS for order, values in shares.items()}
    return {
        "task": name,
        "rows": len(rows),
        **means,
        "evaluation": padding_share(LongestFirstSampler(longest), lengths),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the tasks and openai_gpt_bpe/")
    parser.add_argument("--tasks", nargs="+", default=["sst2", "mrpc", "rte", "story_cloze"])
    parser.add_argument("--save", action="store_true", help="write the figures to benchmarks/results/<date>-….json")
    arguments = parser.parse_args()
    tokenizer = released_tokenizer(arguments.data / "openai_gpt_bpe")
    tokenizer.add_control_tokens()
    results = [measure(name, arguments.data, tokenizer) for name in arguments.tasks]
    for result in results:
        shares = ", ".join(f"{order} {100 * result[order]:.1f} %" for order in ("random", "by length", "evaluation"))
        print(f"{result['task']} ({result['rows']} rows): padding of batches of {BATCH_SIZE}: {shares}")
    if arguments.save:
        save_result("padding", machine(), results)


if __name__ == "__main__":
    main()
