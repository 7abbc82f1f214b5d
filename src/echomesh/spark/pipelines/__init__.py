"""Pipelines: topics in, a function of DataFrames, topics and tables out, run and looked after.

`define` says what a pipeline is, `load` finds one in a user's file, `ready` has those that come with echomesh.
`runner` runs one: `build` makes its DataFrames, `queries` starts them, `registry` keeps what `echomesh pipeline ls`
shows. What needs no Spark is imported without it.
"""
