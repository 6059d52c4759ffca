"""Scores by masked models and encoder-decoders beside a naive loop over tokens, each in a batch of its own."""

import random

import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    BertConfig,
    GPT2Config,
    LlamaConfig,
    T5Config,
)

from modeling_gpt1 import CausalLMScorer, ScoringRequest
from modeling_gpt1.inference.family_scoring import DenoisingLMScorer, MaskedLMScorer, scorer_class_of
from modeling_gpt1.training.families import FAMILIES

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def make_scorer(family, plain_tokenizer, randomise, **arguments):
    family = FAMILIES[family]
    tokenizer = family.tokenizer_of(plain_tokenizer)
    config = family.make_config(tokenizer, **SIZES, max_position_embeddings=30)
    tokenizer.model_max_length = family.longest_sequence(config)
    scorer_class = scorer_class_of(config)
    auto_class = AutoModelForSeq2SeqLM if scorer_class is DenoisingLMScorer else AutoModelForMaskedLM
    torch.manual_seed(0)
    return scorer_class(randomise(auto_class.from_config(config)).eval(), tokenizer, **arguments)


def make_requests(number=8, seed=0):
    """Ragged in every way: contexts of 0 to 9 tokens, up to 3 continuations of 0 to 6 tokens each."""
    draw = random.Random(seed)

    def ids(longest):
        return [draw.randrange(1, 80) for _ in range(draw.randrange(longest + 1))]

    return [ScoringRequest(ids(9), [ids(6) for _ in range(draw.randrange(4))]) for _ in range(number)]


def log_prob(logits, token):
    logits = logits.double()
    return (logits[token] - logits.exp().sum().log()).item()


@torch.no_grad()
def alone(scorer, context, continuation):
    """The score of each token of a continuation, from the definitions."""
    model, tokenizer = scorer.model, scorer.tokenizer
    ids = [tokenizer.cls_token_id, *context, *continuation, tokenizer.sep_token_id]
    first, scores = 1 + len(context), []
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


def largest_difference(scorer, requests, found):
    differences = [0.0]
    for (context, continuations), of_request in zip(requests, found, strict=True):
        for continuation, score in zip(continuations, of_request, strict=True):
            expected = alone(scorer, context, continuation)
            differences += [abs(a - b) for a, b in zip(expected, score.token_log_probs, strict=True)]
    return max(differences)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "bart"])
def test_batches_are_exact(family, plain_tokenizer, randomise):
    requests = make_requests()
    assert sum(map(len, (ids for request in requests for ids in request.continuations))) > 20
    scorer = make_scorer(family, plain_tokenizer, randomise)
    for batch_tokens in (4096, 60, 1):
        scorer.batch_tokens = batch_tokens
        assert largest_difference(scorer, requests, scorer.score_ids(requests)) < 1e-5
    # Negative control: a context with another last token.
    others = [ScoringRequest([*context[:-1], 81 - context[-1]] if context else [], rest) for context, rest in requests]
    assert largest_difference(scorer, requests, scorer.score_ids(others)) > 1e-3


def test_positions_before_those_of_text_are_no_place_for_text(plain_tokenizer, randomise):
    """RoBERTa's begin after that of padding, which its tokenizer need not say."""
    scorer = make_scorer("roberta", plain_tokenizer, randomise)
    scorer.tokenizer.model_max_length = 10**30
    without_limit = MaskedLMScorer(scorer.model, scorer.tokenizer)
    request = [(list(range(1, 41)), [[7, 8]])]
    assert without_limit.score_ids(request) == scorer.score_ids(request)
    assert without_limit.max_length == scorer.max_length == 27


@pytest.mark.parametrize("family", ["roberta", "bart"])
def test_texts_lengths_and_facts(family, plain_tokenizer, randomise):
    scorer = make_scorer(family, plain_tokenizer, randomise, batch_tokens=100)
    ((one, other),) = scorer.score([("the old farmer", [" walked", " walked to the market"])])
    context = plain_tokenizer("the old farmer")["input_ids"]
    for score, text in ((one, "walked"), (other, "walked to the market")):
        expected = alone(scorer, context, plain_tokenizer(text)["input_ids"])
        assert score.total == pytest.approx(sum(expected), abs=1e-4)
        assert (score.num_unpredicted, score.num_cut) == (0, 0)
    ((alone_score,),) = scorer.score_ids([([], [[5, 6]])])  # without a context every token is scored
    assert len(alone_score.token_log_probs) == 2 and alone_score.num_unpredicted == 0
    ((empty,),) = scorer.score_ids([([5], [[]])])
    assert empty.token_log_probs == ()

    longest = scorer.tokenizer.model_max_length
    assert longest == {"roberta": 29, "bart": 30}[family]
    context = list(range(1, 41))
    ((cut,),) = scorer.score_ids([(context, [[7, 8]])])
    fits = longest - 4  # class, separator and two tokens
    assert cut.num_cut == 40 - fits
    assert cut.token_log_probs == pytest.approx(alone(scorer, context[-fits:], [7, 8]), abs=1e-5)


def test_greedy_tokens(plain_tokenizer, randomise):
    scorer = make_scorer("roberta", plain_tokenizer, randomise)
    tokenizer = scorer.tokenizer
    masked = [tokenizer.cls_token_id, 5, tokenizer.mask_token_id, tokenizer.sep_token_id]
    best = scorer.model(torch.tensor([masked])).logits[0, 2].argmax().item()
    (scores,) = scorer.score_ids([([5], [[best], [best - 1]])])
    assert [score.is_greedy for score in scores] == [True, False]


def test_the_architecture_decides_the_method():
    masked = (FAMILIES[name].config_class() for name in ("bert", "roberta", "albert"))
    assert {scorer_class_of(config) for config in masked} == {MaskedLMScorer}
    causal = (GPT2Config(), LlamaConfig(), FAMILIES["gpt1"].make_config(), BertConfig(is_decoder=True))
    assert {scorer_class_of(config) for config in causal} == {CausalLMScorer}
    assert {scorer_class_of(config) for config in (FAMILIES["bart"].make_config(), T5Config())} == {DenoisingLMScorer}
    methods = [scorer.method for scorer in (CausalLMScorer, MaskedLMScorer, DenoisingLMScorer)]
    assert methods == ["log-probability", "pseudo-log-likelihood", "decoder log-probability"]


def test_a_tokenizer_without_a_mask_is_refused(plain_tokenizer, randomise):
    scorer = make_scorer("roberta", plain_tokenizer, randomise)
    with pytest.raises(ValueError) as refused:
        MaskedLMScorer(scorer.model, plain_tokenizer)
    assert str(refused.value) == (
        "GPT1Tokenizer has no cls_token, sep_token, mask_token, which scoring by pseudo-log-likelihood needs. Give "
        "the tokenizer that RobertaForMaskedLM was trained with."
    )


def test_a_decoder_without_a_first_token_is_refused(plain_tokenizer, randomise):
    scorer = make_scorer("bart", plain_tokenizer, randomise)
    DenoisingLMScorer(scorer.model, scorer.tokenizer)
    scorer.model.config.decoder_start_token_id = None
    with pytest.raises(ValueError) as refused:
        DenoisingLMScorer(scorer.model, scorer.tokenizer)
    assert str(refused.value) == (
        "The configuration of BartForConditionalGeneration names no `decoder_start_token_id`, with which its decoder "
        "begins. Add it to the config.json."
    )
