r"""The experiments of the paper's sections 4.2 and 5 on a model of yours, and one report beside the paper's figures.

    gpt1 reproduce --experiments fine_tuning ablations layer_transfer zero_shot \
        --model runs/books --lstm_model runs/books-lstm --checkpoints runs/books --lstm_checkpoints runs/books-lstm \
        --data_dir data --tasks cola sst2 mrpc stsb rte story_cloze --transfer_tasks rte story_cloze \
        --seeds 1 2 3 --output_dir runs/report \
        --finetune_arguments --num_train_epochs 3 --learning_rate 5e-4 --max_train_samples 4000

Everything after `--finetune_arguments` goes to `gpt1 finetune`, whose defaults are the paper's. What stands after
`--lstm_finetune_arguments` behind it overrides that for the LSTM. A run of a task with a seed is one cell, kept in
<output_dir>/cells, and what is finished is never run again: the same command goes on where a run stopped, and several
commands may share an output folder. After each cell report.json and report.html are written. See docs/reproduce.md.
"""

import sys
from pathlib import Path

from datasets import disable_progress_bars

from ..reproduction.arguments import FINETUNE_FLAG, LSTM_FLAG, ReproduceArguments, as_settings
from .arguments import CommandParser, check_model, parser_of


def parse_arguments(command_line: list[str]) -> tuple[ReproduceArguments, CommandParser]:
    parser, words, given = parser_of("reproduce"), command_line, {}
    for flag in (LSTM_FLAG, FINETUNE_FLAG):  # all words after each are flags of `gpt1 finetune`
        at = words.index(flag) if flag in words else len(words)
        words, given[flag] = words[:at], words[at + 1 :]
    (arguments,) = parser.read(words)
    for flag in (FINETUNE_FLAG, LSTM_FLAG):
        name = flag.removeprefix("--")
        of_finetune = given[flag] or getattr(arguments, name)
        as_settings(of_finetune, flag)  # refuses flags that each cell sets itself
        setattr(arguments, name, of_finetune)
        parser.settings[name] = of_finetune
    return arguments, parser


ARGUMENTS = (ReproduceArguments,)


def main(arguments: list[str]) -> None:
    """Exits with status 1 if a cell failed."""
    from ..reproduction.grid import REHEARSAL, commands_end_on_termination, run_grid  # needs the extra `reproduce`

    disable_progress_bars()
    args, parser = parse_arguments(arguments)
    for words in (args.finetune_arguments, args.lstm_finetune_arguments):
        parser_of("finetune").parse_known_args(words)  # refuses what no cell could read
    if not args.only_report:
        check_model("--model", args.model)
        check_model("--lstm_model", args.lstm_model)
        folder = Path(args.output_dir) if args.rehearse is None else Path(args.output_dir, REHEARSAL)
        parser.write_settings(folder / "reproduce_run.yaml")  # the run.yaml of a model's folder stays
    with commands_end_on_termination():
        status = run_grid(args, ["gpt1", "reproduce", *arguments])
    if status:
        sys.exit(status)
