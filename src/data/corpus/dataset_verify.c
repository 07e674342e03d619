/* Verifies the files of a packed directory against their checksums, and locates damage.
 *
 * The checksum of a shard tells that something in it is wrong, blocks.npy tells where: it has
 * XXH3-64 of every BY__CHECKED_TOKENS tokens. Tokens that are not in the vocabulary are damage too,
 * whatever the checksums say. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "data/corpus/dataset_files.h"
#include "formats/npy.h"

/* Bytes of offsets read at a time. */
#define FILE_BLOCK ((size_t)1 << 16)

/* State of reading all files, for progress. */
typedef struct verification {
    const by_dataset_options *options;
    uint64_t done;
    uint64_t total;
} verification;

/* Checksums of the blocks of all shards. */
typedef struct block_sums {
    int fd; /* -1: there are none */
    by__format_npy_info info;
    char *path;
} block_sums;

enum { FINE = 0, WRONG_SUM, WRONG_TOKEN, UNREADABLE };
static const char *const reasons[] = {"", "its checksum is wrong",
                                      "a token is not below the vocabulary", "it cannot be read"};

static by_status report(verification *v, size_t bytes, by_error *error)
{
    const by_dataset_options *o = v->options;
    v->done += bytes;
    return o->progress == NULL || o->progress(o->user, v->done, v->total)
               ? BY_OK
               : by_error_set(error, BY_ESTOPPED, "stopped while verifying the data");
}

static verification begin(const by_dataset *d, const by_dataset_options *options)
{
    return (verification){options, 0,
                          d->manifest.tokens * d->manifest.width + d->documents.count * 8};
}

static uint64_t blocks_of(const by__data_token_file *s)
{
    return (s->count + BY__CHECKED_TOKENS - 1) / BY__CHECKED_TOKENS;
}

/* ---- offsets ---- */

static by_status verify_offsets(const by_dataset *d, verification *v, by_error *error)
{
    char found[33];
    by__hasher *hasher;
    void *block = NULL;
    const by__data_token_file *s = &d->documents;
    uint64_t bytes = s->count * 8;
    BY_TRY(by__hasher_open(&hasher, error));
    by_status status = by__alloc(&block, FILE_BLOCK, 1, "read buffer", error);
    for (uint64_t at = 0; at < bytes && status == BY_OK;) {
        size_t n = bytes - at < FILE_BLOCK ? (size_t)(bytes - at) : FILE_BLOCK;
        status = by__data_token_file_read(s, at, block, n, error);
        by__hasher_add(hasher, block, n);
        at += n;
        if (status == BY_OK) {
            status = report(v, n, error);
        }
    }
    by__hasher_hex(hasher, found);
    by__hasher_close(&hasher);
    free(block);
    if (status != BY_OK || strcmp(found, d->manifest.offsets_hash) == 0) {
        return status;
    }
    return by_error_set(error, BY_EFORMAT,
                        "%s: damaged: the %" PRIu64 " bytes from offset %" PRIu64
                        " have checksum %s, but the manifest says %s; pack the data again",
                        s->path, bytes, s->start, found, d->manifest.offsets_hash);
}

/* ---- shards ---- */

/* State of reading a shard. */
typedef struct shard_scan {
    const by_dataset *dataset;
    const by__data_token_file *shard;
    by__hasher *hasher;
    uint8_t *block;
    uint64_t *sums; /* of its blocks, from blocks.npy; NULL: none */
    uint8_t *found; /* of each block: a reason */
    bool lost;      /* a part of it cannot be read */
    char hash[33];  /* of all its tokens */
} shard_scan;

static by_status open_scan(shard_scan *n, const by_dataset *d, const by__data_token_file *s,
                           by_error *error)
{
    size_t blocks = (size_t)blocks_of(s);
    *n = (shard_scan){.dataset = d, .shard = s};
    BY_TRY(by__hasher_open(&n->hasher, error));
    BY_TRY(by__alloc((void **)&n->found, blocks + 1, 1, "blocks", error));
    return by__alloc((void **)&n->block, BY__CHECKED_TOKENS, d->manifest.width, "read buffer",
                     error);
}

static void close_scan(shard_scan *n)
{
    by__hasher_close(&n->hasher);
    free(n->block);
    free(n->sums);
    free(n->found);
}

/* Reads a shard and checks its blocks. Unreadable parts are an error unless `skip` is set. */
static by_status read_through(shard_scan *n, bool skip, verification *v, by_error *error)
{
    const by__data_token_file *s = n->shard;
    unsigned width = n->dataset->manifest.width;
    for (uint64_t at = 0, i = 0; at < s->count; i++) {
        uint64_t left = s->count - at;
        size_t tokens = left < BY__CHECKED_TOKENS ? (size_t)left : BY__CHECKED_TOKENS;
        size_t bytes = tokens * width;
        by_status status = by__data_token_file_read(s, at * width, n->block, bytes, error);
        if (status != BY_OK && !skip) {
            return status;
        }
        if (status != BY_OK) {
            n->found[i] = UNREADABLE;
            n->lost = true;
        } else {
            by__hasher_add(n->hasher, n->block, bytes);
            if (by__data_tokens_greatest(n->block, tokens, width) >= n->dataset->manifest.vocab) {
                n->found[i] = WRONG_TOKEN;
            } else if (n->sums != NULL && by__hash64(n->block, bytes) != n->sums[i]) {
                n->found[i] = WRONG_SUM;
            }
        }
        at += tokens;
        BY_TRY(report(v, bytes, error));
    }
    by__hasher_hex(n->hasher, n->hash);
    return BY_OK;
}

/* Names the first token of a shard that is not in the vocabulary. */
static by_status name_token(const shard_scan *n, by_error *error)
{
    int32_t token;
    uint64_t block = 0;
    while (n->found[block] != WRONG_TOKEN) {
        block++;
    }
    uint64_t at = n->shard->first + block * BY__CHECKED_TOKENS;
    uint64_t end = n->shard->first + n->shard->count;
    by_status status = BY_OK;
    while (status == BY_OK && at < end) {
        status = by_dataset_read(n->dataset, at++, 1, &token, error);
    }
    return status;
}

static by_status verify_shard(const by_dataset *d, size_t index, verification *v, by_error *error)
{
    shard_scan n;
    const by__data_token_file *s = &d->shards[index];
    const char *expected = d->manifest.shards[index].hash;
    by_status status = open_scan(&n, d, s, error);
    if (status == BY_OK) {
        status = read_through(&n, false, v, error);
    }
    if (status == BY_OK && strcmp(n.hash, expected) != 0) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s: damaged: the %" PRIu64 " bytes from offset %" PRIu64
                              " have checksum %s, but the manifest says %s; pack the data again, "
                              "or leave damaged parts out (data.corrupt=skip)",
                              s->path, s->count * d->manifest.width, s->start, n.hash, expected);
    } else if (status == BY_OK && memchr(n.found, WRONG_TOKEN, (size_t)blocks_of(s)) != NULL) {
        status = name_token(&n, error);
    }
    close_scan(&n);
    return status;
}

by_status by__data_verify(const by_dataset *d, const by_dataset_options *options, by_error *error)
{
    verification v = begin(d, options);
    for (size_t i = 0; i < d->manifest.shard_count; i++) {
        BY_TRY(verify_shard(d, i, &v, error));
    }
    return verify_offsets(d, &v, error);
}

/* ---- damage ---- */

/* A file that does not match the shards is ignored. */
static by_status open_sums(block_sums *out, const by_dataset *d, by_error *error)
{
    uint64_t blocks = 0;
    out->fd = -1;
    out->path = by__path_join(d->directory, BY__BLOCKS_FILE);
    if (out->path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    for (size_t i = 0; i < d->manifest.shard_count; i++) {
        blocks += blocks_of(&d->shards[i]);
    }
    if (by__format_npy_open(&out->fd, &out->info, out->path, NULL) != BY_OK) {
        out->fd = -1;
    } else if (out->info.width != 8 || out->info.count != blocks) {
        (void)close(out->fd);
        out->fd = -1;
    }
    return BY_OK;
}

static void close_sums(block_sums *s)
{
    if (s->fd >= 0) {
        (void)close(s->fd);
    }
    free(s->path);
}

/* Reads the sums of a shard whose first block is block `first` of all. */
static by_status read_sums(shard_scan *n, const block_sums *sums, uint64_t first, by_error *error)
{
    size_t count = (size_t)blocks_of(n->shard);
    if (sums->fd < 0) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&n->sums, count, sizeof *n->sums, "checksums of blocks", error));
    if (by__read_at(sums->fd, sums->path, sums->info.offset + first * 8, n->sums, count * 8,
                    NULL) != BY_OK) {
        free(n->sums);
        n->sums = NULL;
    }
    return BY_OK;
}

static by_status add(by_dataset *d, const by__data_token_file *s, uint64_t at, uint64_t count,
                     const char *reason, by_error *error)
{
    const by_damage item = {.path = s->path,
                            .place = s->start + at * d->manifest.width,
                            .begin = s->first + at,
                            .count = count,
                            .reason = reason};
    return count == 0 ? BY_OK : by__loader_damage_add(&d->damage, &item, error);
}

/* Adds the damage found by a scan. If the shard is wrong but no block is known to be, all of it is
 * damaged. */
static by_status add_blocks(by_dataset *d, const shard_scan *n, bool right, by_error *error)
{
    const by__data_token_file *s = n->shard;
    uint64_t blocks = blocks_of(s);
    bool located = right;
    for (uint64_t i = 0; i < blocks && n->sums != NULL; i++) {
        located = located || n->found[i] != FINE;
    }
    if (!located) {
        return add(d, s, 0, s->count, reasons[n->lost ? UNREADABLE : WRONG_SUM], error);
    }
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t at = i * BY__CHECKED_TOKENS;
        uint64_t left = s->count - at;
        bool is_wrong = n->found[i] != FINE && !(right && n->found[i] == WRONG_SUM);
        if (is_wrong) {
            BY_TRY(add(d, s, at, left < BY__CHECKED_TOKENS ? left : BY__CHECKED_TOKENS,
                       reasons[n->found[i]], error));
        }
    }
    return BY_OK;
}

static by_status find_in_shard(by_dataset *d, size_t index, const block_sums *sums, uint64_t first,
                               verification *v, by_error *error)
{
    shard_scan n;
    const by__data_token_file *s = &d->shards[index];
    if (s->problem != NULL) {
        return add(d, s, 0, s->count, s->problem, error);
    }
    by_status status = open_scan(&n, d, s, error);
    if (status == BY_OK) {
        status = read_sums(&n, sums, first, error);
    }
    if (status == BY_OK) {
        status = read_through(&n, true, v, error);
    }
    if (status == BY_OK) {
        bool right = !n.lost && strcmp(n.hash, d->manifest.shards[index].hash) == 0;
        status = add_blocks(d, &n, right, error);
    }
    close_scan(&n);
    return status;
}

by_status by__data_find_damage(by_dataset *d, const by_dataset_options *options, by_error *error)
{
    block_sums sums;
    verification v = begin(d, options);
    uint64_t first = 0;
    BY_TRY(open_sums(&sums, d, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < d->manifest.shard_count && status == BY_OK; i++) {
        status = find_in_shard(d, i, &sums, first, &v, error);
        first += blocks_of(&d->shards[i]);
    }
    close_sums(&sums);
    return status == BY_OK ? verify_offsets(d, &v, error) : status;
}
