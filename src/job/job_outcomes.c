/* Predictions for held-out data: collected during evaluation, and kept with the weights, so that a
 * server can compare its predictions with them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drift/drift.h"
#include "job/job.h"

#define MAX_PREDICTIONS ((uint64_t)1 << 16) /* limit on kept predictions */

by_status by__job_outcomes_open(by__job_outcomes **out, const by_config *config,
                                const by_task_data *data, by_error *error)
{
    const by_task *task = data->task;
    uint64_t micro_batch = (uint64_t)config->train.micro_batch;
    uint64_t all = data->valid_examples;
    by__job_outcomes *o;
    *out = NULL;
    if (task->open_examples == NULL || task->encoding == NULL || task->predict == NULL ||
        all == 0) {
        return BY_OK; /* the task does not predict single examples */
    }
    if (config->train.eval_batches >= 0 &&
        (uint64_t)config->train.eval_batches < all / micro_batch + 1) {
        uint64_t most = (uint64_t)config->train.eval_batches * micro_batch;
        all = most < all ? most : all;
    }
    BY_TRY(by__alloc((void **)&o, 1, sizeof *o, "predictions", error));
    size_t outputs = data->output_count == 0 ? 1 : data->output_count;
    uint64_t most = MAX_PREDICTIONS / outputs + (MAX_PREDICTIONS < outputs);
    o->numbers = outputs + 1;
    o->stride = all > most ? (all + most - 1) / most : 1;
    o->micro_batch = (size_t)micro_batch;
    o->capacity = (size_t)(all / o->stride) + 1;
    by_status status = by__alloc((void **)&o->items, o->capacity, o->numbers * sizeof *o->items,
                                 "predictions", error);
    if (status != BY_OK) {
        by__job_outcomes_close(&o);
        return status;
    }
    *out = o;
    return BY_OK;
}

void by__job_outcomes_close(by__job_outcomes **outcomes)
{
    if (*outcomes != NULL) {
        free((*outcomes)->items);
        free(*outcomes);
        *outcomes = NULL;
    }
}

/* ---- collection ---- */

typedef struct taking {
    by__job_outcomes *outcomes;
    const by_task_data *data;
    double *slots;
    uint64_t first;
} taking;

static void add_outcome(void *user, const by_field *fields, size_t count)
{
    const taking *t = user;
    by__job_outcomes *o = t->outcomes;
    const by_task_data *data = t->data;
    size_t index = 0;
    while (index < count && strcmp(fields[index].name, "index") != 0) {
        index++;
    }
    uint64_t slot = index < count ? (uint64_t)fields[index].number - t->first : o->micro_batch;
    if (slot >= o->micro_batch) {
        return;
    }
    double *said = t->slots + (size_t)slot * o->numbers;
    size_t output = 0;
    for (size_t i = 0; i < count; i++) {
        const by_field *f = &fields[i];
        if (output < data->output_count && strcmp(f->name, data->outputs[output]) == 0) {
            said[output++] = f->number;
        } else if (strcmp(f->name, "class") == 0) {
            said[0] = f->number;
            o->are_classes = true;
        } else if (strcmp(f->name, "value") == 0) {
            said[0] = f->number;
        } else if (strcmp(f->name, "probability") == 0) {
            said[o->numbers - 1] = f->number;
        }
    }
}

by_status by__job_outcomes_predict(by__job_outcomes *o, double *slots, by_task_data *data,
                                   const by_batch *batch, double loss, const float *values,
                                   size_t width, by_error *error)
{
    taking t = {.outcomes = o, .data = data, .slots = slots, .first = batch->first_sample};
    for (size_t i = 0; i < o->micro_batch * o->numbers; i++) {
        slots[i] = (double)NAN;
    }
    return data->task->predict(data, batch, loss, values, width, add_outcome, &t, error);
}

void by__job_outcomes_add(by__job_outcomes *o, const double *slots, uint64_t first)
{
    for (size_t i = 0; i < o->micro_batch; i++) {
        const double *said = slots + i * o->numbers;
        if ((first + i) % o->stride == 0 && isfinite(said[0]) && o->count < o->capacity) {
            memcpy(o->items + o->count++ * o->numbers, said, o->numbers * sizeof *said);
        }
    }
}

/* ---- storage ---- */

/* Finds a name that no column of a table has. */
static void free_name(char *name, size_t size, const by_drift_reference *r, const char *wanted)
{
    (void)snprintf(name, size, "%s", wanted);
    while (by_drift_reference_find(r, name) < by_drift_reference_features(r) &&
           strlen(name) + 1 < size) {
        (void)strcat(name, "_");
    }
}

/* Marks the last added feature as one of predictions. */
static by_status assign_last(by_drift_reference *r, by_drift_role role, by_error *error)
{
    return by_drift_reference_assign(r, by_drift_reference_features(r) - 1, role, error);
}

static bool any_finite(const by__job_outcomes *o, size_t which)
{
    size_t i = 0;
    while (i < o->count && !isfinite(o->items[i * o->numbers + which])) {
        i++;
    }
    return i < o->count;
}

/* Adds one of the numbers of each prediction. */
static by_status add_numbers(by_drift_reference *r, const by__job_outcomes *o, size_t which,
                             const char *wanted, by_drift_role role, by_error *error)
{
    char name[256];
    double *numbers;
    if (!any_finite(o, which)) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&numbers, o->count, sizeof *numbers, "predictions", error));
    for (size_t i = 0; i < o->count; i++) {
        numbers[i] = o->items[i * o->numbers + which];
    }
    free_name(name, sizeof name, r, wanted);
    by_status status = by_drift_reference_number(r, name, numbers, o->count, error);
    free(numbers);
    return status == BY_OK ? assign_last(r, role, error) : status;
}

/* Merges classes with the same name. */
static void merge_labels(uint64_t *counts, const char *const *labels, size_t classes)
{
    for (size_t c = 1; c < classes; c++) {
        for (size_t e = 0; e < c && counts[c] > 0; e++) {
            if (counts[e] > 0 && strcmp(labels[e], labels[c]) == 0) {
                counts[e] += counts[c];
                counts[c] = 0;
            }
        }
    }
}

static by_status add_classes(by_drift_reference *r, const by__job_outcomes *o,
                             const by_task_kept *kept, by_error *error)
{
    char name[64];
    size_t classes = 0;
    uint64_t *counts = NULL;
    char(*digits)[24] = NULL;
    const char **labels = NULL;
    for (size_t i = 0; i < o->count; i++) {
        size_t own = (size_t)o->items[i * o->numbers] + 1;
        classes = own > classes ? own : classes;
    }
    by_status status = by__alloc((void **)&counts, classes, sizeof *counts, "classes", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&digits, classes, sizeof *digits, "classes", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&labels, classes, sizeof *labels, "classes", error);
    }
    if (status == BY_OK) {
        for (size_t c = 0; c < classes; c++) {
            (void)snprintf(digits[c], sizeof digits[c], "%zu", c);
            labels[c] = c < kept->label_count ? kept->labels[c] : digits[c];
        }
        for (size_t i = 0; i < o->count; i++) {
            counts[(size_t)o->items[i * o->numbers]]++;
        }
        merge_labels(counts, labels, classes);
        free_name(name, sizeof name, r, "prediction");
        status = by_drift_reference_category(r, name, labels, counts, classes, 0, error);
    }
    free(labels);
    free(digits);
    free(counts);
    return status == BY_OK ? assign_last(r, BY_DRIFT_OUTCOME, error) : status;
}

/* Adds the numbers that are predicted: "prediction", or "prediction_NAME" of each output. */
static by_status add_values(by_drift_reference *r, const by__job_outcomes *o,
                            const by_task_data *data, by_error *error)
{
    if (data->output_count == 0) {
        return add_numbers(r, o, 0, "prediction", BY_DRIFT_OUTCOME, error);
    }
    /* Features of outputs are told apart by their order, so that there is one of each or none. */
    for (size_t i = 0; i < data->output_count; i++) {
        if (!any_finite(o, i)) {
            return BY_OK;
        }
    }
    for (size_t i = 0; i < data->output_count; i++) {
        char name[224];
        (void)snprintf(name, sizeof name, "prediction_%s", data->outputs[i]);
        BY_TRY(add_numbers(r, o, i, name, BY_DRIFT_OUTCOME, error));
    }
    return BY_OK;
}

static by_status describe(by_drift_reference *r, const by__job_outcomes *o,
                          const by_task_data *data, const by_task_kept *kept, double loss,
                          by_error *error)
{
    double bytes = by__drift_value_of(r, "bytes_per_token");
    if (isfinite(bytes) && isfinite(loss)) {
        BY_TRY(by_drift_reference_value(r, "bits_per_byte", loss / log(2.0) / bytes, error));
    }
    if (o == NULL || o->count == 0) {
        return BY_OK;
    }
    BY_TRY(o->are_classes ? add_classes(r, o, kept, error) : add_values(r, o, data, error));
    return add_numbers(r, o, o->numbers - 1, "confidence", BY_DRIFT_CONFIDENCE, error);
}

by_status by__job_outcomes_describe(char **out, const by__job_outcomes *outcomes,
                                    const by_task_data *data, by_task_kept *kept, uint64_t examples,
                                    double loss, by_error *error)
{
    by_drift_reference *r = NULL;
    size_t i = 0;
    *out = NULL;
    while (i < kept->file_count && strcmp(kept->files[i].name, BY_DRIFT_FILE) != 0) {
        i++;
    }
    bool has = i < kept->file_count;
    if (i == BY_TASK_FILES || (!has && (outcomes == NULL || outcomes->count == 0))) {
        return BY_OK;
    }
    BY_TRY(has ? by_drift_reference_parse(&r, BY_DRIFT_FILE, kept->files[i].data,
                                          kept->files[i].size, error)
               : by_drift_reference_open(&r, examples, error));
    by_status status = describe(r, outcomes, data, kept, loss, error);
    if (status == BY_OK) {
        status = by_drift_reference_print(r, out, error);
    }
    by_drift_reference_close(&r);
    if (status == BY_EARG) { /* it cannot be printed */
        return BY_OK;
    }
    if (status == BY_OK) {
        kept->files[i] =
            (by_checkpoint_file){.name = BY_DRIFT_FILE, .data = *out, .size = strlen(*out)};
        kept->file_count += !has;
    }
    return status;
}
