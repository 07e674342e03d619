/* Packed conversations: what is learned, held out, left out and cut, and files that are damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/data.h"
#include "banyan/pack.h"
#include "base/base.h"
#include "data/corpus/token_weights.h"
#include "runner.h"
#include "temporary.h"

#define QA(q, a) "{\"question\": \"" q "\", \"answer\": \"" a "\"}"

static const char template[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
                               "{% if add_generation_prompt %}<assistant>{% endif %}";

typedef struct packing {
    char *folder;
    char input[512];
    char output[512];
    by_chat *chat;
    by_tokenizer *tokenizer;
    by_pack_chat how;
    by_pack_options options;
    const char *inputs[1];
    char notes[2048];
} packing;

static void keep_note(void *user, const char *text)
{
    packing *p = user;
    size_t length = strlen(p->notes);
    (void)snprintf(p->notes + length, sizeof p->notes - length, "%s\n", text);
}

/* Prepares to pack a file of this content; the tokens are bytes. */
static void open_packing(packing *p, const char *name, const char *content)
{
    by_error error = {0};
    const by_bpe_options options = {.vocab = 257, .threads = 1};
    const by_text text = {"a", 1};
    *p = (packing){.folder = temporary_make()};
    (void)snprintf(p->input, sizeof p->input, "%.200s/%s", p->folder, name);
    (void)snprintf(p->output, sizeof p->output, "%.200s/packed", p->folder);
    check_ok(by__file_write(p->input, content, strlen(content), &error), &error);
    check_ok(by_chat_parse(&p->chat, template, sizeof template - 1, "t", &error), &error);
    check_ok(by_tokenizer_train_bpe(&p->tokenizer, &options, &text, 1, &error), &error);
    p->how.chat = p->chat;
    p->inputs[0] = p->input;
    p->options = (by_pack_options){.inputs = p->inputs,
                                   .input_count = 1,
                                   .output = p->output,
                                   .tokenizer = p->tokenizer,
                                   .chat = &p->how,
                                   .threads = 1,
                                   .note = keep_note,
                                   .user = p};
}

static void close_packing(packing *p)
{
    by_chat_close(&p->chat);
    by_tokenizer_close(&p->tokenizer);
    temporary_remove(p->folder);
}

/* The text of a packed directory, with what is learned in brackets and "|" between documents. */
static void read_back(const packing *p, const char *part, char out[1024])
{
    char path[600];
    by_error error = {0};
    by_dataset *set;
    by_token_weights *mask;
    int32_t ids[512];
    by_string text = {0};
    (void)snprintf(path, sizeof path, "%s%s", p->output, part);
    check_ok(by_dataset_open(&set, path, &(by_dataset_options){.verify = true}, &error), &error);
    check_ok(by_token_mask_open(&mask, set, &error), &error);
    size_t count = (size_t)by_dataset_tokens(set);
    assert_true(count <= BY_ARRAY_LENGTH(ids));
    check_ok(by_dataset_read(set, 0, count, ids, &error), &error);
    for (size_t i = 0; i < count; i++) {
        const char *bytes;
        size_t length;
        uint64_t begin;
        bool learned = by__data_token_weight(mask, i) > 0.0f;
        check_ok(by_dataset_document_at(set, i, NULL, &begin, NULL, &error), &error);
        check_ok(by_tokenizer_token_bytes(p->tokenizer, (uint32_t)ids[i], &bytes, &length, &error),
                 &error);
        by_string_add(&text, "|", begin == i && i > 0);
        by_string_add(&text, learned ? "[" : "", learned);
        by_string_add(&text, bytes, length);
        by_string_add(&text, learned ? "]" : "", learned);
    }
    (void)snprintf(out, 1024, "%s", text.data);
    by_string_free(&text);
    by_token_weights_close(&mask);
    by_dataset_close(&set);
}

static void test_lines(void **state)
{
    packing p;
    by_pack_result result;
    by_dataset *set;
    by_dataset_chat chat;
    by_error error = {0};
    char text[1024];
    BY_UNUSED(state);
    open_packing(&p, "talks.jsonl",
                 QA("1", "a") "\n\n" QA("2", "b") "\n{\"question\": \"3\"}\n{\"messages\": [\n" QA(
                     "a question that is too long", "c") "\n" QA("4", "d"));
    p.how.options.context = 24;
    assert_int_equal(by_pack(&p.options, &result, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "talks.jsonl:4: the fields are those of no form"));
    p.options.skip_corrupt = true;
    p.options.corrupt_budget = 1.0;
    assert_int_equal(by_pack(&p.options, &result, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "more than corrupt_budget"));
    p.options.corrupt_budget = 2.0;
    p.notes[0] = '\0';
    check_ok(by_pack(&p.options, &result, &error), &error);
    assert_int_equal(result.documents, 3);
    assert_int_equal(result.corrupt_lines, 2);
    assert_int_equal(result.too_long, 1);
    assert_int_equal(result.targets, 6);
    assert_non_null(strstr(p.notes, "talks.jsonl:4: left out"));
    assert_non_null(strstr(p.notes, "talks.jsonl:5: left out"));
    assert_non_null(strstr(p.notes, "1 samples are longer than the context of 24"));
    read_back(&p, "", text);
    assert_string_equal(text, "<user>1;<assistant>[a][;]|<user>2;<assistant>[b][;]|"
                              "<user>4;<assistant>[d][;]");
    check_ok(by_dataset_open(&set, p.output, NULL, &error), &error);
    assert_true(by_dataset_is_chat(set, &chat));
    assert_int_equal(chat.records, 6);
    assert_int_equal(chat.corrupt, 2);
    assert_int_equal(chat.lost, 2);
    by_dataset_close(&set);
    close_packing(&p);
}

static void test_list(void **state)
{
    packing p;
    by_pack_result result;
    by_error error = {0};
    char text[1024];
    BY_UNUSED(state);
    open_packing(
        &p, "talks.json",
        "[\n" QA("1", "]") ",\n" QA("2", "\\\"}") ", " QA("3", "c") ",\n" QA("4", "d") "\n]\n");
    p.options.valid_fraction = 0.5;
    check_ok(by_pack(&p.options, &result, &error), &error);
    read_back(&p, "/train", text);
    assert_string_equal(text, "<user>1;<assistant>[]][;]|<user>3;<assistant>[c][;]");
    read_back(&p, "/valid", text);
    assert_string_equal(text, "<user>2;<assistant>[\"][}][;]|<user>4;<assistant>[d][;]");
    close_packing(&p);
    open_packing(&p, "talks.json", "[" QA("1", "a") " " QA("2", "b") "]");
    assert_int_equal(by_pack(&p.options, &result, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "talks.json:1"));
    close_packing(&p);
}

/* Where the share is less than one conversation, the last that can be learned is held out. */
static void test_few(void **state)
{
    packing p;
    by_pack_result result;
    by_error error = {0};
    char text[1024];
    BY_UNUSED(state);
    open_packing(&p, "talks.jsonl",
                 QA("1", "a") "\n" QA("2", "b") "\n" QA("3", "c") "\n{\"question\": \"4\"}\n");
    p.options.valid_fraction = 0.1;
    p.options.skip_corrupt = true;
    p.options.corrupt_budget = 1.0;
    check_ok(by_pack(&p.options, &result, &error), &error);
    assert_non_null(strstr(p.notes, "valid_fraction 0.1 would hold out none of 4 conversations"));
    assert_int_equal(result.targets, 6);
    assert_int_equal(result.documents, 3);
    read_back(&p, "/train", text);
    assert_string_equal(text, "<user>1;<assistant>[a][;]|<user>2;<assistant>[b][;]");
    read_back(&p, "/valid", text);
    assert_string_equal(text, "<user>3;<assistant>[c][;]");
    p.options.valid_fraction = 0.3; /* the last record, which cannot be learned */
    p.notes[0] = '\0';
    (void)snprintf(p.output, sizeof p.output, "%.200s/again", p.folder);
    check_ok(by_pack(&p.options, &result, &error), &error);
    assert_non_null(strstr(p.notes, "the last one is held out"));
    read_back(&p, "/valid", text);
    assert_string_equal(text, "<user>3;<assistant>[c][;]");
    close_packing(&p);
    open_packing(&p, "talks.jsonl", QA("1", "a"));
    p.options.valid_fraction = 0.1;
    assert_int_equal(by_pack(&p.options, &result, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "set data.valid_fraction to 0 to train without"));
    p.options.valid_fraction = 0.0;
    check_ok(by_pack(&p.options, &result, &error), &error);
    close_packing(&p);
}

static void test_damage(void **state)
{
    packing p;
    by_pack_result result;
    by_dataset *set;
    by_token_weights *mask;
    by_error error = {0};
    char path[600];
    char *bytes;
    size_t length;
    BY_UNUSED(state);
    open_packing(&p, "talks.jsonl", QA("1", "a"));
    check_ok(by_pack(&p.options, &result, &error), &error);
    check_ok(by_dataset_open(&set, p.output, NULL, &error), &error);
    (void)snprintf(path, sizeof path, "%s/mask.npy", p.output);
    check_ok(by__file_read(&bytes, &length, path, 4096, &error), &error);
    bytes[length - 1] = 0; /* the last token is not learned */
    check_ok(by__file_write(path, bytes, length, &error), &error);
    assert_int_equal(by_token_mask_open(&mask, set, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "checksum"));
    bytes[length - 1] = 7;
    check_ok(by__file_write(path, bytes, length, &error), &error);
    assert_int_equal(by_token_mask_open(&mask, set, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "0 and 1"));
    free(bytes);
    by_dataset_close(&set);
    close_packing(&p);
}

static void test_nothing(void **state)
{
    static const struct {
        const char *content;
        by_conversation_long longer;
        const char *why;
    } cases[] = {
        {"\n\n", BY_LONG_SKIP, "talks.jsonl has no records: give conversations"},
        {QA("1", "aaaaaaaa"), BY_LONG_SKIP,
         "1 as longer than the context (raise model.context, or"},
        {QA("1", "aaaaaaaa"), BY_LONG_CUT, "the end of the first answer (raise model.context)"},
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        packing p;
        by_pack_result result;
        by_error error = {0};
        open_packing(&p, "talks.jsonl", cases[i].content);
        p.how.options.context = 4;
        p.how.options.longer = cases[i].longer;
        assert_int_equal(by_pack(&p.options, &result, &error), BY_EFORMAT);
        if (strstr(error.message, cases[i].why) == NULL) {
            fail_msg("\"%s\" instead of \"%s\"", error.message, cases[i].why);
        }
        close_packing(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),  cmocka_unit_test(test_list),    cmocka_unit_test(test_few),
        cmocka_unit_test(test_damage), cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
