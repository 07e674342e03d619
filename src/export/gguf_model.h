/* Reads a GGUF file as the weights of a Hugging Face family. */
#ifndef BY_EXPORT_GGUF_MODEL_H
#define BY_EXPORT_GGUF_MODEL_H

#include "checkpoint/storage.h"

typedef struct by__export_gguf_model by__export_gguf_model;

/* Maps and checks a file, and gives its tensors the names, shapes and order of the family that
 * corresponds to its architecture. BY_EFORMAT: the file is damaged, or has an unsupported
 * architecture or tensor type. */
by_status by__export_gguf_model_open(by__export_gguf_model **out, const char *path,
                                     by_error *error);
/* The same for a file in memory, which must outlive the model; messages call it `name`. */
by_status by__export_gguf_model_parse(by__export_gguf_model **out, const char *name,
                                      const uint8_t *data, size_t size, by_error *error);
void by__export_gguf_model_close(by__export_gguf_model **model);
/* Opens the weights, with the text of a config.json. They are converted as they are read: f32, bf16
 * and f16 are kept, quantised types become f32. They must be closed before the model. */
by_status by__export_gguf_model_weights(by_weights **out, const by__export_gguf_model *model,
                                        by_error *error);

#endif
