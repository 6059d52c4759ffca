"""OpenAI's release ⇄ transformers' openai-gpt ⇄ gpt1: whole folders, every number to the bit."""

from .checkpoint import convert_checkpoint, describe_tensors
from .openai_gpt import to_openai_gpt
from .release import read_release

__all__ = ["convert_checkpoint", "describe_tensors", "read_release", "to_openai_gpt"]
