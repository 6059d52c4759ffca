"""OpenAI client: texts of `gpt1 serve`, whole and streamed, beside `generate`."""

import re
import subprocess
import sys

from figures import PROMPTS, Figure, report

REQUIREMENTS = ("openai==3.57.0", "fastapi==0.165.0", "uvicorn==0.54.0", "pydantic==2.14.3")
NUM_NEW = 16


def main() -> list[Figure]:
    from openai import OpenAI

    from modeling_gpt1 import NOVELS

    command = [sys.executable, "-m", "modeling_gpt1.commands", "serve", NOVELS, "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"http://[\d.]+:\d+", next(line for line in server.stdout if "http://" in line))[0]
            client = OpenAI(base_url=f"{address}/v1", api_key="none")
            whole = [complete(client, "gpt1-novels", prompt) for prompt in PROMPTS]
            streamed = [stream(client, "gpt1-novels", prompt) for prompt in PROMPTS]
        finally:
            server.terminate()
    expected = texts_of_generate()
    same = sum(text == other for text, other in zip(whole, expected, strict=True))
    joined = sum(text == other for text, other in zip(streamed, expected, strict=True))
    return [
        Figure(f"prompts of {len(PROMPTS)} with the text of generate", same, equals=len(PROMPTS)),
        Figure("the same, streamed", joined, equals=len(PROMPTS)),
    ]


def complete(client, name: str, prompt: str) -> str:
    answer = client.completions.create(model=name, prompt=prompt, max_tokens=NUM_NEW, temperature=0)
    return answer.choices[0].text


def stream(client, name: str, prompt: str) -> str:
    pieces = client.completions.create(model=name, prompt=prompt, max_tokens=NUM_NEW, temperature=0, stream=True)
    return "".join(piece.choices[0].text for piece in pieces)


def texts_of_generate() -> list[str]:
    from modeling_gpt1 import NOVELS, GPT1ForCausalLM
    from tokenization import GPT1Tokenizer

    model = GPT1ForCausalLM.from_pretrained(NOVELS).eval()
    tokenizer = GPT1Tokenizer.from_pretrained(NOVELS)
    texts = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        sequence = model.generate(ids, do_sample=False, max_new_tokens=NUM_NEW)[0]
        texts.append(tokenizer.decode(sequence[ids.shape[1] :], skip_special_tokens=True))
    return texts


if __name__ == "__main__":
    report(main)
