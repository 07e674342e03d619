/* OpenAI's API: embeddings of texts. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "serve/base/fields.h"
#include "serve/gateway/openai/openai.h"
#include "serve/protocol/messages.h"

/* Most texts in a request. */
#define MAX_TEXTS 2048

typedef struct embeddings_fields {
    const char *model;
    const char *encoding;
    const json_t *input;
    int64_t dimensions;
    int64_t priority;
} embeddings_fields;

static const by__serve_field fields[] = {
    BY__STRING("model", embeddings_fields, model, 255),
    BY__ANY("input", embeddings_fields, input),
    BY__STRING("encoding_format", embeddings_fields, encoding, 16),
    BY__INTEGER("dimensions", embeddings_fields, dimensions, 1, 1 << 24),
    BY__INTEGER("priority", embeddings_fields, priority, -100, 100),
    BY__IGNORED("user"),
};

/* Converts one of the API's four formats to a list of texts or token lists. NULL: memory is
 * exhausted. */
static json_t *inputs_of(const json_t *input)
{
    const json_t *first = json_array_get(input, 0);
    if (json_is_array(input) && (json_is_string(first) || json_is_array(first))) {
        return json_incref((json_t *)(uintptr_t)input);
    }
    return json_pack("[O]", input);
}

static bool is_input(const json_t *input)
{
    const json_t *first = json_array_get(input, 0);
    return json_is_string(input) || json_is_integer(first) ||
           ((json_is_string(first) || json_is_array(first)) && json_array_size(input) <= MAX_TEXTS);
}

static by_status read_fields(by__gateway_request *request, const embeddings_fields *a,
                             size_t length, const char **param, by_error *error)
{
    *param = "model";
    if (a->model == NULL) {
        return by_error_set(error, BY_EARG, "'model' is missing");
    }
    *param = "encoding_format";
    bool base64 = a->encoding != NULL && strcmp(a->encoding, "base64") == 0;
    if (a->encoding != NULL && !base64 && strcmp(a->encoding, "float") != 0) {
        return by_error_set(error, BY_EARG, "'encoding_format' must be float or base64");
    }
    *param = "input";
    if (!is_input(a->input)) {
        return by_error_set(error, BY_EARG,
                            "'input' must be a text, a list of tokens, or a list of 1 to %d of "
                            "either",
                            MAX_TEXTS);
    }
    *param = NULL;
    request->own = json_boolean(base64);
    json_t *wanted = json_pack("{ss so sI ss}", "kind", "embed", "input", inputs_of(a->input),
                               "dimensions", (json_int_t)a->dimensions, "tenant", request->key);
    return by__gateway_request_one_part(request, a->model, wanted, length, a->priority, error);
}

static by_status read_body(by__gateway_request *request, const by__http_request *http,
                           const char **param, by_error *error)
{
    embeddings_fields a = {0};
    json_t *body;
    BY_TRY(by__gateway_body_parse(&body, http->body, http->body_length, error));
    by_status status =
        by__serve_fields_read(&a, fields, BY_ARRAY_LENGTH(fields), body, param, error);
    if (status == BY_OK) {
        status = read_fields(request, &a, http->body_length, param, error);
    }
    json_decref(body);
    return status;
}

/* Prints a vector as base64 or as numbers. */
static void add_vector(const json_t *vector, bool base64, by_string *out)
{
    const char *text = json_string_value(vector);
    size_t length = json_string_length(vector);
    size_t size = 0;
    by_error ignored = {0};
    uint8_t *bytes = NULL;
    if (base64) {
        by_string_json(out, text == NULL ? "" : text, length);
        return;
    }
    if (by__alloc((void **)&bytes, BY__BASE64_BYTES(length) + 1, 1, "a vector", &ignored) !=
            BY_OK ||
        text == NULL || !by__read_base64(text, length, bytes, &size)) {
        out->failed = true;
        size = 0;
    }
    by__string_append(out, "[");
    for (size_t i = 0; i + sizeof(float) <= size; i += sizeof(float)) {
        float value;
        memcpy(&value, bytes + i, sizeof value);
        by_string_format(out, "%s%.9g", i == 0 ? "" : ",", (double)value);
    }
    by__string_append(out, "]");
    free(bytes);
}

static void add_answer(by__gateway_request *request, by_string *out)
{
    size_t i;
    json_t *vector;
    long long tokens = (long long)request->parts[0].prompt_tokens;
    by__string_append(out, "{\"object\":\"list\",\"data\":[");
    json_array_foreach(json_object_get(request->whole, "list"), i, vector)
    {
        by_string_format(
            out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i == 0 ? "" : ",", i);
        add_vector(vector, json_is_true(request->own), out);
        by__string_append(out, "}");
    }
    by__string_append(out, "],\"model\":");
    by_string_json(out, request->model, strlen(request->model));
    by_string_format(out, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}", tokens,
                     tokens);
}

const by__gateway_request_form by__openai_embeddings_form = {.name = "embeddings",
                                                             .route = "/v1/embeddings",
                                                             .prefix = "embd-",
                                                             .kind = BY__REQUEST_EMBEDDINGS,
                                                             .read = read_body,
                                                             .answer = add_answer,
                                                             .apart = true};
