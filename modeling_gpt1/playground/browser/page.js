// What the page's boxes and buttons do.
"use strict";

const PAUSE = 16; // milliseconds of computing, after which the browser may draw
const element = (id) => document.getElementById(id);
let tokenizer, model, settings;
let written = []; // tokens with their probabilities
let run = 0; // each start and stop ends the run before

function openModel() {
  settings = JSON.parse(element("settings").textContent);
  tokenizer = new Tokenizer(settings.tokenizer);
  model = new Model(settings.config, settings.names, readNumbers(element("weights").textContent, settings.format));
  element("weights").textContent = "";
}

function show(message, isAlarm = false) {
  element("status").textContent = message;
  element("status").classList.toggle("alarm", isAlarm);
}

async function write() {
  const own = ++run;
  const prompt = element("prompt").value;
  const length = element("length").valueAsNumber;
  const ids = tokenizer.encode(prompt);
  const positions = model.config.max_position_embeddings;
  if (ids.length === 0) return show("Type a word to begin with.", true);
  if (ids.length + length > positions) {
    return show(`The text has ${ids.length} tokens, but the model has ${positions} positions. Shorten it, or ask for fewer.`, true);
  }
  const choice = {
    length,
    endIds: settings.end_ids,
    temperature: element("temperature").valueAsNumber,
    topP: element("top-p").valueAsNumber,
    random: makeRandom(element("seed").valueAsNumber),
  };
  const words = tokenizer.words(prompt);
  written = [];
  element("before").textContent = prompt;
  element("after").replaceChildren();
  element("token").hidden = true;
  element("start").disabled = true;
  element("stop").disabled = false;
  show("Reading …");
  let computed = 0; // milliseconds
  let started = performance.now();
  for (const token of continueText(model, ids, choice)) {
    if (token !== null) written.push(token);
    const spent = performance.now() - started;
    if (spent < PAUSE) continue;
    computed += spent;
    draw(words, prompt);
    show(speed(ids.length, computed));
    await new Promise((resume) => setTimeout(resume));
    if (own !== run) break;
    started = performance.now();
  }
  draw(words, prompt);
  if (own !== run) return;
  computed += performance.now() - started;
  finish(speed(ids.length, computed));
}

function speed(numRead, milliseconds) {
  const perSecond = (1000 * (numRead + written.length)) / milliseconds;
  return `${written.length} tokens, ${perSecond.toFixed(0)} per second`;
}

function finish(message) {
  element("start").disabled = false;
  element("stop").disabled = true;
  show(message);
}

function draw(words, prompt) {
  const texts = joinTokens(tokenizer, words, written.map((token) => token.id));
  if (/\s$/.test(prompt) && texts.length > 0) texts[0] = texts[0].trimStart();
  const spans = element("after").children;
  for (const [place, text] of texts.entries()) {
    const span = spans[place] ?? newSpan(place);
    const word = text.replace(/^ /, "");
    span.previousSibling.data = text.slice(0, text.length - word.length);
    if (span.textContent !== word) span.textContent = word;
  }
}

function newSpan(place) {
  const span = document.createElement("span");
  span.className = "token";
  const surprise = -Math.log(written[place].probability) / Math.log(tokenizer.tokens.length); // 1: a blind guess
  span.style.setProperty("--surprise", `${Math.round(60 * Math.min(surprise, 1))}%`);
  span.title = percent(written[place].probability);
  span.addEventListener("pointerenter", () => explain(place));
  element("after").append(document.createTextNode(""), span); // the space before a word has no colour
  return span;
}

function percent(probability) {
  const number = 100 * probability;
  return `${number >= 1 ? number.toFixed(1) : number.toPrecision(2)} %`;
}

// Shows a token's probability and what the model expected in its place.
function explain(place) {
  const spans = [...element("after").children];
  spans.forEach((span, other) => span.classList.toggle("chosen", other === place));
  const { id, probability, likeliest } = written[place];
  const title = document.createElement("strong");
  title.textContent = `${nameOf(id)}: ${percent(probability)}, ${(-Math.log2(probability)).toFixed(1)} bits`;
  const rows = likeliest.flatMap((other) => {
    const [name, track, bar, value] = ["span", "div", "div", "span"].map((kind) => document.createElement(kind));
    name.textContent = nameOf(other.id);
    track.className = "track";
    bar.className = "bar";
    bar.style.width = `${100 * other.probability}%`;
    track.append(bar);
    value.className = "value";
    value.textContent = percent(other.probability);
    return [name, track, value];
  });
  element("token").replaceChildren(title, ...rows);
  element("token").hidden = false;
}

function nameOf(id) {
  const { text, endsWord } = tokenizer.textOf(id);
  return (text === "\n" ? "line end" : text) + (endsWord ? "" : "…");
}

function onArrow(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step === undefined || written.length === 0) return;
  event.preventDefault();
  const spans = [...element("after").children];
  const chosen = spans.findIndex((span) => span.classList.contains("chosen"));
  explain(Math.max(0, Math.min(spans.length - 1, chosen + step)));
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  document.documentElement.style.colorScheme = name;
  element("theme").textContent = name === "dark" ? "Light" : "Dark";
}

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
element("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
element("text").addEventListener("keydown", onArrow);
element("stop").addEventListener("click", () => {
  run++;
  finish(`Stopped after ${written.length} tokens.`);
});
element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  write();
});
setTimeout(() => {
  openModel();
  show("Ready.");
});
