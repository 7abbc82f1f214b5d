from libc.stdint cimport int64_t

from echomesh.native.data_frames cimport frame_t
from echomesh.native.data_home cimport Home
from echomesh.native.pool cimport Lease
from echomesh.native.streams cimport Outlet, Taker


cdef class Target(Taker):
    cdef readonly Home home
    cdef readonly Outlet outlet
    cdef readonly int64_t stream_id
    cdef readonly int64_t next, sent, taken, limit
    cdef int64_t sent_bytes, byte_limit
    cdef bint lags
    cdef readonly bint open
    cdef readonly dict ledger
    cdef readonly int64_t lent
    cdef public int64_t lent_limit
    cdef set segments

    cdef bint put(self, frame_t *frame, const char *first, int64_t first_length, const char *second, int64_t second_length) except -1
    cdef void lag(self) noexcept
    cdef bint may(self, int64_t sequence) noexcept
    cdef bint give(self, frame_t *frame, const char *prefix, const char *data, int64_t length) except -1
    cdef bint lend(self, frame_t *frame, const char *prefix, Lease lease) except -1
