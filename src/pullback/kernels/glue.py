"""The `call` expression -> a C entry point that finds out which dtypes the author's function takes.

Nothing here parses C++. The entry point asks the compiler, by `requires`, whether the call compiles
for a dtype, so plain functions, overloads and templates are used without touching them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pullback.define.line import Line, Scalar, Tensor
from pullback.define.source import Source
from pullback.diagnostic import Rule
from pullback.kernels import toolchain
from pullback.kernels.cuda_on_cpu import library
from pullback.kernels.cuda_on_cpu.mode import Mode
from pullback.kernels.plan import BuildPlan, TranslationUnit, folders_in, kernel_flags
from pullback.kernels.toolchain import Compiler

ReservedInCpp = Rule("PB207", "reserved-in-c++")
DtypeNotInCompiler = Rule("PB208", "dtype-not-in-compiler")
FIRST_WITH_BFLOAT16 = 13

Device = Literal["cpu", "cuda"]
KERNEL_ABI = "kernel-2"
CSRC = Path(__file__).parent.parent / "csrc"
C_TYPES = {
    **{"float64": "double", "float32": "float", "int64": "int64_t", "int32": "int32_t"},
    **{"int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "bool": "bool"},
    **{"complex64": "std::complex<float>", "complex128": "std::complex<double>"},
    **{"float16": "_Float16", "bfloat16": "__bf16"},
}
CUDA_TYPES = {**C_TYPES, "float16": "__half", "bfloat16": "__nv_bfloat16"}
# The headers of types that are not part of the language; the author need not include them.
HEADERS = {"std::complex": "complex", "__half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}
C_SCALARS = {"int": "int64_t", "float": "double", "bool": "bool", "str": "const char*"}
SCALAR_FIELDS = {"int": "integer", "float": "real", "bool": "integer", "str": "text"}
CPP_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept
    const consteval constexpr constinit continue decltype default delete do double dynamic_cast
    else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    requires return short signed sizeof static static_assert static_cast struct switch template
    this thread_local throw true try typedef typeid typename union unsigned using virtual void
    volatile wchar_t while xor xor_eq
"""
CPP_KEYWORDS = frozenset(CPP_WORDS.split())


def plan_of(
    line: Line, source: Source, device: Device, architecture: str | None = None
) -> BuildPlan:
    """Return the build plan for one kernel of an operator.

    Args:
        line: the operator.
        source: its kernel for `device`.
        device: decides the compiler.
        architecture: the GPU to compile for, such as "sm_90"; None leaves it to nvcc.

    Raises:
        PullbackError: PB201, no compiler; PB207, a name of the line that C++ reserves; PB208, a
            dtype that the compiler lacks.
    """
    require_names(line)
    compiler = toolchain.find("cuda" if device == "cuda" else "c++")
    require_types(line, source, compiler)
    file = path_of(source)
    suffix = "cu" if device == "cuda" else "cpp"
    return BuildPlan(
        name=f"{line.namespace}-{line.name}-{device}",
        compiler=compiler,
        units=(TranslationUnit(f"glue.{suffix}", entry_point(line, source, device)),),
        sources=() if file is None else (file,),
        flags=(*kernel_flags(compiler, architecture), *source.flags),
        abi=KERNEL_ABI,
    )


def plan_on_cpu(line: Line, source: Source, mode: Mode) -> BuildPlan:
    """Return the build plan for a CUDA kernel that is to run on the CPU.

    Args:
        line: the operator.
        source: its CUDA kernel.
        mode: what is checked.

    Raises:
        PullbackError: PB201, no compiler; PB207, a name of the line that C++ reserves.
    """
    require_names(line)
    file = path_of(source)
    beside = [] if file is None else [file.parent]
    unit = TranslationUnit(
        "glue.cpp", "#include <cuda_runtime.h>\n" + entry_point(line, source, "cuda")
    )
    every_order = ("-DCUDA_ON_CPU_EVERY_ORDER",) if mode.order == "all" else ()
    return BuildPlan(
        name=f"{line.namespace}-{line.name}-cuda-on-cpu",
        compiler=toolchain.find("c++"),
        units=(unit,),
        sources=() if file is None else (file,),
        flags=(*library.flags(mode.check), *every_order, *library.take_flags(source.flags)),
        compile_flags=library.SANITIZE[mode.check],
        link=library.link(mode.check),
        translation=library.translation([*beside, *folders_in(source.flags)]),
        abi=library.abi(),
    )


def symbol_of(line: Line, device: Device) -> str:
    """Return the name of the entry point."""
    return f"pullback_{line.namespace}_{line.name}_{device}"


def path_of(source: Source) -> Path | None:
    """Return the author's file: beside the Python file that names it, or in the working folder."""
    return None if source.file is None else locate(source.file, source.folder)


def locate(file: str, folder: str) -> Path:
    """Return where a named file is: in the folder, or else in the working folder."""
    beside = Path(folder) / file
    return beside if beside.exists() else Path(file).absolute()


def require_names(line: Line) -> None:
    """Stop at a name that C++ reserves."""
    for name in (
        *(p.name for p in line.parameters),
        *(o.name for o in line.outputs),
        *line.dimensions,
    ):
        if name in CPP_KEYWORDS:
            raise ReservedInCpp.error(
                f"{line.qualname}: '{name}' is a word of C++, so no kernel in C++ can use it",
                help=f"choose another name, such as '{name}_'",
            )


def require_types(line: Line, source: Source, compiler: Compiler) -> None:
    """Stop at bfloat16 where the compiler has no such type: C++ before g++ 13."""
    used = {tensor.dtype for tensor in (*line.tensors, *line.outputs)} | set(source.dtypes or ())
    major = int(compiler.version.partition(".")[0])
    if "bfloat16" not in used or compiler.language == "cuda" or "g++" not in compiler.path.name:
        return
    if major < FIRST_WITH_BFLOAT16:
        raise DtypeNotInCompiler.error(
            f"{line.qualname}: {compiler.path.name} {compiler.version} has no bfloat16",
            help=f"use g++ {FIRST_WITH_BFLOAT16} or newer, by CXX, or another dtype",
        )


def entry_point(line: Line, source: Source, device: Device) -> str:
    """Return the translation unit: the author's code, then the call."""
    parameters = "\n".join(declarations(line, device, asked=True))
    locals_ = "\n".join(declarations(line, device, asked=False))
    tensors = (*line.tensors, *line.outputs)
    names = ", ".join(f'"{tensor.name}"' for tensor in tensors)
    glue = f'#line 1 "glue of {line.qualname}"\n'
    call = f'\n#line 1 "call of {line.qualname}"\n{source.call}\n{glue}'
    shared = any(tensor.dtype is None for tensor in tensors)
    dispatch = dispatch_of(source, device, shared=shared)
    # Every name here begins with `pullback`, apart from those that a call may use: an author's own
    # function `run` or type `Body` would be hidden by one of the same name.
    return f"""#include "{CSRC}/kernel_abi.h"
{headers_of(line, source, device)}{author_code(line, source)}
#line 1 "glue of {line.qualname}"
#include "{CSRC}/glue.h"
#define numel(x) pullback::numel_of<pullback_int>(x##_tensor)
#define size(x, d) pullback::size_of<pullback_int>(x##_tensor, d)
#define stride(x, d) pullback::stride_of<pullback_int>(x##_tensor, d)
namespace {{
struct pullback_body {{
static constexpr int32_t pullback_tensors = {len(tensors)};
static constexpr int32_t pullback_inputs = {len(line.tensors)};
static const char* pullback_name(int32_t i) {{
const char* names[] = {{{names}}};
return names[i];
}}
template <class T, class pullback_int>
static constexpr bool pullback_takes() {{
return requires({parameters.rstrip(",")}) {{ {call}; }};
}}
template <class T, class pullback_int>
static void pullback_run(const pullback::Call& pullback_call) {{
{locals_}{call};
}}
}};
}}
extern "C" __attribute__((visibility("default")))
int {symbol_of(line, device)}(const pullback::Call* call, char* message, uint64_t capacity) {{
return pullback::{dispatch}(*call, message, capacity);
}}
"""


def headers_of(line: Line, source: Source, device: Device) -> str:
    """Return the includes for the types that the line, or `dtypes=`, names."""
    types = CUDA_TYPES if device == "cuda" else C_TYPES
    named = [tensor.dtype for tensor in (*line.tensors, *line.outputs) if tensor.dtype]
    words = {types[name].partition("<")[0] for name in (*named, *(source.dtypes or ()))}
    return "".join(f"#include <{HEADERS[word]}>\n" for word in sorted(words & set(HEADERS)))


def dispatch_of(source: Source, device: Device, *, shared: bool) -> str:
    """Return the function of glue.h that finds the dtype, which is open if `shared`."""
    if not shared:
        return "run<pullback_body, void>"
    if source.dtypes is None:
        return "dispatch<pullback_body>"
    types = CUDA_TYPES if device == "cuda" else C_TYPES
    return f"dispatch_named<pullback_body, {', '.join(types[name] for name in source.dtypes)}>"


def author_code(line: Line, source: Source) -> str:
    """Return the author's code: included by path, so that messages name the author's lines."""
    file = path_of(source)
    if file is not None:
        return f'#include "{file}"'
    return f'#line 1 "source of {line.qualname}"\n{source.text}'


def declarations(line: Line, device: Device, *, asked: bool) -> list[str]:
    """Return what the call can name: as parameters of the question, or as variables."""
    rows: list[str] = []

    def add(type_: str, name: str, value: str) -> None:
        rows.append(f"{type_} {name}," if asked else f"[[maybe_unused]] {type_} {name} = {value};")

    for index, tensor in enumerate((*line.tensors, *line.outputs)):
        pointer = pointer_type(tensor, device, const=index < len(line.tensors))
        add("const pullback::Tensor&", f"{tensor.name}_tensor", f"pullback_call.tensors[{index}]")
        add(pointer, tensor.name, f"static_cast<{pointer}>({tensor.name}_tensor.data)")
    for index, name in enumerate(line.dimensions):
        add("const pullback_int", name, f"pullback_call.dims[{index}]")
    for index, scalar in enumerate(line.scalars):
        add(scalar_type(scalar), scalar.name, scalar_value(scalar, index))
    add("const pullback_int", "batch", "pullback_call.batch")
    if device == "cuda":
        add("cudaStream_t", "stream", "static_cast<cudaStream_t>(pullback_call.stream)")
    return rows


def pointer_type(tensor: Tensor, device: Device, *, const: bool) -> str:
    """Return the C++ type of a tensor's pointer."""
    names = CUDA_TYPES if device == "cuda" else C_TYPES
    element = names[tensor.dtype] if tensor.dtype else "T"
    return f"{'const ' * const}{element}*"


def scalar_type(scalar: Scalar) -> str:
    """Return the C++ type of a scalar."""
    return C_SCALARS[scalar.type]


def scalar_value(scalar: Scalar, index: int) -> str:
    """Return the expression that reads a scalar."""
    value = f"pullback_call.scalars[{index}].{SCALAR_FIELDS[scalar.type]}"
    return f"{value} != 0" if scalar.type == "bool" else value
