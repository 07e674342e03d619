/* A file of records from anywhere: each is encoded or refused, and what is encoded has a token that
 * is learned. The first byte chooses the template, what is learned, conversations or preferences,
 * and lines or a list. */
#include <stdlib.h>
#include <string.h>

#include "banyan/conversation.h"
#include "data/corpus/record_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const templates[] = {
    "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }};"
    "{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}",
    "{% for m in messages %}<{{ m.role }}>{% if loop.last and m.role == 'assistant' %}<think>\n"
    "{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"};

static by_tokenizer *bytes_tokenizer(void)
{
    by_tokenizer *out;
    const by_bpe_options options = {.vocab = 257, .threads = 1};
    const by_text text = {"a", 1};
    if (by_tokenizer_train_bpe(&out, &options, &text, 1, NULL) != BY_OK) {
        abort();
    }
    return out;
}

static void check(const by_conversation_encoder *e, const by_conversation_result *r)
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
        if (targets == 0 || targets != s.targets || s.count > 65) {
            abort(); /* never silently empty, and never longer than a sample */
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t how = size > 0 ? data[0] : 0;
    const char *template = templates[how % 3];
    bool pairs = how / 27 % 2 == 1;
    const by_conversation_options options = {
        .form = pairs ? BY_CONVERSATION_PREFERENCE : BY_CONVERSATION_AUTO,
        .learn = (by_conversation_learn)(how / 3 % (pairs ? 2 : 3)),
        .context = 64,
        .longer = (by_conversation_long)(how / 9 % 3)};
    by__data_record_reader reader = by__data_record_reader_of("f", (const char *)data + (size > 0),
                                                              size > 0 ? size - 1 : 0, how >= 128);
    by_tokenizer *tokenizer = bytes_tokenizer();
    by_conversation_encoder *encoder;
    by_conversation_result result;
    by__data_record record;
    by_error error = {0};
    by_chat *chat;
    bool found = true;
    if (by_chat_parse(&chat, template, strlen(template), "t", &error) != BY_OK ||
        by_conversation_encoder_open(&encoder, chat, tokenizer, &options, &error) != BY_OK) {
        abort();
    }
    for (size_t i = 0; i < 32 && found; i++) {
        found = by__data_record_next(&reader, &record, &found, &error) == BY_OK && found;
        if (found &&
            by_conversation_encode(encoder, record.text, record.length, &result, &error) == BY_OK) {
            check(encoder, &result);
            if (pairs && result.samples != 0 && result.samples != 2) {
                abort();
            }
        }
    }
    by_conversation_encoder_close(&encoder);
    by_chat_close(&chat);
    by_tokenizer_close(&tokenizer);
    return 0;
}
