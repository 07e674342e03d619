/* What an encoding of a table's rows is made of (encoding.c), for who prints and parses it
 * (encoding_json.c). */
#ifndef BY_DATA_ENCODING_H
#define BY_DATA_ENCODING_H

#include "banyan/table.h"
#include "base/base.h"

/* What is known of one column. */
typedef struct by__encoded {
    char *name;
    bool is_category;
    double mean;
    double deviation;
    char **values; /* of a category, sorted by their bytes */
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

/* An encoding with room for so many columns, and none yet. Closed with by_encoding_close. */
by_status by__encoding_allocate(by_encoding **out, size_t numbers, size_t categories,
                                by_error *error);
/* Copies a name or a value; freed with free(). */
by_status by__encoding_copy(char **out, const char *text, by_error *error);

#endif
