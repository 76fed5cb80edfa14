"""The kernels are compiled already: this packs them, for one platform and any Python 3."""

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class OfOnePlatform(Distribution):
    """Not everything is Python, so it is installed where libraries are."""

    def has_ext_modules(self) -> bool:
        """Say so."""
        return True


class ForAnyPython(bdist_wheel):
    """A kernel is called through a C interface, so only the platform matters."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the wheel's tag."""
        return "py3", "none", super().get_tag()[2]


setup(distclass=OfOnePlatform, cmdclass={"bdist_wheel": ForAnyPython})
