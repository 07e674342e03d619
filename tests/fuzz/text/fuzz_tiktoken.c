/* tiktoken's ranks: what opens encodes and decodes, and saves as a tokenizer.json that opens. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/vocabulary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "the theme of \xf0\x9f\x98\x80 aaaa\xff";
    by_error error;
    by_tokenizer *tokenizer;
    by_tokenizer *again;
    by_token_buffer ids = {0};
    char *made;
    size_t length;
    if (by__tokenizer_parse_tiktoken(&tokenizer, "f", (const char *)data, size, &error) != BY_OK) {
        return 0;
    }
    if (by_tokenizer_encode(tokenizer, text, sizeof text - 1, &ids, 0, &error) != BY_OK ||
        by_tokenizer_decode(tokenizer, ids.ids, ids.count, &made, &length, &error) != BY_OK ||
        length != sizeof text - 1 || memcmp(made, text, length) != 0) {
        abort();
    }
    free(made);
    if (by_tokenizer_to_json(tokenizer, &made, &length, &error) != BY_OK ||
        by_tokenizer_from_json(&again, made, length, "again", &error) != BY_OK ||
        strcmp(by_tokenizer_hash(again), by_tokenizer_hash(tokenizer)) != 0) {
        abort();
    }
    by_tokenizer_close(&again);
    free(made);
    by_token_buffer_free(&ids);
    by_tokenizer_close(&tokenizer);
    return 0;
}
