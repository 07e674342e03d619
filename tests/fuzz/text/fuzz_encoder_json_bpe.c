/* GPT-2's pair of files, in one input with a NUL between them. */
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
    if (by__tokenizer_parse_gpt2(&tokenizer, "encoder.json", (const char *)data, first, "vocab.bpe",
                                 (const char *)nul + 1, size - first - 1, &error) == BY_OK) {
        (void)by_tokenizer_encode(tokenizer, "the theme", 9, &ids, 0, &error);
        by_token_buffer_free(&ids);
        by_tokenizer_close(&tokenizer);
    }
    return 0;
}
