/* Communicators: their blocks, creation, splitting, and closing. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"

/* ---- the shared block ---- */

/* An all-to-all publishes two counts per rank. */
static size_t payload_bytes(int size)
{
    size_t counts = (size_t)size * 16;
    return counts > BY__COMM_PAYLOAD ? counts : BY__COMM_PAYLOAD;
}

static size_t record_bytes(int size)
{
    return by__round_up(sizeof(by__comm_record) + payload_bytes(size), BY_CACHE_LINE);
}

static size_t slot_bytes(int size)
{
    return sizeof(by__comm_slot) + 2 * record_bytes(size);
}

size_t by__comm_block_bytes(int size, int near_ranks)
{
    size_t near = (size_t)near_ranks;
    return near * slot_bytes(size) + near * near * sizeof(by__comm_send_ring);
}

by__comm_slot *by__comm_slot_of(const by_comm *comm, int near)
{
    return (by__comm_slot *)(void *)(comm->block + (size_t)near * slot_bytes(comm->size));
}

by__comm_send_ring *by__comm_send_ring_of(const by_comm *comm, int from, int to)
{
    size_t near = (size_t)comm->near_count;
    unsigned char *rings = comm->block + near * slot_bytes(comm->size);
    return (by__comm_send_ring *)(void *)rings + ((size_t)from * near + (size_t)to);
}

/* ---- making and freeing ---- */

static by_status fill_members(by_comm *comm, const int *worlds, by_error *error)
{
    by__comm_job *job = comm->job;
    size_t size = (size_t)comm->size;
    BY_TRY(by__alloc((void **)&comm->members, size, sizeof *comm->members, "ranks", error));
    BY_TRY(by__alloc((void **)&comm->near, size, sizeof *comm->near, "ranks", error));
    for (int r = 0; r < comm->size; r++) {
        comm->members[r] = (by__comm_member){worlds[r], -1};
        if (job->ranks[worlds[r]].near >= 0) {
            comm->members[r].near = comm->near_count;
            comm->near[comm->near_count++] = r;
        }
        if (worlds[r] == job->rank) {
            comm->rank = r;
            comm->my_near = comm->members[r].near;
        }
    }
    return BY_OK;
}

/* Determines which members share a host. */
static by_status fill_hosts(by_comm *comm, by_error *error)
{
    const by__comm_rank *ranks = comm->job->ranks;
    size_t size = (size_t)comm->size;
    int place = 0;
    BY_TRY(by__alloc((void **)&comm->host_of, size, sizeof *comm->host_of, "ranks", error));
    BY_TRY(by__alloc((void **)&comm->host_ranks, size, sizeof *comm->host_ranks, "ranks", error));
    BY_TRY(
        by__alloc((void **)&comm->host_begin, size + 1, sizeof *comm->host_begin, "ranks", error));
    for (int first = 0; first < comm->size; first++) {
        int group = ranks[comm->members[first].world].group;
        bool seen = false;
        for (int r = 0; r < first && !seen; r++) {
            seen = ranks[comm->members[r].world].group == group;
        }
        for (int r = first; r < comm->size && !seen; r++) {
            if (ranks[comm->members[r].world].group == group) {
                comm->host_of[r] = comm->hosts;
                comm->host_ranks[place++] = r;
            }
        }
        if (!seen) {
            comm->host_begin[++comm->hosts] = place;
        }
    }
    return BY_OK;
}

/* Makes the plan with one holder per rank. */
static by_status fill_plan(by_comm *comm, by_error *error)
{
    size_t size = (size_t)comm->size;
    int64_t *begin;
    BY_TRY(by__alloc((void **)&comm->owners, size, sizeof *comm->owners, "ranks", error));
    BY_TRY(by__alloc((void **)&comm->slices, 3 * size, sizeof *comm->slices, "ranks", error));
    comm->begin = comm->slices + size;
    comm->bytes = comm->begin + size;
    BY_TRY(by__alloc((void **)&begin, size + 1, sizeof *begin, "ranks", error));
    for (int r = 0; r <= comm->size; r++) {
        begin[r] = r;
        if (r < comm->size) {
            comm->owners[r] = r;
        }
    }
    comm->plan = (by__comm_holder_plan){.holders = comm->size, .owners = comm->owners};
    by_status status =
        by__sum_tree_merges(&comm->merges, &comm->plan.merge_count, begin, comm->size, error);
    comm->plan.merges = comm->merges;
    free(begin);
    return status;
}

by_status by__comm_make(by_comm **out, by__comm_job *job, const int *worlds, int count, uint32_t id,
                        by_error *error)
{
    by_comm *comm;
    size_t far_bytes;
    BY_TRY(by__alloc((void **)&comm, 1, sizeof *comm, "a communicator", error));
    comm->job = job;
    (void)atomic_fetch_add(&job->users, 1);
    comm->id = id;
    comm->size = count;
    comm->payload_bytes = payload_bytes(count);
    comm->record_bytes = record_bytes(count);
    by_status status = fill_members(comm, worlds, error);
    if (status == BY_OK) {
        status = fill_hosts(comm, error);
    }
    if (status == BY_OK) {
        status = fill_plan(comm, error);
    }
    if (status == BY_OK && !by__size_mul((size_t)count, comm->record_bytes, &far_bytes)) {
        status = by_error_set(error, BY_EMEMORY, "size overflow: records of %d ranks", count);
    }
    if (status == BY_OK && comm->near_count < count) {
        status = by__alloc_aligned((void **)&comm->far_records, far_bytes, "records", error);
        if (status == BY_OK) {
            memset(comm->far_records, 0, far_bytes);
            status = by__alloc_aligned((void **)&comm->mine, comm->record_bytes, "records", error);
        }
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&comm->near_copies, (size_t)comm->near_count * BY__COMM_RING,
                           sizeof *comm->near_copies, "sends", error);
    }
    comm->block_bytes = by__comm_block_bytes(count, comm->near_count);
    comm->spins = comm->near_count <= (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (status != BY_OK) {
        by__comm_free(&comm);
        return status;
    }
    *out = comm;
    return BY_OK;
}

static void free_flight(by__comm_flight *flight)
{
    if (flight->left > 0) {
        flight->job->link->cancel(flight);
    }
    free(flight->entries);
    free(flight->requests);
}

void by__comm_job_release(by__comm_job *job)
{
    if (atomic_fetch_sub(&job->users, 1) != 1) {
        return;
    }
    if (job->link->close != NULL) {
        job->link->close(job);
    }
    if (job->block != NULL) {
        job->link->region_release(job->block, job->block_bytes);
    }
    (void)pthread_mutex_destroy(&job->watching);
    free(job->ranks);
    free(job);
}

void by__comm_free(by_comm **comm)
{
    by_comm *c = *comm;
    by__comm_wait_readers(c);
    free_flight(&c->sends);
    for (int i = 0; i < BY__COMM_DEPTH; i++) {
        free_flight(&c->receives[i]);
        free_flight(&c->relays[i]);
    }
    free_flight(&c->results);
    for (size_t i = 0; i < c->pending_sends; i++) {
        free_flight(&c->pending[i].flight);
        free(c->pending[i].copy);
    }
    free(c->pending);
    if (c->block != NULL) {
        c->job->link->region_release(c->block, c->block_bytes);
    }
    for (size_t i = 0; c->near_copies != NULL && i < (size_t)c->near_count * BY__COMM_RING; i++) {
        free(c->near_copies[i]);
    }
    free(c->near_copies);
    free(c->members);
    free(c->near);
    free(c->owners);
    free(c->slices);
    free(c->merges);
    free(c->far_records);
    free(c->mine);
    free(c->host_of);
    free(c->host_begin);
    free(c->host_ranks);
    free(c->scratch);
    free(c->stages);
    by__comm_job_release(c->job);
    free(c);
    *comm = NULL;
}

void by_comm_close(by_comm **comm)
{
    if (comm == NULL || *comm == NULL) {
        return;
    }
    by_comm *c = *comm;
    if (!by__comm_job_failed(c->job)) {
        /* Others may still read what was sent to them. On failure nobody will. */
        by_error error;
        by__comm_header header = {.kind = BY__COMM_CLOSE};
        by_status status = by__comm_enter(c, &header, "", NULL, 0, &error);
        (void)by__comm_leave(c, status, &error);
    }
    by__comm_free(comm);
}

by_status by__comm_scratch(by_comm *comm, size_t bytes, void **out, by_error *error)
{
    if (bytes > comm->scratch_bytes) {
        void *larger;
        BY_TRY(by__alloc_aligned(&larger, bytes, "a collective's scratch memory", error));
        free(comm->scratch);
        comm->scratch = larger;
        comm->scratch_bytes = bytes;
    }
    *out = comm->scratch;
    return BY_OK;
}

/* ---- split ---- */

typedef struct split_entry {
    int32_t color;
    int32_t key;
    uint32_t next_id;
    int32_t rank;
} split_entry;

static int compare_entries(const void *a, const void *b)
{
    const split_entry *x = a;
    const split_entry *y = b;
    if (x->color != y->color) {
        return x->color < y->color ? -1 : 1;
    }
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Gathers the entries of all ranks, sorted by group and by rank in it. */
static by_status gather_entries(split_entry *entries, by_comm *comm, int color, int key,
                                by_error *error)
{
    split_entry mine = {color, key, comm->job->next_id, comm->rank};
    by__comm_header header = {.kind = BY__COMM_SPLIT};
    BY_TRY(by__comm_enter(comm, &header, "groups", &mine, sizeof mine, error));
    for (int r = 0; r < comm->size; r++) {
        memcpy(&entries[r], by__comm_record_of(comm, r)->payload, sizeof mine);
    }
    qsort(entries, (size_t)comm->size, sizeof *entries, compare_entries);
    return BY_OK;
}

/* Shares the block of a new communicator: its first near rank creates it and the others attach. All
 * ranks of `comm` take part, including those of no group. */
static by_status share_block(by_comm *group, by_comm *comm, by_error *error)
{
    const by__comm_link *link = comm->job->link;
    by__comm_header header = {.kind = BY__COMM_SPLIT};
    by__comm_region_handle handle = {{0}};
    if (group != NULL && group->my_near == 0) {
        BY_TRY(link->region_create(comm->job, group->block_bytes, (void **)&group->block, &handle,
                                   error));
    }
    BY_TRY(by__comm_enter(comm, &header, "blocks", &handle, sizeof handle, error));
    if (group != NULL && group->my_near != 0) {
        int maker = group->members[group->near[0]].world;
        int r = 0;
        while (comm->members[r].world != maker) {
            r++;
        }
        memcpy(&handle, by__comm_record_of(comm, r)->payload, sizeof handle);
        BY_TRY(link->region_attach(comm->job, &handle, group->block_bytes, (void **)&group->block,
                                   error));
    }
    /* The creator keeps the block until all have attached. */
    by__comm_step(comm);
    return by__comm_await_all(comm, error);
}

static by_status split(by_comm **out, by_comm *comm, int color, int key, split_entry *entries,
                       int *worlds, by_error *error)
{
    BY_TRY(gather_entries(entries, comm, color, key, error));
    uint32_t id = 0;
    uint32_t groups = 0;
    uint32_t mine = 0;
    int count = 0;
    for (int i = 0; i < comm->size; i++) {
        id = entries[i].next_id > id ? entries[i].next_id : id;
        if (entries[i].color < 0) {
            continue;
        }
        if (i == 0 || entries[i].color != entries[i - 1].color) {
            groups++;
        }
        if (entries[i].color == color) {
            mine = groups - 1;
            worlds[count++] = comm->members[entries[i].rank].world;
        }
    }
    /* Two communicators with two ranks in common have different ids, because both ranks took part
     * in creating both. Their messages differ in the id. */
    if (id + groups > comm->job->ids) {
        return by_error_set(error, BY_ESTATE, "%u communicators were made, more than a job may",
                            id);
    }
    comm->job->next_id = id + groups;
    if (color >= 0) {
        BY_TRY(by__comm_make(out, comm->job, worlds, count, id + mine, error));
    }
    return share_block(*out, comm, error);
}

by_status by_comm_split(by_comm **out, by_comm *comm, int color, int key, by_error *error)
{
    by_error local;
    split_entry *entries = NULL;
    int *worlds = NULL;
    by_comm *made = NULL;
    error = error == NULL ? &local : error;
    if (color < -1) {
        return by_error_set(error, BY_EARG, "color %d of a split: at least 0, or -1 for no group",
                            color);
    }
    by_status status =
        by__alloc((void **)&entries, (size_t)comm->size, sizeof *entries, "ranks", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&worlds, (size_t)comm->size, sizeof *worlds, "ranks", error);
    }
    if (status == BY_OK) {
        status = split(&made, comm, color, key, entries, worlds, error);
    }
    free(entries);
    free(worlds);
    if (by__comm_leave(comm, status, error) != BY_OK) {
        if (made != NULL) {
            by__comm_free(&made);
        }
        return status;
    }
    *out = made;
    return BY_OK;
}

/* ---- properties of a communicator ---- */

int by_comm_rank(const by_comm *comm)
{
    return comm->rank;
}

int by_comm_size(const by_comm *comm)
{
    return comm->size;
}

const char *by_comm_backend(const by_comm *comm)
{
    return comm->job->link->name;
}

const char *by_comm_host(const by_comm *comm, int rank)
{
    return comm->job->ranks[comm->members[rank].world].host;
}

int by__comm_local_rank(const by_comm *comm)
{
    int local = 0;
    for (int r = 0; comm != NULL && r < comm->rank; r++) {
        local += comm->host_of[r] == comm->host_of[comm->rank];
    }
    return local;
}

bool by_comm_is_near(const by_comm *comm, int rank)
{
    return comm->members[rank].near >= 0;
}

void by_comm_count(by_comm_counters *out, const by_comm *comm)
{
    *out = comm->counters;
}
