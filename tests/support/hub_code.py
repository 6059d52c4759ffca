"""The code that lies beside every saved model, found as transformers finds it: by relative imports."""

from pathlib import Path

from transformers.dynamic_module_utils import get_relative_import_files

from modeling_gpt1 import modeling_gpt1

SOURCE = Path(modeling_gpt1.__file__).parent
HUB_CODE, HUB_CODE_OF_LSTM = (
    frozenset({name, *(Path(file).name for file in get_relative_import_files(SOURCE / name))})
    for name in ("modeling_gpt1.py", "modeling_gpt1_lstm.py")
)
