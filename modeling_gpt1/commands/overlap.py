r"""Reports how much of a task's scored rows a pre-training text holds, by 8-grams and 13-grams as GPT-2 and GPT-3 do.

    gpt1 overlap --train_files "books/*.txt" --task sst2 story_cloze --data_dir data
    gpt1 overlap --train_files "books/*.txt" --task sst2 --data_dir data \
        --cells runs/report/cells.json.gz --output_file overlap.json

With the cells of `gpt1 reproduce`, scores are given with and without the rows that overlap. Scored rows that stand in
the training rows as well are counted, too.
"""

import json
from contextlib import nullcontext
from dataclasses import dataclass

from transformers.hf_argparser import HfArg

from tokenization import get_task, load_task
from tokenization.errors import UserError
from tokenization.rows.labels import are_all_labelled
from tokenization.text.documents import check_corpus, generate_pieces
from tokenization.wording import counted

from ..reproduction.models import read_finished_cells
from ..reproduction.overlap import NGRAMS, ScoredRows, overlaps_of, rows_in_training, scores_without
from ..storage.locking import writer_of_new_file
from ..storage.writing import write_atomically
from .arguments import parser_of


@dataclass
class OverlapArguments:
    """Which text is compared with which rows."""

    train_files: list[str] = HfArg(
        default_factory=list, help="Pre-training text: files, folders or patterns of files."
    )
    task: list[str] = HfArg(default_factory=list, help="Tasks of the paper whose rows are looked for in the text.")
    data_dir: str | None = HfArg(default=None, help="Folder with a folder per task. Default: the hub's data sets.")
    ngrams: list[int] = HfArg(default_factory=lambda: list(NGRAMS), help="Lengths of the n-grams, in words.")
    text_column: str = HfArg(default="text", help="Column with the text, in files and data sets of rows.")
    document_per: str = HfArg(default="file", help="Document boundary: file, line or blank_line.")
    cells: str | None = HfArg(default=None, help="cells.json.gz of `gpt1 reproduce`, to score without these rows.")
    output_file: str | None = HfArg(default=None, help="New file for the results, as JSON. Default: none.")

    def __post_init__(self):
        for flag in ("train_files", "task"):
            if not getattr(self, flag):
                raise UserError(f"--{flag} is missing. Pass --train_files with the text and --task with a task.")
        if min(self.ngrams, default=0) < 1:
            raise UserError(
                f"--ngrams is {' '.join(map(str, self.ngrams))}, but a length is at least 1. Pass lengths such as 8 "
                "13."
            )
        self.task = [get_task(name).name for name in self.task]


ARGUMENTS = (OverlapArguments,)


def main(arguments: list[str]) -> None:
    (args,) = parser_of("overlap").read(arguments)
    with nullcontext() if args.output_file is None else writer_of_new_file(args.output_file):
        report_overlaps(args)


def report_overlaps(args: OverlapArguments) -> None:
    """Prints the overlap of each split and length, and writes the results if there is a file for them."""
    cells = [] if args.cells is None else read_finished_cells(args.cells)
    all_rows, in_training = [], {}
    for name in args.task:
        task = get_task(name)
        splits = load_task(task, args.data_dir)
        for split in (*task.validation_splits, *task.test_splits):
            if split in splits and are_all_labelled(splits[split], task.columns["label"]):
                all_rows.append(ScoredRows(task, split, splits[split]))
                if task.train_split in splits:
                    in_training[name, split] = rows_in_training(task, splits[split], splits[task.train_split])
    if not all_rows:
        raise UserError(f"{', '.join(args.task)} has no labelled validation or test rows. Add them to --data_dir.")
    corpus = check_corpus(
        args.train_files,
        name=None,
        split="train",
        text_column=args.text_column,
        fix_text=False,
        document_per=args.document_per,
    )
    results = overlaps_of(generate_pieces(**corpus), all_rows, args.ngrams)
    for result in results:
        task = get_task(result["task"])
        split = result["split"]
        shared = in_training.get((task.name, split))
        result["in_training"] = shared
        result["scores"] = scores_without(cells, task, split, result["rows"], result["overlapping"])
        print(describe(result), flush=True)
        if args.cells is not None and not result["scores"]:
            print(f"  no scores: no run of {args.cells} has answers to all {result['rows']:,} rows", flush=True)
    if args.output_file is not None:
        settings = {name: getattr(args, name) for name in ("train_files", "task", "data_dir", "ngrams", "cells")}
        write_atomically(args.output_file, json.dumps({"settings": settings, "results": results}, indent=2) + "\n")
        print(f"written to {args.output_file}")


def describe(result: dict) -> str:
    """One line for a split and a length, and one for each variant's scores."""
    share = "no n-gram" if result["share"] is None else f"{result['share']:.2%} of {result['ngrams']:,} n-grams"
    lines = [
        f"{result['task']} {result['split']}, {result['ngram']}-grams: {share} in the text; "
        f"{len(result['overlapping']):,} of {result['rows']:,} rows overlap, "
        f"{result['rows_with_ngrams']:,} are long enough"
    ]
    if result["in_training"]:
        lines[0] += f"; {len(result['in_training']):,} rows stand in the training rows"
    for scores in result["scores"]:
        runs = counted(scores["seeds"], "run")
        if scores["failed"]:
            runs += f", {scores['failed']} more failed to train"
        if scores["with"] is None:
            outcome = "no score"
        else:
            without = "no row is left" if scores["without"] is None else f"{scores['without']:.1f} without them"
            outcome = f"{scores['with']:.1f} with all rows, {without}"
        lines.append(f"  {scores['variant']} ({runs}): {outcome}")
    return "\n".join(lines)
