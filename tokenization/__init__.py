"""From text to the ids that GPT-1 reads: tokenizer, traversals, collators, corpora and the paper's tasks."""

from importlib import import_module
from typing import TYPE_CHECKING

from .blocks import pack_documents
from .collator import BlockCollator, TraversalCollator
from .control_tokens import add_control_tokens
from .joining import capitalise, join_continuation, join_words
from .planning import BatchPlan
from .tokenization_gpt1 import GPT1Tokenizer, open_tokenizer

if TYPE_CHECKING:
    from .corpus import count_tokens, load_blocks, unigram_perplexity
    from .documents import training_texts
    from .family import family_tokenizer
    from .noise import InfillingCollator, MaskedCollator, NextSentenceCollator, SentenceOrderCollator
    from .rows import load_files, load_task
    from .tasks import TASKS, Task, compute_metrics_for, get_task

_DATA = {
    ".corpus": ("count_tokens", "load_blocks", "unigram_perplexity"),
    ".documents": ("training_texts",),
    ".family": ("family_tokenizer",),
    ".noise": ("InfillingCollator", "MaskedCollator", "NextSentenceCollator", "SentenceOrderCollator"),
    ".rows": ("load_files", "load_task"),
    ".tasks": ("TASKS", "Task", "compute_metrics_for", "get_task"),
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
