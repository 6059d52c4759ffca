"""The page itself, in Gradio: its boxes and buttons, and what happens at each."""

import html
import os
from collections.abc import Callable, Iterator

from .look import show_continuation, show_error, show_reading, style_sheet
from .opening import Opened, PlaygroundError, open_cached
from .reading import BOXES, read
from .writing import make_prompt, write_on

PLACEHOLDERS = {
    "first": "Type or paste a text …",
    "second": "Type or paste the other text …",
    "question": "May stay empty.",
    "answers": "One answer per line, as many as you like.",
}
BOX_LABELS = {"question": "Question", "answers": "Answers"}
EMPTY = '<div class="gpt1"><p class="gpt1-faint">What the model makes of it appears here.</p></div>'


def boxes_of(traversal: str | None) -> dict[str, str]:
    """The label of each box that a traversal shows."""
    return {box: BOX_LABELS.get(box, part.capitalize()) for box, part in BOXES[traversal].items()}


def build_page(models: list[str], only_listed: bool = False):
    """The page as `gradio.Blocks`, and what its `launch` needs beside an address.

    Args:
        models: folders or hub ids to choose from; the first one is opened.
        only_listed: open no others.
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    try:
        import gradio
    except ImportError as error:
        raise ImportError("The playground needs Gradio: pip install -e '.[playground]'") from error

    with gradio.Blocks(title="GPT-1 playground", analytics_enabled=False) as page:
        name = gradio.State("")
        gradio.HTML(HEADER, elem_id="heading")
        with gradio.Row(equal_height=False):
            with gradio.Column(scale=2, min_width=320):
                listed = gradio.Radio(models, value=models[0], label="Model", elem_id="listed")
                wanted = gradio.Textbox(
                    label="Another model",
                    placeholder="A folder, or a model of the hub: owner/name",
                    visible=not only_listed,
                    elem_id="model",
                )
                open_button = gradio.Button("Open", visible=not only_listed, elem_id="open")
                status = gradio.HTML(elem_id="status")
                boxes = [
                    gradio.Textbox(
                        label=label,
                        placeholder=PLACEHOLDERS[box],
                        lines=1 if box == "question" else 4,
                        max_lines=12,
                        visible=False,
                        elem_id=box,
                    )
                    for box, label in {"first": "Text", "second": "Text", **BOX_LABELS}.items()
                ]
                read_button = gradio.Button("Read", variant="primary", elem_id="read")
                with gradio.Row():
                    write_button = gradio.Button("Continue", elem_id="write")
                    stop_button = gradio.Button("Stop", elem_id="stop")
                with gradio.Accordion("How to continue", open=False):
                    length = gradio.Slider(1, 200, value=40, step=1, label="New tokens at most")
                    temperature = gradio.Slider(
                        0, 1.5, value=0.7, step=0.1, label="Temperature", info="0: the likeliest token each time"
                    )
            with gradio.Column(scale=3, min_width=320):
                result = gradio.HTML(EMPTY, elem_id="result")
                continuation = gradio.HTML(elem_id="continuation")

        opening = {
            "fn": lambda text: on_open(text, models, only_listed, gradio.update),
            "outputs": [name, listed, status, *boxes, result, continuation],
            "concurrency_id": "model",
            "api_name": False,
        }
        gradio.on([page.load, listed.input], inputs=listed, **opening)
        gradio.on([open_button.click, wanted.submit], inputs=wanted, **opening)
        gradio.on(
            [read_button.click, boxes[0].submit, boxes[1].submit],
            on_read,
            [name, *boxes],
            result,
            concurrency_id="model",
            api_name=False,
        )
        writing = write_button.click(
            on_write, [name, length, temperature, *boxes], continuation, concurrency_id="model", api_name=False
        )
        stop_button.click(None, cancels=[writing], api_name=False)
    font = ["system-ui", "DejaVu Sans", "sans-serif"]  # of the reader's machine: nothing is fetched
    mono = ["ui-monospace", "DejaVu Sans Mono", "monospace"]
    theme = gradio.themes.Default(primary_hue="blue", font=font, font_mono=mono).set(
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_400",
        block_label_text_color="*neutral_700",
        block_title_text_color="*neutral_700",
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_400",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
    )
    return page, {"theme": theme, "css": style_sheet(), "footer_links": [], "ssr_mode": False}


HEADER = """<div class="gpt1 gpt1-plain"><p style="font-size:22px;font-weight:600;margin:0">GPT-1 playground</p>
<p class="gpt1-faint">See a text as the model reads it: the tokens of its traversal, what they cost the language-model
head, and what the task head makes of them.</p></div>"""


def show_model(opened: Opened) -> str:
    """One paragraph on what was opened."""
    config = opened.model.config
    heads = {True: "with", False: "without"}[opened.has_lm_head]
    task = "no task head" if opened.traversal is None else f"task head for {opened.traversal.replace('_', ' ')}"
    facts = (
        f"{type(opened.model).__name__}: {task}, {heads} language-model head; {config.num_hidden_layers} layers, "
        f"{config.hidden_size} wide, {opened.max_length} positions, vocabulary {config.vocab_size:,}"
    )
    return (
        f'<div class="gpt1 gpt1-plain"><p><b>{html.escape(opened.name)}</b> is open. '
        f'<span class="gpt1-faint">{html.escape(facts)}.</span></p></div>'
    )


def on_open(wanted: str, models: list[str], only_listed: bool, update: Callable) -> list:
    """Opens a model, and shows the boxes that its traversal has."""
    hidden = [update(visible=False)] * 4
    try:
        if only_listed and wanted not in models:
            raise PlaygroundError(f"“{wanted}” is not among the models of this page. Choose one of the list.")
        opened = open_cached(wanted or "")
    except PlaygroundError as error:
        return ["", update(value=None), show_error(str(error)), *hidden, EMPTY, ""]
    labels = boxes_of(opened.traversal)
    shown = [
        update(visible=True, label=labels[box]) if box in labels else update(visible=False) for box in PLACEHOLDERS
    ]
    chosen = update(value=opened.name if opened.name in models else None)
    return [opened.name, chosen, show_model(opened), *shown, EMPTY, ""]


def on_read(name: str, *texts: str) -> str:
    try:
        opened = _reopen(name)
        return show_reading(read(opened, dict(zip(PLACEHOLDERS, texts, strict=True))), opened.model.config.vocab_size)
    except PlaygroundError as error:
        return show_error(str(error))


def on_write(name: str, length: float, temperature: float, *texts: str) -> Iterator[str]:
    try:
        opened = _reopen(name)
        length = min(int(length), opened.max_length // 2)
        prompt, words = make_prompt(opened, dict(zip(PLACEHOLDERS, texts, strict=True)), length)
        yield show_continuation("", words)
        for text in write_on(opened, prompt, length, temperature):
            yield show_continuation(text, words)
    except PlaygroundError as error:
        yield show_error(str(error))


def _reopen(name: str) -> Opened:
    if not name:
        raise PlaygroundError("No model is open. Choose one and press Open.")
    return open_cached(name)
