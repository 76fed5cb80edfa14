"""`python -m pullback`: the command line, for when its script is not on the PATH."""

from pullback.cli import main

main()
