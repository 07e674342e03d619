/* Lists of examples: which ones a part of a data set has. */
#ifndef BY_DATA_LOADER_ROW_LIST_H
#define BY_DATA_LOADER_ROW_LIST_H

#include "base/base.h"

/* Reads numbers of examples, from 0: an npy file of integers, of one axis, or a text file with one
 * number a line. *rows is freed with free(). BY_EFORMAT names a line or element that is no number
 * below `examples`, and a file without any. */
by_status by__loader_row_list_read(uint64_t **rows, uint64_t *count, const char *path,
                                   uint64_t examples, by_error *error);
/* The same for the content of a file. */
by_status by__loader_row_list_parse(uint64_t **rows, uint64_t *count, const char *path,
                                    const char *text, size_t size, uint64_t examples,
                                    by_error *error);
/* The examples that are not in a list, in order; free() it. */
by_status by__loader_row_list_complement(uint64_t **rows, uint64_t *count, const uint64_t *list,
                                         uint64_t list_count, uint64_t examples, by_error *error);
/* Finds an example that is in both lists; returns false if there is none. */
by_status by__loader_row_list_common(bool *found, uint64_t *example, const uint64_t *a,
                                     uint64_t a_count, const uint64_t *b, uint64_t b_count,
                                     uint64_t examples, by_error *error);

#endif
