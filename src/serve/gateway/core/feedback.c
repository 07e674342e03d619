#include "serve/gateway/core/feedback.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/base/append_log.h"
#include "serve/base/fields.h"
#include "serve/gateway/core/quality.h"
#include "serve/protocol/messages.h"

/* Bytes of a comment, and of a label. */
#define MAX_TEXT  4096
#define MAX_LABEL 256
/* Magnitude of a rating, and of a label that is a number: their sums and squares stay finite. */
#define MAX_RATING 1e6
#define MAX_NUMBER 1e100
/* Index of a prediction in an answer. */
#define MAX_INDEX 1000000
/* Records on their way to other gateways: a slow broker must not fill the memory. */
#define MAX_PASSING 4096

/* A client that waits until its record is on disk. */
typedef struct waiting {
    by__gateway_waiter waiter;
    by__http_connection *connection; /* NULL: the client has disconnected */
    struct waiting *next;
    uint64_t number; /* number of its line */
    char id[65];
} waiting;

struct by__gateway_feedback {
    by__gateway *gateway;
    by__serve_append_log *lines;
    waiting *first; /* in the order of lines */
    waiting **last;
    uint64_t labels;
    by__gateway_ratings ratings;
    by__gateway_quality *quality;
    size_t passing; /* records on their way to other gateways, and how many of them have a label */
    size_t passing_labels;
};

static void on_disconnect(by__gateway_waiter *waiter)
{
    ((waiting *)(void *)waiter)->connection = NULL;
}

/* Lines are written in order, so clients are answered in order. */
static void on_done(void *user, uint64_t upto, by_status status, const by_error *error)
{
    by__gateway_feedback *f = user;
    if (status != BY_OK) {
        by__telemetry_log_event(&f->gateway->log, "feedback_lost", "{ss}", "reason",
                                error->message);
    }
    while (f->first != NULL && f->first->number <= upto) {
        waiting *w = f->first;
        f->first = w->next;
        f->last = f->first == NULL ? &f->first : f->last;
        if (w->connection != NULL && status == BY_OK) {
            by__http_connection_set(w->connection, NULL);
            by__gateway_reply_json(f->gateway, w->connection, 200,
                                   json_pack("{ss ss}", "id", w->id, "object", "feedback"));
        } else if (w->connection != NULL) {
            by__http_connection_header(w->connection, "Retry-After", "1");
            by__gateway_reply_error(f->gateway, w->connection, 503, "not_stored", NULL,
                                    "the record could not be written");
        }
        free(w);
    }
}

by_status by__gateway_feedback_open(by__gateway_feedback **out, by__gateway *gateway,
                                    const by_serve_feedback_config *config, by_error *error)
{
    by__gateway_feedback *f;
    *out = NULL;
    if (config->directory[0] == '\0') {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&f, 1, sizeof *f, "feedback", error));
    f->gateway = gateway;
    f->last = &f->first;
    const by__serve_append_options options = {.directory = config->directory,
                                              .name = "feedback",
                                              .bytes = (size_t)config->bytes,
                                              .files = (size_t)config->files,
                                              .sync = true,
                                              .done = on_done,
                                              .user = f};
    by_status status = by__gateway_quality_open(&f->quality, error);
    if (status == BY_OK) {
        status = by__serve_append_log_open(&f->lines, &gateway->loop, &options, error);
    }
    if (status != BY_OK) {
        by__gateway_quality_close(&f->quality);
        free(f);
        return status;
    }
    *out = f;
    return BY_OK;
}

void by__gateway_feedback_close(by__gateway_feedback **feedback)
{
    if (*feedback != NULL) {
        by__serve_append_log_close(&(*feedback)->lines); /* answers all waiting clients */
        by__gateway_quality_close(&(*feedback)->quality);
        free(*feedback);
        *feedback = NULL;
    }
}

void by__gateway_feedback_answer(by__gateway_feedback *feedback, const by__gateway_request *request)
{
    if (feedback != NULL) {
        by__gateway_quality_answer(feedback->quality, request);
    }
}

/* ---- what other gateways were given, or are told ---- */

void by__gateway_feedback_receive(by__gateway_feedback *feedback, const json_t *message)
{
    const by__gateway_opinion o = {.id = by__protocol_get_text(message, "id"),
                                   .key = by__protocol_get_text(message, "key"),
                                   .index = by__protocol_get_integer(message, "index"),
                                   .label = json_object_get(message, "label"),
                                   .rating = json_object_get(message, "rating")};
    if (feedback != NULL && o.id != NULL) {
        by__gateway_quality_add(feedback->quality, &o);
    }
}

/* The beginning of the random digits of an answer's id, which is the tag of the gateway that gave
 * it; NULL: the id is no answer's. */
static const char *tag_of(const char *id)
{
    size_t length = strlen(id);
    const char *digits = length < BY__ID_DIGITS ? "" : id + length - BY__ID_DIGITS;
    return strspn(digits, "0123456789abcdef") == BY__ID_DIGITS ? digits : NULL;
}

/* Passes it to the gateway with this tag. The client does not wait for that. */
static void pass(by__gateway_feedback *f, const by__gateway_opinion *o, const char *tag)
{
    by__gateway *g = f->gateway;
    bool can = g->broker.ready && f->passing < MAX_PASSING;
    json_t *m = can ? json_pack("{ss ss% ss ss sI sO* sO*}", "t", "feedback", "to", tag,
                                (size_t)BY__TAG, "id", o->id, "key", o->key, "index",
                                (json_int_t)o->index, "label", o->label, "rating", o->rating)
                    : NULL;
    if (m != NULL && by__link_broker_send(&g->broker, m)) {
        f->passing++;
        f->passing_labels += o->label != NULL;
    } else if (o->label != NULL) {
        by__gateway_quality_unmatched(f->quality, BY__NO_BROKER, 1);
    }
    json_decref(m);
}

void by__gateway_feedback_passed(by__gateway_feedback *feedback, const json_t *message)
{
    by__gateway_feedback *f = feedback;
    if (f == NULL || f->passing == 0) {
        return;
    }
    bool label = json_is_true(json_object_get(message, "label"));
    f->passing--;
    f->passing_labels -= label;
    if (label && !json_is_true(json_object_get(message, "heard"))) {
        by__gateway_quality_unmatched(f->quality, BY__UNKNOWN_ID, 1);
    }
}

void by__gateway_feedback_lost(by__gateway_feedback *feedback)
{
    if (feedback != NULL) {
        by__gateway_quality_unmatched(feedback->quality, BY__NO_BROKER, feedback->passing_labels);
        feedback->passing = feedback->passing_labels = 0;
    }
}

/* ---- the route ---- */

typedef struct feedback_fields {
    by__gateway_opinion opinion;
    const char *model;
    const char *comment;
} feedback_fields;

static const by__serve_field fields[] = {
    BY__STRING("id", feedback_fields, opinion.id, 64),
    BY__STRING("model", feedback_fields, model, 256),
    BY__STRING("comment", feedback_fields, comment, MAX_TEXT),
    BY__ANY("label", feedback_fields, opinion.label),
    BY__ANY("rating", feedback_fields, opinion.rating),
    BY__INTEGER("index", feedback_fields, opinion.index, 0, MAX_INDEX),
};

static by_status read_body(feedback_fields *a, const json_t *body, const char **param,
                           by_error *error)
{
    const by__gateway_opinion *o = &a->opinion;
    BY_TRY(by__serve_fields_read(a, fields, BY_ARRAY_LENGTH(fields), body, param, error));
    *param = "id";
    if (o->id == NULL || !by__serve_id_valid(o->id)) {
        return by_error_set(error, BY_EARG,
                            "'id' must be the id of an answer, or one of your own, of 1 to 64 "
                            "letters, digits, '-' and '_'");
    }
    *param = "rating";
    if (o->rating != NULL && !json_is_number(o->rating)) {
        return by_error_set(error, BY_EARG, "'rating' must be a number");
    }
    if (fabs(json_number_value(o->rating)) > MAX_RATING) {
        return by_error_set(error, BY_EARG, "'rating' is %g; it must be between %g and %g",
                            json_number_value(o->rating), -MAX_RATING, MAX_RATING);
    }
    *param = "label";
    if (o->label != NULL && (json_is_object(o->label) || json_is_array(o->label) ||
                             json_string_length(o->label) > MAX_LABEL)) {
        return by_error_set(error, BY_EARG,
                            "'label' must be a text of at most %d bytes, or a number", MAX_LABEL);
    }
    if (fabs(json_number_value(o->label)) > MAX_NUMBER) {
        return by_error_set(error, BY_EARG, "'label' is %g; it must be between %g and %g",
                            json_number_value(o->label), -MAX_NUMBER, MAX_NUMBER);
    }
    *param = NULL;
    return o->rating != NULL || o->label != NULL
               ? BY_OK
               : by_error_set(error, BY_EARG, "a 'rating' or a 'label' is needed");
}

static bool add_text(json_t *record, const char *key, const char *text)
{
    return text == NULL || json_object_set_new(record, key, json_string(text)) == 0;
}

/* NULL: out of memory. */
static json_t *record_of(const feedback_fields *a)
{
    const by__gateway_opinion *o = &a->opinion;
    char now[24];
    by__utc_now(now);
    json_t *record = json_pack("{ss ss ss sO* sO*}", "time", now, "id", o->id, "key", o->key,
                               "label", o->label, "rating", o->rating);
    if (!add_text(record, "model", a->model) || !add_text(record, "comment", a->comment) ||
        (o->index >= 0 && json_object_set_new(record, "index", json_integer(o->index)) != 0)) {
        json_decref(record);
        record = NULL;
    }
    return record;
}

/* The gateway that gave the answer, this one or another, judges it. */
static void count(by__gateway_feedback *f, const by__gateway_opinion *o)
{
    const char *tag = tag_of(o->id);
    f->labels += o->label != NULL;
    if (o->rating != NULL) {
        by__gateway_ratings_add(&f->ratings, json_number_value(o->rating));
    }
    if (tag != NULL && memcmp(tag, f->gateway->tag, BY__TAG) != 0) {
        pass(f, o, tag);
    } else {
        by__gateway_quality_add(f->quality, o);
    }
}

static by_status store_opinion(by__gateway_feedback *f, by__http_connection *x,
                               const feedback_fields *a, by_error *error)
{
    waiting *w;
    BY_TRY(by__alloc((void **)&w, 1, sizeof *w, "feedback", error));
    *w = (waiting){.waiter = {on_disconnect}, .connection = x};
    (void)snprintf(w->id, sizeof w->id, "%s", a->opinion.id);
    w->number = by__serve_append_log_record(f->lines, record_of(a));
    if (w->number == 0) {
        free(w);
        return by_error_set(error, BY_EMEMORY,
                            "out of memory, or too many records wait for the disk");
    }
    *f->last = w;
    f->last = &w->next;
    by__http_connection_set(x, &w->waiter);
    count(f, &a->opinion);
    return BY_OK;
}

void by__gateway_answer_feedback(by__gateway *g, by__http_connection *x, const by__http_request *r,
                                 const char *key)
{
    feedback_fields a = {.opinion.index = -1, .opinion.key = key};
    by_error error = {0};
    const char *param = NULL;
    if (g->feedback == NULL) {
        by__gateway_reply_error(g, x, 404, "route_not_found", NULL,
                                "this server keeps no feedback (feedback.directory)");
        return;
    }
    if (!by__gateway_takes_json(g, x, r)) {
        return;
    }
    json_t *body = NULL;
    by_status status = by__gateway_body_parse(&body, r->body, r->body_length, &error);
    if (status == BY_OK) {
        status = read_body(&a, body, &param, &error);
    }
    if (status == BY_OK && by__gateway_quality_is_foreign(g->feedback->quality, &a.opinion)) {
        by__gateway_reply_error(g, x, 404, "answer_not_found", "id", "the key has no such answer");
    } else if (status == BY_OK) {
        status = store_opinion(g->feedback, x, &a, &error);
    }
    json_decref(body);
    if (status != BY_OK) {
        bool theirs = status == BY_EARG;
        by__gateway_reply_error(g, x, theirs ? 400 : 503, theirs ? "invalid_request" : "not_stored",
                                param, error.message);
    }
}

void by__gateway_feedback_print(const by__gateway_feedback *feedback, by_string *out)
{
    const by__gateway_feedback *f = feedback;
    if (f == NULL) {
        return;
    }
    by__telemetry_metrics_family(out, "banyan_feedback_total", "Records of clients about answers.",
                                 "counter");
    by__telemetry_metrics_sample(out, "banyan_feedback_total", "kind=\"rating\"",
                                 (double)f->ratings.count);
    by__telemetry_metrics_sample(out, "banyan_feedback_total", "kind=\"label\"", (double)f->labels);
    if (f->ratings.count > 0) {
        by__telemetry_metrics_counter(out, "banyan_feedback_rating_mean",
                                      "Of the last 100 ratings.", "gauge", NULL,
                                      by__gateway_ratings_mean(&f->ratings));
    }
    by__gateway_quality_print(f->quality, out);
}
