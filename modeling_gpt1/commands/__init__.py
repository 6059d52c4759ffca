"""The commands of `gpt1`: a module each, whose `main(arguments)` does the work."""
