"""What the playground shows, as HTML and CSS: tokens coloured by kind with their losses, probabilities, messages.

Every text from a person or a model is escaped here. Nothing is fetched, not even fonts.
"""

import html
import math
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ShownToken:
    """A token as the page shows it: its piece of text, its part of the input and its −log P in nats."""

    piece: str
    kind: str
    loss: float | None
    ends_word: bool = True


@dataclass(frozen=True)
class Reading:
    """Everything that a model says about an input.

    Args:
        titles: titles that distinguish the sequences.
        sequences: the tokens of each sequence of the traversal.
        scores: name and probability of each class or choice, or name and value of a regression; empty without a task.
        is_regression: the score is a value.
        notes: what a person should know, such as cut texts or a missing head.
    """

    titles: list[str]
    sequences: list[list[ShownToken]]
    scores: list[tuple[str, float]]
    is_regression: bool
    notes: list[str]


# (background, text) on a light and on a dark page. Every pair has the contrast that WCAG level AA requires.
COLOURS = {
    "control": (("#334155", "#ffffff"), ("#cbd5e1", "#0f172a")),
    "first": (("#dbeafe", "#1e3a8a"), ("#1e3a5f", "#dbeafe")),
    "second": (("#dcfce7", "#14532d"), ("#14432a", "#dcfce7")),
    "question": (("#fef3c7", "#78350f"), ("#4a3512", "#fef3c7")),
}
COLOUR_OF = {
    "control": "control",
    **dict.fromkeys(("text", "premise", "text a", "context"), "first"),
    **dict.fromkeys(("hypothesis", "text b", "answer"), "second"),
    "question": "question",
}
# Page, text, fainter text, lines, bars; light and dark.
PAGE = {
    "page": ("#ffffff", "#18181b"),
    "ink": ("#1f2937", "#e5e7eb"),
    "faint": ("#4b5563", "#a1a1aa"),
    "line": ("#e5e7eb", "#3f3f46"),
    "bar": ("#2563eb", "#60a5fa"),
    "heat": ("#fb923c", "#c2410c"),
    "alarm": ("#991b1b", "#fecaca"),
    "alarm-page": ("#fef2f2", "#450a0a"),
}
STRONGEST_HEAT = 0.6  # share of the heat's colour under the largest loss
OPEN_SEQUENCES = 4  # further sequences are folded, so that a context does not repeat over pages


def style_sheet() -> str:
    """The page's CSS. Fonts come from the reader's machine."""

    def variables(shade: int) -> str:
        colours = {name: pair[shade] for name, pair in PAGE.items()}
        for name, shades in COLOURS.items():
            colours[name], colours[f"{name}-ink"] = shades[shade]
        return "".join(f"--gpt1-{name}:{colour};" for name, colour in colours.items())

    kinds = "".join(
        f".gpt1-{name} .gpt1-piece{{background:var(--gpt1-{name});color:var(--gpt1-{name}-ink)}}" for name in COLOURS
    )
    layout = (Path(__file__).parent / "look.css").read_text(encoding="utf-8")
    return f".gpt1{{{variables(0)}}}.dark .gpt1{{{variables(1)}}}{kinds}\n{layout}"


def escape(text: str) -> str:
    """A text as HTML. A lone surrogate, which no page can hold, becomes a question mark."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))


def show_error(message: str) -> str:
    return f'<div class="gpt1 gpt1-alarm" role="alert"><p>{escape(message)}</p></div>'


def show_reading(reading: Reading, vocab_size: int) -> str:
    """The whole result as HTML, with every text escaped."""
    notes = "".join(f'<p class="gpt1-note">{escape(note)}</p>' for note in reading.notes)
    sections = [
        f"<section>{notes}</section>" if notes else "",
        show_scores(reading) if reading.scores else "",
        show_tokens(reading, uniform_loss=math.log(vocab_size)),
    ]
    return f'<div class="gpt1">{"".join(sections)}</div>'


def show_scores(reading: Reading) -> str:
    """Bars of probability, or only the value for a regression."""
    if reading.is_regression:
        rows = [f"<p>{escape(name)}: <b>{value:.3f}</b></p>" for name, value in reading.scores]
        return f"<section><h3>Score</h3>{''.join(rows)}</section>"
    best = max(value for _, value in reading.scores)
    cells = []
    for name, value in reading.scores:
        emphasis = " gpt1-best" if value == best else ""
        cells.append(
            f'<span class="gpt1-name{emphasis}">{escape(name)}</span>'
            f'<div class="gpt1-track"><div class="gpt1-bar" style="width:{100 * value:.2f}%"></div></div>'
            f'<span class="gpt1-value{emphasis}">{100 * value:.1f} %</span>'
        )
    return f'<section><h3>Probabilities</h3><div class="gpt1-scores">{"".join(cells)}</div></section>'


def show_tokens(reading: Reading, uniform_loss: float) -> str:
    kinds = dict.fromkeys(token.kind for sequence in reading.sequences for token in sequence)
    legend = "".join(
        f'<span class="gpt1-{COLOUR_OF[kind]}"><span class="gpt1-piece">{escape(kind)}</span></span>' for kind in kinds
    )
    has_losses = any(token.loss is not None for sequence in reading.sequences for token in sequence)
    explanation = (
        '<p class="gpt1-faint">Under each token: its auxiliary loss, −log P in nats given the tokens before it. The '
        f"deeper the colour, the less expected; a blind guess costs {uniform_loss:.1f}.</p>"
    )
    rows = [
        show_sequence(title, sequence, uniform_loss, is_open=index < OPEN_SEQUENCES)
        for index, (title, sequence) in enumerate(zip(reading.titles, reading.sequences, strict=True))
    ]
    return (
        f'<section><h3>What the model reads</h3><div class="gpt1-legend">{legend}</div>'
        f"{explanation if has_losses else ''}{''.join(rows)}</section>"
    )


def show_sequence(title: str, tokens: list[ShownToken], uniform_loss: float, is_open: bool) -> str:
    losses = [token.loss for token in tokens if token.loss is not None]
    mean = f", mean loss {sum(losses) / len(losses):.2f}" if losses else ""
    heading = f'<b>{escape(title)}</b> <span class="gpt1-faint">{len(tokens)} tokens{mean}</span>'
    following = [*(token.kind for token in tokens[1:]), None]
    shown = "".join(
        show_token_box(token, uniform_loss, is_joined=not token.ends_word and token.kind == kind)
        for token, kind in zip(tokens, following, strict=True)
    )
    return (
        f"<details{' open' if is_open else ''}><summary>{heading}</summary>"
        f'<div class="gpt1-tokens">{shown}</div></details>'
    )


def show_token_box(token: ShownToken, uniform_loss: float, is_joined: bool) -> str:
    hint, loss = f"{token.kind}: {token.piece}", ""
    if token.loss is not None:
        heat = 100 * STRONGEST_HEAT * min(token.loss / uniform_loss, 1)
        hint += f" (P = {100 * math.exp(-token.loss):.3g} %)"
        loss = f'<span class="gpt1-loss" style="--heat:{heat:.0f}%">{token.loss:.1f}</span>'
    joined = " gpt1-joined" if is_joined else ""
    return (
        f'<span class="gpt1-token gpt1-{COLOUR_OF[token.kind]}{joined}" title="{escape(hint)}">'
        f'<span class="gpt1-piece">{escape(token.piece)}</span>{loss}</span>'
    )


def show_continuation(text: str, words: str) -> str:
    return (
        f'<div class="gpt1"><h3>Continuation</h3><p class="gpt1-written">{escape(text)}</p>'
        f'<p class="gpt1-faint">after: {escape(words)}</p></div>'
    )
