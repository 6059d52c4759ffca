"""Builds and installs gpt1-hf: modeling_gpt1 with hub_card.md inside, tokenization, and the entry point of `gpt1`."""

from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
HUB_CARD = "hub_card.md"
ENTRY = "gpt1_entry"


class BuildWithHubCard(build_py):
    """Puts hub_card.md, which lies at the top of the tree, into modeling_gpt1 in every wheel.

    An editable install reads the file where it lies.
    """

    def run(self):
        super().run()
        if not self.editable_mode:
            self.copy_file(HUB_CARD, self._hub_card_target())

    def get_source_files(self):
        return [*super().get_source_files(), HUB_CARD]

    def get_outputs(self, include_bytecode=True):
        return [*super().get_outputs(include_bytecode), self._hub_card_target()]

    def _hub_card_target(self):
        return str(Path(self.build_lib) / "modeling_gpt1" / HUB_CARD)


PLOT = ["matplotlib>=3.9"]
EVAL = ["lm-eval>=0.4.13", *PLOT]
REPRODUCE = ["scikit-learn>=1.5", "scipy>=1.13", *PLOT]
IMPORT_LINTER = "import-linter>=2.5"
LINT = [IMPORT_LINTER, "mypy>=1.18", "ruff>=0.15", "transformers-mlinter>=0.1.5"]
DOCS = ["mkdocs-material>=9.6,<10", "mkdocstrings[python]>=0.30"]
CLEAN = ["ftfy>=6.1"]
PEFT = ["peft>=0.21"]
ONNX = ["onnxruntime>=1.23", "onnxscript>=0.7"]
PLAYGROUND = ["gradio>=6.31,<7"]
SERVE = ["fastapi>=0.120", "openai>=2", "pydantic>=2", "uvicorn>=0.38"]
# spaCy and ftfy are the oracles of the tokenizer's tests, scikit-learn that of the metrics'. captum, minicons,
# nnsight, ONNX, Sentence Transformers and surprisal are tools that the models are tested with. statsmodels, trackio
# and wandb are for programs of the docs. ipykernel, nbclient and nbformat run the tutorial notebook.
TEST = [
    *EVAL,
    *CLEAN,
    *PEFT,
    *REPRODUCE,
    *ONNX,
    *SERVE,
    "captum>=0.9",
    "hypothesis>=6.140",
    IMPORT_LINTER,
    "ipykernel>=6.29",
    "minicons>=0.3.39",
    "nbclient>=0.10",
    "nbformat>=5.10",
    "nnsight>=0.8",
    "optuna>=4.5",
    "pytest>=9",
    "pytest-xdist>=3.6",
    "scikit-learn>=1.5",
    "sentence-transformers>=6.2",
    "setuptools>=77",  # a test builds the wheel
    "spacy>=3.8,<4",
    "statsmodels>=0.15",
    "surprisal>=0.1.7",
    "tensorboard>=2.18",
    "trackio>=0.30",
    "wandb>=0.25",
]

setup(
    name="gpt1-hf",
    version="0.1.0",
    description="GPT-1 for transformers: pre-training, and fine-tuning with the auxiliary language-model objective",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The gpt1-hf authors",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["GPT-1", "language model", "pre-training", "fine-tuning", "transformers", "auxiliary objective"],
    # `url` waits for the repository's public address: see docs/release.md.
    project_urls={
        "Paper": "https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf"
    },
    packages=[*find_packages(include=["modeling_gpt1", "modeling_gpt1.*", "tokenization", "tokenization.*"]), ENTRY],
    # The console script must start without importing modeling_gpt1, which brings torch and transformers.
    package_dir={ENTRY: "modeling_gpt1/commands/entry"},
    package_data={
        "modeling_gpt1": ["py.typed", "gpt1-novels/*"],
        "tokenization": ["py.typed"],
        "modeling_gpt1.commands": ["accelerate/*.yaml", "presets.yaml"],
        "modeling_gpt1.playground": ["look.*", "browser/*"],
        "modeling_gpt1.reproduction": ["templates/*"],
    },
    entry_points={
        "console_scripts": [f"gpt1 = {ENTRY}:main"],
        "lm_eval.models": ["gpt1 = modeling_gpt1.evaluation.harness:SharedContextLM"],  # after lm-eval 0.4.13
        "vllm.general_plugins": ["gpt1 = modeling_gpt1.clients.vllm_plugin:register"],
    },
    cmdclass={"build_py": BuildWithHubCard},
    python_requires=">=3.10,<3.15",
    install_requires=[
        "accelerate>=1.10",
        "datasets>=4.0",
        "evaluate>=0.4.6",
        "filelock>=3.30",
        "huggingface-hub>=1",
        "jinja2>=3.1",
        "numpy>=1.26",
        "safetensors>=0.6",
        "shtab>=1.13",
        "tokenizers>=0.22",
        "torch>=2.11,<2.16",
        "transformers>=5.17,<5.25",
    ],
    extras_require={
        "test": TEST,
        "lint": LINT,
        "docs": DOCS,
        "plot": PLOT,
        "clean": CLEAN,
        "eval": EVAL,
        "onnx": ONNX,
        "peft": PEFT,
        "playground": PLAYGROUND,
        "reproduce": REPRODUCE,
        "serve": SERVE,
        "all": [*TEST, *PLAYGROUND, *LINT, *DOCS],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Natural Language :: English",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
)
