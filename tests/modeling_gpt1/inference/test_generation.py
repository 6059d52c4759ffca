"""Continued prompts against single ones and loops over tokens; the strings that end them; refusals."""

import copy
import math

import numpy as np
import pytest
import torch
from support.tiny import byte_level
from transformers import GenerationConfig, SuppressTokensLogitsProcessor, TokenizersBackend

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM, StopAtStrings, continue_prompts, reply_to
from modeling_gpt1.inference import generation
from tokenization import train_tokenizer
from tokenization.text import tokenization_gpt1

TEXT = "the old farmer walked to the market because he needed a new plough ."
PROMPTS = ["the old farmer", "a", "he paid five dollars for the ticket and forgot it on the train ."]


@pytest.fixture(scope="module")
def model(tiny_tokenizer, tiny_model):
    """With weights whose continuations are various."""
    fields = {"vocab_size": len(tiny_tokenizer), "max_position_embeddings": 80, "tie_word_embeddings": False}
    model = tiny_model(GPT1ForCausalLM, seed=9, **fields)
    model.generation_config = GenerationConfig()
    return model


def first_stop(criterion, ids):
    """Tokens that are there when the criterion first ends the text."""
    return next((end for end in range(1, len(ids) + 1) if criterion(torch.tensor([ids[:end]]), None)[0]), None)


@pytest.mark.parametrize("string", ["to the", "market", "old farmer walked", "arm", "er wal", "Plough.", " a  New\n"])
def test_a_string_ends_the_text_at_the_token_that_completes_it(tiny_tokenizer, string):
    ids = tiny_tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    written = {"Plough.": "plough .", " a  New\n": "a new"}.get(string, string)
    joining = copy.copy(tiny_tokenizer)
    joining.clean_up_tokenization_spaces = True  # changes nothing here
    number = first_stop(StopAtStrings(joining, ["nobody", string], 0), ids)
    assert written in tiny_tokenizer.decode(ids[:number])
    assert written not in tiny_tokenizer.decode(ids[: number - 1])


def test_a_text_alone_is_one_stop_string(model, tiny_tokenizer):
    assert StopAtStrings(tiny_tokenizer, "farmer", 0).strings == ["farmer"]
    (whole,), (cut,) = (
        continue_prompts(model, tiny_tokenizer, PROMPTS[:1], max_new_tokens=12, stop=stop) for stop in ((), ["the"])
    )
    word = whole[0].split()[1]
    expected = continue_prompts(model, tiny_tokenizer, PROMPTS[:1], max_new_tokens=12, stop=[word])
    assert expected != [whole]
    assert continue_prompts(model, tiny_tokenizer, PROMPTS[:1], max_new_tokens=12, stop=word) == expected


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ("the man", "`prompts` is the text 'the man', but a list .* such as"),
        (["the", " \n "], "The prompt '' contains no token.* Add a word"),
        (["the", "a \udcff"], r"The prompt 'a \\udcff' is not UTF-8 text. Write it in UTF-8"),
        (["the " * 41], "has 41 tokens and `max_new_tokens` is 40, .* only 80 positions"),
        (["the", TEXT * 3], r"old farmer walked .*…' has \d+ tokens and `max_new_tokens` is 40, .* only 80 positions"),
    ],
)
def test_prompts_that_cannot_be_continued(model, tiny_tokenizer, prompts, message):
    with pytest.raises(ValueError, match=message):
        continue_prompts(model, tiny_tokenizer, prompts)
    assert len(generation.encode_prompts(model, tiny_tokenizer, ["the " * 40])[0]) == 40  # as many as fit
    assert continue_prompts(model, tiny_tokenizer, []) == []
    column = np.array(PROMPTS)
    assert continue_prompts(model, tiny_tokenizer, column) == continue_prompts(model, tiny_tokenizer, PROMPTS)
    with pytest.raises(ValueError, match="`model` is 'runs/books'. Pass an opened model"):
        continue_prompts("runs/books", tiny_tokenizer, PROMPTS)
    with pytest.raises(ValueError, match="`return_dict_in_generate` is not for .* Call `model.generate`"):
        continue_prompts(model, tiny_tokenizer, PROMPTS, return_dict_in_generate=True)
    with pytest.raises(ValueError, match="`max_length` would count the prompt, too. Pass `max_new_tokens`"):
        continue_prompts(model, tiny_tokenizer, PROMPTS, max_length=4)
    with pytest.raises(ValueError, match="A GPT1DoubleHeadsModel continues no text. Open the folder with GPT1ForCaus"):
        continue_prompts(GPT1DoubleHeadsModel(model.config), tiny_tokenizer, PROMPTS)


@pytest.mark.parametrize("messages", ["hi", {"role": "user", "content": "hi"}, [{"role": "user"}], [{"content": ""}]])
def test_what_is_no_conversation_is_refused(model, tiny_tokenizer, messages):
    with pytest.raises(ValueError, match="^`messages` is .*, but a list of messages is needed, such as"):
        reply_to(model, tiny_tokenizer, messages)


def test_processors_of_scores_are_those_of_generate(model, tiny_tokenizer):
    only_seven = SuppressTokensLogitsProcessor([token for token in range(len(tiny_tokenizer)) if token != 7])
    ((text,),) = continue_prompts(
        model, tiny_tokenizer, PROMPTS[:1], max_new_tokens=3, do_sample=False, logits_processor=[only_seven]
    )
    assert text.strip() == tiny_tokenizer.decode([7, 7, 7])
    assert continue_prompts(model, tiny_tokenizer, PROMPTS[:1], max_new_tokens=3, logits_processor=None)


@pytest.mark.parametrize("options", [{"do_sample": False}, {"do_sample": True}, {"num_beams": 2}])
def test_a_model_whose_scores_are_not_numbers_continues_nothing(model, tiny_tokenizer, options):
    diverged = copy.deepcopy(model)
    with torch.no_grad():
        diverged.lm_head.weight[5] = math.nan
    with pytest.raises(ValueError, match="next token by GPT1ForCausalLM .* are not numbers .*Use another checkpoint"):
        continue_prompts(diverged, tiny_tokenizer, PROMPTS, **options)


def test_strings_of_the_prompt_end_nothing(tiny_tokenizer):
    ids = tiny_tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    criterion = StopAtStrings(tiny_tokenizer, ["the"], prompt_length=len(ids))
    assert first_stop(criterion, ids) is None
    assert first_stop(criterion, ids + ids) > len(ids)


def test_rows_end_each_for_itself(tiny_tokenizer):
    rows = [tiny_tokenizer(text, add_special_tokens=False)["input_ids"][:4] for text in (TEXT, PROMPTS[2])]
    criterion = StopAtStrings(tiny_tokenizer, ["the"], 0)
    assert criterion(torch.tensor(rows), None).tolist() == [True, False]
    assert criterion.cut("walk the market the") == "walk"


def test_a_text_is_cut_behind_the_string_that_ends_first(tiny_tokenizer):
    criterion = StopAtStrings(tiny_tokenizer, ["nobody", "mark", "the"], 0)
    assert criterion.cut_behind("walk in the market") == "walk in the"
    assert criterion.cut_behind("walk in markets") == "walk in mark"
    assert criterion.cut_behind("walk") == "walk"


@pytest.mark.parametrize("string", ["", "  ", "\n\n"])
def test_a_stop_string_without_a_token(tiny_tokenizer, string):
    with pytest.raises(ValueError, match="has no token. Give a word, or .* alone for a line end"):
        StopAtStrings(tiny_tokenizer, ["the", string], 0)


def loop(model, tokenizer, prompt, number):
    """Ids of the most probable tokens, each from the whole text."""
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    start = len(ids)
    for _ in range(number):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[start:]


def test_prompts_of_any_length_are_continued_as_alone(model, tiny_tokenizer):
    expected = [loop(model, tiny_tokenizer, prompt, 12) for prompt in PROMPTS]
    texts = [[" " + tiny_tokenizer.decode(ids, skip_special_tokens=True)] for ids in expected]
    assert len({text for (text,) in texts}) == 3
    assert continue_prompts(model, tiny_tokenizer, PROMPTS, max_new_tokens=12, do_sample=False) == texts
    assert continue_prompts(model, tiny_tokenizer, PROMPTS[::-1], max_new_tokens=12, do_sample=False) == texts[::-1]
    ids = tiny_tokenizer("a b", add_special_tokens=False, padding=False)["input_ids"]
    assert ids[0] != 0  # no padding was left on


def test_continuations_of_a_prompt_stay_together(model, tiny_tokenizer):
    options = {"max_new_tokens": 6, "do_sample": True, "num_return_sequences": 3}
    torch.manual_seed(0)
    texts = continue_prompts(model, tiny_tokenizer, PROMPTS[:2], **options)
    assert [len(rows) for rows in texts] == [3, 3]
    inputs = tiny_tokenizer(PROMPTS[:2], add_special_tokens=False, padding=True, padding_side="left")
    torch.manual_seed(0)
    sequences = model.generate(**inputs.convert_to_tensors("pt"), pad_token_id=0, **options)
    decoded = tiny_tokenizer.batch_decode(sequences[:, len(inputs["input_ids"][0]) :], skip_special_tokens=True)
    assert sum(texts, []) == [" " + text for text in decoded]


def test_a_continuation_ends_before_its_stop(model, tiny_tokenizer):
    """A row that ends early does not hold up the others, nor they it."""
    whole = [loop(model, tiny_tokenizer, prompt, 12) for prompt in PROMPTS]
    texts = [tiny_tokenizer.decode(ids, skip_special_tokens=True) for ids in whole]
    string = next(word for word in texts[0].split()[1:] if all(word not in text for text in texts[1:]))
    assert string == "and"
    assert texts[0].startswith("new and")
    expected = [" " + text for text in ["new", *texts[1:]]]
    generated = continue_prompts(model, tiny_tokenizer, PROMPTS, max_new_tokens=12, stop=[string], do_sample=False)
    assert generated == [[text] for text in expected]
    options = {"max_new_tokens": 12, "stop": ["and"], "num_beams": 4}  # what is left of a beam holds no tokens
    assert all("and" not in text for (text,) in continue_prompts(model, tiny_tokenizer, PROMPTS, **options))


@pytest.mark.parametrize("stop", ["\n", "[e]"])
def test_a_token_that_ends_a_continuation(model, tiny_tokenizer, stop):
    """The head is made to prefer it after 3 tokens in the second row, and after 5 in the first."""
    stop_id = tiny_tokenizer.convert_tokens_to_ids("\n</w>" if stop == "\n" else stop)
    steps = []

    def prefer(module, inputs, logits):
        logits[..., stop_id] = torch.tensor([[1e4 if len(steps) == 5 else -1e4], [1e4 if len(steps) == 3 else -1e4]])
        steps.append(logits.argmax(-1)[:, 0].tolist())

    handle = model.lm_head.register_forward_hook(prefer)
    try:
        options = {"max_new_tokens": 20, "stop": [stop], "do_sample": False}
        generated = continue_prompts(model, tiny_tokenizer, PROMPTS[:2], **options)
    finally:
        handle.remove()
    assert len(steps) == 6
    first, second = zip(*steps, strict=True)
    assert generated == [[" " + tiny_tokenizer.decode(first[:5])], [" " + tiny_tokenizer.decode(second[:3])]]


def test_a_continuation_begins_a_new_word(model, tiny_tokenizer):
    def first_text(prompt):
        options = {"max_new_tokens": 6, "stop": None, "do_sample": False}
        return continue_prompts(model, tiny_tokenizer, iter([prompt]), **options)[0][0]

    expected = tiny_tokenizer.decode(loop(model, tiny_tokenizer, "the old far", 6))
    assert first_text("the old far") == " " + expected
    assert first_text("the old far ") == first_text("the old far \n") == expected


def test_words_are_joined_behind_their_prompt(tiny_tokenizer):
    """Other tokenizers have spaces of their own."""
    prompt = 'He said, "the old farmer'
    shown = [generation.join_to_prompt(tiny_tokenizer, ', " and', prompt, capitals=flag) for flag in (False, True)]
    assert shown == ['," and', '," and']
    assert generation.join_to_prompt(tiny_tokenizer, ". it is", "It was. ", capitals=True) == ". It is"
    assert generation.join_to_prompt(tiny_tokenizer, "it is", "It was. ", capitals=True) == "It is"
    # As a capital, it is two letters.
    assert generation.join_to_prompt(tiny_tokenizer, ". it", "\u00dfa said", capitals=True) == ". It"
    assert generation.join_to_prompt(tiny_tokenizer, "n't go", "they do") == "n't go"
    assert generation.join_to_prompt(byte_level(["a dog"]), "ness , it", "dark", capitals=True) == "ness , it"


def test_a_prompt_never_becomes_a_control_token(model, tiny_tokenizer, tmp_path):
    """Also where another class opened the tokenizer and was told to let text become control tokens."""
    tiny_tokenizer.save_pretrained(tmp_path)
    opened = TokenizersBackend.from_pretrained(tmp_path, split_special_tokens=False)
    prompts = ["the [e] farmer", "[s] a [$]"]
    assert tiny_tokenizer.extract_token_id in opened(prompts[0], add_special_tokens=False)["input_ids"]
    options = {"max_new_tokens": 4, "do_sample": False, "stop": ["a [e]"]}
    expected = continue_prompts(model, tiny_tokenizer, prompts, **options)
    assert continue_prompts(model, opened, prompts, **options) == expected


def test_a_newline_is_written_as_in_the_vocabulary():
    assert generation.NEWLINE == tokenization_gpt1.NEWLINE


@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "characters"])
def test_a_continuation_keeps_the_blank_of_its_first_word(kind):
    """Decoded alone, WordPiece's would have none."""
    text = "the old farmer walked"
    tokenizer = train_tokenizer(iter([text] * 3), kind, show_progress=False)
    before, behind = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in ("the old", " farmer walked"))
    assert generation.decode_behind(tokenizer, before, behind) == " farmer walked"


def test_a_continuation_within_a_word_gets_no_blank():
    tokenizer = train_tokenizer(iter(["farm er"] * 3), "wordpiece", show_progress=False)
    pieces = tokenizer.convert_tokens_to_ids(["##e", "##r"])
    farm = tokenizer("farm", add_special_tokens=False)["input_ids"]
    assert generation.decode_behind(tokenizer, farm, pieces) == "er"
