"""nnsight: an intervention on a layer, beside a forward hook of torch."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("nnsight==0.8.1",)


def main() -> list[Figure]:
    import torch

    names = run_lines("nnsight")
    model, ids, logits = names["model"], names["ids"], names["logits"]
    with torch.no_grad():
        plain = model(ids).logits
        handle = model.transformer.h[1].attn.o_proj.register_forward_hook(lambda module, inputs, output: 0 * output)
        hooked = model(ids).logits
    handle.remove()
    return [
        Figure("greatest difference from a forward hook", (logits - hooked).abs().max().item(), at_most=1e-5),
        Figure("greatest change by the intervention", (plain - hooked).abs().max().item(), at_least=0.1),
    ]


if __name__ == "__main__":
    report(main)
