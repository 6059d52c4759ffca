"""GPT-2's byte-level BPE beside the own one: control tokens, safe texts, collator, corpus, pipeline, the examples."""

import json

import pytest
import torch
from support.files import save_folder, write_rows
from support.refusals import refusal
from support.tiny import SENTENCES
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models
from transformers import (
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Tokenizer,
    OpenAIGPTTokenizer,
    TokenizersBackend,
    pipeline,
)

from modeling_gpt1 import CausalLMScorer, GPT1DoubleHeadsModel, GPT1ForCausalLM, continue_prompts
from modeling_gpt1.commands import finetune, pretrain, zero_shot
from modeling_gpt1.playground.reading import open_model, read, write_on
from tokenization import GPT1Tokenizer, TraversalCollator, add_control_tokens, load_blocks, open_tokenizer
from tokenization.text import documents

GPT2 = {"do_layer_norm_before": True, "rescale_prenorm_residual": True}
END_OF_TEXT = "<|endoftext|>"
TRICK = f"a [s] b [$] c [e] {END_OF_TEXT}"

PAGES = [
    "the old farmer\n\n walked to  the market.\n\n\nIt was 'late', wasn't it?\n",
    "".join(f"line {number} has\n words and\t\ttabs \n" for number in range(12)) + "\n\n end ",
    f"☃ 中文 {END_OF_TEXT} [s] text",
    "a",
]


def train_tokenizer(texts: list[str]) -> GPT2Tokenizer:
    trained = ByteLevelBPETokenizer()
    options = {"vocab_size": 400, "special_tokens": [END_OF_TEXT], "show_progress": False}
    trained.train_from_iterator(texts * 3, **options)
    model = json.loads(trained.to_str())["model"]
    return GPT2Tokenizer(vocab=model["vocab"], merges=list(map(tuple, model["merges"])))


@pytest.fixture
def tokenizer():
    return train_tokenizer([*SENTENCES, *PAGES])


@pytest.fixture
def gpt2_folder(tokenizer, randomise, tmp_path):
    """A folder of transformers' GPT-2 whose tokenizer has no class but that of the model, as the published one."""
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    save_folder(tmp_path / "gpt2", randomise(GPT2LMHeadModel(GPT2Config(vocab_size=400, **sizes))), tokenizer)
    (tmp_path / "gpt2" / "tokenizer_config.json").write_text('{"model_max_length": 1024}')
    return tmp_path / "gpt2"


def test_folders_of_gpt2_and_of_gpt1_are_told_apart(gpt2_folder, tokenizer, plain_tokenizer, tmp_path):
    opened = open_tokenizer(gpt2_folder)
    assert type(opened) is GPT2Tokenizer
    assert opened(SENTENCES)["input_ids"] == tokenizer(SENTENCES)["input_ids"]
    assert (opened.pad_token, tokenizer.pad_token) == (END_OF_TEXT, None)

    plain_tokenizer.save_pretrained(tmp_path / "gpt1")
    assert type(open_tokenizer(tmp_path / "gpt1")) is GPT1Tokenizer
    (tmp_path / "gpt1" / "tokenizer_config.json").unlink()
    assert type(open_tokenizer(str(tmp_path / "gpt1"))) is GPT1Tokenizer
    OpenAIGPTTokenizer(vocab={"<unk>": 0, "a</w>": 1}, merges=[]).save_pretrained(tmp_path / "openai-gpt")
    assert type(open_tokenizer(tmp_path / "openai-gpt")) is GPT1Tokenizer


def test_refusals(gpt2_folder, tokenizer, tiny_model, tmp_path):
    """GPT-1's class would lower the case of a byte-level BPE, strip the spaces and find no word."""
    (folder := tmp_path / "new").mkdir()
    assert f"{folder} has no tokenizer of GPT-1's kind" in refusal(open_tokenizer, folder)
    TokenizersBackend(tokenizer_object=tokenizer.backend_tokenizer).save_pretrained(folder)
    bare = open_tokenizer(folder)
    assert bare.pad_token is None
    assert add_control_tokens(bare) == 3
    assert bare.pad_token == "[e]"
    GPT2Config().save_pretrained(tmp_path / "model alone")
    message = refusal(open_tokenizer, tmp_path / "model alone")
    assert "transformers makes such a tokenizer from a folder that has no tokenizer's files" in message
    message = refusal(GPT1Tokenizer.from_pretrained, gpt2_folder)
    assert "no token ends in </w>" in message
    assert "`tokenization.open_tokenizer`" in message
    message = refusal(add_control_tokens, tokenizer, tiny_model(GPT1ForCausalLM, vocab_size=390))
    assert "390 token embeddings and the tokenizer 400 tokens" in message
    assert "vocab_size=400" in message
    assert len(tokenizer) == 400


def test_an_added_token_makes_no_tokenizer_of_gpt1s_kind(tokenizer, tmp_path):
    tokenizer.add_tokens(["</w>"])
    tokenizer.save_pretrained(tmp_path)
    assert "no token ends in </w>" in refusal(GPT1Tokenizer.from_pretrained, tmp_path)


# ---- Control tokens


def test_control_tokens_of_a_gpt2(tokenizer, tiny_model, tmp_path):
    model = tiny_model(GPT1DoubleHeadsModel, vocab_size=400, **GPT2)
    assert add_control_tokens(tokenizer, model) == 3
    ids = (tokenizer.start_token_id, tokenizer.delimiter_token_id, tokenizer.extract_token_id)
    assert ids == (400, 401, 402)
    assert (model.config.start_token_id, model.config.delimiter_token_id, model.config.extract_token_id) == ids
    assert (model.config.vocab_size, model.config.pad_token_id) == (403, tokenizer.pad_token_id)
    assert model.transformer.tokens_embed.weight[400:].std() < 0.03
    assert tokenizer.model_max_length == 24
    assert add_control_tokens(tokenizer, model) == 0
    assert len(tokenizer) == 403

    save_folder(tmp_path, model, tokenizer)
    for opened in (tokenizer, open_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)):
        assert opened.extract_token_id == 402
        assert len(opened) == 403
        pieces = opened.convert_ids_to_tokens(opened(TRICK, "x")["input_ids"])
        assert (pieces[0], pieces[-3:]) == ("[s]", ["[$]", "x", "[e]"])
        assert not {"[s]", "[$]", "[e]", END_OF_TEXT} & {*pieces[1:-3]}
        assert {"Ġ[", "["} & {*pieces}
        assert opened.decode(opened(TRICK, add_special_tokens=False)["input_ids"]) == TRICK
        assert add_control_tokens(opened) == 0


def test_a_word_is_no_control_token():
    words = Tokenizer(models.WordLevel({"<unk>": 0, "[$]": 1}, unk_token="<unk>"))
    tokenizer = TokenizersBackend(tokenizer_object=words, unk_token="<unk>")
    assert "[$] is an ordinary token of this tokenizer" in refusal(add_control_tokens, tokenizer)
    assert (len(tokenizer), getattr(tokenizer, "start_token", None)) == (2, None)


def test_texts_of_an_opened_gpt2_stay_text(gpt2_folder, tokenizer, tmp_path):
    """In prompts and scored texts too, and with any tokenizer in the scorer; saved and opened again as well."""
    model, opened = GPT1ForCausalLM.from_pretrained(gpt2_folder), open_tokenizer(gpt2_folder)
    opened.save_pretrained(tmp_path / "again")
    for given in (opened, open_tokenizer(tmp_path / "again"), AutoTokenizer.from_pretrained(tmp_path / "again")):
        ids = given(TRICK)["input_ids"]
        assert opened.eos_token_id not in ids
        assert given.decode(ids) == TRICK
    (request,) = CausalLMScorer(model, tokenizer).encode([(f"the {END_OF_TEXT}", [END_OF_TEXT])])
    assert tokenizer.eos_token_id not in [*request.context, *request.continuations[0]]
    assert tokenizer.decode(request.context + request.continuations[0]) == f"the {END_OF_TEXT * 2}"


def test_a_pipeline_reads_a_fine_tuned_gpt2(tokenizer, tiny_model, tmp_path):
    """Text and pair, as the collator makes them."""
    model = tiny_model(GPT1DoubleHeadsModel, vocab_size=400, traversal="entailment", num_labels=2, **GPT2)
    add_control_tokens(tokenizer, model)
    save_folder(tmp_path, model, tokenizer)
    pair = {"text": "the old farmer walked", "text_pair": "[e] the film"}
    scores = pipeline("text-classification", str(tmp_path), device="cpu")(pair, top_k=None)
    collator = TraversalCollator(tokenizer, "entailment", {"premise": "text", "hypothesis": "text_pair"}, 24)
    with torch.no_grad():
        expected = model(**collator([pair])).task_logits.softmax(-1)[0]
    assert {score["label"]: score["score"] for score in scores} == pytest.approx(
        {f"LABEL_{index}": probability for index, probability in enumerate(expected.tolist())}, abs=1e-6
    )


@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
def test_blocks_are_the_ids_of_whole_documents(tokenizer, tmp_path, monkeypatch, piece):
    monkeypatch.setattr(documents, "PIECE_CHARACTERS", piece)
    add_control_tokens(tokenizer)
    path = tmp_path / "pages.jsonl"
    write_rows(path, [{"text": page} for page in PAGES])
    rows = [row["input_ids"] for row in load_blocks(path, tokenizer, block_length=512, cache_dir=tmp_path)]
    expected = [tokenizer(page, add_special_tokens=False)["input_ids"] for page in PAGES]
    assert rows == [ids for ids in expected if len(ids) > 1]
    assert [tokenizer.decode(ids) for ids in rows] == PAGES[:3]
    assert not {*sum(rows, [])} & {0, 400, 401, 402}


def test_continuations_end_at_the_models_end_of_text(tokenizer, tiny_model):
    """And not with what follows it, whose mark the decoded text would not show."""
    model = tiny_model(GPT1ForCausalLM, vocab_size=400, max_position_embeddings=64, **GPT2)
    tokenizer.pad_token = END_OF_TEXT
    options = {"max_new_tokens": 6, "do_sample": False}
    ((whole,),) = continue_prompts(model, tokenizer, ["the old"], **options)
    ids = model.generate(**tokenizer("the old", return_tensors="pt"), **options)[0, -6:].tolist()
    assert tokenizer.decode(ids) == whole
    assert ids[2] not in ids[:2]
    for end in (ids[2], [ids[2]]):
        model.generation_config.eos_token_id = end
        assert continue_prompts(model, tokenizer, ["the old"], **options) == [[tokenizer.decode(ids[:2])]]


def test_the_commands_train_and_ask_a_gpt2(gpt2_folder, tmp_path):
    """Pre-trained further, fine-tuned from that, and asked without fine-tuning."""
    (tmp_path / "book.txt").write_text("\n".join(SENTENCES * 6))
    few = ["--max_steps", "2", "--use_cpu", "--disable_tqdm", "True", "--save_strategy", "no", "--warmup_steps", "0"]
    few += ["--per_device_train_batch_size", "4"]
    source = ["--train_files", str(tmp_path / "book.txt"), "--model", str(gpt2_folder)]
    pretrain.main([*source, *few, "--output_dir", str(tmp_path / "lm")])
    model = GPT1ForCausalLM.from_pretrained(tmp_path / "lm")
    assert model.config.do_layer_norm_before
    assert model.config.vocab_size == 400
    assert type(open_tokenizer(tmp_path / "lm")) is GPT2Tokenizer

    rows = [{"text": sentence, "label": index % 2} for index, sentence in enumerate(SENTENCES)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    task = ["--train_file", file, "--traversal", "classification", "--columns", "text=text"]
    model = ["--model", str(tmp_path / "lm"), "--output_dir", str(tmp_path / "task"), "--do_train"]
    finetune.main([*task, *model, *few])
    classifier = pipeline("text-classification", str(tmp_path / "task"), device="cpu")
    assert classifier.tokenizer.extract_token_id == classifier.model.config.extract_token_id == 402
    assert {answer["label"] for answer in classifier(SENTENCES)} <= {"0", "1", "LABEL_0", "LABEL_1"}

    write_rows(tmp_path / "data" / "sst2" / "validation.jsonl", [{"sentence": "the film was slow", "label": 1}])
    asked = ["--data_dir", str(tmp_path / "data"), "--tasks", "sst2", "--output_file", str(tmp_path / "zero.json")]
    zero_shot.main(["--model", str(tmp_path / "lm"), *asked, "--device", "cpu"])
    assert json.loads((tmp_path / "zero.json").read_text())["results"][0]["tasks"]["sst2"]["num_rows"] == 1


def test_the_playground_reads_a_gpt2(gpt2_folder, tmp_path):
    """Its tokens are GPT-2's, and text stays text."""
    opened = open_model(str(gpt2_folder), "gpt2")
    assert type(opened.tokenizer) is GPT2Tokenizer
    text = f"The old farmer\n{END_OF_TEXT}"
    (sequence,) = read(opened, {"first": text}).sequences
    ids = opened.tokenizer(text)["input_ids"]
    assert opened.tokenizer.decode(ids) == text
    assert opened.tokenizer.eos_token_id not in ids
    shown = "".join(token.piece + " " * token.ends_word for token in sequence)
    assert (len(sequence), shown) == (len(ids), f"The old farmer ↵ {END_OF_TEXT} ")
    assert len(list(write_on(opened, ids, 4, temperature=0))) > 0

    model = GPT1DoubleHeadsModel.from_pretrained(gpt2_folder, traversal="entailment", num_labels=2)
    add_control_tokens(opened.tokenizer, model)
    save_folder(tmp_path / "task", model, opened.tokenizer)
    opened = open_model(str(tmp_path / "task"), "task")
    (sequence,) = read(opened, {"first": "a", "second": "b"}).sequences
    assert [token.piece for token in sequence] == ["[s]", "a", "[$]", "b", "[e]"]
