/* What a layout takes: the time of a step and the memory of its most loaded
 * rank, from what the parts of the model take. */
#include <math.h>

#include "plan/search/search.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* ---- stages ---- */

static double passes_of(const by__search_block *b, int section)
{
    return b->passes[section][0].total + b->passes[section][1].total;
}

/* Blocks that `stages` stages hold of which none takes longer than `bound`. */
static double blocks_within(double bound, double begin, double end, double each, int64_t stages)
{
    if (stages == 1) {
        return floor((bound - begin - end) / each);
    }
    double first = floor((bound - begin) / each);
    double last = floor((bound - end) / each);
    return first < 0.0 || last < 0.0 ? -1.0
                                     : first + last + (double)(stages - 2) * floor(bound / each);
}

static void add_bytes(by__search_bytes *sum, const by__search_bytes *b, double times)
{
    sum->elements += times * b->elements;
    sum->matrices += times * b->matrices;
    sum->weights += times * b->weights;
    sum->gradients += times * b->gradients;
    sum->optimizer += times * b->optimizer;
}

/* Adds the passes of a stage: `blocks` blocks, and one of the ends or both. */
static void add_stage(by__layout_time *out, double *backward, const by__search_block *b,
                      int64_t blocks, bool begin, bool end)
{
    for (int pass = 0; pass < 2; pass++) {
        double before = out->total;
        int64_t middle = blocks;
        if (begin) {
            by__layout_add(out, &b->passes[BY__SECTION_BEGIN][pass], 1.0);
        }
        if (begin && middle > 0) {
            by__layout_add(out, &b->passes[BY__SECTION_FIRST][pass], 1.0);
            middle--;
        }
        if (end && middle > 0) {
            by__layout_add(out, &b->passes[BY__SECTION_LAST][pass], 1.0);
            middle--;
        }
        by__layout_add(out, &b->passes[BY__SECTION_MIDDLE][pass], (double)middle);
        if (end) {
            by__layout_add(out, &b->passes[BY__SECTION_END][pass], 1.0);
        }
        *backward = pass == 1 ? out->total - before : 0.0;
    }
}

/* Times the stages of each kind, of so many blocks, and keeps the slowest: the last block may take
 * less than others. */
static void set_slowest(by__search_stages *s, const by__search_block *b, double first, double last,
                        double inner, bool alone)
{
    const struct {
        double blocks;
        bool begins;
        bool ends;
    } kinds[] = {{first, true, alone}, {last, alone, true}, {inner, false, false}};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(kinds); k++) {
        by__layout_time time = {0};
        double backward;
        add_stage(&time, &backward, b, (int64_t)kinds[k].blocks, kinds[k].begins, kinds[k].ends);
        if (time.total > s->slowest) {
            s->slowest = time.total;
            s->time = time;
            s->backward = backward;
        }
    }
}

/* Divides the blocks so that the slowest stage takes least. */
static void divide_stages(by__search_stages *out, const by__search_model *model,
                          const by__search_profile *profile, const by__search_block *b,
                          int64_t stages)
{
    double each = passes_of(b, BY__SECTION_MIDDLE);
    double begin = passes_of(b, BY__SECTION_BEGIN);
    double end = passes_of(b, BY__SECTION_END);
    double layers = (double)model->layers;
    double best = INFINITY;
    /* The slowest stage is one of the first, the last or those between, with
   * whole blocks. */
    const double ends[] = {0.0, begin, end, begin + end};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(ends); k++) {
        for (int64_t n = 0; n <= model->layers; n++) {
            double bound = (ends[k] + (double)n * each) * (1.0 + 1e-12);
            if (bound < best && blocks_within(bound, begin, end, each, stages) >= layers) {
                best = bound;
                break;
            }
        }
    }
    by__search_stages s = {.mean = (begin + end + layers * each) / (double)stages};
    bool alone = stages == 1;
    double first = alone ? layers : smaller(floor((best - begin) / each), layers);
    double last = alone ? layers : smaller(floor((best - end) / each), layers);
    double inner = stages > 2 ? smaller(floor(best / each), layers) : 0.0;
    s.blocks = (int64_t)larger(larger(first, last), inner);
    set_slowest(&s, b, first, last, inner, alone);
    s.inner = alone ? 0.0 : inner > 0.0 ? inner : first < last ? first : last;
    /* Memory: that of the first stage, which holds most micro-batches, and of
   * whichever end is larger. */
    add_bytes(&s.bytes, &profile->bytes[BY__SECTION_MIDDLE], (double)s.blocks);
    const by__search_bytes *begins = &profile->bytes[BY__SECTION_BEGIN];
    const by__search_bytes *finishes = &profile->bytes[BY__SECTION_END];
    if (alone) {
        add_bytes(&s.bytes, begins, 1.0);
        add_bytes(&s.bytes, finishes, 1.0);
    } else {
        add_bytes(&s.bytes, begins->weights > finishes->weights ? begins : finishes, 1.0);
    }
    s.gathered = larger(profile->bytes[BY__SECTION_MIDDLE].elements,
                        larger(begins->elements, finishes->elements));
    *out = s;
}

/* Exchanges along `tensor` that run beside the products of their pass. */
static void hide_tensor(by__search_block *block, const by_cluster *cluster)
{
    for (int i = 0; i < BY__SECTIONS * 2; i++) {
        by__layout_time *t = &block->passes[i / 2][i % 2];
        double all = t->seconds[BY_LAYOUT_TENSOR];
        double left = by__layout_beside(cluster, t->seconds[BY_LAYOUT_PRODUCTS], all);
        t->seconds[BY_LAYOUT_TENSOR] = left;
        t->hidden[BY_LAYOUT_TENSOR] += all > left ? all - left : 0.0;
        t->total += left - all;
    }
}

/* A rank holds `chunks` stages, of which only one has an end of the model. */
void by__search_rank_stages(by__search_stages *out, const by__search_model *model,
                            const by__search_profile *profile, const by__search_block *block,
                            int64_t ranks, int64_t chunks)
{
    by__search_stages s;
    by__search_block b = *block;
    double others = (double)(chunks - 1);
    if (model->overlaps_tensor) {
        hide_tensor(&b, model->cluster);
    }
    divide_stages(&s, model, profile, &b, ranks * chunks);
    const by__layout_time *middle = b.passes[BY__SECTION_MIDDLE];
    for (int pass = 0; pass < 2; pass++) {
        by__layout_add(&s.time, &middle[pass], others * s.inner);
    }
    s.slowest = s.time.total;
    s.mean *= (double)chunks;
    s.backward += others * s.inner * middle[1].total;
    add_bytes(&s.bytes, &profile->bytes[BY__SECTION_MIDDLE], others * (double)s.blocks);
    s.blocks *= chunks;
    *out = s;
}

/* ---- time ---- */

typedef struct cost_work {
    by_search_choice *choice;
    const by__search_model *model;
    const by__search_profile *profile;
    const by__search_block *block;
    const by__search_stages *stages;
    by__layout_job job;
    double replicas;
    double shard;
    double elements; /* trained, of the rank */
} cost_work;

static double exchange(const cost_work *w, by_exchange what, double bytes, unsigned mesh)
{
    const by_exchange_group group = by__layout_group(&w->job, mesh);
    return by_cluster_exchange(w->model->cluster, what, bytes, &group);
}

/* The same in `parts` exchanges, one after another. */
static double in_parts(const cost_work *w, by_exchange what, double bytes, unsigned mesh,
                       double parts)
{
    return exchange(w, what, bytes, mesh) + larger(parts - 1.0, 0.0) * exchange(w, what, 0.0, mesh);
}

/* Buckets of gradients: an eighth of them, within bounds (parallel.bucket_mib).
 */
static double count_buckets(const cost_work *w)
{
    double size = smaller(larger(w->elements / 8.0, 65536.0), 1048576.0);
    size = w->model->bucket > 0.0 ? w->model->bucket : size;
    return ceil(w->elements / size);
}

static const unsigned shard_axis = 1u << BY_MESH_SHARD;
static const unsigned data_axis = 1u << BY_MESH_DATA;
static const unsigned sequence_axis = 1u << BY_MESH_SEQUENCE;

/* What zero 2 and 3 add to each micro-batch: sums of gradients to their owners,
 * and gathers. */
static void add_rounds(const cost_work *w, double *terms)
{
    double scatter = in_parts(w, BY_EXCHANGE_REDUCE_SCATTER, w->model->gradient * w->elements,
                              shard_axis, count_buckets(w));
    double gather = in_parts(w, BY_EXCHANGE_ALL_GATHER, w->model->weight * w->elements, shard_axis,
                             w->stages->bytes.matrices);
    double rounds = (double)w->choice->micro_batches;
    if (w->choice->zero < 2 || w->shard <= 1.0) {
        return;
    }
    if (w->choice->zero == 2) {
        double backward = w->stages->backward;
        terms[BY_LAYOUT_GRADIENTS] +=
            rounds *
            (w->model->overlap ? by__layout_beside(w->model->cluster, backward, scatter) : scatter);
        return;
    }
    double all = scatter + 2.0 * gather;
    double forward = w->stages->slowest - w->stages->backward;
    /* The first block of the pass forward waits for its gather, and the pass backward, which ends
     * with it, for the sum of its gradients. */
    double first = smaller(1.0, w->stages->gathered / larger(w->elements, 1.0));
    double more = all;
    if (w->model->overlap) {
        double last = scatter * first;
        double backward = w->stages->backward;
        double others = scatter - last + gather;
        /* A gather queues behind the sums of the blocks before it. Where a block's exchanges take
         * about as long as the block, one or the other waits; the longer of two that differ does
         * not. */
        double beside = backward * others / larger(hypot(backward, others), 1e-30);
        more = by__layout_beside(w->model->cluster, forward, gather) + last +
               by__layout_beside(w->model->cluster, beside, others);
    }
    more += gather * first;
    terms[BY_LAYOUT_GRADIENTS] += rounds * more * scatter / all;
    terms[BY_LAYOUT_WEIGHTS] += rounds * more * 2.0 * gather / all;
}

/* Sums of gradients after the last micro-batch, or behind its backward pass. */
static void add_gradients(const cost_work *w, double *terms)
{
    double bytes = w->model->gradient * w->elements;
    bool rounds = w->choice->zero >= 2 && w->shard > 1.0;
    bool scatters = w->shard > 1.0;
    unsigned axes = data_axis | sequence_axis | (rounds ? 0u : shard_axis);
    double parts = count_buckets(w);
    double seconds =
        in_parts(w, scatters && !rounds ? BY_EXCHANGE_REDUCE_SCATTER : BY_EXCHANGE_ALL_REDUCE,
                 rounds ? bytes / w->shard : bytes, axes, parts);
    if (!rounds && w->model->overlap && w->choice->sizes[BY_MESH_PIPELINE] == 1) {
        /* The last bucket begins when the pass ends. */
        double last = seconds / parts;
        /* Collectives of the pass itself queue behind those of gradients. */
        bool queues = w->choice->sizes[BY_MESH_TENSOR] * w->choice->sizes[BY_MESH_SEQUENCE] *
                          w->choice->sizes[BY_MESH_EXPERT] >
                      1;
        double beside = queues ? 0.5 * w->stages->backward : w->stages->backward;
        seconds = last + by__layout_beside(w->model->cluster, beside, seconds - last);
    }
    terms[BY_LAYOUT_GRADIENTS] += seconds;
    if (scatters && w->choice->zero < 3) {
        terms[BY_LAYOUT_WEIGHTS] +=
            exchange(w, BY_EXCHANGE_ALL_GATHER, w->model->weight * w->elements, shard_axis);
    }
}

static void add_pipeline(const cost_work *w, double *terms)
{
    const by_search_choice *c = w->choice;
    double p = (double)c->sizes[BY_MESH_PIPELINE];
    double chunks = (double)c->chunks;
    if (p <= 1.0) {
        return;
    }
    bool splits = c->sequence_parallel || w->model->splits_sends;
    double bytes = w->model->hidden * (double)c->micro_batch /
                   (double)(c->sizes[BY_MESH_SEQUENCE] * c->sizes[BY_MESH_EXPERT]) /
                   (splits ? (double)c->sizes[BY_MESH_TENSOR] : 1.0);
    double send = exchange(w, BY_EXCHANGE_SHIFT, bytes, 1u << BY_MESH_PIPELINE);
    double m = (double)c->micro_batches;
    /* With micro-batches left over, the last chunks wait (Calculon's closed
   * form). */
    double left = fmod(m, p);
    double rest = c->chunks > 1 && left > 0.0 ? (chunks - 1.0) * (p - left) : 0.0;
    terms[BY_LAYOUT_BUBBLE] += ((p - 1.0) * w->stages->mean + rest * w->stages->slowest) / chunks;
    /* Of a micro-batch: a rank that has nothing to send waits for one that has. */
    double sends = 2.0 * chunks * send;
    if (w->model->overlaps_sends) {
        sends = by__layout_beside(w->model->cluster, w->stages->slowest, sends);
    }
    terms[BY_LAYOUT_PIPELINE] += m * sends + 2.0 * (p - 1.0) * send;
    if (w->profile->tied > 0.0) { /* the head's gradient of each micro-batch, and new values */
        double bytes_of = w->profile->tied;
        terms[BY_LAYOUT_PIPELINE] +=
            m * exchange(w, BY_EXCHANGE_SHIFT, 4.0 * bytes_of, 1u << BY_MESH_PIPELINE) +
            exchange(w, BY_EXCHANGE_SHIFT, w->model->weight * bytes_of, 1u << BY_MESH_PIPELINE);
    }
}

static double set_time(const cost_work *w)
{
    double *terms = w->choice->terms;
    double m = (double)w->choice->micro_batches;
    double own = w->elements / (w->shard > 1.0 ? w->shard : 1.0);
    double seconds = 0.0;
    for (int part = 0; part < BY_LAYOUT_PARTS; part++) {
        terms[part] = m * w->stages->time.seconds[part];
    }
    add_rounds(w, terms);
    add_gradients(w, terms);
    add_pipeline(w, terms);
    if (w->choice->zero < 2 && w->model->adds) {
        terms[BY_LAYOUT_SUMS] += (m - 1.0) * w->profile->sum * w->elements;
    }
    terms[BY_LAYOUT_UPDATE] += w->profile->update * own + w->model->cluster->device.step;
    for (int part = 0; part < BY_LAYOUT_PARTS; part++) {
        seconds += terms[part];
    }
    return seconds;
}

/* ---- memory ---- */

/* Micro-batches whose activations the first rank of a pipeline holds, in units
 * of its blocks. */
static double in_flight(const by_search_choice *c)
{
    double p = (double)c->sizes[BY_MESH_PIPELINE];
    double m = (double)c->micro_batches;
    double v = (double)c->chunks;
    double held = c->chunks > 1 ? p * (1.0 + (p - 1.0) / (p * v)) : p;
    return p <= 1.0 ? 1.0 : smaller(held, m);
}

/* The buffer from which slices are saved. */
static double staging_of(const cost_work *w, double own)
{
    double small = 67108864.0;
    return !w->model->saves || w->shard <= 1.0 ? 0.0 : larger(own / 4.0, smaller(own, small));
}

static double memory_of(const cost_work *w)
{
    const by_search_choice *c = w->choice;
    const by__search_bytes *b = &w->stages->bytes;
    const by__search_block *block = w->block;
    double s = w->shard;
    bool copies = w->model->master > 0.0;
    double masters = copies ? w->model->master * b->elements : 0.0;
    double used = b->weights - masters;
    double sets = c->zero >= 2 && s > 1.0 ? w->model->divided_sets : w->model->whole_sets;
    double bytes = s > 1.0 && c->zero >= 3 ? (masters + used) / s : masters / s + used;
    bytes += b->gradients * sets / (s > 1.0 && c->zero >= 2 ? s : 1.0) + b->optimizer / s;
    if (s > 1.0 && c->zero >= 2) { /* gradients that were not sent yet */
        bytes += 2.0 * 4.0 * w->stages->gathered;
    }
    if (s > 1.0 && c->zero >= 3) {
        bytes += 2.0 * w->model->weight * w->stages->gathered;
    }
    bytes += staging_of(w, ((copies ? masters : used) + b->optimizer) / s);
    bytes += in_flight(c) * (double)w->stages->blocks * block->kept + block->base;
    return bytes + block->workspace + w->profile->fixed;
}

void by__search_memory(by_search_choice *choice, const by__search_model *model,
                       const by__search_profile *profile, const by__search_block *block,
                       const by__search_stages *stages)
{
    const cost_work w = {.choice = choice,
                         .model = model,
                         .profile = profile,
                         .block = block,
                         .stages = stages,
                         .shard = (double)choice->sizes[BY_MESH_SHARD]};
    choice->memory = memory_of(&w);
}

void by__search_cost(by_search_choice *choice, const by__search_model *model,
                     const by__search_profile *profile, const by__search_block *block,
                     const by__search_stages *stages)
{
    cost_work w = {.choice = choice,
                   .model = model,
                   .profile = profile,
                   .block = block,
                   .stages = stages,
                   .job = {.cluster = model->cluster, .ranks = (int)choice->devices},
                   .shard = (double)choice->sizes[BY_MESH_SHARD],
                   .elements = stages->bytes.elements};
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        w.job.sizes[axis] = choice->sizes[axis];
    }
    w.replicas = (double)choice->sizes[BY_MESH_DATA] * w.shard;
    choice->seconds = set_time(&w);
}
