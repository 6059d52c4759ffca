"""Texts that a language model continues: prompts in, continuations out, ended by tokens or by strings."""

import textwrap
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel, StoppingCriteria
from transformers.generation.streamers import BaseStreamer

NEWLINE = "\n</w>"  # as in tokenization_gpt1.py, which generation from a saved folder does without
SHOWN_CHARACTERS = 60  # of a prompt, in an error


class StopAtStrings(StoppingCriteria):
    """Ends every row whose text has one of some strings after the prompt.

    `generate` has `stop_strings` for that, which reads the space behind each word of GPT-1's BPE as one before each
    piece: it finds no string of several pieces, and refuses some strings altogether.

    Args:
        tokenizer ([`GPT1Tokenizer`]): decodes the text.
        strings (`Sequence[str]`): compared as the tokenizer writes them: lower case, punctuation between spaces,
            nothing before the first word and after the last.
        prompt_length (`int`): tokens of the prompt with its padding.

    Raises:
        ValueError: a string without a token.
    """

    def __init__(self, tokenizer, strings: Sequence[str], prompt_length: int):
        self.tokenizer, self.prompt_length = tokenizer, prompt_length
        self.strings = []
        for string in strings:
            ids = tokenizer(string, add_special_tokens=False, split_special_tokens=True)["input_ids"]
            if not ids:
                raise ValueError(
                    f"The stop string {string!r} has no token. Give a word, or '\\n' alone for a newline."
                )
            self.strings.append(tokenizer.decode(ids))
        # A string that the last token completes lies within so many, as each is at least one byte.
        self.num_tokens = max((len(string.encode()) for string in self.strings), default=0) + 1

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor | None, **kwargs) -> torch.BoolTensor:
        start = max(self.prompt_length, input_ids.shape[1] - self.num_tokens)
        texts = self.tokenizer.batch_decode(input_ids[:, start:], skip_special_tokens=True)
        found = [any(string in text for string in self.strings) for text in texts]
        return torch.tensor(found, device=input_ids.device)

    def cut(self, text: str) -> str:
        """What stands before the first of the strings."""
        places = [text.index(string) for string in self.strings if string in text]
        return text[: min(places)].rstrip(" ") if places else text


def continue_prompts(
    model: PreTrainedModel,
    tokenizer,
    prompts: Sequence[str],
    max_new_tokens: int = 40,
    stop: Sequence[str] = (),
    streamer: BaseStreamer | None = None,
    **options,
) -> list[list[str]]:
    r"""Continues texts of any lengths as one batch, each as it would be alone.

    Args:
        model ([`GPT1ForCausalLM`]): in evaluation mode.
        tokenizer ([`GPT1Tokenizer`]): of the same folder.
        prompts (`Sequence[str]`): the texts, with a word each.
        max_new_tokens (`int`, defaults to 40): the longest continuation.
        stop (`Sequence[str]`): what ends a continuation, beside the model's own end-of-text token if it has one:
            `"\n"`, a control token such as `"[e]"`, or any string.
        streamer (`BaseStreamer`, *optional*): gets the tokens as they come; for one prompt and without beams.
        options: of `generate`: `do_sample`, `temperature`, `num_beams`, `num_return_sequences`, …

    Returns:
        For each prompt its `num_return_sequences` continuations, without the prompt and without what ended them.

    Raises:
        ValueError: a prompt without a token; prompt and continuation longer than the model's positions.
    """
    inputs = _encode_prompts(model, tokenizer, prompts, max_new_tokens)
    newline_id = tokenizer.backend_tokenizer.token_to_id(NEWLINE)  # of GPT-1's vocabularies
    tokens = {} if newline_id is None else {"\n": newline_id}
    tokens |= dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True))
    own_end = model.generation_config.eos_token_id
    end_ids = [own_end] if isinstance(own_end, int) else list(own_end or [])
    end_ids += [tokens[string] for string in stop if string in tokens]
    length = inputs["input_ids"].shape[1]
    at_strings = StopAtStrings(tokenizer, [string for string in stop if string not in tokens], length)
    sequences = model.generate(
        **inputs,
        max_new_tokens=max_new_tokens,
        eos_token_id=end_ids or None,
        pad_token_id=tokenizer.pad_token_id,
        stopping_criteria=[at_strings] if at_strings.strings else None,
        streamer=streamer,
        **options,
    )
    texts = [at_strings.cut(_decode(tokenizer, ids, end_ids)) for ids in sequences[:, length:].tolist()]
    number = len(texts) // len(prompts)
    return [texts[first : first + number] for first in range(0, len(texts), number)]


def _encode_prompts(model: PreTrainedModel, tokenizer, prompts: Sequence[str], max_new_tokens: int) -> dict:
    encoded = [
        tokenizer(prompt, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]
        for prompt in prompts
    ]
    positions = model.config.max_position_embeddings
    for prompt, ids in zip(prompts, encoded, strict=True):
        shown = textwrap.shorten(prompt, SHOWN_CHARACTERS, placeholder="…")
        if not ids:
            raise ValueError(
                f"The prompt {shown!r} has no token, but the model needs one to go on from. Give it a word."
            )
        if len(ids) + max_new_tokens > positions:
            raise ValueError(
                f"The prompt {shown!r} has {len(ids)} tokens and `max_new_tokens` is {max_new_tokens}, but the model "
                f"has only {positions} positions (`max_position_embeddings`). Shorten one of the two."
            )
    return tokenizer.pad({"input_ids": encoded}, padding_side="left", return_tensors="pt").to(model.device)


def _decode(tokenizer, ids: list[int], end_ids: list[int]) -> str:
    number = next((place for place, token in enumerate(ids) if token in end_ids), len(ids))
    return tokenizer.decode(ids[:number], skip_special_tokens=True)
