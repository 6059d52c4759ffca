"""TransformerLens: logits, every hook point, and a head that is ablated."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("transformer-lens==4.3.0",)
HEAD, LAYER = 2, 1


def main() -> list[Figure]:
    import torch
    from transformers import AutoTokenizer

    from modeling_gpt1 import NOVELS, GPT1Config, GPT1ForCausalLM

    torch.manual_seed(0)
    model = GPT1ForCausalLM.from_pretrained(NOVELS)
    names = run_lines("TransformerLens")
    bridge, tokens, ablated = names["bridge"], names["tokens"], names["ablated"]
    ids = AutoTokenizer.from_pretrained(NOVELS)(names["text"], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = model(ids).logits
        figures = [
            Figure("ids that differ", int((tokens != ids).sum()), equals=0),
            Figure("greatest difference of logits", greatest(bridge(tokens), logits), at_most=1e-5),
        ]
        changed, unchanged = look_at_hooks(bridge, tokens[:, :4])
        figures.append(Figure("hook points that change the logits when set to 0", changed))
        figures.append(Figure("hook points that do not", unchanged, equals=0))
        columns = slice(HEAD * 64, (HEAD + 1) * 64)
        model.transformer.h[LAYER].attn.o_proj.weight[:, columns] = 0
        difference = greatest(ablated, model(ids).logits)
        figures.append(Figure("difference of a head ablated and its columns set to 0", difference, at_most=2e-5))
        figures.append(Figure("greatest change by that head", greatest(ablated, logits), at_least=0.1))

        sizes = {"vocab_size": len(AutoTokenizer.from_pretrained(NOVELS)), "n_embd": 32, "n_layer": 2, "n_head": 4}
        prenorm = GPT1ForCausalLM(GPT1Config(**sizes, do_layer_norm_before=True, initializer_range=0.3)).eval()
        prenorm.config.architectures = [type(prenorm).__name__]  # which a saved model has
        expected = prenorm(ids).logits  # before the modules are those of the bridge
        opened = type(bridge).boot_transformers(str(NOVELS), device="cpu", hf_model=prenorm)
        difference = greatest(opened(ids), expected)
        figures.append(Figure("greatest difference of logits with norms before", difference, at_most=1e-4))
    return figures


def greatest(first, second) -> float:
    return (first - second).abs().max().item()


def look_at_hooks(bridge, tokens) -> tuple[int, int]:
    """How many hook points change the logits, in one of TransformerLens' three settings, and how many do not.

    Of the blocks, that is the second.
    """
    names = {name for name in bridge.hook_dict if not name.startswith("blocks.") or name.startswith("blocks.1.")}
    changed = set()
    bridge.set_use_hook_mlp_in(True)
    for setting in (None, bridge.set_use_attn_in, bridge.set_use_split_qkv_input):
        if setting is not None:
            setting(True)
            bridge.set_use_attn_result(True)
        before = bridge(tokens)
        for name in names - changed:
            try:
                after = bridge.run_with_hooks(tokens, fwd_hooks=[(name, lambda value, hook: 0 * value)])
            except ValueError:  # a hook point of another setting
                continue
            if greatest(before, after):
                changed.add(name)
        if setting is not None:
            setting(False)
    return len(changed), len(names - changed)


if __name__ == "__main__":
    report(main)
