/* Communication between hosts, with one message per host instead of one per rank.
 *
 * Data from a host to a far rank, or from a rank to a far host, pass through one rank of that host,
 * its relay (relay_of), which depends on the far rank, so that all ranks of a host share the work.
 *
 * Sums: on the far rank's slice, the relay runs those merges of the plan that add holders of its
 * own host only, and sends the remaining values: the sums of the largest subtrees within the host,
 * in f32. If ranks are ordered by hosts that is a single value when the host's number of ranks is a
 * power of two. The far rank runs the other merges, so the expression is the same.
 *
 * A sum is sent in segments, several of which are in flight at once; if all ranks want the whole
 * result, each segment is sent as soon as it is complete.
 *
 * Gathers: a rank sends its slice to the relay of every far host, which writes it to its near
 * ranks. */
#include <stdlib.h>
#include <string.h>

#include "comm/reduction.h"

/* The rank of a host that communicates with a far rank on behalf of the host. */
static int relay_of(const by_comm *comm, int host, int far_rank)
{
    int begin = comm->host_begin[host];
    return comm->host_ranks[begin + far_rank % (comm->host_begin[host + 1] - begin)];
}

/* ---- gathers ---- */

/* Copies slices received for this host to its other ranks. */
static by_status share_slices(by_comm *comm, void *all, const size_t *begin, const size_t *bytes,
                              by_error *error)
{
    int here = comm->host_of[comm->rank];
    for (int r = 0; r < comm->size; r++) {
        if (comm->host_of[r] == here || relay_of(comm, here, r) != comm->rank) {
            continue;
        }
        for (int i = 1; i < comm->near_count && bytes[r] > 0; i++) {
            int to = comm->near[(comm->my_near + i) % comm->near_count];
            uint64_t target = by__comm_record_of(comm, to)->header.target;
            BY_TRY(by__comm_write(comm, to, (unsigned char *)all + begin[r], target + begin[r],
                                  bytes[r], error));
        }
    }
    return BY_OK;
}

by_status by__comm_spread(by_comm *comm, const void *mine, void *all, const size_t *begin,
                          const size_t *bytes, by_error *error)
{
    int here = comm->host_of[comm->rank];
    for (int host = 0; host < comm->hosts; host++) {
        if (host != here) {
            BY_TRY(by__comm_post(comm, &comm->sends, false, relay_of(comm, host, comm->rank),
                                 BY__COMM_TAG_DATA, (void *)(uintptr_t)mine, bytes[comm->rank],
                                 error));
        }
    }
    for (int r = 0; r < comm->size; r++) {
        if (comm->host_of[r] != here && relay_of(comm, here, r) == comm->rank) {
            BY_TRY(by__comm_post(comm, &comm->receives[0], true, r, BY__COMM_TAG_DATA,
                                 (unsigned char *)all + begin[r], bytes[r], error));
        }
    }
    BY_TRY(by__comm_wait_all(comm, &comm->receives[0], error));
    BY_TRY(share_slices(comm, all, begin, bytes, error));
    return by__comm_wait_all(comm, &comm->sends, error);
}

/* ---- sums ---- */

/* Returns true if a holder's value is sent from its host. */
static bool leaves(const by__comm_reduction *r, int holder)
{
    return r->used[holder] && !r->gone[holder];
}

/* Returns true for a holder of a far host whose value is received. */
static bool comes_from_far(const by__comm_reduction *r, int holder)
{
    int host = by__comm_host_of_holder(r, holder);
    return host >= 0 && host != r->comm->host_of[r->comm->rank] && leaves(r, holder);
}

/* Bytes per element of a value sent between hosts: sums stay in f32. */
static size_t wire_size(const by__comm_reduction *r, int holder)
{
    return r->merged[holder] ? sizeof(float) : r->size;
}

static size_t segment_elements(size_t slice, size_t segment)
{
    size_t at = segment * BY__SEGMENT;
    return at >= slice ? 0 : slice - at < BY__SEGMENT ? slice - at : BY__SEGMENT;
}

static unsigned char *stage_of(const by__comm_reduction *r, size_t segment, int holder)
{
    return r->stage[segment % BY__COMM_DEPTH] + (size_t)holder * BY__SEGMENT * sizeof(float);
}

static by_status receive_segment(by__comm_reduction *r, size_t segment, by_error *error)
{
    by_comm *comm = r->comm;
    size_t n = segment_elements(r->mine, segment);
    for (int h = 0; h < r->sum->plan->holders && n > 0; h++) {
        if (comes_from_far(r, h)) {
            int relay = relay_of(comm, by__comm_host_of_holder(r, h), comm->rank);
            BY_TRY(by__comm_post(comm, &comm->receives[segment % BY__COMM_DEPTH], true, relay,
                                 BY__COMM_TAG_DATA, stage_of(r, segment, h), n * wire_size(r, h),
                                 error));
        }
    }
    return BY_OK;
}

/* Computes this host's values of a segment of a far rank's slice into `out`, a stage of holders. A
 * value of this rank that needs no addition stays where it is. */
static by_status make_segment(by__comm_reduction *r, size_t segment, size_t n, unsigned char *out,
                              by_error *error)
{
    const by__comm_holder_plan *plan = r->sum->plan;
    for (size_t done = 0; done < n; done += r->chunk) {
        size_t at = segment * BY__SEGMENT + done;
        size_t m = n - done < r->chunk ? n - done : r->chunk;
        BY_TRY(by__comm_merge_chunk(r, at, m, false, NULL, error));
        for (int h = 0; h < plan->holders; h++) {
            size_t wire = wire_size(r, h);
            unsigned char *to = out + (size_t)h * BY__SEGMENT * sizeof(float) + done * wire;
            if (by__comm_host_of_holder(r, h) != r->comm->host_of[r->comm->rank] || !leaves(r, h)) {
                continue;
            }
            if (r->merged[h]) {
                memcpy(to, r->now[h], m * wire);
            } else if (r->source[h] == NULL) {
                BY_TRY(by__comm_read(r->comm, plan->owners[h], to,
                                     r->address[h] + (r->base + at) * wire, m * wire, error));
            }
        }
    }
    return BY_OK;
}

static by_status send_segment(by__comm_reduction *r, int to, size_t segment, unsigned char *stage,
                              by_error *error)
{
    by_comm *comm = r->comm;
    size_t n = segment_elements(r->sum->slices[to], segment);
    size_t at = r->base + segment * BY__SEGMENT;
    BY_TRY(make_segment(r, segment, n, stage, error));
    for (int h = 0; h < r->sum->plan->holders; h++) {
        size_t wire = wire_size(r, h);
        if (by__comm_host_of_holder(r, h) != comm->host_of[comm->rank] || !leaves(r, h)) {
            continue;
        }
        unsigned char *data = stage + (size_t)h * BY__SEGMENT * sizeof(float);
        if (!r->merged[h] && r->source[h] != NULL) {
            data = (unsigned char *)(uintptr_t)r->source[h] + at * wire;
        }
        BY_TRY(by__comm_post(comm, &comm->relays[segment % BY__COMM_DEPTH], false, to,
                             BY__COMM_TAG_DATA, data, n * wire, error));
    }
    return BY_OK;
}

/* Sends segments to all far ranks that this rank relays to. `stages` has room for BY__COMM_DEPTH of
 * each. */
static by_status send_segments(by__comm_reduction *r, size_t segment, unsigned char *stages,
                               by_error *error)
{
    by_comm *comm = r->comm;
    int here = comm->host_of[comm->rank];
    size_t stage = (size_t)r->sum->plan->holders * BY__SEGMENT * sizeof(float);
    size_t place = segment % BY__COMM_DEPTH;
    BY_TRY(by__comm_wait_all(comm, &comm->relays[segment % BY__COMM_DEPTH], error));
    for (int to = 0; to < comm->size; to++) {
        r->base = by__comm_slice_first(r->sum, to);
        if (comm->host_of[to] == here || relay_of(comm, here, to) != comm->rank) {
            continue;
        }
        if (segment_elements(r->sum->slices[to], segment) > 0) {
            BY_TRY(send_segment(r, to, segment, stages + place * stage, error));
        }
        place += BY__COMM_DEPTH;
    }
    r->base = r->offset;
    return BY_OK;
}

/* Sends a segment of this rank's sums to all far hosts. */
static by_status send_result(by__comm_reduction *r, size_t segment, by_error *error)
{
    by_comm *comm = r->comm;
    size_t n = segment_elements(r->mine, segment);
    unsigned char *own = (unsigned char *)r->sum->own + segment * BY__SEGMENT * r->size;
    for (int host = 0; host < comm->hosts && n > 0; host++) {
        if (host != comm->host_of[comm->rank]) {
            BY_TRY(by__comm_post(comm, &comm->sends, false, relay_of(comm, host, comm->rank),
                                 BY__COMM_TAG_RESULT, own, n * r->size, error));
        }
    }
    return BY_OK;
}

/* Receives the same for far ranks' slices, whose values this host has sent. */
static by_status receive_results(by__comm_reduction *r, size_t segment, by_error *error)
{
    by_comm *comm = r->comm;
    int here = comm->host_of[comm->rank];
    for (int from = 0; from < comm->size; from++) {
        size_t n = segment_elements(r->sum->slices[from], segment);
        size_t begin = by__comm_slice_first(r->sum, from) + segment * BY__SEGMENT;
        if (n > 0 && comm->host_of[from] != here && relay_of(comm, here, from) == comm->rank) {
            BY_TRY(by__comm_post(comm, &comm->results, true, from, BY__COMM_TAG_RESULT,
                                 (unsigned char *)r->sum->all + begin * r->size, n * r->size,
                                 error));
        }
    }
    return BY_OK;
}

/* Sums a segment of this rank's slice, once all of it has arrived. */
static by_status sum_segment(by__comm_reduction *r, size_t segment, by_error *error)
{
    by_comm *comm = r->comm;
    int holders = r->sum->plan->holders;
    size_t n = segment_elements(r->mine, segment);
    if (n == 0) {
        return BY_OK;
    }
    BY_TRY(by__comm_wait_all(comm, &comm->receives[segment % BY__COMM_DEPTH], error));
    for (int h = 0; h < holders; h++) {
        r->staged[h] = comes_from_far(r, h) ? stage_of(r, segment, h) : NULL;
    }
    BY_TRY(by__comm_sum_range(r, segment * BY__SEGMENT, segment * BY__SEGMENT + n, error));
    memset(r->staged, 0, (size_t)holders * sizeof *r->staged);
    return r->sum->all == NULL ? BY_OK : send_result(r, segment, error);
}

/* Completes a sum whose result all ranks want. */
static by_status end_results(by__comm_reduction *r, by_error *error)
{
    by_comm *comm = r->comm;
    for (int k = 0; k < comm->size; k++) {
        comm->begin[k] = by__comm_slice_first(r->sum, k) * r->size;
        comm->bytes[k] = r->sum->slices[k] * r->size;
    }
    BY_TRY(by__comm_wait_all(comm, &comm->results, error));
    BY_TRY(share_slices(comm, r->sum->all, comm->begin, comm->bytes, error));
    return by__comm_wait_all(comm, &comm->sends, error);
}

/* Allocates memory for the segments in flight, those of far hosts first. *most: the largest
 * slice. */
static by_status allocate_stages(by__comm_reduction *r, size_t *most, unsigned char **relayed,
                                 by_error *error)
{
    by_comm *comm = r->comm;
    int here = comm->host_of[comm->rank];
    size_t clients = 0;
    size_t stage;
    size_t bytes;
    *most = 0;
    for (int to = 0; to < comm->size; to++) {
        *most = r->sum->slices[to] > *most ? r->sum->slices[to] : *most;
        clients += comm->host_of[to] != here && relay_of(comm, here, to) == comm->rank;
    }
    if (!by__size_mul((size_t)r->sum->plan->holders, BY__SEGMENT * sizeof(float), &stage) ||
        !by__size_mul(stage, BY__COMM_DEPTH * (1 + clients), &bytes)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: messages of %d buffers",
                            r->sum->plan->holders);
    }
    if (bytes > comm->stage_bytes) {
        void *larger;
        BY_TRY(by__alloc_aligned(&larger, bytes, "messages of a sum", error));
        free(comm->stages);
        comm->stages = larger;
        comm->stage_bytes = bytes;
    }
    for (int k = 0; k < BY__COMM_DEPTH; k++) {
        r->stage[k] = comm->stages + (size_t)k * stage;
    }
    *relayed = comm->stages + BY__COMM_DEPTH * stage;
    return BY_OK;
}

by_status by__comm_sum_with_far(by__comm_reduction *r, by_error *error)
{
    by_comm *comm = r->comm;
    unsigned char *relayed = NULL;
    size_t most;
    BY_TRY(allocate_stages(r, &most, &relayed, error));
    for (size_t k = 0; k < BY__COMM_DEPTH; k++) {
        BY_TRY(receive_segment(r, k, error));
    }
    for (size_t k = 0; k < BY__COMM_DEPTH; k++) {
        BY_TRY(send_segments(r, k, relayed, error));
    }
    for (size_t k = 0; k * BY__SEGMENT < most; k++) {
        BY_TRY(sum_segment(r, k, error));
        BY_TRY(receive_segment(r, k + BY__COMM_DEPTH, error));
        BY_TRY(send_segments(r, k + BY__COMM_DEPTH, relayed, error));
        if (r->sum->all != NULL) { /* this rank's values of segment k were sent */
            BY_TRY(receive_results(r, k, error));
        }
    }
    for (size_t k = 0; k < BY__COMM_DEPTH; k++) {
        BY_TRY(by__comm_wait_all(comm, &comm->relays[k], error));
    }
    return r->sum->all == NULL ? BY_OK : end_results(r, error);
}
