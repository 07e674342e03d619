/* generate: what `banyan generate` was asked for, for one prompt (generate.c) and for many
 * (generate_batch.c). */
#ifndef BY_CLI_GENERATE_H
#define BY_CLI_GENERATE_H

#include "cli.h"

typedef struct cli_generation {
    const char *prompt;
    const char *file;
    const char *batch; /* a file of prompts */
    const char *precision;
    const char *adapter; /* directory of adapters; NULL: none */
    int64_t tokens;
    int64_t context;
    int64_t sessions; /* of a batch, that run at a time */
    int64_t threads;
    by_sampling sampling;
    cli_list stops;
    bool best;
    bool ema;
    bool ignore_eos;
    bool no_prompt;
    bool json;
    bool verbose;
} cli_generation;

/* Reads a file, or standard input for "-", of at most `most` bytes, with a NUL behind it. Freed
 * with free(). */
by_status cli_read_prompt_file(char **out, size_t *length, const char *path, size_t most,
                               by_error *error);
/* Continues every prompt of r->batch; one JSON line each, in their order. An exit code. */
int cli_generate_batch(const cli_generation *r, const char *path);

#endif
