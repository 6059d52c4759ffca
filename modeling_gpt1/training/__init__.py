"""Training: arguments, trainers, exact resume, the order of batches, several processes."""
