"""An operator's first results in a process: `python -m benchmarks.gpu.first NAME nvcc`."""

from __future__ import annotations

import json
import sys
import time
import warnings

import torch

from benchmarks.gpu import exact
from benchmarks.gpu.candidates import compiled, define
from benchmarks.gpu.cases import FORMULAS, LOOPS, RECURRENCES
from benchmarks.gpu.measuring import Measuring, draw_gradient
from benchmarks.gpu.place import Place
from benchmarks.gpu.reductions import REDUCTIONS
from pullback.bind.loops import gpu
from pullback.kernels import toolchain


def main(name: str, by: str, *, rehearsal: bool) -> dict[str, object]:
    """Return the seconds of the first results, and their error."""
    every = (*LOOPS, *RECURRENCES, *REDUCTIONS, *FORMULAS)
    case = next(case for case in every if case.name == name)
    place = Place(rehearsal=rehearsal)
    nvrtc = gpu.find_nvrtc()
    if not rehearsal:
        compiler = nvrtc if by == "NVRTC" and nvrtc else toolchain.find("cuda")
        gpu.find_compiler = lambda: compiler
    seconds: dict[str, float] = {}
    with place.entered():
        now = Measuring(case, place)
        now.inputs = case.inputs(small=rehearsal)
        begin = time.perf_counter()
        operator = define(case)
        seconds["defined"] = time.perf_counter() - begin
        now.grad = draw_gradient(operator(*now.inputs))
        torch.cuda.synchronize()
        seconds["forward"] = time.perf_counter() - begin
        output, gradients = now.run(operator)
        torch.cuda.synchronize()
        seconds["backward"] = time.perf_counter() - begin
        wanted = exact.compute_exactly(case, now.inputs, now.grad)
        error = exact.worst([output, *gradients], [wanted.output, *wanted.gradients])
        del wanted, output, gradients
        compiles = by == "nvcc" and not (rehearsal or case.is_loop)
        if compiles and case.fits(now.inputs, place.free() / 8):
            begin = time.perf_counter()
            if now.attempt("compile", lambda: now.run(compiled(case))):
                seconds["torch.compile"] = time.perf_counter() - begin
    return {"seconds": seconds, "error": error, "allowed": exact.ALLOWED[case.dtype]}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(*sys.argv[1:3], rehearsal="--rehearse" in sys.argv)))
