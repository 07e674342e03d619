/* text_rows: prints a JSON line for each text of a file, for models that compute a row of numbers
 * for a text (embed_texts.c, classify_texts.c). */
#ifndef BY_CLI_BASE_TEXT_ROWS_H
#define BY_CLI_BASE_TEXT_ROWS_H

#include "banyan/tokenizer.h"
#include "base/cli.h"

/* Maximum number of texts computed at a time. */
#define CLI_TEXT_BATCH 1024

typedef struct cli_text_rows {
    const char *file;
    int64_t batch; /* texts at a time, up to CLI_TEXT_BATCH */
    const by_tokenizer *tokenizer;
    void *model;
    int64_t width; /* numbers in a row */
    /* Checks that a text with this many tokens can be run. */
    by_status (*check)(const void *model, size_t count, by_error *error);
    /* Computes the rows of texts; they are valid until the next call. */
    by_status (*run)(void *model, const by_embed_text *texts, size_t count, const float **rows,
                     by_error *error);
    /* Prints the rest of a text's JSON object, starting with a comma. */
    void (*print)(const void *model, const float *row);
} cli_text_rows;

/* Prints a line for each text of r->file, in order. *code: the exit code of `command`, which may
 * have failed for some of them. */
by_status cli_print_text_rows(const cli_text_rows *r, const cli_command *command, int *code,
                              by_error *error);

#endif
