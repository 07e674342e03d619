#include "serve/gateway/core/payload_log.h"

#include <stdlib.h>
#include <string.h>

#include "banyan/tokenizer.h"
#include "base/json.h"
#include "serve/base/append_log.h"
#include "serve/gateway/core/redact.h"
#include "serve/protocol/content_parts.h"
#include "serve/protocol/messages.h"

/* Most lines of one request: a row takes microseconds, and the loop serves streams meanwhile. */
#define MAX_LINES 256

struct by__gateway_payload_log {
    const by_serve_payload_config *config;
    by__serve_append_log *lines;
    uint64_t added;
    char salt[BY__ID_BYTES]; /* salt of hashes, new in every process */
};

by_status by__gateway_payload_log_open(by__gateway_payload_log **out, uv_loop_t *loop,
                                       const by_serve_payload_config *config, by_error *error)
{
    by__gateway_payload_log *log;
    *out = NULL;
    if (config->directory[0] == '\0') {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&log, 1, sizeof *log, "a log", error));
    log->config = config;
    const by__serve_append_options lines = {.directory = config->directory,
                                            .name = "payload",
                                            .bytes = (size_t)config->bytes,
                                            .files = (size_t)config->files};
    by_status status = by__serve_request_id(log->salt, "", error);
    if (status == BY_OK) {
        status = by__serve_append_log_open(&log->lines, loop, &lines, error);
    }
    if (status != BY_OK) {
        free(log);
        return status;
    }
    *out = log;
    return BY_OK;
}

void by__gateway_payload_log_close(by__gateway_payload_log **log)
{
    if (*log != NULL) {
        by__serve_append_log_close(&(*log)->lines);
        free(*log);
        *log = NULL;
    }
}

bool by__gateway_payload_wants(const by__gateway_payload_log *log, const char *id)
{
    return log != NULL &&
           (double)(by__hash64(id, strlen(id)) >> 11) * 0x1p-53 < log->config->fraction;
}

/* ---- redaction ---- */

static bool lists(const by_string_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* The redacted value; NULL: out of memory. */
static json_t *clean(const by__gateway_payload_log *log, const json_t *value);

static json_t *clean_text(const by__gateway_payload_log *log, const json_t *value)
{
    by_string out = {0};
    if (log->config->redact == 0) {
        return json_deep_copy(value);
    }
    by__gateway_redact_text(&out, json_string_value(value), json_string_length(value));
    json_t *copy = out.failed ? NULL : json_stringn(out.data == NULL ? "" : out.data, out.length);
    by_string_free(&out);
    return copy;
}

/* Lists of token ids encode the text, but redaction cannot find anything in them. */
static bool is_tokens(const char *key, const json_t *value)
{
    return strcmp(key, "prompt") == 0 && json_is_integer(json_array_get(value, 0));
}

static json_t *hash_of(const by__gateway_payload_log *log, const json_t *value)
{
    char hash[17];
    char *text = by__json_dump(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    if (text == NULL) {
        return NULL;
    }
    by__gateway_redact_hash(hash, log->salt, text, strlen(text));
    free(text);
    return json_string(hash);
}

/* The redacted value of a member that is not dropped; NULL: out of memory. */
static json_t *clean_member(const by__gateway_payload_log *log, const char *key,
                            const json_t *value)
{
    return lists(&log->config->hash, key)                      ? hash_of(log, value)
           : log->config->redact != 0 && is_tokens(key, value) ? json_string("<tokens>")
                                                               : clean(log, value);
}

/* Recursion is bounded because bodies are parsed with a limit of depth. */
static json_t *clean(const by__gateway_payload_log *log, const json_t *value)
{
    const char *key;
    json_t *member;
    json_t *out;
    size_t i;
    int code = 0;
    if (json_is_string(value)) {
        return clean_text(log, value);
    }
    if (!json_is_array(value) && !json_is_object(value)) {
        return json_deep_copy(value);
    }
    out = json_is_array(value) ? json_array() : json_object();
    json_array_foreach(value, i, member)
    {
        code = code != 0 ? code : json_array_append_new(out, clean(log, member));
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, member)
    {
        if (code == 0 && !lists(&log->config->drop, key)) {
            code = json_object_set_new(out, key, clean_member(log, key, member));
        }
    }
    if (code != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* ---- records ---- */

/* Adds what is not redacted, such as ids with many digits, unless it is dropped or hashed. Returns
 * false when out of memory. */
static bool add_head(const by__gateway_payload_log *log, json_t *record, const json_t *head)
{
    const char *key;
    json_t *value;
    int code = record == NULL || head == NULL;
    json_object_foreach((json_t *)(uintptr_t)head, key, value)
    {
        if (code == 0 && !lists(&log->config->drop, key)) {
            code = json_object_set_new(record, key,
                                       lists(&log->config->hash, key) ? hash_of(log, value)
                                                                      : json_incref(value));
        }
    }
    return code == 0;
}

void by__gateway_payload_log_add(by__gateway_payload_log *log, json_t *head, json_t *body)
{
    char now[24];
    json_t *record = clean(log, body);
    json_decref(body);
    by__utc_now(now);
    if (json_object_set_new(head, "time", json_string(now)) != 0 || !add_head(log, record, head)) {
        json_decref(record);
        record = NULL;
    }
    json_decref(head);
    log->added += by__serve_append_log_record(log->lines, record) > 0;
}

/* Returns true if the content of a field may appear in another one. */
static bool shows(const by__gateway_payload_log *log, const char *name)
{
    return !lists(&log->config->drop, name) && !lists(&log->config->hash, name);
}

/* Adds the text to train on to a record: prompt and answer, turns separated by line breaks; nothing
 * if neither may be kept. Returns false when out of memory. */
static bool add_text(const by__gateway_payload_log *log, json_t *body, const json_t *request,
                     by_text shown_text)
{
    by_string text = {0};
    const char *prompt = shows(log, "prompt") ? by__protocol_get_text(request, "prompt") : NULL;
    const json_t *messages = shows(log, "messages") && shows(log, "content")
                                 ? json_object_get(request, "messages")
                                 : NULL;
    size_t i;
    json_t *message;
    by__string_append(&text, prompt == NULL ? "" : prompt);
    json_array_foreach(messages, i, message)
    {
        json_t *content = NULL;
        by_error ignored = {0};
        by_status status =
            by__protocol_content_text(&content, json_object_get(message, "content"), &ignored);
        text.failed = text.failed || status == BY_EMEMORY;
        by__string_append(&text, content == NULL ? "" : json_string_value(content));
        by__string_append(&text, "\n");
        json_decref(content);
    }
    if (shows(log, "completion")) {
        by_string_add(&text, shown_text.data, shown_text.length);
    }
    bool added = !text.failed &&
                 (text.length == 0 ||
                  json_object_set_new(body, "text", json_stringn(text.data, text.length)) == 0);
    by_string_free(&text);
    return added;
}

/* The generated text, without the prompt, which is a separate field. */
static by_text text_of_choice(const by__gateway_choice *c)
{
    size_t echo = c->echo < c->text.length ? c->echo : c->text.length;
    return (by_text){c->text.data == NULL ? "" : c->text.data + echo, c->text.length - echo};
}

static void add_texts(by__gateway_payload_log *log, const by__gateway_request *request)
{
    for (size_t p = 0; p < request->part_count; p++) {
        const json_t *wanted = json_object_get(request->parts[p].message, "request");
        for (size_t i = 0; i < request->n; i++) {
            const by__gateway_choice *c = &request->choices[p * request->n + i];
            by_text shown_text = text_of_choice(c);
            json_t *body = json_pack("{sO* sO* ss%}", "prompt", json_object_get(wanted, "prompt"),
                                     "messages", json_object_get(wanted, "messages"), "completion",
                                     shown_text.data, shown_text.length);
            json_t *head = json_pack("{ss ss ss sI sI}", "id", request->id, "model", request->model,
                                     "finish_reason", c->reason, "prompt_tokens",
                                     (json_int_t)request->parts[p].prompt_tokens,
                                     "completion_tokens", (json_int_t)request->parts[p].generated);
            if (!add_text(log, body, wanted, shown_text)) {
                json_decref(body);
                body = NULL; /* counted as lost */
            }
            by__gateway_payload_log_add(log, head, body);
        }
    }
}

/* A row as an object: one in the order of columns gets their names. NULL: out of memory, or there
 * is none (an image). */
static json_t *named_row(const json_t *row, const json_t *columns)
{
    size_t i;
    json_t *column;
    if (json_is_object(row)) {
        return json_incref((json_t *)(uintptr_t)row);
    }
    json_t *out = json_is_array(row) ? json_object() : NULL;
    json_array_foreach(columns, i, column)
    {
        const char *name = by__protocol_get_text(column, "name");
        if (out != NULL && name != NULL) {
            (void)json_object_set(out, name, json_array_get(row, i));
        }
    }
    return out;
}

/* Whole answers: each row with its prediction, or each text of which a vector was computed. */
static void add_examples(by__gateway_payload_log *log, const by__gateway_request *request)
{
    const json_t *wanted = json_object_get(request->parts[0].message, "request");
    const json_t *rows = json_object_get(wanted, "rows");
    const json_t *texts = json_object_get(wanted, "input");
    const json_t *columns = json_object_get(
        json_object_get(by__gateway_model(request->gateway, request->model), "info"), "columns");
    const json_t *answers = json_object_get(request->whole, "list");
    size_t count = json_array_size(answers);
    for (size_t i = 0; i < count && i < MAX_LINES; i++) {
        const json_t *text = json_array_get(texts, i);
        json_t *head = json_pack("{ss ss ss sI}", "id", request->id, "model", request->model,
                                 "version", request->parts[0].version, "index", (json_int_t)i);
        json_t *body =
            request->form->kind == BY__REQUEST_PREDICT
                ? json_pack("{so* sO}", "row", named_row(json_array_get(rows, i), columns),
                            "prediction", json_array_get(answers, i))
                : json_pack("{sO}", "prompt", text);
        if (json_is_string(text) && shows(log, "prompt") &&
            json_object_set(body, "text", (json_t *)(uintptr_t)text) != 0) {
            json_decref(body);
            body = NULL; /* counted as lost */
        }
        by__gateway_payload_log_add(log, head, body);
    }
}

void by__gateway_payload_log_request(by__gateway_payload_log *log,
                                     const by__gateway_request *request)
{
    if (request->whole == NULL) {
        add_texts(log, request);
    } else {
        add_examples(log, request);
    }
}

void by__gateway_payload_log_print(const by__gateway_payload_log *log, by_string *out)
{
    if (log != NULL) {
        by__telemetry_metrics_counter(out, "banyan_payload_records_total",
                                      "Records of the payload log.", "counter", NULL,
                                      (double)log->added);
        by__telemetry_metrics_counter(out, "banyan_payload_lost_total",
                                      "Records that memory or the disk had no room for.", "counter",
                                      NULL, (double)by__serve_append_log_lost(log->lines));
    }
}
