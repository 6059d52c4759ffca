# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""Configuration of the LSTM that the paper compares its Transformer with.

Source: section 5 and table 5 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018):
"a single layer 2048 unit LSTM using the same framework".
"""

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.utils.type_validators import probability

from .configuration_gpt1 import GPT1Config, GPT1ConfigMixin


@strict
class GPT1LSTMConfig(GPT1ConfigMixin, PreTrainedConfig):
    r"""Configuration of every GPT-1 model with an LSTM decoder; token embeddings, heads and objective are GPT-1's.

    Args:
        vocab_size (`int`): V, rows of the token embeddings.
        hidden_size (`int`): D, width of the embeddings and of the hidden states that the heads read.
        num_hidden_layers (`int`): LSTM layers.
        lstm_hidden_size (`int`): U, units of each LSTM layer.
        max_position_embeddings (`int`): the longest sequence, in tokens, that trainers, collators and `generate` make,
            as for [`GPT1Config`]. The LSTM has no position embeddings and also reads longer sequences.
        embd_pdrop (`float`): dropout probability of the embeddings.
        resid_pdrop (`float`): dropout probability of the LSTM units' output.
        classifier_dropout (`float`): dropout probability before the task head.
        layer_norm_epsilon (`float`): ε of the layer norms.
        initializer_range (`float`): standard deviation σ of the initial embeddings, projections and heads, N(0, σ).
        use_cache (`bool`): return the LSTM state outside of training.
        tie_word_embeddings, traversal, columns, lm_coef: as in [`GPT1Config`].
        start_token_id, delimiter_token_id, extract_token_id: as in [`GPT1Config`].
        pad_token_id, bos_token_id, eos_token_id: as in [`GPT1Config`].

    Raises:
        StrictDataclassError: as in [`GPT1Config`].
    """

    model_type = "gpt1-lstm"
    _auto_class = "AutoConfig"
    auto_classes = {
        "AutoConfig": "configuration_gpt1_lstm.GPT1LSTMConfig",
        "AutoModel": "modeling_gpt1_lstm.GPT1LSTMModel",
        "AutoModelForCausalLM": "modeling_gpt1_lstm.GPT1LSTMForCausalLM",
        "AutoModelForSequenceClassification": "modeling_gpt1_lstm.GPT1LSTMForSequenceClassification",
        "AutoModelForMultipleChoice": "modeling_gpt1_lstm.GPT1LSTMForMultipleChoice",
    }
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "lstm_hidden_size", "max_position_embeddings")
    keys_to_ignore_at_inference = GPT1Config.keys_to_ignore_at_inference
    base_model_fsdp_plan = {"tokens_embed": "free_full_weight", "h.*": "free_full_weight"}

    vocab_size: int = 40478
    hidden_size: int = 768
    num_hidden_layers: int = 1
    lstm_hidden_size: int = 2048
    max_position_embeddings: int = 512
    embd_pdrop: float | int = probability(default=0.1)
    resid_pdrop: float | int = probability(default=0.1)
    classifier_dropout: float | int = probability(default=0.1)
    layer_norm_epsilon: float = probability(default=1e-5)
    initializer_range: float = probability(default=0.02)
    use_cache: bool = True
    tie_word_embeddings: bool = True
    traversal: str | None = None
    columns: dict[str, str | list[str]] | None = None
    lm_coef: float | int = 0.5
    start_token_id: int | None = None
    delimiter_token_id: int | None = None
    extract_token_id: int | None = None
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None


__all__ = ["GPT1LSTMConfig"]
