/* base: utilities that every other module uses.
 *
 * What it is for: error helpers, overflow-checked sizes, growable arrays and strings, file access
 * (map, read, atomic write), hashing, counter-based random numbers, conversion of half-precision
 * formats, the tree that fixes the order of sums (sum_tree.h), the layouts of coded and packed
 * weights (coded.h, packing.h), threads (threads.h), time, and text formats.
 *
 * Types: by__map is a mapped file, by__hasher a streaming hash, by__name_table a hash table of
 * names, by__sum_tree one rank's part of a sum.
 *
 * Who owns what: every `_init`/`_open`/`_read` has a matching `_free`/`_close`; the caller owns
 * what it received. Functions that can fail return by_status and fill a by_error; the others
 * return plain values.
 *
 * Determinism: random numbers come from Philox4x32-10 (Salmon et al., "Parallel random numbers: as
 * easy as 1, 2, 3", SC 2011), a pure function of key and counter, so nothing depends on threads or
 * time.
 *
 * Never put here: global mutable state, threads of its own that outlive a call (worker_thread.h
 * runs those of others), anything that prints, anything that knows a model or a config, any include
 * of another module.
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

/* Store a * b or a + b in *out. Return false, and leave *out untouched, on overflow. */
bool by__size_mul(size_t a, size_t b, size_t *out);
bool by__size_add(size_t a, size_t b, size_t *out);
/* Rounds n up to a multiple of `unit`, a power of two. The caller ensures that the result fits. */
static inline size_t by__round_up(size_t n, size_t unit)
{
    return (n + unit - 1) & ~(unit - 1);
}
/* Allocates count * size zeroed bytes. BY_EMEMORY, naming `what`, on overflow or exhausted
 * memory. */
by_status by__alloc(void **out, size_t count, size_t size, const char *what, by_error *error);
/* Allocates `bytes` uninitialised bytes aligned to 64. Freed with free(). */
by_status by__alloc_aligned(void **out, size_t bytes, const char *what, by_error *error);
/* Grows *array (*capacity elements of `size` bytes) to hold at least `need` elements, at least
 * doubling it. On failure the old array stays valid. */
by_status by__reserve(void **array, size_t *capacity, size_t need, size_t size, by_error *error);
/* Copies a string. Returns NULL only when memory is exhausted. Freed with free(). */
char *by__strdup(const char *s);
char *by__strndup(const char *s, size_t n);

/* ---- memory of the host (memory_available.c) ---- */

typedef struct by__host_memory {
    uint64_t total;     /* bytes of the host, or of the tightest control group; 0: unknown */
    uint64_t available; /* bytes that this process can still allocate without swapping or being
                           killed, counting page cache as free; UINT64_MAX: unknown */
} by__host_memory;

/* Reports free memory: the least of MemAvailable in /proc/meminfo and what the limits of the
 * process's control groups (version 1 or 2, all levels) leave. The figure is a snapshot. */
void by__memory_available(by__host_memory *out);
/* The same with /proc and /sys read below `root`, for tests. */
void by__memory_available_under(by__host_memory *out, const char *root);

/* ---- strings (text.c): what is added to by_string of banyan/text.h ---- */

/* Adds a NUL-terminated text. */
void by__string_append(by_string *string, const char *text);
/* Appends a text in which HTML sees no markup, within elements and quoted attributes. */
void by__string_append_html(by_string *string, const char *text);
/* Adds bytes as UTF-8; each U+0000 and what by__utf8_broken finds becomes U+FFFD. */
void by__string_add_valid(by_string *string, const char *bytes, size_t n);
/* Transfers the string to the caller (freed with free()). BY_EMEMORY if building it failed. */
by_status by__string_release(by_string *string, char **out, by_error *error);
/* Adds the base64 digits of n bytes, with padding (RFC 4648, section 4). */
void by__string_add_base64(by_string *text, const void *bytes, size_t n);

/* Upper bound of the bytes that n base64 digits decode to. */
#define BY__BASE64_BYTES(n) ((n) / 4 * 3)
/* Decodes n digits into `out`, which has room for BY__BASE64_BYTES(n). Returns false if they are
 * not what by__string_add_base64 adds for some bytes. */
bool by__read_base64(const char *digits, size_t n, uint8_t *out, size_t *length);

/* Sets of characters below 64: bit c is character c. */
#define BY__BLANKS      ((uint64_t)1 << ' ' | (uint64_t)1 << '\t')
#define BY__WHITE_SPACE (BY__BLANKS | (uint64_t)0xf << '\n') /* "\n\v\f\r" */
/* Moves both ends of s past the characters of such a set. */
void by__trim(const char **s, size_t *n, uint64_t blanks);
/* Returns true if s is well-formed UTF-8 (no overlong encodings, no surrogates). */
bool by__utf8_valid(const char *s, size_t n);

/* Returns the number of characters to insert, drop, change or swap with their neighbour, for "did
 * you mean" hints. Strings over 63 bytes count as far apart. */
size_t by__edit_distance(const char *a, const char *b);

/* ---- sizes and times (units.c) ---- */

/* Finds the unit at the end of a size, "1.5 GiB", and returns its bytes; 1 without a unit. *digits:
 * length of the number before it. */
double by__size_unit(const char *text, size_t *digits);
/* The same for a time, "1.5m": seconds of the unit. */
double by__time_unit(const char *text, size_t *digits);

/* ---- numbers (number.c) ---- */

/* Writes the shortest decimal text that reads back as the same double, independently of the locale
 * ("0.1", "1e-05", "-0.0"), or "nan", "inf", "-inf". */
void by__format_f64(char out[32], double value);
/* Reads the output of by__format_f64, or any decimal or hexadecimal floating-point number. Returns
 * false if the text is not a number or is followed by anything. Independent of the locale. */
bool by__parse_f64(const char *text, double *out);
/* Compares two doubles, neither of them NaN, for qsort. */
int by__compare_doubles(const void *a, const void *b);

/* ---- files (file.c) ---- */

/* A read-only memory map of a whole file. data is NULL for an empty file. */
typedef struct by__map {
    const uint8_t *data;
    size_t size;
} by__map;

/* Sets BY_EIO, "cannot VERB PATH: REASON", with the reason taken from errno. */
by_status by__io_error(by_error *error, const char *verb, const char *path);

by_status by__map_open(by__map *out, const char *path, by_error *error);
void by__map_close(by__map *map);
/* Reads a whole file and appends a NUL (not counted in *length). BY_EFORMAT if it is larger than
 * `max` bytes. Freed with free(). */
by_status by__file_read(char **out, size_t *length, const char *path, size_t max, by_error *error);
/* Reads exactly n bytes at an offset of an open file; `path` names it in messages. BY_EFORMAT if
 * the file ends early (it was truncated after its size was taken). */
by_status by__read_at(int fd, const char *path, uint64_t offset, void *out, size_t n,
                      by_error *error);
/* Writes path.tmp, fsyncs it, renames it to path and fsyncs the directory: after a crash the path
 * holds either the old or the new content, complete. Processes that write one path at the same time
 * do so one after another. */
by_status by__file_write(const char *path, const void *data, size_t length, by_error *error);
/* The same without fsync: readers see all of it or nothing, but after a power failure it may be
 * damaged. For what can be made again. */
by_status by__file_write_unsynced(const char *path, const void *data, size_t length,
                                  by_error *error);
/* Creates a directory and its missing parents, like mkdir -p. */
by_status by__make_dirs(const char *path, by_error *error);
/* Fsyncs a directory, so that renames in it survive a power failure. */
by_status by__sync_dir(const char *path, by_error *error);
/* Removes a tree, like rm -rf: a missing path is not an error. */
by_status by__remove_tree(const char *path, by_error *error);
bool by__path_exists(const char *path);
bool by__path_is_dir(const char *path);
/* Joins "a/b". Freed with free(); NULL when memory is exhausted. */
char *by__path_join(const char *a, const char *b);
/* Lists the names in a directory except "." and "..", in byte order. Freed with by__names_free. */
by_status by__list_dir(char ***names, size_t *count, const char *path, by_error *error);
void by__names_free(char **names, size_t count);

/* ---- hashing (hash.c) ---- */

/* Compute the XXH3 hash of a buffer: 64 bits, or 128 bits as 32 hexadecimal digits and a NUL. */
uint64_t by__hash64(const void *data, size_t length);
void by__hash128_hex(char out[33], const void *data, size_t length);
/* A streaming 128-bit hash, equal to by__hash128_hex of the concatenated data. */
typedef struct by__hasher by__hasher;
by_status by__hasher_open(by__hasher **out, by_error *error);
void by__hasher_add(by__hasher *hasher, const void *data, size_t length);
/* Adds the 8 bytes of a number, the lowest first. */
void by__hasher_add_u64(by__hasher *hasher, uint64_t value);
void by__hasher_hex(const by__hasher *hasher, char out[33]);
void by__hasher_close(by__hasher **hasher);
/* Computes the XXH3-128 hash of a file's content, reading it block by block. */
by_status by__hash_file_hex(char out[33], const char *path, by_error *error);

/* ---- randomness (random.c) ---- */

/* Generates 128 random bits with Philox4x32-10, a pure function of key and counter. */
void by__philox(uint32_t out[4], const uint32_t key[2], const uint32_t counter[4]);
/* Derives a key from a 64-bit seed and a 64-bit stream, so that each purpose has its own key. */
void by__philox_key(uint32_t key[2], uint64_t seed, uint64_t stream);
/* Maps 32 random bits to a uniform number in [0, 1), using the upper 24 of them. */
static inline float by__unit_float(uint32_t bits)
{
    return (float)(bits >> 8) * (1.0f / 16777216.0f);
}

/* ---- time (clock.c) ---- */

/* Seconds of a monotonic clock; only differences are meaningful. */
double by__now(void);
/* Formats seconds since 1970, or the current time, as UTC: "2026-01-31T23:59:59Z"; "" if the time
 * is out of a calendar's range. */
void by__utc(char out[24], double seconds);
void by__utc_now(char out[24]);

#endif
