"""Batches for the pre-training of BERT, RoBERTa, ALBERT and BART from blocks of contiguous text.

Masks are drawn by transformers' [`DataCollatorForLanguageModeling`]. What transformers lacks is here:

- pairs of segments with the next-sentence task: section 3.1 of "BERT: Pre-training of Deep Bidirectional Transformers"
  (Devlin et al. 2019, https://arxiv.org/abs/1810.04805);
- pairs of segments in both orders, and masks of n-grams: sections 3.1 and 4.1 of "ALBERT: A Lite BERT" (Lan et al.
  2020, https://arxiv.org/abs/1909.11942);
- text infilling, token deletion, sentence permutation and document rotation: section 2.2 of "BART: Denoising
  Sequence-to-Sequence Pre-training" (Lewis et al. 2020, https://arxiv.org/abs/1910.13461).

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

from ..errors import UserError
from ..rows.columns import IGNORED_LABEL

EVALUATION = -1  # the epoch whose noise an evaluation has
LABELLED_SHARE = 0.15  # of BERT's tokens
MASKED_SHARE = 0.3  # of BART's tokens
# BART's noise, in the order in which it is applied to a text.
PERMUTATION, ROTATION, DELETION, INFILLING = "permutation", "rotation", "deletion", "infilling"
NOISES = (PERMUTATION, ROTATION, DELETION, INFILLING)
DEFAULT_NOISES = (PERMUTATION, INFILLING)
MEAN_SPAN = 3.0  # tokens, λ of BART's Poisson distribution
CONTINUES, IS_RANDOM = 0, 1  # BERT's next-sentence labels in transformers
IN_ORDER, SWAPPED = 0, 1  # ALBERT's sentence-order labels


class NoiseCollator:
    """Base of the collators: draws the noise of each row from a generator of its own, and pads on the right.

    Args:
        tokenizer: has padding, class, separator and mask tokens, as `family_tokenizer` makes it.
        seed (`int`): the same in every process.
        blocks: rows with an index; BERT's second segments are drawn from them.
        mask_ngrams (`int`, *optional*): mask n-grams of up to so many words, as ALBERT's paper does. Default: single
            tokens.

    Raises:
        ValueError: `mask_ngrams` is below 1.
    """

    options: tuple[str, ...] = ("mask_ngrams",)
    """Arguments that choose the noise."""
    num_added = 2
    """Special tokens that are added to a block."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        seed: int = 0,
        blocks: Sequence[Mapping] = (),
        mask_ngrams: int | None = None,
    ):
        if mask_ngrams is not None and mask_ngrams < 1:
            raise UserError(
                f"`mask_ngrams` is {mask_ngrams}, but a mask covers at least 1 word. ALBERT's paper has 3."
            )
        self.tokenizer = tokenizer
        self.seed = seed
        self.blocks = blocks
        self.mask_ngrams = mask_ngrams
        self._edges = None if mask_ngrams is None else WordEdges(tokenizer)
        # In shared memory, because a worker that lasts for several epochs has a copy of the collator.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self._masks = DataCollatorForLanguageModeling(tokenizer)

    @property
    def chosen_options(self) -> dict[str, str]:
        """What was chosen of the noise, for the card of a run; nothing by default."""
        return {} if self.mask_ngrams is None else {"mask_ngrams": str(self.mask_ngrams)}

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
        if self.mask_ngrams is None:
            is_special = is_end | (ids == start)
            masks = copy.copy(self._masks)
            masks.generator = generator
            masked, labels = masks.torch_mask_tokens(ids[None].clone(), special_tokens_mask=is_special[None])
            masked, labels = masked[0], labels[0]
        else:
            masked, labels = self._with_masked_ngrams(ids, segments, generator)
        return {
            "input_ids": masked,
            "token_type_ids": is_end.cumsum(0) - is_end.long(),
            "attention_mask": torch.ones_like(ids),
            "labels": labels,
        }

    def _with_masked_ngrams(
        self, ids: torch.LongTensor, segments: list[list[int]], generator: torch.Generator
    ) -> tuple[torch.LongTensor, torch.LongTensor]:
        """A sequence with masked n-grams of complete words, and its labels.

        Of its tokens 15 % are labels, rounded, and at least one. As for single masks, 80 % of these are replaced by
        `[MASK]`, 10 % by a random token, and 10 % stay.
        """
        words_of_segments = []
        begin = 1  # behind the class token
        for segment in segments:
            words = self._edges.words_of(segment)
            words_of_segments.append([[begin + place for place in word] for word in words])
            begin += len(segment) + 1
        num_labels = max(1, round(LABELLED_SHARE * sum(map(len, segments))))
        places = _ngram_places(words_of_segments, num_labels, self.mask_ngrams, generator)
        chosen = torch.tensor(places, dtype=torch.int64)
        labels = torch.full_like(ids, IGNORED_LABEL)
        labels[chosen] = ids[chosen]
        fate = torch.rand(len(chosen), generator=generator)
        random_ids = torch.randint(len(self.tokenizer), chosen.shape, generator=generator)
        replaced = torch.where(fate < 0.9, random_ids, ids[chosen])
        replaced[fate < 0.8] = self.tokenizer.mask_token_id
        masked = ids.clone()
        masked[chosen] = replaced
        return masked, labels


BYTE_LEVEL_BLANKS = frozenset("ĉĊč")  # tab, line feed and carriage return, as a byte-level vocabulary writes them


class WordEdges:
    """Which tokens of a tokenizer begin or end a word, as they are written.

    The BPE of GPT-1 marks the end of a word, WordPiece what goes on, byte-level and SentencePiece vocabularies what
    begins. Without such marks each token is a word.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        tokens = tokenizer.get_vocab()
        self.ends: frozenset[int] = frozenset(index for token, index in tokens.items() if token.endswith("</w>"))
        going_on = [token.startswith("##") for token in tokens]
        beginning = [token.startswith(("Ġ", "▁")) for token in tokens]
        blanks: set[int] = set()
        if self.ends:
            begins = [False] * len(tokens)
        elif sum(going_on) > sum(beginning):  # a few tokens of any vocabulary may begin with either mark
            begins = [not is_rest for is_rest in going_on]
        elif any(beginning):
            begins = beginning
            # A byte-level line end or tab is a word.
            blanks = {index for token, index in tokens.items() if token and set(token) <= BYTE_LEVEL_BLANKS}
        else:
            begins = [True] * len(tokens)
        beginnings = {index for index, does_begin in zip(tokens.values(), begins, strict=True) if does_begin}
        self.begins: frozenset[int] = frozenset(beginnings | blanks)
        self.ends |= blanks

    def words_of(self, ids: list[int]) -> list[list[int]]:
        """The places of the tokens of each word."""
        words: list[list[int]] = []
        for place, token in enumerate(ids):
            if place == 0 or token in self.begins or ids[place - 1] in self.ends:
                words.append([])
            words[-1].append(place)
        return words


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
            if len(self.blocks) == 0:
                raise UserError("`blocks` is empty, but random segments are drawn from it. Pass the training blocks.")
            place = _draw(len(self.blocks), generator)
            other = list(self.blocks[place]["input_ids"])
            if other == ids:
                label = CONTINUES
            else:
                second = other[-len(second) :]
        return {**self._masked([first, second], generator), "next_sentence_label": torch.tensor(label)}


class SentenceOrderCollator(NoiseCollator):
    """ALBERT: `[CLS] a [SEP] b [SEP]`, masked as RoBERTa's; the two parts of a block in their order, or swapped.

    ALBERT's paper masks n-grams of up to 3 words: `mask_ngrams=3`.

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
    """BART: the encoder reads a block with noise, the decoder restores the block.

    The noise is one or several of these, in this order:

    - permutation: sentences end with a full stop and come in random order;
    - rotation: the block begins with one of its tokens, drawn at random, and its beginning follows its end;
    - deletion: 30 % of the tokens, rounded, are drawn at random and left out, but not all;
    - infilling: 30 % of the tokens, rounded, are masked in spans, whose lengths follow a Poisson distribution with a
      mean of 3. A span becomes one `[MASK]`. A span of no token inserts one.

    Args:
        noise (names, *optional*): which of them. Default: permutation and infilling, as BART's large models have it.

    Returns the encoder's `input_ids` and `attention_mask`, `[B, S]`, and the decoder's `decoder_input_ids` and
    `labels`, `[B, T]`. The decoder begins with `[SEP]`, as BART's does with its end token.
    """

    options = ("noise",)

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        seed: int = 0,
        blocks: Sequence[Mapping] = (),
        noise: Sequence[str] = DEFAULT_NOISES,
    ):
        super().__init__(tokenizer, seed, blocks)
        unknown = [name for name in noise if name not in NOISES]
        if unknown or not noise:
            given = repr(unknown[0]) if unknown else "empty"
            raise UserError(f"`noise` is {given}, but it must be one or several of {', '.join(NOISES)}.")
        self.noise = tuple(noise)
        ids = tokenizer(".", add_special_tokens=False)["input_ids"]
        is_known = len(ids) > 0 and ids[-1] != tokenizer.unk_token_id
        self.full_stop_id = ids[-1] if is_known else None  # None: a text is one sentence

    @property
    def chosen_options(self) -> dict[str, str]:
        return {} if self.noise == DEFAULT_NOISES else {"noise": ", ".join(self.noise)}

    def make_row(self, ids: list[int], generator: torch.Generator) -> dict[str, torch.Tensor]:
        start = self.tokenizer.cls_token_id
        end = self.tokenizer.sep_token_id
        noisy_ids = ids
        if PERMUTATION in self.noise:
            noisy_ids = self._permuted(noisy_ids, generator)
        if ROTATION in self.noise:
            noisy_ids = _rotated(noisy_ids, generator)
        if DELETION in self.noise:
            noisy_ids = _with_deletions(noisy_ids, generator)
        if INFILLING in self.noise:
            noisy_ids = self._with_masks(noisy_ids, generator)
        noisy = torch.tensor([start, *noisy_ids, end])
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


def _ngram_places(
    words_of_segments: list[list[list[int]]], num_labels: int, longest: int, generator: torch.Generator
) -> list[int]:
    """The places of masked n-grams, at most `num_labels`, sorted.

    Words are tried in random order as the beginning of an n-gram of n words, where p(n) ∝ 1 / n for n up to `longest`.
    An n-gram that reaches beyond its segment, into another or above the number of labels is shortened. Of a word that
    is longer than the number of labels, as in text without spaces, each token is a word.

    Args:
        words_of_segments: the places of the tokens of each word of each segment.
        num_labels: how many tokens to choose.
        longest: the most words of an n-gram.
    """
    beginnings = []
    for given in words_of_segments:
        words = []
        for word in given:
            words += [word] if len(word) <= num_labels else [[place] for place in word]
        beginnings += [(words, index) for index in range(len(words))]
    chosen: set[int] = set()
    order = _shuffled(len(beginnings), generator)
    for drawn in order:
        if len(chosen) == num_labels:
            break
        words, index = beginnings[drawn]
        for word in words[index : index + _ngram_length(longest, generator)]:
            if not chosen.isdisjoint(word) or len(chosen) + len(word) > num_labels:
                break
            chosen.update(word)
    return sorted(chosen)


def _ngram_length(longest: int, generator: torch.Generator) -> int:
    """n from 1 to `longest` with p(n) = (1 / n) / Σ (1 / k), section 4.1 of ALBERT's paper."""
    weights = 1 / torch.arange(1, longest + 1)
    return 1 + int(torch.multinomial(weights, 1, generator=generator))


def _rotated(ids: list[int], generator: torch.Generator) -> list[int]:
    """A text that begins with one of its tokens, drawn at random."""
    place = _draw(len(ids), generator)
    return ids[place:] + ids[:place]


def _with_deletions(ids: list[int], generator: torch.Generator) -> list[int]:
    """A text without a share of its tokens, drawn at random; at least one is left."""
    num_deleted = min(round(MASKED_SHARE * len(ids)), len(ids) - 1)
    deleted = set(_shuffled(len(ids), generator)[:num_deleted])
    return [token for place, token in enumerate(ids) if place not in deleted]


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
