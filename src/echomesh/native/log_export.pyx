"""Columns handed to Arrow by its C data interface: all of a batch in one call, whatever the number of columns."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport calloc, free

from echomesh.native.log_blocks cimport Block
from echomesh.native.log_columns cimport ATTRIBUTES

cdef extern from "Python.h":
    bint Py_IsInitialized() nogil

cdef struct ArrowArray:
    int64_t length, null_count, offset, n_buffers, n_children
    const void **buffers
    ArrowArray **children
    ArrowArray *dictionary
    void (*release)(ArrowArray *) noexcept nogil
    void *private_data

cdef enum:
    MOST = 20       # the batch, its columns, and the three arrays inside of a map

cdef struct tree_t:
    ArrowArray nodes[MOST]
    ArrowArray *children[MOST]
    const void *buffers[MOST][3]
    int count, child_count
    PyObject *owner                 # of all the memory


cdef void release_part(ArrowArray *array) noexcept nogil:
    array.release = NULL


cdef void release_batch(ArrowArray *array) noexcept nogil:
    cdef tree_t *tree = <tree_t *>array.private_data
    array.release = NULL
    if Py_IsInitialized():
        with gil:
            Py_DECREF(<object>tree.owner)
    free(tree)


cdef ArrowArray *add(tree_t *tree, int64_t length, int buffers) noexcept:
    cdef ArrowArray *made = &tree.nodes[tree.count]
    made.length = length
    made.n_buffers = buffers
    made.buffers = tree.buffers[tree.count]
    made.release = release_part
    tree.count += 1
    return made


cdef void add_buffer(ArrowArray *array, int number, Block block) noexcept:
    if block is None:
        return
    array.buffers[number] = block.data
    if number == 0:
        array.null_count = -1       # not counted


cdef void adopt(tree_t *tree, ArrowArray *parent, ArrowArray *child) noexcept:
    # Children of one parent are adopted one behind the other.
    if parent.n_children == 0:
        parent.children = &tree.children[tree.child_count]
    tree.children[tree.child_count] = child
    tree.child_count += 1
    parent.n_children += 1


cdef ArrowArray *add_text(tree_t *tree, int64_t length, Block valid, Block ends, Block data) noexcept:
    cdef ArrowArray *made = add(tree, length, 3)
    add_buffer(made, 0, valid)
    add_buffer(made, 1, ends)
    add_buffer(made, 2, data)
    return made


cdef ArrowArray *add_map(tree_t *tree, int64_t rows, tuple found) noexcept:
    cdef ArrowArray *made = add(tree, rows, 2)
    cdef int64_t entries = found[2]
    cdef ArrowArray *pairs = add(tree, entries, 1)
    add_buffer(made, 1, found[1])
    adopt(tree, made, pairs)
    adopt(tree, pairs, add_text(tree, entries, None, found[3][0], found[3][1]))
    adopt(tree, pairs, add_text(tree, entries, None, found[4][0], found[4][1]))
    return made


def export(int64_t rows, dict buffers not None, list numbers not None) -> int:
    """The address of an ArrowArray of these columns, as `Columns.take` gave them; for whoever imports it, once."""
    cdef tree_t *tree
    cdef ArrowArray *columns[MOST]
    cdef ArrowArray *batch
    cdef ArrowArray *column
    cdef tuple found
    cdef int i, count = len(numbers)
    if count > MOST - 4:
        raise ValueError(f"{count} columns")
    tree = <tree_t *>calloc(1, sizeof(tree_t))
    if tree == NULL:
        raise MemoryError
    batch = add(tree, rows, 1)
    for i in range(count):
        found = buffers[numbers[i]]
        if numbers[i] == ATTRIBUTES:
            columns[i] = add_map(tree, rows, found)
        elif len(found) == 3:
            columns[i] = add_text(tree, rows, found[0], found[1], found[2])
        else:
            column = columns[i] = add(tree, rows, 2)
            add_buffer(column, 0, found[0])
            add_buffer(column, 1, found[1])
    for i in range(count):
        adopt(tree, batch, columns[i])
    batch.release = release_batch
    batch.private_data = tree
    tree.owner = <PyObject *>buffers
    Py_INCREF(buffers)
    return <uintptr_t>batch
