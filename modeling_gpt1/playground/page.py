r"""A page in the browser to look into a model: its traversal's tokens, its probabilities, its losses, what it writes.

    pip install -e ".[playground]"
    python examples/playground.py --models out/quickstart out/quickstart/pretrained
    python examples/playground.py --models openai-community/openai-gpt --server_port 7861

The page opens gpt1 and openai-gpt folders and models of the hub, also ones that are typed there; `--only_listed`
allows those of `--models` alone. Weights are read from safetensors only, and no code that comes with a model is run:
the classes are this package's. Nothing is sent anywhere; only opening a model of the hub needs a network.

A Space with two models of the hub, which anyone can visit:

    python examples/playground.py --write_space my-space --models me/reviews me/endings
    hf repos create me/gpt1-playground --repo-type space --space-sdk gradio
    hf upload me/gpt1-playground my-space . --repo-type space

The folder gets app.py, this file with playground_look.py, both packages, requirements.txt, and README.md with the
Space's settings.
"""

import html
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import requires, version
from pathlib import Path

import torch
from playground_look import Reading, ShownToken, show_continuation, show_error, show_reading, style_sheet
from safetensors import SafetensorError
from transformers import (
    HfArgumentParser,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
)

import modeling_gpt1
import tokenization
from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
)
from modeling_gpt1.loss_gpt1 import next_token_targets
from tokenization import GPT1Tokenizer, TraversalCollator, open_tokenizer
from tokenization.control_tokens import CONTROL_TOKENS
from tokenization.tokenization_gpt1 import END_OF_WORD, NEWLINE

# The text boxes that each traversal has, and the part that each plays; None: a language model without a task.
BOXES = {
    None: {"first": "text"},
    "classification": {"first": "text"},
    "entailment": {"first": "premise", "second": "hypothesis"},
    "similarity": {"first": "text a", "second": "text b"},
    "multiple_choice": {"first": "context", "question": "question", "answers": "answer"},
}
ROLES = {"text a": "text_a", "text b": "text_b", "answer": "choices"}  # where the collator's name is another
MODEL_CLASSES = {
    **dict.fromkeys(("GPT1Model", "GPT1ForCausalLM", "OpenAIGPTModel", "OpenAIGPTLMHeadModel"), GPT1ForCausalLM),
    "GPT1DoubleHeadsModel": GPT1DoubleHeadsModel,
    "OpenAIGPTDoubleHeadsModel": GPT1DoubleHeadsModel,
    "GPT1ForSequenceClassification": GPT1ForSequenceClassification,
    "OpenAIGPTForSequenceClassification": GPT1ForSequenceClassification,
    "GPT1ForMultipleChoice": GPT1ForMultipleChoice,
}
# What one visitor may ask of the machine.
MOST_CHARACTERS = 100_000
MOST_ANSWERS = 50


class PlaygroundError(ValueError):
    """Something that the person at the page can mend; the text says what and how."""


@dataclass
class PlaygroundArguments:
    """Which models the page offers, and where it is served."""

    models: list[str] = field(
        default_factory=lambda: ["openai-community/openai-gpt"],
        metadata={"help": "Folders or hub ids to choose from; the first one is opened."},
    )
    only_listed: bool = field(default=False, metadata={"help": "Open no other models than those of --models."})
    server_name: str = field(default="127.0.0.1", metadata={"help": "Address to listen on; 0.0.0.0 for all."})
    server_port: int | None = field(default=None, metadata={"help": "Port. Default: the first free one from 7860."})
    write_space: str | None = field(
        default=None, metadata={"help": "Write the files of a Space into this new folder and end."}
    )


# ------------------------------------------------------------------------------------------------- opening a model


@dataclass(frozen=True)
class Opened:
    """A model, its tokenizer and how it reads: a traversal, or None for a language model without a task."""

    name: str
    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerBase
    traversal: str | None

    @property
    def max_length(self) -> int:
        return self.model.config.max_position_embeddings

    @property
    def control_ids(self) -> list[int | None]:
        """Of `[s]`, `[$]` and `[e]`."""
        return [getattr(self.tokenizer, f"{name}_id", None) for name in CONTROL_TOKENS]

    @property
    def has_lm_head(self) -> bool:
        return hasattr(self.model, "lm_head")


def open_model(name: str) -> Opened:
    """Opens a folder or a model of the hub with the class of its heads; runs no code that comes with it.

    Raises:
        PlaygroundError: nothing is there, or it is no GPT-1, or its weights or tokenizer are missing or do not fit.
    """
    name = name.strip()
    config = read_config(name)
    try:
        model, loaded = model_class(config).from_pretrained(name, use_safetensors=True, output_loading_info=True)
        tokenizer = open_tokenizer(name)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise PlaygroundError(f"“{name}” is a GPT-1, but could not be opened: {first_line(error)}") from error
    traversal = model.config.traversal if hasattr(model, "task_head") else None
    if loaded["missing_keys"]:
        missing = ", ".join(sorted(loaded["missing_keys"]))
        raise PlaygroundError(
            f"“{name}” lacks weights of its {type(model).__name__}: {missing}. Save the model again."
        )
    if len(tokenizer) > model.config.vocab_size:
        raise PlaygroundError(
            f"The tokenizer of “{name}” has {len(tokenizer)} tokens and the model {model.config.vocab_size} "
            "embeddings. They must belong together: save both into the same folder after a training."
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    opened = Opened(name, model.eval().to(device), tokenizer, traversal)
    if traversal is not None and None in opened.control_ids:
        raise PlaygroundError(
            f"“{name}” has a task head, but its tokenizer has no control tokens [s], [$] and [e]. Fine-tune it with "
            "tokenizer.add_control_tokens(model) and save the tokenizer with the model."
        )
    return opened


def read_config(name: str) -> dict:
    """The fields of `config.json`, checked to be GPT-1's."""
    if not name:
        raise PlaygroundError("No model is named. Give a folder, or the id of a model of the hub such as owner/name.")
    is_folder = Path(name).is_dir()
    if not is_folder and (name[0] in "./~\\" or name.count("/") > 1):
        raise PlaygroundError(f"There is no folder “{name}”. Give a folder that holds a saved model, or a hub id.")
    try:
        config, _ = GPT1Config.get_config_dict(name)
    except (OSError, ValueError) as error:
        where = "as a folder" if is_folder else "from the hub, and there is no such folder"
        raise PlaygroundError(f"“{name}” could not be opened {where}: {first_line(error)}") from error
    if config.get("model_type") != GPT1Config.model_type:
        found = f"is a model of the type “{config['model_type']}”" if "model_type" in config else "names no model type"
        raise PlaygroundError(f"“{name}” {found}. This page reads gpt1, openai-gpt and gpt2 models.")
    return config


def model_class(config: dict) -> type:
    """The class that has all heads of the saved model, and no others."""
    for architecture in config.get("architectures") or []:
        if architecture in MODEL_CLASSES:
            return MODEL_CLASSES[architecture]
    return GPT1ForCausalLM if config.get("traversal") is None else GPT1DoubleHeadsModel


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


@lru_cache(maxsize=2)
def _open_version(name: str, changed: int | None) -> Opened:
    return open_model(name)


def open_cached(name: str) -> Opened:
    """As `open_model`; the last two models stay in memory, a folder as long as nobody saves into it."""
    files = [file for file in Path(name.strip() or "none").glob("*.safetensors*") if file.is_file()]
    return _open_version(name, max((file.stat().st_mtime_ns for file in files), default=None))


# ------------------------------------------------------------------------------------------------- reading an input


def read(opened: Opened, boxes: dict[str, str]) -> Reading:
    """Traverses, scores and measures what the boxes hold.

    Args:
        opened: the model.
        boxes: text by box ("first", "second", "question", "answers"); answers have a line each.

    Raises:
        PlaygroundError: a text that is needed is empty or too long for this page.
    """
    texts = check_texts(opened, boxes)
    batch = {name: tensor.to(opened.model.device) for name, tensor in make_batch(opened, texts).items()}
    kept = {"logits_to_keep": 1} if opened.traversal is None else {}
    with torch.inference_mode():
        outputs = opened.model(**batch, **kept, output_hidden_states=opened.has_lm_head)
        losses = token_losses(opened.model, batch, outputs.hidden_states[-1]) if opened.has_lm_head else None
    sequences = show_sequences(opened, texts, batch, losses)
    notes = [*cut_note(opened, texts, sequences), *notes_about(opened, texts)]
    scores = [] if opened.traversal is None else scores_of(opened, outputs, texts)
    return Reading(
        titles_of(opened, len(sequences)),
        sequences,
        scores,
        opened.traversal is not None and opened.model.config.is_regression,
        notes,
    )


def check_texts(opened: Opened, boxes: dict[str, str]) -> dict[str, str | list[str]]:
    """The text of each part, without spaces around it; answers are a list, an empty question is left out."""
    texts = {part: (boxes.get(box) or "").strip() for box, part in BOXES[opened.traversal].items()}
    for part, text in texts.items():
        check_length(part, text)
        if part not in ("question", "answer"):
            check_words(opened, part, text)
    if not texts.get("question", "-"):
        del texts["question"]
    if "answer" in texts:
        texts["answer"] = check_answers(opened, texts["answer"])
    return texts


def check_length(part: str, text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise PlaygroundError(
            f"The {part} has {len(text):,} characters; this page takes {MOST_CHARACTERS:,} at most. Shorten it."
        )


def check_words(opened: Opened, part: str, text: str) -> None:
    if not text or not opened.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]:
        raise PlaygroundError(f"The {part} is empty. Write at least one word.")


def check_answers(opened: Opened, text: str) -> list[str]:
    answers = [line.strip() for line in text.splitlines() if line.strip()]
    if not answers:
        raise PlaygroundError("There are no answers. Write at least one, each on a line of its own.")
    if len(answers) > MOST_ANSWERS:
        raise PlaygroundError(
            f"There are {len(answers)} answers; this page takes {MOST_ANSWERS} at most. Remove some."
        )
    for number, answer in enumerate(answers, start=1):
        check_words(opened, f"answer {number}", answer)
    return answers


def make_batch(opened: Opened, texts: dict[str, str | list[str]]) -> dict[str, torch.Tensor]:
    """The model's inputs, cut to its positions."""
    if opened.traversal is None:
        return {"input_ids": torch.tensor([encode(opened, texts["text"])[: opened.max_length]])}
    columns = {ROLES.get(part, part): part for part in texts}
    return TraversalCollator(opened.tokenizer, opened.traversal, columns, max_length=opened.max_length)([texts])


def encode(opened: Opened, text: str) -> list[int]:
    """Ids of the text alone: whatever it spells, none is a control token."""
    return opened.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def token_losses(model: torch.nn.Module, batch: dict[str, torch.Tensor], hidden_states: torch.Tensor) -> torch.Tensor:
    """−log P of every token `[S, T]` given those before it; 0 at the first token and at padding.

    Args:
        model: has a language-model head, whose loss never holds the logits of all tokens.
        batch: `input_ids` and, where there is padding, `attention_mask`, `[B, C, T]` or `[B, T]`.
        hidden_states (`[S, T, D]`): of the last layer, S = B · C.
    """
    length = batch["input_ids"].shape[-1]
    input_ids = batch["input_ids"].view(-1, length)
    attention_mask = batch["attention_mask"].view(-1, length) if "attention_mask" in batch else None
    target_ids, is_target = next_token_targets(input_ids, attention_mask)
    weights = torch.ones_like(target_ids[is_target], dtype=torch.float32)
    _, losses = model.lm_head(hidden_states[:, :-1][is_target], target_ids[is_target], weights)
    shown = hidden_states.new_zeros(input_ids.shape, dtype=torch.float32)
    shown[:, 1:][is_target] = losses.float()
    return shown


def show_sequences(opened: Opened, texts: dict, batch: dict, losses: torch.Tensor | None) -> list[list[ShownToken]]:
    length = batch["input_ids"].shape[-1]
    rows = batch["input_ids"].view(-1, length).tolist()
    masks = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).view(-1, length).tolist()
    num_question = len(encode(opened, texts["question"])) if "question" in texts else 0
    shown = []
    for index, (row, mask) in enumerate(zip(rows, masks, strict=True)):
        ids = row[: sum(mask)]
        row_losses = [None] * len(ids) if losses is None else [None, *losses[index].tolist()[1 : len(ids)]]
        kinds = kinds_of(opened, ids, index, num_question)
        pieces = pieces_of(opened.tokenizer, ids)
        shown.append([show_token(*token) for token in zip(pieces, kinds, row_losses, strict=True)])
    return shown


def kinds_of(opened: Opened, ids: list[int], index: int, num_question: int) -> list[str]:
    """The part of the input, or "control", that each token of a sequence belongs to.

    Args:
        opened: the model.
        ids: a sequence without padding.
        index: its place in the example: the second sequence of `similarity` has the other order.
        num_question: tokens of the question, before a cut.
    """
    if opened.traversal is None:
        return ["text"] * len(ids)
    parts = [part for part in BOXES[opened.traversal].values() if part != "question"]
    first, second = (parts * 2)[index % 2 : index % 2 + 2] if opened.traversal == "similarity" else (parts * 2)[:2]
    num_first = ids.index(opened.control_ids[1]) - 1 if len(parts) > 1 else len(ids) - 2
    # The question gives up tokens only after the context is down to one.
    num_question = min(num_question, num_first - 1)
    kinds = ["control", *[first] * (num_first - num_question), *["question"] * num_question]
    kinds += [second] * (len(ids) - len(kinds))
    return ["control" if token_id in opened.control_ids else kind for token_id, kind in zip(ids, kinds, strict=True)]


def pieces_of(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[str]:
    """The tokens as GPT-1's vocabulary writes them: `</w>` ends a word."""
    if isinstance(tokenizer, GPT1Tokenizer):
        return tokenizer.convert_ids_to_tokens(ids)
    texts = [tokenizer.decode([token_id]) for token_id in ids]
    starts_word = [text[:1].isspace() for text in texts[1:]] + [True]
    pieces = [text.strip(" ") + END_OF_WORD * ends for text, ends in zip(texts, starts_word, strict=True)]
    return [NEWLINE if text == "\n" else piece for text, piece in zip(texts, pieces, strict=True)]


def show_token(piece: str, kind: str, loss: float | None) -> ShownToken:
    if kind == "control":
        return ShownToken(piece.removesuffix(END_OF_WORD), kind, loss)
    if piece == NEWLINE:
        return ShownToken("↵", kind, loss)
    return ShownToken(piece.removesuffix(END_OF_WORD), kind, loss, ends_word=piece.endswith(END_OF_WORD))


def cut_note(opened: Opened, texts: dict, sequences: list[list[ShownToken]]) -> list[str]:
    """What of each part did not fit, if anything."""
    cut = []
    for part, given in texts.items():
        segments = given if isinstance(given, list) else [given]
        for index, segment in enumerate(segments):
            kept, whole = sum(token.kind == part for token in sequences[index]), len(encode(opened, segment))
            if kept < whole:
                name = f"answer {index + 1}" if part == "answer" else part
                cut.append(f"of the {name} it read the first {kept} of {whole} tokens")
    if not cut:
        return []
    return [f"The model reads {opened.max_length} tokens at most. The input was longer: {', '.join(cut)}."]


def titles_of(opened: Opened, num_sequences: int) -> list[str]:
    if opened.traversal == "similarity":
        return ["Text a first", "Text b first"]
    return ["Sequence"] if num_sequences == 1 else [f"Answer {number + 1}" for number in range(num_sequences)]


def scores_of(opened: Opened, outputs, texts: dict) -> list[tuple[str, float]]:
    logits = (outputs.task_logits if opened.has_lm_head else outputs.logits)[0].float()
    if opened.traversal == "multiple_choice":
        names = texts["answer"]
    else:
        names = [str(opened.model.config.id2label[index]) for index in range(len(logits))]
    values = logits if opened.model.config.is_regression else logits.softmax(-1)
    return list(zip(names, values.tolist(), strict=True))


def notes_about(opened: Opened, texts: dict) -> list[str]:
    notes = []
    if opened.traversal is None:
        notes.append("This model has no task head: it has no classes to choose from.")
    elif not opened.has_lm_head:
        notes.append("This model was saved without its language-model head: it has no auxiliary loss.")
    elif opened.model.config.lm_coef == 0:
        notes.append("This model was fine-tuned without the auxiliary objective (λ = 0).")
    if len(texts.get("answer", ())) == 1:
        notes.append("With one answer there is nothing to choose: its probability is 100 % whatever it says.")
    return notes


# ----------------------------------------------------------------------------------------------------- writing on


class StopOnEvent(StoppingCriteria):
    """Ends a generation that nobody reads any more."""

    def __init__(self, event: threading.Event):
        self.event = event

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor, **kwargs) -> torch.BoolTensor:
        return torch.full(input_ids.shape[:1], self.event.is_set(), device=input_ids.device)


def make_prompt(opened: Opened, boxes: dict[str, str], max_new_tokens: int) -> tuple[list[int], str]:
    """Ids to write on from, and what they are in words: a text, or all that comes before the last part of a traversal.

    Returns:
        At most as many ids as leave room for `max_new_tokens`: of a longer prompt the end.

    Raises:
        PlaygroundError: nothing to go on from, or the model has no language-model head.
    """
    if not opened.has_lm_head:
        raise PlaygroundError(
            "This model was saved without its language-model head, so it cannot write on. Open one with double heads."
        )
    given = {box: (boxes.get(box) or "").strip() for box in BOXES[opened.traversal] if box in ("first", "question")}
    parts = {box: BOXES[opened.traversal][box] for box, text in given.items() if text or box == "first"}
    for box, part in parts.items():
        check_length(part, given[box])
    check_words(opened, parts["first"], given["first"])
    ids = [token_id for box in parts for token_id in encode(opened, given[box])]
    start_id, delimiter_id, _ = opened.control_ids
    before = [] if opened.traversal is None else [start_id]
    after = [delimiter_id] if len(BOXES[opened.traversal]) > 1 else []
    room = opened.max_length - max_new_tokens - len(before) - len(after)
    words = " ".join([*["[s]"] * len(before), *parts.values(), *["[$]"] * len(after)])
    if len(ids) > room:
        words += f", of which the last {room} of {len(ids)} tokens"
    return [*before, *ids[-room:], *after], words


def write_on(
    opened: Opened, prompt: list[int], max_new_tokens: int, temperature: float, seed: int | None = None
) -> Iterator[str]:
    """The continuation so far, each time that it has grown by a word; leaving the iterator ends the generation.

    Args:
        opened: a model with a language-model head.
        prompt: ids; with `max_new_tokens` more they must not pass the model's positions.
        max_new_tokens: where to stop, if `[e]`, or the end-of-text token of a model without it, does not come first.
        temperature: 0 takes the likeliest token each time.
        seed: of torch's generator, for sampling.
    """
    tokenizer, left = opened.tokenizer, threading.Event()
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    start_id, delimiter_id, extract_id = opened.control_ids
    end_id = tokenizer.eos_token_id if extract_id is None else extract_id
    never = {start_id, delimiter_id, tokenizer.unk_token_id} - {end_id, None}
    input_ids = torch.tensor([prompt], device=opened.model.device)
    arguments = {
        "input_ids": input_ids,
        "attention_mask": torch.ones_like(input_ids),
        "streamer": streamer,
        "max_new_tokens": max_new_tokens,
        "stopping_criteria": StoppingCriteriaList([StopOnEvent(left)]),
        "suppress_tokens": sorted(never),
        "eos_token_id": end_id,
        "pad_token_id": tokenizer.pad_token_id,
        **({"do_sample": True, "temperature": temperature} if temperature > 0 else {"do_sample": False}),
    }
    failures = []

    def generate() -> None:
        try:
            if seed is not None:
                torch.manual_seed(seed)
            language_model(opened.model).generate(**arguments)
        except Exception as error:  # raised again where the text is read
            failures.append(error)
        finally:
            streamer.text_queue.put(streamer.stop_signal)

    thread = threading.Thread(target=generate, daemon=True)
    thread.start()
    written = ""
    try:
        for text in streamer:
            written += text
            if text:
                yield written
    finally:
        left.set()
        thread.join()
    if failures:
        raise failures[0]


def language_model(model: torch.nn.Module) -> GPT1ForCausalLM:
    """The decoder and language-model head of a model, its weights shared, as a model that generates."""
    if isinstance(model, GPT1ForCausalLM):
        return model
    with torch.device("meta"):
        writer = GPT1ForCausalLM(model.config)
    writer.transformer, writer.lm_head = model.transformer, model.lm_head
    return writer.eval()


# ------------------------------------------------------------------------------------------------------------- page

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


def build_page(args: PlaygroundArguments):
    """The page as `gradio.Blocks`, and what its `launch` needs beside an address."""
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
                listed = gradio.Radio(args.models, value=args.models[0], label="Model", elem_id="listed")
                wanted = gradio.Textbox(
                    label="Another model",
                    placeholder="A folder, or a model of the hub: owner/name",
                    visible=not args.only_listed,
                    elem_id="model",
                )
                open_button = gradio.Button("Open", visible=not args.only_listed, elem_id="open")
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
            "fn": lambda text: on_open(text, args, gradio.update),
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


def on_open(wanted: str, args: PlaygroundArguments, update: Callable) -> list:
    """Opens a model, and shows the boxes that its traversal has."""
    hidden = [update(visible=False)] * 4
    try:
        if args.only_listed and wanted not in args.models:
            raise PlaygroundError(f"“{wanted}” is not among the models of this page. Choose one of the list.")
        opened = open_cached(wanted or "")
    except PlaygroundError as error:
        return ["", update(value=None), show_error(str(error)), *hidden, EMPTY, ""]
    labels = boxes_of(opened.traversal)
    shown = [
        update(visible=True, label=labels[box]) if box in labels else update(visible=False) for box in PLACEHOLDERS
    ]
    chosen = update(value=opened.name if opened.name in args.models else None)
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


# ------------------------------------------------------------------------------------------------------------ Space


def write_space(folder: str, models: list[str]) -> None:
    """Writes what a Gradio Space needs: app.py, this file, both packages, requirements.txt and README.md.

    Raises:
        ValueError: the folder exists, or a model is a local folder, which a Space does not have.
    """
    target = Path(folder)
    if target.exists():
        raise ValueError(f"{folder} exists already. Give a new folder.")
    local = [model for model in models if Path(model).is_dir()]
    if local:
        raise ValueError(f"{', '.join(local)} is a folder of this machine. Push it to the hub first and give its id.")
    target.mkdir(parents=True)
    for file in ("playground.py", "playground_look.py"):
        shutil.copy(Path(__file__).parent / file, target)
    for package in (modeling_gpt1, tokenization):
        shutil.copytree(
            Path(package.__file__).parent, target / package.__name__, ignore=shutil.ignore_patterns("__pycache__")
        )
    (target / "app.py").write_text(space_app(models), encoding="utf-8")
    (target / "README.md").write_text(space_readme(models), encoding="utf-8")
    needed = [requirement for requirement in requires("gpt1-hf") or [] if "extra ==" not in requirement]
    (target / "requirements.txt").write_text("\n".join(needed) + "\n", encoding="utf-8")


def space_app(models: list[str]) -> str:
    names = "".join(f", {json.dumps(model)}" for model in models)
    return f'from playground import main\n\nmain(["--server_name", "0.0.0.0", "--only_listed", "--models"{names}])\n'


def space_readme(models: list[str]) -> str:
    """The Space's settings, see https://huggingface.co/docs/hub/spaces-config-reference."""
    lines = "".join(f"- {model}\n" for model in models)
    return (
        "---\ntitle: GPT-1 playground\nsdk: gradio\n"
        f"sdk_version: {version('gradio')}\napp_file: app.py\nlicense: apache-2.0\nmodels:\n{lines}---\n\n"
        "Tokens, probabilities, auxiliary losses and continuations of GPT-1 models.\n"
    )


def main(arguments: list[str] | None = None) -> None:
    (args,) = HfArgumentParser(PlaygroundArguments).parse_args_into_dataclasses(arguments)
    if args.write_space is not None:
        write_space(args.write_space, args.models)
        print(f"written to {args.write_space}")
        return
    page, settings = build_page(args)
    page.queue(max_size=32)
    page.launch(server_name=args.server_name, server_port=args.server_port, share=False, **settings)


if __name__ == "__main__":
    main()
