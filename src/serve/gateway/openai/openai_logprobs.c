/* OpenAI's API: log-probabilities in the formats of chats and of completions. */
#include "serve/gateway/openai/openai.h"
#include "serve/protocol/messages.h"

/* value NULL: unknown. */
static void add_json(by_string *out, const json_t *value)
{
    if (value == NULL) {
        by__string_append(out, "null");
    } else {
        by__json_write(out, value, JSON_COMPACT | JSON_ENCODE_ANY);
    }
}

/* Prints "token", "logprob", "bytes" of a token, without the end of the object. */
static void add_token(const json_t *p, by_string *out)
{
    by__string_append(out, "{\"token\":");
    add_json(out, json_object_get(p, "token"));
    by__string_append(out, ",\"logprob\":");
    add_json(out, json_object_get(p, "logprob"));
    by__string_append(out, ",\"bytes\":");
    add_json(out, json_object_get(p, "bytes"));
}

void by__openai_tokens(const json_t *list, by_string *out)
{
    size_t i;
    size_t k;
    json_t *p;
    json_t *other;
    by__string_append(out, "[");
    json_array_foreach(list, i, p)
    {
        by__string_append(out, i > 0 ? "," : "");
        add_token(p, out);
        by__string_append(out, ",\"top_logprobs\":[");
        json_array_foreach(json_object_get(p, "top"), k, other)
        {
            by__string_append(out, k > 0 ? "," : "");
            add_token(other, out);
            by__string_append(out, "}");
        }
        by__string_append(out, "]}");
    }
    by__string_append(out, "]");
}

/* Prints one member of each token as a list. */
static void add_members(const json_t *list, const char *name, const char *key, by_string *out)
{
    size_t i;
    json_t *p;
    by_string_format(out, "\"%s\":[", name);
    json_array_foreach(list, i, p)
    {
        by__string_append(out, i > 0 ? "," : "");
        add_json(out, json_object_get(p, key));
    }
    by__string_append(out, "]");
}

/* Prints the most probable tokens at each position, as objects. Of tokens with the same text, e.g.
 * parts of characters, only the most probable one is included. */
static void add_tops(const json_t *list, by_string *out)
{
    size_t i;
    size_t k;
    json_t *p;
    json_t *other;
    by__string_append(out, "\"top_logprobs\":[");
    json_array_foreach(list, i, p)
    {
        if (json_is_null(json_object_get(p, "top"))) { /* the first token of a prompt */
            by__string_append(out, i > 0 ? ",null" : "null");
            continue;
        }
        json_t *object = json_object();
        out->failed = out->failed || object == NULL;
        json_array_foreach(json_object_get(p, "top"), k, other)
        {
            const char *token = by__protocol_get_text(other, "token");
            json_t *logprob = json_object_get(other, "logprob");
            if (token != NULL && logprob != NULL && json_object_get(object, token) == NULL &&
                json_object_set(object, token, logprob) != 0) {
                out->failed = true;
            }
        }
        by__string_append(out, i > 0 ? "," : "");
        add_json(out, object);
        json_decref(object);
    }
    by__string_append(out, "]");
}

void by__openai_places(const json_t *list, bool tops, by_string *out)
{
    by__string_append(out, "{");
    add_members(list, "tokens", "token", out);
    by__string_append(out, ",");
    add_members(list, "token_logprobs", "logprob", out);
    by__string_append(out, ",");
    if (tops) {
        add_tops(list, out);
    } else {
        by__string_append(out, "\"top_logprobs\":null");
    }
    by__string_append(out, ",");
    add_members(list, "text_offset", "offset", out);
    by__string_append(out, "}");
}
