"""Side by side with the peers: `python -m bench [--only part] [--quick]`.

Each module here is a part: its `run(quick)` measures and returns rows, which are printed as a table and
written to `results/<part>.json`. The harness starts two processes for each measurement and runs ours and the
peer's back to back; `peers` drives each library through its Python face; `native` is the compiled checker
that all of them share.
"""
