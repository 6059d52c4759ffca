"""The four input transformations that turn a task's structured input into token sequences, ids in and ids out.

Source: section 3.3 and figure 1 of "Improving Language Understanding by Generative Pre-Training" (Radford et al.,
2018); the order of start, delimiter and extract is that of `transform_roc` in
https://github.com/openai/finetune-transformer-lm/blob/master/train.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix

from ..errors import UserError


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
                f"The tokenizer has no {' token, no '.join(missing)} token; a traversal needs [s], [$] and [e]. "
                "Call `tokenization.add_control_tokens(tokenizer, model)` once before fine-tuning."
            )
        return cls(*ids)


@dataclass(frozen=True)
class Traversed:
    """The sequences of one example. All begin with the same `num_shared` tokens, and each goes on after them."""

    sequences: list[list[int]]
    num_shared: int = 0


def classification(text: Sequence[int], control: ControlIds, max_length: int) -> Traversed:
    """`[s] text [e]`; a text that is too long loses its end."""
    _check("classification", max_length, {"text": text})
    kept = list(text[: max_length - 2])
    return Traversed([[control.start, *kept, control.extract]])


def entailment(premise: Sequence[int], hypothesis: Sequence[int], control: ControlIds, max_length: int) -> Traversed:
    """`[s] premise [$] hypothesis [e]`; a pair that is too long is cut as in `cut_pair`."""
    _check("entailment", max_length, {"premise": premise, "hypothesis": hypothesis})
    return Traversed([_join(*cut_pair(premise, hypothesis, max_length - 3), control)])


def similarity(text_a: Sequence[int], text_b: Sequence[int], control: ControlIds, max_length: int) -> Traversed:
    """`[s] a [$] b [e]` and `[s] b [$] a [e]`; both orders hold the same texts, cut as in `cut_pair`."""
    _check("similarity", max_length, {"text_a": text_a, "text_b": text_b})
    kept_a, kept_b = cut_pair(text_a, text_b, max_length - 3)
    sequences = [_join(kept_a, kept_b, control), _join(kept_b, kept_a, control)]
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
    segments = {"context": context, **({"question": question} if question else {})}
    _check("multiple_choice", max_length, segments | {f"choice {k}": choice for k, choice in enumerate(choices)})
    head, kept_choices = cut_choices(context, question, choices, max_length - 3)
    num_shared = len(head) + 2 + len(commonprefix(kept_choices))
    return Traversed([_join(head, choice, control) for choice in kept_choices], num_shared)


def check_max_length(traversal: str, max_length: int, with_question: bool = False) -> None:
    """Raises ValueError where `max_length` has no room for the control tokens and one token of each segment."""
    needed = 3 if traversal == "classification" else 5 + with_question
    if isinstance(max_length, str) or max_length < needed:
        raise UserError(
            f"max_length is {max_length!r}, but {traversal}{' with a question' if with_question else ''} needs at "
            f"least {needed}: its control tokens and one token of each segment. Raise max_length."
        )


def check_roles(traversal: str, columns: Mapping[str, str | list[str]]) -> None:
    """Raises ValueError where there is no such traversal, or `columns` do not have its roles."""
    if traversal not in TRAVERSALS:
        raise UserError(f'Unknown traversal "{traversal}". Choose one of: {", ".join(TRAVERSALS)}.')
    if not isinstance(columns, Mapping):
        raise UserError(f"`columns` is {columns!r}. Name the column of each role, as {{'text': 'review'}}.")
    needed, optional = TRAVERSALS[traversal].roles, (*TRAVERSALS[traversal].optional_roles, "label")
    if not set(needed) <= set(columns) <= {*needed, *optional}:
        raise UserError(
            f"`columns` has the roles {', '.join(columns) or 'none'}; {traversal} needs {', '.join(needed)}, and may "
            f"have {', '.join(optional)}. Correct `columns`: the role comes first, then its column."
        )


def cut_pair(first: Sequence[int], second: Sequence[int], budget: int) -> tuple[list[int], list[int]]:
    """Cuts two segments to `budget` tokens in total, the longer one first, as `tokenizers` does in a pipeline.

    Where both are cut, they keep as many; if their room is odd, the longer one (or the second) keeps one more.
    """
    half = [budget // 2, budget - budget // 2]
    keep_first, keep_second = half[::-1] if len(first) > len(second) else half
    return list(first[: max(keep_first, budget - len(second))]), list(second[: max(keep_second, budget - len(first))])


def cut_choices(
    context: Sequence[int], question: Sequence[int], choices: Sequence[Sequence[int]], budget: int
) -> tuple[list[int], list[list[int]]]:
    """The context with the question, and the choices: both and any one choice have `budget` tokens at most."""
    room = budget - max(len(choice) for choice in choices)
    kept_context = list(context[: max(1, room - len(question))])
    kept_question = list(question[: max(1, room - len(kept_context))])
    head = kept_context + kept_question
    return head, [list(choice[: budget - len(head)]) for choice in choices]


def _join(first: list[int], second: list[int], control: ControlIds) -> list[int]:
    return [control.start, *first, control.delimiter, *second, control.extract]


def _check(traversal: str, max_length: int, segments: dict[str, Sequence[int]]) -> None:
    if traversal == "multiple_choice" and "choice 0" not in segments:
        raise UserError("multiple_choice was given no choices; it needs at least one.")
    for name, ids in segments.items():
        if len(ids) == 0:
            raise UserError(f"{traversal} was given an empty {name}; every segment needs at least one token.")
    check_max_length(traversal, max_length, with_question="question" in segments)


@dataclass(frozen=True)
class Traversal:
    """What a traversal reads and writes. The collator and the models' configurations follow from it.

    Args:
        write: makes the sequences of an example from the ids of its texts, the control ids and the longest length.
        roles: what the texts are; the last of a traversal with choices stands for all of them.
        num_sequences: sequences of an example; `None`: one for each choice, and the label is the index of a choice.
        optional_roles: roles that a row may lack. They stand before the choices.
        names: what stands between the control tokens of a sequence.
    """

    write: Callable[..., Traversed]
    roles: tuple[str, ...]
    num_sequences: int | None
    names: tuple[str, ...]
    optional_roles: tuple[str, ...] = ()

    @property
    def has_choices(self) -> bool:
        return self.num_sequences is None

    @property
    def num_control(self) -> int:
        """Control tokens of a sequence: one before, between and after its texts."""
        return len(self.names) + 1

    @property
    def form(self) -> str:
        """The sequences for a reader: "`[s] premise [$] hypothesis [e]`"."""
        orders = [self.names, self.names[::-1]][: self.num_sequences or 1]
        written = " and ".join(f"`[s] {' [$] '.join(names)} [e]`" for names in orders)
        return f"{written}, one per answer" if self.has_choices else written


# A new traversal stands here and, with its number of sequences, in `modeling_gpt1/configuration_gpt1.py`.
TRAVERSALS = {
    "classification": Traversal(classification, ("text",), 1, ("text",)),
    "entailment": Traversal(entailment, ("premise", "hypothesis"), 1, ("premise", "hypothesis")),
    "similarity": Traversal(similarity, ("text_a", "text_b"), 2, ("a", "b")),
    "multiple_choice": Traversal(
        multiple_choice, ("context", "choices"), None, ("context question", "answer"), optional_roles=("question",)
    ),
}
