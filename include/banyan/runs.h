/* Everything known about a run, as a flat list of keys and values for tables, comparisons and
 * exports.
 *
 * Keys, in this order:
 *   run.name, run.path, run.status, run.started, run.updated, run.config_hash, run.step,
 *   run.steps, run.best_loss    the run's record (banyan/track.h); best_loss only if it is finite
 *   last.EVENT.KEY              the last number logged under a key of an event: last.train.loss
 *   tag.KEY                     tags set with by_tags_set
 *   config.SECTION.KEY          the resolved config, as by_config_print writes it
 *   environment.KEY             where it ran: processor, libraries, build, ...
 */
#ifndef BANYAN_RUNS_H
#define BANYAN_RUNS_H

#include "banyan/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_fact {
    char *key;
    char *value;    /* as text; numbers in JSON notation */
    bool is_number; /* `value` is a finite number */
} by_fact;

typedef struct by_run_facts {
    by_fact *items;
    size_t count;
} by_run_facts;

/* Reads the facts of the run in directory `run`, which may still be in progress; release them with
 * by_run_facts_free. A group whose file is missing is left out. Returns BY_EIO if `run` is not a
 * run directory, BY_EFORMAT if one of its files is damaged. */
BY_API by_status by_run_facts_read(by_run_facts *out, const char *run, by_error *error);
/* Returns the fact with this key, or NULL if there is none. */
BY_API const by_fact *by_run_facts_find(const by_run_facts *facts, const char *key);
/* Frees the list and zeroes it. */
BY_API void by_run_facts_free(by_run_facts *facts);

/* Removes a run directory with all its checkpoints, and its row in RUNS/registry.sqlite. Returns
 * BY_EARG if `run` is not itself a run directory, or is a link; BY_ESTATE if a process trains it or
 * reads one of its checkpoints, or the config of another run beside it names it. Nothing is removed
 * then. BY_EIO if something of it cannot be removed. */
BY_API by_status by_run_remove(const char *run, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
