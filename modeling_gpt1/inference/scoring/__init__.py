"""Scores of continuations given contexts, for every language model of transformers: causal, masked and denoising.

The zero-shot heuristics in section 5 of "Improving Language Understanding by Generative Pre-Training" (Radford et al.,
2018) and of later GPT models need these scores; see `heuristics.py`.

- A causal model predicts each token from those before it (`causal.py`). A context with several continuations is
  encoded once, and all of them read its keys and values. GPT-1's own models compute a batch by a plan, without padding
  and copies.
- A masked model gives no probability of a text (`masked.py`). Its pseudo-log-likelihood masks one token at a time and
  adds up the log-probabilities of the hidden tokens: section 2.3 of "Masked Language Model Scoring" (Salazar et al.
  2020, https://arxiv.org/abs/1910.14659).
- A denoising encoder-decoder, such as BART, restores a text from a damaged one (`masked.py`). The encoder reads the
  context with one mask in place of the continuation, as in its pre-training. The decoder reads the text from its
  beginning.

All of them encode texts, fit them to the model's length and make batches in the same way (`base.py`).
"""

from .base import ContinuationScore, Scorer, ScoringRequest
from .causal import CausalLMScorer
from .masked import DenoisingLMScorer, MaskedLMScorer, scorer_class_of

__all__ = [
    "CausalLMScorer",
    "ContinuationScore",
    "DenoisingLMScorer",
    "MaskedLMScorer",
    "Scorer",
    "ScoringRequest",
    "scorer_class_of",
]
