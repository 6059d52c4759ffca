"""Scores by causal, masked and denoising models beside each sequence's own softmax; lengths and texts."""

import math
import random

import pytest
import torch
import transformers
from support.refusals import refusal
from support.tiny import byte_level
from tokenizers import processors
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, tokenization_utils_base

from modeling_gpt1 import CausalLMScorer, ContinuationScore, GPT1ForCausalLM, ScoringRequest
from modeling_gpt1.families import FAMILIES
from modeling_gpt1.inference.scoring import DenoisingLMScorer, MaskedLMScorer, base, causal, scorer_class_of

SIZES = {"vocab_size": 101, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 24}
LLAMA = {**SIZES, "hidden_size": 32, "intermediate_size": 48}
BUILT_IN = {
    "OpenAIGPT": {**SIZES, "n_embd": 32},
    "GPT2": {**SIZES, "n_embd": 32, "bos_token_id": None, "eos_token_id": None},
    "Llama": LLAMA,
    "Mistral": {**LLAMA, "num_key_value_heads": 2, "sliding_window": 5},
}


def built_in(name, fields, head="ForCausalLM"):
    return getattr(transformers, f"{name}{head}")(getattr(transformers, f"{name}Config")(**fields))


@pytest.fixture(scope="module", params=["sdpa", "eager", *BUILT_IN])
def model(request, tiny_model, randomise):
    if request.param not in BUILT_IN:
        return tiny_model(GPT1ForCausalLM, attn_implementation=request.param)
    head = "LMHeadModel" if "GPT" in request.param else "ForCausalLM"
    return randomise(built_in(request.param, BUILT_IN[request.param], head)).eval()


@pytest.fixture(scope="module")
def our_model(tiny_model):
    return tiny_model(GPT1ForCausalLM)


@pytest.fixture(scope="module")
def cache_model(tiny_model):
    """It reads keys and values of a context as other decoders do: plans need the masks of `sdpa`."""
    return tiny_model(GPT1ForCausalLM, attn_implementation="eager")


@pytest.fixture
def warnings(monkeypatch):
    """What the scorer warns of."""
    texts = []
    monkeypatch.setattr(base.logger, "warning", texts.append)
    return texts


@pytest.fixture
def family_scorer(plain_tokenizer, randomise):
    """Makes the scorer of a family, with 30 positions."""

    def make(family, **arguments):
        family = FAMILIES[family]
        tokenizer = family.pretraining_tokenizer(plain_tokenizer)
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
        config = family.make_config(tokenizer, **sizes, max_position_embeddings=30)
        tokenizer.model_max_length = family.longest_sequence(config)
        scorer_class = scorer_class_of(config)
        auto_class = AutoModelForSeq2SeqLM if scorer_class is DenoisingLMScorer else AutoModelForMaskedLM
        torch.manual_seed(0)
        return scorer_class(randomise(auto_class.from_config(config)).eval(), tokenizer, **arguments)

    return make


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_a_model_just_pre_trained_is_scored_as_its_saved_folder_opens(family, family_scorer, tmp_path):
    opened = family_scorer(family)
    whole = FAMILIES[family].model_class(opened.model.config).eval()
    whole.save_pretrained(tmp_path)
    opened.model = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    requests = [ScoringRequest([7, 8], [[9, 10], [11]])]
    assert MaskedLMScorer(whole, opened.tokenizer).score_ids(requests) == opened.score_ids(requests)


def make_requests(number=12, seed=0, top=101):
    """Ragged in every way: contexts of 0 to 13 tokens, up to 4 continuations of 0 to 10 tokens each."""
    draw = random.Random(seed)

    def ids(longest):
        return [draw.randrange(1, top) for _ in range(draw.randrange(longest + 1))]

    return [ScoringRequest(ids(13), [ids(10) for _ in range(draw.randrange(5))]) for _ in range(number)]


def log_prob(logits, token):
    logits = logits.double()
    return (logits[token] - logits.exp().sum().log()).item()


@torch.no_grad()
def alone(scorer, context, continuation):
    """The score of each predicted token of a continuation, from the definitions."""
    model = scorer.model
    tokenizer = scorer.tokenizer
    context = list(context)
    continuation = list(continuation)
    if isinstance(scorer, CausalLMScorer):
        ids = context + continuation
        logits = model(torch.tensor([ids[:-1]])).logits[0] if len(ids) > 1 else []
        return [log_prob(logits[place - 1], ids[place]) for place in range(max(len(context), 1), len(ids))]
    ids = [tokenizer.cls_token_id, *context, *continuation, tokenizer.sep_token_id]
    first = 1 + len(context)
    scores = []
    for place in range(first, first + len(continuation)):
        if isinstance(scorer, MaskedLMScorer):
            masked = [*ids[:place], tokenizer.mask_token_id, *ids[place + 1 :]]
            logits = model(torch.tensor([masked])).logits[0, place]
        else:
            damaged = torch.tensor([[*ids[:first], tokenizer.mask_token_id, ids[-1]]])
            read = torch.tensor([[tokenizer.eos_token_id, *ids[:place]]])
            logits = model(damaged, decoder_input_ids=read).logits[0, -1]
        scores.append(log_prob(logits, ids[place]))
    return scores


def largest_difference(scorer, requests, scores=None):
    """Of the scores of requests, or of those given, from the definitions."""
    differences = [0.0]
    for (context, continuations), of_request in zip(requests, scores or scorer.score_ids(requests), strict=True):
        for continuation, score in zip(continuations, of_request, strict=True):
            expected = alone(scorer, context, continuation)
            differences += [abs(a - b) for a, b in zip(expected, score.token_log_probs, strict=True)]
    return max(differences)


@pytest.mark.parametrize("shares_contexts", [True, False])
@pytest.mark.parametrize("batch_tokens", [4096, 60, 1])
def test_scores_in_batches_are_those_of_each_alone(model, shares_contexts, batch_tokens):
    scorer = CausalLMScorer(model, batch_tokens=batch_tokens)
    scorer.shares_contexts &= shares_contexts
    assert largest_difference(scorer, make_requests()) < 1e-5


OF_BERT = {**LLAMA, "is_decoder": True, "pad_token_id": 1}
OF_BART = {"vocab_size": 101, "d_model": 32, "max_position_embeddings": 24, "is_decoder": True}
OF_BART |= {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
DECODERS = {
    "MegatronBert": OF_BERT,  # a cache for an encoder, too
    "Roberta": {**OF_BERT, "max_position_embeddings": 26},  # positions begin after the id of padding
    "Bart": OF_BART,  # takes no positions
    "Lfm2": {**LLAMA, "num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]},  # a state in the cache
}


@pytest.mark.parametrize("name", DECODERS)
def test_batches_of_other_decoders_are_exact(name, randomise):
    scorer = CausalLMScorer(randomise(built_in(name, DECODERS[name])).eval())
    requests = [ScoringRequest([3 + id % 90 for id in ids], rest) for ids, rest in make_requests()]
    if name == "MegatronBert" and transformers.__version__.startswith("5.17."):  # it sees the tokens that follow
        assert "MegatronBertForCausalLM is not a causal language model" in refusal(scorer.score_ids, requests)
        return
    assert largest_difference(scorer, requests) < 1e-4


def test_a_model_that_reads_what_it_predicts_is_refused(randomise):
    """XLNet reads all tokens: it scored each with that token before it. A weakly trained BERT hardly shows that."""
    xlnet = built_in("XLNet", dict(vocab_size=101, d_model=32, n_layer=2, n_head=4, d_inner=48), "LMHeadModel")
    for model in (randomise(xlnet), built_in("Bert", {**LLAMA, "initializer_range": 1e-5}, "LMHeadModel")):
        with pytest.raises(ValueError, match=f"{type(model).__name__} is not a causal language model"):
            CausalLMScorer(model.eval()).score_ids(make_requests())


def test_a_masked_model_that_reads_padding_gets_each_row_alone(plain_tokenizer, randomise, warnings):
    tokenizer = FAMILIES["bert"].pretraining_tokenizer(plain_tokenizer)
    config = transformers.FNetConfig(**{**LLAMA, "vocab_size": len(tokenizer), "max_position_embeddings": 30})
    scorer = MaskedLMScorer(randomise(AutoModelForMaskedLM.from_config(config)).eval(), tokenizer)
    for _ in range(2):
        assert largest_difference(scorer, make_requests(8, top=80)) < 1e-4
    assert warnings == ["FNetForMaskedLM gives a row other scores in a batch than alone: each row is scored alone."]


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "bart"])
def test_batches_of_other_families_are_exact(family, family_scorer):
    requests = make_requests(8, top=80)
    scorer = family_scorer(family)
    for batch_tokens in (4096, 60, 1):
        scorer.batch_tokens = batch_tokens
        assert largest_difference(scorer, requests) < 1e-5
        assert all(rows * length <= batch_tokens or rows == 1 for rows, length in read_tokens(scorer, requests))
    # Negative control: a context with another last token.
    others = [ScoringRequest([*context[:-1], 81 - context[-1]] if context else [], rest) for context, rest in requests]
    assert largest_difference(scorer, requests, scorer.score_ids(others)) > 1e-3


def test_the_comparison_sees_a_mix_up(our_model, cache_model, monkeypatch):
    """Negative controls: keys of another row, and a plan that shares a token too many."""
    select = causal._select_rows
    plan = causal.plan_batch
    monkeypatch.setattr(causal, "_select_rows", lambda cache, rows: select(cache, rows.flip(0)))
    monkeypatch.setattr(causal, "plan_batch", lambda mask, shared: plan(mask, [number + 1 for number in shared]))
    requests = [ScoringRequest([1, 2, 3], [[4, 5, 6], [7, 8, 9]]), ScoringRequest([4, 5, 6], [[7, 8, 9], [1, 2, 3]])]
    for model in (our_model, cache_model):
        assert largest_difference(CausalLMScorer(model), requests) > 0.1


def read_tokens(scorer, requests):
    """How many tokens the decoder reads, padding included, in each call."""
    seen = []
    handle = scorer.model.get_input_embeddings().register_forward_hook(
        lambda module, args, output: seen.append(tuple(args[0].shape))
    )
    scorer.score_ids(requests)
    handle.remove()
    return seen


def test_a_context_is_read_once(cache_model, our_model, randomise):
    requests = [ScoringRequest(list(range(15)), [[20 + choice] * (2 + choice) for choice in range(4)])]
    assert read_tokens(CausalLMScorer(our_model), requests) == [(1, 15 + 1 + 2 + 3 + 4)]
    assert read_tokens(CausalLMScorer(cache_model), requests) == [(1, 15), (4, 4)]
    assert read_tokens(CausalLMScorer(cache_model, batch_tokens=38), requests) == [(1, 15), (2, 4), (2, 2)]
    uneven = [ScoringRequest([1, 2, 3], [[4] * (1 + length) for length in [8] * 8 + [7, 6, 1]])]
    assert read_tokens(CausalLMScorer(cache_model), uneven) == [(1, 3), (9, 8), (2, 6)]
    short = [ScoringRequest([1, 2, 3], [[4], [5]]), ScoringRequest([6], [[4], [5, 6]])]
    assert read_tokens(CausalLMScorer(our_model), short) == [(1, 3 + 1 + 1)]
    pair = [ScoringRequest([1, 2, 3, 4, 5], [[6, 7]] * 4)] * 2  # 4 rows of 6 tokens each
    assert read_tokens(CausalLMScorer(cache_model, batch_tokens=48), pair) == [(2, 5), (8, 1)]
    assert read_tokens(CausalLMScorer(cache_model, batch_tokens=47), pair) == [(1, 5), (4, 1)] * 2
    assert read_tokens(CausalLMScorer(our_model, batch_tokens=48), pair) == [(1, 2 * (5 + 4))]
    assert read_tokens(CausalLMScorer(our_model, batch_tokens=47), pair) == [(1, 5 + 4)] * 2
    labels = [ScoringRequest([1, 2, 3], [[4], [5]]), ScoringRequest([6], [[4], [5]])]
    assert read_tokens(CausalLMScorer(cache_model), labels) == [(2, 3)]
    without_cache = CausalLMScorer(randomise(built_in("OpenAIGPT", BUILT_IN["OpenAIGPT"], "LMHeadModel")).eval())
    without_cache.score_ids([])  # tries a small batch first
    assert read_tokens(without_cache, [ScoringRequest([1, 2, 3], [[4, 5], [6]])]) == [(2, 4)]


def test_the_model_stays_as_it_was(tiny_model):
    scorer = CausalLMScorer(tiny_model(GPT1ForCausalLM, embd_pdrop=0.5).train())
    scores = scorer.score_ids(requests := make_requests(number=4))
    assert scorer.model.training
    scorer.model.eval()
    assert largest_difference(scorer, requests, scores) < 1e-5


def test_no_gradients_are_kept_while_scoring(tiny_model):
    model, kept = tiny_model(GPT1ForCausalLM), []
    model.transformer.register_forward_hook(lambda module, inputs, outputs: kept.append(outputs[0].requires_grad))
    CausalLMScorer(model).score_ids(make_requests(number=4))
    assert kept
    assert not any(kept)


@torch.no_grad()
def test_greedy_continuations_are_known(model):
    """The model's own choices are greedy; with any token changed they are not."""
    context = [3, 1, 4]
    greedy = []
    for _ in range(4):
        greedy.append(model(torch.tensor([context + greedy])).logits[0, -1].argmax().item())
    changed = [[*greedy[:at], (token + 1) % 101, *greedy[at + 1 :]] for at, token in enumerate(greedy)]
    for shares_contexts in (True, False):
        scorer = CausalLMScorer(model)
        scorer.shares_contexts &= shares_contexts
        ((first, *others),) = scorer.score_ids([ScoringRequest(context, [greedy, *changed])])
        assert first.is_greedy
        assert not any(score.is_greedy for score in others)


def test_greedy_tokens_of_a_masked_model(family_scorer):
    scorer = family_scorer("roberta")
    tokenizer = scorer.tokenizer
    masked = [tokenizer.cls_token_id, 5, tokenizer.mask_token_id, tokenizer.sep_token_id]
    best = scorer.model(torch.tensor([masked])).logits[0, 2].argmax().item()
    (scores,) = scorer.score_ids([([5], [[best], [best - 1]])])
    assert [score.is_greedy for score in scores] == [True, False]


@torch.no_grad()
def test_tokens_read_from_left_to_right_come_in_order(family_scorer):
    """A row grows with its token's place, and batches begin with the longest rows."""
    scorer = family_scorer("bert", num_masks=3)
    tokenizer = scorer.tokenizer
    requests = [([5, 6], [[7, 8, 9, 10], [11, 12]]), ([], [[13, 14, 15]])]
    for (context, continuations), scores in zip(requests, scorer.score_ids(requests), strict=True):
        for continuation, score in zip(continuations, scores, strict=True):
            expected = []
            for number, target in enumerate(continuation):
                before = [tokenizer.cls_token_id, *context, *continuation[:number]]
                ids = [*before, *[tokenizer.mask_token_id] * 3, tokenizer.sep_token_id]
                logits = scorer.model(torch.tensor([ids])).logits[0, len(before)]
                expected.append(logits.log_softmax(-1)[target].item())
            assert score.token_log_probs == pytest.approx(expected, abs=1e-5)


def test_masks_behind_the_last_token_have_positions(family_scorer):
    scorer, read = family_scorer("bert", num_masks=3), []
    handle = scorer.model.register_forward_pre_hook(
        lambda module, args, inputs: read.append(inputs["input_ids"].shape[1]), with_kwargs=True
    )
    ((score,),) = scorer.score_ids([(list(range(1, 41)), [[7, 8]])])
    handle.remove()
    positions = scorer.model.config.max_position_embeddings
    assert len(score.token_log_probs) == 2
    assert positions - 1 <= max(read) <= positions


def test_the_architecture_decides_the_method():
    masked = (FAMILIES[name].config_class() for name in ("bert", "roberta", "albert"))
    assert {scorer_class_of(config) for config in masked} == {MaskedLMScorer}
    causal = (transformers.GPT2Config(), FAMILIES["gpt1"].make_config(), transformers.BertConfig(is_decoder=True))
    assert {scorer_class_of(config) for config in causal} == {CausalLMScorer}
    denoising = (FAMILIES["bart"].make_config(), transformers.T5Config())
    assert {scorer_class_of(config) for config in denoising} == {DenoisingLMScorer}


def test_a_score_has_a_total_and_a_mean_and_an_empty_one_no_mean():
    score = ContinuationScore((-1.0, -2.5))
    assert (score.total, score.mean) == (-3.5, -1.75)
    assert ContinuationScore(()).total == 0
    assert math.isnan(ContinuationScore(()).mean)


def damaged(scorer):
    """The scorer, whose model's weights became NaN, as those of a run that diverged."""
    with torch.no_grad():
        for weights in scorer.model.parameters():
            weights.fill_(math.nan)
    return scorer


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_causal_model_whose_scores_are_not_numbers_is_refused(attention, tiny_model):
    scorer = damaged(CausalLMScorer(tiny_model(GPT1ForCausalLM, attn_implementation=attention)))
    said = refusal(scorer.score_ids, make_requests(number=4))
    assert "scores by GPT1ForCausalLM (torch.float32) are not numbers (NaN)" in said
    assert "Use another checkpoint" in said


def test_a_model_that_is_tried_first_is_refused_for_scores_that_are_not_numbers(randomise):
    scorer = damaged(CausalLMScorer(randomise(built_in("Llama", LLAMA)).eval()))
    assert "scores by LlamaForCausalLM (torch.float32) are not numbers" in refusal(scorer.score_ids, make_requests())


@pytest.mark.parametrize("family, name", [("bert", "BertForMaskedLM"), ("bart", "BartForConditionalGeneration")])
def test_other_families_whose_scores_are_not_numbers_are_refused(family, name, family_scorer):
    scorer = damaged(family_scorer(family))
    assert f"scores by {name} (torch.float32) are not numbers" in refusal(scorer.score_ids, make_requests(4, top=80))


def test_a_token_without_probability_has_a_score(tiny_model):
    def forbid(model, inputs, output):
        output.logits[..., 7] = -math.inf

    scorer = CausalLMScorer(tiny_model(GPT1ForCausalLM))
    scorer.model.register_forward_hook(forbid)
    ((impossible, possible),) = scorer.score_ids([([1, 2], [[7], [8]])])
    assert impossible.token_log_probs == (-math.inf,)
    assert math.isfinite(possible.total)


def test_first_token_without_a_context(our_model):
    """It is not predicted, and the others are as if it had been the context."""
    scorer = CausalLMScorer(our_model)
    (whole, single, nothing), (rest,) = scorer.score_ids([([], [[7, 8, 9], [7], []]), ([7], [[8, 9]])])
    assert whole.token_log_probs == pytest.approx(rest.token_log_probs, abs=1e-5)
    assert single.token_log_probs == nothing.token_log_probs == ()


def test_start_ids_stand_before_every_context_and_are_not_cut(our_model):
    scorer = CausalLMScorer(our_model, start_ids=[3, 4], max_length=10)
    requests = [([], [[7, 8]]), ([5], [[7]]), (range(20), [[50, 51]])]
    read = ([3, 4], [3, 4, 5], [3, 4, *range(13, 20)])
    for (score,), context, (_, (ids,)) in zip(scorer.score_ids(requests), read, requests, strict=True):
        assert score.token_log_probs == pytest.approx(alone(scorer, context, ids), abs=1e-5)


def test_a_long_context_loses_its_beginning(our_model, warnings):
    """24 positions: the last token of a continuation is not read, so 25 tokens fit; all continuations see the same."""
    context = list(range(30))
    scorer = CausalLMScorer(our_model)
    ((long, short), (fitting,)) = scorer.score_ids([(context, [[50, 51, 52, 53], [60]]), (list(range(24)), [[70]])])
    assert long.token_log_probs == pytest.approx(alone(scorer, context[9:], [50, 51, 52, 53]), abs=1e-5)
    assert short.token_log_probs == pytest.approx(alone(scorer, context[9:], [60]), abs=1e-5)
    assert fitting.token_log_probs == pytest.approx(alone(scorer, range(24), [70]), abs=1e-5)
    assert warnings == ["1 of 2 contexts were cut at the beginning, by up to 9 tokens, to fit into 24 tokens."]


def test_rows_that_only_fit_apart(cache_model):
    """A long context and a long continuation of another one would together need more positions than there are."""
    requests = [([*range(20)], [[1, 2], [3, 4]]), ([5, 6], [[*range(15)], [*range(15, 30)]])]
    scorer = CausalLMScorer(cache_model)
    assert read_tokens(scorer, requests) == [(1, 20), (2, 1), (1, 2), (2, 14)]
    assert largest_difference(scorer, requests) < 1e-5


def test_a_continuation_that_is_too_long(our_model):
    scorer = CausalLMScorer(our_model, start_ids=[1])
    scorer.score_ids([([5], [[2] * 23])])
    with pytest.raises(ValueError, match="Request 1 has a continuation of 24 tokens, but at most 23 .* in parts,"):
        scorer.score_ids([([5], [[2]]), ([5], [[2], [2] * 24])])


@pytest.mark.parametrize(("family", "longest"), [("roberta", 29), ("bart", 30)])
def test_lengths_and_facts_of_other_families(family, longest, family_scorer):
    """RoBERTa's positions begin after that of padding, which its tokenizer need not say."""
    scorer = family_scorer(family)
    context = list(range(1, 41))
    ((nothing_before,), (empty,), (cut,)) = scorer.score_ids([([], [[5, 6]]), ([5], [[]]), (context, [[7, 8]])])
    assert len(nothing_before.token_log_probs) == 2
    assert empty.token_log_probs == ()
    fits = longest - 4  # class, separator and two tokens
    assert cut.token_log_probs == pytest.approx(alone(scorer, context[-fits:], [7, 8]), abs=1e-5)
    if family == "roberta":
        scorer.tokenizer.model_max_length = 10**30
        assert type(scorer)(scorer.model, scorer.tokenizer).max_length == scorer.max_length == 27


@pytest.fixture(scope="module")
def byte_level_tokenizer():
    """As GPT-2's: words begin with their space."""
    return byte_level(["the cat sat on the mat and the dog sat too"] * 3)


def test_a_space_belongs_to_the_continuation_and_no_token_spans_the_boundary(byte_level_tokenizer, our_model):
    scorer = CausalLMScorer(our_model, byte_level_tokenizer)
    whole = byte_level_tokenizer("the cat sat on the mat")["input_ids"]
    for context, continuation in [("the cat", " sat on the mat"), ("the cat ", "sat on the mat")]:
        ((ids, (rest,)),) = scorer.encode([(context, [continuation])])
        assert ids == byte_level_tokenizer("the cat")["input_ids"]
        assert ids + rest == whole
    assert scorer.encode([("", [" sat", "sat"])]) == [([], byte_level_tokenizer([" sat", "sat"])["input_ids"])]
    context, rest, word = (byte_level_tokenizer(text)["input_ids"] for text in ("the c", "at", " cat"))
    assert byte_level_tokenizer("the cat")["input_ids"] != context + rest
    assert scorer.encode([("the c", ["at", " cat"])])[0] == (context, [rest, word])
    ((_, (spelt,)),) = scorer.encode([("the", [" <|end|>"])])
    assert byte_level_tokenizer.eos_token_id not in spelt
    assert len(spelt) > 3


def test_words_of_our_tokenizer_join_exactly(tiny_tokenizer, our_model):
    scorer = CausalLMScorer(our_model, tiny_tokenizer)
    texts = ["the film was", "the film was slow", "the film was slow, but"]
    short, middle, long = tiny_tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert scorer.encode([(texts[0], [" slow", " slow, but"]), (texts[1], [", but"])]) == [
        (short, [middle[len(short) :], long[len(short) :]]),
        (middle, [long[len(middle) :]]),
    ]
    assert tiny_tokenizer.extract_token_id not in scorer.encode([("a film", [" [e]"])])[0].continuations[0]


def test_a_context_without_a_token_is_told(tiny_tokenizer, tiny_model, warnings, monkeypatch):
    monkeypatch.setattr(base.logger, "warning_once", warnings.append)
    scorer = CausalLMScorer(tiny_model(GPT1ForCausalLM, vocab_size=len(tiny_tokenizer)), tiny_tokenizer)
    assert scorer.score([("\n", ["the old farmer"])]) == scorer.score([(" ", ["the old farmer"])])
    assert warnings == ["The context '\\n' has no token: what follows is scored without context."]
    line_end = tiny_tokenizer.convert_tokens_to_ids("\n</w>")
    behind = CausalLMScorer(scorer.model, tiny_tokenizer, start_ids=[line_end])
    assert behind.score([("\n", ["the old"])]) == scorer.score_ids([([line_end], scorer.ids_of(["the old"]))])
    assert line_end != tiny_tokenizer.unk_token_id
    assert len(warnings) == 1


def test_texts_are_scored_as_their_ids(tiny_tokenizer, tiny_model, family_scorer, plain_tokenizer):
    scorer = CausalLMScorer(tiny_model(GPT1ForCausalLM, vocab_size=len(tiny_tokenizer)), tiny_tokenizer)
    requests = [("the old farmer", [" walked to the market", " smiled", ""]), ("", ["he paid five dollars ."])]
    assert scorer.score(requests) == scorer.score_ids(scorer.encode(requests))
    assert scorer.score([]) == []
    assert scorer.score([("the", [])]) == [[]]
    for wrong in (("the old", " farmer"), "the old farmer", (None, ["the old", " farmer"])):
        with pytest.raises(ValueError, match=r"Request 1 is .*the old.* farmer.*, but a pair .* such as \(\"It w"):
            scorer.score([("the old", [" girl"]), wrong])
    with pytest.raises(
        ValueError, match="needs a mask token, but .* Pass a tokenizer with one, or use CausalLMScorer"
    ):
        MaskedLMScorer(scorer.model, tiny_tokenizer)
    with pytest.raises(ValueError, match="DenoisingLMScorer cannot score with a GPT1ForCausalLM. Use CausalLMScorer"):
        DenoisingLMScorer(scorer.model, tiny_tokenizer)
    assert "`model` is 'folder'. Pass an opened model" in refusal(CausalLMScorer, "folder", tiny_tokenizer)
    assert "`tokenizer` is a str. Pass what `open_tokenizer` returns" in refusal(
        CausalLMScorer, scorer.model, "folder"
    )
    masked = family_scorer("roberta", batch_tokens=100)
    with pytest.raises(ValueError, match="cannot score with a RobertaForMaskedLM. Use MaskedLMScorer"):
        DenoisingLMScorer(masked.model, masked.tokenizer)
    context, rest = (plain_tokenizer(text)["input_ids"] for text in ("the old farmer", "walked to the market"))
    ((score,),) = masked.score([("the old farmer", [" walked to the market"])])
    assert score.total == pytest.approx(sum(alone(masked, context, rest)), abs=1e-4)


def test_beginning_of_text_where_the_tokenizer_puts_one(byte_level_tokenizer, tiny_tokenizer, our_model):
    assert CausalLMScorer(our_model, byte_level_tokenizer).start_ids == []
    assert CausalLMScorer(our_model, tiny_tokenizer).start_ids == []
    with_start = byte_level(["the cat"])
    special = [("<|end|>", with_start.bos_token_id)]
    with_start.backend_tokenizer.post_processor = processors.TemplateProcessing("<|end|> $A", special_tokens=special)
    scorer = CausalLMScorer(our_model, with_start)
    assert scorer.start_ids == [with_start.bos_token_id]
    assert with_start.bos_token_id not in scorer.encode([("the", [" cat"])])[0].context


def test_only_the_scorer_speaks_of_long_texts(tiny_tokenizer, tiny_model, warnings, monkeypatch):
    """The tokenizer's own warning would name its `model_max_length`, while the scorer says what it cuts."""
    monkeypatch.setattr(tokenization_utils_base.logger, "warning", warnings.append)
    scorer = CausalLMScorer(tiny_model(GPT1ForCausalLM, vocab_size=len(tiny_tokenizer)), tiny_tokenizer)
    monkeypatch.setattr(tiny_tokenizer, "model_max_length", 24)
    scorer.score([("the film was slow . " * 10, [" he", " she"])])
    assert len(warnings) == 1
    assert "contexts were cut" in warnings[0]


@pytest.fixture
def scorer_without_tokenizer(our_model):
    return CausalLMScorer(our_model)


NO_PAIRS = [("a good film",), (), 5, ("a", ["b"], ["c"]), ("a", 5), ("a", [5])]


@pytest.mark.parametrize("given", NO_PAIRS)
def test_what_is_no_pair_of_texts_is_refused(given, scorer_without_tokenizer):
    with pytest.raises(ValueError, match="Request 0 is .* a pair of a context and a list of continuations is needed"):
        scorer_without_tokenizer.encode([given])


def test_texts_need_a_tokenizer(scorer_without_tokenizer):
    with pytest.raises(
        ValueError, match="CausalLMScorer has no tokenizer for texts. Pass it one, or call `score_ids`"
    ):
        scorer_without_tokenizer.score([("a", ["b"])])


def test_a_masked_model_needs_its_tokenizer(our_model):
    with pytest.raises(ValueError, match="MaskedLMScorer needs the model's tokenizer. Pass it as `tokenizer`"):
        MaskedLMScorer(our_model)


@pytest.mark.parametrize("family, name", [("bert", "MaskedLMScorer"), ("bart", "DenoisingLMScorer")])
@pytest.mark.parametrize("missing", ["cls_token", "sep_token"])
def test_a_tokenizer_without_class_or_separator_token_is_refused(missing, family, name, family_scorer):
    scorer = family_scorer(family)
    setattr(scorer.tokenizer, missing, None)
    said = refusal(type(scorer), scorer.model, scorer.tokenizer)
    assert f"{name} reads texts between a class and a separator token" in said
    assert f"`{missing}` is None" in said
    assert "Set both to the tokens that stood around texts" in said
