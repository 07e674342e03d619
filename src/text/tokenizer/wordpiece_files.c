/* BERT's own files: vocab.txt (a token a line, its id the number of the line from 0) and, beside
 * it, tokenizer_config.json. The content is converted to the text of a tokenizer.json, as
 * transformers converts it, and parsed as such. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "base/utf8.h"
#include "text/tokenizer/vocabulary.h"

#define MAX_FILE ((size_t)1 << 30)

/* Adds {"token": id} of each line; `lines` is changed. */
static by_status read_lines(json_t *vocab, char *lines, size_t length, const char *name,
                            by_error *error)
{
    json_int_t id = 0;
    for (size_t at = 0; at < length; id++) {
        char *line = lines + at;
        char *end = memchr(line, '\n', length - at);
        size_t n = end != NULL ? (size_t)(end - line) : length - at;
        at += n + 1;
        n -= n > 0 && line[n - 1] == '\r' ? 1 : 0;
        bool zero = memchr(line, 0, n) != NULL;
        line[n] = '\0';
        if (zero || json_object_get(vocab, line) != NULL) {
            return by_error_set(error, BY_EFORMAT,
                                "%s:%lld: the token is there twice, or contains U+0000", name,
                                (long long)id + 1);
        }
        if (json_object_set_new(vocab, line, json_integer(id)) != 0) {
            return by_error_set(error, BY_EFORMAT, "%s:%lld: the token is not UTF-8", name,
                                (long long)id + 1);
        }
    }
    return BY_OK;
}

/* The text of a special token of tokenizer_config.json: a string or an object with its content. */
static const char *token_of(const json_t *config, const char *key, const char *usual)
{
    const json_t *value = json_object_get(config, key);
    value = json_is_object(value) ? json_object_get(value, "content") : value;
    return json_is_string(value) ? json_string_value(value) : usual;
}

/* Adds the tokens that tokenizer_config.json says are not the model's, and the five special ones,
 * in the order of their ids. */
static by_status add_tokens(json_t *added, const json_t *vocab, const json_t *config,
                            const char *name, by_error *error)
{
    static const char *const keys[][2] = {{"pad_token", "[PAD]"},
                                          {"unk_token", "[UNK]"},
                                          {"cls_token", "[CLS]"},
                                          {"sep_token", "[SEP]"},
                                          {"mask_token", "[MASK]"}};
    const json_t *listed = json_object_get(config, "added_tokens_decoder");
    if (json_object_size(listed) > 0) {
        size_t found = 0;
        size_t last = json_object_size(vocab) + json_object_size(listed);
        for (size_t id = 0; id < last; id++) {
            char key[32];
            (void)snprintf(key, sizeof key, "%zu", id);
            json_t *token = json_deep_copy(json_object_get(listed, key));
            if (token != NULL) {
                found++;
                (void)json_object_set_new(token, "id", json_integer((json_int_t)id));
                (void)json_array_append_new(added, token);
            }
        }
        return found == json_object_size(listed)
                   ? BY_OK
                   : by_error_set(error, BY_EFORMAT,
                                  "%s: added_tokens_decoder has an id that does not follow those "
                                  "of vocab.txt",
                                  name);
    }
    for (json_int_t id = 0; id < (json_int_t)json_object_size(vocab); id++) {
        for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
            const char *text = token_of(config, keys[i][0], keys[i][1]);
            const json_t *held = json_object_get(vocab, text);
            if (held != NULL && json_integer_value(held) == id) {
                json_t *token = json_pack("{sIsssbsb}", "id", id, "content", text, "special", 1,
                                          "normalized", 0);
                (void)json_array_append_new(added, token);
                break;
            }
        }
        if (json_array_size(added) == BY_ARRAY_LENGTH(keys)) {
            break;
        }
    }
    return BY_OK;
}

/* A setting of tokenizer_config.json: true, false, or null if `none` allows that. */
static json_t *setting(const json_t *config, const char *key, bool usual, bool none)
{
    const json_t *value = json_object_get(config, key);
    return json_is_boolean(value) ? json_boolean(json_is_true(value))
           : none                 ? json_null()
                                  : json_boolean(usual);
}

static by_status convert(json_t **out, json_t *vocab, const json_t *config, const char *name,
                         by_error *error)
{
    const char *kind = json_string_value(json_object_get(config, "tokenizer_class"));
    const char *cls = token_of(config, "cls_token", "[CLS]");
    const char *sep = token_of(config, "sep_token", "[SEP]");
    const json_t *before = json_object_get(vocab, cls);
    const json_t *behind = json_object_get(vocab, sep);
    json_t *added = json_array();
    if (kind != NULL && strcmp(kind, "BertJapaneseTokenizer") == 0) {
        json_decref(added);
        return by_error_set(error, BY_EFORMAT,
                            "%s: tokenizer_class BertJapaneseTokenizer is not supported", name);
    }
    if (before == NULL || behind == NULL) {
        json_decref(added);
        return by_error_set(error, BY_EFORMAT, "%s: vocab.txt lacks %s or %s", name, cls, sep);
    }
    by_status status = add_tokens(added, vocab, config, name, error);
    if (status != BY_OK) {
        json_decref(added);
        return status;
    }
    bool basic = !json_is_false(json_object_get(config, "do_basic_tokenize"));
    json_t *normalizer =
        basic ? json_pack("{sssbsososo}", "type", "BertNormalizer", "clean_text", 1,
                          "handle_chinese_chars",
                          setting(config, "tokenize_chinese_chars", true, false), "strip_accents",
                          setting(config, "strip_accents", false, true), "lowercase",
                          setting(config, "do_lower_case", true, false))
              : json_null();
    json_t *model = json_pack("{sssssssisO}", "type", "WordPiece", "unk_token",
                              token_of(config, "unk_token", "[UNK]"), "continuing_subword_prefix",
                              "##", "max_input_chars_per_word", 100, "vocab", vocab);
    json_t *post = json_pack("{sss[sI]s[sI]}", "type", "BertProcessing", "cls", cls,
                             json_integer_value(before), "sep", sep, json_integer_value(behind));
    *out = json_pack("{sssososos{ss}sos{sssssb}}", "version", "1.0", "added_tokens", added, "model",
                     model, "normalizer", normalizer, "pre_tokenizer", "type",
                     basic ? "BertPreTokenizer" : "WhitespaceSplit", "post_processor", post,
                     "decoder", "type", "WordPiece", "prefix", "##", "cleanup", 1);
    return *out != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: vocabulary");
}

by_status by__tokenizer_parse_wordpiece(by_tokenizer **out, const char *name, const char *vocab,
                                        size_t length, const char *config, by_error *error)
{
    json_t *root = NULL;
    json_t *tokens = json_object();
    json_t *settings = config != NULL ? by__json_read(config, 0, NULL) : NULL;
    char *lines = by__strndup(vocab, length);
    by_status status = BY_OK;
    if (tokens == NULL || lines == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: vocabulary");
    } else if (config != NULL && !json_is_object(settings)) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s: the tokenizer_config.json beside it is no JSON object", name);
    }
    if (status == BY_OK) {
        status = read_lines(tokens, lines, length, name, error);
    }
    if (status == BY_OK) {
        status = convert(&root, tokens, settings, name, error);
    }
    char *text = status == BY_OK ? by__json_dump(root, JSON_COMPACT) : NULL;
    if (status == BY_OK) {
        status = text != NULL ? by_tokenizer_from_json(out, text, strlen(text), name, error)
                              : by_error_set(error, BY_EMEMORY, "out of memory: vocabulary");
    }
    free(text);
    free(lines);
    json_decref(settings);
    json_decref(tokens);
    json_decref(root);
    return status;
}

by_status by__tokenizer_open_wordpiece(by_tokenizer **out, const char *vocab_path,
                                       const char *config_path, by_error *error)
{
    char *vocab;
    char *config = NULL;
    size_t length;
    size_t unused;
    BY_TRY(by__file_read_text(&vocab, &length, vocab_path, MAX_FILE, error));
    by_status status = BY_OK;
    if (by__path_exists(config_path)) {
        status = by__file_read_text(&config, &unused, config_path, MAX_FILE, error);
    }
    if (status == BY_OK) {
        status = by__tokenizer_parse_wordpiece(out, vocab_path, vocab, length, config, error);
    }
    free(config);
    free(vocab);
    return status;
}
