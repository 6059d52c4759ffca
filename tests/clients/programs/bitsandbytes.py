"""bitsandbytes: 8-bit layers, their logits, a folder of them, and the gradients of an adapter on 4-bit layers."""

from figures import Figure, quantisation_figures, report, run_lines

REQUIREMENTS = ("bitsandbytes==0.50.2", "peft==0.21.2")


def is_quantised(layer) -> bool:
    return type(layer).__name__ == "Linear8bitLt"


def adapters_without_gradient() -> int:
    """Matrices of an adapter on 4-bit weights that have no gradient after an evaluation."""
    import torch
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig

    from modeling_gpt1 import prepare_finetuning
    from tokenization import Task

    task = Task("films", "classification", {"text": "text", "label": "label"}, ("bad", "good"))
    four_bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    parts = prepare_finetuning("gpt1-novels", task, peft_config=LoraConfig(r=4), quantization_config=four_bits)
    model, batch = parts["model"], parts["data_collator"]([{"text": "a slow film", "label": 0}])
    with torch.no_grad():
        model.eval()(**batch)
    model.train()(**batch).loss.backward()
    return sum(weight.grad is None for name, weight in model.named_parameters() if "lora_" in name)


def main() -> list[Figure]:
    model = run_lines("bitsandbytes")["model"]
    figures = quantisation_figures(model, is_quantised, is_saved=True)
    figures.append(Figure("matrices of an adapter without gradient", adapters_without_gradient(), equals=0))
    return figures


if __name__ == "__main__":
    report(main)
