/* C11 atomics on plain mapped memory, and the two system calls of a doorbell.
 * Values in the files are little endian, which is the order of every machine this builds for. */
#ifndef ECHOMESH_ATOMICS_H
#define ECHOMESH_ATOMICS_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "echomesh's shared files are little endian"
#endif

static inline int32_t em_load32(const void *p) {
    return atomic_load_explicit((const _Atomic int32_t *)p, memory_order_acquire);
}
static inline int64_t em_load64(const void *p) {
    return atomic_load_explicit((const _Atomic int64_t *)p, memory_order_acquire);
}
static inline void em_store32(void *p, int32_t v) {
    atomic_store_explicit((_Atomic int32_t *)p, v, memory_order_release);
}
static inline void em_store64(void *p, int64_t v) {
    atomic_store_explicit((_Atomic int64_t *)p, v, memory_order_release);
}
static inline int em_cas64(void *p, int64_t expected, int64_t desired) {
    return atomic_compare_exchange_strong((_Atomic int64_t *)p, &expected, desired);
}
static inline int64_t em_add64(void *p, int64_t v) {
    return atomic_fetch_add((_Atomic int64_t *)p, v);
}
static inline int32_t em_add32(void *p, int32_t v) {
    return atomic_fetch_add((_Atomic int32_t *)p, v);
}
static inline int32_t em_swap32(void *p, int32_t v) {
    return atomic_exchange((_Atomic int32_t *)p, v);
}
static inline void em_fence(void) { atomic_thread_fence(memory_order_seq_cst); }
static inline void em_acquire_fence(void) { atomic_thread_fence(memory_order_acquire); }
static inline void em_release_fence(void) { atomic_thread_fence(memory_order_release); }

static inline void em_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline void em_yield(void) { sched_yield(); }

static inline int64_t em_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Sleeps while *word == seen, at most timeout_ns (negative: for ever). Returns 0, or the errno. */
static inline int em_futex_wait(void *word, int32_t seen, int64_t timeout_ns) {
    struct timespec t, *limit = NULL;
    if (timeout_ns >= 0) {
        t.tv_sec = timeout_ns / 1000000000;
        t.tv_nsec = timeout_ns % 1000000000;
        limit = &t;
    }
    return syscall(SYS_futex, word, FUTEX_WAIT, seen, limit, NULL, 0) == 0 ? 0 : errno;
}

static inline void em_futex_wake_all(void *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

#endif
