"""CRC32C, and the 128-bit hash by which the duplicate window knows an event."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from echomesh.native.log_sums cimport (
    em_crc32c, em_crc_by_table, em_crc_hardware, em_crc_setup, em_identity, em_source,
)

em_crc_setup()

HARDWARE = bool(em_crc_hardware)

cdef uint32_t STEPS[256]        # what a byte does to the sum
cdef uint8_t BY_TOP[256]        # which byte did it, by the highest byte of that
cdef uint32_t POLYNOMIAL = 0x82F63B78


cdef void set_up() noexcept:
    cdef uint32_t i, k, sum
    for i in range(256):
        sum = i
        for k in range(8):
            sum = (sum >> 1) ^ (POLYNOMIAL if sum & 1 else 0)
        STEPS[i] = sum
        BY_TOP[sum >> 24] = <uint8_t>i


set_up()


def crc32c(const uint8_t[::1] data, uint32_t before=0) -> int:
    """The CRC32C of the bytes, going on from the sum of those `before`."""
    cdef size_t size = data.shape[0]
    cdef const void *start = &data[0] if size else NULL
    cdef uint32_t result
    with nogil:
        result = em_crc32c(before, start, size)
    return result


def crc32c_by_table(const uint8_t[::1] data) -> int:
    """The same sum without the processor's help, as other machines do it."""
    cdef size_t size = data.shape[0]
    return <uint32_t>~em_crc_by_table(<uint32_t>~0, &data[0] if size else NULL, size)


def identity(const uint8_t[::1] key, const uint8_t[::1] event):
    """The hash of an encoded event's source and id under a key of 16 bytes; None when it names none."""
    cdef uint64_t out[2]
    cdef em_source none
    if key.shape[0] != 16:
        raise ValueError(f"the key has {key.shape[0]} bytes, not 16")
    memset(&none, 0, sizeof(none))
    if event.shape[0] == 0 or not em_identity(&key[0], &none, &event[0], event.shape[0], out):
        return None
    return (<bytes>(<char *>out)[:16])


def flipped_bit(int64_t size, uint32_t difference) -> int:
    """Which bit of `size` bytes was flipped when their CRC32C differs so from the one it should be; -1: more than one.

    What a flipped bit does to the sum does not depend on the other bits, and no two of them do the same.
    """
    cdef int64_t byte
    cdef uint32_t sum = difference
    cdef int bit, found = -1
    cdef uint8_t last
    with nogil:
        for byte in range(size - 1, -1, -1):
            for bit in range(8):
                if sum == STEPS[1 << bit]:
                    found = bit
            if found >= 0:
                break
            last = BY_TOP[sum >> 24]
            sum = ((sum ^ STEPS[last]) << 8) | last
    return byte * 8 + found if found >= 0 else -1
