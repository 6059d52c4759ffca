"""The tutorial notebook, run in a kernel of its own at small sizes, up to the push to a hub.

As a script: `python tests/examples/test_tutorial.py` runs it at full size, in minutes, and puts its outputs into it.
"""

import base64
import io
import json
import re
import tempfile
from pathlib import Path

import pandas
import pytest
from hub.stand_in import serve
from support.launch import python_path

nbformat = pytest.importorskip("nbformat")
NotebookClient = pytest.importorskip("nbclient").NotebookClient

PATH = Path(__file__).resolve().parents[2] / "examples" / "tutorial.ipynb"
SMALL = {"PRETRAINING_UPDATES": "4", "EPOCHS": "1", "HUB_MODEL_ID": '"me/small-reviews"'}


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(PATH, as_version=4)


@pytest.fixture(scope="module")
def run(notebook, tmp_path_factory):
    """The executed notebook, and what the hub has then."""
    folder = tmp_path_factory.mktemp("tutorial")
    executed = nbformat.from_dict(json.loads(json.dumps(notebook)))
    (parameters,) = (cell for cell in executed.cells if "parameters" in cell.metadata.get("tags", ()))
    for name, value in SMALL.items():
        parameters.source, count = re.subn(rf"^{name} = \S+", f"{name} = {value}", parameters.source, flags=re.M)
        assert count == 1
    with serve() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.url)
        patch.setenv("HF_HOME", str(folder / "home"))
        patch.setenv("HF_TOKEN", "hf_write")
        patch.setenv("HF_HUB_DISABLE_XET", "1")
        patch.delenv("HF_HUB_OFFLINE", raising=False)
        patch.delenv("MPLBACKEND", raising=False)
        patch.setenv("PYTHONPATH", python_path(PATH.parents[1]))
        NotebookClient(executed, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return executed, hub


def outputs(executed, beginning):
    """What the cell that begins so has printed, shown and drawn."""
    (cell,) = (cell for cell in executed.cells if cell.source.startswith(beginning))
    return cell.outputs


def clear(notebook) -> None:
    """Takes warnings, progress bars, speeds and the machine's version out of the outputs."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        cell.outputs = [output for output in cell.get("outputs", ()) if output.get("name") != "stderr"]
        for output in cell.outputs:
            html = output.get("data", {}).get("text/html", "")
            if "<table" in html:
                (table,) = pandas.read_html(io.StringIO(html))
                table = table.drop(columns=[name for name in table if re.search("Runtime|Per Second", name)])
                output["data"]["text/html"] = table.to_html(index=False, border=1)
        cell.outputs = [output for output in cell.outputs if "<progress" not in str(output.get("data"))]
        if cell.cell_type != "code":
            del cell["outputs"]
    notebook.metadata["language_info"].pop("version", None)


def test_the_repository_has_the_outputs_of_a_whole_run(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, 13))
    (image,) = outputs(notebook, "figure,")
    assert base64.b64decode(image["data"]["image/png"]).startswith(b"\x89PNG")
    *_, perplexity = outputs(notebook, "set_seed(SEED)\nconfig")
    assert float(perplexity["data"]["text/plain"]) < 1.6  # of 2,000 updates
    text = json.dumps([cell.outputs for cell in code])
    assert re.findall(r"/(?:home|root|usr|tmp)/|\d\d:\d\d|Runtime|stderr", text) == []
    answers = re.findall(r"(glorious|vile)[^→]*→ \[\{'label': '(\w+)'", json.loads(text)[-2][0]["text"])
    assert answers == [("glorious", "positive"), ("vile", "negative")]
    nbformat.validate(notebook)


def test_the_tutorial_shows_its_figures_and_texts(run):
    executed, _ = run
    (image,) = outputs(executed, "figure,")
    assert base64.b64decode(image["data"]["image/png"]).startswith(b"\x89PNG")
    (parts,) = outputs(executed, "trainer, _, _")
    l3, l2, l1 = (float(figure) for figure in re.findall(r"\d\.\d{4}", parts["text"]))
    assert l3 == pytest.approx(l2 + 0.5 * l1, abs=2e-4)
    assert l1 > 2  # nats: 4 updates do not learn the stories
    shown = outputs(executed, "trainer.save_model()")
    # What was printed comes in parts if something else comes between.
    answers = "".join(output["text"] for output in shown if output.get("name") == "stdout")
    assert len(re.findall(r"→ \[\{'label': '(?:posi|nega)tive'", answers)) == 2


def test_the_tutorial_publishes_a_whole_model_with_its_card(run):
    _, hub = run
    files = hub.files("me/small-reviews")
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    assert json.loads(files["config.json"])["id2label"] == {"0": "negative", "1": "positive"}
    assert "name: reviews made by the tutorial" in files["README.md"].decode()


if __name__ == "__main__":
    whole = nbformat.read(PATH, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(whole, timeout=1200, resources={"metadata": {"path": folder}}).execute()
    clear(whole)
    nbformat.write(whole, PATH)
