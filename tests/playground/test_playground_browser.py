"""`gpt1 playground` in a real browser. Needs what no other test needs, and skips where it is not installed:

chromium and chromium-driver (Debian's packages), and Gradio and Selenium (`pip install -e ".[browser]"`);
`make test-browser` installs the latter two and runs this file.
"""

import json
import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM
from modeling_gpt1.playground.page import build_page

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if BROWSER is None or DRIVER is None:
    pytest.skip("no browser: install Debian's chromium and chromium-driver", allow_module_level=True)
for package in ("gradio", "selenium"):
    pytest.importorskip(package, reason=f"no {package}: pip install -e '.[browser]'")


@pytest.fixture(scope="module")
def models(tiny_model, tiny_tokenizer, tmp_path_factory):
    """Folders of tiny models by traversal."""
    folder = tmp_path_factory.mktemp("models")
    for traversal in ("classification", "multiple_choice", None):
        model_class = GPT1ForCausalLM if traversal is None else GPT1DoubleHeadsModel
        sizes = {"vocab_size": len(tiny_tokenizer), "max_position_embeddings": 256}
        tiny_model(model_class, seed=10, traversal=traversal, **sizes).save_pretrained(folder / str(traversal))
        tiny_tokenizer.save_pretrained(folder / str(traversal))
    return folder


@pytest.fixture(scope="module")
def address(models):
    """Of a page that is served in this process."""
    page, settings = build_page([str(folder) for folder in sorted(models.iterdir(), reverse=True)])
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, share=False, **settings)
    yield url
    page.close()


@contextmanager
def chromium(folder: Path, width: int):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    switches = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"]
    switches += ["disable-background-networking", "disable-component-update", "disable-sync"]
    switches += [f"user-data-dir={folder}", f"window-size={width},1000"]
    for switch in switches:
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


class Visitor:
    """A person at the page."""

    def __init__(self, driver, url):
        self.driver = driver
        driver.get(url)
        self.wait_for("status", "is open")

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, element):
        return self.find(f"#{element}").text

    def wait_for(self, element, text, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if text in self.text(element):
                    return
            except Exception:  # the page replaces its elements while it is read
                pass
            time.sleep(0.1)
        pytest.fail(f"{text!r} did not appear in {element}: {self.text(element)!r}")

    def type(self, box, text):
        # As pasting does: keys one by one take a second per line.
        self.driver.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
            self.find(f"#{box} textarea, #{box} input"),
            text,
        )

    def open(self, name):
        self.find(f"#listed input[value='{name}']").click()
        self.wait_for("status", f"{name} is open")

    def press(self, button, element, expected):
        self.find(f"#{button}").click()
        self.wait_for(element, expected)

    def visible(self, *boxes):
        return [box for box in boxes if any(found.is_displayed() for found in self.finds(f"#{box}"))]

    def finds(self, selector):
        return self.driver.find_elements("css selector", selector)

    def check_page(self):
        """Nothing runs over, nothing failed, nothing was asked of another machine."""
        script = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        wide, room = self.driver.execute_script(script)
        assert wide <= room
        assert [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"] == []
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        # chrome: the browser's first, empty tab
        own = ("http://127.0.0.1:", "http://localhost:", "data:", "chrome:", "chrome-untrusted:")
        assert [url for url in asked if not url.startswith(own)] == []


@pytest.fixture(scope="module", params=[1280, 480])
def visitor(request, address, tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser"), request.param) as driver:
        yield Visitor(driver, address)


def tokens(visitor):
    pieces = visitor.finds("#result .gpt1-token")
    return [(piece.get_attribute("class").split()[1], piece.text.split("\n")[0]) for piece in pieces]


def test_classification(visitor):
    visitor.open("classification")
    assert visitor.visible("first", "second", "question", "answers") == ["first"]
    visitor.type("first", "the [e] girl")
    visitor.press("read", "result", "Probabilities")
    shown = tokens(visitor)
    assert shown[0] == ("gpt1-control", "[s]") and shown[-1] == ("gpt1-control", "[e]")
    assert {kind for kind, _ in shown[1:-1]} == {"gpt1-first"}
    assert len(visitor.finds("#result .gpt1-loss")) == len(shown) - 1
    assert len(visitor.finds("#result .gpt1-bar")) == 2
    visitor.check_page()


def test_multiple_choice_with_twenty_answers(visitor):
    visitor.open("multiple_choice")
    assert visitor.visible("first", "second", "question", "answers") == ["first", "question", "answers"]
    visitor.type("first", "the old farmer")
    visitor.type("answers", "")
    visitor.press("read", "result", "There are 0 answers. Write 1 to 50, each on a line of its own.")
    visitor.type("answers", "\n".join(["he smiled at her and walked to the market " * 2] * 20))
    visitor.press("read", "result", "Answer 20")
    assert len(visitor.finds("#result .gpt1-bar")) == len(visitor.finds("#result details")) == 20
    assert len(visitor.finds("#result details[open]")) == 4
    visitor.check_page()


def test_the_continuation_appears_and_stops(visitor):
    visitor.open("None")
    visitor.type("first", "the old farmer")
    visitor.press("read", "result", "This model has no task head: it has no classes to choose from.")
    visitor.press("write", "continuation", "after: text")
    written = ""
    for _ in range(100):
        time.sleep(0.1)
        previous, written = written, visitor.text("continuation")
        if previous == written and len(written) > 40:
            break
    assert written.startswith("Continuation") and len(written) > 40
    visitor.find("#stop").click()
    visitor.check_page()
