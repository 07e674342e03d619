/* Parts of tensors: their boxes in the whole tensor, and copies between boxes and parts. */
#include "base/tensor_slice.h"
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

by_tensor_slice by__store_box(const by__store_tensor *entry, int64_t k, by_tensor_slice *place)
{
    by_tensor_slice box = {.flat = false};
    *place = box;
    for (int i = entry->shape.rank; i-- > 0;) {
        int64_t sections = sections_of(entry, i);
        int64_t section = k % sections;
        k /= sections;
        box.shape[i] = place->shape[i] = entry->local.dim[i] / sections;
        box.offset[i] = section * (entry->shape.dim[i] / sections) + entry->first[i];
        place->offset[i] = section * box.shape[i];
    }
    return box;
}

void by__store_box_copy(const by__store_tensor *entry, int64_t k, void *box, void *part,
                        size_t size, bool to_part)
{
    const by_tensor_slice all = by__slice_whole(entry->local.rank, entry->local.dim);
    by_tensor_slice place;
    (void)by__store_box(entry, k, &place);
    if (to_part) {
        by__slice_copy(entry->shape.rank, &place, part, &all, box, &place, size);
    } else {
        by__slice_copy(entry->shape.rank, &place, box, &place, part, &all, size);
    }
}

void by__store_cut(const by__store_tensor *entry, const void *whole, void *part, size_t size)
{
    const by_tensor_slice all = by__slice_whole(entry->shape.rank, entry->shape.dim);
    for (int64_t k = 0; k < by__store_box_count(entry); k++) {
        by_tensor_slice place;
        by_tensor_slice box = by__store_box(entry, k, &place);
        by_tensor_slice around = by__slice_whole(
            entry->local.rank, entry->local.dim); /* the part, where the box is in it */
        for (int i = 0; i < entry->shape.rank; i++) {
            around.offset[i] = box.offset[i] - place.offset[i];
        }
        by__slice_copy(entry->shape.rank, &box, part, &around, whole, &all, size);
    }
}

/* Number of elements of box k before element `element` of the part; decided by the first axis on
 * which the element is outside of the box. */
static int64_t elements_before(const by__store_tensor *entry, const by_tensor_slice *place,
                               int64_t element)
{
    int64_t before = 0;
    int64_t inner = (int64_t)by__slice_elements(entry->shape.rank, place);
    int64_t stride = by_shape_count(&entry->local);
    if (element >= stride) {
        return inner;
    }
    for (int i = 0; i < entry->shape.rank; i++) {
        inner /= place->shape[i]; /* NOLINT(clang-analyzer-core.DivideZero): no box is empty */
        stride /= entry->local.dim[i];
        int64_t index = element / stride - place->offset[i];
        element %= stride;
        if (index < 0) {
            return before;
        }
        if (index >= place->shape[i]) {
            return before + place->shape[i] * inner;
        }
        before += index * inner;
    }
    return before;
}

by_tensor_slice by__store_box_range(const by__store_tensor *entry, int64_t k, by__store_part part)
{
    by_tensor_slice place;
    (void)by__store_box(entry, k, &place);
    int64_t begin = elements_before(entry, &place, part.first);
    int64_t end = elements_before(entry, &place, part.first + part.count);
    return (by_tensor_slice){.flat = true, .offset = {begin}, .shape = {end - begin}};
}
