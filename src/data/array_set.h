/* What the files about sets of arrays share. */
#ifndef BY_DATA_ARRAY_SET_H
#define BY_DATA_ARRAY_SET_H

#include "banyan/array_set.h"
#include "data/damage.h"
#include "data/order.h"

/* Bytes of an array. BY_EMEMORY (naming `name`) when they overflow. */
by_status by__array_bytes(size_t *out, by_dtype dtype, const by_shape *shape, const char *name,
                          by_error *error);
/* by_array_set_open of arrays whose names and elements are from malloc: it takes them over, and
 * frees them also when it fails. */
by_status by__array_set_take(by_array_set **out, const char *name, const by_array *arrays,
                             size_t count, by_error *error);

/* What was left out of it, which it takes over. */
void by__array_set_take_damage(by_array_set *set, by__damage *damage);

/* by_part_example for many of a part's examples. */
typedef struct by__part_rows {
    uint64_t first;
    bool random;
    by__order order;
} by__part_rows;

void by__part_rows_init(by__part_rows *rows, const by_part *part);
static inline uint64_t by__part_row(const by__part_rows *rows, uint64_t index)
{
    uint64_t place = rows->first + index;
    return rows->random ? by__order_at(&rows->order, place) : place;
}

#endif
