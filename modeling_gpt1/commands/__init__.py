"""The commands of `gpt1`. Each is one module, whose `main(arguments)` does the work."""
