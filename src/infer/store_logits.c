/* Stores a teacher's logits for each token of a packed directory, so that students can be distilled
 * without running the teacher (data/corpus/logit_store.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/tokenizer.h"
#include "base/threads.h"
#include "data/corpus/logit_store.h"
#include "infer/infer.h"
#include "text/tokenizer/vocabulary.h"

/* Target size of the logits of a run, which has at least one window. */
#define RUN_BYTES ((size_t)64 << 20)
/* Up to this many top tokens of a row are found by insertion; for more, all tokens are sorted. */
#define FEW 256
/* The limit of distill.temperature, with which it must agree. */
#define MAX_TEMPERATURE 1000.0

typedef struct ranked_logit {
    float logit;
    int32_t id;
} ranked_logit;

typedef struct logits_job {
    by_logits *logits;
    size_t context, vocab, top, batch;
    double temperature;
    int threads;
    int32_t *tokens;    /* [batch, context] */
    int32_t *ids;       /* [batch, context, top] */
    float *logarithms;  /* [batch, context, top + 1] */
    ranked_logit *room; /* [threads, vocab] */
} logits_job;

/* ---- a row ---- */

/* Sorts by descending logit, then by ascending id. */
static int by_logit(const void *a, const void *b)
{
    const ranked_logit *x = a;
    const ranked_logit *y = b;
    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Moves the first `top` elements in the order of by_logit to the front of the list. */
static void rank(ranked_logit *list, const float *z, size_t vocab, size_t top)
{
    size_t kept = 0;
    for (size_t v = 0; v < vocab; v++) {
        ranked_logit next = {z[v], (int32_t)v};
        if (top > FEW) {
            list[v] = next;
            continue;
        }
        if (kept == top && by_logit(&next, &list[top - 1]) > 0) {
            continue;
        }
        size_t at = kept < top ? kept++ : top - 1;
        for (; at > 0 && by_logit(&next, &list[at - 1]) < 0; at--) {
            list[at] = list[at - 1];
        }
        list[at] = next;
    }
    if (top > FEW) {
        qsort(list, vocab, sizeof *list, by_logit);
    }
}

/* Stores the logarithms of softmax(z / temperature) of the top tokens, and of all other tokens
 * together; the latter is summed directly, not computed as the difference from 1. */
static void write_row(const logits_job *j, ranked_logit *list, const float *z, int32_t *ids,
                      float *logarithms)
{
    double inverse = 1.0 / j->temperature;
    double all = 0.0;
    double others = 0.0;
    rank(list, z, j->vocab, j->top);
    double most = (double)list[0].logit;
    for (size_t v = 0; v < j->vocab; v++) {
        const ranked_logit here = {z[v], (int32_t)v};
        double e = exp(((double)z[v] - most) * inverse);
        all += e;
        others += by_logit(&here, &list[j->top - 1]) > 0 ? e : 0.0;
    }
    for (size_t i = 0; i < j->top; i++) {
        ids[i] = list[i].id;
        logarithms[i] = (float)(((double)list[i].logit - most) * inverse - log(all));
    }
    logarithms[j->top] = (float)(log(others) - log(all));
}

/* ---- windows ---- */

static by_status read_windows(const logits_job *j, const by_dataset *data, uint64_t first,
                              size_t count, by_error *error)
{
    size_t tokens = count * j->context;
    memset(j->tokens, 0, j->batch * j->context * sizeof *j->tokens);
    return by_dataset_read(data, first * j->context, tokens, j->tokens, error);
}

static by_status run_windows(const logits_job *j, by_logit_writer *writer, size_t count,
                             by_error *error)
{
    const float *logits;
    size_t rows = count * j->context;
    BY_TRY(by_logits_run(j->logits, j->tokens, &logits, error));
#pragma omp parallel for schedule(static) num_threads(j->threads)
    for (int t = 0; t < j->threads; t++) {
        size_t end = rows * ((size_t)t + 1) / (size_t)j->threads;
        for (size_t r = rows * (size_t)t / (size_t)j->threads; r < end; r++) {
            write_row(j, j->room + (size_t)t * j->vocab, logits + r * j->vocab, j->ids + r * j->top,
                      j->logarithms + r * (j->top + 1));
        }
    }
    for (size_t i = 0; i < rows * (j->top + 1); i++) {
        if (isnan(j->logarithms[i])) {
            return by_error_set(error, BY_ESTATE, "the teacher's logits are not numbers");
        }
    }
    return by__data_logit_writer_add(writer, j->ids, j->logarithms, rows, error);
}

static by_status run_all(const logits_job *j, const by_dataset *data, by_logit_writer *writer,
                         const by_store_logits_options *o, by_error *error)
{
    uint64_t windows = (by_dataset_tokens(data) - 1) / j->context;
    for (uint64_t first = 0; first < windows; first += j->batch) {
        size_t count = windows - first < j->batch ? (size_t)(windows - first) : j->batch;
        if (o->progress != NULL && !o->progress(o->user, first, windows)) {
            return by_error_set(error, BY_ESTOPPED, "interrupted; nothing was written");
        }
        BY_TRY(read_windows(j, data, first, count, error));
        BY_TRY(run_windows(j, writer, count, error));
    }
    return by__data_logit_writer_finish(writer, error);
}

/* ---- the job ---- */

static by_status allocate(logits_job *j, by_error *error)
{
    size_t rows = j->batch * j->context;
    BY_TRY(by__alloc((void **)&j->tokens, rows, sizeof *j->tokens, "tokens", error));
    BY_TRY(by__alloc((void **)&j->ids, rows, j->top * sizeof *j->ids, "ids", error));
    BY_TRY(by__alloc((void **)&j->logarithms, rows, (j->top + 1) * sizeof *j->logarithms,
                     "logarithms", error));
    return by__alloc((void **)&j->room, (size_t)j->threads, j->vocab * sizeof *j->room, "a row",
                     error);
}

/* If the model has a tokenizer, the data must have been made with the same one. */
static by_status check_tokenizer(const by_pretrained *model, const by_dataset *data,
                                 const char *name, by_error *error)
{
    bool same;
    char own[9];
    const char *directory = by_pretrained_directory(model);
    BY_TRY(by__tokenizer_model_has_same(&same, own, directory, by_dataset_tokenizer_hash(data),
                                        error));
    return same ? BY_OK
                : by_error_set(error, BY_ECONFIG,
                               "%s was packed with another tokenizer than the model's: pack it "
                               "with --tokenizer %s",
                               name, directory);
}

static by_status open_job(logits_job *j, const by_pretrained *model, const by_dataset *data,
                          const by_store_logits_options *o, by_error *error)
{
    const by_config *config = by_pretrained_config(model);
    const by_model_config *m = &config->model;
    if (strcmp(by_model_reads(m), "tokens") != 0) {
        return by_error_set(error, BY_EARG, "model.kind %s reads %s, not tokens", m->kind,
                            by_model_reads(m));
    }
    j->context = o->context > 0 ? (size_t)o->context : (size_t)m->context;
    j->vocab = (size_t)m->vocab;
    j->top = (size_t)o->top;
    j->temperature = o->temperature;
    j->threads = by__thread_count(o->threads == 0 ? (int)config->train.threads : o->threads);
    if (o->top < 1 || j->top > j->vocab ||
        !(o->temperature > 0.0 && o->temperature <= MAX_TEMPERATURE)) {
        return by_error_set(error, BY_EARG,
                            "top is %lld and the temperature %g; must be 1 to %zu tokens and a "
                            "temperature above 0, up to %g",
                            (long long)o->top, o->temperature, j->vocab, MAX_TEMPERATURE);
    }
    if (by_dataset_vocab(data) > j->vocab || by_dataset_tokens(data) <= j->context) {
        return by_error_set(error, BY_EARG,
                            "%s: %llu tokens of a vocabulary of %u; the model has %zu, and a "
                            "window of %zu needs one more",
                            o->data, (unsigned long long)by_dataset_tokens(data),
                            by_dataset_vocab(data), j->vocab, j->context);
    }
    BY_TRY(check_tokenizer(model, data, o->data, error));
    BY_TRY(by__nn_model_check_context(m, (int64_t)j->context, error));
    size_t window = j->context * j->vocab * sizeof(float);
    j->batch = RUN_BYTES / window < 1 ? 1 : RUN_BYTES / window;
    uint64_t windows = (by_dataset_tokens(data) - 1) / j->context;
    j->batch = j->batch > windows ? (size_t)windows : j->batch;
    BY_TRY(by_logits_open(&j->logits, config, by_pretrained_weights(model), (int64_t)j->batch,
                          (int64_t)j->context, o->precision, o->threads, error));
    return allocate(j, error);
}

by_status by_store_logits(const char *directory, const by_pretrained *model,
                          const by_store_logits_options *options, by_error *error)
{
    logits_job j = {0};
    by_dataset *data;
    by_logit_writer *writer = NULL;
    by__data_logit_manifest what = {.temperature = options->temperature};
    BY_TRY(by_dataset_open(&data, options->data, &(by_dataset_options){0}, error));
    by_status status = open_job(&j, model, data, options, error);
    if (status == BY_OK) {
        what.context = j.context;
        what.vocab = j.vocab;
        what.top = j.top;
        by_dataset_hash(data, what.data);
        by__infer_pretrained_identify(what.teacher, model);
        status = by__data_logit_writer_open(&writer, directory, &what, error);
    }
    if (status == BY_OK) {
        status = run_all(&j, data, writer, options, error);
    }
    by__data_logit_writer_close(&writer);
    by_logits_close(&j.logits);
    by_dataset_close(&data);
    free(j.tokens);
    free(j.ids);
    free(j.logarithms);
    free(j.room);
    return status;
}
