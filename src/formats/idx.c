#include "formats/idx.h"

static bool find_element(by__format_element *out, uint8_t type)
{
    static const struct {
        uint8_t type;
        by__format_element element;
    } types[] = {{0x08, BY__ELEMENT_U8},  {0x09, BY__ELEMENT_I8},  {0x0b, BY__ELEMENT_I16},
                 {0x0c, BY__ELEMENT_I32}, {0x0d, BY__ELEMENT_F32}, {0x0e, BY__ELEMENT_F64}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(types); i++) {
        if (types[i].type == type) {
            *out = types[i].element;
            return true;
        }
    }
    return false;
}

bool by__format_idx_is(const uint8_t *data, size_t size)
{
    by__format_element element;
    return size >= 4 && data[0] == 0 && data[1] == 0 && find_element(&element, data[2]);
}

by_status by__format_idx_parse(by__format_array_view *out, const char *name, const uint8_t *data,
                               size_t size, by_error *error)
{
    by__format_array_view view = {.big_endian = true};
    if (size < 4 || data[0] != 0 || data[1] != 0 || !find_element(&view.element, data[2])) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: not an IDX file (two zero bytes, then type 08, 09, 0b, 0c, 0d or "
                            "0e)",
                            name);
    }
    if (data[3] == 0 || data[3] > BY_MAX_RANK) {
        return by_error_set(error, BY_EFORMAT, "%s: %u axes at offset 3 are not 1 to %d", name,
                            data[3], BY_MAX_RANK);
    }
    view.shape.rank = data[3];
    size_t offset = 4 + 4 * (size_t)data[3];
    if (size < offset) {
        return by_error_set(error, BY_EFORMAT, "%s: %zu bytes end inside the IDX header of %zu",
                            name, size, offset);
    }
    for (int i = 0; i < view.shape.rank; i++) {
        const uint8_t *p = data + 4 + 4 * i;
        view.shape.dim[i] =
            (int64_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
    }
    view.data = data + offset;
    BY_TRY(by__format_array_view_check(&view, name, offset, size - offset, error));
    *out = view;
    return BY_OK;
}
