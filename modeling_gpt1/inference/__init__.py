"""What a trained model does: generation, 8-bit weights, scores of continuations, zero-shot heuristics."""
