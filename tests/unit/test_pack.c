/* Packing: what comes out is the text, in order, whatever the threads; errors leave nothing. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/data.h"
#include "banyan/pack.h"
#include "data/formats/npy.h"
#include "data/formats/token_manifest.h"
#include "temporary.h"

#define SMALL  BY_SOURCE_DIR "/tests/parity/golden/tokenizer_small.json"
#define CORPUS BY_SOURCE_DIR "/tests/parity/golden/tokenizer_corpus.txt"

static char *put(const char *directory, const char *name, const char *text)
{
    by_error error = {0};
    char *path = by__path_join(directory, name);
    if (by__file_write(path, text, strlen(text), &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return path;
}

static char *join(const char *a, const char *b)
{
    char *path = by__path_join(a, b);
    assert_non_null(path);
    return path;
}

/* A packed directory in memory. */
typedef struct packed {
    by__token_manifest manifest;
    uint32_t *ids;
    uint64_t *offsets;
} packed;

static void read_numbers(const char *directory, const char *file, const char *hash, unsigned width,
                         uint64_t count, uint64_t *out)
{
    by_error error = {0};
    by__map map;
    by__npy_info info;
    char found[33];
    char *path = join(directory, file);
    assert_int_equal(by__map_open(&map, path, &error), BY_OK);
    assert_int_equal(by__npy_parse(&info, path, map.data, map.size, &error), BY_OK);
    assert_int_equal(info.width, width);
    assert_int_equal(info.count, count);
    by__hash128_hex(found, map.data + info.offset, map.size - info.offset);
    assert_string_equal(found, hash);
    for (uint64_t i = 0; i < count; i++) {
        out[i] = 0;
        memcpy(&out[i], map.data + info.offset + i * width, width);
    }
    by__map_close(&map);
    free(path);
}

static packed read_packed(const char *directory)
{
    by_error error = {0};
    packed p;
    if (by__token_manifest_read(&p.manifest, directory, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    const by__token_manifest *m = &p.manifest;
    uint64_t *wide = calloc(m->tokens + 1, sizeof *wide);
    p.ids = calloc(m->tokens + 1, sizeof *p.ids);
    p.offsets = calloc(m->documents + 1, sizeof *p.offsets);
    assert_true(wide != NULL && p.ids != NULL && p.offsets != NULL);
    uint64_t at = 0;
    for (size_t i = 0; i < m->shard_count; i++) {
        read_numbers(directory, m->shards[i].file, m->shards[i].hash, m->width, m->shards[i].tokens,
                     wide + at);
        at += m->shards[i].tokens;
    }
    for (uint64_t i = 0; i < m->tokens; i++) {
        p.ids[i] = (uint32_t)wide[i];
    }
    free(wide);
    read_numbers(directory, m->offsets_file, m->offsets_hash, 8, m->documents + 1, p.offsets);
    assert_int_equal(p.offsets[0], 0);
    assert_int_equal(p.offsets[m->documents], m->tokens);
    return p;
}

static void free_packed(packed *p)
{
    by__token_manifest_free(&p->manifest);
    free(p->ids);
    free(p->offsets);
}

/* Document i decodes to `text`, with the end-of-text token behind it or not. */
static void check_document(const packed *p, const by_tokenizer *t, size_t i, const char *text,
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

static void pack(const by_pack_options *options, by_pack_result *result)
{
    by_error error = {0};
    if (by_pack(options, result, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
}

static void test_documents(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *texts = join(directory, "texts");
    char *output = join(directory, "packed");
    by_tokenizer *t;
    by_pack_result result;
    assert_int_equal(by_tokenizer_open(&t, SMALL, NULL), BY_OK);
    assert_int_equal(by__make_dirs(texts, NULL), BY_OK);
    free(put(texts, "b.txt", "second file"));
    free(put(texts, "a.md", "first <|endoftext|> file\n"));
    free(put(texts, "c.jsonl",
             "{\"text\": \"one\", \"id\": 1}\n\n{\"text\": \"\"}\n"
             "{\"text\": \"tw\\u00f6 \\ud83d\\ude00\"}"));
    free(put(texts, "d.txt", ""));
    free(put(texts, "ignored.bin", "no text"));
    const char *inputs[] = {texts};
    by_pack_options options = {.inputs = inputs,
                               .input_count = 1,
                               .output = output,
                               .tokenizer_kind = SMALL,
                               .shard_tokens = 5};
    pack(&options, &result);
    packed p = read_packed(output);
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
    free_packed(&p);
    by_tokenizer_close(&t);
    free(output);
    free(texts);
    temporary_remove(directory);
}

/* About 5 MB over four files, so that there are many units. The first is one long word, which takes
 * longer than the units behind it: they are done before it and have to wait. */
static void make_large(const char *directory)
{
    by_error error = {0};
    char *corpus;
    size_t length;
    by__text text = {0};
    by__text lines = {0};
    by__text word = {0};
    for (uint32_t i = 0, random = 1; i < 300000; i++) {
        random = random * 1664525u + 1013904223u;
        by__text_format(&word, "%c", 'a' + (int)(random >> 28));
    }
    free(put(directory, "a-word.txt", word.data));
    by__text_free(&word);
    assert_int_equal(by__file_read(&corpus, &length, CORPUS, 1 << 20, &error), BY_OK);
    for (unsigned i = 0; i < 200; i++) {
        by__text_add_bytes(&text, corpus, length);
        by__text_add(&lines, "{\"body\": ");
        by__text_json(&lines, corpus + i, length - 20 * i);
        by__text_add(&lines, "}\n");
    }
    free(put(directory, "a.txt", text.data));
    free(put(directory, "b.ndjson", lines.data));
    free(put(directory, "c.txt", corpus));
    by__text_free(&text);
    by__text_free(&lines);
    free(corpus);
}

static void test_threads_do_not_matter(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *texts = join(directory, "texts");
    packed first = {0};
    assert_int_equal(by__make_dirs(texts, NULL), BY_OK);
    make_large(texts);
    const char *inputs[] = {texts};
    for (size_t threads = 1; threads <= 4; threads++) {
        char name[16];
        (void)snprintf(name, sizeof name, "out%zu", threads);
        char *output = join(directory, name);
        by_pack_options options = {.inputs = inputs,
                                   .input_count = 1,
                                   .output = output,
                                   .tokenizer_kind = "bpe",
                                   .tokenizer_vocab = 400,
                                   .field = "body",
                                   .threads = threads};
        pack(&options, NULL);
        packed p = read_packed(output);
        assert_int_equal(p.manifest.documents, 203);
        if (threads == 1) {
            first = p;
        } else {
            assert_string_equal(p.manifest.tokenizer_hash, first.manifest.tokenizer_hash);
            assert_string_equal(p.manifest.shards[0].hash, first.manifest.shards[0].hash);
            assert_string_equal(p.manifest.offsets_hash, first.manifest.offsets_hash);
            free_packed(&p);
        }
        free(output);
    }
    free_packed(&first);
    free(texts);
    temporary_remove(directory);
}

/* The held-out part begins at character floor(n * 0.9), whatever the bytes. */
static void test_held_out(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *output = join(directory, "packed");
    char *train = join(output, "train");
    char *valid = join(output, "valid");
    by__text text = {0};
    for (unsigned i = 0; i < 97; i++) {
        by__text_add(&text, i % 3 == 0 ? "\xc3\xa9" : i % 7 == 0 ? " " : "x");
    }
    char *path = put(directory, "a.txt", text.data);
    const char *inputs[] = {path};
    by_pack_result result;
    by_pack_options options = {.inputs = inputs,
                               .input_count = 1,
                               .output = output,
                               .tokenizer_kind = "char",
                               .valid_fraction = 0.1};
    pack(&options, &result);
    packed a = read_packed(train);
    packed b = read_packed(valid);
    assert_int_equal(a.manifest.tokens, 87); /* int(97 * 0.9) */
    assert_int_equal(b.manifest.tokens, 10);
    assert_int_equal(result.valid_tokens, 10);
    assert_int_equal(result.tokens, 97);
    assert_int_equal(a.manifest.eos, -1);
    assert_int_equal(a.manifest.vocab, 3);
    assert_int_equal(a.manifest.text_bytes + b.manifest.text_bytes, text.length);
    free_packed(&a);
    free_packed(&b);
    by__text_free(&text);
    free(path);
    free(valid);
    free(train);
    free(output);
    temporary_remove(directory);
}

/* JSON lines are held out by whole lines; a text that is cut has no end in its first part. */
static void test_held_out_documents(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *output = join(directory, "lines");
    char *output2 = join(directory, "text");
    char *train = join(output, "train");
    char *valid = join(output, "valid");
    char *train2 = join(output2, "train");
    char *valid2 = join(output2, "valid");
    char *path = put(directory, "a.jsonl",
                     "{\"text\": \"aaa\"}\n{\"text\": \"bbb\"}\n"
                     "{\"text\": \"ccc\"}\n{\"text\": \"ddd\"}\n");
    char *path2 = put(directory, "a.txt", "0123456789");
    const char *inputs[] = {path};
    by_tokenizer *t;
    assert_int_equal(by_tokenizer_open(&t, SMALL, NULL), BY_OK);
    by_pack_options options = {.inputs = inputs,
                               .input_count = 1,
                               .output = output,
                               .tokenizer = t,
                               .valid_fraction = 0.4};
    pack(&options, NULL);
    packed a = read_packed(train);
    packed b = read_packed(valid);
    assert_int_equal(a.manifest.documents, 2); /* 0.6 of four lines is inside the third */
    assert_int_equal(b.manifest.documents, 2);
    check_document(&a, t, 1, "bbb", true);
    check_document(&b, t, 0, "ccc", true);
    free_packed(&a);
    free_packed(&b);
    inputs[0] = path2;
    options.output = output2;
    pack(&options, NULL);
    a = read_packed(train2);
    b = read_packed(valid2);
    check_document(&a, t, 0, "012345", false);
    check_document(&b, t, 0, "6789", true);
    free_packed(&a);
    free_packed(&b);
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
    char *output = join(directory, "packed");
    char *partial = join(directory, "packed.partial");
    char *empty = join(directory, "empty");
    char *text = put(directory, "a.txt", "some text");
    char *nothing = put(directory, "nothing.txt", "");
    char *lines = put(directory, "a.jsonl", "{\"text\": \"a\"}\n\n{\"txt\": \"b\"}\n");
    char *broken = put(directory, "b.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"\n");
    char *number = put(directory, "c.jsonl", "{\"text\": 3}\n");
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
    check_fails(&good, BY_EFORMAT,
                "a.jsonl:3: the field \"text\" is missing; did you mean \"txt\"?");
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
    free(put(partial, ".banyan-partial", ""));
    free(put(partial, "manifest.json", "junk"));
    free(put(partial, "junk", "junk"));
    pack(&good, NULL);
    packed p = read_packed(output);
    free_packed(&p);
    char *junk = join(output, "junk");
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
    char *output = join(directory, "corpus");
    char *partial = join(directory, "corpus.partial");
    char *other = join(directory, "other");
    char *text = put(directory, "a.txt", "some text");
    const char *inputs[] = {text};
    by_pack_options o = {
        .inputs = inputs, .input_count = 1, .output = output, .tokenizer_kind = SMALL};
    assert_int_equal(by__make_dirs(partial, NULL), BY_OK);
    char *mine = put(partial, "thesis.txt", "years of work");
    check_fails(&o, BY_EARG, "corpus.partial is in the way: it holds files that banyan pack did");
    assert_true(by__path_exists(mine));
    assert_int_equal(rename(partial, other), 0);
    assert_int_equal(symlink("other", partial), 0);
    check_fails(&o, BY_EARG, "corpus.partial is in the way and not a directory that banyan pack");
    free(mine);
    mine = join(other, "thesis.txt");
    assert_true(by__path_exists(mine));
    assert_int_equal(unlink(partial), 0);
    /* Neither the link in it nor what it leads to. */
    assert_int_equal(by__make_dirs(partial, NULL), BY_OK);
    free(put(partial, ".banyan-partial", ""));
    char *inside = join(partial, "link");
    assert_int_equal(symlink("../other", inside), 0);
    pack(&o, NULL);
    assert_true(by__path_exists(mine));
    char *marker = join(output, ".banyan-partial");
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
        char *cache = join(directory, "cache");
        char *output = join(directory, "output");
        char *path = put(directory, names[i], texts[i][0]);
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

static void keep_note(void *user, const char *text)
{
    char *notes = user;
    (void)snprintf(notes + strlen(notes), 1000 - strlen(notes), "%s\n", text);
}

/* A link to a directory above it is not followed; one to another directory is. */
static void test_links(void **state)
{
    BY_UNUSED(state);
    char notes[1000] = "";
    char *directory = temporary_make();
    char *texts = join(directory, "texts");
    char *deep = join(texts, "deep");
    char *output = join(directory, "output");
    assert_int_equal(by__make_dirs(deep, NULL), BY_OK);
    free(put(deep, "a.txt", "some text"));
    char *loop = join(deep, "loop");
    char *again = join(texts, "again");
    assert_int_equal(symlink("..", loop), 0);
    assert_int_equal(symlink("deep", again), 0);
    const char *inputs[] = {texts};
    by_pack_options o = {.inputs = inputs,
                         .input_count = 1,
                         .output = output,
                         .tokenizer_kind = SMALL,
                         .note = keep_note,
                         .user = notes};
    pack(&o, NULL);
    packed p = read_packed(output);
    assert_int_equal(p.manifest.documents, 2); /* deep/a.txt and again/a.txt */
    free_packed(&p);
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
            char *marked = join(directory, "marked");
            char *plain = join(directory, "plain");
            assert_int_equal(by__make_dirs(marked, NULL), BY_OK);
            assert_int_equal(by__make_dirs(plain, NULL), BY_OK);
            free(put(marked, names[i], with[i]));
            free(put(plain, names[i], with[i] + 3));
            free(put(marked, "b.txt", "\xef\xbb\xbf")); /* nothing else in it */
            free(put(plain, "b.txt", ""));
            char *outputs[2] = {join(directory, "0"), join(directory, "1")};
            const char *inputs[2] = {marked, plain};
            packed p[2];
            for (size_t k = 0; k < 2; k++) {
                by_pack_options o = {.inputs = &inputs[k],
                                     .input_count = 1,
                                     .output = outputs[k],
                                     .tokenizer_kind = SMALL,
                                     .valid_fraction = split == 1 ? 0.4 : 0.0,
                                     .note = k == 0 ? keep_note : NULL,
                                     .user = notes};
                pack(&o, NULL);
                char *part = split == 1 ? join(outputs[k], "valid") : by__strdup(outputs[k]);
                p[k] = read_packed(part);
                free(part);
            }
            assert_int_equal(p[0].manifest.tokens, p[1].manifest.tokens);
            assert_int_equal(p[0].manifest.text_bytes, p[1].manifest.text_bytes);
            assert_memory_equal(p[0].ids, p[1].ids, p[0].manifest.tokens * sizeof *p[0].ids);
            assert_non_null(strstr(notes, names[i]));
            assert_non_null(strstr(notes, "begins with a byte-order mark, which is left out"));
            for (size_t k = 0; k < 2; k++) {
                free_packed(&p[k]);
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
    const char *inputs[2] = {put(directory, "a.jsonl", text), put(directory, "b.jsonl", clean)};
    char *outputs[2] = {join(directory, "a"), join(directory, "b")};
    by_pack_options o = {.inputs = inputs,
                         .input_count = 1,
                         .output = outputs[0],
                         .tokenizer_kind = "char",
                         .threads = 3,
                         .skip_corrupt = true,
                         .corrupt_budget = 2.0,
                         .note = keep_note,
                         .user = notes};
    check_fails(&o, BY_EFORMAT, "3 of ");
    o.corrupt_budget = 2.9 / LINES;
    check_fails(&o, BY_EFORMAT, "3 of 40000 lines of JSON");
    o.skip_corrupt = false;
    check_fails(&o, BY_EFORMAT, "a.jsonl:2:");
    o.skip_corrupt = true;
    o.corrupt_budget = 3.1 / LINES;
    notes[0] = '\0';
    pack(&o, &result);
    assert_int_equal(result.corrupt_lines, 3);
    assert_int_equal(result.documents, LINES - 3);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "/a.jsonl:%d: left out: ", bad[i]);
        assert_non_null(strstr(notes, line));
    }
    o.inputs = inputs + 1;
    o.output = outputs[1];
    pack(&o, &result);
    assert_int_equal(result.corrupt_lines, 0);
    packed a = read_packed(outputs[0]);
    packed b = read_packed(outputs[1]);
    assert_int_equal(a.manifest.tokens, b.manifest.tokens);
    assert_memory_equal(a.ids, b.ids, a.manifest.tokens * sizeof *a.ids);
    free_packed(&a);
    free_packed(&b);
    for (int i = 0; i < 2; i++) {
        free((void *)(uintptr_t)inputs[i]);
        free(outputs[i]);
    }
    free(text);
    free(clean);
    temporary_remove(directory);
}

static bool count_reads(void *user, uint64_t done, uint64_t total)
{
    int *reads = user;
    assert_true(done <= total);
    (*reads)++;
    return *reads < 100;
}

/* Checksums are read at the first use, and again when a file is another one. */
static void test_verify(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *output = join(directory, "packed");
    char *text = put(directory, "a.txt", "some text to be packed");
    char *shard = join(output, "tokens-00000.npy");
    const char *inputs[] = {text};
    by_error error = {0};
    int reads = 0;
    by_pack_options o = {
        .inputs = inputs, .input_count = 1, .output = output, .tokenizer_kind = SMALL};
    by_data_verify_options verify = {.progress = count_reads, .user = &reads};
    pack(&o, NULL);
    assert_int_equal(by_data_verify(output, &verify, &error), BY_OK);
    assert_int_equal(reads, 2); /* a shard and the offsets */
    assert_int_equal(by_data_verify(output, &verify, &error), BY_OK);
    assert_int_equal(reads, 2);
    verify.always = true;
    assert_int_equal(by_data_verify(output, &verify, &error), BY_OK);
    assert_int_equal(reads, 4);
    verify.always = false;
    /* Other bytes under the old size and time. */
    struct stat info;
    assert_int_equal(stat(shard, &info), 0);
    int fd = open(shard, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "\x01", 1, 128), 1);
    const struct timespec times[2] = {info.st_atim, info.st_mtim};
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(by_data_verify(output, &verify, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "tokens-00000.npy: damaged"));
    assert_int_equal(by_data_verify(output, NULL, &error), BY_EFORMAT); /* still */
    assert_int_equal(by__remove_tree(output, NULL), BY_OK);
    pack(&o, NULL);
    reads = 98;
    assert_int_equal(by_data_verify(output, &verify, &error), BY_ESTOPPED);
    free(shard);
    free(text);
    free(output);
    temporary_remove(directory);
}

/* The hash of the content sees an edit that keeps all sizes. */
static void test_content_hash(void **state)
{
    BY_UNUSED(state);
    static const char *const texts[] = {"ab ab", "ba ab", "ab ab"};
    char hashes[3][33];
    for (size_t i = 0; i < 3; i++) {
        char *directory = temporary_make();
        char *output = join(directory, "packed");
        char *text = put(directory, "a.txt", texts[i]);
        const char *inputs[] = {text};
        by_dataset *data;
        by_pack_options o = {
            .inputs = inputs, .input_count = 1, .output = output, .tokenizer_kind = SMALL};
        pack(&o, NULL);
        assert_int_equal(by_dataset_open(&data, output, NULL, NULL), BY_OK);
        by_dataset_hash(data, hashes[i]);
        by_dataset_close(&data);
        free(text);
        free(output);
        temporary_remove(directory);
    }
    assert_string_not_equal(hashes[0], hashes[1]);
    assert_string_equal(hashes[0], hashes[2]);
}

/* ---- the cache ---- */

static void test_cache(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *cache = join(directory, "cache");
    char *text = put(directory, "a.txt", "to be or not to be");
    const char *inputs[] = {text};
    by_error error = {0};
    by_pack_options options = {.inputs = inputs, .input_count = 1, .tokenizer_kind = "char"};
    char *paths[6];
    struct stat before;
    struct stat after;
    assert_int_equal(by_pack_cached(&paths[0], &options, cache, &error), BY_OK);
    assert_int_equal(stat(paths[0], &before), 0);
    assert_int_equal(by_pack_cached(&paths[1], &options, cache, &error), BY_OK);
    assert_int_equal(stat(paths[1], &after), 0);
    assert_string_equal(paths[0], paths[1]);
    assert_int_equal(before.st_ino, after.st_ino);
    packed p = read_packed(paths[0]);
    assert_int_equal(p.manifest.tokens, 18);
    free_packed(&p);
    options.tokenizer_kind = SMALL;
    assert_int_equal(by_pack_cached(&paths[2], &options, cache, &error), BY_OK);
    options.valid_fraction = 0.5;
    assert_int_equal(by_pack_cached(&paths[3], &options, cache, &error), BY_OK);
    options.no_eos = true;
    assert_int_equal(by_pack_cached(&paths[4], &options, cache, &error), BY_OK);
    free(put(directory, "a.txt", "to be or not to bee"));
    assert_int_equal(by_pack_cached(&paths[5], &options, cache, &error), BY_OK);
    for (size_t i = 1; i < BY_ARRAY_LENGTH(paths); i++) {
        for (size_t k = i + 1; k < BY_ARRAY_LENGTH(paths); k++) {
            assert_string_not_equal(paths[i], paths[k]);
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(paths); i++) {
        free(paths[i]);
    }
    free(text);
    free(cache);
    temporary_remove(directory);
}

/* Processes that ask for the same at the same time all get it, one is killed on its way. */
static void test_cache_is_shared(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *texts = join(directory, "texts");
    char *cache = join(directory, "cache");
    assert_int_equal(by__make_dirs(texts, NULL), BY_OK);
    make_large(texts);
    const char *inputs[] = {texts};
    by_pack_options options = {.inputs = inputs,
                               .input_count = 1,
                               .tokenizer_kind = "bpe",
                               .tokenizer_vocab = 300,
                               .field = "body",
                               .threads = 2};
    pid_t children[5];
    for (size_t i = 0; i < BY_ARRAY_LENGTH(children); i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            char *path;
            _exit(by_pack_cached(&path, &options, cache, NULL) == BY_OK ? 0 : 1);
        }
        if (i == 0) {
            /* It is gone before it is done, most likely while it holds the lock. */
            (void)usleep(100000);
            (void)kill(children[0], SIGKILL);
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(children); i++) {
        int code;
        assert_int_equal(waitpid(children[i], &code, 0), children[i]);
        assert_true(i == 0 || (WIFEXITED(code) && WEXITSTATUS(code) == 0));
    }
    char *path;
    by_error error = {0};
    char **names;
    size_t count;
    assert_int_equal(by_pack_cached(&path, &options, cache, &error), BY_OK);
    packed p = read_packed(path);
    assert_int_equal(p.manifest.documents, 203);
    free_packed(&p);
    assert_int_equal(by__list_dir(&names, &count, cache, &error), BY_OK);
    assert_int_equal(count, 1);
    by__names_free(names, count);
    free(path);
    free(cache);
    free(texts);
    temporary_remove(directory);
}

static bool stop_waiting(void *user, const by_pack_progress *progress)
{
    BY_UNUSED(user);
    return strcmp(progress->phase, "waiting") != 0;
}

static bool hold(void *user, const by_pack_progress *progress)
{
    const int *ready = user;
    if (strcmp(progress->phase, "packing") == 0) {
        assert_int_equal(write(ready[1], "x", 1), 1);
        (void)pause();
    }
    return true;
}

/* Who waits for another process says so, and may be stopped. */
static void test_waiting(void **state)
{
    BY_UNUSED(state);
    char notes[1000] = "";
    char *directory = temporary_make();
    char *cache = join(directory, "cache");
    char *text = put(directory, "a.txt", "some text");
    const char *inputs[] = {text};
    char *path = NULL;
    by_error error = {0};
    char byte;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    by_pack_options o = {.inputs = inputs,
                         .input_count = 1,
                         .tokenizer_kind = SMALL,
                         .progress = hold,
                         .user = ready};
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(by_pack_cached(&path, &o, cache, NULL) == BY_OK ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    o.progress = stop_waiting;
    o.note = keep_note;
    o.user = notes;
    assert_int_equal(by_pack_cached(&path, &o, cache, &error), BY_ESTOPPED);
    assert_non_null(strstr(notes, "waiting for another process that packs into "));
    assert_non_null(strstr(error.message, "stopped while waiting"));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(by_pack_cached(&path, &o, cache, &error), BY_OK);
    (void)close(ready[0]);
    (void)close(ready[1]);
    free(path);
    free(text);
    free(cache);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_held_out),
        cmocka_unit_test(test_held_out_documents),
        cmocka_unit_test(test_errors_leave_nothing),
        cmocka_unit_test(test_partial_of_others),
        cmocka_unit_test(test_text_that_changes),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_byte_order_mark),
        cmocka_unit_test(test_damaged_lines),
        cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_content_hash),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_cache_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
