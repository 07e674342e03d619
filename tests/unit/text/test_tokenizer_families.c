/* Tokenizers of published families against golden files made with Hugging Face tokenizers
 * (tests/parity/check_tokenizer_families.py --golden), and text that comes token by token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "banyan/build.h"
#include "banyan/text_stream.h"
#include "base/paths.h"
#include "temporary.h"
#include "text/tokenizer/vocabulary.h"

static const char *const families[] = {"llama3",  "gpt4o",  "qwen",    "smollm",       "llama2",
                                       "mistral", "gemma",  "unknown", "bert",         "bert-cased",
                                       "t5",      "albert", "xlm-r",   "unigram-bytes"};

static json_t *load_family(const char *name)
{
    char path[400];
    json_error_t problem;
    (void)snprintf(path, sizeof path, BY_SOURCE_DIR "/tests/parity/golden/family_%s.json", name);
    json_t *root = json_load_file(path, 0, &problem);
    if (root == NULL) {
        fail_msg("%s: %s", path, problem.text);
    }
    return root;
}

static by_tokenizer *open_family(const json_t *root)
{
    by_error error = {0};
    by_tokenizer *t = NULL;
    char *text = json_dumps(json_object_get(root, "tokenizer"), 0);
    if (by_tokenizer_from_json(&t, text, strlen(text), "family", &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    free(text);
    return t;
}

static void check_ids(const char *family, const by_tokenizer *t, const json_t *text,
                      const json_t *expected, unsigned flags)
{
    by_token_buffer ids = {0};
    by_error error = {0};
    if (by_tokenizer_encode(t, json_string_value(text), json_string_length(text), &ids, flags,
                            &error) != BY_OK) {
        fail_msg("%s: %s", family, error.message);
    }
    bool same = ids.count == json_array_size(expected);
    for (size_t i = 0; same && i < ids.count; i++) {
        same = ids.ids[i] == json_integer_value(json_array_get(expected, i));
    }
    if (!same) {
        fail_msg("%s, flags %u: ids of \"%s\" differ", family, flags, json_string_value(text));
    }
    by_token_buffer_free(&ids);
}

/* The ids of a case as text, whole and token by token. */
static void check_text(const char *family, const by_tokenizer *t, const json_t *ids,
                       const json_t *expected)
{
    by_text_stream *stream;
    by_token_buffer buffer = {0};
    by_string streamed = {0};
    char *text;
    size_t length;
    by_text part;
    size_t count = json_array_size(ids);
    assert_int_equal(by_text_stream_open(&stream, t, NULL, NULL), BY_OK);
    assert_int_equal(by__reserve((void **)&buffer.ids, &buffer.capacity, count + 1, 4, NULL), 0);
    for (size_t i = 0; i < count; i++) {
        bool stopped;
        buffer.ids[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
        assert_int_equal(by_text_stream_push(stream, buffer.ids[i], &part, &stopped, NULL), BY_OK);
        assert_false(stopped);
        /* Bytes that are named in a text may be no UTF-8. */
        assert_true(!json_is_string(expected) || by__utf8_valid(part.data, part.length));
        by_string_add(&streamed, part.data, part.length);
    }
    by_text_stream_end(stream, &part);
    by_string_add(&streamed, part.data, part.length);
    assert_int_equal(by_tokenizer_decode(t, buffer.ids, count, &text, &length, NULL), BY_OK);
    if (json_is_string(expected) && strcmp(text, json_string_value(expected)) != 0) {
        fail_msg("%s: \"%s\" instead of \"%s\"", family, text, json_string_value(expected));
    }
    assert_int_equal(streamed.length, length);
    assert_memory_equal(streamed.data, text, length);
    free(text);
    by_string_free(&streamed);
    by_token_buffer_free(&buffer);
    by_text_stream_close(&stream);
}

/* A file that is written out is read back as the same tokenizer. */
static by_tokenizer *save_and_open(const by_tokenizer *t)
{
    by_error error = {0};
    by_tokenizer *again = NULL;
    char *text;
    size_t length;
    assert_int_equal(by_tokenizer_to_json(t, &text, &length, NULL), BY_OK);
    if (by_tokenizer_from_json(&again, text, length, "saved", &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    free(text);
    assert_string_equal(by_tokenizer_hash(t), by_tokenizer_hash(again));
    return again;
}

/* A file whose model has no type, as early versions wrote it, is told by what is in the model. */
static void check_without_type(const by_tokenizer *t, json_t *root)
{
    json_t *model = json_object_get(json_object_get(root, "tokenizer"), "model");
    assert_int_equal(json_object_del(model, "type"), 0);
    by_tokenizer *told = open_family(root);
    assert_string_equal(by_tokenizer_hash(told), by_tokenizer_hash(t));
    by_tokenizer_close(&told);
}

/* Maps of characters are in base64. */
static bool is_left_out(const char *family)
{
    return !by_build_has(BY_BUILD_NETTLE) &&
           (strcmp(family, "t5") == 0 || strcmp(family, "albert") == 0 ||
            strcmp(family, "xlm-r") == 0);
}

static void test_golden_families(void **state)
{
    BY_UNUSED(state);
    for (size_t f = 0; f < BY_ARRAY_LENGTH(families); f++) {
        if (is_left_out(families[f])) {
            continue;
        }
        json_t *root = load_family(families[f]);
        by_tokenizer *t = open_family(root);
        by_tokenizer *again = save_and_open(t);
        const json_t *cases = json_object_get(root, "cases");
        assert_true(json_array_size(cases) > 40);
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *c = json_array_get(cases, i);
            const json_t *text = json_array_get(c, 0);
            unsigned all = BY_ENCODE_SPECIAL | BY_ENCODE_ADD_SPECIAL;
            check_ids(families[f], t, text, json_array_get(c, 1), BY_ENCODE_ORDINARY);
            check_ids(families[f], t, text, json_array_get(c, 2), all);
            check_ids(families[f], again, text, json_array_get(c, 2), all);
            check_text(families[f], t, json_array_get(c, 1), json_array_get(c, 3));
        }
        check_without_type(t, root);
        by_tokenizer_close(&again);
        by_tokenizer_close(&t);
        json_decref(root);
    }
}

/* Bytes that are no UTF-8 come back from byte-level BPE and from byte fallback. */
static void test_any_bytes(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"llama3", "qwen", "gpt4o", "llama2", "gemma"};
    uint32_t random = 7;
    for (size_t k = 0; k < BY_ARRAY_LENGTH(kinds); k++) {
        json_t *root = load_family(kinds[k]);
        by_tokenizer *t = open_family(root);
        for (unsigned round = 0; round < 400; round++) {
            char text[64];
            size_t n = round % sizeof text;
            by_token_buffer ids = {0};
            char *back;
            size_t length;
            for (size_t i = 0; i < n; i++) {
                random = random * 1664525u + 1013904223u;
                text[i] = (char)(uint8_t)((random >> 30) == 0 ? 'a' + (random >> 20) % 4
                                                              : 0x80 + (random >> 16) % 0x80);
            }
            assert_int_equal(by_tokenizer_encode(t, text, n, &ids, 0, NULL), BY_OK);
            assert_int_equal(by_tokenizer_decode(t, ids.ids, ids.count, &back, &length, NULL),
                             BY_OK);
            /* NFC may change what happens to be characters. */
            if (strcmp(kinds[k], "qwen") != 0) {
                assert_int_equal(length, n);
                assert_memory_equal(back, text, n);
            }
            free(back);
            by_token_buffer_free(&ids);
        }
        by_tokenizer_close(&t);
        json_decref(root);
    }
}

static void test_facts(void **state)
{
    BY_UNUSED(state);
    const char *data;
    size_t length;
    json_t *root = load_family("llama2");
    by_tokenizer *t = open_family(root);
    assert_false(by_tokenizer_is_char(t));
    assert_int_equal(by_tokenizer_eos(t), 2);
    assert_int_equal(by_tokenizer_token_id(t, "\a", 1), 3 + 7);
    int64_t id = by_tokenizer_token_id(t, "\xe2\x96\x81the", 6);
    assert_true(id > 0);
    assert_int_equal(by_tokenizer_token_bytes(t, (uint32_t)id, &data, &length, NULL), BY_OK);
    assert_int_equal(length, 4);
    assert_memory_equal(data, " the", 4);
    by_tokenizer_close(&t);
    json_decref(root);
}

/* BERT's vocab.txt and tokenizer_config.json are the tokenizer that tokenizer.json says. */
static void test_vocab_txt(void **state)
{
    BY_UNUSED(state);
    static const char config[] = "{\"do_lower_case\": true, \"added_tokens_decoder\": {"
                                 "\"0\": {\"content\": \"[PAD]\", \"special\": true},"
                                 "\"900\": {\"content\": \"wordy\", \"single_word\": true}}}";
    by_error error = {0};
    json_t *root = load_family("bert");
    by_tokenizer *t = open_family(root);
    by_tokenizer *files = NULL;
    by_string lines = {0};
    char *directory = temporary_make();
    char *vocab = by__path_join(directory, "vocab.txt");
    char *settings = by__path_join(directory, "tokenizer_config.json");
    for (uint32_t id = 0; id < t->model_vocab; id++) {
        by_string_add(&lines, t->bytes + t->offsets[id], t->offsets[id + 1] - t->offsets[id]);
        by__string_append(&lines, id % 2 == 0 ? "\n" : "\r\n");
    }
    assert_int_equal(by__file_write(vocab, lines.data, lines.length, NULL), BY_OK);
    if (by_tokenizer_open(&files, directory, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(by_tokenizer_vocab(files), t->model_vocab);
    assert_int_equal(by_tokenizer_eos(files), 3); /* [SEP] */
    unsigned compared = 0;
    for (size_t i = 0; i < json_array_size(json_object_get(root, "cases")); i++) {
        const json_t *c = json_array_get(json_object_get(root, "cases"), i);
        const char *text = json_string_value(json_array_get(c, 0));
        if (strstr(text, "<tool>") == NULL && strstr(text, "wordy") == NULL) {
            check_ids("vocab.txt", files, json_array_get(c, 0), json_array_get(c, 2),
                      BY_ENCODE_SPECIAL | BY_ENCODE_ADD_SPECIAL);
            compared++;
        }
    }
    assert_true(compared > 20);
    /* A text that is continued begins with [CLS], and no [SEP] ends it. */
    by_token_buffer around = {0};
    by_token_buffer before = {0};
    assert_int_equal(by_tokenizer_encode(files, "a", 1, &around, BY_ENCODE_ADD_SPECIAL, &error),
                     BY_OK);
    assert_int_equal(by_tokenizer_encode(files, "a", 1, &before, BY_ENCODE_ADD_BEFORE, &error),
                     BY_OK);
    assert_int_equal(before.count, around.count - 1);
    assert_int_equal(around.ids[before.count], 3);
    assert_memory_equal(before.ids, around.ids, before.count * sizeof *before.ids);
    by_token_buffer_free(&around);
    by_token_buffer_free(&before);
    by_tokenizer_close(&files);
    assert_int_equal(by__file_write(settings, config, strlen(config), NULL), BY_OK);
    assert_int_equal(by_tokenizer_open(&files, directory, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "does not follow"));
    by__string_append(&lines, "[PAD]\n");
    assert_int_equal(by__file_write(vocab, lines.data, lines.length, NULL), BY_OK);
    assert_int_equal(by_tokenizer_open(&files, directory, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "there twice"));
    free(vocab);
    free(settings);
    by_string_free(&lines);
    by_tokenizer_close(&t);
    json_decref(root);
    temporary_remove(directory);
}

/* A text of marks alone, and words without an end, cost no more than other text. */
static void test_long_texts(void **state)
{
    BY_UNUSED(state);
    static const char *const units[] = {"\xcc\x81\xcc\xa3", "a", " ", "\xe2\x96\x81", "1", "\xff"};
    size_t n = (size_t)1 << 19;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t f = 0; f < BY_ARRAY_LENGTH(families); f++) {
        if (is_left_out(families[f])) {
            continue;
        }
        json_t *root = load_family(families[f]);
        by_tokenizer *t = open_family(root);
        for (size_t u = 0; u < BY_ARRAY_LENGTH(units); u++) {
            size_t unit = strlen(units[u]);
            by_token_buffer ids = {0};
            for (size_t i = 0; i < n; i++) {
                text[i] = units[u][i % unit];
            }
            assert_int_equal(by_tokenizer_encode(t, text, n / unit * unit, &ids, 0, NULL), BY_OK);
            by_token_buffer_free(&ids);
        }
        by_tokenizer_close(&t);
        json_decref(root);
    }
    free(text);
}

/* ---- text that comes token by token ---- */

/* Pushes the ids of a text; returns what was shown, freed with free(). */
static char *stream_text(const by_tokenizer *t, const by_text_stream_options *options,
                         const char *text, bool *stopped)
{
    by_text_stream *stream;
    by_token_buffer ids = {0};
    by_string shown = {0};
    by_text part;
    char *out;
    by_error error = {0};
    assert_int_equal(by_text_stream_open(&stream, t, options, &error), BY_OK);
    assert_int_equal(by_tokenizer_encode(t, text, strlen(text), &ids, BY_ENCODE_SPECIAL, NULL),
                     BY_OK);
    *stopped = false;
    for (size_t i = 0; i < ids.count && !*stopped; i++) {
        assert_int_equal(by_text_stream_push(stream, ids.ids[i], &part, stopped, NULL), BY_OK);
        assert_true(by__utf8_valid(part.data, part.length));
        by_string_add(&shown, part.data, part.length);
    }
    if (*stopped) {
        assert_int_equal(by_text_stream_push(stream, ids.ids[0], &part, stopped, &error),
                         BY_ESTATE);
        *stopped = true;
    }
    by_text_stream_end(stream, &part);
    by_string_add(&shown, part.data, part.length);
    by_text_stream_close(&stream);
    by_token_buffer_free(&ids);
    assert_int_equal(by__string_release(&shown, &out, NULL), BY_OK);
    return out;
}

static void test_stop_strings(void **state)
{
    BY_UNUSED(state);
    static const char *const stops[] = {"\nUser:", "END", "\xe4\xb8\x96!"};
    static const struct {
        const char *text;
        const char *shown;
        bool stopped;
    } cases[] = {{"an answer\nUser: next", "an answer", true},
                 {"an answer\nUse it", "an answer\nUse it", false},
                 {"an answer\nUser", "an answer\nUser", false},
                 {"EEND", "E", true},
                 {"ENEND.", "EN", true},
                 {"\xe4\xb8\x96\xe7\x95\x8c", "\xe4\xb8\x96\xe7\x95\x8c", false},
                 {"a\xe4\xb8\x96!", "a", true},
                 {"END", "", true}};
    static const char *const kinds[] = {"llama3", "llama2"};
    by_text_stream_options options = {.stops = stops, .stop_count = BY_ARRAY_LENGTH(stops)};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(kinds); k++) {
        json_t *root = load_family(kinds[k]);
        by_tokenizer *t = open_family(root);
        for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
            bool stopped;
            char *shown = stream_text(t, &options, cases[i].text, &stopped);
            assert_string_equal(shown, cases[i].shown);
            assert_int_equal(stopped, cases[i].stopped);
            free(shown);
        }
        by_tokenizer_close(&t);
        json_decref(root);
    }
}

static void test_stream_options(void **state)
{
    BY_UNUSED(state);
    static const char *const empty[] = {""};
    json_t *root = load_family("llama2");
    by_tokenizer *t = open_family(root);
    by_text_stream *stream = NULL;
    by_error error = {0};
    by_text_stream_options options = {.stops = empty, .stop_count = 1};
    assert_int_equal(by_text_stream_open(&stream, t, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "empty"));
    bool stopped;
    options = (by_text_stream_options){.continues = true};
    char *shown = stream_text(t, &options, "the end</s>", &stopped);
    assert_string_equal(shown, " the end</s>");
    free(shown);
    options = (by_text_stream_options){.skip_special = true};
    shown = stream_text(t, &options, "the end</s>", &stopped);
    assert_string_equal(shown, "the end");
    free(shown);
    by_tokenizer_close(&t);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_families), cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_facts),           cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_vocab_txt),       cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_stream_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
