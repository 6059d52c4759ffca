"""The collators' plans under our trainers: the same training as without."""

import pytest
import support.pretraining
import torch
from support.finetuning import (
    Rows,
    make_double_heads_model,
    make_finetuning_trainer,
    make_letter_tokenizer,
    make_traversal_collator,
)
from transformers import BatchEncoding

from tokenization import BlockCollator


def pretraining(tmp_path, **arguments):
    trainer = support.pretraining.make_pretraining_trainer(tmp_path, 1, max_steps=3, **arguments)
    trainer.data_collator = BlockCollator(make_letter_tokenizer())
    return trainer


def trained(trainer):
    trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    return losses, trainer.model.state_dict(), trainer.state.num_input_tokens_seen


@pytest.mark.parametrize("kind", ["fine-tuning", "pre-training"])
def test_training_is_the_same(kind, tmp_path):
    """To the bit in a worker; without plans to rounding, as the batches are padded then."""

    def make(**arguments):
        if kind == "pre-training":
            return pretraining(tmp_path, **arguments)
        return make_finetuning_trainer("multiple_choice", tmp_path, 4, 2, **arguments)

    planned, in_workers = trained(make()), trained(make(dataloader_num_workers=1))
    assert in_workers[0] == planned[0]
    assert in_workers[2] == planned[2] == (230 if kind == "pre-training" else 0)
    torch.testing.assert_close(in_workers[1], planned[1], atol=0, rtol=0)
    trainer = make()
    trainer.data_collator.plan = False
    losses, weights, num_tokens = trained(trainer)
    assert losses == pytest.approx(planned[0], rel=1e-5)
    assert num_tokens == planned[2]
    torch.testing.assert_close(weights, planned[1], atol=1e-6, rtol=1e-5)


def test_every_loader_plans(tmp_path):
    trainer = make_finetuning_trainer("multiple_choice", tmp_path, 4, 1)
    rows = Rows("multiple_choice", 4)
    loaders = trainer.get_train_dataloader(), trainer.get_eval_dataloader(rows), trainer.get_test_dataloader(rows)
    for loader in loaders:
        batch = next(iter(loader))
        assert batch["plan"].shape == batch["input_ids"].shape
        assert batch["plan"].token_index is not None


def test_a_collator_of_the_users_own_trains(tmp_path):
    tokenizer = make_letter_tokenizer()
    collator = make_traversal_collator(make_double_heads_model("multiple_choice", tokenizer), tokenizer)
    expected = trained(make_finetuning_trainer("multiple_choice", tmp_path, 4, 1))
    trainer = make_finetuning_trainer("multiple_choice", tmp_path, 4, 1)
    trainer.data_collator = lambda rows: BatchEncoding(collator(rows))
    assert trained(trainer)[0] == expected[0]
