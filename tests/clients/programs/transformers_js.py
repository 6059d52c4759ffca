"""transformers.js: its pipeline and tokenizer in Node, beside `generate` and our tokenizers."""

import json
import shutil
import subprocess
from pathlib import Path

from figures import PROMPTS, CannotRun, Figure, report

REQUIREMENTS = ("onnxruntime==1.31.1", "onnxscript==0.7.2")
PACKAGES = ("@huggingface/transformers@4.3.2", "@huggingface/tokenizers@0.2.0")
PROGRAM = """
import { readFileSync } from "node:fs";
import { env, pipeline } from "@huggingface/transformers";
import { Tokenizer } from "@huggingface/tokenizers";

env.allowRemoteModels = false;
env.localModelPath = "./";
const { prompts, texts } = JSON.parse(readFileSync("texts.json", "utf8"));
const generator = await pipeline("text-generation", "js");
const generated = [];
for (const prompt of prompts) {
  const inputs = generator.tokenizer(prompt, { add_special_tokens: false });
  const output = await generator.model.generate({ ...inputs, max_new_tokens: 16, do_sample: false });
  const [answer] = await generator(prompt, { max_new_tokens: 16, do_sample: false });
  generated.push([output.tolist()[0].map(Number), answer.generated_text]);
}
const encode = (folder) => {
  const read = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf8"));
  const tokenizer = new Tokenizer(read("tokenizer.json"), read("tokenizer_config.json"));
  return texts.map((text) => tokenizer.encode(text).ids);
};
console.log(JSON.stringify({ generated, ids: encode("js"), idsOfBytes: encode("bytes-js") }));
"""


def main() -> list[Figure]:
    from support.texts import HARD_TEXTS

    from modeling_gpt1 import NOVELS, GPT1Config, GPT1ForCausalLM
    from modeling_gpt1.clients.javascript import convert_to_javascript
    from tokenization import GPT1Tokenizer, open_tokenizer, train_tokenizer

    if shutil.which("node") is None or shutil.which("npm") is None:
        raise CannotRun("it needs Node and npm")
    subprocess.run(["npm", "install", "--silent", "--ignore-scripts", "--prefix", ".", *PACKAGES], check=True)
    model = GPT1ForCausalLM.from_pretrained(NOVELS)
    tokenizer = GPT1Tokenizer.from_pretrained(NOVELS)
    convert_to_javascript(NOVELS, "js")
    bytes_tokenizer = train_tokenizer(iter(HARD_TEXTS), "bytes", show_progress=False)
    bytes_tokenizer.save_pretrained("bytes")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    GPT1ForCausalLM(GPT1Config(vocab_size=len(bytes_tokenizer), **sizes)).save_pretrained("bytes")
    convert_to_javascript("bytes", "bytes-js")
    bytes_tokenizer = open_tokenizer("bytes")
    texts = [*HARD_TEXTS, f"{bytes_tokenizer.eos_token} is text ."]
    prompts = PROMPTS[::4]
    Path("texts.json").write_text(json.dumps({"prompts": prompts, "texts": texts}), encoding="utf-8")
    Path("program.mjs").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(["node", "program.mjs"], check=True, stdout=subprocess.PIPE, text=True)
    theirs = json.loads(done.stdout.splitlines()[-1])

    same_ids, same_texts = 0, 0
    for prompt, (ids, text) in zip(prompts, theirs["generated"], strict=True):
        inputs = tokenizer(prompt, return_tensors="pt")
        expected = model.generate(**inputs, max_new_tokens=16, do_sample=False)[0]
        same_ids += ids == expected.tolist()
        same_texts += text == tokenizer.decode(expected, skip_special_tokens=True).strip()
    same_encodings = sum(ids == tokenizer(text).input_ids for text, ids in zip(texts, theirs["ids"], strict=True))
    of_bytes = zip(texts, theirs["idsOfBytes"], strict=True)
    same_bytes = sum(ids == bytes_tokenizer(text).input_ids for text, ids in of_bytes)
    return [
        Figure(f"continuations of {len(prompts)} with the ids of `generate`", same_ids, equals=len(prompts)),
        Figure(f"decoded texts of {len(prompts)} that are equal", same_texts, equals=len(prompts)),
        Figure(f"hard texts of {len(texts)} with the tokenizer's ids", same_encodings, equals=len(texts)),
        Figure(f"of {len(texts)} with a byte-level tokenizer's ids", same_bytes, equals=len(texts)),
    ]


if __name__ == "__main__":
    report(main)
