"""Shared memory, variables in the GPU's memory, and inline PTX."""

from __future__ import annotations

import pytest

from tests.kernels.cuda_on_cpu.rewriting import problems, rewritten, squeezed


def made(name: str, alignment: str = "") -> str:
    """Return the reference to a static variable."""
    second = f", alignof(cuda_on_cpu_l_{name})" if alignment else ""
    aligned = f"struct {alignment} cuda_on_cpu_l_{name} {{}}; " if alignment else ""
    variable = f"cuda_on_cpu_shared<cuda_on_cpu_t_{name}{second}>"
    return f'{aligned}auto& {name} = ::cuda_on_cpu::{variable}([] {{}}, "{name}")'


def pointed(name: str) -> str:
    """Return the pointer to dynamic memory."""
    kind = f"cuda_on_cpu_t_{name}*"
    return f"{kind} {name} = ({kind})::cuda_on_cpu::cuda_on_cpu_dynamic()"


T = "cuda_on_cpu_t_"
LOCAL = [
    ("__shared__ float x;", f"typedef float {T}x; {made('x')};"),
    ("__shared__ float x[N][M + 1];", f"typedef float {T}x[N][M + 1]; {made('x')};"),
    ("static __shared__ const float* x;", f"typedef const float* {T}x; {made('x')};"),
    ("volatile __shared__ int x[2];", f"typedef volatile int {T}x[2]; {made('x')};"),
    ("float __shared__ x[2];", f"typedef float {T}x[2]; {made('x')};"),
    ("std::array<float, 3> __shared__ x;", f"typedef std::array<float, 3> {T}x; {made('x')};"),
    ("__shared__ float (*x)[4];", f"typedef float (*{T}x)[4]; {made('x')};"),
    (
        "__shared__ typename A<T, (N > 2)>::Storage x;",
        f"typedef typename A<T, (N > 2)>::Storage {T}x; {made('x')};",
    ),
    (
        "__shared__ union { int i; float f[2]; } x[3];",
        f"typedef union {{ int i; float f[2]; }} {T}x[3]; {made('x')};",
    ),
    (
        "__shared__ struct __align__(16) S { int a, b; } x;",
        f"typedef struct __align__(16) S {{ int a, b; }} {T}x; {made('x')};",
    ),
    ("__shared__ struct S x;", f"typedef struct S {T}x; {made('x')};"),
    (
        "__shared__ __align__(16) char x[4];",
        f"typedef char {T}x[4]; {made('x', '__align__(16)')};",
    ),
    ("alignas(T) __shared__ T x[4];", f"typedef T {T}x[4]; {made('x', 'alignas(T)')};"),
    (
        "__shared__ float x[4] __attribute__((aligned(8)));",
        f"typedef float {T}x[4] ; {made('x', '__attribute__((aligned(8)))')};",
    ),
    (
        "__shared__ float x[2], y;",
        "typedef float cuda_on_cpu_b_x; "
        f"typedef cuda_on_cpu_b_x {T}x[2]; {made('x')}; typedef cuda_on_cpu_b_x {T}y; {made('y')};",
    ),
    (
        "__shared__ float *x, (*y)[2];",
        "typedef float cuda_on_cpu_b_x; typedef cuda_on_cpu_b_x "
        f"*{T}x; {made('x')}; typedef cuda_on_cpu_b_x (*{T}y)[2]; {made('y')};",
    ),
    ("extern __shared__ float x[];", f"typedef float {T}x ; {pointed('x')};"),
    ("extern volatile __shared__ char x[];", f"typedef volatile char {T}x ; {pointed('x')};"),
    ("extern __shared__ float x[][32];", f"typedef float {T}x [32]; {pointed('x')};"),
    ("extern __shared__ float* x[];", f"typedef float* {T}x ; {pointed('x')};"),
    (
        "extern __shared__ __align__(sizeof(T)) unsigned char x[];",
        f"typedef unsigned char {T}x ; {pointed('x')};",
    ),
    (
        "extern __shared__ float x;",
        f"typedef float {T}x; auto& x = *({T}x*)::cuda_on_cpu::cuda_on_cpu_dynamic();",
    ),
]


@pytest.mark.parametrize(("before", "after"), LOCAL)
@pytest.mark.parametrize(
    "around",
    [
        "void f() { @ }",
        "struct S { void f() { if (a) { @ } } };",
        "namespace n { template <class T> struct S f(T x) { @ } }",
        "auto f = [] { @ };",
        "void f() { AT_DISPATCH(t, [&] { @ }); }",
        "#define M @",
    ],
)
def test_variables_of_a_block(before: str, after: str, around: str) -> None:
    new = squeezed(rewritten(around.replace("@", before)))
    assert new.replace(" ;", ";").replace(" [", "[") == squeezed(
        around.replace("@", after)
    ).replace(" ;", ";").replace(" [", "[")


def test_macros_paste_and_stringify_names() -> None:
    new = rewritten("#define M(T, n) __shared__ T n[4]; __shared__ T s_##n")
    one = "cuda_on_cpu_shared<cuda_on_cpu_t_##n>([] {}, #n)"
    two = 'cuda_on_cpu_shared<cuda_on_cpu_t_s_##n>([] {}, "s_n")'
    assert "typedef  T cuda_on_cpu_t_##n[4];" in new
    assert f"auto& n = ::cuda_on_cpu::{one};" in new
    assert f"auto& s_##n = ::cuda_on_cpu::{two}" in new


def test_a_macro_for_the_word_is_known_in_other_files() -> None:
    macros = "#define LOCAL __shared__\n#define DYNAMIC extern __shared__ __align__(16)\n"
    new = rewritten("void f() { LOCAL int x[2]; DYNAMIC int y[]; }", beside=macros)
    assert made("x") in new
    assert pointed("y") in new
    assert rewritten(macros) == macros


def test_dynamic_memory_at_namespace_scope_is_set_by_each_block() -> None:
    new = squeezed(rewritten("namespace a {\nextern __shared__ float x[];\n}"))
    assert new == (
        "namespace a { typedef float cuda_on_cpu_t_x; static thread_local cuda_on_cpu_t_x* x; "
        "static const bool cuda_on_cpu_d_x = ::cuda_on_cpu::cuda_on_cpu_dynamic_at("
        "[](void* cuda_on_cpu_p) { x = (cuda_on_cpu_t_x*)cuda_on_cpu_p; }); }"
    )


def test_a_parameter_is_a_pointer_like_any_other() -> None:
    new = rewritten("void f(__shared__ float* p, int n) {}")
    assert new == "void f( float* p, int n) {}"


@pytest.mark.parametrize(
    "text",
    [
        "__shared__ float x[3];",  # at namespace scope
        "void f() { __shared__ union { int a; }; }",
        "void f() { __shared__ MACRO(x); }",
        "#define SHARED __shared__",
        "#define __shared__",
    ],
)
def test_what_is_not_recognised_is_left_to_the_macro(text: str) -> None:
    assert rewritten(text) == text


@pytest.mark.parametrize("given", ["= 0", "{1}", "[2] = {1, 2}", "{}"])
def test_an_initial_value_is_a_problem(given: str) -> None:
    (problem,) = problems(f"void f() {{\n__shared__ int x {given};\n}}")
    assert (problem.line, problem.text) == (2, "a __shared__ variable cannot have an initial value")


@pytest.mark.parametrize(
    "text",
    [
        "@__device__ int x;",
        "@__constant__ float x[2] = {1, 2};",
        "@__device__ __managed__ S x{1};",
        "float @__device__ x;",
        "@__device__ const float* x;",
        "@__device__ float (*f)(float) = g;",
        "@__constant__ __align__(16) T<int, (a > 2)> x;",
        "@__constant__ struct { int a; } x;",
        'extern "C" { @__device__ int x; }',
        "namespace a::b { inline namespace c { @__device__ int x; } }",
        "template <class T> struct S { T x; }; @__device__ int x;",
        "static __device__ int x;",
        "extern __device__ int x;\n__device__ int x;",
        'extern "C" __device__ int x;',
        "__device__ inline int x;",
        "constexpr __device__ int x = 1;",
        "template <class T> __device__ T x;",
        "__device__ int f();",
        "__device__ __forceinline__ T<int> f(int x) { return x; }",
        "__device__ __attribute__((noinline)) int f();",
        "struct S { static __device__ int x; __device__ S() : x{1} {} __device__ int g(); };",
        "struct __align__(16) S : B<decltype(f())> { __device__ int x; };",
        "struct S f() { __device__ int x; }",
        "auto f = [] __device__ (int i) { return i; };",
        "#define TABLE __constant__ float x[2];",
    ],
)
def test_variables_have_internal_linkage(text: str) -> None:
    assert rewritten(text.replace("@", "")) == text.replace("@", "static ")


def test_a_variable_declared_extern_elsewhere_keeps_its_linkage() -> None:
    assert rewritten("__constant__ int x;", beside="extern __constant__ int x;") == (
        "__constant__ int x;"
    )


LANE = "(::cuda_on_cpu::cuda_on_cpu_rank() & 31u)"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('("mov.u32 %0, %%laneid;" : "=r"(x))', f"((x) = {LANE})"),
        ('("mov.u32 %0, %lanemask_lt;" : "=r"(x))', f"((x) = ((1u << {LANE}) - 1u))"),
        ('volatile("membar.gl;" ::: "memory")', "(__threadfence())"),
        ('volatile("fence.acq_rel.sys;")', "(__threadfence_system())"),
        ('("bar.sync 0;")', "(__syncthreads())"),
        ('("trap;")', "(__trap())"),
        ('("prefetch.global.L1 [%0];" :: "l"(p))', "((void)0)"),
        (
            '("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "n"(4))',
            "((d) = __byte_perm((a), (b), (4)))",
        ),
        ('("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(a))', "((d) = exp2f((a)))"),
        (
            '("ld.global.nc.u32 %0, [%1+4];" : "=r"(d) : "l"(p))',
            "((d) = ((const unsigned*)((char*)(p) + 4))[0])",
        ),
        (
            '("st.global.cs.v2.f32 [%0], {%1, %2};" :: "l"(p), "f"(a), "f"(b))',
            "(((float*)(p))[0] = (a), ((float*)(p))[1] = (b))",
        ),
        (
            '("red.global.add.f32 [%0], %1;" :: "l"(p), "f"(a))',
            "(atomicAdd((float*)(p), (float)(a)))",
        ),
        (
            '("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(a), "r"(b))',
            "((d) = (unsigned long long)(unsigned)(a) | (unsigned long long)(unsigned)(b) << 32)",
        ),
        (
            '("{ .reg .pred p;\\n setp.ne.b32 p, %1, 0;" "@!p mov.b32 %0, 7;}" : "=r"(d) : "r"(a))',
            "[&] { const auto cuda_on_cpu_i1 = (a); bool cuda_on_cpu_r_p{}; "
            "cuda_on_cpu_r_p = (unsigned)cuda_on_cpu_i1 != (unsigned)0; "
            "if (!cuda_on_cpu_r_p) { (d) = 7; } }()",
        ),
    ],
)
def test_simple_ptx_is_written_in_cpp(before: str, after: str) -> None:
    assert squeezed(rewritten(f"asm {before};")).replace(" ;", ";") == f"{after};"


@pytest.mark.parametrize(
    ("code", "instruction"),
    [
        (
            '("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(b))',
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        ),
        ('volatile("cp.async.wait_group %0;\\n" :: "n"(N))', "cp.async.wait_group"),
        ('("mov.u32 %0, %laneid; wgmma.fence.sync;" : "=r"(a))', "wgmma.fence.sync"),
        ('("ld.global.v4.f32 {%0, %1}, [%2];" : "=f"(a))', "ld.global.v4.f32"),
        ('("exit;")', "exit"),
    ],
)
def test_other_ptx_raises_where_it_is_reached(code: str, instruction: str) -> None:
    new = squeezed(rewritten(f"asm {code};"))
    assert (
        new.replace(" ;", ";")
        == f'::cuda_on_cpu::cuda_on_cpu_ptx("{instruction}", __FILE__, __LINE__);'
    )


@pytest.mark.parametrize(
    "code",
    [
        'asm volatile("pause" ::: "memory");',
        'asm volatile("" ::: "memory");',
        'asm("rdtsc" : "=a"(low), "=d"(high));',
        'asm volatile("movq %%rsp, %0" : "=r"(p));',
        '__asm__(".symver memcpy,memcpy@GLIBC_2.2.5");',
        'asm("1: jmp 1b; .globl x");',
    ],
)
def test_the_cpus_own_assembly_stays(code: str) -> None:
    assert rewritten(code) == code
