"""`python -m extproc` is `forebay`."""

from extproc.cli import main

main()
