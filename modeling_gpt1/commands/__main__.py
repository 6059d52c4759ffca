"""Runs `gpt1 NAME …` as `python -m modeling_gpt1.commands NAME …`, the form that process launchers need."""

from .entry import main

if __name__ == "__main__":
    main()
