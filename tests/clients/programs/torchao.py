"""torchao: 8-bit weights, their logits, and a folder of them."""

from figures import Figure, quantisation_figures, report, run_lines

REQUIREMENTS = ("torchao==0.18.0",)


def is_quantised(layer) -> bool:
    return "Int8" in type(layer.weight).__name__


def main() -> list[Figure]:
    model = run_lines("torchao")["model"]
    return quantisation_figures(model, is_quantised, is_saved=True)


if __name__ == "__main__":
    report(main)
