"""ONNX Runtime: logits of other lengths than the exported one."""

from figures import Figure, report, run_lines

REQUIREMENTS = ("onnxruntime==1.31.1", "onnxscript==0.7.2")


def main() -> list[Figure]:
    import torch

    names = run_lines("ONNX Runtime")
    model, session = names["model"], names["session"]
    differences = []
    for shape in ((1, 30), (3, 9)):
        ids = torch.randint(1, 8000, shape, generator=torch.Generator().manual_seed(0))
        (theirs,) = session.run(["logits"], {"input_ids": ids.numpy()})
        with torch.no_grad():
            differences.append((model(ids).logits - torch.from_numpy(theirs)).abs().max().item())
    return [Figure("greatest difference of logits", max(differences), at_most=1e-4)]


if __name__ == "__main__":
    report(main)
