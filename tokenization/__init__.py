"""From text to the ids that GPT-1 reads: tokenizer, traversals, collators, corpora and the paper's tasks."""

from importlib import import_module
from typing import TYPE_CHECKING

from .batches.block_collator import BlockCollator
from .batches.plan import BatchPlan
from .batches.traversal_collator import TraversalCollator
from .corpus.blocks import pack_documents
from .text.control_tokens import add_control_tokens, add_speaker_tokens
from .text.joining import capitalise, join_continuation, join_words
from .text.tokenization_gpt1 import GPT1Tokenizer, open_tokenizer

if TYPE_CHECKING:
    from .corpus.noise import InfillingCollator, MaskedCollator, NextSentenceCollator, SentenceOrderCollator
    from .corpus.preparation import count_tokens, load_blocks, unigram_perplexity
    from .rows.own_files import load_files
    from .rows.task_files import load_task
    from .rows.tasks import TASKS, Task, compute_metrics_for, get_task
    from .text.documents import training_texts
    from .text.forms import family_tokenizer
    from .text.training import TOKENIZER_KINDS, train_tokenizer

# Imported on first use: a tokenizer does not need datasets, whose import takes a second.
_ON_DEMAND = {
    "InfillingCollator": ".corpus.noise",
    "MaskedCollator": ".corpus.noise",
    "NextSentenceCollator": ".corpus.noise",
    "SentenceOrderCollator": ".corpus.noise",
    "TASKS": ".rows.tasks",
    "TOKENIZER_KINDS": ".text.training",
    "Task": ".rows.tasks",
    "compute_metrics_for": ".rows.tasks",
    "count_tokens": ".corpus.preparation",
    "family_tokenizer": ".text.forms",
    "get_task": ".rows.tasks",
    "load_blocks": ".corpus.preparation",
    "load_files": ".rows.own_files",
    "load_task": ".rows.task_files",
    "train_tokenizer": ".text.training",
    "training_texts": ".text.documents",
    "unigram_perplexity": ".corpus.preparation",
}


def __getattr__(name: str):
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name], __name__), name)


__all__ = [
    "BatchPlan",
    "BlockCollator",
    "GPT1Tokenizer",
    "TraversalCollator",
    "add_control_tokens",
    "add_speaker_tokens",
    "capitalise",
    "join_continuation",
    "join_words",
    "open_tokenizer",
    "pack_documents",
    *_ON_DEMAND,
]
