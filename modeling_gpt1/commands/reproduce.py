r"""The experiments of the paper's sections 4.2 and 5 on a model of yours, and one report beside the paper's figures.

Tables 2 to 5 and figure 2, for a model and an LSTM that `gpt1 pretrain` wrote:

    gpt1 reproduce --experiments fine_tuning ablations layer_transfer zero_shot \
        --model runs/books --lstm_model runs/books-lstm --checkpoints runs/books --lstm_checkpoints runs/books-lstm \
        --data_dir data --tasks cola sst2 mrpc stsb rte story_cloze --transfer_tasks rte story_cloze \
        --seeds 1 2 3 --output_dir runs/report \
        --finetune_arguments --num_train_epochs 3 --learning_rate 5e-4 --max_train_samples 4000

The paper's own, with the released weights and the data sets of the hub, on a GPU:

    gpt1 reproduce --model openai-community/openai-gpt --experiments fine_tuning --output_dir runs/paper

What each run of it would need, and whether all data can be read, in a few minutes:

    gpt1 reproduce --model openai-community/openai-gpt --experiments fine_tuning --output_dir runs/paper --rehearse 3

Everything after `--finetune_arguments` goes to `gpt1 finetune`, whose defaults are the paper's. What stands after
`--lstm_finetune_arguments` behind it overrides that for the LSTM, such as another learning rate. Experiments:

    fine_tuning     tables 2 to 4: every task
    ablations       table 5: the full method (full), λ = 0 (without_auxiliary), all weights new (without_pretraining),
                    and --lstm_model in the Transformer's place (lstm); --variants chooses
    layer_transfer  figure 2, left: the embeddings and the first k layers of the checkpoint (--transfer_layers)
    zero_shot       figure 2, right: `gpt1 zero-shot` on every checkpoint of --checkpoints and --lstm_checkpoints, or
                    on the model itself

Two more, which are not the paper's and not run by default:

    auxiliary_sizes   with and without the auxiliary objective, on --auxiliary_sizes training rows of --auxiliary_tasks
    loss_by_position  the loss of both models after 1, 2, 4, … tokens of --validation_files

A run of a task with a seed is one cell, kept in <output_dir>/cells; what is finished is never run again, experiments
share what they have in common, and cells of other settings stay apart. So the same command goes on where a run
stopped; several commands may work on one output folder at once, each taking cells that no other is running. The first
seed comes first in all experiments, then the second. A cell that fails is told with its log, the others go on, and the
exit status is 1.

After each cell report.json and report.html are written. They tell of every finished cell of these settings in the
output folder, whichever command ran it; `--only_report` writes them and runs nothing.
"""

import sys
from pathlib import Path

from datasets import disable_progress_bars

from ..reproduction.arguments import FINETUNE_FLAG, LSTM_FLAG, ReproduceArguments, as_settings
from ..reproduction.cells import commands_end_on_termination
from ..reproduction.grid import run_grid
from ..reproduction.rehearsal import REHEARSAL, rehearse
from .arguments import CommandParser, parser_of
from .models import check_model


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
        act = run_grid if args.rehearse is None else rehearse
        status = act(args, ["gpt1", "reproduce", *arguments])
    if status:
        sys.exit(status)
