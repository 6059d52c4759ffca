"""A pre-trained folder in scripts that know nothing of GPT-1: what they lack is said once, and one line mends it."""

import logging

import pytest
import torch
import transformers
from datasets import Dataset

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForSequenceClassification, add_control_tokens

PAIRS = {"sentence1": ["the film was slow .", "he paid ."] * 4, "sentence2": ["he paid .", "she read ."] * 4}
ADVICE = "Call `add_control_tokens(tokenizer, model)`"
NO_TOKEN = "(`config.extract_token_id` is None)"


@pytest.fixture
def folder(tmp_path, save_model):
    """A pre-trained folder: language model and tokenizer without control tokens."""
    return save_model(tmp_path / "pre-trained")


@pytest.fixture
def reasons(caplog):
    """Gives the reason of each warning of missing control tokens; each says what to call."""

    def reasons():
        said = [record.message for record in caplog.records if "extract token" in record.message]
        assert all(ADVICE in message for message in said)
        return [message.partition("[e] ")[2].partition(",")[0] for message in said]

    caplog.set_level(logging.WARNING)
    logging.Logger.warning_once.cache_clear()  # other tests warn of models like these
    return reasons


def train_with_plain_trainer(folder, output, mend):
    """What run_glue does with a pair of columns."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    if mend:
        add_control_tokens(tokenizer, model)

    def encode(rows):
        return tokenizer(rows["sentence1"], rows["sentence2"], padding=False, max_length=24, truncation=True)

    rows = Dataset.from_dict({**PAIRS, "label": [0, 1] * 4}).map(encode, batched=True)
    arguments = transformers.TrainingArguments(
        str(output), max_steps=3, per_device_train_batch_size=2, use_cpu=True, report_to=[], disable_tqdm=True
    )
    parts = {"data_collator": transformers.DataCollatorWithPadding(tokenizer), "processing_class": tokenizer}
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows, **parts)
    trainer.train()
    trainer.evaluate()
    trainer.save_model()
    return tokenizer.decode(rows[0]["input_ids"]).replace(" ", "")


def test_a_plain_trainer_is_told_once_what_its_rows_lack(folder, tmp_path, reasons):
    assert train_with_plain_trainer(folder, tmp_path / "bare", mend=False) == "thefilmwasslow.hepaid."
    assert reasons() == [NO_TOKEN]
    assert train_with_plain_trainer(folder, tmp_path / "mended", mend=True) == "[s]thefilmwasslow.[$]hepaid.[e]"
    answer = transformers.pipeline("text-classification", str(tmp_path / "mended"))(
        {"text": "he paid .", "text_pair": "he did ."}
    )
    assert set(answer) == {"label", "score"}
    assert reasons() == [NO_TOKEN]


def test_a_tokenizer_of_the_base_model(tiny_model, tiny_tokenizer, plain_tokenizer, reasons):
    model = tiny_model(GPT1ForSequenceClassification, vocab_size=len(plain_tokenizer))
    add_control_tokens(tiny_tokenizer, model)
    batch = plain_tokenizer(["he paid .", "the old farmer walked ."], padding=True, return_tensors="pt")
    for _ in range(2):
        model(**batch)
    assert reasons() == [f"(`config.extract_token_id` is {tiny_tokenizer.extract_token_id})"]


def test_silence_where_the_tokens_are_or_the_positions_are_given(tiny_model, tiny_tokenizer, reasons):
    model = tiny_model(GPT1DoubleHeadsModel, vocab_size=len(tiny_tokenizer))
    ids = torch.arange(1, 7)[None]
    model(input_ids=ids, mc_token_ids=torch.tensor([3]))
    model(inputs_embeds=torch.zeros(1, 3, 32), attention_mask=torch.ones(1, 3))
    model = tiny_model(GPT1DoubleHeadsModel, vocab_size=len(tiny_tokenizer), traversal="multiple_choice")
    add_control_tokens(tiny_tokenizer, model)
    batch = tiny_tokenizer([["he paid .", "she read ."]], padding=True, return_tensors="pt")
    ids = torch.stack([batch["input_ids"], torch.zeros_like(batch["input_ids"])], dim=1)  # an absent second choice
    mask = torch.stack([batch["attention_mask"], torch.zeros_like(batch["attention_mask"])], dim=1)
    model(input_ids=ids, attention_mask=mask, choice_mask=torch.tensor([[True, False]]))
    assert reasons() == []


@pytest.mark.parametrize("traversal", ["classification", "entailment"])
def test_a_compiled_model(tiny_model, traversal, reasons):
    torch.compiler.reset()
    model = tiny_model(GPT1ForSequenceClassification, traversal=traversal)
    ids = torch.arange(1, 9).view(2, 4)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    logits = [compiled(input_ids=ids).logits for _ in range(3)]
    assert reasons() == []  # a graph does not look at values
    torch.testing.assert_close(logits[0], model(input_ids=ids).logits)
