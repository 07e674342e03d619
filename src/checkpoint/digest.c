/* SHA-256 of the content of a checkpoint, tensor by tensor, independent of its files. */
#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "checkpoint/storage.h"

/* One tensor to hash. */
typedef struct hashed_tensor {
    const by_weights *weights;
    size_t entry;
    uint64_t bytes;
    uint8_t sha256[SHA256_DIGEST_SIZE];
} hashed_tensor;

/* The threads take items from the list by size, largest first. */
typedef struct hash_queue {
    hashed_tensor **order;
    size_t count;
    atomic_size_t next;
} hash_queue;

static void to_hex(char out[BY_SHA256_HEX], const uint8_t sha256[SHA256_DIGEST_SIZE])
{
    for (size_t i = 0; i < SHA256_DIGEST_SIZE; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", sha256[i]);
    }
}

/* Hashes "NAME\0DTYPE\0D0,D1\0". */
static by_status hash_head(struct sha256_ctx *sha, const by__checkpoint_tensor_entry *entry,
                           by_error *error)
{
    by_string text = {0};
    by__string_append(&text, entry->name);
    by_string_add(&text, "", 1);
    by__string_append(&text, entry->type);
    by_string_add(&text, "", 1);
    for (size_t i = 0; i < entry->rank; i++) {
        by_string_format(&text, "%s%" PRId64, i == 0 ? "" : ",", entry->shape[i]);
    }
    by_string_add(&text, "", 1);
    if (text.failed) {
        by_string_free(&text);
        return by_error_set(error, BY_EMEMORY, "out of memory: digest");
    }
    sha256_update(sha, text.length, (const uint8_t *)text.data);
    by_string_free(&text);
    return BY_OK;
}

static by_status hash_bytes(void *sha, const void *bytes, size_t n, by_error *error)
{
    BY_UNUSED(error);
    sha256_update(sha, n, bytes);
    return BY_OK;
}

static by_status hash_item(hashed_tensor *it, by_error *error)
{
    struct sha256_ctx sha;
    const by__checkpoint_tensor_entry *entry = by__weights_entry(it->weights, it->entry);
    if (entry->rank > BY_TENSOR_MAX_RANK) {
        return by_error_set(error, BY_EFORMAT, "%s: tensor '%.200s' has rank %zu; at most %d",
                            entry->file, entry->name, entry->rank, BY_TENSOR_MAX_RANK);
    }
    sha256_init(&sha);
    BY_TRY(hash_head(&sha, entry, error));
    BY_TRY(by__checkpoint_entry_bytes(entry, hash_bytes, &sha, error));
    sha256_digest(&sha, sizeof it->sha256, it->sha256);
    return BY_OK;
}

static by_status hash_items(void *context, size_t thread, by_error *error)
{
    hash_queue *w = context;
    BY_UNUSED(thread);
    for (;;) {
        size_t i = atomic_fetch_add(&w->next, 1);
        if (i >= w->count) {
            return BY_OK;
        }
        BY_TRY(hash_item(w->order[i], error));
    }
}

static int largest_first(const void *a, const void *b)
{
    const hashed_tensor *x = *(hashed_tensor *const *)a;
    const hashed_tensor *y = *(hashed_tensor *const *)b;
    return x->bytes > y->bytes ? -1 : x->bytes < y->bytes ? 1 : 0;
}

static by_status hash_all(hashed_tensor *items, size_t count, int threads, by_error *error)
{
    hash_queue w = {.count = count};
    size_t workers = (size_t)by__thread_count(threads);
    BY_TRY(by__alloc((void **)&w.order, count, sizeof *w.order, "digest", error));
    for (size_t i = 0; i < count; i++) {
        w.order[i] = &items[i];
    }
    if (count > 1) {
        qsort(w.order, count, sizeof *w.order, largest_first);
    }
    by_status status = by__threads_run(workers, hash_items, &w, error);
    free(w.order);
    return status;
}

/* The hash of the hashes of items [first, end). */
static void hash_hashes(char out[BY_SHA256_HEX], const hashed_tensor *items, size_t first,
                        size_t end)
{
    struct sha256_ctx sha;
    uint8_t sha256[SHA256_DIGEST_SIZE];
    sha256_init(&sha);
    for (size_t i = first; i < end; i++) {
        sha256_update(&sha, sizeof items[i].sha256, items[i].sha256);
    }
    sha256_digest(&sha, sizeof sha256, sha256);
    to_hex(out, sha256);
}

static by_status describe(by_tensor_digest *out, const hashed_tensor *it, by_error *error)
{
    const by__checkpoint_tensor_entry *entry = by__weights_entry(it->weights, it->entry);
    out->dtype = entry->type;
    out->rank = (int)entry->rank;
    memcpy(out->shape, entry->shape, sizeof out->shape);
    to_hex(out->sha256, it->sha256);
    out->name = by__strdup(entry->name);
    return out->name != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: digest");
}

/* optimizer: NULL if there is none. */
static by_status digest_weights(by_digest *out, const by_weights *model,
                                const by_weights *optimizer, int threads, by_error *error)
{
    const by_weights *parts[2] = {model, optimizer};
    size_t model_count = by_weights_count(model);
    size_t count = model_count + (optimizer == NULL ? 0 : by_weights_count(optimizer));
    size_t next = 0;
    hashed_tensor *items;
    BY_TRY(by__alloc((void **)&items, count, sizeof *items, "digest", error));
    for (int k = 0; k < 2 && parts[k] != NULL; k++) {
        for (size_t i = 0; i < by_weights_count(parts[k]); i++) {
            const by__checkpoint_tensor_entry *entry = by__weights_entry(parts[k], i);
            items[next++] = (hashed_tensor){parts[k], i, entry->end - entry->begin, {0}};
        }
    }
    by_status status = hash_all(items, count, threads, error);
    if (status == BY_OK) {
        status =
            by__alloc((void **)&out->tensors, count, sizeof *out->tensors, "tensor digests", error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = describe(&out->tensors[i], &items[i], error);
        out->count = i + 1;
    }
    if (status == BY_OK) {
        out->model_count = model_count;
        hash_hashes(out->all, items, 0, count);
        hash_hashes(out->model, items, 0, model_count);
        if (optimizer != NULL) {
            hash_hashes(out->optimizer, items, model_count, count);
        }
    }
    free(items);
    return status;
}

by_status by_checkpoint_digest(by_digest *out, const char *path, int threads, by_error *error)
{
    by_digest digest = {0};
    by_weights *weights = NULL;
    by_checkpoint *checkpoint = NULL;
    bool plain;
    BY_TRY(by__checkpoint_path_is_weights(&plain, path, error));
    by_status status = plain ? by_weights_open(&weights, path, error)
                             : by_checkpoint_open(&checkpoint, path, true, error);
    if (status != BY_OK) {
        return status;
    }
    digest.path = by__strdup(plain ? path : by_checkpoint_path(checkpoint));
    if (digest.path == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    } else if (plain) {
        status = digest_weights(&digest, weights, NULL, threads, error);
    } else {
        status = digest_weights(&digest, by_checkpoint_model(checkpoint),
                                by_checkpoint_optimizer(checkpoint), threads, error);
    }
    by_weights_close(&weights);
    by_checkpoint_close(&checkpoint);
    if (status != BY_OK) {
        by_digest_free(&digest);
        return status;
    }
    *out = digest;
    return BY_OK;
}

void by_digest_free(by_digest *digest)
{
    for (size_t i = 0; i < digest->count; i++) {
        free(digest->tensors[i].name);
    }
    free(digest->tensors);
    free(digest->path);
    *digest = (by_digest){0};
}
