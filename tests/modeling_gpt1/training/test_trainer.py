"""GPT1Trainer and GPT1PretrainingTrainer: the loss that does not move, its parts, evaluation, checks and files."""

import math
from functools import partial

import pytest
import support.pretraining
import torch
from datasets import Dataset
from support.finetuning import (
    CASES,
    Rows,
    make_double_heads_model,
    make_finetuning_trainer,
    make_letter_tokenizer,
    make_traversal_collator,
    training_log,
)
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForSequenceClassification,
    GPT1Model,
    GPT1PretrainingArguments,
    GPT1PretrainingTrainer,
    GPT1Trainer,
    GPT1TrainingArguments,
)
from modeling_gpt1.training.measures import training_flops_per_token

SMALL = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
WEIGHTS = torch.tensor([1.0, 9.0])  # of two classes


def assert_same_log(log, expected, relative=1e-5):
    assert len(log) == len(expected) == 3
    for record, expected_record in zip(log, expected, strict=True):
        assert record.keys() == expected_record.keys()
        for key, value in expected_record.items():
            assert record[key] == pytest.approx(value, rel=relative), key


class TestInvariance:
    @pytest.mark.parametrize("case, lm_coef", [(case, lm_coef) for case in CASES for lm_coef in (0.0, 0.5)])
    def test_loss_gradient_and_weights_do_not_depend_on_micro_batches(self, case, lm_coef, tmp_path):
        whole = make_finetuning_trainer(case, tmp_path, batch_size=8, accumulation=1, lm_coef=lm_coef)
        expected = training_log(whole)
        assert ("lm_loss" in expected[0]) == (lm_coef > 0)
        for batch_size, accumulation in ((4, 2), (1, 8)):
            cut = make_finetuning_trainer(case, tmp_path, batch_size, accumulation, lm_coef)
            assert_same_log(training_log(cut), expected)
            for name, weight in cut.model.state_dict().items():
                torch.testing.assert_close(weight, whole.model.state_dict()[name], rtol=1e-5, atol=1e-6, msg=name)

    def test_unequal_micro_batches_count_by_their_examples(self, tmp_path):
        # 8 rows in micro-batches of 3, 3 and 2.
        expected = self._first_update(tmp_path, batch_size=8, accumulation=1)
        cut = self._first_update(tmp_path, batch_size=3, accumulation=3)
        assert cut["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        assert cut["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)

    @staticmethod
    def _first_update(tmp_path, batch_size, accumulation):
        trainer = make_finetuning_trainer("multiple_choice", tmp_path, batch_size, accumulation, max_steps=1)
        trainer.train_dataset = Rows("multiple_choice", num_rows=8)
        trainer.train()
        return trainer.state.log_history[0]


class TestLogs:
    def test_parts_are_averaged_over_the_updates_since_the_last_log(self, tmp_path):
        every = training_log(make_finetuning_trainer("classification", tmp_path, 8, 1))
        once = make_finetuning_trainer("classification", tmp_path, 8, 1, logging_steps=3)
        once.train()
        for record in every:
            assert record["loss"] == pytest.approx(record["task_loss"] + 0.5 * record["lm_loss"], rel=1e-6)
        for key in ("loss", "task_loss", "lm_loss"):
            mean = sum(record[key] for record in every) / 3
            assert once.state.log_history[0][key] == pytest.approx(mean, rel=1e-6)

    def test_an_evaluation_between_two_logs_adds_nothing_to_the_parts(self, tmp_path):
        settings = {"logging_steps": 3, "eval_strategy": "steps", "eval_steps": 1}
        trainer = make_finetuning_trainer("classification", tmp_path, 8, 1, **settings)
        trainer.train()
        assert sum("eval_loss" in record for record in trainer.state.log_history) == 3
        (record,) = [record for record in trainer.state.log_history if "loss" in record]
        assert record["loss"] == pytest.approx(record["task_loss"] + 0.5 * record["lm_loss"], rel=1e-6)

    def test_a_model_that_does_not_pack_is_left_so(self, tmp_path):
        model = make_double_heads_model("entailment", make_letter_tokenizer())
        model.pack_sequences = False
        assert not make_finetuning_trainer("entailment", tmp_path, 4, 2, model=model).model.pack_sequences

    def test_packing_can_be_switched_off(self, tmp_path):
        assert make_finetuning_trainer("entailment", tmp_path, 4, 2).model.pack_sequences
        assert not make_finetuning_trainer("entailment", tmp_path, 4, 2, pack_sequences=False).model.pack_sequences
        arguments = GPT1PretrainingArguments(str(tmp_path), use_cpu=True, pack_sequences=False)
        assert not GPT1PretrainingTrainer(support.pretraining.make_language_model(), arguments).model.pack_sequences


class TestEvaluation:
    @pytest.mark.parametrize("case", ["multiple_choice", "regression"])
    def test_losses_are_means_over_the_examples_for_every_batch_size(self, case, tmp_path):
        trainer = make_finetuning_trainer(case, tmp_path, 8, 1)
        model = trainer.model.eval()
        single = [model(**trainer.data_collator([row])) for row in trainer.eval_dataset]
        expected = {
            "eval_loss": sum(output.loss.item() for output in single) / 11,
            "eval_task_loss": sum(output.task_loss.item() for output in single) / 11,
            "eval_lm_loss": sum(output.lm_loss.item() for output in single) / 11,
        }
        for eval_batch_size in (1, 4, 11):
            trainer.args.per_device_eval_batch_size = eval_batch_size
            metrics = trainer.evaluate()
            for key, value in expected.items():
                assert metrics[key] == pytest.approx(value, rel=1e-5), (key, eval_batch_size)

    @pytest.mark.parametrize("strategy", ["sequential", "group_by_length"])
    @pytest.mark.parametrize("eval_batch_size", [4, 16])
    def test_the_last_rows_are_evaluated_whatever_the_training_drops(self, eval_batch_size, strategy, tmp_path):
        results = []
        for drops in (False, True):
            settings = {"per_device_eval_batch_size": eval_batch_size, "train_sampling_strategy": strategy}
            trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1, dataloader_drop_last=drops, **settings)
            trainer.compute_metrics = lambda prediction: {"rows": len(prediction.label_ids)}
            results.append((trainer.evaluate(), trainer.predict(trainer.eval_dataset)))
            assert len(trainer.get_train_dataloader()) == 3
            assert trainer.args.dataloader_drop_last is drops
        (whole, expected), (evaluation, prediction) = results
        with pytest.raises(
            ValueError, match="`dataloader_drop_last` drops all rows, because they are fewer than a batch"
        ):
            make_finetuning_trainer("entailment", tmp_path, 25, 1, dataloader_drop_last=True).get_train_dataloader()
        assert evaluation["eval_rows"] == 11
        assert evaluation["eval_loss"] == whole["eval_loss"]
        assert prediction.predictions.tolist() == expected.predictions.tolist()

    def test_what_a_subclass_adds_to_the_loss_is_evaluated(self, tmp_path):
        class WithMore(GPT1Trainer):
            def compute_loss(self, *args, **kwargs):
                loss, outputs = super().compute_loss(*args, **kwargs)
                return loss + 10, outputs

        class ModelWithMore(GPT1DoubleHeadsModel):
            def forward(self, **inputs):
                outputs = super().forward(**inputs)
                outputs.loss = outputs.loss + 10
                return outputs

        trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1)
        expected, trainer.__class__ = trainer.evaluate()["eval_loss"] + 10, WithMore
        assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)
        trainer.__class__, trainer.model.__class__ = GPT1Trainer, ModelWithMore
        assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)

    def test_predictions_are_the_task_logits_alone(self, tmp_path):
        trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1)
        prediction = trainer.predict(trainer.eval_dataset)
        assert prediction.predictions.shape == (11, 2)
        assert prediction.label_ids.tolist() == [0, 1] * 5 + [0]
        assert prediction.metrics["test_task_loss"] > 0

    def test_the_perplexity_of_the_auxiliary_loss_is_reported(self, tmp_path):
        metrics = make_finetuning_trainer("entailment", tmp_path, 8, 1).evaluate()
        assert metrics["eval_lm_perplexity"] == pytest.approx(math.exp(metrics["eval_lm_loss"]), rel=1e-9)

    def test_the_perplexity_of_the_auxiliary_loss_is_logged(self, tmp_path):
        trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1)
        trainer.train()
        first = trainer.state.log_history[0]
        assert first["lm_perplexity"] == pytest.approx(math.exp(first["lm_loss"]), rel=1e-9)

    def test_without_auxiliary_loss_none_is_reported(self, tmp_path):
        metrics = make_finetuning_trainer("entailment", tmp_path, 8, 1, lm_coef=0.0).evaluate()
        assert not {"eval_lm_loss", "eval_lm_perplexity"} & metrics.keys()
        assert metrics["eval_task_loss"] == pytest.approx(metrics["eval_loss"], rel=1e-6)


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments_class", "num_updates", "warmup", "expected"),
        [
            (GPT1TrainingArguments, 10_000, 20, (6.25e-5, 32, 3, "group_by_length", "linear", 0.01, 1.0)),
            (GPT1PretrainingArguments, 1_000_000, 2000, (2.5e-4, 64, 100, "random", "cosine", 0.01, 1.0)),
        ],
    )
    def test_the_papers_defaults(self, arguments_class, num_updates, warmup, expected, tmp_path):
        args = arguments_class(output_dir=str(tmp_path), use_cpu=True)
        found = (args.learning_rate, args.per_device_train_batch_size, args.num_train_epochs)
        found += (args.train_sampling_strategy, args.lr_scheduler_type, args.weight_decay, args.max_grad_norm)
        assert found == expected
        assert args.get_warmup_steps(num_updates) == warmup


class TestFit:
    """What does not fit together is refused before training."""

    def _trainer(self, tmp_path, collator=None, config=None, **arguments):
        tokenizer = make_letter_tokenizer()
        model = make_double_heads_model("classification", tokenizer)
        made = make_traversal_collator(model, tokenizer)
        for owner, changes in ((made, collator), (model.config, config)):
            for name, value in (changes or {}).items():
                setattr(owner, name, value)
        arguments = GPT1TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **arguments)
        return GPT1Trainer(model, arguments, data_collator=made, processing_class=tokenizer)

    def test_all_splits_at_once_are_refused(self, tmp_path):
        parts, splits = self._trainer(tmp_path), {"train": Rows("classification"), "test": Rows("classification")}
        with pytest.raises(ValueError, match="has the splits train, test. Pass one of them"):
            GPT1Trainer(parts.model, parts.args, parts.data_collator, splits)
        with pytest.raises(ValueError, match="`train_dataset` is a str. Pass rows, as `load_files` or"):
            GPT1Trainer(parts.model, parts.args, parts.data_collator, "rows.csv")
        rows = Dataset.from_list([{"text": "a", "label": 0}])
        for given, message in (
            ((parts.model, parts.args, parts.data_collator, []), "`train_dataset` has no rows. Pass at least one"),
            ((parts.model, parts.args, None, rows), "has no `input_ids`. Pass the `data_collator` that"),
            ((parts.model, "runs"), "`args` is 'runs'. Pass a `GPT1TrainingArg"),
            (("runs", parts.args), "`model` is 'runs'. Pass an opened model"),
        ):
            with pytest.raises(ValueError, match=message):
                GPT1Trainer(*given)

    def test_the_collator_learns_the_number_of_labels(self, tmp_path):
        assert self._trainer(tmp_path).data_collator.num_labels == 3

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"config": {"vocab_size": 60}}, "53 tokens.* has 60. Take .* or call `tokenization.add_control_tokens"),
            ({"config": {"extract_token_id": 3}}, "`extract_token_id` is 3 .* 52 in the tokenizer. Open"),
            ({"config": {"traversal": "entailment"}}, "'classification' batches.*'entailment'. Give both"),
            ({"collator": {"max_length": 97}}, "97 tokens .* positions for 96 .* Pass a smaller `max_length`"),
            ({"collator": {"pad_to_multiple_of": 64}}, "sequences of up to 128 tokens"),
            ({"collator": {"regression": True}}, r"numbers .*classes. Pass the collator `regression=False`"),
            ({"collator": {"num_labels": 5}}, "`num_labels` is 5, but the model's is 3. Give both"),
            ({"train_sampling_strategy": "batch_rebalance"}, "trains some rows twice .* Use 'group_by_length'"),
            ({"label_smoothing_factor": 0.1}, "`label_smoothing_factor` is 0.1.*auxiliary objective. Leave it at 0"),
        ],
    )
    def test_parts_that_do_not_fit(self, changes, message, tmp_path):
        with pytest.raises(ValueError, match=message):
            self._trainer(tmp_path, **changes)

    def test_an_update_counts_the_rows_of_all_processes(self, monkeypatch, tmp_path):
        monkeypatch.setattr(GPT1TrainingArguments, "world_size", 2)
        with pytest.raises(ValueError, match="`average_tokens_across_devices` is False: .* Leave it out"):
            self._trainer(tmp_path, average_tokens_across_devices=False)

    @pytest.mark.parametrize(
        ("trainer_class", "make", "message"),
        [
            (GPT1Trainer, GPT1ForCausalLM, "GPT1ForCausalLM has none. .*`prepare_finetuning`, or"),
            (GPT1PretrainingTrainer, GPT1Model, "GPT1Model. Open the checkpoint with one of these"),
            (GPT1PretrainingTrainer, GPT1DoubleHeadsModel, "GPT1DoubleHeadsModel. .* with a task head to GPT1Trainer"),
            (
                GPT1PretrainingTrainer,
                lambda _: GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=1)),
                "GPT2LMHeadModel. .* of another family to FamilyPretrainingTrainer",
            ),
        ],
    )
    def test_models_for_another_trainer(self, trainer_class, make, message, tmp_path):
        model = make(GPT1Config(**SMALL))
        with pytest.raises(ValueError, match=message):
            trainer_class(model, GPT1TrainingArguments(output_dir=str(tmp_path), use_cpu=True))

    def test_an_auxiliary_objective_without_its_head(self, tmp_path):
        model = GPT1ForSequenceClassification(GPT1Config(**SMALL))
        with pytest.raises(ValueError, match="`lm_coef` is 2.0, but GPT1ForSequenceClassification .*DoubleHeadsModel"):
            GPT1Trainer(model, GPT1TrainingArguments(output_dir=str(tmp_path), use_cpu=True, lm_coef=2.0))
        GPT1Trainer(model, GPT1TrainingArguments(output_dir=str(tmp_path), use_cpu=True, lm_coef=0.0))


class TestPretraining:
    def test_a_loss_function_of_the_users_own_is_refused(self, tmp_path):
        arguments = GPT1PretrainingArguments(str(tmp_path), use_cpu=True)
        with pytest.raises(ValueError, match="cannot call `compute_loss_func`.*override `compute_loss`"):
            GPT1PretrainingTrainer(
                support.pretraining.make_language_model(), arguments, compute_loss_func=lambda *_, **__: 0.0
            )

    def test_loss_does_not_depend_on_micro_batches(self, tmp_path):
        logs = [
            [(record["loss"], record["grad_norm"]) for record in self._train(tmp_path, batch_size, accumulation)]
            for batch_size, accumulation in ((8, 1), (2, 4), (1, 8))
        ]
        for log in logs[1:]:
            for record, expected in zip(log, logs[0], strict=True):
                assert record == pytest.approx(expected, rel=1e-5)

    @staticmethod
    def _train(tmp_path, batch_size, accumulation):
        sizes = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulation}
        trainer = support.pretraining.make_pretraining_trainer(
            tmp_path, 1, train_sampling_strategy="sequential", **sizes
        )
        trainer.train()
        return [record for record in trainer.state.log_history if "loss" in record]

    def test_evaluation_is_exact_for_every_batch_size(self, tmp_path):
        trainer = support.pretraining.make_pretraining_trainer(tmp_path, 1)
        model = trainer.model.eval()
        loss_sum = num_targets = 0
        for row in trainer.eval_dataset:
            ids = torch.tensor([row["input_ids"]])
            log_probabilities = model(ids).logits.double().log_softmax(-1)[0, :-1]
            loss_sum -= log_probabilities.gather(1, ids[0, 1:, None]).sum().item()
            num_targets += ids.shape[1] - 1
        for eval_batch_size in (1, 5, 24):
            trainer.args.per_device_eval_batch_size = eval_batch_size
            metrics = trainer.evaluate()
            assert metrics["eval_loss"] == pytest.approx(loss_sum / num_targets, rel=1e-6)
            assert metrics["eval_perplexity"] == pytest.approx(math.exp(loss_sum / num_targets), rel=1e-5)

    def test_logs_perplexity_and_throughput(self, tmp_path):
        for record in self._train(tmp_path, 2, 4):
            assert record["perplexity"] == pytest.approx(math.exp(record["loss"]), rel=1e-6)
            assert record["tokens_per_second"] > 0
            assert 0 < record["mfu"] < 1

    @pytest.mark.parametrize(("bf16", "dtype"), [(False, torch.float32), (True, torch.bfloat16)])
    def test_the_utilisation_is_that_of_all_devices_in_the_dtype_of_the_products(
        self, tmp_path, monkeypatch, bf16, dtype
    ):
        measured = []
        monkeypatch.setattr(
            "modeling_gpt1.training.trainer.measure_peak_flops", lambda *given: measured.append(given) or 1e12
        )
        trainer = support.pretraining.make_pretraining_trainer(tmp_path, 1, bf16=bf16, max_steps=1)
        trainer.train()
        assert measured == [(torch.device("cpu"), dtype)]
        needed = training_flops_per_token(trainer.model)
        for world_size in (1, 4):
            monkeypatch.setattr(GPT1PretrainingArguments, "world_size", world_size)
            trainer.state.num_input_tokens_seen += 10**9
            trainer.log(record := {"loss": 1.0})
            assert record["mfu"] == pytest.approx(record["tokens_per_second"] * needed / (1e12 * world_size))
            assert record["mfu"] > 1e-3

    def test_flops_of_the_full_model(self):
        with torch.device("meta"):
            model = GPT1ForCausalLM(GPT1Config())
        # 12 blocks of 12 · 768² weights and the head's 768 · 40478, 6 operations each; then attention.
        assert training_flops_per_token(model) == 6 * (12 * 12 * 768**2 + 768 * 40478) + 12 * 12 * 768 * 512


def test_predictions_of_labelled_blocks_and_evaluation_without_logits(tmp_path):
    trainer, made = support.pretraining.make_pretraining_trainer(tmp_path, 1), []
    trainer.model.register_forward_hook(lambda module, inputs, outputs: made.append(outputs.logits is not None))
    evaluation, prediction = trainer.evaluate(), trainer.predict(trainer.eval_dataset)
    assert made == [False] * 3 + [True] * 3  # batches of 8 of 24 rows
    assert prediction.predictions.shape == (24, 12, 40)
    assert prediction.label_ids.shape == (24, 12)
    assert prediction.metrics["test_loss"] == pytest.approx(evaluation["eval_loss"], rel=1e-6)
    trainer.preprocess_logits_for_metrics = lambda logits, labels: logits.argmax(-1)
    assert (trainer.predict(trainer.eval_dataset).predictions == prediction.predictions.argmax(-1)).all()


class TestRunsAsUsersMakeThem:
    def test_lm_coef_reaches_every_model_of_model_init(self, tmp_path):
        tokenizer = make_letter_tokenizer()
        model = make_double_heads_model("classification", tokenizer)
        arguments = GPT1TrainingArguments(
            output_dir=str(tmp_path), use_cpu=True, lm_coef=0.0, max_steps=1, logging_steps=1, save_strategy="no"
        )
        trainer = GPT1Trainer(
            args=arguments,
            model_init=lambda: make_double_heads_model("classification", tokenizer),
            data_collator=make_traversal_collator(model, tokenizer),
            train_dataset=Rows("classification"),
            processing_class=tokenizer,
        )
        trainer.train()
        assert trainer.model.config.lm_coef == 0.0
        assert "lm_loss" not in trainer.state.log_history[0]

    def test_a_second_training_starts_its_own_log(self, tmp_path):
        trainer = make_finetuning_trainer("classification", tmp_path, 8, 1, logging_steps=2, learning_rate=0.0)
        trainer.train()  # the third update is not logged
        trainer.train()
        records = [record for record in trainer.state.log_history if "loss" in record]
        for record in records:
            assert record["loss"] == pytest.approx(record["task_loss"] + 0.5 * record["lm_loss"], rel=1e-5)
        assert records

    def test_a_loss_function_of_the_users_own_is_the_loss(self, tmp_path):
        """Classes weighted 1 to 9, beside a plain Trainer; refused where it would replace the auxiliary objective."""

        def weighted(outputs, labels, num_items_in_batch=None):
            loss = torch.nn.functional.cross_entropy(outputs.task_logits, labels, WEIGHTS, reduction="sum")
            return loss / num_items_in_batch

        records = []
        for trainer_class, arguments_class in ((GPT1Trainer, GPT1TrainingArguments), (Trainer, TrainingArguments)):
            classes = partial(trainer_class, compute_loss_func=weighted), arguments_class
            trainer = make_finetuning_trainer("entailment", tmp_path, 4, 2, 0.0, 0.0, *classes)
            records.append([*training_log(trainer), {"loss": trainer.evaluate()["eval_loss"]}])
        for record, expected in zip(*records, strict=True):
            assert record == pytest.approx(expected, rel=1e-5)
        assert (
            records[0][0]["loss"]
            > 2 * training_log(make_finetuning_trainer("entailment", tmp_path, 4, 2, 0.0))[0]["loss"]
        )
        with pytest.raises(ValueError, match="`lm_coef` is 0.5.*Pass `lm_coef=0`"):
            make_finetuning_trainer(
                "entailment", tmp_path, 4, 2, trainer_class=partial(GPT1Trainer, compute_loss_func=weighted)
            )

    def test_pushes_of_checkpoints(self, tmp_path):
        arguments = GPT1TrainingArguments(output_dir=str(tmp_path), use_cpu=True, hub_strategy="every_save")
        arguments.push_to_hub = True  # it must refuse before it talks to the hub
        with pytest.raises(ValueError, match="`hub_strategy` is 'every_save'.*Use `hub_strategy=\"end\"`"):
            GPT1Trainer(make_double_heads_model("classification", make_letter_tokenizer()), arguments)
        assert GPT1TrainingArguments(output_dir=str(tmp_path), use_cpu=True).hub_strategy == "end"

    def test_a_fine_tuned_model_generates_with_a_cache(self, tmp_path):
        trainer = make_finetuning_trainer("classification", tmp_path, 8, 1, max_steps=1)
        trainer.train()
        trainer.save_model()
        model = GPT1ForCausalLM.from_pretrained(tmp_path)
        lengths = []
        model.transformer.register_forward_pre_hook(
            lambda module, args, inputs: lengths.append(inputs["input_ids"].shape[1]), with_kwargs=True
        )
        model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=4, do_sample=False)
        assert lengths == [3, 1, 1, 1]

    def test_an_untied_head_may_rest_without_the_auxiliary_loss(self, tmp_path):
        """DistributedDataParallel then has to find that it takes no part; a later trainer may train it."""
        tokenizer = make_letter_tokenizer()
        config = make_double_heads_model("classification", tokenizer).config
        config.tie_word_embeddings = False
        model = GPT1DoubleHeadsModel(config)
        for lm_coef, finds in ((0.0, True), (0.5, False)):
            arguments = GPT1TrainingArguments(output_dir=str(tmp_path), use_cpu=True, lm_coef=lm_coef)
            trainer = GPT1Trainer(
                model, arguments, data_collator=make_traversal_collator(model, tokenizer), processing_class=tokenizer
            )
            assert trainer.accelerator.ddp_handler.find_unused_parameters is finds
            assert model.lm_head.weight.requires_grad


@pytest.mark.parametrize("arguments", [GPT1TrainingArguments, GPT1PretrainingArguments])
@pytest.mark.parametrize("has_accelerator", [True, False])
def test_memory_is_pinned_for_an_accelerator_alone(arguments, has_accelerator, tmp_path, monkeypatch):
    device = torch.device("mps" if has_accelerator else "cpu")
    monkeypatch.setattr("modeling_gpt1.training.arguments.default_device", lambda: device)
    assert arguments(str(tmp_path)).dataloader_pin_memory is has_accelerator


def test_one_device_is_used(tmp_path, caplog):
    """torch's DataParallel would cut a batch, but not its plan."""
    arguments = GPT1TrainingArguments(str(tmp_path), use_cpu=True)
    arguments._n_gpu = 5
    assert GPT1Trainer(make_double_heads_model("classification", make_letter_tokenizer()), arguments).args.n_gpu == 1
    assert "Only the first of 5 devices is used. Start the script with `accelerate launch`" in caplog.text
