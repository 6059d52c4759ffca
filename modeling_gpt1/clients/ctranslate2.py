"""CTranslate2's loader of GPT-1, for `TransformersConverter` and the command `ct2-transformers-converter`.

Import this module before a folder is converted: it adds the loader to those that CTranslate2 knows. Post-norm layers
are among the ones that CTranslate2 computes.
"""

from ctranslate2.converters import utils
from ctranslate2.converters.transformers import _SUPPORTED_ACTIVATIONS, ModelLoader, register_loader
from ctranslate2.specs import common_spec, transformer_spec

from ..configuration_gpt1 import UserError
from ..families.opening import check_has_no_speakers


@register_loader("GPT1Config")
class GPT1Loader(ModelLoader):
    """Says which weight of `GPT1ForCausalLM` is which variable of CTranslate2."""

    architecture_name = "AutoModelForCausalLM"  # a name that transformers has itself

    def get_model_spec(self, model):
        config = model.config
        check_has_no_speakers(config, "CTranslate2")
        if config.hidden_act not in _SUPPORTED_ACTIVATIONS:
            known = ", ".join(sorted(_SUPPORTED_ACTIVATIONS))
            raise UserError(f"`hidden_act` is {config.hidden_act!r}, but CTranslate2 computes only {known}.")
        if "sliding_attention" in getattr(config, "layer_types", ()):
            raise UserError(
                f"`sliding_window` is {config.sliding_window} for layers of this model, but CTranslate2 has no "
                "locally banded attention as GPT-1's. Convert a model whose layers have full attention."
            )
        spec = transformer_spec.TransformerDecoderModelSpec.from_config(
            config.num_hidden_layers,
            config.num_attention_heads,
            pre_norm=config.do_layer_norm_before,
            activation=_SUPPORTED_ACTIVATIONS[config.hidden_act],
        )
        self.set_decoder(spec.decoder, model.transformer)
        self.set_linear(spec.decoder.projection, model.lm_head)
        return spec

    def set_decoder(self, spec, module):
        spec.scale_embeddings = False
        self.set_embeddings(spec.embeddings, module.tokens_embed)
        self.set_position_encodings(spec.position_encodings, module.positions_embed)
        if spec.pre_norm:
            self.set_layer_norm(spec.layer_norm, module.ln_f)
        for layer_spec, layer in zip(spec.layer, module.h, strict=True):
            self.set_layer(layer_spec, layer)

    def set_layer(self, spec, layer):
        attention, feed_forward = spec.self_attention, spec.ffn
        projections = []
        for module in (layer.attn.q_proj, layer.attn.k_proj, layer.attn.v_proj):
            projection = common_spec.LinearSpec()
            self.set_linear(projection, module)
            projections.append(projection)
        utils.fuse_linear(attention.linear[0], projections)
        self.set_linear(attention.linear[1], layer.attn.o_proj)
        self.set_layer_norm(attention.layer_norm, layer.ln_1)
        self.set_linear(feed_forward.linear_0, layer.mlp.up_proj)
        self.set_linear(feed_forward.linear_1, layer.mlp.down_proj)
        self.set_layer_norm(feed_forward.layer_norm, layer.ln_2)

    def get_vocabulary(self, model, tokenizer):
        tokens = super().get_vocabulary(model, tokenizer)
        # Rows of the embeddings without a token, such as those that fill up to a multiple of 64.
        return tokens + [f"<row {row}>" for row in range(len(tokens), model.config.vocab_size)]

    def set_vocabulary(self, spec, tokens):
        spec.register_vocabulary(tokens)

    def set_config(self, config, model, tokenizer):
        config.bos_token = tokenizer.bos_token
        config.eos_token = tokenizer.eos_token
        config.unk_token = tokenizer.unk_token
        config.layer_norm_epsilon = model.config.layer_norm_epsilon
