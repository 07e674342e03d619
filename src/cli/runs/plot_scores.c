/* banyan plot --show confusion,...: tables and curves of what a classifier says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/plot.h"
#include "banyan/scores.h"
#include "banyan/train.h"
#include "runs/plot_scores.h"

#define MAX_CHARTS 5
#define MAX_CURVES 8 /* lines of a chart, for each of which there is a colour */
#define BINS       10
#define NAME       96

typedef enum chart_kind {
    CONFUSION,
    CLASSES,
    PR,
    ROC,
    CALIBRATION,
    CHARTS,
    WRONG,
    FILTERS,
    ATTENTION,
    OVERLAY
} chart_kind;

static const char *const names[] = {[CONFUSION] = "confusion",
                                    [CLASSES] = "classes",
                                    [PR] = "pr",
                                    [ROC] = "roc",
                                    [CALIBRATION] = "calibration",
                                    [WRONG] = "wrong",
                                    [FILTERS] = "filters",
                                    [ATTENTION] = "attention",
                                    [OVERLAY] = "overlay"};

/* Finds a chart by its name; false if there is none. */
static bool find_chart(chart_kind *out, const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i] != NULL && strlen(names[i]) == length &&
            strncmp(names[i], name, length) == 0) {
            *out = (chart_kind)i;
            return true;
        }
    }
    return false;
}

bool cli_shows_scores(const char *name, size_t length)
{
    chart_kind kind;
    return find_chart(&kind, name, length);
}

/* A chart and what it points to. */
typedef struct score_chart {
    by_plot_options options;
    by_plot_matrix matrix;
    double *values;
    double *shades;
    by_score_curve curves[MAX_CURVES];
    char labels[MAX_CURVES][NAME];
    by_plot_series series[MAX_CURVES + 1];
    char title[NAME];
} score_chart;

typedef struct scoring {
    cli_scores_request *request;
    by_task_data *data;
    by_scores *scores;
    by_task_kept kept;
    size_t classes;
    const char **class_names; /* [classes] */
    char (*numbers)[32];
    cli_wrongs wrongs;
    chart_kind kind; /* of the first chart */
    score_chart charts[MAX_CHARTS];
    size_t chart_count;
} scoring;

static by_status no_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: scores");
}

/* ---- charts ---- */

static by_status allocate_matrix(score_chart *c, size_t rows, size_t columns, by_error *error)
{
    c->values = calloc(rows * columns, sizeof *c->values);
    c->shades = calloc(rows * columns, sizeof *c->shades);
    c->matrix = (by_plot_matrix){
        .values = c->values, .shades = c->shades, .rows = rows, .columns = columns};
    c->options.matrix = &c->matrix;
    return c->values == NULL || c->shades == NULL ? no_memory(error) : BY_OK;
}

static by_status make_confusion(score_chart *c, const scoring *s, by_error *error)
{
    size_t n = s->classes;
    by_status status = allocate_matrix(c, n, n, error);
    if (status != BY_OK) {
        return status;
    }
    by_scores_confusion(s->scores, c->values);
    for (size_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (size_t k = 0; k < n; k++) {
            sum += c->values[i * n + k];
            c->matrix.decimals =
                c->values[i * n + k] == floor(c->values[i * n + k]) ? c->matrix.decimals : 1;
        }
        for (size_t k = 0; k < n; k++) {
            c->shades[i * n + k] = sum > 0.0 ? c->values[i * n + k] / sum : 0.0;
        }
    }
    c->matrix.row_names = c->matrix.column_names = s->class_names;
    c->options.title = "Confusion";
    c->options.x_label = "predicted class";
    c->options.y_label = "class";
    return BY_OK;
}

static by_status make_classes(score_chart *c, const scoring *s, by_error *error)
{
    static const char *const columns[] = {"accuracy (recall)", "precision", "F1"};
    by_status status = allocate_matrix(c, s->classes, 3, error);
    by_class_score *scores = calloc(s->classes, sizeof *scores);
    if (status == BY_OK) {
        status = scores == NULL ? no_memory(error) : by_scores_classes(s->scores, scores, error);
    }
    for (size_t i = 0; i < s->classes && status == BY_OK; i++) {
        c->values[3 * i] = scores[i].recall;
        c->values[3 * i + 1] = scores[i].precision;
        c->values[3 * i + 2] = scores[i].f1;
    }
    if (status == BY_OK) {
        memcpy(c->shades, c->values, s->classes * 3 * sizeof *c->shades);
    }
    free(scores);
    c->matrix.decimals = 3;
    c->matrix.row_names = s->class_names;
    c->matrix.column_names = columns;
    c->options.title = "Classes";
    return status;
}

/* Adds a curve of a class, or BY_SCORES_ALL, unless it has no area. */
static by_status add_curve(score_chart *c, const scoring *s, chart_kind kind, size_t class,
                           by_error *error)
{
    size_t i = c->options.series_count;
    by_score_curve *curve = &c->curves[i];
    by_status status = kind == ROC ? by_scores_roc(curve, s->scores, class, error)
                                   : by_scores_precision_recall(curve, s->scores, class, error);
    if (status != BY_OK) {
        return status;
    }
    if (isnan(curve->area)) {
        by_score_curve_free(curve);
        return BY_OK;
    }
    (void)snprintf(c->labels[i], NAME, "%.60s (%.4f)",
                   class == BY_SCORES_ALL ? "all classes" : s->class_names[class], curve->area);
    c->series[i] =
        (by_plot_series){.name = c->labels[i], .x = curve->x, .y = curve->y, .count = curve->count};
    c->options.series_count++;
    return BY_OK;
}

/* Finds the classes with the smallest areas, as many as there are colours for. */
static by_status find_worst(size_t worst[MAX_CURVES], size_t *count, const scoring *s,
                            chart_kind kind, by_error *error)
{
    double areas[MAX_CURVES];
    *count = 0;
    for (size_t class = 0; class < s->classes; class ++) {
        by_score_curve curve;
        by_status status = kind == ROC
                               ? by_scores_roc(&curve, s->scores, class, error)
                               : by_scores_precision_recall(&curve, s->scores, class, error);
        if (status != BY_OK) {
            return status;
        }
        double area = curve.area;
        by_score_curve_free(&curve);
        size_t at = *count;
        while (at > 0 && areas[at - 1] > area) {
            at--;
        }
        if (isnan(area) || at == MAX_CURVES - 1) {
            continue;
        }
        *count += *count < MAX_CURVES - 1;
        memmove(areas + at + 1, areas + at, (*count - 1 - at) * sizeof *areas);
        memmove(worst + at + 1, worst + at, (*count - 1 - at) * sizeof *worst);
        areas[at] = area;
        worst[at] = class;
    }
    return BY_OK;
}

/* Of two classes the curve of the second; of several that of all together, and the worst. */
static by_status make_curves(score_chart *c, const scoring *s, chart_kind kind, by_error *error)
{
    size_t worst[MAX_CURVES] = {1};
    size_t count = 1;
    by_status status = BY_OK;
    if (s->classes > 2) {
        status = find_worst(worst, &count, s, kind, error);
        if (status == BY_OK) {
            status = add_curve(c, s, kind, BY_SCORES_ALL, error);
        }
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = add_curve(c, s, kind, worst[i], error);
    }
    c->options.title = kind == ROC ? "ROC (area under the curve)"
                                   : "Precision and recall (average "
                                     "precision)";
    c->options.x_label = kind == ROC ? "false-positive rate" : "recall";
    c->options.y_label = kind == ROC ? "true-positive rate" : "precision";
    return status;
}

static by_status make_calibration(score_chart *c, const scoring *s, by_error *error)
{
    static const double diagonal[] = {0, 1};
    by_calibration_bin bins[BINS];
    double expected_error;
    by_score_curve *curve = &c->curves[0];
    by_scores_calibration(s->scores, BINS, bins, &expected_error);
    curve->x = calloc(BINS, sizeof *curve->x);
    curve->y = calloc(BINS, sizeof *curve->y);
    if (curve->x == NULL || curve->y == NULL) {
        return no_memory(error);
    }
    for (size_t i = 0; i < BINS; i++) {
        if (bins[i].weight > 0.0) {
            curve->x[curve->count] = bins[i].confidence;
            curve->y[curve->count++] = bins[i].accuracy;
        }
    }
    c->series[0] =
        (by_plot_series){.name = "model", .x = curve->x, .y = curve->y, .count = curve->count};
    c->series[1] = (by_plot_series){
        .name = "calibrated", .x = diagonal, .y = diagonal, .count = 2, .group = 8, .dashed = true};
    c->options.series_count = 2;
    (void)snprintf(c->title, sizeof c->title, "Calibration (expected error %.4f)", expected_error);
    c->options.title = c->title;
    c->options.x_label = "confidence";
    c->options.y_label = "accuracy";
    return BY_OK;
}

static by_status make_chart(score_chart *c, const scoring *s, chart_kind kind, by_error *error)
{
    c->options.series = c->series;
    switch (kind) {
    case CONFUSION:
        return make_confusion(c, s, error);
    case CLASSES:
        return make_classes(c, s, error);
    case CALIBRATION:
        return make_calibration(c, s, error);
    default:
        return make_curves(c, s, kind, error);
    }
}

static void free_chart(score_chart *c)
{
    free(c->values);
    free(c->shades);
    for (size_t i = 0; i < MAX_CURVES; i++) {
        by_score_curve_free(&c->curves[i]);
    }
}

/* ---- the evaluation ---- */

static by_status take_batch(void *user, const by_batch *batch, const float *values, size_t width,
                            by_error *error)
{
    scoring *s = user;
    const by_array *labels = by_batch_array(batch, "labels");
    const by_array *weights = by_batch_array(batch, "weight");
    by_status status = BY_OK;
    if (labels == NULL || width != s->classes) {
        return by_error_set(error, BY_EARG, "the held-out data has no classes");
    }
    for (size_t i = 0; i < batch->batch && status == BY_OK; i++) {
        double weight = weights == NULL ? 1.0 : (double)((const float *)weights->data)[i];
        int32_t class = ((const int32_t *)labels->data)[i];
        if (class >= 0 && weight > 0.0) {
            status = by_scores_add(s->scores, class, values + i * width, weight, error);
        }
    }
    return status == BY_OK && s->kind == WRONG
               ? cli_add_wrongs(&s->wrongs, s->data, batch, values, width, error)
               : status;
}

static by_status name_classes(scoring *s, const by_config *config, by_error *error)
{
    by_status status =
        s->data->task->keep == NULL ? BY_OK : s->data->task->keep(s->data, config, &s->kept, error);
    s->class_names = calloc(s->classes, sizeof *s->class_names);
    s->numbers = calloc(s->classes, sizeof *s->numbers);
    if (status == BY_OK && (s->class_names == NULL || s->numbers == NULL)) {
        status = no_memory(error);
    }
    for (size_t i = 0; i < s->classes && status == BY_OK; i++) {
        s->class_names[i] = cli_class_name(s->numbers[i], &s->kept, (int64_t)i);
    }
    return status;
}

static by_status draw_charts(scoring *s, const char *out, by_error *error)
{
    by_plot_options pages[MAX_CHARTS];
    by_status status = BY_OK;
    for (const char *at = s->request->show; status == BY_OK && *at != '\0';) {
        size_t length = strcspn(at, ",");
        chart_kind kind;
        if (s->chart_count == MAX_CHARTS) {
            return by_error_set(error, BY_EARG, "--show: each chart once");
        }
        (void)find_chart(&kind, at, length);
        score_chart *c = &s->charts[s->chart_count++];
        status = make_chart(c, s, kind, error);
        pages[s->chart_count - 1] = c->options;
        at += length + (at[length] == ',');
    }
    return status == BY_OK ? by_plot_write_all(pages, s->chart_count, out, error) : status;
}

/* Evaluates on the held-out data, and draws. */
static by_status draw_scores(scoring *s, const by_pretrained *model, by_config *config,
                             const char *out, by_error *error)
{
    if (s->kind == OVERLAY) {
        return cli_draw_overlays(config, model, s->data, (size_t)s->request->count, out, error);
    }
    s->classes = (size_t)config->model.outputs;
    by_status status = by_scores_open(&s->scores, s->classes, error);
    if (status == BY_OK) {
        status = name_classes(s, config, error);
    }
    if (status == BY_OK && s->kind == ATTENTION) {
        return cli_draw_attention(config, model, s->data, &s->kept, (size_t)s->request->count, out,
                                  error);
    }
    if (status == BY_OK) {
        status = by_evaluate_each(config, by_pretrained_weights(model), s->data, NULL, take_batch,
                                  cli_stop_requested, s, error);
    }
    if (status == BY_OK && by_scores_count(s->scores) == 0) {
        status = by_error_set(error, BY_EARG, "there is no example to evaluate on");
    }
    if (status == BY_OK) {
        status = s->kind == WRONG ? cli_draw_wrongs(&s->wrongs, &s->kept, out, error)
                                  : draw_charts(s, out, error);
    }
    return status;
}

static by_status open_and_draw(scoring *s, const by_pretrained *model, const char *run,
                               const char *out, by_error *error)
{
    cli_spool spool = {.path = NULL};
    by_config *config;
    const by_task_request what = {.purpose = BY_TASK_EVALUATE, .path = s->request->data};
    by_status status = cli_copy_config(&config, model, error);
    if (status != BY_OK) {
        return status;
    }
    if (s->kind == OVERLAY && strcmp(config->task.kind, "segment") != 0) {
        status = by_error_set(error, BY_EARG,
                              "--show overlay is of models that give each pixel a class (task.kind "
                              "segment), and task.kind is %s",
                              config->task.kind);
    } else if (s->kind != OVERLAY && strcmp(config->task.kind, "classify") != 0) {
        status =
            by_error_set(error, BY_EARG,
                         "--show %s is of models that give each example a class (task.kind "
                         "classify), and task.kind %s does not: loss and other curves of its run "
                         "are drawn, and `banyan eval` tells its metrics",
                         s->request->show, config->task.kind);
    } else if (run == NULL && s->request->data == NULL) {
        status = by_error_set(error, BY_EARG,
                              "%s is not a run and has no held-out data: give data with --data",
                              by_pretrained_directory(model));
    }
    if (status == BY_OK) {
        config->train.eval_batches = -1;
        status = cli_open_task_data(&s->data, &spool, config, model, run, &what, error);
    }
    if (status == BY_OK) {
        status = by_task_complete(s->data, config, error);
    }
    if (status == BY_OK) {
        status = draw_scores(s, model, config, out, error);
    }
    by_task_close(&s->data);
    cli_spool_close(&spool);
    by_config_close(&config);
    return status;
}

static by_status draw_all(void *user, const by_pretrained *model, const char *run, by_error *error)
{
    cli_scores_request *r = user;
    chart_kind kind;
    char name[64];
    size_t length = strcspn(r->show, ",");
    (void)find_chart(&kind, r->show, length);
    bool alone = kind > CHARTS;
    (void)snprintf(name, sizeof name, "%s.png", names[kind]);
    const char *out = r->out == NULL ? name : r->out;
    for (const char *at = r->show; *at != '\0';) {
        size_t n = strcspn(at, ",");
        chart_kind other;
        if (!find_chart(&other, at, n) || (other != kind && (alone || other > CHARTS))) {
            return by_error_set(error, BY_EARG,
                                "--show %s: %s of a model go on one page; wrong, filters, "
                                "attention, overlay, and curves of a run are drawn by themselves",
                                r->show, "confusion, classes, pr, roc and calibration");
        }
        at += n + (at[n] == ',');
    }
    by_status status;
    if (kind == FILTERS) {
        status = cli_draw_filters(model, (size_t)r->count, out, error);
    } else {
        scoring *s = calloc(1, sizeof *s);
        if (s == NULL) {
            return no_memory(error);
        }
        s->request = r;
        s->kind = kind;
        s->wrongs.most = (size_t)r->count;
        status = open_and_draw(s, model, run, out, error);
        for (size_t i = 0; i < s->chart_count; i++) {
            free_chart(&s->charts[i]);
        }
        cli_free_wrongs(&s->wrongs);
        by_scores_close(&s->scores);
        free(s->class_names);
        free(s->numbers);
        free(s);
    }
    if (status == BY_OK && r->tensorboard) {
        status = cli_track_picture(model, run, r->show, out, error);
    }
    cli_tell_written(status == BY_OK ? out : NULL);
    return status;
}

int cli_plot_scores(const cli_command *command, const char *run, cli_scores_request *request)
{
    return cli_with_pretrained(command, run, request->device, request->best, false, NULL, draw_all,
                               request);
}
