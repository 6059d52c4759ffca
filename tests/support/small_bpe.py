"""A BPE of a few letters and words, whose pieces can be listed, and its batches as transformers makes them."""

import copy

from transformers import TokenizersBackend

from tokenization import GPT1Tokenizer

PIECES = ["<unk>", *"abcdehilnorstuwy.,'![]$<>-", "\n"]
PIECES += [piece + "</w>" for piece in PIECES[1:]]
MERGES = [("h", "e"), ("he", "l"), ("hel", "l"), ("hell", "o</w>"), ("n", "'"), ("n'", "t</w>"), ("d", "o</w>")]
PIECES += ["".join(pair) for pair in MERGES]
VOCAB = {piece: index for index, piece in enumerate(PIECES)}


class InFull(GPT1Tokenizer):
    """Makes a batch as transformers does, with every field of the encodings at once."""

    def _encode_plus(self, *given, **options):
        return TokenizersBackend._encode_plus(self, *given, **{**options, "split_special_tokens": True})


def full_batch(tokenizer, *texts, **options):
    """What transformers' own way makes of the texts."""
    in_full = copy.copy(tokenizer)
    in_full.__class__ = InFull
    return in_full(*texts, **options)
