/* Tokenizers against golden files made with Hugging Face tokenizers and tiktoken, against a plain
 * implementation of BPE, and against broken files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "banyan/tokenizer.h"
#include "base/threads.h"
#include "temporary.h"
#include "text/tokenizer/encoder.h"
#include "text/tokenizer/split.h"
#include "text/tokenizer/vocabulary.h"
#include "text/unicode/unicode.h"

#define GOLDEN BY_SOURCE_DIR "/tests/parity/golden/"

static by_tokenizer *open_golden(const char *name)
{
    by_error error = {0};
    by_tokenizer *tokenizer = NULL;
    char *path = by__path_join(GOLDEN, name);
    by_status status = by_tokenizer_open(&tokenizer, path, &error);
    if (status != BY_OK) {
        fail_msg("%s", error.message);
    }
    free(path);
    return tokenizer;
}

static json_t *load_json(const char *name)
{
    json_error_t problem;
    char *path = by__path_join(GOLDEN, name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &problem);
    assert_non_null(root);
    free(path);
    return root;
}

static void check_ids(const by_token_buffer *ids, const json_t *expected, const char *text)
{
    bool same = ids->count == json_array_size(expected);
    for (size_t i = 0; same && i < ids->count; i++) {
        same = ids->ids[i] == json_integer_value(json_array_get(expected, i));
    }
    if (!same) {
        fail_msg("ids of \"%s\" differ", text);
    }
}

static void check_case(by_encoder *encoder, const by_tokenizer *t, const json_t *text,
                       const json_t *expected, unsigned flags)
{
    by_error error = {0};
    by_token_buffer ids = {0};
    char *back;
    size_t length;
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);
    assert_int_equal(by_encoder_encode(encoder, s, n, &ids, flags, &error), BY_OK);
    check_ids(&ids, expected, s);
    assert_int_equal(by_tokenizer_decode(t, ids.ids, ids.count, &back, &length, &error), BY_OK);
    /* A token that takes the spaces around it does not give them back. */
    if (t->added_count == 1) {
        assert_int_equal(length, n);
        assert_memory_equal(back, s, n);
    }
    free(back);
    by_token_buffer_free(&ids);
}

/* A text that is cut off has the ids of its beginning encoded alone. */
static void check_cuts(by_encoder *encoder, const by_tokenizer *t, const json_t *text)
{
    by_token_buffer whole = {0};
    by_token_buffer rest = {0};
    by_token_buffer alone = {0};
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);
    by_encoder *other;
    assert_int_equal(by_encoder_open(&other, t, NULL), BY_OK);
    assert_int_equal(by_encoder_encode(encoder, s, n, &whole, BY_ENCODE_SPECIAL, NULL), BY_OK);
    for (size_t to = 0; to <= n && to < 200; to++) {
        size_t kept;
        rest.count = alone.count = 0;
        assert_int_equal(
            by__tokenizer_encode_rest(encoder, s, to, &kept, &rest, BY_ENCODE_SPECIAL, NULL),
            BY_OK);
        assert_int_equal(by_encoder_encode(other, s, to, &alone, BY_ENCODE_SPECIAL, NULL), BY_OK);
        assert_int_equal(kept + rest.count, alone.count);
        for (size_t i = 0; i < alone.count; i++) {
            assert_int_equal(alone.ids[i], i < kept ? whole.ids[i] : rest.ids[i - kept]);
        }
    }
    by_encoder_close(&other);
    by_token_buffer_free(&whole);
    by_token_buffer_free(&rest);
    by_token_buffer_free(&alone);
}

static void test_golden_ids(void **state)
{
    BY_UNUSED(state);
    by_tokenizer *small = open_golden("tokenizer_small.json");
    by_tokenizer *added = open_golden("tokenizer_added.json");
    by_encoder *encoders[2];
    json_t *cases = load_json("tokenizer_cases.json");
    assert_int_equal(by_encoder_open(&encoders[0], small, NULL), BY_OK);
    assert_int_equal(by_encoder_open(&encoders[1], added, NULL), BY_OK);
    assert_true(json_array_size(cases) > 300);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        const json_t *text = json_array_get(c, 0);
        check_case(encoders[0], small, text, json_array_get(c, 1), BY_ENCODE_ORDINARY);
        check_case(encoders[0], small, text, json_array_get(c, 2), BY_ENCODE_SPECIAL);
        check_case(encoders[1], added, text, json_array_get(c, 3), BY_ENCODE_SPECIAL);
        check_cuts(encoders[1], added, text);
    }
    json_decref(cases);
    by_encoder_close(&encoders[0]);
    by_encoder_close(&encoders[1]);
    by_tokenizer_close(&small);
    by_tokenizer_close(&added);
}

static void test_facts(void **state)
{
    BY_UNUSED(state);
    const char *data;
    size_t length;
    by_error error = {0};
    by_tokenizer *t = open_golden("tokenizer_small.json");
    assert_int_equal(by_tokenizer_vocab(t), 600);
    assert_int_equal(by_tokenizer_eos(t), 0);
    assert_false(by_tokenizer_is_char(t));
    assert_int_equal(strlen(by_tokenizer_hash(t)), 32);
    assert_int_equal(by_tokenizer_token_bytes(t, 0, &data, &length, &error), BY_OK);
    assert_int_equal(length, strlen("<|endoftext|>"));
    assert_int_equal(by_tokenizer_token_id(t, data, length), 0);
    assert_int_equal(by_tokenizer_token_id(t, "no such token", 13), -1);
    assert_int_equal(by_tokenizer_token_bytes(t, 600, &data, &length, &error), BY_EARG);
    assert_non_null(strstr(error.message, "600"));
    by_token_buffer ids = {0};
    assert_int_equal(by_tokenizer_encode(t, "a", 1, &ids, 8, &error), BY_EARG);
    assert_int_equal(ids.count, 0);
    by_tokenizer_close(&t);
    assert_null(t);
    by_tokenizer_close(&t);
}

/* ---- against a plain implementation ---- */

/* Merges as the definition says: the lowest rank, leftmost, until there is none. */
static size_t merge_plainly(const by_tokenizer *t, const uint8_t *s, size_t n, uint32_t *ids)
{
    for (size_t i = 0; i < n; i++) {
        ids[i] = t->byte_ids[s[i]];
    }
    for (;;) {
        uint32_t best = BY__NO_TOKEN;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t rank = by__pair_rank(t, ids[i], ids[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == BY__NO_TOKEN) {
            return n;
        }
        ids[at] = t->merges[best].id;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static void test_long_pieces(void **state)
{
    BY_UNUSED(state);
    by_tokenizer *t = open_golden("tokenizer_small.json");
    uint64_t random = 1;
    uint8_t text[1500];
    uint32_t expected[1500];
    for (unsigned round = 0; round < 300; round++) {
        /* Around the lengths where the cache and the scan end, and far beyond. */
        size_t n = round < 200 ? 1 + round % 60 : 1500 - round;
        uint32_t letters = 1 + next_random(&random) % 12;
        for (size_t i = 0; i < n; i++) {
            text[i] = (uint8_t)('a' + next_random(&random) % letters);
        }
        size_t count = merge_plainly(t, text, n, expected);
        by_token_buffer ids = {0};
        assert_int_equal(by_tokenizer_encode(t, (const char *)text, n, &ids, 0, NULL), BY_OK);
        assert_int_equal(ids.count, count);
        assert_memory_equal(ids.ids, expected, count * sizeof *expected);
        by_token_buffer_free(&ids);
    }
    by_tokenizer_close(&t);
}

static void test_one_megabyte_piece(void **state)
{
    BY_UNUSED(state);
    by_tokenizer *t = open_golden("tokenizer_small.json");
    size_t n = (size_t)1 << 20;
    char *text = malloc(n);
    by_token_buffer ids = {0};
    char *back;
    size_t length;
    assert_non_null(text);
    memset(text, 'a', n);
    assert_int_equal(by_tokenizer_encode(t, text, n, &ids, 0, NULL), BY_OK);
    assert_true(ids.count <= n / 2);
    assert_int_equal(by_tokenizer_decode(t, ids.ids, ids.count, &back, &length, NULL), BY_OK);
    assert_int_equal(length, n);
    assert_memory_equal(back, text, n);
    free(back);
    free(text);
    by_token_buffer_free(&ids);
    by_tokenizer_close(&t);
}

static void test_any_bytes_come_back(void **state)
{
    BY_UNUSED(state);
    by_tokenizer *t = open_golden("tokenizer_added.json");
    by_encoder *encoder;
    uint64_t random = 3;
    char text[200];
    assert_int_equal(by_encoder_open(&encoder, t, NULL), BY_OK);
    for (unsigned round = 0; round < 3000; round++) {
        by_token_buffer ids = {0};
        char *back;
        size_t length;
        size_t n = next_random(&random) % sizeof text;
        for (size_t i = 0; i < n; i++) {
            uint32_t r = next_random(&random);
            text[i] = (char)(uint8_t)(r % 3 == 0 ? 0x80 + r / 3 % 0x80 : r / 3 % 256);
        }
        assert_int_equal(by_encoder_encode(encoder, text, n, &ids, 0, NULL), BY_OK);
        assert_int_equal(by_tokenizer_decode(t, ids.ids, ids.count, &back, &length, NULL), BY_OK);
        assert_int_equal(length, n);
        assert_memory_equal(back, text, n);
        free(back);
        by_token_buffer_free(&ids);
    }
    by_encoder_close(&encoder);
    by_tokenizer_close(&t);
}

/* Parts that are cut by by__tokenizer_split_chunk encode to what the whole does. */
static void test_cutting(void **state)
{
    BY_UNUSED(state);
    static const char *const words[] = {"abc", " ", "\n",       "  ", "don't",
                                        "!",   "7", "\xc3\xa9", "\t"};
    by_tokenizer *t = open_golden("tokenizer_small.json");
    uint64_t random = 9;
    for (unsigned round = 0; round < 300; round++) {
        char text[600] = "";
        for (unsigned i = 0; i < 100; i++) {
            strcat(text, words[next_random(&random) % BY_ARRAY_LENGTH(words)]);
        }
        size_t n = strlen(text);
        by_token_buffer whole = {0};
        by_token_buffer parts = {0};
        assert_int_equal(by_tokenizer_encode(t, text, n, &whole, 0, NULL), BY_OK);
        for (size_t at = 0; at < n;) {
            size_t part =
                by__tokenizer_split_chunk((const uint8_t *)text + at, n - at, 1 + round % 30);
            assert_true(part > 0 && part <= n - at);
            assert_int_equal(by_tokenizer_encode(t, text + at, part, &parts, 0, NULL), BY_OK);
            at += part;
        }
        assert_int_equal(parts.count, whole.count);
        assert_memory_equal(parts.ids, whole.ids, whole.count * sizeof *whole.ids);
        by_token_buffer_free(&whole);
        by_token_buffer_free(&parts);
    }
    by_tokenizer_close(&t);
}

static void test_unicode_classes(void **state)
{
    BY_UNUSED(state);
    unsigned counts[4] = {0};
    for (uint32_t code = 0; code < 0x110000; code++) {
        counts[by__unicode_class(code) & BY__CLASS]++;
    }
    assert_int_equal(counts[BY__LETTER], 141028); /* Unicode 16.0 */
    assert_int_equal(counts[BY__NUMBER], 1911);
    assert_int_equal(counts[BY__SPACE], 25);
    assert_int_equal(by__unicode_class(0x4e16) & BY__CLASS, BY__LETTER);
    assert_int_equal(by__unicode_class(0x301), BY__OTHER | BY__WORD); /* a combining accent */
    assert_int_equal(by__unicode_class('_'), BY__OTHER | BY__WORD);
    assert_int_equal(by__unicode_class(0xbd) & BY__CLASS, BY__NUMBER);
    for (unsigned b = 0; b < 256; b++) {
        assert_int_equal(by__text_letter_byte(by__text_byte_letter((uint8_t)b)), (int)b);
    }
    assert_int_equal(by__text_byte_letter(' '), 0x120);
    assert_int_equal(by__text_letter_byte(0x144), -1);
}

/* ---- learning ---- */

typedef struct stopper {
    unsigned calls;
    unsigned limit;
} stopper;

static bool stop_after(void *user, double done)
{
    stopper *s = user;
    assert_true(done >= 0.0 && done <= 1.0);
    return ++s->calls < s->limit;
}

static void test_learning(void **state)
{
    BY_UNUSED(state);
    char *text;
    size_t length;
    by_error error = {0};
    by_tokenizer *golden = open_golden("tokenizer_small.json");
    assert_int_equal(by__file_read(&text, &length, GOLDEN "tokenizer_corpus.txt", 1 << 20, &error),
                     BY_OK);
    for (size_t threads = 1; threads <= 3; threads++) {
        by_tokenizer *t;
        by_bpe_options options = {.vocab = 600, .threads = threads};
        /* In one text and in two: the word that the cut divides is not one. */
        size_t cut = by__tokenizer_split_chunk((const uint8_t *)text, length, length / 2);
        by_text texts[2] = {{text, cut}, {text + cut, length - cut}};
        assert_int_equal(by_tokenizer_train_bpe(&t, &options, texts, 2, &error), BY_OK);
        assert_string_equal(by_tokenizer_hash(t), by_tokenizer_hash(golden));
        by_tokenizer_close(&t);
    }
    by_tokenizer *t = NULL;
    by_text whole = {text, length};
    by_bpe_options rare = {.vocab = 600, .min_frequency = 1000000, .threads = 1};
    assert_int_equal(by_tokenizer_train_bpe(&t, &rare, &whole, 1, &error), BY_OK);
    assert_int_equal(by_tokenizer_vocab(t), 257);
    by_tokenizer_close(&t);
    by_bpe_options tiny = {.vocab = 256};
    assert_int_equal(by_tokenizer_train_bpe(&t, &tiny, &whole, 1, &error), BY_EARG);
    assert_non_null(strstr(error.message, "257"));
    stopper stop = {0, 1};
    by_bpe_options stopped = {.vocab = 600, .threads = 2, .progress = stop_after, .user = &stop};
    assert_int_equal(by_tokenizer_train_bpe(&t, &stopped, &whole, 1, &error), BY_ESTOPPED);
    stop = (stopper){0, 2};
    assert_int_equal(by_tokenizer_train_bpe(&t, &stopped, &whole, 1, &error), BY_ESTOPPED);
    free(text);
    by_tokenizer_close(&golden);
}

/* ---- characters ---- */

static void test_characters(void **state)
{
    BY_UNUSED(state);
    static const char text[] = "b\xc3\xa9"
                               "a\n\xe4\xb8\x96 ab";
    by_error error = {0};
    by_tokenizer *t;
    by_text texts[] = {{text, strlen(text)}};
    assert_int_equal(by_tokenizer_char(&t, texts, 1, &error), BY_OK);
    assert_true(by_tokenizer_is_char(t));
    assert_int_equal(by_tokenizer_vocab(t), 6); /* \n, space, a, b, e acute, world */
    assert_int_equal(by_tokenizer_eos(t), -1);
    static const uint32_t expected[] = {3, 4, 2, 0, 5, 1, 2, 3};
    by_token_buffer ids = {0};
    assert_int_equal(by_tokenizer_encode(t, text, strlen(text), &ids, 0, &error), BY_OK);
    assert_int_equal(ids.count, BY_ARRAY_LENGTH(expected));
    assert_memory_equal(ids.ids, expected, sizeof expected);
    assert_int_equal(by_tokenizer_encode(t, "ab\xc3\xa8", 4, &ids, 0, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "U+00E8"));
    assert_non_null(strstr(error.message, "offset 2"));
    assert_int_equal(ids.count, BY_ARRAY_LENGTH(expected)); /* as it was */
    assert_int_equal(by_tokenizer_encode(t, "a\xff", 2, &ids, 0, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "0xff"));
    by_tokenizer *none = NULL;
    by_text broken[] = {{"ab\xc3", 3}};
    assert_int_equal(by_tokenizer_char(&none, broken, 1, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "offset 2"));
    by_text with_nul[] = {{"a\0b", 3}};
    assert_int_equal(by_tokenizer_char(&none, with_nul, 1, &error), BY_EFORMAT);
    by_text empty[] = {{"", 0}};
    assert_int_equal(by_tokenizer_char(&none, empty, 1, &error), BY_EFORMAT);
    assert_null(none);
    by_token_buffer_free(&ids);
    by_tokenizer_close(&t);
}

/* ---- saving ---- */

static void check_saved(const by_tokenizer *t, const char *directory)
{
    by_error error = {0};
    by_tokenizer *again;
    char *path = by__path_join(directory, "tokenizer.json");
    assert_int_equal(by_tokenizer_save(t, path, &error), BY_OK);
    if (by_tokenizer_open(&again, directory, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_string_equal(by_tokenizer_hash(again), by_tokenizer_hash(t));
    assert_int_equal(by_tokenizer_eos(again), by_tokenizer_eos(t));
    by_tokenizer_close(&again);
    free(path);
}

/* The small tokenizer in tiktoken's form. Rank 0 is left out: it is <|endoftext|>. */
static void write_ranks(by_string *out, const by_tokenizer *t)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (uint32_t id = 1; id < t->vocab; id++) {
        const uint8_t *s = (const uint8_t *)t->bytes + t->offsets[id];
        size_t n = t->offsets[id + 1] - t->offsets[id];
        for (size_t i = 0; i < n; i += 3) {
            uint32_t bits = (uint32_t)s[i] << 16 | (i + 1 < n ? (uint32_t)s[i + 1] << 8 : 0) |
                            (i + 2 < n ? s[i + 2] : 0u);
            by_string_format(out, "%c%c%c%c", digits[bits >> 18], digits[bits >> 12 & 63],
                             i + 1 < n ? digits[bits >> 6 & 63] : '=',
                             i + 2 < n ? digits[bits & 63] : '=');
        }
        by_string_format(out, " %u\n", id);
    }
}

static void check_equal_ids(const by_tokenizer *a, const by_tokenizer *b)
{
    json_t *cases = load_json("tokenizer_cases.json");
    assert_int_equal(a->vocab, b->vocab);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *text = json_array_get(json_array_get(cases, i), 0);
        by_token_buffer x = {0};
        by_token_buffer y = {0};
        const char *s = json_string_value(text);
        assert_int_equal(by_tokenizer_encode(a, s, json_string_length(text), &x, 0, NULL), BY_OK);
        assert_int_equal(by_tokenizer_encode(b, s, json_string_length(text), &y, 0, NULL), BY_OK);
        assert_int_equal(x.count, y.count);
        if (x.count > 0) {
            assert_memory_equal(x.ids, y.ids, x.count * sizeof *x.ids);
        }
        by_token_buffer_free(&x);
        by_token_buffer_free(&y);
    }
    json_decref(cases);
}

static void test_saving(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    by_tokenizer *t = open_golden("tokenizer_added.json");
    check_saved(t, directory);
    by_tokenizer_close(&t);
    static const char words[] = "hello \"\\\x7f world\n\xf0\x9f\x98\x80";
    by_text text = {words, strlen(words)};
    assert_int_equal(by_tokenizer_char(&t, &text, 1, NULL), BY_OK);
    check_saved(t, directory);
    by_tokenizer_close(&t);
    temporary_remove(directory);
}

static void test_tiktoken(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_string ranks = {0};
    char *directory = temporary_make();
    char *path = by__path_join(directory, "small.tiktoken");
    by_tokenizer *small = open_golden("tokenizer_small.json");
    by_tokenizer *t;
    write_ranks(&ranks, small);
    assert_int_equal(by__file_write(path, ranks.data, ranks.length, &error), BY_OK);
    assert_int_equal(by_tokenizer_open(&t, path, &error), BY_OK);
    assert_int_equal(by_tokenizer_eos(t), 0);
    check_equal_ids(small, t);
    check_saved(t, directory);
    by_tokenizer_close(&t);
    static const struct {
        const char *text;
        const char *message;
    } bad[] = {{"", "0 ranks"},
               {"QQ== x\n", ":1: not a token"},
               {"Q=Q= 0\n", ":1: the token is not base64"},
               {"QQ== 0\nQg== 0\n", ":2: rank 0 is there twice"},
               {"QQ== 9\n", "rank 9"},
               {"QQ== 0\nQQ== 1\n", "tokens 0 and 1 are the same"},
               {"QQ== 0\nQg== 1\n", "no token for byte 0x00"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        by_tokenizer *none = NULL;
        assert_int_equal(by__tokenizer_parse_tiktoken(&none, "f.tiktoken", bad[i].text,
                                                      strlen(bad[i].text), &error),
                         BY_EFORMAT);
        assert_non_null(strstr(error.message, bad[i].message));
        assert_null(none);
    }
    by_string_free(&ranks);
    free(path);
    by_tokenizer_close(&small);
    temporary_remove(directory);
}

static void test_gpt2_files(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_tokenizer *small = open_golden("tokenizer_small.json");
    json_t *root = load_json("tokenizer_small.json");
    const json_t *model = json_object_get(root, "model");
    const json_t *merges = json_object_get(model, "merges");
    char *vocab = json_dumps(json_object_get(model, "vocab"), 0);
    by_string lines = {0};
    by__string_append(&lines, "#version: 0.2\n");
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *m = json_array_get(merges, i);
        by_string_format(&lines, "%s %s\n", json_string_value(json_array_get(m, 0)),
                         json_string_value(json_array_get(m, 1)));
    }
    char *directory = temporary_make();
    char *encoder_path = by__path_join(directory, "encoder.json");
    char *merges_path = by__path_join(directory, "vocab.bpe");
    by_tokenizer *t;
    assert_int_equal(by_tokenizer_open(&t, directory, &error), BY_EIO);
    assert_non_null(strstr(error.message, "neither tokenizer.json nor encoder.json"));
    assert_int_equal(by__file_write(encoder_path, vocab, strlen(vocab), &error), BY_OK);
    assert_int_equal(by__file_write(merges_path, lines.data, lines.length, &error), BY_OK);
    assert_int_equal(by_tokenizer_open(&t, directory, &error), BY_OK);
    assert_string_equal(by_tokenizer_hash(t), by_tokenizer_hash(small));
    by_tokenizer_close(&t);
    by__string_append(&lines, "a b c\n");
    assert_int_equal(by__file_write(merges_path, lines.data, lines.length, &error), BY_OK);
    assert_int_equal(by_tokenizer_open(&t, directory, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "vocab.bpe:345: "));
    free(encoder_path);
    free(merges_path);
    free(vocab);
    by_string_free(&lines);
    json_decref(root);
    by_tokenizer_close(&small);
    temporary_remove(directory);
}

/* ---- what is refused ---- */

/* Puts `value` (JSON) at model.KEY ("model." in front) or KEY of the small tokenizer and opens it.
 */
static void check_refused(const char *key, const char *value, const char *message)
{
    by_error error = {0};
    by_tokenizer *t = NULL;
    json_t *root = load_json("tokenizer_small.json");
    bool in_model = strncmp(key, "model.", 6) == 0;
    json_t *parent = in_model ? json_object_get(root, "model") : root;
    json_t *put = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(put);
    assert_int_equal(json_object_set_new(parent, in_model ? key + 6 : key, put), 0);
    char *text = json_dumps(root, 0);
    by_status status = by_tokenizer_from_json(&t, text, strlen(text), "t.json", &error);
    if (status != BY_EFORMAT || strstr(error.message, message) == NULL) {
        fail_msg("%s: %s: status %d, %s", key, value, status, error.message);
    }
    assert_non_null(strstr(error.message, "t.json"));
    free(text);
    json_decref(root);
}

/* What a batch was cut and padded to before the file was saved is not part of the tokenizer. */
static void test_saved_padding(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_tokenizer *t = NULL;
    by_token_buffer ids = {0};
    json_t *root = load_json("tokenizer_small.json");
    (void)json_object_set_new(root, "truncation", json_pack("{si}", "max_length", 3));
    (void)json_object_set_new(root, "padding", json_pack("{s{si}}", "strategy", "Fixed", 99));
    char *text = json_dumps(root, 0);
    assert_int_equal(by_tokenizer_from_json(&t, text, strlen(text), "t.json", &error), BY_OK);
    assert_int_equal(by_tokenizer_encode(t, "0123456789", 10, &ids, 0, &error), BY_OK);
    assert_in_range(ids.count, 4, 10);
    by_token_buffer_free(&ids);
    by_tokenizer_close(&t);
    free(text);
    json_decref(root);
}

static void test_refusals(void **state)
{
    BY_UNUSED(state);
    check_refused("version", "\"2.0\"", "version");
    check_refused("normalizer", "{\"type\":\"Nmt\"}", "normalizer Nmt");
    check_refused("normalizer", "{\"type\":\"BertNormalizer\",\"lowercase\":1}", "lowercase");
    check_refused("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA\"}",
                  "precompiled_charsmap");
    check_refused("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}",
                  "precompiled_charsmap");
    check_refused("normalizer",
                  "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+\"},\"content\":\"\"}",
                  "pattern \"a+\"");
    check_refused("pre_tokenizer", "{\"type\":\"Whitespace\"}", "pre_tokenizer Whitespace");
    check_refused("pre_tokenizer", "null", "decoder ByteLevel");
    check_refused(
        "pre_tokenizer",
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
        "\"x+|y\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\"}]}",
        "pattern \"x+|y\" is not supported");
    check_refused("pre_tokenizer",
                  "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},"
                  "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}]}",
                  "a prefix of ByteLevel");
    check_refused("post_processor", "{\"type\":\"TemplateProcessing\"}",
                  "post_processor TemplateProcessing");
    check_refused("post_processor", "{\"type\":\"BertProcessing\"}",
                  "post_processor BertProcessing");
    check_refused(
        "post_processor",
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
        "{\"Sequence\":{}}],\"special_tokens\":{\"<s>\":{\"ids\":[600]}}}",
        "not below 600");
    check_refused("decoder", "{\"type\":\"WordPiece\"}", "decoder WordPiece");
    check_refused("decoder", "null", "decoder");
    check_refused("model", "{\"type\":\"WordLevel\"}", "model WordLevel");
    check_refused("model", "{\"type\":\"Unigram\"}", "not a list of 1 to");
    check_refused("model", "{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]],\"unk_id\":1}", "unk_id");
    check_refused("model", "{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1],[\"a\",-2]]}", "the same");
    check_refused("model", "{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}", "token 0");
    check_refused("model", "{\"type\":\"WordPiece\",\"vocab\":{}}", "unk_token");
    check_refused("model", "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"vocab\":{}}",
                  "unk_token \"?\"");
    check_refused("model", "3", "model is missing");
    check_refused("model", "{\"vocab\":{\"a\":0},\"unk_token\":\"a\"}", "nothing else tells it");
    check_refused("model", "{\"type\":3,\"vocab\":{\"a\":0},\"merges\":[]}",
                  "model is not supported");
    check_refused("model.dropout", "0.1", "dropout");
    check_refused("model.continuing_subword_prefix", "\"##\"", "continuing_subword_prefix");
    check_refused("model.end_of_word_suffix", "\"</w>\"", "end_of_word_suffix");
    check_refused("model.ignore_merges", "3", "ignore_merges");
    check_refused("model.vocab", "[]", "vocabulary is not an object");
    check_refused("model.vocab", "{}", "merge 0 needs the token");
    check_refused("model.vocab", "{\"a\":1}", "from 0 to 0");
    check_refused("model.vocab", "{\"a\":0,\"b\":0}", "same id 0");
    check_refused("model.merges", "{}", "merges is not a list");
    check_refused("model.merges", "[\"ab\"]", "merge 0 is not a pair");
    check_refused("model.merges", "[[\"a\",\"zq\"]]", "\"zq\"");
    check_refused("added_tokens", "{}", "added_tokens is not a list");
    check_refused("added_tokens", "[{\"id\":600,\"content\":\"\"}]", "lacks its content");
    check_refused("added_tokens", "[{\"id\":601,\"content\":\"<x>\"}]", "where 600 is its place");
    check_refused("added_tokens", "[{\"id\":600,\"content\":\"x\",\"lstrip\":1}]", "lstrip");
    check_refused("added_tokens",
                  "[{\"id\":600,\"content\":\"<x>\"},{\"id\":601,\"content\":\"<x>\"}]", "twice");
    by_error error = {0};
    by_tokenizer *t = NULL;
    assert_int_equal(by_tokenizer_from_json(&t, "{\n,", 3, "t.json", &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "t.json:2"));
    assert_int_equal(by_tokenizer_open(&t, "/nowhere/t.json", &error), BY_EIO);
    static const char pair[] = "{\"version\":\"1.0\",\"decoder\":{\"type\":\"Fuse\"},"
                               "\"model\":{\"vocab\":{\"ab\":0},\"merges\":[]}}";
    assert_int_equal(by_tokenizer_from_json(&t, pair, strlen(pair), "t.json", &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "\"ab\" is not one character"));
}

/* ---- threads ---- */

typedef struct sharing {
    const by_tokenizer *tokenizer;
    const by_token_buffer *expected;
    by_text text;
} sharing;

static by_status encode_again(void *context, size_t i, by_error *error)
{
    const sharing *s = context;
    BY_UNUSED(i);
    for (unsigned round = 0; round < 20; round++) {
        by_token_buffer ids = {0};
        BY_TRY(by_tokenizer_encode(s->tokenizer, s->text.data, s->text.length, &ids, 0, error));
        bool same = ids.count == s->expected->count &&
                    memcmp(ids.ids, s->expected->ids, ids.count * sizeof *ids.ids) == 0;
        by_token_buffer_free(&ids);
        if (!same) {
            return by_error_set(error, BY_ESTATE, "ids differ");
        }
    }
    return BY_OK;
}

static void test_threads_share(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    char *text;
    size_t length;
    by_token_buffer ids = {0};
    by_tokenizer *t = open_golden("tokenizer_small.json");
    assert_int_equal(by__file_read(&text, &length, GOLDEN "tokenizer_corpus.txt", 1 << 20, &error),
                     BY_OK);
    assert_int_equal(by_tokenizer_encode(t, text, length, &ids, 0, &error), BY_OK);
    sharing s = {t, &ids, {text, length}};
    assert_int_equal(by__threads_run(4, encode_again, &s, &error), BY_OK);
    by_token_buffer_free(&ids);
    free(text);
    by_tokenizer_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_ids),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_long_pieces),
        cmocka_unit_test(test_one_megabyte_piece),
        cmocka_unit_test(test_any_bytes_come_back),
        cmocka_unit_test(test_cutting),
        cmocka_unit_test(test_unicode_classes),
        cmocka_unit_test(test_learning),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_saving),
        cmocka_unit_test(test_tiktoken),
        cmocka_unit_test(test_gpt2_files),
        cmocka_unit_test(test_saved_padding),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_threads_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
