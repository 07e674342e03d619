/* infer: trained weights to tokens. pretrained.c finds them, generator.c continues a sequence,
 * sampling.c chooses a token, logits.c runs whole sequences, embed.c makes vectors of texts, and
 * classifier.c their classes (labels.c reads the names). forward.c is what they share.
 *
 * Types: a by__forward is a model ready to run: programs for one or more modes over one store,
 * which holds the parameters in the format that the programs compute with, loaded once, and the
 * key/value caches.
 *
 * A generator has one decode program (one token, logits) and prefill programs of several sizes (a
 * chunk of tokens, no logits). A chunk that is longer than what is left of the prompt is padded
 * with token 0: the keys and values of the padding stand behind the valid ones, are overwritten
 * before their positions become valid, and no valid position ever attends to them. So the caches
 * have room for one smallest chunk beyond the context.
 *
 * Ownership: a by__forward belongs to the handle that opened it and points into nothing of the
 * caller's but the model's config, while it is being opened.
 *
 * Never put here: kernels, model families, file formats, printing.
 */
#ifndef BY_INFER_INFER_H
#define BY_INFER_INFER_H

#include "banyan/infer.h"
#include "exec/exec.h"
#include "nn/nn.h"

/* How programs are made from a config. */
typedef struct by__forward_options {
    const by_model_config *config;
    by_model_builder *builder; /* NULL: the model that config names */
    void *user;
    by_device *device; /* NULL: the CPU, opened with `threads` */
    by_dtype compute;
    bool codes;              /* pools of keys and values hold codes of 8 bits */
    by_packing_options pack; /* of weights: kind and group alone are looked at */
    bool in_codes;           /* weights that are in codes stay in these */
    int threads;
    uint64_t seed;             /* of initial weights */
    const char *besides;       /* a tensor that weights may have in addition; or NULL */
    const by_weights *weights; /* those whose codes decide the packing; or NULL */
} by__forward_options;

/* Fills compute, packing, seed and threads from a config; precision NULL and threads 0 take the
 * config's, but that `weights` (may be NULL) in codes stay in these. Borrows weights. */
by_status by__forward_options_read(by__forward_options *out, const by_config *config,
                                   const by_weights *weights, const char *precision, int threads,
                                   by_error *error);

/* XXH3-128 of what says which weights these are: their manifest, or their own file. Zeros where
 * there is neither. */
void by__pretrained_identify(char out[33], const by_pretrained *pretrained);

/* by_sample, and by_log_probabilities of the token that it chooses, in fewer passes over the same
 * logits. */
by_status by__sample_with_probability(int32_t *token, double *probability,
                                      const by_sampling *sampling, const float *logits,
                                      int64_t vocab, uint64_t position, void *scratch,
                                      by_error *error);

/* Group of the key/value caches in the store of a by__forward, behind those of the parameters. */
#define BY__GROUP_CACHES BY__GROUPS

typedef struct by__forward by__forward;
struct by__forward {
    by__forward_options options;
    const by__forward *lender; /* whose store it is; NULL: its own */
    by_device *device;
    bool owns_device;
    by__program_set programs;
    by__store *store;
    int weights; /* flat buffers of the store */
    int caches;
};

/* Closed with by__forward_close, also when this fails. */
by_status by__forward_open(by__forward *out, const by__forward_options *options, by_error *error);
/* Opens programs that compute with the weights of another by__forward, which has started, as it has
 * packed them: neither planned nor loaded. They have threads and activations of their own and may
 * run beside those of the lender, which must outlive them. `config` and builder as in the options.
 * BY_EARG: the lender's memory is not memory of the host. */
by_status by__forward_borrow(by__forward *out, const by__forward *lender,
                             const by_model_config *config, by_model_builder *builder,
                             by_error *error);
/* {0} is accepted. */
void by__forward_close(by__forward *forward);
/* Builds and compiles the program of a mode. The first one added has all parameters and caches. */
by_status by__forward_add(by__forward *forward, const char *name, const by_model_request *request,
                          by_model *model, by_error *error);
/* Lays out parameters and caches and checks that `weights` (NULL: initial values) has all tensors.
 * Sizes are known from here on. */
by_status by__forward_plan(by__forward *forward, const by_weights *weights, by_error *error);
/* Takes the memory, loads the weights, binds them and the caches. BY_EMEMORY: it is not free. */
by_status by__forward_start(by__forward *forward, const by_weights *weights, by_error *error);

/* The head of a model that classifies texts. */
#define BY__SCORE "score.weight"

/* What config.json says of that head (labels.c). */
typedef struct by__labels {
    by_problem problem;
    int64_t pad; /* the token that a text may be padded with; -1: none */
    int64_t count;
    char **names; /* [count] */
} by__labels;

/* For a head of `count` labels; name: the file's, for errors. BY_EFORMAT names the key that does
 * not go with it. Closed with by__labels_close, also when this fails. */
by_status by__labels_read(by__labels *out, int64_t count, const char *name, const char *json,
                          size_t length, by_error *error);
void by__labels_close(by__labels *labels);

/* What by_logits_adjust refuses of rules. */
by_status by__logit_rules_check(const by_logit_rules *rules, int64_t vocab, by_error *error);

#endif
