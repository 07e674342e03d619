/* Makes a model wider, without changing what it computes: every column of the residual stream, head
 * and channel of an MLP is there several times, and a matrix divides each of its weights among the
 * copies of its input (function-preserving initialization: Chen et al. 2016, arXiv 1511.05641; of
 * transformers: Chen et al. 2022, arXiv 2110.07143). With x' = (x, ..., x), the parts of a weight
 * add up to it, so that y' = (y, ..., y); means and squares of norms stay. The parts are unequal:
 * copies of a unit then get different gradients, and training makes them different. A head that is
 * tied to the embedding reads all copies, so the last norm is divided by their number instead. */
#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"
#include "nn/nn.h"
#include "ops/ops.h"

static const by_compress_setting settings[] = {
    {.name = "times",
     .fallback = "2",
     .least = 2.0,
     .most = 64.0,
     .whole = true,
     .help = "how many times as wide: columns, heads and channels"},
    {.name = "uneven",
     .fallback = "0.5",
     .most = 0.99,
     .help = "how far a part of a weight is from an equal one; 0: copies stay alike in training"},
    {0}};

static const char *const families[] = {"gpt2", "llama"};

typedef struct widening {
    by_graph *graph; /* of the narrow model; tells the axes of its parameters */
    bool *in_block;  /* of each value */
    int64_t times;
    double uneven;
} widening;

/* An axis of a tensor: its old elements, and whether it gets wider. */
typedef struct wide_axis {
    int64_t sections[3]; /* elements that lie together: of "qkv" queries, keys, values */
    bool grows;
    bool divided; /* its copies are inputs of a matrix */
} wide_axis;

/* Name `which` of an axis in "heads embed". */
static bool axis_is(const char *axes, int which, const char *name)
{
    for (int i = 0; axes != NULL && i < which; i++) {
        axes = strchr(axes, ' ');
        axes = axes == NULL ? NULL : axes + 1;
    }
    size_t length = axes == NULL ? 0 : strcspn(axes, " ");
    return length > 0 && strlen(name) == length && strncmp(axes, name, length) == 0;
}

static wide_axis describe_axis(const by__compress_state *c, const char *axes, int which,
                               int64_t size)
{
    static const char *const growing[] = {"embed", "mlp", "heads", "kv_heads", "qkv"};
    const by_model_config *m = &c->config->model;
    wide_axis a = {.sections = {size}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(growing); i++) {
        a.grows = a.grows || axis_is(axes, which, growing[i]);
    }
    if (axis_is(axes, which, "qkv")) {
        a.sections[0] = m->heads * m->head_dim;
        a.sections[1] = a.sections[2] = (size - a.sections[0]) / 2;
    }
    return a;
}

/* The old element of a new one, and which copy of it. */
static int64_t source_of(const wide_axis *a, int64_t times, int64_t at, int64_t *copy)
{
    int64_t first = 0;
    *copy = 0;
    if (!a->grows) {
        return at;
    }
    for (int i = 0; i < 2 && at >= times * a->sections[i]; i++) {
        at -= times * a->sections[i];
        first += a->sections[i];
    }
    for (int i = 0; i < 3; i++) {
        int64_t end = i == 0 ? a->sections[0] : i == 1 ? a->sections[0] + a->sections[1] : -1;
        if (first < end || end < 0) {
            *copy = at / a->sections[i];
            return first + at % a->sections[i];
        }
    }
    return 0;
}

/* The part of a weight that a copy of its input gets: parts of one weight add up to 1. */
static double part_of(const widening *w, uint64_t weight, int64_t copy)
{
    uint32_t key[2];
    uint32_t bits[4];
    double mine = 0.0;
    double mean = 0.0;
    by__philox_key(key, 1, 0x7769646eu); /* "widn" in ASCII */
    for (int64_t k = 0; k < w->times; k++) {
        by__philox(bits, key,
                   (const uint32_t[4]){(uint32_t)weight, (uint32_t)(weight >> 32), (uint32_t)k, 0});
        double value = (double)bits[0] / 4294967296.0;
        mean += value / (double)w->times;
        mine = k == copy ? value : mine;
    }
    return (1.0 + w->uneven * (mine - mean)) / (double)w->times;
}

typedef struct wide_tensor {
    by_tensor_view view;
    wide_axis axes[2]; /* of a vector, the second one */
    int64_t was[2];
    int64_t is[2];
    double factor; /* of all values */
} wide_tensor;

static void fill(float *out, const float *in, const widening *w, const wide_tensor *t)
{
    for (int64_t r = 0; r < t->is[0]; r++) {
        int64_t copies[2];
        int64_t row = source_of(&t->axes[0], w->times, r, &copies[0]);
        for (int64_t i = 0; i < t->is[1]; i++) {
            int64_t column = source_of(&t->axes[1], w->times, i, &copies[1]);
            double value = t->factor * (double)in[row * t->was[1] + column];
            int divided = t->axes[0].divided ? 0 : 1;
            if (t->axes[divided].divided) {
                /* By the output's copy and the weight. */
                int64_t output = divided == 0 ? i : r;
                int64_t input = divided == 0 ? row : column;
                int64_t inputs = t->was[divided];
                value *= part_of(w, (uint64_t)(output * inputs + input), copies[divided]);
            }
            out[r * t->is[1] + i] = (float)value;
        }
    }
}

static by_status put_wide(by__compress_state *c, const widening *w, wide_tensor *t, by_error *error)
{
    float *values = NULL;
    float *wide = NULL;
    by_tensor_slice whole = by_tensor_whole(&t->view);
    size_t count = (size_t)(t->was[0] * t->was[1]);
    BY_TRY(by__alloc((void **)&values, count + 1, sizeof *values, "a tensor", error));
    by_status status = by__alloc((void **)&wide, (size_t)(t->is[0] * t->is[1]) + 1, sizeof *wide,
                                 "a tensor", error);
    if (status == BY_OK) {
        status = by_weights_read_f32(c->weights, t->view.name, &whole, values, count, error);
    }
    if (status == BY_OK) {
        fill(wide, values, w, t);
        for (int i = 0; i < t->view.rank; i++) {
            t->view.shape[i] = t->is[i + 2 - t->view.rank];
        }
        bool divided = t->axes[0].divided || t->axes[1].divided;
        t->view.dtype = divided ? BY_F32 : t->view.dtype; /* parts need the digits */
        by__compress_drop(c, t->view.name);
        status = by__compress_put_f32(c, &t->view, wide, error);
        c->changed++;
    }
    free(wide);
    free(values);
    return status;
}

static const by__compress_linear *linear_of(const by__compress_state *c, const char *name)
{
    for (size_t i = 0; i < c->linear_count; i++) {
        if (strcmp(c->linears[i].weight, name) == 0) {
            return &c->linears[i];
        }
    }
    return NULL;
}

static by_status widen_parameter(by__compress_state *c, const widening *w, size_t v,
                                 const char *name, by_error *error)
{
    const by__graph_value *value = &w->graph->values[v];
    const by__compress_linear *linear = linear_of(c, name);
    wide_tensor t = {.was = {1, 1}, .is = {1, 1}, .factor = 1.0};
    bool any = false;
    BY_TRY(by__weights_describe(c->weights, name, &t.view, error));
    if (t.view.rank > 2) {
        return by_error_set(error, BY_EARG,
                            "widen: '%s' has %d axes; matrices and vectors are known", name,
                            t.view.rank);
    }
    t.axes[0].sections[0] = t.axes[1].sections[0] = 1;
    for (int i = 0; i < t.view.rank; i++) {
        int at = i + 2 - t.view.rank;
        t.axes[at] = describe_axis(c, value->axes, i, t.view.shape[i]);
        t.was[at] = t.view.shape[i];
        t.is[at] = t.was[at] * (t.axes[at].grows ? w->times : 1);
        any = any || t.axes[at].grows;
    }
    bool tied = c->config->model.tied == 1;
    if (linear != NULL && !(linear->head && tied)) {
        int in = linear->in_out ? 0 : 1;
        t.axes[in].divided = t.axes[in].grows;
    }
    if (tied && t.view.rank == 1 && !w->in_block[v]) {
        t.factor = 1.0 / (double)w->times;
    }
    return any ? put_wide(c, w, &t, error) : BY_OK;
}

static by_status widen_all(by__compress_state *c, const widening *w, by_error *error)
{
    by_status status = BY_OK;
    for (size_t v = 0; v < w->graph->value_count && status == BY_OK; v++) {
        const by__graph_value *value = &w->graph->values[v];
        if (value->role != BY_ROLE_PARAMETER) {
            continue;
        }
        char *name = by__compress_file_name(c, value->name);
        if (name != NULL) {
            status = widen_parameter(c, w, v, name, error);
        }
        free(name);
    }
    return status;
}

static by_status resize_model(by__compress_state *c, int64_t times, by_error *error)
{
    by_config *to;
    BY_TRY(by_config_copy(&to, c->config, error));
    by_model_config *m = &to->model;
    m->width *= times;
    m->heads *= times;
    m->kv_heads *= m->kv_heads > 0 ? times : 1;
    m->mlp_width *= times;
    by_status status = by_config_resolve(to, error);
    if (status == BY_OK) {
        status = by__compress_resize(c, m, error);
    }
    by_config_close(&to);
    return status;
}

static by_status widen(by__compress_state *c, by_error *error)
{
    widening w = {.times = (int64_t)by__compress_setting_number(c, "times"),
                  .uneven = by__compress_setting_number(c, "uneven")};
    BY_TRY(resize_model(c, w.times, error)); /* first, because it may be refused */
    BY_TRY(by__compress_graph(&w.graph, c, error));
    by_status status = by__alloc((void **)&w.in_block, w.graph->value_count + 1, sizeof *w.in_block,
                                 "layers", error);
    for (size_t n = 0; status == BY_OK && n < w.graph->node_count; n++) {
        const by__graph_node *node = &w.graph->nodes[n];
        for (int k = 0; k < node->input_count; k++) {
            if (node->in[k] != BY_NONE && node->block >= 0) {
                w.in_block[node->in[k]] = true;
            }
        }
    }
    if (status == BY_OK) {
        status = widen_all(c, &w, error);
    }
    by_string_format(&c->notes, "; %lld times as wide", (long long)w.times);
    free(w.in_block);
    by_graph_close(&w.graph);
    return status;
}

static by_status check(by__compress_state *c, by_error *error)
{
    const by_model_config *m = &c->config->model;
    BY_TRY(by__compress_check_family(c, "widen", families, BY_ARRAY_LENGTH(families), "columns",
                                     error));
    bool counts_heads = m->attention.kind != NULL && (strcmp(m->attention.kind, "alibi") == 0 ||
                                                      strcmp(m->attention.kind, "mixed") == 0);
    return !counts_heads ? BY_OK
                         : by_error_set(error, BY_EARG,
                                        "widen: attention.kind %s may depend on the number of "
                                        "heads, which copies would change",
                                        m->attention.kind);
}

const by__compress_method by__compress_method_widen = {
    .shown = {.name = "widen",
              .summary = "columns, heads and channels are copied so that nothing changes yet, to "
                         "train a larger model",
              .settings = settings},
    .run = widen,
    .takes = check};
