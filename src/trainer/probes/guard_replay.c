/* Computes a step twice and compares bits: kernels give results that do not depend on timing,
 * threads or placement, so a difference is a hardware fault. */
#include <stdlib.h>
#include <string.h>

#include "trainer/probes/finding.h"
#include "trainer/probes/node_watch.h"
#include "trainer/probes/probes.h"

struct by__trainer_replay {
    by_trainer *t;
    uint64_t *hashes; /* of the first computation, in order */
    size_t count;
    size_t capacity;
    size_t next;    /* in the second computation: index of the next one to compare */
    bool again;     /* this is the second computation */
    bool no_memory; /* memory was exhausted in a hook */
    by__trainer_finding first;
};

/* In the first computation stores the hash of a value; in the second returns whether it differs. */
static bool differs(by__trainer_replay *r, uint64_t hash)
{
    if (r->again) {
        bool same = r->next < r->count && r->hashes[r->next] == hash;
        r->next++;
        return !same;
    }
    if (by__reserve((void **)&r->hashes, &r->capacity, r->count + 1, sizeof *r->hashes, NULL) !=
        BY_OK) {
        r->no_memory = true;
        return false;
    }
    r->hashes[r->count++] = hash;
    return false;
}

static uint64_t hash_of(const by__device_tensor *x)
{
    bool present = x->shape.rank >= 0 && x->data != NULL;
    return present
               ? by__hash64(x->data, (size_t)by_shape_count(&x->shape) * by_dtype_size(x->dtype))
               : 0;
}

/* Hashes the weights that a node reads, then its results. */
static void check_node(void *user, const by__exec_program_row *row, size_t node,
                       const by__device_call *call)
{
    by__trainer_replay *r = user;
    const by__graph_node *n = &row->graph->nodes[node];
    by__trainer_finding f = {.leaf = r->t->feed.leaf,
                             .part = r->t->strategy->part(r->t, row),
                             .node = (int64_t)node,
                             .row = -1};
    bool bad = false;
    if (f.part < 0) { /* sums of gradients: look_at_sums names their tensors */
        return;
    }
    for (int i = 0; i < n->input_count; i++) {
        const by__graph_value *value = n->in[i] == BY_NONE ? NULL : &row->graph->values[n->in[i]];
        if (value != NULL && value->role == BY_ROLE_PARAMETER &&
            differs(r, hash_of(&call->in[i])) && !bad) {
            (void)snprintf(f.what, sizeof f.what, "the parameter '%s'", value->name);
            bad = true;
        }
    }
    for (int i = 0; i < n->output_count; i++) {
        if (n->out[i] != BY_NONE && differs(r, hash_of(&call->out[i])) && !bad) {
            by__trainer_node_watch_describe(row, node, f.what, sizeof f.what);
            bad = true;
        }
    }
    if (bad && r->first.leaf == INT64_MAX) {
        r->first = f;
    }
}

/* The hash of memory of the device. */
static by_status hash_memory(uint64_t *out, by_memory memory, by_error *error)
{
    void *copy;
    if (memory.device->host_memory) {
        *out = by__hash64((const void *)memory.address, memory.bytes);
        return BY_OK;
    }
    BY_TRY(by__alloc(&copy, memory.bytes, 1, "guard.replay_every", error));
    by_status status = by_device_read(copy, memory, error);
    *out = status == BY_OK ? by__hash64(copy, memory.bytes) : 0;
    free(copy);
    return status;
}

/* Hashes the sums that the update will read. */
static by_status check_sums(by__trainer_replay *r, by_error *error)
{
    uint64_t hash;
    const by_trainer *t = r->t;
    int flat = t->flats.gradient_sets[t->flats.sum_set];
    by__trainer_finding f = {.leaf = t->part.all_micro_batches, .row = -1};
    for (size_t i = 0; i < by__store_count(t->store) && t->shard.states == 0; i++) {
        by_memory memory = by__store_buffer(t->store, flat, (by__store_handle)i);
        if (memory.address == 0) {
            continue;
        }
        BY_TRY(hash_memory(&hash, memory, error));
        if (differs(r, hash) && r->first.leaf == INT64_MAX) {
            (void)snprintf(f.what, sizeof f.what, "the gradient of '%s' behind its last node",
                           by__store_entry(t->store, (by__store_handle)i)->name);
            r->first = f;
        }
    }
    for (size_t i = 0; i < t->shard.own_count && t->shard.states != 0; i++) {
        by_memory memory = by__store_memory(t->store, flat, t->shard.own[i].part);
        BY_TRY(hash_memory(&hash, memory, error));
        if (differs(r, hash) && r->first.leaf == INT64_MAX) {
            (void)snprintf(f.what, sizeof f.what, "the sums of gradients %s", t->shard.own[i].name);
            r->first = f;
        }
    }
    return BY_OK;
}

bool by__trainer_replay_is_due(const by_trainer *t)
{
    int64_t every = t->config->guard.replay_every;
    return every > 0 && (t->steps.updates + 1) % every == 0;
}

by_status by__trainer_replay_begin(by_trainer *t, by_error *error)
{
    if (t->probes.replay == NULL) {
        BY_TRY(by__alloc((void **)&t->probes.replay, 1, sizeof *t->probes.replay, "guards", error));
        t->probes.replay->t = t;
    }
    by__trainer_replay *r = t->probes.replay;
    r->count = 0;
    r->next = 0;
    r->again = false;
    r->no_memory = false;
    r->first = (by__trainer_finding){.leaf = INT64_MAX, .row = -1};
    return by__trainer_node_watch_set(t, BY__WATCH_REPLAY, check_node, r, error);
}

by_status by__trainer_replay_repeat(by_trainer *t, by_error *error)
{
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    BY_TRY(check_sums(t->probes.replay, error));
    t->probes.replay->again = true;
    return BY_OK;
}

by_status by__trainer_replay_end(by_trainer *t, by_error *error)
{
    by__trainer_replay *r = t->probes.replay;
    int32_t rank;
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    BY_TRY(check_sums(r, error));
    BY_TRY(by__trainer_node_watch_failure(t, error));
    BY_TRY(by__trainer_node_watch_set(t, BY__WATCH_REPLAY, NULL, NULL, error));
    if (r->no_memory) {
        return by_error_set(error, BY_EMEMORY, "out of memory: guard.replay_every");
    }
    BY_TRY(by__trainer_finding_share(t, &r->first, &rank, error));
    if (r->first.leaf == INT64_MAX) {
        return BY_OK;
    }
    return by_error_set(
        error, BY_ECORRUPT,
        "step %lld, micro-batch %lld: rank %d (%s) computed it twice, and the results differ, "
        "first in %s; the step was not applied; a hardware fault of that machine is suspected",
        (long long)t->steps.updates + 1, (long long)r->first.leaf, (int)rank,
        t->ranks.all == NULL ? "this machine" : by_comm_host(t->ranks.all, rank), r->first.what);
}

void by__trainer_replay_close(by_trainer *t)
{
    if (t->probes.replay != NULL) {
        free(t->probes.replay->hashes);
        free(t->probes.replay);
        t->probes.replay = NULL;
    }
}
