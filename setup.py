"""What pyproject.toml cannot say: one file goes beside the package, not into it.

Python reads `pullback_cuda.pth` when it starts; it lets `CUDA_ON_CPU=cpu pytest` run CUDA on the
CPU. Everything else is in pyproject.toml.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

STARTUP = "pullback_cuda.pth"


class BuildWithStartup(build_py):
    """Copies the file to the root of what is installed."""

    def run(self) -> None:
        """Build the package, then copy."""
        super().run()
        if not self.editable_mode:
            self.copy_file(str(Path("src", STARTUP)), self._copied())

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Name the file too, for who lists what is installed."""
        return [*super().get_outputs(include_bytecode), self._copied()]

    def _copied(self) -> str:
        return str(Path(self.build_lib, STARTUP))


setup(cmdclass={"build_py": BuildWithStartup})
