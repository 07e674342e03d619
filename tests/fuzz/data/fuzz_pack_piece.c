/* Pieces of a pack: refused, or units whose documents end within their tokens. */
#include <stdlib.h>
#include <string.h>

#include "data/pack/pack_pieces.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by__data_unit_tokens tokens = {0};
    /* A copy, at whose end a read too far is seen. */
    uint8_t *text = malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    /* As if the checksum was right. */
    by__data_piece_reader reader = {.directory = "d",
                                    .width = size % 2 == 0 ? 2 : 4,
                                    .is_open = true,
                                    .map = {.data = text, .size = size},
                                    .size = size};
    for (uint64_t unit = 0; by__data_piece_read(&reader, 0, unit, &tokens, &error) == BY_OK;
         unit++) {
        size_t last = 0;
        for (size_t i = 0; i < tokens.document_count; i++) {
            if (tokens.documents[i].end < last || tokens.documents[i].end > tokens.ids.count) {
                abort();
            }
            last = tokens.documents[i].end;
        }
    }
    by__data_unit_tokens_free(&tokens);
    free(text);
    return 0;
}
