#include "formats/image/image_processor.h"

#include <stdlib.h>
#include <string.h>

#define HALF                                                                                       \
    {                                                                                              \
        0.5, 0.5, 0.5                                                                              \
    }
#define SHOWN 80 /* bytes of a value in a message */
#define KNOWN "ViT, DeiT, CLIP, Bit, ConvNext, MobileNetV2 and EfficientNet"
#define IS_CLIP                                                                                    \
    .resizes = true, .crops = true, .resample = 3, .size = 224, .crop = 224,                       \
    .mean = {0.48145466, 0.4578275, 0.40821073}, .deviation = {0.26862954, 0.26130258, 0.27577711}

static const by__format_image_processor processors[] = {
    {.name = "", .square = true, .resample = 2},
    {.name = "ViT",
     .resizes = true,
     .square = true,
     .resample = 2,
     .size = 224,
     .mean = HALF,
     .deviation = HALF},
    {.name = "DeiT",
     .resizes = true,
     .crops = true,
     .square = true,
     .resample = 3,
     .size = 256,
     .crop = 224,
     .mean = HALF,
     .deviation = HALF},
    {.name = "CLIP", IS_CLIP},
    {.name = "Bit", IS_CLIP},
    {.name = "ConvNext",
     .resizes = true,
     .keeps_share = true,
     .resample = 3,
     .size = 384,
     .mean = HALF,
     .deviation = HALF},
    {.name = "MobileNetV2",
     .resizes = true,
     .crops = true,
     .resample = 2,
     .size = 256,
     .crop = 224,
     .mean = HALF,
     .deviation = HALF},
    {.name = "EfficientNet",
     .resizes = true,
     .square = true,
     .divides_twice = true,
     .resample = 3,
     .size = 346,
     .crop = 289,
     .mean = HALF,
     .deviation = HALF},
};

const json_t *by__format_image_processor_value(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return json_is_null(value) ? NULL : value;
}

by_status by__format_image_processor_refuse(const json_t *root, const char *path, const char *key,
                                            const char *what, by_error *error)
{
    char *text = by__json_dump(json_object_get(root, key), 0);
    by_status status = by_error_set(error, BY_EFORMAT, "%s: \"%s\": %.*s %s", path, key, SHOWN,
                                    text == NULL ? "..." : text, what);
    free(text);
    return status;
}

by_status by__format_image_processor_flag(bool *out, const json_t *root, const char *path,
                                          const char *key, bool usual, by_error *error)
{
    const json_t *value = by__format_image_processor_value(root, key);
    *out = value == NULL ? usual : json_is_true(value);
    return value == NULL || json_is_boolean(value)
               ? BY_OK
               : by__format_image_processor_refuse(root, path, key, "is neither true nor false",
                                                   error);
}

by_status by__format_image_processor_number(double *out, const json_t *root, const char *path,
                                            const char *key, double usual, by_error *error)
{
    const json_t *value = by__format_image_processor_value(root, key);
    *out = value == NULL ? usual : json_number_value(value);
    return value == NULL || (json_is_number(value) && *out > 0.0)
               ? BY_OK
               : by__format_image_processor_refuse(root, path, key, "is no positive number", error);
}

/* Versions of a processor have names of their own: ViTFeatureExtractor, ViTImageProcessorFast. */
static bool is_named(const char *type, const char *name)
{
    static const char *const ends[] = {"ImageProcessor", "ImageProcessorFast", "ImageProcessorPil",
                                       "FeatureExtractor"};
    size_t n = strlen(name);
    bool found = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(ends) && strncmp(type, name, n) == 0; i++) {
        found = found || strcmp(type + n, ends[i]) == 0;
    }
    return found;
}

static by_status find(const by__format_image_processor **out, const json_t *root, const char *path,
                      by_error *error)
{
    const char *key = "image_processor_type";
    if (by__format_image_processor_value(root, key) == NULL) {
        key = "feature_extractor_type";
    }
    const json_t *value = by__format_image_processor_value(root, key);
    *out = value == NULL ? &processors[0] : NULL;
    for (size_t i = 1; i < BY_ARRAY_LENGTH(processors) && json_is_string(value); i++) {
        *out = is_named(json_string_value(value), processors[i].name) ? &processors[i] : *out;
    }
    return *out != NULL ? BY_OK
                        : by__format_image_processor_refuse(
                              root, path, key,
                              "is none of those that are known (" KNOWN "): name one that takes "
                              "the same steps, as ViTImageProcessor does, or resize pictures "
                              "before and set \"do_resize\" to false",
                              error);
}

/* Every step is a key do_STEP. */
static by_status check_steps(json_t *root, const char *path, by_error *error)
{
    static const char *const built[] = {"do_resize",    "do_center_crop", "do_rescale",
                                        "do_normalize", "do_convert_rgb", "do_reduce_labels"};
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        bool known =
            strncmp(key, "do_", strlen("do_")) != 0 || json_is_null(value) || json_is_false(value);
        for (size_t i = 0; i < BY_ARRAY_LENGTH(built) && !known; i++) {
            known = strcmp(key, built[i]) == 0;
        }
        if (!known) {
            return by__format_image_processor_refuse(
                root, path, key,
                "asks for a step that is not built: take it before, and set the key to false",
                error);
        }
    }
    return BY_OK;
}

by_status by__format_image_processor_parse(json_t **root, const by__format_image_processor **out,
                                           const char *path, const char *text, size_t length,
                                           by_error *error)
{
    BY_TRY(by__json_parse(root, path, text, length, JSON_REJECT_DUPLICATES, error));
    by_status status = json_is_object(*root)
                           ? find(out, *root, path, error)
                           : by_error_set(error, BY_EFORMAT, "%s: it is no JSON object", path);
    if (status == BY_OK) {
        status = check_steps(*root, path, error);
    }
    if (status != BY_OK) {
        json_decref(*root);
        *root = NULL;
    }
    return status;
}
