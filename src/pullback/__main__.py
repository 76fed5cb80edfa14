"""`python -m pullback`: the command line, where its script is not on the PATH."""

from pullback.cli import main

main()
