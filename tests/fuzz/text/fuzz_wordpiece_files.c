/* vocab.txt and tokenizer_config.json, with a NUL between them, from anywhere: opened or refused.
 */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/vocabulary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by_tokenizer *tokenizer;
    by_token_buffer ids = {0};
    const uint8_t *nul = size > 0 ? memchr(data, 0, size) : NULL;
    if (nul == NULL) {
        return 0;
    }
    size_t first = (size_t)(nul - data);
    char *config = by__strndup((const char *)nul + 1, size - first - 1);
    if (config == NULL) {
        abort();
    }
    if (by__tokenizer_parse_wordpiece(&tokenizer, "vocab.txt", (const char *)data, first,
                                      config[0] != '\0' ? config : NULL, &error) == BY_OK) {
        (void)by_tokenizer_encode(tokenizer, "The theme\xc3\xa9 \xe4\xb8\x96!", 15, &ids,
                                  BY_ENCODE_SPECIAL | BY_ENCODE_ADD_SPECIAL, &error);
        by_token_buffer_free(&ids);
        by_tokenizer_close(&tokenizer);
    }
    free(config);
    return 0;
}
