"""Continues a text word by word, until the model ends it or nobody reads any more."""

import threading
from collections.abc import Iterator

import torch
from transformers import StoppingCriteria, StoppingCriteriaList, TextIteratorStreamer

from tokenization import GPT1Tokenizer

from .. import GPT1ForCausalLM
from .opening import Opened, PlaygroundError
from .reading import BOXES, check_characters, check_words, encode

# Limit on what one visitor may ask of the machine.
MOST_NEW_TOKENS = 200
MOST_TEMPERATURE = 1.5


class StopOnEvent(StoppingCriteria):
    """Ends a generation that nobody reads any more."""

    def __init__(self, event: threading.Event):
        self.event = event

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor, **kwargs) -> torch.BoolTensor:
        return torch.full(input_ids.shape[:1], self.event.is_set(), device=input_ids.device)


def check_settings(max_new_tokens: float, temperature: float) -> None:
    """Checks that the settings are within the range of the page's sliders.

    Raises:
        PlaygroundError: a setting is outside the range.
    """
    for name, value, least, most in (
        ("number of new tokens", max_new_tokens, 1, MOST_NEW_TOKENS),
        ("temperature", temperature, 0, MOST_TEMPERATURE),
    ):
        if not isinstance(value, int | float) or not least <= value <= most:
            raise PlaygroundError(f"The {name} must be from {least} to {most}. Set it with the slider.")


def make_prompt(opened: Opened, boxes: dict[str, str], max_new_tokens: int) -> tuple[list[int], str]:
    """The prompt to continue: the text, or everything before the last part of a traversal.

    Returns:
        The prompt's token ids and a description in words. A prompt that leaves no room for `max_new_tokens` loses
        its beginning.

    Raises:
        PlaygroundError: there is no text to continue, or the model has no language-model head.
    """
    if not opened.has_lm_head:
        raise PlaygroundError(
            "This model was saved without its language-model head, so it cannot continue a text. Open a model that "
            "has one."
        )
    given = {box: (boxes.get(box) or "").strip() for box in BOXES[opened.traversal] if box in ("first", "question")}
    parts = {box: BOXES[opened.traversal][box] for box, text in given.items() if text or box == "first"}
    for box, part in parts.items():
        check_characters(part, given[box])
    check_words(opened, parts["first"], given["first"])
    ids = [token_id for box in parts for token_id in encode(opened, given[box])]
    start_id, delimiter_id, _ = opened.control_ids
    before = [] if opened.traversal is None else [start_id]
    after = [delimiter_id] if len(BOXES[opened.traversal]) > 1 else []
    room = opened.max_length - max_new_tokens - len(before) - len(after)
    words = " ".join([*["[s]"] * len(before), *parts.values(), *["[$]"] * len(after)])
    if len(ids) > room:
        words += f" (only the last {room} of {len(ids)} tokens)"
    return [*before, *ids[-room:], *after], words


def write_on(
    opened: Opened, prompt: list[int], max_new_tokens: int, temperature: float, seed: int | None = None
) -> Iterator[str]:
    """Yields the continuation so far, each time it grows by a word. Leaving the iterator ends the generation.

    Args:
        opened: a model with a language-model head.
        prompt: token ids. Together with `max_new_tokens` they must not exceed the model's positions.
        max_new_tokens: most tokens to generate. `[e]`, or the end-of-text token of a model without it, ends earlier.
        temperature: 0 takes the most likely token each time.
        seed: seed of torch's generator, for sampling.
    """
    tokenizer, left = opened.tokenizer, threading.Event()
    clean = isinstance(tokenizer, GPT1Tokenizer)  # other tokenizers may have no clean-up rules
    streamer = TextIteratorStreamer(
        tokenizer, skip_prompt=True, skip_special_tokens=True, clean_up_tokenization_spaces=clean
    )
    start_id, delimiter_id, extract_id = opened.control_ids
    own_end_id = None if isinstance(tokenizer, GPT1Tokenizer) else tokenizer.eos_token_id  # GPT-1's is `<unk>`
    end_id = own_end_id if extract_id is None else extract_id
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
        except Exception as error:  # raised again in the thread that reads the text
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
    """A generating model that shares the decoder and the language-model head of the given model."""
    if isinstance(model, GPT1ForCausalLM):
        return model
    with torch.device("meta"):
        writer = GPT1ForCausalLM(model.config)
    writer.transformer, writer.lm_head = model.transformer, model.lm_head
    return writer.eval()
