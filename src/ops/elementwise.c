/* Element-wise operations: arithmetic, activation functions, gated units, casts. */
#include "ops/ops.h"

static by_status infer_binary(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    if (!by__op_is_act(s->in[0].dtype) || !by__op_is_act(s->in[1].dtype) ||
        (s->in[0].dtype != s->in[1].dtype && s->in[1].dtype != BY_F32)) {
        return by__op_refuse(s, error, "operands must be f32, bf16 or f16 of one dtype");
    }
    const by_shape *a = &s->in[0].shape;
    const by_shape *b = &s->in[1].shape;
    int rank = a->rank > b->rank ? a->rank : b->rank;
    by_shape shape = {.rank = rank};
    for (int i = 1; i <= rank; i++) {
        int64_t x = i <= a->rank ? a->dim[a->rank - i] : 1;
        int64_t y = i <= b->rank ? b->dim[b->rank - i] : 1;
        if (x != y && x != 1 && y != 1) {
            return by__op_refuse(s, error, "the shapes cannot be broadcast to one");
        }
        shape.dim[rank - i] = x > y ? x : y;
    }
    out[0] = (by__graph_type){s->in[0].dtype, shape};
    return BY_OK;
}

static void gradient_add(by_graph *graph, const by__graph_node *node, const by_value *dout,
                         by_value *din)
{
    din[0] = by__op_reduce_to(graph, dout[0], node->in[0]);
    din[1] = by__op_reduce_to(graph, dout[0], node->in[1]);
}

static void gradient_sub(by_graph *graph, const by__graph_node *node, const by_value *dout,
                         by_value *din)
{
    din[0] = by__op_reduce_to(graph, dout[0], node->in[0]);
    din[1] = by_unary(graph, by__op_reduce_to(graph, dout[0], node->in[1]), BY_FN_NEGATE);
}

static void gradient_mul(by_graph *graph, const by__graph_node *node, const by_value *dout,
                         by_value *din)
{
    din[0] = by__op_reduce_to(graph, by_mul(graph, dout[0], node->in[1]), node->in[0]);
    din[1] = by__op_reduce_to(graph, by_mul(graph, dout[0], node->in[0]), node->in[1]);
}

static by_status infer_scale(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *factor = &s->in[1];
    if (!by__op_is_act(s->in[0].dtype) || factor->dtype != BY_F32 ||
        by_shape_count(&factor->shape) != 1) {
        return by__op_refuse(s, error, "the factor must be one f32");
    }
    out[0] = s->in[0];
    return BY_OK;
}

static void gradient_scale(by_graph *graph, const by__graph_node *node, const by_value *dout,
                           by_value *din)
{
    din[0] = by_scale(graph, dout[0], node->in[1]);
    din[1] = BY_NONE; /* factors are inputs and not trained */
}

/* The factor may have rank 0, and is then replicated. */
static bool shard_scale(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    return sh->in[1].axis == BY__WHOLE && by__op_shard_factors(s, out, sh);
}

static by_status infer_cast(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    if (!by_dtype_is_float(s->in[0].dtype) || !by_dtype_is_float(s->attrs->dtype)) {
        return by__op_refuse(s, error, "only f32, bf16 and f16 can be cast");
    }
    out[0] = (by__graph_type){s->attrs->dtype, s->in[0].shape};
    return BY_OK;
}

static void gradient_cast(by_graph *graph, const by__graph_node *node, const by_value *dout,
                          by_value *din)
{
    BY_UNUSED(graph);
    BY_UNUSED(node);
    din[0] = dout[0]; /* in the wider dtype until the pass narrows it */
}

static by_status infer_unary(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    if (!by__op_is_act(s->in[0].dtype)) {
        return by__op_refuse(s, error, "the operand must be f32, bf16 or f16");
    }
    if (s->input_count == 2 && !by__op_type_equal(&s->in[0], &s->in[1])) {
        return by__op_refuse(s, error, "x and dy must agree");
    }
    out[0] = s->in[0];
    return BY_OK;
}

static void gradient_unary(by_graph *graph, const by__graph_node *node, const by_value *dout,
                           by_value *din)
{
    if (node->attrs.function == BY_FN_NEGATE) { /* reads no operand */
        din[0] = by_unary(graph, dout[0], BY_FN_NEGATE);
        return;
    }
    by_value in[2] = {node->in[0], dout[0]};
    din[0] = by__op_add_node(graph, BY_OP_UNARY_GRAD, &node->attrs, in, 2, NULL);
}

/* Counts elementary operations of the tanh form; these ops are memory-bound anyway. */
static void cost_unary(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(s);
    cost->flops = 12.0 * (double)by_shape_count(&out[0].shape);
}

static by_status infer_swiglu(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    for (int i = 0; i < s->input_count; i++) {
        if (!by__op_is_act(s->in[i].dtype) || !by__op_type_equal(&s->in[0], &s->in[i])) {
            return by__op_refuse(s, error,
                                 "operands must be f32, bf16 or f16 and agree in shape and dtype");
        }
    }
    out[0] = s->in[0];
    if (s->op == BY_OP_SWIGLU_GRAD) {
        out[1] = s->in[0];
    }
    return BY_OK;
}

static void gradient_swiglu(by_graph *graph, const by__graph_node *node, const by_value *dout,
                            by_value *din)
{
    by_value in[3] = {node->in[0], node->in[1], dout[0]};
    by_value outs[BY_MAX_OUTPUTS];
    (void)by__op_add_node(graph, BY_OP_SWIGLU_GRAD, &node->attrs, in, 3, outs);
    din[0] = outs[0];
    din[1] = outs[1];
}

static int step_add(by_map *map, const by__graph_node *node, const int *operand)
{
    BY_UNUSED(node);
    return by_map_step(map, BY_MAP_ADD, operand[0], operand[1], 0);
}

static int step_sub(by_map *map, const by__graph_node *node, const int *operand)
{
    BY_UNUSED(node);
    return by_map_step(map, BY_MAP_SUB, operand[0], operand[1], 0);
}

static int step_mul(by_map *map, const by__graph_node *node, const int *operand)
{
    BY_UNUSED(node);
    return by_map_step(map, BY_MAP_MUL, operand[0], operand[1], 0);
}

static int step_cast(by_map *map, const by__graph_node *node, const int *operand)
{
    BY_UNUSED(map);
    BY_UNUSED(node);
    return operand[0]; /* operands are widened when they are read, results rounded at the end */
}

static int step_unary(by_map *map, const by__graph_node *node, const int *operand)
{
    return by_map_function(map, node->attrs.function, operand[0]);
}

static by_status onnx_binary(const by__op_signature *s, const by__graph_type *out,
                             by__op_onnx *onnx, by_error *error)
{
    const char *type = s->op == BY_OP_ADD ? "Add" : s->op == BY_OP_SUB ? "Sub" : "Mul";
    BY_UNUSED(out);
    BY_UNUSED(error);
    onnx->result(onnx, 0, by__op_onnx_node2(onnx, type, 0, 1));
    return BY_OK;
}

static by_status onnx_cast(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                           by_error *error)
{
    BY_UNUSED(s);
    BY_UNUSED(out);
    BY_UNUSED(error);
    onnx->result(onnx, 0, by__op_onnx_node1(onnx, "Identity", 0)); /* everything is f32 in ONNX */
    return BY_OK;
}

/* 0.5 x (1 + inner) */
static int onnx_half_gelu(by__op_onnx *onnx, int inner)
{
    int half = by__op_onnx_node2(onnx, "Mul", 0, by__op_onnx_float(onnx, 0.5f));
    int sum = by__op_onnx_node2(onnx, "Add", inner, by__op_onnx_float(onnx, 1.0f));
    return by__op_onnx_node2(onnx, "Mul", half, sum);
}

static int onnx_gelu(by__op_onnx *onnx)
{
    int cube = by__op_onnx_node2(onnx, "Mul", by__op_onnx_node2(onnx, "Mul", 0, 0), 0);
    int inner = by__op_onnx_node2(onnx, "Mul", cube, by__op_onnx_float(onnx, 0.044715f));
    inner = by__op_onnx_node2(onnx, "Add", inner, 0);
    inner = by__op_onnx_node2(onnx, "Mul", inner, by__op_onnx_float(onnx, 0.7978845608f));
    return onnx_half_gelu(onnx, by__op_onnx_node1(onnx, "Tanh", inner));
}

static int onnx_gelu_erf(by__op_onnx *onnx)
{
    int inner = by__op_onnx_node2(onnx, "Mul", 0, by__op_onnx_float(onnx, 0.7071067812f));
    return onnx_half_gelu(onnx, by__op_onnx_node1(onnx, "Erf", inner));
}

static by_status onnx_unary(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                            by_error *error)
{
    static const char *const names[BY_FN_COUNT] = {
        [BY_FN_RELU] = "Relu",  [BY_FN_TANH] = "Tanh",         [BY_FN_SIGMOID] = "Sigmoid",
        [BY_FN_NEGATE] = "Neg", [BY_FN_SOFTPLUS] = "Softplus", [BY_FN_ELU] = "Elu"};
    by_function function = s->attrs->function;
    BY_UNUSED(out);
    BY_UNUSED(error);
    int y = function == BY_FN_GELU       ? onnx_gelu(onnx)
            : function == BY_FN_GELU_ERF ? onnx_gelu_erf(onnx)
            : function == BY_FN_LOG_ABS
                ? by__op_onnx_node1(onnx, "Log", by__op_onnx_node1(onnx, "Abs", 0))
            : function == BY_FN_SILU
                ? by__op_onnx_node2(onnx, "Mul", 0, by__op_onnx_node1(onnx, "Sigmoid", 0))
                : by__op_onnx_node1(onnx, names[function], 0);
    onnx->result(onnx, 0, y);
    return BY_OK;
}

static by_status onnx_swiglu(const by__op_signature *s, const by__graph_type *out,
                             by__op_onnx *onnx, by_error *error)
{
    BY_UNUSED(s);
    BY_UNUSED(out);
    BY_UNUSED(error);
    int silu = by__op_onnx_node2(onnx, "Mul", 0, by__op_onnx_node1(onnx, "Sigmoid", 0));
    onnx->result(onnx, 0, by__op_onnx_node2(onnx, "Mul", silu, 1));
    return BY_OK;
}

#define BINARY(gradient_of, shard_of, fuse_of, step_of)                                            \
    {                                                                                              \
        .min_inputs = 2, .max_inputs = 2, .outputs = 1, .infer = infer_binary,                     \
        .onnx = onnx_binary, .gradient = gradient_of, .overlay = {1u << 0 | 1u << 1},              \
        .shard = shard_of, .fuse = fuse_of, .step = step_of                                        \
    }
const by__op_row by__op_add =
    BINARY(gradient_add, by__op_shard_addends, by__op_fuse_addition, step_add);
const by__op_row by__op_sub = BINARY(gradient_sub, by__op_shard_addends, NULL, step_sub);
const by__op_row by__op_mul = BINARY(gradient_mul, by__op_shard_factors, NULL, step_mul);
const by__op_row by__op_scale = {.min_inputs = 2,
                                 .max_inputs = 2,
                                 .outputs = 1,
                                 .infer = infer_scale,
                                 .onnx = onnx_binary,
                                 .gradient = gradient_scale,
                                 .overlay = {1u << 0},
                                 .shard = shard_scale,
                                 .keeps_f32 = 1u << 1,
                                 .step = step_mul};
const by__op_row by__op_cast = {.min_inputs = 1,
                                .max_inputs = 1,
                                .outputs = 1,
                                .attrs =
                                    BY__ATTRS(BY__ATTR_AS("dtype", dtype, DTYPE, BY__ATTR_IN_TYPE)),
                                .infer = infer_cast,
                                .onnx = onnx_cast,
                                .shard = by__op_shard_elements,
                                .gradient = gradient_cast,
                                .step = step_cast};
const by__op_row by__op_unary = {.min_inputs = 1,
                                 .max_inputs = 1,
                                 .outputs = 1,
                                 .attrs = BY__ATTRS(BY__ATTR_AS("", function, FUNCTION, 0)),
                                 .onnx = onnx_unary,
                                 .infer = infer_unary,
                                 .gradient = gradient_unary,
                                 .shard = by__op_shard_elements,
                                 .cost = cost_unary,
                                 .overlay = {1u << 0},
                                 .cheap = true,
                                 .step = step_unary};
const by__op_row by__op_unary_grad = {.min_inputs = 2,
                                      .max_inputs = 2,
                                      .outputs = 1,
                                      .attrs = BY__ATTRS(BY__ATTR_AS("", function, FUNCTION, 0)),
                                      .infer = infer_unary,
                                      .shard = by__op_shard_elements,
                                      .cost = cost_unary,
                                      .overlay = {1u << 0 | 1u << 1}};
const by__op_row by__op_swiglu = {.min_inputs = 2,
                                  .max_inputs = 2,
                                  .outputs = 1,
                                  .infer = infer_swiglu,
                                  .onnx = onnx_swiglu,
                                  .gradient = gradient_swiglu,
                                  .shard = by__op_shard_elements,
                                  .cost = cost_unary,
                                  .overlay = {1u << 0 | 1u << 1},
                                  .cheap = true};
const by__op_row by__op_swiglu_grad = {.min_inputs = 3,
                                       .max_inputs = 3,
                                       .outputs = 2,
                                       .infer = infer_swiglu,
                                       .shard = by__op_shard_elements,
                                       .cost = cost_unary,
                                       .overlay = {1u << 0, 1u << 1}};

by_value by_add(by_graph *graph, by_value a, by_value b)
{
    by_value in[2] = {a, b};
    return by__op_add_node(graph, BY_OP_ADD, &(by_attrs){0}, in, 2, NULL);
}

by_value by_sub(by_graph *graph, by_value a, by_value b)
{
    by_value in[2] = {a, b};
    return by__op_add_node(graph, BY_OP_SUB, &(by_attrs){0}, in, 2, NULL);
}

by_value by_mul(by_graph *graph, by_value a, by_value b)
{
    by_value in[2] = {a, b};
    return by__op_add_node(graph, BY_OP_MUL, &(by_attrs){0}, in, 2, NULL);
}

by_value by_scale(by_graph *graph, by_value x, by_value factor)
{
    by_value in[2] = {x, factor};
    return by__op_add_node(graph, BY_OP_SCALE, &(by_attrs){0}, in, 2, NULL);
}

by_value by_cast(by_graph *graph, by_value x, by_dtype dtype)
{
    by_attrs attrs = {.dtype = dtype};
    return by__op_add_node(graph, BY_OP_CAST, &attrs, &x, 1, NULL);
}

by_value by_unary(by_graph *graph, by_value x, by_function function)
{
    by_attrs attrs = {.function = function};
    return by__op_add_node(graph, BY_OP_UNARY, &attrs, &x, 1, NULL);
}

by_value by_swiglu(by_graph *graph, by_value gate, by_value up)
{
    by_value in[2] = {gate, up};
    return by__op_add_node(graph, BY_OP_SWIGLU, &(by_attrs){0}, in, 2, NULL);
}
