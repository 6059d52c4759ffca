"""Trainers of GPT-1: pre-training on L1 and fine-tuning on L3 = L2 + λ·L1.

Source: section 4.1 of "Improving Language Understanding by Generative Pre-Training". What [`transformers.Trainer`]
does stays there. These classes add the component losses, their exact evaluation, checks, the model card and pushes.
`trainer_internals.py` adds exact resume and atomic checkpoints.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitInfo
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, PreTrainedModel, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.trainer_utils import BestRun, EvalLoopOutput
from transformers.utils import logging
from transformers.utils.hub import hf_api

from tokenization import BlockCollator, TraversalCollator
from tokenization.errors import UserError
from tokenization.rows.metrics import gives_one_score

from ..families import Family, family_of_model, without_adapter
from ..families.opening import name_for_others
from ..hub.push import (
    PUBLIC,
    check_base,
    check_right_to_write,
    explained,
    is_public_repository,
    log_failure,
    upload_result,
)
from ..loss_gpt1 import count_items, count_labels, task_loss, task_losses
from .arguments import check_arguments, direction_of_score, seed_of_data, sets_by_name
from .card import write_model_card
from .checks import (
    check_adapter,
    check_best_score,
    check_folder_of_adapter,
    check_inputs_for_metrics,
    check_kinds,
    check_names,
    check_rows,
)
from .class_weights import weights_of_classes
from .compilation import compiled_blocks, take_compilation
from .cpu_attention import choose_cpu_attention
from .freezing import trains_head_alone
from .launch import check_launch, set_up_fsdp
from .measures import measure_peak_flops, perplexity, training_flops_per_token
from .trainer_internals import ResumableTrainer

logger = logging.get_logger(__name__)

PARTS = ("task_loss", "lm_loss")  # of L3; the second unless λ is 0


class _GPT1BaseTrainer(ResumableTrainer):
    """Shared base of both trainers: exact evaluation of losses, checks, model card, pushes.

    Raises:
        PushError: the hub refused or did not answer. The message says where the model is, if it was trained.
    """

    def __init__(self, model=None, args: TrainingArguments | None = None, *others, **kwargs):
        check_kinds(model, args)
        check_names(kwargs, args)
        if args is not None:
            check_arguments(args)
            check_launch(args)
            use_one_device(args)
        self._example_losses: list[torch.Tensor] = []  # of the current evaluation
        self._is_set_up = False
        super().__init__(model, args, *others, **kwargs)
        self._stop_early()
        check_rows("train_dataset", self.train_dataset, self.data_collator)
        for rows in self.eval_dataset.values() if isinstance(self.eval_dataset, dict) else [self.eval_dataset]:
            check_rows("eval_dataset", rows, self.data_collator)
        check_inputs_for_metrics(self.args, self.data_collator)
        self._has_own_loss = self.compute_loss_func is None
        self._set_up_loading()
        own_model = self._set_up_model(self.accelerator.unwrap_model(self.model))
        self._compiled_parts = take_compilation(self.accelerator, own_model, self.args.torch_compile)
        if self.args.torch_compile and self._compiled_parts is None:
            leave_plans_out(self.data_collator)  # a model that is compiled as a whole follows none
        set_up_fsdp(self.accelerator, own_model)
        self._is_set_up = True

    def _stop_early(self) -> None:
        """Adds the callback of early stopping, if the arguments ask for it."""
        if self._patience is not None:
            self.add_callback(EarlyStoppingCallback(self._patience))

    def _set_up_loading(self) -> None:
        """How accelerate's loaders share the rows out."""
        loading = self.accelerator.dataloader_config
        # Otherwise the first process reads a stream for all, and fails if batches differ in length.
        loading.dispatch_batches = False
        # Processes gather results of one size. The rows that fill a batch are left out again.
        loading.even_batches = True
        loading.use_seedable_sampler = True  # the other resumes with another order
        loading.data_seed = seed_of_data(self.args)  # else torch's seed of the moment
        if self.args.dataloader_pin_memory and self.args.device.type not in ("cpu", "mps"):
            # Otherwise each copy of a batch waits until the device has finished all earlier work.
            loading.non_blocking = True

    def call_model_init(self, trial=None):
        model = super().call_model_init(trial)
        if self._is_set_up:  # `__init__` sets up its own model
            self._set_up_model(model)
        return model

    @property
    def _own_model(self) -> PreTrainedModel:
        """The model without the wrappers of several processes, and without an adapter."""
        return without_adapter(self.accelerator.unwrap_model(self.model))

    def _set_up_model(self, model: torch.nn.Module) -> PreTrainedModel:
        """Checks the model, which may have an adapter, and makes it and the trainer ready for each other.

        Sets the model's family. Returns the model inside the adapter.
        """
        own_model = without_adapter(model)
        self.family: Family = family_of_model(own_model)
        self._set_up_own_model(own_model)
        check_adapter(model, self.data_collator)
        check_folder_of_adapter(model, self.args.output_dir)
        return own_model

    def _set_up_own_model(self, model: PreTrainedModel) -> None:
        """Checks a model without its adapter and what belongs to it, and prepares it and the loss for training."""
        raise NotImplementedError

    def _prepare_gpt1(self, model: PreTrainedModel) -> None:
        """Prepares a model of this package for training."""
        choose_cpu_attention(model, self.args.device)
        model.pack_sequences &= getattr(self.args, "pack_sequences", True)  # transformers' arguments have no such one

    def training_step(self, *args, **kwargs):
        with compiled_blocks(self._own_model, self._compiled_parts):
            return super().training_step(*args, **kwargs)

    # ---- Evaluation

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        # The model returns the losses of each example, so that only a loss function of the user's needs their number.
        num_items_in_batch = None if self._has_own_loss else num_items_in_batch
        loss, outputs = super().compute_loss(model, {**inputs}, True, num_items_in_batch)
        example_losses = self._losses_of_examples(inputs, outputs) if self._has_own_loss else None
        if example_losses is not None:
            self._example_losses.append(self.gather_function(example_losses))
        return (loss, outputs) if return_outputs else loss

    def _losses_of_examples(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> torch.Tensor | None:
        """A row per example of a batch, for `_evaluated_losses`."""
        return outputs.get("example_losses")

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        with self.throughput.paused():
            return super().evaluate(*args, **kwargs)

    def evaluation_loop(
        self, dataloader: DataLoader, *args, metric_key_prefix: str = "eval", **kwargs
    ) -> EvalLoopOutput:
        self._example_losses = []
        output = super().evaluation_loop(dataloader, *args, metric_key_prefix=metric_key_prefix, **kwargs)
        if self._example_losses:
            losses = self._evaluated_losses(torch.cat(self._example_losses).cpu().double())
            if not self._has_known_loss():
                del losses["loss"]
            output.metrics.update({f"{metric_key_prefix}_{name}": loss for name, loss in losses.items()})
        return output

    def _has_known_loss(self) -> bool:
        """Whether trainer and model compute the loss as this package does: a subclass of either may add to it."""
        known = (_GPT1BaseTrainer.compute_loss, GPT1Trainer.compute_loss)
        return type(self).compute_loss in known and self.family.has_known_loss(self._own_model)

    def _evaluated_losses(self, example_losses: torch.Tensor) -> dict[str, float]:
        """Losses of a data set, computed from the model's `example_losses`, a row per example."""
        raise NotImplementedError

    # ---- The best checkpoint

    def begin_run(self) -> None:
        super().begin_run()
        has_evaluations = self.args.eval_strategy != "no"
        if self.args.metric_for_best_model is not None and has_evaluations and self._knows_its_scores():
            check_best_score(self.args.metric_for_best_model, self._scores_of_evaluation())

    def _knows_its_scores(self) -> bool:
        """Whether the names of an evaluation's scores are known before there is one."""
        own = type(self)
        is_ours = (own.evaluate, own.evaluation_loop) == (_GPT1BaseTrainer.evaluate, _GPT1BaseTrainer.evaluation_loop)
        if self.compute_metrics is None:
            return is_ours
        # A function of the user's does not tell its names, and a metric of `evaluate` may give several scores.
        names = getattr(self.compute_metrics, "score_names", ())
        return is_ours and len(names) > 0 and all(map(gives_one_score, names))

    def _scores_of_evaluation(self) -> list[str]:
        """The names of an evaluation's scores, without `eval_`."""
        scores = [*self._loss_names(), *getattr(self.compute_metrics, "score_names", ())]
        set_names = list(sets_by_name(self.eval_dataset))
        if set_names:
            return [f"{name}_{score}" for name in set_names for score in scores]
        return scores

    def _loss_names(self) -> list[str]:
        """What an evaluation reports without metrics."""
        raise NotImplementedError

    # ---- Search

    def hyperparameter_search(
        self,
        hp_space: Callable | None = None,
        compute_objective: Callable[[dict[str, float]], float] | None = None,
        n_trials: int = 20,
        direction: str | list[str] | None = None,
        *args,
        **kwargs,
    ) -> BestRun | list[BestRun]:
        """As in transformers, with another default objective: the sum of losses and metrics means nothing.

        Args:
            compute_objective (`Callable`, *optional*): the objective of an evaluation's figures. Default: the score
                `metric_for_best_model`, else the first metric of `compute_metrics_for(task)`, else the loss; of
                several data sets the mean, unless the score names one of them.
            direction (`str`, *optional*): "minimize" or "maximize". Default: that of the default objective, or
                "minimize" for an objective of yours.

        Raises:
            ValueError: the direction is not that of the default objective, or it is not known.
        """
        if compute_objective is not None:
            return super().hyperparameter_search(
                hp_space, compute_objective, n_trials, direction or "minimize", *args, **kwargs
            )
        score, own_direction = self._default_objective()
        if direction not in (None, own_direction):
            raise UserError(
                f"`direction` is {direction!r}, but the objective is {score!r}, whose best value is found by "
                f"{own_direction!r}. Name the score to search by as `metric_for_best_model`, or pass "
                "`compute_objective` with its `direction`."
            )
        names = self._names_of_score(score)

        def mean_score(figures: dict[str, float]) -> float:
            return sum(figures[name] for name in names) / len(names)

        return super().hyperparameter_search(hp_space, mean_score, n_trials, own_direction, *args, **kwargs)

    def _names_of_score(self, score: str) -> list[str]:
        """What an evaluation calls a score. Of several data sets each has one, unless the score begins with a set."""
        set_names = list(sets_by_name(self.eval_dataset))
        names_a_set = any(score.startswith(f"{name}_") for name in set_names)
        if not set_names or names_a_set:
            return [f"eval_{score}"]
        return [f"eval_{name}_{score}" for name in set_names]

    def _default_objective(self) -> tuple[str, str]:
        """The score by which a search goes, without `eval_`, and the direction of its best value."""
        if self.args.metric_for_best_model is not None:
            score = self.args.metric_for_best_model.removeprefix("eval_")
            return score, "maximize" if self.args.greater_is_better else "minimize"
        of_task = getattr(self.compute_metrics, "score_names", ())  # a function of the user's does not tell its names
        score = of_task[0] if of_task else "loss"
        is_more_better = direction_of_score(score)
        if is_more_better is None:
            raise UserError(
                f"The objective is {score!r}, and it is not known whether a higher value is better. Pass "
                "`compute_objective` and `direction`."
            )
        return score, "maximize" if is_more_better else "minimize"

    # ---- Hub

    def init_hf_repo(
        self,
        token: str | None = None,
        private: bool | None = None,
        is_trained: bool = False,
        revision: str | None = None,
    ) -> None:
        """As in transformers. With `push_to_hub` this runs before training, so a missing right is noticed early.

        Raises:
            PushError: the hub refused or did not answer.
            ValueError: the model is an adapter whose base is on this machine only.
        """
        model = self.accelerator.unwrap_model(self.model)
        if without_adapter(model) is not model:
            for adapter in model.peft_config.values():
                check_base(name_for_others(adapter.base_model_name_or_path))
        options = {}  # releases of transformers differ in those that they know
        if token is not None:
            options["token"] = token
        if private is not None:
            options["private"] = private
        name = self.args.hub_model_id or Path(self.args.output_dir).absolute().name
        is_asked = self.args.hub_private_repo if private is None else private
        flags = ["--private"] if is_asked else []
        with explained(name, self.args.output_dir, revision or self.args.hub_revision, is_trained, flags):
            super().init_hf_repo(**options)
            own_token = token or self.args.hub_token
            if is_asked and self.is_world_process_zero() and is_public_repository(self.hub_model_id, own_token):
                raise UserError(PUBLIC.format(self.hub_model_id, "hub_private_repo"))
            if not is_trained and self.is_world_process_zero():
                check_right_to_write(self.hub_model_id, own_token)

    def create_model_card(self, **card_data: Any) -> None:
        """Writes `README.md` into `args.output_dir` from the `hub_card.md` template and the facts of this run.

        Args:
            card_data: as in [`transformers.Trainer.create_model_card`]: `language`, `license`, `tags`, `model_name`,
                `finetuned_from`, `tasks`, `dataset_tags`, `dataset`, `dataset_args`; and `dataset_split`, the name
                of the evaluated split.
        """
        if self.is_world_process_zero():
            write_model_card(self, self.family, **card_data)

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **card_data: Any,
    ) -> CommitInfo | Future | None:
        """As in transformers: pushes `output_dir` in one commit, without the files that `NEVER_PUSHED` lists.

        Model, tokenizer, card, metrics and written logs are pushed. Checkpoints, pickles, files that may contain them,
        `.env` files, names that begin with `_` and TensorBoard's events, which name the machine, are not pushed.

        Raises:
            PushError: the upload failed; with `blocking=False` the returned future raises it, and it is logged.
        """
        args = self.args
        self.callback_handler.on_push_begin(args, self.state, self.control)
        self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return None
        if self.hub_model_id is None:
            self.create_model_card(**card_data)  # so that there is a card even without a repository
            self.init_hf_repo(token, private, is_trained=True, revision=revision)
        self.create_model_card(**card_data)
        upload = partial(
            upload_result,
            args.output_dir,
            self.hub_model_id,
            revision=revision or args.hub_revision,
            commit_message=commit_message,
            token=token or args.hub_token,
        )
        if blocking:
            return upload()
        future = hf_api().run_as_future(upload)
        future.add_done_callback(log_failure)
        return future


def use_one_device(args: TrainingArguments) -> None:
    """Keeps Trainer from torch's DataParallel, which would cut each batch, with its plan."""
    if args.n_gpu > 1:
        logger.warning(
            f"Only the first of {args.n_gpu} devices is used. Start the script with `accelerate launch` or `torchrun` "
            "to use all of them."
        )
        args._n_gpu = 1


def leave_plans_out(collator: Any) -> None:
    """Lets a collator of this package make batches without plans."""
    if isinstance(collator, TraversalCollator | BlockCollator):
        collator.plan = False


class GPT1Trainer(_GPT1BaseTrainer):
    r"""Fine-tunes a [`GPT1DoubleHeadsModel`] on L3; or on L2 a model with the task head alone, or a model of another
    family that `AutoModelForSequenceClassification` or `AutoModelForMultipleChoice` opens. A causal decoder that
    `prepare_finetuning(…, lm_coef=0.5)` opens as a classifier is fine-tuned on L3, too.

    In the logs `loss` is L3; `task_loss` and `lm_loss` are means of its parts since the last log, over accumulation
    steps and processes, and `lm_perplexity` is e to `lm_loss`. Evaluation reports exact means over the data set,
    `eval_loss`, `eval_task_loss` and `eval_lm_loss`, with `eval_lm_perplexity`, whatever the batch size and the number
    of processes.

    The loss of another family is L2 / N, where N is the number of examples in the whole optimizer step of all
    processes, whatever the model's own loss does: many classifiers of transformers take the mean over a micro-batch,
    so that an example's weight depends on how the step is cut.

    Raises:
        ValueError: before training starts, if model, tokenizer, collator and arguments do not fit together.
    """

    @property
    def _lm_coef(self) -> float | None:
        """λ of the arguments; None leaves the model's own."""
        return getattr(self.args, "lm_coef", None)  # transformers' arguments have none

    def _set_up_own_model(self, model: PreTrainedModel) -> None:
        if not self.family.has_task_head(model):
            raise UserError(
                f"GPT1Trainer fine-tunes models with a task head, but {type(model).__name__} has none. Open the "
                "checkpoint with `prepare_finetuning`, or pre-train it with GPT1PretrainingTrainer."
            )
        if self._lm_coef and not self.family.has_auxiliary_loss(model):
            raise UserError(
                f"`lm_coef` is {self._lm_coef}, but {type(model).__name__} has no language-model head beside the "
                f"task's. Open the checkpoint with `prepare_finetuning(…, lm_coef={self._lm_coef})`, or a GPT-1 with "
                "GPT1DoubleHeadsModel, or leave `lm_coef` out."
            )
        class_weights = self._weights_of_classes(model)
        if self.family.has_example_losses:
            self._prepare_gpt1(model)
            model.class_weights = class_weights
        else:
            self._prepare_classifier(model, class_weights)
        if self.family.has_auxiliary_loss(model):
            self._prepare_auxiliary_loss(model)
        self.family.check_finetuning(model, self.saved_tokenizer, self.data_collator)

    def _weights_of_classes(self, model: PreTrainedModel) -> list[float] | None:
        """The weight of each class in the task's loss, if the arguments give some."""
        given = getattr(self.args, "class_weights", None)  # transformers' arguments have no such one
        if given is None:
            return None
        if not self._has_own_loss:
            raise UserError(
                "`class_weights` is given, but `compute_loss_func` would replace the loss that it weighs. Leave one "
                "of them out."
            )
        return weights_of_classes(given, model.config, self.train_dataset, self.data_collator)

    def _prepare_auxiliary_loss(self, model: PreTrainedModel) -> None:
        """Gives the model λ, and checks that nothing replaces its loss."""
        config = model.config
        if not self.family.has_example_losses and (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            raise UserError(
                f"{type(model).__name__} has a language-model head beside it (`lm_coef`), which FSDP and DeepSpeed "
                "would not save. Train it on one device or with DistributedDataParallel, or leave `lm_coef` out."
            )
        if self._lm_coef is not None:
            self.family.set_lm_coef(config, self._lm_coef)
        if config.lm_coef and trains_head_alone(model):
            logger.warning(
                f"`lm_coef` is {config.lm_coef}, but all weights that the language-model loss could change are "
                "frozen. Pass `lm_coef=0`, which saves its time."
            )
        if not self._has_own_loss and config.lm_coef:
            raise UserError(
                f"`lm_coef` is {config.lm_coef}, but `compute_loss_func` would replace the model's loss and with it "
                "the auxiliary objective. Pass `lm_coef=0`, or leave `compute_loss_func` out."
            )
        if not config.lm_coef and self.family.has_own_output_matrix(model):
            self._find_unused_weights()  # the matrix takes no part in the loss

    def _prepare_classifier(self, model: PreTrainedModel, class_weights: list[float] | None) -> None:
        """Prepares a classifier of transformers: this trainer computes its loss from its scores."""
        model.config.use_cache = self.args.use_cache = False  # a classifier generates nothing
        if not self.family.has_auxiliary_loss(model):
            vars(model.config).pop("lm_coef", None)  # of an earlier fine-tuning
        self._find_unused_weights()  # the base of some classifiers has weights that no score depends on
        self.model_accepts_loss_kwargs = False  # the model is called without labels
        if self._has_own_loss:
            settings = self.family.loss_settings(model.config)

            def loss_of_scores(outputs, labels, num_items_in_batch):
                weights = class_weights if model.training else None
                loss = task_loss(outputs["logits"], labels, settings, num_items_in_batch, weights)
                if "lm_sum" not in outputs:
                    return loss
                lm_loss = outputs["lm_sum"] / count_items(count_labels(labels), num_items_in_batch)
                outputs["task_loss"] = loss
                outputs["lm_loss"] = lm_loss
                return loss + model.config.lm_coef * lm_loss

            self.compute_loss_func = loss_of_scores

    def _find_unused_weights(self) -> None:
        """Lets DistributedDataParallel find weights without a gradient, for which it would wait."""
        if self.accelerator.ddp_handler is not None:  # which Trainer has made from the arguments
            self.accelerator.ddp_handler.find_unused_parameters = True

    def _with_example_weights(self, inputs: dict[str, Any], num_items: torch.Tensor | int | None) -> dict[str, Any]:
        """The inputs, by which a classifier with the auxiliary objective gives L1."""
        is_wanted = not self.family.has_example_losses and self.family.has_auxiliary_loss(self._own_model)
        lm_coef = self._own_model.config.lm_coef if is_wanted else 0
        if not lm_coef or "labels" not in inputs:
            return inputs
        counts = count_labels(inputs["labels"])
        expected_grad = torch.tensor(lm_coef) / count_items(counts, num_items)  # as autograd rounds it
        return {**inputs, "example_weights": counts, "expected_grad": expected_grad}

    def begin_run(self) -> None:
        if self._lm_coef is not None and self.family.has_auxiliary_loss(self._own_model):
            # A search sets it after it has made the model.
            self.family.set_lm_coef(self._own_model.config, self._lm_coef)
        super().begin_run()

    def _settings(self) -> dict[str, Any]:
        model = self._own_model
        lm_coef = model.config.lm_coef if self.family.has_auxiliary_loss(model) else 0.0
        return {**super()._settings(), "lm_coef": lm_coef}  # which the model may have without the arguments

    def _loss_names(self) -> list[str]:
        model = self._own_model
        if not self._has_own_loss or not self.family.has_auxiliary_loss(model):
            return ["loss"]
        if model.config.lm_coef:
            return ["loss", "task_loss", "lm_loss", "lm_perplexity"]
        return ["loss", "task_loss"] if self.family.has_example_losses else ["loss"]

    def _scores(self, model: torch.nn.Module) -> Callable:
        """What gives the scores of a batch."""
        return self.family.scores_of(model, self._own_model)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        inputs = self._with_example_weights(inputs, num_items_in_batch)
        loss, outputs = super().compute_loss(self._scores(model), inputs, True, num_items_in_batch)
        if model.training and outputs.get("task_loss") is not None:
            self.add_parts(*(outputs[name] for name in PARTS if outputs.get(name) is not None))
        if "lm_sum" in outputs:  # outputs beside the scores would be gathered with the predictions
            outputs = SequenceClassifierOutput(logits=outputs["logits"])
        return (loss, outputs) if return_outputs else loss

    def prediction_step(self, model, inputs, *args, **kwargs):
        # With labels, `compute_loss` is called.
        return super().prediction_step(model if "labels" in inputs else self._scores(model), inputs, *args, **kwargs)

    def _losses_of_examples(self, inputs, outputs):
        example_losses = super()._losses_of_examples(inputs, outputs)
        if example_losses is not None or "labels" not in inputs:
            return example_losses
        # A model with the task head alone returns only their mean.
        settings = self.family.loss_settings(self._own_model.config)
        losses = [task_losses(outputs["logits"], inputs["labels"], settings)]
        if "lm_losses" in outputs:
            losses.append(outputs["lm_losses"])
        return torch.stack([*losses, count_labels(inputs["labels"])], dim=1)

    def _evaluated_losses(self, example_losses: torch.Tensor) -> dict[str, float]:
        parts = example_losses[:, :-1]
        weights = example_losses[:, -1:]
        means = ((parts * weights).sum(0) / weights.sum().clamp(min=1)).tolist()
        if len(means) == 1:
            return {"loss": means[0]}
        task_loss, lm_loss = means
        lm_coef = self._own_model.config.lm_coef
        losses = {"loss": task_loss + lm_coef * lm_loss, "task_loss": task_loss}
        if lm_coef > 0:
            losses["lm_loss"] = lm_loss
            losses["lm_perplexity"] = perplexity(lm_loss)
        return losses

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs and self.sums_of_parts is not None:
            logs.update(zip(PARTS, self.means_of_parts(), strict=False))
        if "lm_loss" in logs:
            logs["lm_perplexity"] = perplexity(logs["lm_loss"])
        super().log(logs, start_time)


# Another name, for scripts that fine-tune models of other families: it is not for GPT-1 alone.
TaskTrainer = GPT1Trainer


class GPT1PretrainingTrainer(_GPT1BaseTrainer):
    r"""Pre-trains a [`GPT1ForCausalLM`] on blocks of contiguous text: rows with `input_ids`.

    Beside `loss` the log has `perplexity`, `tokens_per_second` and `mfu`, each since the last log.

    - `tokens_per_second` is of real tokens and all processes, without evaluations, samples and checkpoints.
    - `mfu` is the model FLOP utilisation: the arithmetic that these tokens need, without recomputation, relative to
      the speed of a matrix product measured on the same device when training starts.
    - Both need the default value of `include_num_input_tokens_seen`.

    Evaluation reports the exact mean loss over all target tokens and its perplexity, whatever the batch size.
    """

    def _set_up_model(self, model: torch.nn.Module) -> PreTrainedModel:
        if not self._has_own_loss:
            raise UserError(
                f"{type(self).__name__} computes its loss itself, so it cannot call `compute_loss_func`. Leave it "
                "out, or override `compute_loss` in a subclass."
            )
        return super()._set_up_model(model)

    def _set_up_own_model(self, model: PreTrainedModel) -> None:
        family = self.family
        if not family.has_example_losses or family.has_task_head(model) or not family.has_lm_head(model):
            raise UserError(
                "GPT1PretrainingTrainer pre-trains GPT1ForCausalLM and GPT1LSTMForCausalLM, but the model is "
                f"{type(model).__name__}. Open the checkpoint with one of these, pass a model with a task head to "
                "GPT1Trainer, or one of another family to FamilyPretrainingTrainer."
            )
        self._prepare_gpt1(model)
        if self.saved_tokenizer is not None:
            family.check_pretraining(model, self.saved_tokenizer)

    def training_step(self, model, inputs, *args, **kwargs):
        if self.throughput.window is None:
            dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
            dtype = dtypes.get(self.accelerator.mixed_precision, torch.float32)
            self._peak_flops = None
            if self._flops_per_token():
                self._peak_flops = measure_peak_flops(self.args.device, dtype)  # before the time counts
            self.throughput.start(self.state.num_input_tokens_seen)
        return super().training_step(model, inputs, *args, **kwargs)

    _WITHOUT_LOGITS = {"skip_logits": True, "use_cache": False}
    """Arguments of the model in an evaluation that needs only the loss: nobody needs the [B, T, V] logits."""

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        if "labels" in inputs and prediction_loss_only:
            inputs = {**inputs, **self._WITHOUT_LOGITS}
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    def _loss_names(self) -> list[str]:
        return ["loss", "perplexity"]

    def _evaluated_losses(self, example_losses: torch.Tensor) -> dict[str, float]:
        loss_sum, num_targets = example_losses.sum(0).tolist()
        loss = loss_sum / max(num_targets, 1)
        return {"loss": loss, "perplexity": perplexity(loss)}

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs.update(self._logged_figures(logs["loss"]))
            if self.throughput.window and self.args.include_num_input_tokens_seen == "non_padding":
                logs["tokens_per_second"] = self.throughput.tokens_per_second(self.state.num_input_tokens_seen)
                if self._peak_flops:
                    flops_per_second = logs["tokens_per_second"] * self._flops_per_token()
                    logs["mfu"] = flops_per_second / (self._peak_flops * self.args.world_size)
        super().log(logs, start_time)

    def _logged_figures(self, loss: float) -> dict[str, float]:
        """What the log says beside the mean loss since the last log."""
        return {"perplexity": perplexity(loss)}

    def _flops_per_token(self) -> float | None:
        """Floating-point operations per token; `None` if they are not known."""
        return training_flops_per_token(self.accelerator.unwrap_model(self.model))
