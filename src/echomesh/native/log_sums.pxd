from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "log_sums.h" nogil:
    int em_crc_hardware
    void em_crc_setup()
    uint32_t em_crc32c(uint32_t before, const void *data, size_t size)
    uint32_t em_crc_by_table(uint32_t crc, const uint8_t *p, size_t n)
    ctypedef struct em_source:
        pass
    int em_identity(const uint8_t *key, em_source *last, const uint8_t *p, size_t n, uint64_t *out)
    void em_prefetch(const void *at)
