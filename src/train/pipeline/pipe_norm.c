/* The gradient's norm of a model whose stages are on several ranks, with the bits of one rank.
 *
 * One rank sums the squares of each BY_SUM_BLOCK neighbouring elements of a group's gradients, and
 * adds up these sums. A stage has some of the group's tensors: most blocks are on one rank, which
 * sums their squares; of those on several every rank gets all pieces. Then every rank has the sums
 * of all blocks in their order, and the norm of them. What is sent is small: a number a block, and
 * a few blocks. */
#include <stdlib.h>
#include <string.h>

#include "optim/optim.h"
#include "train/pipeline/pipe.h"

typedef struct planner {
    by__pipe *pipe;
    by__store *whole;       /* of the model's entries; never allocated */
    by__pipe_run *segments; /* the gradients of tensors, neighbours of one rank as one */
    size_t segment_count;
    size_t segment_capacity;
} planner;

static int64_t padded(const by_shape *shape)
{
    return (int64_t)by__round_up((size_t)by_shape_count(shape), BY__ENTRY_ALIGNMENT);
}

/* Adds a tensor of `owner` as a segment, or to the one before it where they are neighbours in the
 * group and at the owner. */
static by_status add_segment(planner *p, by__pipe_run next, by_error *error)
{
    by__pipe_run *last = p->segment_count == 0 ? NULL : &p->segments[p->segment_count - 1];
    if (last != NULL && last->owner == next.owner && last->group == next.group &&
        last->first + last->count == next.first && last->offset + last->count == next.offset) {
        last->count += next.count;
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&p->segments, &p->segment_capacity, p->segment_count + 1,
                       sizeof *p->segments, error));
    p->segments[p->segment_count++] = next;
    return BY_OK;
}

/* Where the gradients of one rank begin in its set: it lays its tensors out stage by stage within
 * each group. */
static void place_rank(const planner *p, int rank, int64_t *offsets)
{
    const by__pipe *pipe = p->pipe;
    int64_t end = 0;
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        for (int chunk = 0; chunk < pipe->chunks; chunk++) {
            for (size_t i = 0; i < by__store_count(p->whole); i++) {
                const by__stored_tensor *entry = by__store_entry(p->whole, (by__handle)i);
                int stage = by__pipe_stage_of(pipe, entry->name);
                if (entry->group == group && stage == chunk * pipe->ranks + rank) {
                    offsets[i] = end;
                    end += padded(&entry->local);
                }
            }
        }
    }
}

static by_status list_segments(planner *p, by_error *error)
{
    const by__pipe *pipe = p->pipe;
    size_t count = by__store_count(p->whole);
    int64_t *offsets;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&offsets, count, sizeof *offsets, "gradient norm", error));
    for (int r = 0; r < pipe->ranks; r++) {
        place_rank(p, r, offsets);
    }
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        int64_t end = 0;
        for (size_t i = 0; i < count && status == BY_OK; i++) {
            const by__stored_tensor *entry = by__store_entry(p->whole, (by__handle)i);
            if (entry->group != group) {
                continue;
            }
            int stage = by__pipe_stage_of(pipe, entry->name);
            by__pipe_run next = {.owner = by__pipe_rank_of(pipe, stage),
                                 .group = group,
                                 .first = end,
                                 .count = padded(&entry->local),
                                 .offset = offsets[i]};
            end += next.count;
            status = add_segment(p, next, error);
        }
        p->pipe->norm.elements[group] = end;
    }
    free(offsets);
    return status;
}

static by_status add_run(by__pipe_run **list, size_t *count, size_t *capacity,
                         const by__pipe_run *segment, int64_t first, int64_t end, by_error *error)
{
    if (first >= end) {
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)list, capacity, *count + 1, sizeof **list, error));
    (*list)[(*count)++] = (by__pipe_run){.owner = segment->owner,
                                         .group = segment->group,
                                         .first = first,
                                         .count = end - first,
                                         .offset = segment->offset + first - segment->first};
    return BY_OK;
}

/* Divides the segments into whole blocks and pieces of shared ones. */
static by_status divide(planner *p, by_error *error)
{
    by__pipe_norm *n = &p->pipe->norm;
    size_t runs = 0;
    size_t pieces = 0;
    for (size_t i = 0; i < p->segment_count; i++) {
        const by__pipe_run *s = &p->segments[i];
        int64_t end = s->first + s->count;
        int64_t first = (s->first + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK * BY_SUM_BLOCK;
        int64_t last = end == n->elements[s->group] ? end : end / BY_SUM_BLOCK * BY_SUM_BLOCK;
        if (first >= last) { /* no whole block, but perhaps pieces of two */
            int64_t border = first < end ? first : end;
            BY_TRY(add_run(&n->pieces, &n->piece_count, &pieces, s, s->first, border, error));
            BY_TRY(add_run(&n->pieces, &n->piece_count, &pieces, s, border, end, error));
            continue;
        }
        BY_TRY(add_run(&n->pieces, &n->piece_count, &pieces, s, s->first, first, error));
        BY_TRY(add_run(&n->runs, &n->run_count, &runs, s, first, last, error));
        BY_TRY(add_run(&n->pieces, &n->piece_count, &pieces, s, last, end, error));
    }
    return BY_OK;
}

/* The blocks that the pieces, which ascend, make up. */
static by_status list_shared(by__pipe_norm *n, by_error *error)
{
    size_t capacity = 0;
    for (size_t i = 0; i < n->piece_count; i++) {
        const by__pipe_run *piece = &n->pieces[i];
        int64_t block = piece->first / BY_SUM_BLOCK * BY_SUM_BLOCK;
        const by__pipe_run *last = n->shared_count == 0 ? NULL : &n->shared[n->shared_count - 1];
        if (last != NULL && last->group == piece->group && last->first == block) {
            continue;
        }
        int64_t left = n->elements[piece->group] - block;
        BY_TRY(by__reserve((void **)&n->shared, &capacity, n->shared_count + 1, sizeof *n->shared,
                           error));
        n->shared[n->shared_count] =
            (by__pipe_run){.owner = -1,
                           .group = piece->group,
                           .first = block,
                           .count = left < BY_SUM_BLOCK ? left : BY_SUM_BLOCK,
                           .offset = (int64_t)n->shared_count * BY_SUM_BLOCK};
        n->shared_count++;
    }
    return BY_OK;
}

static int64_t blocks_of(int64_t elements)
{
    return (elements + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK;
}

/* Room for the squares of so many elements' blocks, so that what is behind them is aligned. */
static size_t room_of(int64_t elements)
{
    return by__round_up((size_t)blocks_of(elements), BY_CACHE_LINE / sizeof(float));
}

/* Numbers of each rank, and the places of all in one memory. */
static by_status lay_out(by__pipe *pipe, by_error *error)
{
    by__pipe_norm *n = &pipe->norm;
    size_t ranks = (size_t)pipe->ranks;
    size_t pieces = 0;
    size_t run_blocks = 0;
    size_t blocks = 0;
    BY_TRY(by__alloc((void **)&n->piece_elements, ranks, sizeof *n->piece_elements, "norm", error));
    BY_TRY(by__alloc((void **)&n->run_blocks, ranks, sizeof *n->run_blocks, "norm", error));
    for (size_t i = 0; i < n->piece_count; i++) {
        n->piece_elements[n->pieces[i].owner] += (size_t)n->pieces[i].count;
        pieces += (size_t)n->pieces[i].count;
    }
    for (size_t i = 0; i < n->run_count; i++) {
        n->run_blocks[n->runs[i].owner] += room_of(n->runs[i].count);
        run_blocks += room_of(n->runs[i].count);
    }
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        blocks += room_of(n->elements[group]);
    }
    n->blocks_at = by__round_up(pieces * sizeof(float), BY_CACHE_LINE);
    n->run_squares_at = n->blocks_at + n->shared_count * BY_SUM_BLOCK * sizeof(float);
    n->shared_squares_at = n->run_squares_at + run_blocks * sizeof(float);
    n->squares_at = n->shared_squares_at + n->shared_count * BY_CACHE_LINE;
    n->bytes = n->squares_at + blocks * sizeof(float);
    return BY_OK;
}

by_status by__pipe_plan_norm(by_trainer *t, by_error *error)
{
    planner p = {.pipe = t->pipe};
    BY_TRY(by__store_open(&p.whole, t->device, error));
    by_status status = by__declare_parameters(p.whole, t->pipe->train.whole, error);
    if (status == BY_OK) {
        status = list_segments(&p, error);
    }
    if (status == BY_OK) {
        status = divide(&p, error);
    }
    by__store_close(&p.whole);
    free(p.segments);
    BY_TRY(status);
    BY_TRY(list_shared(&t->pipe->norm, error));
    return lay_out(t->pipe, error);
}

void by__pipe_close_norm(by__pipe_norm *norm)
{
    by_device_free(&norm->memory);
    free(norm->runs);
    free(norm->pieces);
    free(norm->shared);
    free(norm->piece_elements);
    free(norm->run_blocks);
}

/* ---- the programs ---- */

static void name_of(char name[48], const char *what, size_t i)
{
    (void)snprintf(name, 48, "%s.%zu", what, i);
}

/* The squares of gradient values NAME.i as outputs NAME.squares.i. */
static void square(by_graph *graph, const char *what, size_t i, int64_t count)
{
    char name[48];
    char squares[64];
    name_of(name, what, i);
    (void)snprintf(squares, sizeof squares, "squares.%s", name);
    by_value x = by_graph_input(graph, name, BY_F32, BY_SHAPE(count));
    by_graph_output(graph, by__sum_squares(graph, x), squares);
}

by_status by__pipe_build_squares(const by_trainer *t, by_graph *graph, by_error *error)
{
    const by__pipe_norm *n = &t->pipe->norm;
    for (size_t i = 0; i < n->run_count; i++) {
        if (n->runs[i].owner == t->pipe->rank) {
            square(graph, "run", i, n->runs[i].count);
        }
    }
    for (size_t i = 0; i < n->shared_count; i++) {
        square(graph, "shared", i, n->shared[i].count);
    }
    return by_graph_check(graph, error);
}

by_status by__pipe_build_norm(const by_trainer *t, by_graph *graph, by_error *error)
{
    const by__pipe_norm *n = &t->pipe->norm;
    by_value in[2 + BY__TRAINED_GROUPS];
    by_value norm;
    by_value scale;
    int count = 2;
    in[0] = by_graph_state(graph, "failed", BY_F32, BY_SHAPE(1));
    in[1] = by_graph_input(graph, "losses", BY_F32, BY_SHAPE(t->all_micro_batches));
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        if (n->elements[group] > 0) {
            char name[48];
            name_of(name, "squares", (size_t)group);
            by_shape blocks = BY_SHAPE(blocks_of(n->elements[group]));
            by_update_unit unit = by__trainer_unit(t, name, blocks, group);
            in[count++] =
                by__unit_squares(graph, &unit, by_graph_input(graph, name, BY_F32, blocks));
        }
    }
    by__clip_scale(graph, in, count, (float)t->config->optimizer.clip, &norm, &scale);
    by_graph_output(graph, norm, "norm");
    by_graph_output(graph, scale, "scale");
    return by_graph_check(graph, error);
}

/* Where the squares of a group's blocks begin. */
static size_t group_squares(const by__pipe_norm *n, int group)
{
    size_t at = n->squares_at;
    for (int g = 0; g < group; g++) {
        at += room_of(n->elements[g]) * sizeof(float);
    }
    return at;
}

by_status by__pipe_bind_norm(by_trainer *t, by_error *error)
{
    by__pipe_norm *n = &t->pipe->norm;
    char name[48];
    for (size_t i = 0; i < n->shared_count; i++) {
        size_t bytes = (size_t)n->shared[i].count * sizeof(float);
        name_of(name, "shared", i);
        BY_TRY(by__row_bind(
            t->pipe->squares, name,
            by_memory_at(n->memory, n->blocks_at + i * BY_SUM_BLOCK * sizeof(float), bytes),
            error));
        name_of(name, "squares.shared", i);
        BY_TRY(by__row_bind(
            t->pipe->squares, name,
            by_memory_at(n->memory, n->shared_squares_at + i * BY_CACHE_LINE, sizeof(float)),
            error));
    }
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        size_t bytes = (size_t)blocks_of(n->elements[group]) * sizeof(float);
        name_of(name, "squares", (size_t)group);
        BY_TRY(by__row_bind(t->norm, name, by_memory_at(n->memory, group_squares(n, group), bytes),
                            error));
    }
    return BY_OK;
}

/* ---- a step ---- */

static float *host_at(const by__pipe_norm *n, size_t offset)
{
    return (float *)(n->memory.address + offset);
}

/* Elements of the ranks before `rank`. */
static size_t before(const size_t *counts, int rank)
{
    size_t sum = 0;
    for (int r = 0; r < rank; r++) {
        sum += counts[r];
    }
    return sum;
}

/* All pieces to all ranks, and into their blocks. */
static by_status share_pieces(by_trainer *t, const float *set, by_error *error)
{
    by__pipe *pipe = t->pipe;
    by__pipe_norm *n = &pipe->norm;
    float *all = host_at(n, 0);
    float *own = all + before(n->piece_elements, pipe->rank);
    float *blocks = host_at(n, n->blocks_at);
    for (size_t i = 0; i < n->piece_count; i++) {
        const by__pipe_run *piece = &n->pieces[i];
        if (piece->owner == pipe->rank) {
            memcpy(own, set + piece->offset, (size_t)piece->count * sizeof *own);
            own += piece->count;
        }
    }
    BY_TRY(by_comm_all_gather(pipe->comm, all + before(n->piece_elements, pipe->rank), all,
                              n->piece_elements, BY_F32, "gradients of blocks on several stages",
                              error));
    for (int rank = 0; rank < pipe->ranks; rank++) {
        size_t shared = 0;
        for (size_t i = 0; i < n->piece_count; i++) {
            const by__pipe_run *piece = &n->pieces[i];
            while (n->shared[shared].group != piece->group ||
                   n->shared[shared].first != piece->first / BY_SUM_BLOCK * BY_SUM_BLOCK) {
                shared++; /* both ascend */
            }
            if (piece->owner == rank) {
                memcpy(blocks + n->shared[shared].offset + piece->first % BY_SUM_BLOCK, all,
                       (size_t)piece->count * sizeof *all);
                all += piece->count;
            }
        }
    }
    return BY_OK;
}

/* The squares of all ranks' runs and of the shared blocks, in the order of one rank. */
static void order_squares(const by__pipe *pipe)
{
    const by__pipe_norm *n = &pipe->norm;
    for (int rank = 0; rank < pipe->ranks; rank++) {
        const float *from = host_at(n, n->run_squares_at) + before(n->run_blocks, rank);
        for (size_t i = 0; i < n->run_count; i++) {
            const by__pipe_run *run = &n->runs[i];
            size_t blocks = (size_t)blocks_of(run->count);
            if (run->owner == rank) {
                float *to = host_at(n, group_squares(n, run->group)) + run->first / BY_SUM_BLOCK;
                memcpy(to, from, blocks * sizeof *to);
                from += room_of(run->count);
            }
        }
    }
    for (size_t i = 0; i < n->shared_count; i++) {
        const by__pipe_run *shared = &n->shared[i];
        host_at(n, group_squares(n, shared->group))[shared->first / BY_SUM_BLOCK] =
            *host_at(n, n->shared_squares_at + i * BY_CACHE_LINE);
    }
}

/* Points the squares' program at the runs of a gradient set. */
static by_status bind_runs(by_trainer *t, by_memory set, by_error *error)
{
    by__pipe *pipe = t->pipe;
    const by__pipe_norm *n = &pipe->norm;
    size_t at = n->run_squares_at + before(n->run_blocks, pipe->rank) * sizeof(float);
    for (size_t i = 0; i < n->run_count; i++) {
        const by__pipe_run *run = &n->runs[i];
        char name[48];
        if (run->owner != pipe->rank) {
            continue;
        }
        size_t bytes = (size_t)blocks_of(run->count) * sizeof(float);
        name_of(name, "run", i);
        BY_TRY(by__row_bind(pipe->squares, name,
                            by_memory_at(set, (size_t)run->offset * sizeof(float),
                                         (size_t)run->count * sizeof(float)),
                            error));
        name_of(name, "squares.run", i);
        BY_TRY(by__row_bind(pipe->squares, name, by_memory_at(n->memory, at, bytes), error));
        at += room_of(run->count) * sizeof(float);
    }
    return BY_OK;
}

by_status by__pipe_squares(by_trainer *t, by_error *error)
{
    by__pipe *pipe = t->pipe;
    by__pipe_norm *n = &pipe->norm;
    by_memory set = by__trainer_set(t, t->sum_set);
    BY_TRY(by__queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    BY_TRY(share_pieces(t, (const float *)set.address, error));
    BY_TRY(bind_runs(t, set, error));
    BY_TRY(by_program_submit(pipe->squares->program, error));
    BY_TRY(by__queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    float *squares = host_at(n, n->run_squares_at);
    BY_TRY(by_comm_all_gather(pipe->comm, squares + before(n->run_blocks, pipe->rank), squares,
                              n->run_blocks, BY_F32, "squares of gradients", error));
    order_squares(pipe);
    return BY_OK;
}
