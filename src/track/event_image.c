/* Pictures for TensorBoard: a file of events beside those of a run. */
#include <stdlib.h>
#include <string.h>

#include "banyan/track.h"
#include "base/paths.h"
#include "base/wire/protobuf.h"
#include "track/event_file.h"
#include "track/track.h"

/* A picture of more bytes would be an event that readers refuse. */
#define MOST_BYTES ((size_t)1 << 28)

static uint32_t big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

typedef struct by__track_png {
    char *data; /* of the file, from malloc */
    size_t size;
    uint32_t width;
    uint32_t height;
    uint32_t channels;
} by__track_png;

/* Reads a file, and the sizes from its head: the signature and IHDR. */
static by_status read_png(by__track_png *out, const char *path, by_error *error)
{
    static const uint8_t head[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n',
                                   0,    0,   0,   13,  'I',  'H',  'D',  'R'};
    static const uint32_t channels[7] = {1, 0, 3, 4, 2, 0, 4}; /* a palette is shown in RGBA */
    enum { width_at = 16, height_at = 20, kind_at = 25, head_end = 33 };
    char *data;
    size_t size;
    BY_TRY(by__file_read(&data, &size, path, MOST_BYTES, error));
    const uint8_t *png = (const uint8_t *)data;
    if (size < head_end || memcmp(png, head, sizeof head) != 0 || png[kind_at] > 6 ||
        channels[png[kind_at]] == 0) {
        free(data);
        return by_error_set(error, BY_EFORMAT, "%s is no PNG", path);
    }
    *out = (by__track_png){.data = data,
                           .size = size,
                           .width = big_endian(png + width_at),
                           .height = big_endian(png + height_at),
                           .channels = channels[png[kind_at]]};
    return BY_OK;
}

static by_status write_image(by__track_event_file *f, const char *tag, uint64_t step, double now,
                             const by__track_png *png, by_error *error)
{
    enum { height = 1, width = 2, colorspace = 3, encoded = 4 };
    by_string image = {0};
    by_string value = {0};
    by_string summary = {0};
    by__proto_int(&image, height, png->height);
    by__proto_int(&image, width, png->width);
    by__proto_int(&image, colorspace, png->channels);
    by__proto_bytes(&image, encoded, png->data, png->size);
    by__proto_string(&value, BY__VALUE_TAG, tag);
    by__proto_message(&value, BY__VALUE_IMAGE, &image);
    by__proto_message(&summary, BY__SUMMARY_VALUE, &value);
    by__track_event_file_begin(f, now, step);
    by__proto_message(&f->event, BY__EVENT_SUMMARY, &summary);
    by_string_free(&image);
    by_string_free(&value);
    by_string_free(&summary);
    return by__track_event_file_write(f, error);
}

by_status by_track_image(const char *run, const char *tag, uint64_t step, const char *path,
                         by_error *error)
{
    by__track_event_file file = {.file = {.fd = -1}};
    double now = by__track_clock_now();
    by__track_png png;
    char *directory;
    BY_TRY(read_png(&png, path, error));
    by_status status = by__path_make(&directory, run, "tensorboard/plots", error);
    if (status == BY_OK) {
        status = by__track_event_file_open(&file, directory, now, error);
        free(directory);
    }
    if (status == BY_OK) {
        status = write_image(&file, tag, step, now, &png, error);
    }
    by__track_event_file_close(&file);
    free(png.data);
    return status;
}
