"""Draws the diagrams of the pages as SVG, readable on light and on dark pages.

    python docs/diagrams.py

A diagram is boxes and arrows between them. Boxes have a light fill with dark text, arrows and notes a grey that has
contrast on white and on dark blue.
"""

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"
GREY, DARK = "#77808c", "#16202c"
BLUE, ORANGE, GREEN, PLAIN = "#cfe0ff", "#ffe0bd", "#cdeed8", "#e9edf2"
FONT = 'font-family="system-ui, sans-serif" font-size="13"'
ARROWHEAD = (
    '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse">'
    f'<path d="M0 0 L10 5 L0 10 z" fill="{GREY}"/></marker>'
)


@dataclass
class Box:
    """A rectangle with lines of text."""

    x: int
    y: int
    width: int
    lines: tuple[str, ...]
    fill: str = PLAIN

    @property
    def height(self) -> int:
        return 14 + 17 * len(self.lines)

    @property
    def middle(self) -> tuple[int, int]:
        return self.x + self.width // 2, self.y + self.height // 2


@dataclass
class Diagram:
    """Boxes, arrows and notes, and what they look like as SVG."""

    title: str
    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def box(self, x: int, y: int, width: int, *lines: str, fill: str = PLAIN) -> Box:
        box = Box(x, y, width, lines, fill)
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{box.height}" rx="6" fill="{fill}" stroke="{GREY}"/>'
        )
        for number, line in enumerate(lines):
            height = y + 20 + 17 * number
            self.parts.append(f'<text x="{x + width // 2}" y="{height}" text-anchor="middle">{escape(line)}</text>')
        return box

    def note(self, x: int, y: int, text: str, anchor: str = "start") -> None:
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{GREY}">{escape(text)}</text>')

    def line(self, *points: tuple[int, int]) -> None:
        """An arrow through these points."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{GREY}" stroke-width="1.5" marker-end="url(#head)"/>'
        )

    def right(self, first: Box, second: Box) -> None:
        """An arrow from the right side of a box to the left side of another."""
        start, end = (first.x + first.width, first.middle[1]), (second.x, second.middle[1])
        between = (start[0] + end[0]) // 2
        self.line(start, (between, start[1]), (between, end[1]), end)

    def down(self, first: Box, second: Box) -> None:
        """An arrow from the bottom of a box to the top of another."""
        start, end = (first.middle[0], first.y + first.height), (second.middle[0], second.y)
        between = (start[1] + end[1]) // 2
        self.line(start, (start[0], between), (end[0], between), end)

    def up(self, first: Box, second: Box) -> None:
        """An arrow from the top of a box straight to the bottom of another."""
        self.line((first.middle[0], first.y), (first.middle[0], second.y + second.height))

    def save(self, name: str) -> None:
        inside = "\n".join(self.parts)
        text = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" {FONT} fill="{DARK}">\n'
            f"<title>{escape(self.title)}</title>\n<defs>{ARROWHEAD}</defs>\n{inside}\n</svg>\n"
        )
        (PICTURES / f"{name}.svg").write_text(text, encoding="utf-8")


def overview() -> Diagram:
    diagram = Diagram("From plain text and rows of a task to a fine-tuned model", 860, 250)
    text = diagram.box(10, 30, 110, "plain text")
    blocks = diagram.box(160, 21, 150, "BPE and blocks", "of 512 tokens")
    pretrain = diagram.box(350, 21, 150, "pre-training", "L1", fill=BLUE)
    folder = diagram.box(540, 30, 130, "model folder", fill=GREEN)
    generate = diagram.box(710, 21, 140, "generate, score,", "zero-shot")
    rows = diagram.box(10, 160, 110, "rows of a task")
    sequences = diagram.box(160, 151, 150, "sequences with", "[s], [$] and [e]")
    finetune = diagram.box(350, 151, 150, "fine-tuning", "L3 = L2 + λ · L1", fill=BLUE)
    tuned = diagram.box(540, 151, 130, "fine-tuned", "folder", fill=GREEN)
    use = diagram.box(710, 151, 140, "pipeline, predict,", "hub")
    for first, second in ((text, blocks), (blocks, pretrain), (pretrain, folder), (folder, generate)):
        diagram.right(first, second)
    for first, second in ((rows, sequences), (sequences, finetune), (finetune, tuned), (tuned, use)):
        diagram.right(first, second)
    diagram.down(folder, finetune)
    return diagram


def paper_figure() -> Diagram:
    diagram = Diagram("GPT-1 with both heads, and the four input transformations", 980, 480)
    diagram.box(10, 20, 120, "lm_head", fill=ORANGE)
    diagram.box(170, 20, 120, "task_head", fill=ORANGE)
    diagram.note(70, 14, "L1, text prediction", "middle")
    diagram.note(230, 14, "L2, task", "middle")
    second_norm = diagram.box(90, 90, 120, "ln_2", fill=GREEN)
    mlp = diagram.box(90, 160, 120, "mlp", fill=BLUE)
    first_norm = diagram.box(90, 230, 120, "ln_1", fill=GREEN)
    attention = diagram.box(90, 300, 120, "attn, causal", fill=BLUE)
    embeddings = diagram.box(80, 420, 140, "tokens_embed", "+ positions_embed")
    for below, above in ((embeddings, attention), (attention, first_norm), (first_norm, mlp), (mlp, second_norm)):
        diagram.up(below, above)
    diagram.line((150, 90), (150, 72), (70, 72), (70, 51))
    diagram.line((150, 90), (150, 72), (230, 72), (230, 51))
    diagram.line((150, 375), (60, 375), (60, 245), (90, 245))
    diagram.line((150, 213), (60, 213), (60, 105), (90, 105))
    diagram.parts.insert(
        0, f'<rect x="40" y="80" width="190" height="310" rx="8" fill="none" stroke="{GREY}" stroke-dasharray="5 4"/>'
    )
    diagram.note(240, 240, "GPT1Block × 12")
    diagram.note(360, 14, "TraversalCollator: one row becomes these sequences")
    transformations = (
        ("classification", (("[s]", "text", "[e]"),), "h W → K"),
        ("entailment", (("[s]", "premise", "[$]", "hypothesis", "[e]"),), "h W → K"),
        ("similarity", (("[s]", "a", "[$]", "b", "[e]"), ("[s]", "b", "[$]", "a", "[e]")), "(h₁ + h₂) W → K"),
        (
            "multiple_choice",
            (("[s]", "context", "[$]", "answer 1", "[e]"), ("[s]", "context", "[$]", "answer 2", "[e]")),
            "h W → 1 each, softmax",
        ),
    )
    y = 30
    for name, sequences, scores in transformations:
        diagram.note(360, y + 14, name)
        y += 22
        for sequence in sequences:
            x = 360
            for part in sequence:
                is_control = part.startswith("[")
                width = 36 if is_control else 94
                diagram.box(x, y, width, part, fill=ORANGE if is_control else PLAIN)
                x += width + 4
            decoder = diagram.box(690, y, 90, "GPT1Model", fill=BLUE)
            decoder_end = decoder.x + decoder.width
            diagram.line((x, y + 15), (690, y + 15))
            diagram.line((decoder_end, y + 15), (800, y + 15))
            y += 38
        diagram.note(806, y - 19 * len(sequences), scores)
        y += 14
    return diagram


def loss() -> Diagram:
    diagram = Diagram("The two losses and their sum", 860, 200)
    example = diagram.box(10, 76, 120, "one example,", "C sequences")
    decoder = diagram.box(160, 85, 90, "decoder", fill=BLUE)
    tokens = diagram.box(290, 20, 130, "hidden states", "of all tokens")
    extract = diagram.box(290, 132, 130, "hidden states", "at [e]")
    lm = diagram.box(450, 20, 170, "language-model head", "L1: mean −log P", fill=ORANGE)
    task = diagram.box(450, 132, 170, "task head", "L2: the task's loss", fill=ORANGE)
    total = diagram.box(
        660, 67, 190, "L3 = (L2 + λ · L1 / C) / N", "N: examples of the", "whole optimizer step", fill=GREEN
    )
    for first, second in ((example, decoder), (decoder, tokens), (decoder, extract), (tokens, lm), (extract, task)):
        diagram.right(first, second)
    diagram.right(lm, total)
    diagram.right(task, total)
    return diagram


def text() -> Diagram:
    diagram = Diagram("From a text to ids", 860, 80)
    steps = (
        ("a text", "Don’t go, she said."),
        ("plain characters", "Don't go, she said."),
        ("words", "Do n't go , she said ."),
        ("lower case", "do n't go , she said ."),
        ("BPE", "pieces, then ids"),
    )
    boxes = [diagram.box(8 + 172 * number, 16, 150, *step) for number, step in enumerate(steps)]
    for first, second in zip(boxes, boxes[1:], strict=False):
        diagram.right(first, second)
    return diagram


def unpadding() -> Diagram:
    diagram = Diagram("A padded batch beside the tokens that are computed", 860, 250)
    diagram.note(10, 18, "a padded batch: 4 × 8 = 32 positions")
    rows = ("c c c c $ a e ·", "c c c c $ a a e", "s $ b e · · · ·", "s $ b b e · · ·")
    for row, words in enumerate(rows):
        for column, word in enumerate(words.split()):
            fill = {"c": BLUE, "s": BLUE, "·": "none"}.get(word, ORANGE)
            diagram.box(10 + 40 * column, 30 + 40 * row, 34, word, fill=fill)
    diagram.note(450, 18, "what the decoder computes: 19 tokens")
    diagram.line((345, 105), (430, 105))
    shared = (("c c c c", ("$ a e", "$ a a e")), ("s", ("$ b e", "$ b b e")))
    for group, (context, choices) in enumerate(shared):
        top = 30 + 100 * group
        for column, word in enumerate(context.split()):
            diagram.box(450 + 40 * column, top + 20, 34, word, fill=BLUE)
        end = 450 + 40 * len(context.split())
        for number, choice in enumerate(choices):
            diagram.line((end - 4, top + 36), (656, top + 16 + 40 * number))
            for column, word in enumerate(choice.split()):
                diagram.box(660 + 40 * column, top + 40 * number, 34, word, fill=ORANGE)
    diagram.note(10, 240, "blue: a context that several choices share; orange: the choices; empty: padding")
    return diagram


def resume() -> Diagram:
    diagram = Diagram("How a checkpoint is written and read", 860, 150)
    run = diagram.box(10, 30, 90, "run", fill=BLUE)
    aside = diagram.box(200, 21, 210, "_incomplete/checkpoint-200", "files, then checkpoint.json")
    place = diagram.box(520, 21, 130, "checkpoint-200", "complete", fill=GREEN)
    again = diagram.box(740, 30, 110, "resumed run", fill=BLUE)
    for first, second in ((run, aside), (aside, place), (place, again)):
        diagram.right(first, second)
    diagram.note(150, 32, "write", "middle")
    diagram.note(465, 32, "one rename", "middle")
    diagram.note(695, 32, "read", "middle")
    diagram.note(10, 110, "Killed before the rename: the resumed run reads the older checkpoint, which is complete.")
    diagram.note(10, 130, "The resumed run checks the sizes of the files and skips the rows that were already read.")
    return diagram


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for draw in (overview, paper_figure, loss, text, unpadding, resume):
        draw().save(draw.__name__.replace("_", "-"))


if __name__ == "__main__":
    main()
