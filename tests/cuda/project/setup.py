"""A setup.py as authors write it: it wants a GPU, and the toolkit."""

import subprocess
from pathlib import Path

import torch
from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CUDAExtension

if not torch.cuda.is_available() or CUDA_HOME is None:
    raise SystemExit("this package needs a GPU")
nvcc = str(Path(CUDA_HOME, "bin", "nvcc"))
version = subprocess.run([nvcc, "-V"], capture_output=True, check=True, text=True).stdout
if version.partition("release ")[2][:4] != torch.version.cuda:
    raise SystemExit("nvcc is of another version than PyTorch")

setup(
    name="ops",
    version="1",
    packages=["ops"],
    include_dirs=["include"],  # of all extensions
    ext_modules=[
        CUDAExtension(
            "ops._C",
            ["ops/square.cu"],
            define_macros=[("SCALE", "2")],
            extra_compile_args={"cxx": ["-O3"], "nvcc": ["-O3", "--use_fast_math", "-lineinfo"]},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
