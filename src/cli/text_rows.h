/* text_rows: a JSON line for each text of a file, of a model that has a row of numbers for a text
 * (embed_texts.c, classify_texts.c). */
#ifndef BY_CLI_TEXT_ROWS_H
#define BY_CLI_TEXT_ROWS_H

#include "banyan/tokenizer.h"
#include "cli.h"

/* Texts at a time. */
#define CLI_TEXT_BATCH 1024

typedef struct cli_text_rows {
    const char *file;
    int64_t batch; /* texts at a time, up to CLI_TEXT_BATCH */
    const by_tokenizer *tokenizer;
    void *model;
    int64_t width; /* of a row */
    /* Whether a text of so many tokens can be run. */
    by_status (*check)(const void *model, size_t count, by_error *error);
    /* The rows of texts, valid until the next call. */
    by_status (*run)(void *model, const by_embed_text *texts, size_t count, const float **rows,
                     by_error *error);
    /* Prints the rest of a text's object, behind a comma. */
    void (*print)(const void *model, const float *row);
} cli_text_rows;

/* Prints a line for each text of r->file, in their order. *failed: some have an error in theirs. */
by_status cli_print_text_rows(const cli_text_rows *r, bool *failed, by_error *error);
/* Checks flags that such commands have; -1 to go on, or an exit code. */
int cli_check_text_flags(const cli_command *command, int64_t batch, int64_t context,
                         int64_t threads, const char *precision);

#endif
