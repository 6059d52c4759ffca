"""Log and samples of a run: the log of a resumed run, and training that notices no samples."""

import json
import logging
import random
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from support.finetuning import QUIET, WORDS, make_letter_tokenizer, make_small_config, resumes_after, without_times
from transformers import DataCollatorForLanguageModeling, TrainerCallback, TrainerState

from modeling_gpt1 import GPT1ForCausalLM, GPT1PretrainingArguments, GPT1PretrainingTrainer
from modeling_gpt1.commands.runs import use_readable_log
from modeling_gpt1.training import callbacks, measures
from modeling_gpt1.training import trainer as trainers
from modeling_gpt1.training.callbacks import ProgressBar, SampleCallback, SavePoints, readable

PROMPTS = ["ann goes home", "the cat"]


def make_rows(tokenizer, num_rows=24):
    generator = random.Random(3)
    texts = [" ".join(generator.choices(WORDS, k=generator.randint(1, 7))) for _ in range(num_rows)]
    return [{"input_ids": tokenizer(text, add_special_tokens=False)["input_ids"]} for text in texts]


def make_sampling_trainer(folder, callbacks=(), batch_size=4, dropout=0.1, **arguments) -> GPT1PretrainingTrainer:
    tokenizer = make_letter_tokenizer()
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 48}
    config = make_small_config(len(tokenizer), dropout, initializer_range=0.2, **sizes)
    settings = {**QUIET, "max_steps": 8, "eval_strategy": "steps", "eval_steps": 2, "learning_rate": 1e-2, **arguments}
    args = GPT1PretrainingArguments(output_dir=str(folder), per_device_train_batch_size=batch_size, **settings)
    parts = {"data_collator": DataCollatorForLanguageModeling(tokenizer, mlm=False), "callbacks": list(callbacks)}
    rows = make_rows(tokenizer)
    parts |= {"train_dataset": rows, "eval_dataset": rows[:7], "processing_class": tokenizer}
    return GPT1PretrainingTrainer(model=GPT1ForCausalLM(config), args=args, **parts)


def test_a_line_for_each_log(tmp_path, caplog, capsys):
    trainer = make_sampling_trainer(tmp_path, max_steps=2, eval_strategy="steps", eval_steps=1, logging_steps=1)
    use_readable_log(trainer, "")
    with caplog.at_level(logging.INFO, callbacks.__name__):
        trainer.train()
        trainer.evaluate()
    record = trainer.state.log_history[0]
    figures = f"loss {record['loss']:#.3g} · perplexity {record['perplexity']:#.3g}"
    lines = [message for message in caplog.messages if message.startswith("step")]
    assert lines[0].startswith(f"step 1/2 · {figures} · ")
    assert lines[0].endswith(" tokens/s · lr 1.0e-2")
    assert [line.split(" · ")[:2] for line in lines[1::2]] == [["step 1/2", "evaluation"], ["step 2/2", "evaluation"]]
    assert len(lines) == 4
    assert capsys.readouterr().out == ""


class Bars(list):
    """Progress bars that were made; two are never open together."""

    def __call__(self, total=None, **kwargs):
        assert all(bar.is_closed for bar in self)
        bar = SimpleNamespace(total=total, n=0, is_closed=False, said=[])
        bar.update = lambda count: setattr(bar, "n", bar.n + count)
        bar.set_postfix_str = bar.said.append
        bar.close = lambda: setattr(bar, "is_closed", True)
        self.append(bar)
        return bar


def test_one_progress_bar_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(transformers.trainer_callback, "tqdm", bars := Bars())
    saves = {"max_steps": 4, "save_strategy": "steps", "save_steps": 4}
    trainer = make_sampling_trainer(tmp_path, [ProgressBar()], **saves)
    trainer.train()
    trainer.evaluate()
    trainer.predict(trainer.eval_dataset)
    make_sampling_trainer(tmp_path, [ProgressBar()], **saves).train(
        resume_from_checkpoint=True
    )  # nothing is left to train
    assert [(bar.n, bar.total, bar.is_closed) for bar in bars] == [(4, 4, True), *[(1, 1, True)] * 2, (4, 4, True)]
    assert bars[-1].initial == 4  # nothing was done at any speed
    assert bars[0].said == ["evaluating", ""] * 2


def test_figures_in_words():
    figures = {"loss": 6.5512, "grad_norm": 1.0, "learning_rate": 2e-3, "epoch": 0.5, "perplexity": 700.6}
    figures |= {"tokens_per_second": 6019.8, "train_tokens_per_second": 1.0, "num_input_tokens_seen": 9}
    assert readable(figures) == "loss 6.55 · perplexity 701 · 6,020 tokens/s · lr 2.0e-3"
    assert readable({"eval_f1": 0.5, "eval_runtime": 3.0, "eval_b_accuracy": 1.0}) == "f1 0.500 · b accuracy 1.00"


def make_samples() -> SampleCallback:
    return SampleCallback(make_letter_tokenizer(), PROMPTS, max_new_tokens=6)


def strict_records(folder: Path) -> list[dict]:
    """The log in the folder's `trainer_state.json`; no figure may be a number that JSON does not know."""

    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    return json.loads((folder / "trainer_state.json").read_text(), parse_constant=refuse)["log_history"]


class Kill(TrainerCallback):
    """Ends the run by force right after the log of a step."""

    def __init__(self, step):
        self.step = step

    def on_log(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


class TestLog:
    def test_a_killed_and_resumed_run_has_the_log_of_an_uninterrupted_one(self, tmp_path):
        whole, cut = tmp_path / "whole", tmp_path / "cut"
        saves = {"save_strategy": "steps", "save_steps": 4, "eval_on_start": True}
        make_sampling_trainer(whole, [make_samples()], **saves).train()
        with pytest.raises(KeyboardInterrupt):
            make_sampling_trainer(cut, [make_samples(), Kill(7)], **saves).train()
        resumed = make_sampling_trainer(cut, [make_samples()], **saves)
        with resumes_after(4):
            resumed.train(resume_from_checkpoint=str(cut / "checkpoint-4"))
        records, expected = (strict_records(folder / "checkpoint-8") for folder in (cut, whole))
        assert without_times(records) == without_times(expected)
        assert [record["step"] for record in expected if "samples" in record] == [0, 2, 4, 6, 8]
        assert sorted(path.name for path in cut.iterdir()) == ["checkpoint-4", "checkpoint-8"]


class TestSamples:
    def test_training_with_samples_ends_with_the_same_weights(self, tmp_path, monkeypatch):
        callback = SampleCallback(make_letter_tokenizer(), PROMPTS, max_new_tokens=6)
        weights = [self._weights(make_sampling_trainer(tmp_path, callbacks)) for callbacks in ([], [callback])]
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])

        # Negative control: samples drawn from the state that dropout goes on from.
        monkeypatch.setattr(callbacks.torch.random, "fork_rng", lambda *given, **named: torch.no_grad())
        disturbed = self._weights(make_sampling_trainer(tmp_path, [callback]))
        assert not all(torch.equal(weights[0][name], disturbed[name]) for name in disturbed)

    @staticmethod
    def _weights(trainer):
        trainer.train()
        return {name: weight.clone() for name, weight in trainer.model.state_dict().items()}

    @pytest.mark.parametrize(("name", "kept"), [("cuda:1", [torch.device("cuda:1")]), ("cpu", [])])
    def test_the_random_state_of_the_models_device_is_kept_too(self, name, kept, monkeypatch):
        """That of the CPU always is."""
        device, forked = torch.device(name), []
        monkeypatch.setattr(callbacks.torch, "manual_seed", lambda seed: None)
        monkeypatch.setattr(callbacks, "continue_prompts", lambda *given, **options: [["goes"]] * 2)

        def fork(devices, device_type):
            forked.append((devices, device_type))
            return nullcontext()

        monkeypatch.setattr(callbacks.torch.random, "fork_rng", fork)
        make_samples().on_evaluate(None, TrainerState(), None, model=SimpleNamespace(device=device))
        assert forked == [(kept, device.type)]

    def test_samples_go_on_from_their_prompts_and_are_the_same_again(self, tmp_path, caplog):
        trainer, tokenizer = make_sampling_trainer(tmp_path), make_letter_tokenizer()
        state = TrainerState(global_step=3, epoch=0.5, is_world_process_zero=True)
        callback = SampleCallback(tokenizer, PROMPTS, max_new_tokens=6)
        trainer.model.eval()  # as an evaluation leaves it: else dropout alone would make samples differ
        with caplog.at_level(logging.INFO, logger="modeling_gpt1.training.callbacks"):
            callback.on_evaluate(None, state, None, model=trainer.model)
            callback.on_evaluate(None, state, None, model=trainer.model)  # of a second data set
        (record,) = state.log_history
        assert (record["step"], record["epoch"]) == (3, 0.5)
        assert [text.startswith(start) for text, start in zip(record["samples"], PROMPTS, strict=True)] == [True, True]
        assert [message for _, _, message in caplog.record_tuples] == [
            f"step 3 · {' '.join(text.split())}" for text in record["samples"]
        ]

        again = TrainerState(global_step=4)
        torch.rand(5)
        callback.on_evaluate(None, again, None, model=trainer.model)
        assert again.log_history[0]["samples"] == record["samples"]
        other = TrainerState()
        SampleCallback(tokenizer, PROMPTS, 6, seed=1).on_evaluate(None, other, None, model=trainer.model)
        assert other.log_history[0]["samples"] != record["samples"]

    def test_the_likeliest_of_few_tokens_needs_no_luck(self, tmp_path):
        """With one token to choose from, every seed gives the same text."""
        model = make_sampling_trainer(tmp_path).model.eval()
        samples = []
        for seed in (0, 1):
            callback = SampleCallback(make_letter_tokenizer(), PROMPTS, max_new_tokens=6, top_k=1, seed=seed)
            state = TrainerState()
            callback.on_evaluate(None, state, None, model=model)
            samples.append(state.log_history[0]["samples"])
        assert samples[0] == samples[1]

    def test_one_process_logs_and_all_of_them_keep_the_samples(self, tmp_path, caplog):
        model = make_sampling_trainer(tmp_path).model.eval()
        state = TrainerState(is_world_process_zero=False)
        with caplog.at_level(logging.INFO, logger="modeling_gpt1.training.callbacks"):
            make_samples().on_evaluate(None, state, None, model=model)
        assert caplog.messages == []
        assert len(state.log_history[0]["samples"]) == 2

    def test_one_prompt_may_be_a_text(self):
        assert SampleCallback(make_letter_tokenizer(), "the cat").prompts == ["the cat"]

    def test_prompts_that_leave_no_room(self, tmp_path):
        trainer = make_sampling_trainer(
            tmp_path, [SampleCallback(make_letter_tokenizer(), ["cat", "the cat"], max_new_tokens=43)]
        )
        with pytest.raises(ValueError, match="has 6 tokens and `max_new_tokens` is 43, .* only 48 "):
            trainer.train()
        assert trainer.state.global_step == 0


def test_a_model_that_is_saved_on_the_way_is_not_uploaded(tmp_path, monkeypatch):
    trainer = make_sampling_trainer(tmp_path, max_steps=2, eval_strategy="no")
    trainer.add_callback(SavePoints(trainer, {"chck_10": 1}, words_per_update=10))
    trainer.args.push_to_hub = True
    monkeypatch.setattr(trainer, "push_to_hub", lambda **options: pytest.fail("the run is not over"))
    trainer.train()
    assert (tmp_path / "chck_10" / "model.safetensors").is_file()


def test_a_diverged_model_is_not_saved_on_the_way(tmp_path):
    class Diverge(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            next(model.parameters()).data[0] = torch.nan

    trainer = make_sampling_trainer(tmp_path, max_steps=2, eval_strategy="no")
    trainer.add_callback(Diverge())
    trainer.add_callback(SavePoints(trainer, {"chck_10": 1}, words_per_update=10))
    with pytest.raises(FloatingPointError, match="^Weights are not finite after update 1. "):
        trainer.train()
    assert not (tmp_path / "chck_10").exists()


class TestThroughput:
    def test_counts_tokens_without_padding_over_the_time_of_training_alone(self, tmp_path, monkeypatch):
        now = [0.0]

        class Clock(TrainerCallback):
            def on_step_end(self, *args, **kwargs):
                now[0] += 2

            def on_evaluate(self, *args, **kwargs):
                now[0] += 100

        def slow_save(self, *args, **kwargs):
            now[0] += 1000

        monkeypatch.setattr(GPT1ForCausalLM, "save_pretrained", slow_save)
        monkeypatch.setattr(measures.time, "perf_counter", lambda: now[0])
        monkeypatch.setattr(trainers, "measure_peak_flops", lambda *given: 1e9)  # it waits for the clock
        saves = {"save_strategy": "steps", "save_steps": 1, "eval_steps": 1, "logging_steps": 3, "max_steps": 6}
        trainer = make_sampling_trainer(tmp_path, [Clock()], **saves)
        trainer.eval_dataset = dict.fromkeys(("one", "two"), trainer.eval_dataset)  # evaluations within one
        trainer.train()
        records = [record for record in trainer.state.log_history if "loss" in record]
        lengths = [len(row["input_ids"]) for row in trainer.train_dataset]
        assert len(set(lengths)) > 1
        assert records[-1]["num_input_tokens_seen"] == sum(lengths)
        seen = [0, *(record["num_input_tokens_seen"] for record in records)]
        for start, end, record in zip(seen[:-1], seen[1:], records, strict=True):
            assert record["tokens_per_second"] == pytest.approx((end - start) / 6, rel=1e-9)

    def test_a_resumed_run_counts_its_own_tokens(self, monkeypatch):
        now = iter([0.0, 2.0])
        monkeypatch.setattr(measures.time, "perf_counter", lambda: next(now))
        throughput = measures.Throughput()
        throughput.start(100)
        assert throughput.tokens_per_second(140) == 20
