"""Quantisers of transformers find the layers of the blocks, spare the task head, and carry an adapter (QLoRA)."""

import pytest
import torch
from peft import LoraConfig
from support.decoders import make_decoder_trainer, prepare_decoder, write_decoder
from support.refusals import refusal
from torch import nn
from transformers import BitsAndBytesConfig
from transformers.integrations.finegrained_fp8 import FP8Linear, replace_with_fp8_linear
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import FineGrainedFP8Config, QuantizationConfigMixin

from modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForQuestionAnswering,
    GPT1ForSequenceClassification,
    GPT1ForTokenClassification,
    GPT1Trainer,
    GPT1TrainingArguments,
    prepare_finetuning,
)
from modeling_gpt1.families.auxiliary import auxiliary_head
from modeling_gpt1.families.probing import rounding_of
from modeling_gpt1.kernels_gpt1 import GPT1Linear
from tokenization import Task

LAYERS_OF_BLOCKS = 2 * 6  # two blocks: queries, keys, values, outputs, and two layers of the feed-forward part
TASK = Task("own", "classification", {"text": "text", "label": "label"}, ("no", "yes"))
ROWS = [{"text": text, "label": label} for label, text in enumerate(["the farmer walked .", "she read the letter ."])]


@register_quantization_config("looks_only")
class LooksOnlyConfig(QuantizationConfigMixin):
    def __init__(self, **kwargs):
        self.quant_method = "looks_only"


@register_quantizer("looks_only")
class LooksOnlyQuantizer(HfQuantizer):
    """Looks at the layers as bitsandbytes does, and leaves the weights as they are."""

    def _process_model_before_weight_loading(self, model, **kwargs):
        spared = self.get_modules_to_not_convert(model, None, model._keep_in_fp32_modules)
        plain = {name for name, module in model.named_modules() if type(module) is nn.Linear}
        model.found = {name for name in plain if not name.startswith(tuple(spared))}

    def is_serializable(self):
        return True

    @property
    def is_trainable(self):
        return True


@pytest.fixture
def folder(tiny_model, plain_tokenizer, tmp_path):
    """A language model whose layers are a multiple of 64 wide, as bitsandbytes wants them, and its tokenizer."""
    sizes = {"vocab_size": len(plain_tokenizer), "hidden_size": 64, "max_position_embeddings": 48}
    tiny_model(GPT1ForCausalLM, **sizes).save_pretrained(tmp_path / "base")
    plain_tokenizer.save_pretrained(tmp_path / "base")
    return str(tmp_path / "base")


WITH_HEADS = [
    GPT1ForCausalLM,
    GPT1DoubleHeadsModel,
    GPT1ForSequenceClassification,
    GPT1ForTokenClassification,
    GPT1ForQuestionAnswering,
]


@pytest.mark.parametrize("model_class", WITH_HEADS)
def test_a_quantiser_finds_the_layers_of_the_blocks_and_no_head(model_class, folder):
    found = model_class.from_pretrained(folder, quantization_config=LooksOnlyConfig()).found
    assert len(found) == LAYERS_OF_BLOCKS
    assert all(name.startswith("transformer.h.") for name in found)


def test_layers_that_a_quantiser_left_alone_compute_the_same(folder):
    input_ids = torch.arange(1, 9)[None]
    expected = GPT1ForCausalLM.from_pretrained(folder)(input_ids).logits
    model = GPT1ForCausalLM.from_pretrained(folder, quantization_config=LooksOnlyConfig())
    torch.testing.assert_close(model(input_ids).logits, expected, atol=1e-5, rtol=1e-5)


def test_layers_are_the_fast_ones_without_a_quantiser(folder):
    assert type(GPT1ForCausalLM.from_pretrained(folder).transformer.h[0].attn.q_proj) is GPT1Linear


def test_fine_grained_fp8_replaces_the_layers(folder):
    """It asks for the type `nn.Linear` itself, as bitsandbytes does; its own check of the device stands before it."""
    model = GPT1ForCausalLM.from_pretrained(folder, quantization_config=LooksOnlyConfig())
    replace_with_fp8_linear(model, ["lm_head"], FineGrainedFP8Config(weight_block_size=(32, 32)))
    assert sum(isinstance(module, FP8Linear) for module in model.modules()) == LAYERS_OF_BLOCKS


def test_a_task_head_in_float32_reads_a_decoder_in_16_bits(folder):
    model = GPT1DoubleHeadsModel.from_pretrained(folder, quantization_config=LooksOnlyConfig(), dtype=torch.bfloat16)
    model.task_head.float()
    assert model(torch.arange(1, 9)[None]).task_logits.dtype == torch.float32


# ---- Adapters on quantised weights


def finetune_an_adapter(base: str, output, **parts) -> GPT1Trainer:
    torch.manual_seed(0)
    prepared = prepare_finetuning(base, TASK, peft_config=LoraConfig(r=4), **parts)
    settings = {"max_steps": 8, "learning_rate": 0.02, "per_device_train_batch_size": 2, "logging_steps": 1}
    settings |= {"save_strategy": "no", "use_cpu": True, "report_to": "none", "disable_tqdm": True}
    trainer = GPT1Trainer(args=GPT1TrainingArguments(str(output), **settings), train_dataset=ROWS, **prepared)
    trainer.train()
    trainer.save_model()
    return trainer


def test_an_adapter_of_a_quantised_base_opens_on_the_weights_that_are_on_disk(folder, tmp_path):
    trainer = finetune_an_adapter(folder, tmp_path / "run", quantization_config=LooksOnlyConfig())
    opened = GPT1DoubleHeadsModel.from_pretrained(tmp_path / "run")
    assert getattr(opened.config, "quantization_config", None) is None
    batch = trainer.data_collator(ROWS)
    expected = trainer.model.eval()(**batch).task_logits
    torch.testing.assert_close(opened(**batch).task_logits, expected, atol=2e-5, rtol=1e-4)


def test_an_adapter_is_not_merged_into_quantised_weights(folder, tmp_path):
    finetune_an_adapter(folder, tmp_path / "run")
    told = refusal(GPT1DoubleHeadsModel.from_pretrained, tmp_path / "run", quantization_config=LooksOnlyConfig())
    assert "run is an adapter, which is not merged into quantised weights" in told
    assert "Save what opens without `quantization_config`" in told


def test_quantised_weights_without_an_adapter_are_refused(folder):
    told = refusal(prepare_finetuning, folder, TASK, quantization_config=LooksOnlyConfig())
    assert "Pass `peft_config`, such as `LoraConfig(r=16)`" in told


def test_the_scores_of_a_quantised_model_round_more(folder):
    """LLM.int8 multiplies some columns in 16 bits, and which ones the other rows of a batch decide as well."""
    roundings = [
        rounding_of(GPT1ForCausalLM.from_pretrained(folder, quantization_config=given))
        for given in (None, LooksOnlyConfig())
    ]
    assert roundings == [1e-3, 5e-2]


# ---- bitsandbytes, where it is installed

BITS = {
    "8-bit": BitsAndBytesConfig(load_in_8bit=True),
    "4-bit": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32),
}
# Standard deviation of the logits' error beside that of the logits.
LARGEST_ERROR = {"8-bit": 0.05, "4-bit": 0.4}


@pytest.fixture(params=list(BITS))
def bits(request):
    pytest.importorskip("bitsandbytes")
    return request.param


def test_bitsandbytes_quantises_every_layer_of_the_blocks(bits, folder):
    model = GPT1ForCausalLM.from_pretrained(folder, quantization_config=BITS[bits])
    kinds = {type(module) for name, module in model.named_modules() if name.endswith("_proj")}
    assert len(kinds) == 1
    assert kinds.pop().__module__ == "bitsandbytes.nn.modules"


def test_bitsandbytes_keeps_the_logits_near(bits, folder):
    input_ids = torch.arange(1, 31)[None]
    expected = GPT1ForCausalLM.from_pretrained(folder)(input_ids).logits
    logits = GPT1ForCausalLM.from_pretrained(folder, quantization_config=BITS[bits])(input_ids).logits
    assert (logits - expected).std() / expected.std() < LARGEST_ERROR[bits]


def test_a_folder_of_bitsandbytes_opens_with_the_same_logits(bits, folder, tmp_path):
    model = GPT1ForCausalLM.from_pretrained(folder, quantization_config=BITS[bits])
    model.save_pretrained(tmp_path / "small")
    input_ids = torch.arange(1, 31)[None]
    opened = GPT1ForCausalLM.from_pretrained(tmp_path / "small")
    assert torch.equal(opened(input_ids).logits, model(input_ids).logits)


def test_an_adapter_learns_on_weights_of_bitsandbytes(bits, folder, tmp_path):
    trainer = finetune_an_adapter(folder, tmp_path / "run", quantization_config=BITS[bits])
    losses = [record["loss"] for record in trainer.state.log_history if "lm_loss" in record]
    assert losses[-1] < 0.7 * losses[0]


def test_an_adapter_on_weights_of_bitsandbytes_has_gradients_after_an_evaluation(bits, folder, tmp_path):
    trainer = finetune_an_adapter(folder, tmp_path / "run", quantization_config=BITS[bits])
    model, batch = trainer.model, trainer.data_collator(ROWS)
    with torch.no_grad():
        model.eval()(**batch)
    model.zero_grad()
    model.train()(**batch).loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if "lora_" in name}
    assert gradients
    assert [name for name, gradient in gradients.items() if gradient is None or not gradient.any()] == []


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_the_auxiliary_objective_trains_an_adapter_on_weights_of_bitsandbytes(name, bits, tmp_path):
    """Layers are a multiple of 64 wide. The output matrix is in full precision."""
    sizes = {"n_embd": 64} if name == "gpt2" else {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
    folder = write_decoder(name, tmp_path / "base", **sizes)
    parts = prepare_decoder(folder, peft_config=LoraConfig(r=4), quantization_config=BITS[bits])
    trainer = make_decoder_trainer(parts, tmp_path / "run", max_steps=3, learning_rate=0.01)
    trainer.train()
    adapters = [weight for key, weight in trainer.model.named_parameters() if "lora_B" in key]
    assert adapters
    assert all(weight.any() for weight in adapters)  # each was zero before its first update
    kept = {weight.dtype for weight in auxiliary_head(trainer.model.get_base_model()).parameters()}
    assert kept <= {torch.float32}
