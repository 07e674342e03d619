/* plan/layout: the time of a step of any layout of ranks, from compiled graphs.
 *
 * Types: by__layout_item is a node of a graph as the time of a step sees it, by__layout_work a
 * graph's list of them; by__layout_time is the time of one run of a program by parts;
 * by__layout_stage that of the passes of a pipeline stage.
 *
 * Files: layout_trace.c records what the queues do (trace_file.c writes it), graph_work.c lists the
 * work of a graph, two_queues.c runs a list on the queues of computation and communication,
 * rank_time.c puts together what one rank does in a step, stage_times.c simulates a pipeline,
 * step_corrections.c keeps measured steps, layout_plan.c plans the ranks of a job, step_forecast.c
 * a run that begins.
 *
 * Never put here: a rate of any device. They are in the cluster that the caller gives. */
#ifndef BY_PLAN_LAYOUT_LAYOUT_H
#define BY_PLAN_LAYOUT_LAYOUT_H

#include "banyan/layout.h"
#include "banyan/pipeline.h"
#include "trainer/state/trainer.h"

/* ---- layout_trace.c ---- */

/* Spans that are recorded. */
typedef struct by__layout_trace {
    by_layout_span *spans;
    size_t count;
    size_t capacity;
    double now;     /* when what is run next begins */
    size_t last[2]; /* the span of each queue that may grow; SIZE_MAX: none */
    bool failed;    /* memory was exhausted */
} by__layout_trace;

/* Some spans of a trace, in which time begins at 0. */
typedef struct by__layout_spans {
    size_t first;
    size_t count;
} by__layout_spans;

/* Begins a part of a trace in which time begins at 0. All accept a trace that is NULL. */
void by__layout_trace_begin(by__layout_trace *trace, by__layout_spans *out);
/* Ends it. */
void by__layout_trace_end(const by__layout_trace *trace, by__layout_spans *out);
/* Adds a span from `begin` to `end`, seconds after trace->now, or makes the last one longer. */
void by__layout_trace_add(by__layout_trace *trace, by_layout_span span, double begin, double end);
/* Repeats what follows span `first` so many times, `seconds` after each other, and advances
 * trace->now behind all of them. */
void by__layout_trace_repeat(by__layout_trace *trace, size_t first, double seconds, double times);
/* Copies spans, `seconds` later, as those of a rank. */
void by__layout_trace_copy(by__layout_trace *to, const by__layout_trace *from,
                           const by__layout_spans *spans, int rank, double seconds);

/* ---- graph_work.c ---- */

typedef enum by__layout_kind {
    BY__LAYOUT_RUNS = 0,
    BY__LAYOUT_STARTS,
    BY__LAYOUT_WAITS
} by__layout_kind;

typedef struct by__layout_item {
    by__layout_kind kind;
    by_layout_part part;
    by_dtype dtype; /* that it computes in */
    double flops;
    double bytes;  /* read and written */
    double scores; /* of attention */
    by_exchange exchange;
    double payload; /* bytes, as by_cluster_exchange takes them */
    unsigned mesh;  /* axes */
    double ranks;   /* of the group */
    size_t start;   /* of what waits: the item that it waits for */
    int block;      /* of the model; -1: outside */
    bool backward;
} by__layout_item;

typedef struct by__layout_work {
    by__layout_item *items;
    size_t count;
} by__layout_work;

/* Lists the nodes of a graph that take time. scatters: sums of gradients go to their owners alone
 * (zero). `part` is that of all computation, for updates; BY_LAYOUT_PARTS: by node. */
by_status by__layout_graph_work(by__layout_work *out, const by_graph *graph, bool scatters,
                                by_layout_part part, by_error *error);
void by__layout_work_free(by__layout_work *work);

/* ---- two_queues.c ---- */

/* Seconds by part: computation and waiting in `seconds`, which sum to `total`. */
typedef struct by__layout_time {
    double total;
    double seconds[BY_LAYOUT_PARTS];
    double hidden[BY_LAYOUT_PARTS];
} by__layout_time;

/* The job that work belongs to. */
typedef struct by__layout_job {
    const by_cluster *cluster;
    int sizes[BY_MESH_AXES];
    int ranks;
    by__layout_trace *trace; /* NULL: nothing is recorded */
} by__layout_job;

/* Group of the ranks that differ along a set of axes. */
by_exchange_group by__layout_group(const by__layout_job *job, unsigned mesh);
/* Seconds that a node computes for on the device. */
double by__layout_seconds(const by_cluster *cluster, const by__layout_item *item);
/* Seconds that an exchange adds to computation beside which it runs. */
double by__layout_beside(const by_cluster *cluster, double computing, double exchanging);
/* Runs a list of work once. */
by_status by__layout_run(by__layout_time *out, const by__layout_work *work,
                         const by__layout_job *job, by_error *error);
/* Adds a time, `times` over. */
void by__layout_add(by__layout_time *sum, const by__layout_time *time, double times);
/* Adds an exchange during which nothing is computed. */
void by__layout_add_exchange(by__layout_time *sum, const by__layout_job *job, by_layout_part part,
                             by_exchange what, double bytes, unsigned mesh);

/* ---- rank_time.c ---- */

/* What one rank does in a step. */
typedef struct by__layout_rank_time {
    by__layout_time micro; /* all of its micro-batches; in a pipeline, zero */
    by__layout_time after; /* after the last one: exchanges and update */
    by__layout_spans spans;
} by__layout_rank_time;

/* Passes of a stage for one micro-batch, and what it sends. */
typedef struct by__layout_stage {
    by__layout_time passes[3]; /* by by_pipeline_action_kind: forward, backward, weights */
    by__layout_spans spans[3];
    double sent;     /* bytes to the next stage, */
    double returned; /* and of gradients to the previous one */
} by__layout_stage;

by_status by__layout_rank(by__layout_rank_time *out, const by_trainer *t, const by__layout_job *job,
                          by_error *error);
/* Fills in the stages of a rank of a pipeline: stages[s] of all stages. */
by_status by__layout_rank_stages(by__layout_stage *stages, const by_trainer *t,
                                 const by__layout_job *job, by_error *error);

/* ---- stage_times.c ---- */

/* Times of a pipeline's ranks until the end of their last pass. */
typedef struct by__layout_pipeline {
    int ranks;
    double makespan;
    by__layout_time *busy; /* [ranks] passes and sends */
    double *end;           /* [ranks] */
} by__layout_pipeline;

/* job->trace has the spans of passes; trace (may be NULL) gets those of the pipeline. */
by_status by__layout_pipeline_run(by__layout_pipeline *out, const by_pipeline *schedule,
                                  const by__layout_stage *stages, const by__layout_job *job,
                                  by__layout_trace *trace, by_error *error);
void by__layout_pipeline_free(by__layout_pipeline *p);

/* ---- layout_plan.c ---- */

/* Bytes that a rank's plan may take, without those of its process: of a device with so much memory
 * (0: unknown), and of memory.budget, which counts the process too. INFINITY: any. */
double by__layout_limit(const by_config *config, double memory);
/* BY_ECONFIG if a cluster has fewer devices than so many ranks. */
by_status by__layout_check_devices(const by_cluster *cluster, double ranks, by_error *error);

/* Plans the step of a trainer that may be running, from its programs; stages of other ranks are
 * planned like its own. *low and *high: an interval of 80 %. */
by_status by__layout_running(double *seconds, double *low, double *high, by_trainer *t,
                             const by_config *config, const by_cluster *cluster, by_error *error);

/* ---- step_corrections.c ---- */

/* What measured steps have in common with those that they correct. */
typedef struct by__layout_step_key {
    const by_machine *machine;
    const char *kind;    /* model.kind */
    const char *compute; /* precision.compute */
    int ranks;
    char layout[128]; /* sizes of the axes, and what else of a layout changes its graphs */
} by__layout_step_key;

by__layout_step_key by__layout_step_key_of(const by_machine *machine, const by_config *config,
                                           const int sizes[BY_MESH_AXES]);

typedef struct by__layout_correction {
    double factor; /* measured / planned, 1 without runs */
    double error;  /* relative, one standard deviation */
    size_t runs;
} by__layout_correction;

/* Between the steps of the key whose plans are next to this one, by powers; beyond them, that of
 * the nearest; if none has its layout, those of any. A file that is absent or damaged has none. */
by__layout_correction by__layout_correct(const char *path, const by__layout_step_key *key,
                                         double planned);
/* Changes nothing without runs. */
void by__layout_apply(const by__layout_correction *correction, double *seconds, double *low,
                      double *high);
/* Adds a step to the file, in the place of one with the same plan. */
by_status by__layout_learn(const char *path, const by__layout_step_key *key, double planned,
                           double measured, by_error *error);

#endif
