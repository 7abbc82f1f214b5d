"""One process that holds a log and a server of the mesh: its configuration (`Config`) and its life (`Node`).

A file of configuration and the options of `echomesh up` come in; a server that others can reach comes out.
"""
