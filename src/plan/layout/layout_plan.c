/* Plans the ranks of a job: one of each stage of the pipeline, and the last of each where the plan
 * may differ, and from them the time of a step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/kind.h"
#include "plan/layout/layout.h"
#include "trainer/graphs/graphs.h"
#include "trainer/pipeline/pipe.h"
#include "trainer/plan/trainer_plan.h"

const char *by_layout_part_name(by_layout_part part)
{
    static const char *const names[BY_LAYOUT_PARTS] = {
        [BY_LAYOUT_PRODUCTS] = "products", [BY_LAYOUT_ATTENTION] = "attention",
        [BY_LAYOUT_OTHER] = "other nodes", [BY_LAYOUT_ENDS] = "embedding, head",
        [BY_LAYOUT_SUMS] = "sums",         [BY_LAYOUT_UPDATE] = "update",
        [BY_LAYOUT_TENSOR] = "tensor",     [BY_LAYOUT_SEQUENCE] = "sequence",
        [BY_LAYOUT_EXPERT] = "expert",     [BY_LAYOUT_GRADIENTS] = "gradients",
        [BY_LAYOUT_WEIGHTS] = "weights",   [BY_LAYOUT_PIPELINE] = "pipeline",
        [BY_LAYOUT_BUBBLE] = "bubble"};
    return names[part];
}

void by_layout_plan_free(by_layout_plan *plan)
{
    free(plan->planned);
    free(plan->spans);
    *plan = (by_layout_plan){0};
}

/* A plan that is made. */
typedef struct plan_work {
    const by_config *config;
    by_config *open; /* the same, whose micro-batch may be chosen */
    const by_layout_options *options;
    by_trainer_options trainer;
    by_machine machine; /* this one, if no other cluster is given, */
    by_cluster here;    /* as a cluster */
    by__layout_job job;
    by_layout_plan *out;
    by__layout_rank_time *times; /* of each planned rank */
    by__layout_stage *stages;    /* of a pipeline */
    by_pipeline *schedule;
    double *after;          /* [pipeline ranks] seconds after the last pass */
    by_trainer *like[2];    /* of a pipeline: plans of a first and of a last rank of a stage, from
                            which those of other stages take what they have in common */
    by__layout_trace parts; /* spans of parts of the step, and those of the step */
    by__layout_trace step;
} plan_work;

/* ---- ranks ---- */

/* Ranks of the job that the config asks for. */
static int wanted_ranks(const by_config *config)
{
    const by_parallel_config *p = &config->parallel;
    const int64_t sizes[] = {p->data, p->shard, p->tensor, p->sequence, p->pipeline, p->expert};
    int64_t ranks = 1;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(sizes); i++) {
        ranks = sizes[i] > 0 && ranks <= INT32_MAX / sizes[i] ? ranks * sizes[i] : ranks;
    }
    return (int)ranks;
}

/* The rank at a stage with all other places first, or (`last`) last. */
static int rank_at(const plan_work *w, int stage, bool last)
{
    int each = w->job.ranks / w->job.sizes[BY_MESH_PIPELINE];
    return stage * each + (last ? each - 1 : 0);
}

static by_status note_times(plan_work *w, const by_trainer *t, by_error *error)
{
    by_layout_plan *p = w->out;
    by_layout_rank *r = &p->planned[p->planned_count];
    const by_task *task = by_trainer_task(t);
    r->rank = t->layout.rank;
    by_trainer_place(t, r->place, sizeof r->place);
    BY_TRY(by__layout_rank(&w->times[p->planned_count], t, &w->job, error));
    if (t->pipe != NULL) {
        double *after = &w->after[t->pipe->rank];
        double seconds = w->times[p->planned_count].after.total;
        *after = seconds > *after ? seconds : *after;
        BY_TRY(by__layout_rank_stages(w->stages, t, &w->job, error));
        if (w->schedule == NULL) {
            BY_TRY(by_pipeline_open(&w->schedule, by_pipeline_of(t->pipe->schedule), error));
        }
    }
    if (p->planned_count == 0) {
        p->micro_batches = t->part.micro_batches;
        p->examples =
            (double)w->config->train.batch * (double)by__trainer_per_sample(task, w->config);
        p->flops = by_trainer_size(t)->flops_per_example * p->examples;
    }
    p->planned_count++;
    return BY_OK;
}

static by_status note_rank(plan_work *w, by_trainer *t, by_error *error)
{
    by_layout_rank *r = &w->out->planned[w->out->planned_count];
    const by_task *task = by_trainer_task(t);
    by_trainer_plan_data(t, w->options->data_bytes);
    by_trainer_plan_staging(t);
    BY_TRY(by_trainer_plan_loaders(t, (task->knows(w->config) & BY_TASK_HOLDS_OUT) != 0, error));
    r->memory = *by_trainer_memory(t);
    r->memory.total -= r->memory.process; /* what the process has here is no device's */
    r->memory.process = 0;
    w->out->memory = r->memory.total > w->out->memory ? r->memory.total : w->out->memory;
    return note_times(w, t, error);
}

static by_status plan_rank(plan_work *w, int stage, bool last, by_error *error)
{
    by_trainer *t;
    w->trainer.rank = rank_at(w, stage, last);
    w->trainer.like = w->like[last] != NULL ? w->like[last] : w->like[0];
    BY_TRY(by_trainer_open(&t, w->config, &w->trainer, error));
    by_status status = note_rank(w, t, error);
    if (t->pipe != NULL && w->like[last] == NULL) {
        w->like[last] = t;
    } else {
        by_trainer_close(&t);
    }
    return status;
}

static void forget_ranks(plan_work *w)
{
    by_trainer_close(&w->like[0]);
    by_trainer_close(&w->like[1]);
    by_pipeline_close(&w->schedule);
    free(w->after);
    free(w->stages);
    free(w->times);
    free(w->parts.spans);
    w->after = NULL;
    w->stages = NULL;
    w->times = NULL;
    w->parts = (by__layout_trace){0};
}

static by_status allocate_ranks(plan_work *w, by_error *error)
{
    int stages = w->job.sizes[BY_MESH_PIPELINE];
    size_t most = 2 * (size_t)stages;
    size_t chunks = w->config->parallel.chunks > 0 ? (size_t)w->config->parallel.chunks : 1;
    BY_TRY(by__alloc((void **)&w->out->planned, most, sizeof *w->out->planned, "plan", error));
    BY_TRY(by__alloc((void **)&w->times, most, sizeof *w->times, "plan", error));
    BY_TRY(by__alloc((void **)&w->after, (size_t)stages, sizeof *w->after, "plan", error));
    return by__alloc((void **)&w->stages, (size_t)stages * chunks, sizeof *w->stages, "plan",
                     error);
}

static by_status plan_ranks(plan_work *w, by_error *error)
{
    int stages = w->job.sizes[BY_MESH_PIPELINE];
    BY_TRY(allocate_ranks(w, error));
    for (int stage = 0; stage < stages; stage++) {
        BY_TRY(plan_rank(w, stage, false, error));
        if (rank_at(w, stage, true) != rank_at(w, stage, false)) {
            BY_TRY(plan_rank(w, stage, true, error));
        }
    }
    return BY_OK;
}

double by__layout_limit(const by_config *config, double memory)
{
    double limit = memory > 0.0 ? memory : (double)INFINITY;
    double budget = (double)config->memory.budget;
    if (budget > 0.0) {
        double own = (double)by__trainer_settled_bytes();
        limit = fmin(limit, budget > own ? budget - own : 1.0);
    }
    return limit;
}

/* Plans with the largest micro-batch that fits the device, where it is open. */
static by_status plan_fitting_ranks(plan_work *w, by_error *error)
{
    static const char key[] = "train.micro_batch";
    by_layout_plan *p = w->out;
    BY_TRY(plan_ranks(w, error));
    while (p->memory > p->limit && by__config_is_derived(w->config, key)) {
        int64_t smaller;
        uint64_t process = by__trainer_settled_bytes(); /* which plans of a trainer count */
        size_t most = 0;
        for (size_t i = 1; i < p->planned_count; i++) {
            most = p->planned[i].memory.total > p->planned[most].memory.total ? i : most;
        }
        by_trainer_options options = w->trainer;
        options.rank = p->planned[most].rank;
        options.like = NULL;
        BY_TRY(by__trainer_micro_batch_within(&smaller, w->config, &options, p->limit + process,
                                              error));
        if (smaller == 0 || smaller >= w->config->train.micro_batch) {
            break;
        }
        by__config_derive(w->open, key, smaller);
        forget_ranks(w);
        by_layout_plan again = {.ranks = p->ranks, .limit = p->limit};
        memcpy(again.sizes, p->sizes, sizeof again.sizes);
        by_layout_plan_free(p);
        *p = again;
        BY_TRY(plan_ranks(w, error));
    }
    return BY_OK;
}

/* ---- the step ---- */

/* Figures of the device that the computation of a part depends on. */
static unsigned figures_of(const plan_work *w, by_layout_part part)
{
    by_dtype dtype = by__trainer_compute_dtype(w->config);
    unsigned peak = dtype == BY_BF16 || dtype == BY_F16 ? BY_FIGURE_BF16 : BY_FIGURE_F32;
    unsigned nodes = BY_FIGURE_BANDWIDTH | BY_FIGURE_LAUNCH | BY_FIGURE_HOST;
    switch (part) {
    case BY_LAYOUT_PRODUCTS:
    case BY_LAYOUT_ENDS:
        return nodes | peak | BY_FIGURE_PRODUCT_SHARE;
    case BY_LAYOUT_ATTENTION:
        return nodes | peak | BY_FIGURE_ATTENTION_SHARE;
    case BY_LAYOUT_BUBBLE: /* other stages compute */
        return nodes | peak | BY_FIGURE_PRODUCT_SHARE | BY_FIGURE_ATTENTION_SHARE;
    case BY_LAYOUT_SUMS:
        return BY_FIGURE_BANDWIDTH;
    case BY_LAYOUT_UPDATE:
        return nodes | BY_FIGURE_STEP;
    default:
        return nodes;
    }
}

/* Axes along which a part exchanges, as bits; 0: it computes. */
static unsigned axes_of(by_layout_part part)
{
    switch (part) {
    case BY_LAYOUT_TENSOR:
        return 1u << BY_MESH_TENSOR;
    case BY_LAYOUT_SEQUENCE:
        return 1u << BY_MESH_SEQUENCE;
    case BY_LAYOUT_EXPERT:
        return 1u << BY_MESH_EXPERT;
    case BY_LAYOUT_GRADIENTS:
        return 1u << BY_MESH_DATA | 1u << BY_MESH_SHARD | 1u << BY_MESH_SEQUENCE;
    case BY_LAYOUT_WEIGHTS:
        return 1u << BY_MESH_SHARD;
    case BY_LAYOUT_PIPELINE:
        return 1u << BY_MESH_PIPELINE;
    default:
        return 0;
    }
}

/* The least certain of the figures that a part depends on: of exchanges those of the levels that
 * they cross and, beside computation, how much both slow each other down. */
static by_origin origin_of(const plan_work *w, by_layout_part part, bool hidden)
{
    const by_cluster *c = w->job.cluster;
    unsigned axes = axes_of(part);
    if (axes == 0) {
        return by_cluster_origin(&c->device, figures_of(w, part));
    }
    by_origin origin = hidden ? by_cluster_origin(&c->device, BY_FIGURE_COMPUTE_SLOWDOWN |
                                                                  BY_FIGURE_EXCHANGE_SLOWDOWN)
                              : BY_ORIGIN_MEASURED;
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        const by_exchange_group g = by__layout_group(&w->job, axes & 1u << axis);
        for (int i = 0; i < c->level_count; i++) {
            bool crosses = g.ranks > 1.0 && by_cluster_crosses(c, i, &g);
            origin = crosses && c->levels[i].origin > origin ? c->levels[i].origin : origin;
        }
    }
    return origin;
}

/* An interval of 80 %, from errors of terms that are independent, 1.28 standard deviations. */
static void set_interval(by_layout_plan *p)
{
    double squares = 0.0;
    double computing = 0.0;
    for (int part = 0; part < BY_LAYOUT_PARTS; part++) {
        const by_layout_term *term = &p->terms[part];
        double error = term->seconds * by_origin_error(term->origin);
        /* The same figures of a device make all computation, and the bubble, wrong together. */
        if (part < BY_LAYOUT_TENSOR || part == BY_LAYOUT_BUBBLE) {
            computing += error;
        } else {
            squares += error * error;
        }
    }
    double deviation = 1.28 * sqrt(squares + computing * computing);
    p->low = p->seconds - deviation > 0.0 ? p->seconds - deviation : 0.0;
    p->high = p->seconds + deviation;
}

/* Corrects the plan of this machine by the runs that were measured on it. */
static void correct(plan_work *w)
{
    by_layout_plan *p = w->out;
    char *path;
    p->correction = 1.0;
    if (w->options->cluster != NULL || by_layout_corrections_path(&path, NULL) != BY_OK) {
        return;
    }
    const by__layout_step_key key = by__layout_step_key_of(&w->machine, w->config, p->sizes);
    const by__layout_correction c = by__layout_correct(path, &key, p->seconds);
    free(path);
    by__layout_apply(&c, &p->seconds, &p->low, &p->high);
    for (int part = 0; part < BY_LAYOUT_PARTS; part++) {
        p->terms[part].seconds *= c.factor;
        p->terms[part].hidden *= c.factor;
    }
    for (size_t i = 0; i < p->planned_count; i++) {
        p->planned[i].busy *= c.factor;
        p->planned[i].idle *= c.factor;
    }
    for (size_t i = 0; i < p->span_count; i++) {
        p->spans[i].begin *= c.factor;
        p->spans[i].end *= c.factor;
    }
    p->correction = c.factor;
    p->corrected_by = c.runs;
}

/* Sets the terms to the times of a rank, whose remainder is the bubble. */
static void set_terms(plan_work *w, const by__layout_time *passes, const by__layout_time *after)
{
    by_layout_plan *p = w->out;
    by__layout_time all = *passes;
    by__layout_add(&all, after, 1.0);
    for (int part = 0; part < BY_LAYOUT_PARTS; part++) {
        p->terms[part] =
            (by_layout_term){.seconds = all.seconds[part],
                             .hidden = all.hidden[part],
                             .origin = origin_of(w, (by_layout_part)part, all.hidden[part] > 0.0)};
    }
    double bubble = p->seconds - all.total;
    p->terms[BY_LAYOUT_BUBBLE].seconds = bubble > 0.0 ? bubble : 0.0;
}

static void time_replicas(plan_work *w)
{
    size_t slowest = 0;
    for (size_t i = 0; i < w->out->planned_count; i++) {
        double seconds = w->times[i].micro.total + w->times[i].after.total;
        w->out->planned[i].busy = seconds;
        if (seconds > w->out->seconds) {
            w->out->seconds = seconds;
            slowest = i;
        }
    }
    set_terms(w, &w->times[slowest].micro, &w->times[slowest].after);
    for (size_t i = 0; i < w->out->planned_count; i++) {
        w->out->planned[i].idle = w->out->seconds - w->out->planned[i].busy;
        by__layout_trace_copy(w->options->trace ? &w->step : NULL, &w->parts, &w->times[i].spans,
                              w->out->planned[i].rank, 0.0);
    }
}

static by_status time_pipeline(plan_work *w, by_error *error)
{
    by__layout_pipeline p;
    by__layout_trace *trace = w->options->trace ? &w->step : NULL;
    BY_TRY(by__layout_pipeline_run(&p, w->schedule, w->stages, &w->job, trace, error));
    int most = 0;
    double idle = 0.0;
    for (int k = 0; k < p.ranks; k++) {
        /* All ranks wait for the norm of the gradient, so the slowest tail counts for all. */
        double end = p.makespan + w->after[k];
        w->out->seconds = end > w->out->seconds ? end : w->out->seconds;
        most = p.busy[k].total + w->after[k] > p.busy[most].total + w->after[most] ? k : most;
    }
    for (int k = 0; k < p.ranks; k++) {
        idle += w->out->seconds - p.busy[k].total - w->after[k];
    }
    w->out->bubble = idle / (w->out->seconds * (double)p.ranks);
    for (size_t i = 0; i < w->out->planned_count; i++) {
        int each = w->job.ranks / p.ranks;
        int k = w->out->planned[i].rank / each;
        w->out->planned[i].busy = p.busy[k].total + w->times[i].after.total;
        w->out->planned[i].idle = w->out->seconds - w->out->planned[i].busy;
        if (k == most) {
            set_terms(w, &p.busy[k], &w->times[i].after);
        }
        if (w->out->planned[i].rank % each == 0) {
            by__layout_trace_copy(trace, &w->parts, &w->times[i].spans, w->out->planned[i].rank,
                                  p.end[k]);
        }
    }
    by__layout_pipeline_free(&p);
    return BY_OK;
}

static by_status time_step(plan_work *w, by_error *error)
{
    if (w->schedule != NULL) {
        BY_TRY(time_pipeline(w, error));
    } else {
        time_replicas(w);
    }
    set_interval(w->out);
    return BY_OK;
}

/* ---- the whole plan ---- */

by_status by__layout_check_devices(const by_cluster *cluster, double ranks, by_error *error)
{
    double devices = by_cluster_devices(cluster);
    return ranks <= devices
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%.0f ranks are more than the %.0f devices that the levels of %s "
                              "join; take fewer ranks, or raise the width of its last level",
                              ranks, devices, cluster->name);
}

static by_status open_job(plan_work *w, by_error *error)
{
    by__trainer_layout layout = {0};
    int ranks = w->options->ranks > 0 ? w->options->ranks : wanted_ranks(w->config);
    layout.ranks = ranks;
    BY_TRY(by_config_fit_ranks(w->open, ranks, error));
    BY_TRY(by__trainer_layout_axes(&layout, w->config, error));
    w->job.ranks = ranks;
    w->job.cluster = w->options->cluster;
    w->job.trace = w->options->trace ? &w->parts : NULL;
    if (w->job.cluster == NULL) {
        BY_TRY(by_machine_load(&w->machine, w->config->device, (int)w->config->train.threads, 0,
                               error));
        by_cluster_of_machine(&w->here, &w->machine, ranks);
        w->job.cluster = &w->here;
    }
    BY_TRY(by__layout_check_devices(w->job.cluster, (double)ranks, error));
    memcpy(w->job.sizes, layout.size, sizeof layout.size);
    const by_cluster_device *d = &w->job.cluster->device;
    w->trainer.ranks = ranks;
    w->trainer.data_bytes = w->options->data_bytes;
    w->trainer.speeds =
        (by_speeds){.f32_flops = d->f32_flops, .bf16_flops = d->bf16_flops, .bytes = d->bandwidth};
    return BY_OK;
}

static by_status make(plan_work *w, by_error *error)
{
    by_layout_plan *p = w->out;
    BY_TRY(open_job(w, error));
    p->ranks = w->job.ranks;
    memcpy(p->sizes, w->job.sizes, sizeof p->sizes);
    double limit = by__layout_limit(w->config, w->job.cluster->device.memory);
    p->limit = isfinite(limit) ? (uint64_t)limit : UINT64_MAX;
    BY_TRY(plan_fitting_ranks(w, error));
    BY_TRY(time_step(w, error));
    if (w->parts.failed || w->step.failed) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %zu spans", w->step.count);
    }
    p->spans = w->step.spans;
    p->span_count = w->step.count;
    w->step.spans = NULL;
    correct(w);
    p->micro_batch = w->config->train.micro_batch;
    double peak = by_cluster_flops(w->job.cluster, by__trainer_compute_dtype(w->config));
    p->share = p->flops / (p->seconds * peak * (double)p->ranks);
    return BY_OK;
}

by_status by_layout_plan_make(by_layout_plan *out, by_config *config,
                              const by_layout_options *options, by_error *error)
{
    static const by_layout_options none = {0};
    by_layout_plan plan = {0};
    plan_work w = {.config = config,
                   .open = config,
                   .options = options == NULL ? &none : options,
                   .out = &plan};
    by_status status = make(&w, error);
    forget_ranks(&w);
    free(w.step.spans);
    if (status != BY_OK) {
        by_layout_plan_free(&plan);
        return status;
    }
    *out = plan;
    return BY_OK;
}

/* ---- a rank that runs ---- */

/* Notes the stages of a pipeline: that of a rank, and from it those of the others. */
static by_status note_stages(plan_work *w, by_trainer *t, by_error *error)
{
    if (w->config->memory.budget > 0) { /* the ranks choose together what is recomputed */
        return by_error_set(error, BY_EARG,
                            "memory.budget: other stages cannot be planned from one that runs");
    }
    w->trainer = (by_trainer_options){
        .ranks = w->job.ranks, .like = t, .task = t->task, .device = t->device};
    for (int stage = 0; stage < w->job.sizes[BY_MESH_PIPELINE]; stage++) {
        by_trainer *other;
        if (stage == t->pipe->rank) {
            BY_TRY(note_times(w, t, error));
            continue;
        }
        w->trainer.rank = rank_at(w, stage, false);
        BY_TRY(by_trainer_open(&other, w->config, &w->trainer, error));
        by_status status = note_times(w, other, error);
        by_trainer_close(&other);
        BY_TRY(status);
    }
    return BY_OK;
}

by_status by__layout_running(double *seconds, double *low, double *high, by_trainer *t,
                             const by_config *config, const by_cluster *cluster, by_error *error)
{
    static const by_layout_options none = {0};
    by_layout_plan plan = {0};
    plan_work w = {.config = config, .options = &none, .out = &plan};
    w.job.cluster = cluster;
    w.job.ranks = t->layout.ranks;
    memcpy(w.job.sizes, t->layout.size, sizeof w.job.sizes);
    by_status status = allocate_ranks(&w, error);
    if (status == BY_OK) {
        status = t->pipe != NULL ? note_stages(&w, t, error) : note_times(&w, t, error);
    }
    if (status == BY_OK) {
        status = time_step(&w, error);
    }
    forget_ranks(&w);
    *seconds = plan.seconds;
    *low = plan.low;
    *high = plan.high;
    by_layout_plan_free(&plan);
    return status;
}
