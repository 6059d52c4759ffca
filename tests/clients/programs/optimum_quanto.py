"""optimum-quanto: 8-bit weights and their logits."""

from figures import Figure, quantisation_figures, report, run_lines

REQUIREMENTS = ("optimum-quanto==0.2.7",)


def is_quantised(layer) -> bool:
    return type(layer).__name__ == "QLinear"


def main() -> list[Figure]:
    model = run_lines("optimum-quanto")["model"]
    return quantisation_figures(model, is_quantised, is_saved=False)


if __name__ == "__main__":
    report(main)
