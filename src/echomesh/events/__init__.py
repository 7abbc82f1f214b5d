"""Events: what sessions publish, the log keeps and Spark reads.

`Event` is a CloudEvent 1.0. Its MessagePack bytes (`encode`, `decode`) are what travels and what is stored;
JSON, HTTP and the objects of the CloudEvents SDK come in and go out beside them. `rules` holds the standard,
`wire` the bytes, `formats` the other forms.
"""

from echomesh.events.event import Event
from echomesh.events.rules import Attribute

__all__ = ["Attribute", "Event"]
