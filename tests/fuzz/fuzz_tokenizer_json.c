/* tokenizer.json from anywhere: opened or refused; what opens encodes, and saves as what it is. */
#include <stdlib.h>
#include <string.h>

#include "banyan/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = " it's <tool> 12 w\xc3\xb6rd\n\n <mask> !! \xff";
    by_error error;
    by_tokenizer *tokenizer;
    by_tokenizer *again;
    by_token_buffer ids = {0};
    char *json;
    size_t length;
    if (by_tokenizer_from_json(&tokenizer, (const char *)data, size, "f", &error) != BY_OK) {
        return 0;
    }
    (void)by_tokenizer_encode(tokenizer, text, sizeof text - 1, &ids, BY_ENCODE_SPECIAL, &error);
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
