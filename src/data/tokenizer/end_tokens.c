/* The tokens that end a text, from the configuration files of a model directory. */
#include <math.h>
#include <stdlib.h>

#include "banyan/tokenizer.h"
#include "base/base.h"
#include "base/json.h"
#include "base/paths.h"
#include "base/utf8.h"
#include "data/tokenizer/gguf_tokenizer.h"

#define MAX_FILE ((size_t)16 << 20)

typedef struct ends {
    int32_t *ids;
    size_t count;
    int64_t vocab; /* ids must be below it */
} ends;

static void add(ends *e, int64_t id)
{
    size_t i = 0;
    if (id < 0 || id >= e->vocab || e->count == BY_END_TOKENS) {
        return;
    }
    while (i < e->count && e->ids[i] != id) {
        i++;
    }
    e->ids[i] = (int32_t)id;
    e->count += i == e->count;
}

/* Returns the id in a number of add_file; -1 if it is none. */
static int64_t id_of(const json_t *number)
{
    double id = json_is_real(number) ? json_real_value(number) : -1.0;
    return id >= 0.0 && id < (double)INT32_MAX && floor(id) == id ? (int64_t)id : -1;
}

/* Reads eos_token_id of a JSON file, a number or a list of them; *told: the key exists, even if
 * null. */
static by_status add_file(ends *e, const char *path, bool *told, by_error *error)
{
    char *text;
    size_t length;
    json_error_t problem;
    *told = false;
    if (!by__path_exists(path)) {
        return BY_OK;
    }
    BY_TRY(by__file_read_text(&text, &length, path, MAX_FILE, error));
    /* Other keys may be integers that are too large for json_t. */
    json_t *root = by_json_load(text, length, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &problem);
    free(text);
    if (root == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s:%d: %s", path, problem.line, problem.text);
    }
    const json_t *value = json_object_get(root, "eos_token_id");
    *told = value != NULL;
    add(e, id_of(value));
    for (size_t i = 0; i < json_array_size(value); i++) {
        add(e, id_of(json_array_get(value, i)));
    }
    json_decref(root);
    return BY_OK;
}

by_status by_end_tokens(int32_t ids[BY_END_TOKENS], size_t *count, const char *directory,
                        const by_tokenizer *tokenizer, by_error *error)
{
    static const char *const files[] = {"generation_config.json", "config.json"};
    ends e = {.ids = ids, .vocab = INT32_MAX};
    bool told = false;
    if (tokenizer != NULL) {
        e.vocab = (int64_t)by_tokenizer_vocab(tokenizer);
        add(&e, by_tokenizer_eos(tokenizer));
    }
    if (by__gguf_is_file(directory)) {
        int64_t said[2];
        BY_TRY(by__gguf_ends_open(said, directory, error));
        add(&e, said[0]);
        add(&e, said[1]);
        told = true;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(files) && !told; i++) {
        char *path;
        BY_TRY(by__path_make(&path, directory, files[i], error));
        by_status status = add_file(&e, path, &told, error);
        free(path);
        BY_TRY(status);
    }
    *count = e.count;
    return BY_OK;
}
