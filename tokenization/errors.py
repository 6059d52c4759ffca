"""The error that is for the user: its sentence says what was given, what is needed and what to do.

The commands print it without a traceback. Any other error is a mistake in the code, and keeps its traceback.
The files that travel with a model have their own `UserError`, in `modeling_gpt1/configuration_gpt1.py`, because they
import nothing of this package.
"""


class UserError(ValueError):
    """What a user gave cannot be used. The sentence says what it was, what is needed and what to do."""
