"""Generation with every cache against loops that run the whole model for each token."""

import logging

import pytest
import torch
from helpers_refusals import refusal
from transformers import DynamicCache, GenerationConfig, StaticCache, TextIteratorStreamer

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


def test_end_of_sequence_ends_one_row_and_pads_it(model):
    loops = [greedy_loop(model, prompt, 12) for prompt in PROMPTS]
    end = next(token for token in loops[0][3:8] if token not in loops[0][:3] + loops[1] + loops[2])
    ended = loops[0][: loops[0].index(end) + 1]
    generated = continuations(model, PROMPTS, max_new_tokens=12, eos_token_id=end)
    assert generated == [ended + [0] * (12 - len(ended)), loops[1], loops[2]]


@pytest.fixture(params=[0, 4], ids=["same model", "other model"])
def assistant(request, tiny_model):
    assistant = tiny_model(GPT1ForCausalLM, seed=request.param, tie_word_embeddings=False)
    assistant.generation_config = GenerationConfig(pad_token_id=0)
    return assistant


def test_assisted_decoding_is_the_loop(model, assistant):
    cold = {"do_sample": True, "temperature": 1e-4}
    for options in ({"do_sample": False}, cold):
        generated = model.generate(PROMPTS[1][None], max_new_tokens=12, assistant_model=assistant, **options)
        assert generated[:, 7:].tolist() == [greedy_loop(model, PROMPTS[1], 12)]


@pytest.mark.parametrize(
    ("options", "number", "tied"),
    [
        ({}, LIMIT - 9, False),  # up to the last position
        ({}, 12, True),
        ({"prompt_lookup_num_tokens": 3}, 12, False),
        ({"prefill_chunk_size": 4}, 12, False),
        ({"cache_implementation": "static"}, 12, False),  # as `generate` sets it up
    ],
    ids=str,
)
def test_other_ways_to_the_loop(model, tiny_model, options, number, tied):
    model = tiny_model(GPT1ForCausalLM, seed=3) if tied else model
    prompt = torch.cat([PROMPTS[0]] * 3)
    generated = continuations(model, [prompt], max_new_tokens=number, pad_token_id=0, **options)
    assert generated == [greedy_loop(model, prompt, number)]


def test_generation_from_embeddings_is_the_loop(model):
    inputs_embeds = model.get_input_embeddings()(PROMPTS[1][None])
    for options, expected in (
        ({}, greedy_loop(model, PROMPTS[1], 10)),
        ({"num_beams": 3}, beam_loop(model, PROMPTS[1], 10, 3)),
    ):
        generated = model.generate(inputs_embeds=inputs_embeds, max_new_tokens=10, do_sample=False, **options)
        assert generated.tolist() == [expected]


def test_embeddings_of_unequal_prompts_with_a_static_cache_are_the_loop(model):
    """The cache is as long as prompt and continuation together, though `generate` sees no ids."""
    batch = left_padded(PROMPTS)
    batch["inputs_embeds"] = model.get_input_embeddings()(batch.pop("input_ids"))
    outputs = model.generate(
        **batch, max_new_tokens=12, do_sample=False, return_dict_in_generate=True, **CACHES["static"]
    )
    assert outputs.sequences.tolist() == [greedy_loop(model, prompt, 12) for prompt in PROMPTS]
    assert outputs.past_key_values.layers[0].keys.shape == (3, 4, 7 + 12 - 1, 8)


SAMPLING = {
    "one": {},
    "three": {"num_return_sequences": 3},
    "most likely tokens": {"top_k": 10, "top_p": 0.7, "temperature": 0.7},
    "beams": {"num_beams": 3, "temperature": 2.0},
}


@pytest.mark.parametrize("options", SAMPLING)
def test_sampling_with_a_cache_draws_the_same_tokens(model, options):
    drawn = []
    for seed, cache in [(0, cache) for cache in CACHES] + [(1, "dynamic")]:
        torch.manual_seed(seed)
        options_of_both = {"do_sample": True, "max_new_tokens": 8, **SAMPLING[options], **CACHES[cache]}
        drawn.append(model.generate(**left_padded(PROMPTS), **options_of_both).tolist())
    assert drawn[0] == drawn[1] == drawn[2] != drawn[3]


def test_sampling_of_cold_logits_is_the_loop(model):
    torch.manual_seed(0)
    generated = model.generate(**left_padded(PROMPTS), do_sample=True, temperature=1e-4, max_new_tokens=12)
    assert generated[:, 7:].tolist() == [greedy_loop(model, prompt, 12) for prompt in PROMPTS]


def test_drafts_of_the_first_blocks_are_accepted_as_the_loop(model):
    """Early exit: the model's first block alone drafts, by a smaller `num_hidden_layers` for the time of a draft."""
    read = [[], []]
    for block, lengths in zip(model.transformer.h, read, strict=True):
        block.register_forward_pre_hook(lambda module, inputs, lengths=lengths: lengths.append(inputs[0].shape[1]))
    generated = continuations(model, [PROMPTS[1]], max_new_tokens=12, assistant_early_exit=1)
    assert len(read[0]) > len(read[1])
    assert model.config.num_hidden_layers == 2
    assert generated == [greedy_loop(model, PROMPTS[1], 12)]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Contrastive Search", {"penalty_alpha": 0.6, "top_k": 5}),
        ("Group Beam Search", {"num_beams": 2, "num_beam_groups": 2, "diversity_penalty": 2.0}),
        ("Constrained Beam Search", {"num_beams": 4, "force_words_ids": [[5]]}),
        ("Dola Generation", {"dola_layers": "low"}),
    ],
)
def test_modes_whose_code_lies_on_the_hub_say_so(model, name, options):
    """transformers ships them no longer: nothing is downloaded and run unless the caller trusts it."""
    message = refusal(continuations, model, [PROMPTS[0]], max_new_tokens=3, **options)
    assert message.startswith(f"{name} requires `trust_remote_code=True`")


# ---- What `generate` gives beside the tokens.

MODES = {
    "greedy": ({"do_sample": False}, 3),
    "three samples": ({"do_sample": True, "num_return_sequences": 3}, 9),
    "beams": ({"do_sample": False, "num_beams": 2}, 6),
    "sampled beams": ({"do_sample": True, "num_beams": 2}, 6),
}


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_scores_hidden_states_and_attentions_of_every_step(model, mode, use_cache):
    model.set_attn_implementation("eager")
    options, num_rows = MODES[mode]
    outputs = model.generate(
        **left_padded(PROMPTS),
        **options,
        max_new_tokens=4,
        use_cache=use_cache,
        output_scores=True,
        output_logits=True,
        output_hidden_states=True,
        output_attentions=True,
        return_dict_in_generate=True,
    )
    assert [tuple(scores.shape) for scores in (*outputs.scores, *outputs.logits)] == [(num_rows, 101)] * 8
    queries = [7, 1, 1, 1] if use_cache else [7, 8, 9, 10]
    for step, (number, states, weights) in enumerate(
        zip(queries, outputs.hidden_states, outputs.attentions, strict=True)
    ):
        assert [tuple(layer.shape) for layer in states] == [(num_rows, number, 32)] * 3
        assert [tuple(layer.shape) for layer in weights] == [(num_rows, 4, number, 7 + step)] * 2


def test_scores_are_the_logits_of_the_whole_sequence(model):
    outputs = model.generate(
        **left_padded(PROMPTS), max_new_tokens=6, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    generated = outputs.sequences[:, 7:]
    for row, prompt in enumerate(PROMPTS):
        logits = model(torch.cat([prompt, generated[row, :-1]])[None], use_cache=False).logits[0, -6:]
        torch.testing.assert_close(torch.stack([step[row] for step in outputs.logits]), logits, atol=1e-5, rtol=1e-5)


# ---- Positions, and generation that goes on.


@pytest.mark.parametrize("use_cache", [True, False])
def test_positions_may_be_given(model, use_cache):
    batch = left_padded(PROMPTS)
    position_ids = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    options = {"max_new_tokens": 12, "do_sample": False, "use_cache": use_cache}
    generated = model.generate(**batch, position_ids=position_ids, **options)[:, 7:].tolist()
    assert generated == [greedy_loop(model, prompt, 12) for prompt in PROMPTS]
    later = model.generate(**batch, position_ids=position_ids + 3, **{**options, "max_new_tokens": 5})
    assert later[:, 7:].tolist() != [tokens[:5] for tokens in generated]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_goes_on_from_its_cache(model, cache):
    batch = left_padded(PROMPTS)
    options = {"do_sample": False, "return_dict_in_generate": True}
    past = StaticCache(config=model.config, max_cache_len=LIMIT) if cache == "static" else DynamicCache()
    first = model.generate(**batch, max_new_tokens=5, past_key_values=past, disable_compile=True, **options)
    mask = torch.nn.functional.pad(batch["attention_mask"], (0, 5), value=1)
    second = model.generate(
        first.sequences,
        attention_mask=mask,
        max_new_tokens=7,
        past_key_values=first.past_key_values,
        disable_compile=True,
        **options,
    )
    assert second.sequences[:, 7:].tolist() == [greedy_loop(model, prompt, 12) for prompt in PROMPTS]
    assert int(second.past_key_values.get_seq_length()) == 7 + 12 - 1


def test_generation_from_embeddings_goes_on_from_its_cache(model):
    embed, options = model.get_input_embeddings(), {"do_sample": False, "return_dict_in_generate": True}
    inputs_embeds = embed(PROMPTS[1][None])
    first = model.generate(inputs_embeds=inputs_embeds, max_new_tokens=5, **options)
    inputs_embeds = torch.cat([inputs_embeds, embed(first.sequences)], dim=1)
    second = model.generate(
        inputs_embeds=inputs_embeds, max_new_tokens=7, past_key_values=first.past_key_values, **options
    )
    generated = torch.cat([first.sequences, second.sequences], dim=1)
    assert generated.tolist() == [greedy_loop(model, PROMPTS[1], 12)]


# ---- Streams.


@pytest.fixture
def tokenizer_and_model(tiny_tokenizer, tiny_model):
    fields = {"vocab_size": len(tiny_tokenizer), "max_position_embeddings": 64, "tie_word_embeddings": False}
    model = tiny_model(GPT1ForCausalLM, **fields)
    model.generation_config = GenerationConfig(pad_token_id=0)
    return tiny_tokenizer, model


def test_a_stream_shows_the_text_of_the_tokens(tokenizer_and_model):
    tokenizer, model = tokenizer_and_model
    prompt = tokenizer("the old farmer", add_special_tokens=False, return_tensors="pt")
    pieces = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    generated = model.generate(**prompt, streamer=pieces, max_new_tokens=20, do_sample=False)
    text = tokenizer.decode(generated[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert len(text.split()) > 3
    assert "".join(pieces) == text


@pytest.mark.parametrize("stop", ["\n", "[e]"])
def test_generation_stops_at_a_newline_or_at_the_extract_token(tokenizer_and_model, stop):
    """The head is made to prefer that token after three others."""
    tokenizer, model = tokenizer_and_model
    stop_id = tokenizer.convert_tokens_to_ids("\n</w>" if stop == "\n" else stop)
    prompt = tokenizer("the old farmer", add_special_tokens=False, return_tensors="pt")
    number = prompt["input_ids"].shape[1]

    def prefer(module, inputs, logits):
        logits[..., stop_id] = 1e4 if len(seen) == 3 else -1e4
        seen.append(0)

    seen = []
    model.lm_head.register_forward_hook(prefer)
    generated = model.generate(**prompt, max_new_tokens=20, do_sample=False, eos_token_id=stop_id)[0, number:]
    assert len(generated) == 4 and generated[-1] == stop_id
    assert tokenizer.decode(generated[-1:]) == stop


# ---- Caches by hand.


def make_cache(kind, model):
    if kind == "static":
        return StaticCache(config=model.config, max_cache_len=LIMIT)
    return DynamicCache(config=model.config)


def test_a_cache_is_made_where_it_is_asked_for(model):
    ids = random_prompt(4)[None]
    assert model(ids).past_key_values.get_seq_length() == 4
    assert model(ids, use_cache=False).past_key_values is None
    assert model.train()(ids).past_key_values is None
    model.eval().config.use_cache = False
    assert model(ids).past_key_values is None
    assert model(ids, use_cache=True).past_key_values.get_seq_length() == 4


# ---- Too long.


@pytest.mark.parametrize("cache", CACHES)
def test_generation_past_the_positions(model, cache):
    for prompt, options, asked, room in (
        (PROMPTS[1], {"max_new_tokens": 18}, 25, 17),
        (PROMPTS[1], {"max_length": 25}, 25, 17),
        (random_prompt(30), {"max_new_tokens": 5}, 35, 0),
    ):
        message = refusal(continuations, model, [prompt], **options, **CACHES[cache])
        assert f"up to {asked} tokens" in message and f"has only {LIMIT} positions" in message
        assert f"has {len(prompt)} tokens: pass `max_new_tokens` of at most {room} or" in message
    embedded = {"inputs_embeds": model.get_input_embeddings()(PROMPTS[1][None]), "max_new_tokens": 19}
    assert "has 25 tokens" in refusal(model.generate, **embedded, do_sample=False, **CACHES[cache])


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_forward_past_the_positions_with_a_cache(model, kind):
    cache = StaticCache(config=model.config, max_cache_len=40) if kind == "static" else make_cache(kind, model)
    with torch.no_grad():
        model(random_prompt(20)[None], past_key_values=cache)
        model(random_prompt(4)[None], past_key_values=cache)
        assert "has 25 tokens" in refusal(model, random_prompt(1)[None], past_key_values=cache)


def test_a_prompt_that_ends_in_the_extract_token_is_told_of(tiny_model, caplog):
    model = tiny_model(GPT1ForCausalLM, extract_token_id=7)

    def told(ids):
        caplog.clear()
        logging.Logger.warning_once.cache_clear()
        with caplog.at_level(logging.WARNING):
            model.generate(torch.tensor([ids]), max_new_tokens=2, pad_token_id=0)
        return [record.getMessage() for record in caplog.records if "[e]" in record.getMessage()]

    (message,) = told([5, 6, 7])
    assert "`add_special_tokens=False`" in message
    assert told([5, 7, 6]) == []
