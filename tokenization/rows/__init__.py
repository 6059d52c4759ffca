"""The paper's tasks and files of one's own: rows, traversals, labels, metrics."""
