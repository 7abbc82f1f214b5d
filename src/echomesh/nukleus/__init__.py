"""Nuklei: processes of one machine that exchange streams through memory-mapped rings, steered by control files.

In come commands (CAPTURE, ROUTE, BIND ...) from controllers and stream events (BEGIN, DATA, END, RESET) from peers; a
handler says what becomes of them. `Echo` is the smallest one.
"""

from echomesh.nukleus.control import SMALL, Capacities
from echomesh.nukleus.controller import Controller
from echomesh.nukleus.directory import Directory
from echomesh.nukleus.echo import Echo
from echomesh.nukleus.nukleus import Nukleus
from echomesh.nukleus.streams import Handler, Stream

__all__ = ["SMALL", "Capacities", "Controller", "Directory", "Echo", "Handler", "Nukleus", "Stream"]
