"""How a model reads a text and goes on: tokens of the traversal, the loss of each, scores, a continuation.

A model is opened with the heads that it was saved with. Code that comes with it is never run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from tokenization import GPT1Tokenizer, TraversalCollator, open_tokenizer
from tokenization.errors import UserError
from tokenization.rows.traversals import TRAVERSALS, Traversal
from tokenization.text.control_tokens import CONTROL_TOKENS, check_vocabulary
from tokenization.text.tokenization_gpt1 import END_OF_WORD, NEWLINE

from .. import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM
from ..configuration_gpt1 import has_choices, is_regression
from ..conversion import CLASSES
from ..families import Family, family_of_model
from ..inference.devices import default_device
from ..inference.generation import RefuseNaN, decode_behind, encode_as_text
from ..modeling_gpt1 import CACHE


def _boxes_of(traversal: Traversal) -> dict[str, str]:
    if traversal.has_choices:
        return {"first": traversal.roles[0], "question": "question", "answers": "answer"}
    parts = [role.replace("_", " ") for role in traversal.roles]
    return dict(zip(("first", "second"), parts, strict=False))


# The text boxes of each traversal and the part that each box holds. None is a language model without a task.
BOXES = {None: {"first": "text"}, **{name: _boxes_of(traversal) for name, traversal in TRAVERSALS.items()}}
ROLES = {"text a": "text_a", "text b": "text_b", "answer": "choices"}  # parts that the collator names differently
# A model without a head opens as a language model, whose head is tied to the embeddings.
MODEL_CLASSES = {**CLASSES, "GPT1Model": GPT1ForCausalLM, "OpenAIGPTModel": GPT1ForCausalLM}
NEEDED_FILES = ["*.json", "*.safetensors", "merges.txt"]
# Limits on what one visitor may ask of the machine.
MOST_CHARACTERS = 100_000
MOST_ANSWERS = 50
MOST_TOKENS = 2_048
REPLACED = "\ufffd"  # stands for bytes that are no whole character


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

    titles: list[str]
    """Of the sequences."""
    sequences: list[list[ShownToken]]
    """The tokens of each sequence of the traversal."""
    scores: list[tuple[str, float]]
    """By name the probability of each class or choice, or the value of a regression."""
    is_regression: bool
    notes: list[str]
    """What a person should know, such as cut texts or a missing head."""


# ---- Opening


@dataclass(frozen=True)
class Opened:
    """A model, its tokenizer and its traversal, which is None for a language model without a task."""

    name: str
    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerBase
    traversal: str | None

    @property
    def family(self) -> Family:
        return family_of_model(self.model)

    @property
    def is_symmetric(self) -> bool:
        """Whether a pair of texts is read in both orders."""
        return self.traversal is not None and TRAVERSALS[self.traversal].is_symmetric

    @property
    def max_length(self) -> int:
        return min(self.model.config.max_position_embeddings, self.tokenizer.model_max_length, MOST_TOKENS)

    @property
    def control_ids(self) -> list[int | None]:
        """The ids of `[s]`, `[$]` and `[e]`."""
        return [getattr(self.tokenizer, f"{name}_id", None) for name in CONTROL_TOKENS]

    @property
    def has_lm_head(self) -> bool:
        return self.family.has_lm_head(self.model)


def open_model(source: str, name: str) -> Opened:
    """Opens a folder, or a model of the hub, with the class that matches its heads.

    Raises:
        PlaygroundError: the model is not a GPT-1, or its weights or tokenizer are missing or do not fit.
    """
    folder = source if Path(source).is_dir() else snapshot_download(source, allow_patterns=NEEDED_FILES)
    model_type = PreTrainedConfig.get_config_dict(folder)[0].get("model_type")
    if model_type not in (GPT1Config.model_type, *GPT1Config.translated_types):
        raise PlaygroundError(f"“{name}” is of type “{model_type}”. This page opens gpt1, openai-gpt and gpt2 models.")
    config, _ = GPT1Config.get_config_dict(folder)
    model_class = _class_as_saved(config)
    model, loaded = model_class.from_pretrained(folder, use_safetensors=True, output_loading_info=True)
    if loaded["missing_keys"]:
        missing = ", ".join(sorted(loaded["missing_keys"]))
        raise PlaygroundError(f"“{name}” lacks weights of its {model_class.__name__}: {missing}. Save it again.")
    tokenizer = open_tokenizer(folder)
    try:
        check_vocabulary(model.config, tokenizer)
    except ValueError as error:
        raise PlaygroundError(f"“{name}”: {error}") from error
    has_task = family_of_model(model).has_task_head(model)
    traversal = model.config.traversal if has_task else None
    return Opened(name, model.eval().to(default_device()), tokenizer, traversal)


def _class_as_saved(config: dict) -> type[torch.nn.Module]:
    """The class with the heads that a model was saved with; without its name, the one that its traversal needs."""
    for architecture in config.get("architectures") or []:
        if architecture in MODEL_CLASSES:
            return MODEL_CLASSES[architecture]
    return GPT1ForCausalLM if config.get("traversal") is None else GPT1DoubleHeadsModel


# ---- Reading


def read(opened: Opened, boxes: dict[str, str]) -> Reading:
    """Traverses the texts of the boxes, scores them and measures the loss of each token. Each answer is one line.

    Raises:
        PlaygroundError: a required text is empty, or a text is too long for this page.
    """
    texts = check_texts(opened, boxes)
    if opened.traversal is None:
        rows = [encode(opened, texts["text"])[: opened.max_length]]
        scores = []
    else:
        batch = make_batch(opened, texts)
        inputs = {name: tensor.to(opened.model.device) for name, tensor in batch.items()}
        with torch.inference_mode():
            outputs = opened.model(**inputs)
        rows = rows_of(batch)
        scores = scores_of(opened, outputs, texts)
    sequences = [show_sequence(opened, row, index, texts) for index, row in enumerate(rows)]
    return Reading(
        titles=titles_of(opened, len(rows)),
        sequences=sequences,
        scores=scores,
        is_regression=opened.traversal is not None and is_regression(opened.model.config),
        notes=notes_about(opened, texts, sequences),
    )


def rows_of(batch: dict[str, torch.Tensor]) -> list[list[int]]:
    """The ids of each sequence of a batch, without padding."""
    ids = batch["input_ids"].flatten(0, -2).tolist()
    lengths = batch["attention_mask"].flatten(0, -2).sum(-1).tolist()
    return [row[:length] for row, length in zip(ids, lengths, strict=True)]


def titles_of(opened: Opened, num_sequences: int) -> list[str]:
    if opened.is_symmetric:
        return ["Text a first", "Text b first"]
    if num_sequences == 1:
        return ["Sequence"]
    return [f"Answer {number}" for number in range(1, num_sequences + 1)]


def check_texts(opened: Opened, boxes: dict[str, str]) -> dict[str, str | list[str]]:
    """The stripped text of each part. Answers become a list; an empty question is left out."""
    texts = {}
    for box, part in BOXES[opened.traversal].items():
        texts[part] = (boxes.get(box) or "").strip()
        check_text(opened, part, texts[part], may_be_empty=part in ("question", "answer"))
    if "question" in texts and not encode(opened, texts["question"]):
        del texts["question"]
    if "answer" in texts:
        texts["answer"] = check_answers(opened, texts["answer"])
    return texts


def check_answers(opened: Opened, lines: str) -> list[str]:
    answers = [line.strip() for line in lines.splitlines() if line.strip()]
    if not 1 <= len(answers) <= MOST_ANSWERS:
        raise PlaygroundError(
            f"There are {len(answers)} answers. Write 1 to {MOST_ANSWERS}, each on a line of its own."
        )
    for number, answer in enumerate(answers, start=1):
        check_text(opened, f"answer {number}", answer)
    return answers


def check_text(opened: Opened, part: str, text: str, may_be_empty: bool = False) -> None:
    if len(text) > MOST_CHARACTERS:
        raise PlaygroundError(
            f"The {part} has {len(text):,} characters; this page accepts at most {MOST_CHARACTERS:,}. Shorten it."
        )
    if not may_be_empty and not encode(opened, text):
        raise PlaygroundError(f"The {part} is empty. Write at least one word.")


def encode(opened: Opened, text: str) -> list[int]:
    """Token ids of the text alone. No text becomes a control token, whatever it spells."""
    return encode_as_text(opened.tokenizer, text) if text else []


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
    pieces = pieces_of(opened.tokenizer, ids)
    kinds = kinds_of(opened, ids, index, num_question)
    losses = token_losses(opened, ids)
    shown = []
    for piece, kind, loss in zip(pieces, kinds, losses, strict=True):
        if kind == "control":
            shown.append(ShownToken(piece.removesuffix(END_OF_WORD), kind, loss))
        elif piece == NEWLINE:
            shown.append(ShownToken("↵", kind, loss))
        else:
            ends_word = piece.endswith(END_OF_WORD)
            shown.append(ShownToken(piece.removesuffix(END_OF_WORD), kind, loss, ends_word))
    return shown


def kinds_of(opened: Opened, ids: list[int], index: int, num_question: int) -> list[str]:
    """The part of the input, or "control", of each token; `num_question` is the question's length untruncated."""
    if opened.traversal is None:
        return ["text"] * len(ids)
    segments = [part for part in BOXES[opened.traversal].values() if part != "question"]
    if opened.is_symmetric and index == 1:
        segments.reverse()  # its second sequence has the other order
    _, delimiter_id, _ = opened.control_ids
    kinds = []
    segment = 0
    for token_id in ids:
        if token_id in opened.control_ids:
            kinds.append("control")
        else:
            kinds.append(segments[segment])
        if token_id == delimiter_id:
            segment += 1
    if num_question:
        # The question ends the first segment. It gives up tokens only after the context is down to one.
        of_first_segment = [place for place, kind in enumerate(kinds) if kind == segments[0]]
        num_shown = min(num_question, len(of_first_segment) - 1)
        for place in of_first_segment[len(of_first_segment) - num_shown :]:
            kinds[place] = "question"
    return kinds


def pieces_of(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[str]:
    """The tokens as GPT-1's vocabulary writes them: `</w>` ends a word."""
    if isinstance(tokenizer, GPT1Tokenizer):
        return tokenizer.convert_ids_to_tokens(ids)
    texts = texts_of(tokenizer, ids)
    pieces = []
    for number, text in enumerate(texts):
        is_last = number + 1 == len(texts)
        ends_word = is_last or texts[number + 1][:1].isspace()
        if text == "\n":
            pieces.append(NEWLINE)
        elif ends_word:
            pieces.append(text.strip(" ") + END_OF_WORD)
        else:
            pieces.append(text.strip(" "))
    return pieces


def texts_of(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[str]:
    """What each token adds to the text of those before it. The last byte of a character adds all of it."""
    texts = []
    before = ""
    for number in range(len(ids)):
        whole = tokenizer.decode(ids[: number + 1]).rstrip(REPLACED)
        if whole.startswith(before):
            texts.append(whole[len(before) :])
        else:  # a tokenizer that tidies what it wrote before
            texts.append(tokenizer.decode([ids[number]]))
        before = whole
    return texts


def notes_about(opened: Opened, texts: dict, sequences: list[list[ShownToken]]) -> list[str]:
    """Whether not all of the texts fitted, and which head is missing."""
    notes = []
    if any(was_cut(opened, texts, index, tokens) for index, tokens in enumerate(sequences)):
        reader = "page" if opened.max_length == MOST_TOKENS else "model"
        notes.append(f"The {reader} reads {opened.max_length} tokens at most. What is not shown was cut.")
    if opened.traversal is None:
        notes.append("This model has no task head: it has no classes to choose from.")
    elif not opened.has_lm_head:
        notes.append("This model was saved without its language-model head: it has no auxiliary loss.")
    return notes


def was_cut(opened: Opened, texts: dict, index: int, tokens: list[ShownToken]) -> bool:
    """Whether a sequence has fewer tokens than its texts."""
    given = [text[index] if isinstance(text, list) else text for text in texts.values()]
    num_given = sum(len(encode(opened, text)) for text in given)
    num_shown = sum(token.kind != "control" for token in tokens)
    return num_shown < num_given


def scores_of(opened: Opened, outputs, texts: dict) -> list[tuple[str, float]]:
    """The name and score of each class or choice, or the name and value of a regression."""
    config = opened.model.config
    logits = opened.family.task_logits(outputs)[0].float()
    if is_regression(config):
        column = (config.columns or {}).get("label", "label")
        name = "score" if column == "label" else column  # `id2label` has only "LABEL_0"
        return [(name, logits.item())]
    if has_choices(opened.traversal):
        names = texts["answer"]
    else:
        names = [str(config.id2label[index]) for index in range(len(logits))]
    if config.problem_type == "multi_label_classification":
        scores = logits.sigmoid()
    else:
        scores = logits.softmax(-1)
    return list(zip(names, scores.tolist(), strict=True))


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
    given = {}
    for box in ("first", "question"):
        if box in parts:
            text = (boxes.get(box) or "").strip()
            check_text(opened, parts[box], text, may_be_empty=box == "question")
            ids = encode(opened, text)
            if ids:
                given[parts[box]] = ids
    ids = [token_id for of_part in given.values() for token_id in of_part]
    words = list(given)
    start_id, delimiter_id, _ = opened.control_ids
    before, after = [], []
    if opened.traversal is not None:
        before = [start_id]
        words.insert(0, "[s]")
    if len(parts) > 1:
        after = [delimiter_id]
        words.append("[$]")
    room = opened.max_length - max_new_tokens - len(before) - len(after)
    if len(ids) > room:
        words.append(f"(only the last {room} of {len(ids)} tokens)")
    return [*before, *ids[-room:], *after], " ".join(words)


def write_on(opened: Opened, prompt: list[int], max_new_tokens: int, temperature: float) -> Iterator[str]:
    """Yields the continuation so far, token by token. Leaving the iterator ends the generation.

    `[e]`, or the end-of-text token of a model without it, ends it earlier. Temperature 0 takes the most likely token.
    """
    tokenizer = opened.tokenizer
    is_own = isinstance(tokenizer, GPT1Tokenizer)
    start_id, delimiter_id, extract_id = opened.control_ids
    if extract_id is not None:
        end_id = extract_id
    else:
        end_id = None if is_own else tokenizer.eos_token_id  # GPT-1's is `<unk>`
    options = {
        "max_new_tokens": 1,
        "return_dict_in_generate": True,
        "suppress_tokens": sorted({start_id, delimiter_id, tokenizer.unk_token_id} - {end_id, None}),
        "eos_token_id": end_id,
        "pad_token_id": tokenizer.pad_token_id,
        "do_sample": temperature > 0,
        "logits_processor": [RefuseNaN(opened.model)],
    }
    if temperature > 0:
        options["temperature"] = temperature
    writer = language_model(opened.model)
    ids = torch.tensor([prompt], device=opened.model.device)
    cache = None
    for _ in range(max_new_tokens):
        found = writer.generate(ids, attention_mask=torch.ones_like(ids), **{CACHE: cache}, **options)
        ids = found.sequences
        cache = getattr(found, CACHE)
        if ids[0, -1] == end_id:
            break
        new_ids = ids[0, len(prompt) :].tolist()
        if is_own:
            yield tokenizer.decode(new_ids, skip_special_tokens=True, clean_up_tokenization_spaces=True)
        else:
            yield decode_behind(tokenizer, prompt, new_ids)


def language_model(model: torch.nn.Module) -> GPT1ForCausalLM:
    """A generating model that shares the decoder and the language-model head of the given model."""
    if isinstance(model, GPT1ForCausalLM):
        return model
    with torch.device("meta"):
        writer = GPT1ForCausalLM(model.config)
    writer.transformer = model.transformer
    writer.lm_head = model.lm_head
    return writer.eval()
