/* Compares two checkpoints, or directories of weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "checkpoint/storage.h"

/* Elements compared at a time. */
enum { AT_ONCE = 1 << 18 };

/* One side: a checkpoint, or weights alone. */
typedef struct compared_weights {
    by_checkpoint *checkpoint;
    by_weights *weights;
} compared_weights;

static by_status open_side(compared_weights *s, const char *path, by_error *error)
{
    bool is_weights;
    BY_TRY(by__checkpoint_path_is_weights(&is_weights, path, error));
    return is_weights ? by_weights_open(&s->weights, path, error)
                      : by_checkpoint_open(&s->checkpoint, path, true, error);
}

static void close_side(compared_weights *s)
{
    by_weights_close(&s->weights);
    by_checkpoint_close(&s->checkpoint);
}

static const by_weights *model_of(const compared_weights *s)
{
    return s->checkpoint != NULL ? by_checkpoint_model(s->checkpoint) : s->weights;
}

static const by_weights *optimizer_of(const compared_weights *s)
{
    return s->checkpoint != NULL ? by_checkpoint_optimizer(s->checkpoint) : NULL;
}

/* ---- tensors ---- */

static void compare_values(by_tensor_difference *d, const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (by__float_bits(a[i]) == by__float_bits(b[i]) || (isnan(a[i]) && isnan(b[i]))) {
            continue;
        }
        double x = (double)a[i];
        double y = (double)b[i];
        double gap = isfinite(x) && isfinite(y) ? fabs(x - y) : (double)INFINITY;
        double scale = fabs(x) > fabs(y) ? fabs(x) : fabs(y);
        double ratio = gap == 0.0 ? 0.0 : isfinite(gap) ? gap / scale : gap;
        d->different++;
        d->max_abs = gap > d->max_abs ? gap : d->max_abs;
        d->max_rel = ratio > d->max_rel ? ratio : d->max_rel;
    }
}

/* Values of a tensor as f32; codes (u8) as their numbers. */
static by_status read_values(const by_weights *w, const char *name, by_dtype dtype,
                             const by_tensor_slice *slice, float *out, size_t n, by_error *error)
{
    if (dtype != BY_U8) {
        return by_weights_read_f32(w, name, slice, out, n, error);
    }
    BY_TRY(by_weights_read(w, name, slice, out, n, error));
    const uint8_t *codes = (const uint8_t *)out;
    for (size_t k = n; k-- > 0;) { /* in place, so from the end */
        out[k] = (float)codes[k];
    }
    return BY_OK;
}

static by_status compare_tensor(by_tensor_difference *d, const by_weights *a, const by_weights *b,
                                const by_tensor_view views[2], by_error *error)
{
    float *values;
    size_t elements;
    BY_TRY(by_tensor_size(&views[0], &elements, NULL, error));
    BY_TRY(by__alloc((void **)&values, 2 * AT_ONCE, sizeof *values, "values", error));
    by_status status = BY_OK;
    for (size_t at = 0; at < elements && status == BY_OK; at += AT_ONCE) {
        size_t n = elements - at < AT_ONCE ? elements - at : AT_ONCE;
        by_tensor_slice slice = {.flat = true, .offset = {(int64_t)at}, .shape = {(int64_t)n}};
        status = read_values(a, d->name, views[0].dtype, &slice, values, n, error);
        if (status == BY_OK) {
            status = read_values(b, d->name, views[1].dtype, &slice, values + AT_ONCE, n, error);
        }
        if (status == BY_OK) {
            compare_values(d, values, values + AT_ONCE, n);
        }
    }
    d->elements = elements;
    free(values);
    return status;
}

static bool same_shape(const by_tensor_view *a, const by_tensor_view *b)
{
    return a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0);
}

static by_status add_tensor(by_difference *out, const by_weights *a, const by_weights *b,
                            const char *name, bool optimizer, by_error *error)
{
    by_tensor_view views[2];
    by_tensor_difference *d = &out->tensors[out->count];
    bool in_a = a != NULL && by_weights_has(a, name);
    bool in_b = b != NULL && by_weights_has(b, name);
    *d = (by_tensor_difference){.name = by__strdup(name), .optimizer = optimizer};
    if (d->name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a name");
    }
    out->count++;
    if (!in_a || !in_b) {
        d->kind = in_a ? BY_DIFFERENCE_ONLY_FIRST : BY_DIFFERENCE_ONLY_SECOND;
        return BY_OK;
    }
    BY_TRY(by__weights_describe(a, name, &views[0], error));
    BY_TRY(by__weights_describe(b, name, &views[1], error));
    if (!same_shape(&views[0], &views[1])) {
        d->kind = BY_DIFFERENCE_SHAPE;
        return BY_OK;
    }
    BY_TRY(compare_tensor(d, a, b, views, error));
    d->kind = d->different > 0 ? BY_DIFFERENCE_VALUES : BY_DIFFERENCE_NONE;
    return BY_OK;
}

/* The tensors of both sides in byte order of names. Either may be NULL. */
static by_status add_both(by_difference *out, const by_weights *a, const by_weights *b,
                          bool optimizer, by_error *error)
{
    size_t i = 0;
    size_t k = 0;
    size_t in_a = a == NULL ? 0 : by_weights_count(a);
    size_t in_b = b == NULL ? 0 : by_weights_count(b);
    while (i < in_a || k < in_b) {
        const char *x = i < in_a ? by_weights_name(a, i) : NULL;
        const char *y = k < in_b ? by_weights_name(b, k) : NULL;
        int order = x == NULL ? 1 : y == NULL ? -1 : strcmp(x, y);
        BY_TRY(add_tensor(out, a, b, order <= 0 ? x : y, optimizer, error));
        i += order <= 0 ? 1 : 0;
        k += order >= 0 ? 1 : 0;
    }
    return BY_OK;
}

static size_t count_of(const by_weights *weights)
{
    return weights == NULL ? 0 : by_weights_count(weights);
}

by_status by_checkpoint_diff(by_difference *out, const char *first, const char *second,
                             by_error *error)
{
    compared_weights a = {0};
    compared_weights b = {0};
    by_difference d = {0};
    by_status status = open_side(&a, first, error);
    if (status == BY_OK) {
        status = open_side(&b, second, error);
    }
    if (status == BY_OK) {
        /* Weights alone have no optimizer that could differ. */
        bool both = a.checkpoint != NULL && b.checkpoint != NULL;
        const by_weights *x = both ? optimizer_of(&a) : NULL;
        const by_weights *y = both ? optimizer_of(&b) : NULL;
        size_t most = count_of(model_of(&a)) + count_of(model_of(&b)) + count_of(x) + count_of(y);
        status = by__alloc((void **)&d.tensors, most, sizeof *d.tensors, "differences", error);
        if (status == BY_OK) {
            status = add_both(&d, model_of(&a), model_of(&b), false, error);
        }
        if (status == BY_OK) {
            status = add_both(&d, x, y, true, error);
        }
    }
    for (size_t i = 0; i < d.count; i++) {
        d.differs = d.differs || d.tensors[i].kind != BY_DIFFERENCE_NONE;
    }
    close_side(&a);
    close_side(&b);
    if (status != BY_OK) {
        by_difference_free(&d);
        return status;
    }
    *out = d;
    return BY_OK;
}

void by_difference_free(by_difference *difference)
{
    for (size_t i = 0; i < difference->count; i++) {
        free(difference->tensors[i].name);
    }
    free(difference->tensors);
    *difference = (by_difference){0};
}
