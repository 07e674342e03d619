/* Runs the texts of a file through a model in batches. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/json.h"
#include "base/prompt_file.h"
#include "base/text_rows.h"

/* Larger files of texts are refused as mistakes. */
#define MAX_TEXTS ((size_t)1 << 30)

/* A text of a batch. */
typedef struct batch_text {
    by_token_buffer tokens;
    size_t index;
    char failure[sizeof((by_error *)0)->message]; /* "": none */
} batch_text;

typedef struct text_rows_session {
    const cli_text_rows *r;
    batch_text *items; /* [batch] */
    size_t count;
    size_t index; /* index of the next text */
    size_t failed;
} text_rows_session;

static void print_item(const text_rows_session *s, const batch_text *it, const float *row)
{
    printf("{\"index\":%zu,", it->index);
    if (it->failure[0] != '\0') {
        printf("\"error\":");
        cli_print_json_string(it->failure);
    } else {
        printf("\"tokens\":%zu,", it->tokens.count);
        s->r->print(s->r->model, row);
    }
    printf("}\n");
}

/* Runs the gathered texts, and prints a line for each. */
static by_status flush(text_rows_session *s, by_error *error)
{
    by_embed_text texts[CLI_TEXT_BATCH];
    const float *rows = NULL;
    size_t count = 0;
    by_status status = BY_OK;
    for (size_t i = 0; i < s->count; i++) {
        const batch_text *it = &s->items[i];
        if (it->failure[0] == '\0') {
            /* Ids are below 2^31, so they are the same as int32_t. */
            texts[count++] =
                (by_embed_text){(const int32_t *)(const void *)it->tokens.ids, it->tokens.count};
        }
    }
    if (count > 0) {
        status = s->r->run(s->r->model, texts, count, &rows, error);
    }
    for (size_t i = 0; i < s->count && status == BY_OK; i++) {
        print_item(s, &s->items[i], rows);
        rows += s->items[i].failure[0] == '\0' ? s->r->width : 0;
    }
    for (size_t i = 0; i < s->count; i++) {
        by_token_buffer_free(&s->items[i].tokens);
    }
    s->count = 0;
    fflush(stdout);
    return status;
}

static by_status add(text_rows_session *s, const char *text, size_t length, by_error *error)
{
    batch_text *it = &s->items[s->count];
    by_error why = {0};
    *it = (batch_text){.index = s->index++};
    by_status status = by_tokenizer_encode(s->r->tokenizer, text, length, &it->tokens,
                                           BY_ENCODE_SPECIAL | BY_ENCODE_ADD_SPECIAL, &why);
    if (status == BY_OK) {
        status = s->r->check(s->r->model, it->tokens.count, &why);
    }
    if (status == BY_EMEMORY) {
        *error = why;
        return status;
    }
    if (status != BY_OK) {
        (void)snprintf(it->failure, sizeof it->failure, "%s", why.message);
        s->failed++;
    }
    return ++s->count == (size_t)s->r->batch ? flush(s, error) : BY_OK;
}

/* Adds a line: a literal text, which may be empty, or a JSON object with "text". */
static by_status add_line(text_rows_session *s, const char *line, size_t length, size_t number,
                          by_error *error)
{
    json_error_t where;
    if (length == 0 || line[0] != '{') {
        return add(s, line, length, error);
    }
    json_t *object = by_json_load(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    const json_t *text = json_object_get(object, "text");
    by_status status =
        json_is_string(text)
            ? add(s, json_string_value(text), json_string_length(text), error)
            : by_error_set(error, BY_EFORMAT,
                           "%s:%zu: not a JSON object with a string \"text\"%s%s", s->r->file,
                           number, object == NULL ? ": " : "", object == NULL ? where.text : "");
    json_decref(object);
    return status;
}

static by_status read_all(text_rows_session *s, by_error *error)
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
        status = add_line(s, line, n, number, error);
        line = next == NULL ? end : next + 1;
    }
    if (status == BY_OK && s->count > 0) {
        status = flush(s, error);
    }
    free(data);
    return status;
}

by_status cli_print_text_rows(const cli_text_rows *r, const cli_command *command, int *code,
                              by_error *error)
{
    text_rows_session s = {.r = r, .items = calloc((size_t)r->batch, sizeof *s.items)};
    if (s.items == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: texts");
    }
    by_status status = read_all(&s, error);
    for (size_t i = 0; i < s.count; i++) {
        by_token_buffer_free(&s.items[i].tokens);
    }
    free(s.items);
    if (status == BY_OK) {
        *code = cli_tell_failed(command, s.failed, s.index);
    }
    return status;
}
