"""The data plane: publishers and subscribers of machines that find each other, and shared memory between processes.

A participant for each machine sends beacons, knows its processes' publishers and subscribers and those of the other
participants, matches them by topic, and wires the nuklei of processes of its own machine to each other.
"""
