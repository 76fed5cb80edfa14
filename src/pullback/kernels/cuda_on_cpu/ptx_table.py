"""PTX instructions with an exact equivalent in CUDA's or plain C++."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

# The C++ expression for `%0`, `p` or `%laneid`.
Names = Mapping[str, str]
Write = Callable[[re.Match[str], Names], str]

TYPES = {
    **{"b8": "unsigned char", "u8": "unsigned char", "s8": "signed char"},
    **{"b16": "unsigned short", "u16": "unsigned short", "s16": "short"},
    **{"b32": "unsigned", "u32": "unsigned", "s32": "int"},
    **{"b64": "unsigned long long", "u64": "unsigned long long", "s64": "long long"},
    **{"f32": "float", "f64": "double"},
}
LANE = "(::cuda_on_cpu::cuda_on_cpu_rank() & 31u)"
SPECIAL = {
    "%laneid": LANE,
    "%warpid": "(::cuda_on_cpu::cuda_on_cpu_rank() >> 5)",
    "%lanemask_eq": f"(1u << {LANE})",
    "%lanemask_lt": f"((1u << {LANE}) - 1u)",
    "%lanemask_le": f"((2u << {LANE}) - 1u)",
    "%lanemask_gt": f"(~((2u << {LANE}) - 1u))",
    "%lanemask_ge": f"(~((1u << {LANE}) - 1u))",
    "%smid": "0u",
    "%nsmid": "1u",
    "%clock": "((unsigned)clock())",
    "%clock64": "((unsigned long long)clock64())",
    "%globaltimer": "((unsigned long long)clock64())",
    **{
        f"%{word}.{axis}": f"{name}.{axis}"
        for word, name in (
            ("tid", "threadIdx"),
            ("ntid", "blockDim"),
            ("ctaid", "blockIdx"),
            ("nctaid", "gridDim"),
        )
        for axis in "xyz"
    },
}
FENCES = {"cta": "__threadfence_block()", "gl": "__threadfence()", "gpu": "__threadfence()"}
FUNCTIONS = {
    "popc.b32": "__popc",
    "popc.b64": "__popcll",
    "clz.b32": "__clz",
    "clz.b64": "__clzll",
    "brev.b32": "__brev",
    "brev.b64": "__brevll",
    "prmt.b32": "__byte_perm",
    "shf.l.wrap.b32": "__funnelshift_l",
    "shf.r.wrap.b32": "__funnelshift_r",
    "shf.l.clamp.b32": "__funnelshift_lc",
    "shf.r.clamp.b32": "__funnelshift_rc",
    "mul.hi.u32": "__umulhi",
    "mul.hi.s32": "__mulhi",
    "ex2.approx.f32": "exp2f",
    "lg2.approx.f32": "log2f",
    "sin.approx.f32": "sinf",
    "cos.approx.f32": "cosf",
    "tanh.approx.f32": "tanhf",
    "sqrt.approx.f32": "sqrtf",
    "sqrt.rn.f32": "sqrtf",
    "rsqrt.approx.f32": "1.0f / sqrtf",
    "rcp.approx.f32": "1.0f / ",
    "rcp.rn.f32": "1.0f / ",
    "fma.rn.f32": "fmaf",
    "fma.rn.f64": "fma",
    "activemask.b32": "__activemask",
}
# Lambdas that are called directly with operands, as in `[](...) {...}(a, b)`.
BFE = (
    "[](unsigned a, unsigned b, unsigned c) { b &= 255u; c &= 255u; "
    "unsigned w = b < 32u ? a >> b : 0u; return c < 32u ? w & ((1u << c) - 1u) : w; }"
)
BFI = (
    "[](unsigned a, unsigned b, unsigned c, unsigned d) { c &= 255u; d &= 255u; "
    "unsigned m = d < 32u ? (1u << d) - 1u : ~0u; m = c < 32u ? m << c : 0u; "
    "return (b & ~m) | (c < 32u ? (a << c) & m : 0u); }"
)
LOP3 = (
    "[](unsigned a, unsigned b, unsigned c, unsigned t) { unsigned r = 0; "
    "for (unsigned i = 0; i < 8; ++i) if (t >> i & 1u) "
    "r |= (i & 4u ? a : ~a) & (i & 2u ? b : ~b) & (i & 1u ? c : ~c); return r; }"
)
LAMBDAS = {"bfe.u32": BFE, "bfi.b32": BFI, "lop3.b32": LOP3}
HALVES = {
    "32": ("unsigned", "unsigned short", 16),
    "64": ("unsigned long long", "unsigned", 32),
}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "mul.lo": "*"}


def translate_instruction(text: str, names: Names) -> str | None:
    """Return an expression equivalent to an instruction; None if none is known.

    Args:
        text: the instruction without its `;`.
        names: each operand and register in C++.
    """
    for pattern, write in TABLE:
        if match := pattern.fullmatch(text):
            try:
                return write(match, {**SPECIAL, **names})
            except (KeyError, ValueError):
                return None
    return None


def _operand(text: str, names: Names) -> str:
    """Return an operand in C++; a number stays as it is."""
    text = text.strip()
    return text if re.fullmatch(r"-?(?:0x[0-9a-fA-F]+|\d+)U?", text) else names[text]


def _list(text: str, names: Names) -> list[str]:
    return [_operand(part, names) for part in text.strip("{}").split(",")]


def _move(match: re.Match[str], names: Names) -> str:
    target, value = _list(match[1], names)
    return f"{target} = {value}"


def _call(match: re.Match[str], names: Names) -> str:
    target, *given = _list(match[2], names)
    name = match[1].replace(".ftz", "")
    function = FUNCTIONS[name] if name in FUNCTIONS else LAMBDAS[name]
    return f"{target} = {function}({', '.join(given)})"


def _load(match: re.Match[str], names: Names) -> str:
    pointer = _pointer(match, names, "const ")
    targets = _vector(match, names)
    return ", ".join(f"{to} = ({pointer})[{place}]" for place, to in enumerate(targets))


def _store(match: re.Match[str], names: Names) -> str:
    pointer = _pointer(match, names, "")
    values = _vector(match, names)
    return ", ".join(f"({pointer})[{place}] = {value}" for place, value in enumerate(values))


def _vector(match: re.Match[str], names: Names) -> list[str]:
    """Return the registers of a load or store, as many as the instruction says."""
    values = _list(match["values"], names)
    if len(values) != int(match["count"] or 1):
        raise ValueError(match[0])
    return values


def _pointer(match: re.Match[str], names: Names, const: str) -> str:
    base, offset = _operand(match["base"], names), match["offset"]
    kind = f"{const}{TYPES[match['type']]}*"
    return f"({kind})((char*){base} + {offset})" if offset else f"({kind}){base}"


def _atomic_add(match: re.Match[str], names: Names) -> str:
    kind, value = TYPES[match["type"]], _operand(match["value"], names)
    call = f"atomicAdd(({kind}*){_operand(match['base'], names)}, ({kind}){value})"
    return f"{_operand(match['target'], names)} = {call}" if match["target"] else call


def _pack(match: re.Match[str], names: Names) -> str:
    whole, half, bits = HALVES[match[1]]
    target = _operand(match[2], names)
    low, high = _list(match[3], names)
    return f"{target} = ({whole})({half}){low} | ({whole})({half}){high} << {bits}"


def _unpack(match: re.Match[str], names: Names) -> str:
    _, half, bits = HALVES[match[1]]
    low, high = _list(match[2], names)
    value = _operand(match[3], names)
    return f"{low} = ({half}){value}, {high} = ({half})({value} >> {bits})"


def _compare(match: re.Match[str], names: Names) -> str:
    target, left, right = _list(match[3], names)
    kind = TYPES[match[2]]
    return f"{target} = ({kind}){left} {COMPARISONS[match[1]]} ({kind}){right}"


def _select(match: re.Match[str], names: Names) -> str:
    target, left, right, condition = _list(match[1], names)
    return f"{target} = {condition} ? {left} : {right}"


def _calculate(match: re.Match[str], names: Names) -> str:
    target, left, right = _list(match[3], names)
    # In PTX signed numbers wrap, as unsigned ones do.
    kind = TYPES[match[2].replace("s", "u")]
    return f"{target} = ({kind}){left} {OPERATORS[match[1]]} ({kind}){right}"


def _fence(match: re.Match[str], names: Names) -> str:
    del names
    return FENCES.get(match[1], "__threadfence_system()")


def _one_operand(function: str) -> Write:
    return lambda match, names: f"{function}({_operand(match[1], names)})"


def _always(text: str) -> Write:
    return lambda _, __: text


_ONE = r"%?\w+"
_ADDRESS = rf"\[ ?(?P<base>{_ONE}) ?(?:\+ ?(?P<offset>\d+) ?)?\]"
_VALUES = rf"(?P<values>\{{[^}}]*\}}|{_ONE})"
_KIND = r"(?:\.v(?P<count>[24]))?\.(?P<type>[busf]\d+)"
_CACHE = r"(?:\.(?:nc|ca|cg|cs|cv|lu|wb|wt|volatile|relaxed|weak|gpu|L\w+(?:::\w+)+))*"
_NAMES = "|".join(re.escape(name).replace("approx", r"approx(?:\.ftz)?") for name in FUNCTIONS)

TABLE: list[tuple[re.Pattern[str], Write]] = [
    (re.compile(pattern), write)
    for pattern, write in (
        (r"mov\.b(32|64) (%?\w+), ?(\{[^}]*\})", _pack),
        (r"mov\.b(32|64) (\{[^}]*\}), ?(%?\w+)", _unpack),
        (r"mov\.\w+ (%?\w+, ?%?[\w.]+)", _move),
        (r"cvta\.to\.global\.u64 (%?\w+, ?%?\w+)", _move),
        (r"(?:membar|fence(?:\.sc|\.acq_rel|\.acquire|\.release)?)\.(cta|gl|gpu|sys)", _fence),
        (r"(?:bar|barrier)\.sync(?:\.aligned)? 0", _always("__syncthreads()")),
        (r"bar\.warp\.sync (%?\w+)", _one_operand("__syncwarp")),
        (r"nanosleep\.u32 (%?\w+)", _one_operand("__nanosleep")),
        (r"trap", _always("__trap()")),
        (r"(?:prefetch|prefetchu|applypriority|discard)\..*", _always("(void)0")),
        (r"griddepcontrol\.(?:wait|launch_dependents)", _always("(void)0")),
        (rf"ld{_CACHE}\.global{_CACHE}{_KIND} {_VALUES}, ?{_ADDRESS}", _load),
        (rf"st{_CACHE}\.global{_CACHE}{_KIND} {_ADDRESS}, ?{_VALUES}", _store),
        (
            r"(?:red|atom)(?:\.relaxed)?(?:\.gpu)?\.global(?:\.relaxed)?(?:\.gpu)?\.add"
            rf"\.(?P<type>u32|s32|u64|f32|f64) (?:(?P<target>{_ONE}), ?)?\[(?P<base>{_ONE})\]"
            rf", ?(?P<value>{_ONE})",
            _atomic_add,
        ),
        (r"setp\.(eq|ne|lt|le|gt|ge)\.([busf]\d+) (.*)", _compare),
        (r"selp\.[busf]\d+ (.*)", _select),
        (r"(add|sub|mul\.lo|and|or|xor)\.([bus](?:32|64)) (.*)", _calculate),
        (r"(add|sub|mul)(?:\.rn)?\.(f32|f64) (.*)", _calculate),
        (rf"({_NAMES}|{'|'.join(map(re.escape, LAMBDAS))}) (.*)", _call),
    )
]
