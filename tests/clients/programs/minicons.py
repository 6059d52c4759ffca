"""minicons: the surprisal of each word, beside `word_surprisals`."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("minicons==0.3.39",)
TEXTS = ["The old farmer walked, quietly, to the market.", "She didn't smile."]


def main() -> list[Figure]:
    from modeling_gpt1 import NOVELS, GPT1ForCausalLM, word_surprisals
    from tokenization import GPT1Tokenizer

    model = GPT1ForCausalLM.from_pretrained(NOVELS)
    names = {"model": model, "GPT1Tokenizer": GPT1Tokenizer, "NOVELS": NOVELS}
    scored = run_lines("minicons and surprisal", "surprisal.md", **names)["scored"]
    theirs = scored.word_score_tokenized(TEXTS, str.split, surprisal=True, base_two=True)
    ours = word_surprisals(model, GPT1Tokenizer.from_pretrained(NOVELS), TEXTS)["bits"]
    bits = [bits_of_word for of_text in theirs for _, bits_of_word in of_text]
    difference = max(abs(theirs - ours) for theirs, ours in zip(bits, ours, strict=True))
    return [Figure("greatest difference of a word's bits", difference, at_most=1e-4)]


if __name__ == "__main__":
    report(main)
