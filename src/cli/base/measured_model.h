/* A model to run without its data, and the one that drafts for it. */
#ifndef BY_CLI_BASE_MEASURED_MODEL_H
#define BY_CLI_BASE_MEASURED_MODEL_H

#include "banyan/draft.h"
#include "banyan/tokenizer.h"
#include "base/cli.h"

/* Vocabulary of a config that leaves it to the data: the characters of tinyshakespeare. */
#define CLI_DEFAULT_VOCAB 65
/* A model to measure: of a run or model directory, or a config with random initial weights. */
typedef struct cli_measured_model {
    by_config *config;
    by_pretrained *pretrained;
    const by_config *used;     /* of one of them */
    const by_weights *weights; /* NULL: random initial ones */
} cli_measured_model;
/* Opens the model at `path`. cli_close_measured must be called even if this fails
 * (measured_model.c). */
by_status cli_open_measured(cli_measured_model *out, const char *path, const cli_list *overrides,
                            by_error *error);
void cli_close_measured(cli_measured_model *model);

/* The source of drafts that --speculate names: "ngram", or a draft model. */
typedef struct cli_draft {
    by_draft_source source;
    cli_measured_model model;
} cli_draft;

#define CLI_SPECULATE_HELP                                                                         \
    "speculative decoding, with equal text in fewer steps: ngram proposes what followed the same " \
    "tokens earlier; MODEL is a small model with the same vocabulary"

/* Opens the source of drafts that --speculate names. tokenizer: that of the model, with which that
 * of the drafts is compared; NULL: not compared. cli_draft_close must be called even if this
 * fails. */
by_status cli_draft_open(cli_draft *out, const char *name, const by_tokenizer *tokenizer,
                         const char *precision, int threads, by_error *error);
void cli_draft_close(cli_draft *draft);

#endif
