"""Sentence Transformers: the scores of pairs by a CrossEncoder."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("sentence-transformers==6.2.0",)


def main() -> list[Figure]:
    import torch
    from support.finetuning import make_double_heads_model, make_letter_tokenizer, make_traversal_collator

    tokenizer = make_letter_tokenizer()
    model = make_double_heads_model("entailment", tokenizer).eval()
    model.save_pretrained("runs/rte")
    tokenizer.save_pretrained("runs/rte")
    names = run_lines("Sentence Transformers")
    collator = make_traversal_collator(model, tokenizer)
    with torch.no_grad():
        ours = model(**collator([{"a": a, "b": b, "label": 0} for a, b in names["pairs"]])).task_logits
    difference = (torch.tensor(names["scores"]) - ours).abs().max().item()
    return [Figure("greatest difference of a pair's logits", difference, at_most=1e-5)]


if __name__ == "__main__":
    report(main)
