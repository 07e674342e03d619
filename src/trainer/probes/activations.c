#include "trainer/probes/activations.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/probes/probes.h"
#include "trainer/state/activation_values.h"

static const char prefix[] = "activation.";

/* ---- plan ---- */

static const by__trainer_measured *find(const by__trainer_activations *a, const char *name)
{
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->items[i].name, name) == 0) {
            return &a->items[i];
        }
    }
    return NULL;
}

/* The measured value of an output; NULL: it is not one. */
static const by__graph_value *measured_value(const by_graph *graph, size_t v)
{
    const by__graph_value *out = &graph->values[v];
    bool is_one = out->role == BY_ROLE_OUTPUT && out->producer >= 0 &&
                  strncmp(out->name, prefix, sizeof prefix - 1) == 0;
    return is_one ? &graph->values[graph->nodes[out->producer].in[0]] : NULL;
}

static by_status list_row(by__trainer_activations *a, const by_graph *graph, size_t unit,
                          by__trainer_range *r, by_error *error)
{
    bool is_first = true;
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = measured_value(graph, v);
        const by__trainer_measured *known = value == NULL ? NULL : find(a, graph->values[v].name);
        if (value == NULL) {
            continue;
        }
        if (known == NULL) {
            BY_TRY(by__reserve((void **)&a->items, &a->capacity, a->count + 1, sizeof *a->items,
                               error));
            size_t bytes = by__round_up(by__graph_value_bytes(&graph->values[v]), unit);
            a->items[a->count] = (by__trainer_measured){.name = graph->values[v].name,
                                                        .elements = by_shape_count(&value->shape),
                                                        .at = a->bytes,
                                                        .bytes = bytes};
            known = &a->items[a->count++];
            a->bytes += bytes;
        }
        r->at = is_first ? known->at : r->at;
        r->bytes += known->bytes;
        is_first = false;
    }
    return BY_OK;
}

by_status by__trainer_activations_plan(by_trainer *t, by_error *error)
{
    if (t->config->track.activations_every == 0) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&t->probes.activations, 1, sizeof *t->probes.activations,
                     "activations", error));
    by__trainer_activations *a = t->probes.activations;
    BY_TRY(
        by__alloc((void **)&a->ranges, t->programs.count, sizeof *a->ranges, "activations", error));
    for (size_t i = 0; i < t->programs.count; i++) {
        BY_TRY(list_row(a, t->programs.rows[i]->graph, by__device_unit(t->device), &a->ranges[i],
                        error));
    }
    return by__alloc((void **)&a->sums, a->count * BY__ACTIVATION_NUMBERS + 1, sizeof *a->sums,
                     "activations", error);
}

/* ---- memory ---- */

static size_t step_bytes(const by_trainer *t)
{
    return (size_t)t->part.micro_batches * t->probes.activations->bytes;
}

size_t by__trainer_activations_bytes(const by_trainer *t)
{
    return t->probes.activations == NULL
               ? 0
               : t->probes.activations->bytes + (1 + BY_STEPS_AHEAD) * step_bytes(t);
}

by_status by__trainer_activations_open(by_trainer *t, by_error *error)
{
    by__trainer_activations *a = t->probes.activations;
    if (a == NULL || a->count == 0) {
        return BY_OK;
    }
    BY_TRY(by_device_alloc(&a->numbers, t->device, a->bytes + step_bytes(t),
                           "statistics of activations", error));
    BY_TRY(by_device_pin(&a->host, t->device, BY_STEPS_AHEAD * step_bytes(t),
                         "statistics of activations", error));
    for (size_t i = 0; i < t->programs.count; i++) {
        for (size_t k = 0; k < a->count; k++) {
            BY_TRY(by__exec_row_bind(t->programs.rows[i], a->items[k].name,
                                     by_memory_at(a->numbers, a->items[k].at, a->items[k].bytes),
                                     error));
        }
    }
    return BY_OK;
}

void by__trainer_activations_close(by_trainer *t)
{
    by__trainer_activations *a = t->probes.activations;
    if (a != NULL) {
        by_device_free(&a->numbers);
        by_device_unpin(&a->host);
        free(a->items);
        free(a->ranges);
        free(a->sums);
        free(a);
        t->probes.activations = NULL;
    }
}

/* ---- a step ---- */

static char *host_of(const by_trainer *t, unsigned slot)
{
    return (char *)t->probes.activations->host.data + slot * step_bytes(t);
}

by_status by__trainer_activations_fetch(by_trainer *t, unsigned slot, by_error *error)
{
    by__trainer_activations *a = t->probes.activations;
    if (a == NULL) {
        return BY_OK;
    }
    a->is_due[slot] = (t->steps.updates + 1) % t->config->track.activations_every == 0;
    if (!a->is_due[slot] || a->count == 0) {
        return BY_OK;
    }
    return by__device_copy_out(BY__QUEUE_COMPUTE, host_of(t, slot),
                               by_memory_at(a->numbers, a->bytes, step_bytes(t)), error);
}

/* Adds the numbers of a micro-batch. */
static void add(double *sums, const by__trainer_measured *m, const float *blocks)
{
    int64_t count = (m->elements + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK;
    sums[BY__ACTIVATION_COUNT] += (double)m->elements;
    for (const float *b = blocks; b < blocks + count * BY_MEASURES; b += BY_MEASURES) {
        sums[BY__ACTIVATION_SUM] += (double)b[BY_MEASURE_SUM];
        sums[BY__ACTIVATION_SQUARES] += (double)b[BY_MEASURE_SQUARES];
        sums[BY__ACTIVATION_ZEROS] += (double)b[BY_MEASURE_ZEROS];
        sums[BY__ACTIVATION_NONFINITE] += (double)b[BY_MEASURE_NONFINITE];
        sums[BY__ACTIVATION_LARGEST] =
            fmax(sums[BY__ACTIVATION_LARGEST], (double)b[BY_MEASURE_LARGEST]);
    }
}

void by__trainer_activations_collect(by_trainer *t, unsigned slot)
{
    by__trainer_activations *a = t->probes.activations;
    if (a == NULL) {
        return;
    }
    a->is_known = a->is_due[slot];
    memset(a->sums, 0, a->count * BY__ACTIVATION_NUMBERS * sizeof *a->sums);
    for (int64_t i = 0; i < t->part.micro_batches && a->is_known; i++) {
        const char *numbers = host_of(t, slot) + (size_t)i * a->bytes;
        for (size_t k = 0; k < a->count; k++) {
            add(a->sums + k * BY__ACTIVATION_NUMBERS, &a->items[k],
                (const float *)(const void *)(numbers + a->items[k].at));
        }
    }
}

size_t by__trainer_activations_count(const by_trainer *t)
{
    return t->probes.activations == NULL ? 0 : t->probes.activations->count;
}

const char *by__trainer_activations_name(const by_trainer *t, size_t i)
{
    return t->probes.activations->items[i].name + sizeof prefix - 1;
}

const double *by__trainer_activations_numbers(const by_trainer *t)
{
    return t->probes.activations != NULL && t->probes.activations->is_known
               ? t->probes.activations->sums
               : NULL;
}
