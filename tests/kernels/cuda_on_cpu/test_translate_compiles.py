"""What the translator writes is C++ that the compiler takes, in each of the author's forms."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pullback.diagnostic import PullbackError
from pullback.kernels import toolchain
from pullback.kernels.compile import compile
from pullback.kernels.cuda_on_cpu import library, program
from pullback.kernels.cuda_on_cpu.tree import translate
from pullback.kernels.plan import TranslationUnit

pytestmark = pytest.mark.compiler

SNIPPETS = {
    "launches": """
        namespace ns { template <class T, int n> __global__ void k(T* x, int m = n) {} }
        __global__ void plain(int* x) {}
        struct S {
          void (*pointer)(int*) = plain;
          template <class T> static __global__ void member(T* x) {}
          void run(int* x) { if (x) this->pointer<<<1, 2>>>(x); else (pointer)<<<1, 2>>>(NULL); }
        };
        template <class F> void dispatch(F f) { f(1.0f); }
        void f(float* x, S& s, bool b) {
          ns::k<float, (3 > 2)><<<dim3(1, 2), {3, 4}, 8 >> 1, 0>>>(x, 3);
          dispatch([&](auto t) { S::member<decltype(t)><<<1, 1>>>(x); });
          b ? plain<<<1, 1>>>(nullptr) : s.pointer<<<1, 1>>>(nullptr);
          const int table[] = {1, 2};
          for (auto n : table) ::ns::k<float, 2><<<n, 1>>>(x, n);
          return plain<<<1, 1>>>(NULL);
        }""",
    "macros": """
        #define KERNEL(name, N) \\
          __global__ void name(float* x) { \\
            __shared__ float name##_s[N], other; \\
            name##_s[threadIdx.x] = x[0]; other = 1; \\
            __syncthreads(); \\
          }
        #define SHARED(T, name, ...) __shared__ T name __VA_ARGS__
        #define LAUNCH(name, T, ...) name##_of<T><<<1, 2>>>(__VA_ARGS__)
        #define QUALIFIED __global__ void __launch_bounds__(64)
        #define LOCAL __shared__
        // Their parameters have the names of whatever we write.
        #define RUN(kernel, configure, launch) kernel<<<configure, 2>>>(launch)
        #define TILE(shared_variable, dynamic_shared, n) \\
          __shared__ float shared_variable[n]; extern __shared__ float dynamic_shared[]
        KERNEL(one, 32)
        template <class T> QUALIFIED two_of(T* x) {
          SHARED(float, a, [2][4]); SHARED(T, b); LOCAL int c[3];
          a[1][2] = 1; b = 2; c[0] = 3;
        }
        __global__ void tiled(float* x) { TILE(a, b, 3); a[0] = b[0] = x[0]; }
        void f(float* x) { one<<<1, 2>>>(x); LAUNCH(two, float, x); RUN(tiled, 1, x); }""",
    "blanks": """
        template <class T> __global__ void k(T* x) {}
        void f(float* x) { k<float> << <1, 32 >> > (x); k << <dim3(1), 2, 0, 0>> >(x); }""",
    "member_templates": """
        struct M {
          template <int R, int C>
          __host__ __device__ int block(int i = 0) const { return R * C + i; }
          template <class T> __host__ __device__ T cast() const { return T(3); }
          int a, b;
        };
        template <class T, int N> __device__ int sum(const T& x, const T* p) {
          const bool less = x.a < N && p->b > (3);
          return x.block<3, 3>() + p->block<N, 2>(4) + (*p).cast<float>() + less;
        }
        __global__ void k(int* y, M m) { *y = sum<M, 2>(m, &m) + m.block<1, 1>(); }""",
    "own_atomics": """
        __device__ static float atomicMax(float* a, float v) { return *a < v ? *a = v : *a; }
        static __inline__ __device__ double atomicMin(double* a, double v) { return *a; }
        __device__ long atomicCAS(long* a, long b, long c) { return *a; }
        __device__ double atomicExch(double* a, double v) { return *a; }
        __global__ void k(float* x, double* y, long* z) {
          atomicMax(x, 3.f); atomicMin(y, 1.0); atomicCAS(z, 1, 2); atomicExch(y, 2.0);
        }""",
    "shared": """
        struct Storage { struct TempStorage { int a[4]; }; };
        extern __shared__ float everywhere[];
        template <class T, int N> __global__ void k(T* x) {
          __shared__ typename T::TempStorage storage;
          __shared__ __align__(64) int a[N][4], *p, (*rows)[4];
          __shared__ union { int i; float f; } u, v;
          __shared__ struct __align__(16) P { int a, b; } s[3];
          alignas(float4) __shared__ float aligned[3];
          volatile __shared__ float w
            [4], // a comment
            z;
          extern __shared__ __align__(sizeof(T)) unsigned char raw[];
          rows = a; p = &a[0][0]; u.i = 3; v.f = 2; s[1].a = 3; w[0] = 1; z = 2; aligned[0] = 1;
          storage.a[0] = 1; everywhere[0] = raw[1];
          { extern __shared__ float2 raw[][2]; raw[1][1].x = 1; }
          static_assert(sizeof(a) == 4 * N * sizeof(int));
        }
        void f(Storage* x) { k<Storage, 3><<<1, 2, 64>>>(x); }""",
    "variables": """
        __constant__ float table[2] = {1, 2};
        __device__ const float* pointer;
        __managed__ __device__ int count;
        namespace n { __device__ int x; struct S { __device__ int f() { return x; } }; }
        extern __device__ int later;
        __device__ int later;""",
    "ptx": """
        __global__ void k(const uint4* x, float* y, int n) {
          unsigned lane, a, b, c, d;
          asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
          asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(x));
          asm("bfe.u32 %0, %1, %2, %3;" : "=r"(a) : "r"(b), "r"(4), "r"(8));
          asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(a) : "r"(b), "r"(c), "r"(4), "r"(8));
          asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(a) : "r"(b), "r"(c), "r"(d));
          asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y[0]) : "f"(y[1]));
          asm volatile("{ .reg .pred p; .reg .b32 r<2>; setp.ge.s32 p, %1, 0; mov.b32 r1, 7;"
                       "@p mov.b32 %0, r1; @!p add.u32 %0, r1, 1; }" : "=r"(a) : "r"(n));
          asm volatile("red.global.add.f32 [%0], %1;" :: "l"(y), "f"(1.0f));
          asm volatile("membar.gl; bar.sync 0;" ::: "memory");
          if (n) asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0}, [%1];\\n"
                              : "=r"(a) : "r"(b)); else asm volatile("trap;");
        }""",
    "lambdas": """
        __global__ void k(int* x) {
          auto capturing = [&] { return threadIdx.x; };
          x[0] = capturing();
        }
        __global__ void l(int* x) {
          auto free = [] { return threadIdx.x; };
          struct F { int operator()() const { return blockIdx.x; } };
          x[0] = free() + F{}();
        }""",
}


def test_every_translated_form_compiles(tmp_path: Path) -> None:
    where = tmp_path / "where"
    where.mkdir()
    text = "#include <cuda_runtime.h>\n"
    for name, snippet in SNIPPETS.items():
        author = tmp_path / f"{name}.cu"
        author.write_text(snippet)
        text += f'inline namespace {name} {{\n#include "{author}"\n}}\n'
    unit = TranslationUnit("unit.cpp", text)
    made = translate([unit], where, folders=[], stop_at=[library.CSRC], torch=False)
    assert made.problems == ()
    flags = [flag for flag in library.flags("none") if flag != "-shared"]
    command = [*toolchain.find("c++").command, *flags, "-fsyntax-only", unit.file]
    compiled = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    assert compiled.stderr == ""


LACKING = {
    "cutlass": "#include <cutlass/cutlass.h>",
    "part of cutlass": "#include <cutlass/gemm/device/gemm.h>",
    "cute": '#include "cute/layout.hpp"',
    "fp8": "#include <cuda_fp8.h>",
    "cuFFT": "#include <cufft.h>",
    "textures": "__global__ void k(cudaTextureObject_t t) {}",
    "a function of cuBLASLt": "auto f(cublasLtHandle_t h) { return cublasLtMatmul(h); }",
    "a function of cuDNN": "auto f(cudnnHandle_t h) { return cudnnSetStream(h, 0); }",
    "a function of cuSOLVER": "auto f(cusolverDnHandle_t* h) { return cusolverDnCreate(h); }",
    "a function of cuSPARSE": "auto f(cusparseHandle_t* h) { return cusparseCreate(h); }",
    "a function of NCCL": "auto f(ncclUniqueId* id) { return ncclGetUniqueId(id); }",
}
# Headers that have types alone.
TYPES = "".join(
    f"#include <{name}.h>\n" for name in ("cublasLt", "cudnn", "cusolverDn", "cusparse", "nccl")
)


@pytest.mark.ci(3)
@pytest.mark.parametrize("what", LACKING)
def test_what_the_cpu_has_not_is_said_at_the_authors_line(what: str, tmp_path: Path) -> None:
    file = tmp_path / "author.cu"
    (tmp_path / "types.h").write_text(TYPES)
    file.write_text(f'#include "types.h"  // {what}\n{LACKING[what]}\n')
    with pytest.raises(PullbackError) as caught:
        compile(program.plan_of(file, "none"))
    at = dict(caught.value.finding.evidence)["at"]
    assert at.startswith(f"{file}:2")
    assert "on the CPU; guard" in str(caught.value)
    assert "#ifndef CUDA_ON_CPU" in str(caught.value)
