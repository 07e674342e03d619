/* Drift references: statistics of the training data, kept with the weights as the text of
 * BY_DRIFT_FILE. */
#ifndef BY_TASKS_REFERENCES_H
#define BY_TASKS_REFERENCES_H

#include "banyan/data.h"
#include "banyan/drift.h"
#include "banyan/table.h"
#include "base/base.h"

/* Reference of packed text: unigrams of up to four million tokens, read at evenly spread positions,
 * and lengths of documents. `weights`: shares of the sets in training; NULL: equal shares. Freed
 * with free(). A function of the data alone. */
by_status by__task_reference_of_text(char **out, by_dataset *const *sets, const double *weights,
                                     size_t count, by_error *error);
/* Reference of the rows of a part of a table: all columns except ignored ones; predictions are
 * compared with the target's. Columns without any value are skipped. */
by_status by__task_reference_of_table(char **out, const by_table *table, const by_part *part,
                                      const char *const *ignore, size_t ignore_count,
                                      by_error *error);

#endif
