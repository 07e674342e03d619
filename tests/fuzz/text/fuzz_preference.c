/* A file of preferences from anywhere: each record becomes a pair of samples, no sample, or an
 * error, and with "chosen" and "rejected" exchanged the same the other way round. The first byte
 * chooses the template, what is learned, what becomes of long ones, the field of the prompt, a
 * system message, and lines or a list. */
#include <jansson.h>
#include <stdint.h>

#include "data/corpus/record_reader.h"
#include "record_samples.h"

#define CONTEXT 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct pair {
    bool encoded;
    size_t counts[2]; /* tokens of each sample; 0: there is none */
    uint32_t ids[2][CONTEXT + 1];
    uint8_t learned[2][CONTEXT + 1];
} pair;

static pair encode(by_conversation_encoder *encoder, const char *text, size_t length)
{
    by_conversation_result result;
    by_error error = {0};
    pair p = {0};
    by_status status = by_conversation_encode(encoder, text, length, &result, &error);
    p.encoded = status == BY_OK;
    if (!p.encoded) {
        if (error.message[0] == '\0') {
            abort(); /* an error says what is wrong */
        }
        return p;
    }
    if (result.samples != 0 && result.samples != 2) {
        abort(); /* a preference has two sides */
    }
    record_samples_check(encoder, &result, CONTEXT);
    for (size_t i = 0; i < result.samples; i++) {
        by_conversation_sample s = by_conversation_encoder_sample(encoder, i);
        p.counts[i] = s.count;
        memcpy(p.ids[i], s.ids, s.count * sizeof *s.ids);
        memcpy(p.learned[i], s.learned, s.count);
    }
    return p;
}

/* Encodes a record in which `chosen` has the name "chosen", and the other one "rejected". */
static pair encode_sides(by_conversation_encoder *encoder, const json_t *record, json_t *chosen,
                         json_t *rejected)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)record);
    if (copy == NULL || json_object_set(copy, "chosen", chosen) != 0 ||
        json_object_set(copy, "rejected", rejected) != 0) {
        abort();
    }
    char *text = json_dumps(copy, JSON_COMPACT);
    if (text == NULL) {
        abort();
    }
    pair p = encode(encoder, text, strlen(text));
    free(text);
    json_decref(copy);
    return p;
}

static void check_exchanged(by_conversation_encoder *encoder, const char *text, size_t length)
{
    json_t *record = json_loadb(text, length, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    json_t *chosen = json_object_get(record, "chosen");
    json_t *rejected = json_object_get(record, "rejected");
    if (chosen != NULL && rejected != NULL) {
        pair a = encode_sides(encoder, record, chosen, rejected);
        pair b = encode_sides(encoder, record, rejected, chosen);
        if (a.encoded != b.encoded) {
            abort();
        }
        for (size_t i = 0; i < 2; i++) {
            size_t n = a.counts[i];
            if (n != b.counts[1 - i] ||
                memcmp(a.ids[i], b.ids[1 - i], n * sizeof a.ids[0][0]) != 0 ||
                memcmp(a.learned[i], b.learned[1 - i], n) != 0) {
                abort();
            }
        }
    }
    json_decref(record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t how = size > 0 ? data[0] : 0;
    const by_conversation_options options = {.form = BY_CONVERSATION_PREFERENCE,
                                             .question = how / 18 % 2 == 1 ? "q" : NULL,
                                             .system = how / 36 % 2 == 1 ? "s" : NULL,
                                             .learn = (by_conversation_learn)(how / 3 % 2),
                                             .context = CONTEXT,
                                             .longer = (by_conversation_long)(how / 6 % 3)};
    by__data_record_reader reader = by__data_record_reader_of("f", (const char *)data + (size > 0),
                                                              size > 0 ? size - 1 : 0, how >= 128);
    const record_model model = record_model_of(how % 3);
    by_conversation_encoder *encoder;
    by__data_record record;
    by_error error = {0};
    bool found = true;
    if (by_conversation_encoder_open(&encoder, model.chat, model.tokenizer, &options, &error) !=
        BY_OK) {
        abort();
    }
    for (size_t i = 0; i < 16 && found; i++) {
        found = by__data_record_next(&reader, &record, &found, &error) == BY_OK && found;
        if (found && encode(encoder, record.text, record.length).encoded) {
            check_exchanged(encoder, record.text, record.length);
        }
    }
    by_conversation_encoder_close(&encoder);
    return 0;
}
