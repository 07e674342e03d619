/* Internal record of an encoding of a table's rows (encoding.c), shared with its JSON printer and
 * parser (encoding_json.c). */
#ifndef BY_DATA_ENCODING_H
#define BY_DATA_ENCODING_H

#include "banyan/table.h"
#include "base/base.h"

/* Statistics of one column. */
typedef struct by__encoded {
    char *name;
    bool is_category;
    double mean;
    double deviation;
    char **values; /* values of a category, sorted bytewise */
    size_t count;
} by__encoded;

struct by_encoding {
    by__encoded *numbers;
    size_t number_count;
    by__encoded *categories;
    size_t category_count;
    by__encoded target;
    bool has_target;
};

/* Allocates an empty encoding with room for so many columns. Closed with by_encoding_close. */
by_status by__encoding_allocate(by_encoding **out, size_t numbers, size_t categories,
                                by_error *error);
/* Copies a name or a value; freed with free(). */
by_status by__encoding_copy(char **out, const char *text, by_error *error);

#endif
