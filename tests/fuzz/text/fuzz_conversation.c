/* A file of records from anywhere: each is encoded or refused, and what is encoded has a token that
 * is learned. The first byte chooses the template, what is learned, what becomes of long ones, and
 * lines or a list. */
#include <stdint.h>

#include "data/corpus/record_reader.h"
#include "record_samples.h"

#define CONTEXT 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t how = size > 0 ? data[0] : 0;
    const by_conversation_options options = {.learn = (by_conversation_learn)(how / 3 % 3),
                                             .context = CONTEXT,
                                             .longer = (by_conversation_long)(how / 9 % 3)};
    by__data_record_reader reader = by__data_record_reader_of("f", (const char *)data + (size > 0),
                                                              size > 0 ? size - 1 : 0, how >= 128);
    const record_model model = record_model_of(how % 3);
    by_conversation_encoder *encoder;
    by_conversation_result result;
    by__data_record record;
    by_error error = {0};
    bool found = true;
    if (by_conversation_encoder_open(&encoder, model.chat, model.tokenizer, &options, &error) !=
        BY_OK) {
        abort();
    }
    for (size_t i = 0; i < 32 && found; i++) {
        found = by__data_record_next(&reader, &record, &found, &error) == BY_OK && found;
        if (found &&
            by_conversation_encode(encoder, record.text, record.length, &result, &error) == BY_OK) {
            record_samples_check(encoder, &result, CONTEXT);
        }
    }
    by_conversation_encoder_close(&encoder);
    return 0;
}
