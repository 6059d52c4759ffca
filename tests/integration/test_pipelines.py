"""transformers' pipelines open saved folders and give what the models give for ids that are put together by hand."""

import copy

import numpy as np
import pytest
import torch
from transformers import pipeline

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM, GPT1ForSequenceClassification, GPT1Model

PROMPTS = ["the old farmer", "a quiet girl read the letter twice"]
PREMISE = "nobody in the village knew why the river had turned green"
LABELS = ["river", "ticket", "market"]
CLASSES = ["entailment", "neutral", "contradiction"]
LIMIT = 48  # positions of the models


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory, tiny_model, plain_tokenizer):
    """A pre-trained folder: language model and tokenizer without control tokens."""
    folder = tmp_path_factory.mktemp("language-model")
    tiny_model(GPT1ForCausalLM, vocab_size=len(plain_tokenizer), max_position_embeddings=LIMIT).save_pretrained(folder)
    plain_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def make_task_folder(tmp_path_factory, tiny_model, plain_tokenizer):
    """Makes a folder as fine-tuning leaves it: `make_task_folder("entailment", num_labels=3)`."""

    def make(traversal: str, **fields):
        folder = tmp_path_factory.mktemp(traversal)
        tokenizer = copy.deepcopy(plain_tokenizer)
        sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": LIMIT, "initializer_range": 0.3}
        model = tiny_model(GPT1DoubleHeadsModel, traversal=traversal, **sizes, **fields)
        torch.manual_seed(0)  # the new rows of the embeddings are drawn
        tokenizer.add_control_tokens(model)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="module")
def entailment(make_task_folder):
    return make_task_folder(
        "entailment", id2label=dict(enumerate(CLASSES)), label2id={name: i for i, name in enumerate(CLASSES)}
    )


def with_control(tokenizer, *segments: list[int]) -> list[int]:
    """Figure 1 of the paper, on ids: `[s] text [e]` or `[s] premise [$] hypothesis [e]`."""
    ids = [tokenizer.start_token_id, *segments[0]]
    for segment in segments[1:]:
        ids += [tokenizer.delimiter_token_id, *segment]
    return [*ids, tokenizer.extract_token_id]


def class_logits(folder, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return GPT1ForSequenceClassification.from_pretrained(folder)(torch.tensor([ids])).logits[0]


def seen_ids(pipe) -> list[list[int]]:
    """Fills with the real ids of each row that the pipeline's model is given."""
    rows = []

    def record(module, args, kwargs):
        mask = kwargs.get("attention_mask")
        real = torch.ones_like(kwargs["input_ids"], dtype=torch.bool) if mask is None else mask.bool()
        rows.extend(ids[is_real].tolist() for ids, is_real in zip(kwargs["input_ids"], real, strict=True))

    pipe.model.register_forward_pre_hook(record, with_kwargs=True)
    return rows


class TestTextGeneration:
    def test_continues_a_batch_of_unequal_prompts_as_each_alone(self, language_model, plain_tokenizer):
        model = GPT1ForCausalLM.from_pretrained(language_model)
        write = pipeline("text-generation", str(language_model))
        assert type(write.model) is GPT1ForCausalLM
        expected = []
        for prompt in PROMPTS:
            ids = torch.tensor([plain_tokenizer(prompt)["input_ids"]])
            for _ in range(5):  # without a cache, step by step
                ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
            expected.append(plain_tokenizer.decode(ids[0]))
        # Each piece ends a word here: what follows begins with the space that parts it from the prompt.
        answers = write(PROMPTS, batch_size=2, max_new_tokens=5, do_sample=False)
        assert [answer["generated_text"] for (answer,) in answers] == expected
        (answer,) = write(PROMPTS[0], max_new_tokens=5, do_sample=False, return_full_text=False)
        assert answer["generated_text"] == expected[0][len(PROMPTS[0]) :]

    def test_an_opened_model_drafts_for_a_pipeline(self, language_model, plain_tokenizer, tiny_model):
        sizes = {"vocab_size": len(plain_tokenizer), "max_position_embeddings": LIMIT}
        assistant = tiny_model(GPT1ForCausalLM, seed=1, num_hidden_layers=1, **sizes)
        drafts = []
        assistant.register_forward_hook(lambda *call: drafts.append(call))
        options = {"max_new_tokens": 8, "do_sample": False}
        expected = pipeline("text-generation", str(language_model))(PROMPTS[0], **options)
        write = pipeline("text-generation", str(language_model), assistant_model=assistant)
        assert write(PROMPTS[0], **options) == expected
        assert drafts

    @pytest.mark.parametrize("told", [{}, {"add_special_tokens": False}])
    def test_a_fine_tuned_folder_continues_the_bare_text(self, entailment, plain_tokenizer, told):
        """Its tokenizer adds control tokens, and a text to continue must not end in `[e]`."""
        write = pipeline("text-generation", str(entailment))
        rows = seen_ids(write)
        write(PROMPTS[0], max_new_tokens=1, do_sample=False, **told)
        assert rows == [plain_tokenizer(PROMPTS[0])["input_ids"]]


@pytest.fixture(scope="module")
def classification(make_task_folder):
    return make_task_folder("classification", num_labels=3)


class TestTextClassification:
    def test_a_batch_scores_as_each_text_alone(self, classification, plain_tokenizer):
        classify = pipeline("text-classification", str(classification))
        for prompt, answers in zip(PROMPTS, classify(PROMPTS, batch_size=2, top_k=None), strict=True):
            ids = with_control(classify.tokenizer, plain_tokenizer(prompt)["input_ids"])
            scores = {answer["label"]: answer["score"] for answer in answers}
            close([scores[f"LABEL_{k}"] for k in range(3)], class_logits(classification, ids).softmax(-1))
            bare = class_logits(classification, ids[1:-1]).softmax(-1)  # the control tokens are no decoration
            assert abs(scores["LABEL_0"] - bare[0]) > 1e-3

    def test_texts_of_another_number_are_told(self, make_task_folder, entailment, classification, caplog):
        one = PROMPTS[0]
        pair = {"text": PROMPTS[0], "text_pair": PROMPTS[1]}
        folder = make_task_folder("classification", columns={"text": "body"})
        caplog.set_level("WARNING", "modeling_gpt1.checks_gpt1")  # a script may have made it say less
        told = [(entailment, pair, ""), (entailment, one, "`text` and `text_pair`")]
        told += [(classification, pair, "")]  # a script without columns may have trained on pairs
        for place, given, needed in (*told, (folder, one, ""), (folder, pair, "`text` alone")):
            caplog.clear()
            pipeline("text-classification", str(place))(given)
            assert ("1 of 1 sequences of the first" in caplog.text) == bool(needed)
            assert needed in caplog.text

    def test_a_similarity_model_reads_a_pair_in_both_orders(self, make_task_folder, plain_tokenizer, caplog):
        folder = make_task_folder("similarity", num_labels=1, columns={"text_a": "a", "text_b": "b"})
        compare = pipeline("text-classification", str(folder))
        first, second = (plain_tokenizer(text)["input_ids"] for text in PROMPTS)
        answer = compare({"text": PROMPTS[0], "text_pair": PROMPTS[1]})
        assert "of the first batch" not in caplog.text
        turned = compare({"text": PROMPTS[1], "text_pair": PROMPTS[0]})
        rows = [with_control(compare.tokenizer, a, b) for a, b in ((first, second), (second, first))]
        with torch.no_grad():
            expected = compare.model(torch.tensor([rows], device=compare.device)).logits.item()  # [1, 2, T]
        assert answer["score"] == pytest.approx(expected, abs=1e-5)  # regression: the number itself
        assert turned["score"] == pytest.approx(expected, abs=1e-5)


def test_feature_extraction_gives_the_hidden_states(language_model, plain_tokenizer):
    extract = pipeline("feature-extraction", str(language_model))
    assert type(extract.model) is GPT1Model
    for prompt, features in zip(PROMPTS, extract(PROMPTS), strict=True):
        ids = torch.tensor([plain_tokenizer(prompt)["input_ids"]], device=extract.device)
        with torch.no_grad():
            expected = extract.model(ids).last_hidden_state
        close(features, expected.cpu())


class TestZeroShotClassification:
    """A model fine-tuned on entailment ranks labels that it has never seen, each put into a hypothesis."""

    def hypothesis_logits(self, pipe, folder, tokenizer, template="This example is {}.") -> np.ndarray:
        premise = tokenizer(PREMISE)["input_ids"]
        logits = []
        for label in LABELS:
            hypothesis = tokenizer(template.format(label))["input_ids"]
            room = LIMIT - len(hypothesis) - 3
            logits.append(class_logits(folder, with_control(pipe.tokenizer, premise[:room], hypothesis)))
        return torch.stack(logits)  # [labels, K]

    def scores(self, answer) -> list[float]:
        by_label = dict(zip(answer["labels"], answer["scores"], strict=True))
        return [by_label[label] for label in LABELS]

    @pytest.mark.parametrize("template", ["This example is {}.", "it is about the {} ."])
    def test_scores_are_those_of_the_entailed_hypotheses(self, entailment, plain_tokenizer, template):
        rank = pipeline("zero-shot-classification", str(entailment))
        answer = rank(PREMISE, LABELS, hypothesis_template=template)
        logits = self.hypothesis_logits(rank, entailment, plain_tokenizer, template)
        close(self.scores(answer), logits[:, 0].softmax(0))
        assert answer["scores"] == sorted(answer["scores"], reverse=True)

    def test_the_premise_is_cut_and_the_hypothesis_kept(self, entailment, plain_tokenizer):
        rank = pipeline("zero-shot-classification", str(entailment))
        rows = seen_ids(rank)
        rank(PREMISE * 5, ["river"])
        premise = plain_tokenizer(PREMISE * 5)["input_ids"]
        hypothesis = plain_tokenizer("This example is river.")["input_ids"]
        room = LIMIT - 3 - len(hypothesis)
        assert rows == [with_control(rank.tokenizer, premise[:room], hypothesis)]
        assert len(rows[0]) == LIMIT
