from echomesh.native.log_frame cimport topic_t
from echomesh.native.log_window cimport Window


cdef class Topic:
    cdef topic_t core
    cdef readonly list marks        # entries for the index that are not yet in its file
    cdef public Window window       # against duplicates, or None
    cdef public bint journaled      # whether its appends wait for the disk
