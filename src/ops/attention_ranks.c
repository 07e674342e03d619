/* Attention over a sequence that ranks have slices of (context parallelism; the blocks and their
 * sum are those of ring attention, Liu et al. 2023, with all keys gathered at once as for Llama
 * 3, Dubey et al. 2024, section 3.3.2). A rank's queries meet the keys of one slice after
 * another as separate attentions, none with slices behind their own when it is causal, and
 * ATTENTION_MERGE puts the results together; so its work grows with its place in the sequence.
 * The backward pass gathers keys and values again, and their gradients go back by a
 * reduce-scatter. */
#include <stdlib.h>

#include "ops/ops.h"

/* Queries, keys and values of a local node: [B, T / ranks, ...]. */
typedef struct slices {
    by_graph *graph;
    const by__sharding *sh;
    by_value q;
    by_value kv;  /* keys and values side by side */
    by_value all; /* those of all ranks, [ranks, B, T / ranks, 2 kv_heads D] */
    by_shape shape;
    int64_t width; /* of kv */
    int count;     /* slices that the queries meet: the first ones */
    bool packed;
} slices;

static bool is_bad(const by_graph *graph)
{
    return graph->error.status != BY_OK;
}

static by_value stack(by_graph *graph, by_value x, const by_shape *shape)
{
    return by_reshape(graph, x, BY_SHAPE(1, shape->dim[0], shape->dim[1], shape->dim[2]));
}

static slices gather(by_graph *graph, const by__sharding *sh, const by_value *in, bool packed)
{
    slices s = {.graph = graph, .sh = sh, .packed = packed};
    if (is_bad(graph)) {
        return s;
    }
    const by_attrs *a = &sh->attrs;
    s.count = a->bidirectional ? sh->ranks : sh->rank + 1;
    if (packed) {
        int64_t columns = graph->values[in[0]].shape.dim[2];
        int64_t width = columns / (a->heads + 2 * a->kv_heads);
        s.q = by_slice(graph, in[0], 2, 0, a->heads * width);
        s.kv = by_slice(graph, in[0], 2, a->heads * width, 2 * a->kv_heads * width);
    } else {
        s.q = in[0];
        s.kv = by_concat(graph, in + 1, 2, 2);
    }
    if (!is_bad(graph)) {
        s.shape = graph->values[s.kv].shape;
        s.width = s.shape.dim[2];
        s.all =
            by_all_gather(graph, stack(graph, s.kv, &s.shape), 0, sh->ranks, sh->mesh, sh->ranks);
    }
    return s;
}

/* q, k and v where the queries meet slice i, and the attributes of that attention. */
static by_attrs meet(const slices *s, int i, by_value out[3])
{
    by_attrs attrs = s->sh->attrs;
    by_value block = by_reshape(s->graph, by_slice(s->graph, s->all, 0, i, 1), s->shape);
    out[0] = s->q;
    out[1] = by_slice(s->graph, block, 2, 0, s->width / 2);
    out[2] = by_slice(s->graph, block, 2, s->width / 2, s->width / 2);
    attrs.bidirectional = attrs.bidirectional || i != s->sh->rank;
    return attrs;
}

static void build_forward(by_graph *graph, const by__sharding *sh, const by_value *in,
                          int input_count, by_value outs[BY_MAX_OUTPUTS])
{
    by_value *parts;
    slices s = gather(graph, sh, in, input_count == 1);
    if (is_bad(graph) || by__alloc((void **)&parts, 2 * (size_t)s.count, sizeof *parts, "attention",
                                   &graph->error) != BY_OK) {
        return;
    }
    for (int i = 0; i < s.count; i++) {
        by_value part[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
        by_value qkv[3];
        by_attrs attrs = meet(&s, i, qkv);
        (void)by__op_add_node(graph, BY_OP_ATTENTION, &attrs, qkv, 3, part);
        parts[2 * i] = part[0];
        parts[2 * i + 1] = part[1];
    }
    (void)by__op_add_node(graph, BY_OP_ATTENTION_MERGE, &sh->attrs, parts, 2 * s.count, outs);
    free(parts);
}

/* All values behind each other along the first axis. CONCAT takes eight. */
static by_value join(by_graph *graph, by_value *values, int count)
{
    while (count > 1) {
        int groups = 0;
        for (int i = 0; i < count; i += 8) {
            int size = count - i < 8 ? count - i : 8;
            values[groups++] = size == 1 ? values[i] : by_concat(graph, values + i, size, 0);
        }
        count = groups;
    }
    return values[0];
}

/* Gradients of the queries are added over the slices that they met; those of keys and values go to
 * the ranks that have these. */
static void finish_backward(slices *s, by_value *dq, by_value *dkv, by_value outs[BY_MAX_OUTPUTS])
{
    static const int first = 0;
    by_graph *graph = s->graph;
    int ranks = s->sh->ranks;
    by_value q = by_sum(graph, join(graph, dq, s->count), &first, 1, false);
    by_value all = join(graph, dkv, s->count);
    if (s->count < ranks) {
        all = by_pad(graph, all, 0, 0, ranks);
    }
    by_value mine = by_reshape(
        graph, by_reduce_scatter(graph, all, 0, s->sh->mesh, ranks, s->sh->rank), s->shape);
    if (s->packed) {
        by_value both[2] = {q, mine};
        outs[0] = by_concat(graph, both, 2, 2);
        return;
    }
    outs[0] = q;
    outs[1] = by_slice(graph, mine, 2, 0, s->width / 2);
    outs[2] = by_slice(graph, mine, 2, s->width / 2, s->width / 2);
}

static void build_backward(by_graph *graph, const by__sharding *sh, const by_value *in,
                           int input_count, by_value outs[BY_MAX_OUTPUTS])
{
    by_value *dq;
    int operands = input_count - 3;
    slices s = gather(graph, sh, in, operands == 1);
    if (is_bad(graph) || by__alloc((void **)&dq, 2 * (size_t)s.count, sizeof *dq, "attention",
                                   &graph->error) != BY_OK) {
        return;
    }
    by_value *dkv = dq + s.count;
    for (int i = 0; i < s.count && !is_bad(graph); i++) {
        by_value d[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
        by_value given[6] = {BY_NONE,      BY_NONE,          BY_NONE,
                             in[operands], in[operands + 1], in[operands + 2]};
        by_attrs attrs = meet(&s, i, given);
        (void)by__op_add_node(graph, BY_OP_ATTENTION_GRAD, &attrs, given, 6, d);
        if (!is_bad(graph)) {
            dq[i] = stack(graph, d[0], &graph->values[d[0]].shape);
            dkv[i] = stack(graph, by_concat(graph, d + 1, 2, 2), &s.shape);
        }
    }
    if (!is_bad(graph)) {
        finish_backward(&s, dq, dkv, outs);
    }
    free(dq);
}

/* Every operand is split by time, evenly; a fourth one, lengths, is absent. */
static bool is_by_time(const by__signature *s, const by__sharding *sh, int operands)
{
    static const by__split time = {1, 1};
    bool fits = s->in[0].shape.dim[1] % sh->ranks == 0 && operands != 2;
    for (int i = 0; i < operands; i++) {
        bool absent = by__absent(&s->in[i]);
        fits = fits && (i == 3 ? absent : operands == 1 || !absent) &&
               (absent || by__split_equal(sh->in[i], time));
    }
    return fits && operands <= 3;
}

bool by__shard_attention_time(const by__signature *s, by__sharding *sh)
{
    sh->out[0] = (by__split){1, 1};
    sh->out[1] = (by__split){2, 1};
    sh->build = build_forward;
    return is_by_time(s, sh, s->input_count);
}

bool by__shard_attention_grad_time(const by__signature *s, const by__type *out, by__sharding *sh)
{
    int operands = s->input_count - 3;
    by__split time = {1, 1};
    for (int i = 0; i < 3; i++) {
        sh->out[i] = by__absent(&out[i]) ? by__whole() : time;
    }
    sh->build = build_backward;
    return is_by_time(s, sh, operands) && by__split_equal(sh->in[operands], time) &&
           by__split_equal(sh->in[operands + 1], (by__split){2, 1}) &&
           by__split_equal(sh->in[operands + 2], time);
}

/* ---- putting results together ---- */

static by_status infer_merge(const by__signature *s, by__type *out, by_error *error)
{
    const by__type *y = &s->in[0];
    int64_t heads = s->attrs->heads;
    bool ok = s->input_count % 2 == 0 && by__is_act(y->dtype) && y->shape.rank == 3 && heads > 0 &&
              y->shape.dim[2] % heads == 0;
    for (int i = 0; i < s->input_count && ok; i++) {
        by__type want = *y;
        if (i % 2 == 1) {
            want = (by__type){BY_F32, BY_SHAPE(y->shape.dim[0], heads, y->shape.dim[1])};
        }
        ok = by__type_equal(&s->in[i], &want);
    }
    if (!ok) {
        return by__op_refuse(s, error,
                             "operands must be y [batch, time, heads x width] and lse f32 [batch, "
                             "heads, time] in turn");
    }
    out[0] = s->in[0];
    out[1] = s->in[1];
    return BY_OK;
}

/* By heads. */
static bool shard_merge(const by__signature *s, const by__type *out, by__sharding *sh)
{
    static const by__split heads[2] = {{2, 1}, {1, 1}};
    BY_UNUSED(out);
    for (int i = 0; i < s->input_count; i++) {
        if (!by__split_equal(sh->in[i], heads[i % 2])) {
            return false;
        }
    }
    sh->out[0] = heads[0];
    sh->out[1] = heads[1];
    sh->attrs.heads = s->attrs->heads / sh->ranks;
    return s->attrs->heads % sh->ranks == 0;
}

static void cost_merge(const by__signature *s, const by__type *out, by__cost *cost)
{
    cost->flops = (double)s->input_count * (double)by_shape_count(&out[0].shape);
}

const by__op_row by__op_attention_merge = {.name = "attention_merge",
                                           .min_inputs = 2,
                                           .max_inputs = -1,
                                           .outputs = 2,
                                           .attrs = BY__ATTRS(BY__ATTR(heads, INT)),
                                           .infer = infer_merge,
                                           .cost = cost_merge,
                                           .shard = shard_merge,
                                           .keeps_f32 = 0xaaaaaaaau};
