/* Checks that ranks which should hold the same weights do: a fault of a processor or memory affects
 * one replica only. */
#include <stdlib.h>
#include <string.h>

#include "job/job.h"
#include "trainer/exchange/exchange.h"
#include "trainer/state/trainer.h"

/* XXH3-128 in hexadecimal, without a NUL. */
enum { digits = 32 };
typedef struct hash {
    char text[digits];
} hash;

/* Sent by each replica. */
typedef struct replica {
    hash all;
    int32_t rank; /* rank in the job */
} replica;

/* Hashes the f32 values of a piece on disk, in parts. */
static by_status add_from_disk(const by_trainer *t, int flat, by__store_handle handle,
                               const by__store_held_piece *piece, by__hasher *hasher,
                               by_error *error)
{
    const int64_t most = 1 << 18;
    float *values;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&values, (size_t)most, sizeof *values, "weights", error));
    const by__store_part all = piece->part;
    for (int64_t at = 0; at < all.count && status == BY_OK; at += most) {
        int64_t part = all.count - at < most ? all.count - at : most;
        status = by__store_read_part(t->store, flat, handle, all.first + at, part, values, error);
        by__hasher_add(hasher, values, (size_t)part * sizeof *values);
    }
    free(values);
    return status;
}

static by_status add_memory(by_memory memory, by__hasher *hasher, by_error *error)
{
    void *copy;
    BY_TRY(by__alloc_aligned(&copy, memory.bytes, "a copy of the weights", error));
    by_status status = by_device_read(copy, memory, error);
    if (status == BY_OK) {
        by__hasher_add(hasher, copy, memory.bytes);
    }
    free(copy);
    return status;
}

/* Hashes this rank's part of an entry's buffer, possibly empty. */
static by_status add_buffer(const by_trainer *t, int flat, by__store_handle handle,
                            by__hasher *hasher, by_error *error)
{
    by__store_held_piece piece;
    const void *host = by__store_host(t->store, flat, handle);
    if (host != NULL) {
        by__hasher_add(hasher, host, by__store_buffer(t->store, flat, handle).bytes);
        return BY_OK;
    }
    for (size_t k = 0; by__store_piece(t->store, flat, handle, k, &piece); k++) {
        if (piece.on_disk) {
            BY_TRY(add_from_disk(t, flat, handle, &piece, hasher, error));
        } else if (piece.memory.bytes > 0) {
            BY_TRY(add_memory(piece.memory, hasher, error));
        }
    }
    return BY_OK;
}

/* Hashes each parameter: the values that programs compute with, and its master. `divided`: those
 * that the ranks of `shard` divide, else the others. */
static by_status hash_weights(const by_trainer *t, bool divided, hash *hashes, by_error *error)
{
    by_status status = BY_OK;
    for (size_t i = 0; i < by__store_count(t->store) && status == BY_OK; i++) {
        char hex[digits + 1];
        by__hasher *hasher;
        BY_TRY(by__hasher_open(&hasher, error));
        if (by__trainer_shard_divides(t, t->flats.copies, (by__store_handle)i) == divided) {
            status = add_buffer(t, t->flats.copies, (by__store_handle)i, hasher, error);
        }
        if (status == BY_OK && t->flats.copies != t->flats.masters &&
            by__trainer_shard_divides(t, t->flats.masters, (by__store_handle)i) == divided) {
            status = add_buffer(t, t->flats.masters, (by__store_handle)i, hasher, error);
        }
        by__hasher_hex(hasher, hex);
        by__hasher_close(&hasher);
        memcpy(hashes[i].text, hex, digits);
    }
    return status;
}

static bool same(const hash *a, const hash *b)
{
    return memcmp(a->text, b->text, digits) == 0;
}

/* Number of replicas equal to replica `i`. */
static int alike(const replica *all, int count, int i)
{
    int n = 0;
    for (int k = 0; k < count; k++) {
        n += same(&all[k].all, &all[i].all) ? 1 : 0;
    }
    return n;
}

/* `hashes`: of all parameters, one replica after another. */
static by_status report(const by_trainer *t, by_comm *comm, const replica *all, const hash *hashes,
                        by_error *error)
{
    size_t count = by__store_count(t->store);
    int replicas = by_comm_size(comm);
    int good = 0; /* a member of the largest group of equal replicas */
    int bad = 0;
    size_t first = count;
    size_t differing = 0;
    for (int i = 1; i < replicas; i++) {
        good = alike(all, replicas, i) > alike(all, replicas, good) ? i : good;
    }
    while (same(&all[bad].all, &all[good].all)) {
        bad++;
    }
    for (size_t i = count; i > 0; i--) {
        if (!same(&hashes[(size_t)bad * count + i - 1], &hashes[(size_t)good * count + i - 1])) {
            first = i - 1;
            differing++;
        }
    }
    const char *name =
        first == count ? "" : by__store_entry(t->store, (by__store_handle)first)->name;
    /* If two groups have the same size, either may be wrong. */
    bool decided = alike(all, replicas, good) > alike(all, replicas, bad);
    return by_error_set(
        error, BY_ECORRUPT,
        "step %lld: the weights of rank %d (%s) %s those of rank %d (%s) in %zu of "
        "%zu tensors, first in '%s'%s: a fault of a processor or of memory is suspected; check the "
        "host, and resume on another one from the newest checkpoint",
        (long long)t->steps.updates, (int)all[bad].rank, by_comm_host(comm, bad),
        decided ? "differ from" : "and", (int)all[good].rank, by_comm_host(comm, good), differing,
        count, name,
        decided ? ", which the other replicas agree with"
                : " differ, and no other replica says which is right");
}

static by_status compare(const by_trainer *t, by_comm *comm, bool divided, hash *hashes,
                         replica *all, size_t *counts, by_error *error)
{
    char hex[digits + 1];
    size_t count = by__store_count(t->store);
    int replicas = by_comm_size(comm);
    hash *mine = hashes + (size_t)by_comm_rank(comm) * count;
    bool differ = false;
    BY_TRY(hash_weights(t, divided, mine, error));
    by__hash128_hex(hex, mine, count * sizeof *mine);
    replica own = {.rank = t->layout.rank};
    memcpy(own.all.text, hex, digits);
    for (int i = 0; i < replicas; i++) {
        counts[i] = sizeof own;
    }
    BY_TRY(by_comm_all_gather(comm, &own, all, counts, BY_U8, "hashes of the weights", error));
    for (int i = 1; i < replicas; i++) {
        differ = differ || !same(&all[i].all, &all[0].all);
    }
    if (!differ) {
        return BY_OK;
    }
    for (int i = 0; i < replicas; i++) {
        counts[i] = count * sizeof *mine;
    }
    BY_TRY(by_comm_all_gather(comm, mine, hashes, counts, BY_U8, "hashes of the weights", error));
    return report(t, comm, all, hashes, error);
}

by_status by__job_trainer_compare_replicas(by_trainer *t, by_error *error)
{
    by_comm *comm;
    hash *hashes = NULL;
    replica *all = NULL;
    size_t *counts = NULL;
    if (t->layout.replicas == 1) {
        return BY_OK;
    }
    BY_TRY(by_mesh_comm(&comm, t->ranks.mesh, 1u << BY_MESH_DATA | 1u << BY_MESH_SHARD, error));
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    size_t replicas = (size_t)by_comm_size(comm);
    if (t->shard.copies != NULL && (size_t)by_comm_size(t->shard.copies) > replicas) {
        replicas = (size_t)by_comm_size(t->shard.copies); /* ranks of `sequence` are copies too */
    }
    by_status status = by__alloc((void **)&hashes, replicas * by__store_count(t->store),
                                 sizeof *hashes, "hashes", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&all, replicas, sizeof *all, "hashes", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&counts, replicas, sizeof *counts, "hashes", error);
    }
    if (status == BY_OK) {
        status = compare(t, comm, false, hashes, all, counts, error);
    }
    if (status == BY_OK && t->shard.copies != NULL) {
        status = compare(t, t->shard.copies, true, hashes, all, counts, error);
    }
    free(counts);
    free(all);
    free(hashes);
    return status;
}
