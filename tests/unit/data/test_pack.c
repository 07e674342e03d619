/* Packing: what comes out is the text, in order, whatever the threads; errors leave nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/data.h"
#include "banyan/pack.h"
#include "pack_text.h"
#include "temporary.h"

/* Document i decodes to `text`, with the end-of-text token behind it or not. */
static void check_document(const packed_text *p, const by_tokenizer *t, size_t i, const char *text,
                           bool eos)
{
    char *back;
    size_t length;
    uint64_t begin = p->offsets[i];
    uint64_t end = p->offsets[i + 1];
    if (eos) {
        assert_int_equal(p->ids[end - 1], by_tokenizer_eos(t));
        end--;
    }
    assert_int_equal(by_tokenizer_decode(t, p->ids + begin, end - begin, &back, &length, NULL),
                     BY_OK);
    assert_string_equal(back, text);
    assert_int_equal(length, strlen(text));
    free(back);
}

static void test_documents(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *texts = pack_join(directory, "texts");
    char *output = pack_join(directory, "packed");
    by_tokenizer *t;
    by_pack_result result;
    assert_int_equal(by_tokenizer_open(&t, SMALL, NULL), BY_OK);
    assert_int_equal(by__make_dirs(texts, NULL), BY_OK);
    free(pack_put(texts, "b.txt", "second file"));
    free(pack_put(texts, "a.md", "first <|endoftext|> file\n"));
    /* What nobody reads is no matter. */
    free(pack_put(texts, "c.jsonl",
                  "\xef\xbb\xbf{\"text\": \"one\", \"id\": 123456789012345678901}\n\n"
                  "{\"x\": [1e400, \"\\u0000\", {\"\\udc00\": null}], \"text\": \"\"}\n"
                  "{\"text\": \"tw\\u00f6 \\ud83d\\ude00\", \"\\u0000\": \"\\ud800\"}"));
    free(pack_put(texts, "d.txt", ""));
    free(pack_put(texts, "ignored.bin", "no text"));
    const char *inputs[] = {texts};
    by_pack_options options = {.inputs = inputs,
                               .input_count = 1,
                               .output = output,
                               .tokenizer_kind = SMALL,
                               .shard_tokens = 5};
    pack_run(&options, &result);
    packed_text p = pack_read(output);
    assert_int_equal(p.manifest.documents, 4);
    assert_int_equal(p.manifest.width, 2);
    assert_int_equal(p.manifest.eos, 0);
    assert_int_equal(p.manifest.vocab, 600);
    assert_int_equal(p.manifest.text_bytes, 25 + 11 + 3 + 9);
    assert_int_equal(p.manifest.source_count, 4);
    assert_int_equal(p.manifest.shard_count, (p.manifest.tokens + 4) / 5);
    assert_string_equal(p.manifest.tokenizer_hash, by_tokenizer_hash(t));
    check_document(&p, t, 0, "first <|endoftext|> file\n", true);
    check_document(&p, t, 1, "second file", true);
    check_document(&p, t, 2, "one", true);
    check_document(&p, t, 3, "tw\xc3\xb6 \xf0\x9f\x98\x80", true);
    assert_int_equal(result.tokens, p.manifest.tokens);
    assert_int_equal(result.documents, 4);
    assert_int_equal(result.text_bytes, p.manifest.text_bytes);
    assert_int_equal(result.vocab, 600);
    /* A document cannot forge the end of one. */
    for (uint64_t i = 0; i + 1 < p.offsets[1]; i++) {
        assert_int_not_equal(p.ids[i], 0);
    }
    by_tokenizer *copy;
    assert_int_equal(by_tokenizer_open(&copy, output, NULL), BY_OK);
    assert_string_equal(by_tokenizer_hash(copy), by_tokenizer_hash(t));
    by_tokenizer_close(&copy);
    pack_free(&p);
    by_tokenizer_close(&t);
    free(output);
    free(texts);
    temporary_remove(directory);
}

static void test_threads_do_not_matter(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *texts = pack_join(directory, "texts");
    packed_text first = {0};
    assert_int_equal(by__make_dirs(texts, NULL), BY_OK);
    pack_make_large(texts);
    const char *inputs[] = {texts};
    for (size_t threads = 1; threads <= 4; threads++) {
        char name[16];
        (void)snprintf(name, sizeof name, "out%zu", threads);
        char *output = pack_join(directory, name);
        by_pack_options options = {.inputs = inputs,
                                   .input_count = 1,
                                   .output = output,
                                   .tokenizer_kind = "bpe",
                                   .tokenizer_vocab = 400,
                                   .field = "body",
                                   .threads = threads};
        pack_run(&options, NULL);
        packed_text p = pack_read(output);
        assert_int_equal(p.manifest.documents, 203);
        if (threads == 1) {
            first = p;
        } else {
            assert_string_equal(p.manifest.tokenizer_hash, first.manifest.tokenizer_hash);
            assert_string_equal(p.manifest.shards[0].hash, first.manifest.shards[0].hash);
            assert_string_equal(p.manifest.offsets_hash, first.manifest.offsets_hash);
            pack_free(&p);
        }
        free(output);
    }
    pack_free(&first);
    free(texts);
    temporary_remove(directory);
}

/* The held-out part begins at character floor(n * 0.9), whatever the bytes. */
static void test_held_out(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *output = pack_join(directory, "packed");
    char *train = pack_join(output, "train");
    char *valid = pack_join(output, "valid");
    by_string text = {0};
    for (unsigned i = 0; i < 97; i++) {
        by__string_append(&text, i % 3 == 0 ? "\xc3\xa9" : i % 7 == 0 ? " " : "x");
    }
    char *path = pack_put(directory, "a.txt", text.data);
    const char *inputs[] = {path};
    by_pack_result result;
    by_pack_options options = {.inputs = inputs,
                               .input_count = 1,
                               .output = output,
                               .tokenizer_kind = "char",
                               .valid_fraction = 0.1};
    pack_run(&options, &result);
    packed_text a = pack_read(train);
    packed_text b = pack_read(valid);
    assert_int_equal(a.manifest.tokens, 87); /* int(97 * 0.9) */
    assert_int_equal(b.manifest.tokens, 10);
    assert_int_equal(result.valid_tokens, 10);
    assert_int_equal(result.tokens, 97);
    assert_int_equal(a.manifest.eos, -1);
    assert_int_equal(a.manifest.vocab, 3);
    assert_int_equal(a.manifest.text_bytes + b.manifest.text_bytes, text.length);
    pack_free(&a);
    pack_free(&b);
    by_string_free(&text);
    free(path);
    free(valid);
    free(train);
    free(output);
    temporary_remove(directory);
}

/* A document of JSON lines that is most of the text is cut where the held-out part begins: held out
 * as a whole it would leave too little. */
static void test_held_out_in_a_document(void **state)
{
    static const struct {
        const char *text;
        const char *train[2]; /* of the documents */
        const char *valid[2];
    } cases[] = {
        {"{\"text\": \"0123456789\"}\n", {"012345"}, {"6789"}},
        {"{\"text\": \"0123456789\"}", {"012345"}, {"6789"}},
        {"\n{\"text\": \"\\u00e9123456\\u00e989\"}\n{\"text\": \"a\"}\n",
         {"\xc3\xa9"
          "123456\xc3\xa9"},
         {"89", "a"}},
        {"{\"text\": \"a\"}\n{\"text\": \"01234567890123456789012345678901234567890123456789\"}\n",
         {"a", "0123456789012345678901234"},
         {"5678901234567890123456789"}},
    };
    BY_UNUSED(state);
    by_tokenizer *t;
    assert_int_equal(by_tokenizer_open(&t, SMALL, NULL), BY_OK);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        char *directory = temporary_make();
        char *output = pack_join(directory, "packed");
        char *train = pack_join(output, "train");
        char *valid = pack_join(output, "valid");
        char *path = pack_put(directory, "a.jsonl", cases[i].text);
        const char *inputs[] = {path};
        by_pack_options options = {.inputs = inputs,
                                   .input_count = 1,
                                   .output = output,
                                   .tokenizer = t,
                                   .threads = 3,
                                   .valid_fraction = 0.4};
        pack_run(&options, NULL);
        packed_text a = pack_read(train);
        packed_text b = pack_read(valid);
        for (size_t k = 0; k < 2; k++) {
            bool last = k == 1 || cases[i].train[1] == NULL;
            if (cases[i].train[k] != NULL) {
                check_document(&a, t, k, cases[i].train[k], !last);
            }
            if (cases[i].valid[k] != NULL) {
                check_document(&b, t, k, cases[i].valid[k], true);
            }
        }
        pack_free(&a);
        pack_free(&b);
        free(path);
        free(valid);
        free(train);
        free(output);
        temporary_remove(directory);
    }
    by_tokenizer_close(&t);
}

/* JSON lines are held out by whole lines; a text that is cut has no end in its first part. */
static void test_held_out_documents(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *output = pack_join(directory, "lines");
    char *output2 = pack_join(directory, "text");
    char *train = pack_join(output, "train");
    char *valid = pack_join(output, "valid");
    char *train2 = pack_join(output2, "train");
    char *valid2 = pack_join(output2, "valid");
    char *path = pack_put(directory, "a.jsonl",
                          "{\"text\": \"aaa\"}\n{\"text\": \"bbb\"}\n"
                          "{\"text\": \"ccc\"}\n{\"text\": \"ddd\"}\n");
    char *path2 = pack_put(directory, "a.txt", "0123456789");
    const char *inputs[] = {path};
    by_tokenizer *t;
    assert_int_equal(by_tokenizer_open(&t, SMALL, NULL), BY_OK);
    by_pack_options options = {.inputs = inputs,
                               .input_count = 1,
                               .output = output,
                               .tokenizer = t,
                               .valid_fraction = 0.4};
    pack_run(&options, NULL);
    packed_text a = pack_read(train);
    packed_text b = pack_read(valid);
    assert_int_equal(a.manifest.documents, 2); /* 0.6 of four lines is inside the third */
    assert_int_equal(b.manifest.documents, 2);
    check_document(&a, t, 1, "bbb", true);
    check_document(&b, t, 0, "ccc", true);
    pack_free(&a);
    pack_free(&b);
    inputs[0] = path2;
    options.output = output2;
    pack_run(&options, NULL);
    a = pack_read(train2);
    b = pack_read(valid2);
    check_document(&a, t, 0, "012345", false);
    check_document(&b, t, 0, "6789", true);
    pack_free(&a);
    pack_free(&b);
    by_tokenizer_close(&t);
    free(path);
    free(path2);
    free(valid);
    free(train);
    free(valid2);
    free(train2);
    free(output);
    free(output2);
    temporary_remove(directory);
}

static void check_fails(const by_pack_options *options, by_status status, const char *message)
{
    by_error error = {0};
    by_status found = by_pack(options, NULL, &error);
    if (found != status || strstr(error.message, message) == NULL) {
        fail_msg("expected %d \"%s\", found %d \"%s\"", status, message, found, error.message);
    }
}

static bool stop(void *user, const by_pack_progress *progress)
{
    return strcmp(progress->phase, user) != 0;
}

static void test_errors_leave_nothing(void **state)
{
    BY_UNUSED(state);
    static char phases[3][12] = {"reading", "tokenizer", "packing"};
    char *directory = temporary_make();
    char *output = pack_join(directory, "packed");
    char *partial = pack_join(directory, "packed.partial");
    char *empty = pack_join(directory, "empty");
    char *text = pack_put(directory, "a.txt", "some text");
    char *nothing = pack_put(directory, "nothing.txt", "");
    char *lines = pack_put(directory, "a.jsonl", "{\"text\": \"a\"}\n\n{\"txt\": \"b\"}\n");
    char *broken = pack_put(directory, "b.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"\n");
    char *number = pack_put(directory, "c.jsonl", "{\"text\": 3}\n");
    const char *inputs[] = {text};
    by_pack_options good = {
        .inputs = inputs, .input_count = 1, .output = output, .tokenizer_kind = SMALL};
    by_pack_options o = good;
    assert_int_equal(by__make_dirs(empty, NULL), BY_OK);
    o.output = NULL;
    check_fails(&o, BY_EARG, "output");
    o = good;
    o.tokenizer_kind = NULL;
    check_fails(&o, BY_EARG, "tokenizer");
    o = good;
    o.valid_fraction = 1.0;
    check_fails(&o, BY_EARG, "valid_fraction 1");
    o = good;
    o.input_count = 0;
    check_fails(&o, BY_EARG, "no text");
    o = good;
    o.tokenizer_kind = "/nowhere/t.json";
    check_fails(&o, BY_EIO, "/nowhere/t.json");
    for (size_t i = 0; i < 3; i++) {
        o = good;
        o.tokenizer_kind = "char";
        o.progress = stop;
        o.user = phases[i];
        check_fails(&o, BY_ESTOPPED, "stopped");
    }
    inputs[0] = "/nowhere/a.txt";
    check_fails(&good, BY_EIO, "/nowhere/a.txt");
    inputs[0] = empty;
    check_fails(&good, BY_EARG, "holds no file");
    inputs[0] = nothing;
    check_fails(&good, BY_EFORMAT, "no text");
    inputs[0] = lines;
    check_fails(
        &good, BY_EFORMAT,
        "a.jsonl:3: the field \"text\" is missing; did you mean \"txt\"? data.field (--field "
        "of pack) names the one with the text");
    o = good;
    o.tokenizer_kind = "bpe";
    o.tokenizer_vocab = 300;
    check_fails(&o, BY_EFORMAT, "a.jsonl:3:");
    inputs[0] = broken;
    check_fails(&good, BY_EFORMAT, "b.jsonl:2:");
    inputs[0] = number;
    check_fails(&good, BY_EFORMAT, "c.jsonl:1: the field \"text\" is not a string");
    assert_false(by__path_exists(output));
    assert_false(by__path_exists(partial));
    /* What a killed process has left is replaced. */
    inputs[0] = text;
    assert_int_equal(by__make_dirs(partial, NULL), BY_OK);
    free(pack_put(partial, ".banyan-partial", ""));
    free(pack_put(partial, "manifest.json", "junk"));
    free(pack_put(partial, "junk", "junk"));
    pack_run(&good, NULL);
    packed_text p = pack_read(output);
    pack_free(&p);
    char *junk = pack_join(output, "junk");
    assert_false(by__path_exists(junk));
    assert_false(by__path_exists(partial));
    check_fails(&good, BY_EARG, "exists");
    free(junk);
    free(text);
    free(nothing);
    free(lines);
    free(broken);
    free(number);
    free(empty);
    free(partial);
    free(output);
    temporary_remove(directory);
}

/* What somebody else has put where the unfinished directory goes is never removed, nor what a link
 * of that name leads to. */
static void test_partial_of_others(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *output = pack_join(directory, "corpus");
    char *partial = pack_join(directory, "corpus.partial");
    char *other = pack_join(directory, "other");
    char *text = pack_put(directory, "a.txt", "some text");
    const char *inputs[] = {text};
    by_pack_options o = {
        .inputs = inputs, .input_count = 1, .output = output, .tokenizer_kind = SMALL};
    assert_int_equal(by__make_dirs(partial, NULL), BY_OK);
    char *mine = pack_put(partial, "thesis.txt", "years of work");
    check_fails(&o, BY_EARG, "corpus.partial contains files that banyan pack did");
    assert_true(by__path_exists(mine));
    assert_int_equal(rename(partial, other), 0);
    assert_int_equal(symlink("other", partial), 0);
    check_fails(&o, BY_EARG, "corpus.partial exists and was not made by banyan pack");
    free(mine);
    mine = pack_join(other, "thesis.txt");
    assert_true(by__path_exists(mine));
    assert_int_equal(unlink(partial), 0);
    /* Neither the link in it nor what it leads to. */
    assert_int_equal(by__make_dirs(partial, NULL), BY_OK);
    free(pack_put(partial, ".banyan-partial", ""));
    char *inside = pack_join(partial, "link");
    assert_int_equal(symlink("../other", inside), 0);
    pack_run(&o, NULL);
    assert_true(by__path_exists(mine));
    char *marker = pack_join(output, ".banyan-partial");
    assert_false(by__path_exists(marker));
    free(marker);
    free(inside);
    free(mine);
    free(text);
    free(other);
    free(partial);
    free(output);
    temporary_remove(directory);
}

/* The text is edited, at equal length, between the scan that names it and the encoding. */
typedef struct edit {
    const char *path;
    const char *text;
    bool done;
} edit;

static bool edit_when_read(void *user, const by_pack_progress *progress)
{
    edit *e = user;
    if (!e->done && progress->done_bytes == progress->total_bytes) {
        e->done = true;
        assert_int_equal(by__file_write(e->path, e->text, strlen(e->text), NULL), BY_OK);
    }
    return true;
}

static void test_text_that_changes(void **state)
{
    BY_UNUSED(state);
    static const char *const names[] = {"a.txt", "a.jsonl"};
    static const char *const texts[][2] = {{"ab ab ab", "ab ba ab"},
                                           {"{\"text\": \"ab\"}\n", "{\"text\": \"ba\"}\n"}};
    for (size_t i = 0; i < 2; i++) {
        char *directory = temporary_make();
        char *cache = pack_join(directory, "cache");
        char *output = pack_join(directory, "output");
        char *path = pack_put(directory, names[i], texts[i][0]);
        const char *inputs[] = {path};
        char *packed_path = NULL;
        by_error error = {0};
        edit e = {.path = path, .text = texts[i][1]};
        by_pack_options o = {.inputs = inputs,
                             .input_count = 1,
                             .output = output,
                             .tokenizer_kind = SMALL,
                             .progress = edit_when_read,
                             .user = &e};
        check_fails(&o, BY_EFORMAT, "changed while it was packed");
        assert_true(e.done);
        e = (edit){.path = path, .text = texts[i][0]};
        assert_int_equal(by_pack_cached(&packed_path, &o, cache, &error), BY_EFORMAT);
        assert_non_null(strstr(error.message, "changed while it was packed"));
        char **left;
        size_t count;
        assert_int_equal(by__list_dir(&left, &count, cache, NULL), BY_OK);
        assert_int_equal(count, 0);
        by__names_free(left, count);
        assert_int_equal(by_pack_cached(&packed_path, &o, cache, &error), BY_OK);
        free(packed_path);
        free(path);
        free(output);
        free(cache);
        temporary_remove(directory);
    }
}

/* A link to a directory above it is not followed; one to another directory is. */
static void test_links(void **state)
{
    BY_UNUSED(state);
    char notes[1000] = "";
    char *directory = temporary_make();
    char *texts = pack_join(directory, "texts");
    char *deep = pack_join(texts, "deep");
    char *output = pack_join(directory, "output");
    assert_int_equal(by__make_dirs(deep, NULL), BY_OK);
    free(pack_put(deep, "a.txt", "some text"));
    char *loop = pack_join(deep, "loop");
    char *again = pack_join(texts, "again");
    assert_int_equal(symlink("..", loop), 0);
    assert_int_equal(symlink("deep", again), 0);
    const char *inputs[] = {texts};
    by_pack_options o = {.inputs = inputs,
                         .input_count = 1,
                         .output = output,
                         .tokenizer_kind = SMALL,
                         .note = pack_keep_note,
                         .user = notes};
    pack_run(&o, NULL);
    packed_text p = pack_read(output);
    assert_int_equal(p.manifest.documents, 2); /* deep/a.txt and again/a.txt */
    pack_free(&p);
    assert_non_null(strstr(notes, "/texts/again/loop leads back to a directory that it is in: not "
                                  "followed (other links too)\n"));
    free(again);
    free(loop);
    free(output);
    free(deep);
    free(texts);
    temporary_remove(directory);
}

/* Editors' byte-order marks are no text. */
static void test_byte_order_mark(void **state)
{
    BY_UNUSED(state);
    static const char *const with[] = {"\xef\xbb\xbfone two three",
                                       "\xef\xbb\xbf{\"text\": \"one two\"}\n"};
    static const char *const names[] = {"a.txt", "a.jsonl"};
    for (size_t i = 0; i < 2; i++) {
        for (int split = 0; split < 2; split++) {
            char notes[1000] = "";
            char *directory = temporary_make();
            char *marked = pack_join(directory, "marked");
            char *plain = pack_join(directory, "plain");
            assert_int_equal(by__make_dirs(marked, NULL), BY_OK);
            assert_int_equal(by__make_dirs(plain, NULL), BY_OK);
            free(pack_put(marked, names[i], with[i]));
            free(pack_put(plain, names[i], with[i] + 3));
            free(pack_put(marked, "b.txt", "\xef\xbb\xbf")); /* nothing else in it */
            free(pack_put(plain, "b.txt", ""));
            char *outputs[2] = {pack_join(directory, "0"), pack_join(directory, "1")};
            const char *inputs[2] = {marked, plain};
            packed_text p[2];
            for (size_t k = 0; k < 2; k++) {
                by_pack_options o = {.inputs = &inputs[k],
                                     .input_count = 1,
                                     .output = outputs[k],
                                     .tokenizer_kind = SMALL,
                                     .valid_fraction = split == 1 ? 0.4 : 0.0,
                                     .note = k == 0 ? pack_keep_note : NULL,
                                     .user = notes};
                pack_run(&o, NULL);
                char *part = split == 1 ? pack_join(outputs[k], "valid") : by__strdup(outputs[k]);
                p[k] = pack_read(part);
                free(part);
            }
            assert_int_equal(p[0].manifest.tokens, p[1].manifest.tokens);
            assert_int_equal(p[0].manifest.text_bytes, p[1].manifest.text_bytes);
            assert_memory_equal(p[0].ids, p[1].ids, p[0].manifest.tokens * sizeof *p[0].ids);
            assert_non_null(strstr(notes, names[i]));
            assert_non_null(strstr(notes, "begins with a byte-order mark, which is left out"));
            for (size_t k = 0; k < 2; k++) {
                pack_free(&p[k]);
                free(outputs[k]);
            }
            free(plain);
            free(marked);
            temporary_remove(directory);
        }
    }
}

/* Lines of JSON that hold no text are left out within the budget, each with its file and line, also
 * where threads share the file; with them the rest is what it is without them. */
static void test_damaged_lines(void **state)
{
    BY_UNUSED(state);
    enum { LINES = 40000 };
    static const int bad[] = {2, 20001, 39999};
    char notes[1000] = "";
    by_pack_result result;
    char *directory = temporary_make();
    char *text = malloc(LINES * 64);
    char *clean = malloc(LINES * 64);
    assert_non_null(text);
    assert_non_null(clean);
    size_t n = 0;
    size_t m = 0;
    for (int i = 1; i <= LINES; i++) {
        bool is_bad = i == bad[0] || i == bad[1] || i == bad[2];
        n += (size_t)sprintf(
            text + n, is_bad ? "{\"text\": %d\n" : "{\"text\": \"this is line %d of it\"}\n", i);
        m += is_bad ? 0 : (size_t)sprintf(clean + m, "{\"text\": \"this is line %d of it\"}\n", i);
    }
    const char *inputs[2] = {pack_put(directory, "a.jsonl", text),
                             pack_put(directory, "b.jsonl", clean)};
    char *outputs[2] = {pack_join(directory, "a"), pack_join(directory, "b")};
    by_pack_options o = {.inputs = inputs,
                         .input_count = 1,
                         .output = outputs[0],
                         .tokenizer_kind = "char",
                         .threads = 3,
                         .skip_corrupt = true,
                         .corrupt_budget = 2.0,
                         .note = pack_keep_note,
                         .user = notes};
    check_fails(&o, BY_EFORMAT, "3 of ");
    o.corrupt_budget = 2.9 / LINES;
    check_fails(&o, BY_EFORMAT, "3 of 40000 lines of JSON");
    o.corrupt_budget = 0.0;
    check_fails(&o, BY_EFORMAT, "3 of 40000 lines of JSON");
    o.skip_corrupt = false;
    check_fails(&o, BY_EFORMAT, "a.jsonl:2:");
    o.skip_corrupt = true;
    o.corrupt_budget = 3.1 / LINES;
    notes[0] = '\0';
    pack_run(&o, &result);
    assert_int_equal(result.corrupt_lines, 3);
    assert_int_equal(result.documents, LINES - 3);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "/a.jsonl:%d: left out: ", bad[i]);
        assert_non_null(strstr(notes, line));
    }
    o.inputs = inputs + 1;
    o.output = outputs[1];
    pack_run(&o, &result);
    assert_int_equal(result.corrupt_lines, 0);
    packed_text a = pack_read(outputs[0]);
    packed_text b = pack_read(outputs[1]);
    assert_int_equal(a.manifest.tokens, b.manifest.tokens);
    assert_memory_equal(a.ids, b.ids, a.manifest.tokens * sizeof *a.ids);
    pack_free(&a);
    pack_free(&b);
    for (int i = 0; i < 2; i++) {
        free((void *)(uintptr_t)inputs[i]);
        free(outputs[i]);
    }
    free(text);
    free(clean);
    temporary_remove(directory);
}

/* A share of few lines is less than one of them; one is left out all the same, and no second. */
static void test_damage_of_few_lines(void **state)
{
    BY_UNUSED(state);
    char notes[1000] = "";
    by_pack_result result;
    char *directory = temporary_make();
    const char *input = pack_put(directory, "a.jsonl",
                                 "{\"text\": \"one\"}\n{\"text\": 2}\n{\"text\": \"three\"}\n");
    const char *worse =
        pack_put(directory, "b.jsonl", "{\"text\": \"one\"}\n{\"text\": 2}\n{\"text\": 3}\n");
    char *output = pack_join(directory, "out");
    by_pack_options o = {.inputs = &input,
                         .input_count = 1,
                         .output = output,
                         .tokenizer_kind = "char",
                         .skip_corrupt = true,
                         .corrupt_budget = 0.01,
                         .note = pack_keep_note,
                         .user = notes};
    pack_run(&o, &result);
    assert_int_equal(result.corrupt_lines, 1);
    o.inputs = &worse;
    char *other = pack_join(directory, "other");
    o.output = other;
    check_fails(&o, BY_EFORMAT, "2 of 3 lines of JSON");
    o.inputs = &input;
    o.corrupt_budget = 0.0;
    check_fails(&o, BY_EFORMAT, "1 of 3 lines of JSON");
    free((void *)(uintptr_t)input);
    free((void *)(uintptr_t)worse);
    free(output);
    free(other);
    temporary_remove(directory);
}

/* Files that are no text are refused under any name. */
static void test_no_text(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    const char *input = pack_put(directory, "book.txt", "%PDF-1.4 and more");
    char *output = pack_join(directory, "out");
    const by_pack_options o = {
        .inputs = &input, .input_count = 1, .output = output, .tokenizer_kind = "char"};
    check_fails(&o, BY_EFORMAT, "book.txt is no text: it is a PDF");
    free((void *)(uintptr_t)input);
    input = pack_put(directory, "nothing.txt", "");
    check_fails(&o, BY_EFORMAT, "nothing.txt holds no text: it is empty");
    free((void *)(uintptr_t)input);
    free(output);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_held_out),
        cmocka_unit_test(test_held_out_documents),
        cmocka_unit_test(test_held_out_in_a_document),
        cmocka_unit_test(test_errors_leave_nothing),
        cmocka_unit_test(test_partial_of_others),
        cmocka_unit_test(test_text_that_changes),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_byte_order_mark),
        cmocka_unit_test(test_damaged_lines),
        cmocka_unit_test(test_damage_of_few_lines),
        cmocka_unit_test(test_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
