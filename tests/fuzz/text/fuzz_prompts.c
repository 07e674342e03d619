/* Prompts of reinforcement learning, as JSON lines, JSON lists and lines of text: read or refused,
 * with every prompt within the list and no longer than was asked, and no record on two lines. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tasks/text/prompts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *name, const uint8_t *data, size_t size, const by_tokenizer *tokenizer)
{
    const by__task_prompt_fields fields = {
        .prompt = "prompt", .answer = "answer", .form = "Q:{prompt}\n"};
    by__task_prompts list = {.most = 12};
    by_error error;
    by_status status =
        by__task_prompts_add(&list, name, (const char *)data, size, &fields, tokenizer, &error);
    if (status != BY_OK && strncmp(error.message, name, strlen(name)) != 0) {
        abort();
    }
    for (size_t i = 0; i < list.count; i++) {
        by__task_prompt p = by__task_prompts_at(&list, i);
        bool in_text = p.line.data >= list.text.data &&
                       p.answer.data + p.answer.length < list.text.data + list.text.length;
        if (!in_text || p.answer.data[p.answer.length] != '\0' || p.count == 0 || p.count > 12 ||
            p.ids + p.count > list.ids + list.id_count ||
            memchr(p.line.data, '\n', p.line.length) != NULL) {
            abort();
        }
    }
    by__task_prompts_free(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char letters[] = "\n !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~\t\r\xc3\xa9";
    const by_text text = {letters, sizeof letters - 1};
    static by_tokenizer *tokenizer; /* made once: that takes longer than most inputs */
    if (tokenizer == NULL && by_tokenizer_char(&tokenizer, &text, 1, NULL) != BY_OK) {
        abort();
    }
    check("f.jsonl", data, size, tokenizer);
    check("f.json", data, size, tokenizer);
    check("f.txt", data, size, tokenizer);
    return 0;
}
