"""The page itself, in Gradio: its boxes and buttons, and what each of them does."""

import logging
import os
from collections.abc import Callable, Iterator
from functools import partial

from .look import escape, show_continuation, show_error, show_reading, style_sheet
from .opening import Models, Opened, PlaygroundError
from .reading import BOXES, read
from .writing import MOST_NEW_TOKENS, MOST_TEMPERATURE, check_settings, make_prompt, write_on

logger = logging.getLogger(__name__)

PLACEHOLDERS = {
    "first": "Type or paste a text …",
    "second": "Type or paste the other text …",
    "question": "Optional",
    "answers": "One answer per line, as many as you like.",
}
BOX_LABELS = {"question": "Question", "answers": "Answers"}
MOST_WAITING = 32
EMPTY = '<div class="gpt1"><p class="gpt1-faint">The result appears here.</p></div>'


def boxes_of(traversal: str | None) -> dict[str, str]:
    """The label of each box that a traversal shows."""
    return {box: BOX_LABELS.get(box, part.capitalize()) for box, part in BOXES[traversal].items()}


def build_page(listed_models: list[str], only_listed: bool = False, server_name: str = "127.0.0.1"):
    """The page as `gradio.Blocks`, and the arguments that its `launch` needs besides the address.

    Args:
        listed_models: folders or hub ids to choose from. The first is opened.
        only_listed: do not open other models of the hub.
        server_name: the address at which the page is served.
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    try:
        import gradio
    except ImportError as error:
        raise ImportError("The playground needs Gradio: pip install -e '.[playground]'") from error

    from .guarding import guards

    models = Models(listed_models, only_listed)
    names = list(models.listed)
    with gradio.Blocks(title="GPT-1 playground", analytics_enabled=False) as page:
        name = gradio.State("")
        shown = gradio.State(None)  # hash of the model name and texts that the shown result belongs to
        gradio.HTML(HEADER, elem_id="heading")
        with gradio.Row(equal_height=False):
            with gradio.Column(scale=2, min_width=320):
                listed = gradio.Radio(names, value=names[0], label="Model", elem_id="listed")
                wanted = gradio.Textbox(
                    label="Another model",
                    placeholder="A model on the hub: owner/name",
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
                    length = gradio.Slider(1, MOST_NEW_TOKENS, value=40, step=1, label="Maximum new tokens")
                    temperature = gradio.Slider(
                        0,
                        MOST_TEMPERATURE,
                        value=0.7,
                        step=0.1,
                        label="Temperature",
                        info="0: always the most likely token",
                    )
            with gradio.Column(scale=3, min_width=320):
                result = gradio.HTML(EMPTY, elem_id="result")
                continuation = gradio.HTML(elem_id="continuation")

        together = {"concurrency_id": "model", "api_name": False}
        writing = write_button.click(
            partial(on_write, models, gradio.update),
            [name, shown, length, temperature, *boxes],
            [result, shown, continuation],
            **together,
        )
        stop_button.click(None, cancels=[writing], api_name=False)
        opening = {
            "fn": partial(on_open, models, gradio.update),
            "outputs": [name, listed, status, *boxes, result, shown, continuation],
            "cancels": [writing],
            **together,
        }
        gradio.on([page.load, listed.input], inputs=listed, **opening)
        gradio.on([open_button.click, wanted.submit], inputs=wanted, **opening)
        gradio.on(
            [read_button.click, boxes[0].submit, boxes[1].submit],
            partial(on_read, models),
            [name, *boxes],
            [result, shown, continuation],
            cancels=[writing],
            **together,
        )
    page.queue(max_size=MOST_WAITING, api_open=False)
    font = ["system-ui", "DejaVu Sans", "sans-serif"]  # fonts of the reader's machine: nothing is fetched
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
    return page, {
        "theme": theme,
        "css": style_sheet(),
        "footer_links": [],
        "ssr_mode": False,
        "max_file_size": 0,
        "app_kwargs": {"middleware": guards(server_name)},
    }


HEADER = """<div class="gpt1 gpt1-plain"><p style="font-size:22px;font-weight:600;margin:0">GPT-1 playground</p>
<p class="gpt1-faint">See a text as the model reads it: the tokens of its traversal, their losses under the
language-model head, and the scores of the task head.</p></div>"""


def show_model(opened: Opened) -> str:
    """One paragraph about the opened model."""
    config = opened.model.config
    heads = {True: "with", False: "without"}[opened.has_lm_head]
    task = "no task head" if opened.traversal is None else f"task head for {opened.traversal.replace('_', ' ')}"
    facts = (
        f"{type(opened.model).__name__}: {task}, {heads} language-model head; {config.num_hidden_layers} layers, "
        f"{config.hidden_size} wide, {opened.max_length} positions, vocabulary {config.vocab_size:,}"
    )
    return (
        f'<div class="gpt1 gpt1-plain"><p><b>{escape(opened.name)}</b> is open. '
        f'<span class="gpt1-faint">{escape(facts)}.</span></p></div>'
    )


def on_open(models: Models, update: Callable, wanted: str) -> list:
    """Opens a model and shows the boxes of its traversal."""
    try:
        opened = models.open(wanted)
    except Exception as error:
        return ["", update(value=None), show_failure(error), *[update(visible=False)] * 4, EMPTY, None, ""]
    labels = boxes_of(opened.traversal)
    visible = [
        update(visible=True, label=labels[box]) if box in labels else update(visible=False) for box in PLACEHOLDERS
    ]
    chosen = update(value=opened.name if opened.name in models.listed else None)
    return [opened.name, chosen, show_model(opened), *visible, EMPTY, None, ""]


def on_read(models: Models, name: str, *texts: str) -> list:
    """The result and the hash of its input. Clears the continuation, which may belong to another text."""
    try:
        opened = reopen(models, name)
        reading = read(opened, dict(zip(PLACEHOLDERS, texts, strict=True)))
        return [show_reading(reading, opened.model.config.vocab_size), hash((name, *texts)), ""]
    except Exception as error:
        return [show_failure(error), None, ""]


def on_write(
    models: Models, update: Callable, name: str, shown: int | None, length: float, temperature: float, *texts: str
) -> Iterator[list]:
    """Yields the continuation as it grows. The shown result stays only if it belongs to the same model and texts."""
    kept = [update(), shown] if shown == hash((name, *texts)) else [EMPTY, None]
    try:
        opened = reopen(models, name)
        check_settings(length, temperature)
        length = min(int(length), opened.max_length // 2)
        prompt, words = make_prompt(opened, dict(zip(PLACEHOLDERS, texts, strict=True)), length)
        yield [*kept, show_continuation("", words)]
        for text in write_on(opened, prompt, length, temperature):
            yield [*kept, show_continuation(text, words)]
    except Exception as error:
        yield [*kept, show_failure(error)]


def show_failure(error: Exception) -> str:
    """A sentence for the person at the page. Errors that only the host can fix go to the host's log."""
    if isinstance(error, PlaygroundError):
        return show_error(str(error))
    logger.error("The playground failed", exc_info=error)
    return show_error(
        f"The model failed ({type(error).__name__}). Try another text or model. The server's log has the details."
    )


def reopen(models: Models, name: str) -> Opened:
    if not name:
        raise PlaygroundError("No model is open. Choose one and press Open.")
    return models.open(name)
