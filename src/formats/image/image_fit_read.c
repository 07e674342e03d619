/* What preprocessor_config.json of transformers says of the size of images. */
#include <string.h>

#include "formats/image/image_fit.h"
#include "formats/image/image_processor.h"

/* Shortest edge from which on ConvNeXt's processor keeps all of an image, whatever "crop_pct". */
#define WHOLE_EDGE 384
#define CROP_SHARE (224.0 / 256.0)

typedef struct fit_reader {
    const json_t *root;
    const by__format_image_processor *usual;
    const char *path;
    by_error *error;
} fit_reader;

/* A size: of both sides, or of the shortest (edge). */
typedef struct image_size {
    int64_t height;
    int64_t width;
    int64_t edge;
} image_size;

static by_status refuse(const fit_reader *r, const char *key, const char *what)
{
    return by__format_image_processor_refuse(r->root, r->path, key, what, r->error);
}

static int64_t side_of(const json_t *value)
{
    json_int_t side = json_integer_value(value);
    return side > 0 && side <= BY__IMAGE_SIDE ? (int64_t)side : 0;
}

/* Reads "size" or "crop_size": a number, of `square` sides or else of the shortest edge, a list
 * [height, width], or an object. */
static by_status read_size(image_size *out, const fit_reader *r, const char *key, int64_t usual,
                           bool square)
{
    const json_t *value = by__format_image_processor_value(r->root, key);
    int64_t side = value == NULL ? usual : side_of(value);
    *out = (image_size){0};
    if (value == NULL && usual == 0) {
        return by_error_set(r->error, BY_EFORMAT,
                            "%s: there is no \"%s\": set it to {\"height\": H, \"width\": W}, or "
                            "the key that asks for it to false",
                            r->path, key);
    }
    if (value == NULL || json_is_integer(value)) {
        *out = square ? (image_size){.height = side, .width = side} : (image_size){.edge = side};
    } else if (json_array_size(value) == 2) {
        *out = (image_size){.height = side_of(json_array_get(value, 0)),
                            .width = side_of(json_array_get(value, 1))};
    } else if (json_object_size(value) == 1) {
        out->edge = side_of(json_object_get(value, "shortest_edge"));
    } else if (json_object_size(value) == 2) {
        *out = (image_size){.height = side_of(json_object_get(value, "height")),
                            .width = side_of(json_object_get(value, "width"))};
    }
    return out->edge > 0 || (out->height > 0 && out->width > 0)
               ? BY_OK
               : refuse(r, key,
                        "is no size that images can be brought to: set it to {\"height\": H, "
                        "\"width\": W}, or to {\"shortest_edge\": S} and \"crop_size\" to the "
                        "center of that, with sides of up to 65535");
}

static by_status read_filter(by_image_resample *out, const fit_reader *r)
{
    static const int numbers[] = {
        [BY_RESAMPLE_BILINEAR] = 2, [BY_RESAMPLE_BICUBIC] = 3, [BY_RESAMPLE_NEAREST] = 0};
    const json_t *value = by__format_image_processor_value(r->root, "resample");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(numbers); i++) {
        if (value == NULL ? numbers[i] == r->usual->resample
                          : json_is_integer(value) && json_integer_value(value) == numbers[i]) {
            *out = (by_image_resample)i;
            return BY_OK;
        }
    }
    return refuse(r, "resample",
                  "is none of the filters that are built: 0 (nearest), 2 (bilinear) or 3 "
                  "(bicubic), of which 3 comes closest to 1 (Lanczos)");
}

/* ConvNeXt's processor resizes the shortest edge to edge / share and keeps a square of the center;
 * a large one is a square that images are stretched to. */
static by_status read_share(by_image_fit *out, const fit_reader *r, const image_size *size)
{
    double share;
    BY_TRY(by__format_image_processor_number(&share, r->root, r->path, "crop_pct", CROP_SHARE,
                                             r->error));
    if (size->edge == 0) {
        return refuse(r, "size", "has no \"shortest_edge\", which this processor needs");
    }
    out->height = size->edge;
    out->width = size->edge;
    if (size->edge >= WHOLE_EDGE) {
        out->resize = BY_RESIZE_STRETCH;
        return BY_OK;
    }
    double edge = (double)size->edge / share;
    if (share > 1.0 || edge > BY__IMAGE_SIDE) {
        return refuse(r, "crop_pct",
                      "is no share of an image: a number up to 1, which leaves sides of up to "
                      "65535");
    }
    out->resize = BY_RESIZE_CROP;
    out->edge = (int64_t)edge;
    return BY_OK;
}

static by_status read_crop(by_image_fit *out, const fit_reader *r, const image_size *size)
{
    image_size crop;
    BY_TRY(read_size(&crop, r, "crop_size", r->usual->crop, true));
    int64_t height = size->edge > 0 ? size->edge : size->height;
    int64_t width = size->edge > 0 ? size->edge : size->width;
    if (crop.edge > 0 || crop.height > height || crop.width > width) {
        return refuse(r, "crop_size",
                      "is no part of the \"size\" of the images, which would be padded: set it to "
                      "{\"height\": H, \"width\": W} with sides that \"size\" has");
    }
    *out = (by_image_fit){.resize = size->edge > 0 ? BY_RESIZE_CROP : BY_RESIZE_STRETCH,
                          .resample = out->resample,
                          .height = crop.height,
                          .width = crop.width,
                          .edge = size->edge,
                          .whole_height = size->height,
                          .whole_width = size->width};
    return BY_OK;
}

static by_status read_resizing(by_image_fit *out, const fit_reader *r, bool crops)
{
    image_size size;
    bool square;
    BY_TRY(by__format_image_processor_flag(&square, r->root, r->path, "default_to_square",
                                           r->usual->square, r->error));
    BY_TRY(read_filter(&out->resample, r));
    BY_TRY(read_size(&size, r, "size", r->usual->size, square));
    if (r->usual->keeps_share) {
        return crops ? refuse(r, "do_center_crop",
                              "would crop what \"crop_pct\" has cropped: set it to false")
                     : read_share(out, r, &size);
    }
    if (by__format_image_processor_value(r->root, "crop_pct") != NULL) {
        return refuse(r, "crop_pct",
                      "is only known of \"image_processor_type\": \"ConvNextImageProcessor\"");
    }
    if (crops) {
        return read_crop(out, r, &size);
    }
    out->resize = BY_RESIZE_STRETCH;
    out->height = size.height;
    out->width = size.width;
    return size.edge == 0 ? BY_OK
                          : refuse(r, "size",
                                   "leaves images of many sizes, and the model reads one: set "
                                   "\"do_center_crop\" to true and \"crop_size\" to what it reads");
}

static by_status read_fit(by_image_fit *out, const fit_reader *r)
{
    bool resizes;
    bool crops;
    image_size size;
    BY_TRY(by__format_image_processor_flag(&resizes, r->root, r->path, "do_resize",
                                           r->usual->resizes, r->error));
    BY_TRY(by__format_image_processor_flag(&crops, r->root, r->path, "do_center_crop",
                                           r->usual->crops, r->error));
    if (resizes) {
        return read_resizing(out, r, crops);
    }
    if (crops) {
        return refuse(r, "do_center_crop",
                      "crops images that are not resized, which is not built: crop them before "
                      "and set it to false, or set \"do_resize\" to true");
    }
    const fit_reader quiet = {.root = r->root, .usual = r->usual, .path = r->path};
    if (read_size(&size, &quiet, "size", 0, r->usual->square) == BY_OK) { /* else it is not used */
        out->height = size.height;
        out->width = size.width;
    }
    return BY_OK;
}

by_status by__format_image_fit_parse(by_image_fit *out, const char *path, const char *text,
                                     size_t length, by_error *error)
{
    json_t *root;
    fit_reader r = {.path = path, .error = error};
    *out = (by_image_fit){.resize = BY_RESIZE_NONE};
    BY_TRY(by__format_image_processor_parse(&root, &r.usual, path, text, length, error));
    r.root = root;
    by_status status = read_fit(out, &r);
    json_decref(root);
    return status;
}
