"""`python -m bench`: measures, prints tables, writes results."""

# Spawned processes import this module too: what only the command needs is imported in main.
from __future__ import annotations


def main() -> None:
    from bench.harness.command import command

    command()


if __name__ == "__main__":
    main()
