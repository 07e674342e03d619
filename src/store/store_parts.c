/* Parts of tensors: their boxes in the whole tensor, and copies between boxes and parts. */
#include <string.h>

#include "store/store.h"

static int64_t sections_of(const by__store_tensor *entry, int axis)
{
    return entry->sections[axis] > 0 ? entry->sections[axis] : 1;
}

bool by__store_is_part(const by__store_tensor *entry)
{
    /* A matrix held as its transpose is always held whole. */
    return !entry->transposed && !by_shape_equal(&entry->shape, &entry->local);
}

int64_t by__store_box_count(const by__store_tensor *entry)
{
    int64_t count = 1;
    for (int i = 0; i < entry->shape.rank; i++) {
        count *= sections_of(entry, i);
    }
    return count;
}

/* Box k, and its place in the part. */
static by__store_box find_box(const by__store_tensor *entry, int64_t k, int64_t place[BY_MAX_RANK])
{
    by__store_box box = {.shape = entry->local};
    for (int i = entry->shape.rank; i-- > 0;) {
        int64_t sections = sections_of(entry, i);
        int64_t section = k % sections;
        k /= sections;
        box.shape.dim[i] = entry->local.dim[i] / sections;
        box.offset[i] = section * (entry->shape.dim[i] / sections) + entry->first[i];
        place[i] = section * box.shape.dim[i];
    }
    return box;
}

by__store_box by__store_box_at(const by__store_tensor *entry, int64_t k)
{
    int64_t place[BY_MAX_RANK] = {0};
    return find_box(entry, k, place);
}

/* Offset in a tensor, which starts at `first`, of the row with these indices. */
static size_t place_of(const by_shape *shape, const int64_t *index, const int64_t *first)
{
    size_t at = 0;
    for (int i = 0; i < shape->rank; i++) {
        int64_t here = first[i] + (i < shape->rank - 1 ? index[i] : 0);
        at = at * (size_t)shape->dim[i] + (size_t)here;
    }
    return at;
}

/* Copies the rows of a box between two tensors in which the box begins at `a_first` and
 * `b_first`. */
static void copy_rows(const by_shape *box, char *a, const by_shape *a_shape, const int64_t *a_first,
                      char *b, const by_shape *b_shape, const int64_t *b_first, size_t size)
{
    int64_t index[BY_MAX_RANK] = {0};
    int last = box->rank - 1;
    int64_t rows = last < 0 ? 1 : by_shape_count(box) / (box->dim[last] > 0 ? box->dim[last] : 1);
    size_t bytes = (last < 0 ? 1 : (size_t)box->dim[last]) * size;
    for (int64_t row = 0; row < rows; row++) {
        memcpy(a + place_of(a_shape, index, a_first) * size,
               b + place_of(b_shape, index, b_first) * size, bytes);
        for (int i = last - 1; i >= 0 && ++index[i] == box->dim[i]; i--) {
            index[i] = 0;
        }
    }
}

void by__store_box_copy(const by__store_tensor *entry, int64_t k, void *box, void *part,
                        size_t size, bool to_part)
{
    static const int64_t zero[BY_MAX_RANK] = {0};
    int64_t place[BY_MAX_RANK] = {0};
    by__store_box at = find_box(entry, k, place);
    if (to_part) {
        copy_rows(&at.shape, part, &entry->local, place, box, &at.shape, zero, size);
    } else {
        copy_rows(&at.shape, box, &at.shape, zero, part, &entry->local, place, size);
    }
}

void by__store_cut(const by__store_tensor *entry, const void *whole, void *part, size_t size)
{
    for (int64_t k = 0; k < by__store_box_count(entry); k++) {
        int64_t place[BY_MAX_RANK] = {0};
        by__store_box at = find_box(entry, k, place);
        copy_rows(&at.shape, part, &entry->local, place, (char *)(uintptr_t)whole, &entry->shape,
                  at.offset, size);
    }
}

/* Number of elements of box k before element `element` of the part; decided by the first axis on
 * which the element is outside of the box. */
static int64_t elements_before(const by__store_tensor *entry, const by_shape *box,
                               const int64_t *place, int64_t element)
{
    int64_t before = 0;
    int64_t inner = by_shape_count(box);
    int64_t stride = by_shape_count(&entry->local);
    if (element >= stride) {
        return inner;
    }
    for (int i = 0; i < box->rank; i++) {
        inner /= box->dim[i];
        stride /= entry->local.dim[i];
        int64_t index = element / stride - place[i];
        element %= stride;
        if (index < 0) {
            return before;
        }
        if (index >= box->dim[i]) {
            return before + box->dim[i] * inner;
        }
        before += index * inner;
    }
    return before;
}

void by__store_box_range(const by__store_tensor *entry, int64_t k, int64_t first, int64_t count,
                         int64_t *begin, int64_t *elements)
{
    int64_t place[BY_MAX_RANK] = {0};
    by__store_box box = find_box(entry, k, place);
    *begin = elements_before(entry, &box.shape, place, first);
    *elements = elements_before(entry, &box.shape, place, first + count) - *begin;
}

void by__store_box_read(const by__store_tensor *entry, int64_t k, int64_t begin, int64_t elements,
                        void *out, const void *values, int64_t first, size_t size)
{
    static const int64_t zero[BY_MAX_RANK] = {0};
    int64_t place[BY_MAX_RANK] = {0};
    by_shape shape = find_box(entry, k, place).shape;
    int last = shape.rank - 1;
    int64_t columns = last < 0 ? 1 : shape.dim[last];
    while (elements > 0) {
        int64_t index[BY_MAX_RANK] = {0};
        int64_t row = begin / columns;
        int64_t column = begin % columns;
        int64_t run = columns - column < elements ? columns - column : elements;
        for (int i = last - 1; i >= 0; i--) {
            index[i] = place[i] + row % shape.dim[i];
            row /= shape.dim[i];
        }
        int64_t at = (int64_t)place_of(&entry->local, index, zero);
        at += last < 0 ? 0 : place[last] + column;
        memcpy(out, (const char *)values + (size_t)(at - first) * size, (size_t)run * size);
        out = (char *)out + (size_t)run * size;
        begin += run;
        elements -= run;
    }
}
