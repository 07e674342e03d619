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

/* The forms of a tokenizer in a directory: those files, all of them. */
static const struct {
    const char *first;
    const char *second; /* NULL: none */
} forms[] = {{"tokenizer.json", NULL}, {"encoder.json", "vocab.bpe"}, {"vocab.txt", NULL}};
enum { FORM_JSON, FORM_GPT2, FORM_WORDPIECE, FORM_COUNT };

/* Finds the form of a directory; FORM_COUNT: there is none. */
static by_status find_form(unsigned *out, const char *path, by_error *error)
{
    for (*out = 0; *out < FORM_COUNT; (*out)++) {
        char *file;
        BY_TRY(by__path_make(&file, path, forms[*out].first, error));
        bool there = by__path_exists(file);
        free(file);
        if (there && forms[*out].second != NULL) {
            BY_TRY(by__path_make(&file, path, forms[*out].second, error));
            there = by__path_exists(file);
            free(file);
        }
        if (there) {
            break;
        }
    }
    return BY_OK;
}

static by_status open_directory(by_tokenizer **out, const char *path, by_error *error)
{
    unsigned form;
    char *first = NULL;
    char *second = NULL;
    BY_TRY(find_form(&form, path, error));
    if (form == FORM_COUNT) {
        return by_error_set(
            error, BY_EIO,
            "%s holds neither tokenizer.json nor encoder.json with vocab.bpe nor vocab.txt", path);
    }
    const char *beside = form == FORM_WORDPIECE ? "tokenizer_config.json" : forms[form].second;
    by_status status = by__path_make(&first, path, forms[form].first, error);
    if (status == BY_OK && beside != NULL) {
        status = by__path_make(&second, path, beside, error);
    }
    if (status == BY_OK) {
        status = form == FORM_JSON   ? open_json(out, first, error)
                 : form == FORM_GPT2 ? by__tokenizer_open_gpt2(out, first, second, error)
                                     : by__tokenizer_open_wordpiece(out, first, second, error);
    }
    free(second);
    free(first);
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
    unsigned form;
    BY_TRY(find_form(&form, model, error));
    *out = form != FORM_COUNT;
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
