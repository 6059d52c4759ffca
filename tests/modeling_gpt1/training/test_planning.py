"""The trainers' loaders plan: the same training as without, and no plan where a batch is cut afterwards."""

import logging

import pytest
import torch
from helpers_training import Rows, make_collator, make_model, make_tokenizer, make_trainer
from transformers import BatchEncoding

from modeling_gpt1 import GPT1ForCausalLM, GPT1PretrainingArguments, GPT1PretrainingTrainer
from modeling_gpt1.training import trainer_internals
from tokenization import BlockCollator


def pretraining(tmp_path, **arguments):
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    model = GPT1ForCausalLM(make_model("classification", tokenizer).config)
    settings = {"max_steps": 3, "per_device_train_batch_size": 4, "warmup_steps": 0, "logging_steps": 1}
    settings |= {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True, **arguments}
    rows = [{"input_ids": list(range(1, 9 + index % 5))} for index in range(12)]
    args = GPT1PretrainingArguments(output_dir=str(tmp_path), **settings)
    return GPT1PretrainingTrainer(model, args, data_collator=BlockCollator(tokenizer), train_dataset=rows)


def trained(trainer):
    trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    return losses, trainer.model.state_dict(), trainer.state.num_input_tokens_seen


def test_tokens_of_batches_without_a_mask_are_counted_in_silence(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    trainer = pretraining(tmp_path)
    trainer.train_dataset = [{"input_ids": list(range(1, 9))}] * 12
    collate = trainer.data_collator
    trainer.data_collator = lambda rows: {
        name: tensor for name, tensor in collate(rows).items() if name != "attention_mask"
    }
    trainer.train()
    assert trainer.state.num_input_tokens_seen == 3 * 4 * 8
    assert [record.getMessage() for record in caplog.records if "count" in record.getMessage()] == []


@pytest.mark.parametrize("kind", ["fine-tuning", "pre-training"])
def test_training_is_the_same_to_the_bit(kind, tmp_path, monkeypatch):
    def make(**arguments):
        if kind == "pre-training":
            return pretraining(tmp_path, **arguments)
        return make_trainer("multiple_choice", tmp_path, 4, 2, dropout=0.1, **arguments)

    planned = trained(make())
    in_workers = trained(make(dataloader_num_workers=1))
    monkeypatch.setattr(trainer_internals, "plan_batches", lambda *_: None)
    trainer = make()
    unplanned = trained(trainer)
    assert "plan" not in next(iter(trainer.get_train_dataloader()))
    for (losses, weights, num_tokens), given in ((unplanned, planned), (in_workers, planned)):
        assert losses == given[0] and num_tokens == given[2] and (num_tokens > 0) is (kind == "pre-training")
        torch.testing.assert_close(weights, given[1], atol=0, rtol=0)


def test_every_loader_plans(tmp_path):
    trainer = make_trainer("multiple_choice", tmp_path, 4, 1)
    loaders = (
        trainer.get_train_dataloader(),
        trainer.get_eval_dataloader(Rows("multiple_choice", 4)),
        trainer.get_test_dataloader(Rows("multiple_choice", 4)),
    )
    for loader in loaders:
        batch = next(iter(loader))
        assert batch["plan"].shape == batch["input_ids"].shape and batch["plan"].packing is not None


def test_batches_that_are_cut_or_compiled_have_no_plan(tmp_path):
    dispatched = make_trainer("multiple_choice", tmp_path, 4, 1, accelerator_config={"dispatch_batches": True})
    compiled = make_trainer("multiple_choice", tmp_path, 4, 1)
    compiled.args.torch_compile = True
    several = make_trainer("multiple_choice", tmp_path, 4, 1)
    several.args._n_gpu = 2
    for trainer in (dispatched, compiled, several):
        assert "plan" not in next(iter(trainer.get_train_dataloader()))


def test_a_collator_of_the_users_own_trains(tmp_path):
    tokenizer = make_tokenizer()
    collator = make_collator(make_model("multiple_choice", tokenizer), tokenizer)
    expected = trained(make_trainer("multiple_choice", tmp_path, 4, 1))
    trainer = make_trainer("multiple_choice", tmp_path, 4, 1)
    trainer.data_collator = lambda rows: BatchEncoding(collator(rows))
    assert trained(trainer)[0] == expected[0]
