"""skorch: the probabilities of a classifier as an estimator of scikit-learn."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("skorch==1.4.0",)


def main() -> list[Figure]:
    import torch
    from support.finetuning import make_double_heads_model, make_letter_tokenizer

    from modeling_gpt1 import GPT1ForSequenceClassification

    tokenizer = make_letter_tokenizer()
    make_double_heads_model("classification", tokenizer).save_pretrained("runs/reviews")
    tokenizer.save_pretrained("runs/reviews")
    names = run_lines("skorch")
    batch = names["batch"]
    with torch.no_grad():
        logits = GPT1ForSequenceClassification.from_pretrained("runs/reviews")(**batch).logits
    difference = (torch.from_numpy(names["probabilities"]) - logits.softmax(-1)).abs().max().item()
    return [Figure("greatest difference of a probability", difference, at_most=1e-5)]


if __name__ == "__main__":
    report(main)
