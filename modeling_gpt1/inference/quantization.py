"""Faster generation on CPUs by 8-bit weights.

In small batches, a token takes as long as reading the weights. `GPT1Int8Config` quantises them while a model
is opened, through transformers' quantizer interface; the scheme is the symmetric one of "LLM.int8(): 8-bit Matrix
Multiplication for Transformers at Scale" (Dettmers et al., 2022), section 3.1: a scale for each output feature of the
weights and for each row of the input, products summed in 32-bit integers.

Shapes: N rows of input, D input features, F output features.
"""

import warnings

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

LARGEST = 127  # of symmetric 8-bit integers
HEADS = ("score", "classifier", "qa_outputs")  # of tasks, for examples, tokens and answers
ZERO = 128  # of the unsigned integers that FBGEMM takes as input


@register_quantization_config("gpt1_int8")
class GPT1Int8Config(QuantizationConfigMixin):
    """Linear layers in 8 bits, for the CPU: `from_pretrained(folder, quantization_config=GPT1Int8Config())`.

    The layers of the blocks and the language-model head are quantised; embeddings, layer norms and the heads of tasks
    stay as they are. A quantised model can generate and score, but not train or be saved: save the original model.
    """

    def __init__(self, **kwargs):
        self.quant_method = "gpt1_int8"


@register_quantizer("gpt1_int8")
class GPT1Int8Quantizer(HfQuantizer):
    """Replaces the linear layers once their weights are loaded."""

    def _process_model_after_weight_loading(self, model: PreTrainedModel, **kwargs) -> PreTrainedModel:
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Linear) and name not in HEADS:
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
        scale = scale_of_rows(linear.weight.detach().float())
        weight = (linear.weight.detach() / scale).round_().to(torch.int8)
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        if has_fbgemm():
            self.packed = pack_for_fbgemm(weight, scale[:, 0])
            self.register_buffer("weight", None)
            self.register_buffer("scale", None)
        else:
            self.packed = None
            self.register_buffer("weight", weight)  # [F, D]
            self.register_buffer("scale", scale[:, 0])  # [F]
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach(), requires_grad=False)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`[…, F]` in the dtype of `hidden_states […, D]`."""
        rows = hidden_states.reshape(-1, self.in_features).float()
        row_scale = scale_of_rows(rows)
        rows = rows / row_scale  # from -127 to 127
        if self.packed is None:
            # The product of integers is exact: [N, F].
            product = torch._int_mm(rows.round_().to(torch.int8), self.weight.t()) * self.scale
        else:
            product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(rows, 1.0, ZERO, self.packed)
        if self.bias is None:
            product = product.mul_(row_scale)
        else:
            product = torch.addcmul(self.bias, product, row_scale)
        return product.to(hidden_states.dtype).view(*hidden_states.shape[:-1], self.out_features)


def scale_of_rows(rows: torch.Tensor) -> torch.Tensor:
    """The step `[N, 1]` at which 127 is the largest value of each of `rows [N, D]`."""
    largest = torch.linalg.vector_norm(rows, torch.inf, dim=-1, keepdim=True)
    return largest.div_(LARGEST).clamp_(min=torch.finfo(torch.float32).tiny)


def has_fbgemm() -> bool:
    """Whether FBGEMM multiplies the 8-bit integers: it is fastest, but without VNNI its sums may overflow."""
    has_product = hasattr(torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32")  # torch may drop it
    return has_product and torch.backends.quantized.engine in ("x86", "fbgemm") and torch.cpu._is_vnni_supported()


def pack_for_fbgemm(weight: torch.Tensor, scale: torch.Tensor) -> torch.ScriptObject:
    """The int8 `weight [F, D]` and its `scale [F]` in FBGEMM's own order."""
    zeros = torch.zeros(len(weight), dtype=torch.int64)
    with warnings.catch_warnings():  # torch will drop these tensors; `_int_mm` remains
        warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
        quantized = torch._make_per_channel_quantized_tensor(weight, scale.double(), zeros, 0)
    return torch.ops.quantized.linear_prepack(quantized, None)
