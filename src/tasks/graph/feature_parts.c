#include "tasks/graph/feature_parts.h"

#include <stdlib.h>
#include <string.h>

#include "data/nodes/packed_arrays.h"

/* Bytes of the rows that a rank sends, or receives, in one exchange. */
#define EXCHANGE_BYTES ((size_t)4 << 20)

struct by__task_parts {
    const by__nodes_set *set;
    by_comm *comm; /* NULL: the memory of so many ranks is planned */
    size_t ranks;
    size_t room;      /* most rows that one rank gets from another one in an exchange */
    int32_t *asked;   /* [ranks, 1 + room] of each: whether more follows, and its nodes, then -1 */
    int32_t *wanted;  /* [ranks, 1 + room] the same, as the others ask */
    float *sent;      /* [ranks * room, features] */
    float *received;  /* [ranks * room, features] */
    uint64_t *places; /* [ranks, room] rows of the batch that these nodes are */
    uint64_t *next;   /* [ranks] row of the batch from which on nodes are asked of a rank */
    size_t *ids;      /* [ranks] elements of `asked` */
    size_t *send;     /* [ranks] elements of `sent`, and of `received` */
    size_t *receive;
    uint64_t bytes;
    uint64_t counted; /* by by__task_parts_count */
};

/* Rank r has rows [nodes r / ranks, nodes (r + 1) / ranks). */
static size_t owner_of(const by__task_parts *p, int32_t node)
{
    return (size_t)((((uint64_t)node + 1) * p->ranks - 1) / (uint64_t)p->set->nodes);
}

/* ---- an exchange ---- */

/* The nodes of a batch, -1 for padding. */
typedef struct batch_rows {
    const int32_t *ids;
    uint64_t count;
    float *x; /* [count, features] */
} batch_rows;

static uint64_t next_of(const by__task_parts *p, const batch_rows *b, uint64_t row, size_t rank)
{
    while (row < b->count && (b->ids[row] < 0 || owner_of(p, b->ids[row]) != rank)) {
        row++;
    }
    return row;
}

/* Lists the next nodes that are asked of each rank. */
static void ask(const by__task_parts *p, const batch_rows *b)
{
    size_t features = (size_t)p->set->features;
    int32_t more = 0;
    for (size_t r = 0; r < p->ranks; r++) {
        int32_t *nodes = p->asked + r * (1 + p->room) + 1;
        uint64_t *places = p->places + r * p->room;
        uint64_t row = p->next[r];
        size_t count = 0;
        for (; row < b->count && count < p->room; row = next_of(p, b, row + 1, r)) {
            nodes[count] = b->ids[row];
            places[count++] = row;
        }
        for (size_t i = count; i < p->room; i++) {
            nodes[i] = -1;
        }
        p->next[r] = row;
        p->receive[r] = count * features;
        more |= row < b->count;
    }
    for (size_t r = 0; r < p->ranks; r++) {
        p->asked[r * (1 + p->room)] = more;
    }
}

/* Collects the rows that others ask for. Returns whether one of them asks for more. */
static bool answer(const by__task_parts *p)
{
    size_t features = (size_t)p->set->features;
    float *row = p->sent;
    int32_t more = 0;
    for (size_t r = 0; r < p->ranks; r++) {
        const int32_t *nodes = p->wanted + r * (1 + p->room) + 1;
        more |= nodes[-1];
        p->send[r] = 0;
        for (size_t i = 0; i < p->room && nodes[i] >= 0; i++) {
            by__nodes_set_row(p->set, nodes[i], row);
            row += features;
            p->send[r] += features;
        }
    }
    return more != 0;
}

static void place(const by__task_parts *p, const batch_rows *b)
{
    size_t features = (size_t)p->set->features;
    const float *row = p->received;
    for (size_t r = 0; r < p->ranks; r++) {
        for (size_t i = 0; i < p->receive[r] / features; i++, row += features) {
            memcpy(b->x + p->places[r * p->room + i] * features, row, features * sizeof *row);
        }
    }
}

static batch_rows rows_of(const by_batch *batch)
{
    const by_array *x = by_batch_array(batch, "nodes.x");
    const by_array *ids = by_batch_array(batch, "nodes.ids");
    ids = ids == NULL ? by_batch_array(batch, "ids") : ids;
    if (batch->batch == 0 || x == NULL || ids == NULL) {
        return (batch_rows){0};
    }
    return (batch_rows){.ids = ids->data,
                        .count = (uint64_t)batch->batch * (uint64_t)x->shape.dim[1],
                        .x = (void *)(uintptr_t)x->data}; /* memory of the loader */
}

by_status by__task_parts_fetch(by__task_parts *p, const by_batch *batch, by_error *error)
{
    if (p == NULL) {
        return BY_OK;
    }
    const batch_rows b = rows_of(batch);
    for (size_t r = 0; r < p->ranks; r++) {
        p->next[r] = next_of(p, &b, 0, r);
    }
    for (bool more = true; more;) {
        ask(p, &b);
        BY_TRY(by_comm_all_to_all(p->comm, p->asked, p->ids, p->wanted, p->ids, BY_I32,
                                  "nodes of features", error));
        more = answer(p);
        BY_TRY(by_comm_all_to_all(p->comm, p->sent, p->send, p->received, p->receive, BY_F32,
                                  "features of nodes", error));
        place(p, &b);
    }
    return BY_OK;
}

/* ---- opening ---- */

static by_status check(const by__task_fan_keys *k, bool whole, by_error *error)
{
    if (whole) {
        return by_error_set(error, BY_ECONFIG,
                            "data.partition_features: a step reads the whole graph, so that every "
                            "rank needs the features of all nodes; sample it with data.fan_outs "
                            "or data.sampling, or set data.partition_features=false");
    }
    return by__nodes_is_packed(k->graph.graph)
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "data.partition_features: %s is read into memory as a whole; pack "
                              "it with `banyan pack --graph`, or set data.partition_features=false",
                              k->graph.graph);
}

static by_status take(void *out, by__task_parts *p, size_t count, size_t size, by_error *error)
{
    p->bytes += (uint64_t)count * size;
    return p->comm == NULL ? BY_OK : by__alloc(out, count, size, "an exchange of features", error);
}

static by_status allocate(by__task_parts *p, by_error *error)
{
    size_t row = (size_t)p->set->features * sizeof(float);
    size_t most = EXCHANGE_BYTES / (row * p->ranks);
    p->room = most == 0 ? 1 : most;
    size_t rows = p->ranks * p->room;
    BY_TRY(take(&p->asked, p, rows + p->ranks, sizeof *p->asked, error));
    BY_TRY(take(&p->wanted, p, rows + p->ranks, sizeof *p->wanted, error));
    BY_TRY(take(&p->sent, p, rows, row, error));
    BY_TRY(take(&p->received, p, rows, row, error));
    BY_TRY(take(&p->places, p, rows, sizeof *p->places, error));
    BY_TRY(take(&p->next, p, p->ranks, sizeof *p->next, error));
    BY_TRY(take(&p->ids, p, p->ranks, sizeof *p->ids, error));
    BY_TRY(take(&p->send, p, p->ranks, sizeof *p->send, error));
    BY_TRY(take(&p->receive, p, p->ranks, sizeof *p->receive, error));
    for (size_t r = 0; r < p->ranks && p->comm != NULL; r++) {
        p->ids[r] = 1 + p->room;
    }
    return BY_OK;
}

by_status by__task_parts_open(by__task_parts **out, const by__task_fan_keys *k, by__nodes_set *set,
                              bool whole, const by_task_request *request, by_error *error)
{
    by__task_parts *p;
    int ranks = request->comm != NULL ? by_comm_size(request->comm) : request->ranks;
    *out = NULL;
    if (k->partition == 0 || request->purpose != BY_TASK_TRAIN) {
        return BY_OK;
    }
    BY_TRY(check(k, whole, error));
    if (ranks < 2) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "parts of features", error));
    p->set = set;
    p->comm = request->comm;
    p->ranks = (size_t)ranks;
    by_status status = allocate(p, error);
    if (status != BY_OK) {
        by__task_parts_close(&p);
        return status;
    }
    set->partitioned = p->comm != NULL;
    *out = p;
    return BY_OK;
}

void by__task_parts_close(by__task_parts **parts)
{
    by__task_parts *p = *parts;
    if (p == NULL) {
        return;
    }
    free(p->asked);
    free(p->wanted);
    free(p->sent);
    free(p->received);
    free(p->places);
    free(p->next);
    free(p->ids);
    free(p->send);
    free(p->receive);
    free(p);
    *parts = NULL;
}

by_status by__task_parts_count(by__task_parts *p, uint64_t *bytes, const by_config *config,
                               by_error *error)
{
    const by__nn_node_sizes *sizes = by__nn_node_sizes_of(&config->model);
    uint64_t training = 0;
    uint64_t held_out = 0;
    if (p == NULL || sizes == NULL) {
        return BY_OK;
    }
    const by_array ids = {"nodes.ids", BY_I32, BY_SHAPE(sizes->sample_nodes), NULL};
    size_t batch = (size_t)config->train.batch;
    by_loader_options options = {.batch = batch, .count = (batch + p->ranks - 1) / p->ranks};
    BY_TRY(by_loader_bytes(&training, &ids, 1, &options, error));
    options = (by_loader_options){.batch = (size_t)config->train.micro_batch};
    BY_TRY(by_loader_bytes(&held_out, &ids, 1, &options, error));
    *bytes -= p->counted;
    p->counted = p->bytes + training + held_out;
    *bytes += p->counted;
    return BY_OK;
}
