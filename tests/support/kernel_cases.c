#include "kernel_test.h"

#define T(dtype_, ...)                                                                             \
    {                                                                                              \
        .dtype = (dtype_), .shape = {                                                              \
            .rank = sizeof((int64_t[]){__VA_ARGS__}) / 8,                                          \
            .dim = {__VA_ARGS__}                                                                   \
        }                                                                                          \
    }
#define A(...) T(ACT, __VA_ARGS__)
#define F(...) T(BY_F32, __VA_ARGS__)
#define I(...) T(BY_I32, __VA_ARGS__)
#define NONE                                                                                       \
    {                                                                                              \
        .shape = {.rank = -1 }                                                                     \
    }
#define ATTRS(...)                                                                                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define LINE(op_, attrs_, bench_, ...)                                                             \
    {                                                                                              \
        BY_OP_##op_, attrs_, (const by__type[]){__VA_ARGS__},                                      \
            sizeof((const by__type[]){__VA_ARGS__}) / sizeof(by__type), bench_                     \
    }
#define CASE(op, attrs, ...)  LINE(op, ATTRS attrs, false, __VA_ARGS__)
#define BENCH(op, attrs, ...) LINE(op, ATTRS attrs, true, __VA_ARGS__)

/* Step k of a map's program as an operand. */
#define AT(k) (BY_MAP_MAX_INPUTS + (k))

/* Stochastic gradient descent with Nesterov's momentum: p, g, m, {rate, momentum}. */
static const by_map_program nesterov = {
    .inputs = 4,
    .steps = 8,
    .results = 1,
    .updates = 2,
    .scalars = 1u << 3,
    .step = {{BY_MAP_SCALAR, {3, 0}, 0, 0.0f},
             {BY_MAP_SCALAR, {3, 1}, 0, 0.0f},
             {BY_MAP_MUL, {2, AT(1)}, 0, 0.0f},
             {BY_MAP_ADD, {AT(2), 1}, 0, 0.0f},
             {BY_MAP_MUL, {AT(3), AT(1)}, 0, 0.0f},
             {BY_MAP_ADD, {AT(4), 1}, 0, 0.0f},
             {BY_MAP_MUL, {AT(5), AT(0)}, 0, 0.0f},
             {BY_MAP_SUB, {0, AT(6)}, 0, 0.0f}},
    .result = {{AT(7), BY_BF16}},
    .update = {{2, AT(3)}, {0, AT(7)}},
};

/* AdamW: p, g, m, v, {rate, 1 - beta1^t, 1 - beta2^t}, scale; to be timed against ADAMW. */
static const by_map_program adamw_map = {
    .inputs = 6,
    .steps = 30,
    .results = 1,
    .updates = 3,
    .scalars = 1u << 4 | 1u << 5,
    .step = {{BY_MAP_SCALAR, {4, 0}, 0, 0.0f},        {BY_MAP_SCALAR, {4, 1}, 0, 0.0f},
             {BY_MAP_SCALAR, {4, 2}, 0, 0.0f},        {BY_MAP_SCALAR, {5, 0}, 0, 0.0f},
             {BY_MAP_CONSTANT, {0}, 0, 0.9f},         {BY_MAP_CONSTANT, {0}, 0, 0.1f},
             {BY_MAP_CONSTANT, {0}, 0, 0.95f},        {BY_MAP_CONSTANT, {0}, 0, 0.05f},
             {BY_MAP_CONSTANT, {0}, 0, 1e-8f},        {BY_MAP_CONSTANT, {0}, 0, 0.1f},
             {BY_MAP_CONSTANT, {0}, 0, 1.0f},         {BY_MAP_MUL, {AT(0), AT(9)}, 0, 0.0f},
             {BY_MAP_SUB, {AT(10), AT(11)}, 0, 0.0f}, {BY_MAP_DIV, {AT(0), AT(1)}, 0, 0.0f},
             {BY_MAP_RSQRT, {AT(2)}, 0, 0.0f},        {BY_MAP_MUL, {1, AT(3)}, 0, 0.0f},
             {BY_MAP_MUL, {2, AT(4)}, 0, 0.0f},       {BY_MAP_MUL, {AT(15), AT(5)}, 0, 0.0f},
             {BY_MAP_ADD, {AT(16), AT(17)}, 0, 0.0f}, {BY_MAP_SQUARE, {AT(15)}, 0, 0.0f},
             {BY_MAP_MUL, {AT(19), AT(7)}, 0, 0.0f},  {BY_MAP_MUL, {3, AT(6)}, 0, 0.0f},
             {BY_MAP_ADD, {AT(20), AT(21)}, 0, 0.0f}, {BY_MAP_SQRT, {AT(22)}, 0, 0.0f},
             {BY_MAP_MUL, {AT(23), AT(14)}, 0, 0.0f}, {BY_MAP_ADD, {AT(24), AT(8)}, 0, 0.0f},
             {BY_MAP_DIV, {AT(18), AT(25)}, 0, 0.0f}, {BY_MAP_MUL, {AT(26), AT(13)}, 0, 0.0f},
             {BY_MAP_MUL, {0, AT(12)}, 0, 0.0f},      {BY_MAP_SUB, {AT(28), AT(27)}, 0, 0.0f}},
    .result = {{AT(29), BY_BF16}},
    .update = {{0, AT(29)}, {2, AT(18)}, {3, AT(22)}},
};

const kernel_case kernel_cases[] = {
    /* ---- products ---- */
    CASE(MATMUL, (.dtype = ACT), A(1, 1), A(1, 1)),
    CASE(MATMUL, (.dtype = ACT), A(2, 3, 17), A(17, 33), F(33)),
    CASE(MATMUL, (.dtype = ACT, .trans_b = true), A(5, 64), A(31, 64), A(31), A(5, 31)),
    CASE(MATMUL, (.dtype = BY_F32, .trans_a = true), A(4, 9, 15), A(4, 9, 65)),
    CASE(MATMUL, (.dtype = BY_F32, .trans_a = true, .trans_b = true), A(40, 7), A(19, 40)),
    CASE(MATMUL, (.dtype = ACT), A(2, 64, 96), A(96, 160), NONE, A(2, 64, 160)),
    BENCH(MATMUL, (.dtype = ACT), A(4, 1024, 768), A(768, 3072), F(3072)),
    CASE(SUM_ROWS, (0), A(1, 1)),
    CASE(SUM_ROWS, (0), A(3, 5, 7)),
    CASE(SUM_ROWS, (0), A(1025, 129)),
    CASE(SUM_ROWS, (0), A(513, 64)),
    CASE(SUM_ROWS, (0), A(9, 5000)),
    CASE(SUM_ROWS, (.lead = 1), A(40, 3, 5, 7)),
    CASE(SUM_ROWS, (.lead = 3), A(40, 3, 5)),
    BENCH(SUM_ROWS, (0), A(4, 1024, 768)),
    BENCH(SUM_ROWS, (0), A(4, 1024, 3072)),
    /* ---- element by element ---- */
    CASE(ADD, (0), A(1), A(1)),
    CASE(ADD, (0), A(3, 5, 7), A(3, 5, 7)),
    CASE(ADD, (0), A(3, 5, 7), A(7)),
    CASE(ADD, (0), A(33, 5, 1100), A(5, 1100)),
    CASE(ADD, (0), A(4, 6500, 1), F(1)),
    CASE(ADD, (0), A(2, 257, 1030), A(1030)),
    CASE(ADD, (0), A(12, 64, 128), F(128)),
    CASE(ADD, (0), A(4, 17, 33), A(1, 17, 33)),
    CASE(ADD, (0), A(4, 17, 33), A(4, 1, 33)),
    CASE(ADD, (0), A(4, 17, 33), F(17, 1)),
    CASE(ADD, (0), A(1), A(3, 1, 5)),
    CASE(SUB, (0), A(5, 1, 33), A(7, 1)),
    CASE(MUL, (0), A(3, 1, 300, 1), F(2, 1, 70)),
    CASE(MUL, (0), A(1, 64, 130), A(6, 64, 1)),
    CASE(SUB, (0), A(257, 131), A(257, 131)),
    CASE(SUB, (0), A(31, 33), F(33)),
    CASE(MUL, (0), A(257, 131), A(257, 131)),
    CASE(MUL, (0), A(2, 3, 33), A(3, 33)),
    CASE(MUL, (0), A(2, 3, 33), F(2, 3, 33)),
    BENCH(ADD, (0), A(4, 1024, 768), A(4, 1024, 768)),
    BENCH(ADD, (0), A(12, 64, 128), A(12, 64, 128)),
    BENCH(MUL, (0), A(4, 1024, 768), A(768)),
    CASE(SCALE, (0), A(1), F(1)),
    CASE(SCALE, (0), A(77, 1001), F(1)),
    BENCH(SCALE, (0), A(4, 1024, 768), F(1)),
    CASE(CAST, (.dtype = BY_F32), A(7, 131)),
    CASE(CAST, (.dtype = BY_BF16), A(401, 131)),
    CASE(CAST, (.dtype = BY_F16), A(7, 131)),
    CASE(CAST, (.dtype = BY_F32), T(BY_F16, 7, 131)),
    CASE(CAST, (.dtype = BY_BF16), T(BY_F16, 7, 131)),
    CASE(CAST, (.dtype = BY_F16), T(BY_F16, 7, 131)),
    BENCH(CAST, (.dtype = BY_BF16), F(4, 1024, 768)),
    CASE(UNARY, (.function = BY_FN_GELU), A(1)),
    CASE(UNARY, (.function = BY_FN_GELU), A(401, 131)),
    CASE(UNARY, (.function = BY_FN_SILU), A(3, 131)),
    CASE(UNARY, (.function = BY_FN_RELU), A(3, 131)),
    CASE(UNARY, (.function = BY_FN_TANH), A(3, 131)),
    CASE(UNARY, (.function = BY_FN_SIGMOID), A(3, 131)),
    CASE(UNARY, (.function = BY_FN_NEGATE), A(3, 131)),
    CASE(UNARY_GRAD, (.function = BY_FN_GELU), A(401, 131), A(401, 131)),
    CASE(UNARY_GRAD, (.function = BY_FN_NEGATE), A(3, 131), A(3, 131)),
    CASE(UNARY_GRAD, (.function = BY_FN_SILU), A(3, 131), A(3, 131)),
    CASE(UNARY_GRAD, (.function = BY_FN_RELU), A(3, 131), A(3, 131)),
    CASE(UNARY_GRAD, (.function = BY_FN_TANH), A(3, 131), A(3, 131)),
    CASE(UNARY_GRAD, (.function = BY_FN_SIGMOID), A(3, 131), A(3, 131)),
    CASE(UNARY, (.function = BY_FN_GELU_ERF), A(401, 131)),
    CASE(UNARY_GRAD, (.function = BY_FN_GELU_ERF), A(401, 131), A(401, 131)),
    BENCH(UNARY, (.function = BY_FN_GELU_ERF), A(4, 1024, 3072)),
    BENCH(UNARY_GRAD, (.function = BY_FN_GELU_ERF), A(4, 1024, 3072), A(4, 1024, 3072)),
    BENCH(UNARY, (.function = BY_FN_GELU), A(4, 1024, 3072)),
    BENCH(UNARY, (.function = BY_FN_GELU), A(12, 64, 512)),
    BENCH(UNARY_GRAD, (.function = BY_FN_GELU), A(4, 1024, 3072), A(4, 1024, 3072)),
    CASE(SWIGLU, (0), A(1), A(1)),
    CASE(SWIGLU, (0), A(401, 131), A(401, 131)),
    CASE(SWIGLU_GRAD, (0), A(401, 131), A(401, 131), A(401, 131)),
    BENCH(SWIGLU, (0), A(4, 1024, 2048), A(4, 1024, 2048)),
    BENCH(SWIGLU_GRAD, (0), A(4, 1024, 2048), A(4, 1024, 2048), A(4, 1024, 2048)),
    CASE(DROPOUT, (.p = 0.1f, .stream = 7), A(1, 1), I(4)),
    CASE(DROPOUT, (.p = 0.0f, .stream = 7), A(3, 67), I(4)),
    CASE(DROPOUT, (.p = 0.5f, .stream = 1), A(5, 9, 1001), I(4)),
    CASE(DROPOUT, (.p = 0.5f, .stream = 1, .begin = 192), A(3, 100), I(4)),
    CASE(DROPOUT, (.p = 0.5f, .stream = 1, .begin = 21), A(3, 100), I(4)),
    BENCH(DROPOUT, (.p = 0.1f, .stream = 1), A(4, 1024, 768), I(4)),
    /* ---- moving elements ---- */
    CASE(FILL, (.dtype = ACT, .shape = {3, {3, 5, 7}}, .value = -1.25f)),
    CASE(FILL, (.dtype = BY_F32, .shape = {1, {40000}}, .value = 1.0f)),
    CASE(RESHAPE, (.shape = {2, {21, 5}}), A(3, 5, 7)),
    CASE(RESHAPE, (.shape = {1, {67077}}), A(257, 9, 29)),
    CASE(PERMUTE, (.order = {0}), A(1)),
    CASE(PERMUTE, (.order = {1, 0}), A(3, 5)),
    CASE(PERMUTE, (.order = {1, 0}), A(257, 131)),
    CASE(PERMUTE, (.order = {1, 0}), I(33, 70)),
    CASE(PERMUTE, (.order = {0, 2, 1}), A(5, 64, 96)),
    CASE(PERMUTE, (.order = {2, 1, 0}), A(33, 3, 47)),
    CASE(PERMUTE, (.order = {0, 2, 1, 3}), A(3, 17, 4, 40)),
    CASE(PERMUTE, (.order = {3, 1, 0, 2}), A(9, 4, 20, 19)),
    CASE(PERMUTE, (.order = {0, 2, 4, 1, 3, 5}), A(3, 2, 7, 4, 7, 4)),
    CASE(CONCAT, (.axis = 0), A(3, 5), A(1, 5)),
    CASE(CONCAT, (.axis = 1), A(4, 1, 130), A(4, 63, 130), A(4, 3, 130)),
    CASE(CONCAT, (.axis = 2), A(3, 5, 1), A(3, 5, 2), A(3, 5, 4)),
    CASE(SLICE, (.axis = 0, .begin = 2, .rows = 3), A(6, 7)),
    CASE(SLICE, (.axis = 1, .begin = 0, .rows = 1), A(9, 65, 130)),
    CASE(SLICE, (.axis = 2, .begin = 5, .rows = 500), A(9, 5, 505)),
    CASE(PAD, (.axis = 0, .begin = 2, .rows = 6), A(3, 7)),
    CASE(PAD, (.axis = 1, .begin = 0, .rows = 65), A(9, 1, 130)),
    CASE(PAD, (.axis = 2, .begin = 5, .rows = 505), A(9, 5, 500)),
    CASE(EXPAND, (.shape = {3, {4, 3, 130}}), A(1, 3, 130)),
    CASE(EXPAND, (.shape = {3, {4, 3, 130}}), A(3, 1)),
    CASE(EXPAND, (.shape = {4, {3, 40, 5, 33}}), A(40, 1, 33)),
    CASE(EXPAND, (.shape = {1, {7}}), A(1)),
    BENCH(PERMUTE, (.order = {1, 0}), A(4096, 3072)),
    BENCH(PERMUTE, (.order = {0, 2, 1, 3}), A(4, 1024, 12, 64)),
    BENCH(PERMUTE, (.order = {0, 2, 4, 1, 3, 5}), A(32, 3, 14, 16, 14, 16)),
    BENCH(CONCAT, (.axis = 1), A(32, 1, 768), A(32, 196, 768)),
    BENCH(SLICE, (.axis = 1, .begin = 1, .rows = 196), A(32, 197, 768)),
    /* ---- sums ---- */
    CASE(SUM, (.axes = 1), A(1)),
    CASE(SUM, (.axes = 0), A(3, 5)),
    CASE(SUM, (.axes = 3), A(70, 130)),
    CASE(SUM, (.axes = 1, .keep = true, .wide = true), A(3, 5, 7)),
    CASE(SUM, (.axes = 2, .mean = true), A(4, 197, 67)),
    CASE(SUM, (.axes = 4), A(40, 9, 131)),
    CASE(SUM, (.axes = 4, .mean = true, .wide = true), A(3, 2, 20011)),
    CASE(SUM, (.axes = 5), A(33, 70, 9)),
    CASE(SUM, (.axes = 10, .keep = true), A(6, 9, 40, 5)),
    BENCH(SUM, (.axes = 2, .mean = true), A(32, 197, 768)),
    BENCH(SUM, (.axes = 4), A(32, 197, 768)),
    CASE(SOFTMAX, (0), A(1)),
    CASE(SOFTMAX, (0), A(3, 5, 7)),
    CASE(SOFTMAX, (0), A(65, 1003)),
    CASE(SOFTMAX, (.logarithm = true), A(3, 5, 7)),
    CASE(SOFTMAX, (.logarithm = true), A(65, 1003)),
    CASE(SOFTMAX_GRAD, (0), A(65, 103), A(65, 103)),
    CASE(SOFTMAX_GRAD, (.logarithm = true), A(65, 103), A(65, 103)),
    BENCH(SOFTMAX, (0), A(4096, 1024)),
    /* ---- norms ---- */
    CASE(LAYER_NORM, (.eps = 1e-5f), A(1, 1), F(1), F(1)),
    CASE(LAYER_NORM, (.eps = 1e-5f), A(3, 5, 7), F(7), F(7)),
    CASE(LAYER_NORM, (.eps = 1e-5f), A(300, 129), F(129), F(129)),
    CASE(LAYER_NORM, (.eps = 1e-5f), A(2, 64, 768), F(768), F(768)),
    CASE(LAYER_NORM_GRAD, (.eps = 1e-5f), A(1, 1), F(1), F(1), F(1), A(1, 1)),
    CASE(LAYER_NORM_GRAD, (.eps = 1e-5f), A(3, 5, 7), F(7), F(15), F(15), A(3, 5, 7), A(3, 5, 7)),
    CASE(LAYER_NORM_GRAD, (.eps = 1e-5f), A(300, 129), F(129), F(300), F(300), A(300, 129)),
    CASE(LAYER_NORM_GRAD, (.eps = 1e-5f), A(2, 350, 96), F(96), F(700), F(700), A(2, 350, 96),
         A(2, 350, 96)),
    CASE(RMS_NORM, (.eps = 1e-5f), A(1, 1), F(1)),
    CASE(RMS_NORM, (.eps = 1e-5f), A(300, 129), F(129)),
    CASE(RMS_NORM_GRAD, (.eps = 1e-5f), A(1, 1), F(1), F(1), A(1, 1)),
    CASE(RMS_NORM_GRAD, (.eps = 1e-5f), A(300, 129), F(129), F(300), A(300, 129), A(300, 129)),
    CASE(RMS_NORM_GRAD, (.eps = 1e-5f), A(700, 96), F(96), F(700), A(700, 96)),
    BENCH(LAYER_NORM, (.eps = 1e-5f), A(4, 1024, 768), F(768), F(768)),
    BENCH(LAYER_NORM, (.eps = 1e-5f), A(12, 64, 128), F(128), F(128)),
    BENCH(LAYER_NORM_GRAD, (.eps = 1e-5f), A(4, 1024, 768), F(768), F(4096), F(4096),
          A(4, 1024, 768), A(4, 1024, 768)),
    BENCH(LAYER_NORM_GRAD, (.eps = 1e-5f), A(12, 64, 128), F(128), F(768), F(768), A(12, 64, 128),
          A(12, 64, 128)),
    BENCH(RMS_NORM, (.eps = 1e-5f), A(4, 1024, 768), F(768)),
    BENCH(RMS_NORM_GRAD, (.eps = 1e-5f), A(4, 1024, 768), F(768), F(4096), A(4, 1024, 768),
          A(4, 1024, 768)),
    /* ---- tables and positions ---- */
    CASE(OFFSET_IDS, (.begin = 0, .rows = 1), I(1)),
    CASE(OFFSET_IDS, (.begin = 3, .rows = 11), I(3, 50)),
    CASE(EMBEDDING, (0), I(1), A(1, 1)),
    CASE(EMBEDDING, (0), I(3, 5), A(11, 7)),
    CASE(EMBEDDING, (0), I(4, 128), A(300, 129)),
    CASE(EMBEDDING_GRAD, (.rows = 1), I(1), A(1, 1)),
    CASE(EMBEDDING_GRAD, (.rows = 11), I(3, 5), A(3, 5, 7)),
    CASE(EMBEDDING_GRAD, (.rows = 300), I(4, 128), A(4, 128, 129), F(300, 129)),
    CASE(EMBEDDING_GRAD, (.rows = 50), I(600), A(600, 64), F(50, 64)),
    CASE(POSITION, (.begin = 3), A(2, 5, 33), A(9, 33)),
    CASE(POSITION, (0), A(1, 1, 1), A(1, 1)),
    CASE(POSITION, (0), A(3, 5, 7), A(8, 7)),
    CASE(POSITION, (0), A(4, 65, 131), A(65, 131)),
    CASE(POSITION_GRAD, (.rows = 300, .begin = 290), A(2, 5, 65)),
    CASE(POSITION_GRAD, (.rows = 300, .begin = 140), A(2, 5, 65)),
    CASE(POSITION_GRAD, (.rows = 3), A(1, 1, 1)),
    CASE(POSITION_GRAD, (.rows = 8), A(3, 5, 7)),
    CASE(POSITION_GRAD, (.rows = 100), A(4, 65, 131)),
    CASE(ROPE, (.heads = 2, .theta = 100.0f, .begin = 7), A(2, 5, 12)),
    CASE(ATTENTION_MERGE, (.heads = 1), A(1, 1, 1), F(1, 1, 1)),
    CASE(ATTENTION_MERGE, (.heads = 3), A(2, 7, 51), F(2, 3, 7), A(2, 7, 51), F(2, 3, 7)),
    CASE(ATTENTION_MERGE, (.heads = 2), A(1, 65, 32), F(1, 2, 65), A(1, 65, 32), F(1, 2, 65),
         A(1, 65, 32), F(1, 2, 65)),
    CASE(ROPE, (.heads = 1, .theta = 10000.0f), A(1, 1, 2)),
    CASE(ROPE, (.heads = 3, .theta = 10000.0f), A(2, 5, 30), NONE),
    CASE(ROPE, (.heads = 12, .theta = 10000.0f), A(2, 70, 768)),
    CASE(ROPE, (.heads = 2, .theta = 500000.0f, .inverse = true), A(3, 33, 256), I(1)),
    CASE(ROPE, (.heads = 4, .theta = 10000.0f), A(3, 1, 64), I(1)),
    BENCH(EMBEDDING, (0), I(4, 1024), A(50257, 768)),
    BENCH(EMBEDDING_GRAD, (.rows = 50257), I(4, 1024), A(4, 1024, 768), F(50257, 768)),
    BENCH(POSITION, (0), A(4, 1024, 768), A(1024, 768)),
    BENCH(POSITION_GRAD, (.rows = 1024), A(4, 1024, 768)),
    BENCH(ROPE, (.heads = 12, .theta = 10000.0f), A(4, 1024, 768)),
    /* ---- rows by groups ---- */
    CASE(ROUTER, (.chosen = 1), F(1)),
    CASE(ROUTER, (.chosen = 2), F(2, 7, 8)),
    CASE(ROUTER, (.chosen = 3), F(700, 67)),
    CASE(ROUTER_GRAD, (0), F(2, 7, 8), I(2, 7, 2), F(2, 7, 2), F(8)),
    CASE(ROUTER_GRAD, (0), F(700, 67), I(700, 3), NONE, F(67)),
    CASE(ROUTER_GRAD, (0), F(300, 16), I(300, 2), F(300, 2), F(16)),
    CASE(GROUP, (.rows = 8), I(70, 2)),
    CASE(GROUP, (.rows = 8, .capacity = 13), I(70, 2)),
    CASE(GROUP, (.rows = 8, .capacity = 9, .blocks = 4), I(70, 2)),
    CASE(COUNT_IDS, (.rows = 8), I(70, 2)),
    CASE(SCATTER_ROWS, (0), A(5, 7), I(5, 1), I(3)),
    CASE(SCATTER_ROWS, (0), A(2, 35, 129), I(2, 35, 2), I(140), F(2, 35, 2)),
    CASE(SCATTER_ROWS, (0), A(300, 256), I(300, 2), I(700)),
    CASE(GATHER_ROWS, (0), A(3, 7), I(5, 1), I(3)),
    CASE(GATHER_ROWS, (0), A(140, 129), I(2, 35, 2), I(140), F(2, 35, 2)),
    CASE(GATHER_ROWS, (0), A(700, 256), I(300, 2), I(700)),
    CASE(ROW_DOTS, (0), A(5, 7), A(3, 7), I(5, 1)),
    CASE(ROW_DOTS, (0), A(2, 35, 129), A(140, 129), I(2, 35, 2)),
    CASE(GROUPED_MATMUL, (.dtype = ACT), A(1, 1), A(1, 1, 1), I(1, 2)),
    CASE(GROUPED_MATMUL, (.dtype = ACT), A(40, 33), A(4, 33, 17), I(4, 2)),
    CASE(GROUPED_MATMUL, (.dtype = ACT, .trans_b = true), A(40, 33), A(4, 17, 33), I(8, 2)),
    CASE(GROUPED_MATMUL, (.dtype = ACT, .trans_b = true), A(14, 64), A(4, 70, 64), I(4, 2)),
    CASE(GROUPED_MATMUL, (.dtype = ACT, .trans_b = true), A(700, 256), A(3, 320, 256), I(3, 2)),
    CASE(GROUPED_MATMUL, (.dtype = ACT), A(700, 2100), A(3, 2100, 65), I(3, 2)),
    CASE(GROUPED_MATMUL, (.dtype = ACT, .trans_b = true, .capacity = 5), A(40, 33), A(4, 17, 33),
         I(8, 2)),
    CASE(GROUPED_MATMUL_GRAD, (.dtype = BY_F32, .rows = 4, .capacity = 5), A(40, 33), A(40, 17),
         I(8, 2)),
    CASE(GROUPED_MATMUL_GRAD, (.dtype = BY_F32, .rows = 1), A(1, 1), A(1, 1), I(1, 2)),
    CASE(GROUPED_MATMUL_GRAD, (.dtype = BY_F32, .rows = 4), A(40, 33), A(40, 17), I(8, 2)),
    CASE(GROUPED_MATMUL_GRAD, (.dtype = ACT, .rows = 3), A(700, 65), A(700, 130), I(3, 2)),
    CASE(GROUPED_MATMUL_GRAD, (.dtype = BY_F32, .rows = 3), A(2500, 65), A(2500, 40), I(3, 2)),
    BENCH(SCATTER_ROWS, (0), A(4096, 512), I(4096, 2), I(8192)),
    BENCH(GATHER_ROWS, (0), A(8192, 512), I(4096, 2), I(8192), F(4096, 2)),
    BENCH(GROUPED_MATMUL, (.dtype = ACT, .trans_b = true), A(8192, 512), A(8, 1408, 512), I(8, 2)),
    BENCH(GROUPED_MATMUL_GRAD, (.dtype = BY_F32, .rows = 8), A(8192, 1408), A(8192, 512), I(8, 2)),
    /* ---- attention ---- */
    CASE(ATTENTION, (.heads = 1, .kv_heads = 1), A(1, 1, 3)),
    CASE(ATTENTION, (.heads = 3, .kv_heads = 3), A(2, 33, 63)),
    CASE(ATTENTION, (.heads = 4, .kv_heads = 2), A(2, 70, 128), A(2, 70, 64), A(2, 70, 64)),
    CASE(ATTENTION, (.heads = 2, .kv_heads = 1), A(1, 300, 256)),
    CASE(ATTENTION, (.heads = 1, .kv_heads = 1), A(1, 520, 240)),
    CASE(ATTENTION, (.heads = 3, .kv_heads = 3, .bidirectional = true), A(2, 33, 63)),
    CASE(ATTENTION, (.heads = 4, .kv_heads = 2, .bidirectional = true), A(2, 70, 128), A(2, 70, 64),
         A(2, 70, 64)),
    CASE(ATTENTION, (.heads = 2, .kv_heads = 1, .bidirectional = true), A(1, 300, 256)),
    CASE(ATTENTION, (.heads = 3, .kv_heads = 3, .bidirectional = true), A(5, 33, 63), NONE, NONE,
         I(5)),
    CASE(ATTENTION, (.heads = 2, .kv_heads = 1, .bidirectional = true), A(3, 300, 256), NONE, NONE,
         I(3)),
    CASE(ATTENTION, (.heads = 4, .kv_heads = 2), A(4, 70, 128), A(4, 70, 64), A(4, 70, 64), I(4)),
    CASE(ATTENTION_GRAD, (.heads = 3, .kv_heads = 3, .bidirectional = true), A(2, 33, 63),
         A(2, 33, 21), F(2, 3, 33), A(2, 33, 21)),
    CASE(ATTENTION_GRAD, (.heads = 4, .kv_heads = 2, .bidirectional = true), A(2, 70, 128),
         A(2, 70, 64), A(2, 70, 64), A(2, 70, 128), F(2, 4, 70), A(2, 70, 128)),
    CASE(ATTENTION_GRAD, (.heads = 2, .kv_heads = 1, .bidirectional = true), A(1, 300, 256),
         A(1, 300, 128), F(1, 2, 300), A(1, 300, 128)),
    CASE(ATTENTION_GRAD, (.heads = 3, .kv_heads = 3, .bidirectional = true), A(5, 33, 63), NONE,
         NONE, I(5), A(5, 33, 21), F(5, 3, 33), A(5, 33, 21)),
    CASE(ATTENTION_GRAD, (.heads = 2, .kv_heads = 1, .bidirectional = true), A(3, 300, 256), NONE,
         NONE, I(3), A(3, 300, 128), F(3, 2, 300), A(3, 300, 128)),
    CASE(ATTENTION_GRAD, (.heads = 4, .kv_heads = 2), A(4, 70, 128), A(4, 70, 64), A(4, 70, 64),
         I(4), A(4, 70, 128), F(4, 4, 70), A(4, 70, 128)),
    CASE(ATTENTION_GRAD, (.heads = 2, .kv_heads = 1), A(1, 300, 256), A(1, 300, 128), F(1, 2, 300),
         A(1, 300, 128)),
    CASE(ATTENTION_GRAD, (.heads = 1, .kv_heads = 1), A(1, 520, 240), A(1, 520, 80), F(1, 1, 520),
         A(1, 520, 80)),
    CASE(ATTENTION_GRAD, (.heads = 1, .kv_heads = 1), A(1, 1, 3), A(1, 1, 1), F(1, 1, 1),
         A(1, 1, 1)),
    CASE(ATTENTION_GRAD, (.heads = 3, .kv_heads = 3), A(2, 33, 63), A(2, 33, 21), F(2, 3, 33),
         A(2, 33, 21)),
    CASE(ATTENTION_GRAD, (.heads = 4, .kv_heads = 2), A(2, 70, 128), A(2, 70, 64), A(2, 70, 64),
         A(2, 70, 128), F(2, 4, 70), A(2, 70, 128)),
    CASE(CACHED_ATTENTION, (.heads = 1, .kv_heads = 1), A(1, 1, 3), NONE, NONE, A(1, 1, 9, 1),
         A(1, 1, 9, 1), I(1)),
    CASE(CACHED_ATTENTION, (.heads = 4, .kv_heads = 2), A(2, 1, 128), A(2, 1, 64), A(2, 1, 64),
         A(2, 2, 90, 32), A(2, 2, 90, 32), I(1)),
    CASE(CACHED_ATTENTION, (.heads = 3, .kv_heads = 3), A(2, 33, 63), NONE, NONE, A(2, 3, 50, 7),
         A(2, 3, 50, 7), I(1)),
    CASE(CACHED_ATTENTION, (.heads = 2, .kv_heads = 1), A(1, 130, 256), NONE, NONE,
         A(1, 1, 400, 64), A(1, 1, 400, 64), I(1)),
    CASE(CACHED_ATTENTION, (.heads = 6, .kv_heads = 2), A(2, 3, 400), NONE, NONE, A(2, 2, 700, 40),
         A(2, 2, 700, 40), I(1)),
    BENCH(CACHED_ATTENTION, (.heads = 12, .kv_heads = 12), A(1, 1, 2304), NONE, NONE,
          A(1, 12, 8192, 64), A(1, 12, 8192, 64), I(1)),
    BENCH(ATTENTION, (.heads = 12, .kv_heads = 12), A(4, 1024, 2304)),
    BENCH(ATTENTION, (.heads = 12, .kv_heads = 12, .bidirectional = true), A(4, 1024, 2304)),
    BENCH(ATTENTION_GRAD, (.heads = 12, .kv_heads = 12, .bidirectional = true), A(4, 1024, 2304),
          A(4, 1024, 768), F(4, 12, 1024), A(4, 1024, 768)),
    BENCH(ATTENTION_GRAD, (.heads = 12, .kv_heads = 12), A(4, 1024, 2304), A(4, 1024, 768),
          F(4, 12, 1024), A(4, 1024, 768)),
    /* ---- loss ---- */
    CASE(LINEAR_CROSS_ENTROPY, (0), A(1, 1), A(1, 1), I(1)),
    CASE(LINEAR_CROSS_ENTROPY, (0), A(3, 5, 7), A(11, 7), I(3, 5)),
    CASE(LINEAR_CROSS_ENTROPY, (0), A(2, 70, 33), A(257, 33), I(2, 70)),
    CASE(LINEAR_CROSS_ENTROPY_GRAD, (0), A(3, 5, 7), A(11, 7), I(3, 5), F(15), F(1)),
    CASE(LINEAR_CROSS_ENTROPY_GRAD, (0), A(2, 70, 33), A(257, 33), I(2, 70), F(140), F(1)),
    CASE(LINEAR_CROSS_ENTROPY_GRAD, (.begin = 3, .rows = 16), A(3, 5, 7), A(11, 7), I(3, 5), F(15),
         F(1)),
    CASE(LINEAR_CROSS_ENTROPY_PART, (0), A(3, 5, 7), A(11, 7), I(3, 5)),
    CASE(LINEAR_CROSS_ENTROPY_PART, (.begin = 100, .rows = 400), A(2, 70, 33), A(257, 33),
         I(2, 70)),
    CASE(CROSS_ENTROPY_COMBINE, (.rows = 7), F(2, 1), I(1)),
    CASE(CROSS_ENTROPY_COMBINE, (.rows = 50), F(6, 35), I(7, 5)),
    CASE(LINEAR_CROSS_ENTROPY_TRAIN, (0), A(3, 5, 7), A(11, 7), I(3, 5), F(1)),
    CASE(LINEAR_CROSS_ENTROPY_TRAIN, (0), A(2, 70, 33), A(257, 33), I(2, 70), F(1)),
    BENCH(LINEAR_CROSS_ENTROPY_TRAIN, (0), A(1, 1024, 768), A(50257, 768), I(1, 1024), F(1)),
    CASE(CROSS_ENTROPY, (0), A(1, 1), I(1)),
    CASE(CROSS_ENTROPY, (0), A(3, 5, 7), I(3, 5)),
    CASE(CROSS_ENTROPY, (.smoothing = 0.1f), A(257, 103), I(257)),
    CASE(CROSS_ENTROPY_GRAD, (0), A(3, 5, 7), I(3, 5), F(15), F(1)),
    CASE(CROSS_ENTROPY_GRAD, (.smoothing = 0.1f), A(257, 103), I(257), F(257), F(1)),
    CASE(SQUARED_ERROR, (0), A(1, 1), F(1, 1)),
    CASE(SQUARED_ERROR, (0), A(3, 5, 7), F(3, 5, 7), F(3, 5)),
    CASE(SQUARED_ERROR, (0), A(7001, 9), F(7001, 9), NONE),
    CASE(SQUARED_ERROR_GRAD, (0), A(3, 5, 7), F(3, 5, 7), F(3, 5), F(1)),
    CASE(SQUARED_ERROR_GRAD, (0), A(7001, 9), F(7001, 9), NONE, F(1)),
    CASE(SMOOTH_L1, (.beta = 1.0f), A(3, 5, 7), F(3, 5, 7)),
    CASE(SMOOTH_L1, (.beta = 0.0f), A(3, 57), F(3, 57), F(3)),
    CASE(SMOOTH_L1, (.beta = 0.5f), A(257, 131), F(257, 131), F(257)),
    CASE(SMOOTH_L1_GRAD, (.beta = 1.0f), A(3, 5, 7), F(3, 5, 7), NONE, F(1)),
    CASE(SMOOTH_L1_GRAD, (.beta = 0.0f), A(3, 57), F(3, 57), F(3), F(1)),
    CASE(SMOOTH_L1_GRAD, (.beta = 0.5f), A(257, 131), F(257, 131), F(257), F(1)),
    BENCH(CROSS_ENTROPY, (0), A(4096, 1000), I(4096)),
    BENCH(CROSS_ENTROPY_GRAD, (0), A(4096, 1000), I(4096), F(4096), F(1)),
    BENCH(SQUARED_ERROR, (0), A(65536, 16), F(65536, 16)),
    /* ---- the optimizer's step ---- */
    CASE(SUM_SQUARES, (0), F(1)),
    CASE(SUM_SQUARES, (0), F(3, 5, 7)),
    CASE(SUM_SQUARES, (0), F(257, 1031)),
    BENCH(SUM_SQUARES, (0), F(50257, 768)),
    CASE(CLIP_SCALE, (.clip = 1.0f), F(1), NONE, F(1)),
    CASE(CLIP_SCALE, (.clip = 0.0f), F(1), F(3), F(1), F(7)),
    CASE(CLIP_SCALE, (.clip = 1e6f), F(1), F(1), F(1), F(1000), F(1), F(1)),
    CASE(ADAMW, (.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f), F(1), F(1), F(1),
         F(1), F(4), F(1)),
    CASE(ADAMW, (.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .decay = 0.0f, .dtype = BY_BF16),
         F(257, 131), F(257, 131), F(257, 131), F(257, 131), F(4), F(1)),
    BENCH(ADAMW, (.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f, .dtype = BY_BF16),
          F(50257, 768), F(50257, 768), F(50257, 768), F(50257, 768), F(4), F(1)),
    CASE(MAP, (.map = &nesterov), F(1), A(1), F(1), F(2)),
    CASE(MAP, (.map = &nesterov), F(257, 131), A(257, 131), F(257, 131), F(2)),
    BENCH(MAP, (.map = &nesterov), F(50257, 768), F(50257, 768), F(50257, 768), F(2)),
    BENCH(MAP, (.map = &adamw_map), F(50257, 768), F(50257, 768), F(50257, 768), F(50257, 768),
          F(4), F(1)),

    /* Groups of one rank; tests/unit/test_collectives.c has larger ones. */
    CASE(ALL_REDUCE, (.mesh = 1, .ranks = 1), A(3, 5)),
    CASE(ALL_GATHER, (.mesh = 1, .ranks = 1, .axis = 1, .rows = 5), A(3, 5, 2)),
    CASE(REDUCE_SCATTER, (.mesh = 1, .ranks = 1, .axis = 1, .rows = 5), A(3, 5, 2)),
    CASE(ALL_TO_ALL, (.mesh = 1, .ranks = 1, .axis = 2, .to = 1), A(3, 5, 2)),
    CASE(REDUCE_GRADIENTS, (.mesh = 1, .ranks = 1), F(3, 5), F(2)),
    CASE(REPLICATE, (.mesh = 1, .ranks = 1), A(3, 5)),
};

const size_t kernel_case_count = sizeof kernel_cases / sizeof kernel_cases[0];

/* Half a unit in the last place (ulp) of f32 is at most 2^-24 = 6e-8 of the value, of bf16 2^-8 =
 * 4e-3.
 *
 * Operations that round once must agree to the bit: the double reference rounds the same exact
 * value. The others are given what their formula loses in f32: a few ulp for the functions; for
 * sums, a multiple of the ulp of the largest element of the output, since the terms of a sum may
 * cancel. A bf16 result may fall on the other side of a rounding boundary, which is one whole bf16
 * ulp. */
tolerance kernel_tolerance(by_op op, by_dtype input, by_dtype output)
{
    tolerance t = {1e-6, 0.0};
    switch (op) {
    case BY_OP_ADD:
    case BY_OP_SUB:
    case BY_OP_MUL:
    case BY_OP_SCALE:
    case BY_OP_CAST:
    case BY_OP_EMBEDDING:
    case BY_OP_POSITION:
    case BY_OP_FILL:
    case BY_OP_RESHAPE:
    case BY_OP_PERMUTE:
    case BY_OP_CONCAT:
    case BY_OP_SLICE:
    case BY_OP_PAD:
    case BY_OP_EXPAND:
    case BY_OP_ALL_REDUCE:
    case BY_OP_ALL_GATHER:
    case BY_OP_REDUCE_SCATTER:
    case BY_OP_ALL_TO_ALL:
    case BY_OP_REDUCE_GRADIENTS:
    case BY_OP_REPLICATE:
    case BY_OP_GROUP:
    case BY_OP_COUNT_IDS:
        return (tolerance){0.0, 0.0};
    case BY_OP_UNARY: /* the argument of GELU's exponential reaches 87 and keeps 2^-24 of itself */
    case BY_OP_UNARY_GRAD:
    case BY_OP_SWIGLU:
    case BY_OP_SWIGLU_GRAD:
        t = (tolerance){2e-6, 1e-7};
        break;
    case BY_OP_MATMUL:
    case BY_OP_GROUPED_MATMUL:
    case BY_OP_GROUPED_MATMUL_GRAD:
    case BY_OP_LINEAR_CROSS_ENTROPY:
    case BY_OP_LINEAR_CROSS_ENTROPY_GRAD:
    case BY_OP_LINEAR_CROSS_ENTROPY_PART:
    case BY_OP_LINEAR_CROSS_ENTROPY_TRAIN:
    case BY_OP_ATTENTION:
    case BY_OP_ATTENTION_GRAD:
    case BY_OP_CACHED_ATTENTION:
        t = (tolerance){1e-5, 1e-5};
        /* Probabilities and their gradients are rounded to bf16 before the second product. */
        if (input == BY_BF16 && op != BY_OP_MATMUL && op != BY_OP_GROUPED_MATMUL &&
            op != BY_OP_GROUPED_MATMUL_GRAD) {
            t = (tolerance){8e-3, 8e-3};
        }
        break;
    case BY_OP_DROPOUT:
    case BY_OP_CLIP_SCALE:
    case BY_OP_SUM_SQUARES:
        break;
    default:
        t = (tolerance){2e-6, 2e-6};
    }
    if (output == BY_BF16) {
        t.relative += 1.0 / 128.0;
    }
    return t;
}
