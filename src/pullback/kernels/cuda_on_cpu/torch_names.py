"""PyTorch's names for the GPU -> those for the CPU, where an author's tensors now are."""

from __future__ import annotations

import re

from pullback.kernels.cuda_on_cpu.facts import Facts, device_uses, registrations
from pullback.kernels.cuda_on_cpu.rewriting import Rewriting
from pullback.kernels.cuda_on_cpu.tokens import TokenStream
from pullback.kernels.cuda_on_cpu.walk import expression_start, top_level

KEYS = {
    prefix + "CUDA": prefix + "CPU"
    for prefix in ("", "Autograd", "Autocast", "Sparse", "SparseCsr", "Quantized", "NestedTensor")
}
ENUMERATIONS = ("DeviceType", "Type", "Backend", "DispatchKey", "at", "torch", "c10")
NAMESPACES = frozenset({"at", "torch", "c10", "headeronly", "stable", "DeviceType"})
# No device has this key, so a kernel registered for it is never called.
UNUSED_KEY = "PrivateUse3"
# Nor does anyone have this device; `k` can be pasted before its name.
UNUSED_DEVICE = "VE"
# Functions `torch::cuda::...` that raise or return false in PyTorch without CUDA.
ABOUT_CUDA = {"is_available": "true", "device_count": "1", "synchronize": "void()"}
CHECK = re.compile(r"CHECK|ASSERT|assert|REQUIRE")
DEVICE_NAME = re.compile(r'"cuda(:\d*)?"')


def rewrite_torch_names(stream: TokenStream, facts: Facts, out: Rewriting) -> None:
    """Rewrite all names of one stream."""
    _rewrite_is_cuda(stream, out)
    _rewrite_constants(stream, facts, out)
    _rewrite_device_names(stream, out)
    _rewrite_registrations(stream, facts, out)
    _rewrite_device_macros(stream, facts, out)
    _rewrite_cases(stream, out)
    _rewrite_types(stream, out)
    for index in stream.find("cuda"):
        if stream.words[index - 1 : index] in ([""], ["."], ["->"]):
            _rewrite_transfer(stream, index, out)
        elif stream.words[index + 1 : index + 2] == ["::"]:
            _rewrite_question(stream, index, out)
    for index in stream.find("pinned_memory"):
        if stream.words[index + 1 : index + 4] == ["(", "true", ")"]:
            # Only CUDA's driver can pin memory.
            out.replace(stream, index + 2, "false")


def _rewrite_is_cuda(stream: TokenStream, out: Rewriting) -> None:
    for index in stream.find("is_cuda"):
        if stream.word(index - 1) not in (".", "->") or stream.word(index + 1) != "(":
            continue
        start = expression_start(stream, index)
        # TORCH_CHECK(!sizes.is_cuda()): an argument that has to be on the CPU, as all are.
        opening = start - 2
        if (
            stream.word(start - 1) == "!"
            and stream.word(opening) == "("
            and CHECK.search(stream.word(opening - 1))
        ):
            continue
        out.replace(stream, index, "is_cpu")
        if stream.words[index - 4 : index] == ["type", "(", ")", "."]:
            # x.type().is_cuda(): that type has no is_cpu.
            out.erase(stream, range(index - 4, index))


def _rewrite_constants(stream: TokenStream, facts: Facts, out: Rewriting) -> None:
    for index in stream.find("kCUDA"):
        qualified = stream.word(index - 1) == "::"
        if qualified and stream.word(index - 2) not in NAMESPACES:
            continue
        if qualified or "kCUDA" not in facts.own_words:
            out.replace(stream, index, "kCPU")
    for index in stream.find(*KEYS):
        if stream.word(index - 1) != "::" or stream.word(index - 2) not in ENUMERATIONS:
            continue
        # at::CUDA(kFloat), but not a class at::CUDA...
        of_namespace = stream.word(index - 2) in ("at", "torch", "c10")
        if not of_namespace or stream.word(index + 1) == "(":
            out.replace(stream, index, KEYS[stream.words[index]])


def _rewrite_device_names(stream: TokenStream, out: Rewriting) -> None:
    """Rewrite "cuda:0" where it names a device: Device("cuda"), device("cuda"), to("cuda")."""
    for index, kind in enumerate(stream.kinds):
        if kind != "string" or not DEVICE_NAME.fullmatch(stream.words[index]):
            continue
        if stream.word(index - 1) not in ("(", "{"):
            continue
        named = {stream.word(index - 2), stream.word(index - 3)}
        if named & {"Device", "device", "to"} or stream.words[index - 3 : index - 1] == [
            "::",
            "string",
        ]:
            new = stream.words[index].replace("cuda", "cpu")
            out.replace(stream, index, new)


def _rewrite_registrations(stream: TokenStream, facts: Facts, out: Rewriting) -> None:
    for registration in registrations(stream):
        key = registration.key
        if key in KEYS:
            out.replace(stream, registration.key_at, KEYS[key])
        elif key == "CPU":
            # Both would be registered for the CPU, and the linker would decide which one wins.
            taken = facts.cuda_operators.get(registration.namespace, set())
            own = registration.operators
            if taken and (None in taken or not own or taken.issuperset(own)):
                out.replace(stream, registration.key_at, UNUSED_KEY)
                continue
            for name in taken & set(own):
                start = own[name or ""]
                close = stream.partner[start + 3]
                out.replace(stream, start, "void()")
                out.erase(stream, range(start + 1, close + 1))


def _rewrite_device_macros(stream: TokenStream, facts: Facts, out: Rewriting) -> None:
    """Rewrite an author's own registrations, made by macros with `at::k##device`."""
    for use in device_uses(stream, facts):
        device = stream.words[use.device_at]
        if device == "CUDA":
            out.replace(stream, use.device_at, "CPU")
        elif device == "CPU" and use.what in facts.cuda_uses:
            out.replace(stream, use.device_at, UNUSED_DEVICE)


def _rewrite_cases(stream: TokenStream, out: Rewriting) -> None:
    """Keep only `case kCUDA`, with the CPU's value, in a switch that has both."""
    cases: dict[int, dict[str, int]] = {}
    for index in stream.find("case"):
        end = next(
            (at for at in top_level(stream, index, len(stream)) if stream.word(at) == ":"), -1
        )
        name = stream.word(end - 1)
        if name in ("kCPU", "kCUDA", "CPU", "CUDA"):
            cases.setdefault(stream.inside[index], {})[name.removeprefix("k")] = end - 1
    for found in cases.values():
        if {"CPU", "CUDA"} <= found.keys():
            prefix = "k" if stream.words[found["CPU"]].startswith("k") else ""
            out.replace(stream, found["CPU"], f"{prefix}PrivateUse1")


def _rewrite_types(stream: TokenStream, out: Rewriting) -> None:
    """Rewrite `AT_DISPATCH_...(x.type(), ...)`, which PyTorch accepted until 2.4."""
    for index in stream.find("type"):
        called = stream.words[index + 1 : index + 3] == ["(", ")"]
        if not called or stream.word(index - 1) not in (".", "->"):
            continue
        opening = stream.inside[index]
        of_dispatch = opening > 0 and "DISPATCH" in stream.words[opening - 1]
        if of_dispatch and stream.word(index + 3) == ",":
            out.replace(stream, index, "scalar_type")
            out.note(stream, index, "PyTorch dispatches by x.scalar_type(), no longer by x.type()")


def _rewrite_transfer(stream: TokenStream, index: int, out: Rewriting) -> None:
    """Rewrite `x.cuda()`."""
    if stream.words[index + 1 : index + 3] == ["(", ")"]:
        out.replace(stream, index, "cpu")


def _rewrite_question(stream: TokenStream, index: int, out: Rewriting) -> None:
    """Rewrite `torch::cuda::is_available()`."""
    name, open_ = index + 2, index + 3
    if stream.word(index - 2) != "torch" or stream.word(open_) != "(":
        return
    if answer := ABOUT_CUDA.get(stream.words[name]):
        start = index - 2 - (stream.word(index - 3) == "::")
        out.replace(stream, start, answer)
        out.erase(stream, range(start + 1, stream.partner[open_] + 1))
