# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""Configuration of the LSTM that the paper compares its Transformer with.

Source: section 5 and table 5 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018):
"a single layer 2048 unit LSTM using the same framework".
"""

from huggingface_hub.dataclasses import strict

from .configuration_gpt1 import GPT1BaseConfig, GPT1Config


@strict
class GPT1LSTMConfig(GPT1BaseConfig):
    r"""Configuration of every GPT-1 model with an LSTM decoder; token embeddings, heads and objective are GPT-1's.

    Args:
        num_hidden_layers (`int`): LSTM layers.
        lstm_hidden_size (`int`): U, units of each LSTM layer.
        max_position_embeddings (`int`): the longest sequence, in tokens, that trainers, collators and `generate` make,
            as for [`GPT1Config`]. The LSTM has no position embeddings and also reads longer sequences.
        resid_pdrop (`float`): dropout probability of the LSTM units' output.
        use_cache (`bool`): return the LSTM state outside of training.
        kwargs: of the other fields of [`GPT1Config`] `vocab_size`, `hidden_size`, `embd_pdrop`, `classifier_dropout`,
            `layer_norm_epsilon`, `initializer_range`, `tie_word_embeddings`, `traversal`, `columns`, `lm_coef`,
            `speaker_token_ids` and the ids of tokens, under these names alone.

    Raises:
        StrictDataclassError: as in [`GPT1Config`].
    """

    model_type = "gpt1-lstm"
    auto_classes = {
        auto: name.replace("gpt1.", "gpt1_lstm.").replace("GPT1", "GPT1LSTM")
        for auto, name in GPT1Config.auto_classes.items()
    }
    sizes = (*GPT1BaseConfig.sizes, "lstm_hidden_size")
    base_model_fsdp_plan = {"tokens_embed": "free_full_weight", "h.*": "free_full_weight"}

    num_hidden_layers: int = 1
    lstm_hidden_size: int = 2048


__all__ = ["GPT1LSTMConfig"]
