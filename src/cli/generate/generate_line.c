/* A line of the file of `banyan generate --batch`: a prompt, or a JSON object with one. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/json.h"
#include "generate/generate.h"

/* True for an integer of at least `least`, or none. */
static bool is_whole(const json_t *value, int64_t least)
{
    return value == NULL || (json_is_integer(value) && json_integer_value(value) >= least);
}

/* Refuses keys that would be ignored: a misspelt one would silently change the answer. */
static by_status check_keys(const json_t *object, const char *path, size_t line, by_error *error)
{
    static const char *const known[] = {"prompt", "tokens", "seed",  "temperature",
                                        "top_p",  "top_k",  "min_p", "typical_p"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t i = 0;
        while (i < sizeof known / sizeof known[0] && strcmp(key, known[i]) != 0) {
            i++;
        }
        if (i == sizeof known / sizeof known[0]) {
            return by_error_set(error, BY_EFORMAT,
                                "%s:%zu: unknown key \"%.60s\"; keys are prompt, tokens, seed, "
                                "temperature, top_p, top_k, min_p and typical_p",
                                path, line, key);
        }
    }
    return BY_OK;
}

/* Replaces a sampling parameter if the object has it. */
static bool read_number(double *out, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    *out = json_is_number(value) ? json_number_value(value) : *out;
    return value == NULL || json_is_number(value);
}

static by_status read_sampling(by_sampling *out, const json_t *object, const char *path,
                               size_t line, by_error *error)
{
    by_error why = {0};
    const json_t *top_k = json_object_get(object, "top_k");
    bool numbers = read_number(&out->temperature, object, "temperature") &&
                   read_number(&out->top_p, object, "top_p") &&
                   read_number(&out->min_p, object, "min_p") &&
                   read_number(&out->typical_p, object, "typical_p");
    if (!numbers || !is_whole(top_k, 0)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s:%zu: \"temperature\", \"top_p\", \"min_p\" and \"typical_p\" must "
                            "be numbers, \"top_k\" an integer of at least 0",
                            path, line);
    }
    out->top_k = top_k == NULL ? out->top_k : json_integer_value(top_k);
    return by_sampling_check(out, &why) == BY_OK
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s:%zu: %s", path, line, why.message);
}

/* Reads a seed: an integer, or a text of digits from 2^63 on, which JSON libraries may not hold. */
static bool read_seed(cli_prompt *out, const json_t *seed)
{
    const char *text = json_string_value(seed);
    out->seeded = seed != NULL;
    if (text == NULL) {
        out->sampling.seed = seed == NULL ? 0 : (uint64_t)json_integer_value(seed);
        return is_whole(seed, 0);
    }
    char *end;
    errno = 0;
    out->sampling.seed = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

static by_status read_object(cli_prompt *out, const char *line, size_t length, const char *path,
                             size_t number, by_error *error)
{
    json_error_t where;
    out->parsed = by_json_load(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    const json_t *prompt = json_object_get(out->parsed, "prompt");
    const json_t *tokens = json_object_get(out->parsed, "tokens");
    if (!json_is_string(prompt)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s:%zu: not a JSON object with a string \"prompt\"%s%s", path, number,
                            out->parsed == NULL ? ": " : "", out->parsed == NULL ? where.text : "");
    }
    by_status status = check_keys(out->parsed, path, number, error);
    if (status != BY_OK) {
        return status;
    }
    if (!is_whole(tokens, 1) || !read_seed(out, json_object_get(out->parsed, "seed"))) {
        return by_error_set(
            error, BY_EFORMAT,
            "%s:%zu: \"tokens\" must be an integer of at least 1, \"seed\" one from "
            "0 to 2^63 - 1, or a string of digits up to 2^64 - 1",
            path, number);
    }
    out->text = json_string_value(prompt);
    out->length = json_string_length(prompt);
    out->tokens = tokens == NULL ? -1 : json_integer_value(tokens);
    return read_sampling(&out->sampling, out->parsed, path, number, error);
}

by_status cli_read_prompt_line(cli_prompt *out, const cli_generation *r, const char *line,
                               size_t length, size_t number, by_error *error)
{
    *out = (cli_prompt){.text = line, .length = length, .tokens = -1, .sampling = r->sampling};
    return line[0] == '{' ? read_object(out, line, length, r->batch, number, error) : BY_OK;
}
