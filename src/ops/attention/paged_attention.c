/* Causal attention of rows that belong to many sequences, whose keys and values are in pages of a
 * shared pool (Kwon et al. 2023, PagedAttention). What a row reads, and in which order, depends
 * only on its own position and pages, so its bits do not depend on the other rows of the run. */
#include "ops/ops.h"

/* The operands; q alone may be packed q|k|v. */
enum { Q, K, V, K_POOL, V_POOL, POSITIONS, SESSIONS, TABLE, OPERANDS };

static int64_t head_width(const by__op_signature *s)
{
    const by__graph_type *q = &s->in[Q];
    int64_t h = s->attrs->heads;
    int64_t k = s->attrs->kv_heads;
    bool packed = by__absent(&s->in[K]);
    if (h < 1 || k < 1 || h % k != 0 || q->shape.rank != 3 || q->shape.dim[0] != 1 ||
        h > q->shape.dim[2] || !by__op_is_act(q->dtype) || packed != by__absent(&s->in[V])) {
        return 0;
    }
    int64_t parts = packed ? h + 2 * k : h;
    return q->shape.dim[2] % parts == 0 ? q->shape.dim[2] / parts : 0;
}

static bool is_ids(const by__graph_type *type, int64_t count)
{
    return type->dtype == BY_I32 && by_shape_count(&type->shape) == count;
}

static by_status infer_paged(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *q = &s->in[Q];
    const by__graph_type *pool = &s->in[K_POOL];
    int64_t width = head_width(s);
    if (width == 0) {
        return by__op_refuse(s, error,
                             "q must be [1, rows, heads x width], k and v [1, rows, kv_heads x "
                             "width] or all packed in one tensor, and kv_heads must divide heads");
    }
    int64_t rows = q->shape.dim[1];
    by__graph_type key = {q->dtype, BY_SHAPE(1, rows, s->attrs->kv_heads * width)};
    bool codes = pool->dtype == BY_U8;
    by__graph_type pages = {codes ? BY_U8 : q->dtype,
                            BY_SHAPE(pool->shape.rank == 4 ? pool->shape.dim[0] : 0,
                                     s->attrs->kv_heads, BY_PAGE_TOKENS,
                                     width + (codes ? BY_PAGE_SCALE : 0))};
    if (!by__absent(&s->in[K]) &&
        (!by__op_type_equal(&s->in[K], &key) || !by__op_type_equal(&s->in[V], &key))) {
        return by__op_refuse(s, error, "k and v must be [1, rows, kv_heads x width]");
    }
    if (!by__op_type_equal(pool, &pages) || !by__op_type_equal(&s->in[V_POOL], &pages)) {
        return by__op_refuse(s, error,
                             "pools must be [pages, kv_heads, 16, width] of q's type, or of u8 "
                             "and [pages, kv_heads, 16, width + 4]");
    }
    if (!is_ids(&s->in[POSITIONS], rows) || !is_ids(&s->in[SESSIONS], rows) ||
        s->in[TABLE].dtype != BY_I32 || s->in[TABLE].shape.rank != 2) {
        return by__op_refuse(
            s, error,
            "positions and sessions must be i32 [rows], the page table i32 [sessions, "
            "pages]");
    }
    if (s->attrs->window < 0) {
        return by__op_refuse(s, error, "the window is negative; 0: all keys");
    }
    if (s->attrs->slopes != 0 &&
        (s->attrs->begin < 0 || s->attrs->begin > s->attrs->slopes - s->attrs->heads)) {
        return by__op_refuse(s, error, "the heads are not among those that share the slopes");
    }
    out[0] = (by__graph_type){q->dtype, BY_SHAPE(1, rows, s->attrs->heads * width)};
    return BY_OK;
}

/* Returns the largest number of tokens of a session. */
static int64_t capacity(const by__op_signature *s)
{
    return s->in[TABLE].shape.dim[1] * BY_PAGE_TOKENS;
}

static int64_t sessions_of_table(const by__op_signature *s)
{
    return s->in[TABLE].shape.dim[0];
}

static int64_t pages_of_pool(const by__op_signature *s)
{
    return s->in[K_POOL].shape.dim[0];
}

/* Returns the number of keys that the last token of a full session reads. */
static double longest(const by__op_signature *s)
{
    int64_t all = capacity(s);
    return (double)(s->attrs->window > 0 && s->attrs->window < all ? s->attrs->window : all);
}

/* Returns the bytes of one key, over all heads. */
static double key_bytes(const by__op_signature *s)
{
    const by__graph_type *pool = &s->in[K_POOL];
    return (double)(s->attrs->kv_heads * pool->shape.dim[3]) * (double)by_dtype_size(pool->dtype);
}

/* Assumes rows of full sessions, each of which reads its own keys and values. */
static void cost_paged(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    double rows = (double)out[0].shape.dim[1];
    double token = key_bytes(s);
    double pool =
        (double)by_shape_count(&s->in[K_POOL].shape) * (double)by_dtype_size(s->in[K_POOL].dtype);
    cost->flops = 4.0 * (double)by_shape_count(&out[0].shape) * longest(s);
    cost->bytes_read += 2.0 * (rows * longest(s) * token - pool);
    cost->bytes_written += 2.0 * (rows * token - pool);
}

static void attention_of_pages(const by__op_signature *s, const by__graph_type *out,
                               by__op_attention_cost *cost)
{
    double rows = (double)out[0].shape.dim[1];
    cost->cached_flops = 4.0 * (double)by_shape_count(&out[0].shape);
    cost->cached_bytes = 2.0 * rows * key_bytes(s);
    cost->cached_window = (double)s->attrs->window;
}

const by__op_row by__op_paged_attention = {
    .min_inputs = OPERANDS,
    .max_inputs = OPERANDS,
    .outputs = 1,
    .optional = 1u << K | 1u << V,
    .attrs = BY__ATTRS(BY__ATTR(heads, INT), BY__ATTR(kv_heads, INT), BY__OP_REACH),
    .infer = infer_paged,
    .cost = cost_paged,
    .attention = attention_of_pages,
    .mutates = 1u << K_POOL | 1u << V_POOL,
    .indices = {{.input = POSITIONS, .may_be_negative = true, .limit = capacity},
                {.input = SESSIONS, .limit = sessions_of_table},
                {.input = TABLE, .may_be_negative = true, .limit = pages_of_pool}}};

by_value by_attention_paged(by_graph *graph, by_value q, by_value k, by_value v, by_value k_pool,
                            by_value v_pool, const by_paged_rows *rows, int64_t heads,
                            int64_t kv_heads, const by_attention_mask *mask)
{
    by_attrs attrs = {.heads = heads,
                      .kv_heads = kv_heads,
                      .window = mask->window,
                      .slopes = mask->slopes ? heads : 0};
    by_value in[OPERANDS] = {q, k, v, k_pool, v_pool, rows->positions, rows->sessions, rows->table};
    return by__op_add_node(graph, BY_OP_PAGED_ATTENTION, &attrs, in, OPERANDS, NULL);
}
