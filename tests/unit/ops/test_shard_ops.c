/* The `shard` entry of every op row. Each case of the table is run whole and, for every split of
 * its operands that the entry accepts, on 2 and 3 ranks: each rank runs the local node on its
 * pieces, and the results, put together (pieces one behind the other, addends summed), must be
 * those of the whole. The whole is computed by the same kernels in f32, so that only the order of
 * sums differs. Dropout and what moves elements must agree to the bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "runner.h"

enum { MAX_OPERANDS = 8, MAX_RANKS = 3 };

typedef enum operand_kind {
    ABSENT = 0,
    ACT,
    IDS,
    TARGETS,
    LENGTHS,
    ONE,
    RNG,
    POSITIVE
} operand_kind;

typedef struct operand {
    operand_kind kind;
    by_shape shape;
} operand;

typedef struct shard_case {
    by_op op;
    int splits[2]; /* how many splits of its operands the entry accepts, over 2 and over 3 ranks */
    by_attrs attrs;
    operand in[MAX_OPERANDS];
} shard_case;

#define S(...)                                                                                     \
    {                                                                                              \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                                        \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define A(...)                                                                                     \
    {                                                                                              \
        ACT, S(__VA_ARGS__)                                                                        \
    }

/* A window of 3 x 3 that keeps the extents. */
#define SLIDING                                                                                    \
    {                                                                                              \
        .size = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .before = {1, 1}, .after = { 1, 1 }  \
    }

static const shard_case cases[] = {
    {BY_OP_MATMUL, {9, 8}, {0}, {A(6, 12), A(12, 18)}},
    {BY_OP_MATMUL, {9, 8}, {0}, {A(2, 6, 12), A(12, 18), A(18)}},
    {BY_OP_MATMUL, {9, 8}, {.trans_b = true}, {A(2, 6, 12), A(18, 12), A(18), A(2, 6, 18)}},
    {BY_OP_MATMUL, {9, 8}, {.trans_a = true}, {A(2, 6, 12), A(2, 6, 18)}},
    {BY_OP_MATMUL, {9, 8}, {.trans_a = true, .trans_b = true}, {A(12, 6), A(18, 12)}},
    {BY_OP_MATMUL, {4, 4}, {0}, {A(7, 5), A(5, 8)}}, /* pieces that are not equal */
    {BY_OP_CONV,
     {9, 7},
     {.groups = 1, .dtype = BY_F32, .sliding = SLIDING},
     {A(6, 5, 4, 6), A(12, 6, 3, 3), A(12), A(6, 5, 4, 12)}},
    {BY_OP_CONV,
     {3, 2},
     {.groups = 3, .dtype = BY_F32, .sliding = SLIDING},
     {A(6, 5, 4, 6), A(12, 2, 3, 3)}},
    {BY_OP_CONV_TRANSPOSED,
     {9, 7},
     {.groups = 1, .dtype = BY_F32, .sliding = SLIDING},
     {A(6, 5, 4, 12), A(12, 6, 3, 3), A(6)}},
    {BY_OP_CONV_WEIGHT_GRAD,
     {9, 7},
     {.groups = 1, .dtype = BY_F32, .sliding = SLIDING},
     {A(6, 5, 4, 6), A(6, 5, 4, 12)}},
    {BY_OP_SUM_ROWS, {7, 5}, {0}, {A(2, 6, 12)}},
    {BY_OP_SUM_ROWS, {7, 5}, {.lead = 1}, {A(2, 6, 12)}},
    {BY_OP_ADD, {8, 6}, {0}, {A(2, 6, 12), A(2, 6, 12)}},
    {BY_OP_ADD, {8, 6}, {0}, {A(2, 6, 12), A(12)}},
    {BY_OP_SUB, {8, 6}, {0}, {A(2, 6, 1), A(6, 12)}},
    {BY_OP_MUL, {9, 7}, {0}, {A(2, 6, 12), A(6, 1)}},
    {BY_OP_SCALE, {7, 6}, {0}, {A(6, 12), {ONE, S(1)}}},
    {BY_OP_CAST, {6, 5}, {.dtype = BY_F32}, {A(6, 12)}},
    {BY_OP_UNARY, {5, 3}, {.function = BY_FN_GELU}, {A(2, 6, 7)}},
    {BY_OP_UNARY_GRAD, {5, 3}, {.function = BY_FN_GELU}, {A(2, 6, 7), A(2, 6, 7)}},
    {BY_OP_SWIGLU, {5, 3}, {0}, {A(2, 6, 7), A(2, 6, 7)}},
    {BY_OP_SWIGLU_GRAD, {5, 3}, {0}, {A(2, 6, 7), A(2, 6, 7), A(2, 6, 7)}},
    {BY_OP_LAYER_NORM, {3, 2}, {.eps = 1e-5f}, {A(2, 6, 12), A(12), A(12)}},
    {BY_OP_BATCH_NORM, {3, 3}, {.eps = 1e-5f}, {A(2, 6, 12), A(12), A(12), A(2, 6, 12)}},
    {BY_OP_BATCH_NORM_GRAD,
     {3, 3},
     {.eps = 1e-5f, .rectify = true},
     {A(2, 6, 12), A(12), A(12), A(12), {POSITIVE, S(12)}, A(2, 6, 12)}},
    {BY_OP_AFFINE, {3, 3}, {.rectify = true}, {A(2, 6, 12), A(12), A(12)}},
    {BY_OP_LAYER_NORM_GRAD,
     {2, 1},
     {0},
     {A(2, 6, 12), A(12), A(12), {POSITIVE, S(12)}, A(2, 6, 12)}},
    {BY_OP_LAYER_NORM_GRAD,
     {2, 1},
     {0},
     {A(2, 6, 12), A(12), A(12), {POSITIVE, S(12)}, A(2, 6, 12), A(2, 6, 12)}},
    {BY_OP_RMS_NORM, {3, 2}, {.eps = 1e-5f}, {A(2, 6, 12), A(12)}},
    {BY_OP_RMS_NORM_GRAD, {2, 1}, {0}, {A(2, 6, 12), A(12), {POSITIVE, S(12)}, A(2, 6, 12)}},
    {BY_OP_EMBEDDING, {6, 6}, {0}, {{IDS, S(2, 6)}, A(11, 12)}},
    {BY_OP_EMBEDDING_GRAD, {6, 6}, {.rows = 11}, {{IDS, S(2, 6)}, A(2, 6, 12)}},
    {BY_OP_EMBEDDING_GRAD, {5, 5}, {.rows = 11}, {{IDS, S(2, 6)}, A(2, 6, 12), A(11, 12)}},
    {BY_OP_POSITION, {5, 4}, {0}, {A(2, 6, 12), A(8, 12)}},
    {BY_OP_POSITION_GRAD, {5, 4}, {.rows = 8}, {A(2, 6, 12)}},
    {BY_OP_ROPE, {3, 2}, {.heads = 6, .theta = 100.0f}, {A(2, 6, 24)}},
    {BY_OP_ROPE,
     {3, 2},
     {.heads = 6, .theta = 100.0f, .inverse = true},
     {A(2, 6, 24), {LENGTHS, S(1)}}},
    {BY_OP_ATTENTION, {2, 1}, {.heads = 6, .kv_heads = 6}, {A(2, 6, 72)}},
    {BY_OP_ATTENTION,
     {2, 1},
     {.heads = 12, .kv_heads = 6},
     {A(2, 5, 48), A(2, 5, 24), A(2, 5, 24)}},
    {BY_OP_ATTENTION,
     {2, 2},
     {.heads = 6, .kv_heads = 6, .bidirectional = true},
     {A(6, 5, 72), {0}, {0}, {LENGTHS, S(6)}}},
    {BY_OP_ATTENTION,
     {2, 2},
     {.heads = 6, .kv_heads = 6, .window = 3},
     {A(6, 5, 72), {0}, {0}, {0}, {LENGTHS, S(6, 5)}}},
    {BY_OP_ATTENTION_GRAD,
     {2, 2},
     {.heads = 6, .kv_heads = 6},
     {A(6, 5, 72),
      {0},
      {0},
      {0},
      {LENGTHS, S(6, 5)},
      A(6, 5, 24),
      {POSITIVE, S(6, 6, 5)},
      A(6, 5, 24)}},
    {BY_OP_ATTENTION_GRAD,
     {2, 1},
     {.heads = 6, .kv_heads = 6},
     {A(2, 6, 72), A(2, 6, 24), {POSITIVE, S(2, 6, 6)}, A(2, 6, 24)}},
    {BY_OP_ATTENTION_GRAD,
     {2, 1},
     {.heads = 12, .kv_heads = 6},
     {A(2, 5, 48), A(2, 5, 24), A(2, 5, 24), A(2, 5, 48), {POSITIVE, S(2, 12, 5)}, A(2, 5, 48)}},
    {BY_OP_ATTENTION, {2, 2}, {.heads = 6, .kv_heads = 6, .slopes = 6}, {A(6, 5, 72)}},
    {BY_OP_ATTENTION,
     {2, 2},
     {.heads = 6, .kv_heads = 6, .slopes = 12, .begin = 6, .bidirectional = true, .window = 3},
     {A(6, 5, 72)}},
    {BY_OP_ATTENTION_GRAD,
     {2, 2},
     {.heads = 6, .kv_heads = 6, .slopes = 6},
     {A(6, 5, 72), A(6, 5, 24), {POSITIVE, S(6, 6, 5)}, A(6, 5, 24)}},
    {BY_OP_LINEAR_ATTENTION,
     {2, 2},
     {.heads = 12, .kv_heads = 6},
     {A(6, 5, 48), A(6, 5, 24), A(6, 5, 24)}},
    {BY_OP_LINEAR_ATTENTION_GRAD, {2, 2}, {.heads = 6, .kv_heads = 6}, {A(6, 5, 72), A(6, 5, 24)}},
    {BY_OP_DROPOUT, {2, 2}, {.p = 0.3f, .stream = 2}, {A(3, 6, 7), {RNG, S(4)}}},
    {BY_OP_ATTENTION_MERGE,
     {1, 1},
     {.heads = 6},
     {A(2, 5, 24), A(2, 6, 5), A(2, 5, 24), A(2, 6, 5)}},
    {BY_OP_DROPOUT, {2, 2}, {.p = 0.3f, .stream = 2}, {A(3, 6, 64), {RNG, S(4)}}},
    {BY_OP_LINEAR_TOKEN_LOSS, {2, 2}, {0}, {A(2, 6, 8), A(11, 8), {TARGETS, S(2, 6)}}},
    {BY_OP_LINEAR_CROSS_ENTROPY, {3, 3}, {0}, {A(2, 6, 8), A(11, 8), {TARGETS, S(2, 6)}}},
    {BY_OP_LINEAR_CROSS_ENTROPY, {3, 3}, {0}, {A(2, 6, 8), A(11, 8), {TARGETS, S(2, 6)}, A(2, 6)}},
    {BY_OP_LINEAR_CROSS_ENTROPY_GRAD,
     {3, 2},
     {0},
     {A(2, 6, 8), A(11, 8), {TARGETS, S(2, 6)}, {POSITIVE, S(12)}, {ONE, S(1)}, {0}, A(2, 6)}},
    {BY_OP_LINEAR_CROSS_ENTROPY_TRAIN,
     {2, 2},
     {0},
     {A(2, 6, 8), A(11, 8), {TARGETS, S(2, 6)}, {ONE, S(1)}, A(2, 6)}},
    {BY_OP_LINEAR_CROSS_ENTROPY_GRAD,
     {3, 2},
     {0},
     {A(2, 6, 8), A(11, 8), {TARGETS, S(2, 6)}, {POSITIVE, S(12)}, {ONE, S(1)}}},
    {BY_OP_LINEAR_CROSS_ENTROPY_TRAIN,
     {2, 2},
     {0},
     {A(2, 6, 8), A(11, 8), {TARGETS, S(2, 6)}, {ONE, S(1)}}},
    {BY_OP_LINEAR_DISTILL,
     {2, 2},
     {.theta = 2.0f, .p = 0.5f},
     {A(2, 6, 8), A(11, 8), {TARGETS, S(2, 6)}, {0}, {0}, {IDS, S(2, 6, 1)}, A(2, 6, 2)}},
    {BY_OP_LINEAR_DISTILL_GRAD,
     {2, 2},
     {.theta = 2.0f, .p = 0.5f},
     {A(2, 6, 8),
      A(11, 8),
      {TARGETS, S(2, 6)},
      {0},
      {0},
      {IDS, S(2, 6, 1)},
      A(2, 6, 2),
      {ONE, S(1)}}},
    {BY_OP_LINEAR_DISTILL_TRAIN,
     {2, 2},
     {.theta = 2.0f, .p = 0.5f},
     {A(2, 6, 8), A(11, 8), {TARGETS, S(2, 6)}, A(2, 6, 4), A(11, 4), {0}, {0}, {ONE, S(1)}}},
    {BY_OP_FAKE_QUANTIZE,
     {4, 4},
     {.dtype = BY_F32,
      .trans_b = true,
      .packing = {.kind = BY_PACKING_INT4, .dtype = BY_F32, .n = 6, .k = 192, .group = 32}},
     {A(6, 192)}},
    {BY_OP_FAKE_QUANTIZE,
     {6, 6},
     {.dtype = BY_F32,
      .trans_b = true,
      .packing =
          {.kind = BY_PACKING_INT4, .dtype = BY_F32, .n = 6, .k = 192, .group = 32, .stack = 6}},
     {A(6, 6, 192)}},
    {BY_OP_CROSS_ENTROPY, {2, 1}, {.smoothing = 0.1f}, {A(2, 6, 8), {TARGETS, S(12)}}},
    {BY_OP_CROSS_ENTROPY_GRAD,
     {1, 2},
     {0},
     {A(6, 8), {TARGETS, S(6)}, {POSITIVE, S(6)}, {ONE, S(1)}}},
    {BY_OP_ROUTER, {4, 2}, {.chosen = 2}, {A(6, 2, 5)}},
    {BY_OP_ROUTER_GRAD, {2, 2}, {0}, {A(6, 2, 5), {IDS, S(6, 2, 2)}, A(6, 2, 2), A(5)}},
    {BY_OP_COUNT_IDS, {2, 2}, {.rows = 5}, {{IDS, S(6, 2)}}},
    {BY_OP_SQUARED_ERROR, {2, 2}, {0}, {A(6, 5), A(6, 5), A(6)}},
    {BY_OP_SQUARED_ERROR_GRAD, {3, 2}, {0}, {A(6, 5), A(6, 5), {0}, {ONE, S(1)}}},
    {BY_OP_SMOOTH_L1, {4, 2}, {.beta = 1.0f}, {A(2, 6, 5), A(2, 6, 5)}},
    {BY_OP_SMOOTH_L1_GRAD, {2, 2}, {.beta = 1.0f}, {A(6, 5), A(6, 5), A(6), {ONE, S(1)}}},
    {BY_OP_LIKELIHOOD, {5, 3}, {0}, {A(6, 4), A(6, 4), A(6, 4), A(6, 4)}},
    {BY_OP_LIKELIHOOD_GRAD, {5, 3}, {0}, {A(6, 4), A(6, 4), A(6, 4), A(6, 4), {ONE, S(1)}}},
    {BY_OP_FILL, {6, 5}, {.dtype = BY_F32, .value = 2.5f, .shape = S(6, 12)}, {{0}}},
    {BY_OP_RESHAPE, {7, 5}, {.shape = S(12, 12)}, {A(2, 6, 12)}},
    {BY_OP_RESHAPE, {5, 4}, {.shape = S(2, 6, 3, 4)}, {A(2, 6, 12)}},
    {BY_OP_PERMUTE, {15, 11}, {.order = {2, 0, 1}}, {A(2, 6, 12)}},
    {BY_OP_CONCAT, {9, 6}, {.axis = 1}, {A(2, 6), A(2, 6), A(2, 6)}},
    {BY_OP_SLICE, {14, 9}, {.axis = 1, .begin = 1, .rows = 2}, {A(6, 4, 6)}},
    {BY_OP_PAD, {14, 10}, {.axis = 1, .begin = 1, .rows = 5}, {A(6, 2, 6)}},
    {BY_OP_EXPAND, {3, 2}, {.shape = S(3, 6, 12)}, {A(6, 1)}},
    {BY_OP_SUM, {9, 7}, {.axes = 2}, {A(6, 6, 12)}},
    {BY_OP_SUM, {3, 2}, {.axes = 5, .keep = true, .mean = true}, {A(6, 6, 12)}},
    {BY_OP_SOFTMAX, {6, 4}, {.logarithm = true}, {A(6, 6, 5)}},
    {BY_OP_SOFTMAX_GRAD, {6, 4}, {0}, {A(6, 6, 5), A(6, 6, 5)}},
    {BY_OP_ADAMW,
     {4, 3},
     {.beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .decay = 0.1f},
     {A(6, 7), A(6, 7), A(6, 7), {POSITIVE, S(6, 7)}, {ONE, S(3)}, {ONE, S(1)}}},
};

/* A square plus a scalar's multiple of another: results of MAP, which has no constant attributes.
 */
static const by_map_program map_program = {
    .inputs = 3,
    .steps = 4,
    .results = 1,
    .scalars = 1u << 2,
    .step = {{BY_MAP_SCALAR, {2, 0}, 0, 0.0f},
             {BY_MAP_SQUARE, {0}, 0, 0.0f},
             {BY_MAP_MUL, {1, BY_MAP_MAX_INPUTS}, 0, 0.0f},
             {BY_MAP_ADD, {BY_MAP_MAX_INPUTS + 1, BY_MAP_MAX_INPUTS + 2}, 0, 0.0f}},
    .result = {{BY_MAP_MAX_INPUTS + 3, BY_F32}},
};
static const shard_case map_case = {
    BY_OP_MAP, {6, 5}, {.map = &map_program}, {A(6, 12), A(6, 12), {ONE, S(1)}}};

typedef struct tensor {
    by__graph_type type; /* rank -1: absent */
    float *data;         /* i32 as well */
} tensor;

typedef struct tensors {
    tensor of[MAX_OPERANDS];
} tensors;

static size_t count_of(const tensor *t)
{
    return (size_t)by_shape_count(&t->type.shape);
}

static tensor make(by__graph_type type)
{
    tensor t = {.type = type};
    if (!by__absent(&type)) {
        t.data = calloc(count_of(&t) + 1, sizeof(float));
        assert_non_null(t.data);
    }
    return t;
}

static void free_all(tensor *t, int count)
{
    for (int i = 0; i < count; i++) {
        free(t[i].data);
    }
}

static int operands_of(const shard_case *c)
{
    int count = 0;
    for (int i = 0; i < MAX_OPERANDS; i++) {
        count = c->in[i].kind != ABSENT ? i + 1 : count;
    }
    return count;
}

static tensor operand_of(const shard_case *c, int i)
{
    const operand *in = &c->in[i];
    bool integer = in->kind == IDS || in->kind == TARGETS || in->kind == LENGTHS || in->kind == RNG;
    by__graph_type type = {integer ? BY_I32 : BY_F32, in->shape};
    if (in->kind == ABSENT) {
        type.shape.rank = -1;
    }
    tensor t = make(type);
    for (size_t k = 0; !by__absent(&type) && k < count_of(&t); k++) {
        double u = random_unit(5, (uint64_t)i, k);
        int32_t whole = (int32_t)floor((u + 1.0) * 5.5); /* in 0 .. 10 */
        if (in->kind == TARGETS) {
            whole = k % 3 == 1 ? -1 : whole % 8;
        } else if (in->kind == LENGTHS) {
            whole = whole % 6;
        }
        if (integer) {
            ((int32_t *)t.data)[k] = whole;
        } else {
            t.data[k] = (float)(in->kind == ONE        ? 0.5 + 0.1 * (double)k
                                : in->kind == POSITIVE ? 1.5 + u
                                                       : u);
        }
    }
    return t;
}

/* ---- pieces ---- */

/* Copies between a tensor and the pieces of rank `rank` in `local`; whichever way. */
static void move_piece(tensor *whole, tensor *local, by__graph_split split, int ranks, int rank,
                       bool gather)
{
    const by_shape *shape = &whole->type.shape;
    int64_t outer = 1;
    int64_t inner = 1;
    for (int i = 0; i < shape->rank; i++) {
        outer *= i < split.axis ? shape->dim[i] : 1;
        inner *= i > split.axis ? shape->dim[i] : 1;
    }
    int64_t section = shape->dim[split.axis] / split.sections;
    int64_t begin = by__op_cut(section, ranks, rank);
    int64_t extent = by__op_cut(section, ranks, rank + 1) - begin;
    size_t bytes = (size_t)(extent * inner) * sizeof(float);
    for (int64_t k = 0; k < outer * split.sections; k++) {
        float *from = whole->data + (k * section + begin) * inner;
        float *to = local->data + k * extent * inner;
        memcpy(gather ? from : to, gather ? to : from, bytes);
    }
}

static tensor piece_of(tensor *whole, by__graph_split split, int ranks, int rank)
{
    tensor local = make((by__graph_type){
        whole->type.dtype, by__op_split_shape(&whole->type.shape, split, ranks, rank)});
    size_t count = by__absent(&whole->type) ? 0 : count_of(whole);
    if (split.axis >= 0) {
        move_piece(whole, &local, split, ranks, rank, false);
        return local;
    }
    memcpy(local.data == NULL ? (float[1]){0} : local.data,
           whole->data == NULL ? (float[1]){0} : whole->data, count * sizeof(float));
    for (size_t i = 0; split.axis == BY__PARTIAL && i < count; i++) {
        /* addends: small multiples of the value, which the first one completes */
        float others = whole->data[i] * 0.25f * (float)(ranks - 1);
        local.data[i] = rank == 0 ? whole->data[i] - others : whole->data[i] * 0.25f;
    }
    return local;
}

static void put_piece(tensor *whole, tensor *local, by__graph_split split, int ranks, int rank)
{
    if (split.axis >= 0) {
        move_piece(whole, local, split, ranks, rank, true);
        return;
    }
    for (size_t i = 0; i < count_of(whole); i++) {
        if (split.axis == BY__PARTIAL) {
            whole->data[i] += local->data[i];
        } else if (rank == 0) {
            whole->data[i] = local->data[i];
        } else {
            assert_true(whole->data[i] == local->data[i]);
        }
    }
}

/* ---- running ---- */

/* Builds a graph over the operands by `add`, runs it and returns its results. */
typedef void adder(by_graph *graph, const shard_case *c, const by__op_sharding *sh,
                   const by_value *in, int count, by_value outs[BY_MAX_OUTPUTS]);

static void add_op(by_graph *graph, const shard_case *c, const by__op_sharding *sh,
                   const by_value *in, int count, by_value outs[BY_MAX_OUTPUTS])
{
    if (sh != NULL && sh->build != NULL) {
        sh->build(graph, sh, in, count, outs);
    } else {
        (void)by__op_add_node(graph, c->op, sh == NULL ? &c->attrs : &sh->attrs, in, count, outs);
    }
}

static void name_of(char name[16], const char *prefix, int i)
{
    (void)snprintf(name, 16, "%s.%d", prefix, i);
}

static void run(const shard_case *c, const by__op_sharding *sh, const tensor *in, int count,
                tensor out[BY_MAX_OUTPUTS])
{
    by_error error = {0};
    runner r;
    char name[16];
    by_value values[MAX_OPERANDS];
    by_value outs[BY_MAX_OUTPUTS];
    by_graph *graph = open_graph();
    uint32_t mutates = by__op_mutates(c->op, &c->attrs);
    for (int i = 0; i < count; i++) {
        bool dropped = sh != NULL && sh->rank != 0 && by__mask_has(sh->once, i);
        name_of(name, "in", i);
        values[i] = dropped || by__absent(&in[i].type)
                        ? BY_NONE
                        : by__graph_add_value(graph, BY_ROLE_STATE, name, NULL, in[i].type);
    }
    add_op(graph, c, sh, values, count, outs);
    check_ok(by_graph_check(graph, &error), &error);
    for (int i = 0; i < BY_MAX_OUTPUTS; i++) {
        name_of(name, "out", i);
        if (outs[i] != BY_NONE) {
            by_graph_output(graph, outs[i], name);
        }
    }
    check_ok(by_graph_verify(graph, &error), &error);
    runner_open(&r, graph, 1);
    for (int i = 0; i < count; i++) {
        if (values[i] != BY_NONE) {
            name_of(name, "in", i);
            memcpy(runner_data(&r, name), in[i].data, count_of(&in[i]) * sizeof(float));
        }
    }
    runner_run(&r);
    for (int i = 0; i < BY_MAX_OUTPUTS; i++) {
        int updated = -1; /* without results, what is updated is the result */
        for (int k = count - 1; k >= 0 && mutates != 0; k--) {
            updated = by__mask_has(mutates, k) ? k : updated;
        }
        bool in_place = outs[i] == BY_NONE && i == 0 && updated >= 0;
        by_value value = in_place ? values[updated] : outs[i];
        out[i] = make((by__graph_type){BY_F32, {.rank = -1}});
        if (value != BY_NONE) {
            name_of(name, in_place ? "in" : "out", in_place ? updated : i);
            free(out[i].data);
            out[i] = make((by__graph_type){graph->values[value].dtype, graph->values[value].shape});
            memcpy(out[i].data, runner_data(&r, name), count_of(&out[i]) * sizeof(float));
        }
    }
    runner_close(&r);
    by_graph_close(&graph);
}

static bool is_exact(by_op op)
{
    return op == BY_OP_DROPOUT || op == BY_OP_RESHAPE || op == BY_OP_PERMUTE ||
           op == BY_OP_CONCAT || op == BY_OP_SLICE || op == BY_OP_PAD || op == BY_OP_EXPAND ||
           op == BY_OP_FILL || op == BY_OP_CAST;
}

static void describe(char *text, size_t size, const shard_case *c, const by__graph_split *in,
                     int count, int ranks)
{
    int at = snprintf(text, size, "%s over %d ranks, operands", by_op_name(c->op), ranks);
    for (int i = 0; i < count; i++) {
        at += snprintf(text + at, size - (size_t)at, " %d/%lld", in[i].axis,
                       (long long)in[i].sections);
    }
}

/* Runs the case on all ranks as the entry says and compares. */
static void compare(const shard_case *c, tensor *in, int count, tensor *want,
                    const by__op_sharding *accepted, const by__graph_split *splits)
{
    char where[256];
    tensor got[BY_MAX_OUTPUTS];
    by__graph_split out[BY_MAX_OUTPUTS];
    describe(where, sizeof where, c, splits, count, accepted->ranks);
    for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
        got[o] = make(want[o].type);
        out[o] = accepted->out[o];
    }
    for (int rank = 0; rank < accepted->ranks; rank++) {
        by__graph_type types[MAX_OPERANDS];
        by__graph_type results[BY_MAX_OUTPUTS];
        tensor local[MAX_OPERANDS];
        tensor made[BY_MAX_OUTPUTS];
        by__op_sharding sh = {.ranks = accepted->ranks,
                              .rank = rank,
                              .mesh = 1u,
                              .in = splits,
                              .want = accepted->want,
                              .attrs = c->attrs};
        for (int i = 0; i < count; i++) {
            types[i] = in[i].type;
            local[i] = piece_of(&in[i], splits[i], sh.ranks, rank);
        }
        for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
            results[o] = want[o].type;
            sh.out[o] = by__op_whole();
        }
        by__op_signature s = {c->op, &c->attrs, types, count};
        assert_true(by__op_row_of(c->op)->shard(&s, results, &sh));
        run(c, &sh, local, count, made);
        for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
            if (by__absent(&want[o].type)) {
                continue;
            }
            by__graph_split split = c->op == BY_OP_ADAMW ? splits[0] : out[o];
            by_shape shape = by__op_split_shape(&want[o].type.shape, split, sh.ranks, rank);
            if (!by_shape_equal(&shape, &made[o].type.shape)) {
                fail_msg("%s: output %d has another shape than its split says", where, o);
            }
            put_piece(&got[o], &made[o], split, sh.ranks, rank);
        }
        free_all(local, count);
        free_all(made, BY_MAX_OUTPUTS);
    }
    for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
        if (by__absent(&want[o].type)) {
            continue;
        }
        double off = relative_distance(got[o].data, want[o].data, count_of(&want[o]));
        if (!(off <= (is_exact(c->op) ? 0.0 : 1e-6))) {
            fail_msg("%s: output %d is off by %g", where, o, off);
        }
    }
    free_all(got, BY_MAX_OUTPUTS);
}

/* A vocabulary that is split needs what all ranks say of a row: their parts are put together here,
 * which on real ranks an all-gather does. */
static void compare_words(const shard_case *c, tensor *in, int count, tensor *want, int ranks)
{
    static const by__graph_split splits[3] = {{BY__WHOLE, 1}, {0, 1}, {BY__WHOLE, 1}};
    int64_t rows = by_shape_count(&want[1].type.shape);
    tensor parts[3] = {make((by__graph_type){BY_F32, BY_SHAPE(2 * ranks, rows)}), in[2]};
    if (count > 3) {
        parts[2] = in[3]; /* weights */
    }
    tensor got[BY_MAX_OUTPUTS];
    for (int rank = 0; rank < ranks; rank++) {
        tensor local[3] = {in[0], piece_of(&in[1], splits[1], ranks, rank), in[2]};
        tensor made[BY_MAX_OUTPUTS];
        shard_case part = {.op = BY_OP_LINEAR_CROSS_ENTROPY_PART, .attrs = c->attrs};
        part.attrs.rows = in[1].type.shape.dim[0];
        part.attrs.begin = by__op_cut(part.attrs.rows, ranks, rank);
        run(&part, NULL, local, 3, made);
        memcpy(parts[0].data + 2 * rank * rows, made[0].data, count_of(&made[0]) * sizeof(float));
        free(local[1].data);
        free_all(made, BY_MAX_OUTPUTS);
    }
    shard_case combine = {.op = BY_OP_CROSS_ENTROPY_COMBINE};
    combine.attrs.rows = in[1].type.shape.dim[0];
    run(&combine, NULL, parts, count - 1, got);
    for (int o = 0; o < 2; o++) {
        assert_true(relative_distance(got[o].data, want[o].data, count_of(&want[o])) <= 1e-6);
    }
    free(parts[0].data);
    free_all(got, BY_MAX_OUTPUTS);
}

/* All splits that a tensor of the case may have: whole, an addend, an axis in 1, 2 or 3 sections.
 */
static int list_splits(const tensor *t, int ranks, by__graph_split out[32])
{
    int count = 0;
    out[count++] = by__op_whole();
    if (by__absent(&t->type) || t->type.dtype == BY_I32) {
        for (int axis = 0; !by__absent(&t->type) && axis < t->type.shape.rank; axis++) {
            for (int64_t parts = 1; parts <= 2; parts++) {
                if (t->type.shape.dim[axis] % (parts * ranks) == 0) {
                    out[count++] = (by__graph_split){axis, parts};
                }
            }
        }
        return count;
    }
    out[count++] = by__op_partial();
    for (int axis = 0; axis < t->type.shape.rank; axis++) {
        for (int64_t parts = 1; parts <= 3; parts++) {
            int64_t extent = t->type.shape.dim[axis];
            if (extent % parts == 0 && extent / parts >= ranks) {
                out[count++] = (by__graph_split){axis, parts};
            }
        }
    }
    return count;
}

static bool any_split(const by__graph_split *splits, int count)
{
    for (int i = 0; i < count; i++) {
        if (splits[i].axis != BY__WHOLE) {
            return true;
        }
    }
    return false;
}

/* Tries the case with one assignment of splits; returns how many outputs' wishes were accepted. */
static int try_splits(const shard_case *c, tensor *in, int count, tensor *want, int ranks,
                      const by__graph_split *splits)
{
    by__graph_split wishes[32];
    int wish_count = list_splits(&want[0], ranks, wishes);
    int accepted = 0;
    by__graph_type types[MAX_OPERANDS];
    by__graph_type results[BY_MAX_OUTPUTS];
    for (int i = 0; i < count; i++) {
        types[i] = in[i].type;
    }
    for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
        results[o] = want[o].type;
    }
    bool any = any_split(splits, count);
    for (int w = 0; w < (any ? 1 : wish_count); w++) {
        by__op_sharding sh = {
            .ranks = ranks, .mesh = 1u, .in = splits, .want = wishes[w], .attrs = c->attrs};
        for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
            sh.out[o] = by__op_whole();
        }
        by__op_signature s = {c->op, &c->attrs, types, count};
        if ((any || wishes[w].axis >= 0) && by__op_row_of(c->op)->shard(&s, results, &sh)) {
            bool apart = c->op == BY_OP_ATTENTION || c->op == BY_OP_ATTENTION_GRAD ||
                         c->op == BY_OP_LINEAR_CROSS_ENTROPY_TRAIN;
            if (apart && sh.build != NULL) {
                continue; /* by time, or words, with collectives: test_tensor_parallel.c */
            }
            if (c->op == BY_OP_LINEAR_CROSS_ENTROPY && sh.build != NULL) {
                compare_words(c, in, count, want, ranks);
            } else {
                compare(c, in, count, want, &sh, splits);
            }
            accepted++;
        }
    }
    return accepted;
}

static int check_case(const shard_case *c, int ranks)
{
    tensor in[MAX_OPERANDS] = {0};
    tensor want[BY_MAX_OUTPUTS];
    by__graph_split choices[MAX_OPERANDS][32];
    int choice_count[MAX_OPERANDS];
    int chosen[MAX_OPERANDS] = {0};
    by__graph_split splits[MAX_OPERANDS];
    int accepted = 0;
    int count = operands_of(c);
    for (int i = 0; i < count; i++) {
        in[i] = operand_of(c, i);
        choice_count[i] = list_splits(&in[i], ranks, choices[i]);
    }
    run(c, NULL, in, count, want);
    for (bool more = true; more;) {
        for (int i = 0; i < count; i++) {
            splits[i] = choices[i][chosen[i]];
        }
        accepted += try_splits(c, in, count, want, ranks, splits);
        int i = 0;
        while (i < count && ++chosen[i] == choice_count[i]) {
            chosen[i++] = 0;
        }
        more = i < count;
    }
    free_all(in, count);
    free_all(want, BY_MAX_OUTPUTS);
    return accepted;
}

static void check_all(int ranks)
{
    for (size_t k = 0; k <= BY_ARRAY_LENGTH(cases); k++) {
        const shard_case *c = k < BY_ARRAY_LENGTH(cases) ? &cases[k] : &map_case;
        int accepted = check_case(c, ranks);
        if (accepted != c->splits[ranks - 2]) {
            fail_msg("%s (case %zu) accepts %d splits, not %d", by_op_name(c->op), k, accepted,
                     c->splits[ranks - 2]);
        }
    }
}

static void test_two_ranks(void **state)
{
    BY_UNUSED(state);
    check_all(2);
}

static void test_three_ranks(void **state)
{
    BY_UNUSED(state);
    check_all(3);
}

/* Ops on grouped rows: their whole numbers name rows of a rank's own part, so that pieces of the
 * whole are not what a rank has. test_expert_ranks.c runs them on ranks. */
static bool numbers_rows(by_op op)
{
    return op == BY_OP_GROUP || op == BY_OP_SCATTER_ROWS || op == BY_OP_GATHER_ROWS ||
           op == BY_OP_ROW_DOTS || op == BY_OP_GROUPED_MATMUL || op == BY_OP_GROUPED_MATMUL_GRAD;
}

static void test_table_is_complete(void **state)
{
    BY_UNUSED(state);
    for (int op = 0; op < BY_OP_COUNT; op++) {
        const by__op_row *row = by__op_row_of((by_op)op);
        /* Collectives need ranks: test_tensor_parallel.c. */
        bool found = row->shard == NULL || op == BY_OP_MAP || row->communicates || row->waits ||
                     numbers_rows((by_op)op);
        for (size_t c = 0; c < BY_ARRAY_LENGTH(cases); c++) {
            found = found || cases[c].op == (by_op)op;
        }
        if (!found) {
            fail_msg("%s can be split and has no case in this table", by_op_name((by_op)op));
        }
    }
}

static void test_slices(void **state)
{
    BY_UNUSED(state);
    for (int ranks = 1; ranks <= 7; ranks++) {
        for (int64_t extent = 0; extent < 40; extent++) {
            assert_int_equal(by__op_cut(extent, ranks, 0), 0);
            assert_int_equal(by__op_cut(extent, ranks, ranks), extent);
            for (int r = 0; r < ranks; r++) {
                int64_t length = by__op_cut(extent, ranks, r + 1) - by__op_cut(extent, ranks, r);
                assert_int_equal(length, extent / ranks + (r < extent % ranks));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_three_ranks),
        cmocka_unit_test(test_table_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
