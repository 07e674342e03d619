#include "serve/protocol/predicted.h"

#include <math.h>
#include <stdlib.h>

#define BATCH 64

struct by__protocol_predicted_rows {
    by_predictor *predictor;
    by_predictor_input *input;
    size_t next;
    json_t *batch; /* predictions not taken yet, from `copied` on */
    size_t copied;
    bool failed;
};

/* A PNG in base64. */
static json_t *png_text(const by_field *f)
{
    by_string text = {0};
    char *digits = NULL;
    by__string_add_base64(&text, f->png, f->png_size);
    if (by__string_release(&text, &digits, NULL) != BY_OK) {
        return NULL;
    }
    json_t *out = json_string(digits);
    free(digits);
    return out;
}

static json_t *numbers(const by_field *f)
{
    json_t *out = json_array();
    for (size_t i = 0; i < f->list_count; i++) {
        double number = (double)f->list[i];
        (void)json_array_append_new(out, isfinite(number) ? json_real(number) : json_null());
    }
    return out;
}

json_t *by__protocol_predicted_json(const by_field *fields, size_t count)
{
    json_t *out = json_object();
    bool failed = out == NULL;
    for (size_t i = 0; i < count; i++) {
        const by_field *f = &fields[i];
        json_t *value = f->png != NULL        ? png_text(f)
                        : f->list != NULL     ? numbers(f)
                        : f->text != NULL     ? json_string(f->text)
                        : f->is_whole         ? json_integer((json_int_t)f->number)
                        : isfinite(f->number) ? json_real(f->number)
                                              : json_null();
        failed = json_object_set_new(out, f->name, value) != 0 || failed;
    }
    if (failed) {
        json_decref(out);
        return NULL;
    }
    return out;
}

by_status by__protocol_predicted_rows_open(by__protocol_predicted_rows **out, char **why,
                                           const by_pretrained *model, const by_table *table,
                                           by_error *error)
{
    by__protocol_predicted_rows *r;
    const by_predictor_options options = {.batch = BATCH};
    const by_task_examples examples = {.table = table};
    by_error lacks = {0};
    *out = NULL;
    *why = NULL;
    BY_TRY(by__alloc((void **)&r, 1, sizeof *r, "predictions", error));
    by_status status =
        by_predictor_open(&r->predictor, by_pretrained_config(model), by_pretrained_weights(model),
                          by_pretrained_directory(model), &options, error);
    if (status == BY_OK) {
        status = by_predictor_input_open(&r->input, r->predictor, &examples, &lacks);
        if (status == BY_EFORMAT) {
            by__protocol_predicted_rows_close(&r);
            *why = by__strdup(lacks.message);
            return *why != NULL ? BY_OK
                                : by_error_set(error, BY_EMEMORY, "out of memory: a message");
        }
        if (status != BY_OK) {
            (void)by_error_set(error, status, "%s", lacks.message);
        }
    }
    if (status != BY_OK) {
        by__protocol_predicted_rows_close(&r);
        return status;
    }
    *out = r;
    return BY_OK;
}

void by__protocol_predicted_rows_close(by__protocol_predicted_rows **rows)
{
    by__protocol_predicted_rows *r = *rows;
    if (r != NULL) {
        *rows = NULL;
        json_decref(r->batch);
        by_predictor_input_close(&r->input);
        by_predictor_close(&r->predictor);
        free(r);
    }
}

static void copy_row(void *user, const by_field *fields, size_t count)
{
    by__protocol_predicted_rows *r = user;
    json_t *one = by__protocol_predicted_json(fields, count);
    r->failed = json_array_append_new(r->batch, one) != 0 || r->failed;
}

by_status by__protocol_predicted_rows_next(by__protocol_predicted_rows *rows, json_t **out,
                                           by_error *error)
{
    by__protocol_predicted_rows *r = rows;
    if (r->batch == NULL || r->copied == json_array_size(r->batch)) {
        by_predictor_place places[BATCH];
        size_t left = by_predictor_input_count(r->input) - r->next;
        size_t count = left < BATCH ? left : BATCH;
        for (size_t i = 0; i < count; i++) {
            places[i] = (by_predictor_place){r->input, r->next + i};
        }
        json_decref(r->batch);
        r->batch = json_array();
        r->copied = 0;
        r->next += count;
        BY_TRY(by_predictor_run(r->predictor, places, count, copy_row, r, error));
    }
    if (r->failed || r->batch == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: predictions");
    }
    *out = json_incref(json_array_get(r->batch, r->copied++));
    return BY_OK;
}
