/* Splits of tensors over ranks, and `shard` entries that several families share. */
#include "ops/ops.h"

int64_t by__op_cut(int64_t extent, int ranks, int rank)
{
    int64_t longer = extent % ranks;
    return extent / ranks * rank + (rank < longer ? rank : longer);
}

by__graph_split by__op_whole(void)
{
    return (by__graph_split){BY__WHOLE, 1};
}

by__graph_split by__op_partial(void)
{
    return (by__graph_split){BY__PARTIAL, 1};
}

bool by__op_split_equal(by__graph_split a, by__graph_split b)
{
    return a.axis == b.axis && (a.axis < 0 || a.sections == b.sections);
}

/* Returns the extent of the split axis on one rank. */
static int64_t split_extent(const by_shape *shape, by__graph_split split, int ranks, int rank)
{
    int64_t section = shape->dim[split.axis] / split.sections;
    return split.sections *
           (by__op_cut(section, ranks, rank + 1) - by__op_cut(section, ranks, rank));
}

by_shape by__op_split_shape(const by_shape *shape, by__graph_split split, int ranks, int rank)
{
    by_shape local = *shape;
    if (split.axis >= 0) {
        local.dim[split.axis] = split_extent(shape, split, ranks, rank);
    }
    return local;
}

bool by__op_split_even(const by_shape *shape, by__graph_split split, int ranks)
{
    return shape->dim[split.axis] % (split.sections * ranks) == 0;
}

/* Returns the product of the extents of axes before `axis`. */
static int64_t outer(const by_shape *shape, int axis)
{
    int64_t product = 1;
    for (int i = 0; i < axis; i++) {
        product *= shape->dim[i];
    }
    return product;
}

/* Returns the number of sections of the tensor's elements, in row-major order, of which each rank
 * has a slice. */
static int64_t sections_of(const by_shape *shape, by__graph_split split)
{
    return outer(shape, split.axis) * split.sections;
}

bool by__op_split_moved(const by_shape *from, by__graph_split split, const by_shape *to, int ranks,
                        by__graph_split *out)
{
    int64_t sections = sections_of(from, split);
    int64_t section = by_shape_count(from) / sections;
    int64_t before = 1;
    if (!by__op_split_even(from, split, ranks)) {
        return false;
    }
    for (int axis = 0; axis < to->rank; axis++) {
        int64_t rest = sections % before == 0 ? sections / before : 0;
        int64_t inner = by_shape_count(to) / before / to->dim[axis];
        if (rest > 0 && to->dim[axis] % (rest * ranks) == 0 &&
            to->dim[axis] / rest * inner == section) {
            *out = (by__graph_split){axis, rest};
            return true;
        }
        before *= to->dim[axis];
    }
    return false;
}

bool by__op_split_of_rows(const by_shape *shape, by__graph_split split, const by_shape *to,
                          int ranks, by__graph_split *out)
{
    by_shape lead = *shape;
    lead.rank--;
    return split.axis >= 0 && split.axis < lead.rank &&
           by__op_split_moved(&lead, split, to, ranks, out);
}

/* Returns which axis of `whole` corresponds to axis `axis` of an operand that is broadcast to
 * it. */
static int place_in(const by_shape *whole, const by_shape *operand, int axis)
{
    return axis + whole->rank - operand->rank;
}

/* Finds the split of the result that matches the first split operand. */
static bool first_split(const by__op_signature *s, const by_shape *whole, const by__op_sharding *sh,
                        by__graph_split *out)
{
    for (int i = 0; i < s->input_count; i++) {
        const by_shape *shape = &s->in[i].shape;
        int axis = sh->in[i].axis;
        if (axis < 0) {
            continue;
        }
        *out = (by__graph_split){place_in(whole, shape, axis), sh->in[i].sections};
        return shape->dim[axis] == whole->dim[out->axis];
    }
    return false;
}

bool by__op_shard_elements(const by__op_signature *s, const by__graph_type *out,
                           by__op_sharding *sh)
{
    by__graph_split split;
    const by_shape *whole = by__absent(&out[0]) ? &s->in[0].shape : &out[0].shape;
    if (!first_split(s, whole, sh, &split)) {
        return false;
    }
    for (int i = 0; i < s->input_count; i++) {
        const by_shape *shape = &s->in[i].shape;
        int axis = split.axis - whole->rank + shape->rank; /* axis of the operand */
        bool repeats = by__absent(&s->in[i]) || axis < 0 || shape->dim[axis] == 1;
        by__graph_split want = repeats ? by__op_whole() : (by__graph_split){axis, split.sections};
        if (!by__op_split_equal(sh->in[i], want)) {
            return false;
        }
    }
    for (int i = 0; i < BY_MAX_OUTPUTS; i++) {
        sh->out[i] = by__absent(&out[i]) ? by__op_whole() : split;
    }
    return true;
}

bool by__op_shard_addends(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    int partial = 0;
    for (int i = 0; i < s->input_count; i++) {
        partial += sh->in[i].axis == BY__PARTIAL;
    }
    if (partial == 0) {
        return by__op_shard_elements(s, out, sh);
    }
    sh->out[0] = by__op_partial();
    return partial == s->input_count;
}

bool by__op_shard_factors(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    int partial = 0;
    int whole = 0;
    for (int i = 0; i < s->input_count; i++) {
        partial += sh->in[i].axis == BY__PARTIAL;
        whole += sh->in[i].axis == BY__WHOLE;
    }
    if (partial == 0) {
        return by__op_shard_elements(s, out, sh);
    }
    sh->out[0] = by__op_partial();
    return partial == 1 && whole == s->input_count - 1;
}

bool by__op_shard_places(const by__op_signature *s, by__op_sharding *sh, int axis, int64_t inner)
{
    int64_t extent = s->in[0].shape.dim[axis];
    int64_t begin = by__op_cut(extent, sh->ranks, sh->rank);
    if (sh->zigzag) {
        int64_t chunk = extent / (2 * sh->ranks);
        sh->attrs.begin += sh->rank * chunk * inner;
        sh->attrs.turn = chunk * inner;
        sh->attrs.gap = (2 * (sh->ranks - sh->rank) - 2) * chunk * inner;
        return s->attrs->gap == 0;
    }
    int64_t left = s->attrs->turn - begin * inner; /* entries before the gap */
    sh->attrs.begin += begin * inner + (left <= 0 ? s->attrs->gap : 0);
    sh->attrs.turn = left > 0 && s->attrs->gap > 0 ? left : 0;
    sh->attrs.gap = left > 0 ? s->attrs->gap : 0;
    return true;
}

bool by__op_shard_all_whole_but(const by__op_sharding *sh, int count, uint32_t split)
{
    for (int i = 0; i < count; i++) {
        if (!by__mask_has(split, i) && sh->in[i].axis != BY__WHOLE) {
            return false;
        }
    }
    return true;
}
