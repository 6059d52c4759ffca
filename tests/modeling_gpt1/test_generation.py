"""Generation with every cache against loops that run the whole model for each token."""

import pytest
import torch
from transformers import DynamicCache, GenerationConfig, StaticCache

from modeling_gpt1 import GPT1ForCausalLM

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


def beam_loop(model, prompt, number, num_beams):
    """The best of `num_beams` continuations by total log probability, each step over whole sequences."""
    beams = [(0.0, prompt)]
    for _ in range(number):
        longer = []
        for score, ids in beams:
            with torch.no_grad():
                log_probabilities = model(ids[None], use_cache=False).logits[0, -1].log_softmax(-1)
            for token in log_probabilities.topk(num_beams).indices:
                longer.append((score + log_probabilities[token].item(), torch.cat([ids, token[None]])))
        beams = sorted(longer, key=lambda beam: -beam[0])[:num_beams]
    return beams[0][1][len(prompt) :].tolist()


@pytest.fixture
def model(tiny_model):
    """Without end of sequence, so that continuations have one length; untied, else a random model repeats itself."""
    model = tiny_model(GPT1ForCausalLM, seed=0, tie_word_embeddings=False)
    model.generation_config = GenerationConfig(pad_token_id=0)
    return model


def continuations(model, prompts, **kwargs):
    batch = left_padded(prompts)
    generated = model.generate(**batch, do_sample=False, **kwargs)
    return generated[:, batch["input_ids"].shape[1] :].tolist()


CACHES = {
    "dynamic": {},
    "none": {"use_cache": False},
    "static": {"cache_implementation": "static", "disable_compile": True},
}


def test_the_loops_give_various_tokens(model):
    """Numbers of different tokens; else the comparisons below would show little."""
    loops = [greedy_loop(model, prompt, 12) for prompt in PROMPTS]
    assert [len(set(tokens)) for tokens in loops] == [6, 3, 5]
    assert beam_loop(model, PROMPTS[0], 10, 3) != loops[0][:10]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("cache", CACHES)
def test_greedy_is_the_loop(model, cache, implementation):
    model.set_attn_implementation(implementation)
    for prompt in PROMPTS:
        generated = continuations(model, [prompt], max_new_tokens=12, **CACHES[cache])
        assert generated == [greedy_loop(model, prompt, 12)]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("cache", CACHES)
def test_greedy_of_unequal_prompts_is_the_loop(model, cache, implementation):
    model.set_attn_implementation(implementation)
    generated = continuations(model, PROMPTS, max_new_tokens=12, **CACHES[cache])
    assert generated == [greedy_loop(model, prompt, 12) for prompt in PROMPTS]


def test_unequal_prompts_without_a_mask_are_not_the_loop(model):
    """The control: padding that is read as text gives other tokens."""
    batch = left_padded(PROMPTS)
    generated = model.generate(
        batch["input_ids"], attention_mask=torch.ones_like(batch["input_ids"]), max_new_tokens=12
    )
    assert generated[0, 7:].tolist() != greedy_loop(model, PROMPTS[0], 12)


@pytest.mark.parametrize("cache", CACHES)
def test_beams_are_the_loop(model, cache):
    generated = continuations(model, PROMPTS, max_new_tokens=10, num_beams=3, **CACHES[cache])
    assert generated == [beam_loop(model, prompt, 10, 3) for prompt in PROMPTS]


def test_static_cache_as_generate_sets_it_up(model):
    generated = continuations(model, PROMPTS, max_new_tokens=12, cache_implementation="static")
    assert generated == [greedy_loop(model, prompt, 12) for prompt in PROMPTS]


def test_generation_up_to_the_last_position(model):
    assert continuations(model, [PROMPTS[1]], max_new_tokens=LIMIT - 7) == [greedy_loop(model, PROMPTS[1], LIMIT - 7)]


def test_end_of_sequence_ends_one_row_and_pads_it(model):
    loops = [greedy_loop(model, prompt, 12) for prompt in PROMPTS]
    end = next(token for token in loops[0][3:8] if token not in loops[0][:3] + loops[1] + loops[2])
    ended = loops[0][: loops[0].index(end) + 1]
    generated = continuations(model, PROMPTS, max_new_tokens=12, eos_token_id=end)
    assert generated == [ended + [0] * (12 - len(ended)), loops[1], loops[2]]


def test_tied_embeddings_too(tiny_model):
    model = tiny_model(GPT1ForCausalLM, seed=3)
    loops = [greedy_loop(model, prompt, 12) for prompt in PROMPTS]
    assert continuations(model, PROMPTS, max_new_tokens=12, pad_token_id=0) == loops


def test_prompt_lookup_is_the_loop(model):
    prompt = torch.cat([PROMPTS[0], PROMPTS[0], PROMPTS[0]])
    generated = continuations(model, [prompt], max_new_tokens=12, prompt_lookup_num_tokens=3)
    assert generated == [greedy_loop(model, prompt, 12)]


@pytest.mark.parametrize("seed", [0, 4], ids=["same model", "other model"])
def test_assisted_decoding_is_the_loop(model, tiny_model, seed):
    assistant = tiny_model(GPT1ForCausalLM, seed=seed, tie_word_embeddings=False)
    assistant.generation_config = GenerationConfig(pad_token_id=0)
    generated = continuations(model, [PROMPTS[1]], max_new_tokens=12, assistant_model=assistant)
    assert generated == [greedy_loop(model, PROMPTS[1], 12)]


def test_chunked_prefill_is_the_loop(model):
    generated = continuations(model, [PROMPTS[1]], max_new_tokens=12, prefill_chunk_size=3)
    assert generated == [greedy_loop(model, PROMPTS[1], 12)]


def test_generation_from_embeddings_is_the_loop(model):
    inputs_embeds = model.get_input_embeddings()(PROMPTS[1][None])
    generated = model.generate(inputs_embeds=inputs_embeds, max_new_tokens=12, do_sample=False)
    assert generated.tolist() == [greedy_loop(model, PROMPTS[1], 12)]


def test_sampling_with_a_cache_draws_the_same_tokens(model):
    drawn = []
    for cache in CACHES.values():
        torch.manual_seed(0)
        drawn.append(model.generate(**left_padded(PROMPTS), do_sample=True, max_new_tokens=8, **cache).tolist())
    assert drawn[0] == drawn[1] == drawn[2]


# ---- Caches by hand.


def make_cache(kind, model):
    if kind == "static":
        return StaticCache(config=model.config, max_cache_len=LIMIT)
    return DynamicCache(config=model.config)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("chunks", [[9], [4, 5], [1] * 9, [7, 1, 1]])
def test_logits_of_cached_chunks_are_those_of_the_whole(model, kind, chunks):
    ids = random_prompt(9)[None]
    expected = model(ids, use_cache=False).logits
    cache, parts = make_cache(kind, model), []
    with torch.no_grad():
        for chunk in ids.split(chunks, dim=1):
            parts.append(model(chunk, past_key_values=cache).logits)
    assert int(cache.get_seq_length()) == 9
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_left_padded_rows_in_chunks(model, kind):
    """Positions follow from the mask of past and present tokens."""
    batch = left_padded(PROMPTS)
    more = torch.stack([random_prompt(3, seed) for seed in range(3)])
    cache = make_cache(kind, model)
    with torch.no_grad():
        model(**batch, past_key_values=cache)
        mask = torch.cat([batch["attention_mask"], torch.ones_like(more)], dim=1)
        logits = model(more, attention_mask=mask, past_key_values=cache).logits
    for prompt, new, row in zip(PROMPTS, more, logits, strict=True):
        expected = model(torch.cat([prompt, new])[None]).logits[0, -3:]
        torch.testing.assert_close(row, expected, atol=1e-5, rtol=1e-5)


def test_a_cache_is_made_where_it_is_asked_for(model):
    ids = random_prompt(4)[None]
    assert model(ids).past_key_values.get_seq_length() == 4
    assert model(ids, use_cache=False).past_key_values is None
    assert model.train()(ids).past_key_values is None
    model.eval().config.use_cache = False
    assert model(ids).past_key_values is None
    assert model(ids, use_cache=True).past_key_values.get_seq_length() == 4


# ---- Too long.


def too_long(asked, prompt, room):
    return (
        f"Generation up to {asked} tokens (`max_length`, or the prompt and `max_new_tokens`) was asked for, but the "
        f"model has positions for 24 (`max_position_embeddings`). The prompt has {prompt} tokens: pass "
        f"`max_new_tokens` of at most {room} or shorten the prompt."
    )


@pytest.mark.parametrize("options", [{"max_new_tokens": 18}, {"max_length": 25}])
@pytest.mark.parametrize("cache", CACHES)
def test_generation_past_the_positions(model, options, cache):
    with pytest.raises(ValueError) as error:
        continuations(model, [PROMPTS[1]], **options, **CACHES[cache])
    assert str(error.value) == too_long(25, prompt=7, room=17)


def test_generation_from_a_prompt_longer_than_the_positions(model):
    with pytest.raises(ValueError) as error:
        continuations(model, [random_prompt(30)], max_new_tokens=5)
    assert str(error.value) == too_long(35, prompt=30, room=0)


def test_generation_from_embeddings_past_the_positions(model):
    inputs_embeds = model.get_input_embeddings()(PROMPTS[1][None])
    for options in CACHES.values():
        with pytest.raises(ValueError):
            model.generate(inputs_embeds=inputs_embeds, max_new_tokens=19, do_sample=False, **options)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_forward_past_the_positions_with_a_cache(model, kind):
    cache = StaticCache(config=model.config, max_cache_len=40) if kind == "static" else make_cache(kind, model)
    with torch.no_grad():
        model(random_prompt(20)[None], past_key_values=cache)
        model(random_prompt(4)[None], past_key_values=cache)
        with pytest.raises(ValueError) as error:
            model(random_prompt(1)[None], past_key_values=cache)
    assert str(error.value) == (
        "The sequence has 25 tokens, but the model has positions for 24 (`max_position_embeddings`). Shorten the "
        "input: pass `truncation=True, max_length=…` to the tokenizer, `max_length` to the collator or a smaller "
        "`max_new_tokens` to `generate`."
    )
