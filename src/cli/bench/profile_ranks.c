#include <math.h>
#include <stdio.h>
#include <string.h>

#include "banyan/pipeline.h"
#include "bench/bench.h"

/* The pipeline bubble in the fastest step, which was disturbed least. */
typedef struct bubble {
    bool is_there;
    by_pipeline_kind kind;
    int64_t micro_batches;
    double pass[3];   /* forward, backward, weights of a micro-batch on a rank; mean over ranks */
    double measured;  /* mean over ranks */
    double formula;   /* from docs/parallelism.md, for these passes */
    double simulated; /* the schedule with these passes on all ranks, and instant transfers */
} bubble;

/* Returns the formula's bubble for passes of equal time on all ranks. */
static double formula_of(const bubble *b, int ranks, int chunks)
{
    double sum = b->pass[0] + b->pass[1] + b->pass[2];
    switch (b->kind) {
    case BY_PIPELINE_INTERLEAVED:
        return (ranks - 1) * sum / chunks;
    case BY_PIPELINE_ZERO_BUBBLE:
        return (ranks - 1) * (sum - 2.0 * b->pass[2]);
    default:
        return (ranks - 1) * sum;
    }
}

static double simulate(const bubble *b, int ranks, int chunks)
{
    const by_pipeline_options options = {
        .kind = b->kind, .ranks = ranks, .chunks = chunks, .micro_batches = b->micro_batches};
    const by_pipeline_costs costs = {.forward = b->pass[0] / chunks,
                                     .backward = (b->pass[1] + b->pass[2]) / chunks,
                                     .weight = b->pass[2] / chunks};
    by_pipeline *pipeline;
    by_pipeline_time time;
    double idle = 0.0;
    if (by_pipeline_open(&pipeline, &options, NULL) != BY_OK) {
        return 0.0;
    }
    if (by_pipeline_simulate(&time, pipeline, &costs, NULL) == BY_OK) {
        for (int r = 0; r < ranks; r++) {
            idle += time.ranks[r].idle / ranks;
        }
        by_pipeline_time_free(&time);
    }
    by_pipeline_close(&pipeline);
    return idle;
}

/* Returns the fastest step; of several replicas, the slowest one counts. */
static size_t fastest_step(const cli_profiled *run)
{
    size_t fastest = 0;
    double least = INFINITY;
    size_t count = 1;
    for (size_t i = 0; i < count; i++) {
        double slowest = 0.0;
        for (int r = 0; r < by_profile_rank_count(run->ranks); r++) {
            double seconds = by_profile_steps_of(run->ranks, r, &count)[i].seconds;
            slowest = seconds > slowest ? seconds : slowest;
        }
        fastest = slowest < least ? i : fastest;
        least = slowest < least ? slowest : least;
    }
    return fastest;
}

static bubble find_bubble(const cli_profiled *run, const by_config *config)
{
    const by_parallel_config *p = &config->parallel;
    bubble b = {0};
    int ranks = by_profile_rank_count(run->ranks);
    b.micro_batches = (int64_t)by_trainer_part(run->trainer).count / config->train.micro_batch;
    b.is_there = p->pipeline > 1 && b.micro_batches > 0 &&
                 by_pipeline_kind_find(&b.kind, p->schedule, NULL) == BY_OK;
    if (!b.is_there) {
        return b;
    }
    size_t step = fastest_step(run);
    for (int r = 0; r < ranks; r++) {
        size_t count;
        const by_profile_step *s = &by_profile_steps_of(run->ranks, r, &count)[step];
        b.measured += s->bubble / ranks;
        for (int k = 0; k < 3; k++) {
            b.pass[k] += s->passes[k] / (double)(ranks * b.micro_batches);
        }
    }
    int chunks = b.kind == BY_PIPELINE_INTERLEAVED ? (int)p->chunks : 1;
    b.formula = formula_of(&b, (int)p->pipeline, chunks);
    b.simulated = simulate(&b, (int)p->pipeline, chunks);
    return b;
}

/* Returns the seconds of a step in which a rank neither computed nor exchanged. */
static double other(const by_profile_step *s)
{
    return s->seconds - s->compute - s->exposed;
}

static double share(const by_profile_step *s, double seconds)
{
    return s->seconds > 0.0 ? 100.0 * seconds / s->seconds : 0.0;
}

void cli_print_ranks(const cli_profiled *run, const by_config *config)
{
    bubble b = find_bubble(run, config);
    printf("\n%-6s %-28s %9s %9s %7s %9s %9s %9s %9s %9s %10s %10s\n", "rank", "(ms a step)",
           "step", "compute", "", "exposed", "waiting", "hidden", "other", "bubble", "planned",
           "measured");
    for (int r = 0; r < by_profile_rank_count(run->ranks); r++) {
        char text[2][32];
        char name[180];
        const by_profile_rank *rank = by_profile_rank_of(run->ranks, r);
        const by_profile_step *s = &rank->mean;
        (void)snprintf(name, sizeof name, "%s%s%s", rank->host, rank->place[0] == '\0' ? "" : ", ",
                       rank->place);
        printf("%-6d %-28s %9.3f %9.3f %6.1f%% %9.3f %9.3f %9.3f %9.3f %9.3f %10s %10s\n", r, name,
               1e3 * s->seconds, 1e3 * s->compute, share(s, s->compute), 1e3 * s->exposed,
               1e3 * s->waiting, 1e3 * s->hidden, 1e3 * other(s), 1e3 * s->bubble,
               by_format_bytes(text[0], rank->planned), by_format_bytes(text[1], rank->resident));
    }
    printf("exposed: communication during which a rank did not compute; waiting: the part of it "
           "spent waiting for\nother ranks; hidden: communication during which it computed%s\n",
           strcmp(run->backend, "threads") == 0
               ? "; \"measured\" is the memory of the process that all ranks share"
               : "");
    if (b.is_there) {
        printf("pipeline, fastest step: %s, %lld micro-batches, passes of %.3f, %.3f and %.3f ms "
               "(forward, "
               "backward, weights);\nbubble %.3f ms, %.2f times the formula's %.3f ms (%.3f ms "
               "simulated)\n",
               by_pipeline_kind_name(b.kind), (long long)b.micro_batches, 1e3 * b.pass[0],
               1e3 * b.pass[1], 1e3 * b.pass[2], 1e3 * b.measured, b.measured / b.formula,
               1e3 * b.formula, 1e3 * b.simulated);
    }
}

void cli_print_ranks_json(const cli_profiled *run, const by_config *config)
{
    bubble b = find_bubble(run, config);
    printf(",\"backend\":\"%s\",\"ranks\":[", run->backend);
    for (int r = 0; r < by_profile_rank_count(run->ranks); r++) {
        const by_profile_rank *rank = by_profile_rank_of(run->ranks, r);
        const by_profile_step *s = &rank->mean;
        printf("%s{\"rank\":%d,\"host\":", r == 0 ? "" : ",", r);
        cli_print_json_string(rank->host);
        printf(",\"place\":");
        cli_print_json_string(rank->place);
        printf(",\"step_ms\":%.6g,\"compute_ms\":%.6g,\"exposed_ms\":%.6g,\"waiting_ms\":%.6g,"
               "\"hidden_ms\":%.6g,\"other_ms\":%.6g,\"bubble_ms\":%.6g,\"clock_ms\":%.6g,"
               "\"planned_bytes\":%llu,\"resident_bytes\":%llu}",
               1e3 * s->seconds, 1e3 * s->compute, 1e3 * s->exposed, 1e3 * s->waiting,
               1e3 * s->hidden, 1e3 * other(s), 1e3 * s->bubble, 1e3 * rank->clock,
               (unsigned long long)rank->planned, (unsigned long long)rank->resident);
    }
    printf("],\"pipeline\":");
    if (!b.is_there) {
        printf("null");
        return;
    }
    printf("{\"schedule\":\"%s\",\"micro_batches\":%lld,\"forward_ms\":%.6g,\"backward_ms\":%.6g,"
           "\"weights_ms\":%.6g,\"bubble_ms\":%.6g,\"formula_ms\":%.6g,\"simulated_ms\":%.6g}",
           by_pipeline_kind_name(b.kind), (long long)b.micro_batches, 1e3 * b.pass[0],
           1e3 * b.pass[1], 1e3 * b.pass[2], 1e3 * b.measured, 1e3 * b.formula, 1e3 * b.simulated);
}
