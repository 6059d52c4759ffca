"""A page in the browser to look into a model: its tokens, its probabilities, its losses and what it writes."""
