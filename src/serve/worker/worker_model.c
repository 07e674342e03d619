/* The model that a worker serves: a language model with its tokenizer and its engine, or an encoder
 * of texts, which has vectors only. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "banyan/model.h"
#include "banyan/task.h"
#include "serve/protocol/messages.h"
#include "serve/worker/worker.h"

/* Requests with examples that a worker without an engine takes at a time: more than fit a batch, so
 * that batches are full under load. */
#define EXAMPLES 64
/* Most bytes of compiled formats: of all, and of those that no request uses. Large ones take some
 * tens of MB, most of them some KB. */
#define MAX_FORMS  ((size_t)256 << 20)
#define IDLE_FORMS ((size_t)64 << 20)

/* A text of up to so many bytes is encoded even if it cannot fit, to say how many tokens it has. */
#define MAX_COUNTED ((size_t)1 << 20)

/* Finds the tokens that end an answer, and the bytes of the longest token. */
static by_status inspect_tokens(by__worker_served_model *m, const char *directory, by_error *error)
{
    by_error none = {0};
    BY_TRY(by_end_tokens(m->ends, &m->end_count, directory, m->tokenizer, error));
    m->longest = 4; /* a character that the vocabulary lacks */
    for (uint32_t id = 0; id < by_tokenizer_vocab(m->tokenizer); id++) {
        const char *bytes;
        size_t length;
        if (by_tokenizer_token_bytes(m->tokenizer, id, &bytes, &length, &none) == BY_OK) {
            m->longest = length > m->longest ? length : m->longest;
        }
    }
    return BY_OK;
}

static by_status open_text(by__worker_served_model *m, const char *directory,
                           const by_worker_options *options, by_error *error)
{
    by_error none = {0};
    by_chat_source source = {.directory = directory, .file = options->chat_template};
    BY_TRY(by_tokenizer_open(&m->tokenizer, directory, error));
    BY_TRY(by_token_list_of(&m->tokens, m->tokenizer, error));
    BY_TRY(by__worker_form_cache_open(&m->forms, m->tokens, MAX_FORMS, IDLE_FORMS, error));
    by_status chat = by_chat_open(&m->chat, &source, &none);
    if (chat != BY_OK && chat != BY_ESTATE) {
        *error = none;
        return chat;
    }
    return inspect_tokens(m, directory, error);
}

static by_embed_options vectors_of(const by__worker_served_model *m, const by_worker_options *o)
{
    return (by_embed_options){.pooling = o->pooling,
                              .normalize = true,
                              .context = m->context,
                              .batch = (int64_t)by__worker_embedder_batch()};
}

/* An encoder continues no text: its vectors have weights of their own, and there is no engine. */
static by_status open_encoder(by__worker_served_model *m, const by_pretrained *pretrained,
                              const by_worker_options *o, by_error *error)
{
    const by_config *config = by_pretrained_config(pretrained);
    m->slots = EXAMPLES;
    m->sessions = (int64_t)by__worker_embedder_batch();
    m->width = config->model.width;
    m->context = o->context > 0 ? o->context : config->model.context;
    by_embed_options vectors = vectors_of(m, o);
    vectors.precision = o->precision;
    vectors.threads = o->threads;
    return by_embed_open(&m->embed, config, by_pretrained_weights(pretrained), &vectors, error);
}

static by_status open_engine(by__worker_served_model *m, const by_pretrained *pretrained,
                             const by_worker_options *o, by_error *error)
{
    by_engine_options options = {.context = o->context,
                                 .sessions = o->sessions,
                                 .rows = o->rows,
                                 .pool_bytes = o->pool_bytes,
                                 .threads = o->threads,
                                 .precision = o->precision,
                                 .kv = o->kv,
                                 .vocab = (int64_t)by_tokenizer_vocab(m->tokenizer)};
    int64_t sessions = options.sessions > 0 ? options.sessions : 16;
    /* A few more than run, so that the engine never waits for the broker. */
    m->sessions = sessions;
    m->slots = sessions + (sessions + 3) / 4;
    m->width = by_pretrained_config(pretrained)->model.width;
    m->context =
        options.context > 0 ? options.context : by_pretrained_config(pretrained)->model.context;
    BY_TRY(by_engine_open(&m->engine, by_pretrained_config(pretrained),
                          by_pretrained_weights(pretrained), &options, error));
    const by_embed_options vectors = vectors_of(m, o);
    return by_embed_open_with(&m->embed, m->engine, by_pretrained_config(pretrained), &vectors,
                              error);
}

/* Runs one request through every part, so that the first client does not wait longer than the
 * second. */
static by_status warm_up(by__worker_served_model *m, by_error *error)
{
    by_engine *engine = m->engine;
    int32_t prompt[1] = {0};
    uint64_t session;
    const float *vector;
    if (engine == NULL) {
        return by_embed_run(m->embed, prompt, 1, &vector, error);
    }
    by_request request = {
        .prompt = prompt, .prompt_count = 1, .tokens = 4, .sampling = {.top_p = 1.0}};
    BY_TRY(by_engine_submit(engine, &request, &session, error));
    while (by_engine_busy(engine)) {
        const by_event *events;
        size_t count;
        BY_TRY(by_engine_step(engine, &events, &count, error));
    }
    return BY_OK;
}

by_status by__worker_served_ids(by_token_buffer *out, const by__worker_served_model *model,
                                const json_t *list, const char *name, by_error *error)
{
    size_t count = json_array_size(list);
    int64_t vocab = (int64_t)by_tokenizer_vocab(model->tokenizer);
    BY_TRY(by__reserve((void **)&out->ids, &out->capacity, count, sizeof(uint32_t), error));
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= vocab) {
            return by_error_set(error, BY_EARG, "'%s' must have token ids from 0 to %lld", name,
                                (long long)vocab - 1);
        }
        out->ids[i] = (uint32_t)json_integer_value(id);
    }
    out->count = count;
    return BY_OK;
}

by_status by__worker_served_fits(const by__worker_served_model *model, size_t count,
                                 const char **code, by_error *error)
{
    if (count == 0) {
        return by_error_set(error, BY_EARG, "the text has no tokens; the model takes 1 to %lld",
                            (long long)model->context);
    }
    if (count > (size_t)model->context) {
        *code = BY__TOO_LONG;
        return by_error_set(error, BY_EARG,
                            "the model's maximum context length is %lld tokens, and the text has "
                            "%zu: shorten it",
                            (long long)model->context, count);
    }
    return BY_OK;
}

/* A very long text that cannot fit is not encoded, because other requests would wait for it. */
by_status by__worker_served_encode(by_token_buffer *out, const by__worker_served_model *model,
                                   const char *text, size_t length, unsigned flags,
                                   const char **code, by_error *error)
{
    size_t least = length / model->longest;
    if (least > (size_t)model->context && length > MAX_COUNTED) {
        *code = BY__TOO_LONG;
        return by_error_set(error, BY_EARG,
                            "the model's maximum context length is %lld tokens, and the text has "
                            "at least %zu: shorten it",
                            (long long)model->context, least);
    }
    BY_TRY(by_tokenizer_encode(model->tokenizer, text, length, out, flags, error));
    return by__worker_served_fits(model, out->count, code, error);
}

/* Refuses a model of a task whose predictions need files: no request has any. */
static by_status check_task(const by_pretrained *pretrained, const char *name, by_error *error)
{
    const by_config *config = by_pretrained_config(pretrained);
    const by_task *task = NULL;
    bool files = by_task_find(&task, config, NULL) == BY_OK && task->predict != NULL &&
                 task->open_examples == NULL && task->open_graph == NULL;
    const char *reads = by_model_reads(&config->model);
    return !files || strcmp(reads, "tokens") == 0 || strcmp(reads, "nodes") == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: a model of task.kind %s is not served, since it predicts files: "
                              "`banyan predict %s FILE`",
                              name, config->task.kind, name);
}

/* Opens the run or directory that the options name, with their adapter. */
static by_status open_pretrained(by_pretrained **out, const by_worker_options *options,
                                 by_error *error)
{
    /* A restart would not help. */
    if (!by__path_exists(options->model)) {
        return by_error_set(error, BY_ECONFIG, "%s: there is no such run or directory",
                            options->model);
    }
    BY_TRY(options->checkpoint == NULL
               ? by_pretrained_open(out, options->model, false, error)
               : by_pretrained_open_checkpoint(out, options->model, options->checkpoint, error));
    by_status status =
        options->device == NULL ? BY_OK : by_pretrained_use_device(*out, options->device, error);
    if (status == BY_OK && options->adapter != NULL) {
        status = by_pretrained_adapt(*out, options->adapter, error);
    }
    if (status == BY_OK) {
        status = check_task(*out, options->model, error);
    }
    if (status != BY_OK) {
        by_pretrained_close(out);
    }
    return status;
}

/* A model that a task trained on rows, texts among them, makes predictions instead. */
static bool reads_text(const by_pretrained *pretrained)
{
    const by_config *config = by_pretrained_config(pretrained);
    const by_task *task = NULL;
    bool rows = by_task_find(&task, config, NULL) == BY_OK && task->predict != NULL &&
                task->open_examples != NULL;
    return !rows && strcmp(by_model_reads(&config->model), "tokens") == 0;
}

by_status by_worker_check(const by_worker_options *options, by_error *error)
{
    by_pretrained *pretrained = NULL;
    BY_TRY(open_pretrained(&pretrained, options, error));
    by_status status = options->context > 0 && reads_text(pretrained)
                           ? by_infer_check_context(&by_pretrained_config(pretrained)->model,
                                                    options->context, error)
                           : BY_OK;
    by_pretrained_close(&pretrained);
    return status;
}

/* Adds a built-in chat template by its name, another one by its contents. */
static by_status add_template(by_string *text, const char *name, by_error *error)
{
    char *contents = NULL;
    size_t length;
    by_chat *chat = NULL;
    const by_chat_source source = {.file = name};
    BY_TRY(by_chat_open(&chat, &source, error));
    by_chat_close(&chat);
    if (!by__path_exists(name)) {
        by_string_format(text, " chat_template=%s", name);
        return BY_OK;
    }
    BY_TRY(by__file_read(&contents, &length, name, (size_t)16 << 20, error));
    by_string_format(text, " chat_template=%016llx",
                     (unsigned long long)by__hash64(contents, length));
    free(contents);
    return BY_OK;
}

by_status by_worker_settings(char **out, const by_worker_options *options, by_error *error)
{
    by_string text = {0};
    by_string_format(&text, "%s", options->precision == NULL ? "" : options->precision);
    if (options->kv != NULL) {
        by_string_format(&text, " kv=%s", options->kv);
    }
    by_status status =
        options->chat_template == NULL ? BY_OK : add_template(&text, options->chat_template, error);
    if (status == BY_OK && text.failed) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: settings");
    }
    if (status != BY_OK) {
        by_string_free(&text);
        return status;
    }
    *out = text.data;
    return BY_OK;
}

by_status by__worker_served_open(by__worker_served_model *m, const by_worker_options *options,
                                 const by__telemetry_log *log, by_error *error)
{
    by_pretrained *pretrained = NULL;
    struct stat facts;
    by_status status = open_pretrained(&pretrained, options, error);
    if (status == BY_OK && stat(by_pretrained_directory(pretrained), &facts) == 0) {
        m->created = (int64_t)facts.st_mtime;
    }
    bool text = status == BY_OK && reads_text(pretrained);
    if (status == BY_OK && !text) {
        m->slots = EXAMPLES;
        status = by__worker_predicting_open(&m->predicting, pretrained, options, error);
    } else if (status == BY_OK) {
        status = open_text(m, by_pretrained_directory(pretrained), options, error);
    }
    if (status == BY_OK && !text) {
        m->sessions = (int64_t)by__worker_predicting_batch(m->predicting);
    }
    if (status == BY_OK) {
        const by_drift_options drift = {.requests = options->drift_requests};
        status = by__telemetry_served_drift_open(&m->drift, by_pretrained_directory(pretrained),
                                                 &drift, log, error);
    }
    if (status == BY_OK && text) {
        bool encoder = by_model_is_encoder(&by_pretrained_config(pretrained)->model);
        status = encoder ? open_encoder(m, pretrained, options, error)
                         : open_engine(m, pretrained, options, error);
    }
    by_pretrained_close(&pretrained);
    return status == BY_OK && text ? warm_up(m, error) : status;
}

json_t *by__worker_served_info(const by__worker_served_model *m)
{
    json_t *info = m->predicting != NULL
                       ? by__worker_predicting_info(m->predicting)
                       : json_pack("{sI sI sb}", "context", (json_int_t)m->context, "width",
                                   (json_int_t)m->width, "chat", (int)(m->chat != NULL));
    (void)json_object_set_new(info, "created", json_integer((json_int_t)m->created));
    return info;
}

void by__worker_served_log_memory(const by__worker_served_model *m, const by__telemetry_log *log)
{
    if (m->engine != NULL) {
        const by_engine_memory_report *e = by_engine_memory(m->engine);
        uint64_t embeddings = by_embed_memory(m->embed);
        by__telemetry_log_event(log, "worker_memory", "{sI sI sI sI sI}", "weights",
                                (json_int_t)e->weights, "keys_and_values", (json_int_t)e->pool,
                                "engine", (json_int_t)(e->total - e->weights - e->pool),
                                "embeddings", (json_int_t)embeddings, "total",
                                (json_int_t)(e->total + embeddings));
    }
}

void by__worker_served_close(by__worker_served_model *m)
{
    by_embed_close(&m->embed);
    by_engine_close(&m->engine);
    by__worker_predicting_close(&m->predicting);
    by__telemetry_served_drift_close(&m->drift);
    by__worker_form_cache_close(&m->forms);
    by_token_list_close(&m->tokens);
    by_chat_close(&m->chat);
    by_tokenizer_close(&m->tokenizer);
}
