"""Models cut over two processes by the tensor-parallel plan give what one process gives, and generate the same.

Also run as a script by each of the processes: `torchrun --nproc_per_node 2 test_tensor_parallel.py FOLDER`.
"""

import json
import sys
from pathlib import Path

import pytest
import torch
from support.launch import run_together, show_where_it_hangs
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM

CLASSES = {"language_model": GPT1ForCausalLM, "double_heads": GPT1DoubleHeadsModel}
NUM_CHOICES = 2
# Matrices of each block.
CUT = [*(f"attn.{x}_proj.weight" for x in "qkvo"), "mlp.up_proj.weight", "mlp.down_proj.weight"]


def batch_for(name: str) -> dict[str, torch.Tensor]:
    """Padded ids of three examples, with the first tokens of an example's choices in common."""
    input_ids = torch.randint(1, 98, (3, NUM_CHOICES, 9), generator=torch.Generator().manual_seed(0))
    input_ids[:, 1, :4] = input_ids[:, 0, :4]
    attention_mask = torch.ones_like(input_ids)
    attention_mask[0, :, 6:] = 0
    if name == "double_heads":
        return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": torch.tensor([0, 1, 1])}
    # Generation wants its padding on the left.
    ids, mask = (tensor[:, 0].flip(1) for tensor in (input_ids, attention_mask))
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def whole(tensor: torch.Tensor) -> list:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).tolist()


def record_of(name: str, model) -> dict:
    """Losses, scores, tokens and gradients; of the logits those of real tokens."""
    batch = batch_for(name)
    output = model(**batch)
    output.loss.backward()
    parts = ("tokens_embed.weight", "h.1.mlp.up_proj.weight", "h.1.attn.o_proj.weight", "h.1.mlp.down_proj.bias")
    record = {f"gradient of {part}": whole(model.transformer.get_parameter(part).grad) for part in parts}
    record["loss"] = whole(output.loss)
    if name == "double_heads":
        return record | {key: whole(output[key]) for key in ("task_loss", "lm_loss", "task_logits")}
    inputs = {key: batch[key] for key in ("input_ids", "attention_mask")}
    tokens = model.generate(**inputs, max_new_tokens=6, do_sample=False, pad_token_id=0)
    return record | {"logits": whole(output.logits[inputs["attention_mask"].bool()]), "generated": tokens.tolist()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_model):
    """The models, and what two processes recorded of them; 5.17 cuts only vocabularies that two divides."""
    folder = tmp_path_factory.mktemp("tensor-parallel")
    for name, model_class in CLASSES.items():
        tiny_model(model_class, vocab_size=102, traversal="multiple_choice").save_pretrained(folder / name)
    run_together(2, __file__, folder)
    return folder


@pytest.mark.parametrize("name", CLASSES)
def test_two_processes_give_what_one_gives(name, folder):
    expected = record_of(name, CLASSES[name].from_pretrained(folder / name).eval())
    for rank in range(2):
        record = json.loads((folder / f"{name}-{rank}.json").read_text(encoding="utf-8"))
        cut = record.pop("cut")
        sizes = record.pop("sizes")
        assert sizes == {"q_proj": [16, 32], "o_proj": [32, 16], "up_proj": [64, 32], "tokens_embed": [51, 32]}
        assert cut == [f"h.{layer}.{module}" for layer in range(2) for module in CUT]
        assert record.keys() == expected.keys()
        for key, value in expected.items():
            close = torch.tensor(record[key]), torch.tensor(value)
            torch.testing.assert_close(*close, rtol=1e-4, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")


def local_sizes(model) -> dict[str, list[int]]:
    paths = ("h.0.attn.q_proj", "h.0.attn.o_proj", "h.0.mlp.up_proj", "tokens_embed")
    weights = {path.split(".")[-1]: model.transformer.get_parameter(f"{path}.weight") for path in paths}
    return {name: list(weight.to_local().shape) for name, weight in weights.items()}


def main(folder: str) -> None:
    show_where_it_hangs()
    for name, model_class in CLASSES.items():
        model = model_class.from_pretrained(Path(folder, name), distributed_config=DistributedConfig(tp_size=2)).eval()
        matrices = [(key, weight) for key, weight in model.transformer.h.named_parameters() if weight.dim() == 2]
        cut = [f"h.{key}" for key, weight in matrices if isinstance(weight, DTensor)]
        record = {**record_of(name, model), "cut": cut, "sizes": local_sizes(model)}
        Path(folder, f"{name}-{torch.distributed.get_rank()}.json").write_text(json.dumps(record), encoding="utf-8")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
