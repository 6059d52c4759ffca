"""Ray Train: fine-tuning on both losses by two workers, beside the same updates by one."""

import json
import os
from pathlib import Path

from figures import Figure, report, run_lines

REQUIREMENTS = ("ray[train]==2.60.0",)


def losses_of(result) -> list[float]:
    """Losses of the updates, as the last checkpoint has them."""
    state = Path(result.checkpoint.path, "checkpoint", "trainer_state.json")
    history = json.loads(state.read_text(encoding="utf-8"))["log_history"]
    return [record["loss"] for record in history if "loss" in record]


def main() -> list[Figure]:
    from modeling_gpt1 import NOVELS, GPT1DoubleHeadsModel
    from tokenization import GPT1Tokenizer

    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "300"  # of a machine that does other things, too
    # Each worker would leave out other numbers.
    dropout = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0, "classifier_dropout": 0.0}
    folder = str(Path("model").resolve())
    GPT1DoubleHeadsModel.from_pretrained(NOVELS, **dropout).save_pretrained(folder)
    GPT1Tokenizer.from_pretrained(NOVELS).save_pretrained(folder)

    names = run_lines("Ray Train", model=folder, __name__="__main__")  # Ray sends functions of __main__ by value
    losses = losses_of(names["result"])
    one_worker = names["TorchTrainer"](
        names["train"],
        train_loop_config={"model": folder, "batch_size": 4},
        scaling_config=names["ScalingConfig"](num_workers=1),
        run_config=names["RunConfig"](storage_path=str(Path("one").resolve())),
    )
    expected = losses_of(one_worker.fit())
    difference = max(abs(loss - other) for loss, other in zip(losses, expected, strict=True))
    return [
        Figure("updates", len(losses), equals=4),
        Figure("fall of the loss", losses[0] - losses[-1], at_least=0.05),
        Figure("greatest difference of a loss from that of one worker", difference, at_most=1e-4),
    ]


if __name__ == "__main__":
    report(main)
