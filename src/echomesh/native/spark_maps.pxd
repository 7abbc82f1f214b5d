# Pages of files from which small records are copied, thousands at once: to read each takes a call of the kernel, and that
# takes three times as long as to copy it.

from libc.stdint cimport int64_t
from posix.mman cimport MAP_FAILED, MAP_FIXED, MAP_SHARED, PROT_READ, mmap, munmap

cdef enum:
    PAGE = 4096
    WINDOW = 16 * PAGE      # of a file: thousands of them share the tables of the kernel
    SMALL = PAGE // 4       # what is larger is in another page each time, and to touch that costs as much as to read it


cdef struct window_t:
    # A map of some of a file. Nobody loads from it: a page that is not there any more would end the process.
    char *start
    int64_t begin           # what it has of the file
    bint never              # there can't be one


cdef inline char *mapped(window_t *window, int fd, int64_t position, int64_t size) noexcept nogil:
    # This part of the file in the window, which moves there; NULL if it is better read.
    cdef int64_t begin = position & -PAGE
    cdef void *made
    if size > SMALL or position + size > begin + PAGE or window.never:
        return NULL
    if window.start == NULL or begin < window.begin or begin >= window.begin + WINDOW:
        made = mmap(window.start, WINDOW, PROT_READ, MAP_SHARED | (MAP_FIXED if window.start != NULL else 0), fd, begin)
        if made == MAP_FAILED:
            unmap(window)
            window.never = True
            return NULL
        window.start = <char *>made
        window.begin = begin
    return window.start + (position - window.begin)


cdef inline void unmap(window_t *window) noexcept nogil:
    if window.start != NULL:
        munmap(window.start, WINDOW)
    window.start = NULL
    window.never = False
