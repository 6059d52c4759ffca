"""What other programs look for: each module adds GPT-1 to one of them when it is imported."""
