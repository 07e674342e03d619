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

/* What a thread remembers of the last sample of a part. */
typedef struct part_memory {
    uint64_t seed; /* of its order; derived from the loader's seed */
    by__loader_order order;
    uint64_t epoch; /* epoch of `order` */
    bool has_order;
    uint64_t next; /* next sample, while a block is filled */
} part_memory;

/* What a thread remembers of the last sample. Behind it in a thread's scratch: the part_memory of
 * each part, the block if there are any, and the scratch of each part's source. */
typedef struct mix_memory {
    uint64_t seed; /* from which the parts' seeds are derived */
    bool has_seed;
    uint64_t block_first; /* first sample, in its stage, of the current block */
    bool has_block;
} mix_memory;

typedef struct mix_stage {
    uint64_t first;    /* first sample */
    uint64_t *before;  /* [parts] samples of each part in earlier stages */
    uint64_t *weights; /* [parts + 1] prefix sums of the parts' weights */
} mix_stage;

/* The origin of a sample. */
typedef struct mix_place {
    uint64_t number; /* index among all samples of the part */
    size_t part;
} mix_place;

typedef struct mix_source {
    by_source base;
    by_source **parts;
    size_t part_count;
    mix_stage *stages;
    size_t stage_count;
    uint64_t *numbers;  /* memory of the stages' numbers */
    bool shuffle;       /* samples are permuted in blocks */
    size_t parts_at;    /* offsets in a thread's scratch: of [part_count] part_memory, */
    size_t block_at;    /* of [BLOCK] place, */
    size_t *scratch_at; /* [part_count]: and of the parts' own scratch */
} mix_source;

/* ---- shares ---- */

/* floor(n share / 2^32) for n <= 2^62 and share <= 2^32. */
static uint64_t part_of(uint64_t n, uint64_t share)
{
    return (n >> 32) * share + ((n & UINT32_MAX) * share >> 32);
}

/* The share of the parts [begin, middle) among [begin, end), whose weight is not 0. */
static uint64_t left_share(const mix_stage *s, size_t begin, size_t middle, size_t end)
{
    uint64_t left = s->weights[middle] - s->weights[begin];
    uint64_t all = s->weights[end] - s->weights[begin];
    return left == all ? (uint64_t)1 << 32 : (left << 32) / all;
}

/* Number of samples of part `index` among the first `n` of a stage. */
static uint64_t count_of(const mix_stage *s, size_t parts, size_t index, uint64_t n)
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
static size_t part_at(const mix_stage *s, size_t parts, uint64_t n, uint64_t *number)
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

static const mix_stage *stage_of(const mix_source *m, size_t *index, uint64_t sample)
{
    size_t i = m->stage_count - 1;
    while (m->stages[i].first > sample) {
        i--;
    }
    *index = i;
    return &m->stages[i];
}

static mix_place place_of(const mix_source *m, const mix_stage *s, uint64_t n)
{
    mix_place out;
    out.part = part_at(s, m->part_count, n, &out.number);
    out.number += s->before[out.part];
    return out;
}

static part_memory *parts_of(const mix_source *m, mix_memory *memory)
{
    return (part_memory *)(void *)((char *)memory + m->parts_at);
}

static mix_place *block_of(const mix_source *m, mix_memory *memory)
{
    return (mix_place *)(void *)((char *)memory + m->block_at);
}

/* Fills the block of a stage that begins at its sample `first`: the parts of the balanced sequence
 * there, permuted, each with its next samples. */
static void shuffle_block(const mix_source *m, mix_memory *memory, size_t index, uint64_t first,
                          uint64_t seed)
{
    const mix_stage *s = &m->stages[index];
    part_memory *parts = parts_of(m, memory);
    mix_place *block = block_of(m, memory);
    by__loader_order order;
    size_t count = BLOCK;
    if (index + 1 < m->stage_count && m->stages[index + 1].first - s->first - first < BLOCK) {
        count = (size_t)(m->stages[index + 1].first - s->first - first);
    }
    for (size_t i = 0; i < m->part_count; i++) {
        parts[i].next = s->before[i] + count_of(s, m->part_count, i, first);
    }
    by__loader_order_init(&order, count, by__loader_order_seed(seed, STREAM_MIX), s->first + first);
    for (size_t i = 0; i < count; i++) {
        uint64_t unused;
        size_t at = part_at(s, m->part_count, first + by__loader_order_at(&order, i), &unused);
        block[i] = (mix_place){.number = parts[at].next++, .part = at};
    }
}

static mix_place shuffled_place_of(const mix_source *m, mix_memory *memory, size_t index,
                                   uint64_t n, uint64_t seed)
{
    uint64_t first = n - n % BLOCK;
    uint64_t block_first = m->stages[index].first + first;
    if (!memory->has_block || memory->block_first != block_first) {
        shuffle_block(m, memory, index, first, seed);
        memory->block_first = block_first;
        memory->has_block = true;
    }
    return block_of(m, memory)[n % BLOCK];
}

static void reseed(const mix_source *m, mix_memory *memory, uint64_t seed)
{
    if (!memory->has_seed || memory->seed != seed) {
        part_memory *parts = parts_of(m, memory);
        for (size_t i = 0; i < m->part_count; i++) {
            parts[i].seed = by__loader_order_seed(seed, i);
            parts[i].has_order = false;
        }
        memory->seed = seed;
        memory->has_seed = true;
        memory->has_block = false;
    }
}

/* Finds the part of a sample, and its index in it. */
static const by_source *find_sample(const by_source *source, const by_source_sample *sample,
                                    by_source_sample *own)
{
    const mix_source *m = (const mix_source *)source;
    mix_memory *memory = sample->scratch;
    size_t index;
    reseed(m, memory, sample->seed);
    const mix_stage *s = stage_of(m, &index, sample->index);
    uint64_t n = sample->index - s->first;
    mix_place at =
        m->shuffle ? shuffled_place_of(m, memory, index, n, sample->seed) : place_of(m, s, n);
    const by_source *part = m->parts[at.part];
    part_memory *p = &parts_of(m, memory)[at.part];
    uint64_t epoch = at.number / part->samples;
    if (!p->has_order || p->epoch != epoch) {
        by__loader_order_init(&p->order, part->samples, p->seed, epoch);
        p->epoch = epoch;
        p->has_order = true;
    }
    *own = (by_source_sample){.place = by__loader_order_at(&p->order, at.number % part->samples),
                              .epoch = epoch,
                              .index = at.number,
                              .seed = p->seed,
                              .scratch = (char *)memory + m->scratch_at[at.part]};
    return part;
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    by_source_sample own;
    const by_source *part = find_sample(source, sample, &own);
    return part->fill(part, &own, rows, error);
}

static by_status count_sample(const by_source *source, const by_source_sample *sample,
                              uint64_t *targets, by_error *error)
{
    by_source_sample own;
    const by_source *part = find_sample(source, sample, &own);
    *targets = part->sample_targets;
    return part->count == NULL ? BY_OK : part->count(part, &own, targets, error);
}

static bool replaces(const by_source *source, const by_source_sample *sample)
{
    by_source_sample own;
    const by_source *part = find_sample(source, sample, &own);
    return part->replaces != NULL && part->replaces(part, &own);
}

static by_status weigh_sample(const by_source *source, const by_source_sample *sample,
                              double *weight, by_error *error)
{
    by_source_sample own;
    uint64_t targets;
    const by_source *part = find_sample(source, sample, &own);
    if (part->weigh != NULL) {
        return part->weigh(part, &own, weight, error);
    }
    BY_TRY(count_sample(source, sample, &targets, error));
    *weight = (double)targets;
    return BY_OK;
}

/* ---- opening ---- */

static void close_source(by_source *source)
{
    mix_source *m = (mix_source *)source;
    for (size_t i = 0; i < m->part_count; i++) {
        by_source_close(&m->parts[i]);
    }
    free(m->parts);
    free(m->stages);
    free(m->numbers);
    free(m->scratch_at);
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
static by_status weigh(const mix_source *m, const mix_stage *s, const double *weights,
                       by_error *error)
{
    double sum = 0.0;
    for (size_t i = 0; i < m->part_count; i++) {
        if (!(weights[i] >= 0.0) || !isfinite(weights[i])) {
            return by_error_set(error, BY_EARG, "%s: weight %g of a mix must be at least 0",
                                m->parts[i]->name, weights[i]);
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
        mix_stage *s = &m->stages[i];
        *s = (mix_stage){.first = o->stages[i].first,
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

/* Lays out the scratch of a thread. */
static by_status plan_scratch(mix_source *m, by_error *error)
{
    size_t bytes;
    size_t size = by__round_up(sizeof(mix_memory), BY_CACHE_LINE);
    m->parts_at = size;
    size = by__round_up(size + m->part_count * sizeof(part_memory), BY_CACHE_LINE);
    m->block_at = size;
    size = by__round_up(size + (m->shuffle ? BLOCK * sizeof(mix_place) : 0), BY_CACHE_LINE);
    BY_TRY(
        by__alloc((void **)&m->scratch_at, m->part_count, sizeof *m->scratch_at, "a mix", error));
    for (size_t i = 0; i < m->part_count; i++) {
        m->scratch_at[i] = size;
        if (!by__size_add(m->parts[i]->scratch, BY_CACHE_LINE - 1, &bytes) ||
            !by__size_add(size, bytes & ~(size_t)(BY_CACHE_LINE - 1), &size)) {
            return by_error_set(error, BY_EMEMORY, "a mix: size overflow: scratch");
        }
    }
    m->base.scratch = size;
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
    m->base.weigh = NULL;
    m->base.fill = fill;
    m->base.close = close_source;
    m->part_count = count;
    m->shuffle = options->shuffle;
    for (size_t i = 0; i < count; i++) {
        m->parts[i] = parts[i];
        m->base.count = parts[i]->count == NULL ? m->base.count : count_sample;
        m->base.replaces = parts[i]->replaces == NULL ? m->base.replaces : replaces;
        m->base.weigh = parts[i]->weigh == NULL ? m->base.weigh : weigh_sample;
        m->base.samples += parts[i]->samples;
        m->base.targets += parts[i]->targets;
    }
    status = open_stages(m, options, error);
    if (status == BY_OK) {
        status = plan_scratch(m, error);
    }
    if (status != BY_OK) {
        close_source(&m->base);
        return status;
    }
    *out = &m->base;
    return BY_OK;
}
