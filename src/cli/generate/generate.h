/* generate: the options of `banyan generate`, for one prompt (generate.c) and for many
 * (generate_batch.c), constraints on the texts (generate_form.c), and images
 * (generate_images.c). */
#ifndef BY_CLI_GENERATE_GENERATE_H
#define BY_CLI_GENERATE_GENERATE_H

#include <jansson.h>

#include "banyan/logit_process.h"
#include "base/cli.h"

typedef struct cli_generation {
    const char *prompt;
    const char *file;
    const char *batch; /* a file of prompts */
    const char *precision;
    const char *kv;        /* NULL: the precision of the model */
    const char *speculate; /* NULL: no drafts */
    const char *adapter;   /* directory of adapters; NULL: none */
    const char *device;    /* as for by_device_open; NULL: the best */
    const char *image;     /* of a model of images: file of a grid of them; NULL: none */
    const char *images;    /* directory of single ones; NULL: none */
    bool tensorboard;      /* the grid is written for TensorBoard, too */
    int64_t samples;
    const char *class; /* its name, or its number; NULL: each in turn */
    int64_t steps;     /* 0: the usual number */
    double guidance;
    int64_t tokens;
    int64_t context;
    int64_t best_of;  /* number of texts of a prompt, of which only the likeliest is printed */
    int64_t texts;    /* number of texts of a prompt, all of which are printed */
    int64_t logprobs; /* number of most probable tokens to report for each token; -1: none, and no
                         log-probabilities */
    int64_t beams;    /* 0: sample instead */
    double length_penalty;
    bool early_stopping;
    int64_t sessions; /* prompts of a batch that run at a time */
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

/* A prompt and what is asked for it. */
typedef struct cli_prompt {
    const char *text; /* points into the file or into `parsed` */
    size_t length;
    json_t *parsed; /* NULL: a plain line; released with json_decref */
    int64_t tokens; /* maximum number; -1: as for all prompts */
    by_sampling sampling;
    bool seeded; /* it has a seed of its own */
} cli_prompt;

/* Reads line `number` of r->batch: a literal prompt or, if it starts with '{', a JSON object with
 * "prompt" and the options of this prompt. BY_EFORMAT names the line and what is wrong. `parsed` is
 * to be released even then. */
by_status cli_read_prompt_line(cli_prompt *out, const cli_generation *r, const char *line,
                               size_t length, size_t number, by_error *error);
/* The constraint and the penalties for all texts. */
typedef struct cli_form {
    by_constraint *constraint; /* NULL: none */
    by_token_list *list;
    by_logit_rules rules;
    int64_t vocab;
    int32_t ends[BY_END_TOKENS]; /* tokens that end a text */
    size_t end_count;
} cli_form;

/* Opens the form for texts of the model in `directory`. cli_form_close must be called even if this
 * fails. */
by_status cli_form_open(cli_form *form, const cli_generation *r, const by_tokenizer *tokenizer,
                        const char *directory, by_error *error);
/* Opens the model at `path`, its tokenizer and the form of its texts. The caller must close all
 * three even if this fails. */
by_status cli_open_generation(by_pretrained **model, by_tokenizer **tokenizer, cli_form *form,
                              const cli_generation *r, const char *path, by_error *error);
bool cli_form_ends(const cli_form *form, int32_t token);
void cli_form_close(cli_form *form);
/* Makes the logit processor for `n` texts of a prompt; NULL if nothing changes logits. It borrows
 * the form. */
by_status cli_form_process(by_logit_process **out, const cli_form *form, int32_t n,
                           by_error *error);

/* One prompt, and the model that continues it. */
typedef struct cli_prompted {
    by_pretrained *model;
    by_tokenizer *tokenizer;
    cli_form form;
    char *file;       /* content of --file; NULL: none */
    const char *text; /* the prompt */
    size_t length;
    by_token_buffer prompt;
    int64_t vocab;
    int64_t context; /* as cli_context_of says */
} cli_prompted;

/* Opens the model at `path`, and reads the prompt. cli_prompted_close must be called even if this
 * fails; the caller may close the model before. */
by_status cli_prompted_open(cli_prompted *p, const cli_generation *r, const char *path,
                            by_error *error);
void cli_prompted_close(cli_prompted *p);
/* Returns the context for a prompt and its continuation: --context if it is given, else what they
 * need, at most the model's, since memory for keys and values is taken for all of it. */
int64_t cli_context_of(const cli_generation *r, size_t prompt, int64_t tokens,
                       const by_pretrained *model);
/* Encodes a prompt; an empty one becomes a token that starts a text. */
by_status cli_encode_prompt(by_token_buffer *out, const by_tokenizer *tokenizer, const char *text,
                            size_t length, by_error *error);

/* Continues every prompt of r->batch, with one JSON line each in order, or the prompt in r->prompt
 * or r->file, on the engine. Returns an exit code. */
int cli_generate_batch(const cli_generation *r, const char *path);
/* Makes r->samples images and writes them to r->image and r->images. Returns an exit code. */
int cli_generate_images(const cli_generation *r, const char *path);
/* Prints the most probable text found by beam search; with r->json, all texts that it keeps.
 * Returns an exit code. */
int cli_generate_beams(const cli_generation *r, const char *path);

#endif
