"""Rows such as people have in their own files: texts, and labels in words."""

ROWS = [{"body": "a good film", "mood": "happy"}, {"body": "a slow film", "mood": "sad"}]
COLUMNS = {"text": "body", "label": "mood"}


def moods(*labels) -> list[dict]:
    """A row for each label."""
    return [{"body": "a film", "mood": label} for label in labels]
