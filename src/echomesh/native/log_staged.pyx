"""The duplicate window while a staged commit is copied: its rows count from the moment they have offsets."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from echomesh.native.log_window cimport Window, seen_t


cdef class CoveredWindow(Window):
    """A topic's window, and the rows of a commit that is being copied: the row number `i` has the offset `first + i`."""

    cdef readonly Window own
    cdef Window rows
    cdef int64_t first_row, time_ns

    def __init__(self, Window own not None, Window rows not None, int64_t first, int64_t time_ns):
        self.own = own
        self.rows = rows
        memcpy(self.key, own.key, 16)
        self.first_row = first
        self.time_ns = time_ns
        self.shrunk = own.shrunk or rows.shrunk

    def __len__(self):
        return len(self.own) + len(self.rows)

    cdef void expect(self, const uint64_t *hash) noexcept nogil:
        self.own.expect(hash)
        self.rows.expect(hash)

    cdef int64_t look(self, const uint64_t *hash, int64_t now) noexcept nogil:
        cdef int64_t found = self.own.look(hash, now)
        if found == -1:
            found = self.rows.look(hash, now)
            if found >= 0:
                found += self.first_row
        return found

    cdef void keep(self, const uint64_t *hash, int64_t offset, int64_t now) noexcept nogil:
        self.own.keep(hash, offset, now)
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
            # The one that came first counts.
            if own.room == 0 or not own.table[own.slot_of(entry.hash)]:
                own.keep(entry.hash, self.first_row + entry.offset, self.time_ns)
            rows.remove_first()
            limit -= 1
        if rows.shrunk:
            own.shrunk = True
        return rows.first >= rows.last
