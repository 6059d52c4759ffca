"""inseq: which tokens a continuation depends on."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("inseq==0.7.1",)


def main() -> list[Figure]:
    import torch

    from modeling_gpt1 import NOVELS, GPT1ForCausalLM
    from tokenization import GPT1Tokenizer

    names = run_lines("inseq")
    (attribution,) = names["result"].sequence_attributions
    tokenizer = GPT1Tokenizer.from_pretrained(NOVELS)
    ids = tokenizer(names["prompt"], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        sequence = GPT1ForCausalLM.from_pretrained(NOVELS).generate(ids, max_new_tokens=5, do_sample=False)[0]
    new = [token.id for token in attribution.target][-5:]
    scores = attribution.target_attributions.abs()  # [tokens of prompt and continuation, new tokens, …]
    of_first = scores.reshape(*scores.shape[:2], -1).sum(-1)[: ids.shape[1], 0]
    return [
        Figure("greedy ids of 5 that are those of generate", matches(new, sequence[-5:].tolist()), equals=5),
        Figure("tokens of the prompt without a score for the first new one", int((~(of_first > 0)).sum()), equals=0),
    ]


def matches(first: list[int], second: list[int]) -> int:
    return sum(a == b for a, b in zip(first, second, strict=True))


if __name__ == "__main__":
    report(main)
