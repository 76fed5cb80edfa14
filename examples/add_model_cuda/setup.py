"""The extension as an installed package: python setup.py install, as in any tutorial."""

from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="add2",
    ext_modules=[
        CUDAExtension(
            "add2",
            ["add2_ops.cpp", "add2_kernel.cu"],
            include_dirs=[str(Path(__file__).parent.absolute() / "include")],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
