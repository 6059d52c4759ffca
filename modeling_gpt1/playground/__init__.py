"""A browser page that shows how a model works: its tokens, probabilities, losses and continuations."""
