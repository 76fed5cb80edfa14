"""An author's file: an operator of every kind that a library without Python can have."""

from pathlib import Path

import pullback as pb

HERE = Path(__file__).parent

multiply = pb.operator(
    "shiplib::multiply(a[...], b[...]) -> c[...]",
    cpu=pb.source(
        "multiply.cpp",
        call="multiply(c, a, b, numel(c))",
        flags=[f"-I{HERE / 'include'}", "-DSIGN=1"],
    ),
    backward={"a": "shiplib::multiply(grad, b)", "b": "shiplib::multiply(grad, a)"},
)
affine_backward = pb.operator(
    "shiplib::affine_backward(grad[...], bias[...]?, scale: float, negate: bool, mode: str)"
    " -> (grad_x[...], grad_bias[...])",
    cpu=pb.source(
        """
        #include <stdint.h>
        template <class T>
        void affine_backward(T* gx, T* gb, const T* g, int64_t n, double scale, bool negate) {
          for (int64_t i = 0; gx && i < n; ++i) gx[i] = (negate ? -1 : 1) * T(scale) * g[i];
          for (int64_t i = 0; gb && i < n; ++i) gb[i] = g[i];
        }
        """,
        call="affine_backward(grad_x, grad_bias, grad, numel(grad), scale, negate)",
    ),
)
affine = pb.operator(
    "shiplib::affine(x[...], bias[...]?, scale: float = 2.0, negate: bool = False, "
    'mode: str = "plain") -> y[...]',
    cpu=pb.source(
        """
        #include <stdint.h>
        template <class T>
        void affine(T* y, const T* x, const T* b, int64_t n, double scale, bool negate,
                    const char* mode) {
          const T sign = negate ? -1 : 1, shift = mode[0] == 'u' ? 1 : 0;
          for (int64_t i = 0; i < n; ++i) y[i] = sign * T(scale) * x[i] + (b ? b[i] : T(0)) + shift;
        }
        """,
        call="affine(y, x, bias, numel(y), scale, negate, mode)",
    ),
    backward="shiplib::affine_backward",
)
repeat = pb.operator(
    "shiplib::repeat(x[n, m], times: int = 2) -> y[n*times, m]",
    cpu=pb.source(
        """
        #include <stdint.h>
        template <class T>
        void repeat(T* y, const T* x, int64_t n, int64_t m, int64_t times) {
          for (int64_t i = 0; i < n * times; ++i)
            for (int64_t j = 0; j < m; ++j) y[i * m + j] = x[i % n * m + j];
        }
        """,
        call="repeat(y, x, n, m, times)",
    ),
)
lowered = pb.operator(
    "shiplib::lowered(x[...]) -> y[...]",
    cpu=pb.source(
        """
        #include <stdint.h>
        template <class T> void copy(T* y, const T* x, int64_t n) { while (n--) y[n] = x[n]; }
        """,
        call="copy(y, x, numel(y))",
        dtypes=["float32", "float16"],
    ),
    backward={"x": "grad"},
    autocast="lower",
)
bias = pb.operator("shiplib::bias(x[..., n], b[n], s: float = 2.0) -> y[..., n] = s*tanh(x + b)")
plane = pb.operator("shiplib::plane(r[...], t[...]?) -> (x[...], y[...]) = r*cos(t), r*sin(t)")
# PyTorch has a C function of this name for AOTInductor, aoti_torch_cpu_polar.
polar = pb.operator(
    "shiplib::polar(x[...]) -> y[...]",
    cpu=pb.source("void polar(float* y, const float* x) { *y = 2 * *x; }", call="polar(y, x)"),
)
on_gpu = pb.operator(
    "shiplib::on_gpu(x[...]: float32) -> y[...]: float32",
    cuda=pb.source(
        """
        __global__ void copy(float* y, const float* x, int n) {
          if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
        }
        void launch_copy(float* y, const float* x, int n, cudaStream_t stream) {
          copy<<<1, 32, 0, stream>>>(y, x, n);
        }
        """,
        call="launch_copy(y, x, numel(y), stream)",
    ),
)

operators = [multiply, affine, repeat, lowered, bias, plane, polar, on_gpu]
