/* base: what every other room uses.
 *
 * What it is for: error helpers, overflow-checked sizes, growable arrays and strings, files (map,
 * read, atomic write), hashing, counter-based randomness, half-precision conversion, the tree in
 * which sums are added (sum_tree.h), a hash table of names (name_table.h), time and JSON text.
 * Nothing here knows what a tensor, a model or a config is.
 *
 * Who owns what: every `_init`/`_open`/`_read` has a matching `_free`/`_close`; the caller owns
 * what it received. Functions that can fail return by_status and fill a by_error; those that
 * cannot return plain values.
 *
 * Determinism: randomness is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011), a pure function of key and counter, so nothing depends on thread or time.
 *
 * Never put here: global mutable state, threads that outlive a call, anything that prints, any
 * include of another room.
 */
#ifndef BY_BASE_BASE_H
#define BY_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "banyan/status.h"
#include "banyan/text.h"

/* Returns the status of `expr` from the calling function unless it is BY_OK. */
#define BY_TRY(expr)                                                                               \
    do {                                                                                           \
        by_status try_status = (expr);                                                             \
        if (try_status != BY_OK) {                                                                 \
            return try_status;                                                                     \
        }                                                                                          \
    } while (0)

#define BY_ARRAY_LENGTH(a) (sizeof(a) / sizeof((a)[0]))
#define BY_UNUSED(x)       ((void)(x))
#define BY_CACHE_LINE      64u

/* ---- sizes (size.c) ---- */

/* *out = a * b and a + b; false (and *out untouched) when the result does not fit. */
bool by__size_mul(size_t a, size_t b, size_t *out);
bool by__size_add(size_t a, size_t b, size_t *out);
/* Rounds n up to a multiple of `unit` (a power of two). The caller knows that it fits. */
static inline size_t by__round_up(size_t n, size_t unit)
{
    return (n + unit - 1) & ~(unit - 1);
}
/* malloc of count * size bytes, zeroed. BY_EMEMORY (naming `what`) when it overflows or fails. */
by_status by__alloc(void **out, size_t count, size_t size, const char *what, by_error *error);
/* The same, uninitialised, on a 64-byte boundary. Freed with free(). */
by_status by__alloc_aligned(void **out, size_t bytes, const char *what, by_error *error);
/* Grows *array (elements of `size` bytes, *capacity of them) to hold at least `need`, at least
 * doubling. The old array stays valid when it fails. */
by_status by__reserve(void **array, size_t *capacity, size_t need, size_t size, by_error *error);
/* Copies a string; NULL only when memory is exhausted. Freed with free(). */
char *by__strdup(const char *s);
char *by__strndup(const char *s, size_t n);

/* ---- memory of the host (memory_available.c) ---- */

typedef struct by__host_memory {
    uint64_t total;     /* bytes of the host, or of the tightest control group; 0: unknown */
    uint64_t available; /* bytes that this process can still take without anything being swapped
                           or killed, page cache counted as free; UINT64_MAX: unknown */
} by__host_memory;

/* Free memory: MemAvailable of /proc/meminfo, and what the limits of the process's control groups
 * (version 2 or 1, all levels) leave, whichever is least. It changes while one looks. */
void by__memory_available(by__host_memory *out);
/* The same with /proc and /sys below `root`, for tests. */
void by__memory_available_under(by__host_memory *out, const char *root);

/* ---- strings (text.c) ---- */

/* A growing, NUL-terminated string. {0} is an empty one. A failed allocation sets `failed`, and
 * later calls do nothing, so that a builder checks once at its end. */
typedef struct by__text {
    char *data;
    size_t length;
    size_t capacity;
    bool failed;
} by__text;

void by__text_add(by__text *text, const char *s);
void by__text_add_bytes(by__text *text, const void *bytes, size_t n);
void by__text_format(by__text *text, const char *format, ...) BY_PRINTF(2, 3);
/* Adds bytes that are to be UTF-8 without U+0000: others become U+FFFD. */
void by__text_add_valid(by__text *text, const char *s, size_t n);
/* Adds s as a JSON string with its quotes; invalid UTF-8 bytes become U+FFFD. */
void by__text_json(by__text *text, const char *s, size_t n);
void by__text_free(by__text *text);
/* Gives the string to the caller (freed with free()); BY_EMEMORY if building it failed. */
by_status by__text_take(by__text *text, char **out, by_error *error);

/* True when s is well-formed UTF-8 (no overlong forms, no surrogates). */
bool by__utf8_valid(const char *s, size_t n);

/* Edit distance (Levenshtein), for "did you mean". Strings over 63 bytes count as far away. */
size_t by__edit_distance(const char *a, const char *b);

/* ---- numbers as text (number.c) ---- */

/* The shortest decimal text that reads back as the same double, whatever the locale ("0.1",
 * "1e-05", "-0.0"); "nan", "inf" and "-inf" for those that are not finite. */
void by__format_f64(char out[32], double value);
/* Reads what by__format_f64 wrote, or any decimal or hexadecimal floating-point number; false when
 * the text is something else or has something behind it. Independent of the locale. */
bool by__parse_f64(const char *text, double *out);

/* ---- files (file.c) ---- */

/* A read-only memory map of a whole file. data is NULL for an empty file. */
typedef struct by__map {
    const uint8_t *data;
    size_t size;
} by__map;

/* BY_EIO: "cannot VERB PATH: REASON", the reason from errno. */
by_status by__io_error(by_error *error, const char *verb, const char *path);

by_status by__map_open(by__map *out, const char *path, by_error *error);
void by__map_close(by__map *map);
/* Whole file into memory with a NUL behind it (not counted). Over `max` bytes: BY_EFORMAT.
 * Freed with free(). */
by_status by__file_read(char **out, size_t *length, const char *path, size_t max, by_error *error);
/* Reads exactly n bytes at an offset of an open file, which `path` names in messages. BY_EFORMAT:
 * the file ends before (it was cut short since its size was taken). */
by_status by__read_at(int fd, const char *path, uint64_t offset, void *out, size_t n,
                      by_error *error);
/* Writes path.tmp, fsyncs it, renames it over path and fsyncs the directory: after a crash the
 * path holds the old content or the new, whole. */
by_status by__file_write(const char *path, const void *data, size_t length, by_error *error);
/* mkdir -p. */
by_status by__make_dirs(const char *path, by_error *error);
/* fsync of a directory, so that renames in it survive a power cut. */
by_status by__sync_dir(const char *path, by_error *error);
/* rm -r; a path that does not exist is fine. */
by_status by__remove_tree(const char *path, by_error *error);
bool by__path_exists(const char *path);
bool by__path_is_dir(const char *path);
/* "a/b" joined; freed with free(); NULL when memory is exhausted. */
char *by__path_join(const char *a, const char *b);
/* Names in a directory without "." and "..", sorted by byte order. Freed with by__names_free. */
by_status by__list_dir(char ***names, size_t *count, const char *path, by_error *error);
void by__names_free(char **names, size_t count);

/* ---- hashing (hash.c) ---- */

/* XXH3, 64 and 128 bits, of a buffer. The hex forms are 16 and 32 digits with a NUL. */
uint64_t by__hash64(const void *data, size_t length);
void by__hash128_hex(char out[33], const void *data, size_t length);
/* Streaming 128-bit hash. */
typedef struct by__hasher by__hasher;
by_status by__hasher_open(by__hasher **out, by_error *error);
void by__hasher_add(by__hasher *hasher, const void *data, size_t length);
void by__hasher_hex(const by__hasher *hasher, char out[33]);
void by__hasher_close(by__hasher **hasher);
/* XXH3-128 of a file's content, read in blocks. */
by_status by__hash_file_hex(char out[33], const char *path, by_error *error);

/* ---- randomness (random.c) ---- */

/* Philox4x32-10: 128 random bits that are a pure function of key and counter. */
void by__philox(uint32_t out[4], const uint32_t key[2], const uint32_t counter[4]);
/* Mixes a 64-bit seed and a 64-bit stream into a key: different purposes, different keys. */
void by__philox_key(uint32_t key[2], uint64_t seed, uint64_t stream);
/* Uniform in [0, 1) from 32 random bits (24 of them are used). */
static inline float by__unit_float(uint32_t bits)
{
    return (float)(bits >> 8) * (1.0f / 16777216.0f);
}

/* ---- time (clock.c) ---- */

/* Seconds of a clock that never steps back; only differences mean anything. */
double by__now(void);
/* UTC as "2026-01-31T23:59:59Z", of seconds since 1970 and of now; "" for a time that no calendar
 * has. */
void by__utc(char out[24], double seconds);
void by__utc_now(char out[24]);

#endif
