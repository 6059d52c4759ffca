"""Training: arguments, trainers, exact resume, the order of batches, and runs of several processes."""
