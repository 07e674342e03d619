/* The table of models. */
#include <string.h>

#include "text/tokenizer/model.h"

static const by__tokenizer_model *const models[] = {
    &by__tokenizer_character_model, &by__tokenizer_bpe_model, &by__tokenizer_wordpiece_model,
    &by__tokenizer_unigram_model};

/* The type of a model without one, as early versions wrote it, by what only models of this type
 * have; NULL: it cannot be told. */
static const char *guess_type(const json_t *model)
{
    return json_is_array(json_object_get(model, "vocab")) ? "Unigram"
           : json_object_get(model, "merges") != NULL     ? "BPE"
           : json_object_get(model, "max_input_chars_per_word") != NULL ||
                   json_object_get(model, "continuing_subword_prefix") != NULL
               ? "WordPiece"
               : NULL;
}

const by__tokenizer_model *by__tokenizer_model_of(const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *type = json_object_get(model, "type");
    const char *held = type == NULL ? guess_type(model) : json_string_value(type);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(models) && held != NULL; i++) {
        const by__tokenizer_model *m = models[i];
        if (strcmp(held, m->type) == 0 && (m->takes == NULL || m->takes(root))) {
            return m;
        }
    }
    return NULL;
}
