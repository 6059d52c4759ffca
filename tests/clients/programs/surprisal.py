"""surprisal: the surprisal of each token, the first one too."""

from figures import Figure, report

REQUIREMENTS = ("surprisal==0.1.7",)
TEXT = "The old farmer walked, quietly, to the market."


def main() -> list[Figure]:
    import surprisal
    import torch

    from modeling_gpt1 import NOVELS, GPT1ForCausalLM
    from tokenization import GPT1Tokenizer

    (scored,) = surprisal.AutoHuggingFaceModel.from_pretrained(str(NOVELS), model_class="causal").surprise(TEXT)
    ids = [0, *GPT1Tokenizer.from_pretrained(NOVELS)(TEXT)["input_ids"]]
    with torch.no_grad():
        logits = GPT1ForCausalLM.from_pretrained(NOVELS)(torch.tensor([ids])).logits[0, :-1]
    logits[:, 0] = -torch.inf  # it leaves the padding id, 0, out of every distribution
    nats = -logits.log_softmax(-1)[torch.arange(len(ids) - 1), ids[1:]]
    theirs = torch.tensor([float(score) for _, score in scored])
    return [Figure("greatest difference of a token's nats", (theirs - nats).abs().max().item(), at_most=1e-4)]


if __name__ == "__main__":
    report(main)
