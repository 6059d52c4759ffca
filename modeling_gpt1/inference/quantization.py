"""Faster generation on CPUs: 8-bit weights, or float32 weights stored in the order that suits a single input row.

In small batches, a token takes as long as reading the weights. `GPT1Int8Config` quantises them while a model
is opened, through transformers' quantizer interface; the scheme is the symmetric one of "LLM.int8(): 8-bit Matrix
Multiplication for Transformers at Scale" (Dettmers et al., 2022), section 3.1: a scale for each output feature of the
weights and for each row of the input, products summed in 32-bit integers.

Shapes: N rows of input, D input features, F output features.
"""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from .devices import default_device

LARGEST = 127  # of symmetric 8-bit integers


@register_quantization_config("gpt1_int8")
class GPT1Int8Config(QuantizationConfigMixin):
    """Linear layers in 8 bits, for the CPU: `from_pretrained(folder, quantization_config=GPT1Int8Config())`.

    The layers of the blocks and the language-model head are quantised; embeddings, layer norms and task head stay as
    they are. A quantised model can generate and score, but not train or be saved: save the original model.
    """

    def __init__(self, **kwargs):
        self.quant_method = "gpt1_int8"


@register_quantizer("gpt1_int8")
class GPT1Int8Quantizer(HfQuantizer):
    """Replaces the linear layers once their weights are loaded."""

    def validate_environment(self, *args, device_map=None, **kwargs):
        places = device_map.values() if isinstance(device_map, dict) else [device_map]
        on_cpu = {"None", "cpu"} if default_device().type != "cpu" else {"None", "cpu", "auto"}
        if any(str(place) not in on_cpu for place in places):
            raise ValueError(
                f"GPT1Int8Config works only on the CPU, but `device_map` is {device_map}. Leave `device_map` out, or, "
                "on a GPU, open the model with `dtype=torch.bfloat16` instead of `quantization_config`."
            )

    def _process_model_after_weight_loading(self, model: PreTrainedModel, **kwargs) -> PreTrainedModel:
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Linear) and name != "score":
                    setattr(module, name, GPT1Int8Linear(child))
        return model.requires_grad_(False)

    def is_serializable(self) -> bool:
        return False

    @property
    def is_trainable(self) -> bool:
        return False


class GPT1Int8Linear(nn.Module):
    """A linear layer with 8-bit weights that quantises each row of its input as it comes."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        weight, scale = quantize_rows(linear.weight.detach())
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_buffer("weight", weight)  # [F, D]
        self.register_buffer("scale", scale[:, 0])  # [F]
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach(), requires_grad=False)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`[…, F]` in the dtype of `hidden_states […, D]`."""
        rows, scale = quantize_rows(hidden_states.reshape(-1, self.in_features))
        product = torch._int_mm(rows, self.weight.t()) * scale  # [N, F]; exact except for the scale
        product = product.mul_(self.scale) if self.bias is None else torch.addcmul(self.bias, product, self.scale)
        return product.to(hidden_states.dtype).view(*hidden_states.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def quantize_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantises `rows [N, D]`: int8 values from -127 to 127, `[N, D]`, and each row's float32 scale, `[N, 1]`."""
    rows = rows.float()
    scale = rows.abs().amax(-1, keepdim=True).div_(LARGEST).clamp_(min=torch.finfo(torch.float32).tiny)
    return (rows / scale).round_().to(torch.int8), scale


def order_weights_for_generation(model: PreTrainedModel) -> PreTrainedModel:
    """Stores float32 weights on the CPU column by column, which a product with a single row reads faster.

    Batches of one row get faster on x86 CPUs; larger batches take as long as before. Shapes, values and saved files
    stay the same, only `Tensor.stride` changes. Use it on a model that only generates. If you train the model,
    create the optimizer afterwards.

    Args:
        model: changed in place.

    Returns:
        The same model.
    """
    for module in model.modules():
        if not isinstance(module, nn.Linear) or module.out_features < module.in_features:
            continue  # torch's product with a wide row is as fast in the usual order
        if module.weight.dtype == torch.float32 and module.weight.device.type == "cpu":
            module.weight.data = module.weight.data.t().contiguous().t()
    return model
