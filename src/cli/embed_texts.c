/* `banyan embed`: a vector for each text of a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "generate.h"

/* A file of texts over this is a mistake. */
#define MAX_TEXTS ((size_t)1 << 30)
#define MAX_BATCH 1024

typedef struct request {
    const char *file;
    const char *pool;
    const char *precision;
    const char *adapter;
    int64_t batch;
    int64_t context;
    int64_t threads;
    bool normalize;
    bool best;
    bool ema;
} request;

/* A text of a batch. */
typedef struct item {
    by_token_buffer tokens;
    size_t index;
    char failure[sizeof((by_error *)0)->message]; /* "": none */
} item;

typedef struct session {
    const request *r;
    by_tokenizer *tokenizer;
    by_embed *embed;
    item *items; /* [batch] */
    size_t count;
    size_t index; /* of the next text */
    bool failed;
} session;

static void print_vector(const item *it, const float *vector, int64_t width)
{
    printf("{\"index\":%zu,\"tokens\":%zu,\"embedding\":[", it->index, it->tokens.count);
    for (int64_t i = 0; i < width; i++) {
        char text[32];
        printf("%s%s", i == 0 ? "" : ",", cli_json_number(text, (double)vector[i], 9));
    }
    printf("]}\n");
}

/* Runs what was gathered, and prints a line for each text. */
static by_status flush(session *s, by_error *error)
{
    by_embed_text texts[MAX_BATCH];
    const float *vectors = NULL;
    size_t count = 0;
    by_status status = BY_OK;
    for (size_t i = 0; i < s->count; i++) {
        const item *it = &s->items[i];
        if (it->failure[0] == '\0') {
            /* Ids are below 2^31, so they are the same as int32_t. */
            texts[count++] =
                (by_embed_text){(const int32_t *)(const void *)it->tokens.ids, it->tokens.count};
        }
    }
    if (count > 0) {
        status = by_embed_run_batch(s->embed, texts, count, &vectors, error);
    }
    for (size_t i = 0; i < s->count && status == BY_OK; i++) {
        const item *it = &s->items[i];
        if (it->failure[0] != '\0') {
            printf("{\"index\":%zu,\"error\":", it->index);
            cli_print_json_string(it->failure);
            printf("}\n");
        } else {
            print_vector(it, vectors, by_embed_width(s->embed));
            vectors += by_embed_width(s->embed);
        }
    }
    for (size_t i = 0; i < s->count; i++) {
        by_token_buffer_free(&s->items[i].tokens);
    }
    s->count = 0;
    fflush(stdout);
    return status;
}

static by_status add(session *s, const char *text, size_t length, by_error *error)
{
    item *it = &s->items[s->count];
    by_error why = {0};
    *it = (item){.index = s->index++};
    by_status status = by_tokenizer_encode(s->tokenizer, text, length, &it->tokens,
                                           BY_ENCODE_SPECIAL | BY_ENCODE_AROUND, &why);
    if (status == BY_OK) {
        status = by_embed_check(s->embed, it->tokens.count, &why);
    }
    if (status == BY_EMEMORY) {
        *error = why;
        return status;
    }
    if (status != BY_OK) {
        (void)snprintf(it->failure, sizeof it->failure, "%s", why.message);
        s->failed = true;
    }
    return ++s->count == (size_t)s->r->batch ? flush(s, error) : BY_OK;
}

/* A line is a text as it is, or an object with "text". */
static by_status add_line(session *s, const char *line, size_t length, size_t number,
                          by_error *error)
{
    json_error_t where;
    if (line[0] != '{') {
        return add(s, line, length, error);
    }
    json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES, &where);
    const json_t *text = json_object_get(object, "text");
    by_status status =
        json_is_string(text)
            ? add(s, json_string_value(text), json_string_length(text), error)
            : by_error_set(error, BY_EFORMAT, "%s:%zu: not a JSON object with a string \"text\"",
                           s->r->file, number);
    json_decref(object);
    return status;
}

static by_status embed_all(session *s, by_error *error)
{
    char *data = NULL;
    size_t length;
    by_status status = cli_read_prompt_file(&data, &length, s->r->file, MAX_TEXTS, error);
    if (status != BY_OK) {
        return status;
    }
    const char *line = data;
    const char *end = data + length;
    for (size_t number = 1; line < end && status == BY_OK; number++) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t n = (size_t)((next == NULL ? end : next) - line);
        n -= n > 0 && line[n - 1] == '\r';
        if (n > 0) {
            status = add_line(s, line, n, number, error);
        }
        line = next == NULL ? end : next + 1;
    }
    if (status == BY_OK && s->count > 0) {
        status = flush(s, error);
    }
    free(data);
    return status;
}

static by_status open_model(session *s, const char *path, by_error *error)
{
    const request *r = s->r;
    by_pretrained *pretrained = NULL;
    char *run = NULL;
    by_embed_options options = {.pooling =
                                    strcmp(r->pool, "mean") == 0 ? BY_POOL_MEAN : BY_POOL_LAST,
                                .normalize = r->normalize,
                                .context = r->context,
                                .batch = r->batch,
                                .precision = r->precision,
                                .threads = (int)r->threads};
    by_status status =
        cli_open_pretrained(&pretrained, &run, path, r->best, r->ema, r->adapter, error);
    if (status == BY_OK) {
        status = by_tokenizer_open(&s->tokenizer, by_pretrained_directory(pretrained), error);
    }
    if (status == BY_OK) {
        status = by_embed_open(&s->embed, by_pretrained_config(pretrained),
                               by_pretrained_weights(pretrained), &options, error);
    }
    by_pretrained_close(&pretrained);
    free(run);
    return status;
}

static int embed(const request *r, const char *path)
{
    session s = {.r = r};
    by_error error = {0};
    by_status status = open_model(&s, path, &error);
    if (status == BY_OK) {
        s.items = calloc((size_t)r->batch, sizeof *s.items);
        status = s.items == NULL ? by_error_set(&error, BY_EMEMORY, "out of memory: texts") : BY_OK;
    }
    if (status == BY_OK) {
        status = embed_all(&s, &error);
    }
    for (size_t i = 0; i < s.count; i++) {
        by_token_buffer_free(&s.items[i].tokens);
    }
    by_embed_close(&s.embed);
    by_tokenizer_close(&s.tokenizer);
    free(s.items);
    return status != BY_OK ? cli_fail(&cli_embed, &error) : s.failed ? CLI_FAILED : CLI_DONE;
}

static int run(int argc, char **argv)
{
    request r = {.pool = "mean", .batch = 8};
    const cli_flag flags[] = {
        {"batch", CLI_STRING, &r.file, "FILE",
         "a text a line, or {\"text\": ...}; - for standard input"},
        {"pool", CLI_STRING, &r.pool, "mean|last",
         "the mean of the hidden states of all tokens, or that of the last one (mean)"},
        {"normalize", CLI_SWITCH, &r.normalize, NULL, "vectors of length 1"},
        {"batch-size", CLI_INTEGER, &r.batch, "N", "texts that are computed at a time (8)"},
        {"context", CLI_INTEGER, &r.context, "N",
         "tokens of the longest text (default: the model's context)"},
        {"precision", CLI_STRING, &r.precision, "TYPE",
         "f32, bf16, fp16, int8 or int4 (default: the run's)"},
        {"threads", CLI_INTEGER, &r.threads, "N", "compute threads (default: the run's)"},
        {"best", CLI_SWITCH, &r.best, NULL, "the checkpoint with the lowest validation loss"},
        {"ema", CLI_SWITCH, &r.ema, NULL, "the moving average of the weights (optimizer.ema)"},
        {"adapter", CLI_STRING, &r.adapter, "DIR", CLI_ADAPTER_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_embed, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1 || r.file == NULL) {
        return cli_misuse(&cli_embed, "name one run or model directory, and texts with --batch");
    }
    if (strcmp(r.pool, "mean") != 0 && strcmp(r.pool, "last") != 0) {
        return cli_misuse(&cli_embed, "--pool %s: it is mean or last", r.pool);
    }
    if (r.batch < 1 || r.batch > MAX_BATCH || r.threads < 0 || r.threads > 4096 || r.context < 0) {
        return cli_misuse(&cli_embed,
                          "--batch-size is 1 to %d, --threads 0 to 4096, --context not "
                          "negative",
                          MAX_BATCH);
    }
    if ((code = cli_check_precision(&cli_embed, r.precision)) >= 0) {
        return code;
    }
    return embed(&r, rest[0]);
}

const cli_command cli_embed = {
    .name = "embed",
    .summary = "vectors of texts, by the hidden states of a language model",
    .usage = "banyan embed RUN --batch FILE [--pool mean|last] [--normalize]",
    .text =
        "Prints a JSON line for each text of a file, in their order: its index, the number of its\n"
        "tokens and its embedding, the last hidden states (behind the last norm) of its tokens,\n"
        "pooled. A text that is longer than the context has an error in its line.\n\n"
        "  banyan embed runs/shakespeare-char --batch texts.txt --pool mean --normalize",
    .run = run};
