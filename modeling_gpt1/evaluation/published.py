"""Published figures of GPT-1, GPT-2 and GPT-3 on tasks of the harness, to read beside a result of one's own.

Prompts, rows and tokenizers differ from the harness's, so that a difference of a few points means nothing. Accuracies
lie between 0 and 1, as the harness reports them.
"""

from typing import NamedTuple

GPT1 = "Radford et al. 2018, fine-tuned"
GPT2 = "Radford et al. 2019, table 3"
GPT3 = "Brown et al. 2020"


class Published(NamedTuple):
    """A figure, with the model and the place that it is from."""

    model: str
    metric: str
    value: float
    source: str


def _gpt3(value: float, table: str, metric: str = "acc") -> Published:
    return Published("GPT-3 175B", metric, value, f"{GPT3}, {table}, zero-shot")


PUBLISHED: dict[str, tuple[Published, ...]] = {
    "lambada_standard": (
        Published("GPT-2 117M", "acc", 0.4599, GPT2),
        Published("GPT-2 1542M", "acc", 0.6324, GPT2),
        Published("GPT-2 117M", "perplexity", 35.13, GPT2),
        Published("GPT-2 1542M", "perplexity", 8.63, GPT2),
        _gpt3(0.762, "table 3.2"),
        _gpt3(3.00, "table 3.2", "perplexity"),
    ),
    "cbt_cn": (Published("GPT-2 117M", "acc", 0.8765, GPT2), Published("GPT-2 1542M", "acc", 0.9330, GPT2)),
    "cbt_ne": (Published("GPT-2 117M", "acc", 0.834, GPT2), Published("GPT-2 1542M", "acc", 0.8905, GPT2)),
    "wikitext": (
        Published("GPT-2 117M", "word_perplexity", 29.41, GPT2),
        Published("GPT-2 1542M", "word_perplexity", 18.34, GPT2),
    ),
    "storycloze_2016": (Published("GPT-1", "acc", 0.865, f"{GPT1}, table 3"), _gpt3(0.832, "table 3.2")),
    "race": (Published("GPT-1", "acc", 0.574, f"{GPT1}, table 3, RACE-h"), _gpt3(0.455, "table 3.7, RACE-h")),
    "hellaswag": (_gpt3(0.789, "table 3.2"),),
    "piqa": (_gpt3(0.805, "table 3.6"),),
    "arc_easy": (_gpt3(0.688, "table 3.6"),),
    "arc_challenge": (_gpt3(0.514, "table 3.6"),),
    "openbookqa": (_gpt3(0.576, "table 3.6"),),
    "winogrande": (_gpt3(0.702, "table 3.5"),),
    "rte": (Published("GPT-1", "acc", 0.560, f"{GPT1}, table 2"), _gpt3(0.635, "table H.1")),
    "boolq": (_gpt3(0.605, "table H.1"),),
    "cb": (_gpt3(0.464, "table H.1"),),
    "copa": (_gpt3(0.910, "table H.1"),),
    "qnli": (Published("GPT-1", "acc", 0.881, f"{GPT1}, table 2"),),
    "mnli": (Published("GPT-1", "acc", 0.821, f"{GPT1}, table 2"),),
    "sst2": (Published("GPT-1", "acc", 0.913, f"{GPT1}, table 4"),),
    "cola": (Published("GPT-1", "mcc", 0.454, f"{GPT1}, table 4"),),
    "mrpc": (Published("GPT-1", "f1", 0.823, f"{GPT1}, table 4"),),
    "qqp": (Published("GPT-1", "f1", 0.703, f"{GPT1}, table 4"),),
}
