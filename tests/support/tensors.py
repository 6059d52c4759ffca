"""Random ids, and the comparison of two results."""

import torch


def random_ids(*shape, seed=0):
    return torch.randint(1, 101, shape, generator=torch.Generator().manual_seed(seed))


def close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)
