r"""Translates or summarises by a prompt, without fine-tuning, and scores the texts. A script to read and edit.

    python examples/prompted_generation.py --model MODEL --file pairs.jsonl --prompt "French: {} English:"
    python examples/prompted_generation.py --model MODEL --file news.jsonl --prompt "{}\nTL;DR:" --shots 0

A line of the file has a source and a target: {"source": "Il est parti.", "target": "He has left."}. The first rows
with their targets stand before each prompt. BLEU is sacrebleu's and ROUGE is rouge_score's (extra `eval`). Radford et
al. 2019 asked GPT-2 in this way, by "=" between the languages (section 3.7) and by "TL;DR:" (section 3.6).
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from transformers import AutoModelForCausalLM, HfArgumentParser

from modeling_gpt1 import continue_prompts
from tokenization import open_tokenizer


@dataclass
class Arguments:
    """Which model, which rows, and how to ask."""

    model: str = field(metadata={"help": "A causal language model: folder or hub id."})
    file: str = field(metadata={"help": "A .jsonl file with the columns source and target."})
    prompt: str = field(default="French: {} English:", metadata={"help": "The source stands in place of {}."})
    shots: int = field(default=2, metadata={"help": "Answered rows before each prompt: the first of the file."})
    max_new_tokens: int = field(default=40, metadata={"help": "Longest answer."})
    batch_size: int = field(default=8, metadata={"help": "Prompts that are continued at once."})
    num_beams: int = field(default=1, metadata={"help": "Beams of the search; 1 is greedy."})


def main(arguments: list[str] | None = None) -> None:
    (args,) = HfArgumentParser(Arguments).parse_args_into_dataclasses(arguments)
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu import corpus_bleu

    if args.prompt.count("{}") != 1:
        raise ValueError(f"--prompt is {args.prompt!r}, but the source needs one place in it, written as {{}}.")
    template = args.prompt.replace("\\n", "\n")
    with Path(args.file).open(encoding="utf-8-sig") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    shown = rows[: args.shots]
    asked = rows[args.shots :]
    if not asked:
        raise ValueError(f"{args.file} has {len(rows)} rows, and {args.shots} are shown. Add rows, or lower --shots.")
    before = "".join(f"{template.replace('{}', row['source'])} {row['target']}\n" for row in shown)

    model = AutoModelForCausalLM.from_pretrained(args.model).eval()
    tokenizer = open_tokenizer(args.model)
    options = {"max_new_tokens": args.max_new_tokens, "num_beams": args.num_beams, "do_sample": False}
    answers = []
    for first in range(0, len(asked), args.batch_size):
        batch = asked[first : first + args.batch_size]
        prompts = [before + template.replace("{}", row["source"]) for row in batch]
        continued = continue_prompts(model, tokenizer, prompts, stop=["\n"], **options)
        for row, (text,) in zip(batch, continued, strict=True):
            answers.append(text.strip())
            line = {"source": row["source"], "target": row["target"], "answer": answers[-1]}
            print(json.dumps(line, ensure_ascii=False))

    targets = [row["target"] for row in asked]
    # GPT-1 writes lower case only.
    print(corpus_bleu(answers, [targets], lowercase=True))
    names = ["rouge1", "rouge2", "rougeL"]
    scorer = RougeScorer(names, use_stemmer=True)
    scores = [scorer.score(target, answer) for target, answer in zip(targets, answers, strict=True)]
    for name in names:
        print(f"{name} F1 = {sum(score[name].fmeasure for score in scores) / len(scores):.4f}")


if __name__ == "__main__":
    main()
