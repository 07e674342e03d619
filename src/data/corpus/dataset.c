/* A packed directory: its manifest, and its shards and document offsets, which are read with pread:
 * if a file is truncated while in use, that is a short read and thus an error, whereas a memory map
 * would end the process with SIGBUS. */
#include "data/corpus/dataset.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/paths.h"
#include "data/corpus/dataset_files.h"
#include "formats/npy.h"

/* If there are more shards, they are opened for each read, so that data of any size need few file
 * descriptors. */
#define MAX_OPEN_SHARDS ((size_t)256)
/* Amounts read at a time: 16 KiB of stack for tokens, 64 KiB of heap for whole files. */
#define TOKEN_BLOCK ((size_t)8192)
#define FILE_BLOCK  ((size_t)1 << 16)

/* ---- opening ---- */

by_status by__data_token_file_read(const by__data_token_file *s, uint64_t offset, void *out,
                                   size_t bytes, by_error *error)
{
    int fd = s->fd;
    BY_TRY(fd >= 0 ? BY_OK : by__open_regular(&fd, NULL, s->path, error));
    by_status status = by__read_at(fd, s->path, s->start + offset, out, bytes, error);
    if (fd != s->fd) {
        (void)close(fd);
    }
    return status;
}

/* Opens one npy file and checks it against the manifest. On failure the caller releases the
 * resources of `s`. */
static by_status open_shard(by__data_token_file *s, const char *directory, const char *file,
                            unsigned width, uint64_t count, by_error *error)
{
    by__format_npy_info info;
    s->path = by__path_join(directory, file);
    if (s->path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    BY_TRY(by__format_npy_open(&s->fd, &info, s->path, error));
    s->is_open = true;
    if (info.width != width || info.count != count) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %" PRIu64 " elements of %u bytes, but the manifest says %" PRIu64
                            " of %u bytes",
                            s->path, info.count, info.width, count, width);
    }
    s->start = info.offset;
    s->count = count;
    return BY_OK;
}

/* Closes the file; the path is kept for later reads. */
static void close_file(by__data_token_file *s)
{
    if (s->is_open) {
        (void)close(s->fd);
    }
    s->is_open = false;
    s->fd = -1;
}

static void close_shard(by__data_token_file *s)
{
    close_file(s);
    free(s->path);
    free(s->problem);
}

static by_status offset_at(const by_dataset *d, uint64_t document, uint64_t *out, by_error *error)
{
    return by__data_token_file_read(&d->documents, document * sizeof *out, out, sizeof *out, error);
}

by_status by__data_offsets(const by_dataset *dataset, uint64_t first, size_t count, uint64_t *out,
                           by_error *error)
{
    return by__data_token_file_read(&dataset->documents, first * sizeof *out, out,
                                    count * sizeof *out, error);
}

/* Checks offsets [first, first + count) of documents.npy; `last` is the one before them. */
static by_status check_offsets(const by_dataset *d, const uint64_t *offsets, uint64_t first,
                               size_t count, uint64_t *last, by_error *error)
{
    for (size_t k = 0; k < count; k++) {
        uint64_t i = first + k;
        bool is_end = i + 1 == d->documents.count;
        if (offsets[k] < *last || (i == 0 && offsets[k] != 0) ||
            (is_end && offsets[k] != d->manifest.tokens)) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: the number at offset %" PRIu64 " is %" PRIu64
                                ", but offsets start at 0, never decrease and end at %" PRIu64
                                ", the number of tokens",
                                d->documents.path, d->documents.start + 8 * i, offsets[k],
                                d->manifest.tokens);
        }
        *last = offsets[k];
    }
    return BY_OK;
}

static by_status check_documents(const by_dataset *d, by_error *error)
{
    uint64_t *block;
    uint64_t last = 0;
    const size_t limit = FILE_BLOCK / sizeof *block;
    BY_TRY(by__alloc((void **)&block, limit, sizeof *block, "read buffer", error));
    by_status status = BY_OK;
    for (uint64_t i = 0; i < d->documents.count && status == BY_OK;) {
        size_t n = d->documents.count - i < limit ? (size_t)(d->documents.count - i) : limit;
        status = by__data_token_file_read(&d->documents, i * sizeof *block, block,
                                          n * sizeof *block, error);
        if (status == BY_OK) {
            status = check_offsets(d, block, i, n, &last, error);
        }
        i += n;
    }
    free(block);
    return status;
}

/* Opens a shard of tokens; with `skip`, one that cannot be read is only marked. */
static by_status open_tokens(by_dataset *d, size_t i, bool skip, by_error *error)
{
    const by__data_token_shard *m = &d->manifest.shards[i];
    by__data_token_file *s = &d->shards[i];
    by_error problem = {0};
    by_status status = open_shard(s, d->directory, m->file, d->manifest.width, m->tokens, &problem);
    if (status != BY_OK && (!skip || (status != BY_EIO && status != BY_EFORMAT))) {
        return by_error_set(error, status, "%s", problem.message);
    }
    if (status != BY_OK) {
        s->problem = by__strdup(problem.message);
        s->count = m->tokens;
        if (s->problem == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: damaged data");
        }
    }
    if (status != BY_OK || i >= MAX_OPEN_SHARDS) {
        close_file(s);
    }
    return BY_OK;
}

static by_status open_files(by_dataset *d, bool skip, by_error *error)
{
    const by__data_token_manifest *m = &d->manifest;
    uint64_t first = 0;
    if (m->vocab > (uint32_t)INT32_MAX) {
        return by_error_set(error, BY_EFORMAT,
                            "%s/manifest.json: vocab %" PRIu32 " is more than 2147483647",
                            d->directory, m->vocab);
    }
    BY_TRY(
        by__alloc((void **)&d->shards, m->shard_count, sizeof *d->shards, "token shards", error));
    for (size_t i = 0; i < m->shard_count; i++) {
        BY_TRY(open_tokens(d, i, skip, error));
        d->shards[i].first = first;
        first += m->shards[i].tokens; /* the manifest's reader has bounded the sum */
    }
    BY_TRY(open_shard(&d->documents, d->directory, m->offsets_file, 8, m->documents + 1, error));
    return check_documents(d, error);
}

by_status by_dataset_open(by_dataset **out, const char *directory,
                          const by_dataset_options *options, by_error *error)
{
    by_dataset *d;
    bool skip = options != NULL && options->skip;
    bool known = false;
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "a data set", error));
    d->directory = by__strdup(directory);
    by_status status = d->directory == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                           : by__data_token_manifest_read(&d->manifest, directory, error);
    if (status == BY_OK) {
        status = open_files(d, skip, error);
    }
    if (status == BY_OK && skip && !options->verify) {
        status = by__data_stamp_read(d, &known, error);
    }
    if (status == BY_OK && skip && !known) {
        status = by__data_find_damage(d, options, error);
    } else if (status == BY_OK && options != NULL && options->verify && !skip) {
        status = by__data_verify(d, options, error);
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
    by__loader_damage_free(&d->damage);
    by__data_token_manifest_free(&d->manifest);
    free(d->directory);
    free(d);
    *dataset = NULL;
}

/* ---- properties ---- */

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

void by_dataset_hash(const by_dataset *dataset, char out[33])
{
    const by__data_token_manifest *m = &dataset->manifest;
    char hashes[33] = "";
    char joined[66];
    /* A chained hash, so that any number of shards needs no memory. */
    memcpy(hashes, m->offsets_hash, sizeof hashes);
    for (size_t i = 0; i < m->shard_count; i++) {
        (void)snprintf(joined, sizeof joined, "%s%s", hashes, m->shards[i].hash);
        by__hash128_hex(hashes, joined, strlen(joined));
    }
    memcpy(out, hashes, sizeof hashes);
}

uint64_t by_dataset_text_bytes(const by_dataset *dataset)
{
    return dataset->manifest.text_bytes;
}

uint64_t by_dataset_documents(const by_dataset *dataset)
{
    return dataset->manifest.documents;
}

bool by_dataset_is_chat(const by_dataset *dataset, by_dataset_chat *out)
{
    const by__data_chat_manifest *c = &dataset->manifest.chat;
    if (c->mask_file == NULL) {
        return false;
    }
    *out = (by_dataset_chat){.records = c->records,
                             .samples = dataset->manifest.documents,
                             .targets = c->targets,
                             .corrupt = c->corrupt,
                             .too_long = c->too_long,
                             .cut = c->cut,
                             .lost = c->lost,
                             .pairs = c->pairs};
    return true;
}

by_status by_token_mask_open(by_token_weights **out, const by_dataset *dataset, by_error *error)
{
    const by__data_chat_manifest *c = &dataset->manifest.chat;
    char *path;
    char hash[33];
    if (c->mask_file == NULL) {
        return by_error_set(error, BY_ESTATE,
                            "%s holds no conversations: it has no mask of what is learned; `banyan "
                            "pack --chat` makes one of conversations",
                            dataset->directory);
    }
    BY_TRY(by__path_make(&path, dataset->directory, c->mask_file, error));
    by_status status = by_token_weights_open(out, path, dataset, error);
    if (status == BY_OK) {
        by_token_weights_hash(*out, hash);
        if (strcmp(hash, c->mask_hash) != 0) {
            by_token_weights_close(out);
            status = by_error_set(error, BY_EFORMAT,
                                  "%s: damaged: it has checksum %s, but the manifest says %s; pack "
                                  "the data again",
                                  path, hash, c->mask_hash);
        }
    }
    free(path);
    return status;
}

const by_damage *by_dataset_damage(const by_dataset *dataset, size_t *count)
{
    *count = dataset->damage.count;
    return dataset->damage.items;
}

bool by__data_is_damaged(const by_dataset *dataset, uint64_t begin, uint64_t end)
{
    return by__loader_damage_touches(&dataset->damage, begin, end);
}

uint64_t by__data_damaged(const by_dataset *dataset)
{
    return dataset->damage.total;
}

const char *by__data_directory_name(const by_dataset *dataset)
{
    return dataset->directory;
}

void by__data_advise(const by_dataset *dataset, bool at_random)
{
    /* Data that fit well into memory are read ahead as a whole; for larger data read at random,
     * read-ahead around a sample would only evict other pages. Advice may fail without harm. */
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
    bool fits = dataset->manifest.tokens * dataset->manifest.width <= memory / 4;
    int advice = fits ? POSIX_FADV_WILLNEED : at_random ? POSIX_FADV_RANDOM : POSIX_FADV_SEQUENTIAL;
    for (size_t i = 0; i < dataset->manifest.shard_count; i++) {
        if (dataset->shards[i].fd >= 0) {
            (void)posix_fadvise(dataset->shards[i].fd, 0, 0, advice);
        }
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
    /* offset[low] <= position < offset[high]: finds the last document that starts at or before it,
     * which skips empty documents. */
    uint64_t low = 0;
    uint64_t high = dataset->manifest.documents;
    uint64_t offset;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        BY_TRY(offset_at(dataset, middle, &offset, error));
        if (offset <= position) {
            low = middle;
        } else {
            high = middle;
        }
    }
    if (begin != NULL) {
        BY_TRY(offset_at(dataset, low, begin, error));
    }
    if (end != NULL) {
        BY_TRY(offset_at(dataset, high, end, error));
    }
    if (document != NULL) {
        *document = low;
    }
    return BY_OK;
}

by_status by__data_borders_open(by__data_borders *out, const by_dataset *dataset, uint64_t position,
                                uint64_t count, uint64_t *begin, by_error *error)
{
    uint64_t document;
    BY_TRY(by_dataset_document_at(dataset, position, &document, begin, NULL, error));
    out->dataset = dataset;
    out->document = document + 1;
    out->last = position;
    out->end = position + count;
    out->offset_count = 0;
    out->next = 0;
    return BY_OK;
}

by_status by__data_borders_next(by__data_borders *b, bool *found, uint64_t *begin, by_error *error)
{
    uint64_t documents = b->dataset->manifest.documents;
    *found = false;
    while (b->document < documents) {
        if (b->next == b->offset_count) {
            uint64_t left = documents - b->document;
            size_t most = BY_ARRAY_LENGTH(b->offsets);
            b->offset_count = left < most ? (size_t)left : most;
            b->next = 0;
            BY_TRY(by__data_offsets(b->dataset, b->document, b->offset_count, b->offsets, error));
        }
        uint64_t at = b->offsets[b->next];
        if (at > b->end || at == b->dataset->manifest.tokens) {
            return BY_OK;
        }
        b->next++;
        b->document++;
        if (at > b->last) { /* not that of an empty document */
            b->last = at;
            *begin = at;
            *found = true;
            return BY_OK;
        }
    }
    return BY_OK;
}

/* Widens tokens and returns their maximum in one branch-free pass, which compilers vectorize. */
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

static uint32_t greatest_u16(const uint16_t *tokens, size_t count)
{
    uint16_t greatest = 0;
    for (size_t i = 0; i < count; i++) {
        greatest = tokens[i] > greatest ? tokens[i] : greatest;
    }
    return greatest;
}

static uint32_t greatest_u32(const uint32_t *tokens, size_t count)
{
    uint32_t greatest = 0;
    for (size_t i = 0; i < count; i++) {
        greatest = tokens[i] > greatest ? tokens[i] : greatest;
    }
    return greatest;
}

uint32_t by__data_tokens_greatest(const void *tokens, size_t count, unsigned width)
{
    return width == 2 ? greatest_u16(tokens, count) : greatest_u32(tokens, count);
}

/* The shard that contains the token at a position in the data. */
static const by__data_token_file *find_shard(const by_dataset *d, uint64_t position)
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

static by_status bad_token(const by_dataset *d, const by__data_token_file *s, uint64_t at,
                           const int32_t *tokens, by_error *error)
{
    while ((uint32_t)*tokens < d->manifest.vocab) {
        tokens++;
        at++;
    }
    uint64_t offset = s->start + at * d->manifest.width;
    return by_error_set(error, BY_EFORMAT,
                        "%s: damaged: token %" PRIu32 " at offset %" PRIu64
                        " is not below the vocabulary of %" PRIu32 "; pack the data again",
                        s->path, (uint32_t)*tokens, offset, d->manifest.vocab);
}

/* Reads tokens [at, at + count) of a shard. */
static by_status read_tokens(const by_dataset *d, const by__data_token_file *s, uint64_t at,
                             size_t count, int32_t *out, by_error *error)
{
    uint16_t block[TOKEN_BLOCK];
    while (count > 0) {
        size_t n = count;
        uint32_t greatest;
        if (d->manifest.width == 2) {
            n = n < TOKEN_BLOCK ? n : TOKEN_BLOCK;
            BY_TRY(by__data_token_file_read(s, at * 2, block, n * 2, error));
            greatest = widen_u16(out, block, n);
        } else {
            BY_TRY(by__data_token_file_read(s, at * 4, out, n * 4, error));
            greatest = by__data_tokens_greatest(out, n, 4);
        }
        if (greatest >= d->manifest.vocab) {
            return bad_token(d, s, at, out, error);
        }
        at += n;
        out += n;
        count -= n;
    }
    return BY_OK;
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
    for (const by__data_token_file *s = find_shard(d, position); count > 0; s++) {
        uint64_t at = position - s->first;
        uint64_t left = s->count - at;
        size_t n = left < count ? (size_t)left : count;
        by_status status = read_tokens(d, s, at, n, out, error);
        if (status != BY_OK) {
            by__data_stamp_drop(d);
            return status;
        }
        out += n;
        count -= n;
        position += n;
    }
    return BY_OK;
}
