"""vLLM's plugin: every process of vLLM calls `register` and then knows the models, without `trust_remote_code`.

Only names are registered here: vLLM imports `vllm_models.py` when it opens one of them.
Source: https://docs.vllm.ai/en/latest/design/plugin_system.html
"""

import transformers

from ..modeling_gpt1 import GPT1ForCausalLM

# Class of `vllm_models.py` for each architecture of a config.json. Those of the LSTM refuse it with a sentence.
MODEL_OF_ARCHITECTURE = {
    "GPT1ForCausalLM": "GPT1LanguageModel",
    "GPT1ForSequenceClassification": "GPT1Classifier",
    "GPT1DoubleHeadsModel": "GPT1Classifier",
    "GPT1ForMultipleChoice": "GPT1Classifier",
    "GPT1LSTMForCausalLM": "GPT1LanguageModel",
    "GPT1LSTMForSequenceClassification": "GPT1Classifier",
    "GPT1LSTMDoubleHeadsModel": "GPT1Classifier",
    "GPT1LSTMForMultipleChoice": "GPT1Classifier",
}


def register() -> None:
    """Names the models of this package in vLLM's registry."""
    from vllm import ModelRegistry

    for architecture, model in MODEL_OF_ARCHITECTURE.items():
        ModelRegistry.register_model(architecture, f"modeling_gpt1.clients.vllm_models:{model}")
    # Where vLLM looks for a class that `model_impl="transformers"` asks for.
    transformers.GPT1ForCausalLM = GPT1ForCausalLM
