/* Any bytes as a GGUF file: refused or taken, and what is taken is within the bytes, as a tokenizer
 * and as weights too. */
#include <stdlib.h>
#include <string.h>

#include "export/gguf_model.h"
#include "text/tokenizer/gguf_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads the first and the last element of each tensor. */
static void read_ends(const by_weights *weights)
{
    for (size_t i = 0; i < by_weights_count(weights); i++) {
        by_tensor_view view;
        size_t elements;
        float value;
        const char *name = by_weights_name(weights, i);
        if (by__weights_describe(weights, name, &view, NULL) != BY_OK ||
            by_tensor_size(&view, &elements, NULL, NULL) != BY_OK || elements == 0) {
            continue;
        }
        for (int end = 0; end < 2; end++) {
            by_tensor_slice slice = {
                .flat = true, .offset = {end == 0 ? 0 : (int64_t)elements - 1}, .shape = {1}};
            if (by_weights_read_f32(weights, name, &slice, &value, 1, NULL) != BY_OK) {
                abort();
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__format_gguf_file file;
    by__export_gguf_model *model;
    by_weights *weights;
    by_tokenizer *tokenizer;
    json_t *settings;
    if (by__format_gguf_parse(&file, "fuzz.gguf", data, size, NULL) == BY_OK) {
        for (size_t i = 0; i < file.tensor_count; i++) {
            const by__format_gguf_description *t = &file.tensors[i];
            if (t->data < data || t->bytes > (uint64_t)(data + size - t->data)) {
                abort();
            }
        }
        if (by__tokenizer_from_gguf(&tokenizer, "fuzz.gguf", &file, NULL) == BY_OK) {
            by_tokenizer_close(&tokenizer);
        }
        if (by__tokenizer_gguf_settings(&settings, &file, NULL) == BY_OK) {
            json_decref(settings);
        }
        by__format_gguf_free(&file);
    }
    if (by__export_gguf_model_parse(&model, "fuzz.gguf", data, size, NULL) == BY_OK) {
        if (by__export_gguf_model_weights(&weights, model, NULL) == BY_OK) {
            read_ends(weights);
            by_weights_close(&weights);
        }
        by__export_gguf_model_close(&model);
    }
    return 0;
}
