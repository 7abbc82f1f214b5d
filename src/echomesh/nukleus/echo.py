"""The Echo nukleus: whatever comes in on a stream goes out on the correlated one."""

from __future__ import annotations

from echomesh.nukleus.streams import Stream


class Echo:
    """A handler that echoes. It accepts streams, and echoes on those that it was told to initiate too."""

    def on_begin(self, stream: Stream) -> None:
        """Opens the way back, unless it was us who opened the way there."""
        if not stream.initiated:
            stream.reply()

    def on_data(self, stream: Stream, payload: memoryview) -> None:
        """Sends the same bytes back."""
        stream.send(payload)

    def on_end(self, stream: Stream) -> None:
        """Ends the way back too."""
        stream.end()

    def on_reset(self, stream: Stream) -> None:
        """Nothing is kept for a stream, so nothing is to be done."""
