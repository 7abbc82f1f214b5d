from libc.stdint cimport int32_t, int64_t

cdef extern from "atomics.h" nogil:
    int32_t em_load32(const void *p)
    int64_t em_load64(const void *p)
    void em_store32(void *p, int32_t v)
    void em_store64(void *p, int64_t v)
    bint em_cas64(void *p, int64_t expected, int64_t desired)
    int64_t em_add64(void *p, int64_t v)
    int32_t em_add32(void *p, int32_t v)
    int32_t em_swap32(void *p, int32_t v)
    void em_fence()
    void em_acquire_fence()
    void em_release_fence()
    void em_relax()
    void em_yield()
    int64_t em_now_ns()
    int em_futex_wait(void *word, int32_t seen, int64_t timeout_ns)
    void em_futex_wake_all(void *word)
