"""benchmarks/alphabets.py: the source whose entropy is known, and what the page says of its figures."""

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_letters_that_are_equally_likely_have_the_entropy_of_4(alphabets):
    assert alphabets.entropy_of(np.full((256, 4), 0.25)) == pytest.approx(np.log(4))


def test_letters_that_are_certain_have_no_entropy(alphabets):
    certain = np.full((256, 4), 1e-300)
    certain[:, 2] = 1
    assert alphabets.entropy_of(certain) == pytest.approx(0, abs=1e-9)


def test_the_entropy_is_what_the_source_costs_on_its_own_letters(alphabets):
    """Mean −log P of 200,000 drawn letters, each by the row of the four before it."""
    probabilities = alphabets.source()
    codes = np.array(["ACGT".index(letter) for letter in islice(alphabets.letters_of(probabilities), 200_000)])
    states = codes[:-4] * 64 + codes[1:-3] * 16 + codes[2:-2] * 4 + codes[3:-1]
    cost = -np.log(probabilities[states, codes[4:]]).mean()
    assert cost == pytest.approx(alphabets.entropy_of(probabilities), abs=0.01)


def test_the_page_has_the_measured_figures():
    path = max((ROOT / "benchmarks" / "results").glob("????-??-??-alphabets.json"))
    found = json.loads(path.read_text(encoding="utf-8"))["results"]
    page = " ".join((ROOT / "docs" / "results" / "benchmarks.md").read_text(encoding="utf-8").split())
    of_bytes, of_gpt1 = (found["round_trip"][kind]["random UTF-8"] for kind in ("bytes", "gpt1"))
    assert f"bytes give back {of_bytes['same']:,} and the paper's tokenizer {of_gpt1['same']:,}" in page
    source = found["entropy"]
    more = source["loss_over_entropy"] - 1
    assert (
        f"{source['loss_with_context']:.3f} nats, where the source has {source['entropy']:.3f}: {100 * more:.1f} %"
        in page
    )
    code = found["python_source"]
    bits = [code[kind]["bits_per_byte"] for kind in ("bytes", "gpt1")]
    assert f"{bits[0]:.2f} bits per byte with bytes, and {bits[1]:.2f} with the paper's" in page
