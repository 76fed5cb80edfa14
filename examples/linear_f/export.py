"""Train MyLinear, write it to linear.onnx with its Function as one node, and compare the two.

The Function is ../functions/linear_f.py, as it is; its `symbolic` names the node MYLINEAR. The body
of the node is the Function's forward, so any ONNX Runtime runs the file.
"""

import sys
import tempfile
from pathlib import Path

import onnxruntime
import torch

import pullback as pb

sys.path.insert(0, str(Path(__file__).parents[1] / "functions"))
from linear_f import MyLinear, check, train


def export(model: MyLinear, path: Path) -> list[str]:
    """Write the file, with any number of rows; return what its nodes are called."""
    program = pb.export_onnx(
        model.eval(),
        (torch.rand(1, 2, dtype=torch.float64),),
        path,
        input_names=["x"],
        output_names=["y"],
        dynamic_shapes={"input": {0: "batch"}},
    )
    return [f"{node.domain}::{node.op_type}" for node in program.model.graph]


def difference(model: MyLinear, path: Path, rows: int) -> float:
    """Return the largest difference between PyTorch and ONNX Runtime on random rows."""
    session = onnxruntime.InferenceSession(path)
    x = torch.rand(rows, 2, dtype=torch.float64)
    (y,) = session.run(["y"], {"x": x.numpy()})
    return (torch.from_numpy(y) - model(x)).abs().max().item()


def main(path: Path, seed: int = 0) -> dict[str, float]:
    """Check, train, evaluate, export, compare; return the figures printed."""
    torch.manual_seed(seed)
    print("gradcheck:", check())
    model = MyLinear(2, 1)
    losses = train(model)
    print("nodes:", *export(model, path))
    at = torch.tensor([[3.0, 2.0]], dtype=torch.float64)
    figures = {
        "last loss": losses[-1],
        "y(3, 2)": model(at).item(),
        "difference, 1 row": difference(model, path, 1),
        "difference, 1000 rows": difference(model, path, 1000),
    }
    for name, value in figures.items():
        print(f"{name:22} {value:.6g}")
    return figures


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "linear.onnx")
