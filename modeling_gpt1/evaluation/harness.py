"""The model `gpt1` of lm-evaluation-harness: any causal language model of transformers, each context read once.

Here the answers of a question share its context, by `CausalLMScorer`; requests, numbers (of whole sentences with
`sentence_prefix`) and generation are otherwise those of its model `hf`, which takes another tokenizer for openai-gpt.
"""

from collections import defaultdict
from collections.abc import Sequence
from logging import getLogger
from typing import NamedTuple

from lm_eval.api.instance import Instance
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from tqdm import tqdm
from transformers import OpenAIGPTTokenizer
from transformers.utils import logging

from tokenization import GPT1Tokenizer
from tokenization.errors import UserError
from tokenization.text.control_tokens import unknown_share

from ..inference.scoring import CausalLMScorer, ScoringRequest

logger = logging.get_logger(__name__)
# The harness takes a model that it does not list for a decoder, and says so; that is checked here.
getLogger("lm_eval.models.huggingface").addFilter(lambda record: "neither marked as" not in record.getMessage())

CONTEXTS_AT_ONCE = 256  # between two steps of the progress bar


class HarnessRequest(NamedTuple):
    """A continuation to score."""

    texts: tuple[str, str] | None
    """Its context and itself; None for a window of a long text."""
    context: list[int]
    continuation: list[int]

    @property
    def is_whole_sentence(self) -> bool:
        return self.texts is not None and self.texts[0] == ""


@register_model("gpt1")
class SharedContextLM(HFLM):
    """A causal language model for lm-evaluation-harness whose answers to a question share the question's context.

    Args:
        pretrained (`str` or [`PreTrainedModel`]): folder, hub id or model.
        batch_tokens (`int`, defaults to 2048): maximum tokens of a batch while scoring; see [`CausalLMScorer`].
        batch_size (`int` or `str`, defaults to 8): prompts, or windows of a long text, that are read at once.
        add_bos_token (`bool`, *optional*): as in `hf`. Default: what the tokenizer does, but never `[s]` and `[e]`
            around a text, as the tokenizer of a fine-tuned GPT-1 writes them for its classifier.
        sentence_prefix (`bool`, defaults to `False`): whether a whole sentence without context, such as one of BLiMP,
            is read behind the end-of-text token and scored from its first token on, as by `hf`. Default: from the
            second, as by the pipelines of the BabyLM challenge.
        kwargs: all other arguments of `hf`.

    Raises:
        ValueError: the model is no causal language model: it has an encoder, or reads the tokens that it predicts.
    """

    def __init__(
        self,
        pretrained,
        batch_tokens: int = 2048,
        batch_size: int | str = 8,
        add_bos_token: bool | None = None,
        sentence_prefix: bool = False,
        **kwargs,
    ):
        super().__init__(pretrained, batch_size=batch_size, add_bos_token=add_bos_token, **kwargs)
        if self.backend != "causal":
            raise UserError(
                f"{pretrained} is an encoder-decoder, not a causal language model. Use the harness's own model `hf`."
            )
        if add_bos_token is None and getattr(self.tokenizer, "has_control_tokens", False):
            self.add_bos_token = False
        # Where a request is too long, its beginning is cut, and said so.
        self.tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
        self.sentence_prefix = sentence_prefix
        self.num_sentences = 0
        self.scorer = CausalLMScorer(
            self.model, batch_tokens=int(batch_tokens), max_length=self.max_length, start_ids=[]
        )

    def _create_tokenizer(self, pretrained, tokenizer, **kwargs) -> None:
        super()._create_tokenizer(pretrained, tokenizer, **kwargs)
        if isinstance(self.tokenizer, OpenAIGPTTokenizer) and self.tokenizer is not tokenizer:
            # It splits text otherwise than the tokenizer that GPT-1 was trained with.
            options = {}
            for name in ("revision", "subfolder", "add_bos_token"):
                if kwargs.get(name) is not None:
                    options[name] = kwargs[name]
            self.tokenizer = GPT1Tokenizer.from_pretrained(self.tokenizer.name_or_path, **options)

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        self.scorer.check_family()  # a tokenizer such as BERT's may lack the tokens that `hf` looks for
        context_ids, continuation_ids = super()._encode_pair(context, continuation)
        if not continuation_ids:  # a token spans the boundary, or there is only white space
            continuation_ids = self.tok_encode(continuation, add_special_tokens=False)
        if not continuation_ids:
            raise UserError(
                f"The continuation {continuation!r} of the context that ends in {context[-40:]!r} has no token, so it "
                "has no probability. Correct the row or the task's prompt."
            )
        return context_ids, continuation_ids

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        return super().loglikelihood_rolling(requests, disable_tqdm=True)  # the bar of the scores is enough

    def _loglikelihood_tokens(self, requests: Sequence[tuple], disable_tqdm=False, override_bs=None) -> list[tuple]:
        """Total log-probability of each request's continuation, and whether greedy decoding would write it.

        A request has the fields of `HarnessRequest`.
        """
        requests = [HarnessRequest(*request) for request in requests]
        self.num_sentences += sum(request.is_whole_sentence for request in requests)
        if not self.sentence_prefix:
            requests = [self._behind_first_token(request) for request in requests]
        places_of_contexts = self._share_contexts(requests)
        self._warn_of_unknown_tokens(requests)
        contexts = sorted(places_of_contexts, key=len, reverse=True)
        answers = [(0.0, True)] * len(requests)
        is_hidden = disable_tqdm or self.rank != 0 or None  # None: where no terminal is
        with tqdm(total=len(requests), disable=is_hidden, desc="Scoring continuations") as bar:
            for first in range(0, len(contexts), CONTEXTS_AT_ONCE):
                chunk = contexts[first : first + CONTEXTS_AT_ONCE]
                scores = self.scorer.score_ids(
                    ScoringRequest(context, [requests[place].continuation for place in places_of_contexts[context]])
                    for context in chunk
                )
                for context, of_context in zip(chunk, scores, strict=True):
                    for place, score in zip(places_of_contexts[context], of_context, strict=True):
                        answers[place] = (score.total, score.is_greedy)
                        texts = requests[place].texts
                        if texts is not None:
                            self.cache_hook.add_partial("loglikelihood", texts, answers[place])
                    bar.update(len(of_context))
        return answers

    def _behind_first_token(self, request: HarnessRequest) -> HarnessRequest:
        """The request; the context of a whole sentence is its first token."""
        if not request.is_whole_sentence:
            return request
        ids = self.tok_encode(request.texts[1], add_special_tokens=False)
        return HarnessRequest(request.texts, ids[:1], ids[1:])

    def _share_contexts(self, requests: list[HarnessRequest]) -> dict[tuple[int, ...], list[int]]:
        """The places of the requests by their context, which loses its beginning if a request is too long.

        A context is cut for each continuation on its own, as `hf` does.
        """
        places = defaultdict(list)
        num_cut = 0
        for place, request in enumerate(requests):
            if not request.continuation:  # of a sentence of one token
                continue
            room = self.max_length - (len(request.continuation) - 1)  # the last token is only predicted
            if len(request.context) > room:
                num_cut += 1
            places[tuple(request.context[-room:])].append(place)
        if num_cut:
            logger.warning_once(
                f"{num_cut} of {len(requests)} requests are longer than the model reads ({self.max_length} tokens). "
                "Their contexts lost their beginning."
            )
        return places

    def _warn_of_unknown_tokens(self, requests: list[HarnessRequest]) -> None:
        pairs = [request.texts for request in requests if request.texts is not None]
        share, examples = unknown_share(self.tokenizer, ["".join(pair) for pair in pairs[:CONTEXTS_AT_ONCE]])
        if share > 0.05:
            logger.warning_once(f"{share:.0%} of the tokens are unknown to the tokenizer, as in {examples[0][:60]!r}.")
