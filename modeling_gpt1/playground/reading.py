"""How a model reads a text and goes on: tokens of the traversal, the loss of each, scores, a continuation.

A model is opened with the heads that it was saved with. Code that comes with it is never run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from transformers import PreTrainedTokenizerBase

from tokenization import GPT1Tokenizer, TraversalCollator, open_tokenizer
from tokenization.errors import UserError
from tokenization.rows.traversals import TRAVERSALS
from tokenization.text.control_tokens import CONTROL_TOKENS, check_vocabulary
from tokenization.text.tokenization_gpt1 import END_OF_WORD, NEWLINE

from .. import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM
from ..configuration_gpt1 import has_choices, is_regression
from ..conversion import CLASSES
from ..inference.devices import default_device
from ..modeling_gpt1 import CACHE

# The text boxes of each traversal and the part that each box holds. None is a language model without a task.
BOXES = {None: {"first": "text"}}
for _name, _kind in TRAVERSALS.items():
    BOXES[_name] = dict(zip(("first", "second"), (role.replace("_", " ") for role in _kind.roles), strict=False))
    if _kind.has_choices:
        BOXES[_name] = {"first": _kind.roles[0], "question": "question", "answers": "answer"}
ROLES = {"text a": "text_a", "text b": "text_b", "answer": "choices"}  # parts that the collator names differently
# A model without a head opens as a language model, whose head is tied to the embeddings.
MODEL_CLASSES = {**CLASSES, "GPT1Model": GPT1ForCausalLM, "OpenAIGPTModel": GPT1ForCausalLM}
NEEDED_FILES = ["*.json", "*.safetensors", "merges.txt"]
# Limits on what one visitor may ask of the machine.
MOST_CHARACTERS = 100_000
MOST_ANSWERS = 50
MOST_TOKENS = 2_048


class PlaygroundError(UserError):
    """A problem that the person at the page can fix. The text says what it is and how to fix it."""


@dataclass(frozen=True)
class ShownToken:
    """A token as the page shows it: its piece of text, its part of the input and its −log P in nats."""

    piece: str
    kind: str
    loss: float | None
    ends_word: bool = True


@dataclass(frozen=True)
class Reading:
    """Everything that a model says about an input."""

    titles: list[str]  # of the sequences
    sequences: list[list[ShownToken]]  # the tokens of each sequence of the traversal
    scores: list[tuple[str, float]]  # probability of each class or choice, or value of a regression, by name
    is_regression: bool
    notes: list[str]  # what a person should know, such as cut texts or a missing head


# ---- Opening


@dataclass(frozen=True)
class Opened:
    """A model, its tokenizer and its traversal, which is None for a language model without a task."""

    name: str
    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerBase
    traversal: str | None

    @property
    def max_length(self) -> int:
        return min(self.model.config.max_position_embeddings, self.tokenizer.model_max_length, MOST_TOKENS)

    @property
    def control_ids(self) -> list[int | None]:
        """The ids of `[s]`, `[$]` and `[e]`."""
        return [getattr(self.tokenizer, f"{name}_id", None) for name in CONTROL_TOKENS]

    @property
    def has_lm_head(self) -> bool:
        return hasattr(self.model, "lm_head")


def open_model(source: str, name: str) -> Opened:
    """Opens a folder, or a model of the hub, with the class that matches its heads.

    Raises:
        PlaygroundError: the model is not a GPT-1, or its weights or tokenizer are missing or do not fit.
    """
    folder = source if Path(source).is_dir() else snapshot_download(source, allow_patterns=NEEDED_FILES)
    config, _ = GPT1Config.get_config_dict(folder)
    if config.get("model_type") != GPT1Config.model_type:
        opens = "This page opens gpt1, openai-gpt and gpt2 models."
        raise PlaygroundError(f"“{name}” is of type “{config.get('model_type')}”. {opens}")
    known = [MODEL_CLASSES[one] for one in config.get("architectures") or [] if one in MODEL_CLASSES]
    model_class = (known or [GPT1ForCausalLM if config.get("traversal") is None else GPT1DoubleHeadsModel])[0]
    model, loaded = model_class.from_pretrained(folder, use_safetensors=True, output_loading_info=True)
    if loaded["missing_keys"]:
        missing = ", ".join(sorted(loaded["missing_keys"]))
        raise PlaygroundError(f"“{name}” lacks weights of its {model_class.__name__}: {missing}. Save it again.")
    tokenizer = open_tokenizer(folder)
    try:
        check_vocabulary(model.config, tokenizer)
    except ValueError as error:
        raise PlaygroundError(f"“{name}”: {error}") from error
    traversal = model.config.traversal if hasattr(model, "task_head") else None
    return Opened(name, model.eval().to(default_device()), tokenizer, traversal)


# ---- Reading


def read(opened: Opened, boxes: dict[str, str]) -> Reading:
    """Traverses the texts of the boxes, scores them and measures the loss of each token. Each answer is one line.

    Raises:
        PlaygroundError: a required text is empty, or a text is too long for this page.
    """
    texts = check_texts(opened, boxes)
    if opened.traversal is None:
        rows, scores = [encode(opened, texts["text"])[: opened.max_length]], []
    else:
        batch = make_batch(opened, texts)
        with torch.inference_mode():
            outputs = opened.model(**{name: tensor.to(opened.model.device) for name, tensor in batch.items()})
        scores = scores_of(opened, outputs, texts)
        ids, masks = (batch[name].flatten(0, -2).tolist() for name in ("input_ids", "attention_mask"))
        rows = [row[: sum(mask)] for row, mask in zip(ids, masks, strict=True)]
    sequences = [show_sequence(opened, row, index, texts) for index, row in enumerate(rows)]
    titles = ["Sequence"] if len(rows) == 1 else [f"Answer {number + 1}" for number in range(len(rows))]
    return Reading(
        ["Text a first", "Text b first"] if opened.traversal == "similarity" else titles,
        sequences,
        scores,
        opened.traversal is not None and is_regression(opened.model.config),
        notes_about(opened, texts, sequences),
    )


def check_texts(opened: Opened, boxes: dict[str, str]) -> dict[str, str | list[str]]:
    """The stripped text of each part. Answers become a list; an empty question is left out."""
    texts = {part: (boxes.get(box) or "").strip() for box, part in BOXES[opened.traversal].items()}
    for part, text in texts.items():
        check_text(opened, part, text, may_be_empty=part in ("question", "answer"))
    if "question" in texts and not encode(opened, texts["question"]):
        del texts["question"]
    if "answer" in texts:
        texts["answer"] = [line.strip() for line in texts["answer"].splitlines() if line.strip()]
        if not 1 <= len(texts["answer"]) <= MOST_ANSWERS:
            needed = f"Write 1 to {MOST_ANSWERS}, each on a line of its own."
            raise PlaygroundError(f"There are {len(texts['answer'])} answers. {needed}")
        for number, answer in enumerate(texts["answer"], start=1):
            check_text(opened, f"answer {number}", answer)
    return texts


def check_text(opened: Opened, part: str, text: str, may_be_empty: bool = False) -> None:
    if len(text) > MOST_CHARACTERS:
        most = f"this page accepts at most {MOST_CHARACTERS:,}"
        raise PlaygroundError(f"The {part} has {len(text):,} characters; {most}. Shorten it.")
    if not may_be_empty and not encode(opened, text):
        raise PlaygroundError(f"The {part} is empty. Write at least one word.")


def encode(opened: Opened, text: str) -> list[int]:
    """Token ids of the text alone. No text becomes a control token, whatever it spells."""
    return opened.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] if text else []


def make_batch(opened: Opened, texts: dict[str, str | list[str]]) -> dict[str, torch.Tensor]:
    """The model's inputs, truncated to its number of positions."""
    columns = {ROLES.get(part, part): part for part in texts}
    return TraversalCollator(opened.tokenizer, opened.traversal, columns, max_length=opened.max_length)([texts])


def token_losses(opened: Opened, ids: list[int]) -> list[float | None]:
    """−log P in nats of every token given the tokens before it; None for the first, and without an LM head."""
    if not opened.has_lm_head:
        return [None] * len(ids)
    input_ids = torch.tensor([ids], device=opened.model.device)
    with torch.inference_mode():
        logits = language_model(opened.model)(input_ids).logits[0, :-1].float()
    return [None, *torch.nn.functional.cross_entropy(logits, input_ids[0, 1:], reduction="none").tolist()]


def show_sequence(opened: Opened, ids: list[int], index: int, texts: dict) -> list[ShownToken]:
    """The tokens of a sequence without padding; `index` is its place in the example."""
    num_question = len(encode(opened, texts.get("question", "")))
    kinds, losses = kinds_of(opened, ids, index, num_question), token_losses(opened, ids)
    shown = []
    for piece, kind, loss in zip(pieces_of(opened.tokenizer, ids), kinds, losses, strict=True):
        is_whole = kind == "control" or piece == NEWLINE or piece.endswith(END_OF_WORD)
        text = "↵" if piece == NEWLINE and kind != "control" else piece.removesuffix(END_OF_WORD)
        shown.append(ShownToken(text, kind, loss, ends_word=is_whole))
    return shown


def kinds_of(opened: Opened, ids: list[int], index: int, num_question: int) -> list[str]:
    """The part of the input, or "control", of each token; `num_question` is the question's length untruncated."""
    if opened.traversal is None:
        return ["text"] * len(ids)
    parts = [part for part in BOXES[opened.traversal].values() if part != "question"]
    if opened.traversal == "similarity" and index == 1:
        parts.reverse()  # its second sequence has the other order
    num_first = ids.index(opened.control_ids[1]) - 1 if len(parts) > 1 else len(ids) - 2
    # The question gives up tokens only after the context is down to one.
    num_question = min(num_question, num_first - 1)
    kinds = ["control", *parts[:1] * (num_first - num_question), *["question"] * num_question]
    kinds += parts[-1:] * (len(ids) - len(kinds))
    return ["control" if token_id in opened.control_ids else kind for token_id, kind in zip(ids, kinds, strict=True)]


def pieces_of(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[str]:
    """The tokens as GPT-1's vocabulary writes them: `</w>` ends a word."""
    if isinstance(tokenizer, GPT1Tokenizer):
        return tokenizer.convert_ids_to_tokens(ids)
    texts = [tokenizer.decode([token_id]) for token_id in ids]
    starts_word = [text[:1].isspace() for text in texts[1:]] + [True]
    pieces = [text.strip(" ") + END_OF_WORD * ends for text, ends in zip(texts, starts_word, strict=True)]
    return [NEWLINE if text == "\n" else piece for text, piece in zip(texts, pieces, strict=True)]


def notes_about(opened: Opened, texts: dict, sequences: list[list[ShownToken]]) -> list[str]:
    """Whether not all of the texts fitted, and which head is missing."""
    notes = []
    for index, tokens in enumerate(sequences):
        given = [text[index] if isinstance(text, list) else text for text in texts.values()]
        if sum(token.kind != "control" for token in tokens) < sum(len(encode(opened, text)) for text in given):
            reader = "page" if opened.max_length == MOST_TOKENS else "model"
            notes = [f"The {reader} reads {opened.max_length} tokens at most. What is not shown was cut."]
    if opened.traversal is None:
        notes.append("This model has no task head: it has no classes to choose from.")
    elif not opened.has_lm_head:
        notes.append("This model was saved without its language-model head: it has no auxiliary loss.")
    return notes


def scores_of(opened: Opened, outputs, texts: dict) -> list[tuple[str, float]]:
    logits = (outputs.task_logits if opened.has_lm_head else outputs.logits)[0].float()
    if has_choices(opened.traversal):
        names = texts["answer"]
    elif is_regression(opened.model.config):
        column = (opened.model.config.columns or {}).get("label", "label")
        names = ["score" if column == "label" else column]  # of which `id2label` has only "LABEL_0"
    else:
        names = [str(opened.model.config.id2label[index]) for index in range(len(logits))]
    if opened.model.config.problem_type == "multi_label_classification":
        logits = logits.sigmoid()
    elif not is_regression(opened.model.config):
        logits = logits.softmax(-1)
    return list(zip(names, logits.tolist(), strict=True))


# ---- Going on


def make_prompt(opened: Opened, boxes: dict[str, str], max_new_tokens: int) -> tuple[list[int], str]:
    """The ids of a prompt, which is the text, or all before the last part of a traversal; and what it is in words.

    A prompt that leaves no room for `max_new_tokens` loses its beginning.

    Raises:
        PlaygroundError: there is no text to continue, or the model has no language-model head.
    """
    if not opened.has_lm_head:
        raise PlaygroundError("This model has no language-model head to continue a text with. Open one that has.")
    parts = BOXES[opened.traversal]
    given = {part: (boxes.get(box) or "").strip() for box, part in parts.items() if box in ("first", "question")}
    for part, text in given.items():
        check_text(opened, part, text, may_be_empty=part == "question")
    given = {part: ids for part, text in given.items() if (ids := encode(opened, text))}
    ids = [token_id for of_part in given.values() for token_id in of_part]
    start_id, delimiter_id, _ = opened.control_ids
    before = [] if opened.traversal is None else [start_id]
    after = [delimiter_id] if len(parts) > 1 else []
    room = opened.max_length - max_new_tokens - len(before) - len(after)
    words = " ".join([*["[s]"] * len(before), *given, *["[$]"] * len(after)])
    if len(ids) > room:
        words += f" (only the last {room} of {len(ids)} tokens)"
    return [*before, *ids[-room:], *after], words


def write_on(opened: Opened, prompt: list[int], max_new_tokens: int, temperature: float) -> Iterator[str]:
    """Yields the continuation so far, token by token. Leaving the iterator ends the generation.

    `[e]`, or the end-of-text token of a model without it, ends it earlier. Temperature 0 takes the most likely token.
    """
    tokenizer, writer = opened.tokenizer, language_model(opened.model)
    is_own = isinstance(tokenizer, GPT1Tokenizer)
    start_id, delimiter_id, extract_id = opened.control_ids
    end_id = (None if is_own else tokenizer.eos_token_id) if extract_id is None else extract_id  # GPT-1's is `<unk>`
    arguments = {
        **{"max_new_tokens": 1, "return_dict_in_generate": True},
        "suppress_tokens": sorted({start_id, delimiter_id, tokenizer.unk_token_id} - {end_id, None}),
        "eos_token_id": end_id,
        "pad_token_id": tokenizer.pad_token_id,
        **({"do_sample": True, "temperature": temperature} if temperature > 0 else {"do_sample": False}),
    }
    ids, cache = torch.tensor([prompt], device=opened.model.device), None
    for _ in range(max_new_tokens):
        found = writer.generate(ids, attention_mask=torch.ones_like(ids), **{CACHE: cache}, **arguments)
        ids, cache = found.sequences, getattr(found, CACHE)
        if ids[0, -1] == end_id:
            break
        # Other tokenizers may have no clean-up rules.
        yield tokenizer.decode(ids[0, len(prompt) :], skip_special_tokens=True, clean_up_tokenization_spaces=is_own)


def language_model(model: torch.nn.Module) -> GPT1ForCausalLM:
    """A generating model that shares the decoder and the language-model head of the given model."""
    if isinstance(model, GPT1ForCausalLM):
        return model
    with torch.device("meta"):
        writer = GPT1ForCausalLM(model.config)
    writer.transformer, writer.lm_head = model.transformer, model.lm_head
    return writer.eval()
