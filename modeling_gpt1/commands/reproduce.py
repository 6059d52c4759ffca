r"""The experiments of the paper's sections 4.2 and 5 on a model of yours, and one report beside the paper's figures.

    gpt1 reproduce --experiments fine_tuning ablations layer_transfer zero_shot \
        --model runs/books --lstm_model runs/books-lstm --checkpoints runs/books --lstm_checkpoints runs/books-lstm \
        --data_dir data --tasks cola sst2 mrpc stsb rte story_cloze --transfer_tasks rte story_cloze \
        --seeds 1 2 3 --output_dir runs/report \
        --finetune_arguments --num_train_epochs 3 --learning_rate 5e-4 --max_train_samples 4000

Everything after `--finetune_arguments` goes to `gpt1 finetune`, whose defaults are the paper's. What stands after
`--lstm_finetune_arguments` overrides that for the LSTM. With `--model pretrain` and `--lstm_model pretrain` they are
pre-trained first, by what stands after `--pretrain_arguments` and `--lstm_pretrain_arguments`. A run of a task with a
seed is one cell, kept in <output_dir>/cells, and what is finished is never run again: the same command goes on where a
run stopped, and several commands may share an output folder. After each cell report.json and report.html are written,
and cells.json.gz with the answer to each row. With `--tune`, learning rate and warm-up of each task and variant are
chosen on a part of the training rows before its seeds run.
See docs/reproduce.md.
"""

import sys
from pathlib import Path

from datasets import disable_progress_bars

from tokenization.errors import UserError

from ..reproduction.arguments import PASSED_ON, PRETRAIN, REHEARSAL, ReproduceArguments, as_settings
from .arguments import CommandParser, parser_of
from .models import check_model


def parse_arguments(command_line: list[str]) -> tuple[ReproduceArguments, CommandParser]:
    parser, own = parser_of("reproduce"), []
    given: dict[str, list[str]] = {flag: [] for flag in PASSED_ON}
    words = own
    for word in command_line:  # all words after a flag of these are another command's, up to the next
        if word in given:
            words = given[word]
        else:
            words.append(word)
    (arguments,) = parser.read(own)
    for flag, of_command in given.items():
        name = flag.removeprefix("--")
        of_command = of_command or getattr(arguments, name)
        as_settings(of_command, PASSED_ON[flag], flag)  # refuses flags that each cell sets itself
        setattr(arguments, name, of_command)
        parser.settings[name] = of_command
    asks_for_pretraining = PRETRAIN in (arguments.model, arguments.lstm_model)
    if asks_for_pretraining != bool(arguments.pretrain_arguments):
        if asks_for_pretraining:
            raise UserError(
                f"--model or --lstm_model is {PRETRAIN}, but --pretrain_arguments was not given. Pass them, or a "
                "model that is pre-trained already."
            )
        raise UserError(
            f"--pretrain_arguments was given, but neither --model nor --lstm_model is {PRETRAIN}. Leave the arguments "
            f"out, or pass --model {PRETRAIN}."
        )
    return arguments, parser


def check_lstm(arguments: ReproduceArguments) -> None:
    """Raises UserError if arguments are for an LSTM that is not run, or not pre-trained here."""
    if arguments.lstm_finetune_arguments and arguments.lstm_model is None:
        raise UserError(
            "--lstm_finetune_arguments was given, but no LSTM. Pass one as --lstm_model, or leave the arguments out."
        )
    if arguments.lstm_pretrain_arguments and arguments.lstm_model != PRETRAIN:
        raise UserError(
            f"--lstm_pretrain_arguments was given, but --lstm_model is not {PRETRAIN}. Leave the arguments out, or "
            f"pass --lstm_model {PRETRAIN}."
        )


ARGUMENTS = (ReproduceArguments,)


def main(arguments: list[str]) -> None:
    """Exits with status 1 if a cell failed."""
    from ..reproduction.grid import end_on_termination, run_grid  # needs the extra `reproduce`

    disable_progress_bars()
    args, parser = parse_arguments(arguments)
    check_lstm(args)
    for flag in PASSED_ON:  # refuses what no cell could read
        command = "pretrain" if PRETRAIN in flag else "finetune"
        parser_of(command).parse_known_args(getattr(args, flag.removeprefix("--")))
    if not args.only_report:
        for flag, model in (("--model", args.model), ("--lstm_model", args.lstm_model)):
            check_model(flag, None if model == PRETRAIN else model)
        folder = Path(args.output_dir) if args.rehearse is None else Path(args.output_dir, REHEARSAL)
        parser.write_settings(folder / "reproduce_run.yaml")  # the run.yaml of a model's folder stays
    end_on_termination()
    if status := run_grid(args, ["gpt1", "reproduce", *arguments]):
        sys.exit(status)
