/* The norm of gradients when ranks of `pipeline` and `shard` have parts of them, with the same bits
 * as on one rank.
 *
 * One rank sums the squares of each BY_SUM_BLOCK neighbouring elements of a group's gradients, and
 * adds these sums. Here a rank has some of the group's tensors, or slices of them: most blocks are
 * on one rank, which sums their squares; for a block on several ranks, every rank gets all its
 * pieces. Every rank then has the sums of all blocks in order, and computes the norm from them.
 * Little is sent: a number per block, and a few blocks. */
#include <stdlib.h>
#include <string.h>

#include "optim/optim.h"
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"

/* ---- distribution of elements ---- */

/* The entries of a rank of the pipeline, and how the ranks of `shard` divide them. */
typedef struct holder {
    by__store *store; /* of its entries; never allocated */
    by__trainer_bucket *buckets;
    size_t bucket_count;
    size_t *slices;
} holder;

typedef struct norm_planner {
    const by_trainer *t;
    by__trainer_gradient_norm *norm;
    by__store *whole; /* with the model's entries */
    holder *holders;  /* one per rank of the pipeline */
    int holder_count;
    int shards;
    by__trainer_norm_run *segments; /* runs of elements on one rank */
    size_t segment_count;
    size_t segment_capacity;
} norm_planner;

static by_status open_holder(holder *h, const by_trainer *t, int rank, by_error *error)
{
    by_graph *list;
    BY_TRY(by__store_open(&h->store, t->device, error));
    BY_TRY(by__trainer_list_trained(&list, t, rank, error));
    by_status status = by__nn_declare_parameters(h->store, list, error);
    by_graph_close(&list);
    if (status != BY_OK || t->shard.states == 0) {
        return status;
    }
    BY_TRY(by__trainer_buckets_list(&h->buckets, &h->bucket_count, t, h->store, error));
    return by__trainer_shard_cut(&h->slices, t, h->store, h->buckets, h->bucket_count, error);
}

static void close_planner(norm_planner *p)
{
    for (int i = 0; i < p->holder_count && p->holders != NULL; i++) {
        by__store_close(&p->holders[i].store);
        free(p->holders[i].buckets);
        free(p->holders[i].slices);
    }
    free(p->holders);
    by__store_close(&p->whole);
    free(p->segments);
}

/* Adds elements of a group as a segment, or extends the previous one if they are adjacent in the
 * group and in one slice of their owner. */
static by_status add_segment(norm_planner *p, by__trainer_norm_run next, by_error *error)
{
    by__trainer_norm_run *last = p->segment_count == 0 ? NULL : &p->segments[p->segment_count - 1];
    if (last != NULL && last->owner == next.owner && last->part.group == next.part.group &&
        last->bucket == next.bucket && last->part.first + last->part.count == next.part.first &&
        last->at + last->part.count == next.at) {
        last->part.count += next.part.count;
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&p->segments, &p->segment_capacity, p->segment_count + 1,
                       sizeof *p->segments, error));
    p->segments[p->segment_count++] = next;
    return BY_OK;
}

static int by_place(const void *a, const void *b)
{
    const by__trainer_norm_run *x = a;
    const by__trainer_norm_run *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Adds the slices of a tensor that the ranks of `shard` have; the tensor is on a rank of the
 * pipeline, and `all` is the whole of it. */
static by_status add_slices(norm_planner *p, const holder *h, const by__trainer_norm_run *all,
                            by_error *error)
{
    const by__store_part there = {all->part.group, all->at, all->part.count};
    by__trainer_norm_run *found;
    size_t count = 0;
    BY_TRY(by__alloc((void **)&found, h->bucket_count * (size_t)p->shards + 1, sizeof *found,
                     "gradient norm", error));
    for (size_t k = 0; k < h->bucket_count; k++) {
        for (int r = 0; r < p->shards; r++) {
            by__store_part part =
                by__store_part_common(there, by__trainer_bucket_slice(&h->buckets[k], r).part);
            int64_t at = part.first;
            part.first += all->part.first - all->at;
            if (part.count > 0) {
                found[count++] = (by__trainer_norm_run){part, all->owner + r, k, at};
            }
        }
    }
    qsort(found, count, sizeof *found, by_place); /* buckets of the last elements come first */
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = add_segment(p, found[i], error);
    }
    free(found);
    return status;
}

static by_status list_segments(norm_planner *p, by_error *error)
{
    for (int group = 0; group < BY__GROUP_STATISTIC; group++) {
        int64_t end = 0;
        for (size_t i = 0; i < by__store_count(p->whole); i++) {
            const by__store_tensor *entry = by__store_entry(p->whole, (by__store_handle)i);
            if (entry->group != group) {
                continue;
            }
            int rank = by__trainer_holder_of(p->t, entry->name);
            const holder *h = &p->holders[rank];
            by__store_handle there = by__store_find(h->store, entry->name);
            int64_t elements = by__store_padded(p->whole, by_shape_count(&entry->local));
            const by__trainer_norm_run next = {.part = {group, end, elements},
                                               .owner = rank * p->shards, /* and those after it */
                                               .at = by__store_entry_part(h->store, there).first};
            end += next.part.count;
            BY_TRY(p->shards > 1 ? add_slices(p, h, &next, error) : add_segment(p, next, error));
        }
        p->norm->elements[group] = end;
    }
    return BY_OK;
}

/* ---- blocks and pieces of blocks ---- */

static by_status add_run(by__trainer_norm_run **list, size_t *count, size_t *capacity,
                         const by__trainer_norm_run *segment, int64_t first, int64_t end,
                         by_error *error)
{
    if (first >= end) {
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)list, capacity, *count + 1, sizeof **list, error));
    (*list)[(*count)++] = (by__trainer_norm_run){{segment->part.group, first, end - first},
                                                 segment->owner,
                                                 segment->bucket,
                                                 segment->at + first - segment->part.first};
    return BY_OK;
}

/* Divides the segments into whole blocks and pieces of shared ones. */
static by_status divide(norm_planner *p, by_error *error)
{
    by__trainer_gradient_norm *n = p->norm;
    size_t runs = 0;
    size_t pieces = 0;
    for (size_t i = 0; i < p->segment_count; i++) {
        const by__trainer_norm_run *s = &p->segments[i];
        int64_t begin = s->part.first;
        int64_t end = begin + s->part.count;
        int64_t first = (begin + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK * BY_SUM_BLOCK;
        int64_t last = end == n->elements[s->part.group] ? end : end / BY_SUM_BLOCK * BY_SUM_BLOCK;
        if (first >= last) { /* no whole block, but possibly pieces of two */
            int64_t border = first < end ? first : end;
            BY_TRY(add_run(&n->pieces, &n->piece_count, &pieces, s, begin, border, error));
            BY_TRY(add_run(&n->pieces, &n->piece_count, &pieces, s, border, end, error));
            continue;
        }
        BY_TRY(add_run(&n->pieces, &n->piece_count, &pieces, s, begin, first, error));
        BY_TRY(add_run(&n->runs, &n->run_count, &runs, s, first, last, error));
        BY_TRY(add_run(&n->pieces, &n->piece_count, &pieces, s, last, end, error));
    }
    return BY_OK;
}

/* Lists the blocks that the ascending pieces make up. */
static by_status list_shared(by__trainer_gradient_norm *n, by_error *error)
{
    size_t capacity = 0;
    for (size_t i = 0; i < n->piece_count; i++) {
        const by__trainer_norm_run *piece = &n->pieces[i];
        int64_t block = piece->part.first / BY_SUM_BLOCK * BY_SUM_BLOCK;
        const by__trainer_norm_run *last =
            n->shared_count == 0 ? NULL : &n->shared[n->shared_count - 1];
        if (last != NULL && last->part.group == piece->part.group && last->part.first == block) {
            continue;
        }
        int64_t left = n->elements[piece->part.group] - block;
        BY_TRY(by__reserve((void **)&n->shared, &capacity, n->shared_count + 1, sizeof *n->shared,
                           error));
        n->shared[n->shared_count] = (by__trainer_norm_run){
            .part = {piece->part.group, block, left < BY_SUM_BLOCK ? left : BY_SUM_BLOCK},
            .owner = -1,
            .at = (int64_t)n->shared_count * BY_SUM_BLOCK};
        n->shared_count++;
    }
    return BY_OK;
}

static int64_t blocks_of(int64_t elements)
{
    return (elements + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK;
}

/* Number of squares of this many elements' blocks, rounded up for alignment. */
static size_t room_of(const by__trainer_gradient_norm *n, int64_t elements)
{
    return by__round_up((size_t)blocks_of(elements), n->unit / sizeof(float));
}

/* Counts per rank, and the offsets of all arrays in one allocation. */
static by_status lay_out(by__trainer_gradient_norm *n, by_error *error)
{
    size_t ranks = (size_t)n->ranks;
    size_t pieces = 0;
    size_t run_blocks = 0;
    size_t blocks = 0;
    BY_TRY(by__alloc((void **)&n->piece_elements, ranks, sizeof *n->piece_elements, "norm", error));
    BY_TRY(by__alloc((void **)&n->run_blocks, ranks, sizeof *n->run_blocks, "norm", error));
    for (size_t i = 0; i < n->piece_count; i++) {
        n->piece_elements[n->pieces[i].owner] += (size_t)n->pieces[i].part.count;
        pieces += (size_t)n->pieces[i].part.count;
    }
    for (size_t i = 0; i < n->run_count; i++) {
        n->run_blocks[n->runs[i].owner] += room_of(n, n->runs[i].part.count);
        run_blocks += room_of(n, n->runs[i].part.count);
    }
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        blocks += room_of(n, n->elements[group]);
    }
    n->blocks_at = by__round_up(pieces * sizeof(float), n->unit);
    n->run_squares_at = n->blocks_at + n->shared_count * BY_SUM_BLOCK * sizeof(float);
    n->shared_squares_at = n->run_squares_at + run_blocks * sizeof(float);
    n->squares_at = n->shared_squares_at + n->shared_count * n->unit;
    n->bytes = n->squares_at + blocks * sizeof(float);
    return BY_OK;
}

static by_status plan_runs(norm_planner *p, by_error *error)
{
    const by_trainer *t = p->t;
    p->norm->unit = by__device_unit(t->device);
    BY_TRY(by__store_open(&p->whole, t->device, error));
    BY_TRY(by__nn_declare_parameters(p->whole, t->model.whole, error));
    BY_TRY(by__alloc((void **)&p->holders, (size_t)p->holder_count, sizeof *p->holders,
                     "gradient norm", error));
    for (int rank = 0; rank < p->holder_count; rank++) {
        BY_TRY(open_holder(&p->holders[rank], t, rank, error));
    }
    BY_TRY(list_segments(p, error));
    BY_TRY(divide(p, error));
    BY_TRY(list_shared(p->norm, error));
    return lay_out(p->norm, error);
}

/* ---- the programs ---- */

static void name_of(char name[48], const char *what, size_t i)
{
    (void)snprintf(name, 48, "%s.%zu", what, i);
}

/* Adds the squares of gradient values NAME.i as outputs NAME.squares.i. */
static void square(by_graph *graph, const char *what, size_t i, int64_t count)
{
    char name[48];
    char squares[64];
    name_of(name, what, i);
    (void)snprintf(squares, sizeof squares, "squares.%s", name);
    by_value x = by_graph_input(graph, name, BY_F32, BY_SHAPE(count));
    by_graph_output(graph, by__op_build_sum_squares(graph, x), squares);
}

static by_status build_squares(const by_trainer *t, by_graph *graph, by_error *error)
{
    const by__trainer_gradient_norm *n = &t->norm;
    for (size_t i = 0; i < n->run_count; i++) {
        if (n->runs[i].owner == n->rank) {
            square(graph, "run", i, n->runs[i].part.count);
        }
    }
    for (size_t i = 0; i < n->shared_count; i++) {
        square(graph, "shared", i, n->shared[i].part.count);
    }
    return by_graph_check(graph, error);
}

static by_status build_norm(const by_trainer *t, by_graph *graph, by_error *error)
{
    const by__trainer_gradient_norm *n = &t->norm;
    by_value in[3 + BY__TRAINED_GROUPS];
    by_value norm;
    by_value scale;
    int count = 3;
    in[0] = by_graph_state(graph, "failed", BY_F32, BY_SHAPE(1));
    in[1] = by_graph_input(graph, "losses", BY_F32, BY_SHAPE(t->part.most_micro_batches));
    in[2] = by__trainer_scales_loss(t->config)
                ? by_graph_input(graph, "loss_factor", BY_F32, BY_SHAPE(1))
                : BY_NONE;
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        if (n->elements[group] > 0) {
            char name[48];
            name_of(name, "squares", (size_t)group);
            by_shape blocks = BY_SHAPE(blocks_of(n->elements[group]));
            by_update_unit unit = by__trainer_unit(t, name, blocks, group);
            in[count++] =
                by__optim_unit_squares(graph, &unit, by_graph_input(graph, name, BY_F32, blocks));
        }
    }
    by__op_build_clip_scale(graph, in, count, (float)t->config->optimizer.clip, &norm, &scale);
    by_graph_output(graph, norm, "norm");
    by_graph_output(graph, scale, "scale");
    return by_graph_check(graph, error);
}

/* If this rank has all sums of gradients. */
static by_status build_own_norm(const by_trainer *t, by_graph *graph, by_error *error)
{
    return by_optimizer_norm_graph(graph, &t->config->optimizer, t->units.groups,
                                   t->units.trained_groups, t->part.most_micro_batches,
                                   by__trainer_scales_loss(t->config), error);
}

by_status by__trainer_norm_plan(by_trainer *t, by_error *error)
{
    by__trainer_gradient_norm *n = &t->norm;
    norm_planner p = {.t = t,
                      .norm = n,
                      .holder_count = t->layout.size[BY_MESH_PIPELINE],
                      .shards = t->layout.size[BY_MESH_SHARD]};
    n->ranks = p.holder_count * p.shards;
    n->rank = t->layout.place[BY_MESH_PIPELINE] * p.shards + t->layout.place[BY_MESH_SHARD];
    if (n->ranks == 1) {
        return by__trainer_add_update(t, "gradient norm", build_own_norm, &t->norm.row, error);
    }
    by_status status = plan_runs(&p, error);
    close_planner(&p);
    BY_TRY(status);
    BY_TRY(by__trainer_add_update(t, "gradient squares", build_squares, &n->squares, error));
    return by__trainer_add_update(t, "gradient norm", build_norm, &t->norm.row, error);
}

void by__trainer_norm_close(by_trainer *t)
{
    by__trainer_gradient_norm *n = &t->norm;
    by_device_free(&n->memory);
    free(n->runs);
    free(n->pieces);
    free(n->shared);
    free(n->piece_elements);
    free(n->run_blocks);
}

size_t by__trainer_norm_bytes(const by_trainer *t)
{
    return t->norm.bytes;
}

/* ---- memory ---- */

/* Offset of the squares of a group's blocks. */
static size_t group_squares(const by__trainer_gradient_norm *n, int group)
{
    size_t at = n->squares_at;
    for (int g = 0; g < group; g++) {
        at += room_of(n, n->elements[g]) * sizeof(float);
    }
    return at;
}

by_status by__trainer_norm_open(by_trainer *t, by_error *error)
{
    by__trainer_gradient_norm *n = &t->norm;
    char name[48];
    n->bound_set = -1;
    if (n->squares == NULL) {
        return BY_OK;
    }
    BY_TRY(by_device_alloc(&n->memory, t->device, n->bytes, "the gradient norm", error));
    BY_TRY(
        by_mesh_comm(&n->comm, t->ranks.mesh, 1u << BY_MESH_PIPELINE | 1u << BY_MESH_SHARD, error));
    for (size_t i = 0; i < n->shared_count; i++) {
        size_t bytes = (size_t)n->shared[i].part.count * sizeof(float);
        name_of(name, "shared", i);
        BY_TRY(by__exec_row_bind(
            n->squares, name,
            by_memory_at(n->memory, n->blocks_at + i * BY_SUM_BLOCK * sizeof(float), bytes),
            error));
        name_of(name, "squares.shared", i);
        BY_TRY(by__exec_row_bind(
            n->squares, name,
            by_memory_at(n->memory, n->shared_squares_at + i * n->unit, sizeof(float)), error));
    }
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        size_t bytes = (size_t)blocks_of(n->elements[group]) * sizeof(float);
        name_of(name, "squares", (size_t)group);
        BY_TRY(by__exec_row_bind(t->norm.row, name,
                                 by_memory_at(n->memory, group_squares(n, group), bytes), error));
    }
    return BY_OK;
}

/* ---- a step ---- */

static float *host_at(const by__trainer_gradient_norm *n, size_t offset)
{
    return (float *)(void *)(n->copy + offset);
}

/* Number of elements of the ranks before `rank`. */
static size_t before(const size_t *counts, int rank)
{
    size_t sum = 0;
    for (int r = 0; r < rank; r++) {
        sum += counts[r];
    }
    return sum;
}

/* Memory of this rank's gradients, in the set with the sum. */
static by_memory run_memory(const by_trainer *t, const by__trainer_norm_run *run)
{
    const by__store_part part = {run->part.group, run->at, run->part.count};
    return by__store_memory(t->store, t->flats.gradient_sets[t->flats.sum_set], part);
}

/* Sends all pieces to all ranks, and copies them into their blocks. */
static by_status share_pieces(by_trainer *t, by_error *error)
{
    by__trainer_gradient_norm *n = &t->norm;
    float *all = host_at(n, 0);
    float *own = all + before(n->piece_elements, n->rank);
    float *blocks = host_at(n, n->blocks_at);
    for (size_t i = 0; i < n->piece_count; i++) {
        const by__trainer_norm_run *piece = &n->pieces[i];
        if (piece->owner == n->rank) {
            BY_TRY(by__device_stage_into(&t->ranks.staging, own, run_memory(t, piece), error));
            own += piece->part.count;
        }
    }
    BY_TRY(by__device_staging_wait(&t->ranks.staging, error));
    BY_TRY(by_comm_all_gather(n->comm, all + before(n->piece_elements, n->rank), all,
                              n->piece_elements, BY_F32, "gradients of blocks on several ranks",
                              error));
    for (int rank = 0; rank < n->ranks; rank++) {
        size_t shared = 0;
        for (size_t i = 0; i < n->piece_count; i++) {
            const by__trainer_norm_run *piece = &n->pieces[i];
            while (n->shared[shared].part.group != piece->part.group ||
                   n->shared[shared].part.first !=
                       piece->part.first / BY_SUM_BLOCK * BY_SUM_BLOCK) {
                shared++; /* both ascend */
            }
            if (piece->owner == rank) {
                memcpy(blocks + n->shared[shared].at + piece->part.first % BY_SUM_BLOCK, all,
                       (size_t)piece->part.count * sizeof *all);
                all += piece->part.count;
            }
        }
    }
    return BY_OK;
}

/* Arranges the squares of all ranks' runs and of the shared blocks in the order of a single
 * rank. */
static void order_squares(const by__trainer_gradient_norm *n)
{
    for (int rank = 0; rank < n->ranks; rank++) {
        const float *from = host_at(n, n->run_squares_at) + before(n->run_blocks, rank);
        for (size_t i = 0; i < n->run_count; i++) {
            const by__trainer_norm_run *run = &n->runs[i];
            size_t blocks = (size_t)blocks_of(run->part.count);
            if (run->owner == rank) {
                float *to =
                    host_at(n, group_squares(n, run->part.group)) + run->part.first / BY_SUM_BLOCK;
                memcpy(to, from, blocks * sizeof *to);
                from += room_of(n, run->part.count);
            }
        }
    }
    for (size_t i = 0; i < n->shared_count; i++) {
        const by__trainer_norm_run *shared = &n->shared[i];
        host_at(n, group_squares(n, shared->part.group))[shared->part.first / BY_SUM_BLOCK] =
            *host_at(n, n->shared_squares_at + i * n->unit);
    }
}

/* Binds the squares' program to the runs of the gradient set with the sum. */
static by_status bind_runs(by_trainer *t, by_error *error)
{
    by__trainer_gradient_norm *n = &t->norm;
    size_t at = n->run_squares_at + before(n->run_blocks, n->rank) * sizeof(float);
    for (size_t i = 0; i < n->run_count && n->bound_set != t->flats.sum_set; i++) {
        const by__trainer_norm_run *run = &n->runs[i];
        char name[48];
        if (run->owner != n->rank) {
            continue;
        }
        size_t bytes = (size_t)blocks_of(run->part.count) * sizeof(float);
        name_of(name, "run", i);
        BY_TRY(by__exec_row_bind(n->squares, name, run_memory(t, run), error));
        name_of(name, "squares.run", i);
        BY_TRY(by__exec_row_bind(n->squares, name, by_memory_at(n->memory, at, bytes), error));
        at += room_of(n, run->part.count) * sizeof(float);
    }
    n->bound_set = t->flats.sum_set;
    return BY_OK;
}

/* Moves bytes [begin, end) of the memory to its copy, or back. */
static by_status move_copy(by_trainer *t, size_t begin, size_t end, bool back, by_error *error)
{
    by__trainer_gradient_norm *n = &t->norm;
    by__device_staging *staging = &t->ranks.staging;
    by_memory memory = by_memory_at(n->memory, begin, end - begin);
    BY_TRY(back ? by__device_unstage(staging, memory, n->copy + begin, error)
                : by__device_stage_into(staging, n->copy + begin, memory, error));
    return by__device_staging_wait(staging, error);
}

by_status by__trainer_norm_squares(by_trainer *t, by_error *error)
{
    by__trainer_gradient_norm *n = &t->norm;
    void *copy;
    if (n->squares == NULL) {
        return BY_OK;
    }
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    BY_TRY(by__device_staging_begin(&t->ranks.staging, t->device, error));
    BY_TRY(by__device_stage(&t->ranks.staging, n->memory, false, &copy, error));
    n->copy = copy;
    BY_TRY(share_pieces(t, error));
    BY_TRY(move_copy(t, n->blocks_at, n->run_squares_at, true, error));
    BY_TRY(bind_runs(t, error));
    BY_TRY(by_program_submit(n->squares->program, error));
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    BY_TRY(move_copy(t, n->run_squares_at, n->squares_at, false, error));
    float *squares = host_at(n, n->run_squares_at);
    BY_TRY(by_comm_all_gather(n->comm, squares + before(n->run_blocks, n->rank), squares,
                              n->run_blocks, BY_F32, "squares of gradients", error));
    order_squares(n);
    return move_copy(t, n->squares_at, n->bytes, true, error);
}
