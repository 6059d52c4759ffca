"""Names the process that keeps the others waiting, before `ddp_timeout` ends the run.

torch ends a wait after `ddp_timeout`, and tells who waited, not for whom. Here every process without progress for most
of that time tells the others where it is, through the launcher's store, which needs no collective.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from torch.distributed import DistError, TCPStore
from transformers import TrainingArguments
from transformers.utils import logging

logger = logging.get_logger(__name__)

TOLD_AFTER, REPORTED_AFTER, ENDED_AFTER = 0.7, 0.85, 1.1  # of `ddp_timeout`


class StallWatch:
    """Watches the progress of this process in a thread.

    Args:
        args ([`transformers.TrainingArguments`]): source of the processes and of `ddp_timeout`.
    """

    def __init__(self, args: TrainingArguments):
        self.process, self.num_processes, self.timeout = args.process_index, args.world_size, args.ddp_timeout
        self._num_batches, self._last_progress, self._is_reported = 0, time.monotonic(), False
        self._over, self._store = threading.Event(), None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context, a stall of several processes is reported. They all must enter it."""
        has_store = {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()  # of one of torch's launchers
        if self.num_processes == 1 or not has_store:
            yield
            return
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=self.timeout))
        self._over.clear()
        self.note_progress()
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            yield
        finally:
            self._over.set()

    def note_progress(self) -> None:
        """Called at each batch."""
        self._num_batches, self._last_progress = self._num_batches + 1, time.monotonic()

    def _watch(self) -> None:
        while not self._over.wait(self.timeout / 20):
            stall = (time.monotonic() - self._last_progress) / self.timeout
            try:
                if stall < TOLD_AFTER:
                    if self._is_reported:  # all go on
                        self._store.delete_key(self._key("late"))
                        self._is_reported = False
                    continue
                self._store.set(self._key(self.process), json.dumps([self._num_batches, *place_of_main_thread()]))
                if stall > REPORTED_AFTER and not self._is_reported:
                    self._is_reported = True
                    self._report()
                if stall > ENDED_AFTER and self._store.check([self._key("late")]):
                    if str(self.process) in json.loads(self._store.get(self._key("late"))):
                        logger.error(f"Process {self.process} ends, because the others have waited too long for it.")
                        os._exit(1)  # the launcher of another machine cannot end it
            except DistError as error:
                logger.error(f"{self._end} The launcher's store on {os.environ['MASTER_ADDR']} fails: {error}")
                return

    def _report(self) -> None:
        """One process logs where all of them are, unless they all are at the same place."""
        states = [self._state_of(process) for process in range(self.num_processes)]
        # The others wait for those that began fewer batches, or do anything but wait, or are alone where they are.
        ranks = {state: (*state[:2], states.count(state)) for state in states}
        last = [state for state, rank in ranks.items() if rank == min(ranks.values())]
        late = [str(process) for process, state in enumerate(states) if state == last[0]] if len(last) == 1 else []
        reporter = next((process for process in range(self.num_processes) if str(process) not in late), None)
        if len(ranks) > 1 and self.process == reporter:
            named = f"The others wait for process {', '.join(late)}." if late else "The processes wait for each other."
            listed = "; ".join(f"{process}: {place}" for process, (_, _, place) in enumerate(states))
            self._store.set(self._key("late"), json.dumps(late))
            logger.error(f"{named} {self._end} They are at {listed}.")

    @property
    def _end(self) -> str:
        return f"`ddp_timeout` ends the run {self.timeout} s after the last progress."

    def _state_of(self, process: int) -> tuple[int, bool, str]:
        """Batches that the process has begun, whether it waits for others, and where it is."""
        key = self._key(process)
        return tuple(json.loads(self._store.get(key))) if self._store.check([key]) else (0, False, "no answer")

    def _key(self, process: int | str) -> str:
        return f"stalls/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}/{process}"


def place_of_main_thread() -> tuple[bool, str]:
    """Whether it waits in a function of torch that talks to other processes, and where it is."""
    frame = sys._current_frames()[threading.main_thread().ident]
    name, file = frame.f_code.co_name, Path(frame.f_code.co_filename)
    is_waiting = "distributed" in file.parts[-2:] or name == "_engine_run_backward"
    return is_waiting, f"{name} ({file.name}:{frame.f_lineno})"
