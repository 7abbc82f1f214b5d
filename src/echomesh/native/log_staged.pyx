"""What a staged commit needs so that nobody comes in between: its rows count from the moment they have offsets."""

from libc.stdint cimport int64_t, uint8_t

from echomesh.native.log_window cimport Window, seen_t


cdef class CoveredWindow(Window):
    """A topic's window, and the rows of a commit that is being copied: the row number `i` has the offset `first + i`."""

    cdef readonly Window own
    cdef Window rows
    cdef int64_t first_row, time_ns

    def __init__(self, Window own not None, Window rows not None, int64_t first, int64_t time_ns):
        self.own = own
        self.rows = rows
        self.first_row = first
        self.time_ns = time_ns
        self.shrunk = own.shrunk or rows.shrunk

    def __len__(self):
        return len(self.own) + len(self.rows)

    cdef int64_t look(self, const uint8_t *event, int64_t size, int64_t now) noexcept nogil:
        cdef int64_t found = self.own.look(event, size, now)
        if found == -1:
            found = self.rows.look(event, size, now)
            if found >= 0:
                found += self.first_row
        return found

    cdef void keep(self, int64_t offset, int64_t now) noexcept nogil:
        self.own.keep(offset, now)
        self.shrunk = self.shrunk or self.own.shrunk

    def drop_from(self, int64_t offset) -> None:
        """Forgets events with this offset and later ones; the rows go with the commit's own answer."""
        self.own.drop_from(offset)

    def settle(self, int64_t limit) -> bool:
        """Moves so many rows into the topic's own window; True once all are there."""
        cdef Window own = self.own, rows = self.rows
        cdef seen_t *entry
        while limit > 0 and rows.first < rows.last:
            entry = &rows.ring[rows.first & (rows.room - 1)]
            own.hash[0] = entry.hash[0]
            own.hash[1] = entry.hash[1]
            # The one that came first counts.
            if own.room == 0 or not own.table[own.slot_of(own.hash)]:
                own.keep(self.first_row + entry.offset, self.time_ns)
            rows.remove(rows.first & (rows.room - 1))
            rows.first += 1
            limit -= 1
        if rows.shrunk:
            own.shrunk = True
        return rows.first >= rows.last


def note_unless_failed(log, list failures not None, payload, list topics not None) -> int:
    """Puts the note into the journal, unless appends were rolled back since the log had these failures: then -1.

    In Python another thread might roll back between the look and the note; here nobody else runs.
    """
    if log.failures is not failures:
        return -1
    return log.commits.note(payload, topics)


def put_back(log, list failures not None, topic, int64_t base, int64_t position, int64_t rows, int64_t time_ns) -> None:
    """Takes a reservation of so many rows back; when appends were rolled back since, the topic goes to its last commit."""
    if log.failures is failures:
        topic.roll(-1, base, position, 0)
        topic.reserve(position, -rows, time_ns)
    else:
        topic.roll_back()
