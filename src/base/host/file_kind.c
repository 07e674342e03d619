#include "base/host/file_kind.h"

#include <string.h>

/* How to make text of a file. */
typedef enum remedy { NONE, GUNZIP, UNZSTD, UNXZ, BUNZIP, UNZIP, UNTAR, EXPORT, CONVERT } remedy;

typedef struct file_kind {
    size_t at;
    size_t length;
    const char *bytes;
    const char *name;
    remedy remedy;
} file_kind;

#define KIND(at, bytes, name, remedy)                                                              \
    {                                                                                              \
        at, sizeof bytes - 1, bytes, name, remedy                                                  \
    }

static const file_kind kinds[] = {
    KIND(0, "\x1f\x8b", "compressed by gzip", GUNZIP),
    KIND(0, "\x28\xb5\x2f\xfd", "compressed by zstd", UNZSTD),
    KIND(0,
         "\xfd"
         "7zXZ",
         "compressed by xz", UNXZ),
    KIND(4, "1AY&SY", "compressed by bzip2", BUNZIP),
    KIND(0, "PK\x03\x04", "a zip archive, as .docx, .xlsx, .epub and .pt files are", UNZIP),
    KIND(0, "PK\x05\x06", "an empty zip archive", UNZIP),
    KIND(0, "7z\xbc\xaf\x27\x1c", "a 7z archive", NONE),
    KIND(0, "Rar!\x1a\x07", "a RAR archive", NONE),
    KIND(257, "ustar", "a tar archive", UNTAR),
    KIND(0,
         "\x7f"
         "ELF",
         "a program or library (ELF)", NONE),
    KIND(0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document (.doc, .xls)", EXPORT),
    KIND(0, "%PDF-", "a PDF", EXPORT),
    KIND(0, "{\\rtf", "an RTF document", EXPORT),
    KIND(0, "SQLite format 3\0", "an SQLite database", EXPORT),
    KIND(0, "PAR1", "a Parquet file", NONE),
    KIND(0, "Obj\x01", "an Avro file", EXPORT),
    KIND(0, "ARROW1\0\0", "an Arrow (Feather) file", EXPORT),
    KIND(0, "\x89HDF\r\n\x1a\n", "an HDF5 file", EXPORT),
    KIND(0, "\x93NUMPY", "an npy array", NONE),
    KIND(0, "GGUF\2\0", "a GGUF model", NONE),
    KIND(0, "GGUF\3\0", "a GGUF model", NONE),
    KIND(0, "\xff\xd8\xff", "a JPEG picture", NONE),
    KIND(0, "\x89PNG\r\n\x1a\n", "a PNG picture", NONE),
    KIND(0, "GIF8", "a GIF picture", CONVERT),
    KIND(0, "II*\0", "a TIFF picture", CONVERT),
    KIND(0, "MM\0*", "a TIFF picture", CONVERT),
    KIND(4, "ftypavif", "an AVIF picture", CONVERT),
    KIND(4, "ftyphei", "a HEIF picture", CONVERT),
    KIND(4, "ftypmif", "a HEIF picture", CONVERT),
    KIND(4, "ftyp", "a video (MP4)", NONE),
    KIND(0, "\xff\x0a", "a JPEG XL picture", CONVERT),
    KIND(4, "JXL ", "a JPEG XL picture", CONVERT),
    KIND(4, "jP  ", "a JPEG 2000 picture", CONVERT),
    KIND(0, "OggS\0", "a sound (Ogg)", NONE),
    KIND(0, "ID3\3", "a sound (MP3)", NONE),
    KIND(0, "ID3\4", "a sound (MP3)", NONE),
    KIND(0, "fLaC\0", "a sound (FLAC)", NONE),
};

/* Formats whose first bytes are not all fixed; some of these also begin texts. */
static const file_kind *find_loose(const uint8_t *d, size_t size)
{
    static const file_kind bitmap = {0, 0, "", "a BMP picture", CONVERT};
    static const file_kind pickle = {0, 0, "", "a Python pickle", EXPORT};
    static const file_kind riff[] = {KIND(8, "WEBP", "a WebP picture", NONE),
                                     KIND(8, "WAVE", "a sound (WAV)", NONE),
                                     KIND(8, "AVI ", "a video (AVI)", NONE)};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(riff); i++) {
        if (size >= 12 && memcmp(d, "RIFF", 4) == 0 && memcmp(d + 8, riff[i].bytes, 4) == 0) {
            return &riff[i];
        }
    }
    if (size >= 2 && d[0] == 0x80 && d[1] >= 2 && d[1] <= 5) {
        return &pickle;
    }
    return size >= 18 && memcmp(d, "BM", 2) == 0 && memcmp(d + 6, "\0\0\0\0", 4) == 0 &&
                   memcmp(d + 15, "\0\0\0", 3) == 0
               ? &bitmap
               : NULL;
}

static const file_kind *find_kind(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        const file_kind *k = &kinds[i];
        if (size >= k->at + k->length && memcmp(data + k->at, k->bytes, k->length) == 0) {
            return k;
        }
    }
    return find_loose(data, size);
}

const char *by__file_kind(const uint8_t *data, size_t size)
{
    const file_kind *kind = find_kind(data, size);
    return kind == NULL ? NULL : kind->name;
}

/* UTF-16 and UTF-32 of mostly Latin letters have a zero in each character. */
static const char *wide_characters(const uint8_t *b, size_t size)
{
    bool little = size >= 4 && b[0] != 0 && b[1] == 0 && b[2] != 0 && b[3] == 0;
    bool big = size >= 4 && b[0] == 0 && b[1] != 0 && b[2] == 0 && b[3] != 0;
    bool marked = size >= 2 && ((b[0] == 0xff && b[1] == 0xfe) || (b[0] == 0xfe && b[1] == 0xff));
    bool four = marked && size >= 4 && b[2] == 0 && b[3] == 0;
    return four ? "UTF-32" : little || big || marked ? "UTF-16" : NULL;
}

/* Control characters that texts do not have. */
static size_t count_controls(const uint8_t *data, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++) {
        count += data[i] < 0x20 && (data[i] < '\b' || data[i] > '\r') && data[i] != 0x1b;
    }
    return count;
}

by_status by__file_check_text(const char *path, const uint8_t *data, size_t size,
                              const char *wanted, by_error *error)
{
    static const char *const remedies[] = {
        [NONE] = "",
        [GUNZIP] = ": decompress it with gunzip",
        [UNZSTD] = ": decompress it with zstd -d",
        [UNXZ] = ": decompress it with xz -d",
        [BUNZIP] = ": decompress it with bunzip2",
        [UNZIP] = ": unzip it, or save it as text",
        [UNTAR] = ": extract it with tar -xf",
        [EXPORT] = ": save or export it as text",
        [CONVERT] = "",
    };
    size = size < BY__FILE_KIND_BYTES ? size : BY__FILE_KIND_BYTES;
    const file_kind *kind = find_kind(data, size);
    if (kind != NULL) {
        return by_error_set(error, BY_EFORMAT, "%s is no %s: it is %s%s", path, wanted, kind->name,
                            remedies[kind->remedy]);
    }
    const char *wide = wide_characters(data, size);
    if (wide != NULL) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: its characters are %s; %ss are UTF-8: iconv -f %s -t UTF-8 "
                            "converts it",
                            path, wide, wanted, wide);
    }
    size_t controls = count_controls(data, size);
    if (controls >= 16 && controls > size / 50) {
        return by_error_set(error, BY_EFORMAT,
                            "%s is no %s: %zu of its first %zu bytes are control characters, which "
                            "texts do not have",
                            path, wanted, controls, size);
    }
    return BY_OK;
}
