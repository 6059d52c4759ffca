"""The command line of lm-evaluation-harness, which here knows the model `gpt1`:

python -m modeling_gpt1.evaluation run --model gpt1 --model_args pretrained=out/books --tasks piqa
"""

from lm_eval.__main__ import cli_evaluate

from . import harness  # noqa: F401  # registers the model

if __name__ == "__main__":
    cli_evaluate()
