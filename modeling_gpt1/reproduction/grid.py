"""The whole grid of experiments: runs the unfinished cells and writes the report of the finished ones."""

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..storage.writing import write_atomically
from .arguments import ReproduceArguments
from .cells import Cell, CellStore, make_folder, run_cells, write_json
from .models import describe_model, environment
from .page import page
from .plan import WITHOUT_SEEDS, check_families, describe_left_out_sizes, fine_tuning_cell, model_of, plan
from .report import build_report


def run_grid(arguments: ReproduceArguments, command: list[str]) -> int:
    """Runs and reports the requested experiments. Returns the exit status, which is 1 if a cell failed.

    Args:
        arguments: the requested experiments.
        command: the command as it was typed, for the report.
    """
    check_families(arguments)
    store = CellStore(Path(arguments.output_dir))
    cells = plan(arguments)
    failures: dict[str, str] = {}
    write = partial(write_reports, arguments, command, cells, store, failures)
    for line in describe_left_out_sizes(arguments):
        print(line)
    if not arguments.only_report:
        run_cells(cells, store, failures, partial(write_if_possible, write))
    print(write())
    if failures:
        names = ", ".join(cell.name for cell in cells if cell.key in failures)
        print(f"{len(failures)} of {len(cells)} cells failed: {names}")
    return 1 if failures else 0


def write_if_possible(write: Callable[[], str]) -> None:
    """Writes the report between cells. A report that cannot be written must not end hours of runs."""
    try:
        write()
    except Exception as error:  # whatever the error is, it appears again at the end
        print(f"The report could not be written: {type(error).__name__}: {error}", flush=True)


def write_reports(
    arguments: ReproduceArguments, command: list[str], cells: list[Cell], store: CellStore, failures: dict
) -> str:
    """Writes report.json and report.html of all finished cells to the output folder. Returns a line that says so.

    Raises:
        ValueError: a report alone was asked for, and all finished cells have other settings.
    """
    finished, num_others = finished_cells(arguments, cells, store)
    if arguments.only_report and num_others and not finished:
        raise ValueError(
            f"None of the {num_others} finished cells in {store.folder} has these settings, so its report is left as "
            "it is. Repeat the flags of the command that ran them, or pass --config "
            f"{store.folder / 'reproduce_run.yaml'} --only_report true for those of the latest."
        )
    unfinished = [
        {**cell.facts, **cell.about, "reason": failures.get(cell.key, "not run yet").splitlines()[0]}
        for cell in cells
        if store.read(cell) is None
    ]
    runs = {arguments.model: arguments.checkpoints, arguments.lstm_model: arguments.lstm_checkpoints}
    report = build_report(
        with_parts(finished),
        title=arguments.title,
        models=[describe_model(model, run) for model, run in runs.items() if model is not None],
        environment=environment(),
        commands=[shlex.join(command)],
        unfinished=unfinished,
    )
    write_atomically(make_folder(store.folder) / "report.html", page(report))
    write_json(store.folder / "report.json", report)
    number = f"{len(finished)} finished cell{'' if len(finished) == 1 else 's'}"
    others = f"; {num_others} with other settings are left out" if num_others else ""
    return f"{store.folder / 'report.html'} and report.json cover {number}{others}."


def finished_cells(arguments: ReproduceArguments, cells: list[Cell], store: CellStore) -> tuple[list[dict], int]:
    """The finished cells with these settings, from any command, and the number of other cells in the folder."""
    found = store.read_all()
    others = [cell for cells_of in WITHOUT_SEEDS.values() for cell in cells_of(arguments)]
    wanted = {store.result_path(cell) for cell in (*cells, *others)}
    for content in found.values():
        if content["kind"] == "fine_tuning" and model_of(arguments, content["variant"]) is not None:
            variant = f"transfer-{content['n_transfer']}" if content["variant"] == "transfer" else content["variant"]
            place = content["task"], variant, content["seed"], content.get("size")
            wanted.add(store.result_path(fine_tuning_cell(arguments, *place)))
    return [content for path, content in found.items() if path in wanted], len(set(found) - wanted)


def with_parts(finished: list[dict]) -> list[dict]:
    """Adds a cell without a time of its own for each part of a task that a model of the whole task was scored on."""

    def place(cell: dict) -> tuple:
        return cell["task"], cell["variant"], cell["n_transfer"], cell["seed"], cell.get("size")

    own = {place(cell) for cell in finished if cell["kind"] == "fine_tuning"}
    parts = [
        {**cell, "task": task, "metrics": metrics, "answers": {}, "seconds": None}
        for cell in finished
        for task, metrics in cell.get("parts", {}).items()
    ]
    return [*finished, *(part for part in parts if place(part) not in own)]
