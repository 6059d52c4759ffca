# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""Configuration of GPT-1: the decoder of "Improving Language Understanding by Generative Pre-Training".

Sources: section 4.1 of the paper (https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf)
and the released training code (https://github.com/openai/finetune-transformer-lm/blob/master/train.py). Options for
GPT-2 and GPT-3: section 2.3 of "Language Models are Unsupervised Multitask Learners" (Radford et al., 2019), and
section 2.1 of "Language Models are Few-Shot Learners" (Brown et al., 2020).
"""

import copy
import difflib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import transformers

# ruff: noqa: E402
OLDEST = (5, 17)  # setup.py and docs/install.md have the same
if tuple(map(int, transformers.__version__.split(".")[:2])) < OLDEST:  # before a name is missing there
    remedy = 'Run `pip install "transformers>={}.{}"`'.format(*OLDEST)
    raise ImportError(f"transformers {transformers.__version__} is too old for this model. {remedy}.")

from huggingface_hub import constants, get_session
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import HTTPError
from transformers import PreTrainedConfig
from transformers.dynamic_module_utils import HF_MODULES_CACHE, get_cached_module_file, get_relative_import_files
from transformers.utils import logging
from transformers.utils.type_validators import probability

logger = logging.get_logger(__name__)

PACKAGED_MODEL = "gpt1-novels"
SECONDS_TO_ANSWER = 5  # that the hub has


@dataclass(frozen=True)
class TraversalShape:
    """What a model needs to know of a traversal.

    Args:
        num_sequences: C, the sequences of an example; `None` means one for each choice.
        num_segments: texts of a sequence, with a delimiter between them.
        is_symmetric: whether the sequences are one pair in both orders. The model then also reads the pair alone,
            `[s] a [$] b [e]`, and builds the reverse order itself.
    """

    num_sequences: int | None
    num_segments: int
    is_symmetric: bool = False


TRAVERSALS = {
    "classification": TraversalShape(num_sequences=1, num_segments=1),
    "entailment": TraversalShape(num_sequences=1, num_segments=2),
    "similarity": TraversalShape(num_sequences=2, num_segments=2, is_symmetric=True),
    "multiple_choice": TraversalShape(num_sequences=None, num_segments=2),
}
DOUBLE_HEADS = "DoubleHeadsModel"  # how the names of such classes end
# The traversal of a checkpoint of openai-gpt or GPT-2, by the end of its class's name.
TRAVERSALS_OF_CLASS_ENDINGS = {DOUBLE_HEADS: "multiple_choice", "ForSequenceClassification": "classification"}
# A label or target that no loss counts: `ignore_index` of torch's cross-entropy, which transformers' Trainer and
# collators take for given.
IGNORED_LABEL = -100
PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")
# In `afn` of openai-gpt checkpoints "gelu" is the tanh approximation; in ACT2FN it is the exact function.
CHECKPOINT_ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "gelu_new": "gelu_pytorch_tanh", "swish": "silu"}
# transformers' names for dense and banded attention.
FULL_ATTENTION = "full_attention"
SLIDING_ATTENTION = "sliding_attention"
GPT2_DEFAULTS = {"vocab_size": 50257, "n_positions": 1024, "bos_token_id": 50256, "eos_token_id": 50256}
# Values that these GPT-2 fields must have for this decoder; the published models have them.
GPT2_NEEDED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}
# The same for the task head of openai-gpt and GPT-2 double-heads models.
DOUBLE_HEADS_NEEDED = {
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_activation": None,
    "summary_proj_to_labels": True,
}
LEGACY_KEYS = ("n_special", "predict_special_tokens", "task_specific_params", *DOUBLE_HEADS_NEEDED)


class UserError(ValueError):
    """What a user gave cannot be used. The sentence says what it was, what is needed and what to do."""


class PlaceError(UserError, OSError):
    """A model is neither in a folder nor in the hub's cache, and the hub cannot be asked for it."""


def fields_like(name: str, fields: list[str]) -> list[str]:
    """The fields that a wrong name may mean: with all its words and more (`hidden_dropout_…`), or spelled alike."""
    words = set(name.split("_"))
    if len(words) > 1:
        longer = [field for field in fields if words < set(field.split("_"))]
        if longer:
            return longer
    return difflib.get_close_matches(name, fields, n=1, cutoff=0.85)


def may_be_hub_id(name: str) -> bool:
    """Whether a name has the form of a model's on the hub, `owner/name`; the name of a folder may have it, too."""
    return re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name, re.ASCII) is not None


def check_place(
    name: str | os.PathLike, cache_dir: str | os.PathLike | None = None, local_files_only: bool = False, **kwargs
) -> None:
    """Checks that a model may be found: transformers would ask a hub that is out of reach for most of a minute.

    Args:
        name: a folder or hub id.
        cache_dir, local_files_only: as in `from_pretrained`; its other arguments do not matter.

    Raises:
        PlaceError: it is no folder, the hub's cache has nothing of it, and the hub does not answer.
    """
    name = os.fspath(name)
    if os.path.exists(name):
        return
    if name == PACKAGED_MODEL:
        raise PlaceError(
            f"{name!r} is no folder here ({os.path.abspath(name)}); to the commands it is the name of the model that "
            "comes with the package. In Python, pass its folder, `modeling_gpt1.NOVELS`."
        )
    in_cache = Path(cache_dir or constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}")
    if local_files_only or constants.HF_HUB_OFFLINE or in_cache.is_dir():
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS_TO_ANSWER)
    except (HTTPError, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PlaceError(
            f"{name!r} is no folder here ({os.path.abspath(name)}), and the hub cannot be asked for it ({reason}). "
            f"Pass the folder of a model. Without a network there is {PACKAGED_MODEL}, which comes with the package: "
            "`modeling_gpt1.NOVELS` in Python."
        ) from None


@strict
class GPT1BaseConfig(PreTrainedConfig):
    """Shared part of all GPT-1 configurations: the Auto classes, checks of sizes, and the objective."""

    auto_classes = {}  # module and class that a saved folder gives each Auto class, for `trust_remote_code=True`
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings")  # at least 1 each
    translated_types = ()  # other types of models whose folders the class opens
    # With this, `save_pretrained` writes the code beside `config.json`, as after `register_for_auto_class`.
    _auto_class = "AutoConfig"
    keys_to_ignore_at_inference = ["past_key_values", "cache", "task_loss", "lm_loss", "lm_logits", "example_losses"]

    vocab_size: int = 40478
    hidden_size: int = 768
    max_position_embeddings: int = 512
    embd_pdrop: float | int = probability(default=0.1)
    resid_pdrop: float | int = probability(default=0.1)
    classifier_dropout: float | int = probability(default=0.1)
    layer_norm_epsilon: float = probability(default=1e-5)
    initializer_range: float = probability(default=0.02)
    use_cache: bool = True
    tie_word_embeddings: bool = True
    traversal: str | None = None
    columns: dict[str, str | list[str]] | None = None
    lm_coef: float | int = 0.5
    start_token_id: int | None = None
    delimiter_token_id: int | None = None
    extract_token_id: int | None = None
    speaker_token_ids: list[int] | None = None
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path, **kwargs):
        """As in transformers, which only warns of a model of another type, and opens it as new weights.

        Raises:
            ValueError: the folder is of another type of model, or there is none and the hub does not answer.
        """
        check_place(pretrained_model_name_or_path, **kwargs)
        config_dict, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        kind = config_dict.get("model_type") or cls.model_type
        if kind not in (cls.model_type, *cls.translated_types):
            raise UserError(
                f"{pretrained_model_name_or_path} is a model of type {kind!r}, and {cls.__name__} is of type "
                f"{cls.model_type!r}. Open it with an Auto class, such as AutoModel, or with `prepare_finetuning`."
            )
        return config_dict, kwargs

    def save_pretrained(self, save_directory, *args, **kwargs):
        """As in transformers; also writes the models' code, and the Auto classes that open it (`auto_map`)."""
        auto_map = dict(self.auto_classes)
        if self.traversal is not None:  # one of the two classes with a task head opens it
            other = "SequenceClassification" if has_choices(self.traversal) else "MultipleChoice"
            del auto_map[f"AutoModelFor{other}"]
        own_modules = self._own_modules()
        old_auto_map = getattr(self, "auto_map", None) or {}
        for name, reference in old_auto_map.items():
            _, separator, class_path = str(reference).rpartition("--")  # behind a repository, or alone
            is_replaced = separator != "" and name in self.auto_classes  # by the class whose code is saved here
            is_of_a_user = class_path.split(".")[0] not in own_modules
            if is_of_a_user and not is_replaced:
                auto_map[name] = reference
        self.auto_map = auto_map
        self._name_class_of_task_head()
        super().save_pretrained(save_directory, *args, **kwargs)
        self._save_code(save_directory)

    def _upload_modified_files(self, working_dir, *args, **kwargs):
        self._save_code(working_dir)  # the parent's `save_pretrained` uploads before it returns
        return super()._upload_modified_files(working_dir, *args, **kwargs)

    def _name_class_of_task_head(self) -> None:
        """Names the class with the task head alone beside that with double heads, which opens as both.

        CrossEncoder of Sentence Transformers reads from such a name that a model has classes.
        """
        name = (self.architectures or [""])[0]
        if name.endswith(DOUBLE_HEADS):
            head = "ForMultipleChoice" if has_choices(self.traversal) else "ForSequenceClassification"
            self.architectures = [name, name.removesuffix(DOUBLE_HEADS) + head]

    def _own_modules(self) -> set[str]:
        """The modules of the Auto classes."""
        return {reference.split(".")[0] for reference in self.auto_classes.values()}

    def _save_code(self, save_directory) -> None:
        """Copies the models' files and all that they import. transformers copies what this file imports alone."""
        if self._auto_class is None:
            return
        folder = Path(__file__).parent
        for name in self._own_modules():
            file = folder / f"{name}.py"
            if not file.exists():  # a folder's own code was opened, and only what the configuration imports
                if Path(save_directory, file.name).exists():  # its model has put it there; the folder may be gone
                    continue
                file = Path(HF_MODULES_CACHE, get_cached_module_file(self.name_or_path, file.name))
            for path in (file, *get_relative_import_files(file)):
                shutil.copy(path, save_directory)

    def __post_init__(self, **kwargs):
        # Private. From a file it would override the user's `attn_implementation`.
        kwargs.pop("_attn_implementation", None)
        self._warn_of_near_names(kwargs)
        super().__post_init__(**kwargs)

    def _warn_of_near_names(self, unknown: dict) -> None:
        """Names the field that an unknown argument may have meant: transformers keeps any argument silently."""
        fields = [*self.__dataclass_fields__, *self.attribute_map]
        for name in unknown:
            if name in fields or hasattr(type(self), name):  # `num_labels` is a property
                continue
            near = fields_like(name, fields)
            if near:
                logger.warning_once(
                    f"`{name}` is no field of {type(self).__name__} and changes nothing. Did you mean `{near[0]}`?"
                )

    def validate_sizes(self):
        """Part of `@strict`: refuses impossible sizes."""
        for name in self.sizes:
            if getattr(self, name) < 1:
                raise UserError(f"`{name}` is {getattr(self, name)}, but it must be at least 1.")

    def validate_objective(self):
        """Part of `@strict`: checks the fields of the fine-tuning objective."""
        if self.problem_type is not None and self.problem_type not in PROBLEM_TYPES:
            raise UserError(
                f"`problem_type` is {self.problem_type!r}, but it must be one of {', '.join(PROBLEM_TYPES)}, or None: "
                "regression where `num_labels` is 1, else one class for each example."
            )
        if self.traversal is not None and self.traversal not in TRAVERSALS:
            raise UserError(f"Unknown traversal {self.traversal!r}. Choose one of {', '.join(TRAVERSALS)}.")
        if self.speaker_token_ids is not None and len(self.speaker_token_ids) != 2:
            raise UserError(
                f"`speaker_token_ids` is {self.speaker_token_ids}, but it must be the ids of two tokens, the model's "
                "own speaker and the user's. Call `tokenization.add_speaker_tokens(tokenizer, model)`."
            )
        if not 0 <= self.lm_coef < float("inf"):
            raise UserError(
                f"`lm_coef` is {self.lm_coef}, but the weight of the auxiliary loss must be a finite number of at "
                "least 0. The paper's value is 0.5; 0 switches the auxiliary loss off."
            )


@strict
class GPT1Config(GPT1BaseConfig):
    r"""Configuration of every GPT-1 model. The defaults are the paper's 117 M parameters.

    Names of openai-gpt checkpoints (`n_embd`, `n_layer`, `n_head`, `n_positions`, `n_ctx`, `afn`) are accepted too;
    `afn="gelu"` means the tanh approximation there, so it becomes `hidden_act="gelu_pytorch_tanh"`.

    GPT-2 is `vocab_size=50257, max_position_embeddings=1024, do_layer_norm_before=True,
    rescale_prenorm_residual=True`; GPT-3 the same with `max_position_embeddings=2048` and a `sliding_window`.

    Args:
        vocab_size (`int`): V, rows of the token embeddings; 40 000 merges, 477 single symbols and `<unk>`.
        hidden_size (`int`): D, width of the hidden states.
        num_hidden_layers (`int`): blocks.
        num_attention_heads (`int`): attention heads per block; must divide `hidden_size`.
        intermediate_size (`int`, *optional*): width of the feed-forward layer; 4 × `hidden_size` when not given.
        max_position_embeddings (`int`): the longest sequence, in tokens.
        hidden_act (`str`): activation of the feed-forward layer, a key of transformers' `ACT2FN`.
        embd_pdrop (`float`): dropout probability of the summed embeddings.
        resid_pdrop (`float`): dropout probability of each sub-block's output before the residual sum.
        attn_pdrop (`float`): dropout probability of the attention weights.
        classifier_dropout (`float`): dropout probability before the task head.
        layer_norm_epsilon (`float`): ε of the layer norms.
        initializer_range (`float`): standard deviation σ of the initial weights, N(0, σ).
        do_layer_norm_before (`bool`): layer norms are applied at the input of each sub-block instead of after the
            residual sum, with one more after the last block (section 2.3 of GPT-2's paper).
        rescale_prenorm_residual (`bool`): in a new model, draw the projections that end in a residual sum from
            N(0, σ / √N), where N is the number of residual layers, 2 per block (section 2.3 of GPT-2's paper).
        sliding_window (`int`, *optional*): number of tokens that a query sees in a locally banded layer: its own and
            those just before it. GPT-3's paper does not give the number.
        layer_types (`list[str]`, *optional*): `"full_attention"` (dense) or `"sliding_attention"` (locally banded) for
            each layer. Default: with `sliding_window`, both alternate, dense first (section 2.1 of GPT-3's paper);
            without it, all layers are dense.
        trained_positions (`int`, *optional*): the first positions, which training has reached, written by the
            commands that train; `generate` warns beyond them. `None` means all, or that it is not known.
        use_cache (`bool`): return keys and values outside of training.
        tie_word_embeddings (`bool`): the language-model head shares the weights of the token embeddings.
        traversal (`str`, *optional*): how the hidden states of an example's C sequences become its scores:
            `"classification"`, `"entailment"`, `"similarity"` or `"multiple_choice"` (figure 1 of the paper). `None`
            means the default of the model class.
        columns (`dict[str, str | list[str]]`, *optional*): columns of the fine-tuning data for each traversal role,
            in the form that `TraversalCollator` takes.
        lm_coef (`float`): λ, weight of the auxiliary language-modelling loss in fine-tuning; 0 switches it off.
        start_token_id, delimiter_token_id, extract_token_id (`int`, *optional*): ids of the control tokens
            `[s]`, `[$]` and `[e]`, written by `add_control_tokens`.
        speaker_token_ids (`list[int]`, *optional*): ids of the speakers' tokens of a dialogue model, its own and the
            user's, written by `add_speaker_tokens`. `generate` adds each token's speaker as its type.
        pad_token_id, bos_token_id, eos_token_id (`int`, *optional*): as in transformers; the paper's model has none,
            and a pre-trained one those of its tokenizer, 0.

    Raises:
        StrictDataclassError: one of these fields has a wrong type or an impossible value; it is huggingface_hub's.

    Examples:
        >>> from modeling_gpt1 import GPT1Config
        >>> config = GPT1Config(hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
        >>> config.intermediate_size
        256
    """

    model_type = "gpt1"
    translated_types = ("openai-gpt", "gpt2")
    auto_classes = {
        "AutoConfig": "configuration_gpt1.GPT1Config",
        "AutoModel": "modeling_gpt1.GPT1Model",
        "AutoModelForCausalLM": "modeling_gpt1.GPT1ForCausalLM",
        "AutoModelForSequenceClassification": "modeling_gpt1.GPT1ForSequenceClassification",
        "AutoModelForMultipleChoice": "modeling_gpt1.GPT1ForMultipleChoice",
        "AutoModelForTokenClassification": "modeling_gpt1.GPT1ForTokenClassification",
        "AutoModelForQuestionAnswering": "modeling_gpt1.GPT1ForQuestionAnswering",
    }
    sizes = (*GPT1BaseConfig.sizes, "num_attention_heads", "intermediate_size")
    attribute_map = {
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_positions": "max_position_embeddings",
        "n_ctx": "max_position_embeddings",
        "afn": "hidden_act",
        "summary_first_dropout": "classifier_dropout",
    }
    base_model_tp_plan = {
        "tokens_embed": "embedding_rowwise",
        "h.*.attn.q_proj": "colwise",
        "h.*.attn.k_proj": "colwise",
        "h.*.attn.v_proj": "colwise",
        "h.*.attn.o_proj": "rowwise",
        "h.*.mlp.up_proj": "colwise",
        "h.*.mlp.down_proj": "rowwise",
    }
    base_model_fsdp_plan = {
        "tokens_embed": "free_full_weight",
        "positions_embed": "free_full_weight",
        "h.*": "free_full_weight",
    }

    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int | None = None
    hidden_act: str = "gelu_pytorch_tanh"
    attn_pdrop: float | int = probability(default=0.1)
    do_layer_norm_before: bool = False
    rescale_prenorm_residual: bool = False
    # `layer_types` is not a dataclass field: transformers treats its mere presence as sliding attention.
    sliding_window: int | None = None
    trained_positions: int | None = None

    @classmethod
    def get_config_dict(cls, *args, **kwargs):
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        kind = config_dict.get("model_type")
        if kind not in cls.translated_types:
            return config_dict, kwargs
        architectures = config_dict.get("architectures") or []
        check_foreign_fields(config_dict, kind, architectures)
        translated = {name: value for name, value in config_dict.items() if name not in LEGACY_KEYS}
        if kind == "gpt2":
            translated = translate_gpt2(translated)
        if has_ending(architectures, "ForTokenClassification"):
            translated["classifier_dropout"] = dropout_of_token_head(translated)
            translated.pop("summary_first_dropout", None)
        for ending, traversal in TRAVERSALS_OF_CLASS_ENDINGS.items():
            if has_ending(architectures, ending):  # whose weights these are
                translated.setdefault("traversal", traversal)
        translated["model_type"] = cls.model_type
        return translated, kwargs

    def __post_init__(self, **kwargs):
        if kwargs.pop("model_type", None) == "gpt2":
            raise UserError(
                "These are the fields of a GPT-2, which places its layer norms before the sub-blocks: renaming the "
                "fields alone would give a different model. Open its folder with `GPT1Config.from_pretrained`, which "
                "translates them."
            )
        layer_types = kwargs.pop("layer_types", None)
        for name in list(kwargs):
            if name in self.attribute_map and name != "afn":
                # `@strict` checks types under canonical names.
                setattr(self, self.attribute_map[name], kwargs.pop(name))
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        super().__post_init__(**kwargs)
        vars(self).pop("layer_types", None)  # the list fits only the previous number of layers
        if layer_types is not None:
            self.layer_types = layer_types
        self._set_default_layer_types()

    def __setattr__(self, key, value):
        if key == "afn":
            value = CHECKPOINT_ACTIVATIONS.get(value, value)
        super().__setattr__(key, value)
        if key == "sliding_window":
            self._set_default_layer_types()

    def _set_default_layer_types(self):
        if self.sliding_window is None or hasattr(self, "layer_types"):
            return
        is_banded = [layer_idx % 2 == 1 for layer_idx in range(self.num_hidden_layers)]
        self.layer_types = [SLIDING_ATTENTION if banded else FULL_ATTENTION for banded in is_banded]

    def validate_architecture(self):
        """Part of `@strict`: refuses fields that do not fit together."""
        self.validate_sizes()
        if self.hidden_size % self.num_attention_heads != 0:
            raise UserError(
                f"`hidden_size` ({self.hidden_size}), `num_attention_heads` ({self.num_attention_heads}): choose a "
                "number of heads that divides the hidden size."
            )
        if self.sliding_window is not None and self.sliding_window < 1:
            raise UserError(
                f"`sliding_window` is {self.sliding_window}, but it must be at least 1, because a token attends to "
                "itself. Leave it out for dense attention in all layers."
            )
        if self.trained_positions is not None and self.trained_positions < 1:
            raise UserError(
                f"`trained_positions` is {self.trained_positions}, but it must be at least 1. Leave it out if all are."
            )

    def validate_layer_type(self):
        """Part of `@strict`, as in transformers; a banded layer needs a window."""
        super().validate_layer_type()
        unknown = set(self.attention_of_layers) - {FULL_ATTENTION, SLIDING_ATTENTION}
        if unknown:
            raise UserError(
                f"`layer_types` has {unknown.pop()!r}, but each layer must be {FULL_ATTENTION!r} (dense) or "
                f"{SLIDING_ATTENTION!r} (locally banded)."
            )
        if SLIDING_ATTENTION in self.attention_of_layers and self.sliding_window is None:
            raise UserError(
                f"`layer_types` has {SLIDING_ATTENTION!r}, but `sliding_window` is None. Pass the number of tokens "
                "that a query in such a layer attends to."
            )

    @property
    def attention_of_layers(self) -> list[str]:
        """Attention type of each layer: `layer_types` or the default."""
        return getattr(self, "layer_types", [FULL_ATTENTION] * self.num_hidden_layers)

    def window_of_layer(self, layer_idx: int) -> int | None:
        """Number of tokens that a query of this layer sees; `None` means its own and all before it."""
        if self.attention_of_layers[layer_idx] == SLIDING_ATTENTION:
            return self.sliding_window
        return None


# ---- Configurations of openai-gpt and GPT-2


def has_ending(architectures: list[str], ending: str) -> bool:
    """Whether one of a checkpoint's classes has a name with this end."""
    return any(architecture.endswith(ending) for architecture in architectures)


def check_foreign_fields(config_dict: dict, kind: str, architectures: list[str]) -> None:
    """Checks that an openai-gpt or GPT-2 asks for nothing that this decoder and its task head lack."""
    needed = {}
    if kind == "gpt2":
        needed.update(GPT2_NEEDED)
    if has_ending(architectures, DOUBLE_HEADS):
        needed.update(DOUBLE_HEADS_NEEDED)
    for name, value in needed.items():
        if config_dict.get(name, value) != value:
            raise UserError(
                f"`{name}` is {config_dict[name]!r} in the configuration of this {kind}, but GPT-1 supports only "
                f"{value!r}. Open the model with transformers' own classes."
            )


def translate_gpt2(config_dict: dict) -> dict:
    """The fields of [`GPT1Config`] for those of a GPT-2."""
    translated = dict(GPT2_DEFAULTS)
    dropped = (*GPT2_NEEDED, "n_ctx", "n_inner", "activation_function")
    for name, value in config_dict.items():
        if name not in dropped:
            translated[name] = value
    activation = config_dict.get("activation_function", "gelu_new")
    if activation == "gelu_new":
        activation = CHECKPOINT_ACTIVATIONS["gelu_new"]
    translated["intermediate_size"] = config_dict.get("n_inner")
    translated["hidden_act"] = activation
    translated["do_layer_norm_before"] = True
    translated["rescale_prenorm_residual"] = True
    return translated


def dropout_of_token_head(config_dict: dict) -> float:
    """The dropout probability before the head of a `GPT2ForTokenClassification`, which has no field of its own."""
    for name in ("classifier_dropout", "hidden_dropout"):
        if config_dict.get(name) is not None:
            return config_dict[name]
    return 0.1


# ---- Tasks


def has_choices(traversal: str | None) -> bool:
    """Whether the examples of a traversal have a sequence for each choice."""
    return traversal in TRAVERSALS and TRAVERSALS[traversal].num_sequences is None


def scores_choices(config: PreTrainedConfig) -> bool:
    """Whether a model of any family scores the choices of an example, as the traversal of its configuration says."""
    return has_choices(getattr(config, "traversal", None))  # not a field of transformers


def is_regression(config: PreTrainedConfig) -> bool:
    """Whether labels are numbers, not classes: as `problem_type` says, or by default if `num_labels` is 1."""
    if config.problem_type is not None:
        return config.problem_type == "regression"
    return config.num_labels == 1 and not scores_choices(config)


def config_for_task(config: PreTrainedConfig, model_class: type) -> PreTrainedConfig:
    """The configuration of a model with a task head, or a copy with the class's traversal and the kind of labels."""
    config.validate()  # fields can have changed
    if config.traversal is None:
        config = copy.deepcopy(config)
        config.traversal = model_class.supported_traversals[0]
    if config.problem_type is None and is_regression(config):
        config = copy.deepcopy(config)
        config.problem_type = "regression"  # tells pipelines how to read the scores
    if config.traversal not in model_class.supported_traversals:
        family = model_class.decoder_class.__name__.removesuffix("Model")
        other = "ForMultipleChoice" if has_choices(config.traversal) else "ForSequenceClassification"
        raise UserError(
            f"{model_class.__name__} supports the traversals {', '.join(model_class.supported_traversals)}, but this "
            f"configuration's `traversal` is {config.traversal!r}. Open it with {family}{other} or "
            f"{family}DoubleHeadsModel."
        )
    if has_choices(config.traversal) and config.problem_type not in (None, "single_label_classification"):
        raise UserError(
            f"`problem_type` is {config.problem_type!r}, but the traversal {config.traversal!r} supports only "
            "'single_label_classification'. Leave `problem_type` out."
        )
    if config.problem_type == "regression" and config.num_labels != 1:
        raise UserError(
            "`problem_type` is 'regression', which predicts one number, but `num_labels` is "
            f"{config.num_labels}. Pass `num_labels=1`; for classes pass "
            "`problem_type='single_label_classification'`."
        )
    return config


__all__ = ["GPT1Config"]
