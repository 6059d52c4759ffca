"""Batches for the pre-training of BERT, RoBERTa, ALBERT and BART from blocks of contiguous text.

Masks are drawn by transformers' [`DataCollatorForLanguageModeling`]. What transformers lacks is here:

- pairs of segments with the next-sentence task: section 3.1 of "BERT: Pre-training of Deep Bidirectional Transformers"
  (Devlin et al. 2019, https://arxiv.org/abs/1810.04805);
- pairs of segments in both orders: section 3.1 of "ALBERT: A Lite BERT" (Lan et al. 2020,
  https://arxiv.org/abs/1909.11942);
- text infilling and sentence permutation: section 2.2 of "BART: Denoising Sequence-to-Sequence Pre-training" (Lewis et
  al. 2020, https://arxiv.org/abs/1910.13461).

As in these papers a "sentence" of a pair is a span of contiguous text, not a linguistic one: a block is cut in two.

The noise of a row depends on the seed, the epoch and the row's tokens alone. So it is the same in a
resumed run, for any number of workers and processes, and for any cut of an update into micro-batches.

Shapes: B rows, T tokens.
"""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerBase

from ..rows.columns import IGNORED_LABEL

EVALUATION = -1  # the epoch whose noise an evaluation has
MASKED_SHARE = 0.3  # of BART's tokens
MEAN_SPAN = 3.0  # tokens, λ of BART's Poisson distribution
CONTINUES, IS_RANDOM = 0, 1  # BERT's next-sentence labels in transformers
IN_ORDER, SWAPPED = 0, 1  # ALBERT's sentence-order labels


class NoiseCollator:
    """Base of the collators: draws the noise of each row from a generator of its own, and pads on the right.

    Args:
        tokenizer: has padding, class, separator and mask tokens, as `family_tokenizer` makes it.
        seed (`int`): the same in every process.
        blocks: rows with an index; BERT's second segments are drawn from them.
    """

    num_added = 2
    """Special tokens that are added to a block."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, seed: int = 0, blocks: Sequence[Mapping] = ()):
        self.tokenizer = tokenizer
        self.seed = seed
        self.blocks = blocks
        # In shared memory, because a worker that lasts for several epochs has a copy of the collator.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self._masks = DataCollatorForLanguageModeling(tokenizer)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the noise of an epoch."""
        self._epoch.fill_(epoch)

    def for_evaluation(self, blocks: Sequence[Mapping]) -> "NoiseCollator":
        """A copy for other blocks, with the same noise at each evaluation."""
        other = copy.copy(self)
        other.blocks = blocks
        other._epoch = torch.tensor(EVALUATION)
        return other

    def __call__(self, rows: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, torch.Tensor]:
        """A batch from rows of `input_ids`; see the class for its entries. Labels are -100 at padding."""
        id_lists = [list(row["input_ids"]) for row in rows]
        made = [self.make_row(ids, self._generator(ids)) for ids in id_lists]
        pad_id = self.tokenizer.pad_token_id
        paddings = {"input_ids": pad_id, "decoder_input_ids": pad_id, "labels": IGNORED_LABEL}
        batch = {}
        for name, first in made[0].items():
            tensors = [row[name] for row in made]
            if first.dim() == 0:  # the label of a pair of sentences
                batch[name] = torch.stack(tensors)
            else:
                batch[name] = pad_sequence(tensors, batch_first=True, padding_value=paddings.get(name, 0))
        return batch

    def make_row(self, ids: list[int], generator: torch.Generator) -> dict[str, torch.Tensor]:
        """The tensors `[T]` or `[]` of one row."""
        raise NotImplementedError

    def _generator(self, ids: list[int]) -> torch.Generator:
        key = f"{self.seed} {int(self._epoch)}".encode()
        digest = hashlib.blake2b(np.asarray(ids, dtype=np.int64).tobytes(), key=key, digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "big"))

    def _masked(self, segments: list[list[int]], generator: torch.Generator) -> dict[str, torch.Tensor]:
        """`[CLS] segment [SEP]`, or `[CLS] segment [SEP] segment [SEP]` for two, with masks and labels."""
        start = self.tokenizer.cls_token_id
        end = self.tokenizer.sep_token_id
        tokens = [start]
        for segment in segments:
            tokens += [*segment, end]
        ids = torch.tensor(tokens)
        is_end = ids == end  # no token of a text is one
        is_special = is_end | (ids == start)
        masks = copy.copy(self._masks)
        masks.generator = generator
        masked, labels = masks.torch_mask_tokens(ids[None].clone(), special_tokens_mask=is_special[None])
        return {
            "input_ids": masked[0],
            "token_type_ids": is_end.cumsum(0) - is_end.long(),
            "attention_mask": torch.ones_like(ids),
            "labels": labels[0],
        }


class MaskedCollator(NoiseCollator):
    """RoBERTa: `[CLS] block [SEP]` with masks that are drawn anew in each epoch.

    Of the tokens 15 % are labels: 80 % of them are replaced by `[MASK]`, 10 % by a random token, 10 % stay.

    Returns `input_ids`, `attention_mask` and `labels`, each `[B, T]`.
    """

    def make_row(self, ids: list[int], generator: torch.Generator) -> dict[str, torch.Tensor]:
        row = self._masked([ids], generator)
        del row["token_type_ids"]
        return row


class NextSentenceCollator(NoiseCollator):
    """BERT: `[CLS] a [SEP] b [SEP]`, masked as RoBERTa's; b follows a, or is the end of another block.

    A block is cut at a random place. For half of the blocks the second part is replaced by as many of the last tokens
    of a random block; where that is the block itself, it continues.

    Returns `input_ids`, `token_type_ids`, `attention_mask` and `labels`, each `[B, T]`, and `next_sentence_label [B]`:
    0 if b follows a.
    """

    num_added = 3

    def make_row(self, ids: list[int], generator: torch.Generator) -> dict[str, torch.Tensor]:
        first, second = _cut(ids, generator)
        label = _draw(2, generator)
        if label == IS_RANDOM:
            place = _draw(len(self.blocks), generator)
            other = list(self.blocks[place]["input_ids"])
            if other == ids:
                label = CONTINUES
            else:
                second = other[-len(second) :]
        return {**self._masked([first, second], generator), "next_sentence_label": torch.tensor(label)}


class SentenceOrderCollator(NoiseCollator):
    """ALBERT: `[CLS] a [SEP] b [SEP]`, masked as RoBERTa's; the two parts of a block in their order, or swapped.

    Single tokens are masked, not the n-grams of ALBERT's paper.

    Returns `input_ids`, `token_type_ids`, `attention_mask` and `labels`, each `[B, T]`, and `sentence_order_label
    [B]`: 0 if they are in order.
    """

    num_added = 3

    def make_row(self, ids: list[int], generator: torch.Generator) -> dict[str, torch.Tensor]:
        first, second = _cut(ids, generator)
        label = _draw(2, generator)
        segments = [first, second] if label == IN_ORDER else [second, first]
        return {**self._masked(segments, generator), "sentence_order_label": torch.tensor(label)}


class InfillingCollator(NoiseCollator):
    """BART: the encoder reads a block with permuted sentences and masked spans, the decoder restores the block.

    Sentences end with a full stop and come in random order. Then 30 % of the tokens are masked in spans, whose lengths
    follow a Poisson distribution with a mean of 3. A span becomes one `[MASK]`. A span of no token inserts one.

    Returns the encoder's `input_ids` and `attention_mask`, `[B, S]`, and the decoder's `decoder_input_ids` and
    `labels`, `[B, T]`. The decoder begins with `[SEP]`, as BART's does with its end token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, seed: int = 0, blocks: Sequence[Mapping] = ()):
        super().__init__(tokenizer, seed, blocks)
        self.full_stop_id = tokenizer(".", add_special_tokens=False)["input_ids"][-1]

    def make_row(self, ids: list[int], generator: torch.Generator) -> dict[str, torch.Tensor]:
        start = self.tokenizer.cls_token_id
        end = self.tokenizer.sep_token_id
        permuted = self._permuted(ids, generator)
        noisy = torch.tensor([start, *self._with_masks(permuted, generator), end])
        labels = torch.tensor([start, *ids, end])
        return {
            "input_ids": noisy,
            "attention_mask": torch.ones_like(noisy),
            "decoder_input_ids": torch.cat([labels[-1:], labels[:-1]]),
            "labels": labels,
        }

    def _permuted(self, ids: list[int], generator: torch.Generator) -> list[int]:
        ends = [place + 1 for place, token in enumerate(ids) if token == self.full_stop_id]
        bounds = sorted({0, *ends, len(ids)})
        sentences = [ids[start:end] for start, end in pairwise(bounds)]
        order = _shuffled(len(sentences), generator)
        return list(chain.from_iterable(sentences[index] for index in order))

    def _with_masks(self, ids: list[int], generator: torch.Generator) -> list[int]:
        lengths = _span_lengths(round(MASKED_SHARE * len(ids)), generator)
        # Kept tokens and spans in a row: which of its places are spans?
        num_places = len(ids) - sum(lengths) + len(lengths)
        spans = set(_shuffled(num_places, generator)[: len(lengths)])
        lengths_in_order = iter(lengths)
        noisy = []
        start = 0
        for place in range(num_places):
            if place in spans:
                noisy.append(self.tokenizer.mask_token_id)
                start += next(lengths_in_order)
            else:
                noisy.append(ids[start])
                start += 1
        return noisy


def _span_lengths(num_masked: int, generator: torch.Generator) -> list[int]:
    """Lengths that add up to `num_masked`; no more than that many, so that no text grows."""
    lengths: list[int] = []
    while sum(lengths) < num_masked:
        length = int(torch.poisson(torch.tensor(MEAN_SPAN), generator=generator))
        lengths.append(min(length, num_masked - sum(lengths)))
    for _ in range(len(lengths) - num_masked):
        lengths.remove(0)
    return lengths


def _cut(ids: list[int], generator: torch.Generator) -> tuple[list[int], list[int]]:
    """Two parts of at least one token each."""
    place = 1 + _draw(len(ids) - 1, generator)
    return ids[:place], ids[place:]


def _shuffled(number: int, generator: torch.Generator) -> list[int]:
    return torch.randperm(number, generator=generator).tolist()


def _draw(end: int, generator: torch.Generator) -> int:
    return int(torch.randint(end, (), generator=generator))
