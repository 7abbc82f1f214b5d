"""The counters of Agrona: numbers with labels that any process can read while they change."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from echomesh.errors import CountersFull, MessageTooLarge, RingDamaged, UsageError
from echomesh.native.atomics cimport em_add64, em_load32, em_load64, em_store32, em_store64
from echomesh.native.mapping cimport Mapping

cdef enum:
    SLOT = 128
    LABEL_LIMIT = 124
    FREED = -1


cdef class Counters:
    """A table of labelled numbers in two parts of a mapped file. One process allocates; all may read."""

    cdef Mapping label_mapping, value_mapping
    cdef char *labels
    cdef char *values
    cdef readonly int64_t slots

    def __init__(self, Mapping labels not None, Mapping values not None, int64_t labels_at=0, int64_t values_at=0,
                 labels_length=None, values_length=None):
        cdef int64_t label_bytes = labels.size - labels_at if labels_length is None else labels_length
        cdef int64_t value_bytes = values.size - values_at if values_length is None else values_length
        if labels_at < 0 or values_at < 0 or (labels_at | values_at) & 7 or label_bytes < 0 or value_bytes < 0 \
                or label_bytes > labels.size - labels_at or value_bytes > values.size - values_at:
            raise RingDamaged(f"{labels.path}: its counters reach beyond the file")
        self.label_mapping = labels
        self.value_mapping = values
        self.labels = labels.base + labels_at
        self.values = values.base + values_at
        self.slots = min(label_bytes, value_bytes) // SLOT

    def allocate(self, str label):
        """A new counter at 0, in the first slot that was freed, else in a new one."""
        cdef bytes text = label.encode()
        cdef int64_t slot
        cdef char *at
        if not (self.label_mapping.writable and self.value_mapping.writable):
            raise UsageError(f"{self.label_mapping.path} is mapped for reading only")
        if not text:
            raise UsageError("a counter needs a label")
        if len(text) > LABEL_LIMIT:
            raise MessageTooLarge(len(text), LABEL_LIMIT, "a counter's label")
        for slot in range(self.slots):
            at = self.labels + slot * SLOT
            if em_load32(at) <= 0:
                em_store64(self.values + slot * SLOT, 0)
                memcpy(at + 4, <char *>text, len(text))
                em_store32(at, <int32_t>len(text))
                return self.counter(slot)
        raise CountersFull(self.slots)

    cdef Counter counter(self, int64_t slot):
        cdef Counter made = Counter.__new__(Counter)
        made.table = self
        made.id = slot
        made.value_at = self.values + slot * SLOT
        return made

    def free(self, Counter counter not None) -> None:
        """Gives the counter's slot back; its value stays until somebody takes it."""
        if counter.table is not self:
            raise UsageError("a counter of another table")
        em_store32(self.labels + counter.id * SLOT, FREED)

    def list(self) -> list:
        """All counters as (id, label, value)."""
        cdef int64_t slot
        cdef int32_t length
        cdef char *at
        found = []
        for slot in range(self.slots):
            at = self.labels + slot * SLOT
            length = em_load32(at)
            if length == 0:
                break
            if length > LABEL_LIMIT:
                raise RingDamaged(f"{self.label_mapping.path}: counter {slot} has a label of {length} bytes")
            if length > 0:
                label = PyBytes_FromStringAndSize(at + 4, length).decode(errors="replace")
                found.append((slot, label, em_load64(self.values + slot * SLOT)))
        return found


cdef class Counter:
    """One number of a table."""

    cdef Counters table
    cdef char *value_at
    cdef readonly int64_t id

    @property
    def value(self) -> int:
        """The number now."""
        return em_load64(self.value_at)

    @value.setter
    def value(self, int64_t value):
        em_store64(self.value_at, value)

    def add(self, int64_t count=1) -> None:
        """Adds to it, safely from any thread or process."""
        em_add64(self.value_at, count)
