// The tokenizer and the model of a page without a server. It runs in browsers, and in Node for the tests.
"use strict";

// Text to ids and back: the preparation of text is that of tokenizer.json for JavaScript.
class Tokenizer {
  constructor(content) {
    this.steps = content.normalizer.normalizers.map(makeStep);
    this.ids = new Map(Object.entries(content.model.vocab));
    this.tokens = [];
    for (const [token, id] of this.ids) this.tokens[id] = token;
    this.unknown = content.model.unk_token;
    this.ranks = new Map(content.model.merges.map(([first, second], rank) => [first + " " + second, rank]));
    this.endOfWord = content.model.end_of_word_suffix;
    this.known = new Map(); // pieces of words that were met
  }

  words(text) {
    if (text === "") return [];
    for (const step of this.steps) text = step(text);
    return text.split(" ").filter((word) => word !== "");
  }

  encode(text) {
    return this.words(text).flatMap((word) => this.piecesOf(word)).map((piece) => this.ids.get(piece) ?? this.ids.get(this.unknown));
  }

  piecesOf(word) {
    if (!this.known.has(word)) this.known.set(word, this.merge(word));
    return this.known.get(word);
  }

  merge(word) {
    const pieces = Array.from(word);
    pieces[pieces.length - 1] += this.endOfWord;
    for (;;) {
      let best = Infinity;
      let place = -1;
      for (let i = 0; i + 1 < pieces.length; i++) {
        const rank = this.ranks.get(pieces[i] + " " + pieces[i + 1]);
        if (rank < best) {
          best = rank;
          place = i;
        }
      }
      if (place < 0) return pieces;
      pieces.splice(place, 2, pieces[place] + pieces[place + 1]);
    }
  }

  // A token's text, and whether a word ends with it.
  textOf(id) {
    const token = this.tokens[id] ?? this.unknown;
    const endsWord = token.endsWith(this.endOfWord);
    return { text: endsWord ? token.slice(0, -this.endOfWord.length) : token, endsWord };
  }
}

function makeStep(step) {
  if (step.type === "Prepend") return (text) => step.prepend + text;
  if (step.type === "NFC") return (text) => text.normalize("NFC");
  if (step.type === "Lowercase") return (text) => text.toLowerCase();
  const pattern = new RegExp(step.pattern.Regex, "gu");
  return (text) => text.replace(pattern, step.content);
}

const TAILS = new Set(["n't", "'s", "'ll", "'d", "'ve", "'re", "'m"]);
const BEFORE_NT = new Set(
  ("ai are ca could dare did do does had has have is might must need ought sha should was were wo would").split(" "),
);
const TAILS_AFTER = new Map([
  ["nt", BEFORE_NT],
  ["not", new Set(["can"])],
  ["na", new Set(["gon"])],
  ["ta", new Set(["got"])],
  ["all", new Set(["y'"])],
  ["on", new Set(["c'm"])],
  ["'y", new Set(["'d"])],
]);
const CLOSING = /^(?:\.+|[,;:!?%)\]}])$/;
const OPENING = new Set("([{$£€#¡¿");
const THOUSAND = /^[0-9]{1,3},[0-9]{3}$/;
const DASHES = /^(?:-+|\/+)$/;

// Joins punctuation, quotation marks and contractions to their words, as tokenization/text/joining.py does.
class Joiner {
  constructor() {
    this.beginLine();
  }

  beginLine() {
    this.earlier = "";
    this.before = "";
    this.sticks = true; // whether the next word joins the one before
    this.isOpen = { '"': false, "'": false, _: false };
  }

  // Places the next word. Returns whether a space stands before it.
  place(word) {
    if (word === "\n") {
      this.beginLine();
      return false;
    }
    let joinsBefore = false;
    let joinsAfter = false;
    if (word === '"' || word === "_") {
      joinsBefore = this.isOpen[word];
      joinsAfter = !joinsBefore;
      this.isOpen[word] = joinsAfter;
    } else if (word === "'") {
      joinsBefore = this.isOpen[word] || (!this.sticks && /(?:s|in)$/.test(this.before));
      joinsAfter = !joinsBefore;
      this.isOpen[word] = joinsAfter;
    } else if (CLOSING.test(word)) {
      joinsBefore = true;
      joinsAfter = this.sticks && word.length > 1;
    } else if (DASHES.test(word)) {
      joinsBefore = this.before !== "";
      joinsAfter = joinsBefore;
    } else if (OPENING.has(word)) {
      joinsAfter = true;
    } else {
      const isThousand = this.before === "," && THOUSAND.test(`${this.earlier},${word}`);
      joinsBefore = isThousand || TAILS.has(word) || (TAILS_AFTER.get(word)?.has(this.before) ?? false);
    }
    const space = !(joinsBefore || this.sticks);
    [this.earlier, this.before, this.sticks] = [this.before, word, joinsAfter];
    return space;
  }
}

// The texts of tokens after a prompt, each with the space before it.
function joinTokens(tokenizer, promptWords, ids) {
  const joiner = new Joiner();
  for (const word of promptWords) joiner.place(word);
  const texts = [];
  for (let start = 0; start < ids.length; ) {
    let end = start;
    while (end < ids.length - 1 && !tokenizer.textOf(ids[end]).endsWord) end++;
    const pieces = ids.slice(start, end + 1).map((id) => tokenizer.textOf(id).text);
    const space = joiner.place(pieces.join("")) ? " " : "";
    texts.push(space + pieces[0], ...pieces.slice(1));
    start = end + 1;
  }
  return texts;
}

// Numbers of 16 bits as Float32Array: bfloat16, or IEEE's half precision.
function readNumbers(base64, format) {
  const bytes = atob(base64);
  const numbers = new Float32Array(bytes.length / 2);
  const bits = new Uint32Array(numbers.buffer);
  for (let i = 0; i < numbers.length; i++) {
    const half = bytes.charCodeAt(2 * i) | (bytes.charCodeAt(2 * i + 1) << 8);
    if (format === "bfloat16") bits[i] = half << 16;
    else numbers[i] = halfToNumber(half);
  }
  return numbers;
}

function halfToNumber(half) {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function gelu(x) {
  return 0.5 * x * (1 + Math.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

const ACTIVATIONS = {
  gelu_pytorch_tanh: gelu,
  gelu_new: gelu,
  relu: (x) => Math.max(x, 0),
  silu: (x) => x / (1 + Math.exp(-x)),
};

// The decoder, a token at a time, with keys and values of the tokens before.
class Model {
  constructor(config, names, numbers) {
    this.config = config;
    this.weights = new Map();
    let start = 0;
    for (const [name, size] of names) {
      this.weights.set(name, numbers.subarray(start, start + size));
      start += size;
    }
    this.activation = ACTIVATIONS[config.hidden_act];
    const size = config.max_position_embeddings * config.hidden_size;
    this.keys = this.forEachLayer(() => new Float32Array(size));
    this.values = this.forEachLayer(() => new Float32Array(size));
    this.length = 0; // tokens that were read
  }

  forEachLayer(make) {
    return Array.from({ length: this.config.num_hidden_layers }, make);
  }

  reset() {
    this.length = 0;
  }

  // Reads a token; returns the logits of the next one, or nothing where they are not needed.
  read(id, needsLogits = true) {
    const { hidden_size: width, num_hidden_layers: numLayers, do_layer_norm_before: isBefore } = this.config;
    const tokens = this.weights.get("tokens_embed.weight");
    const positions = this.weights.get("positions_embed.weight");
    let state = new Float32Array(width);
    for (let i = 0; i < width; i++) state[i] = tokens[id * width + i] + positions[this.length * width + i];
    for (let layer = 0; layer < numLayers; layer++) {
      const name = `h.${layer}`;
      if (isBefore) {
        state = sum(state, this.attend(layer, this.norm(`${name}.ln_1`, state)));
        state = sum(state, this.feedForward(name, this.norm(`${name}.ln_2`, state)));
      } else {
        state = this.norm(`${name}.ln_1`, sum(state, this.attend(layer, state)));
        state = this.norm(`${name}.ln_2`, sum(state, this.feedForward(name, state)));
      }
    }
    this.length++;
    if (!needsLogits) return null;
    if (isBefore) state = this.norm("ln_f", state);
    return product(this.weights.get("lm_head.weight") ?? tokens, null, state);
  }

  linear(name, input) {
    return product(this.weights.get(`${name}.weight`), this.weights.get(`${name}.bias`), input);
  }

  norm(name, input) {
    const weight = this.weights.get(`${name}.weight`);
    const bias = this.weights.get(`${name}.bias`);
    let mean = 0;
    for (const number of input) mean += number / input.length;
    let variance = 0;
    for (const number of input) variance += (number - mean) ** 2 / input.length;
    const scale = 1 / Math.sqrt(variance + this.config.layer_norm_epsilon);
    return input.map((number, i) => (number - mean) * scale * weight[i] + bias[i]);
  }

  feedForward(name, input) {
    return this.linear(`${name}.mlp.down_proj`, this.linear(`${name}.mlp.up_proj`, input).map(this.activation));
  }

  attend(layer, input) {
    const { hidden_size: width, num_attention_heads: numHeads } = this.config;
    const name = `h.${layer}.attn`;
    const keys = this.keys[layer];
    const values = this.values[layer];
    const query = this.linear(`${name}.q_proj`, input);
    keys.set(this.linear(`${name}.k_proj`, input), this.length * width);
    values.set(this.linear(`${name}.v_proj`, input), this.length * width);
    const window = this.config.windows[layer] ?? Infinity;
    const first = Math.max(0, this.length + 1 - window);
    const size = width / numHeads;
    const output = new Float32Array(width);
    const scores = new Float64Array(this.length + 1);
    for (let head = 0; head < numHeads; head++) {
      const start = head * size;
      let highest = -Infinity;
      for (let place = first; place <= this.length; place++) {
        let score = 0;
        for (let i = start; i < start + size; i++) score += query[i] * keys[place * width + i];
        scores[place] = score / Math.sqrt(size);
        highest = Math.max(highest, scores[place]);
      }
      let total = 0;
      for (let place = first; place <= this.length; place++) {
        scores[place] = Math.exp(scores[place] - highest);
        total += scores[place];
      }
      for (let place = first; place <= this.length; place++) {
        const share = scores[place] / total;
        for (let i = start; i < start + size; i++) output[i] += share * values[place * width + i];
      }
    }
    return this.linear(`${name}.o_proj`, output);
  }
}

function sum(first, second) {
  return first.map((number, i) => number + second[i]);
}

// A matrix [out, in] times a vector, with four sums side by side, which is twice as fast as one.
function product(matrix, bias, vector) {
  const width = vector.length;
  const whole = width - (width % 4);
  const output = new Float32Array(matrix.length / width);
  for (let row = 0; row < output.length; row++) {
    const start = row * width;
    let a = 0, b = 0, c = 0, d = 0;
    for (let i = 0; i < whole; i += 4) {
      a += matrix[start + i] * vector[i];
      b += matrix[start + i + 1] * vector[i + 1];
      c += matrix[start + i + 2] * vector[i + 2];
      d += matrix[start + i + 3] * vector[i + 3];
    }
    for (let i = whole; i < width; i++) a += matrix[start + i] * vector[i];
    output[row] = a + b + c + d + (bias === null ? 0 : bias[row]);
  }
  return output;
}

// The probabilities of all tokens.
function probabilities(logits) {
  const highest = logits.reduce((one, other) => Math.max(one, other));
  const shares = Float64Array.from(logits, (logit) => Math.exp(logit - highest));
  const total = shares.reduce((one, other) => one + other);
  return shares.map((share) => share / total);
}

// The next token. Temperature 0 is the most likely one; `topP` keeps the likeliest tokens that together have this share.
function choose(logits, { temperature, topP, random }) {
  let best = 0;
  for (let id = 1; id < logits.length; id++) if (logits[id] > logits[best]) best = id;
  if (temperature === 0) return best;
  const shares = probabilities(logits.map((logit) => logit / temperature));
  const order = Array.from(shares.keys()).sort((one, other) => shares[other] - shares[one]);
  let kept = 0;
  let count = 0;
  while (count < order.length && (count === 0 || kept < topP)) kept += shares[order[count++]];
  let rest = random() * kept;
  for (const id of order.slice(0, count)) {
    rest -= shares[id];
    if (rest < 0) return id;
  }
  return order[count - 1];
}

// Numbers from 0 to 1 that a seed decides: mulberry32.
function makeRandom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// Continues a text: gives each token with its probability and the likeliest others, until one of the ends.
function* continueText(model, ids, { length, endIds, ...choice }) {
  model.reset();
  for (const [place, id] of ids.entries()) {
    if (place < ids.length - 1) {
      model.read(id, false);
      yield null; // a pause, in which a page stays alive
    }
  }
  let last = ids[ids.length - 1];
  for (let count = 0; count < length && model.length < model.config.max_position_embeddings; count++) {
    const logits = model.read(last);
    last = choose(logits, choice);
    if (endIds.includes(last)) return;
    const shares = probabilities(logits);
    yield { id: last, probability: shares[last], likeliest: likeliest(shares, 5) };
  }
}

function likeliest(shares, count) {
  const found = [];
  for (let id = 0; id < shares.length; id++) {
    if (found.length === count && shares[id] <= found[count - 1].probability) continue;
    found.push({ id, probability: shares[id] });
    found.sort((one, other) => other.probability - one.probability);
    found.length = Math.min(found.length, count);
  }
  return found;
}

if (typeof module !== "undefined") module.exports = { Tokenizer, Model, readNumbers, continueText, joinTokens, makeRandom };
