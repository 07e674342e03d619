/* by_tokenizer_open: detects the format of a tokenizer from its file or directory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "base/utf8.h"
#include "text/tokenizer/gguf_tokenizer.h"
#include "text/tokenizer/vocabulary.h"

#define MAX_FILE ((size_t)1 << 30)

static by_status open_json(by_tokenizer **out, const char *path, by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by__file_read_text(&text, &length, path, MAX_FILE, error));
    by_status status = by_tokenizer_from_json(out, text, length, path, error);
    free(text);
    return status;
}

static by_status open_tiktoken(by_tokenizer **out, const char *path, by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by__file_read_text(&text, &length, path, MAX_FILE, error));
    by_status status = by__tokenizer_parse_tiktoken(out, path, text, length, error);
    free(text);
    return status;
}

static by_status open_directory(by_tokenizer **out, const char *path, by_error *error)
{
    char *json = by__path_join(path, "tokenizer.json");
    char *encoder = by__path_join(path, "encoder.json");
    char *merges = by__path_join(path, "vocab.bpe");
    by_status status;
    if (json == NULL || encoder == NULL || merges == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    } else if (by__path_exists(json)) {
        status = open_json(out, json, error);
    } else if (by__path_exists(encoder) && by__path_exists(merges)) {
        status = by__tokenizer_open_gpt2(out, encoder, merges, error);
    } else {
        status = by_error_set(
            error, BY_EIO, "%s holds neither tokenizer.json nor encoder.json with vocab.bpe", path);
    }
    free(merges);
    free(encoder);
    free(json);
    return status;
}

by_status by_tokenizer_open(by_tokenizer **out, const char *path, by_error *error)
{
    static const char ending[] = ".tiktoken";
    size_t n = strlen(path);
    size_t e = sizeof ending - 1;
    if (by__path_is_dir(path)) {
        return open_directory(out, path, error);
    }
    if (!by__path_exists(path)) {
        return by_error_set(error, BY_EIO,
                            "there is no tokenizer '%s': give the path of a tokenizer.json, of a "
                            ".tiktoken or GGUF file, or of a directory with one (to train on: char "
                            "or bpe)",
                            path);
    }
    if (by__format_gguf_is_file(path)) {
        return by__tokenizer_open_gguf(out, path, error);
    }
    if (n > e && strcmp(path + n - e, ending) == 0) {
        return open_tiktoken(out, path, error);
    }
    by_status status = open_json(out, path, error);
    return status != BY_EFORMAT || by__ends_with(path, ".json")
               ? status
               : by_error_prefix(error, status,
                                 "a tokenizer is a tokenizer.json, a .tiktoken or GGUF file");
}

by_status by__tokenizer_model_has(bool *out, const char *model, by_error *error)
{
    if (by__format_gguf_is_file(model)) {
        return by__tokenizer_gguf_vocabulary_exists(out, model, error);
    }
    static const char *const files[] = {"tokenizer.json", "encoder.json", "vocab.bpe"};
    bool there[BY_ARRAY_LENGTH(files)];
    for (size_t i = 0; i < BY_ARRAY_LENGTH(files); i++) {
        char *path;
        BY_TRY(by__path_make(&path, model, files[i], error));
        there[i] = by__path_exists(path);
        free(path);
    }
    *out = there[0] || (there[1] && there[2]);
    return BY_OK;
}

by_status by__tokenizer_model_has_same(bool *same, char found[9], const char *model,
                                       const char *hash, by_error *error)
{
    bool there;
    by_tokenizer *tokenizer;
    BY_TRY(by__tokenizer_model_has(&there, model, error));
    *same = true;
    found[0] = '\0';
    if (there) {
        BY_TRY(by_tokenizer_open(&tokenizer, model, error));
        *same = strcmp(hash, by_tokenizer_hash(tokenizer)) == 0;
        (void)snprintf(found, 9, "%.8s", by_tokenizer_hash(tokenizer));
        by_tokenizer_close(&tokenizer);
    }
    return BY_OK;
}
