"""What a wrong use is answered with."""

import pytest
from huggingface_hub.errors import StrictDataclassError


def refusal(function, *arguments, **options) -> str:
    """The text of the ValueError, or of the configuration's error, that a call raises."""
    with pytest.raises((ValueError, StrictDataclassError)) as refused:
        function(*arguments, **options)
    return str(refused.value)
