"""PyTorch's names for the GPU become those for the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from pullback.kernels.cuda_on_cpu.facts import Facts
from pullback.kernels.cuda_on_cpu.rewriting import Rewriting
from pullback.kernels.cuda_on_cpu.tokens import read
from pullback.kernels.cuda_on_cpu.translate import rewrite
from tests.kernels.cuda_on_cpu.rewriting import rewritten, squeezed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.is_cuda()", "x.is_cpu()"),
        ("x->is_cuda()", "x->is_cpu()"),
        ("x.type().is_cuda()", "x.is_cpu()"),
        ("x.options().device().is_cuda()", "x.options().device().is_cpu()"),
        (
            "#define C(x) TORCH_CHECK(x.device().is_cuda(), #x)",
            "#define C(x) TORCH_CHECK(x.device().is_cpu(), #x)",
        ),
        ("if (!x.is_cuda()) f();", "if (!x.is_cpu()) f();"),
        ("x.device().type() == torch::kCUDA", "x.device().type() == torch::kCPU"),
        ("kCUDA == c10::kCUDA", "kCPU == c10::kCPU"),
        ("at::DeviceType::CUDA", "at::DeviceType::CPU"),
        ("c10::Device::Type::CUDA", "c10::Device::Type::CPU"),
        ("at::Backend::CUDA", "at::Backend::CPU"),
        ("c10::DispatchKey::AutogradCUDA", "c10::DispatchKey::AutogradCPU"),
        ("torch::CUDA(torch::kFloat)", "torch::CPU(torch::kFloat)"),
        ('torch::Device("cuda")', 'torch::Device("cpu")'),
        ('c10::Device d("cuda:1")', 'c10::Device d("cpu:1")'),
        ('torch::Device{"cuda:" + s}', 'torch::Device{"cpu:" + s}'),
        ('x.to("cuda")', 'x.to("cpu")'),
        ("x.cuda()", "x.cpu()"),
        ("o.pinned_memory(true)", "o.pinned_memory(false)"),
        ("if (torch::cuda::is_available()) f();", "if (true ) f();"),
        ("::torch::cuda::device_count()", "1"),
        ('m.impl("f", torch::kCUDA, &f)', 'm.impl("f", torch::kCPU, &f)'),
        ("TORCH_LIBRARY_IMPL(ns, CUDA, m) {}", "TORCH_LIBRARY_IMPL(ns, CPU, m) {}"),
        ("STABLE_TORCH_LIBRARY_IMPL(ns, CUDA, m)", "STABLE_TORCH_LIBRARY_IMPL(ns, CPU, m)"),
        (
            "TORCH_LIBRARY_IMPL_EXPAND(CAT(a, b), CUDA, m)",
            "TORCH_LIBRARY_IMPL_EXPAND(CAT(a, b), CPU, m)",
        ),
        ("TORCH_LIBRARY_IMPL(ns, AutocastCUDA, m)", "TORCH_LIBRARY_IMPL(ns, AutocastCPU, m)"),
    ],
)
def test_names(before: str, after: str) -> None:
    assert squeezed(rewritten(before, torch=True)) == after
    assert rewritten(before) == before


@pytest.mark.parametrize(
    "text",
    [
        "TORCH_CHECK(!x.is_cuda(), 1)",
        "#define CPU(x) AT_ASSERTM(!x.type().is_cuda(), #x)",
        "bool is_cuda() const;",
        "is_cuda(x)",
        "mine::kCUDA",
        "enum D { kCPU, kCUDA }; f(kCUDA);",
        "at::cuda::getCurrentCUDAStream()",
        "class at::CUDA;",
        'f("cuda")',
        'x == "is_cuda()"',
        "TORCH_LIBRARY_IMPL(ns, CPU, m) {}",
        "TORCH_LIBRARY_IMPL(ns, Autograd, m) {}",
        "using namespace at::cuda;",
        "x.cuda(stream)",
    ],
)
def test_others_stay(text: str) -> None:
    assert rewritten(text, torch=True) == text


CUDA = 'TORCH_LIBRARY_IMPL(ns, CUDA, m) {{ m.impl("{}", &f); m.impl(TORCH_FN("ns::g"), &g); }}'
CPU = 'TORCH_LIBRARY_IMPL(ns, {}, m) {{ m.impl("f", &f); {} }}'


def test_a_cpu_kernel_steps_aside_for_one_that_was_cudas() -> None:
    before = CPU.format("CPU", 'm.impl("g", &g);')
    after = CPU.format("PrivateUse3", 'm.impl("g", &g);')
    assert rewritten(before, torch=True, beside=CUDA.format("f")) == after


def test_only_the_operators_that_both_have_step_aside() -> None:
    before = CPU.format("CPU", 'm.impl("h", &h);')
    after = 'TORCH_LIBRARY_IMPL(ns, CPU, m) { void() ; m.impl("h", &h); }'
    assert squeezed(rewritten(before, torch=True, beside=CUDA.format("f"))) == after


@pytest.mark.parametrize("beside", [CUDA.format("other"), CUDA.format("f").replace("ns", "n2")])
def test_a_cpu_kernel_of_another_operator_stays(beside: str) -> None:
    before = CPU.format("CPU", "")
    assert rewritten(before, torch=True, beside=beside) == before


def test_registrations_by_an_authors_own_macro() -> None:
    macro = "#define REGISTER(f, device, g) add(at::k##device, f, g);\n"
    cuda = "REGISTER(f, CUDA, f_cuda)"
    assert rewritten(cuda, torch=True, beside=macro) == "REGISTER(f, CPU, f_cuda)"
    before = "REGISTER(f, CPU, f_cpu) REGISTER(h, CPU, h_cpu)"
    after = "REGISTER(f, VE, f_cpu) REGISTER(h, CPU, h_cpu)"
    assert rewritten(before, torch=True, beside=macro + cuda) == after


@pytest.mark.parametrize("dispatch", ["AT_DISPATCH_FLOATING_TYPES", "MY_DISPATCH"])
def test_a_dispatch_by_the_old_type_is_one_by_the_scalar_type(dispatch: str) -> None:
    text = f'// cuda\n{dispatch}(x.type(), "f", [&] {{ f(x.type(), y->type().scalarType()); }});'
    made, out = rewritten(text, torch=True), Rewriting(read(text), Path("author.cu"))
    assert made == text.replace('(x.type(), "', '(x.scalar_type(), "')
    rewrite(out, Facts(), torch=True)
    assert [(note.line, "scalar_type()" in note.text) for note in out.notes] == [(2, True)]


def test_a_switch_over_devices_has_no_value_twice() -> None:
    before = "switch (d) { case at::kCPU: return f(); case at::kCUDA: return g(); }"
    after = "switch (d) { case at::kPrivateUse1: return f(); case at::kCPU: return g(); }"
    assert rewritten(before, torch=True) == after
    alone = "switch (d) { case at::DeviceType::CPU: return f(); }"
    assert rewritten(alone, torch=True) == alone
