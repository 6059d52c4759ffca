"""Values of flags, checked in milliseconds, before torch and transformers are imported."""

import ast
import difflib
import re
from collections.abc import Iterator

from .flags import SOURCES, classes_in, fields_of

# Names that the command line cannot import in time. Tests compare them with what they name.
TASKS = (
    *("sst2", "cola", "mrpc", "stsb", "qqp", "mnli", "snli", "qnli", "rte", "scitail"),
    *("race", "race-middle", "race-high", "story_cloze"),
)
ZERO_SHOT_TASKS = ("cola", "sst2", "race", "race-middle", "race-high", "story_cloze", "dpr", "blimp")
TRAVERSALS = ("classification", "entailment", "similarity", "multiple_choice")
NAMES = {
    ("finetune", "task"): TASKS,
    ("finetune", "traversal"): TRAVERSALS,
    ("zero-shot", "tasks"): tuple(dict.fromkeys((*ZERO_SHOT_TASKS, *TASKS))),  # the command tells the two apart
    ("reproduce", "tasks"): TASKS,
    ("reproduce", "transfer_tasks"): TASKS,
    ("reproduce", "auxiliary_tasks"): TASKS,
    ("reproduce", "zero_shot_tasks"): tuple(dict.fromkeys((*ZERO_SHOT_TASKS, *TASKS))),
}
ENUMS = ("transformers.training_args", "transformers.trainer_utils")
NUMBERS = {"int": (int, "a whole number"), "float": (float, "a number")}
LEAST = {
    "learning_rate": 0,
    **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size", "batch_size"), 1),
    "gradient_accumulation_steps": 1,
    **dict.fromkeys(("max_train_samples", "max_eval_samples", "max_predict_samples", "max_eval_blocks"), 1),
    **dict.fromkeys(("zero_shot_max_eval_samples", "zero_shot_max_train_samples"), 1),
}


def check_values(command: str, words: list[str]) -> list[str]:
    """The words, with each negative number joined to its flag: argparse takes `-1e-3` for a flag.

    Raises:
        ValueError: the value of a flag is no number, too small, or not among the names that the flag takes.
    """
    types = {}
    for source in SOURCES[command]:
        for name, annotation in fields_of(*source.split(":")):
            types.setdefault(name, []).append(ast.unparse(annotation))
    checked, place = [], 0
    while place < len(words):
        word, place = words[place], place + 1
        if word == "--":
            return [*checked, *words[place - 1 :]]
        name, is_joined, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in types:
            checked.append(word)
            continue
        values = [value] if is_joined else list(following(words[place:], types[name][0].startswith("list")))
        kind = next((kind for kind in NUMBERS if types[name][0] in (kind, f"{kind} | None")), None)
        if kind and not is_joined and values and is_number(values[0]) and values[0].startswith("-"):
            word, place = f"{word}={values[0]}", place + 1
        checked.append(word)
        for value in values:
            check_number(name, value, kind) if kind else check_name(command, name, value, types[name])
    return checked


def following(words: list[str], is_list: bool) -> Iterator[str]:
    """The values of a flag that is before these words."""
    for word in words if is_list else words[:1]:
        if word.startswith("--") and " " not in word.partition("=")[0]:  # a text may begin with dashes
            return
        yield word


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_number(name: str, value: str, kind: str) -> None:
    convert, what = NUMBERS[kind]
    try:
        number = convert(value)
    except ValueError:
        raise ValueError(f"--{name} is {value!r}, but must be {what}.") from None
    if number < LEAST.get(name, number):
        raise ValueError(f"--{name} is {value}, but must be at least {LEAST[name]}.")


def check_name(command: str, name: str, value: str, types: list[str]) -> None:
    known = NAMES.get((command, name)) or names_of_enum(types)
    if not known or plain(value) in map(plain, known):
        return
    near = difflib.get_close_matches(value.lower(), known, n=1)
    guess = f"; did you mean {near[0]}?" if near else "."
    raise ValueError(f"--{name} has no value {value!r}{guess} It takes {', '.join(known)}.")


def plain(name: str) -> str:
    """Tasks are known by any spelling, such as SST-2."""
    return re.sub(r"[\s_-]", "", name.lower())


def names_of_enum(types: list[str]) -> list[str]:
    """The values of the enum of transformers that is among the types of a field."""
    wanted = {part for annotation in types for part in annotation.split(" | ")}
    for module in ENUMS:
        for node in classes_in(module):
            if node.name in wanted and any(getattr(base, "id", "") == "ExplicitEnum" for base in node.bases):
                return [line.value.value for line in node.body if isinstance(line, ast.Assign)]
    return []
