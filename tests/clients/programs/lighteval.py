"""lighteval: the log-likelihoods of continuations, and those of the model."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("lighteval==0.13.0", "torch==2.13.0")
IS_FREE = True  # it needs an older NLTK


def main() -> list[Figure]:
    import torch

    from modeling_gpt1 import NOVELS, GPT1ForCausalLM
    from tokenization import GPT1Tokenizer

    names = run_lines("lighteval")
    model, tokenizer = GPT1ForCausalLM.from_pretrained(NOVELS), GPT1Tokenizer.from_pretrained(NOVELS)
    differences = []
    for question, answer in zip(names["questions"], names["answers"], strict=True):
        start = len(tokenizer(question.query)["input_ids"])
        for choice, score in zip(question.choices, answer.logprobs, strict=True):
            ids = torch.tensor(tokenizer(question.query + choice)["input_ids"])
            with torch.no_grad():
                log_probabilities = model(ids[None]).logits[0].log_softmax(-1)
            expected = log_probabilities[range(start - 1, len(ids) - 1), ids[start:]].sum().item()
            differences.append(abs(score - expected))
    return [
        Figure("choices that were scored", len(differences), equals=4),
        Figure("greatest difference of a log-likelihood", max(differences), at_most=1e-3),
    ]


if __name__ == "__main__":
    report(main)
