"""The page itself, in Gradio: its boxes and buttons, and what each of them does."""

import logging
import math
import os
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache, partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from ..storage.reading import one_save, saved_files
from .reading import BOXES, Opened, PlaygroundError, make_prompt, open_model, read, write_on

logger = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
ENVIRONMENT = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True)
ENVIRONMENT.globals |= {"exp": math.exp, "zip": zip}
LOOK = ENVIRONMENT.get_template("look.html").module  # each of its macros gives HTML in which every text is escaped

# The boxes, each with its label and what it says while it is empty; the parts of a traversal name the first two.
LABELS = {
    "first": ("Text", "Type or paste a text …"),
    "second": ("Text", "Type or paste the other text …"),
    "question": ("Question", "Optional"),
    "answers": ("Answers", "One answer per line, up to 50."),
}
# What fills the boxes that a traversal shows, in the order of the labels.
EXAMPLES = {
    "A review": ["The film was slow, but its end is worth the wait.", "The last scene is good.", "", "good\nbad"],
    "A story": ["The old farmer needed a plough.", "He is rich.", "What did he do?", "He paid.\nThe train was green."],
    "A beginning": ["It was a dark night, and nobody in the", "Everybody slept.", "Who slept?", "smiled\ngreen"],
}
NEEDS_GRADIO = 'The playground needs Gradio: pip install "gradio>=6.31,<7"'
MOST_NEW_TOKENS = 200
MOST_WAITING = 32
EMPTY = '<div class="gpt1"><p class="gpt1-faint">The result appears here.</p></div>'
HEADER = """<div class="gpt1 gpt1-plain"><p style="font-size:22px;font-weight:600;margin:0">GPT-1 playground</p>
<p class="gpt1-faint">See a text as the model reads it: the tokens of its traversal, their losses under the
language-model head, and the scores of the task head.</p></div>"""


def build_page(models: list[str]):
    """The page as `gradio.Blocks`, and the arguments that its `launch` needs besides the address.

    Args:
        models: folders or hub ids to choose from. The first is opened.
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    try:
        import gradio
    except ImportError as error:
        raise ImportError(NEEDS_GRADIO) from error
    sources = short_names(models)
    names = list(sources)
    with gradio.Blocks(title="GPT-1 playground", analytics_enabled=False) as page:
        gradio.HTML(HEADER, elem_id="heading")
        with gradio.Row(equal_height=False):
            with gradio.Column(scale=2, min_width=320):
                listed = gradio.Radio(names, value=names[0], label="Model", elem_id="listed")
                status = gradio.HTML(elem_id="status")
                boxes = make_boxes(gradio)
                read_button = gradio.Button("Read", variant="primary", elem_id="read")
                with gradio.Row():
                    write_button = gradio.Button("Continue", elem_id="write")
                    stop_button = gradio.Button("Stop", elem_id="stop")
                with gradio.Accordion("How to continue", open=False):
                    length = gradio.Slider(1, MOST_NEW_TOKENS, value=40, step=1, label="Maximum new tokens")
                    temperature = gradio.Slider(0, 1.5, value=0.7, step=0.1, label="Temperature (0: the most likely)")
            with gradio.Column(scale=3, min_width=320):
                result = gradio.HTML(EMPTY, elem_id="result")
                continuation = gradio.HTML(elem_id="continuation")

        together = {"concurrency_id": "model", "api_name": False}
        asked = [listed, length, temperature, *boxes]
        writing = write_button.click(partial(on_write, sources), asked, continuation, **together)
        stop_button.click(None, cancels=[writing], api_name=False)
        shown = gradio.State()  # the name of the model that is open
        gradio.on(
            [page.load, listed.input],
            partial(on_open, sources, gradio.update),
            [listed, shown],
            [listed, shown, status, *boxes, result, continuation],
            cancels=[writing],
            **together,
        )
        gradio.on(
            [read_button.click, boxes[0].submit, boxes[1].submit],
            partial(on_read, sources),
            [listed, *boxes],
            [result, continuation],
            cancels=[writing],
            **together,
        )
    page.queue(max_size=MOST_WAITING, api_open=False)
    launch_arguments = {
        "theme": make_theme(gradio),
        "css_paths": FOLDER / "look.css",
        "footer_links": [],
        "ssr_mode": False,
        "max_file_size": 0,
    }
    return page, launch_arguments


def make_boxes(gradio) -> list:
    """The text boxes, which are hidden until a model is open, and the examples that fill them."""
    boxes = []
    for box, (label, placeholder) in LABELS.items():
        boxes.append(
            gradio.Textbox(
                label=label,
                placeholder=placeholder,
                lines=1 if box == "question" else 4,
                max_lines=12,
                visible=False,
                elem_id=box,
            )
        )
    gradio.Examples(
        list(EXAMPLES.values()),
        boxes,
        example_labels=list(EXAMPLES),
        elem_id="examples",
        api_visibility="private",
    )
    return boxes


def make_theme(gradio):
    """Colours and fonts; the fonts are those of the reader's machine, so nothing is fetched."""
    theme = gradio.themes.Default(
        primary_hue="blue",
        font=["system-ui", "DejaVu Sans", "sans-serif"],
        font_mono=["ui-monospace", "DejaVu Sans Mono", "monospace"],
    )
    return theme.set(
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_400",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
    )


def short_names(models: list[str]) -> dict[str, str]:
    """Models by the name that visitors see: a hub id, or the shortest end of a folder's path that is free."""
    paths = {}  # each folder once, however it was written
    for model in models:
        parts = Path(model).resolve().parts if Path(model).is_dir() else (model,)
        paths[parts] = model
    names = {}
    for parts, model in paths.items():
        names[_free_name(parts, names)] = model
    return names


def _free_name(parts: tuple[str, ...], taken: Collection[str]) -> str:
    """The shortest end of a path that is no other's name."""
    for count in range(1, len(parts) + 1):
        name = "/".join(parts[-count:])
        if name not in taken:
            break
    return name


def find_model(sources: dict[str, str], name: str) -> Opened:
    """The opened model of this name; the last two stay in memory until their folders are saved again."""
    if name not in sources:
        raise PlaygroundError("This is not one of the page's models. Choose one from the list.")
    return _find_model(sources[name], name, frozenset(saved_files(sources[name]).items()))


@lru_cache(maxsize=2)
def _find_model(source: str, name: str, files: frozenset) -> Opened:
    with one_save(source):
        return open_model(source, name)


def show_failure(error: Exception) -> str:
    """A sentence for the person at the page. Errors that only the host can fix go to the host's log."""
    if isinstance(error, PlaygroundError):
        return str(LOOK.error(str(error)))
    logger.error("The playground failed", exc_info=error)
    failure = f"The model failed ({type(error).__name__}). Try another text or model."
    return str(LOOK.error(f"{failure} The server's log has the details."))


def on_open(sources: dict[str, str], update: Callable, name: str, shown: str | None = None) -> list:
    """Opens a model and shows the boxes of its traversal. Where it cannot be opened, the model that is open stays."""
    try:
        opened = find_model(sources, name)
    except Exception as error:  # the boxes of a model that never opened are hidden already
        unchanged_boxes = [update() for _ in LABELS]
        return [update(value=shown or name), shown, show_failure(error), *unchanged_boxes, update(), update()]
    parts = BOXES[opened.traversal]
    boxes = []
    for box in LABELS:
        if box not in parts:
            boxes.append(update(visible=False))
        else:
            label = "Answers" if box == "answers" else parts[box].capitalize()
            boxes.append(update(visible=True, label=label))
    return [update(), name, str(LOOK.model(opened, opened.model.config)), *boxes, EMPTY, ""]


def on_read(sources: dict[str, str], name: str, *texts: str) -> list[str]:
    """The result. Clears the continuation, which may belong to another text."""
    try:
        opened = find_model(sources, name)
        reading = read(opened, dict(zip(LABELS, texts, strict=True)))
        return [str(LOOK.reading(reading, math.log(opened.model.config.vocab_size))), ""]
    except Exception as error:
        return [show_failure(error), ""]


def on_write(sources: dict[str, str], name: str, length: float, temperature: float, *texts: str) -> Iterator[str]:
    """Yields the continuation as it grows."""
    try:
        opened = find_model(sources, name)
        length = min(int(length), opened.max_length // 2)
        prompt, words = make_prompt(opened, dict(zip(LABELS, texts, strict=True)), length)
        yield str(LOOK.continuation("", words))
        for text in write_on(opened, prompt, length, temperature):
            yield str(LOOK.continuation(text, words))
    except Exception as error:
        yield show_failure(error)
