"""The four input transformations that turn a task's structured input into token sequences, ids in and ids out.

Source: section 3.3 and figure 1 of "Improving Language Understanding by Generative Pre-Training" (Radford et al.,
2018); the order of start, delimiter and extract is that of `transform_roc` in
https://github.com/openai/finetune-transformer-lm/blob/master/train.py.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix

from ..errors import UserError
from ..wording import nearest


@dataclass(frozen=True)
class ControlIds:
    """The ids of the control tokens `[s]`, `[$]` and `[e]`."""

    start: int
    delimiter: int
    extract: int

    @classmethod
    def from_tokenizer(cls, tokenizer) -> "ControlIds":
        """Reads the three ids from a tokenizer.

        Raises:
            ValueError: the tokenizer has no control tokens.
        """
        names = ("start", "delimiter", "extract")
        ids = [getattr(tokenizer, f"{name}_token_id", None) for name in names]
        missing = [name for name, token_id in zip(names, ids, strict=True) if token_id is None]
        if missing:
            raise UserError(
                f"The tokenizer lacks the control tokens {', '.join(missing)}; a traversal needs all three. Call "
                "`tokenization.add_control_tokens(tokenizer, model)` once before fine-tuning."
            )
        return cls(*ids)


@dataclass(frozen=True)
class Traversed:
    """The sequences of one example. All begin with the same `num_shared` tokens, and each goes on after them."""

    sequences: list[list[int]]
    num_shared: int = 0


# Roles that a reader knows by another name.
NAMES_FOR_READERS = {"text_a": "a", "text_b": "b", "choices": "answer"}


@dataclass(frozen=True)
class Traversal:
    """What a traversal reads and writes. The collators, checks and limits follow from it.

    Args:
        write: makes the sequences of an example. Its arguments are the ids of the texts, by their roles' names,
            `control` ([`ControlIds`]) and `max_length`.
        roles: what the texts are. The role `choices` is the last one and stands for several texts: the example has a
            sequence for each, and its label is the place of one.
        sequences: the segments between the control tokens of each sequence. A segment is a role, or several with a
            space between them. The sequence of a traversal with choices stands for all of them.
        optional_roles: roles that a row may lack. Their texts stand behind those of `roles`, but before the choices.
    """

    write: Callable[..., Traversed]
    roles: tuple[str, ...]
    sequences: tuple[tuple[str, ...], ...]
    optional_roles: tuple[str, ...] = ()

    @property
    def has_choices(self) -> bool:
        """Whether an example has a sequence for each of its choices."""
        return "choices" in self.roles

    @property
    def num_sequences(self) -> int | None:
        """Sequences of an example; `None`: one for each choice."""
        return None if self.has_choices else len(self.sequences)

    @property
    def num_segments(self) -> int:
        """What control tokens separate in a sequence."""
        return len(self.sequences[0])

    @property
    def num_control(self) -> int:
        """Control tokens of a sequence: one before, between and after its segments."""
        return self.num_segments + 1

    @property
    def roles_of_sequences(self) -> list[list[str]]:
        """Of each sequence the roles whose texts it has."""
        return [[role for segment in segments for role in segment.split()] for segments in self.sequences]

    @property
    def form(self) -> str:
        """The sequences for a reader: "`[s] premise [$] hypothesis [e]`"."""
        shown = []
        for segments in self.sequences:
            names = [NAMES_FOR_READERS.get(segment, segment) for segment in segments]
            shown.append(f"`[s] {' [$] '.join(names)} [e]`")
        written = " and ".join(shown)
        return f"{written}, one per answer" if self.has_choices else written

    @property
    def is_symmetric(self) -> bool:
        """Whether it reads a pair of texts in more than one order."""
        return not self.has_choices and len(self.roles) == 2 and len(self.sequences) > 1

    def text_roles(self, given: Collection[str]) -> list[str]:
        """The roles of one text each, those that a row may lack only if they are given; not the choices'."""
        roles = [role for role in self.roles if role != "choices"]
        return roles + [role for role in self.optional_roles if role in given]

    def least_length(self, optional_roles: Collection[str] = ()) -> int:
        """Tokens of the longest sequence where each text has one: of those that a row may lack, the given ones."""
        given = {*self.roles, *optional_roles}
        num_texts = [sum(role in given for role in roles) for roles in self.roles_of_sequences]
        return self.num_control + max(num_texts)


def classification(text: Sequence[int], control: ControlIds, max_length: int) -> Traversed:
    """`[s] text [e]`; a text that is too long loses its end."""
    room = _room("classification", max_length, {"text": text})
    return Traversed([_join([text[:room]], control)])


def entailment(premise: Sequence[int], hypothesis: Sequence[int], control: ControlIds, max_length: int) -> Traversed:
    """`[s] premise [$] hypothesis [e]`; a pair that is too long is cut as in `cut_pair`."""
    room = _room("entailment", max_length, {"premise": premise, "hypothesis": hypothesis})
    return Traversed([_join(cut_pair(premise, hypothesis, room), control)])


def similarity(text_a: Sequence[int], text_b: Sequence[int], control: ControlIds, max_length: int) -> Traversed:
    """`[s] a [$] b [e]` and `[s] b [$] a [e]`; both orders hold the same texts, cut as in `cut_pair`."""
    room = _room("similarity", max_length, {"text_a": text_a, "text_b": text_b})
    kept_a, kept_b = cut_pair(text_a, text_b, room)
    sequences = [_join([kept_a, kept_b], control), _join([kept_b, kept_a], control)]
    num_shared = 1 + len(commonprefix([kept_a, kept_b]))
    return Traversed(sequences, num_shared)


def multiple_choice(
    context: Sequence[int],
    choices: Sequence[Sequence[int]],
    control: ControlIds,
    max_length: int,
    question: Sequence[int] = (),
) -> Traversed:
    """`[s] context question [$] choice [e]`, one sequence per choice; the question may be left out.

    All choices share one context and one question, cut so that the longest choice fits: the context gives up its end
    down to one token, then the question down to one token, then each choice that still does not fit.
    """
    if len(choices) == 0:
        raise UserError("multiple_choice was given no choices; it needs at least one.")
    texts = {"context": context}
    if question:
        texts["question"] = question
    for number, choice in enumerate(choices):
        texts[f"choice {number}"] = choice
    room = _room("multiple_choice", max_length, texts)
    head, kept_choices = cut_choices(context, question, choices, room)
    num_shared = len(head) + 2 + len(commonprefix(kept_choices))
    return Traversed([_join([head, choice], control) for choice in kept_choices], num_shared)


# A new traversal stands here and, with its number of sequences, in `modeling_gpt1/configuration_gpt1.py`.
TRAVERSALS = {
    "classification": Traversal(
        classification,
        roles=("text",),
        sequences=(("text",),),
    ),
    "entailment": Traversal(
        entailment,
        roles=("premise", "hypothesis"),
        sequences=(("premise", "hypothesis"),),
    ),
    "similarity": Traversal(
        similarity,
        roles=("text_a", "text_b"),
        sequences=(("text_a", "text_b"), ("text_b", "text_a")),
    ),
    "multiple_choice": Traversal(
        multiple_choice,
        roles=("context", "choices"),
        sequences=(("context question", "choices"),),
        optional_roles=("question",),
    ),
}


def check_roles(traversal: str, columns: Mapping[str, str | list[str]]) -> None:
    """Raises ValueError where there is no such traversal, or `columns` do not have its roles."""
    if traversal not in TRAVERSALS:
        raise UserError(f"`traversal` is {traversal!r}. Choose one of {', '.join(TRAVERSALS)}.")
    if not isinstance(columns, Mapping):
        raise UserError(f"`columns` is {columns!r}. Name the column of each role, such as {{'text': 'review'}}.")
    needed = TRAVERSALS[traversal].roles
    optional = (*TRAVERSALS[traversal].optional_roles, "label")
    known = (*needed, *optional)
    unknown = [role for role in columns if role not in known]
    if unknown:
        raise UserError(
            f"`columns` has the role {unknown[0]!r}{nearest(unknown[0], known)}, but the roles of {traversal} are "
            f"{', '.join(known)}. Write the role first, then its column."
        )
    missing = [role for role in needed if role not in columns]
    if missing:
        raise UserError(
            f"`columns` has the roles {', '.join(columns) or 'none'}, but {traversal} also needs "
            f"{', '.join(missing)}. Add the role with its column. All roles: {', '.join(known)}."
        )


def check_max_length(traversal: str, max_length: int, given_roles: Collection[str] = ()) -> None:
    """Raises ValueError where `max_length` has no room for the control tokens and one token of each text.

    Args:
        traversal: a name in `TRAVERSALS`.
        max_length: maximum tokens of a sequence.
        given_roles: of them those count that a row may lack, such as the question.
    """
    kind = TRAVERSALS[traversal]
    optional = [role for role in kind.optional_roles if role in given_roles]
    needed = kind.least_length(optional)
    if isinstance(max_length, str) or max_length < needed:
        extra = "".join(f" with a {role}" for role in optional)
        raise UserError(
            f"`max_length` is {max_length!r}, but {traversal}{extra} needs at least {needed}: its control tokens and "
            "one token of each segment. Raise `max_length`."
        )


def cut_pair(first: Sequence[int], second: Sequence[int], budget: int) -> tuple[list[int], list[int]]:
    """Cuts two segments to `budget` tokens in total, the longer one first, as `tokenizers` does in a pipeline.

    Where both are cut, they keep as many; if their room is odd, the longer one (or the second) keeps one more.
    """
    smaller_half = budget // 2
    larger_half = budget - smaller_half
    if len(first) > len(second):
        least_first, least_second = larger_half, smaller_half
    else:
        least_first, least_second = smaller_half, larger_half
    keep_first = max(least_first, budget - len(second))
    keep_second = max(least_second, budget - len(first))
    return list(first[:keep_first]), list(second[:keep_second])


def cut_choices(
    context: Sequence[int], question: Sequence[int], choices: Sequence[Sequence[int]], budget: int
) -> tuple[list[int], list[list[int]]]:
    """The context with the question, and the choices: both and any one choice have `budget` tokens at most."""
    room = budget - max(len(choice) for choice in choices)
    kept_context = list(context[: max(1, room - len(question))])
    kept_question = list(question[: max(1, room - len(kept_context))])
    head = kept_context + kept_question
    return head, [list(choice[: budget - len(head)]) for choice in choices]


def _join(segments: Sequence[Sequence[int]], control: ControlIds) -> list[int]:
    """`[s] segment [$] segment … [e]`"""
    first, *others = segments
    ids = [control.start, *first]
    for segment in others:
        ids += [control.delimiter, *segment]
    return [*ids, control.extract]


def _room(traversal: str, max_length: int, texts: dict[str, Sequence[int]]) -> int:
    """The tokens that a sequence has for its texts.

    Raises:
        ValueError: a text is empty, or `max_length` has no room for each.
    """
    for name, ids in texts.items():
        if len(ids) == 0:
            raise UserError(f"{traversal} was given an empty {name}; every segment needs at least one token.")
    check_max_length(traversal, max_length, given_roles=texts)
    return max_length - TRAVERSALS[traversal].num_control
