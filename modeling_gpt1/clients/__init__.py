"""What other programs look for: a module adds GPT-1 to one of them when it is imported, and `serve` is a server."""
