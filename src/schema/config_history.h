/* The configs of a run. RUN/config.yaml is the one that it began with. When it is resumed with
 * another one, that is kept beside it as RUN/config-STEP.yaml and applies behind that step. */
#ifndef BY_SCHEMA_CONFIG_HISTORY_H
#define BY_SCHEMA_CONFIG_HISTORY_H

#include "base/base.h"

/* The steps behind which a run has another config, ascending. Free the list with free(). BY_EIO if
 * the directory cannot be read. */
by_status by__schema_config_steps(uint64_t **out, size_t *count, const char *run, by_error *error);

/* The file of the config that applies behind a step; 0: the first one. Free it with free(). */
by_status by__schema_config_file(char **out, const char *run, uint64_t step, by_error *error);

/* Prints the config in a file of a run as a run prints its own, so that the texts can be compared.
 * (config_schema.c) */
by_status by__schema_config_print_file(char **out, const char *path, by_error *error);

/* Prints the config that a run had when it came to a step. */
by_status by__schema_config_before(char **out, const char *run, uint64_t step, by_error *error);

/* Keeps `text` (NULL: nothing new), the printed config of a run that is resumed behind `step`: the
 * first config if that is 0. Configs of later steps, which the run has gone back behind, are
 * removed. */
by_status by__schema_config_keep(const char *run, uint64_t step, const char *text, by_error *error);

/* Called for each key "section.key" of two printed configs whose values differ; NULL: the config
 * has no such key. */
typedef void by__schema_config_change(void *user, const char *key, const char *before,
                                      const char *after);
by_status by__schema_config_compare(const char *before, const char *after,
                                    by__schema_config_change *change, void *user, by_error *error);

#endif
