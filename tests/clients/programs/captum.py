"""captum: integrated gradients of a classifier, whose sum is the difference of logits."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("captum==0.9.0",)


def main() -> list[Figure]:
    import torch
    from support.finetuning import make_double_heads_model, make_letter_tokenizer

    tokenizer = make_letter_tokenizer()
    make_double_heads_model("classification", tokenizer).save_pretrained("runs/reviews")
    tokenizer.save_pretrained("runs/reviews")
    names = run_lines("captum")
    score, ids, baseline, attributions = (names[name] for name in ("score", "ids", "baseline", "attributions"))
    with torch.no_grad():
        expected = (score(ids) - score(baseline)).item()
    difference = abs(attributions.sum().item() - expected)
    return [
        Figure("difference of the sum of attributions and the difference of logits", difference, at_most=1e-3),
        Figure("difference of logits", abs(expected), at_least=1e-2),
    ]


if __name__ == "__main__":
    report(main)
