/* Passes over several data sets, one after another. */
#include <stdlib.h>
#include <string.h>

#include "banyan/data.h"
#include "base/base.h"

#define PART_LIMIT ((size_t)4096)

typedef struct joined_source {
    by_source base;
    by_source **parts;
    uint64_t *ends;     /* first sample after each part */
    size_t *scratch_at; /* offsets of the parts' own in a thread's scratch */
    size_t count;
} joined_source;

/* The part that contains a sample, or the last one; *own: the sample's index in it. */
static const by_source *part_at(const joined_source *j, const by_source_sample *sample,
                                by_source_sample *own)
{
    size_t i = 0;
    while (i + 1 < j->count && sample->place >= j->ends[i]) {
        i++;
    }
    *own = *sample;
    own->place -= i == 0 ? 0 : j->ends[i - 1];
    own->scratch = j->base.scratch > 0 ? (char *)sample->scratch + j->scratch_at[i] : NULL;
    return j->parts[i];
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    by_source_sample own;
    const by_source *part = part_at((const joined_source *)source, sample, &own);
    return part->fill(part, &own, rows, error);
}

static by_status count(const by_source *source, const by_source_sample *sample, uint64_t *targets,
                       by_error *error)
{
    by_source_sample own;
    const by_source *part = part_at((const joined_source *)source, sample, &own);
    if (part->count != NULL) {
        return part->count(part, &own, targets, error);
    }
    uint64_t before = own.place >= part->samples ? part->targets : own.place * part->sample_targets;
    uint64_t left = part->targets - before;
    *targets = left < part->sample_targets ? left : part->sample_targets;
    return BY_OK;
}

static bool replaces(const by_source *source, const by_source_sample *sample)
{
    by_source_sample own;
    const by_source *part = part_at((const joined_source *)source, sample, &own);
    return part->replaces != NULL && part->replaces(part, &own);
}

static by_status weigh(const by_source *source, const by_source_sample *sample, double *weight,
                       by_error *error)
{
    by_source_sample own;
    uint64_t targets;
    const by_source *part = part_at((const joined_source *)source, sample, &own);
    if (part->weigh != NULL) {
        return part->weigh(part, &own, weight, error);
    }
    BY_TRY(count(source, sample, &targets, error));
    *weight = (double)targets;
    return BY_OK;
}

static void close_source(by_source *source)
{
    joined_source *j = (joined_source *)source;
    for (size_t i = 0; i < j->count; i++) {
        by_source_close(&j->parts[i]);
    }
    free(j->parts);
    free(j->ends);
    free(j->scratch_at);
    free(j);
}

static bool fits(const by_source *a, const by_source *b)
{
    bool same = !b->shuffle && b->samples > 0 && a->array_count == b->array_count;
    for (size_t i = 0; same && i < a->array_count; i++) {
        same = strcmp(a->arrays[i].name, b->arrays[i].name) == 0 &&
               a->arrays[i].dtype == b->arrays[i].dtype &&
               by_shape_equal(&a->arrays[i].shape, &b->arrays[i].shape);
    }
    return same;
}

/* Takes ownership of the parts, also on failure. */
static by_status adopt_parts(joined_source *j, by_source *const *parts, size_t part_count,
                             uint64_t unit, uint64_t most, uint64_t *ends, by_error *error)
{
    j->count = part_count;
    memcpy(j->parts, parts, part_count * sizeof(by_source *));
    j->base = *parts[0];
    j->base.name = "joined data";
    j->base.samples = 0;
    j->base.scratch = 0;
    j->base.weigh = NULL;
    j->base.targets = 0;
    j->base.fill = fill;
    j->base.count = count;
    j->base.replaces = replaces;
    j->base.close = close_source;
    for (size_t i = 0; i < part_count; i++) {
        if (!fits(parts[0], parts[i])) {
            return by_error_set(error, BY_EARG, "%s and %s cannot follow each other in one pass",
                                parts[0]->name, parts[i]->name);
        }
        j->base.weigh = parts[i]->weigh == NULL ? j->base.weigh : weigh;
        uint64_t samples = (parts[i]->samples + unit - 1) / unit * unit;
        samples = most > 0 && most < samples ? most : samples;
        size_t scratch;
        j->scratch_at[i] = j->base.scratch;
        if (!by__size_add(parts[i]->scratch, BY_CACHE_LINE - 1, &scratch) ||
            !by__size_add(j->base.scratch, scratch & ~(size_t)(BY_CACHE_LINE - 1),
                          &j->base.scratch)) {
            return by_error_set(error, BY_EMEMORY, "joined data: size overflow: scratch");
        }
        uint64_t targets = samples * parts[i]->sample_targets;
        j->base.samples += samples;
        j->base.targets += targets < parts[i]->targets ? targets : parts[i]->targets;
        j->ends[i] = j->base.samples;
        ends[i] = j->base.samples;
    }
    return BY_OK;
}

by_status by_joined_source_open(by_source **out, by_source *const *parts, size_t part_count,
                                uint64_t unit, uint64_t most, uint64_t *ends, by_error *error)
{
    joined_source *j = NULL;
    by_status status =
        part_count > 0 && part_count <= PART_LIMIT && unit > 0 && most % unit == 0
            ? by__alloc((void **)&j, 1, sizeof *j, "joined data", error)
            : by_error_set(error, BY_EARG,
                           "%zu data sets one behind the other, in units of %llu, at most %llu "
                           "samples of each",
                           part_count, (unsigned long long)unit, (unsigned long long)most);
    if (status == BY_OK) {
        status = by__alloc((void **)&j->parts, part_count, sizeof *j->parts, "joined data", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&j->ends, part_count, sizeof *j->ends, "joined data", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&j->scratch_at, part_count, sizeof *j->scratch_at,
                           "joined data", error);
    }
    if (status != BY_OK) {
        for (size_t i = 0; i < part_count; i++) {
            by_source *owned = parts[i];
            by_source_close(&owned);
        }
        if (j != NULL) {
            close_source(&j->base);
        }
        return status;
    }
    status = adopt_parts(j, parts, part_count, unit, most, ends, error);
    if (status != BY_OK) {
        close_source(&j->base);
        return status;
    }
    *out = &j->base;
    return BY_OK;
}
