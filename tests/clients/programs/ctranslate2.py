"""CTranslate2: ids of greedy search in float32 and int8, and batches with a prompt of one token; what is refused."""

from figures import PROMPTS, Figure, report, run_lines

REQUIREMENTS = ("ctranslate2==4.8.5",)
LENGTH = 16


def main() -> list[Figure]:
    import torch
    from transformers import AutoTokenizer

    from modeling_gpt1 import NOVELS, GPT1ForCausalLM

    names = run_lines("CTranslate2")
    generator, converter = names["generator"], names["converter"]
    tokenizer = AutoTokenizer.from_pretrained(NOVELS)
    model = GPT1ForCausalLM.from_pretrained(NOVELS)
    prompts = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    ours = []
    for ids in prompts:
        with torch.no_grad():
            ours.append(
                model.generate(torch.tensor([ids]), max_new_tokens=LENGTH, do_sample=False)[0, len(ids) :].tolist()
            )

    def theirs(generator, prompts: list[list[int]]) -> list[list[int]]:
        tokens = [tokenizer.convert_ids_to_tokens(ids) for ids in prompts]
        options = {"max_length": LENGTH, "sampling_topk": 1, "include_prompt_in_result": False}
        return [result.sequences_ids[0] for result in generator.generate_batch(tokens, **options)]

    longer = [number for number, ids in enumerate(prompts) if len(ids) > 1]
    in_batch = theirs(generator, [prompts[number] for number in longer])
    equal = sum(ids == ours[number] for ids, number in zip(in_batch, longer, strict=True))
    alone = [number for number, ids in enumerate(prompts) if len(ids) == 1]
    equal += sum(theirs(generator, [prompts[number]]) == [ours[number]] for number in alone)
    short, long = alone[0], longer[-1]
    _, mixed = theirs(generator, [prompts[short], prompts[long]])

    converter.convert("int8", quantization="int8")
    int8 = theirs(type(generator)("int8"), [prompts[number] for number in longer])
    agreement = [
        a == b for ids, number in zip(int8, longer, strict=True) for a, b in zip(ids, ours[number], strict=True)
    ]
    return [
        Figure("prompts of 64 whose greedy ids are those of generate", equal, equals=64),
        Figure("ids of int8 that are equal, of all", sum(agreement) / len(agreement), at_least=0.5),
        Figure(
            "beside a prompt of one token, a longer prompt is repeated in its result",
            int(mixed == (prompts[long][1:] + ours[long])[:LENGTH]),
            equals=1,
        ),
        Figure("locally banded attention is refused", int(refuses_windows(model, tokenizer)), equals=1),
    ]


def refuses_windows(model, tokenizer) -> bool:
    from ctranslate2.converters import TransformersConverter

    from modeling_gpt1 import GPT1Config

    config = GPT1Config(**{**model.config.to_dict(), "sliding_window": 4, "layer_types": None})
    type(model)(config).save_pretrained("banded")
    tokenizer.save_pretrained("banded")
    try:
        TransformersConverter("banded").convert("banded-ct2")
    except ValueError as refusal:
        return "has no locally banded attention" in str(refusal)
    return False


if __name__ == "__main__":
    report(main)
