/* Derives config.json from GGUF files. */
#ifndef BY_EXPORT_GGUF_READ_H
#define BY_EXPORT_GGUF_READ_H

#include "export/gguf.h"
#include "formats/gguf_file.h"

/* Returns the text of a file's config.json, freed with free(); messages call the file `name`.
 * BY_EFORMAT names a missing key, or a feature that the family does not have. */
by_status by__export_gguf_read_config(char **out, const by__export_gguf_architecture *architecture,
                                      const char *name, const by__format_gguf_file *file,
                                      by_error *error);

#endif
