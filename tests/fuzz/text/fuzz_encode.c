/* Any bytes are text: encoding is lossless, and parts that are cut apart encode to the same. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/split.h"
#include "text/tokenizer/vocabulary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static by_tokenizer *learn(void)
{
    static const char text[] =
        "the theme of the thing then is this: don't, we'll, they've aaaa "
        "aaaaaaaa 1234 12 ... --- !! \xc3\xa9\xc3\xa9 \xe4\xb8\x96\xe7\x95\x8c "
        "\xf0\x9f\x98\x80\xf0\x9f\x98\x80\n\n  \n\tthe the";
    by_text texts = {text, sizeof text - 1};
    by_bpe_options options = {.vocab = 320, .threads = 1};
    by_tokenizer *tokenizer;
    if (by_tokenizer_train_bpe(&tokenizer, &options, &texts, 1, NULL) != BY_OK) {
        abort();
    }
    return tokenizer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static by_tokenizer *tokenizer;
    static by_encoder *encoder; /* kept, so that its cache meets all inputs */
    const char *text = (const char *)data;
    by_token_buffer whole = {0};
    by_token_buffer parts = {0};
    char *back;
    size_t length;
    tokenizer = tokenizer != NULL ? tokenizer : learn();
    if (encoder == NULL && by_encoder_open(&encoder, tokenizer, NULL) != BY_OK) {
        abort();
    }
    if (by_encoder_encode(encoder, text, size, &whole, 0, NULL) != BY_OK ||
        by_tokenizer_decode(tokenizer, whole.ids, whole.count, &back, &length, NULL) != BY_OK ||
        length != size || (size > 0 && memcmp(back, data, size) != 0)) {
        abort();
    }
    for (size_t at = 0; at < size;) {
        size_t n = by__tokenizer_split_chunk(data + at, size - at, 3);
        if (n == 0 || n > size - at ||
            by_encoder_encode(encoder, text + at, n, &parts, 0, NULL) != BY_OK) {
            abort();
        }
        at += n;
    }
    if (parts.count != whole.count ||
        (parts.count > 0 && memcmp(parts.ids, whole.ids, parts.count * sizeof *parts.ids) != 0)) {
        abort();
    }
    free(back);
    by_token_buffer_free(&whole);
    by_token_buffer_free(&parts);
    return 0;
}
