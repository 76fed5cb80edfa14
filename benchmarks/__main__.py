"""Run all benchmarks: `python -m benchmarks`."""

import warnings

from benchmarks import call, edit, start

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    call.main()
    edit.main()
    start.main()
