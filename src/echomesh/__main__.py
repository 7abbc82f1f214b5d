"""`python -m echomesh` is the command line."""

from echomesh.cli import main

if __name__ == "__main__":
    main()
