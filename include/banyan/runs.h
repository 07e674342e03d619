/* What is known of a run, as one flat list: for tables, comparisons and exports.
 *
 * Keys, in this order:
 *   run.name, run.path, run.status, run.step, run.steps, run.started, run.updated,
 *   run.config_hash, run.best_loss    the record (banyan/track.h)
 *   last.EVENT.KEY                    the last number of a key in the run's events: last.train.loss
 *   tag.KEY                           what people say of it (by_tags_set)
 *   config.SECTION.KEY                the resolved config, as it prints
 *   environment.KEY                   where it ran: processor, libraries, build, ...
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
    char *value;    /* as text; of a number, as JSON writes it */
    bool is_number; /* value is a finite number */
} by_fact;

typedef struct by_run_facts {
    by_fact *items;
    size_t count;
} by_run_facts;

/* Reads the facts of a run directory, also while the run goes on. Parts whose file is missing are
 * left out; BY_EFORMAT: a file is damaged; BY_EIO: `run` is not the directory of a run. Released
 * with by_run_facts_free. */
BY_API by_status by_run_facts_read(by_run_facts *out, const char *run, by_error *error);
/* The value of a key; NULL when there is none. */
BY_API const by_fact *by_run_facts_find(const by_run_facts *facts, const char *key);
BY_API void by_run_facts_free(by_run_facts *facts);

#ifdef __cplusplus
}
#endif
#endif
