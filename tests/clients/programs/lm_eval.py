"""lm-evaluation-harness: the log-likelihoods of its own class `hf`, and of ours."""

from figures import Figure, report

REQUIREMENTS = ("lm-eval==0.4.13",)
PAIRS = [
    ("It was a dark night ,", " and the old man went home ."),
    ("She said", " that he had never seen the house ."),
]


def main() -> list[Figure]:
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    from modeling_gpt1 import NOVELS
    from modeling_gpt1.evaluation.harness import SharedContextLM

    scores = []
    for kind in (HFLM, SharedContextLM):
        model = kind(pretrained=str(NOVELS), device="cpu", batch_size=2)
        requests = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(PAIRS)]
        scores.append([score for score, _ in model.loglikelihood(requests)])
    difference = max(abs(theirs - ours) for theirs, ours in zip(*scores, strict=True))
    return [Figure("greatest difference of a log-likelihood", difference, at_most=1e-3)]


if __name__ == "__main__":
    report(main)
