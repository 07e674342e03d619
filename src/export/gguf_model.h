/* A GGUF file as the weights of a Hugging Face family. */
#ifndef BY_EXPORT_GGUF_MODEL_H
#define BY_EXPORT_GGUF_MODEL_H

#include "checkpoint/storage.h"

typedef struct by__gguf_model by__gguf_model;

/* Maps and checks a file and gives its tensors the names, shapes and order of the family that its
 * architecture stands for. BY_EFORMAT: it is broken, of another architecture, or of a type that is
 * not read. */
by_status by__gguf_model_open(by__gguf_model **out, const char *path, by_error *error);
/* The same of a file in memory, which must outlive the model; `name` stands for it in messages. */
by_status by__gguf_model_parse(by__gguf_model **out, const char *name, const uint8_t *data,
                               size_t size, by_error *error);
void by__gguf_model_close(by__gguf_model **model);
/* Weights, with the text of a config.json, that convert as they are read: f32, bf16 and f16 stay
 * what they are, quantised types become f32. Closed before the model. */
by_status by__gguf_model_weights(by_weights **out, const by__gguf_model *model, by_error *error);

#endif
