"""Who keeps the others waiting, by what each process tells; tests/distributed lets a process hang."""

import json
import logging
from types import SimpleNamespace

import pytest
from torch.distributed import HashStore

from modeling_gpt1.training.stalls import StallWatch, place_of_main_thread

WAITS, WORKS = (True, "backward (graph.py:9)"), (False, "read (files.py:7)")
END = "`ddp_timeout` ends the run 30 s after the last progress. They are at"


def report_of(process, *states):
    """What a process logs; `None` is the state of one that tells nothing."""
    watch = StallWatch(SimpleNamespace(process_index=process, world_size=len(states), ddp_timeout=30))
    watch._store = HashStore()
    for other, state in enumerate(states):
        if state is not None:
            watch._store.set(watch._key(other), json.dumps(state))
    watch._report()


@pytest.mark.parametrize(
    ("reporter", "states", "report"),
    [
        (0, [(5, *WAITS), None], f"The others wait for process 1. {END} 0: {WAITS[1]}; 1: no answer."),
        (1, [None, (5, *WAITS)], f"The others wait for process 0. {END} 0: no answer; 1: {WAITS[1]}."),
        (0, [(5, *WAITS), (5, *WORKS)], f"The others wait for process 1. {END} 0: {WAITS[1]}; 1: {WORKS[1]}."),
        (
            1,
            [(4, *WAITS), (5, *WAITS), (4, *WAITS)],
            f"The others wait for process 0, 2. {END} 0: {WAITS[1]}; 1: {WAITS[1]}; 2: {WAITS[1]}.",
        ),
        (
            0,
            [(5, *WAITS), (5, True, "gather (x.py:1)")],
            f"The processes wait for each other. {END} 0: {WAITS[1]}; 1: gather (x.py:1).",
        ),
    ],
)
def test_one_process_reports_whom_the_others_wait_for(reporter, states, report, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("modeling_gpt1.training.stalls"), "propagate", True)
    for process in range(len(states)):
        report_of(process, *states)
        assert [record.getMessage() for record in caplog.records] == ([report] if process == reporter else [])
        caplog.clear()


def test_processes_at_one_place_are_not_reported(caplog):
    """As in a long compilation."""
    for process in range(2):
        report_of(process, (5, *WORKS), (5, *WORKS))
    assert not caplog.records


def test_the_place_is_that_of_the_main_thread():
    is_waiting, place = place_of_main_thread()
    assert not is_waiting and place.startswith("place_of_main_thread (stalls.py:")


def test_an_address_without_a_port_is_no_launchers(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    watch = StallWatch(SimpleNamespace(process_index=0, world_size=2, ddp_timeout=30))
    with watch.watching():
        assert watch._store is None
