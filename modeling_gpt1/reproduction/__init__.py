"""Runs the experiments of the paper's sections 4.2 and 5 on any model and reports them beside the paper's figures."""
