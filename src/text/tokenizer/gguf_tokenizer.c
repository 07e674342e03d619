/* Tokenizers of GGUF files. The content is converted to the text of a tokenizer.json and parsed as
 * such, so that only one reader knows about kinds of tokenizers. */
#include "text/tokenizer/gguf_tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/split.h"
#include "text/tokenizer/vocabulary.h"

/* Types of tokens. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

/* Most bytes of a token made by merges. */
#define MAX_MERGED 256

#define MARK "\xe2\x96\x81" /* U+2581, SentencePiece's space */

typedef struct gguf_word {
    const char *text; /* in the file */
    size_t length;
    int32_t type;
} gguf_word;

typedef struct gguf_vocabulary {
    const char *name; /* of the file */
    const by__format_gguf_file *file;
    gguf_word *words;
    size_t count;
    const by__format_gguf_pair *scores;
} gguf_vocabulary;

static by_status lacks(const gguf_vocabulary *v, const char *key, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s has no %s, or of another type", v->name, key);
}

static by_status read_words(gguf_vocabulary *v, by_error *error)
{
    const by__format_gguf_pair *tokens =
        by__format_gguf_array(v->file, "tokenizer.ggml.tokens", BY__GGUF_KIND_STRING);
    const by__format_gguf_pair *types =
        by__format_gguf_array(v->file, "tokenizer.ggml.token_type", BY__GGUF_KIND_I32);
    v->scores = by__format_gguf_array(v->file, "tokenizer.ggml.scores", BY__GGUF_KIND_F32);
    if (tokens == NULL || tokens->count == 0 || tokens->count >= BY__MAX_TOKENS) {
        return lacks(v, "tokenizer.ggml.tokens", error);
    }
    if ((types != NULL && types->count != tokens->count) ||
        (v->scores != NULL && v->scores->count != tokens->count)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: tokenizer.ggml.tokens, token_type and scores are of different "
                            "lengths",
                            v->name);
    }
    BY_TRY(by__alloc((void **)&v->words, (size_t)tokens->count, sizeof *v->words, "tokens", error));
    const uint8_t *at = tokens->data;
    for (uint64_t i = 0; i < tokens->count; i++) {
        gguf_word *w = &v->words[v->count++];
        w->text = by__format_gguf_next_text(&at, &w->length);
        w->type = types == NULL ? NORMAL : by__format_gguf_i32_at(types, i);
        if (v->scores != NULL &&
            isnan(by__format_gguf_f32_at(v->scores, i))) { /* they are sorted */
            return by_error_set(error, BY_EFORMAT,
                                "%s: tokenizer.ggml.scores: that of token %" PRIu64 " is no number",
                                v->name, i);
        }
    }
    return BY_OK;
}

static bool is_added(const gguf_word *w)
{
    return w->type == CONTROL || w->type == USER_DEFINED || w->type == UNKNOWN;
}

/* ---- parts of tokenizer.json ---- */

/* Prints added tokens; those of byte-level BPE and characters are not `unknown`. */
static void add_added(by_string *out, const gguf_vocabulary *v)
{
    bool first = true;
    by__string_append(out, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, "
                           "\"added_tokens\": [");
    for (size_t i = 0; i < v->count; i++) {
        const gguf_word *w = &v->words[i];
        if (is_added(w) && w->length > 0) {
            by_string_format(out, "%s{\"id\": %zu, \"content\": ", first ? "" : ", ", i);
            by_string_json(out, w->text, w->length);
            by_string_format(out,
                             ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                             "\"normalized\": false, \"special\": %s}",
                             w->type == USER_DEFINED ? "false" : "true");
            first = false;
        }
    }
    by__string_append(out, "], ");
}

/* Prints the tokens of the model: all except the added ones at the end. */
static void add_vocab(by_string *out, const gguf_vocabulary *v)
{
    size_t count = v->count;
    while (count > 0 && (is_added(&v->words[count - 1]) || v->words[count - 1].type == UNUSED)) {
        count--;
    }
    by__string_append(out, "\"vocab\": {");
    for (size_t i = 0; i < count; i++) {
        by__string_append(out, i == 0 ? "" : ", ");
        by_string_json(out, v->words[i].text, v->words[i].length);
        by_string_format(out, ": %zu", i);
    }
    by__string_append(out, "}, ");
}

/* Prints "post_processor", which adds the begin-of-text token at the beginning. */
static void add_around(by_string *out, const gguf_vocabulary *v, bool in_front)
{
    uint64_t id;
    bool wanted = in_front;
    (void)by__format_gguf_bool(v->file, "tokenizer.ggml.add_bos_token", &wanted);
    if (!wanted || !by__format_gguf_whole(v->file, "tokenizer.ggml.bos_token_id", &id) ||
        id >= v->count) {
        by__string_append(out, "\"post_processor\": null, ");
        return;
    }
    const gguf_word *w = &v->words[id];
    by__string_append(out, "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
                           "[{\"SpecialToken\": {\"id\": ");
    by_string_json(out, w->text, w->length);
    by__string_append(out,
                      ", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], "
                      "\"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": "
                      "{\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {");
    by_string_json(out, w->text, w->length);
    by__string_append(out, ": {\"id\": ");
    by_string_json(out, w->text, w->length);
    by_string_format(out, ", \"ids\": [%" PRIu64 "], \"tokens\": [", id);
    by_string_json(out, w->text, w->length);
    by__string_append(out, "]}}}, ");
}

static void begin_model(by_string *out, bool byte_fallback, bool ignore_merges)
{
    by_string_format(out,
                     "\"model\": {\"type\": \"BPE\", \"dropout\": null, "
                     "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
                     "\"fuse_unk\": %s, \"byte_fallback\": %s, \"ignore_merges\": %s, ",
                     byte_fallback ? "true" : "false", byte_fallback ? "true" : "false",
                     ignore_merges ? "true" : "false");
}

/* ---- byte-level BPE ---- */

/* Other names of the same patterns. */
static const struct {
    const char *alias;
    const char *name;
} aliases[] = {
    {"default", "gpt-2"},          {"phi-2", "gpt-2"},    {"llama3", "llama-bpe"},
    {"llama-v3", "llama-bpe"},     {"dbrx", "llama-bpe"}, {"smaug-bpe", "llama-bpe"},
    {"deepseek-r1-qwen", "qwen2"}, {"llama4", "gpt-4o"},
};

static by_status add_pattern(by_string *out, const gguf_vocabulary *v, const char *pre,
                             by_error *error)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(aliases); i++) {
        pre = strcmp(aliases[i].alias, pre) == 0 ? aliases[i].name : pre;
    }
    bool digits = strcmp(pre, "smollm") == 0;
    const by__tokenizer_split_rule *rule = by__tokenizer_split_rule_named(digits ? "gpt-2" : pre);
    if (rule == NULL) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: tokenizer.ggml.pre '%.60s' is not known; supported are gpt-2, "
                            "smollm, llama-bpe, qwen2, qwen35, gpt-4o, tekken",
                            v->name, pre);
    }
    bool normal = strncmp(pre, "qwen", 4) == 0;
    by_string_format(out, "\"normalizer\": %s, ", normal ? "{\"type\": \"NFC\"}" : "null");
    by__string_append(out, "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [");
    if (digits) {
        by__string_append(out, "{\"type\": \"Digits\", \"individual_digits\": true}, ");
    } else if (!rule->gpt2) {
        by__string_append(out, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        by_string_json(out, rule->pattern, strlen(rule->pattern));
        by__string_append(out, "}, \"behavior\": \"Isolated\", \"invert\": false}, ");
    }
    by_string_format(
        out,
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true,"
        " \"use_regex\": %s}]}, ",
        rule->gpt2 ? "true" : "false");
    return BY_OK;
}

/* Default for pieces that are tokens to be kept whole, and for a begin-of-text token, if the file
 * does not say. */
static bool is_whole(const char *pre)
{
    static const char *const names[] = {"llama-bpe", "llama3", "llama-v3", "tekken"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        if (strcmp(names[i], pre) == 0) {
            return true;
        }
    }
    return false;
}

static by_status make_byte_level(by_string *out, const gguf_vocabulary *v, by_error *error)
{
    char pre[64] = "gpt-2";
    const char *text;
    size_t length;
    const by__format_gguf_pair *merges =
        by__format_gguf_array(v->file, "tokenizer.ggml.merges", BY__GGUF_KIND_STRING);
    if (merges == NULL) {
        return lacks(v, "tokenizer.ggml.merges", error);
    }
    if (by__format_gguf_text(v->file, "tokenizer.ggml.pre", &text, &length)) {
        (void)snprintf(pre, sizeof pre, "%.*s", length < 60 ? (int)length : 60, text);
    }
    bool whole = is_whole(pre);
    add_added(out, v);
    BY_TRY(add_pattern(out, v, pre, error));
    add_around(out, v, whole);
    by__string_append(out, "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                           "\"trim_offsets\": true, \"use_regex\": true}, ");
    begin_model(out, false, whole);
    by__string_append(out, "\"unk_token\": null, ");
    add_vocab(out, v);
    by__string_append(out, "\"merges\": [");
    const uint8_t *at = merges->data;
    for (uint64_t i = 0; i < merges->count; i++) {
        text = by__format_gguf_next_text(&at, &length);
        by__string_append(out, i == 0 ? "" : ", ");
        by_string_json(out, text, length);
    }
    by__string_append(out, "]}}");
    return BY_OK;
}

/* ---- BPE over characters ---- */

typedef struct scored_merge {
    float score; /* score of the resulting token */
    size_t id;
    size_t left;
    size_t right;
} scored_merge;

typedef struct merges {
    scored_merge *items;
    size_t count;
    size_t capacity;
} merges;

/* Sorts by descending score, ties by id. */
static int by_score(const void *a, const void *b)
{
    const scored_merge *x = a;
    const scored_merge *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    if (x->id != y->id) {
        return x->id < y->id ? -1 : 1;
    }
    if (x->left != y->left) {
        return x->left < y->left ? -1 : 1;
    }
    return x->right < y->right ? -1 : x->right > y->right;
}

/* Adds every way to make this token from two others. */
static by_status add_splits(merges *out, const by__name_table *table, const gguf_vocabulary *v,
                            size_t id, const char *text, by_error *error)
{
    char left_text[MAX_MERGED + 1]; /* a copy: the table's names must not change */
    size_t length = v->words[id].length;
    for (size_t at = 1; at < length; at++) {
        if (((uint8_t)text[at] & 0xc0) == 0x80) { /* within a character */
            continue;
        }
        memcpy(left_text, text, at);
        left_text[at] = '\0';
        int32_t left = by__name_table_find(table, left_text);
        int32_t right = left < 0 ? -1 : by__name_table_find(table, text + at);
        if (right >= 0) {
            BY_TRY(by__reserve((void **)&out->items, &out->capacity, out->count + 1,
                               sizeof *out->items, error));
            out->items[out->count++] =
                (scored_merge){.score = by__format_gguf_f32_at(v->scores, id),
                               .id = id,
                               .left = (size_t)left,
                               .right = (size_t)right};
        }
    }
    return BY_OK;
}

/* Copies the texts of tokens that merges concern; NULL for others. */
static by_status copy_texts(char **texts, by__name_table *table, const gguf_vocabulary *v,
                            by_error *error)
{
    for (size_t i = 0; i < v->count; i++) {
        const gguf_word *w = &v->words[i];
        if (w->type != NORMAL || w->length == 0 || w->length > MAX_MERGED) {
            continue;
        }
        texts[i] = by__strndup(w->text, w->length);
        if (texts[i] == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: tokens");
        }
        if (by__name_table_find(table, texts[i]) < 0) {
            BY_TRY(by__name_table_add(table, texts[i], (int32_t)i, error));
        }
    }
    return BY_OK;
}

static by_status find_merges(merges *out, const gguf_vocabulary *v, by_error *error)
{
    by__name_table table = {0};
    char **texts;
    BY_TRY(by__alloc((void **)&texts, v->count, sizeof *texts, "tokens", error));
    by_status status = copy_texts(texts, &table, v, error);
    for (size_t i = 0; i < v->count && status == BY_OK; i++) {
        status = texts[i] == NULL ? BY_OK : add_splits(out, &table, v, i, texts[i], error);
    }
    if (out->count > 1 && status == BY_OK) {
        qsort(out->items, out->count, sizeof *out->items, by_score);
    }
    for (size_t i = 0; i < v->count; i++) {
        free(texts[i]);
    }
    free(texts);
    by__name_table_free(&table);
    return status;
}

static by_status make_pieces(by_string *out, const gguf_vocabulary *v, by_error *error)
{
    merges list = {0};
    uint64_t unknown;
    bool prefix = true;
    if (v->scores == NULL) {
        return lacks(v, "tokenizer.ggml.scores", error);
    }
    by_status status = find_merges(&list, v, error);
    (void)by__format_gguf_bool(v->file, "tokenizer.ggml.add_space_prefix", &prefix);
    add_added(out, v);
    by_string_format(out,
                     "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [%s{\"type\": "
                     "\"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" MARK
                     "\"}]}, ",
                     prefix ? "{\"type\": \"Prepend\", \"prepend\": \"" MARK "\"}, " : "");
    by__string_append(out, "\"pre_tokenizer\": null, ");
    add_around(out, v, true);
    by_string_format(out,
                     "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "
                     "\"pattern\": {\"String\": \"" MARK "\"}, \"content\": \" \"}, {\"type\": "
                     "\"ByteFallback\"}, {\"type\": \"Fuse\"}%s]}, ",
                     prefix ? ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, "
                              "\"stop\": 0}"
                            : "");
    begin_model(out, true, false);
    if (by__format_gguf_whole(v->file, "tokenizer.ggml.unknown_token_id", &unknown) &&
        unknown < v->count) {
        by__string_append(out, "\"unk_token\": ");
        by_string_json(out, v->words[unknown].text, v->words[unknown].length);
        by__string_append(out, ", ");
    } else {
        by__string_append(out, "\"unk_token\": null, ");
    }
    add_vocab(out, v);
    by__string_append(out, "\"merges\": [");
    for (size_t i = 0; i < list.count; i++) {
        const gguf_word *left = &v->words[list.items[i].left];
        const gguf_word *right = &v->words[list.items[i].right];
        by__string_append(out, i == 0 ? "[" : ", [");
        by_string_json(out, left->text, left->length);
        by__string_append(out, ", ");
        by_string_json(out, right->text, right->length);
        by__string_append(out, "]");
    }
    by__string_append(out, "]}}");
    free(list.items);
    return status;
}

/* ---- characters ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes an escaped token; returns false if it is longer than a character. */
static bool unescape(char out[8], size_t *length, const gguf_word *w)
{
    *length = 0;
    for (size_t i = 0; i < w->length && *length < 4; i++) {
        char c = w->text[i];
        if (c == '\\' && i + 1 < w->length) {
            c = w->text[++i];
            c = c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
            if (c == 'x' && i + 2 < w->length) {
                int high = hex_digit(w->text[i + 1]);
                int low = hex_digit(w->text[i + 2]);
                if (high < 0 || low < 0) {
                    return false;
                }
                c = (char)(high << 4 | low);
                i += 2;
            }
        }
        out[(*length)++] = c;
        if (*length == 4 && i + 1 < w->length) {
            return false;
        }
    }
    /* A single character: all following bytes are continuation bytes. */
    for (size_t i = 1; i < *length; i++) {
        if (by__utf8_begins(out[i])) {
            return false;
        }
    }
    return *length > 0 && by__utf8_valid(out, *length);
}

static by_status make_characters(by_string *out, const gguf_vocabulary *v, by_error *error)
{
    add_added(out, v);
    by__string_append(out,
                      "\"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": null, "
                      "\"decoder\": {\"type\": \"Fuse\"}, ");
    begin_model(out, false, false);
    by__string_append(out, "\"unk_token\": null, \"vocab\": {");
    for (size_t i = 0; i < v->count; i++) {
        char bytes[8];
        size_t length;
        if (v->words[i].type == UNUSED) {
            continue;
        }
        if (!unescape(bytes, &length, &v->words[i])) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: token %zu of its rwkv vocabulary is not one character; only "
                                "such vocabularies are read",
                                v->name, i);
        }
        by__string_append(out, i == 0 ? "" : ", ");
        by_string_json(out, bytes, length);
        by_string_format(out, ": %zu", i);
    }
    by__string_append(out, "}, \"merges\": []}}");
    return BY_OK;
}

by_status by__tokenizer_from_gguf(by_tokenizer **out, const char *name,
                                  const by__format_gguf_file *file, by_error *error)
{
    gguf_vocabulary v = {.name = name, .file = file};
    by_string text = {0};
    by_status status = read_words(&v, error);
    if (status != BY_OK) {
        free(v.words);
        return status;
    }
    if (by__format_gguf_is(file, "tokenizer.ggml.model", "gpt2")) {
        status = make_byte_level(&text, &v, error);
    } else if (by__format_gguf_is(file, "tokenizer.ggml.model", "llama")) {
        status = make_pieces(&text, &v, error);
    } else if (by__format_gguf_is(file, "tokenizer.ggml.model", "rwkv")) {
        status = make_characters(&text, &v, error);
    } else {
        status = by_error_set(error, BY_EFORMAT,
                              "%s: tokenizer.ggml.model is none of gpt2, llama, rwkv", name);
    }
    if (status == BY_OK && text.failed) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: a tokenizer");
    }
    if (status == BY_OK) {
        status = by_tokenizer_from_json(out, text.data, text.length, name, error);
    }
    by_string_free(&text);
    free(v.words);
    return status;
}

by_status by__tokenizer_open_gguf(by_tokenizer **out, const char *path, by_error *error)
{
    by__map map;
    by__format_gguf_file file;
    BY_TRY(by__map_open(&map, path, error));
    by_status status = by__format_gguf_parse(&file, path, map.data, map.size, error);
    if (status == BY_OK) {
        status = by__tokenizer_from_gguf(out, path, &file, error);
        by__format_gguf_free(&file);
    }
    by__map_close(&map);
    return status;
}

/* ---- settings ---- */

by_status by__tokenizer_gguf_vocabulary_exists(bool *out, const char *path, by_error *error)
{
    by__map map;
    by__format_gguf_file file;
    BY_TRY(by__map_open(&map, path, error));
    by_status status = by__format_gguf_parse(&file, path, map.data, map.size, error);
    if (status == BY_OK) {
        *out = !by__format_gguf_is(&file, "tokenizer.ggml.model", "no_vocab");
        by__format_gguf_free(&file);
    }
    by__map_close(&map);
    return status;
}

by_status by__tokenizer_gguf_ends_open(int64_t out[2], const char *path, by_error *error)
{
    static const char *const keys[2] = {"tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id"};
    by__map map;
    by__format_gguf_file file;
    BY_TRY(by__map_open(&map, path, error));
    by_status status = by__format_gguf_parse(&file, path, map.data, map.size, error);
    for (size_t i = 0; i < 2 && status == BY_OK; i++) {
        uint64_t id;
        bool there = by__format_gguf_whole(&file, keys[i], &id) && id < BY__MAX_TOKENS;
        out[i] = there ? (int64_t)id : -1;
    }
    if (status == BY_OK) {
        by__format_gguf_free(&file);
    }
    by__map_close(&map);
    return status;
}

static void set_token(json_t *object, const char *name, const char *key,
                      const by__format_gguf_file *file)
{
    uint64_t id;
    size_t length = 0;
    const char *text = NULL;
    const by__format_gguf_pair *tokens =
        by__format_gguf_array(file, "tokenizer.ggml.tokens", BY__GGUF_KIND_STRING);
    if (tokens == NULL || !by__format_gguf_whole(file, key, &id) || id >= tokens->count) {
        return;
    }
    const uint8_t *at = tokens->data;
    for (uint64_t i = 0; i <= id; i++) {
        text = by__format_gguf_next_text(&at, &length);
    }
    (void)json_object_set_new(object, name, json_stringn(text, length));
}

by_status by__tokenizer_gguf_settings(json_t **out, const by__format_gguf_file *file,
                                      by_error *error)
{
    const char *text;
    size_t length;
    json_t *object = json_object();
    set_token(object, "bos_token", "tokenizer.ggml.bos_token_id", file);
    set_token(object, "eos_token", "tokenizer.ggml.eos_token_id", file);
    set_token(object, "unk_token", "tokenizer.ggml.unknown_token_id", file);
    set_token(object, "pad_token", "tokenizer.ggml.padding_token_id", file);
    if (by__format_gguf_text(file, "tokenizer.chat_template", &text, &length)) {
        (void)json_object_set_new(object, "chat_template", json_stringn(text, length));
    }
    (void)json_object_set_new(object, "tokenizer_class", json_string("PreTrainedTokenizerFast"));
    if (object == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: settings of a tokenizer");
    }
    *out = object;
    return BY_OK;
}

by_status by__tokenizer_gguf_settings_open(json_t **out, const char *path, by_error *error)
{
    by__map map;
    by__format_gguf_file file;
    BY_TRY(by__map_open(&map, path, error));
    by_status status = by__format_gguf_parse(&file, path, map.data, map.size, error);
    if (status == BY_OK) {
        status = by__tokenizer_gguf_settings(out, &file, error);
        by__format_gguf_free(&file);
    }
    by__map_close(&map);
    return status;
}
