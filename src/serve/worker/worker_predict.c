/* Predictions of rows, images and graphs: requests for /v1/predict in a worker. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/predictor.h"
#include "base/base.h"
#include "data/table/row_cell.h"
#include "formats/image/image_file.h"
#include "serve/base/fields.h"
#include "serve/protocol/messages.h"
#include "serve/protocol/predicted.h"
#include "serve/worker/worker.h"
#include "serve/worker/worker_graph.h"
#include "serve/worker/worker_links.h"

#define MAX_ROWS   4096
#define MAX_IMAGES 256
/* Default number of rows or images in a batch. */
#define BATCH 16

struct by__worker_predicting {
    by_predictor *predictor;
    size_t columns; /* 0: the model reads images */
    int64_t image[3];
    by__worker_graphs *graphs; /* NULL: the model reads none, and the others are used */
    by__worker_links *links;   /* of a graph, instead; NULL */
};

/* ---- a request, on the preparer's thread ---- */

typedef struct worker_predict_fields {
    const char *kind;
    const json_t *rows;
    const json_t *images;
    const json_t *nodes;
    const json_t *graph;
    const json_t *pairs;
} worker_predict_fields;

static const by__serve_field fields[] = {
    BY__STRING("kind", worker_predict_fields, kind, 16),
    BY__IGNORED("trace"), /* the worker has read it */
    BY__ANY("rows", worker_predict_fields, rows),
    BY__ANY("images", worker_predict_fields, images),
    BY__ANY("nodes", worker_predict_fields, nodes),
    BY__ANY("graph", worker_predict_fields, graph),
    BY__ANY("pairs", worker_predict_fields, pairs),
};

/* The examples of a job: rows, or pictures, which are decoded one by one. */
typedef struct examples {
    by_predictor_input *rows;
    by_image_bytes *files;         /* [count], those that are not decoded yet */
    by_predictor_input **pictures; /* [count] */
    size_t count;
    size_t decoded;
} examples;

static void close_input(void *user)
{
    examples *e = user;
    by_predictor_input_close(&e->rows);
    for (size_t i = 0; i < e->count; i++) {
        free((void *)(uintptr_t)e->files[i].data);
        by_predictor_input_close(&e->pictures[i]);
    }
    free(e->files);
    free(e->pictures);
    free(e);
}

static by_status find_unknown(const by__worker_predicting *p, const json_t *object, size_t row,
                              by_error *error)
{
    const char *names[256];
    const char *name;
    json_t *value;
    by_column_type column;
    size_t count = 0;
    while (count < BY_ARRAY_LENGTH(names) && by_predictor_column(p->predictor, count, &column)) {
        names[count++] = column.name;
    }
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        size_t i = 0;
        while (by_predictor_column(p->predictor, i, &column) && strcmp(column.name, name) != 0) {
            i++;
        }
        if (i == p->columns) {
            const char *near = strlen(name) < 64 ? by_nearest_name(name, names, count) : NULL;
            return by_error_set(error, BY_EARG, "row %zu: the model knows no column '%.64s'%s%s%s",
                                row, name, near == NULL ? "" : "; did you mean '",
                                near == NULL ? "" : near, near == NULL ? "" : "'?");
        }
    }
    return BY_OK;
}

/* Reads a row given by column names, where absent ones are missing, or in the order of columns. */
static by_status copy_row(char **cells, const by__worker_predicting *p, const json_t *value,
                          size_t row, by_error *error)
{
    size_t found = 0;
    by_column_type column;
    if (json_is_array(value) && json_array_size(value) != p->columns) {
        return by_error_set(error, BY_EARG, "row %zu has %zu cells; the model reads %zu columns",
                            row, json_array_size(value), p->columns);
    }
    if (!json_is_array(value) && !json_is_object(value)) {
        return by_error_set(error, BY_EARG, "row %zu must be an object or a list", row);
    }
    for (size_t i = 0; i < p->columns; i++) {
        (void)by_predictor_column(p->predictor, i, &column);
        const json_t *cell =
            json_is_array(value) ? json_array_get(value, i) : json_object_get(value, column.name);
        found += cell != NULL;
        BY_TRY(by__table_row_cell(&cells[i], cell, row, error));
    }
    return json_is_object(value) && found < json_object_size(value)
               ? find_unknown(p, value, row, error)
               : BY_OK;
}

static by_status read_rows(by__worker_job *job, const by__worker_predicting *p, const json_t *rows,
                           by_error *error)
{
    by_table *table = NULL;
    char **cells = NULL;
    examples *e = job->input;
    size_t count = json_array_size(rows);
    size_t size;
    if (count < 1 || count > MAX_ROWS || !by__size_mul(count, p->columns, &size)) {
        return by_error_set(error, BY_EARG, "'rows' must be a list of 1 to %d rows", MAX_ROWS);
    }
    BY_TRY(by__alloc((void **)&cells, size, sizeof *cells, "rows", error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = copy_row(cells + i * p->columns, p, json_array_get(rows, i), i, error);
    }
    if (status == BY_OK) {
        status = by_predictor_table(&table, p->predictor, (const char *const *)cells, count, error);
    }
    if (status == BY_OK) {
        const by_task_examples what = {.table = table};
        status = by_predictor_input_open(&e->rows, p->predictor, &what, error);
    }
    if (status == BY_OK) {
        job->count = by_predictor_input_count(e->rows);
    }
    by_table_close(&table);
    for (size_t i = 0; i < size; i++) {
        free(cells[i]);
    }
    free(cells);
    return status;
}

static by_status decode_base64(by_image_bytes *out, const json_t *image, by_error *error)
{
    size_t length = json_string_length(image);
    uint8_t *data;
    if (!json_is_string(image)) {
        return by_error_set(error, BY_EARG, "'images' must be texts in base64");
    }
    BY_TRY(by__alloc((void **)&data, BY__BASE64_BYTES(length) + 1, 1, "an image", error));
    out->data = data;
    return by__read_base64(json_string_value(image), length, data, &out->size)
               ? BY_OK
               : by_error_set(error, BY_EARG, "an image is not base64");
}

/* Pixels of all images together, by their heads: a small file can contain any number. */
static by_status count_pixels(by__worker_job *job, const examples *e, by_error *error)
{
    uint64_t all = 0;
    for (size_t i = 0; i < e->count; i++) {
        int64_t height = 0;
        int64_t width = 0;
        if (by__format_image_size(&height, &width, e->files[i].data, e->files[i].size) &&
            height > 0 && width > 0) { /* of 32 bits each */
            all += (uint64_t)height > UINT64_MAX / 1024 / (uint64_t)width
                       ? UINT64_MAX / 1024
                       : (uint64_t)height * (uint64_t)width;
        }
    }
    job->rest = (size_t)all;
    return e->count == 1 || all <= BY__IMAGES_PIXELS
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "the images have %llu pixels together; %lld are decoded for a "
                              "request: make them smaller, or send several requests",
                              (unsigned long long)all, (long long)BY__IMAGES_PIXELS);
}

static by_status read_images(by__worker_job *job, const json_t *list, by_error *error)
{
    size_t count = json_array_size(list);
    examples *e = job->input;
    if (count < 1 || count > MAX_IMAGES) {
        return by_error_set(error, BY_EARG, "'images' must be a list of 1 to %d images",
                            MAX_IMAGES);
    }
    BY_TRY(by__alloc((void **)&e->files, count, sizeof *e->files, "images", error));
    BY_TRY(by__alloc((void **)&e->pictures, count, sizeof *e->pictures, "images", error));
    e->count = count;
    for (size_t i = 0; i < count; i++) {
        BY_TRY(decode_base64(&e->files[i], json_array_get(list, i), error));
    }
    job->count = count;
    job->more = true;
    return count_pixels(job, e, error);
}

by_status by__worker_predicting_more(const by__worker_predicting *p, by__worker_job *job,
                                     by_error *error)
{
    examples *e = job->input;
    by_image_bytes *file = &e->files[e->decoded];
    const by_task_examples what = {.files = file, .file_count = 1};
    if (job->deadline > 0.0 && by__now() > job->deadline) {
        job->more = false; /* the batcher ends it */
        return BY_OK;
    }
    job->param = "images";
    by_status status =
        by_predictor_input_open(&e->pictures[e->decoded], p->predictor, &what, error);
    if (status != BY_OK) {
        return e->count == 1 ? status : by_error_prefix(error, status, "image %zu", e->decoded);
    }
    free((void *)(uintptr_t)file->data);
    *file = (by_image_bytes){0};
    e->decoded++;
    job->rest -= job->rest / (e->count - e->decoded + 1);
    job->more = e->decoded < e->count;
    return BY_OK;
}

by_status by__worker_predicting_prepare(const by__worker_predicting *p, by__worker_job *job,
                                        const json_t *request, by_error *error)
{
    worker_predict_fields a = {0};
    BY_TRY(by__serve_fields_read(&a, fields, BY_ARRAY_LENGTH(fields), request, &job->param, error));
    if (p->links != NULL) {
        return by__worker_links_prepare(p->links, job, a.pairs, error);
    }
    if (p->graphs != NULL) {
        return by__worker_graphs_prepare(p->graphs, job, a.nodes, a.graph, error);
    }
    bool images = p->columns == 0;
    job->param = images ? "images" : "rows";
    if ((images ? a.images : a.rows) == NULL || (images ? a.rows : a.images) != NULL) {
        return by_error_set(error, BY_EARG,
                            "the model predicts '%s': send that field, and not '%s'", job->param,
                            images ? "rows" : "images");
    }
    examples *e;
    BY_TRY(by__alloc((void **)&e, 1, sizeof *e, "a request", error));
    job->input = e;
    job->close = close_input;
    return images ? read_images(job, a.images, error) : read_rows(job, p, a.rows, error);
}

/* ---- a batch, on the batcher's thread ---- */

typedef struct result_target {
    const by__worker_batch_place *places;
    bool failed;
} result_target;

static void add_result(void *user, const by_field *fields_of, size_t count)
{
    result_target *t = user;
    const by__worker_batch_place *place = NULL;
    json_t *out = by__protocol_predicted_json(fields_of, count);
    json_t *index = json_object_get(out, "index");
    if (index != NULL) { /* the index in the batch is replaced by that in the request */
        place = &t->places[(size_t)json_integer_value(index)];
        (void)json_integer_set(index, (json_int_t)place->example);
    }
    if (place == NULL || json_array_append_new(place->job->results, out) != 0) {
        t->failed = true;
    }
}

by_status by__worker_predicting_compute(void *user, const by__worker_batch_place *places,
                                        size_t count, by_error *error)
{
    by__worker_predicting *p = user;
    by_predictor_place *at;
    result_target t = {.places = places};
    if (p->links != NULL) {
        return by__worker_links_compute(p->links, places, count, error);
    }
    if (p->graphs != NULL) {
        return by__worker_graphs_compute(p->graphs, places, count, error);
    }
    BY_TRY(by__alloc((void **)&at, count, sizeof *at, "a batch", error));
    for (size_t i = 0; i < count; i++) {
        const examples *e = places[i].job->input;
        at[i] = e->count > 0 ? (by_predictor_place){e->pictures[places[i].example], 0}
                             : (by_predictor_place){e->rows, places[i].example};
    }
    by_status status = by_predictor_run(p->predictor, at, count, add_result, &t, error);
    free(at);
    return status == BY_OK && t.failed
               ? by_error_set(error, BY_EMEMORY, "out of memory: predictions")
               : status;
}

/* ---- all ---- */

by_status by__worker_predicting_open(by__worker_predicting **out, const by_pretrained *pretrained,
                                     const by_worker_options *o, by_error *error)
{
    by__worker_predicting *p;
    by_column_type column;
    const by_predictor_options options = {.batch = o->batch > 0 ? o->batch : BATCH,
                                          .threads = o->threads};
    bool graphs = strcmp(by_model_reads(&by_pretrained_config(pretrained)->model), "nodes") == 0;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "predictions", error));
    if (graphs) {
        *out = p;
        bool links = strcmp(by_pretrained_config(pretrained)->task.kind, "links") == 0;
        by_status opened =
            links ? by__worker_links_open(&p->links, pretrained, error)
                  : by__worker_graphs_open(&p->graphs, pretrained, options.threads, error);
        if (opened != BY_OK) {
            free(p);
            *out = NULL;
        }
        return opened;
    }
    by_status status = by_predictor_open(&p->predictor, by_pretrained_config(pretrained),
                                         by_pretrained_weights(pretrained),
                                         by_pretrained_directory(pretrained), &options, error);
    if (status != BY_OK) {
        free(p);
        return status;
    }
    by_predictor_image(p->predictor, p->image);
    while (by_predictor_column(p->predictor, p->columns, &column)) {
        p->columns++;
    }
    *out = p;
    return BY_OK;
}

void by__worker_predicting_close(by__worker_predicting **predicting)
{
    if (*predicting != NULL) {
        by_predictor_close(&(*predicting)->predictor);
        by__worker_graphs_close(&(*predicting)->graphs);
        by__worker_links_close(&(*predicting)->links);
        free(*predicting);
        *predicting = NULL;
    }
}

size_t by__worker_predicting_batch(const by__worker_predicting *predicting)
{
    return predicting->predictor == NULL ? BATCH
                                         : (size_t)by_predictor_batch(predicting->predictor);
}

json_t *by__worker_predicting_info(const by__worker_predicting *p)
{
    by_column_type column;
    if (p->links != NULL) {
        return by__worker_links_info(p->links);
    }
    if (p->graphs != NULL) {
        return by__worker_graphs_info(p->graphs);
    }
    json_t *columns = json_array();
    for (size_t i = 0; by_predictor_column(p->predictor, i, &column); i++) {
        bool number = column.kind == BY_COLUMN_NUMBER;
        json_t *one =
            json_pack("{ss ss}", "name", column.name, "kind", number ? "number" : "category");
        (void)json_array_append_new(columns, one);
    }
    if (p->columns > 0) {
        return json_pack("{so}", "columns", columns);
    }
    json_decref(columns);
    return json_pack("{s[III]}", "image", (json_int_t)p->image[0], (json_int_t)p->image[1],
                     (json_int_t)p->image[2]);
}
