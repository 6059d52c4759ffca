"""How a model reads a text: the tokens of the traversal, the loss of each, and the scores of the task head."""

import re

import torch
from transformers import PreTrainedTokenizerBase

from tokenization import GPT1Tokenizer, TraversalCollator
from tokenization.tokenization_gpt1 import END_OF_WORD, NEWLINE

from ..batch_gpt1 import next_token_targets
from .look import Reading, ShownToken
from .opening import Opened, PlaygroundError

# The text boxes of each traversal and the part that each box holds. None is a language model without a task.
BOXES = {
    None: {"first": "text"},
    "classification": {"first": "text"},
    "entailment": {"first": "premise", "second": "hypothesis"},
    "similarity": {"first": "text a", "second": "text b"},
    "multiple_choice": {"first": "context", "question": "question", "answers": "answer"},
}
ROLES = {"text a": "text_a", "text b": "text_b", "answer": "choices"}  # parts that the collator names differently
# Limit on what one visitor may ask of the machine.
MOST_CHARACTERS = 100_000
MOST_ANSWERS = 50


def read(opened: Opened, boxes: dict[str, str]) -> Reading:
    """Traverses the texts of the boxes, scores them and measures the loss of each token.

    Args:
        opened: the model.
        boxes: text by box ("first", "second", "question", "answers"). Each answer is one line.

    Raises:
        PlaygroundError: a required text is empty, or a text is too long for this page.
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
    """The stripped text of each part. Answers become a list; an empty question is left out."""
    texts = {part: (boxes.get(box) or "").strip() for box, part in BOXES[opened.traversal].items()}
    for part, text in texts.items():
        check_characters(part, text)
        if part not in ("question", "answer"):
            check_words(opened, part, text)
    if "question" in texts and not has_words(opened, texts["question"]):
        del texts["question"]
    if "answer" in texts:
        texts["answer"] = check_answers(opened, texts["answer"])
    return texts


def check_characters(part: str, text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise PlaygroundError(
            f"The {part} has {len(text):,} characters; this page accepts at most {MOST_CHARACTERS:,}. Shorten it."
        )
    half = re.search("[\ud800-\udfff]", text)
    if half:
        raise PlaygroundError(
            f"The {part} contains a lone surrogate, {half[0]!a}, which is not a valid character. Remove it."
        )


def has_words(opened: Opened, text: str) -> bool:
    return text != "" and opened.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] != []


def check_words(opened: Opened, part: str, text: str) -> None:
    if not has_words(opened, text):
        raise PlaygroundError(f"The {part} is empty. Write at least one word.")


def check_answers(opened: Opened, text: str) -> list[str]:
    answers = [line.strip() for line in text.splitlines() if line.strip()]
    if not answers:
        raise PlaygroundError("There are no answers. Write at least one, each on a line of its own.")
    if len(answers) > MOST_ANSWERS:
        raise PlaygroundError(
            f"There are {len(answers)} answers; this page accepts at most {MOST_ANSWERS}. Remove some."
        )
    for number, answer in enumerate(answers, start=1):
        check_words(opened, f"answer {number}", answer)
    return answers


def make_batch(opened: Opened, texts: dict[str, str | list[str]]) -> dict[str, torch.Tensor]:
    """The model's inputs, truncated to its number of positions."""
    if opened.traversal is None:
        return {"input_ids": torch.tensor([encode(opened, texts["text"])[: opened.max_length]])}
    columns = {ROLES.get(part, part): part for part in texts}
    return TraversalCollator(opened.tokenizer, opened.traversal, columns, max_length=opened.max_length)([texts])


def encode(opened: Opened, text: str) -> list[int]:
    """Token ids of the text alone. No text becomes a control token, whatever it spells."""
    return opened.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def token_losses(model: torch.nn.Module, batch: dict[str, torch.Tensor], hidden_states: torch.Tensor) -> torch.Tensor:
    """−log P of every token given the tokens before it, `[S, T]`. It is 0 at the first token and at padding.

    Args:
        model: a model with a language-model head. The logits of all tokens are never held at once.
        batch: `input_ids` and, where there is padding, `attention_mask`, `[B, C, T]` or `[B, T]`.
        hidden_states (`[S, T, D]`): hidden states of the last layer, with S = B · C.
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
        ids: token ids of a sequence without padding.
        index: index of the sequence in its example. The second sequence of `similarity` has the reverse order.
        num_question: number of tokens of the question before truncation.
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
    """Notes on how much of each part did not fit. Empty if nothing was cut."""
    cut = []
    for part, given in texts.items():
        segments = given if isinstance(given, list) else [given]
        for index, segment in enumerate(segments):
            kept, whole = sum(token.kind == part for token in sequences[index]), len(encode(opened, segment))
            if kept < whole:
                name = f"answer {index + 1}" if part == "answer" else f"the {part}"
                cut.append(f"the first {kept} of {whole} tokens of {name}")
    if not cut:
        return []
    reader = "model" if opened.max_length == opened.model.config.max_position_embeddings else "page"
    return [
        f"The {reader} reads {opened.max_length} tokens at most. The input was longer, so it read only "
        f"{', '.join(cut)}."
    ]


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
