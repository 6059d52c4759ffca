"""What a wrong use is answered with."""

import pytest


def refusal(function, *arguments, **options) -> str:
    """The sentence of the ValueError that a call raises."""
    with pytest.raises(ValueError) as refused:
        function(*arguments, **options)
    return str(refused.value)
