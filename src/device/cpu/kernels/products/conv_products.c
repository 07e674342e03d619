/* CONV and CONV_TRANSPOSED as products of matrices: a row of A is what a pixel of the result reads
 * (conv_rows.h), B the weights of the pixel's class (conv_plan.h).
 *
 * First all threads pack the weights into panels together, those of each class and group apart.
 * Then a thread takes tiles of pixels by channels of the result. It writes the tile's rows to its
 * scratch for a part of k at a time, so that they and a panel of B stay in its caches, and
 * multiplies them as they lie, or packed where the panel cannot read rows (panel.h). So no operand
 * exists as a whole in another form than the image, and a tile is large whatever the shape of the
 * image is. Sums are added in f32 in the order of k, whose division follows from the shape and the
 * panel alone: the bits do not depend on the number of threads.
 *
 * Where a pixel of the result reads one pixel, the same one, the operands are matrices already:
 * gemm.h.
 */
#include <omp.h>
#include <stdlib.h>

#include "device/cpu/gemm.h"
#include "device/cpu/kernels/products/conv_rows.h"
#include "device/cpu/panel.h"
#include "device/cpu/work_range.h"

/* Limits of a tile: rows, columns, and steps of k at a time. */
#define TILE_ROWS    128
#define TILE_COLUMNS 512
#define TILE_STEPS   256
/* Fewer tiles for a thread than this leave threads idle: tiles are made smaller. */
#define ENOUGH_TILES 8

typedef struct conv_state {
    conv_owned own;
    const by__cpu_panel *panel;
    int64_t tile_rows, tile_columns;
    int64_t across; /* tiles side by side */
    int64_t tiles;
    size_t row_bytes; /* of the scratch */
    bool packs;       /* rows are packed before they are multiplied */
    bool contiguous;  /* pixels of a class follow each other in the result */
    bool rearranges;  /* the weights */
    bool biased, added;
    int threads;
    size_t weights_offset, panels_offset, scratch_offset;
    size_t thread_bytes, packed_offset, sums_offset; /* of each thread's scratch */
} conv_state;

static bool is_transposed(const by__device_call *call)
{
    return call->op == BY_OP_CONV_TRANSPOSED;
}

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[1].dtype == call->in[0].dtype &&
           by__tensor_is_act(&call->out[0]) && by__tensor_count(&call->in[0]) > 0 &&
           by__tensor_count(&call->in[1]) > 0 && by__tensor_count(&call->out[0]) > 0 &&
           (!by__present(&call->in[2]) || by__tensor_is_act(&call->in[2]));
}

/* ---- plan ---- */

static by_status open_gemm(conv_state *s, const by__device_call *call, int threads, by_error *error)
{
    const by__device_tensor *x = &call->in[0];
    bool transposed = is_transposed(call);
    by__cpu_gemm_options o = {.m = by__tensor_rows(x),
                              .n = by__tensor_columns(&call->out[0]),
                              .k = by__tensor_columns(x),
                              .trans_b = !transposed,
                              .dtype = x->dtype,
                              .out = call->out[0].dtype,
                              .bias = by__present(&call->in[2]),
                              .bias_dtype = call->in[2].dtype,
                              .add = by__present(&call->in[3]),
                              .isa = BY__AT_LEVEL(BY__LEVEL),
                              .threads = threads};
    return by__cpu_gemm_open(&s->own.gemm, &o, error);
}

/* Divides k of each class into parts, and finds their runs. */
static by_status plan_parts(conv_state *s, by_error *error)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    const by__cpu_panel *p = s->panel;
    const int64_t most = (int64_t)TILE_STEPS * p->step;
    size_t parts = 0;
    size_t runs = 0;
    for (int64_t i = 0; i < plan->class_count; i++) {
        int64_t k = plan->classes[i].taps * plan->inner;
        parts += (size_t)by__ceil_div(k, most);
        /* A part ends or a tap does. */
        runs += (size_t)(plan->classes[i].taps + by__ceil_div(k, most));
    }
    BY_TRY(by__alloc((void **)&s->own.classes, (size_t)plan->class_count, sizeof *s->own.classes,
                     "a convolution", error));
    BY_TRY(
        by__alloc((void **)&s->own.parts, parts + 1, sizeof *s->own.parts, "a convolution", error));
    BY_TRY(by__alloc((void **)&s->own.runs, runs + 1, sizeof *s->own.runs, "a convolution", error));
    conv_part *part = s->own.parts;
    int64_t run = 0;
    for (int64_t i = 0; i < plan->class_count; i++) {
        int64_t k = plan->classes[i].taps * plan->inner;
        int64_t count = by__ceil_div(k, most);
        s->own.classes[i].parts = part;
        s->own.classes[i].part_count = count;
        s->own.classes[i].rows = plan->images * plan->classes[i].grid[0] * plan->classes[i].grid[1];
        int64_t depth =
            count == 0 ? 0 : by__ceil_div(by__ceil_div(k, count), p->k_unit) * p->k_unit;
        for (int64_t at = 0; at < k; at += depth) {
            part->k = at;
            part->depth = by__min_i64(depth, k - at);
            part->first_run = run;
            part->runs =
                conv_find_runs(s->own.runs + run, plan, &plan->classes[i], at, part->depth);
            run += part->runs;
            part++;
        }
        s->own.classes[i].part_count = part - s->own.classes[i].parts;
    }
    return BY_OK;
}

/* Chooses the tiles: smaller ones where there are few. The bits do not depend on them. */
static void plan_tiles(conv_state *s)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    const by__cpu_panel *p = s->panel;
    int64_t most = 0;
    for (int64_t i = 0; i < plan->class_count; i++) {
        most = s->own.classes[i].rows > most ? s->own.classes[i].rows : most;
    }
    int64_t down = by__ceil_div(most, TILE_ROWS / p->mr * p->mr);
    int64_t across = by__ceil_div(plan->outer, TILE_COLUMNS / p->nr * p->nr);
    s->tile_rows = by__ceil_div(by__ceil_div(most, down), p->mr) * p->mr;
    s->tile_columns = by__ceil_div(by__ceil_div(plan->outer, across), p->nr) * p->nr;
    int64_t enough = s->threads > 1 ? (int64_t)ENOUGH_TILES * s->threads : 1;
    for (;;) {
        s->across = by__ceil_div(plan->outer, s->tile_columns);
        int64_t tiles = 0;
        for (int64_t i = 0; i < plan->class_count; i++) {
            s->own.classes[i].first_tile = tiles;
            tiles += by__ceil_div(s->own.classes[i].rows, s->tile_rows) * plan->groups * s->across;
        }
        s->tiles = tiles;
        if (tiles >= enough) {
            return;
        }
        bool narrows = s->tile_columns > 2 * p->nr && s->tile_rows <= 4 * p->mr;
        if (narrows) {
            s->tile_columns = by__ceil_div(s->tile_columns, 2 * p->nr) * p->nr;
        } else if (s->tile_rows > p->mr) {
            s->tile_rows = by__ceil_div(s->tile_rows, 2 * p->mr) * p->mr;
        } else {
            return;
        }
    }
}

static by_status plan_memory(conv_state *s, by__device_call *call, by_error *error)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    const by__cpu_panel *p = s->panel;
    size_t size = by_dtype_size(call->in[0].dtype);
    size_t weights = s->rearranges ? (size_t)by__tensor_count(&call->in[1]) * size : 0;
    size_t panels = 0;
    int64_t deepest = p->k_unit;
    for (int64_t i = 0; i < plan->class_count; i++) {
        conv_class *class = &s->own.classes[i];
        int64_t k = plan->classes[i].taps * plan->inner;
        class->panels = panels;
        class->stride = by__panel_b_stride(p, k);
        panels += by__panel_b_bytes(p, plan->outer, k) * (size_t)plan->groups;
        for (int64_t n = 0; n < class->part_count; n++) {
            int64_t depth = by__panel_k(p, class->parts[n].depth);
            deepest = depth > deepest ? depth : deepest;
        }
    }
    s->row_bytes = by__round_up((size_t)deepest * size, BY_CACHE_LINE) + BY_CACHE_LINE;
    s->packs = !by__panel_reads_rows(p, deepest, s->row_bytes);
    size_t used = by__round_up((size_t)s->threads * sizeof(by__cpu_work_range), 4096);
    s->weights_offset = used;
    used += by__round_up(weights, 4096);
    s->panels_offset = used;
    used += by__round_up(panels, 4096);
    s->scratch_offset = used;
    size_t thread = by__round_up((size_t)(s->tile_rows + 1) * s->row_bytes, BY_CACHE_LINE);
    s->packed_offset = thread;
    thread +=
        s->packs ? by__round_up(by__panel_a_bytes(p, s->tile_rows, deepest), BY_CACHE_LINE) : 0;
    s->sums_offset = thread;
    thread += (size_t)(s->tile_rows * s->tile_columns) * sizeof(float);
    s->thread_bytes = by__round_up(thread, 4096);
    size_t scratch;
    if (!by__size_mul(s->thread_bytes, (size_t)s->threads, &scratch) ||
        !by__size_add(used, scratch, &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY, "a convolution does not fit in memory");
    }
    return BY_OK;
}

static by_status open_state(conv_state *s, by__device_call *call, int threads, by_error *error)
{
    const by__device_tensor *w = &call->in[1];
    s->threads = threads;
    if (by__cpu_conv_is_pointwise(&call->attrs, w->shape.dim[2], w->shape.dim[3])) {
        BY_TRY(open_gemm(s, call, threads, error));
        call->work_bytes = by__cpu_gemm_work(s->own.gemm);
        return BY_OK;
    }
    BY_TRY(by__cpu_conv_plan_open(&s->own.plan, &call->in[0], w, &call->out[0], &call->attrs,
                                  is_transposed(call), error));
    s->panel = by__cpu_panel_for(BY__AT_LEVEL(BY__LEVEL), by__cpu_panel_native(), w->dtype);
    s->biased = by__present(&call->in[2]);
    s->added = by__present(&call->in[3]);
    s->rearranges = s->own.plan.taps > 1;
    s->contiguous = s->own.plan.spacing[0] == 1 && s->own.plan.spacing[1] == 1;
    BY_TRY(plan_parts(s, error));
    plan_tiles(s);
    return plan_memory(s, call, error);
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    conv_state *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a convolution", error));
    call->state = s;
    by_status status = open_state(s, call, context->threads, error);
    if (status != BY_OK) {
        conv_release(call);
    }
    return status;
}

/* ---- weights ---- */

/* Rearranges the weights [O, channels, taps] of output o to rows of channels: for a convolution
 * [O, taps, channels], for a transposed one [groups, taps, O / groups, channels], with the taps in
 * the order of the plan. */
BY__INLINE void rearrange_output(const by__cpu_conv_plan *plan, const by__device_call *call,
                                 char *to, int64_t o, int64_t size)
{
    int64_t channels = call->in[1].shape.dim[1];
    int64_t outputs = call->in[1].shape.dim[0] / plan->groups;
    int64_t taps = plan->taps;
    bool transposed = is_transposed(call);
    const char *from = (const char *)call->in[1].data + o * channels * taps * size;
    for (int64_t t = 0; t < taps; t++) {
        int64_t row = transposed ? (o / outputs * taps + t) * outputs + o % outputs : o * taps + t;
        const char *in = from + plan->tap[t].weight * size;
        char *out = to + row * channels * size;
        if (size == 4) {
            for (int64_t c = 0; c < channels; c++) {
                ((uint32_t *)(void *)out)[c] = ((const uint32_t *)(const void *)in)[c * taps];
            }
        } else {
            for (int64_t c = 0; c < channels; c++) {
                ((uint16_t *)(void *)out)[c] = ((const uint16_t *)(const void *)in)[c * taps];
            }
        }
    }
}

/* Packs panel j of a class and a group. */
static void pack_panel(const conv_state *s, const by__device_call *call, const char *weights,
                       int64_t c, int64_t group, int64_t j)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    const by__cpu_panel *p = s->panel;
    const conv_class *class = &s->own.classes[c];
    int64_t k = plan->classes[c].taps * plan->inner;
    int64_t columns = by__min_i64(p->nr, plan->outer - j * p->nr);
    int64_t panels = by__ceil_div(plan->outer, p->nr);
    char *to = (char *)call->work + s->panels_offset + class->panels +
               (size_t)(group * panels + j) * class->stride;
    int64_t column_stride = is_transposed(call) ? 1 : k;
    int64_t k_stride = is_transposed(call) ? plan->outer : 1;
    int64_t at = is_transposed(call) ? (group * plan->taps + plan->classes[c].first_tap) *
                                               plan->inner * plan->outer +
                                           j * p->nr
                                     : (group * plan->outer + j * p->nr) * k;
    p->pack_b(to, class->stride, weights + (size_t)at * by_dtype_size(call->in[1].dtype),
              column_stride, k_stride, columns, k);
}

/* Called by all threads of the team; when it returns all is packed. */
static void pack_weights(const conv_state *s, const by__device_call *call)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    const char *weights = call->in[1].data;
    int64_t size = (int64_t)by_dtype_size(call->in[1].dtype);
    if (s->rearranges) {
        char *to = (char *)call->work + s->weights_offset;
        int64_t outputs = call->in[1].shape.dim[0];
        weights = to;
#pragma omp for schedule(static)
        for (int64_t o = 0; o < outputs; o++) {
            if (size == 4) {
                rearrange_output(plan, call, to, o, 4);
            } else {
                rearrange_output(plan, call, to, o, 2);
            }
        }
    }
    int64_t panels = by__ceil_div(plan->outer, s->panel->nr);
    int64_t all = plan->class_count * plan->groups * panels;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < all; i++) {
        int64_t c = i / panels / plan->groups;
        if (plan->classes[c].taps > 0) {
            pack_panel(s, call, weights, c, i / panels % plan->groups, i % panels);
        }
    }
}

/* ---- tiles ---- */

typedef struct conv_tile {
    const by__cpu_conv_class *class;
    const conv_class *own;
    int64_t group;
    int64_t row, rows;       /* pixels of the class */
    int64_t column, columns; /* channels of the group */
    conv_place places[TILE_ROWS];
} conv_tile;

/* Stores sums where the pixels of a class do not follow each other: row by row. */
static void store_rows(const conv_state *s, const conv_tile *t, const by__cpu_panel_target *all,
                       const float *sums)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    const by__cpu_conv_class *class = t->class;
    for (int64_t r = 0; r < t->rows;) {
        int64_t pixel = t->row + r;
        int64_t j = pixel % class->grid[1];
        int64_t i = pixel / class->grid[1] % class->grid[0];
        int64_t image = pixel / class->grid[1] / class->grid[0];
        int64_t count = by__min_i64(class->grid[1] - j, t->rows - r);
        int64_t row = image * plan->target[0] + class->origin[0] + i * plan->spacing[0];
        int64_t first = row * plan->target[1] + class->origin[1] + j * plan->spacing[1];
        by__cpu_panel_target target =
            by__panel_target_at(all, first, t->group * plan->outer + t->column);
        target.ldy = all->ldy * plan->spacing[1];
        s->panel->store(&target, sums + r * s->tile_columns, s->tile_columns, count, t->columns);
        r += count;
    }
}

static void fill_rows(const conv_state *s, const conv_tile *t, const conv_part *part, char *rows,
                      int64_t size)
{
    const conv_run *runs = s->own.runs + part->first_run;
    int64_t padded = by__panel_k(s->panel, part->depth);
    int64_t first = t->group * s->own.plan.inner;
    for (int64_t r = 0; r < t->rows; r++) {
        char *to = rows + (size_t)r * s->row_bytes;
        if (size == 4) {
            conv_fill_row(to, &s->own.plan, runs, part->runs, &t->places[r], first, padded, 4);
        } else {
            conv_fill_row(to, &s->own.plan, runs, part->runs, &t->places[r], first, padded, 2);
        }
    }
}

/* Adds the products of one part of k to a tile's sums. */
static void add_part(const conv_state *s, const by__device_call *call, const conv_tile *t,
                     const conv_part *part, char *scratch, const by__cpu_panel_target *target)
{
    const by__cpu_panel *p = s->panel;
    int64_t size = (int64_t)by_dtype_size(call->in[0].dtype);
    float *sums = (float *)(void *)(scratch + s->sums_offset);
    int64_t depth = by__panel_k(p, part->depth);
    size_t stride = t->own->stride;
    size_t panels = (size_t)by__ceil_div(s->own.plan.outer, p->nr);
    const char *b = (const char *)call->work + s->panels_offset + t->own->panels +
                    (size_t)t->group * panels * stride;
    const void *columns = by__panel_b_at(p, b, t->column, part->k, stride);
    fill_rows(s, t, part, scratch, size);
    if (s->packs) {
        char *packed = scratch + s->packed_offset;
        size_t a_stride = by__panel_a_stride(p, depth);
        p->pack_a(packed, a_stride, scratch, (int64_t)s->row_bytes / size, 1, t->rows, depth);
        p->multiply(sums, s->tile_columns, packed, a_stride, columns, stride, t->rows, t->columns,
                    depth, part->k > 0, target);
    } else {
        p->multiply_rows(sums, s->tile_columns, scratch, s->row_bytes, columns, stride, t->rows,
                         t->columns, depth, part->k > 0, target);
    }
}

static void compute_tile(const conv_state *s, const by__device_call *call, int64_t tile,
                         char *scratch)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    int64_t c = 0;
    conv_tile t;
    while (c + 1 < plan->class_count && s->own.classes[c + 1].first_tile <= tile) {
        c++;
    }
    tile -= s->own.classes[c].first_tile;
    t.class = &plan->classes[c];
    t.own = &s->own.classes[c];
    t.column = tile % s->across * s->tile_columns;
    t.columns = by__min_i64(s->tile_columns, plan->outer - t.column);
    tile /= s->across;
    int64_t down = by__ceil_div(t.own->rows, s->tile_rows);
    t.group = tile / down;
    t.row = tile % down * s->tile_rows;
    t.rows = by__min_i64(s->tile_rows, t.own->rows - t.row);
    conv_places(t.places, plan, t.class, call->in[0].data, t.row, t.rows,
                (int64_t)by_dtype_size(call->in[0].dtype));
    const by__cpu_panel_target all = {.y = call->out[0].data,
                                      .ldy = plan->target_channels,
                                      .dtype = call->out[0].dtype,
                                      .bias_dtype = call->in[2].dtype,
                                      .bias = s->biased ? call->in[2].data : NULL,
                                      .add = s->added ? call->in[3].data : NULL};
    by__cpu_panel_target target =
        by__panel_target_at(&all, t.row, t.group * plan->outer + t.column);
    float *sums = (float *)(void *)(scratch + s->sums_offset);
    if (t.own->part_count == 0) {
        memset(sums, 0, (size_t)(t.rows * s->tile_columns) * sizeof *sums);
    }
    for (int64_t n = 0; n < t.own->part_count; n++) {
        bool last = n + 1 == t.own->part_count;
        add_part(s, call, &t, &t.own->parts[n], scratch, last && s->contiguous ? &target : NULL);
    }
    if (!s->contiguous || t.own->part_count == 0) {
        store_rows(s, &t, &all, sums);
    }
}

/* What each thread of the team does. */
static void compute(const conv_state *s, const by__device_call *call)
{
    int me = omp_get_thread_num();
    int team = omp_get_num_threads();
    by__cpu_work_range *ranges = call->work;
    char *scratch = (char *)call->work + s->scratch_offset + (size_t)me * s->thread_bytes;
    by__work_range_open(ranges, s->tiles, me, team);
    pack_weights(s, call);
    int64_t tile;
    while ((tile = by__work_range_claim(ranges, me, team)) >= 0) {
        compute_tile(s, call, tile, scratch);
    }
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    const conv_state *s = call->state;
    BY_UNUSED(context);
    if (s->own.gemm != NULL) {
        by__cpu_gemm_operands operands = {.a = call->in[0].data,
                                          .b = call->in[1].data,
                                          .bias = call->in[2].data,
                                          .add = call->in[3].data,
                                          .c = call->out[0].data,
                                          .work = call->work};
        by__cpu_gemm_run(s->own.gemm, &operands);
        return BY_OK;
    }
#pragma omp parallel num_threads(s->threads) if (s->threads > 1)
    compute(s, call);
    return BY_OK;
}

BY__KERNEL(conv) = {BY_OP_CONV, BY__KERNEL_NAME("conv"), supports, prepare, conv_release, run};
BY__KERNEL(conv_transposed) = {BY_OP_CONV_TRANSPOSED,
                               BY__KERNEL_NAME("conv_transposed"),
                               supports,
                               prepare,
                               conv_release,
                               run};
