"""Attacks a playground over HTTP as a hostile visitor would, and counts its kinds of answers.

    python benchmarks/playground_attack.py            # the paper's size, some minutes
    python benchmarks/playground_attack.py --quick    # a small model
    python benchmarks/playground_attack.py --save     # also benchmarks/results/<date>-playground-attack.json

`gpt1 playground` runs in its own process with random weights. Gradio's own routes are open to everyone who can reach
the port. The requests are those of Gradio's page, sent without a browser: 50 visitors at once, texts of 1 MB and
bodies of 20 MB, paths of the server, foreign origins and hosts, broken JSON, functions that do not exist, settings
that no slider has, and uploads.

Each answer is one of: done; a sentence in the page; a refusal (a status of 400 to 499, or 503 from a full queue); an
error without a message; a leak, which is a traceback, a path of the server or the content of one of its files. The
exit code is 1 if there is a leak, if the server ends or no longer reads a text, or if folders that exist and folders
that do not are refused in different words.
"""

import argparse
import html
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import httpx
import psutil
import torch
from harness import MIB, SMALL, machine, save_result

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM
from tokenization import GPT1Tokenizer

VISITORS = 50
TEXT = "the old farmer walked to the river and sat down . " * 40
LENGTH, TEMPERATURE, TYPED = "length", "temperature", "typed"  # inputs that a request may set besides the text
LEAKS = re.compile(r'Traceback \(most recent|File "/|root:x:0|site-packages', re.IGNORECASE)
PATHS = (
    "/gradio_api/file=/etc/passwd",
    "/gradio_api/file=../../../../etc/passwd",
    "/gradio_api/file=%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "/gradio_api/file=file:///etc/passwd",
    "/gradio_api/file={folder}/config.json",
    "/gradio_api/file={package}/page.py",
    "/gradio_api/file//etc/passwd",
    "/gradio_api/file=http://127.0.0.1:{port}/config",
    "/gradio_api/proxy=http://127.0.0.1:{port}/config",
    "/file=/etc/passwd",
    "/static/../../../../../etc/passwd",
    "/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/assets/..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/svelte/..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/gradio_api/custom_component/1/client/../../../../etc/passwd",
    "/gradio_api/stream/a/1/2/..%2f..%2fetc/passwd.ts",
    "/gradio_api/vibe-code",
    "/monitoring",
    "/config",
    "/gradio_api/info",
    "/theme.css",
)
TYPED_NAMES = (
    "{folder}",  # exists
    "{folder}-none",  # does not
    "/etc",
    "/etc-none",
    "/root",
    "~",
    "~nobody-such",
    ".",
    "./none",
    "../",
    "../none",
    "file:///etc",
    "{relative}",  # exists
    "{relative}-none",
    "\\\\server\\share",
    "a" * 5_000,
    "/" + "a" * 5_000,
    "\ud800",
    "nul\0byte",
    "<script>alert(1)</script>",
)
SETTINGS = (float("nan"), float("inf"), -float("inf"), 1e308, -5, 10**30, None, "many", [], {}, True)
FUNCTIONS = (9_999, -1, 10**30, 1.5, None, "read", [], {})


# ---- The server


def write_model(folder: Path, quick: bool) -> None:
    """Writes a model of random weights and a tokenizer of a few words."""
    tokenizer = GPT1Tokenizer.train(iter([TEXT]), num_merges=100, show_progress=False)
    sizes = {**SMALL, "vocab_size": len(tokenizer)} if quick else {}
    torch.manual_seed(0)
    GPT1ForCausalLM(GPT1Config(**sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


class Server:
    """`gpt1 playground` in its own process, and the peak of its memory."""

    def __init__(self, folder: Path, log: Path):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port, self.peak = free.getsockname()[1], 0
        self.address = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "modeling_gpt1.commands", "playground", "--models", str(folder)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
        self.log = log.open("w")
        self.process = subprocess.Popen(
            [*command, "--server_port", str(self.port)], stdout=self.log, stderr=self.log, env=environment
        )
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while self.is_alive():
            try:
                self.peak = max(self.peak, psutil.Process(self.process.pid).memory_info().rss)
            except psutil.Error:
                return
            time.sleep(0.05)

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> dict:
        """Waits until the page is served and returns its configuration."""
        for _ in range(600):
            try:
                return httpx.get(f"{self.address}/config", timeout=5).raise_for_status().json()
            except (httpx.HTTPError, json.JSONDecodeError):
                time.sleep(0.2)
                if not self.is_alive():
                    break
        raise RuntimeError(f"The playground did not start; see {self.log.name}.")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)
        self.log.close()


# ---- A visitor


class Visitor:
    """Talks to the server as Gradio's page does, and keeps the body of every answer."""

    def __init__(self, server: Server, config: dict):
        self.server, self.client = server, httpx.Client(base_url=server.address, timeout=900)
        names = {part["id"]: part["props"].get("elem_id") for part in config["components"]}
        self.inputs, self.functions, self.ids = {}, {}, {name: number for number, name in names.items()}
        for function in config["dependencies"]:
            if not function["backend_fn"]:  # only cancels another function
                continue
            self.inputs[function["id"]] = function["inputs"]
            for target, event in function["targets"]:
                self.functions[names.get(target), event] = function["id"]
        self.sliders = [part["id"] for part in config["components"] if part["type"] == "slider"]
        self.session = os.urandom(8).hex()
        self.call("listed", "input", {"listed": config_value(config, "listed")})

    def data(self, function: int, values: dict) -> list:
        known = {self.ids["first"]: TEXT, self.sliders[0]: 20, self.sliders[1]: 0.7}
        for name, value in values.items():
            number = {LENGTH: self.sliders[0], TEMPERATURE: self.sliders[1], TYPED: self.ids["model"]}.get(name)
            known[self.ids[name] if number is None else number] = value
        return [known.get(number) for number in self.inputs[function]]

    def call(self, button: str, event: str, values: dict) -> tuple[str, str]:
        """The outcome and the text of one click on a button."""
        function = self.functions[button, event]
        body = {"data": self.data(function, values), "fn_index": function, "session_hash": self.session}
        outcome, text = self.join(body)
        for value in values.values():
            if isinstance(value, str) and value:  # the visitor's own words in an answer are no leak
                text = text.replace(html.escape(value), "…")
        return outcome, text

    def join(self, body: dict, **headers: str) -> tuple[str, str]:
        response = self.client.post(
            "/gradio_api/queue/join",
            content=json.dumps(body).encode(),
            headers={"content-type": "application/json", **headers},
        )
        if response.status_code != 200:
            return judge(response)
        parts = {"session_hash": body.get("session_hash")}
        with self.client.stream("GET", "/gradio_api/queue/data", params=parts) as stream:
            for line in stream.iter_lines():
                message = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
                if message.get("msg") == "process_completed":
                    return judge_output(message)
                if message.get("msg") in ("close_stream", "unexpected_error"):
                    return "error", line
        return "error", "the stream ended"


def config_value(config: dict, name: str):
    return next(part["props"]["value"] for part in config["components"] if part["props"].get("elem_id") == name)


def judge(response: httpx.Response) -> tuple[str, str]:
    refused = 400 <= response.status_code < 500 or response.status_code == 503
    return ("refused" if refused else "done" if response.status_code < 400 else "error"), response.text


def judge_output(message: dict) -> tuple[str, str]:
    text = json.dumps(message.get("output"), ensure_ascii=False)
    if not message["success"]:
        return ("sentence" if (message["output"] or {}).get("error") else "error"), text
    return ("sentence" if "gpt1-alarm" in text else "done"), text


# ---- The attacks


def attacks(make: Callable[[], Visitor], server: Server, folder: Path) -> dict[str, list[Callable]]:
    """The requests by kind. If a kind's name ends in "at once", its requests are sent at the same time."""
    one = make()
    foreign = {"origin": "https://evil.example"}
    read, write, typed = (
        one.functions["read", "click"],
        one.functions["write", "click"],
        one.functions["open", "click"],
    )
    session = {"session_hash": one.session}
    read_data, write_data = one.data(read, {}), one.data(write, {})
    relative = os.path.relpath(folder)
    package = Path(__file__).parents[1] / "modeling_gpt1" / "playground"
    known = {"folder": folder, "port": server.port, "package": package, "relative": relative}

    def post(path: str, content: bytes, **headers: str) -> Callable:
        return lambda: judge(one.client.post(path, content=content, headers=headers))

    def get(path: str) -> Callable:
        def request() -> tuple[str, str]:
            outcome, text = judge(one.client.get(path))
            return outcome, text.replace(path.partition("=")[2] or path, "…")

        return request

    def across(method: str, path: str) -> Callable:
        """A request from another site's page. A browser shows that page no answer unless the server allows it."""
        asked = {**foreign, "access-control-request-method": "POST"}

        def request() -> tuple[str, str]:
            response = one.client.request(method, path, headers=asked)
            return ("done", response.text) if "access-control-allow-origin" in response.headers else ("refused", "")

        return request

    def direct(body: dict) -> Callable:
        return post("/gradio_api/run/predict", json.dumps(body).encode(), **{"content-type": "application/json"})

    def join(body: dict, **headers: str) -> Callable:
        return lambda: one.join(body, **headers)

    def press(button: str, **values) -> Callable:
        return lambda: one.call(button, "click", values)

    plain = {"data": read_data, "fn_index": read, **session}
    as_json, joined = {"content-type": "application/json"}, "/gradio_api/queue/join"
    broken = (b"", b"{", b"null", b"[]", b'"text"', b"[" * 100_000, b'{"data":' * 50_000, b"\xff\xfe", b"{}")
    return {
        f"{VISITORS} readings at once": [lambda: make().call("read", "click", {})] * VISITORS,
        f"{VISITORS} continuations at once": [lambda: make().call("write", "click", {})] * VISITORS,
        f"{VISITORS} readings past the queue, at once": [direct(plain)] * VISITORS,
        "texts of 1 MB": [press(button, first="a " * 500_000) for button in ("read", "write")],
        "texts at the limit": [press(button, first="the " * 25_000) for button in ("read", "write")],
        "a word of 100,000 letters": [press("read", first="a" * 100_000)],
        "bodies of 20 MB": [join({"data": ["a" * 20_000_000] * 5, "fn_index": read, **session})] * 3,
        "paths": [get(path.format(**known)) for path in PATHS],
        "typed names": [press("open", model=name.format(**known)) for name in TYPED_NAMES],
        "broken JSON": [post(joined, content, **as_json) for content in broken],
        "functions": [join({"data": read_data, "fn_index": number, **session}) for number in FUNCTIONS],
        "functions, past the queue": [direct({"data": read_data, "fn_index": number}) for number in FUNCTIONS],
        "wrong data": [
            join({"data": data, "fn_index": number, **session})
            for number in (read, write, typed)
            for data in ([], None, {}, [[]] * 5, [{}] * 7, ["x"] * 200, [{"path": "/etc/passwd"}] * 5, "abcde")
        ],
        "surrogates": [press(button, first="the \ud800 farmer") for button in ("read", "write")],
        "settings": [press("write", **{name: value}) for name in (LENGTH, TEMPERATURE) for value in SETTINGS],
        "foreign origins and hosts": [
            across("OPTIONS", joined),
            across("GET", "/config"),
            post(joined, json.dumps(plain).encode(), **foreign, **{"content-type": "text/plain"}),
            post(joined, json.dumps(plain).encode(), **as_json, host="evil.example"),
            lambda: judge(one.client.get("/config", headers={"host": "evil.example"})),
        ],
        "uploads": [
            lambda: judge(one.client.post("/gradio_api/upload", files={"files": ("a.txt", b"a" * 5_000_000)})),
            lambda: judge(one.client.post("/gradio_api/upload", files={"files": ("../../a", b"a" * 100)})),
        ],
        "a forged session": [join({"data": write_data, "fn_index": write, "session_hash": "../../etc"})],
    }


def measure(requests: list[Callable], at_once: bool, hidden: list[str]) -> tuple[dict, list[str]]:
    """The figures of one kind of request, and the leaked texts."""

    def timed(request: Callable) -> tuple[str, str, float]:
        start = time.perf_counter()
        try:
            outcome, text = request()
        except httpx.HTTPError as error:
            outcome, text = "error", type(error).__name__
        return outcome, text, time.perf_counter() - start

    with ThreadPoolExecutor(len(requests) if at_once else 1) as pool:
        answers = list(pool.map(timed, requests))
    leaks = [text for _, text, _ in answers if LEAKS.search(text) or any(path in text for path in hidden)]
    counts = Counter(outcome for outcome, _, _ in answers)
    figures = {"requests": len(answers), **{name: counts[name] for name in ("done", "sentence", "refused", "error")}}
    return {**figures, "leaks": len(leaks), "slowest_s": round(max(answer[2] for answer in answers), 2)}, leaks


def refusals(visitor: Visitor, folder: Path) -> set[str]:
    """The words in which existing and missing folders are refused, without the folders' names."""
    names = (str(folder), f"{folder}-none", "/etc", "/etc-none", os.path.relpath(folder), "../none", "~", "~none")
    answers = [visitor.call("open", "click", {TYPED: name})[1] for name in names]
    return {" ".join(re.findall("<p>(.*?)</p>", answer)) for answer in answers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="A small model.")
    parser.add_argument("--save", action="store_true", help="Write the dated result.")
    parser.add_argument("--show", action="store_true", help="Print every text that leaked.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "served")
        write_model(folder, arguments.quick)
        server = Server(folder, Path(temporary, "log"))
        try:
            config = server.wait()
            first = Visitor(server, config)
            first.call("read", "click", {})
            about = {"memory_before_mib": server.peak // MIB, "kinds": {}}
            for name, requests in attacks(lambda: Visitor(server, config), server, folder).items():
                figures, leaks = measure(requests, "at once" in name, hidden=[temporary, str(Path.home()), sys.prefix])
                about["kinds"][name] = figures
                print(f"{name}: {json.dumps(figures)}", flush=True)
                for text in leaks if arguments.show else ():
                    print(f"    {text[:600]}")
            words = refusals(Visitor(server, config), folder)
            about["memory_peak_mib"] = server.peak // MIB
            about["words_for_folders"] = len(words)
            about["reads_afterwards"] = Visitor(server, config).call("read", "click", {})[0] == "done"
            about["is_alive"] = server.is_alive()
        finally:
            server.close()
            if arguments.show:
                print(Path(temporary, "log").read_text()[-6000:])
    print(json.dumps({name: value for name, value in about.items() if name != "kinds"}))
    if arguments.save:
        save_result("playground-attack", {**machine(), "gradio": version("gradio")}, about)
    leaked = any(figures["leaks"] for figures in about["kinds"].values())
    if leaked or not about["reads_afterwards"] or not about["is_alive"] or len(words) > 1:
        sys.exit(1)


if __name__ == "__main__":
    main()
