"""nnterp: layers by their standard names, and a steered layer beside a forward hook of torch."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("nnterp==1.3.0", "nnsight==0.7.0", "torch==2.13.0")
IS_FREE = True  # it needs an older nnsight


def main() -> list[Figure]:
    import torch

    from modeling_gpt1 import NOVELS, GPT1ForCausalLM

    names = run_lines("nnterp")
    ids, steered = names["ids"], names["steered"]
    model = GPT1ForCausalLM.from_pretrained(NOVELS)
    with torch.no_grad():
        outputs = model(ids, output_hidden_states=True)
        handle = model.transformer.h[1].register_forward_hook(lambda module, inputs, output: output + 0.5)
        expected = model(ids).logits
    handle.remove()
    return [
        Figure(
            "greatest difference of a layer's output",
            (names["hidden"] - outputs.hidden_states[3]).abs().max().item(),
            at_most=1e-4,
        ),
        Figure("greatest difference from a forward hook", (steered - expected).abs().max().item(), at_most=1e-4),
        Figure("greatest change by steering", (steered - outputs.logits).abs().max().item(), at_least=0.1),
    ]


if __name__ == "__main__":
    report(main)
