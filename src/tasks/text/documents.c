#include "tasks/text/documents.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct document_window {
    uint64_t document;
    uint64_t begin; /* first token, in the data set */
    size_t targets; /* of this window: 0 in a document of one token */
    bool is_last;
} document_window;

struct by__task_documents {
    const by_dataset *dataset;
    document_window *windows;
    size_t count;
    size_t capacity;
    uint64_t targets; /* of all windows */
    double loss;      /* sum over the current document's windows so far */
    uint64_t seen;
};

typedef struct window_source {
    by_source base;
    by_array arrays[4];
    const by__task_documents *documents;
    size_t context;
    size_t weight; /* index of the array of weights; 0: there is none */
} window_source;

by_status by__task_documents_open(by__task_documents **out, const by_dataset *dataset,
                                  by_error *error)
{
    by__task_documents *d;
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "documents", error));
    d->dataset = dataset;
    *out = d;
    return BY_OK;
}

void by__task_documents_close(by__task_documents **documents)
{
    if (documents != NULL && *documents != NULL) {
        free((*documents)->windows);
        free(*documents);
        *documents = NULL;
    }
}

static by_status cut(by__task_documents *d, size_t context, by_error *error)
{
    uint64_t total = by_dataset_tokens(d->dataset);
    for (uint64_t position = 0; position < total;) {
        uint64_t document;
        uint64_t end;
        BY_TRY(by_dataset_document_at(d->dataset, position, &document, NULL, &end, error));
        uint64_t left = end - position - 1;
        do {
            size_t targets = left < context ? (size_t)left : context;
            BY_TRY(by__reserve((void **)&d->windows, &d->capacity, d->count + 1, sizeof *d->windows,
                               error));
            left -= targets;
            d->windows[d->count++] = (document_window){document, position, targets, left == 0};
            d->targets += targets;
            position += targets;
        } while (left > 0);
        position = end;
    }
    return BY_OK;
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const window_source *s = (const window_source *)source;
    int32_t *tokens = rows[0];
    int32_t *targets = rows[1];
    size_t valid = 0;
    if (sample->place < source->samples) {
        const document_window *w = &s->documents->windows[sample->place];
        valid = w->targets;
        BY_TRY(by_dataset_read(s->documents->dataset, w->begin, valid, tokens, error));
        BY_TRY(
            by_dataset_read(s->documents->dataset, w->begin + (valid > 0), valid, targets, error));
    }
    for (size_t i = valid; i < s->context; i++) {
        tokens[i] = 0;
        targets[i] = -1;
    }
    if (source->array_count > 2 && s->weight != 2) {
        memset(rows[2], 0, s->context * sizeof(int32_t));
    }
    for (size_t i = 0; s->weight > 0 && i < s->context; i++) {
        ((float *)rows[s->weight])[i] = i < valid ? 1.0f : 0.0f;
    }
    return BY_OK;
}

static void close_source(by_source *source)
{
    free(source);
}

by_status by__task_documents_source(by_source **out, by__task_documents *d, size_t context,
                                    bool starts, bool weighted, by_error *error)
{
    window_source *s;
    d->count = 0;
    d->targets = 0;
    BY_TRY(cut(d, context, error));
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a source of documents", error));
    s->documents = d;
    s->context = context;
    s->base = (by_source){.name = "documents",
                          .arrays = s->arrays,
                          .array_count = by_token_arrays(s->arrays, context, starts),
                          .samples = d->count,
                          .sample_targets = context,
                          .targets = d->targets,
                          .fill = fill,
                          .close = close_source};
    if (weighted) {
        s->weight = s->base.array_count++;
        s->arrays[s->weight] = (by_array){"weight", BY_F32, BY_SHAPE((int64_t)context), NULL};
    }
    *out = &s->base;
    return BY_OK;
}

bool by__task_documents_add(by__task_documents *d, uint64_t index, double loss,
                            by__task_document_loss *out)
{
    const document_window *w = &d->windows[index];
    d->loss += loss;
    d->seen += w->targets;
    if (!w->is_last) {
        return false;
    }
    *out = (by__task_document_loss){.document = w->document,
                                    .targets = d->seen,
                                    .loss = d->seen > 0 ? d->loss / (double)d->seen : (double)NAN};
    d->loss = 0.0;
    d->seen = 0;
    return true;
}
