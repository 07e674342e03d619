/* The laws by which the dial chooses (dial_laws.c), and what follows from them (dial_choose.c). */
#ifndef BY_PLAN_DIAL_DIAL_H
#define BY_PLAN_DIAL_DIAL_H

#include "banyan/plan.h"

/* Fewest sequences of a step. */
#define BY__DIAL_LEAST_BATCH 4

/* Constants of the laws, of small models of English text. */
typedef struct by__dial_laws {
    /* Held-out bits per byte over the parameters of blocks and the bytes of text trained on. */
    by_law bits;
    double spread;    /* root mean square of the logarithms of what it misses */
    double blocks[2]; /* least and most parameters of the runs that it is fitted to, */
    double bytes[2];  /* and bytes */
    double repeats;   /* of a byte that are worth something: R* */
    double rate;      /* peak learning rate, with muP, at width mup_width */
    int64_t mup_width;
    int64_t context;
    double batch; /* tokens of a step at batch_tokens */
    double batch_tokens;
    double batch_power;
    double vocab_bytes; /* of text for each entry of the tokenizer ... */
    int64_t vocab[2];   /* ... from so many entries to so many */
} by__dial_laws;
extern const by__dial_laws by__dial_laws_of_text;

/* Unique bytes that as much is learned from as from `bytes`, of which `unique` differ. */
double by__dial_effective(const by__dial_laws *laws, double bytes, double unique);
/* Entries of a tokenizer for so many bytes of text: a power of two. */
int64_t by__dial_vocab(const by__dial_laws *laws, double bytes);
/* Sizes of the model of so many layers. */
void by__dial_shape(by_dial_choice *out, int64_t layers, int64_t context, int64_t vocab);
/* The resolved config of a choice, with the request's overrides. */
by_status by__dial_open(by_config **out, const by_dial_choice *choice, const by_dial_data *data,
                        const by_dial_request *request, by_error *error);

/* ---- dial_memory.c ---- */

/* The plan of a training. */
typedef struct by__dial_plan {
    bool fits;
    uint64_t bytes;      /* all that is planned */
    int64_t micro_batch; /* that it takes to fit; 0: the whole batch does */
    double slower;       /* seconds of a step over those of a plan without limit */
    uint64_t state;      /* bytes of weights, gradients and optimizer */
} by__dial_plan;

/* Plans the training of a config within `limit` bytes, as by_train does. What it leaves of them is
 * for what the process takes more by then. */
by_status by__dial_plan_make(by__dial_plan *out, const by_config *config, const by_dial_data *data,
                             const by_train_options *options, uint64_t limit, by_error *error);
/* The least limit that the training of a config fits into. */
by_status by__dial_plan_least(uint64_t *out, const by_config *config, const by_dial_data *data,
                              const by_train_options *options, by_error *error);

#endif
