/* Attention over a sequence that is split over ranks (context parallelism, ring attention: Liu et
 * al. 2023). Keys and values travel around the ring of ranks, one rank's block at a time. Each rank
 * computes the attention of its queries over the present block while it passes that block on, and
 * ATTENTION_MERGE adds it to the result, so that a rank never holds more than two blocks. In the
 * backward pass the blocks travel again, followed by their gradients, to which each rank adds its
 * part, until they are back at their owner. All sums are in f32.
 *
 * The sequence is cut into 2 R chunks, of which rank r has chunks r and 2 R - 1 - r (zig-zag: Dubey
 * et al. 2024, section 3.3.2), so that a causal mask leaves every rank the same work: its own
 * block, as far as its queries see it, and half of each other rank's block,
 *
 *     from a lower rank:  all of its queries read the front chunk,
 *     from a higher rank: the queries of its back chunk read both chunks.
 */
#include "ops/ops.h"

/* A part of a rank's sequence. */
typedef enum sequence_part { FRONT = 0, BACK, ALL, PARTS } sequence_part;

/* A set of queries and the keys that they read. */
typedef struct part_pair {
    sequence_part queries;
    sequence_part keys;
} part_pair;

typedef struct ring {
    by_graph *graph;
    const by__op_sharding *sh;
    bool packed;
    by_value q[PARTS];
    by_value kv;    /* keys and values side by side: the present block */
    by_dtype dtype; /* of activations */
    int64_t chunk;  /* entries in half of the rank's sequence */
    int64_t width;  /* of keys and of values */
} ring;

static bool is_bad(const by_graph *graph)
{
    return graph->error.status != BY_OK;
}

static by_value slice_part(const ring *s, by_value x, int axis, sequence_part which)
{
    return which == ALL ? x : by_slice(s->graph, x, axis, which * s->chunk, s->chunk);
}

static void slice_parts(const ring *s, by_value x, int axis, by_value out[PARTS])
{
    for (sequence_part p = FRONT; p < ALL; p++) {
        out[p] = slice_part(s, x, axis, p);
    }
    out[ALL] = x;
}

static by_value in_f32(by_graph *graph, by_value x)
{
    return is_bad(graph) || graph->values[x].dtype == BY_F32 ? x : by_cast(graph, x, BY_F32);
}

static by_value in_dtype(const ring *s, by_value x)
{
    return s->dtype == BY_F32 ? x : by_cast(s->graph, x, s->dtype);
}

static ring open_ring(by_graph *graph, const by__op_sharding *sh, const by_value *in, bool packed)
{
    ring s = {.graph = graph, .sh = sh, .packed = packed};
    if (is_bad(graph)) {
        return s;
    }
    const by_attrs *a = &sh->attrs;
    by_value q = in[0];
    s.dtype = graph->values[q].dtype;
    s.chunk = graph->values[q].shape.dim[1] / 2;
    if (packed) {
        int64_t columns = graph->values[q].shape.dim[2];
        int64_t width = columns / (a->heads + 2 * a->kv_heads);
        s.width = a->kv_heads * width;
        s.q[ALL] = by_slice(graph, q, 2, 0, a->heads * width);
        s.kv = by_slice(graph, q, 2, a->heads * width, 2 * s.width);
    } else {
        s.width = graph->values[in[1]].shape.dim[2];
        s.q[ALL] = q;
        s.kv = by_concat(graph, in + 1, 2, 2);
    }
    slice_parts(&s, s.q[ALL], 1, s.q);
    return s;
}

static void keys_of(const ring *s, sequence_part which, by_value out[2])
{
    by_value kv = slice_part(s, s->kv, 1, which);
    out[0] = by_slice(s->graph, kv, 2, 0, s->width);
    out[1] = by_slice(s->graph, kv, 2, s->width, s->width);
}

static by_value pass_on(const ring *s, by_value x)
{
    return by_ring_shift(s->graph, x, s->sh->mesh, s->sh->ranks);
}

/* Lists the query and key parts to combine in a step. The block that arrives in it is that of rank
 * `rank - step` around the ring. */
static void list_meetings(const ring *s, int step, part_pair out[2])
{
    bool before = step <= s->sh->rank;
    out[0] = (part_pair){before ? FRONT : BACK, FRONT};
    out[1] = (part_pair){BACK, before ? FRONT : BACK};
}

/* ---- forward ---- */

/* Attention of one part of the queries over the keys read so far. */
typedef struct result {
    by_value y; /* f32 */
    by_value lse;
} result;

static result attend(const ring *s, part_pair m, bool own)
{
    by_attrs attrs = s->sh->attrs;
    by_value qkv[3] = {s->q[m.queries]};
    by_value outs[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
    keys_of(s, m.keys, qkv + 1);
    attrs.bidirectional = !own;
    (void)by__op_add_node(s->graph, BY_OP_ATTENTION, &attrs, qkv, 3, outs);
    return (result){in_f32(s->graph, outs[0]), outs[1]};
}

static void merge(const ring *s, result *all, result one)
{
    by_value in[4] = {all->y, all->lse, one.y, one.lse};
    by_value outs[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
    (void)by__op_add_node(s->graph, BY_OP_ATTENTION_MERGE, &s->sh->attrs, in, 4, outs);
    *all = (result){outs[0], outs[1]};
}

static void build_forward(by_graph *graph, const by__op_sharding *sh, const by_value *in,
                          int input_count, by_value outs[BY_MAX_OUTPUTS])
{
    ring s = open_ring(graph, sh, in, input_count == 1);
    by_value y[PARTS];
    by_value lse[PARTS];
    result results[ALL];
    result own = attend(&s, (part_pair){ALL, ALL}, true);
    slice_parts(&s, own.y, 1, y);
    slice_parts(&s, own.lse, 2, lse);
    for (sequence_part p = FRONT; p < ALL; p++) {
        results[p] = (result){y[p], lse[p]};
    }
    for (int step = 1; step < sh->ranks; step++) {
        part_pair meetings[2];
        s.kv = pass_on(&s, s.kv);
        list_meetings(&s, step, meetings);
        for (int i = 0; i < 2; i++) {
            merge(&s, &results[meetings[i].queries], attend(&s, meetings[i], false));
        }
    }
    by_value both[2] = {results[FRONT].y, results[BACK].y};
    by_value logs[2] = {results[FRONT].lse, results[BACK].lse};
    outs[0] = in_dtype(&s, by_concat(graph, both, 2, 1));
    outs[1] = by_concat(graph, logs, 2, 2);
}

/* ---- backward ---- */

/* What the backward pass reads of each part of the queries, and the gradients that it makes. */
typedef struct gradients {
    by_value y[PARTS];
    by_value lse[PARTS];
    by_value dy[PARTS];
    by_value dq[PARTS]; /* f32 */
    by_value dkv;       /* f32: of the present block */
} gradients;

/* Computes gradients of the queries in `m`, and of the keys and values side by side. */
static void attend_backward(const ring *s, const gradients *g, part_pair m, bool own,
                            by_value out[2])
{
    by_attrs attrs = s->sh->attrs;
    by_value in[6] = {s->q[m.queries], BY_NONE,           BY_NONE,
                      g->y[m.queries], g->lse[m.queries], g->dy[m.queries]};
    by_value d[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
    keys_of(s, m.keys, in + 1);
    attrs.bidirectional = !own;
    (void)by__op_add_node(s->graph, BY_OP_ATTENTION_GRAD, &attrs, in, 6, d);
    out[0] = in_f32(s->graph, d[0]);
    out[1] = in_f32(s->graph, by_concat(s->graph, d + 1, 2, 2));
}

static by_value add(by_graph *graph, by_value a, by_value b)
{
    return a == BY_NONE ? b : b == BY_NONE ? a : by_add(graph, a, b);
}

/* Adds the gradients of one step, in the order of its meetings. */
static void add_step(const ring *s, gradients *g, int step)
{
    by_graph *graph = s->graph;
    part_pair meetings[2];
    by_value dkv[ALL] = {BY_NONE, BY_NONE};
    list_meetings(s, step, meetings);
    for (int i = 0; i < 2; i++) {
        by_value d[2];
        attend_backward(s, g, meetings[i], false, d);
        g->dq[meetings[i].queries] = by_add(graph, g->dq[meetings[i].queries], d[0]);
        dkv[meetings[i].keys] = add(graph, dkv[meetings[i].keys], d[1]);
    }
    by_value all = dkv[BACK] == BY_NONE ? by_pad(graph, dkv[FRONT], 1, 0, 2 * s->chunk)
                                        : by_concat(graph, dkv, 2, 1);
    g->dkv = by_add(graph, g->dkv, all);
}

static void build_backward(by_graph *graph, const by__op_sharding *sh, const by_value *in,
                           int input_count, by_value outs[BY_MAX_OUTPUTS])
{
    int operands = input_count - 3;
    by_value own[2];
    gradients g;
    ring s = open_ring(graph, sh, in, operands == 1);
    slice_parts(&s, in[operands], 1, g.y);
    slice_parts(&s, in[operands + 1], 2, g.lse);
    slice_parts(&s, in[operands + 2], 1, g.dy);
    attend_backward(&s, &g, (part_pair){ALL, ALL}, true, own);
    slice_parts(&s, own[0], 1, g.dq);
    g.dkv = own[1];
    for (int step = 1; step < sh->ranks; step++) {
        s.kv = pass_on(&s, s.kv);
        g.dkv = pass_on(&s, g.dkv);
        add_step(&s, &g, step);
    }
    by_value dq = by_concat(graph, g.dq, 2, 1);
    by_value both[2] = {in_dtype(&s, dq), in_dtype(&s, pass_on(&s, g.dkv))};
    if (s.packed) {
        outs[0] = by_concat(graph, both, 2, 2);
        return;
    }
    outs[0] = both[0];
    outs[1] = by_slice(graph, both[1], 2, 0, s.width);
    outs[2] = by_slice(graph, both[1], 2, s.width, s.width);
}

/* Returns true if every operand is split by time, zig-zag if the mask is causal; lengths, first
 * keys, windows and slopes refer to whole sequences. */
static bool is_by_time(const by__op_signature *s, const by__op_sharding *sh, int operands)
{
    static const by__graph_split time = {1, 1};
    bool fits = sh->zigzag && !s->attrs->bidirectional && s->attrs->window == 0 &&
                s->attrs->slopes == 0 && s->in[0].shape.dim[1] % (2 * sh->ranks) == 0 &&
                operands != 2;
    for (int i = 0; i < operands; i++) {
        bool absent = by__absent(&s->in[i]);
        fits = fits && (i >= 3 ? absent : operands == 1 || !absent) &&
               (absent || by__op_split_equal(sh->in[i], time));
    }
    return fits;
}

bool by__op_shard_attention_time(const by__op_signature *s, by__op_sharding *sh)
{
    sh->out[0] = (by__graph_split){1, 1};
    sh->out[1] = (by__graph_split){2, 1};
    sh->build = build_forward;
    return is_by_time(s, sh, s->input_count);
}

bool by__op_shard_attention_grad_time(const by__op_signature *s, const by__graph_type *out,
                                      by__op_sharding *sh)
{
    int operands = s->input_count - 3;
    by__graph_split time = {1, 1};
    for (int i = 0; i < 3; i++) {
        sh->out[i] = by__absent(&out[i]) ? by__op_whole() : time;
    }
    sh->build = build_backward;
    return is_by_time(s, sh, operands) && by__op_split_equal(sh->in[operands], time) &&
           by__op_split_equal(sh->in[operands + 1], (by__graph_split){2, 1}) &&
           by__op_split_equal(sh->in[operands + 2], time);
}

/* ---- combining results ---- */

static by_status infer_merge(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *y = &s->in[0];
    int64_t heads = s->attrs->heads;
    bool ok = y->dtype == BY_F32 && y->shape.rank == 3 && heads > 0 && y->shape.dim[2] % heads == 0;
    for (int i = 0; i < s->input_count && ok; i++) {
        by__graph_type want = *y;
        if (i % 2 == 1) {
            want.shape = BY_SHAPE(y->shape.dim[0], heads, y->shape.dim[1]);
        }
        ok = by__op_type_equal(&s->in[i], &want);
    }
    if (!ok) {
        return by__op_refuse(s, error,
                             "operands must be y [batch, time, heads x width] and lse [batch, "
                             "heads, time] of two parts, all f32");
    }
    out[0] = s->in[0];
    out[1] = s->in[1];
    return BY_OK;
}

/* Splits by heads. */
static bool shard_merge(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    static const by__graph_split heads[2] = {{2, 1}, {1, 1}};
    BY_UNUSED(out);
    for (int i = 0; i < s->input_count; i++) {
        if (!by__op_split_equal(sh->in[i], heads[i % 2])) {
            return false;
        }
    }
    sh->out[0] = heads[0];
    sh->out[1] = heads[1];
    sh->attrs.heads = s->attrs->heads / sh->ranks;
    return s->attrs->heads % sh->ranks == 0;
}

static void cost_merge(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    cost->flops = (double)s->input_count * (double)by_shape_count(&out[0].shape);
}

const by__op_row by__op_attention_merge = {.min_inputs = 4,
                                           .max_inputs = 4,
                                           .outputs = 2,
                                           .attrs = BY__ATTRS(BY__ATTR(heads, INT)),
                                           .infer = infer_merge,
                                           .cost = cost_merge,
                                           .shard = shard_merge,
                                           .keeps_f32 = 0xfu};
