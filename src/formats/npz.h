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
/* Makes "a, b", the names of the arrays of an archive, for errors: as many as fit into `size`. */
void by__format_npz_names(char *out, size_t room, const uint8_t *data, size_t size);
/* The length of FILE.npz in a path FILE.npz/NAME, of an array of an archive; 0: it is none, or
 * FILE.npz is a directory. */
size_t by__format_npz_split(const char *path);
/* Reads array NAME, or NAME.npy, of the archive `file` as the npy file that it is there, to be
 * freed with free(). Errors as by__format_npz_read. */
by_status by__format_npz_file_read(uint8_t **out, size_t *size, const char *file, const char *name,
                                   size_t max, by_error *error);

#endif
