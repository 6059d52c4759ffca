"""`python -m modeling_gpt1.commands NAME …` does what `gpt1 NAME …` does; launchers of processes need this form."""

from .entry import main

if __name__ == "__main__":
    main()
