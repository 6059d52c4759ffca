"""What several commands share."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..hub.push import PushError


@contextmanager
def end_after_failed_push() -> Iterator[None]:
    """Ends the process with the error's text, which says all that there is to do: the whole run is on the disk."""
    try:
        yield
    except PushError as error:
        sys.exit(str(error))
