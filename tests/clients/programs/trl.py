"""TRL: the loss of SFTTrainer's first update, and what ten updates learn."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("trl==1.16.0",)


def main() -> list[Figure]:
    import torch

    from modeling_gpt1 import NOVELS, GPT1ForCausalLM

    names = run_lines("TRL")
    losses = [line["loss"] for line in names["trainer"].state.log_history if "loss" in line]
    ids = torch.tensor([names["ids"]])
    with torch.no_grad():
        ours = GPT1ForCausalLM.from_pretrained(NOVELS)(ids, labels=ids).loss.item()
    return [
        Figure("difference of the first update's loss from the model's", abs(losses[0] - ours), at_most=1e-2),
        Figure("fall of the loss in ten updates", losses[0] - losses[-1], at_least=0.5),
    ]


if __name__ == "__main__":
    report(main)
