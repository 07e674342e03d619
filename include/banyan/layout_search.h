/* The best layout: every division of a training run over the axes of the mesh, its ZeRO stage,
 * recomputation and micro-batch, ordered by time or money.
 *
 * A layout is not compiled as a whole: the graphs of a model of three and of four blocks are, with
 * the local shapes of each division along tensor, sequence and expert and each kind of
 * recomputation, for five micro-batches. What a block computes, exchanges, stores and
 * keeps follows from their differences, and so does any number of blocks and any micro-batch. A
 * candidate is then a sum in closed form:
 *
 *     micro-batches   m t_max + (p - 1) / v t + sends, for stages of which the slowest takes t_max
 *                     (Narayanan et al. 2021, section 2.2 and 2.3; v chunks)
 *     gradients       what the backward pass of the last micro-batch does not hide
 *     after that      update, gathers of weights
 *
 * The layouts that are reported can be planned exactly with by_layout_plan_make (banyan/layout.h).
 */
#ifndef BANYAN_LAYOUT_SEARCH_H
#define BANYAN_LAYOUT_SEARCH_H

#include "banyan/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_search_goal {
    BY_SEARCH_TIME = 0, /* of a step */
    BY_SEARCH_MONEY     /* devices x time of a step */
} by_search_goal;

typedef struct by_search_options {
    const by_cluster *cluster; /* NULL: this machine */
    int64_t devices;           /* at most; 0: those of the cluster; of this machine one */
    double memory;             /* bytes of a device; 0: the cluster's, where 0 is unlimited */
    by_search_goal goal;
    double deadline; /* seconds of a step at most; 0: none */
    /* Considers each number of stages and replicas, also those that a better one dominates: for
     * tests of the search. */
    bool exhaustive;
} by_search_options;

typedef enum by_search_recompute {
    BY_SEARCH_RECOMPUTE_NONE = 0,
    BY_SEARCH_RECOMPUTE_BLOCK,
    BY_SEARCH_RECOMPUTES
} by_search_recompute;

/* A layout, and what it takes. */
typedef struct by_search_choice {
    int sizes[BY_MESH_AXES];
    int zero;
    int chunks; /* stages of a pipeline rank; above 1: interleaved */
    by_search_recompute recompute;
    bool sequence_parallel;
    int64_t micro_batch;
    int64_t micro_batches; /* of a replica */
    int64_t devices;
    double seconds;                /* of a step */
    double memory;                 /* bytes of the rank that needs most */
    double limit;                  /* bytes that it may use; INFINITY: not limited */
    double terms[BY_LAYOUT_PARTS]; /* seconds that each adds */
} by_search_choice;

#define BY_SEARCH_PARETO 32

typedef struct by_search_result {
    bool fits; /* false: `best` is what needs the least memory */
    by_search_choice best;
    /* Layouts of which none takes less time and less memory (a smaller share of its limit), fastest
     * first. */
    by_search_choice pareto[BY_SEARCH_PARETO];
    size_t pareto_count;
    double considered; /* layouts */
    size_t compiled;   /* graphs */
} by_search_result;

/* Searches for a resolved config, whose sections `parallel`, train.micro_batch and memory.recompute
 * it does not read; memory.budget is a limit of every rank. More devices, memory or bandwidth never
 * make the result worse: the layouts of fewer are among those of more. On this machine, whose cores
 * and memory its ranks divide (by_cluster_of_machine), layouts of each number of ranks are planned
 * with what so many have. Returns BY_ECONFIG for more devices than the cluster has, or if the model
 * cannot be planned. */
BY_API by_status by_layout_search(by_search_result *out, const by_config *config,
                                  const by_search_options *options, by_error *error);
/* Formats a choice as settings of a config, `separator` between them: "parallel.tensor=8
 * parallel.data=4 ...". Truncated to `size` bytes. */
BY_API void by_search_settings(char *text, size_t size, const by_search_choice *choice,
                               const char *separator);
/* Makes a copy of a config with a choice's settings. */
BY_API by_status by_search_config(by_config **out, const by_config *config,
                                  const by_search_choice *choice, by_error *error);
/* Compiles the best layout of a result that fits, as a whole (free the plan with
 * by_layout_plan_free). While it is refused, needs more memory than its limit or takes longer than
 * options->deadline, it is dropped from the result, and the best of the rest of result->pareto
 * comes in its place. If none is left, result->fits becomes false, result->best is the one that
 * needed least, with what it needed, and the plan is zeroed; BY_ECONFIG or BY_EARG if all were
 * refused. */
BY_API by_status by_search_plan(by_layout_plan *out, by_search_result *result,
                                const by_config *config, const by_search_options *options,
                                by_error *error);

#ifdef __cplusplus
}
#endif
#endif
