"""What a wrong use is answered with."""

import pytest
from huggingface_hub.errors import StrictDataclassError


def refusal(function, *arguments, **options) -> str:
    """The text of the ValueError, or of the configuration's error, that a call raises."""
    with pytest.raises((ValueError, StrictDataclassError)) as refused:
        function(*arguments, **options)
    return str(refused.value)


def check_refused(action, *parts: str) -> None:
    """Whether an action ends with a message that has all these parts: what was given, and what to do."""
    message = refusal(action)
    missing = [part for part in map(str, parts) if part not in message]
    assert missing == [], message
