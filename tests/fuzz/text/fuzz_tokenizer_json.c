/* tokenizer.json from anywhere: opened or refused; what opens encodes, decodes as a whole and token
 * by token to the same, and saves as what it is. */
#include <stdlib.h>
#include <string.h>

#include "banyan/text_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_streaming(const by_tokenizer *tokenizer, const by_token_buffer *ids)
{
    by_text_stream *stream;
    char *text;
    size_t length;
    size_t at = 0;
    by_text part;
    bool stopped;
    if (by_tokenizer_decode(tokenizer, ids->ids, ids->count, &text, &length, NULL) != BY_OK ||
        by_text_stream_open(&stream, tokenizer, NULL, NULL) != BY_OK) {
        abort();
    }
    for (size_t i = 0; i <= ids->count; i++) {
        if (i == ids->count) {
            by_text_stream_end(stream, &part);
        } else if (by_text_stream_push(stream, ids->ids[i], &part, &stopped, NULL) != BY_OK) {
            abort();
        }
        if (part.length > length - at ||
            (part.length > 0 && memcmp(text + at, part.data, part.length) != 0)) {
            abort();
        }
        at += part.length;
    }
    if (at != length) {
        abort();
    }
    by_text_stream_close(&stream);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = " it's <tool> 12345 w\xc3\xb6rDs\n\n <mask> !!/\n \xe2\x96\x81 the "
                               "e\xcc\x81\xcc\xa3 \xef\xac\x81 \xff";
    by_error error;
    by_tokenizer *tokenizer;
    by_tokenizer *again;
    by_token_buffer ids = {0};
    char *json;
    size_t length;
    if (by_tokenizer_from_json(&tokenizer, (const char *)data, size, "f", &error) != BY_OK) {
        return 0;
    }
    (void)by_tokenizer_encode(tokenizer, text, sizeof text - 1, &ids,
                              BY_ENCODE_SPECIAL | BY_ENCODE_ADD_SPECIAL, &error);
    check_streaming(tokenizer, &ids);
    if (by_tokenizer_to_json(tokenizer, &json, &length, &error) != BY_OK ||
        by_tokenizer_from_json(&again, json, length, "again", &error) != BY_OK ||
        strcmp(by_tokenizer_hash(tokenizer), by_tokenizer_hash(again)) != 0) {
        abort();
    }
    free(json);
    by_token_buffer_free(&ids);
    by_tokenizer_close(&again);
    by_tokenizer_close(&tokenizer);
    return 0;
}
