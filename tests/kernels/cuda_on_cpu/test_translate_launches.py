"""Kernels, their launches, and calls that name a kernel."""

from __future__ import annotations

import pytest

from tests.kernels.cuda_on_cpu.rewriting import problems, rewritten, squeezed


def launched(kernel: str, sizes: str, name: str | None = None) -> str:
    """Return what a launch becomes, up to its arguments."""
    called = f"{{ {kernel}(cuda_on_cpu_a...); }}"
    named = name or f'"{kernel}"'
    return (
        f"::cuda_on_cpu::cuda_on_cpu_kernel([&](auto&&... cuda_on_cpu_a) -> void {called}, {named})"
        f".cuda_on_cpu_configure({sizes})"
    )


@pytest.mark.parametrize(
    "kernel",
    [
        "k",
        "k<float>",
        "k<float, A<B<C>>>",
        "k<(a > b), 1 << 4>",
        "k<N, &S::f>",
        "ns::k",
        "::ns::k<T>",
        "ns::S<T, 3>::k<U>",
        "s.k",
        "s.template k<T>",
        "this->k",
        "table[i].k<T>",
        "KERNEL(a, b)",
        "choose<T>(n)",
        "(k)",
        "(*k)",
        "k<decltype(x), [] { return 3; }()>",
    ],
)
@pytest.mark.parametrize(
    "around",
    [
        "@(x);",
        "return @(x);",
        "if (x) @(x); else @(y);",
        "for (;;) @(x);",
        "case N: @(x); break;",
        "label: @(x);",
        "do @(x); while (a < b);",
        "a < b; @(x);",
        "f(), @(x);",
        "AT_DISPATCH(t, [&] { @(x); });",
        "{ @ (x); }",
    ],
)
def test_the_kernel_is_found(kernel: str, around: str) -> None:
    before = around.replace("@", f"{kernel}<<<g, b>>>")
    assert rewritten(before) == around.replace("@", launched(kernel, "g, b"))


@pytest.mark.parametrize(
    "sizes",
    [
        "1, 2",
        "dim3(1, 2), {3, 4}, 0, stream",
        "n >> 1, m << 2, sizeof(A<B<C>>)",
        "f<A<B<int>>>::value, 2",
        "A<B<C<int>>>(n), 2",
        "n < 3 ? A<B<C<int>>>(n) : 1, 2",
        "(a > b) ? 1 : 2, static_cast<int>(x)",
        "[] { return 1; }(), g<int>()",
        "\n  grid, // blocks\n  block",
        "\n#if A\n  1, 2\n#else\n  3, 4\n#endif\n",
    ],
)
def test_the_sizes_end_where_they_do(sizes: str) -> None:
    assert rewritten(f"k<<<{sizes}>>>(x);") == f"{launched('k', sizes)}(x);"


PLAIN = launched("k", "1, 2")
SPACED = launched("k", " 1, 2 ").replace(").cuda_on_cpu_c", ")  .cuda_on_cpu_c")
KT = launched("k<T>", "1, 2", '#k "<" #T ">"')
PASTED = launched("name##_k", "1, 2", '#name "_k"')
NAMED = launched("ns::k", "g, 2")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("k  <<< 1, 2 >>> (x)", f"{SPACED} (x)"),
        ("k<<<1, 2>>>(NULL, f(NULL))", f"{PLAIN}(nullptr, f(nullptr))"),
        (
            "#define L(k, T, ...) k<T><<<1, 2>>>(__VA_ARGS__)",
            f"#define L(k, T, ...) {KT}(__VA_ARGS__)",
        ),
        (
            "#define L(name) name##_k<<<1, 2>>>",
            f"#define L(name) {PASTED}",
        ),
        (
            "#define L(g, args) ns::k<<<g, 2>>> args",
            f"#define L(g, args) {NAMED} args",
        ),
    ],
)
def test_launches(before: str, after: str) -> None:
    assert rewritten(before) == after


@pytest.mark.parametrize("opening", ["<<<", "<< <", "< <<", "< < <", "<<  <"])
@pytest.mark.parametrize("closing", [">>>", ">> >", "> >>", "> > >"])
@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [("k", "1, 2"), ("k<A<B<int> > >", "A<B<int> >(n), m << 2, n >> 1"), ("k<T>", "(a > b), 2")],
)
def test_launches_with_blanks_in_them(opening: str, closing: str, kernel: str, sizes: str) -> None:
    text = rewritten(f"{kernel}{opening}{sizes}{closing}(x);")
    assert "".join(text.split()) == "".join(f"{launched(kernel, sizes)}(x);".split())


@pytest.mark.parametrize(
    "text", ["ostream& operator<< <T>(ostream& o, A<T> a);", "&operator< <int>;", "a << b < c;"]
)
def test_what_looks_like_a_launch_and_is_none(text: str) -> None:
    assert rewritten(f"__device__ int n; {text}").endswith(text)


def test_a_kernels_name_is_a_string_literal() -> None:
    assert r', "k<f(\"a\")>")' in rewritten('k<f("a")><<<1, 2>>>();')


@pytest.mark.parametrize(
    "text", ["k<<<1, 2>>>({1, 2});", "k<<<1, 2>>>(a,\n{1});", "<<<1, 2>>>(x);", "k<<<1, 2;"]
)
def test_what_is_no_launch_is_a_problem(text: str) -> None:
    (problem,) = problems(f"\n{text}")
    assert problem.line == (3 if "\n" in text else 2)
    assert problem.file.name == "author.cu"


HERE = " CUDA_ON_CPU_KERNEL "


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k() {@}",
        "__global__ void k(int n = f({1}), char* p) {@ if (n) { } }",
        "template <class T> static __global__ void __launch_bounds__(N<T>::n) k(T x)\n{@ }",
        'extern "C" __global__ void k() {@}',
        "void __global__ k() {@}",
        "namespace a { __global__ void k(); __global__ void k() {@} }",
        "struct S { static __global__ void k() {@} friend __global__ void f(S); };",
        "template __global__ void k<float>(float*);",
        "#define K(name) __global__ void name(int n) {@ f(n); }",
        "#define GLOBAL __global__ void\nGLOBAL k(int n) {@}",
        "#define GLOBAL static __global__\nGLOBAL void k(int n);\nvoid f() {}",
        "__global__ void k(int a\n#if A\n)\n#else\n, int b)\n#endif\n{@ }",
    ],
)
def test_bodies_of_kernels_are_marked(text: str) -> None:
    assert rewritten(text.replace("@", "")) == text.replace("@", HERE)


@pytest.mark.parametrize(
    ("body", "marked"),
    [
        ("auto f = [] { return threadIdx.x; };", False),
        ("f([n](int i) { return i + threadIdx.x; });", False),
        ("struct F { int f() { return threadIdx.x; } };", False),
        ("auto f = [&] { return threadIdx.x; };", True),
        ("auto f = [=, &a](int i) { return threadIdx.x; };", True),
        ("int a[] = {1}, b = a[i](2); [[likely]] { c[0]; }", True),
        ("struct { int x; } s; s.x = threadIdx.x;", True),
    ],
)
def test_a_kernel_whose_inner_functions_could_not_see_a_constant_gets_none(
    body: str, marked: bool
) -> None:
    text = f"__global__ void k() {{{body}}}"
    assert ("CUDA_ON_CPU_KERNEL" in rewritten(text)) == marked


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cudaLaunchKernel((void*)k<T, 2>, g, b, a)", "cudaLaunchKernel(k<T, 2>, g, b, a)"),
        ("cudaLaunchKernel((const void*)&k, g, b, a)", "cudaLaunchKernel(&k, g, b, a)"),
        ("cudaLaunchKernel((void const *) k, g)", "cudaLaunchKernel(k, g)"),
        (
            "cudaFuncSetAttribute(reinterpret_cast<void*>(k<T>), a)",
            "cudaFuncSetAttribute((k<T>), a)",
        ),
        ("cudaFuncSetAttribute(static_cast<const void*>(k), a)", "cudaFuncSetAttribute((k), a)"),
        ("cudaFuncGetAttributes(&a, (void*)k)", "cudaFuncGetAttributes(&a, k)"),
        ("cudaLaunchKernel(k<T>, g, b, (void**)a)", None),
        ("cudaLaunchKernel((pick(k)), g)", None),
        ("cudaMemcpy((void*)a, b)", None),
    ],
)
def test_casts_to_void_are_taken_off_kernels(before: str, after: str | None) -> None:
    assert squeezed(rewritten(before)).replace("( ", "(") == squeezed(after or before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("#if __CUDA_ARCH__ >= 700", "#if CUDA_ON_CPU_ARCH >= 700"),
        ("#ifdef __CUDA_ARCH__", "#ifdef CUDA_ON_CPU_ARCH"),
        ("#if defined(__CUDA_ARCH__)", "#if defined(CUDA_ON_CPU_ARCH)"),
        ("#define A (__CUDA_ARCH__ / 10)", "#define A (CUDA_ON_CPU_ARCH / 10)"),
        ("int a = __CUDA_ARCH__;", "int a = CUDA_ON_CPU_ARCH;"),
        ('f("__CUDA_ARCH__");', 'f("__CUDA_ARCH__");'),
    ],
)
def test_the_architecture_is_the_one_of_the_cpu(before: str, after: str) -> None:
    assert rewritten(before) == after
