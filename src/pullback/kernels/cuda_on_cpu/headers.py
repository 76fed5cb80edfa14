"""NVIDIA's names for headers: which of our headers each one means, and a folder with all names.

Several of NVIDIA's headers are one header here. A compiler looks for files, so each of their names
becomes a file of one line, in the cache beside the runtime. A name that has a header to itself is a
file in `csrc/cuda_on_cpu/include`.
"""

from __future__ import annotations

import functools
import json
import os
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pullback.kernels import cache, toolchain
from pullback.kernels import compile as compilation
from pullback.kernels.plan import BuildPlan, TranslationUnit
from pullback.kernels.toolchain import Compiler

CSRC = Path(__file__).parents[2] / "csrc" / "cuda_on_cpu"
# In the cache's entry; `toolchain.NOT_THE_AUTHORS` uses this name.
FOLDER = "cuda_on_cpu"

# A header of ours -> the names that stand for it.
OURS = {
    "include/cuda_runtime.h": """
        builtin_types.h common_functions.h cuda_device_runtime_api.h cuda_occupancy.h
        cuda_profiler_api.h cuda_runtime_api.h device_atomic_functions.h device_functions.h
        device_launch_parameters.h device_types.h driver_types.h host_config.h host_defines.h
        math_functions.h vector_functions.h vector_functions.hpp vector_types.h
        crt/device_functions.h crt/host_defines.h crt/math_functions.h
        sm_20_atomic_functions.h sm_20_intrinsics.h sm_30_intrinsics.h sm_32_atomic_functions.h
        sm_32_intrinsics.h sm_35_atomic_functions.h sm_35_intrinsics.h sm_60_atomic_functions.h
        sm_61_intrinsics.h
    """,
    "include/cuda.h": "cudaProfiler.h",
    "include/cuda_pipeline_primitives.h": "cuda_pipeline.h",
    "include/cublas_v2.h": "cublas.h",
    "include/cuda/cmath": "cuda/numeric",
    "include/nvtx3/nvToolsExt.h": "nvToolsExt.h",
    "atomic_types.h": "cuda/atomic",
    "bfloat16.h": "cuda_bf16.h cuda_bf16.hpp",
    "half.h": "cuda_fp16.h cuda_fp16.hpp",
    "wmma.h": "mma.h",
    "random.h": "curand_kernel.h curand_normal.h curand_philox4x32_x.h curand_uniform.h",
    "groups.h": """
        cooperative_groups.h cooperative_groups/memcpy_async.h cooperative_groups/reduce.h
        cooperative_groups/scan.h cooperative_groups/details/helpers.h
    """,
    "cub/allocator.h": "cub/util_allocator.cuh",
    "cub/block_exchange.h": "cub/block/block_exchange.cuh",
    "cub/block_flags.h": """
        cub/block/block_adjacent_difference.cuh cub/block/block_discontinuity.cuh
        cub/block/block_histogram.cuh cub/block/block_shuffle.cuh
    """,
    "cub/block_io.h": """
        cub/block/block_load.cuh cub/block/block_store.cuh
        cub/warp/warp_load.cuh cub/warp/warp_store.cuh
    """,
    "cub/block_raking.h": "cub/block/block_radix_rank.cuh cub/block/block_raking_layout.cuh",
    "cub/block_reduce.h": "cub/block/block_reduce.cuh",
    "cub/block_scan.h": "cub/block/block_scan.cuh",
    "cub/block_sort.h": "cub/block/block_merge_sort.cuh cub/block/block_radix_sort.cuh",
    "cub/config.h": """
        cub/config.cuh cub/util_arch.cuh cub/util_debug.cuh cub/util_device.cuh cub/util_macro.cuh
        cub/util_namespace.cuh cub/version.cuh
    """,
    "cub/iterators.h": """
        cub/iterator/arg_index_input_iterator.cuh cub/iterator/cache_modified_input_iterator.cuh
        cub/iterator/cache_modified_output_iterator.cuh cub/iterator/constant_input_iterator.cuh
        cub/iterator/counting_input_iterator.cuh cub/iterator/discard_output_iterator.cuh
        cub/iterator/transform_input_iterator.cuh
    """,
    "cub/thread.h": """
        cub/thread/thread_load.cuh cub/thread/thread_operators.cuh cub/thread/thread_reduce.cuh
        cub/thread/thread_scan.cuh cub/thread/thread_search.cuh cub/thread/thread_sort.cuh
        cub/thread/thread_store.cuh cub/util_ptx.cuh
    """,
    "cub/types.h": "cub/util_math.cuh cub/util_type.cuh",
    "cub/warp_reduce.h": "cub/warp/warp_reduce.cuh",
    "cub/warp_scan.h": "cub/warp/warp_scan.cuh",
    "cub/warp_sort.h": "cub/warp/warp_exchange.cuh cub/warp/warp_merge_sort.cuh",
    "cub/device/histogram.h": "cub/device/device_histogram.cuh",
    "cub/device/reduce.h": "cub/device/device_reduce.cuh cub/device/device_segmented_reduce.cuh",
    "cub/device/scan.h": "cub/device/device_scan.cuh",
    "cub/device/select.h": """
        cub/device/device_adjacent_difference.cuh cub/device/device_for.cuh
        cub/device/device_partition.cuh cub/device/device_run_length_encode.cuh
        cub/device/device_select.cuh
    """,
    "cub/device/sort.h": """
        cub/device/device_merge_sort.cuh cub/device/device_radix_sort.cuh
        cub/device/device_segmented_radix_sort.cuh cub/device/device_segmented_sort.cuh
    """,
    "thrust/algorithms.h": """
        thrust/adjacent_difference.h thrust/advance.h thrust/binary_search.h thrust/copy.h
        thrust/count.h thrust/distance.h thrust/equal.h thrust/extrema.h thrust/fill.h thrust/find.h
        thrust/for_each.h thrust/gather.h thrust/generate.h thrust/iterator/iterator_traits.h
        thrust/logical.h thrust/merge.h thrust/mismatch.h thrust/partition.h thrust/remove.h
        thrust/replace.h thrust/reverse.h thrust/scatter.h thrust/sequence.h thrust/set_operations.h
        thrust/tabulate.h thrust/transform.h thrust/unique.h
    """,
    "thrust/complex.h": "thrust/complex.h",
    "thrust/functional.h": "thrust/functional.h thrust/pair.h thrust/swap.h thrust/tuple.h",
    "thrust/iterators.h": """
        thrust/iterator/constant_iterator.h thrust/iterator/counting_iterator.h
        thrust/iterator/discard_iterator.h thrust/iterator/permutation_iterator.h
        thrust/iterator/reverse_iterator.h thrust/iterator/transform_iterator.h
        thrust/iterator/zip_iterator.h thrust/zip_function.h
    """,
    "thrust/memory.h": """
        thrust/device_allocator.h thrust/device_delete.h thrust/device_free.h thrust/device_malloc.h
        thrust/device_malloc_allocator.h thrust/device_new.h thrust/device_ptr.h
        thrust/device_reference.h thrust/device_vector.h thrust/host_vector.h thrust/memory.h
    """,
    "thrust/policy.h": """
        thrust/execution_policy.h thrust/version.h thrust/detail/config.h
        thrust/system/cuda/execution_policy.h thrust/system/cuda/detail/par.h
    """,
    "thrust/random.h": """
        thrust/random.h thrust/random/linear_congruential_engine.h
        thrust/random/normal_distribution.h thrust/random/uniform_int_distribution.h
        thrust/random/uniform_real_distribution.h
    """,
    "thrust/reduce.h": """
        thrust/inner_product.h thrust/reduce.h thrust/scan.h thrust/transform_reduce.h
        thrust/transform_scan.h
    """,
    "thrust/sort.h": "thrust/sort.h",
}
# A folder -> headers of the C++ library that it has under device code's names.
STANDARD = {
    "cuda": "bit numeric type_traits",
    "cuda/std": """
        algorithm array atomic bit bitset cassert cfloat chrono climits cmath complex concepts
        cstddef cstdint cstdlib cstring ctime functional initializer_list iterator latch limits
        memory new numbers numeric optional ranges ratio semaphore source_location span tuple
        type_traits utility variant version
    """,
}
# Headers that the CPU lacks: including one is an error that says so, with the cure.
LACKING = {
    "cuFFT does": "cufft.h cufftXt.h",
    "NVRTC does": "nvrtc.h",
    "CUTLASS does": "cute/tensor.hpp cutlass/cutlass.h",
    "cuda::barrier does": "cuda/barrier",
    "cuda::pipeline does": "cuda/pipeline",
    "the fp4 types do": "cuda_fp4.h",
    "the fp6 types do": "cuda_fp6.h",
    "the fp8 types do": "cuda_fp8.h",
}


def folder() -> Path:
    """Return the folder that has a file for each name, written if need be.

    Raises:
        PullbackError: PB201, no compiler; PB204, the disk is full.
    """
    plan = _plan(toolchain.find("c++"))
    if made := _find_made(plan):
        return made
    with compilation.explain_write_errors(plan), cache.lock(plan):
        return _find_made(plan) or _write(plan)


@functools.cache
def texts() -> dict[str, str]:
    """Return the text of each name's file."""
    lines: dict[str, list[str]] = defaultdict(lambda: ["#pragma once"])
    for ours, names in OURS.items():
        for name in names.split():
            lines[name].append(f'#include "{CSRC / ours}"')
    for where, names in STANDARD.items():
        for name in names.split():
            lines[f"{where}/{name}"] += [f"#include <{name}>", f'#include "{CSRC}/standard.h"']
    for lacking, names in LACKING.items():
        said = f"{lacking} not run on the CPU; guard its use with #ifndef CUDA_ON_CPU"
        for name in names.split():
            lines[name].append(f'#error "{name}: {said}"')
    return {name: "\n".join([*each, ""]) for name, each in lines.items()}


@functools.cache
def _plan(compiler: Compiler) -> BuildPlan:
    """Return the plan that identifies the cache entry: everything that is written."""
    unit = TranslationUnit("headers.json", json.dumps(texts()))
    return BuildPlan(
        name="cuda-on-cpu-headers", compiler=compiler, units=(unit,), sources=(), flags=(), abi=""
    )


def _find_made(plan: BuildPlan) -> Path | None:
    found = (entry / FOLDER for entry in cache.entries(plan.key))
    return next((path for path in found if path.is_dir()), None)


def _write(plan: BuildPlan) -> Path:
    """Write all files; the folder gets its name when they are on the disk."""
    target = cache.folder() / plan.key / FOLDER
    with cache.workspace(plan) as where:
        # A disk takes many files at once in the time of a few.
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(_write_one, (where / name for name in texts()), texts().values()))
        try:
            where.rename(target)
        except OSError:
            if not target.is_dir():  # as from another process, where the disk knows no locks
                raise
    return target


def _write_one(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
