"""From text to the ids that GPT-1 reads: tokenizer, input transformations, collator, packing and the paper's tasks."""

from transformers import AutoTokenizer

from modeling_gpt1.configuration_gpt1 import GPT1Config

from .collator_gpt1 import TraversalCollator
from .corpus import BlockCounts, count_blocks, load_blocks, load_documents, training_texts
from .packing import BlockCollator, pack_documents
from .tasks import TASKS, Task, compute_metrics_for, get_task, load_task
from .tokenization_gpt1 import GPT1Tokenizer

AutoTokenizer.register(GPT1Config, GPT1Tokenizer, exist_ok=True)


__all__ = [
    "TASKS",
    "BlockCollator",
    "BlockCounts",
    "GPT1Tokenizer",
    "Task",
    "TraversalCollator",
    "compute_metrics_for",
    "count_blocks",
    "get_task",
    "load_blocks",
    "load_documents",
    "load_task",
    "pack_documents",
    "training_texts",
]
