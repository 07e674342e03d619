#include "trainer/probes/layer_norms.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/graphs/graphs.h"
#include "trainer/probes/probes.h"

/* Contiguous elements of a tensor, within a group, that this rank measures. */
typedef struct norm_piece {
    by__store_handle entry;
    by__store_part part;
    size_t kept; /* offset of its weights in bytes */
    size_t at;   /* offset of its numbers in bytes */
} norm_piece;

struct by__trainer_layer_norms {
    norm_piece *pieces;
    size_t count;
    size_t capacity;
    by__exec_program_row *gradients;
    by__exec_program_row *weights;
    int bound_set;     /* gradient set it is bound to; -1: none */
    by_memory kept;    /* weights before the update */
    by_memory numbers; /* results of MEASURE for gradients, then for weights */
    by_pinned host;    /* the same for each step in flight */
    size_t kept_bytes;
    size_t numbers_bytes; /* for gradients, and as many for weights */
    bool measured[BY_STEPS_AHEAD];
    double *sums;
    double loss_scale; /* scale contained in the gradients of the last collected step */
    bool is_known;     /* sums are those of the last collected step */
};

static bool is_due(const by_trainer *t, int64_t step)
{
    int64_t every = t->config->track.norms_every;
    return every > 0 && step % every == 0;
}

/* ---- pieces ---- */

/* Returns true if this rank is the first of those that hold the same part of a group; the division
 * by `shard` is handled elsewhere. */
static bool is_first(const by_trainer *t, int group)
{
    uint32_t divides = by__group_mesh(group) | 1u << BY_MESH_SHARD | 1u << BY_MESH_PIPELINE;
    bool first = true;
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        first = first && ((divides >> axis & 1u) != 0 || t->layout.place[axis] == 0);
    }
    return first;
}

static bool trains(const by_trainer *t, const by__store_tensor *entry)
{
    return entry->trainable && is_first(t, entry->group) &&
           by__trainer_holder_of(t, entry->name) == t->layout.place[BY_MESH_PIPELINE];
}

static by_status add_piece(by_trainer *t, by__store_handle handle, by__store_part part,
                           by_error *error)
{
    by__trainer_layer_norms *n = t->probes.norms;
    if (part.count == 0) {
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&n->pieces, &n->capacity, n->count + 1, sizeof *n->pieces, error));
    size_t unit = by__device_unit(t->device);
    size_t elements = (size_t)part.count;
    size_t blocks = (elements + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK;
    n->pieces[n->count++] = (norm_piece){handle, part, n->kept_bytes, n->numbers_bytes};
    n->kept_bytes += by__round_up(elements * sizeof(float), unit);
    n->numbers_bytes += by__round_up(blocks * BY_MEASURES * sizeof(float), unit);
    return BY_OK;
}

static by_status list_pieces(by_trainer *t, by_error *error)
{
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        by__store_handle handle = (by__store_handle)i;
        by__store_part all = by__store_entry_part(t->store, handle);
        if (!trains(t, by__store_entry(t->store, handle))) {
            continue;
        }
        for (size_t k = 0; k < t->shard.own_count; k++) {
            by__store_part part = by__store_part_common(all, t->shard.own[k].part);
            BY_TRY(add_piece(t, handle, part, error));
        }
    }
    return BY_OK;
}

static by_memory memory_of(const by_trainer *t, int flat, const norm_piece *p)
{
    return by__store_memory(t->store, flat, p->part);
}

/* ---- programs ---- */

/* Dtype of the weights of a piece. */
static by_dtype format_of(const by_trainer *t, const norm_piece *p)
{
    return by__store_group_dtype(t->store, t->flats.masters, p->part.group);
}

static by_value input(by_graph *graph, const char *kind, size_t i, by_dtype dtype, int64_t count)
{
    char name[48];
    (void)snprintf(name, sizeof name, "%s.%zu", kind, i);
    return by_graph_input(graph, name, dtype, BY_SHAPE(count));
}

static void output(by_graph *graph, by_value x, by_value y, size_t i)
{
    char name[48];
    (void)snprintf(name, sizeof name, "measures.%zu", i);
    by_graph_output(graph, by__op_build_measure(graph, x, y), name);
}

/* Measures gradients, and copies the weights: adding 0 is a copy by all threads. */
static by_status build_gradients(const by_trainer *t, by_graph *graph, by_error *error)
{
    for (size_t i = 0; i < t->probes.norms->count; i++) {
        char name[48];
        const norm_piece *p = &t->probes.norms->pieces[i];
        by_value zero = by_fill(graph, format_of(t, p), BY_SHAPE(1), 0.0f);
        by_value weights = input(graph, "weights", i, format_of(t, p), p->part.count);
        output(graph, input(graph, "gradient", i, BY_F32, p->part.count), BY_NONE, i);
        (void)snprintf(name, sizeof name, "kept.%zu", i);
        by_graph_output(graph, by_add(graph, weights, zero), name);
    }
    return by_graph_check(graph, error);
}

static by_status build_weights(const by_trainer *t, by_graph *graph, by_error *error)
{
    for (size_t i = 0; i < t->probes.norms->count; i++) {
        const norm_piece *p = &t->probes.norms->pieces[i];
        by_value after = input(graph, "weights", i, format_of(t, p), p->part.count);
        output(graph, after, input(graph, "kept", i, format_of(t, p), p->part.count), i);
    }
    return by_graph_check(graph, error);
}

by_status by__trainer_layers_plan(by_trainer *t, by_error *error)
{
    const by_track_config *track = &t->config->track;
    if (t->flats.sets == 0 || (track->norms_every == 0 && track->histograms_every == 0)) {
        return BY_OK;
    }
    if (!t->updater->in_memory) {
        return by_error_set(error, BY_ECONFIG,
                            "track.norms_every and track.histograms_every read weights from "
                            "memory, but offload.optimizer: disk keeps them on disk: set both to "
                            "0, or offload.optimizer: none");
    }
    BY_TRY(by__alloc((void **)&t->probes.norms, 1, sizeof *t->probes.norms, "norms", error));
    t->probes.norms->bound_set = -1;
    BY_TRY(by__alloc((void **)&t->probes.norms->sums, by__store_count(t->store) * BY__NORMS,
                     sizeof *t->probes.norms->sums, "norms", error));
    BY_TRY(list_pieces(t, error));
    if (track->norms_every == 0 || t->probes.norms->count == 0) {
        return BY_OK;
    }
    BY_TRY(by__trainer_add_update(t, "gradient measures", build_gradients,
                                  &t->probes.norms->gradients, error));
    return by__trainer_add_update(t, "weight measures", build_weights, &t->probes.norms->weights,
                                  error);
}

/* ---- memory ---- */

size_t by__trainer_layers_bytes(const by_trainer *t)
{
    const by__trainer_layer_norms *n = t->probes.norms;
    return n == NULL || t->config->track.norms_every == 0
               ? 0
               : n->kept_bytes + 2 * (1 + BY_STEPS_AHEAD) * n->numbers_bytes;
}

static by_status bind(by__exec_program_row *row, const char *kind, size_t i, by_memory memory,
                      by_error *error)
{
    char name[48];
    (void)snprintf(name, sizeof name, "%s.%zu", kind, i);
    return by__exec_row_bind(row, name, memory, error);
}

by_status by__trainer_layers_open(by_trainer *t, by_error *error)
{
    by__trainer_layer_norms *n = t->probes.norms;
    if (by__trainer_layers_bytes(t) == 0) {
        return BY_OK;
    }
    BY_TRY(by_device_alloc(&n->kept, t->device, n->kept_bytes, "weights before an update", error));
    BY_TRY(by_device_alloc(&n->numbers, t->device, 2 * n->numbers_bytes, "norms", error));
    BY_TRY(
        by_device_pin(&n->host, t->device, BY_STEPS_AHEAD * 2 * n->numbers_bytes, "norms", error));
    for (size_t i = 0; i < n->count; i++) {
        const norm_piece *p = &n->pieces[i];
        size_t bytes = (size_t)((p->part.count + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK) * BY_MEASURES *
                       sizeof(float);
        by_memory kept = by_memory_at(n->kept, p->kept, memory_of(t, t->flats.masters, p).bytes);
        BY_TRY(bind(n->weights, "weights", i, memory_of(t, t->flats.masters, p), error));
        BY_TRY(bind(n->weights, "kept", i, kept, error));
        BY_TRY(bind(n->gradients, "weights", i, memory_of(t, t->flats.masters, p), error));
        BY_TRY(bind(n->gradients, "kept", i, kept, error));
        BY_TRY(bind(n->gradients, "measures", i, by_memory_at(n->numbers, p->at, bytes), error));
        BY_TRY(bind(n->weights, "measures", i,
                    by_memory_at(n->numbers, n->numbers_bytes + p->at, bytes), error));
    }
    return BY_OK;
}

void by__trainer_layers_close(by_trainer *t)
{
    if (t->probes.norms != NULL) {
        by_device_free(&t->probes.norms->kept);
        by_device_free(&t->probes.norms->numbers);
        by_device_unpin(&t->probes.norms->host);
        free(t->probes.norms->pieces);
        free(t->probes.norms->sums);
        free(t->probes.norms);
        t->probes.norms = NULL;
    }
}

/* ---- a step ---- */

by_status by__trainer_layers_before_update(by_trainer *t, unsigned slot, by_error *error)
{
    by__trainer_layer_norms *n = t->probes.norms;
    if (n == NULL) {
        return BY_OK;
    }
    n->measured[slot] = is_due(t, t->steps.updates + 1);
    if (!n->measured[slot] || n->count == 0) {
        return BY_OK;
    }
    for (size_t i = 0; i < n->count && n->bound_set != t->flats.sum_set; i++) {
        by_memory gradient = memory_of(t, t->flats.gradient_sets[t->flats.sum_set], &n->pieces[i]);
        BY_TRY(bind(n->gradients, "gradient", i, gradient, error));
    }
    n->bound_set = t->flats.sum_set;
    return by_program_submit(n->gradients->program, error);
}

static char *host_of(const by__trainer_layer_norms *n, unsigned slot)
{
    return (char *)n->host.data + slot * 2 * n->numbers_bytes;
}

by_status by__trainer_layers_after_update(by_trainer *t, unsigned slot, by_error *error)
{
    by__trainer_layer_norms *n = t->probes.norms;
    if (n == NULL || !n->measured[slot] || n->count == 0) {
        return BY_OK;
    }
    BY_TRY(by_program_submit(n->weights->program, error));
    return by__device_copy_out(BY__QUEUE_COMPUTE, host_of(n, slot), n->numbers, error);
}

void by__trainer_layers_collect(by_trainer *t, unsigned slot)
{
    by__trainer_layer_norms *n = t->probes.norms;
    if (n == NULL) {
        return;
    }
    n->is_known = n->measured[slot];
    n->loss_scale = t->probes.guard.loss_scale.scale;
    if (!n->is_known) {
        return;
    }
    memset(n->sums, 0, by__store_count(t->store) * BY__NORMS * sizeof *n->sums);
    for (size_t i = 0; i < n->count; i++) {
        const norm_piece *p = &n->pieces[i];
        const float *gradient = (const float *)(const void *)(host_of(n, slot) + p->at);
        const float *weight = gradient + n->numbers_bytes / sizeof *gradient;
        double *sums = n->sums + (size_t)p->entry * BY__NORMS;
        int64_t blocks = (p->part.count + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK;
        for (int64_t k = 0; k < blocks * BY_MEASURES; k += BY_MEASURES) {
            sums[BY__NORM_GRADIENT] +=
                (double)gradient[k + BY_MEASURE_SQUARES] / (n->loss_scale * n->loss_scale);
            sums[BY__NORM_WEIGHT] += (double)weight[k + BY_MEASURE_SQUARES];
            sums[BY__NORM_UPDATE] += (double)weight[k + BY_MEASURE_APART];
        }
    }
}

const double *by__trainer_layers_sums(const by_trainer *t)
{
    return t->probes.norms != NULL && t->probes.norms->is_known ? t->probes.norms->sums : NULL;
}

bool by__trainer_layers_has(const by_trainer *t, by__store_handle entry)
{
    bool has = false;
    for (size_t i = 0; t->probes.norms != NULL && i < t->probes.norms->count; i++) {
        has = has || t->probes.norms->pieces[i].entry == entry;
    }
    return has;
}

/* ---- histograms ---- */

#define BUCKET_SHIFT 21 /* low bits of an f32 that a bucket ignores */
#define HALF         (BY__BUCKETS / 2)

/* The bucket of a finite value. */
static uint32_t bucket_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t magnitude = (bits & 0x7fffffffu) >> BUCKET_SHIFT;
    return bits >> 31 != 0 ? HALF - 1 - magnitude : HALF + magnitude;
}

double by__trainer_bucket_limit(uint32_t bucket)
{
    /* The least magnitude of a negative bucket, or that of the bucket after a positive one. */
    uint32_t bits = (bucket < HALF ? HALF - 1 - bucket : bucket - HALF + 1) << BUCKET_SHIFT;
    float value;
    memcpy(&value, &bits, sizeof value);
    value = isfinite(value) ? value : FLT_MAX;
    return bucket < HALF ? -(double)value : (double)value;
}

static void count_values(const float *values, size_t n, float factor, double counts[BY__BUCKETS],
                         double facts[4])
{
    for (size_t i = 0; i < n; i++) {
        float single = values[i] * factor;
        double value = (double)single;
        if (isfinite(single)) {
            counts[bucket_of(single)] += 1.0;
            facts[0] += value;
            facts[1] += value * value;
            facts[2] = value < facts[2] ? value : facts[2];
            facts[3] = value > facts[3] ? value : facts[3];
        }
    }
}

by_status by__trainer_layers_histogram(const by_trainer *t, by__store_handle entry, bool gradient,
                                       double counts[BY__BUCKETS], double facts[4], by_error *error)
{
    enum { most = 1 << 18 };
    float *values;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&values, most, sizeof *values, "histogram", error));
    for (size_t i = 0; i < t->probes.norms->count; i++) {
        const norm_piece *p = &t->probes.norms->pieces[i];
        int flat = gradient ? t->flats.gradient_sets[t->flats.sum_set] : t->flats.masters;
        by_dtype dtype = gradient ? BY_F32 : format_of(t, p);
        size_t size = by_dtype_size(dtype);
        for (int64_t at = 0; p->entry == entry && at < p->part.count && status == BY_OK;
             at += most) {
            size_t n = (size_t)(p->part.count - at < most ? p->part.count - at : most);
            by_memory part = by_memory_at(memory_of(t, flat, p), (size_t)at * size, n * size);
            char *raw = (char *)(values + n) - n * size;
            status = by_device_read(raw, part, error);
            if (status == BY_OK) {
                by__store_widen(values, raw, dtype, n);
                count_values(values, n,
                             gradient ? (float)(1.0 / t->probes.norms->loss_scale) : 1.0f, counts,
                             facts);
            }
        }
    }
    free(values);
    return status;
}
