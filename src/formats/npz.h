/* npz files: a zip archive of npy files, as numpy.savez and numpy.savez_compressed write them.
 *
 * Format: PKWARE's APPNOTE: the end of the archive tells where its directory is, whose entries tell
 * where the members are; ZIP64 fields hold sizes of 4 GiB and more. */
#ifndef BY_FORMATS_NPZ_H
#define BY_FORMATS_NPZ_H

#include "formats/array_file.h"

/* A member of an archive: `size` bytes, of which the archive has `packed`. */
typedef struct by__format_npz_member {
    const uint8_t *data; /* in the archive */
    size_t packed;
    size_t size;
    bool deflated;
    uint32_t crc;
} by__format_npz_member;

/* Returns true if the data begin as a zip archive does. */
static inline bool by__format_npz_is(const uint8_t *data, size_t size)
{
    return size >= 4 && data[0] == 'P' && data[1] == 'K' && data[2] == 3 && data[3] == 4;
}
/* Finds member "NAME.npy" of an archive in memory; `file` is its name, for errors. *found false:
 * there is none. BY_EFORMAT: the archive is damaged, or the member is encrypted or packed in
 * another way than deflate. */
by_status by__format_npz_find(by__format_npz_member *out, bool *found, const char *file,
                              const uint8_t *data, size_t size, const char *name, by_error *error);
/* Parses an array of an archive. *memory, to be freed with free(), is NULL or what the view refers
 * to. BY_EFORMAT: there is none of this name, its checksum is wrong, or it is larger than `max`
 * bytes. */
by_status by__format_npz_read(by__format_array_view *out, uint8_t **memory, const char *file,
                              const uint8_t *data, size_t size, const char *name, size_t max,
                              by_error *error);

#endif
