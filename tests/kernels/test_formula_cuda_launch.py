"""The launcher of a formula's GPU kernels, and what each thread does, on a grid that is played.

What a thread does is plain C++ for the host too, so a stand-in for the driver calls the kernels'
threads one after another.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from pullback.kernels.loops import pointwise_cuda
from pullback.kernels.loops.pointwise import Loop
from tests.kernels.launches import HAVE, Number, answer, launch_of, loop_of, on_host

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif("c++" not in HAVE, reason="no C++ compiler here"),
]

STAND_IN = """
#include <string.h>
static const char* played = "";
#define STAND_IN extern "C" __attribute__((visibility("default")))
STAND_IN const char* last() { return played; }
STAND_IN int cuGetErrorString(int, const char** text) { *text = "the stand-in fails"; return 0; }
STAND_IN int cuLibraryLoadData(void** library, const void* code, int*, void**, unsigned, int*,
                               void**, unsigned) {
  *library = const_cast<void*>(code);
  return memcmp(code, "cubin", 5) != 0;
}
STAND_IN int cuLibraryGetKernel(void** kernel, void*, const char* name) {
  *kernel = const_cast<char*>(name);
  return 0;
}
STAND_IN int cuKernelSetAttribute(int, int, void*, int) { return 1; }
STAND_IN int cuCtxGetDevice(int*) { return 1; }
static void* context = nullptr;
STAND_IN int cuCtxGetCurrent(void** current) { *current = context; return 0; }
STAND_IN int cuCtxSetCurrent(void* chosen) { context = chosen; return 0; }
STAND_IN int cuDevicePrimaryCtxRetain(void** found, int device) {
  *found = &context;
  return device != 3;
}
STAND_IN int cuPointerGetAttribute(void* device, int attribute, unsigned long long) {
  *static_cast<int*>(device) = 3;
  return attribute != 9;
}
STAND_IN int cuLaunchKernel(void* kernel, unsigned x, unsigned y, unsigned z, unsigned threads,
                            unsigned, unsigned, unsigned, void* stream, void** given, void**) {
  using namespace pullback::formula;
  if (stream || context != &context) return 1;
  const Body& body = *static_cast<const Body*>(given[0]);
  played = static_cast<const char*>(kernel);
  const uint32_t all = x * y * z * threads;
  for (uint32_t thread = 0; thread < all; ++thread) {
    const void* const with = given[1];
    if (!strcmp(played, "pullback_dense")) {
      Operands::dense(body, *static_cast<const Dense<Operands::operands>*>(with), thread, all);
    } else {
      Operands::strided(body, *static_cast<const Strided<Operands::operands>*>(with), thread, all);
    }
  }
  return 0;
}
"""


@dataclass
class Player:
    """A loop compiled for the host, with a driver that plays the grid."""

    loop: Loop
    monkeypatch: pytest.MonkeyPatch

    @functools.cached_property
    def library(self) -> ctypes.CDLL:
        driver = '#include <stdlib.h>\n#define PULLBACK_DRIVER getenv("PULLBACK_TEST_DRIVER")\n'
        text = (
            driver
            + pointwise_cuda.generate_cubin(b"cubin")
            + pointwise_cuda.generate_host(self.loop)
            + STAND_IN
        )
        library = on_host(f"cuda-played-{self.loop.formula.line.name}", text)
        library.last.restype = ctypes.c_char_p
        return library

    def __call__(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], *scalars: float, **how: int
    ) -> str:
        """Run the kernel that the launcher chooses; return its name, or the error."""
        self.monkeypatch.setenv("PULLBACK_TEST_DRIVER", self.library._name)
        shape = outputs[0].shape
        numbers = [Number(integer=s) if isinstance(s, int) else Number(real=s) for s in scalars]
        launch = launch_of([*outputs, *(x.expand(shape) for x in inputs)], shape, numbers)
        for field, value in how.items():
            setattr(launch, field, value)
        return answer(self.library, launch) or self.library.last().decode()


MIXED = (
    "demo::mixed(x[...], w[...], b[...]: bool, i[...]: int64, a: float, k: int) -> "
    "(y[...], c[...]: bool, v[...]: int64) = "
    "y = where(b, x, w) * exp(a) + float(k // 2) + x * float(i); c = x < w; v = i + k"
)


def mixed(x: Tensor, w: Tensor, b: Tensor, i: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scale = torch.tensor(math.exp(0.5)).float()
    return torch.where(b, x, w) * scale + 3.0 + x * i.float(), x < w, i + 7


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Player]:
    return lambda *of: Player(loop_of(*of), monkeypatch)


def inputs_for(shape: Sequence[int], draw: torch.Generator) -> list[Tensor]:
    x, w = (torch.randn(shape, generator=draw) for _ in range(2))
    b, i = (torch.randint(0, 2, shape, generator=draw) for _ in range(2))
    return [x, w, b.bool(), i * 5 - 2]


def as_it_is(x: Tensor) -> Tensor:
    return x


LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[Callable[[Tensor], Tensor], ...], str]] = {
    **{f"row of {n}": ((n,), (as_it_is,), "dense") for n in (1, 2, 3, 511, 512, 513, 2**16 + 5)},
    "no dimension": ((), (as_it_is,), "dense"),
    "dimensions that merge": ((3, 1, 37, 5), (as_it_is,), "dense"),
    "one element for all": ((5, 67), (as_it_is, lambda x: x[:1, :1]), "dense"),
    "transposed": ((70, 33), (as_it_is, lambda x: x.T.contiguous().T), "strided"),
    "a row for all": ((50, 31), (as_it_is, lambda x: x[:1]), "strided"),
    "a column for all": ((50, 31), (lambda x: x[:, :1], as_it_is), "strided"),
    "a row for all, in vectors": ((50, 32), (as_it_is, lambda x: x[:1]), "strided"),
    "a column for all, in vectors": ((50, 32), (lambda x: x[:, :1], as_it_is), "strided"),
    "rows of a wider tensor": ((50, 32), (as_it_is, lambda x: x.repeat(1, 2)[:, :32]), "strided"),
    "rows that are not aligned": ((50, 32), (lambda x: x.repeat(1, 2)[:, 1:33],), "strided"),
    "rows of odd strides": (
        (50, 32),
        (lambda x: torch.cat([x, x[:, :1]], 1)[:, :32],),
        "strided",
    ),
    "every second": ((999,), (lambda x: x.repeat_interleave(2)[::2], as_it_is), "strided"),
    "permuted": (
        (4, 5, 6, 7, 3),
        (lambda x: x.permute(3, 0, 4, 2, 1).contiguous().permute(1, 4, 3, 0, 2),),
        "strided",
    ),
    "not aligned": ((1001,), (as_it_is, lambda x: torch.cat([x[:1], x])[1:]), "strided"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_element_is_computed_once_whatever_the_layout(
    layout: str, played: Callable[..., Player], seed: int
) -> None:
    shape, changes, kernel = LAYOUTS[layout]
    given = inputs_for(shape, torch.Generator().manual_seed(seed))
    given = [changes[k % len(changes)](x) for k, x in enumerate(given)]
    want = [y.expand(shape) for y in mixed(*given)]
    # Beyond the end a write would show.
    ends = [torch.full((y.numel() + 64,), 99).to(y.dtype) for y in want]
    outputs = [end[: y.numel()].view(shape) for end, y in zip(ends, want, strict=True)]
    assert played(MIXED)(outputs, given, 0.5, 7) == f"pullback_{kernel}"
    for got, wanted, end in zip(outputs, want, ends, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)
        assert (end[got.numel() :] == torch.tensor(99).to(end.dtype)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_each_dtype_is_read_and_rounded_as_in_pytorch(
    dtype: str, played: Callable[..., Player], seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    type = getattr(torch, dtype)
    x, y = torch.randn((2, 1037), generator=draw, dtype=torch.float64).to(type)
    wider = torch.float64 if dtype == "float64" else torch.float32
    to = torch.empty_like(x)
    player = played("demo::times(x[...], y[...]) -> z[...] = x * y + x", dtype)
    for operands in ((x, y), (x.view(17, 61).T, y.view(61, 17))):
        out = to.view(operands[0].shape)
        player([out], operands)
        a, b = (operand.to(wider) for operand in operands)
        assert torch.equal(out, (a * b + a).to(type))


def test_what_cannot_be_launched_is_told(played: Callable[..., Player]) -> None:
    player = played("demo::times(x[...], y[...]) -> z[...] = x * y + x")
    x = torch.ones(8)
    assert player([x], [x, x], stream=1) == "2: CUDA: the stand-in fails"
    assert player([x], [x, x], n=2**31) == "3: 2147483648 elements do not fit 32 bits"
    many = torch.ones([2] * 17)
    turned = many.permute(*reversed(range(17)))
    assert player([many], [many, turned]).startswith("2: CUDA: the operands have too many dim")
