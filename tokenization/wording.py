"""How messages name things: numbers with their nouns, long lists, and the name that was probably meant."""

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from itertools import islice

MOST_LISTED = 10
ONE_LETTER_IS_WRONG = 0.93  # of the similarity that difflib measures, 1 for equal names
IS_SIMILAR = 0.71


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 class`, `2 rows`."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {plural}"


def listed(names: Collection[str]) -> str:
    """The first ten names, and how many more there are."""
    text = ", ".join(islice(names, MOST_LISTED))
    if len(names) > MOST_LISTED:
        text += f", … and {len(names) - MOST_LISTED:,} more"
    return text


def plain_name(name: str) -> str:
    """A name without what does not matter: case, spaces, hyphens and underscores."""
    return re.sub(r"[\s_-]", "", name.lower())


def nearest(name: str, names: Iterable[str]) -> str:
    """The question which of the names was meant, as ` (did you mean 'label'?)`; an empty text if none is near.

    Up to three names are offered where they are `name` with an ending, as `race_middle` and `race_high`.
    """
    near = _nearest_names(name, list(names))
    if not near:
        return ""
    return f" (did you mean {' or '.join(map(repr, near))}?)"


def _nearest_names(name: str, names: list[str]) -> list[str]:
    if near := get_close_matches(name, names, n=1, cutoff=ONE_LETTER_IS_WRONG):
        return near
    if longer := [one for one in names if one.startswith(f"{name}_")]:
        return sorted(longer)[:3]
    similar = get_close_matches(name, names, cutoff=IS_SIMILAR)
    beginnings = [one for one in similar if name.startswith(one)]
    return (beginnings or similar)[:1]
