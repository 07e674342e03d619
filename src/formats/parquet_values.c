/* Decoders of Parquet's encodings of values. */
#include <math.h>
#include <string.h>

#include "formats/parquet.h"

enum { BOOLEAN = 0, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED };

#define JULIAN_1970     2440588
#define DAY_NANOSECONDS ((int64_t)86400 * 1000000000)
#define MAX_DAYS        106751 /* limit at which nanoseconds fit in 64 bits */

/* ---- runs and bits ---- */

/* Reads the header of the next run. */
static bool begin_run(by__format_parquet_hybrid *h)
{
    uint64_t head = 0;
    unsigned shift = 0;
    do {
        if (h->at == h->end || shift > 35) {
            return false;
        }
        head |= (uint64_t)(*h->at & 0x7f) << shift;
        shift += 7;
    } while ((*h->at++ & 0x80) != 0);
    h->is_packed = (head & 1) != 0;
    h->left = h->is_packed ? (head >> 1) * 8 : head >> 1;
    size_t bytes = h->is_packed ? (size_t)(head >> 1) * h->width : (h->width + 7) / 8;
    if (h->left == 0 || bytes > (size_t)(h->end - h->at)) {
        return false;
    }
    h->packed = h->at;
    h->bit = 0;
    h->value = 0;
    for (size_t i = 0; i < bytes && !h->is_packed; i++) {
        h->value |= (uint32_t)h->at[i] << (8 * i);
    }
    h->at += bytes;
    return h->is_packed || h->width == 32 || h->value >> h->width == 0;
}

bool by__format_parquet_hybrid_next(by__format_parquet_hybrid *h, uint32_t *out)
{
    if (h->left == 0 && !begin_run(h)) {
        return false;
    }
    h->left--;
    if (!h->is_packed) {
        *out = h->value;
        return true;
    }
    uint64_t bits = 0;
    const uint8_t *from = h->packed + h->bit / 8;
    unsigned offset = (unsigned)(h->bit % 8);
    for (unsigned i = 0; 8 * i < offset + h->width; i++) {
        bits |= (uint64_t)from[i] << (8 * i);
    }
    *out = (uint32_t)(bits >> offset & (((uint64_t)1 << h->width) - 1));
    h->bit += h->width;
    return true;
}

/* ---- values ---- */

by_status by__format_parquet_damaged(const by__format_parquet *p,
                                     const by__format_parquet_column *c, const char *what,
                                     by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: damaged Parquet file: column '%.60s': %s", p->name,
                        c->name, what);
}

static uint64_t load(const uint8_t *p, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)p[i] << (8 * i);
    }
    return value;
}

/* A big-endian two's complement number of any length. */
static double load_decimal(const uint8_t *p, size_t bytes)
{
    double value = bytes > 0 && p[0] >= 128 ? -1.0 : 0.0;
    for (size_t i = 0; i < bytes; i++) {
        value = value * 256.0 + (double)p[i];
    }
    return value;
}

/* Reads a number of `width` bytes. Returns false if it does not fit. */
static bool read_number(const by__format_parquet_column *c, const uint8_t *p, size_t width,
                        by__format_parquet_value *out)
{
    uint64_t bits = load(p, width < 8 ? width : 8);
    float narrow;
    double wide;
    *out = (by__format_parquet_value){0};
    if (c->physical == FLOAT) {
        uint32_t low = (uint32_t)bits;
        memcpy(&narrow, &low, sizeof narrow);
        out->as.real = (double)narrow;
    } else if (c->physical == DOUBLE) {
        memcpy(&wide, &bits, sizeof wide);
        out->as.real = wide;
    } else if (c->physical == BYTE_ARRAY || c->physical == FIXED) {
        out->as.real = load_decimal(p, width) / pow(10.0, c->scale);
    } else if (c->physical == INT96) {
        int64_t days = (int64_t)load(p + 8, 4) - JULIAN_1970;
        if (days > MAX_DAYS - 1 || days < -MAX_DAYS || bits > (uint64_t)DAY_NANOSECONDS) {
            return false;
        }
        out->as.integer = days * DAY_NANOSECONDS + (int64_t)bits;
    } else {
        bool is_wide = c->physical == INT64;
        int64_t value = is_wide || c->is_unsigned ? (int64_t)bits : (int32_t)(uint32_t)bits;
        if (is_wide && c->is_unsigned && value < 0) {
            return false;
        }
        if (c->is_decimal) {
            out->as.real = (double)value / pow(10.0, c->scale);
        } else {
            out->as.integer = value;
        }
    }
    return true;
}

static by_status read_text(by__format_parquet_values *out, const uint8_t *p, size_t length,
                           by__format_parquet_value *value, by_error *error)
{
    size_t end;
    if (!by__size_add(out->byte_count, length, &end)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: text of a column");
    }
    BY_TRY(by__reserve((void **)&out->bytes, &out->byte_capacity, end, 1, error));
    if (length > 0) {
        memcpy(out->bytes + out->byte_count, p, length);
    }
    *value = (by__format_parquet_value){.as.offset = out->byte_count, .length = (int64_t)length};
    out->byte_count = end;
    return BY_OK;
}

by_status by__format_parquet_plain(const by__format_parquet *p, const by__format_parquet_column *c,
                                   const uint8_t *data, size_t size, size_t count,
                                   by__format_parquet_values *out, by_error *error)
{
    static const size_t widths[] = {0, 4, 8, 12, 4, 8, 0, 0};
    size_t at = 0;
    if (c->physical == BOOLEAN && (count + 7) / 8 > size) {
        return by__format_parquet_damaged(p, c, "a page is too short for its values", error);
    }
    for (size_t i = 0; i < count; i++) {
        by__format_parquet_value value = {0};
        size_t width = c->physical == FIXED ? (size_t)c->width : widths[c->physical];
        if (c->physical == BOOLEAN) {
            value.as.integer = data[i / 8] >> (i % 8) & 1;
        } else {
            if (c->physical == BYTE_ARRAY && size - at >= 4) {
                width = (size_t)load(data + at, 4);
                at += 4;
            } else if (c->physical == BYTE_ARRAY) {
                width = SIZE_MAX;
            }
            if (width > size - at) {
                return by__format_parquet_damaged(p, c, "a page is too short for its values",
                                                  error);
            }
            if (c->kind == BY__PARQUET_TEXT) {
                BY_TRY(read_text(out, data + at, width, &value, error));
            } else if (!read_number(c, data + at, width, &value)) {
                return by_error_set(error, BY_EFORMAT, "%s: column '%.60s' has %s", p->name,
                                    c->name,
                                    c->physical == INT96 ? "a time that is not in 1678 to 2261"
                                                         : "a number above 2^63 - 1");
            }
            at += width;
        }
        BY_TRY(by__reserve((void **)&out->items, &out->capacity, out->count + 1, sizeof *out->items,
                           error));
        out->items[out->count++] = value;
    }
    return BY_OK;
}

by_status by__format_parquet_plain_places(const by__format_parquet *p,
                                          const by__format_parquet_column *c, uint64_t offset,
                                          const uint8_t *data, size_t size, size_t count,
                                          by__format_parquet_values *out, by_error *error)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t width = size - at >= 4 ? (size_t)load(data + at, 4) : SIZE_MAX;
        if (width == SIZE_MAX || width > size - at - 4) {
            return by__format_parquet_damaged(p, c, "a page is too short for its values", error);
        }
        BY_TRY(by__reserve((void **)&out->items, &out->capacity, out->count + 1, sizeof *out->items,
                           error));
        out->items[out->count++] =
            (by__format_parquet_value){.as.offset = offset + at + 4, .length = (int64_t)width};
        at += 4 + width;
    }
    return BY_OK;
}
