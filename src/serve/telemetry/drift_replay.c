/* Compares a file with a drift reference, as if its rows or texts were requests. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/table.h"
#include "banyan/tokenizer.h"
#include "base/host/file_kind.h"
#include "base/json.h"
#include "base/paths.h"
#include "formats/array_file.h"
#include "serve/protocol/messages.h"
#include "serve/protocol/predicted.h"
#include "serve/telemetry/drift_pages.h"

/* Adds the last compared window to the report. */
static by_status add_window(by_drift_report *r, by_error *error)
{
    const by_drift_window *w = by__telemetry_served_drift_last(r->drift);
    if (w->number == r->windows) {
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&r->verdicts, &r->capacity, (r->windows + 1) * r->features,
                       sizeof *r->verdicts, error));
    memcpy(r->verdicts + r->windows * r->features, w->verdicts, r->features * sizeof *r->verdicts);
    r->windows++;
    r->alarms += w->detected;
    return BY_OK;
}

/* ---- tables ---- */

static json_t *row_of(const by_table *table, uint64_t at)
{
    json_t *row = json_object();
    for (size_t i = 0; i < by_table_column_count(table); i++) {
        const by_column *c = by_table_column(table, i);
        if (c->kind == BY_COLUMN_NUMBER) {
            double value = c->numbers[at];
            (void)json_object_set_new(row, c->name,
                                      isfinite(value) ? json_real(value) : json_null());
        } else {
            int32_t id = c->categories[at];
            (void)json_object_set_new(row, c->name,
                                      id >= 0 ? json_string(c->values[id]) : json_null());
        }
    }
    return row;
}

/* Counts rows and, if the model can predict them, its predictions. */
static by_status count_rows(by_drift_report *r, const by_pretrained *model, const by_table *table,
                            by_error *error)
{
    by__protocol_predicted_rows *predictions = NULL;
    char *why = NULL;
    by_status status =
        by__telemetry_served_drift_predicts(r->drift)
            ? by__protocol_predicted_rows_open(&predictions, &why, model, table, error)
            : BY_OK;
    free(r->unpredicted);
    r->unpredicted = why;
    for (uint64_t i = 0; status == BY_OK && i < by_table_rows(table); i++) {
        json_t *row = row_of(table, i);
        json_t *predicted = NULL;
        if (predictions != NULL) {
            status = by__protocol_predicted_rows_next(predictions, &predicted, error);
        }
        if (status == BY_OK) {
            by__telemetry_served_drift_example(r->drift, row, predicted);
            r->requests++;
            status = add_window(r, error);
        }
        json_decref(predicted);
        json_decref(row);
    }
    by__protocol_predicted_rows_close(&predictions);
    return status;
}

/* Opens a table as the model reads it. Targets are not among what it reads, but in the reference,
 * which has their kinds. */
static by_status open_table(by_table **out, const by_drift_report *r, const char *data,
                            by_error *error)
{
    by_table_options options = {.learned = by__telemetry_served_drift_encoding(r->drift)};
    BY_TRY(by_table_open(out, data, &options, error));
    size_t targets = options.learned == NULL ? 0 : by_encoding_targets(options.learned);
    bool classes = targets > 0 && by_encoding_classes(options.learned) > 0;
    by_column_type *types;
    BY_TRY(by__alloc((void **)&types, targets + 1, sizeof *types, "column types", error));
    for (size_t i = 0; i < targets; i++) {
        const char *name = by_encoding_target(options.learned, i);
        const by_column *column = by_table_find(*out, name);
        by_column_kind kind = classes ? BY_COLUMN_CATEGORY : BY_COLUMN_NUMBER;
        if (column != NULL && column->kind != kind) {
            types[options.type_count++] = (by_column_type){name, kind};
        }
    }
    by_status status = BY_OK;
    if (options.type_count > 0) {
        options.types = types;
        by_table_close(out);
        status = by_table_open(out, data, &options, error);
    }
    free(types);
    return status;
}

static by_status replay_table(by_drift_report *r, const by_pretrained *model, const char *data,
                              by_error *error)
{
    by_table *table = NULL;
    bool known = false;
    by_status status = open_table(&table, r, data, error);
    for (size_t i = 0; i < r->features && status == BY_OK; i++) {
        bool is_input = by__telemetry_served_drift_is_input(r->drift, i);
        const char *name = by__telemetry_served_drift_feature(r->drift, i, NULL);
        bool there = is_input && by_table_find(table, name) != NULL;
        known = known || there;
        r->expected[i] = r->expected[i] || there || !is_input;
    }
    if (status == BY_OK && !known) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s has none of the columns that the model was trained on", data);
    }
    if (status == BY_OK) {
        status = count_rows(r, model, table, error);
    }
    by_table_close(&table);
    return status == BY_EARG ? BY_EFORMAT : status;
}

/* ---- texts ---- */

typedef struct replay_reader {
    by_drift_report *report;
    const by_pretrained *model;
    by_tokenizer *tokenizer; /* NULL: rows of a table */
    const char *field;       /* NULL: "prompt", or else "text" */
    uint64_t lines;          /* that were read, with or without what is compared */
    bool plain;              /* some are pieces of a plain text */
} replay_reader;

static by_status count_text(const replay_reader *in, const char *text, size_t length,
                            by_error *error)
{
    by_token_buffer tokens = {0};
    by_status status =
        by_tokenizer_encode(in->tokenizer, text, length, &tokens, BY_ENCODE_SPECIAL, error);
    if (status == BY_OK) {
        /* Ids are below 2^31, so they are the same as int32_t. */
        by__telemetry_served_drift_tokens(in->report->drift,
                                          (const int32_t *)(const void *)tokens.ids, tokens.count);
        in->report->requests++;
        status = add_window(in->report, error);
    }
    by_token_buffer_free(&tokens);
    return status;
}

/* Counts the column of texts of a table. */
static by_status replay_texts(const replay_reader *in, const char *data, by_error *error)
{
    by_table *table;
    const char *const names[] = {in->field != NULL ? in->field : "prompt",
                                 in->field != NULL ? in->field : "text"};
    BY_TRY(by_table_open(&table, data, NULL, error));
    const by_column *c = by_table_find(table, names[0]);
    c = c == NULL ? by_table_find(table, names[1]) : c;
    by_status status = BY_OK;
    if (c == NULL || c->kind != BY_COLUMN_CATEGORY) {
        status = by_error_set(
            error, BY_EFORMAT,
            "%s has no column of texts '%s'%s: name it by --field (plain text ends in .txt)", data,
            names[0], in->field != NULL ? "" : " or 'text'");
    }
    for (uint64_t i = 0; status == BY_OK && i < by_table_rows(table); i++) {
        if (c->categories[i] >= 0) {
            status = count_text(in, c->values[c->categories[i]],
                                strlen(c->values[c->categories[i]]), error);
        }
    }
    by_table_close(&table);
    return status;
}

/* ---- plain text ---- */

/* Whole lines of at least so many bytes are a text; a line longer than the second is cut. */
#define PIECE      ((size_t)256)
#define LONG_PIECE ((size_t)4096)

/* The bytes of the next piece of a text. */
static size_t piece_of(const char *text, size_t length)
{
    size_t most = length < LONG_PIECE ? length : LONG_PIECE;
    for (size_t i = PIECE; i < most; i++) {
        if (text[i - 1] == '\n') {
            return i;
        }
    }
    while (most < length && most > 1 && ((unsigned char)text[most] & 0xc0) == 0x80) {
        most--;
    }
    return most;
}

/* Counts a text as pieces of it, which stand for what is asked of a model. */
static by_status replay_plain(replay_reader *in, const char *path, by_error *error)
{
    char *data;
    size_t length;
    BY_TRY(by__file_read(&data, &length, path, BY__ARRAY_FILE_LIMIT, error));
    by_status status = by__file_check_text(path, (const uint8_t *)data, length, "text", error);
    size_t at = length >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    in->plain = true;
    while (at < length && status == BY_OK) {
        size_t n = piece_of(data + at, length - at);
        status = count_text(in, data + at, n, error);
        at += n;
        in->lines++;
    }
    free(data);
    return status;
}

/* ---- JSON lines ---- */

static const json_t *text_of(const replay_reader *in, const json_t *line)
{
    const json_t *text = json_object_get(line, in->field != NULL ? in->field : "prompt");
    return json_is_string(text) || in->field != NULL ? text : json_object_get(line, "text");
}

/* A line that holds neither a row nor a prediction is left out, and a row with no known column: the
 * requests of other models may be in the same log. */
static by_status count_example(const replay_reader *in, const json_t *line, by_error *error)
{
    const json_t *row = json_object_get(line, "row");
    const json_t *predicted = json_object_get(line, "prediction");
    bool apart = json_is_object(row) || json_is_object(predicted);
    row = json_is_object(row) ? row : apart ? NULL : line;
    bool known = row != NULL && by__telemetry_served_drift_knows(in->report->drift, row);
    if (!apart && !known) {
        /* `banyan predict` prints an index, and unlike feedback no time. */
        bool printed =
            json_object_get(line, "index") != NULL && json_object_get(line, "time") == NULL;
        row = NULL;
        predicted = printed ? line : NULL;
    }
    if ((row != NULL && !known) || (row == NULL && predicted == NULL)) {
        return BY_OK;
    }
    by__telemetry_served_drift_example(in->report->drift, row, predicted);
    in->report->requests++;
    return add_window(in->report, error);
}

static by_status count_line(const replay_reader *in, const json_t *line, by_error *error)
{
    if (in->tokenizer == NULL) {
        return count_example(in, line, error);
    }
    const json_t *text = text_of(in, line);
    return json_is_string(text)
               ? count_text(in, json_string_value(text), json_string_length(text), error)
               : BY_OK;
}

static by_status replay_lines(replay_reader *in, const char *path, by_error *error)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t capacity = 0;
    size_t number = 0;
    ssize_t length;
    by_status status = file == NULL ? by__io_error(error, "open", path) : BY_OK;
    while (status == BY_OK && (length = getline(&line, &capacity, file)) >= 0) {
        json_error_t problem;
        json_t *value =
            by_json_load(line, (size_t)length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
        number++;
        status =
            json_is_object(value)
                ? count_line(in, value, error)
                : by_error_set(error, BY_EFORMAT, "%s:%zu: not a JSON object%s%s", path, number,
                               value == NULL ? ": " : "", value == NULL ? problem.text : "");
        json_decref(value);
    }
    in->lines += number;
    free(line);
    if (file != NULL) {
        (void)fclose(file);
    }
    return status;
}

/* ---- all of it ---- */

static bool is_csv(const char *name)
{
    return by__ends_with(name, ".csv") || by__ends_with(name, ".csv.gz");
}

static bool is_text(const char *name)
{
    return by__ends_with(name, ".txt") || by__ends_with(name, ".text") ||
           by__ends_with(name, ".md");
}

static bool is_table(const char *name)
{
    return is_csv(name) || by__ends_with(name, ".tsv") || by__ends_with(name, ".tsv.gz") ||
           by__ends_with(name, ".parquet");
}

static bool reads_images(const replay_reader *in)
{
    return strcmp(by_model_reads(&by_pretrained_config(in->model)->model), "images") == 0;
}

static by_status refuse_images(const char *path, by_error *error)
{
    return by_error_set(error, BY_ECONFIG,
                        "%s: of a model that reads images the predictions are compared: give the "
                        "JSON lines of `banyan predict` (--out predicted.jsonl), or of a payload "
                        "log",
                        path);
}

static by_status replay_file(replay_reader *in, const char *path, by_error *error)
{
    if (reads_images(in) && !by__is_json_lines(path)) {
        return refuse_images(path, error);
    }
    if (in->tokenizer != NULL && in->field == NULL && !by__is_json_lines(path) && !is_table(path) &&
        !by__path_is_dir(path)) {
        return replay_plain(in, path, error);
    }
    return by__is_json_lines(path) ? replay_lines(in, path, error)
           : in->tokenizer != NULL ? replay_texts(in, path, error)
                                   : replay_table(in->report, in->model, path, error);
}

typedef bool name_test(const char *name);

/* Replays those files of a directory whose names pass the test, and counts them. */
static by_status replay_named(replay_reader *in, const char *data, char **names, size_t count,
                              name_test *wanted, size_t *replayed, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (wanted(names[i])) {
            char *path = by__path_join(data, names[i]);
            by_status status = path == NULL
                                   ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                                   : replay_file(in, path, error);
            free(path);
            BY_TRY(status);
            (*replayed)++;
        }
    }
    return BY_OK;
}

static bool has_parquet(char **names, size_t count)
{
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        found = found || by__ends_with(names[i], ".parquet");
    }
    return found;
}

/* The JSON lines of a directory, else its CSV files, else its texts, for a model that reads them,
 * else the parts of one table. */
static by_status replay_directory(replay_reader *in, const char *data, by_error *error)
{
    char **names;
    size_t count;
    size_t replayed = 0;
    BY_TRY(by__list_dir(&names, &count, data, error));
    by_status status = replay_named(in, data, names, count, by__is_json_lines, &replayed, error);
    if (status == BY_OK && replayed == 0) {
        status = replay_named(in, data, names, count, is_csv, &replayed, error);
    }
    if (status == BY_OK && replayed == 0 && in->tokenizer != NULL) {
        status = replay_named(in, data, names, count, is_text, &replayed, error);
    }
    if (status == BY_OK && replayed == 0 && reads_images(in)) {
        status = refuse_images(data, error);
    } else if (status == BY_OK && replayed == 0) {
        status = has_parquet(names, count)
                     ? replay_file(in, data, error)
                     : by_error_set(error, BY_EFORMAT,
                                    "%s holds no file that ends in .jsonl, .ndjson, .csv, "
                                    ".csv.gz%s or .parquet",
                                    data, in->tokenizer != NULL ? ", .txt, .text, .md" : "");
    }
    by__names_free(names, count);
    return status;
}

/* A window of fewer requests would not tell drift from chance. */
#define USEFUL 20

/* Without a window nothing was compared, which must not look like the absence of drift. */
static by_status fail_empty(const replay_reader *in, const char *data, by_error *error)
{
    const char *what = in->tokenizer != NULL ? "texts" : "rows";
    unsigned long long requests = in->report->requests;
    if (requests > 0) {
        char smaller[64] = "";
        if (requests >= USEFUL) {
            (void)snprintf(smaller, sizeof smaller, ", or --window %llu", requests);
        }
        return by_error_set(error, BY_EFORMAT,
                            "%s has %llu %s%s, and a window is compared from %zu on: give more of "
                            "them%s",
                            data, requests, what,
                            in->plain ? " (a plain text is cut into pieces of a few lines)" : "",
                            by__telemetry_served_drift_least(in->report->drift), smaller);
    }
    if (in->lines == 0) {
        return by_error_set(error, BY_EFORMAT, "%s has no %s", data, what);
    }
    if (in->tokenizer == NULL) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: no line is a row with a column that the model was trained on, or "
                            "a prediction",
                            data);
    }
    return by_error_set(error, BY_EFORMAT, "%s: no line has a text in '%s'%s: name it by --field",
                        data, in->field != NULL ? in->field : "prompt",
                        in->field != NULL ? "" : " or 'text'");
}

static by_status replay(by_drift_report *r, const by_pretrained *model, const char *data,
                        const char *field, by_error *error)
{
    replay_reader in = {.report = r, .model = model, .field = field};
    by_drift_kind kind = BY_DRIFT_NUMBER;
    for (size_t i = 0; i < r->features && kind != BY_DRIFT_TOKENS; i++) {
        (void)by__telemetry_served_drift_feature(r->drift, i, &kind);
    }
    if (kind == BY_DRIFT_TOKENS) {
        BY_TRY(by_tokenizer_open(&in.tokenizer, by_pretrained_directory(model), error));
    }
    by_status status =
        by__path_is_dir(data) ? replay_directory(&in, data, error) : replay_file(&in, data, error);
    if (status == BY_OK) {
        by__telemetry_served_drift_end(r->drift);
        status = add_window(r, error);
    }
    if (status == BY_OK && r->windows == 0) {
        status = fail_empty(&in, data, error);
    }
    by_tokenizer_close(&in.tokenizer);
    return status;
}

static bool has_values(const by_drift_report *r)
{
    bool any = false;
    for (size_t i = 0; i < r->windows * r->features; i++) {
        any = any || r->verdicts[i].samples > 0.0 || r->verdicts[i].missing > 0.0;
    }
    return any;
}

/* A file is one window, unless windows are asked for, and no time passes in it. */
static by_drift_options of_file(const by_drift_options *options)
{
    by_drift_options o = options == NULL ? (by_drift_options){0} : *options;
    o.requests = o.requests == 0 ? SIZE_MAX : o.requests;
    o.seconds = INFINITY;
    return o;
}

by_status by_drift_report_open(by_drift_report **out, const by_pretrained *model, const char *data,
                               const char *field, const by_drift_options *options, by_error *error)
{
    const char *weights = by_pretrained_directory(model);
    const by_drift_options of = of_file(options);
    by_drift_report *r;
    static const by__telemetry_log silent = {0};
    BY_TRY(by__alloc((void **)&r, 1, sizeof *r, "a report", error));
    r->title = by__strdup(data);
    r->threshold = of.threshold == 0.0 ? 0.1 : of.threshold;
    by_status status =
        r->title == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a report")
                         : by__telemetry_served_drift_open(&r->drift, weights, &of, &silent, error);
    if (status == BY_OK && r->drift == NULL) {
        status =
            by_error_set(error, BY_ESTATE,
                         "%s has no " BY_DRIFT_FILE ", which is kept of language models, "
                         "classes and numbers (task.kind language, classify, regress), and the "
                         "model's task.kind is %s: if it is one of these, train it anew, or "
                         "save another checkpoint of the run",
                         weights, by_pretrained_config(model)->task.kind);
    }
    if (status == BY_OK) {
        r->features = by__telemetry_served_drift_features(r->drift);
        status = by__alloc((void **)&r->expected, r->features + 1, sizeof *r->expected, "a report",
                           error);
    }
    if (status == BY_OK) {
        status = replay(r, model, data, field, error);
    }
    if (status == BY_OK && !has_values(r)) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s has none of the fields that the model was trained on", data);
    }
    if (status != BY_OK) {
        by_drift_report_close(&r);
        return status;
    }
    *out = r;
    return BY_OK;
}

/* Whether a feature was compared in any window; *values: it had some, if too few. */
static bool was_compared(const by_drift_report *r, size_t feature, bool *values)
{
    bool compared = false;
    *values = false;
    for (size_t w = 0; w < r->windows; w++) {
        const by_drift_verdict *v = by_drift_report_verdict(r, w, feature);
        compared = compared || v->compared;
        *values = *values || v->samples > 0.0 || v->missing > 0.0;
    }
    return compared;
}

by_status by_drift_report_check(const by_drift_report *report, by_error *error)
{
    const by_drift_report *r = report;
    by_string names = {0};
    bool predictions = false;
    for (size_t i = 0; i < r->features; i++) {
        bool values;
        if (!was_compared(r, i, &values) && (values || r->expected[i])) {
            by_string_format(&names, "%s'%.60s'", names.length > 0 ? ", " : "",
                             by__telemetry_served_drift_feature(r->drift, i, NULL));
            predictions = predictions || !by__telemetry_served_drift_is_input(r->drift, i);
        }
    }
    bool why = predictions && r->unpredicted != NULL;
    by_status status =
        names.length == 0
            ? BY_OK
            : by_error_set(error, BY_EFORMAT, "%s: nothing of %s could be compared%s%s", r->title,
                           names.data, why ? "; rows are not predicted: " : "",
                           why ? r->unpredicted : ": there are too few values");
    by_string_free(&names);
    return status;
}

void by_drift_report_close(by_drift_report **report)
{
    by_drift_report *r = *report;
    if (r != NULL) {
        *report = NULL;
        by__telemetry_served_drift_close(&r->drift);
        free(r->verdicts);
        free(r->expected);
        free(r->unpredicted);
        free(r->title);
        free(r);
    }
}

double by_drift_report_threshold(const by_drift_report *report)
{
    return report->threshold;
}

size_t by_drift_report_features(const by_drift_report *report)
{
    return report->features;
}

const by_drift_verdict *by_drift_report_verdict(const by_drift_report *report, size_t window,
                                                size_t feature)
{
    return &report->verdicts[window * report->features + feature];
}

size_t by_drift_report_windows(const by_drift_report *report)
{
    return report->windows;
}

size_t by_drift_report_alarms(const by_drift_report *report)
{
    return report->alarms;
}
