"""All packages, in the order of the page."""

from __future__ import annotations

from benchmarks.packages.brevitas import BREVITAS
from benchmarks.packages.entmax import ENTMAX
from benchmarks.packages.gaussian import GPYTORCH, LINEAR_OPERATOR
from benchmarks.packages.kspace import TORCHKBNUFFT
from benchmarks.packages.objects import OBJECTS
from benchmarks.packages.small import SMALL
from benchmarks.packages.spiking import NORSE, SNNTORCH
from benchmarks.packages.wavelets import WAVELETS

PACKAGES = (
    ENTMAX,
    *SMALL,
    SNNTORCH,
    BREVITAS,
    GPYTORCH,
    LINEAR_OPERATOR,
    TORCHKBNUFFT,
    WAVELETS,
    NORSE,
    *OBJECTS,
)
