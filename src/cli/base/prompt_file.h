/* Files of prompts. */
#ifndef BY_CLI_BASE_PROMPT_FILE_H
#define BY_CLI_BASE_PROMPT_FILE_H

#include "base/cli.h"

/* Reads a file, or standard input for "-", of at most `most` bytes and appends a NUL. Freed with
 * free(). */
by_status cli_read_prompt_file(char **out, size_t *length, const char *path, size_t most,
                               by_error *error);

#endif
