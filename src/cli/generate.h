/* generate: what `banyan generate` was asked for, for one prompt (generate.c) and for many
 * (generate_batch.c), and the form of the texts (generate_form.c). */
#ifndef BY_CLI_GENERATE_H
#define BY_CLI_GENERATE_H

#include "banyan/logit_process.h"
#include "cli.h"

typedef struct cli_generation {
    const char *prompt;
    const char *file;
    const char *batch; /* a file of prompts */
    const char *precision;
    const char *kv;        /* NULL: keys and values as precision */
    const char *speculate; /* NULL: no drafts */
    const char *adapter;   /* directory of adapters; NULL: none */
    int64_t tokens;
    int64_t context;
    int64_t best_of;  /* texts of a prompt, of which the likeliest is printed */
    int64_t texts;    /* of a prompt, all of which are printed */
    int64_t logprobs; /* most probable tokens that are told for each token; -1: nothing is told */
    int64_t beams;    /* 0: tokens are drawn */
    double length_penalty;
    bool early_stopping;
    int64_t sessions; /* of a batch, that run at a time */
    int64_t threads;
    by_sampling sampling;
    by_logit_rules rules;
    const char *schema; /* a file */
    const char *regex;
    bool json_object;
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
/* What all texts are held to. */
typedef struct cli_form {
    by_constraint *constraint; /* NULL: nothing */
    by_token_list *list;
    by_logit_rules rules;
    int64_t vocab;
    int32_t ends[BY_END_TOKENS]; /* tokens that end a text */
    size_t end_count;
} cli_form;

/* For texts of the model in `directory`. Closed with cli_form_close, also when this fails. */
by_status cli_form_open(cli_form *form, const cli_generation *r, const by_tokenizer *tokenizer,
                        const char *directory, by_error *error);
/* Opens the model at `path` with its tokenizer and the form of its texts. All three are closed by
 * the caller, also when this fails. */
by_status cli_open_generation(by_pretrained **model, by_tokenizer **tokenizer, cli_form *form,
                              const cli_generation *r, const char *path, by_error *error);
bool cli_form_ends(const cli_form *form, int32_t token);
void cli_form_close(cli_form *form);
/* For `n` texts of a prompt; NULL where nothing changes logits. Points into the form. */
by_status cli_form_process(by_logit_process **out, const cli_form *form, int32_t n,
                           by_error *error);

/* The tokens of a prompt; where there are none, one that a text begins with. */
by_status cli_encode_prompt(by_token_buffer *out, const by_tokenizer *tokenizer, const char *text,
                            size_t length, by_error *error);

/* Continues every prompt of r->batch, one JSON line each in their order, or the one of r->prompt
 * and r->file, on the engine. An exit code. */
int cli_generate_batch(const cli_generation *r, const char *path);
/* Prints the most probable text that a search finds, with r->json all that it keeps. An exit
 * code. */
int cli_generate_beams(const cli_generation *r, const char *path);

#endif
