/* Internal functions of sets of arrays, shared by the files that make them. */
#ifndef BY_DATA_LOADER_ARRAY_SET_H
#define BY_DATA_LOADER_ARRAY_SET_H

#include "banyan/array_set.h"
#include "data/loader/damage.h"
#include "data/loader/order.h"
#include "data/transform/transform.h"

/* Reads the images of a set when they are used; any number of threads may. */
typedef struct by__loader_pictures {
    void *context; /* NULL: there are none, images are in memory */
    /* Writes image `row`, u8 [C, H, W]: the part that a step of a chain draws, resized, or without
     * a step all of it, fitted as held-out images are. */
    by_status (*read)(const void *context, uint64_t row, const by__transform_step *step,
                      const by__transform_draw *draw, uint8_t *out, by_error *error);
    /* Where image `row` lies: the number of its file, and the bytes before it. */
    void (*place)(const void *context, uint64_t row, uint64_t *file, uint64_t *begin);
    void (*close)(void *context);
} by__loader_pictures;

/* Bytes of an array. BY_EMEMORY (naming `name`) when they overflow. */
by_status by__loader_array_bytes(size_t *out, by_dtype dtype, const by_shape *shape,
                                 const char *name, by_error *error);
/* by_array_set_open for arrays whose names and elements are from malloc: takes ownership of them,
 * also on failure. */
by_status by__loader_array_set_own(by_array_set **out, const char *name, const by_array *arrays,
                                   size_t count, by_error *error);

/* The same of a set whose images, the first array, are read when they are used; `hash` tells which
 * they are. Takes ownership of the pictures, also on failure. */
by_status by__loader_array_set_own_pictures(by_array_set **out, const char *name,
                                            const by_array *arrays, size_t count,
                                            const by__loader_pictures *pictures, const char *hash,
                                            by_error *error);
const by__loader_pictures *by__loader_array_set_pictures(const by_array_set *set);

/* Sets the list of examples that were skipped; takes ownership of it. */
void by__loader_array_set_own_damage(by_array_set *set, by__loader_damage *damage);

/* Reads many examples of a part, as by_part_example reads one. */
typedef struct by__loader_part_rows {
    uint64_t first;
    bool random;
    const uint64_t *list; /* by_part.rows */
    by__loader_order order;
} by__loader_part_rows;

/* Whether a part is one of a set of so many examples, and not empty. */
bool by__loader_part_fits(const by_part *part, uint64_t examples);
void by__loader_part_rows_init(by__loader_part_rows *rows, const by_part *part);
static inline uint64_t by__part_row(const by__loader_part_rows *rows, uint64_t index)
{
    uint64_t place = rows->first + index;
    if (rows->list != NULL) {
        return rows->list[index];
    }
    return rows->random ? by__loader_order_at(&rows->order, place) : place;
}

/* The example of the set that a sample of a source of by_array_source_open has. */
uint64_t by__loader_array_source_row(const by_source *source, const by_source_sample *sample);

#endif
