/* CRC32C by the processor where it can, else by table; SipHash-2-4 with 128 bits; and where the `source` and `id` of an
 * event stand in its MessagePack bytes. */
#ifndef ECHOMESH_LOG_SUMS_H
#define ECHOMESH_LOG_SUMS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t em_crc_table[8][256];
static int em_crc_hardware = 0;

#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>
/* Each step waits three cycles for the one before it: three sums at a time, of neighbouring blocks of a length, hide that.
 * What a sum becomes when so many bytes follow is one multiplication: em_crc_skip has the factor by words of the length. */
#define EM_CRC_WORDS 256
static uint64_t em_crc_skip[EM_CRC_WORDS + 1];

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t em_crc_skipped(uint64_t c, size_t words) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c),
                                           _mm_cvtsi64_si128((long long)em_crc_skip[words]), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t em_crc_sse42(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t c = crc, word, c1, c2, word1, word2;
    while (n >= 96) {
        size_t words = n / 24 < EM_CRC_WORDS ? n / 24 : EM_CRC_WORDS, block = words * 8;
        c1 = c2 = 0;
        for (const uint8_t *end = p + block; p < end; p += 8) {
            memcpy(&word, p, 8);
            memcpy(&word1, p + block, 8);
            memcpy(&word2, p + 2 * block, 8);
            c = _mm_crc32_u64(c, word);
            c1 = _mm_crc32_u64(c1, word1);
            c2 = _mm_crc32_u64(c2, word2);
        }
        c = em_crc_skipped(em_crc_skipped(c, words) ^ c1, words) ^ c2;
        p += 2 * block;
        n -= 3 * block;
    }
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        c = _mm_crc32_u64(c, word);
    }
    if (n & 4) {
        uint32_t half;
        memcpy(&half, p, 4);
        c = _mm_crc32_u32((uint32_t)c, half);
        p += 4;
    }
    if (n & 2) {
        uint16_t quarter;
        memcpy(&quarter, p, 2);
        c = _mm_crc32_u16((uint32_t)c, quarter);
        p += 2;
    }
    if (n & 1) c = _mm_crc32_u8((uint32_t)c, *p);
    return (uint32_t)c;
}
#endif

static uint32_t em_crc_by_table(uint32_t c, const uint8_t *p, size_t n) {
    uint32_t low, high;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&low, p, 4);
        memcpy(&high, p + 4, 4);
        low ^= c;
        c = em_crc_table[7][low & 255] ^ em_crc_table[6][(low >> 8) & 255] ^ em_crc_table[5][(low >> 16) & 255] ^
            em_crc_table[4][low >> 24] ^ em_crc_table[3][high & 255] ^ em_crc_table[2][(high >> 8) & 255] ^
            em_crc_table[1][(high >> 16) & 255] ^ em_crc_table[0][high >> 24];
    }
    for (; n; p++, n--) c = em_crc_table[0][(c ^ *p) & 255] ^ (c >> 8);
    return c;
}

/* Called when a module that uses this header is loaded, before any sum. */
static inline void em_crc_setup(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? (c >> 1) ^ 0x82F63B78u : c >> 1;
        em_crc_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            em_crc_table[k][i] = (em_crc_table[k - 1][i] >> 8) ^ em_crc_table[0][em_crc_table[k - 1][i] & 255];
#if defined(__x86_64__)
    __builtin_cpu_init();
    em_crc_hardware = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") ? 1 : 0;
    /* x to the power of 64 * words - 33: the product of two sums has a bit less than 64, and the sum of it adds 32. */
    uint32_t power = 1; /* x^31, for one word */
    for (int words = 1; words <= EM_CRC_WORDS; words++) {
        em_crc_skip[words] = power;
        for (int i = 0; i < 64; i++) power = power & 1 ? (power >> 1) ^ 0x82F63B78u : power >> 1;
    }
#endif
}

/* Goes on from the sum of what came before; the first call has 0. */
static inline uint32_t em_crc32c(uint32_t before, const void *data, size_t size) {
#if defined(__x86_64__)
    if (em_crc_hardware) return ~em_crc_sse42(~before, (const uint8_t *)data, size);
#endif
    return ~em_crc_by_table(~before, (const uint8_t *)data, size);
}

/* The memory there will be wanted soon. */
static inline void em_prefetch(const void *at) { __builtin_prefetch(at); }

/* So many bytes will be written there. */
static inline void em_prefetch_ahead(const void *at, size_t size) {
    for (size_t i = 0; i < size; i += 64) __builtin_prefetch((const char *)at + i, 1);
}

typedef struct {
    uint64_t v0, v1, v2, v3, tail, length;
} em_sip;

#define EM_ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
static inline void em_sip_round(em_sip *s) {
    s->v0 += s->v1; s->v1 = EM_ROTL(s->v1, 13); s->v1 ^= s->v0; s->v0 = EM_ROTL(s->v0, 32);
    s->v2 += s->v3; s->v3 = EM_ROTL(s->v3, 16); s->v3 ^= s->v2;
    s->v0 += s->v3; s->v3 = EM_ROTL(s->v3, 21); s->v3 ^= s->v0;
    s->v2 += s->v1; s->v1 = EM_ROTL(s->v1, 17); s->v1 ^= s->v2; s->v2 = EM_ROTL(s->v2, 32);
}

static inline void em_sip_word(em_sip *s, uint64_t word) {
    s->v3 ^= word;
    em_sip_round(s);
    em_sip_round(s);
    s->v0 ^= word;
}

/* SipHash-2-4 with a result of 128 bits. */
static inline void em_siphash128(const uint8_t key[16], const uint8_t *p, size_t n, uint64_t out[2]) {
    uint64_t k0, k1, word;
    em_sip s;
    memcpy(&k0, key, 8);
    memcpy(&k1, key + 8, 8);
    s.v0 = 0x736f6d6570736575ull ^ k0;
    s.v1 = 0x646f72616e646f6dull ^ k1 ^ 0xee;
    s.v2 = 0x6c7967656e657261ull ^ k0;
    s.v3 = 0x7465646279746573ull ^ k1;
    uint64_t last = (uint64_t)n << 56;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        em_sip_word(&s, word);
    }
    for (size_t i = 0; i < n; i++) last |= (uint64_t)p[i] << (8 * i);
    em_sip_word(&s, last);
    s.v2 ^= 0xee;
    for (int i = 0; i < 4; i++) em_sip_round(&s);
    out[0] = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    s.v1 ^= 0xdd;
    for (int i = 0; i < 4; i++) em_sip_round(&s);
    out[1] = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

static inline uint64_t em_big(const uint8_t *p, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | p[i];
    return value;
}

/* The bytes that a MessagePack value at p takes, with no array or map in it; 0 when it is none or does not end in time.
 * body and body_size tell the content of a str or bin. */
static inline size_t em_msgpack_flat(const uint8_t *p, size_t left, const uint8_t **body, size_t *body_size) {
    size_t head = 1, size = 0;
    uint8_t t;
    *body = NULL;
    *body_size = 0;
    if (!left) return 0;
    t = p[0];
    if (t >= 0xa0 && t <= 0xbf) size = t & 31;
    else if (t < 0x80 || t >= 0xe0 || t == 0xc0 || t == 0xc2 || t == 0xc3) return 1;
    else if (t == 0xc4 || t == 0xd9 || t == 0xc7) head = 2;
    else if (t == 0xc5 || t == 0xda || t == 0xc8) head = 3;
    else if (t == 0xc6 || t == 0xdb || t == 0xc9) head = 5;
    else if (t >= 0xd4 && t <= 0xd8) return left >= 2 + (1u << (t - 0xd4)) ? 2 + (1u << (t - 0xd4)) : 0;
    else if (t == 0xcc || t == 0xd0) return left >= 2 ? 2 : 0;
    else if (t == 0xcd || t == 0xd1) return left >= 3 ? 3 : 0;
    else if (t == 0xce || t == 0xd2 || t == 0xca) return left >= 5 ? 5 : 0;
    else if (t == 0xcf || t == 0xd3 || t == 0xcb) return left >= 9 ? 9 : 0;
    else return 0;
    if (head > 1) {
        if (left < head) return 0;
        size = em_big(p + 1, (int)head - 1);
        if (t >= 0xc7 && t <= 0xc9) head++; /* ext: its type byte */
    }
    if (left < head || left - head < size) return 0;
    *body = p + head;
    *body_size = size;
    return head + size;
}

/* 1 and where `source` and `id` are, or 0 when these bytes are no flat map with both of them. */
static inline int em_find_identity(const uint8_t *p, size_t n, const uint8_t **source, size_t *source_size,
                                   const uint8_t **id, size_t *id_size) {
    size_t i = 0, step, key_size, value_size;
    const uint8_t *key, *value;
    uint64_t count;
    int found = 0;
    if (!n) return 0;
    if ((p[0] & 0xf0) == 0x80) { count = p[0] & 15; i = 1; }
    else if (p[0] == 0xde && n >= 3) { count = em_big(p + 1, 2); i = 3; }
    else if (p[0] == 0xdf && n >= 5) { count = em_big(p + 1, 4); i = 5; }
    else return 0;
    for (; count && found != 3; count--) {
        if (!(step = em_msgpack_flat(p + i, n - i, &key, &key_size)) || !key) return 0;
        i += step;
        if (!(step = em_msgpack_flat(p + i, n - i, &value, &value_size))) return 0;
        i += step;
        if (value && key_size == 6 && !memcmp(key, "source", 6)) {
            *source = value; *source_size = value_size; found |= 1;
        } else if (value && key_size == 2 && !memcmp(key, "id", 2)) {
            *id = value; *id_size = value_size; found |= 2;
        }
    }
    return found == 3;
}

#define EM_SOURCE_BYTES 104

/* The last source, and the key that it makes for the ids beside it: most events have the one of the event before. */
typedef struct {
    uint64_t key[2];
    size_t size;
    uint8_t source[EM_SOURCE_BYTES];
} em_source;

/* The 128 bits by which the duplicate window knows an event; 0 when the bytes name no source and id. `last` begins with
 * zeros, and belongs to one key. */
static inline int em_identity(const uint8_t key[16], em_source *last, const uint8_t *p, size_t n, uint64_t out[2]) {
    const uint8_t *source = NULL, *id = NULL;
    size_t source_size = 0, id_size = 0;
    if (!em_find_identity(p, n, &source, &source_size, &id, &id_size)) return 0;
    /* The source's hash is the key for the id: no joint of the two can be mistaken for another one. */
    if (!source_size || source_size != last->size || memcmp(source, last->source, source_size)) {
        em_siphash128(key, source, source_size, last->key);
        last->size = source_size <= EM_SOURCE_BYTES ? source_size : 0;
        memcpy(last->source, source, last->size);
    }
    em_siphash128((const uint8_t *)last->key, id, id_size, out);
    return 1;
}

#endif
