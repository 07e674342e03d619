/* Reading GGUF files: their config.json. */
#ifndef BY_EXPORT_GGUF_READ_H
#define BY_EXPORT_GGUF_READ_H

#include "data/formats/gguf_file.h"
#include "export/gguf.h"

/* The text of the config.json of a file, which `name` stands for in messages. Freed with free().
 * BY_EFORMAT names what is missing, or what the family does not have. */
by_status by__gguf_read_config(char **out, const by__gguf_architecture *architecture,
                               const char *name, const by__gguf_file *file, by_error *error);

#endif
