#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/pipeline.h"
#include "banyan/track.h"
#include "banyan/train.h"
#include "cli.h"

#define MAX_RUNS 8

/* A by_series as the doubles that a chart takes. */
typedef struct curve {
    by_series series;
    double *x;
    char name[128];
} curve;

static by_status read_curve(curve *c, const char *run, const char *event, const char *key,
                            const char *label, by_error *error)
{
    by_status status = by_events_read(&c->series, run, event, key, error);
    if (status != BY_OK) {
        return status;
    }
    c->x = malloc((c->series.count + 1) * sizeof *c->x);
    if (c->x == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %zu points", c->series.count);
    }
    for (size_t i = 0; i < c->series.count; i++) {
        c->x[i] = (double)c->series.steps[i];
    }
    (void)snprintf(c->name, sizeof c->name, "%s", label);
    return BY_OK;
}

/* Training and validation loss of every run named, in one chart. */
static by_status draw(char **runs, int count, const char *out, bool log_y, by_error *error)
{
    curve curves[2 * MAX_RUNS] = {{{0}, NULL, ""}};
    by_plot_series series[2 * MAX_RUNS] = {{0}};
    size_t used = 0;
    by_status status = BY_OK;
    for (int i = 0; i < count && status == BY_OK; i++) {
        char *run = NULL;
        static const char *const events[2] = {"train", "eval"};
        static const char *const keys[2] = {"loss", "valid_loss"};
        static const char *const labels[2] = {"training", "held out"};
        status = by_run_find(&run, runs[i], error);
        for (int k = 0; k < 2 && status == BY_OK; k++) {
            const char *slash = strrchr(run, '/');
            char label[128];
            (void)snprintf(label, sizeof label, "%s%s%s",
                           count > 1 ? (slash ? slash + 1 : run) : "", count > 1 ? ", " : "",
                           labels[k]);
            curve *c = &curves[used];
            status = read_curve(c, run, events[k], keys[k], label, error);
            if (status == BY_OK && c->series.count > 0) {
                series[used] = (by_plot_series){.name = c->name,
                                                .x = c->x,
                                                .y = c->series.values,
                                                .count = c->series.count,
                                                .smooth = k == 0 ? 0.9 : 0.0};
                used++;
            }
        }
        free(run);
    }
    if (status == BY_OK && used == 0) {
        status = by_error_set(error, BY_ESTATE, "the run has no losses yet");
    }
    if (status == BY_OK) {
        by_plot_options options = {.title = "Loss",
                                   .x_label = "step",
                                   .y_label = "cross-entropy (nats per token)",
                                   .log_y = log_y,
                                   .series = series,
                                   .series_count = used};
        status = by_plot_write(&options, out, error);
    }
    for (size_t i = 0; i < 2 * MAX_RUNS; i++) {
        by_series_free(&curves[i].series);
        free(curves[i].x);
    }
    return status;
}

/* What --schedule asks for. */
typedef struct schedule_flags {
    const char *kind; /* NULL: none */
    int64_t ranks;
    int64_t micro_batches;
    int64_t chunks;
} schedule_flags;

/* A number that is out of range for an int is so for what it counts. */
static int in_int(int64_t n)
{
    return n < 0 || n > INT_MAX ? -1 : (int)n;
}

/* A pipeline schedule, to a file or as text. */
static by_status draw_schedule(const schedule_flags *s, const char *out, by_error *error)
{
    by_pipeline_kind kind;
    by_pipeline *pipeline;
    by_status status = by_pipeline_kind_find(&kind, s->kind, error);
    if (status != BY_OK) {
        return status;
    }
    const by_pipeline_options options = {.kind = kind,
                                         .ranks = in_int(s->ranks),
                                         .chunks = in_int(s->chunks),
                                         .micro_batches = s->micro_batches};
    status = by_pipeline_open(&pipeline, &options, error);
    if (status != BY_OK) {
        return status;
    }
    char *text;
    if (out != NULL) {
        status = by_pipeline_draw(pipeline, out, error);
    } else {
        status = by_pipeline_text(&text, pipeline, error);
        if (status == BY_OK) {
            fputs(text, stdout);
            free(text);
        }
    }
    by_pipeline_close(&pipeline);
    return status;
}

static int run(int argc, char **argv)
{
    const char *out = NULL;
    bool log_y = false;
    schedule_flags schedule = {.ranks = 4, .micro_batches = 8, .chunks = 1};
    const cli_flag flags[] = {
        {"out", CLI_STRING, &out, "FILE", "where to draw, .png or .svg (default: loss.png)"},
        {"log", CLI_SWITCH, &log_y, NULL, "logarithmic loss axis"},
        {"schedule", CLI_STRING, &schedule.kind, "KIND",
         "a pipeline schedule: gpipe, 1f1b, interleaved, zero_bubble"},
        {"ranks", CLI_INTEGER, &schedule.ranks, "N", "of the pipeline (default: 4)"},
        {"micro-batches", CLI_INTEGER, &schedule.micro_batches, "N", "of a step (default: 8)"},
        {"chunks", CLI_INTEGER, &schedule.chunks, "N", "of the model on each rank (default: 1)"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_plot, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (schedule.kind != NULL) {
        if (count > 0) {
            return cli_misuse(&cli_plot, "--schedule draws no run: '%s'", rest[0]);
        }
        return draw_schedule(&schedule, out, &error) == BY_OK ? CLI_DONE
                                                              : cli_fail(&cli_plot, &error);
    }
    if (count < 1 || count > MAX_RUNS) {
        return cli_misuse(&cli_plot, "name one to %d run directories", MAX_RUNS);
    }
    return draw(rest, count, out == NULL ? "loss.png" : out, log_y, &error) == BY_OK
               ? CLI_DONE
               : cli_fail(&cli_plot, &error);
}

const cli_command cli_plot = {
    .name = "plot",
    .summary = "draw the loss curves of runs, or a pipeline schedule",
    .usage = "banyan plot RUN... [--out FILE] [--log]\n"
             "       banyan plot --schedule KIND [--ranks N] [--micro-batches N] [--chunks N] "
             "[--out FILE]",
    .text = "Draws training and held-out loss over steps, also while a run is going on. Or a\n"
            "pipeline schedule: one line a rank, as text where --out names no file.\n\n"
            "  banyan plot runs/shakespeare-char --out loss.png\n"
            "  banyan plot --schedule 1f1b --ranks 4 --micro-batches 8",
    .run = run};
