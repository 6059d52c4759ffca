"""Asks a model without fine-tuning: which sentence is likelier, which answer fits. A script to read and edit.

    python examples/score.py --model openai-community/openai-gpt
    python examples/score.py --model out/books --task sst2 --data_dir data --max_rows 200

`gpt1 zero-shot` evaluates several tasks and every checkpoint of a run; `gpt1 reproduce` draws the curves of the
paper's figure 2.
"""

from dataclasses import dataclass, field

from transformers import HfArgumentParser

from modeling_gpt1 import NOVELS, CausalLMScorer, GPT1ForCausalLM, evaluate_zero_shot, get_heuristic
from tokenization import load_task, open_tokenizer

REQUESTS = [
    ("He was hungry, so he", [" ate an apple.", " slept until noon."]),
    ("It rained all day, and the road was", [" wet.", " dry."]),
]


@dataclass
class Arguments:
    """Which model to score, and on what."""

    model: str = field(default="openai-community/openai-gpt", metadata={"help": "Folder, hub id, or gpt1-novels."})
    task: str | None = field(default=None, metadata={"help": "cola, sst2, race, story_cloze or dpr. Default: none."})
    data_dir: str | None = field(default=None, metadata={"help": "Folder with its files. Default: download."})
    max_rows: int = field(default=200, metadata={"help": "Rows to score."})


def main(arguments: list[str] | None = None) -> None:
    (args,) = HfArgumentParser(Arguments).parse_args_into_dataclasses(arguments)
    model = NOVELS if args.model == "gpt1-novels" else args.model
    scorer = CausalLMScorer(GPT1ForCausalLM.from_pretrained(model), open_tokenizer(model))

    # The mean log-probability per token, so that longer continuations are not at a disadvantage.
    for (context, continuations), scores in zip(REQUESTS, scorer.score(REQUESTS), strict=True):
        for continuation, score in zip(continuations, scores, strict=True):
            print(f"{score.mean:8.3f}  {context}{continuation}")

    if args.task is not None:
        heuristic = get_heuristic(args.task)
        rows = load_task(heuristic.task, args.data_dir)
        # Validation rows; data sets such as DPRD have one split.
        split = next((name for name in heuristic.task.validation_splits if name in rows), "train")
        asked = list(rows[split])[: args.max_rows]
        shown = list(rows["train"])[-args.max_rows :] if heuristic.has_threshold else None  # CoLA's threshold
        print(args.task, evaluate_zero_shot(scorer, heuristic, asked, shown).metrics)


if __name__ == "__main__":
    main()
