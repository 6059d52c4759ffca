"""What frozen weights save: peak memory and state of the optimizer of an update, by strategy.

    python benchmarks/freezing.py           # four strategies, each in a process that ends; minutes
    python benchmarks/freezing.py --save    # as a dated file

The model has the paper's 117 M parameters and both heads. An update has 8 rows of 128 tokens. λ is 0.5, and 0 beside
`base`, with which the language-model loss would change no weight.
"""

import argparse
import json
import subprocess
import sys

import torch
from harness import MIB, machine, peak_resident_bytes, save_result

SIZES = {"rows": 8, "tokens": 128, "updates": 2}
STRATEGIES = {"none": None, "embeddings": "embeddings", "6 layers": 6, "base": "base"}


def measure(name: str) -> dict:
    """Figures of one strategy, in this process."""
    from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel
    from modeling_gpt1.training.freezing import freeze_weights

    torch.manual_seed(0)
    freeze = STRATEGIES[name]
    model = GPT1DoubleHeadsModel(GPT1Config(num_labels=2, extract_token_id=1, lm_coef=0 if freeze == "base" else 0.5))
    if freeze is not None:
        freeze_weights(model, freeze)
    weights = list(model.parameters())
    trained = [weight for weight in weights if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    ids = torch.randint(2, model.config.vocab_size, (SIZES["rows"], SIZES["tokens"]))
    ids[:, -1] = 1
    labels = torch.arange(SIZES["rows"]) % 2
    for _ in range(SIZES["updates"]):
        model.train()(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    state = [part for of_weight in optimizer.state.values() for part in of_weight.values() if torch.is_tensor(part)]
    return {
        "freeze": name,
        "trained_parameters": sum(weight.numel() for weight in trained),
        "state_mib": round(sum(part.nbytes for part in state) / MIB),
        "peak_mib": round(peak_resident_bytes() / MIB),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="Write a dated file.")
    parser.add_argument("--freeze", choices=STRATEGIES, help="Measure one strategy in this process.")
    arguments = parser.parse_args()
    if arguments.freeze is not None:
        print(json.dumps(measure(arguments.freeze)))
        return
    rows = []
    for name in STRATEGIES:
        words = [sys.executable, __file__, "--freeze", name]
        output = subprocess.run(words, capture_output=True, text=True, check=True)
        rows.append(json.loads(output.stdout.splitlines()[-1]))
    for row in rows:
        row["memory_ratio"] = round(row["peak_mib"] / rows[0]["peak_mib"], 2)
        print(row)
    if arguments.save:
        save_result("freezing", machine(threads=torch.get_num_threads()), {"sizes": SIZES, "strategies": rows})


if __name__ == "__main__":
    main()
