#include "serve/telemetry/served_drift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/table.h"
#include "base/paths.h"
#include "data/table/row_cell.h"
#include "data/table/table_cell.h"
#include "serve/protocol/messages.h"
#include "serve/telemetry/metrics.h"

/* Most features in the state: every state of the broker contains them. */
#define MAX_FEATURES 128
/* Bytes of an encoding that is read. */
#define MAX_ENCODING ((size_t)64 << 20)

struct by__telemetry_served_drift {
    by_drift_reference *reference;
    by_drift_watch *watch;
    const by__telemetry_log *log;
    size_t tokens; /* index of the feature of tokens; the number of features if there is none */
    by_encoding *encoding; /* of a model of tables; NULL: none */
    bool *read;            /* [features] whether the model reads that column of a table */
    const char **answers;  /* [features] the field of a prediction that a feature is */
};

/* Marks the columns that the encoding next to the weights has; other models have no encoding. The
 * reference also has the target, which requests need not have. */
static by_status mark_columns(by__telemetry_served_drift *d, const char *directory, by_error *error)
{
    size_t features = by_drift_reference_features(d->reference);
    char *text = NULL;
    const char *name;
    size_t length;
    by_column_kind kind;
    BY_TRY(by__alloc((void **)&d->read, features + 1, sizeof *d->read, "columns", error));
    char *path = by__path_join(directory, "encoding.json");
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    by_status status = BY_OK;
    if (by__path_exists(path)) {
        status = by__file_read(&text, &length, path, MAX_ENCODING, error);
        if (status == BY_OK) {
            status = by_encoding_parse(&d->encoding, path, text, length, error);
        }
    }
    for (size_t i = 0;
         d->encoding != NULL && (name = by_encoding_feature(d->encoding, i, &kind)) != NULL; i++) {
        size_t feature = by_drift_reference_find(d->reference, name);
        if (feature < features) {
            d->read[feature] = true;
        }
    }
    free(text);
    free(path);
    return status;
}

/* Names the fields of predictions. Those of several targets have the targets' names, and are in
 * their order. */
static by_status name_answers(by__telemetry_served_drift *d, by_error *error)
{
    size_t features = by_drift_reference_features(d->reference);
    size_t targets = d->encoding == NULL ? 0 : by_encoding_targets(d->encoding);
    size_t next_target = 0;
    BY_TRY(by__alloc((void **)&d->answers, features + 1, sizeof *d->answers, "columns", error));
    for (size_t i = 0; i < features; i++) {
        by_drift_kind kind;
        by_drift_role role = by_drift_reference_role(d->reference, i);
        (void)by_drift_reference_feature(d->reference, i, &kind);
        if (role == BY_DRIFT_CONFIDENCE) {
            d->answers[i] = "probability";
        } else if (role == BY_DRIFT_OUTCOME && kind == BY_DRIFT_CATEGORY) {
            d->answers[i] = "label";
        } else if (role == BY_DRIFT_OUTCOME) {
            const char *name = targets > 1 ? by_encoding_target(d->encoding, next_target++) : NULL;
            d->answers[i] = name == NULL ? "value" : name;
        }
    }
    return BY_OK;
}

by_status by__telemetry_served_drift_open(by__telemetry_served_drift **out, const char *directory,
                                          const by_drift_options *options,
                                          const by__telemetry_log *log, by_error *error)
{
    by__telemetry_served_drift *d = NULL;
    by_drift_reference *reference = NULL;
    *out = NULL;
    by_status status = by_drift_reference_read(&reference, directory, error);
    if (status == BY_ESTATE) {
        return BY_OK;
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&d, 1, sizeof *d, "drift", error);
    }
    if (status != BY_OK) {
        by_drift_reference_close(&reference);
        return status;
    }
    *d = (by__telemetry_served_drift){.reference = reference, .log = log};
    d->tokens = by_drift_reference_find(reference, "tokens");
    status = mark_columns(d, directory, error);
    if (status == BY_OK) {
        status = name_answers(d, error);
    }
    if (status == BY_OK) {
        status = by_drift_watch_open(&d->watch, reference, options, error);
    }
    if (status != BY_OK) {
        by__telemetry_served_drift_close(&d);
        return status;
    }
    *out = d;
    return BY_OK;
}

void by__telemetry_served_drift_close(by__telemetry_served_drift **drift)
{
    by__telemetry_served_drift *d = *drift;
    if (d != NULL) {
        *drift = NULL;
        by_drift_watch_close(&d->watch);
        by_drift_reference_close(&d->reference);
        by_encoding_close(&d->encoding);
        free(d->read);
        free(d->answers);
        free(d);
    }
}

const by_drift_window *by__telemetry_served_drift_last(const by__telemetry_served_drift *drift)
{
    return by_drift_watch_last(drift->watch);
}

size_t by__telemetry_served_drift_least(const by__telemetry_served_drift *drift)
{
    return by_drift_watch_least(drift->watch);
}

size_t by__telemetry_served_drift_features(const by__telemetry_served_drift *drift)
{
    return by_drift_reference_features(drift->reference);
}

const by_encoding *by__telemetry_served_drift_encoding(const by__telemetry_served_drift *drift)
{
    return drift->encoding;
}

const char *by__telemetry_served_drift_feature(const by__telemetry_served_drift *drift,
                                               size_t index, by_drift_kind *kind)
{
    return by_drift_reference_feature(drift->reference, index, kind);
}

/* ---- counting ---- */

static void publish(const by__telemetry_served_drift *d)
{
    const by_drift_window *w = by_drift_watch_last(d->watch);
    for (size_t i = 0; i < w->count; i++) {
        const by_drift_verdict *v = &w->verdicts[i];
        if (v->detected) {
            by__telemetry_log_event(d->log, "drift", "{ss sI sI sf sf sf}", "feature", v->feature,
                                    "window", (json_int_t)w->number, "requests",
                                    (json_int_t)w->requests, "psi", v->psi, "jensen_shannon",
                                    v->jensen_shannon, "p", v->p);
        }
    }
}

static void next(by__telemetry_served_drift *d)
{
    if (by_drift_watch_next(d->watch, by__now())) {
        publish(d);
    }
}

void by__telemetry_served_drift_end(by__telemetry_served_drift *drift)
{
    if (by_drift_watch_end(drift->watch)) {
        publish(drift);
    }
}

void by__telemetry_served_drift_tokens(by__telemetry_served_drift *drift, const int32_t *ids,
                                       size_t count)
{
    if (drift != NULL && drift->tokens < by_drift_reference_features(drift->reference)) {
        by_drift_watch_tokens(drift->watch, drift->tokens, ids, count);
        next(drift);
    }
}

/* The number that a value is, or that its text is in a table; NaN: none. */
static double number_of(const json_t *value)
{
    char digits[BY__CELL_DIGITS];
    double number = NAN;
    if (json_is_number(value)) {
        return json_number_value(value);
    }
    const char *text = by__table_row_cell_text(digits, value);
    bool is_number = text != NULL && by__table_cell_as_number(text, strlen(text), '.', &number);
    return is_number ? number : NAN;
}

/* Returns the category that a cell is for the model; NULL if it is missing. */
static const char *category_of(char digits[BY__CELL_DIGITS], const by__telemetry_served_drift *d,
                               size_t feature, const json_t *value)
{
    const char *text = by__table_row_cell_text(digits, value);
    bool missing = text == NULL || (by__table_cell_missing(text, strlen(text)) &&
                                    !by_drift_reference_has(d->reference, feature, text));
    return missing ? NULL : text;
}

/* A value of a row, which the model reads as a cell of a table, or (predicted) of an answer. */
static void count_value(by__telemetry_served_drift *d, size_t feature, by_drift_kind kind,
                        bool predicted, const json_t *value)
{
    char digits[BY__CELL_DIGITS];
    if (value == NULL && (predicted || !d->read[feature])) {
        return; /* a row without a prediction, or a target, which requests do not have */
    }
    if (kind == BY_DRIFT_NUMBER) {
        by_drift_watch_number(d->watch, feature, number_of(value));
    } else if (kind == BY_DRIFT_CATEGORY) {
        by_drift_watch_category(d->watch, feature,
                                predicted ? json_string_value(value)
                                          : category_of(digits, d, feature, value));
    }
}

void by__telemetry_served_drift_example(by__telemetry_served_drift *drift, const json_t *row,
                                        const json_t *predicted)
{
    if (drift == NULL) {
        return;
    }
    for (size_t i = 0; i < by_drift_reference_features(drift->reference); i++) {
        by_drift_kind kind;
        const char *name = by_drift_reference_feature(drift->reference, i, &kind);
        const char *answer = drift->answers[i];
        if (answer == NULL && !json_is_object(row)) {
            continue; /* cells without names */
        }
        const json_t *value =
            answer == NULL ? json_object_get(row, name) : json_object_get(predicted, answer);
        count_value(drift, i, kind, answer != NULL, value);
    }
    next(drift);
}

bool by__telemetry_served_drift_is_input(const by__telemetry_served_drift *drift, size_t index)
{
    return by_drift_reference_role(drift->reference, index) == BY_DRIFT_INPUT;
}

bool by__telemetry_served_drift_predicts(const by__telemetry_served_drift *drift)
{
    return by_drift_reference_predicted(drift->reference, BY_DRIFT_OUTCOME) <
           by_drift_reference_features(drift->reference);
}

void by__telemetry_served_drift_answer(by__telemetry_served_drift *drift, const json_t *rows,
                                       const json_t *answer)
{
    size_t i;
    json_t *predicted;
    if (drift == NULL || (rows == NULL && !by__telemetry_served_drift_predicts(drift))) {
        return;
    }
    json_array_foreach(answer, i, predicted)
    {
        by__telemetry_served_drift_example(drift, json_array_get(rows, i), predicted);
    }
}

/* Whether a column is a field of predictions too: one of several targets. */
static bool is_predicted(const by__telemetry_served_drift *d, const char *column)
{
    size_t targets = d->encoding == NULL ? 0 : by_encoding_targets(d->encoding);
    size_t i = 0;
    while (i < targets && strcmp(by_encoding_target(d->encoding, i), column) != 0) {
        i++;
    }
    return targets > 1 && i < targets;
}

bool by__telemetry_served_drift_knows(const by__telemetry_served_drift *drift, const json_t *row)
{
    bool known = false;
    for (size_t i = 0; i < by_drift_reference_features(drift->reference) && !known; i++) {
        const char *name = by_drift_reference_feature(drift->reference, i, NULL);
        known = by__telemetry_served_drift_is_input(drift, i) && !is_predicted(drift, name) &&
                json_object_get(row, name) != NULL;
    }
    return known;
}

/* ---- state ---- */

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Null where nothing was compared: 0 would say that nothing has drifted. */
static json_t *figure(const by_drift_verdict *v, double value)
{
    return real(v->compared ? value : NAN);
}

static json_t *feature_of(const by_drift_verdict *v)
{
    return json_pack("{ss sf so so so so so so so so so}", "name", v->feature, "samples",
                     v->samples, "missing", real(v->missing), "unknown", real(v->unknown),
                     "out_of_range", real(v->out_of_range), "psi", figure(v, v->psi),
                     "jensen_shannon", figure(v, v->jensen_shannon), "wasserstein",
                     figure(v, v->wasserstein), "ks", figure(v, v->ks), "p", figure(v, v->p),
                     "detected", v->compared ? json_boolean(v->detected) : json_null());
}

json_t *by__telemetry_served_drift_state(const by__telemetry_served_drift *drift)
{
    if (drift == NULL) {
        return NULL;
    }
    const by_drift_window *w = by_drift_watch_last(drift->watch);
    json_t *features = json_array();
    for (size_t i = 0; i < w->count && w->number > 0; i++) {
        /* If there are too many, those that have drifted come first. */
        if (w->verdicts[i].detected && json_array_size(features) < MAX_FEATURES) {
            (void)json_array_append_new(features, feature_of(&w->verdicts[i]));
        }
    }
    for (size_t i = 0; i < w->count && w->number > 0; i++) {
        if (!w->verdicts[i].detected && json_array_size(features) < MAX_FEATURES) {
            (void)json_array_append_new(features, feature_of(&w->verdicts[i]));
        }
    }
    return json_pack("{sI sI sI sI sb so}", "windows", (json_int_t)w->number, "alarms",
                     (json_int_t)w->alarms, "filled",
                     (json_int_t)by_drift_watch_filled(drift->watch), "requests",
                     (json_int_t)w->requests, "detected", (int)w->detected, "features", features);
}

/* ---- gauges ---- */

typedef struct drift_gauge {
    const char *name;
    const char *key; /* in a feature, or in a worker's drift */
    const char *method;
    const char *help;
    const char *type;
} drift_gauge;

/* Rows with the same name are adjacent; the first one has the help. */
static const drift_gauge per_feature[] = {
    {"banyan_drift_score", "psi", "psi",
     "Distance of the last window of requests from the training data.", "gauge"},
    {"banyan_drift_score", "jensen_shannon", "jensen_shannon", NULL, NULL},
    {"banyan_drift_score", "wasserstein", "wasserstein", NULL, NULL},
    {"banyan_drift_score", "ks", "ks", NULL, NULL},
    {"banyan_drift_p_value", "p", NULL, "Of the test that nothing has drifted.", "gauge"},
    {"banyan_drift_detected", "detected", NULL, "1: the last window has drifted.", "gauge"},
    {"banyan_drift_samples", "samples", NULL, "Values in the last window.", "gauge"},
    {"banyan_drift_missing_ratio", "missing", NULL, "Share of values that are missing.", "gauge"},
    {"banyan_drift_unknown_ratio", "unknown", NULL,
     "Share of values that training data does not have.", "gauge"},
    {"banyan_drift_out_of_range_ratio", "out_of_range", NULL,
     "Share of numbers outside the range of the training data.", "gauge"},
};
static const drift_gauge per_worker[] = {
    {"banyan_drift_windows_total", "windows", NULL, "Windows that were compared.", "counter"},
    {"banyan_drift_alarms_total", "alarms", NULL, "Windows in which some feature had drifted.",
     "counter"},
    {"banyan_drift_window_requests", "filled", NULL, "Requests in the window that is being filled.",
     "gauge"},
};

static void print_sample(by_string *out, const drift_gauge *g, const json_t *worker,
                         const json_t *feature, const json_t *values)
{
    const json_t *value = json_object_get(values, g->key);
    by_string label = {0};
    if (!json_is_number(value) && !json_is_boolean(value)) {
        return;
    }
    const char *const names[] = {"model", "version", "worker", "feature"};
    const char *const texts[] = {
        by__protocol_get_text(worker, "model"), by__protocol_get_text(worker, "version"),
        by__protocol_get_text(worker, "name"), by__protocol_get_text(feature, "name")};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        if (texts[i] != NULL) {
            by_string_format(&label, "%s%s=\"", label.length > 0 ? "," : "", names[i]);
            by__telemetry_metrics_label(&label, texts[i]);
            by__string_append(&label, "\"");
        }
    }
    if (g->method != NULL) {
        by_string_format(&label, ",method=\"%s\"", g->method);
    }
    if (!label.failed && label.data != NULL) {
        by__telemetry_metrics_sample(out, g->name, label.data,
                                     json_is_boolean(value) ? json_is_true(value)
                                                            : json_number_value(value));
    }
    by_string_free(&label);
}

static void print_head(by_string *out, const drift_gauge *g)
{
    if (g->help != NULL) {
        by_string_format(out, "# HELP %s %s\n# TYPE %s %s\n", g->name, g->help, g->name, g->type);
    }
}

void by__telemetry_served_drift_print(by_string *out, const json_t *workers)
{
    size_t i;
    size_t k;
    json_t *w;
    json_t *feature;
    for (size_t row = 0; row < BY_ARRAY_LENGTH(per_worker); row++) {
        print_head(out, &per_worker[row]);
        json_array_foreach(workers, i, w)
        {
            const json_t *drift = json_object_get(json_object_get(w, "engine"), "drift");
            print_sample(out, &per_worker[row], w, NULL, drift);
        }
    }
    for (size_t row = 0; row < BY_ARRAY_LENGTH(per_feature); row++) {
        print_head(out, &per_feature[row]);
        json_array_foreach(workers, i, w)
        {
            const json_t *drift = json_object_get(json_object_get(w, "engine"), "drift");
            json_array_foreach(json_object_get(drift, "features"), k, feature)
            {
                print_sample(out, &per_feature[row], w, feature, feature);
            }
        }
    }
}
