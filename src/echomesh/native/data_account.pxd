from libc.stdint cimport int64_t

from echomesh.native.data_frames cimport WINDOW_BYTES
from echomesh.native.data_home cimport Home
from echomesh.native.data_message cimport Origin
from echomesh.native.streams cimport Outlet


cdef class Account(Origin):
    cdef Home home
    cdef readonly Outlet outlet
    cdef readonly int64_t stream_id
    cdef readonly int window
    cdef readonly bint open
    cdef readonly int64_t taken, limit
    cdef int64_t told, taken_bytes, told_bytes
    cdef list released

    cdef int owe_credit(self) except -1
    cdef bint give_credit(self) except -1
    cdef void drop(self, int64_t token) noexcept
    cdef bint put_back(self, int64_t token) except -1
    cdef bint give_back(self) except -1


# Inline, since each message comes by here. `noexcept` where there are numbers of C alone, and nothing that could raise.

cdef enum:
    CREDITS_A_WINDOW = 4


cdef inline bint is_due(Account account) noexcept:
    # Credit is told in few frames, and soon enough for the publisher not to wait for it.
    return (account.taken - account.told) * CREDITS_A_WINDOW >= account.window \
        or (account.taken_bytes - account.told_bytes) * CREDITS_A_WINDOW >= WINDOW_BYTES


cdef inline int took(Account account, int64_t cost) except -1:
    account.taken += 1
    account.taken_bytes += cost
    return account.owe_credit() if is_due(account) else 0
