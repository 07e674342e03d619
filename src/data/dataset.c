/* A packed directory: its manifest, its shards and document offsets in memory maps. */
#include "data/dataset.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "data/formats/npy.h"
#include "data/formats/token_manifest.h"

/* An npy file in memory. */
typedef struct shard {
    char *path;
    by__map map;
    const uint8_t *elements; /* little-endian, aligned to their width */
    uint64_t first;          /* place of its first token in the whole stream */
    uint64_t count;
} shard;

struct by_dataset {
    char *directory;
    by__token_manifest manifest;
    shard *shards;
    shard documents; /* documents + 1 offsets of 8 bytes */
};

/* ---- opening ---- */

static by_status verify_shard(const shard *s, unsigned width, const char *expected, by_error *error)
{
    char found[33];
    size_t bytes = (size_t)s->count * width;
    by__hash128_hex(found, s->elements, bytes);
    if (strcmp(found, expected) == 0) {
        return BY_OK;
    }
    return by_error_set(error, BY_EFORMAT,
                        "%s: damaged: the %zu bytes from offset %zu have checksum %s, but the "
                        "manifest says %s; pack the data again",
                        s->path, bytes, (size_t)(s->elements - s->map.data), found, expected);
}

/* Maps one npy file and checks that it holds what the manifest says. On failure the caller releases
 * what `s` got. */
static by_status open_shard(shard *s, const char *directory, const char *file, unsigned width,
                            uint64_t count, const char *hash, bool verify, by_error *error)
{
    by__npy_info info;
    s->path = by__path_join(directory, file);
    if (s->path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    BY_TRY(by__map_open(&s->map, s->path, error));
    BY_TRY(by__npy_parse(&info, s->path, s->map.data, s->map.size, error));
    if (info.width != width || info.count != count) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %" PRIu64 " elements of %u bytes, but the manifest says %" PRIu64
                            " of %u bytes",
                            s->path, info.count, info.width, count, width);
    }
    s->elements = s->map.data + info.offset;
    s->count = count;
    return verify ? verify_shard(s, width, hash, error) : BY_OK;
}

static void close_shard(shard *s)
{
    by__map_close(&s->map);
    free(s->path);
}

static uint64_t offset_at(const by_dataset *d, uint64_t document)
{
    return ((const uint64_t *)(const void *)d->documents.elements)[document];
}

static by_status check_documents(const by_dataset *d, by_error *error)
{
    uint64_t last = 0;
    size_t header = (size_t)(d->documents.elements - d->documents.map.data);
    for (uint64_t i = 0; i < d->documents.count; i++) {
        uint64_t offset = offset_at(d, i);
        bool is_end = i + 1 == d->documents.count;
        if (offset < last || (i == 0 && offset != 0) || (is_end && offset != d->manifest.tokens)) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: the number at offset %" PRIu64 " is %" PRIu64
                                ", but offsets start at 0, never decrease and end at %" PRIu64
                                ", the number of tokens",
                                d->documents.path, header + 8 * i, offset, d->manifest.tokens);
        }
        last = offset;
    }
    return BY_OK;
}

static by_status open_files(by_dataset *d, bool verify, by_error *error)
{
    const by__token_manifest *m = &d->manifest;
    uint64_t first = 0;
    if (m->vocab > (uint32_t)INT32_MAX) {
        return by_error_set(error, BY_EFORMAT,
                            "%s/manifest.json: vocab %" PRIu32 " is more than 2147483647",
                            d->directory, m->vocab);
    }
    BY_TRY(
        by__alloc((void **)&d->shards, m->shard_count, sizeof *d->shards, "token shards", error));
    for (size_t i = 0; i < m->shard_count; i++) {
        BY_TRY(open_shard(&d->shards[i], d->directory, m->shards[i].file, m->width,
                          m->shards[i].tokens, m->shards[i].hash, verify, error));
        d->shards[i].first = first;
        first += m->shards[i].tokens; /* the manifest's reader has bounded the sum */
    }
    BY_TRY(open_shard(&d->documents, d->directory, m->offsets_file, 8, m->documents + 1,
                      m->offsets_hash, verify, error));
    return check_documents(d, error);
}

by_status by_dataset_open(by_dataset **out, const char *directory,
                          const by_dataset_options *options, by_error *error)
{
    by_dataset *d;
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "a data set", error));
    d->directory = by__strdup(directory);
    by_status status = d->directory == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                           : by__token_manifest_read(&d->manifest, directory, error);
    if (status == BY_OK) {
        status = open_files(d, options != NULL && options->verify, error);
    }
    if (status != BY_OK) {
        by_dataset_close(&d);
        return status;
    }
    *out = d;
    return BY_OK;
}

void by_dataset_close(by_dataset **dataset)
{
    if (dataset == NULL || *dataset == NULL) {
        return;
    }
    by_dataset *d = *dataset;
    for (size_t i = 0; d->shards != NULL && i < d->manifest.shard_count; i++) {
        close_shard(&d->shards[i]);
    }
    close_shard(&d->documents);
    free(d->shards);
    by__token_manifest_free(&d->manifest);
    free(d->directory);
    free(d);
    *dataset = NULL;
}

/* ---- what it is ---- */

uint64_t by_dataset_tokens(const by_dataset *dataset)
{
    return dataset->manifest.tokens;
}

uint32_t by_dataset_vocab(const by_dataset *dataset)
{
    return dataset->manifest.vocab;
}

const char *by_dataset_tokenizer_hash(const by_dataset *dataset)
{
    return dataset->manifest.tokenizer_hash;
}

uint64_t by_dataset_text_bytes(const by_dataset *dataset)
{
    return dataset->manifest.text_bytes;
}

uint64_t by_dataset_documents(const by_dataset *dataset)
{
    return dataset->manifest.documents;
}

const char *by__dataset_name(const by_dataset *dataset)
{
    return dataset->directory;
}

void by__dataset_advise(const by_dataset *dataset, bool at_random)
{
    /* Data that fits well into memory is read ahead whole; of larger data that is read at random,
     * read-ahead around a sample would only push other pages out. Advice may fail without harm. */
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
    bool fits = dataset->manifest.tokens * dataset->manifest.width <= memory / 4;
    int advice = fits ? MADV_WILLNEED : at_random ? MADV_RANDOM : MADV_SEQUENTIAL;
    for (size_t i = 0; i < dataset->manifest.shard_count; i++) {
        const by__map *map = &dataset->shards[i].map;
        (void)madvise((void *)(uintptr_t)map->data, map->size, advice);
    }
}

/* ---- reading ---- */

by_status by_dataset_document_at(const by_dataset *dataset, uint64_t position, uint64_t *document,
                                 uint64_t *begin, uint64_t *end, by_error *error)
{
    if (position >= dataset->manifest.tokens) {
        return by_error_set(error, BY_EARG,
                            "%s: position %" PRIu64 " is not within its %" PRIu64 " tokens",
                            dataset->directory, position, dataset->manifest.tokens);
    }
    /* offset[low] <= position < offset[high]: the last document that starts at or before it, so
     * that empty documents are passed over. */
    uint64_t low = 0;
    uint64_t high = dataset->manifest.documents;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (offset_at(dataset, middle) <= position) {
            low = middle;
        } else {
            high = middle;
        }
    }
    if (document != NULL) {
        *document = low;
    }
    if (begin != NULL) {
        *begin = offset_at(dataset, low);
    }
    if (end != NULL) {
        *end = offset_at(dataset, high);
    }
    return BY_OK;
}

/* Copies tokens and returns the greatest. One pass without branches, which compilers vectorise. */
static uint32_t widen_u16(int32_t *out, const uint16_t *in, size_t count)
{
    uint16_t greatest = 0;
    for (size_t i = 0; i < count; i++) {
        uint16_t token = in[i];
        out[i] = token;
        greatest = token > greatest ? token : greatest;
    }
    return greatest;
}

static uint32_t copy_u32(int32_t *out, const uint32_t *in, size_t count)
{
    uint32_t greatest = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t token = in[i];
        out[i] = (int32_t)token;
        greatest = token > greatest ? token : greatest;
    }
    return greatest;
}

/* The shard that holds the token at a position within the data. */
static const shard *find_shard(const by_dataset *d, uint64_t position)
{
    size_t low = 0;
    size_t high = d->manifest.shard_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (d->shards[middle].first <= position) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &d->shards[low];
}

static by_status bad_token(const by_dataset *d, const shard *s, uint64_t at, const int32_t *tokens,
                           by_error *error)
{
    while ((uint32_t)*tokens < d->manifest.vocab) {
        tokens++;
        at++;
    }
    uint64_t offset = (uint64_t)(s->elements - s->map.data) + at * d->manifest.width;
    return by_error_set(error, BY_EFORMAT,
                        "%s: damaged: token %" PRIu32 " at offset %" PRIu64
                        " is not below the vocabulary of %" PRIu32 "; pack the data again",
                        s->path, (uint32_t)*tokens, offset, d->manifest.vocab);
}

by_status by_dataset_read(const by_dataset *dataset, uint64_t position, size_t count, int32_t *out,
                          by_error *error)
{
    const by_dataset *d = dataset;
    uint64_t total = d->manifest.tokens;
    if (position > total || count > total - position) {
        return by_error_set(error, BY_EARG,
                            "%s: %zu tokens from position %" PRIu64 " are not within its %" PRIu64,
                            d->directory, count, position, total);
    }
    if (count == 0) {
        return BY_OK;
    }
    for (const shard *s = find_shard(d, position); count > 0; s++) {
        uint64_t at = position - s->first;
        uint64_t left = s->count - at;
        size_t n = left < count ? (size_t)left : count;
        const uint8_t *source = s->elements + at * d->manifest.width;
        uint32_t greatest = d->manifest.width == 2
                                ? widen_u16(out, (const uint16_t *)(const void *)source, n)
                                : copy_u32(out, (const uint32_t *)(const void *)source, n);
        if (greatest >= d->manifest.vocab && n > 0) {
            return bad_token(d, s, at, out, error);
        }
        out += n;
        count -= n;
        position += n;
    }
    return BY_OK;
}
