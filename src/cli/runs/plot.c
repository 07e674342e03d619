#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/pipeline.h"
#include "banyan/plot.h"
#include "banyan/runs.h"
#include "banyan/track.h"
#include "banyan/train.h"
#include "base/cli.h"
#include "runs/plot_forecast.h"
#include "runs/plot_scores.h"

#define MAX_RUNS 8

/* A by_series converted to the doubles that a chart takes. */
typedef struct plot_curve {
    by_series series;
    double *x;
    char name[128];
} plot_curve;

static by_status read_curve(plot_curve *c, const char *run, const char *event, const char *key,
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

/* A chart that --show may name: lines of one or two keys for each run. */
typedef struct plot_view {
    const char *name;
    const char *title;
    const char *y_label;
    struct plot_line {
        const char *event; /* NULL: no second line */
        const char *key;
        const char *label; /* added to the run's name */
        double smooth;
    } lines[2];
} plot_view;

static const plot_view views[] = {
    {"loss",
     "Loss",
     "loss",
     {{"train", "loss", "training", 0.9}, {"eval", "valid_loss", "held out", 0}}},
    {"throughput", "Throughput", "tokens a second", {{"train", "tokens_per_s", "tokens", 0.5}}},
    {"norm", "Gradient norm", "norm before clipping", {{"train", "norm", "gradient", 0.9}}},
    {"utilisation", "Utilisation", "share of the peak", {{"train", "mfu", "products", 0.5}}},
    {"lr", "Learning rate", "learning rate", {{"train", "lr", "learning rate", 0}}},
};

#define MAX_CHARTS 16
#define MAX_IMAGES 4096
#define MAX_NAME   64

/* Finds what --show names: a view, or EVENT.KEY for a single line. `text` stores the parts of a
 * name. */
static by_status find_view(plot_view *out, char text[MAX_NAME], const char *name, size_t length,
                           by_error *error)
{
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        if (strlen(views[i].name) == length && strncmp(views[i].name, name, length) == 0) {
            *out = views[i];
            return BY_OK;
        }
    }
    const char *dot = memchr(name, '.', length);
    if (dot == NULL || length >= MAX_NAME || dot == name || dot + 1 == name + length) {
        return by_error_set(
            error, BY_EARG,
            "--show: '%.*s' is not loss, throughput, norm, utilisation, lr or "
            "EVENT.KEY, such as train.loss; nor, of one model, forecast, " CLI_SCORE_CHARTS,
            (int)length, name);
    }
    memcpy(text, name, length);
    text[length] = '\0';
    text[dot - name] = '\0';
    const char *key = text + (dot - name) + 1;
    *out = (plot_view){.name = text, .title = key, .y_label = key, .lines = {{text, key, key, 0}}};
    return BY_OK;
}

/* A chart and the data that its series point to. */
typedef struct drawing {
    plot_view view;
    char text[MAX_NAME];
    plot_curve curves[2 * MAX_RUNS];
    by_plot_series series[2 * MAX_RUNS];
    by_plot_options options;
} drawing;

/* The loss of a chart is labelled as the runs say; "loss" if they say different things. */
static void label_loss(drawing *d, const char *run, bool first)
{
    by_run_facts facts = {0};
    bool known = by_run_facts_read(&facts, run, NULL) == BY_OK;
    const by_fact *fact = known ? by_run_facts_find(&facts, "environment.job.loss") : NULL;
    const char *label = fact == NULL ? "loss" : fact->value;
    if (first) {
        (void)snprintf(d->text, sizeof d->text, "%s", label);
    } else if (strcmp(d->text, label) != 0) {
        (void)snprintf(d->text, sizeof d->text, "loss");
    }
    d->options.y_label = d->text;
    by_run_facts_free(&facts);
}

/* A run of images or tables has its throughput under another key. */
static by_status read_line(plot_curve *c, drawing *d, const char *run, const struct plot_line *line,
                           const char *label, by_error *error)
{
    static const char *const others[][2] = {{"rows_per_s", "rows a second"},
                                            {"samples_per_s", "samples a second"}};
    by_status status = read_curve(c, run, line->event, line->key, label, error);
    bool varies = strcmp(line->key, "tokens_per_s") == 0 && strcmp(line->label, "tokens") == 0;
    for (size_t i = 0; i < 2 && varies && status == BY_OK && c->series.count == 0; i++) {
        by_series_free(&c->series);
        free(c->x);
        c->x = NULL;
        status = read_curve(c, run, line->event, others[i][0], label, error);
        if (status == BY_OK && c->series.count > 0) {
            d->options.y_label = others[i][1];
        }
    }
    return status;
}

/* Adds the lines of the i-th of `count` runs. */
static by_status add_run(drawing *d, const char *run, int i, int count, by_error *error)
{
    const char *slash = strrchr(run, '/');
    by_status status = BY_OK;
    for (int k = 0; k < 2 && d->view.lines[k].event != NULL && status == BY_OK; k++) {
        const struct plot_line *line = &d->view.lines[k];
        char label[128];
        (void)snprintf(label, sizeof label, "%s%s%s", count > 1 ? (slash ? slash + 1 : run) : "",
                       count > 1 ? ", " : "", line->label);
        plot_curve *c = &d->curves[d->options.series_count];
        status = read_line(c, d, run, line, label, error);
        if (status == BY_OK && c->series.count > 0) {
            d->series[d->options.series_count++] = (by_plot_series){.name = c->name,
                                                                    .x = c->x,
                                                                    .y = c->series.values,
                                                                    .count = c->series.count,
                                                                    .smooth = line->smooth,
                                                                    .group = (size_t)i + 1,
                                                                    .dashed = k > 0};
        } else {
            by_series_free(&c->series);
            free(c->x);
            c->x = NULL;
        }
    }
    return status;
}

static by_status open_drawing(drawing *d, char **runs, int count, bool log_y, by_error *error)
{
    by_status status = BY_OK;
    char only[4096] = "the run has";
    bool is_loss = strcmp(d->view.name, "loss") == 0;
    d->options = (by_plot_options){.title = d->view.title,
                                   .x_label = "step",
                                   .y_label = d->view.y_label,
                                   .log_y = log_y && is_loss,
                                   .whole_x = true,
                                   .series = d->series};
    for (int i = 0; i < count && status == BY_OK; i++) {
        char *run = NULL;
        status = by_run_find(&run, runs[i], error);
        if (status == BY_OK) {
            status = add_run(d, run, i, count, error);
        }
        if (status == BY_OK) {
            (void)snprintf(only, sizeof only, "%.3900s has", run);
        }
        if (status == BY_OK && is_loss) {
            label_loss(d, run, i == 0);
        }
        free(run);
    }
    if (status == BY_OK && d->options.series_count == 0) {
        status = by_error_set(error, BY_ESTATE, "%s no %s yet",
                              count > 1 ? "none of the runs has" : only, d->view.name);
    }
    return status;
}

/* Draws the charts listed in `show`, with all runs, to one file. */
static by_status draw(char **runs, int count, const char *show, const char *out, bool log_y,
                      by_error *error)
{
    by_plot_options charts[MAX_CHARTS];
    size_t used = 0;
    by_status status = BY_OK;
    drawing *drawings = calloc(MAX_CHARTS, sizeof *drawings);
    if (drawings == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: charts");
    }
    for (const char *at = show; status == BY_OK;) { /* an empty name is none, too */
        size_t length = strcspn(at, ",");
        drawing *d = &drawings[used];
        if (used == MAX_CHARTS) {
            status = by_error_set(error, BY_EARG, "--show: at most %d charts", MAX_CHARTS);
            break;
        }
        used++;
        status = find_view(&d->view, d->text, at, length, error);
        if (status == BY_OK) {
            status = open_drawing(d, runs, count, log_y, error);
            charts[used - 1] = d->options;
        }
        if (at[length] == '\0') {
            break;
        }
        at += length + 1;
    }
    if (status == BY_OK) {
        status = by_plot_write_all(charts, used, out, error);
    }
    for (size_t i = 0; i < used; i++) {
        for (size_t k = 0; k < 2 * MAX_RUNS; k++) {
            by_series_free(&drawings[i].curves[k].series);
            free(drawings[i].curves[k].x);
        }
    }
    free(drawings);
    return status;
}

/* The values of --schedule and its flags. */
typedef struct schedule_flags {
    const char *kind; /* NULL: none */
    int64_t ranks;
    int64_t micro_batches;
    int64_t chunks;
} schedule_flags;

/* Draws a pipeline schedule to a file, or prints it. */
static by_status draw_schedule(const schedule_flags *s, const char *out, by_error *error)
{
    by_pipeline_kind kind;
    by_pipeline *pipeline;
    by_status status = by_pipeline_kind_find(&kind, s->kind, error);
    if (status != BY_OK) {
        return status;
    }
    const by_pipeline_options options = {.kind = kind,
                                         .ranks = (int)s->ranks,
                                         .chunks = (int)s->chunks,
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

static int finish(by_status status, const char *out, const by_error *error)
{
    if (status != BY_OK) {
        return cli_fail(&cli_plot, error);
    }
    cli_tell_written(out);
    return CLI_DONE;
}

static int run(int argc, char **argv)
{
    const char *out = NULL;
    const char *show = "loss";
    bool log_y = false;
    schedule_flags schedule = {.ranks = 4, .micro_batches = 8, .chunks = 1};
    cli_scores_request scores = {.count = CLI_SCORE_IMAGES};
    cli_forecast_request forecast = {0};
    const cli_flag flags[] = {
        {"out", CLI_STRING, &out, "FILE", "file to write, .png or .svg (default loss.png)"},
        {"show", CLI_STRING, &show, "LIST",
         "charts, separated by commas: loss, throughput, norm, utilisation, lr, or EVENT.KEY of "
         "recorded events (default loss); or, of one model: forecast, " CLI_SCORE_CHARTS},
        {"data", CLI_STRING, &scores.data, "WHAT",
         "of one model: IMAGES,LABELS, a folder, shards or a table (default: the held-out data)"},
        {"count", CLI_INTEGER_IN(1, MAX_IMAGES), &scores.count, "N",
         "wrong, filters, attention, overlay: images to draw, at most (default 24)"},
        {"series", CLI_STRING, &forecast.series, "NAME",
         "forecast: the series (default: the first)"},
        {"test", CLI_SWITCH, &forecast.test, NULL,
         "forecast: of the part that the run keeps for a test"},
        {"device", CLI_STRING, &scores.device, "NAME", CLI_DEVICE_HELP},
        {"best", CLI_SWITCH, &scores.best, NULL, CLI_BEST_HELP},
        {"tensorboard", CLI_SWITCH, &scores.tensorboard, NULL,
         "of one model: write the picture, a PNG, for TensorBoard, too"},
        {"log", CLI_SWITCH, &log_y, NULL, "logarithmic loss axis"},
        {"schedule", CLI_STRING, &schedule.kind, "KIND",
         "draw a pipeline schedule: gpipe, 1f1b, interleaved or zero_bubble"},
        {"ranks", CLI_INTEGER_IN(1, INT_MAX), &schedule.ranks, "N",
         "schedule: ranks of the pipeline (default 4)"},
        {"micro-batches", CLI_INTEGER_FROM(1), &schedule.micro_batches, "N",
         "schedule: micro-batches per step (default 8)"},
        {"chunks", CLI_INTEGER_IN(1, INT_MAX), &schedule.chunks, "N",
         "schedule: model chunks per rank (default 1)"},
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
        return finish(draw_schedule(&schedule, out, &error), out, &error);
    }
    if (count < 1 || count > MAX_RUNS) {
        return cli_misuse(&cli_plot, "name one to %d run directories", MAX_RUNS);
    }
    if (strcmp(show, "forecast") == 0) {
        forecast.out = out;
        forecast.data = scores.data;
        forecast.device = scores.device;
        forecast.best = scores.best;
        forecast.tensorboard = scores.tensorboard;
        return count == 1 ? cli_plot_forecast(&cli_plot, rest[0], &forecast)
                          : cli_misuse(&cli_plot, "--show forecast is of one model: name one run");
    }
    if (cli_shows_scores(show, strcspn(show, ","))) {
        scores.show = show;
        scores.out = out;
        if (count != 1) {
            return cli_misuse(&cli_plot, "--show %s is of one model: name one run", show);
        }
        if ((code = cli_check_data(&cli_plot, scores.data)) >= 0) {
            return code;
        }
        return cli_plot_scores(&cli_plot, rest[0], &scores);
    }
    if (scores.tensorboard) {
        return cli_misuse(&cli_plot, "--tensorboard is of pictures of one model: TensorBoard draws "
                                     "the curves of a run itself");
    }
    out = out == NULL ? "loss.png" : out;
    return finish(draw(rest, count, show, out, log_y, &error), out, &error);
}

const cli_command cli_plot = {
    .name = "plot",
    .summary = "plot curves of runs, what a classifier gets right, or a pipeline schedule",
    .usage =
        "banyan plot RUN... [--show LIST] [--out FILE] [--log]\n"
        "       banyan plot RUN --show confusion,classes,pr,roc,calibration [--data WHAT]\n"
        "       banyan plot RUN --show wrong|filters|attention|overlay [--count N] [--out FILE]\n"
        "       banyan plot RUN --show forecast [--series NAME] [--test | --data FILE] "
        "[--out FILE]\n"
        "       banyan plot --schedule KIND [--ranks N] [--micro-batches N] [--chunks N] "
        "[--out FILE]",
    .text =
        "Plots the training and validation loss of up to 8 runs, or what --show lists. Runs may\n"
        "still be in progress. With --schedule, draws a pipeline schedule instead, with a line\n"
        "per rank; without --out it is printed as text.\n"
        "\n"
        "Of a classifier, --show evaluates on held-out data and draws the confusion matrix,\n"
        "accuracy, precision and F1 of each class, precision-recall and ROC curves (of many\n"
        "classes: of all together, and of the worst), calibration, and the images that are wrong\n"
        "with most confidence; filters are the weights of the first layer, attention what the\n"
        "class token of a ViT attends to in the last one. Of a segmentation, overlay draws\n"
        "held-out images with the classes of their pixels, true and predicted. Grids are PNG.\n"
        "With --tensorboard a picture is also an image of RUN/tensorboard/plots, at the step of\n"
        "the checkpoint.\n"
        "\n"
        "Of a model of series, --show forecast draws the last held-out window of a series, what\n"
        "it was, and the band of the outermost quantiles.\n"
        "\n"
        "examples:\n"
        "  banyan plot runs/shakespeare-char --out loss.png\n"
        "  banyan plot runs/small runs/large --show loss,norm,throughput,utilisation\n"
        "  banyan plot runs/pets --show confusion,classes,roc,calibration --out pets.svg\n"
        "  banyan plot --schedule 1f1b --ranks 4 --micro-batches 8",
    .run = run};
