"""DeepSpeed: ZeRO-2 and ZeRO-3 in two processes on CPUs, beside the same updates in one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

from figures import Figure, report

REQUIREMENTS = ("deepspeed==0.19.8",)
BATCH = 4  # blocks of an update
UPDATES = 4


def losses_of(output_dir: str, num_processes: int, *launcher: str) -> list[float]:
    """Pre-trains the model in `model` further, and returns the loss of each update."""
    command = [*launcher, "-m", "modeling_gpt1.commands", "pretrain", "--output_dir", output_dir]
    command += ["--model", "model", "--train_files", "text.txt", "--max_steps", str(UPDATES), "--logging_steps", "1"]
    command += ["--per_device_train_batch_size", str(BATCH // num_processes)]
    command += ["--learning_rate", "1e-3", "--warmup_steps", "0", "--save_steps", str(UPDATES), "--report_to", "none"]
    settings = {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": os.path.abspath("built")}
    if num_processes > 1:
        command += ["--ddp_backend", "gloo"]  # else accelerate leaves DeepSpeed out on CPUs
    subprocess.run(command, check=True, env={**os.environ, **settings})
    state = json.loads(Path(output_dir, "trainer_state.json").read_text(encoding="utf-8"))
    return [record["loss"] for record in state["log_history"] if "loss" in record]


def difference_of_weights(folder: str, other: str) -> float:
    """The greatest difference of a number in the weights of two folders."""
    from safetensors.torch import load_file

    weights, others = (load_file(f"{place}/model.safetensors") for place in (folder, other))
    if weights.keys() != others.keys():
        return float("inf")
    return max((weights[name] - others[name]).abs().max().item() for name in weights)


def main() -> list[Figure]:
    from modeling_gpt1 import NOVELS, GPT1ForCausalLM, commands
    from tokenization import GPT1Tokenizer

    # Each process would leave out other numbers.
    model = GPT1ForCausalLM.from_pretrained(NOVELS, embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0)
    model.save_pretrained("model")
    GPT1Tokenizer.from_pretrained(NOVELS).save_pretrained("model")
    line = "The old man had {} children, and she said that they were in the house.\n"
    Path("text.txt").write_text("".join(map(line.format, range(200))), encoding="utf-8")

    expected = losses_of("one", 1, sys.executable)
    figures = [
        Figure("fall of the loss in one process", expected[0] - expected[-1], at_least=0.5),
        Figure("greatest change of a weight in it", difference_of_weights("one", "model"), at_least=2e-3),
    ]
    for stage in (2, 3):
        config_file = Path(commands.__file__).parent / "accelerate" / f"deepspeed_zero{stage}.yaml"
        launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config_file)]
        launcher += ["--mixed_precision", "no", "--num_processes", "2", "--main_process_port", "0"]
        found = losses_of(f"zero{stage}", 2, *launcher)
        difference = max(abs(loss - other) for loss, other in zip(found, expected, strict=True))
        figures.append(Figure(f"greatest difference of a loss by ZeRO-{stage}", difference, at_most=1e-4))
        parts = list(Path(f"zero{stage}", f"checkpoint-{UPDATES}").glob("global_step*/*optim_states.pt"))
        figures.append(Figure(f"parts of the optimizer state by ZeRO-{stage}", len(parts), equals=2))
        difference = difference_of_weights(f"zero{stage}", "one")
        figures.append(Figure(f"greatest difference of a weight saved by ZeRO-{stage}", difference, at_most=5e-4))
    return figures


if __name__ == "__main__":
    report(main)
