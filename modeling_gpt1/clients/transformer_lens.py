"""TransformerLens' adapter of GPT-1, for `TransformerBridge.boot_transformers`.

Import this module before the model is opened: it adds the adapter to the architectures that TransformerLens knows.

GPT-1's layer norms follow the residual sums. So `ln1` normalises the sum after attention, `ln2` the one after the MLP,
`hook_resid_mid` is the output of `ln1`, and no norm can be folded into the next weights. With `do_layer_norm_before`,
as in GPT-2, all of it is as in TransformerLens' GPT-2.
"""

from transformer_lens.factories.architecture_adapter_factory import (
    SUPPORTED_ARCHITECTURES,
    ArchitectureAdapterFactory,
)
from transformer_lens.model_bridge.architecture_adapter import ArchitectureAdapter
from transformer_lens.model_bridge.generalized_components import (
    BlockBridge,
    EmbeddingBridge,
    JointQKVAttentionBridge,
    LinearBridge,
    MLPBridge,
    NormalizationBridge,
    PosEmbedBridge,
    UnembeddingBridge,
)
from transformer_lens.model_bridge.sources import _bridge_builder

from ..configuration_gpt1 import GPT1Config

# A folder with double heads opens with its language-model head.
ARCHITECTURES = ("GPT1ForCausalLM", "GPT1DoubleHeadsModel")


class GPT1AttentionBridge(JointQKVAttentionBridge):
    """Attention that TransformerLens computes from q, k and v, so that hooks on scores and pattern change the output.

    Its own class for three projections calls the model's attention, and discards what such hooks return. Nothing is
    dropped out here: use the model for inference.
    """

    def forward(self, hidden_states, attention_mask=None, past_key_values=None, **kwargs):
        return super().forward(hidden_states, attention_mask=attention_mask, past_key_values=past_key_values)


def projections_of(attention):
    """The three layers that make queries, keys and values."""
    return attention.q_proj, attention.k_proj, attention.v_proj


class GPT1ArchitectureAdapter(ArchitectureAdapter):
    """Says which module of `GPT1ForCausalLM` is which component of TransformerLens."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.cfg.normalization_type = "LN"
        self.cfg.positional_embedding_type = "standard"
        self.cfg.final_rms = False
        self.cfg.gated_mlp = False
        self.cfg.attn_only = False
        # TransformerLens would write the token as text, which GPT-1's tokenizer never reads as a token.
        self.cfg.default_prepend_bos = False
        is_prenorm = self.cfg.do_layer_norm_before
        self.supports_fold_ln = is_prenorm
        self.supports_center_writing_weights = is_prenorm
        self.weight_processing_conversions = self._qkvo_weight_conversions()
        self.component_mapping = {
            "embed": EmbeddingBridge(name="transformer.tokens_embed"),
            "pos_embed": PosEmbedBridge(name="transformer.positions_embed"),
            "blocks": BlockBridge(
                name="transformer.h",
                config=self.cfg,
                submodules={
                    "ln1": self._norm("ln_1"),
                    "attn": self._attention(),
                    "ln2": self._norm("ln_2"),
                    "mlp": self._mlp(),
                },
                hook_alias_overrides={} if is_prenorm else {"hook_resid_mid": "mlp.hook_in"},
                mlp_reads_resid_directly=not is_prenorm,
            ),
            "unembed": UnembeddingBridge(name="lm_head"),
        }
        if is_prenorm:
            self.component_mapping["ln_final"] = self._norm("transformer.ln_f")

    def _norm(self, name):
        return NormalizationBridge(name=name, config=self.cfg, use_native_layernorm_autograd=True)

    def _attention(self):
        output = {"o": LinearBridge(name="o_proj")}
        return GPT1AttentionBridge("attn", self.cfg, split_qkv_matrix=projections_of, submodules=output)

    def _mlp(self):
        projections = {"in": LinearBridge(name="up_proj"), "out": LinearBridge(name="down_proj")}
        return MLPBridge(name="mlp", config=self.cfg, submodules=projections)


map_config = _bridge_builder.map_default_transformer_lens_config


def map_config_with_length(hf_config):
    """TransformerLens sets `n_ctx`, which `GPT1Config` keeps under its own name, and looks for it in `__dict__`."""
    mapped = map_config(hf_config)
    if isinstance(hf_config, GPT1Config):
        vars(mapped)["n_ctx"] = hf_config.max_position_embeddings
    return mapped


def register() -> None:
    """Adds GPT-1 where TransformerLens looks: its table, its factory, and its reader of configurations."""
    for name in ARCHITECTURES:
        SUPPORTED_ARCHITECTURES[name] = GPT1ArchitectureAdapter
        ArchitectureAdapterFactory.register_adapter(name, GPT1ArchitectureAdapter)
    _bridge_builder.map_default_transformer_lens_config = map_config_with_length


register()
