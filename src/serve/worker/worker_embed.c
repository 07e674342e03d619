/* Embeddings of texts: requests for /v1/embeddings in a worker, computed with the engine's
 * weights. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "serve/base/fields.h"
#include "serve/protocol/messages.h"
#include "serve/worker/worker.h"

#define MAX_TEXTS 2048
/* Texts per batch. */
#define BATCH 8

struct by__worker_embedder {
    const by__worker_served_model *model;
    by_embed_text texts[BATCH];
};

typedef struct inputs {
    by_token_buffer *texts;
    size_t count;
} inputs;

static void close_inputs(void *user)
{
    inputs *in = user;
    for (size_t i = 0; i < in->count; i++) {
        by_token_buffer_free(&in->texts[i]);
    }
    free(in->texts);
    free(in);
}

/* ---- a request, on the preparer's thread ---- */

typedef struct embed_fields {
    const char *kind;
    const json_t *input;
    int64_t dimensions;
    const char *tenant;
} embed_fields;

static const by__serve_field fields[] = {
    BY__STRING("kind", embed_fields, kind, 16),
    BY__IGNORED("trace"), /* the worker has read it */
    BY__ANY("input", embed_fields, input),
    BY__INTEGER("dimensions", embed_fields, dimensions, 0, 1 << 24),
    BY__STRING("tenant", embed_fields, tenant, 256),
};

static by_status read_text(by_token_buffer *out, const by__worker_served_model *m,
                           const json_t *text, const char **code, by_error *error)
{
    if (json_is_string(text)) {
        return by__worker_served_encode(out, m, json_string_value(text), json_string_length(text),
                                        BY_ENCODE_ORDINARY | BY_ENCODE_ADD_SPECIAL, code, error);
    }
    if (json_is_array(text)) {
        BY_TRY(by__worker_served_ids(out, m, text, "input", error));
        return by__worker_served_fits(m, out->count, code, error);
    }
    return by_error_set(error, BY_EARG, "'input' must be texts or lists of token ids");
}

static by_status fill(by__worker_job *job, const by__worker_served_model *m, const json_t *input,
                      by_error *error)
{
    inputs *in = NULL;
    BY_TRY(by__alloc((void **)&in, 1, sizeof *in, "texts", error));
    job->input = in;
    job->close = close_inputs;
    BY_TRY(by__alloc((void **)&in->texts, job->count, sizeof *in->texts, "texts", error));
    in->count = job->count;
    for (size_t i = 0; i < job->count; i++) {
        BY_TRY(read_text(&in->texts[i], m, json_array_get(input, i), &job->code, error));
        job->tokens += (int64_t)in->texts[i].count;
    }
    return BY_OK;
}

by_status by__worker_embedder_prepare(const by__worker_embedder *e, by__worker_job *job,
                                      const json_t *request, by_error *error)
{
    embed_fields a = {0};
    BY_TRY(by__serve_fields_read(&a, fields, BY_ARRAY_LENGTH(fields), request, &job->param, error));
    job->param = "dimensions";
    if (a.dimensions > 0 && a.dimensions != e->model->width) {
        return by_error_set(error, BY_EARG,
                            "the model's vectors have %lld dimensions, and no other number",
                            (long long)e->model->width);
    }
    job->param = "input";
    job->count = json_array_size(a.input);
    if (job->count < 1 || job->count > MAX_TEXTS) {
        return by_error_set(error, BY_EARG, "'input' has %zu texts; 1 to %d are possible",
                            job->count, MAX_TEXTS);
    }
    /* Base64 takes 4 bytes for 3; a sixth of the message is left for its other members. */
    size_t most = BY__LINK_MESSAGE / 8 * 5 / ((size_t)e->model->width * sizeof(float));
    if (job->count > most) {
        return by_error_set(error, BY_EARG,
                            "'input' has %zu texts, whose vectors of %lld dimensions do not fit "
                            "an answer: ask for at most %zu at a time",
                            job->count, (long long)e->model->width, most);
    }
    return fill(job, e->model, a.input, error);
}

/* ---- a batch, on the batcher's thread ---- */

by_status by__worker_embedder_compute(void *user, const by__worker_batch_place *places,
                                      size_t count, by_error *error)
{
    by__worker_embedder *e = user;
    const float *vectors;
    by_embed *embed = e->model->embed;
    size_t width = (size_t)by_embed_width(embed);
    for (size_t i = 0; i < count; i++) {
        const by_token_buffer *text = &((inputs *)places[i].job->input)->texts[places[i].example];
        /* Ids are below 2^31, so they are the same as int32_t. */
        e->texts[i] = (by_embed_text){(const int32_t *)(const void *)text->ids, text->count};
    }
    BY_TRY(by_embed_run_batch(embed, e->texts, count, &vectors, error));
    for (size_t i = 0; i < count; i++) {
        by_string digits = {0};
        by__string_add_base64(&digits, vectors + i * width, width * sizeof *vectors);
        json_t *vector = digits.failed ? NULL : json_stringn(digits.data, digits.length);
        by_string_free(&digits);
        if (vector == NULL || json_array_append_new(places[i].job->results, vector) != 0) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a vector");
        }
    }
    return BY_OK;
}

/* ---- all ---- */

by_status by__worker_embedder_open(by__worker_embedder **out, const by__worker_served_model *model,
                                   by_error *error)
{
    BY_TRY(by__alloc((void **)out, 1, sizeof **out, "vectors of texts", error));
    (*out)->model = model;
    return BY_OK;
}

void by__worker_embedder_close(by__worker_embedder **embedder)
{
    free(*embedder);
    *embedder = NULL;
}

size_t by__worker_embedder_batch(void)
{
    return BATCH;
}
