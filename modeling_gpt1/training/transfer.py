"""Layer transfer: keeps the embeddings and first layers of a pre-trained model, and resets all other layers.

Sources: section 5, "Impact of number of layers transferred", and figure 2 (left) of "Improving Language Understanding
by Generative Pre-Training" (Radford et al., 2018); `n_transfer` of the released code
(https://github.com/openai/finetune-transformer-lm/blob/master/train.py).
"""

import torch
from transformers import PreTrainedModel

from tokenization.errors import UserError


@torch.no_grad()
def keep_first_layers(model: PreTrainedModel, n_transfer: int) -> PreTrainedModel:
    """Keeps the embeddings and the first layers of a model and resets all other weights, in place.

    The model's own initialisation draws the new weights from torch's global generator, so a seed set
    beforehand decides them. A second model exists for a moment.

    Args:
        model (`PreTrainedModel`): a GPT-1 or GPT-1 LSTM, with or without heads.
        n_transfer (`int`): −1 keeps nothing. 0 keeps the embeddings of tokens and positions, and an untied
            language-model head. k keeps these and the first k layers. The model's number of layers keeps everything,
            including the task head, which is reset otherwise.

    Returns:
        `model`.

    Raises:
        ValueError: `n_transfer` is below −1 or above the number of layers.
    """
    num_layers = model.config.num_hidden_layers
    if not -1 <= n_transfer <= num_layers:
        raise UserError(
            f"`n_transfer` is {n_transfer}, but the model has {num_layers} layers. Pass -1 to keep nothing, 0 to keep "
            f"the embeddings, or the number of first layers to keep with them, of {num_layers} at most: everything."
        )
    if n_transfer == num_layers:
        return model
    # With the language-model head, which shares the token embeddings' weights unless it is untied.
    kept = ("tokens_embed.", "positions_embed.", "lm_head.", *(f"h.{layer}." for layer in range(n_transfer)))
    new_weights = type(model)(model.config).state_dict()
    for name, weight in model.state_dict().items():
        if n_transfer < 0 or not name.removeprefix(f"{model.base_model_prefix}.").startswith(kept):
            weight.copy_(new_weights[name])
    return model
