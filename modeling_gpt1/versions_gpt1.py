# Copyright 2026 The gpt1-hf authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The tested releases of transformers: a warning where another is installed, and what differs between them."""

import torch
import transformers
from transformers.utils import logging

logger = logging.get_logger(__name__)

OLDEST, NEWEST = (5, 17), (5, 23)  # setup.py and docs/install.md have the same


def warn_of_untested_release(installed: str):
    if not OLDEST <= tuple(map(int, installed.split(".")[:2])) <= NEWEST:
        oldest, newest, next_one = ("{}.{}".format(*numbers) for numbers in (OLDEST, NEWEST, (5, NEWEST[1] + 1)))
        logger.warning(
            f"transformers {installed} is installed, but gpt1-hf was tested with {oldest} to {newest}. "
            f'If something fails, run `pip install "transformers>={oldest},<{next_one}"`.'
        )


def check_fraction(value: float | int):
    # transformers' own `interval(min=0)` lets numbers below 0 through in 5.17.
    if not 0 <= value <= 1:
        raise ValueError("it must be a number from 0 to 1")


def without_cpu_index(device: torch.device) -> torch.device:
    # Trainer of 5.17 loads an optimizer's state with `args.device` as map_location, and torch knows no "cpu:0".
    return torch.device("cpu") if device.type == "cpu" else device


warn_of_untested_release(transformers.__version__)
