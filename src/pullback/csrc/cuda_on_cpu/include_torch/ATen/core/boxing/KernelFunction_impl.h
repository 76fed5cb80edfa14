#pragma once

// What it includes, first: that is to be read as it is.
#include <ATen/core/boxing/impl/WrapFunctionIntoFunctor.h>
#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/core/boxing/impl/make_boxed_from_unboxed_functor.h>

// PyTorch asserts while it compiles that TORCH_FN of a function is not null. Stores through null
// are kept here (-fno-delete-null-pointer-checks), so g++ does not say so of another file's
// function. It does not under AddressSanitizer either, and then PyTorch asks when it runs.
#pragma push_macro("__SANITIZE_ADDRESS__")
#pragma push_macro("__CUDACC__")
#undef __SANITIZE_ADDRESS__
#define __SANITIZE_ADDRESS__ 1
#undef __CUDACC__
#include_next <ATen/core/boxing/KernelFunction_impl.h>
#pragma pop_macro("__CUDACC__")
#pragma pop_macro("__SANITIZE_ADDRESS__")
