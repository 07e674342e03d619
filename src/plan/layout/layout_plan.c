/* Plans the ranks of a job: one of each stage of the pipeline, and the last of each where the plan
 * may differ, and from them the time of a step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/layout/layout.h"
#include "trainer/graphs/graphs.h"
#include "trainer/pipeline/pipe.h"

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
    *plan = (by_layout_plan){0};
}

/* A plan that is made. */
typedef struct plan_work {
    by_config *config;
    const by_layout_options *options;
    by_trainer_options trainer;
    by_cluster here; /* this machine, if no other cluster is given */
    by__layout_job job;
    by_layout_plan *out;
    by__layout_rank_time *times; /* of each planned rank */
    by__layout_stage *stages;    /* of a pipeline */
    by_pipeline *schedule;
    double *after; /* [pipeline ranks] seconds after the last pass */
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

static by_status note_rank(plan_work *w, by_trainer *t, by_error *error)
{
    by_layout_rank *r = &w->out->planned[w->out->planned_count];
    const by_task *task = by_trainer_task(t);
    by_trainer_plan_data(t, w->options->data_bytes);
    by_trainer_plan_staging(t);
    BY_TRY(by_trainer_plan_loaders(t, (task->knows(w->config) & BY_TASK_HOLDS_OUT) != 0, error));
    r->rank = t->layout.rank;
    by_trainer_place(t, r->place, sizeof r->place);
    r->memory = *by_trainer_memory(t);
    BY_TRY(by__layout_rank(&w->times[w->out->planned_count], t, &w->job, error));
    if (t->pipe != NULL) {
        double *after = &w->after[t->pipe->rank];
        double seconds = w->times[w->out->planned_count].after.total;
        *after = seconds > *after ? seconds : *after;
        BY_TRY(by__layout_rank_stages(w->stages, t, &w->job, error));
        if (w->schedule == NULL) {
            BY_TRY(by_pipeline_open(&w->schedule, by_pipeline_of(t->pipe->schedule), error));
        }
    }
    w->out->memory = r->memory.total > w->out->memory ? r->memory.total : w->out->memory;
    if (w->out->planned_count == 0) {
        w->out->micro_batches = t->part.micro_batches;
        w->out->examples =
            (double)w->config->train.batch * (double)by__trainer_per_sample(task, w->config);
        w->out->flops = by_trainer_size(t)->flops_per_example * w->out->examples;
    }
    w->out->planned_count++;
    return BY_OK;
}

static by_status plan_rank(plan_work *w, int rank, by_error *error)
{
    by_trainer *t;
    w->trainer.rank = rank;
    bool first = w->out->planned_count == 0;
    BY_TRY(first ? by_trainer_open_fitting(&t, w->config, &w->trainer, error)
                 : by_trainer_open(&t, w->config, &w->trainer, error));
    by_status status = note_rank(w, t, error);
    by_trainer_close(&t);
    return status;
}

static by_status plan_ranks(plan_work *w, by_error *error)
{
    int stages = w->job.sizes[BY_MESH_PIPELINE];
    size_t most = 2 * (size_t)stages;
    size_t chunks = w->config->parallel.chunks > 0 ? (size_t)w->config->parallel.chunks : 1;
    BY_TRY(by__alloc((void **)&w->out->planned, most, sizeof *w->out->planned, "plan", error));
    BY_TRY(by__alloc((void **)&w->times, most, sizeof *w->times, "plan", error));
    BY_TRY(by__alloc((void **)&w->after, (size_t)stages, sizeof *w->after, "plan", error));
    BY_TRY(
        by__alloc((void **)&w->stages, (size_t)stages * chunks, sizeof *w->stages, "plan", error));
    for (int stage = 0; stage < stages; stage++) {
        BY_TRY(plan_rank(w, rank_at(w, stage, false), error));
        if (rank_at(w, stage, true) != rank_at(w, stage, false)) {
            BY_TRY(plan_rank(w, rank_at(w, stage, true), error));
        }
    }
    return BY_OK;
}

/* ---- the step ---- */

static by_origin origin_of(const plan_work *w, by_layout_part part)
{
    const by_cluster *c = w->job.cluster;
    by_origin origin = c->device.origin;
    if (part >= BY_LAYOUT_TENSOR && part <= BY_LAYOUT_PIPELINE) {
        origin = c->levels[0].origin;
        for (int i = 1; i < c->level_count; i++) {
            origin = c->levels[i].origin > origin ? c->levels[i].origin : origin;
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

/* Sets the terms to the times of a rank, whose remainder is the bubble. */
static void set_terms(plan_work *w, const by__layout_time *passes, const by__layout_time *after)
{
    by_layout_plan *p = w->out;
    by__layout_time all = *passes;
    by__layout_add(&all, after, 1.0);
    for (int part = 0; part < BY_LAYOUT_PARTS; part++) {
        p->terms[part] = (by_layout_term){.seconds = all.seconds[part],
                                          .hidden = all.hidden[part],
                                          .origin = origin_of(w, (by_layout_part)part)};
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
    }
}

static by_status time_pipeline(plan_work *w, by_error *error)
{
    by__layout_pipeline p;
    BY_TRY(by__layout_pipeline_run(&p, w->schedule, w->stages, &w->job, error));
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
    }
    by__layout_pipeline_free(&p);
    return BY_OK;
}

/* ---- the whole plan ---- */

static by_status open_job(plan_work *w, by_error *error)
{
    by__trainer_layout layout = {0};
    int ranks = w->options->ranks > 0 ? w->options->ranks : wanted_ranks(w->config);
    layout.ranks = ranks;
    BY_TRY(by_config_fit_ranks(w->config, ranks, error));
    BY_TRY(by__trainer_layout_axes(&layout, w->config, error));
    w->job.ranks = ranks;
    w->job.cluster = w->options->cluster;
    if (w->job.cluster == NULL) {
        by_machine machine;
        BY_TRY(
            by_machine_load(&machine, w->config->device, (int)w->config->train.threads, 0, error));
        by_cluster_of_machine(&w->here, &machine, ranks);
        w->job.cluster = &w->here;
    }
    if ((double)ranks > by_cluster_devices(w->job.cluster)) {
        return by_error_set(error, BY_ECONFIG,
                            "%d ranks are more than the %.0f devices that the levels of %s join; "
                            "take fewer ranks, or raise the width of its last level",
                            ranks, by_cluster_devices(w->job.cluster), w->job.cluster->name);
    }
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
    BY_TRY(plan_ranks(w, error));
    if (w->schedule != NULL) {
        BY_TRY(time_pipeline(w, error));
    } else {
        time_replicas(w);
    }
    p->micro_batch = w->config->train.micro_batch;
    set_interval(p);
    double memory = w->job.cluster->device.memory;
    p->limit = w->options->cluster == NULL ? by_plan_limit(w->config, NULL, NULL)
               : memory > 0.0              ? (uint64_t)memory
                                           : UINT64_MAX;
    double peak = by_cluster_flops(w->job.cluster, by__trainer_compute_dtype(w->config));
    p->share = p->flops / (p->seconds * peak * (double)p->ranks);
    return BY_OK;
}

by_status by_layout_plan_make(by_layout_plan *out, by_config *config,
                              const by_layout_options *options, by_error *error)
{
    static const by_layout_options none = {0};
    by_layout_plan plan = {0};
    plan_work w = {.config = config, .options = options == NULL ? &none : options, .out = &plan};
    by_status status = make(&w, error);
    by_pipeline_close(&w.schedule);
    free(w.after);
    free(w.stages);
    free(w.times);
    if (status != BY_OK) {
        by_layout_plan_free(&plan);
        return status;
    }
    *out = plan;
    return BY_OK;
}
