"""BlockCollator against whole literal batches."""

import numpy as np
import pytest
from transformers import DataCollatorForLanguageModeling

from tokenization.batches.block_collator import BlockCollator


def test_a_batch_pads_on_the_right_and_predicts_unknown_tokens_too(plain_tokenizer):
    rows = [{"input_ids": [5, 0, 7]}, {"input_ids": [8, 9]}]
    batch = BlockCollator(plain_tokenizer)([{"input_ids": np.array(row["input_ids"])} for row in rows])
    assert {name: tensor.tolist() for name, tensor in batch.items() if name != "plan"} == {
        "input_ids": [[5, 0, 7], [8, 9, 0]],
        "attention_mask": [[1, 1, 1], [1, 1, 0]],
        "labels": [[5, 0, 7], [8, 9, -100]],
    }
    chosen = BlockCollator(plain_tokenizer)([{**rows[0], "labels": [-100, 0, 7]}, rows[1]])
    assert chosen["labels"].tolist() == [[-100, 0, 7], [8, 9, -100]]
    with pytest.raises(ValueError, match="`tokenizer` is a str. Pass what"):
        BlockCollator("folder")
    # The library's collator takes the unknown token, id 0, for padding.
    assert DataCollatorForLanguageModeling(plain_tokenizer, mlm=False)(rows)["labels"].tolist()[0] == [5, -100, 7]
