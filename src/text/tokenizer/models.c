/* The table of models. */
#include <string.h>

#include "text/tokenizer/model.h"

static const by__tokenizer_model *const models[] = {
    &by__tokenizer_character_model, &by__tokenizer_bpe_model, &by__tokenizer_wordpiece_model,
    &by__tokenizer_unigram_model};

const by__tokenizer_model *by__tokenizer_model_of(const json_t *root)
{
    const json_t *type = json_object_get(json_object_get(root, "model"), "type");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(models); i++) {
        const by__tokenizer_model *m = models[i];
        const char *held = json_string_value(type);
        bool named = held != NULL && strcmp(held, m->type) == 0;
        /* Early versions omit the type. */
        if (m->takes == NULL ? named : (named || type == NULL) && m->takes(root)) {
            return m;
        }
    }
    return NULL;
}
