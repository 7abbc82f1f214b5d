"""The compiled core: memory-mapped files, rings, broadcast buffers, counters and the doorbells that wake their users.

In come file paths and bytes, out come messages; nothing here knows what a message means. Everything that is not on a
hot path stands in the rooms above, in Python.
"""
