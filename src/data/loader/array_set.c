/* Named arrays in memory, and their parts. */
#include "banyan/array_set.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/loader/array_set.h"

struct by_array_set {
    char *name;
    by_array *arrays;
    size_t count;
    char hash[33];
    by__loader_damage damage;     /* examples that were skipped */
    by__loader_pictures pictures; /* without data of the first array */
    char picture_hash[33];
};

/* ---- sets ---- */

/* pictures: the first array has no data. */
static by_status check_arrays(const char *name, const by_array *arrays, size_t count, bool pictures,
                              by_error *error)
{
    if (count == 0) {
        return by_error_set(error, BY_EARG, "%s: a set needs at least one array", name);
    }
    for (size_t i = 0; i < count; i++) {
        const by_array *a = &arrays[i];
        char shape[128];
        bool is_valid = a->shape.rank >= 1 && a->shape.rank <= BY_MAX_RANK &&
                        by_dtype_size(a->dtype) > 0 && (a->data != NULL || (pictures && i == 0));
        for (int k = 0; is_valid && k < a->shape.rank; k++) {
            is_valid = a->shape.dim[k] > 0;
        }
        if (!is_valid) {
            return by_error_set(error, BY_EARG,
                                "%s: array '%s' needs a data type and extents of at least 1", name,
                                a->name);
        }
        if (a->shape.dim[0] != arrays[0].shape.dim[0]) {
            return by_error_set(error, BY_EARG, "%s: array '%s' is %s, but '%s' has %lld examples",
                                name, a->name, by_shape_print(&a->shape, shape), arrays[0].name,
                                (long long)arrays[0].shape.dim[0]);
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(arrays[k].name, a->name) == 0) {
                return by_error_set(error, BY_EARG, "%s: there are two arrays '%s'", name, a->name);
            }
        }
    }
    return BY_OK;
}

by_status by__loader_array_bytes(size_t *out, by_dtype dtype, const by_shape *shape,
                                 const char *name, by_error *error)
{
    size_t bytes = by_dtype_size(dtype);
    for (int k = 0; k < shape->rank; k++) {
        if (!by__size_mul(bytes, (size_t)shape->dim[k], &bytes)) {
            char text[128];
            return by_error_set(error, BY_EMEMORY, "%s: size overflow: %s", name,
                                by_shape_print(shape, text));
        }
    }
    *out = bytes;
    return BY_OK;
}

static by_status hash_arrays(by_array_set *s, by_error *error)
{
    by__hasher *hasher;
    BY_TRY(by__hasher_open(&hasher, error));
    for (size_t i = 0; i < s->count; i++) {
        const by_array *a = &s->arrays[i];
        char shape[128];
        const char *dtype = by_dtype_name(a->dtype);
        (void)by_shape_print(&a->shape, shape);
        by__hasher_add(hasher, a->name, strlen(a->name) + 1);
        by__hasher_add(hasher, dtype, strlen(dtype) + 1);
        by__hasher_add(hasher, shape, strlen(shape) + 1);
        if (a->data == NULL) {
            by__hasher_add(hasher, s->picture_hash, sizeof s->picture_hash);
        } else {
            by__hasher_add(hasher, a->data,
                           (size_t)by_shape_count(&a->shape) * by_dtype_size(a->dtype));
        }
    }
    by__hasher_hex(hasher, s->hash);
    by__hasher_close(&hasher);
    return BY_OK;
}

by_status by__loader_array_set_own(by_array_set **out, const char *name, const by_array *arrays,
                                   size_t count, by_error *error)
{
    const by__loader_pictures none = {0};
    return by__loader_array_set_own_pictures(out, name, arrays, count, &none, "", error);
}

const by__loader_pictures *by__loader_array_set_pictures(const by_array_set *set)
{
    return &set->pictures;
}

/* Takes ownership of the names and elements (from malloc), also on failure. */
by_status by__loader_array_set_own_pictures(by_array_set **out, const char *name,
                                            const by_array *arrays, size_t count,
                                            const by__loader_pictures *pictures, const char *hash,
                                            by_error *error)
{
    by_array_set *s = NULL;
    by_status status = by__alloc((void **)&s, 1, sizeof *s, "a set of arrays", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&s->arrays, count + 1, sizeof *s->arrays, "arrays", error);
    }
    if (status != BY_OK) {
        for (size_t i = 0; i < count; i++) {
            free((void *)(uintptr_t)arrays[i].name);
            free((void *)(uintptr_t)arrays[i].data);
        }
        if (pictures->context != NULL) {
            pictures->close(pictures->context);
        }
        free(s);
        return status;
    }
    memcpy(s->arrays, arrays, count * sizeof *arrays);
    s->count = count;
    s->pictures = *pictures;
    (void)snprintf(s->picture_hash, sizeof s->picture_hash, "%s", hash);
    s->name = by__strdup(name);
    if (s->name == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: name");
    }
    if (status == BY_OK) {
        status = check_arrays(name, arrays, count, pictures->context != NULL, error);
    }
    if (status == BY_OK) {
        status = hash_arrays(s, error);
    }
    if (status != BY_OK) {
        by_array_set_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}

static by_status copy_array(by_array *out, const by_array *array, const char *name, by_error *error)
{
    size_t bytes = 0;
    void *data;
    BY_TRY(by__loader_array_bytes(&bytes, array->dtype, &array->shape, name, error));
    BY_TRY(by__alloc_aligned(&data, bytes, "an array", error));
    memcpy(data, array->data, bytes);
    *out = *array;
    out->data = data;
    out->name = by__strdup(array->name);
    return out->name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: name") : BY_OK;
}

by_status by_array_set_open(by_array_set **out, const char *name, const by_array *arrays,
                            size_t count, by_error *error)
{
    by_array *copies;
    BY_TRY(check_arrays(name, arrays, count, false, error));
    BY_TRY(by__alloc((void **)&copies, count, sizeof *copies, "arrays", error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = copy_array(&copies[i], &arrays[i], name, error);
    }
    if (status == BY_OK) {
        status = by__loader_array_set_own(out, name, copies, count, error);
    } else {
        for (size_t i = 0; i < count; i++) {
            free((void *)(uintptr_t)copies[i].name);
            free((void *)(uintptr_t)copies[i].data);
        }
    }
    free(copies);
    return status;
}

void by_array_set_close(by_array_set **set)
{
    if (set == NULL || *set == NULL) {
        return;
    }
    by_array_set *s = *set;
    for (size_t i = 0; i < s->count; i++) {
        free((void *)(uintptr_t)s->arrays[i].name);
        free((void *)(uintptr_t)s->arrays[i].data);
    }
    by__loader_damage_free(&s->damage);
    if (s->pictures.context != NULL) {
        s->pictures.close(s->pictures.context);
    }
    free(s->arrays);
    free(s->name);
    free(s);
    *set = NULL;
}

void by__loader_array_set_own_damage(by_array_set *set, by__loader_damage *damage)
{
    set->damage = *damage;
    *damage = (by__loader_damage){0};
}

const by_damage *by_array_set_damage(const by_array_set *set, size_t *count)
{
    *count = set->damage.count;
    return set->damage.items;
}

const char *by_array_set_name(const by_array_set *set)
{
    return set->name;
}

const by_array *by_array_set_arrays(const by_array_set *set, size_t *count)
{
    *count = set->count;
    return set->arrays;
}

const by_array *by_array_set_find(const by_array_set *set, const char *name)
{
    by_batch all = {.arrays = set->arrays, .array_count = set->count};
    return by_batch_array(&all, name);
}

uint64_t by_array_set_examples(const by_array_set *set)
{
    return (uint64_t)set->arrays[0].shape.dim[0];
}

const char *by_array_set_hash(const by_array_set *set)
{
    return set->hash;
}

/* ---- parts ---- */

uint64_t by_split_count(uint64_t examples, double fraction)
{
    double count = round((double)examples * fraction);
    return !(count > 0.0) ? 0 : count >= (double)examples ? examples : (uint64_t)count;
}

by_status by_split_parts(by_part *train, by_part *valid, by_part *test, uint64_t examples,
                         const by_split *split, by_error *error)
{
    if (split->valid >= examples || split->test >= examples - split->valid) {
        return by_error_set(error, BY_EARG,
                            "%llu examples for validation and %llu for test leave none of %llu to "
                            "train on",
                            (unsigned long long)split->valid, (unsigned long long)split->test,
                            (unsigned long long)examples);
    }
    by_part part = {.total = examples, .seed = split->seed, .random = split->random};
    const struct {
        by_part *out;
        uint64_t count;
    } parts[] = {
        {train, examples - split->valid - split->test}, {valid, split->valid}, {test, split->test}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(parts); i++) {
        part.count = parts[i].count;
        if (parts[i].out != NULL) {
            *parts[i].out = part;
        }
        part.first += part.count;
    }
    return BY_OK;
}

by_part by_part_whole(uint64_t examples)
{
    return (by_part){.count = examples, .total = examples};
}

bool by__loader_part_fits(const by_part *part, uint64_t examples)
{
    return part->count > 0 && part->total == examples &&
           (part->rows != NULL ||
            (part->first <= examples && part->count <= examples - part->first));
}

void by__loader_part_rows_init(by__loader_part_rows *rows, const by_part *part)
{
    *rows =
        (by__loader_part_rows){.first = part->first, .random = part->random, .list = part->rows};
    if (part->random) {
        /* A number that no epoch of a loader has. */
        by__loader_order_init(&rows->order, part->total, part->seed, UINT64_MAX);
    }
}

uint64_t by_part_example(const by_part *part, uint64_t index)
{
    by__loader_part_rows rows;
    by__loader_part_rows_init(&rows, part);
    return by__part_row(&rows, index);
}
