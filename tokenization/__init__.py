"""From text to the ids that GPT-1 reads: tokenizer, traversals, collators, corpora and the paper's tasks."""

from importlib import import_module
from typing import TYPE_CHECKING

from .batches.collators import BlockCollator, TraversalCollator
from .batches.plan import BatchPlan
from .corpus.blocks import pack_documents
from .text.control_tokens import add_control_tokens
from .text.joining import capitalise, join_continuation, join_words
from .text.tokenization_gpt1 import GPT1Tokenizer, open_tokenizer

if TYPE_CHECKING:
    from .corpus.documents import training_texts
    from .corpus.noise import InfillingCollator, MaskedCollator, NextSentenceCollator, SentenceOrderCollator
    from .corpus.preparation import count_tokens, load_blocks, unigram_perplexity
    from .rows.own_files import load_files, load_task
    from .rows.tasks import TASKS, Task, compute_metrics_for, get_task
    from .text.forms import family_tokenizer

_DATA = {
    ".corpus.preparation": ("count_tokens", "load_blocks", "unigram_perplexity"),
    ".corpus.documents": ("training_texts",),
    ".text.forms": ("family_tokenizer",),
    ".corpus.noise": ("InfillingCollator", "MaskedCollator", "NextSentenceCollator", "SentenceOrderCollator"),
    ".rows.own_files": ("load_files", "load_task"),
    ".rows.tasks": ("TASKS", "Task", "compute_metrics_for", "get_task"),
}


def __getattr__(name: str):
    # Imported on first use: a tokenizer does not need datasets, whose import takes a second.
    for module, names in _DATA.items():
        if name in names:
            return getattr(import_module(module, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [name for names in _DATA.values() for name in names]
__all__ += "BatchPlan BlockCollator GPT1Tokenizer TraversalCollator add_control_tokens capitalise".split()
__all__ += "join_continuation join_words open_tokenizer pack_documents".split()
