/* infer: runs trained models. pretrained.c finds the weights, generator.c continues a sequence
 * (decode_work.c tells what a token of it takes), engine.c serves many sequences at once
 * (scheduler.h), beam.c searches with beams, sampling.c chooses tokens, logits.c runs whole
 * sequences, embed.c computes vectors of texts and classifier.c their classes (labels.c reads
 * the class names). forward.c is the part that they share.
 *
 * Types: a by__infer_forward is a model that is ready to run: programs for one or more modes over
 * one store, which holds the parameters, loaded once in the format that the programs compute with,
 * and the key/value caches.
 *
 * A generator has one decode program (one token, logits) and prefill programs of several sizes (a
 * chunk of tokens, no logits). A chunk that is longer than the rest of the prompt is padded with
 * token 0. The keys and values of the padding come after the valid ones and are overwritten before
 * their positions become valid, so no valid position ever attends to them. The caches therefore
 * have room for one smallest chunk beyond the context.
 *
 * Who owns what: a by__infer_forward belongs to the handle that opened it. While it is being opened
 * it borrows the caller's model config, and afterwards nothing of the caller's.
 *
 * Never put here: kernels, model families, file formats, printing.
 */
#ifndef BY_INFER_INFER_H
#define BY_INFER_INFER_H

#include "banyan/infer.h"
#include "exec/exec.h"
#include "nn/nn.h"

/* How programs are built from a config. */
typedef struct by__infer_forward_options {
    const by_model_config *config;
    by_model_builder *builder; /* NULL: the model that the config names */
    void *user;
    const char *device_name; /* what to open if `device` is NULL, with `threads`; borrowed */
    by_device *device;
    by_dtype compute;
    bool codes;              /* key/value pools hold 8-bit codes */
    by_packing_options pack; /* packing of weights: only kind and group are used */
    bool in_codes;           /* keep the codes of weights that are stored in codes */
    int threads;
    bool on_use;               /* see by__device_allocate_on_use; not with a given device */
    uint64_t seed;             /* of random initial weights */
    const char *besides;       /* a tensor that the weights may contain in addition; or NULL */
    const by_weights *weights; /* weights whose codes decide the packing; or NULL */
} by__infer_forward_options;

/* Sets compute, packing, seed, device and threads from a config. precision NULL and threads 0 mean
 * the config's values, except that `weights` (borrowed, may be NULL) in codes keep their codes. */
by_status by__infer_forward_options_read(by__infer_forward_options *out, const by_config *config,
                                         const by_weights *weights, const char *precision,
                                         int threads, by_error *error);

/* Computes the XXH3-128 hash that identifies the weights: of their manifest, or of their single
 * file. Zeros if there is neither. */
void by__infer_pretrained_identify(char out[33], const by_pretrained *pretrained);

/* Does by_sample, and by_log_probabilities for the chosen token, in fewer passes over the
 * logits. */
by_status by__infer_sample_with_probability(int32_t *token, double *probability,
                                            const by_sampling *sampling, const float *logits,
                                            int64_t vocab, uint64_t position, void *scratch,
                                            by_error *error);

/* The group of key/value caches in the store of a by__infer_forward, after the groups of
 * parameters. */
#define BY__GROUP_CACHES BY__GROUPS

typedef struct by__infer_forward by__infer_forward;
struct by__infer_forward {
    by__infer_forward_options options;
    const by__infer_forward *lender; /* the one that owns the store; NULL: this one does */
    by_device *device;
    bool owns_device;
    by__exec_program_set programs;
    by__store *store;
    int weights; /* number of flat buffers of weights in the store */
    int caches;
};

/* Opens a store without programs yet. by__infer_forward_close must be called even if this fails. */
by_status by__infer_forward_open(by__infer_forward *out, const by__infer_forward_options *options,
                                 by_error *error);
/* Opens programs that compute with the packed weights of another by__infer_forward, which has
 * started: weights are neither planned nor loaded again. The programs have their own threads and
 * activations and may run at the same time as those of the lender, which must outlive them.
 * `config` and `builder` are as in the options. On a device with memory of its own, through a
 * second handle. */
by_status by__infer_forward_borrow(by__infer_forward *out, const by__infer_forward *lender,
                                   const by_model_config *config, by_model_builder *builder,
                                   by_error *error);
/* Accepts {0}. */
void by__infer_forward_close(by__infer_forward *forward);
/* Builds and compiles the program of a mode; *out: its row. The first program added must have all
 * parameters and caches. */
by_status by__infer_forward_add(by__infer_forward *forward, const char *name,
                                const by_model_request *request, by_model *model,
                                by__exec_program_row **out, by_error *error);
/* Lays out parameters and caches, and checks that `weights` (NULL: initial values) has all tensors.
 * Sizes are known from then on. */
by_status by__infer_forward_plan(by__infer_forward *forward, const by_weights *weights,
                                 by_error *error);
/* Allocates memory, loads the weights, and binds them and the caches. BY_EMEMORY if there is too
 * little free memory. */
by_status by__infer_forward_start(by__infer_forward *forward, const by_weights *weights,
                                  by_error *error);

/* The description of that head in config.json (labels.c). */
typedef struct by__infer_labels {
    by_problem problem;
    int64_t pad; /* the token used for padding texts; -1: none */
    int64_t count;
    char **names; /* [count] */
} by__infer_labels;

/* Reads the labels for a head with `count` outputs; errors call the file `name`. BY_EFORMAT names
 * the key that contradicts the head. by__infer_labels_close must be called even if this fails. */
by_status by__infer_labels_read(by__infer_labels *out, int64_t count, const char *name,
                                const char *json, size_t length, by_error *error);
void by__infer_labels_close(by__infer_labels *labels);

/* Refuses rules that by_logits_adjust would refuse. */
by_status by__infer_logit_rules_check(const by_logit_rules *rules, int64_t vocab, by_error *error);

#endif
