"""What a model brings to the hub: its card and its push."""
