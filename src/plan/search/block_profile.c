/* Compiles models of three and of four blocks for some micro-batches, and from
 * their differences tells what parts of a model take at any micro-batch.
 *
 * Times of a part at other micro-batches are between those of the nearest that
 * were compiled: operations and bytes have a part for the weights and one for
 * each example. The arena grows in the same way, and by the same amount with
 * each block. */
#include <stdlib.h>
#include <string.h>

#include "plan/search/search.h"

enum { FEW = 3, MORE = 4 };
/* Points whose arenas are compared between models of FEW and of MORE blocks. */
enum { FIRST_ARENA = 1, SECOND_ARENA = 3 };

void by__search_profile_free(by__search_profile *p)
{
    for (int k = 0; k < BY__SEARCH_POINTS; k++) {
        by__layout_work_free(&p->points[k].work);
        free(p->points[k].section);
        p->points[k].section = NULL;
    }
    by__layout_work_free(&p->update_work);
    by__layout_work_free(&p->ring_work);
}

/* Units of the micro-batch of a point. */
static int64_t units_of(int point)
{
    return (int64_t)1 << point;
}

/* ---- small models ---- */

static by_status set(by_config *config, by_error *error, const char *key, long long value)
{
    char text[96];
    (void)snprintf(text, sizeof text, "%s=%lld", key, value);
    return by_config_set(config, text, error);
}

/* The config of a model of a few blocks, on the ranks that divide a
 * micro-batch. */
static by_status small_config(by_config **out, const by_config *config, const by__search_key *key,
                              int64_t layers, int64_t micro_batch, int sequence, by_error *error)
{
    by_config *c;
    BY_TRY(by_config_copy(&c, config, error));
    const struct {
        const char *key;
        long long value;
    } settings[] = {{"model.layers", layers},
                    {"train.batch", micro_batch},
                    {"train.micro_batch", micro_batch},
                    {"parallel.data", 1},
                    {"parallel.shard", 1},
                    {"parallel.zero", 1},
                    {"parallel.pipeline", 1},
                    {"parallel.chunks", 1},
                    {"parallel.tensor", key->tensor},
                    {"parallel.sequence", sequence},
                    {"parallel.expert", key->expert}};
    by_status status = BY_OK;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings) && status == BY_OK; i++) {
        status = set(c, error, settings[i].key, settings[i].value);
    }
    const char *const texts[] = {"parallel.schedule=1f1b",
                                 "train.batch_warmup=[]",
                                 "memory.budget=0",
                                 "parallel.keep=false",
                                 key->sequence_parallel ? "parallel.sequence_parallel=true"
                                                        : "parallel.sequence_parallel=false",
                                 key->recompute == BY_SEARCH_RECOMPUTE_BLOCK
                                     ? "memory.recompute=block"
                                     : "memory.recompute=none"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts) && status == BY_OK; i++) {
        status = by_config_set(c, texts[i], error);
    }
    if (status == BY_OK) {
        status = by_config_resolve(c, error);
    }
    if (status != BY_OK) {
        by_config_close(&c);
        return status;
    }
    *out = c;
    return BY_OK;
}

/* ---- sections ---- */

static unsigned char section_of(const by__layout_work *work, size_t i, size_t first, size_t last)
{
    int block = work->items[i].block;
    if (block < 0) {
        return i < first || i > last ? BY__SECTION_BEGIN : BY__SECTION_END;
    }
    return block == 0         ? BY__SECTION_FIRST
           : block + 1 == FEW ? BY__SECTION_LAST
                              : BY__SECTION_MIDDLE;
}

/* What is outside of blocks belongs to the beginning of the model if it runs
 * before all blocks or, of the backward pass, after them. */
static by_status find_sections(by__search_point *p, by_error *error)
{
    const by__layout_work *work = &p->work;
    size_t first = work->count;
    size_t last = 0;
    for (size_t i = 0; i < work->count; i++) {
        if (work->items[i].block >= 0) {
            first = i < first ? i : first;
            last = i;
        }
    }
    BY_TRY(by__alloc((void **)&p->section, work->count + 1, 1, "work", error));
    for (size_t i = 0; i < work->count; i++) {
        p->section[i] = section_of(work, i, first, last);
    }
    return BY_OK;
}

/* ---- parameters ---- */

/* Trained elements by section of a model of three blocks. */
static void count_elements(by__search_profile *p, const by_graph *graph)
{
    size_t first = graph->node_count;
    for (size_t n = graph->node_count; n-- > 0;) {
        first = graph->nodes[n].block >= 0 ? n : first;
    }
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        int reader = -1;
        bool begins = false;
        bool ends = false;
        if (value->role != BY_ROLE_PARAMETER || value->frozen) {
            continue;
        }
        for (size_t n = 0; n < graph->node_count; n++) {
            const by__graph_node *node = &graph->nodes[n];
            if (by__node_reads(node, (by_value)v)) {
                reader = node->block >= 0 ? node->block : reader;
                begins = begins || (node->block < 0 && n < first);
                ends = ends || (node->block < 0 && n > first);
            }
        }
        by__search_section section = reader >= 0 ? (reader == 0         ? BY__SECTION_FIRST
                                                    : reader + 1 == FEW ? BY__SECTION_LAST
                                                                        : BY__SECTION_MIDDLE)
                                     : begins    ? BY__SECTION_BEGIN
                                                 : BY__SECTION_END;
        p->tied += begins && ends ? (double)by_shape_count(&value->shape) : 0.0;
        p->bytes[section].elements += (double)by_shape_count(&value->shape);
        p->bytes[section].matrices += value->shape.rank > 1 ? 1.0 : 0.0;
    }
}

/* Divides what two models need among their sections: the difference is that of
 * a block, the rest is divided by elements. */
static void divide_bytes(by__search_profile *p, const by_memory_report *few,
                         const by_memory_report *more)
{
    by__search_bytes each = {.weights = (double)(more->parameters - few->parameters),
                             .gradients = (double)(more->gradients - few->gradients),
                             .optimizer = (double)(more->optimizer - few->optimizer)};
    double ends = p->bytes[BY__SECTION_BEGIN].elements + p->bytes[BY__SECTION_END].elements;
    by__search_bytes rest = {.weights = (double)few->parameters - FEW * each.weights,
                             .gradients = (double)few->gradients - FEW * each.gradients,
                             .optimizer = (double)few->optimizer - FEW * each.optimizer};
    for (int s = 0; s < BY__SECTIONS; s++) {
        by__search_bytes *b = &p->bytes[s];
        bool end = s == BY__SECTION_BEGIN || s == BY__SECTION_END;
        double share = !end ? 1.0 : ends > 0.0 ? b->elements / ends : 0.0;
        const by__search_bytes *of = end ? &rest : &each;
        b->weights = share * of->weights;
        b->gradients = share * of->gradients;
        b->optimizer = share * of->optimizer;
    }
}

/* ---- compiling ---- */

static by_status list_update(by__search_profile *p, const by_trainer *t, by_error *error)
{
    p->elements = 0.0;
    for (int s = 0; s < BY__SECTIONS; s++) {
        p->elements += p->bytes[s].elements;
    }
    return t->update.row == NULL ? BY_OK
                                 : by__layout_graph_work(&p->update_work, t->update.row->graph,
                                                         false, BY_LAYOUT_UPDATE, error);
}

/* Compiles a model of so many blocks at a point. */
static by_status compile(by__search_profile *p, const by_config *config, int64_t layers, int k,
                         by_memory_report *report, by_error *error)
{
    by_config *c;
    by_trainer *t = NULL;
    by__search_point *point = &p->points[k];
    const by_trainer_options options = {.ranks = p->key.tensor * p->key.expert};
    BY_TRY(small_config(&c, config, &p->key, layers, units_of(k) * p->unit, 1, error));
    by_status status = by_trainer_open(&t, c, &options, error);
    if (status == BY_OK) {
        const by_program *program = t->model.gradients->program;
        point->arena[layers - FEW] = (double)by_program_arena_bytes(program);
        point->workspace = (double)by_program_workspace_bytes(program);
        *report = *by_trainer_memory(t);
    }
    if (status == BY_OK && layers == FEW) {
        status = by__layout_graph_work(&point->work, t->model.gradients->graph, false,
                                       BY_LAYOUT_PARTS, error);
    }
    if (status == BY_OK && layers == FEW) {
        status = find_sections(point, error);
    }
    if (status == BY_OK && layers == FEW && k == FIRST_ARENA) {
        count_elements(p, t->model.gradients->graph);
        p->fixed = (double)report->data;
        status = list_update(p, t, error);
    }
    by_trainer_close(&t);
    by_config_close(&c);
    return status;
}

/* What a block shifts around a ring of two ranks. A model that cannot be
 * divided so has no ring. */
static by_status compile_ring(by__search_profile *p, const by_config *config, by_error *error)
{
    by_config *c = NULL;
    by_trainer *t = NULL;
    by__layout_work work = {0};
    by_error refused;
    const by_trainer_options options = {.ranks = 2 * p->key.tensor * p->key.expert};
    by_status status = small_config(&c, config, &p->key, FEW, 2 * p->unit, 2, &refused);
    if (status == BY_OK) {
        status = by_trainer_open(&t, c, &options, &refused);
    }
    p->rings = status == BY_OK;
    if (status == BY_OK) {
        status = by__layout_graph_work(&work, t->model.gradients->graph, false, BY_LAYOUT_PARTS,
                                       &refused);
    }
    for (size_t i = 0; i < work.count; i++) {
        const by__layout_item *item = &work.items[i];
        if (item->kind == BY__LAYOUT_STARTS && item->block == 1 &&
            item->mesh == 1u << BY_MESH_SEQUENCE) {
            p->shifts[item->backward] += 1.0;
            p->shifted[item->backward] += item->payload / 2.0;
        }
    }
    for (size_t i = 0; i < work.count; i++) {
        if (work.items[i].kind == BY__LAYOUT_RUNS && work.items[i].block == 1) {
            work.items[p->ring_work.count++] = work.items[i];
        }
    }
    p->ring_work.items = work.items;
    for (int pass = 0; pass < 2; pass++) {
        p->shifted[pass] /= p->shifts[pass] > 0.0 ? p->shifts[pass] : 1.0;
    }
    by_trainer_close(&t);
    by_config_close(&c);
    if (status == BY_EMEMORY) {
        return by_error_set(error, status, "%s", refused.message);
    }
    return BY_OK;
}

by_status by__search_profile_make(by__search_profile *out, const by_config *config,
                                  const by__search_key *key, const by_cluster *cluster,
                                  by_error *error)
{
    by__search_profile p = {.key = *key, .unit = key->expert};
    by_memory_report few;
    by_memory_report more;
    by_memory_report other;
    by_status status = BY_OK;
    for (int k = 0; k < BY__SEARCH_POINTS && status == BY_OK; k++) {
        status = compile(&p, config, FEW, k, k == FIRST_ARENA ? &few : &other, error);
    }
    if (status == BY_OK) {
        status = compile(&p, config, MORE, FIRST_ARENA, &more, error);
    }
    if (status == BY_OK) {
        status = compile(&p, config, MORE, SECOND_ARENA, &other, error);
    }
    if (status == BY_OK) {
        divide_bytes(&p, &few, &more);
        status = compile_ring(&p, config, error);
    }
    if (status == BY_OK) {
        status = by__search_profile_rates(&p, cluster, error);
    }
    if (status != BY_OK) {
        by__search_profile_free(&p);
        return status;
    }
    *out = p;
    return BY_OK;
}

/* ---- rates ---- */

/* Copies the items of a section and direction. */
static void select_items(by__layout_work *out, const by__search_point *p, int section,
                         bool backward, size_t *place)
{
    out->count = 0;
    for (size_t i = 0; i < p->work.count; i++) {
        const by__layout_item *item = &p->work.items[i];
        place[i] = SIZE_MAX;
        if (p->section[i] == section && item->backward == backward) {
            out->items[out->count] = *item;
            /* What began in another part of the model has ended there. */
            out->items[out->count].start = item->kind == BY__LAYOUT_WAITS ? place[item->start] : 0;
            place[i] = out->count++;
        }
    }
}

static by_status time_point(by__search_point *p, const by__layout_job *job, by_error *error)
{
    by__layout_work work = {0};
    size_t *place = NULL;
    BY_TRY(by__alloc((void **)&work.items, p->work.count + 1, sizeof *work.items, "work", error));
    by_status status = by__alloc((void **)&place, p->work.count + 1, sizeof *place, "work", error);
    for (int s = 0; s < BY__SECTIONS && status == BY_OK; s++) {
        for (int pass = 0; pass < 2 && status == BY_OK; pass++) {
            select_items(&work, p, s, pass == 1, place);
            status = by__layout_run(&p->passes[s][pass], &work, job, error);
        }
    }
    free(place);
    free(work.items);
    return status;
}

static double computing(const by__layout_time *time)
{
    return time->seconds[BY_LAYOUT_PRODUCTS] + time->seconds[BY_LAYOUT_ATTENTION] +
           time->seconds[BY_LAYOUT_OTHER];
}

by_status by__search_profile_rates(by__search_profile *p, const by_cluster *cluster,
                                   by_error *error)
{
    by__layout_job job = {.cluster = cluster, .sizes = {1, 1, 1, 1, 1, 1}};
    double seconds = 0.0;
    job.sizes[BY_MESH_TENSOR] = p->key.tensor;
    job.sizes[BY_MESH_EXPERT] = p->key.expert;
    job.ranks = INT32_MAX; /* hosts are full: their links are shared by all of
                            their devices */
    for (int k = 0; k < BY__SEARCH_POINTS; k++) {
        BY_TRY(time_point(&p->points[k], &job, error));
    }
    for (size_t i = 0; i < p->update_work.count; i++) {
        seconds += p->update_work.items[i].bytes / cluster->device.bandwidth;
    }
    /* And the norm, which reads all gradients. */
    p->update = p->elements > 0.0 ? seconds / p->elements + 4.0 / cluster->device.bandwidth : 0.0;
    p->sum = 12.0 / cluster->device.bandwidth;
    /* A ring of two on two units, against one of its ranks' share of the
   * examples, one unit. */
    double ring[2] = {0.0, 0.0};
    for (size_t i = 0; i < p->ring_work.count; i++) {
        const by__layout_item *item = &p->ring_work.items[i];
        ring[item->backward] += by__layout_seconds(cluster, item);
    }
    for (int pass = 0; pass < 2; pass++) {
        double more = ring[pass] - computing(&p->points[0].passes[BY__SECTION_MIDDLE][pass]);
        p->ring_step[pass] = more > 0.0 ? more : 0.0;
    }
    return BY_OK;
}

/* ---- at a micro-batch ---- */

/* Adds the shifts of a ring of q ranks: beside the attention over each block of
 * keys the next one is on its way; and what is computed more for each further
 * block, merges of results above all. */
static void add_ring(by__search_block *out, const by__search_profile *p, const by__layout_job *job,
                     double q, double units)
{
    const by_exchange_group group = by__layout_group(job, 1u << BY_MESH_SEQUENCE);
    for (int s = BY__SECTION_FIRST; s <= BY__SECTION_LAST; s++) {
        for (int pass = 0; pass < 2; pass++) {
            by__layout_time *time = &out->passes[s][pass];
            double shift = by_cluster_exchange(job->cluster, BY_EXCHANGE_SHIFT,
                                               p->shifted[pass] * units * 2.0 / q, &group);
            double all = shift * p->shifts[pass] * (q - 1.0);
            double attention = time->seconds[BY_LAYOUT_ATTENTION] * (q - 1.0) / q;
            double more = by__layout_beside(job->cluster, attention, all);
            double steps = (q - 1.0) * p->ring_step[pass] * units / q;
            time->seconds[BY_LAYOUT_SEQUENCE] += more;
            time->hidden[BY_LAYOUT_SEQUENCE] += all > more ? all - more : 0.0;
            time->seconds[BY_LAYOUT_OTHER] += steps;
            time->total += more + steps;
        }
    }
}

/* A value between those of two points, or beyond them; not below 0. */
static double between(double a, double b, double share)
{
    double value = a + (b - a) * share;
    return value > 0.0 ? value : 0.0;
}

static void interpolate(by__layout_time *out, const by__layout_time *a, const by__layout_time *b,
                        double share)
{
    out->total = 0.0;
    for (int part = 0; part < BY_LAYOUT_PARTS; part++) {
        out->seconds[part] = between(a->seconds[part], b->seconds[part], share);
        out->hidden[part] = between(a->hidden[part], b->hidden[part], share);
        out->total += out->seconds[part];
    }
}

void by__search_profile_evaluate(by__search_block *out, const by__search_profile *p,
                                 const by_cluster *cluster, int64_t micro_batch, int sequence)
{
    double units = (double)micro_batch / (double)(p->unit * sequence);
    by__layout_job job = {.cluster = cluster, .sizes = {1, 1, 1, 1, 1, 1}, .ranks = INT32_MAX};
    int k = 0;
    job.sizes[BY_MESH_TENSOR] = p->key.tensor;
    job.sizes[BY_MESH_SEQUENCE] = sequence;
    while (k + 2 < BY__SEARCH_POINTS && units > (double)units_of(k + 1)) {
        k++;
    }
    const by__search_point *a = &p->points[k];
    const by__search_point *b = &p->points[k + 1];
    double share = (units - (double)units_of(k)) / (double)(units_of(k + 1) - units_of(k));
    for (int s = 0; s < BY__SECTIONS; s++) {
        for (int pass = 0; pass < 2; pass++) {
            interpolate(&out->passes[s][pass], &a->passes[s][pass], &b->passes[s][pass], share);
        }
    }
    if (sequence > 1) {
        add_ring(out, p, &job, (double)sequence, (double)micro_batch / (double)p->unit);
    }
    const by__search_point *first = &p->points[FIRST_ARENA];
    const by__search_point *second = &p->points[SECOND_ARENA];
    double along = (units - (double)units_of(FIRST_ARENA)) /
                   (double)(units_of(SECOND_ARENA) - units_of(FIRST_ARENA));
    out->kept =
        between(first->arena[1] - first->arena[0], second->arena[1] - second->arena[0], along);
    double few = between(a->arena[0], b->arena[0], share);
    out->base = few > FEW * out->kept ? few - FEW * out->kept : 0.0;
    out->workspace = between(a->workspace, b->workspace, share);
}
