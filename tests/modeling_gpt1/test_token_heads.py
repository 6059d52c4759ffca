"""The heads for classes of tokens and for answers in a text: losses, masks, what is refused, scripts and pipelines."""

import copy

import pytest
import torch
import transformers
from support.finetuning import settings_of
from support.refusals import refusal
from support.tensors import close, random_ids

from modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForQuestionAnswering,
    GPT1ForTokenClassification,
    GPT1LSTMForQuestionAnswering,
    GPT1LSTMForTokenClassification,
)

OF_TOKENS = [GPT1ForTokenClassification, GPT1LSTMForTokenClassification]
OF_ANSWERS = [GPT1ForQuestionAnswering, GPT1LSTMForQuestionAnswering]
WORDS = ["The", "Farmer", "paid", "nobody,", "ticket."]


def token_rows(num_rows: int) -> list[dict]:
    """Rows of unequal lengths, so that batches have unequal numbers of labels; each third token has none."""
    rows = []
    for index in range(num_rows):
        ids = random_ids(1, 3 + 2 * index % 11, seed=index)[0].tolist()
        labels = [-100 if place % 3 == 2 else token % 3 for place, token in enumerate(ids)]
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def answer_rows(num_rows: int) -> list[dict]:
    ids = [random_ids(1, 9, seed=index)[0].tolist() for index in range(num_rows)]
    return [
        {"input_ids": tokens, "start_positions": index % 5, "end_positions": index % 5 + 2}
        for index, tokens in enumerate(ids)
    ]


def train(model, tokenizer, rows, folder, batch_size: int, accumulation: int) -> list[list[float]]:
    """Loss and gradient norm of each update, by transformers' own Trainer."""
    if "labels" in rows[0]:
        collator = transformers.DataCollatorForTokenClassification(tokenizer)
    else:
        collator = transformers.DataCollatorWithPadding(tokenizer)
    arguments = transformers.TrainingArguments(**settings_of(folder, batch_size, accumulation))
    trainer = transformers.Trainer(model, arguments, data_collator=collator, train_dataset=rows)
    trainer.train()
    return [[record["loss"], record["grad_norm"]] for record in trainer.state.log_history if "loss" in record]


@pytest.mark.parametrize("model_class", [*OF_TOKENS, *OF_ANSWERS])
def test_a_step_of_eight_rows_is_two_of_four_accumulated(tiny_model, plain_tokenizer, tmp_path, model_class):
    rows = token_rows(24) if model_class in OF_TOKENS else answer_rows(24)
    runs = []
    for batch_size, accumulation in ((8, 1), (4, 2)):
        model = tiny_model(model_class, num_labels=3)
        runs.append(train(model, plain_tokenizer, rows, tmp_path / str(batch_size), batch_size, accumulation))
    assert len(runs[0]) == 3
    close(torch.tensor(runs[1]), torch.tensor(runs[0]))


def test_the_loss_of_tokens_is_divided_by_the_labels_of_the_whole_step(tiny_model):
    model = tiny_model(GPT1ForTokenClassification, num_labels=3)
    ids, labels = random_ids(2, 5), torch.tensor([[0, 1, 2, -100, -100], [2, -100, -100, -100, -100]])
    losses = model(ids).logits.log_softmax(-1)
    total = -(losses[0, 0, 0] + losses[0, 1, 1] + losses[0, 2, 2] + losses[1, 0, 2])
    close(model(ids, labels=labels).loss, total / 4)
    close(model(ids, labels=labels, num_items_in_batch=16).loss, total / 16)


def test_a_batch_without_labels_has_the_loss_zero(tiny_model):
    ids = random_ids(2, 5)
    assert tiny_model(GPT1ForTokenClassification)(ids, labels=torch.full((2, 5), -100)).loss == 0
    cut_off = torch.tensor([5, 9])
    model = tiny_model(GPT1ForQuestionAnswering)
    assert model(ids, start_positions=cut_off, end_positions=cut_off).loss == 0


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("model_class", [*OF_TOKENS, *OF_ANSWERS])
def test_padding_changes_no_score(tiny_model, model_class, side):
    model = tiny_model(model_class)
    ids = random_ids(1, 6)
    padding = torch.zeros(1, 3, dtype=torch.long)
    order = [padding, ids] if side == "left" else [ids, padding]
    mask = torch.cat([torch.full_like(part, part is ids) for part in order], 1)
    kept = slice(3, None) if side == "left" else slice(6)
    padded, alone = model(torch.cat(order, 1), attention_mask=mask), model(ids)
    for name in ("logits",) if model_class in OF_TOKENS else ("start_logits", "end_logits"):
        close(padded[name][:, kept], alone[name])


@pytest.mark.parametrize("model_class", OF_TOKENS)
def test_what_the_head_of_tokens_reads_is_dropped_in_training(tiny_model, model_class):
    """With everything dropped, its bias is left."""
    model, ids = tiny_model(model_class, num_labels=3, classifier_dropout=1.0), random_ids(2, 5)
    bias = model.classifier.bias.expand(2, 5, 3)
    close(model.train()(ids).logits, bias)
    assert (model.eval()(ids).logits - bias).abs().max() > 0.1


def test_a_token_sees_only_those_before_it(tiny_model):
    model = tiny_model(GPT1ForTokenClassification)
    ids = random_ids(1, 6)
    other = torch.cat([ids[:, :4], random_ids(1, 2, seed=7)], 1)
    close(model(other).logits[:, :4], model(ids).logits[:, :4])
    assert (model(other).logits[:, 4:] - model(ids).logits[:, 4:]).abs().max() > 0.1


@pytest.mark.parametrize(
    ("labels", "parts"),
    [
        (torch.zeros(2, 4, dtype=torch.long), ["shape [2, 5] of torch.int64", "[2, 4]", "ForTokenClassification"]),
        (torch.zeros(2, 5), ["torch.float32"]),
        (torch.full((2, 5), 3), ["has 3 at [0, 0]", "classes 0 to 2", "`num_labels` of your data"]),
    ],
)
def test_labels_that_are_no_classes_of_tokens_are_refused(tiny_model, labels, parts):
    message = refusal(tiny_model(GPT1ForTokenClassification, num_labels=3), random_ids(2, 5), labels=labels)
    assert [part for part in parts if part not in message] == []


def test_positions_of_another_shape_are_refused(tiny_model):
    places = torch.zeros(2, 2, dtype=torch.long)
    message = refusal(
        tiny_model(GPT1ForQuestionAnswering), random_ids(2, 5), start_positions=places, end_positions=places
    )
    assert "shape [2] of torch.int64" in message
    assert "got [2, 2]" in message


@pytest.mark.parametrize(
    ("model_class", "auto_class"),
    [(one, transformers.AutoModelForTokenClassification) for one in OF_TOKENS]
    + [(one, transformers.AutoModelForQuestionAnswering) for one in OF_ANSWERS],
)
def test_the_auto_class_opens_it_with_its_scores(tiny_model, tmp_path, model_class, auto_class):
    model = tiny_model(model_class, num_labels=3)
    model.save_pretrained(tmp_path)
    opened = auto_class.from_pretrained(tmp_path).eval()
    assert type(opened) is model_class
    close(opened(random_ids(2, 5))[0], model(random_ids(2, 5))[0])


def test_a_fine_tuned_folder_lends_its_decoder(tiny_model, tmp_path):
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice")
    model.save_pretrained(tmp_path)
    opened, report = GPT1ForTokenClassification.from_pretrained(tmp_path, num_labels=5, output_loading_info=True)
    assert report["missing_keys"] == {"classifier.weight", "classifier.bias"}
    assert torch.equal(opened.transformer.h[1].attn.q_proj.weight, model.transformer.h[1].attn.q_proj.weight)


# ---- Words and tokens


def test_each_token_of_words_that_are_split_names_its_word(tiny_tokenizer):
    batch = tiny_tokenizer(WORDS, is_split_into_words=True, return_offsets_mapping=True)
    read = {}
    for word, (start, end) in zip(batch.word_ids(), batch["offset_mapping"], strict=True):
        if word is not None:
            read[word] = read.get(word, "") + WORDS[word][start:end]
    assert read == dict(enumerate(WORDS))
    assert batch.word_ids()[0] is batch.word_ids()[-1] is None  # [s] and [e]


def test_words_that_are_split_have_the_ids_of_their_text(plain_tokenizer):
    together = plain_tokenizer(" ".join(WORDS))["input_ids"]
    assert plain_tokenizer(WORDS, is_split_into_words=True)["input_ids"] == together


@pytest.fixture(scope="module")
def tagger(tiny_model, tiny_tokenizer):
    """A pipeline whose tokens are each of one of three classes."""
    tokenizer = copy.deepcopy(tiny_tokenizer)
    names = dict(enumerate(["O", "B-PER", "I-PER"]))
    model = tiny_model(
        GPT1ForTokenClassification, vocab_size=len(tokenizer), num_labels=3, id2label=names, max_position_embeddings=40
    )
    return transformers.pipeline("token-classification", model=model, tokenizer=tokenizer)


def test_the_pipeline_gives_each_token_its_place_in_the_text(tagger):
    text = " ".join(WORDS)
    found = tagger(text, ignore_labels=[])
    ids = tagger.tokenizer(text)["input_ids"][1:-1]
    assert [one["word"] for one in found] == tagger.tokenizer.convert_ids_to_tokens(ids)
    spelled = [one["word"].removesuffix("</w>") for one in found]
    assert [text[one["start"] : one["end"]].lower() for one in found] == spelled


def test_the_pipeline_gives_the_classes_of_the_model(tagger):
    text = " ".join(WORDS)
    with torch.no_grad():
        logits = tagger.model(**tagger.tokenizer(text, return_tensors="pt")).logits[0, 1:-1]
    names = [tagger.model.config.id2label[index] for index in logits.argmax(-1).tolist()]
    assert [one["entity"] for one in tagger(text, ignore_labels=[])] == names
    assert len(set(names)) > 1


@pytest.mark.parametrize("strategy", ["first", "average", "max"])
@pytest.mark.parametrize("are_split", [False, True])
@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
def test_words_that_the_pipeline_joins_are_whole(tagger, strategy, are_split):
    text = " ".join(WORDS)
    found = tagger(
        WORDS if are_split else text, is_split_into_words=are_split, aggregation_strategy=strategy, ignore_labels=[]
    )
    if are_split:
        (found,) = found if isinstance(found[0], list) else [found]
    joined = " ".join(text[one["start"] : one["end"]] for one in found)
    assert joined == text
