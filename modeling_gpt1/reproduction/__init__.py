"""The experiments of the paper's sections 4.2 and 5 on any model, and one report beside the paper's figures."""
