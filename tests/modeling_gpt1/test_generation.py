"""Generation against loops that run the whole model for each token; test_properties.py has caches and beams."""

import copy
import logging

import pytest
import torch
from support.refusals import refusal
from transformers import DynamicCache, GenerationConfig, StaticCache, TextIteratorStreamer
from transformers.masking_utils import create_masks_for_generate

from modeling_gpt1 import GPT1ForCausalLM, modeling_gpt1
from modeling_gpt1.modeling_gpt1 import CACHE

LIMIT = 24  # positions of the tiny models


def random_prompt(length, seed=0):
    return torch.randint(1, 101, (length,), generator=torch.Generator().manual_seed(seed))


PROMPTS = [random_prompt(length, seed=length) for length in (3, 7, 1)]


def left_padded(prompts):
    length = max(len(prompt) for prompt in prompts)
    input_ids = torch.stack([torch.nn.functional.pad(prompt, (length - len(prompt), 0)) for prompt in prompts])
    lengths = torch.tensor([[len(prompt)] for prompt in prompts])
    return {"input_ids": input_ids, "attention_mask": (torch.arange(length) >= length - lengths).long()}


def greedy_loop(model, prompt, number):
    """The most probable next token of the whole sequence so far, `number` times."""
    ids = prompt
    for _ in range(number):
        with torch.no_grad():
            ids = torch.cat([ids, model(ids[None], use_cache=False).logits[0, -1].argmax()[None]])
    return ids[len(prompt) :].tolist()


@pytest.fixture
def model(tiny_model):
    """Without end of sequence, so that continuations have one length; untied, else a random model repeats itself."""
    model = tiny_model(GPT1ForCausalLM, seed=0, tie_word_embeddings=False)
    model.generation_config = GenerationConfig(pad_token_id=0)
    return model


def continuations(model, prompts, **kwargs):
    batch = left_padded(prompts)
    return model.generate(**batch, do_sample=False, **kwargs)[:, batch["input_ids"].shape[1] :].tolist()


CACHES = dict(dynamic={}, none={"use_cache": False}, static=dict(cache_implementation="static", disable_compile=True))


def test_the_loops_give_various_tokens(model):
    """Numbers of different tokens; else the comparisons below would show little."""
    assert [len(set(greedy_loop(model, prompt, 12))) for prompt in PROMPTS] == [6, 3, 5]


@pytest.fixture(params=[0, 4], ids=["same model", "other model"])
def assistant(request, tiny_model):
    assistant = tiny_model(GPT1ForCausalLM, seed=request.param, tie_word_embeddings=False)
    assistant.generation_config = GenerationConfig(pad_token_id=0)
    return assistant


def test_assisted_decoding_is_the_loop(model, assistant):
    for options in ({"do_sample": False}, {"do_sample": True, "temperature": 1e-4}):
        generated = model.generate(PROMPTS[1][None], max_new_tokens=12, assistant_model=assistant, **options)
        assert generated[:, 7:].tolist() == [greedy_loop(model, PROMPTS[1], 12)]


@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({}, LIMIT - 9),  # up to the last position
        ({"prompt_lookup_num_tokens": 3}, 12),
        ({"cache_implementation": "static"}, 12),  # as `generate` sets it up
    ],
    ids=str,
)
def test_other_ways_of_generation_give_the_loops_tokens(model, options, number):
    prompt = torch.cat([PROMPTS[0]] * 3)
    generated = continuations(model, [prompt], max_new_tokens=number, pad_token_id=0, **options)
    assert generated == [greedy_loop(model, prompt, number)]


def test_embeddings_of_unequal_prompts_with_a_static_cache_are_the_loop(model):
    """The cache is as long as prompt and continuation together, though `generate` sees no ids."""
    batch = left_padded(PROMPTS)
    batch["inputs_embeds"] = model.get_input_embeddings()(batch.pop("input_ids"))
    options = {"do_sample": False, "return_dict_in_generate": True, **CACHES["static"]}
    outputs = model.generate(**batch, max_new_tokens=12, **options)
    assert outputs.sequences.tolist() == [greedy_loop(model, prompt, 12) for prompt in PROMPTS]
    assert outputs.past_key_values.layers[0].keys.shape == (3, 4, 7 + 12 - 1, 8)


def test_drafts_of_the_first_blocks_are_accepted_as_the_loop(model):
    """Early exit: the model's first block alone drafts, by a smaller `num_hidden_layers` for the time of a draft."""
    read = [[], []]
    for block, lengths in zip(model.transformer.h, read, strict=True):
        block.register_forward_pre_hook(lambda module, inputs, lengths=lengths: lengths.append(inputs[0].shape[1]))
    generated = continuations(model, [PROMPTS[1]], max_new_tokens=12, assistant_early_exit=1)
    assert len(read[0]) > len(read[1])
    assert model.config.num_hidden_layers == 2
    assert generated == [greedy_loop(model, PROMPTS[1], 12)]


@pytest.mark.parametrize("use_cache", [True, False])
def test_positions_may_be_given(model, use_cache):
    batch = left_padded(PROMPTS)
    position_ids = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    options = {"max_new_tokens": 12, "do_sample": False, "use_cache": use_cache}
    generated = model.generate(**batch, position_ids=position_ids, **options)[:, 7:].tolist()
    assert generated == [greedy_loop(model, prompt, 12) for prompt in PROMPTS]
    later = model.generate(**batch, position_ids=position_ids + 3, **{**options, "max_new_tokens": 5})
    assert later[:, 7:].tolist() != [tokens[:5] for tokens in generated]


def test_a_tokens_mask_for_a_static_cache_is_that_of_transformers(model, monkeypatch):
    given = {CACHE: StaticCache(config=model.config, max_cache_len=LIMIT)}
    batch = left_padded([prompt[:3] for prompt in PROMPTS])
    model(batch["input_ids"][:, :2], attention_mask=batch["attention_mask"][:, :2], **given)
    given |= {"inputs_embeds": torch.empty(3, 1, 0), "attention_mask": batch["attention_mask"]}
    expected = [create_masks_for_generate(model.config, **given | mask) for mask in ({}, {"attention_mask": None})]
    monkeypatch.setattr(modeling_gpt1, "create_masks_for_generate", None)
    made = model.create_masks_for_generate(model.config, **given)
    torch.testing.assert_close(made, expected[0])  # shape and type, too
    assert made[:, 0, 0, :4].tolist() == [[True] * 3 + [False]] * 2 + [[False, False, True, False]]
    unpadded = model.create_masks_for_generate(model.config, **given | {"attention_mask": None})
    torch.testing.assert_close(unpadded.expand(3, -1, -1, -1), expected[1])
    assert unpadded.shape == (1, 1, 1, LIMIT)
    assert unpadded.sum() == 3


@pytest.mark.parametrize("way", ["eager", "flex_attention"])
def test_attention_that_reads_no_boolean_mask_gets_that_of_transformers(model, monkeypatch, way):
    monkeypatch.setattr(model.config, "_attn_implementation", way)
    monkeypatch.setattr(modeling_gpt1, "create_masks_for_generate", lambda *args, **kwargs: "theirs")
    given = {CACHE: StaticCache(config=model.config, max_cache_len=LIMIT)}
    assert model.create_masks_for_generate(model.config, torch.empty(1, 1, 0), torch.ones(1, 3), **given) == "theirs"


@pytest.mark.parametrize("cache", [{}, {"cache_implementation": "static", "disable_compile": True}])
def test_a_step_reads_one_token_and_the_head_one_position(tiny_model, cache):
    model = tiny_model(GPT1ForCausalLM)
    read = []
    scored = []
    model.transformer.h[0].register_forward_pre_hook(lambda module, inputs: read.append(inputs[0].shape[1]))
    model.lm_head.register_forward_pre_hook(lambda module, inputs: scored.append(inputs[0].shape[1]))
    prompt = torch.randint(1, 101, (2, 7), generator=torch.Generator().manual_seed(0))
    model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=5, do_sample=False, **cache)
    assert read == [7, 1, 1, 1, 1]
    assert scored == [1] * 5


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_goes_on_from_its_cache(model, cache):
    batch = left_padded(PROMPTS)
    options = {"do_sample": False, "return_dict_in_generate": True, "disable_compile": True}
    past = StaticCache(config=model.config, max_cache_len=LIMIT) if cache == "static" else DynamicCache()
    first = model.generate(**batch, max_new_tokens=5, past_key_values=past, **options)
    mask = torch.nn.functional.pad(batch["attention_mask"], (0, 5), value=1)
    second = model.generate(
        first.sequences, attention_mask=mask, max_new_tokens=7, past_key_values=first.past_key_values, **options
    )
    assert second.sequences[:, 7:].tolist() == [greedy_loop(model, prompt, 12) for prompt in PROMPTS]
    assert int(second.past_key_values.get_seq_length()) == 7 + 12 - 1


def test_generation_from_embeddings_goes_on_from_its_cache(model):
    embed, options = model.get_input_embeddings(), {"do_sample": False, "return_dict_in_generate": True}
    inputs_embeds = embed(PROMPTS[1][None])
    first = model.generate(inputs_embeds=inputs_embeds, max_new_tokens=5, **options)
    inputs_embeds = torch.cat([inputs_embeds, embed(first.sequences)], dim=1)
    options |= {"max_new_tokens": 7, "past_key_values": first.past_key_values}
    second = model.generate(inputs_embeds=inputs_embeds, **options)
    assert torch.cat([first.sequences, second.sequences], dim=1).tolist() == [greedy_loop(model, PROMPTS[1], 12)]


def test_a_stream_shows_the_text_of_the_tokens(tiny_tokenizer, tiny_model):
    fields = {"vocab_size": len(tiny_tokenizer), "max_position_embeddings": 64, "tie_word_embeddings": False}
    model = tiny_model(GPT1ForCausalLM, **fields)
    model.generation_config = GenerationConfig(pad_token_id=0)
    prompt = tiny_tokenizer("the old farmer", add_special_tokens=False, return_tensors="pt")
    pieces = TextIteratorStreamer(tiny_tokenizer, skip_prompt=True, skip_special_tokens=True)
    generated = model.generate(**prompt, streamer=pieces, max_new_tokens=20, do_sample=False)
    text = tiny_tokenizer.decode(generated[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert len(text.split()) > 3
    assert "".join(pieces) == text


def test_a_cache_is_made_where_it_is_asked_for(model):
    ids = random_prompt(4)[None]
    assert model(ids).past_key_values.get_seq_length() == 4
    assert model(ids, use_cache=False).past_key_values is None
    assert model.train()(ids).past_key_values is None
    model.eval().config.use_cache = False
    assert model(ids).past_key_values is None
    assert model(ids, use_cache=True).past_key_values.get_seq_length() == 4


def test_a_cache_grows_in_place_and_its_branches_stay_apart(model):
    def read(cache, ids, seed):
        more = torch.stack([random_prompt(2, seed), random_prompt(2, seed + 1)])
        ids = torch.cat([ids, more], dim=1)
        torch.testing.assert_close(model(more, past_key_values=cache).logits, model(ids).logits[:, -2:])
        return ids

    with torch.no_grad():
        ids = torch.stack([random_prompt(3, seed) for seed in (0, 1)])
        first = model.generate(ids, max_new_tokens=1, return_dict_in_generate=True).past_key_values
        place = first.layers[0].keys.data_ptr()
        ids = read(first, ids, 2)
        assert first.layers[0].keys.data_ptr() == place
        second, third = copy.copy(first), copy.deepcopy(first)
        second.layers = [copy.copy(layer) for layer in first.layers]
        texts = [read(cache, ids, 4 + 2 * number) for number, cache in enumerate((first, second, third))]
        for cache, ids in zip((first, second, third), texts, strict=True):
            ids = read(cache, ids, 10)
            cache.reorder_cache(torch.tensor([1, 0]))
            ids = read(cache, ids.flip(0), 12)
            cache.crop(-3)
            with torch.inference_mode():
                ids = read(cache, ids[:, :-3], 14)
            read(cache, ids, 16)
    # With gradients nothing may change in place.
    sum(model(random_prompt(2).expand(2, -1), past_key_values=first).logits.sum() for _ in range(2)).backward()


@pytest.mark.parametrize("cache", CACHES)
def test_generation_past_the_positions_is_refused(model, cache):
    for prompt, options, asked, remedy in (
        (PROMPTS[1], {"max_new_tokens": 18}, 25, "pass `max_new_tokens` of at most 17 or shorten the prompt."),
        (PROMPTS[1], {"max_length": 25}, 25, "pass `max_new_tokens` of at most 17 or shorten the prompt."),
        (random_prompt(30), {"max_new_tokens": 5}, 35, "shorten the prompt."),
    ):
        message = refusal(continuations, model, [prompt], **options, **CACHES[cache])
        assert f"prompt of {len(prompt)} tokens may become {asked} (" in message
        assert f"has only {LIMIT} positions (`max_position_embeddings`): {remedy}" in message


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("options", [{"max_new_tokens": 18}, {"max_length": 25}])
def test_generation_from_embeddings_past_the_positions_is_refused_before_it_begins(model, options, cache):
    embedded = {"inputs_embeds": model.get_input_embeddings()(PROMPTS[1][None])}
    runs = []
    model.transformer.register_forward_pre_hook(lambda *_: runs.append(1))
    message = refusal(model.generate, **embedded, **options, do_sample=False, **CACHES[cache])
    assert runs == []
    assert "A prompt of 7 tokens may become 25 (" in message
    assert f"has only {LIMIT} positions (`max_position_embeddings`): pass `max_new_tokens` of at most 17" in message
    assert model.generate(**embedded, max_new_tokens=17, do_sample=False, **CACHES[cache]).shape == (1, 17)


def test_ids_beside_embeddings_are_counted_once(model):
    embedded = {"inputs_embeds": model.get_input_embeddings()(PROMPTS[1][None])}
    embedded["attention_mask"] = torch.ones(1, 7, dtype=torch.long)  # of 5.17 it would be as long as the ids
    assert model.generate(PROMPTS[1][None, :1], **embedded, max_new_tokens=17, do_sample=False).shape == (1, 18)
    message = refusal(model.generate, PROMPTS[1][None, :1], **embedded, max_new_tokens=18, do_sample=False)
    assert "A prompt of 7 tokens may become 25 (" in message


def test_the_default_length_behind_embeddings_ends_at_the_last_position(model):
    embedded = {"inputs_embeds": model.get_input_embeddings()(PROMPTS[1][None])}
    assert model.generate(**embedded, do_sample=False).shape == (1, LIMIT - 7)


def test_embeddings_that_fill_all_positions_are_refused_as_a_prompt(model):
    message = refusal(model.generate, inputs_embeds=model.get_input_embeddings()(random_prompt(LIMIT)[None]))
    assert f"A prompt of {LIMIT} tokens may become {LIMIT + 1} (" in message
    assert message.endswith("shorten the prompt.")


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_call_past_the_positions_with_a_cache_is_refused(model, kind):
    cache = StaticCache(config=model.config, max_cache_len=40) if kind == "static" else DynamicCache()
    with torch.no_grad():
        model(random_prompt(20)[None], past_key_values=cache)
        model(random_prompt(4)[None], past_key_values=cache)
        assert "has 25 tokens" in refusal(model, random_prompt(1)[None], past_key_values=cache)


def test_a_prompt_that_ends_in_the_extract_token_is_told_of(tiny_model, caplog):
    model = tiny_model(GPT1ForCausalLM, extract_token_id=7)

    def told(*prompts):
        caplog.clear()
        logging.Logger.warning_once.cache_clear()
        with caplog.at_level(logging.WARNING):
            model.generate(torch.tensor(prompts), max_new_tokens=2, pad_token_id=0)
        return [record.getMessage() for record in caplog.records if "[e]" in record.getMessage()]

    (message,) = told([5, 6, 7])
    assert "`add_special_tokens=False`" in message
    assert told([5, 7, 6]) == []
    assert told([5, 6, 8], [5, 6, 7]) == [message]


@pytest.mark.skipif(CACHE != "cache", reason="the attention of paged caches reads `cache` since transformers 5.24")
def test_continuous_batching_gives_the_texts_of_generate(tiny_model):
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    model, prompts = tiny_model(GPT1ForCausalLM), [[5, 6, 7], [8, 9, 10, 11, 12]]
    settings = GenerationConfig(max_new_tokens=5, do_sample=False, eos_token_id=99, pad_token_id=0)
    room = {"continuous_batching_config": ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=64)}
    answers = model.generate_batch(inputs=prompts, generation_config=settings, progress_bar=False, **room).values()
    alone = [model.generate(torch.tensor([ids]), generation_config=settings)[0, len(ids) :] for ids in prompts]
    assert [answer.generated_tokens for answer in answers] == [ids.tolist() for ids in alone]


def test_continuous_batching_of_a_dialogue_model_is_refused(tiny_model):
    """It passes no speakers, so its texts would be those of a model without them."""
    model = tiny_model(GPT1ForCausalLM, speaker_token_ids=[11, 12], delimiter_token_id=13)
    message = refusal(model.generate_batch, inputs=[[5, 11, 6]], progress_bar=False)
    assert "Continuous batching passes no speakers, and this is a dialogue model" in message
    assert message.endswith("Call `generate`.")


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_dialogue_model_generates_with_the_speakers_as_types(tiny_model, use_cache):
    """As a forward pass with the types of all tokens; those of the reply are the model's own speaker's."""
    model = tiny_model(GPT1ForCausalLM, speaker_token_ids=[97, 98], delimiter_token_id=99)
    prompt = torch.tensor([[5, 6, 98, 7, 8, 97, 9, 98, 10, 99]])
    types = torch.tensor([[97] * 2 + [98] * 3 + [97] * 2 + [98] * 2 + [97] * 4])
    options = {"max_new_tokens": 3, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    generated = model.generate(prompt, use_cache=use_cache, **options)
    expected = model(generated.sequences, token_type_ids=types).logits[:, -4:-1]
    torch.testing.assert_close(torch.stack(generated.logits, 1), expected, atol=1e-5, rtol=1e-5)
    without = model(generated.sequences).logits[:, -4:-1]
    assert (without - expected).abs().max() > 0.1
    given = model.generate(prompt, token_type_ids=types[:, :10] - 50, **options)
    assert (given.logits[0] - expected[:, 0]).abs().max() > 0.1
