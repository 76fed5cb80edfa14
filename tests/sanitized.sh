#!/usr/bin/env bash
# Runs the tests of calls, autograd, formulas and bad input with the runtime, the kernels and the loops
# compiled by g++ with AddressSanitizer and UndefinedBehaviorSanitizer; a finding ends the process.
#
#     tests/sanitized.sh                                  all of them
#     tests/sanitized.sh tests/bind/test_saved.py -k hook   what pytest is given instead
set -euo pipefail
cd "$(dirname "$0")/.."

# A virtual function's class is known by another copy of its type information in PyTorch's libraries.
checks="-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined"
export CXX="g++ $checks -O1 -g1"
# The interpreter has to begin with the sanitizer, which looks for C++'s way to throw at its start.
export LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)"
# Python and PyTorch leave much to the end of the process.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1

asked=(
  tests/bind/test_forward.py tests/bind/test_derivatives.py tests/bind/test_saved.py
  tests/bind/test_bad_input.py tests/bind/test_bad_derivatives.py tests/bind/test_bad_formulas.py
  tests/bind/test_formula.py tests/bind/test_formula_runtime.py tests/bind/test_formula_types.py
  tests/bind/test_definition.py tests/bind/test_random_calls.py
  tests/kernels/test_vector_math.py -k "not exact"
)
if (($#)); then asked=("$@"); fi
exec python -m pytest -q -p no:cacheprovider "${asked[@]}"
