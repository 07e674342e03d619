#include "formats/array_file.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/host/file_kind.h"
#include "formats/gzip.h"
#include "formats/idx.h"
#include "formats/npy.h"
#include "formats/npz.h"

static const struct {
    size_t size;
    by_dtype dtype;
    bool is_float;
    bool is_signed;
} elements[BY__ELEMENT_COUNT] = {
    [BY__ELEMENT_U8] = {1, BY_U8, false, false},   [BY__ELEMENT_I8] = {1, BY_I32, false, true},
    [BY__ELEMENT_U16] = {2, BY_I32, false, false}, [BY__ELEMENT_I16] = {2, BY_I32, false, true},
    [BY__ELEMENT_U32] = {4, BY_I32, false, false}, [BY__ELEMENT_I32] = {4, BY_I32, false, true},
    [BY__ELEMENT_U64] = {8, BY_I32, false, false}, [BY__ELEMENT_I64] = {8, BY_I32, false, true},
    [BY__ELEMENT_F32] = {4, BY_F32, true, true},   [BY__ELEMENT_F64] = {8, BY_F32, true, true},
};

size_t by__format_element_size(by__format_element element)
{
    return elements[element].size;
}

by_dtype by__format_element_dtype(by__format_element element)
{
    return elements[element].dtype;
}

by_status by__format_array_view_check(const by__format_array_view *view, const char *name,
                                      size_t offset, size_t size, by_error *error)
{
    size_t bytes = elements[view->element].size;
    char shape[128];
    bool fits = true;
    for (int i = 0; i < view->shape.rank && fits; i++) {
        fits = by__size_mul(bytes, (size_t)view->shape.dim[i], &bytes);
    }
    if (fits && bytes == size) {
        return BY_OK;
    }
    return by_error_set(error, BY_EFORMAT,
                        "%s: the header promises elements of %zu bytes, %s, from offset %zu, but "
                        "%zu bytes follow",
                        name, elements[view->element].size, by_shape_print(&view->shape, shape),
                        offset, size);
}

/* ---- elements ---- */

static uint64_t load_bits(const by__format_array_view *view, size_t i)
{
    size_t size = elements[view->element].size;
    const uint8_t *p = view->data + i * size;
    uint64_t bits = 0;
    for (size_t k = 0; k < size; k++) {
        bits |= (uint64_t)p[view->big_endian ? size - 1 - k : k] << (8 * k);
    }
    return bits;
}

static double load_float(const by__format_array_view *view, size_t i)
{
    uint64_t bits = load_bits(view, i);
    double wide;
    if (view->element == BY__ELEMENT_F64) {
        memcpy(&wide, &bits, sizeof wide);
        return wide;
    }
    uint32_t low = (uint32_t)bits;
    float narrow;
    memcpy(&narrow, &low, sizeof narrow);
    return (double)narrow;
}

/* Loads an integer element; unsigned 64-bit values above INT64_MAX become INT64_MAX, which no
 * target type can hold. */
static int64_t load_integer(const by__format_array_view *view, size_t i)
{
    uint64_t bits = load_bits(view, i);
    unsigned unused = 64 - 8 * (unsigned)elements[view->element].size;
    assert(unused < 64);
    if (elements[view->element].is_signed) {
        return (int64_t)(bits << unused) >> unused;
    }
    return bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
}

static by_status bad_element(const char *name, size_t i, double value, by_dtype dtype,
                             by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: element %zu is %.17g, which is no %s", name, i,
                        value, by_dtype_name(dtype));
}

static by_status convert_integers(void *out, by_dtype dtype, const by__format_array_view *view,
                                  size_t count, const char *name, by_error *error)
{
    int64_t least = dtype == BY_U8 ? 0 : INT32_MIN;
    int64_t greatest = dtype == BY_U8 ? UINT8_MAX : INT32_MAX;
    for (size_t i = 0; i < count; i++) {
        int64_t value;
        if (elements[view->element].is_float) {
            double given = load_float(view, i);
            if (!(given >= (double)least && given <= (double)greatest) ||
                (double)(int64_t)given != given) {
                return bad_element(name, i, given, dtype, error);
            }
            value = (int64_t)given;
        } else {
            value = load_integer(view, i);
            if (value < least || value > greatest) {
                return bad_element(name, i, (double)value, dtype, error);
            }
        }
        if (dtype == BY_U8) {
            ((uint8_t *)out)[i] = (uint8_t)value;
        } else {
            ((int32_t *)out)[i] = (int32_t)value;
        }
    }
    return BY_OK;
}

by_status by__format_array_convert(void *out, by_dtype dtype, const by__format_array_view *view,
                                   const char *name, by_error *error)
{
    size_t count = (size_t)by_shape_count(&view->shape);
    if (dtype == BY_U8 && view->element == BY__ELEMENT_U8) {
        memcpy(out, view->data, count);
        return BY_OK;
    }
    if (dtype == BY_U8 || dtype == BY_I32) {
        return convert_integers(out, dtype, view, count, name, error);
    }
    if (dtype != BY_F32) {
        return by_error_set(error, BY_EARG, "%s: arrays are read as u8, i32 or f32, not %s", name,
                            by_dtype_name(dtype));
    }
    for (size_t i = 0; i < count; i++) {
        ((float *)out)[i] = elements[view->element].is_float ? (float)load_float(view, i)
                                                             : (float)load_integer(view, i);
    }
    return BY_OK;
}

/* ---- files ---- */

by_status by__format_array_file_read(uint8_t **out, size_t *size, const char *path, size_t max,
                                     by_error *error)
{
    char *content;
    size_t length;
    size_t archive = by__format_npz_split(path);
    if (archive > 0) {
        char *file = by__strndup(path, archive);
        by_status read = file == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                                      : by__format_npz_file_read(out, size, file,
                                                                 path + archive + 1, max, error);
        free(file);
        return read;
    }
    BY_TRY(by__file_read(&content, &length, path, max, error));
    if (!by__format_gzip_is((const uint8_t *)content, length)) {
        *out = (uint8_t *)content;
        *size = length;
        return BY_OK;
    }
    by_status status =
        by__format_gzip_inflate(out, size, path, (const uint8_t *)content, length, max, error);
    free(content);
    return status;
}

bool by__format_array_is_file(const uint8_t *data, size_t size)
{
    return (size >= 6 && memcmp(data, "\x93NUMPY", 6) == 0) || by__format_idx_is(data, size);
}

by_status by__format_array_file_parse(by__format_array_view *out, const char *name,
                                      const uint8_t *data, size_t size, by_error *error)
{
    if (size >= 6 && memcmp(data, "\x93NUMPY", 6) == 0) {
        return by__format_npy_parse_array(out, name, data, size, error);
    }
    if (by__format_idx_is(data, size)) {
        return by__format_idx_parse(out, name, data, size, error);
    }
    if (by__format_npz_is(data, size)) {
        char names[256];
        by__format_npz_names(names, sizeof names, data, size);
        return by_error_set(error, BY_EFORMAT,
                            "%s is an archive of the arrays %s: append the name of one, "
                            "FILE.npz/NAME",
                            name, names);
    }
    const char *kind = by__file_kind(data, size);
    return by_error_set(error, BY_EFORMAT,
                        "%s: neither an npy file (which begins with \\x93NUMPY) nor IDX (two zero "
                        "bytes, type, number of axes)%s%s",
                        name, kind != NULL ? ": it is " : "", kind != NULL ? kind : "");
}
