/* IDX files, e.g. MNIST: two zero bytes, the type, the number of axes, each extent as 32 bits
 * big-endian, then the elements, big-endian. Types 08 u8, 09 i8, 0B i16, 0C i32, 0D f32, 0E f64. */
#ifndef BY_FORMATS_IDX_H
#define BY_FORMATS_IDX_H

#include "formats/array_file.h"

/* Returns true if the data begin as IDX does. */
bool by__format_idx_is(const uint8_t *data, size_t size);
/* BY_EFORMAT names the file, the value found and the value expected. */
by_status by__format_idx_parse(by__format_array_view *out, const char *name, const uint8_t *data,
                               size_t size, by_error *error);

#endif
