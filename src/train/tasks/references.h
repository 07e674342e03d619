/* What training data looks like, kept with the weights: the text of BY_DRIFT_FILE. */
#ifndef BY_TRAIN_TASKS_REFERENCES_H
#define BY_TRAIN_TASKS_REFERENCES_H

#include "banyan/data.h"
#include "banyan/drift.h"
#include "banyan/table.h"
#include "base/base.h"

/* Of packed text: unigrams of up to four million tokens, which are read from places that are spread
 * evenly, and lengths of documents. `weights`: shares of the sets in what is trained on; NULL: all
 * alike. Freed with free(). A function of the data alone. */
by_status by__reference_of_text(char **out, by_dataset *const *sets, const double *weights,
                                size_t count, by_error *error);
/* Of the rows of a part of a table: all columns but those that are ignored; that of the target is
 * what predictions are compared with. Columns without any value are left out. */
by_status by__reference_of_table(char **out, const by_table *table, const by_part *part,
                                 const char *const *ignore, size_t ignore_count, by_error *error);

#endif
