/* Attention as ONNX: products, a mask made from positions, a softmax. The queries that share a key
 * head are adjacent, so that keys are broadcast and not copied. */
#include <math.h>

#include "ops/ops.h"

typedef struct heads {
    int64_t queries; /* heads */
    int64_t keys;
    int64_t width;
} heads;

/* Reshapes x [B, T, n width] to [B, n, T, width]. */
static int by_heads(by__op_onnx *onnx, int x, int64_t n, int64_t width)
{
    int y = by__op_onnx_reshape(onnx, x, (const int64_t[]){0, 0, n, width}, 4);
    return by__op_onnx_transpose(onnx, y, (const int64_t[]){0, 2, 1, 3}, 4);
}

/* Positions [n] from `first` (a scalar) up to `end`. */
static int range(by__op_onnx *onnx, int first, int end)
{
    return by__op_onnx_node3(onnx, "Range", first, end, by__op_onnx_int(onnx, 1));
}

/* Replaces scores [B, K, G, T, S] of keys behind the end of a sample by the lowest number. lengths
 * [B]: keys of each sample. */
static int mask_ends(by__op_onnx *onnx, int scores, int keys, int lengths)
{
    int end = by__op_onnx_extent(onnx, keys, 2);
    int k = range(onnx, by__op_onnx_int(onnx, 0), end);
    int ends = by__op_onnx_reshape(onnx, lengths, (const int64_t[]){-1, 1, 1, 1, 1}, 5);
    int read = by__op_onnx_node2(onnx, "Less", k, ends);
    return by__op_onnx_node3(onnx, "Where", read, scores, by__op_onnx_float(onnx, -3e38f));
}

/* Replaces scores of masked keys by the lowest number. The last key belongs to the last query. */
static int mask(by__op_onnx *onnx, int scores, int queries, int keys, bool causal, int64_t window)
{
    int zero = by__op_onnx_int(onnx, 0);
    int count = by__op_onnx_extent(onnx, queries, 2);
    int end = by__op_onnx_extent(onnx, keys, 2);
    int first = by__op_onnx_node2(onnx, "Sub", end, count);
    int q = by__op_onnx_reshape(onnx, range(onnx, first, end), (const int64_t[]){-1, 1}, 2);
    int k = range(onnx, zero, end);
    int last = q;
    if (!causal) {
        last = by__op_onnx_node2(onnx, "Add", q, by__op_onnx_int(onnx, window - 1));
    }
    int read = by__op_onnx_node2(onnx, "LessOrEqual", k, last);
    if (window > 0) {
        int from = by__op_onnx_node2(onnx, "Sub", q, by__op_onnx_int(onnx, window));
        int near = by__op_onnx_node2(onnx, "Greater", k, from);
        read = by__op_onnx_node2(onnx, "And", read, near);
    }
    return by__op_onnx_node3(onnx, "Where", read, scores, by__op_onnx_float(onnx, -3e38f));
}

/* Maps queries [B, H, T, D] and keys, values [B, K, S, D] to [B, T, H D]. lengths: the number of
 * those of samples; -1: they have none. */
static int attend(by__op_onnx *onnx, int queries, int keys, int values, const heads *h, bool causal,
                  int64_t window, int lengths)
{
    int64_t group = h->queries / h->keys;
    int q =
        by__op_onnx_reshape(onnx, queries, (const int64_t[]){0, h->keys, group, -1, h->width}, 5);
    int axis = by__op_onnx_list(onnx, (const int64_t[]){2}, 1);
    int k = by__op_onnx_transpose(onnx, keys, (const int64_t[]){0, 1, 3, 2}, 4);
    k = by__op_onnx_node2(onnx, "Unsqueeze", k, axis);
    int v = by__op_onnx_node2(onnx, "Unsqueeze", values, axis);
    q = by__op_onnx_node2(onnx, "Mul", q, by__op_onnx_float(onnx, 1.0f / sqrtf((float)h->width)));
    int scores = by__op_onnx_node2(onnx, "MatMul", q, k);
    if (causal || window > 0) {
        scores = mask(onnx, scores, queries, keys, causal, window);
    }
    if (lengths >= 0) {
        scores = mask_ends(onnx, scores, keys, lengths);
    }
    int shares = by__op_onnx_node1(onnx, "Softmax", scores);
    onnx->set_int(onnx, "axis", -1);
    int y = by__op_onnx_node2(onnx, "MatMul", shares, v);
    y = by__op_onnx_reshape(onnx, y, (const int64_t[]){0, h->queries, -1, h->width}, 4);
    y = by__op_onnx_transpose(onnx, y, (const int64_t[]){0, 2, 1, 3}, 4);
    return by__op_onnx_reshape(onnx, y, (const int64_t[]){0, 0, h->queries * h->width}, 3);
}

/* Splits the operands by heads: they are packed in the first, or three. */
static heads read_operands(const by__op_signature *s, by__op_onnx *onnx, int *q, int *k, int *v)
{
    heads h = {.queries = s->attrs->heads, .keys = s->attrs->kv_heads};
    bool packed = s->input_count < 3 || by__absent(&s->in[1]);
    int64_t parts = packed ? h.queries + 2 * h.keys : h.queries;
    h.width = s->in[0].shape.dim[2] / parts;
    *q = 0;
    *k = 1;
    *v = 2;
    if (packed) {
        const int64_t sizes[3] = {h.queries * h.width, h.keys * h.width, h.keys * h.width};
        *q = by__op_onnx_split(onnx, 0, 2, sizes, 3);
        *k = *q + 1;
        *v = *q + 2;
    }
    *q = by_heads(onnx, *q, h.queries, h.width);
    *k = by_heads(onnx, *k, h.keys, h.width);
    *v = by_heads(onnx, *v, h.keys, h.width);
    return h;
}

static by_status check_form(const by__op_signature *s, by_error *error)
{
    return s->attrs->slopes == 0 ? BY_OK
                                 : by__op_refuse(s, error, "slopes (ALiBi) have no form in ONNX");
}

by_status by__op_onnx_attention(const by__op_signature *s, const by__graph_type *out,
                                by__op_onnx *onnx, by_error *error)
{
    int q;
    int k;
    int v;
    BY_UNUSED(out);
    if (s->input_count > 4 && !by__absent(&s->in[4])) {
        return by__op_refuse(s, error, "starts of documents have no form in ONNX");
    }
    int lengths = s->input_count > 3 && !by__absent(&s->in[3]) ? 3 : -1;
    BY_TRY(check_form(s, error));
    heads h = read_operands(s, onnx, &q, &k, &v);
    onnx->result(onnx, 0,
                 attend(onnx, q, k, v, &h, !s->attrs->bidirectional, s->attrs->window, lengths));
    return BY_OK;
}

by_status by__op_onnx_cached_attention(const by__op_signature *s, const by__graph_type *out,
                                       by__op_onnx *onnx, by_error *error)
{
    int q;
    int k;
    int v;
    BY_UNUSED(out);
    BY_TRY(check_form(s, error));
    heads h = read_operands(s, onnx, &q, &k, &v);
    k = by__op_onnx_node2(onnx, "Concat", 3, k);
    onnx->set_int(onnx, "axis", 2);
    v = by__op_onnx_node2(onnx, "Concat", 4, v);
    onnx->set_int(onnx, "axis", 2);
    onnx->update(onnx, 3, k);
    onnx->update(onnx, 4, v);
    onnx->result(onnx, 0, attend(onnx, q, k, v, &h, true, s->attrs->window, -1));
    return BY_OK;
}
