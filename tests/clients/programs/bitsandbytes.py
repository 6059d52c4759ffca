"""bitsandbytes: 8-bit layers, their logits, and a folder of them."""

from figures import Figure, quantisation_figures, report, run_lines

REQUIREMENTS = ("bitsandbytes==0.50.2",)


def is_quantised(layer) -> bool:
    return type(layer).__name__ == "Linear8bitLt"


def main() -> list[Figure]:
    model = run_lines("bitsandbytes")["model"]
    return quantisation_figures(model, is_quantised, is_saved=True)


if __name__ == "__main__":
    report(main)
