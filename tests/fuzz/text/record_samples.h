/* What the fuzzers of records share: templates, a tokenizer of bytes, and what holds for every
 * sample. */
#ifndef BY_TESTS_RECORD_SAMPLES_H
#define BY_TESTS_RECORD_SAMPLES_H

#include <stdlib.h>
#include <string.h>

#include "banyan/conversation.h"

/* Without marks, with marks, and one that renders earlier answers without their reasoning. */
static const char *const record_templates[] = {
    "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }};"
    "{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}",
    "{% for m in messages %}<{{ m.role }}>{% if loop.last and m.role == 'assistant' %}<think>\n"
    "{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"};

typedef struct record_model {
    by_chat *chat;
    by_tokenizer *tokenizer;
} record_model;

/* Models are opened once: they take longer than most inputs. */
static inline record_model record_model_of(unsigned which)
{
    static record_model models[3];
    const by_bpe_options options = {.vocab = 257, .threads = 1};
    const by_text text = {"a", 1};
    const char *template = record_templates[which];
    record_model *m = &models[which];
    if (m->chat == NULL &&
        (by_tokenizer_train_bpe(&m->tokenizer, &options, &text, 1, NULL) != BY_OK ||
         by_chat_parse(&m->chat, template, strlen(template), "t", NULL) != BY_OK)) {
        abort();
    }
    return *m;
}

/* Every sample has a token that is learned, and at most `context` + 1 tokens. */
static inline void record_samples_check(const by_conversation_encoder *e,
                                        const by_conversation_result *r, size_t context)
{
    for (size_t i = 0; i < r->samples; i++) {
        by_conversation_sample s = by_conversation_encoder_sample(e, i);
        size_t targets = 0;
        for (size_t k = 0; k < s.count; k++) {
            if (s.learned[k] > 1) {
                abort();
            }
            targets += k > 0 && s.learned[k];
        }
        if (targets == 0 || targets != s.targets || s.count > context + 1) {
            abort();
        }
    }
}

#endif
