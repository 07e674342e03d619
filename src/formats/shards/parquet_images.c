/* Parquet files with a column of pictures, as Hugging Face's datasets write them: a struct of
 * `bytes` and `path`, or bytes alone, and labels in another column, whose names of classes are in
 * the metadata. A picture lies in a page of its column, which may be compressed as a whole. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "formats/parquet.h"
#include "formats/shards/shard_file.h"

/* Label columns that are compared with each other. */
enum { MAX_LABELS = 8 };

static const char *const images[] = {"image", "img", "jpg", "jpeg", "png", "webp", "x", NULL};
static const char *const labels[] = {"label", "labels", "class", "cls", "y", "fine_label", NULL};

/* The columns that matter. */
typedef struct picture_columns {
    size_t image;
    size_t image_rank;
    const char *image_name;
    size_t image_length; /* without ".bytes" */
    size_t label[MAX_LABELS];
    size_t label_rank[MAX_LABELS];
    size_t label_count;
} picture_columns;

static bool is_parquet(const char *path, const uint8_t *data, size_t size)
{
    BY_UNUSED(path);
    return by__format_parquet_is(data, size);
}

/* Bytes of a column's name that name its pictures: those of a struct are its field `bytes`. */
static size_t name_length(const char *name)
{
    static const char field[] = ".bytes";
    size_t length = strlen(name);
    size_t end = sizeof field - 1;
    return length > end && strcmp(name + length - end, field) == 0 ? length - end : length;
}

static by_status find_columns(picture_columns *out, const by__format_shard *shard,
                              const by__format_parquet *file, by_error *error)
{
    *out = (picture_columns){.image_rank = SIZE_MAX};
    for (size_t i = 0; i < file->column_count; i++) {
        const by__format_parquet_column *c = &file->columns[i];
        size_t length = c->list_length > 0 ? c->list_length : name_length(c->name);
        size_t rank = by__format_shard_rank(shard->image_field, images, c->name, length);
        if (rank != SIZE_MAX && c->kind == BY__PARQUET_TEXT) {
            if (out->image_rank != SIZE_MAX) {
                return by_error_set(error, BY_EFORMAT,
                                    "%s has two columns of pictures, %.60s and %.60s: write it "
                                    "anew with one of them",
                                    shard->path, out->image_name, c->name);
            }
            out->image = i;
            out->image_rank = rank;
            out->image_name = c->name;
            out->image_length = length;
        } else if (rank != SIZE_MAX && c->kind == BY__PARQUET_OTHER) {
            return by__format_parquet_refuse(file, c, error);
        }
        rank = by__format_shard_rank(shard->label_field, labels, c->name, strlen(c->name));
        if (rank != SIZE_MAX && out->label_count < MAX_LABELS &&
            (c->kind == BY__PARQUET_TEXT || c->kind == BY__PARQUET_INTEGER)) {
            out->label_rank[out->label_count] = rank;
            out->label[out->label_count++] = i;
        }
    }
    return out->image_rank != SIZE_MAX
               ? BY_OK
               : by_error_set(error, BY_EFORMAT,
                              "%s has no column of pictures: bytes that are called image, img, "
                              "jpg, jpeg, png, webp or x, or the field bytes of a struct of such a "
                              "name",
                              shard->path);
}

/* ---- names of classes ---- */

/* Gives the names to shard->classes, if the metadata describes a column of labels. */
static by_status give_classes(const by__format_shard *shard, const by__format_parquet *file,
                              const picture_columns *columns, by_error *error)
{
    by_string names = {0};
    if (shard->classes == NULL || file->features == NULL || columns->label_count == 0) {
        return BY_OK;
    }
    json_t *root = by_json_load(file->features, file->features_size, 0, NULL);
    const json_t *features = json_object_get(json_object_get(root, "info"), "features");
    const char *label = file->columns[columns->label[0]].name;
    const json_t *list = json_object_get(json_object_get(features, label), "names");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name == NULL || name[0] == '\0') {
            names.length = 0; /* not what datasets write */
            break;
        }
        by_string_add(&names, name, strlen(name) + 1);
    }
    by_status status =
        names.failed       ? by_error_set(error, BY_EMEMORY, "out of memory: names of classes")
        : names.length > 0 ? shard->classes(shard->user, names.data, names.length, error)
                           : BY_OK;
    json_decref(root);
    by_string_free(&names);
    return status;
}

/* ---- rows ---- */

static void set_picture(by__format_shard_sample *s, const picture_columns *columns,
                        const by__format_parquet_places *places, size_t row)
{
    const by__format_parquet_value *v = &places->values.items[row];
    if (v->length < 0) {
        return;
    }
    const by__format_parquet_page_place *page =
        &places->pages[v->as.offset >> BY__PARQUET_PLACE_BITS];
    uint64_t begin = v->as.offset & (((uint64_t)1 << BY__PARQUET_PLACE_BITS) - 1);
    uint64_t length = (uint64_t)v->length;
    bool packed = page->codec != 0 && length > 0;
    by__format_shard_set_image(s, columns->image_name, columns->image_length,
                               packed ? page->begin : page->begin + begin,
                               packed ? page->stored : length);
    if (packed) {
        s->page = (by_image_page){
            .size = page->size, .begin = begin, .length = length, .codec = page->codec};
    }
}

static void set_label(by__format_shard_sample *s, const by__format_parquet_column *column,
                      size_t rank, const by__format_parquet_values *values, size_t row)
{
    const by__format_parquet_value *v = &values->items[row];
    size_t length = strlen(column->name);
    if (v->length >= 0 && column->kind == BY__PARQUET_TEXT) {
        by__format_shard_set_label(s, column->name, length, rank, values->bytes + v->as.offset,
                                   (size_t)v->length);
    } else if (v->length >= 0) {
        by__format_shard_set_number(s, column->name, length, rank, v->as.integer);
    }
}

/* Takes the rows of a group, which begin with number `first`. */
static by_status take_rows(const by__format_shard *shard, const by__format_parquet *file,
                           const picture_columns *columns, uint64_t first,
                           const by__format_parquet_places *places,
                           const by__format_parquet_values *values, by_error *error)
{
    for (size_t row = 0; row < places->values.count; row++) {
        char key[24];
        (void)snprintf(key, sizeof key, "%llu", (unsigned long long)(first + row));
        by__format_shard_sample s = {.key = key, .key_size = strlen(key)};
        set_picture(&s, columns, places, row);
        for (size_t i = 0; i < columns->label_count; i++) {
            set_label(&s, &file->columns[columns->label[i]], columns->label_rank[i], &values[i],
                      row);
        }
        if (s.problem == NULL) {
            s.problem = by__format_shard_lacks_image(
                &s, "the row has no picture: its bytes are null, as of pictures that are only "
                    "named by a path");
        }
        BY_TRY(shard->take(shard->user, &s, error));
    }
    return BY_OK;
}

static by_status read_group(const by__format_shard *shard, const by__format_parquet *file,
                            const picture_columns *columns, size_t group, uint64_t *first,
                            by_error *error)
{
    by__format_parquet_places places = {0};
    by__format_parquet_values values[MAX_LABELS] = {{0}};
    by_status status = by__format_parquet_read_places(file, columns->image, group, &places, error);
    for (size_t i = 0; i < columns->label_count && status == BY_OK; i++) {
        status = by__format_parquet_read_group(file, columns->label[i], group, &values[i], error);
    }
    if (status == BY_OK) {
        status = take_rows(shard, file, columns, *first, &places, values, error);
        *first += places.values.count;
    }
    for (size_t i = 0; i < MAX_LABELS; i++) {
        by__format_parquet_values_free(&values[i]);
    }
    by__format_parquet_places_free(&places);
    return status;
}

static by_status read_parquet(const by__format_shard *shard, by_error *error)
{
    by__format_parquet file;
    picture_columns columns;
    uint64_t first = 0;
    by_status status = by__format_parquet_open(&file, shard->path, shard->data, shard->size,
                                               by__format_parquet_max_rows(shard->size), error);
    if (status == BY_OK) {
        status = find_columns(&columns, shard, &file, error);
    }
    if (status == BY_OK) {
        status = give_classes(shard, &file, &columns, error);
    }
    for (size_t g = 0; g < file.groups && status == BY_OK; g++) {
        status = read_group(shard, &file, &columns, g, &first, error);
    }
    by__format_parquet_close(&file);
    return status;
}

const by__format_shard_row by__format_shard_parquet_images = {
    .name = "a Parquet file",
    .labels = "a column label, labels, class, cls, y or fine_label of integers or texts",
    .is = is_parquet,
    .read = read_parquet};
