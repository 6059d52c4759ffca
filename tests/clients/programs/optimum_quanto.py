"""optimum-quanto: 8-bit weights and their logits."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("optimum-quanto==0.2.7",)


def main() -> list[Figure]:
    import torch

    from modeling_gpt1 import NOVELS, GPT1ForCausalLM

    model = run_lines("optimum-quanto")["model"]
    ids = torch.arange(5, 30)[None]
    with torch.no_grad():
        expected = GPT1ForCausalLM.from_pretrained(NOVELS)(ids).logits
        logits = model(ids).logits.float()
    layers = [module for name, module in model.named_modules() if name.endswith("_proj")]
    quantised = sum(type(module).__name__ == "QLinear" for module in layers)
    error = ((logits - expected).std() / expected.std()).item()
    figures = [
        Figure("layers of 24 that are quantised", quantised, equals=24),
        Figure("error of the logits, in their standard deviations", error, at_most=0.05),
    ]
    return figures


if __name__ == "__main__":
    report(main)
