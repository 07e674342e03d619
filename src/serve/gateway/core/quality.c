#include "serve/gateway/core/quality.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/table/row_cell.h"
#include "serve/protocol/messages.h"

/* Most predictions, and answers, that are remembered: about 30 MiB. */
#define MAX_BYTES ((size_t)1 << 18)
/* Most versions of models that are told apart. */
#define MAX_VERSIONS 1000

static const char *const reasons[BY__UNMATCHED] = {"unknown_id", "no_prediction", "other_type",
                                                   "repeated",   "other_key",     "no_broker"};

/* What is known of a version of a model. */
typedef struct version {
    struct version *next;
    char *model;
    char name[65];
    bool classes; /* it has predicted one; false: it has no wrong or correct answers */
    bool numbers;
    uint64_t correct;
    uint64_t wrong;
    uint64_t errors; /* numbers with a label */
    double absolute; /* sum of their errors */
    double squared;
    by__gateway_ratings ratings;
} version;

typedef enum kind { NOTHING, CLASS, NUMBER } kind;

typedef struct prediction {
    kind kind;
    bool labelled;
    union {
        uint64_t text; /* hash of the class's name */
        double number;
    } as;
} prediction;

typedef struct quality_answer {
    by__serve_id_entry entry;
    struct quality_answer *later;
    version *of;
    uint64_t key; /* hash of the name of the client's key */
    size_t count;
    prediction predictions[];
} quality_answer;

struct by__gateway_quality {
    by__serve_id_table answers;
    quality_answer *oldest;
    quality_answer *newest;
    size_t size; /* answers and predictions */
    version *versions;
    size_t version_count;
    uint64_t unmatched[BY__UNMATCHED];
};

/* ---- ratings ---- */

void by__gateway_ratings_add(by__gateway_ratings *ratings, double rating)
{
    ratings->values[ratings->count++ % BY__RECENT_RATINGS] = rating;
}

double by__gateway_ratings_mean(const by__gateway_ratings *ratings)
{
    size_t recent =
        ratings->count < BY__RECENT_RATINGS ? (size_t)ratings->count : BY__RECENT_RATINGS;
    double sum = 0.0;
    for (size_t i = 0; i < recent; i++) {
        sum += ratings->values[i];
    }
    return recent == 0 ? (double)NAN : sum / (double)recent;
}

/* ---- answers ---- */

by_status by__gateway_quality_open(by__gateway_quality **out, by_error *error)
{
    return by__alloc((void **)out, 1, sizeof **out, "feedback", error);
}

static void forget_oldest(by__gateway_quality *q)
{
    quality_answer *a = q->oldest;
    q->oldest = a->later;
    q->newest = q->oldest == NULL ? NULL : q->newest;
    q->size -= 1 + a->count;
    by__serve_id_remove(&q->answers, &a->entry);
    free(a);
}

void by__gateway_quality_close(by__gateway_quality **quality)
{
    by__gateway_quality *q = *quality;
    if (q == NULL) {
        return;
    }
    *quality = NULL;
    while (q->oldest != NULL) {
        forget_oldest(q);
    }
    by__serve_id_table_free(&q->answers);
    for (version *v = q->versions, *next; v != NULL; v = next) {
        next = v->next;
        free(v->model);
        free(v);
    }
    free(q);
}

static uint64_t hash_key(const char *key)
{
    return key == NULL ? 0 : by__hash64(key, strlen(key));
}

/* NULL: there are too many, or no memory. */
static version *version_of(by__gateway_quality *q, const char *model, const char *name)
{
    version *v = q->versions;
    while (v != NULL && (strcmp(v->model, model) != 0 || strcmp(v->name, name) != 0)) {
        v = v->next;
    }
    if (v != NULL || q->version_count == MAX_VERSIONS) {
        return v;
    }
    v = calloc(1, sizeof *v);
    char *copy = by__strdup(model);
    if (v == NULL || copy == NULL) {
        free(v);
        free(copy);
        return NULL;
    }
    v->model = copy;
    (void)snprintf(v->name, sizeof v->name, "%s", name);
    v->next = q->versions;
    q->versions = v;
    q->version_count++;
    return v;
}

static prediction prediction_of(version *v, const json_t *predicted)
{
    const json_t *label = json_object_get(predicted, "label");
    const json_t *value = json_object_get(predicted, "value");
    prediction p = {0};
    if (json_is_string(label)) {
        p.kind = CLASS;
        p.as.text = by__hash64(json_string_value(label), json_string_length(label));
        v->classes = true;
    } else if (json_is_number(value) && json_object_size(predicted) == 2) { /* of one target */
        p.kind = NUMBER;
        p.as.number = json_number_value(value);
        v->numbers = true;
    }
    return p;
}

void by__gateway_quality_answer(by__gateway_quality *quality, const by__gateway_request *request)
{
    by__gateway_quality *q = quality;
    by_error ignored = {0};
    const json_t *list =
        request->form->kind == BY__REQUEST_PREDICT ? json_object_get(request->whole, "list") : NULL;
    size_t count = json_array_size(list);
    version *v = version_of(q, request->model, request->parts[0].version);
    quality_answer *a = v == NULL ? NULL : calloc(1, sizeof *a + count * sizeof a->predictions[0]);
    if (a == NULL || by__serve_id_add(&q->answers, &a->entry, request->id, &ignored) != BY_OK) {
        free(a);
        return;
    }
    a->of = v;
    a->key = hash_key(request->key);
    a->count = count;
    for (size_t i = 0; i < count; i++) {
        a->predictions[i] = prediction_of(v, json_array_get(list, i));
    }
    *(q->newest == NULL ? &q->oldest : &q->newest->later) = a;
    q->newest = a;
    q->size += 1 + count;
    while (q->size > MAX_BYTES) {
        forget_oldest(q);
    }
}

/* ---- feedback ---- */

static quality_answer *find(const by__gateway_quality *q, const char *id)
{
    return (quality_answer *)(void *)by__serve_id_find(&q->answers, id);
}

/* Compares a label with a prediction. BY__UNMATCHED: it was. */
static by__gateway_unmatched compare(quality_answer *a, int64_t index, const json_t *label)
{
    char digits[BY__CELL_DIGITS];
    const char *text = by__table_row_cell_text(digits, label);
    if (a == NULL) {
        return BY__UNKNOWN_ID;
    }
    /* Without an index, the label is that of the only prediction. */
    size_t at = index < 0 && a->count == 1 ? 0 : (size_t)index;
    if (at >= a->count || a->predictions[at].kind == NOTHING) {
        return BY__NO_PREDICTION;
    }
    prediction *p = &a->predictions[at];
    if (p->kind == NUMBER ? !json_is_number(label) : text == NULL) {
        return BY__OTHER_TYPE;
    }
    if (p->labelled) {
        return BY__REPEATED;
    }
    p->labelled = true;
    if (p->kind == CLASS) {
        bool same = by__hash64(text, strlen(text)) == p->as.text;
        *(same ? &a->of->correct : &a->of->wrong) += 1;
    } else {
        double away = p->as.number - json_number_value(label);
        a->of->errors++;
        a->of->absolute += fabs(away);
        a->of->squared += away * away;
    }
    return BY__UNMATCHED;
}

bool by__gateway_quality_is_foreign(const by__gateway_quality *quality,
                                    const by__gateway_opinion *opinion)
{
    const quality_answer *a = find(quality, opinion->id);
    return a != NULL && a->key != hash_key(opinion->key);
}

void by__gateway_quality_add(by__gateway_quality *quality, const by__gateway_opinion *opinion)
{
    const by__gateway_opinion *o = opinion;
    quality_answer *a = find(quality, o->id);
    if (by__gateway_quality_is_foreign(quality, o)) {
        by__gateway_quality_unmatched(quality, BY__OTHER_KEY, o->label != NULL);
        return;
    }
    if (a != NULL && o->rating != NULL) {
        by__gateway_ratings_add(&a->of->ratings, json_number_value(o->rating));
    }
    by__gateway_unmatched reason =
        o->label == NULL ? BY__UNMATCHED : compare(a, o->index, o->label);
    if (reason != BY__UNMATCHED) {
        by__gateway_quality_unmatched(quality, reason, 1);
    }
}

void by__gateway_quality_unmatched(by__gateway_quality *quality, by__gateway_unmatched reason,
                                   uint64_t labels)
{
    quality->unmatched[reason] += labels;
}

/* ---- /metrics ---- */

typedef enum quality_figure { CORRECT, WRONG, ERRORS, ABSOLUTE, SQUARED, RATING } quality_figure;

/* NaN: the version has none. */
static double value_of(const version *v, quality_figure f)
{
    double classes = v->classes ? 0.0 : (double)NAN;
    double numbers = v->numbers ? 0.0 : (double)NAN;
    return f == CORRECT    ? classes + (double)v->correct
           : f == WRONG    ? classes + (double)v->wrong
           : f == ERRORS   ? numbers + (double)v->errors
           : f == ABSOLUTE ? numbers + v->absolute
           : f == SQUARED  ? numbers + v->squared
                           : by__gateway_ratings_mean(&v->ratings);
}

static void print_sample(by_string *out, const char *name, const version *v, double value)
{
    by_string labels = {0};
    by__string_append(&labels, "model=\"");
    by__telemetry_metrics_label(&labels, v->model);
    by__string_append(&labels, "\",version=\"");
    by__telemetry_metrics_label(&labels, v->name);
    by__string_append(&labels, "\"");
    out->failed = out->failed || labels.failed;
    if (!labels.failed) {
        by__telemetry_metrics_sample(out, name, labels.data, value);
    }
    by_string_free(&labels);
}

void by__gateway_quality_print(const by__gateway_quality *quality, by_string *out)
{
    static const struct {
        const char *name;
        const char *help;
        const char *type;
    } families[] = {
        [CORRECT] = {"banyan_feedback_correct_total", "Predicted classes that have their label.",
                     "counter"},
        [WRONG] = {"banyan_feedback_wrong_total", "Predicted classes that have another label.",
                   "counter"},
        [ERRORS] = {"banyan_feedback_errors_total", "Predicted numbers that have a label.",
                    "counter"},
        [ABSOLUTE] = {"banyan_feedback_absolute_error_total",
                      "Sum of the absolute errors of predicted numbers that have a label.",
                      "counter"},
        [SQUARED] = {"banyan_feedback_squared_error_total",
                     "Sum of the squared errors of predicted numbers that have a label.",
                     "counter"},
        [RATING] = {"banyan_feedback_version_rating_mean",
                    "Mean of the last 100 ratings of the version's answers.", "gauge"},
    };
    for (quality_figure f = CORRECT; f <= RATING; f++) {
        by__telemetry_metrics_family(out, families[f].name, families[f].help, families[f].type);
        for (const version *v = quality->versions; v != NULL; v = v->next) {
            double value = value_of(v, f);
            if (!isnan(value)) {
                print_sample(out, families[f].name, v, value);
            }
        }
    }
    by__telemetry_metrics_family(out, "banyan_feedback_unmatched_total",
                                 "Labels that no prediction was compared with.", "counter");
    for (by__gateway_unmatched i = BY__UNKNOWN_ID; i < BY__UNMATCHED; i++) {
        char label[64];
        (void)snprintf(label, sizeof label, "reason=\"%s\"", reasons[i]);
        by__telemetry_metrics_sample(out, "banyan_feedback_unmatched_total", label,
                                     (double)quality->unmatched[i]);
    }
}
