/* Samples of several sources in given proportions.
 *
 * The part that sample i comes from, and its index there, are a pure function of i, so that a mix
 * needs no state: a loader may seek, and any number of ranks take their shares. The parts are the
 * leaves of a binary tree. At a node whose left half has the share p, sample j goes left exactly if
 * floor((j + 1) p) > floor(j p), the balanced sequence of slope p (Bresenham 1965; Morse and
 * Hedlund 1940): of any n consecutive samples the left half gets floor(n p) or one more. Sample j
 * has index floor(j p) in the left half, or index j - floor(j p) in the right one, and so on down
 * the tree. For proportions in expectation the positions of a block are permuted pseudo-randomly,
 * and each part's samples keep their order.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/data.h"
#include "base/base.h"
#include "data/loader/order.h"

#define PART_LIMIT  ((size_t)4096)
#define STAGE_LIMIT ((size_t)4096)
/* Samples that are permuted together. */
#define BLOCK ((size_t)4096)
/* Weights of a stage are scaled to integers that add up to about this: a share is exact to
 * 2^-31. */
#define WEIGHT_UNIT 2147483648.0
#define STREAM_MIX  0x6d6978u /* "mix" in ASCII */

typedef struct part {
    by_source *source;
    uint64_t seed; /* of its order; derived from the loader's seed */
    by__loader_order order;
    uint64_t epoch; /* epoch of `order` */
    bool has_order;
    uint64_t next; /* next sample, while a block is filled */
} part;

typedef struct stage {
    uint64_t first;    /* first sample */
    uint64_t *before;  /* [parts] samples of each part in earlier stages */
    uint64_t *weights; /* [parts + 1] prefix sums of the parts' weights */
} stage;

/* The origin of a sample. */
typedef struct place {
    uint64_t number; /* index among all samples of the part */
    size_t part;
} place;

typedef struct mix_source {
    by_source base;
    part *parts;
    size_t part_count;
    stage *stages;
    size_t stage_count;
    uint64_t *numbers;    /* memory of the stages' numbers */
    struct place *block;  /* [BLOCK]; NULL: not permuted */
    uint64_t block_first; /* first sample, in its stage, of the current `block` */
    bool has_block;
    uint64_t seed; /* from which the parts' seeds are derived */
    bool has_seed;
} mix_source;

/* ---- shares ---- */

/* floor(n share / 2^32) for n <= 2^62 and share <= 2^32. */
static uint64_t part_of(uint64_t n, uint64_t share)
{
    return (n >> 32) * share + ((n & UINT32_MAX) * share >> 32);
}

/* The share of the parts [begin, middle) among [begin, end), whose weight is not 0. */
static uint64_t left_share(const stage *s, size_t begin, size_t middle, size_t end)
{
    uint64_t left = s->weights[middle] - s->weights[begin];
    uint64_t all = s->weights[end] - s->weights[begin];
    return left == all ? (uint64_t)1 << 32 : (left << 32) / all;
}

/* Number of samples of part `index` among the first `n` of a stage. */
static uint64_t count_of(const stage *s, size_t parts, size_t index, uint64_t n)
{
    size_t begin = 0;
    size_t end = parts;
    while (end - begin > 1 && n > 0) {
        size_t middle = begin + (end - begin) / 2;
        uint64_t left = part_of(n, left_share(s, begin, middle, end));
        n = index < middle ? left : n - left;
        *(index < middle ? &end : &begin) = middle;
    }
    return n;
}

/* The part of sample `n` of a stage; *number: its index in the part within this stage. */
static size_t part_at(const stage *s, size_t parts, uint64_t n, uint64_t *number)
{
    size_t begin = 0;
    size_t end = parts;
    while (end - begin > 1) {
        size_t middle = begin + (end - begin) / 2;
        uint64_t share = left_share(s, begin, middle, end);
        uint64_t left = part_of(n, share);
        bool goes_left = part_of(n + 1, share) > left;
        n = goes_left ? left : n - left;
        *(goes_left ? &end : &begin) = middle;
    }
    *number = n;
    return begin;
}

/* ---- samples ---- */

static const stage *stage_of(const mix_source *m, size_t *index, uint64_t sample)
{
    size_t i = m->stage_count - 1;
    while (m->stages[i].first > sample) {
        i--;
    }
    *index = i;
    return &m->stages[i];
}

static place place_of(const mix_source *m, const stage *s, uint64_t n)
{
    place out;
    out.part = part_at(s, m->part_count, n, &out.number);
    out.number += s->before[out.part];
    return out;
}

/* Fills m->block for the block of a stage that begins at its sample `first`: the parts of the
 * balanced sequence there, permuted, each with its next samples. */
static void shuffle_block(mix_source *m, size_t index, uint64_t first, uint64_t seed)
{
    const stage *s = &m->stages[index];
    by__loader_order order;
    size_t count = BLOCK;
    if (index + 1 < m->stage_count && m->stages[index + 1].first - s->first - first < BLOCK) {
        count = (size_t)(m->stages[index + 1].first - s->first - first);
    }
    for (size_t i = 0; i < m->part_count; i++) {
        m->parts[i].next = s->before[i] + count_of(s, m->part_count, i, first);
    }
    by__loader_order_init(&order, count, by__loader_order_seed(seed, STREAM_MIX), s->first + first);
    for (size_t i = 0; i < count; i++) {
        uint64_t unused;
        size_t at = part_at(s, m->part_count, first + by__loader_order_at(&order, i), &unused);
        m->block[i] = (place){.number = m->parts[at].next++, .part = at};
    }
}

static place shuffled_place_of(mix_source *m, size_t index, uint64_t n, uint64_t seed)
{
    uint64_t first = n - n % BLOCK;
    uint64_t block_first = m->stages[index].first + first;
    if (!m->has_block || m->block_first != block_first) {
        shuffle_block(m, index, first, seed);
        m->block_first = block_first;
        m->has_block = true;
    }
    return m->block[n % BLOCK];
}

static void reseed(mix_source *m, uint64_t seed)
{
    if (!m->has_seed || m->seed != seed) {
        for (size_t i = 0; i < m->part_count; i++) {
            m->parts[i].seed = by__loader_order_seed(seed, i);
            m->parts[i].has_order = false;
        }
        m->seed = seed;
        m->has_seed = true;
        m->has_block = false;
    }
}

/* Finds the part of a sample, and its index in it. */
static part *find_sample(const by_source *source, const by_source_sample *sample,
                         by_source_sample *own)
{
    /* Modifies only caches of the last sample: orders, and the block. */
    mix_source *m = (mix_source *)(uintptr_t)source;
    size_t index;
    reseed(m, sample->seed);
    const stage *s = stage_of(m, &index, sample->index);
    uint64_t n = sample->index - s->first;
    place at = m->block == NULL ? place_of(m, s, n) : shuffled_place_of(m, index, n, sample->seed);
    part *p = &m->parts[at.part];
    uint64_t epoch = at.number / p->source->samples;
    if (!p->has_order || p->epoch != epoch) {
        by__loader_order_init(&p->order, p->source->samples, p->seed, epoch);
        p->epoch = epoch;
        p->has_order = true;
    }
    *own =
        (by_source_sample){.place = by__loader_order_at(&p->order, at.number % p->source->samples),
                           .epoch = epoch,
                           .index = at.number,
                           .seed = p->seed};
    return p;
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    by_source_sample own;
    const part *p = find_sample(source, sample, &own);
    return p->source->fill(p->source, &own, rows, error);
}

static by_status count_sample(const by_source *source, const by_source_sample *sample,
                              uint64_t *targets, by_error *error)
{
    by_source_sample own;
    const part *p = find_sample(source, sample, &own);
    *targets = p->source->sample_targets;
    return p->source->count == NULL ? BY_OK : p->source->count(p->source, &own, targets, error);
}

static bool replaces(const by_source *source, const by_source_sample *sample)
{
    by_source_sample own;
    const part *p = find_sample(source, sample, &own);
    return p->source->replaces != NULL && p->source->replaces(p->source, &own);
}

/* ---- opening ---- */

static void close_source(by_source *source)
{
    mix_source *m = (mix_source *)source;
    for (size_t i = 0; i < m->part_count; i++) {
        by_source_close(&m->parts[i].source);
    }
    free(m->parts);
    free(m->stages);
    free(m->numbers);
    free(m->block);
    free(m);
}

static bool same_arrays(const by_source *a, const by_source *b)
{
    bool same = a->array_count == b->array_count;
    for (size_t i = 0; same && i < a->array_count; i++) {
        same = strcmp(a->arrays[i].name, b->arrays[i].name) == 0 &&
               a->arrays[i].dtype == b->arrays[i].dtype &&
               by_shape_equal(&a->arrays[i].shape, &b->arrays[i].shape);
    }
    return same;
}

static by_status check_parts(by_source *const *parts, size_t count, by_error *error)
{
    if (count == 0 || count > PART_LIMIT) {
        return by_error_set(error, BY_EARG, "a mix of %zu sources; it needs from 1 to %zu", count,
                            PART_LIMIT);
    }
    for (size_t i = 0; i < count; i++) {
        const by_source *p = parts[i];
        if (!p->shuffle || p->samples == 0) {
            return by_error_set(error, BY_EARG,
                                "%s: a part of a mix must be a source with epochs (shuffle)",
                                p->name);
        }
        if (!same_arrays(p, parts[0]) || p->sample_targets != parts[0]->sample_targets) {
            return by_error_set(error, BY_EARG,
                                "%s and %s cannot be mixed: their samples have other arrays",
                                parts[0]->name, p->name);
        }
    }
    return BY_OK;
}

/* Computes the integer weights of a stage. */
static by_status weigh(const mix_source *m, const stage *s, const double *weights, by_error *error)
{
    double sum = 0.0;
    for (size_t i = 0; i < m->part_count; i++) {
        if (!(weights[i] >= 0.0) || !isfinite(weights[i])) {
            return by_error_set(error, BY_EARG, "%s: weight %g of a mix must be at least 0",
                                m->parts[i].source->name, weights[i]);
        }
        sum += weights[i];
    }
    if (!(sum > 0.0) || !isfinite(sum)) {
        return by_error_set(error, BY_EARG, "the weights of a mix add up to %g", sum);
    }
    s->weights[0] = 0;
    for (size_t i = 0; i < m->part_count; i++) {
        double whole = rint(weights[i] / sum * WEIGHT_UNIT);
        whole = weights[i] > 0.0 && whole < 1.0 ? 1.0 : whole;
        s->weights[i + 1] = s->weights[i] + (uint64_t)whole;
    }
    return BY_OK;
}

static by_status open_stages(mix_source *m, const by_mix_options *o, by_error *error)
{
    size_t row = 2 * m->part_count + 1;
    if (o->stage_count == 0 || o->stage_count > STAGE_LIMIT || o->stages[0].first != 0) {
        return by_error_set(error, BY_EARG,
                            "a mix has from 1 to %zu stages, of which the first begins at sample 0",
                            STAGE_LIMIT);
    }
    BY_TRY(by__alloc((void **)&m->stages, o->stage_count, sizeof *m->stages, "a mix", error));
    BY_TRY(
        by__alloc((void **)&m->numbers, o->stage_count * row, sizeof *m->numbers, "a mix", error));
    for (size_t i = 0; i < o->stage_count; i++) {
        stage *s = &m->stages[i];
        *s = (stage){.first = o->stages[i].first,
                     .before = m->numbers + i * row,
                     .weights = m->numbers + i * row + m->part_count};
        if (i > 0 && s->first <= s[-1].first) {
            return by_error_set(error, BY_EARG,
                                "stage %zu of a mix begins at sample %llu, not behind the one "
                                "before it",
                                i, (unsigned long long)s->first);
        }
        BY_TRY(weigh(m, s, o->stages[i].weights, error));
        for (size_t k = 0; k < m->part_count; k++) {
            s->before[k] = i == 0 ? 0
                                  : s[-1].before[k] +
                                        count_of(&s[-1], m->part_count, k, s->first - s[-1].first);
        }
        m->stage_count = i + 1;
    }
    return BY_OK;
}

by_status by_mix_source_open(by_source **out, by_source *const *parts, size_t count,
                             const by_mix_options *options, by_error *error)
{
    mix_source *m = NULL;
    by_status status = check_parts(parts, count, error);
    if (status == BY_OK) {
        status = by__alloc((void **)&m, 1, sizeof *m, "a mix", error);
    }
    if (status == BY_OK) {
        *m = (mix_source){.part_count = 0};
        status = by__alloc((void **)&m->parts, count, sizeof *m->parts, "a mix", error);
    }
    if (status != BY_OK) {
        for (size_t i = 0; i < count; i++) {
            by_source *owned = parts[i];
            by_source_close(&owned);
        }
        free(m);
        return status;
    }
    m->base = *parts[0];
    m->base.name = "mix";
    m->base.samples = 0;
    m->base.targets = 0;
    m->base.count = NULL;
    m->base.replaces = NULL;
    m->base.fill = fill;
    m->base.close = close_source;
    m->part_count = count;
    for (size_t i = 0; i < count; i++) {
        m->parts[i] = (part){.source = parts[i]};
        m->base.count = parts[i]->count == NULL ? m->base.count : count_sample;
        m->base.replaces = parts[i]->replaces == NULL ? m->base.replaces : replaces;
        m->base.samples += parts[i]->samples;
        m->base.targets += parts[i]->targets;
    }
    status = open_stages(m, options, error);
    if (status == BY_OK && options->shuffle) {
        status = by__alloc((void **)&m->block, BLOCK, sizeof *m->block, "a mix", error);
    }
    if (status != BY_OK) {
        close_source(&m->base);
        return status;
    }
    *out = &m->base;
    return BY_OK;
}
