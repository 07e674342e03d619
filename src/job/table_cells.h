/* Makes tables from cells in memory (predictor.c). */
#ifndef BY_JOB_TABLE_CELLS_H
#define BY_JOB_TABLE_CELLS_H

#include "banyan/task.h"

/* Makes the table of by_predictor_table, with the columns that the open data of a task read. */
by_status by__job_table_of_cells(by_table **out, const by_task_data *data, const char *const *cells,
                                 size_t rows, by_error *error);

#endif
