"""Run all benchmarks: `python -m benchmarks`."""

import warnings

from benchmarks import adopt, call, check, cuda, edit, formula, start

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    call.main()
    adopt.main()
    edit.main()
    start.main()
    formula.main()
    cuda.main()
    check.main()
