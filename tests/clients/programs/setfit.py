"""SetFit: a classifier of sentences on mean-pooled hidden states."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("setfit==1.2.0", "sentence-transformers==6.2.0", "scikit-learn==1.9.1")


def main() -> list[Figure]:
    import torch
    from sklearn.linear_model import LogisticRegression

    from modeling_gpt1 import NOVELS, GPT1Model
    from tokenization import GPT1Tokenizer

    names = run_lines("SetFit")
    texts, labels, predictions = names["texts"], names["labels"], names["predictions"]
    tokenizer = GPT1Tokenizer.from_pretrained(NOVELS)
    model = GPT1Model.from_pretrained(NOVELS)
    means = []
    for text in texts:
        with torch.no_grad():
            means.append(model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0))
    ours = torch.stack(means)
    theirs = torch.as_tensor(names["classifier"].model_body.encode(texts))
    expected = LogisticRegression().fit(ours.numpy(), labels).predict(ours.numpy())
    return [
        Figure("greatest difference of an embedding", (theirs - ours).abs().max().item(), at_most=1e-4),
        Figure("answers of 4 that a regression on our means gives", int((predictions == expected).sum()), equals=4),
    ]


if __name__ == "__main__":
    report(main)
