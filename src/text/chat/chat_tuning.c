/* The template and the tokenizer that a model is tuned with: a base model has neither a template
 * nor its special tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "text/chat/conversation.h"

#define MAX_ADDED 64u

/* The length of a special token at the beginning of s, <|NAME|>; 0: there is none. */
static size_t special_length(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t n = strncmp(s, "<|", 2) == 0 ? strspn(s + 2, letters) : 0;
    return n > 0 && strncmp(s + 2 + n, "|>", 2) == 0 ? n + 4 : 0;
}

/* Adds a special token to the list of a tokenizer.json, unless it is there. */
static bool add_token(json_t *list, const char *text, size_t length, uint32_t *vocab)
{
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        const char *content = json_string_value(json_object_get(item, "content"));
        if (content != NULL && strlen(content) == length && memcmp(content, text, length) == 0) {
            return true;
        }
    }
    json_t *added = json_pack("{s:I, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)*vocab,
                              "content", json_stringn(text, length), "single_word", 0, "lstrip", 0,
                              "rstrip", 0, "normalized", 0, "special", 1);
    (*vocab)++;
    return added != NULL && json_array_append_new(list, added) == 0;
}

/* Adds the special tokens that the template names and the tokenizer lacks; *count of them. */
static by_status add_tokens(json_t *list, const by_tokenizer *tokenizer, const char *template,
                            size_t *count, by_error *error)
{
    uint32_t vocab = by_tokenizer_vocab(tokenizer);
    for (const char *at = template; (at = strstr(at, "<|")) != NULL; at++) {
        size_t n = special_length(at);
        if (n > 0 && by_tokenizer_token_id(tokenizer, at, n) < 0 &&
            !add_token(list, at, n, &vocab)) {
            return by_error_set(error, BY_EMEMORY, "out of memory: special tokens");
        }
    }
    *count = vocab - by_tokenizer_vocab(tokenizer);
    return *count <= MAX_ADDED ? BY_OK
                               : by_error_set(error, BY_EFORMAT,
                                              "the chat template names %zu special tokens that the "
                                              "tokenizer lacks, more than %u",
                                              *count, MAX_ADDED);
}

static by_status extend(by_tokenizer **tokenizer, const by_chat *chat, by_error *error)
{
    char *text;
    size_t length;
    size_t count = 0;
    json_t *root = NULL;
    by_tokenizer *extended = NULL;
    BY_TRY(by_tokenizer_to_json(*tokenizer, &text, &length, error));
    by_status status = by__json_parse(&root, "tokenizer.json", text, length, 0, error);
    free(text);
    BY_TRY(status);
    json_t *list = json_object_get(root, "added_tokens");
    if (list == NULL) {
        list = json_array();
        (void)json_object_set_new(root, "added_tokens", list);
    }
    status = add_tokens(list, *tokenizer, by_chat_text(chat), &count, error);
    text = status == BY_OK && count > 0 ? by__json_dump(root, 0) : NULL;
    json_decref(root);
    if (text != NULL) {
        status = by_tokenizer_from_json(&extended, text, strlen(text), "tokenizer.json", error);
        free(text);
    }
    if (status == BY_OK && extended != NULL) {
        by_tokenizer_close(tokenizer);
        *tokenizer = extended;
    }
    return status;
}

/* The directory of a path that by_tokenizer_open takes; NULL with *file for a GGUF file. */
static by_status directory_of(char **out, const char *model, by_error *error)
{
    const char *slash = strrchr(model, '/');
    bool json = by__ends_with(model, ".json") || by__ends_with(model, ".tiktoken");
    *out = !json           ? by__strdup(model)
           : slash == NULL ? by__strdup(".")
                           : by__strndup(model, (size_t)(slash - model));
    return *out != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: path");
}

by_status by_chat_for_tuning(by_chat **chat, by_tokenizer **tokenizer, const char *model,
                             const char *file, by_error *error)
{
    char *directory;
    by_chat *c = NULL;
    by_tokenizer *t = NULL;
    bool given = file != NULL && file[0] != '\0';
    BY_TRY(directory_of(&directory, model, error));
    const by_chat_source source = {.directory = directory, .file = given ? file : NULL};
    by_status status = by_tokenizer_open(&t, model, error);
    if (status == BY_OK) {
        status = by_chat_open(&c, &source, error);
    }
    if (status == BY_ESTATE && !given) {
        status =
            by_error_set(error, BY_ESTATE,
                         "%s has no chat template: set chat.template (--chat-template of pack) "
                         "to chatml, llama3, none or a file",
                         model);
    }
    free(directory);
    if (status == BY_OK) {
        status = extend(&t, c, error);
    }
    if (status != BY_OK) {
        by_tokenizer_close(&t);
        by_chat_close(&c);
        return status;
    }
    *chat = c;
    *tokenizer = t;
    return BY_OK;
}
