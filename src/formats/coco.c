#include "formats/coco.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { MOST_SIDE = 65500, MOST_CLASSES = 253, MOST_POINTS = 1 << 20 };

typedef struct coco_image {
    int64_t id;
    const char *file_name;
    int64_t height;
    int64_t width;
    size_t first; /* annotation */
    size_t count;
} coco_image;

typedef struct coco_object {
    size_t image;
    size_t order; /* in the file */
    int64_t id;
    uint8_t class_number;
    const json_t *segmentation;
} coco_object;

struct by__format_coco {
    char *name;
    json_t *root;
    coco_image *images; /* by file_name */
    size_t image_count;
    int64_t *categories; /* ids, ascending */
    size_t category_count;
    coco_object *objects; /* by image, then in the order of the file */
    size_t object_count;
};

static by_status damaged(const by__format_coco *c, const char *what, int64_t id, const char *why,
                         by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: the %s with id %lld %s", c->name, what,
                        (long long)id, why);
}

static by_status list_of(const json_t **out, size_t *count, const by__format_coco *c,
                         const char *name, by_error *error)
{
    *out = json_object_get(c->root, name);
    *count = json_array_size(*out);
    return json_is_array(*out)
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: there is no list '%s': no COCO annotations",
                              c->name, name);
}

/* ---- categories ---- */

static int compare_ids(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static by_status read_categories(by__format_coco *c, by_error *error)
{
    const json_t *list;
    size_t count;
    BY_TRY(list_of(&list, &count, c, "categories", error));
    if (count == 0 || count > MOST_CLASSES) {
        return by_error_set(error, BY_EFORMAT, "%s: %zu categories; there may be 1 to %d", c->name,
                            count, MOST_CLASSES);
    }
    BY_TRY(by__alloc((void **)&c->categories, count, sizeof *c->categories, "categories", error));
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_object_get(json_array_get(list, i), "id");
        if (!json_is_integer(id)) {
            return by_error_set(error, BY_EFORMAT, "%s: category %zu has no id", c->name, i);
        }
        c->categories[i] = json_integer_value(id);
    }
    c->category_count = count;
    qsort(c->categories, count, sizeof *c->categories, compare_ids);
    for (size_t i = 1; i < count; i++) {
        if (c->categories[i] == c->categories[i - 1]) {
            return damaged(c, "category", c->categories[i], "is there twice", error);
        }
    }
    return BY_OK;
}

/* ---- images ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const coco_image *)a)->file_name, ((const coco_image *)b)->file_name);
}

static by_status read_images(by__format_coco *c, by_error *error)
{
    const json_t *list;
    BY_TRY(list_of(&list, &c->image_count, c, "images", error));
    BY_TRY(by__alloc((void **)&c->images, c->image_count + 1, sizeof *c->images, "images", error));
    for (size_t i = 0; i < c->image_count; i++) {
        const json_t *item = json_array_get(list, i);
        const json_t *id = json_object_get(item, "id");
        c->images[i] =
            (coco_image){.id = json_integer_value(id),
                         .file_name = json_string_value(json_object_get(item, "file_name")),
                         .height = json_integer_value(json_object_get(item, "height")),
                         .width = json_integer_value(json_object_get(item, "width"))};
        coco_image *m = &c->images[i];
        if (!json_is_integer(id) || m->file_name == NULL) {
            return by_error_set(error, BY_EFORMAT, "%s: image %zu has no id or no file_name",
                                c->name, i);
        }
        if (m->height < 1 || m->height > MOST_SIDE || m->width < 1 || m->width > MOST_SIDE) {
            return damaged(c, "image", m->id, "has no height and width from 1 to 65,500", error);
        }
    }
    qsort(c->images, c->image_count, sizeof *c->images, compare_names);
    for (size_t i = 1; i < c->image_count; i++) {
        if (strcmp(c->images[i].file_name, c->images[i - 1].file_name) == 0) {
            return damaged(c, "image", c->images[i].id, "has the file_name of another one", error);
        }
    }
    return BY_OK;
}

/* ---- annotations ---- */

/* An image's id and its number. */
typedef struct numbered_id {
    int64_t id;
    size_t number;
} numbered_id;

static int compare_numbered(const void *a, const void *b)
{
    return compare_ids(&((const numbered_id *)a)->id, &((const numbered_id *)b)->id);
}

static int compare_objects(const void *a, const void *b)
{
    const coco_object *x = a;
    const coco_object *y = b;
    return x->image != y->image ? (x->image > y->image) - (x->image < y->image)
                                : (x->order > y->order) - (x->order < y->order);
}

static by_status read_object(coco_object *out, const by__format_coco *c, const numbered_id *ids,
                             const json_t *item, size_t order, by_error *error)
{
    const json_t *image = json_object_get(item, "image_id");
    const json_t *category = json_object_get(item, "category_id");
    const numbered_id wanted = {.id = json_integer_value(image)};
    int64_t class_id = json_integer_value(category);
    *out = (coco_object){.order = order,
                         .id = json_integer_value(json_object_get(item, "id")),
                         .segmentation = json_object_get(item, "segmentation")};
    const numbered_id *found = bsearch(&wanted, ids, c->image_count, sizeof *ids, compare_numbered);
    if (!json_is_integer(image) || found == NULL) {
        return damaged(c, "annotation", out->id, "is of no image that there is", error);
    }
    const int64_t *place =
        bsearch(&class_id, c->categories, c->category_count, sizeof *c->categories, compare_ids);
    if (!json_is_integer(category) || place == NULL) {
        return damaged(c, "annotation", out->id, "is of no category that there is", error);
    }
    out->image = found->number;
    out->class_number = (uint8_t)(place - c->categories + 1);
    return BY_OK;
}

static by_status read_objects(by__format_coco *c, const numbered_id *ids, by_error *error)
{
    const json_t *list;
    BY_TRY(list_of(&list, &c->object_count, c, "annotations", error));
    BY_TRY(by__alloc((void **)&c->objects, c->object_count + 1, sizeof *c->objects, "annotations",
                     error));
    for (size_t i = 0; i < c->object_count; i++) {
        BY_TRY(read_object(&c->objects[i], c, ids, json_array_get(list, i), i, error));
    }
    qsort(c->objects, c->object_count, sizeof *c->objects, compare_objects);
    for (size_t i = c->object_count; i-- > 0;) {
        coco_image *m = &c->images[c->objects[i].image];
        m->first = i;
        m->count++;
    }
    return BY_OK;
}

static by_status read_annotations(by__format_coco *c, by_error *error)
{
    numbered_id *ids;
    BY_TRY(by__alloc((void **)&ids, c->image_count + 1, sizeof *ids, "images", error));
    for (size_t i = 0; i < c->image_count; i++) {
        ids[i] = (numbered_id){c->images[i].id, i};
    }
    qsort(ids, c->image_count, sizeof *ids, compare_numbered);
    by_status status = BY_OK;
    for (size_t i = 1; i < c->image_count && status == BY_OK; i++) {
        if (ids[i].id == ids[i - 1].id) {
            status = damaged(c, "image", ids[i].id, "is there twice", error);
        }
    }
    if (status == BY_OK) {
        status = read_objects(c, ids, error);
    }
    free(ids);
    return status;
}

by_status by__format_coco_open(by__format_coco **out, const char *name, const char *text,
                               size_t size, by_error *error)
{
    by__format_coco *c;
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "annotations", error));
    c->name = by__strdup(name);
    by_status status =
        c->name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a name") : BY_OK;
    if (status == BY_OK) {
        c->root = by_json_load(text, size, 0, NULL);
        status = c->root == NULL
                     ? by_error_set(error, BY_EFORMAT, "%s is no JSON: COCO annotations are", name)
                     : read_categories(c, error);
    }
    if (status == BY_OK) {
        status = read_images(c, error);
    }
    if (status == BY_OK) {
        status = read_annotations(c, error);
    }
    if (status != BY_OK) {
        by__format_coco_close(&c);
        return status;
    }
    *out = c;
    return BY_OK;
}

void by__format_coco_close(by__format_coco **coco)
{
    by__format_coco *c = *coco;
    if (c != NULL) {
        json_decref(c->root);
        free(c->name);
        free(c->images);
        free(c->categories);
        free(c->objects);
        free(c);
        *coco = NULL;
    }
}

size_t by__format_coco_images(const by__format_coco *c)
{
    return c->image_count;
}

bool by__format_coco_find(size_t *out, const by__format_coco *c, const char *file_name)
{
    const coco_image wanted = {.file_name = file_name};
    const coco_image *found =
        bsearch(&wanted, c->images, c->image_count, sizeof *c->images, compare_names);
    if (found != NULL) {
        *out = (size_t)(found - c->images);
    }
    return found != NULL;
}

void by__format_coco_size(const by__format_coco *c, size_t image, int64_t *height, int64_t *width)
{
    *height = c->images[image].height;
    *width = c->images[image].width;
}

/* ---- runs ---- */

/* Sets `count` pixels from `*at` on, which are numbered down the columns, and moves behind them. */
static bool draw_run(uint8_t *out, const coco_image *m, uint64_t *at, int64_t count, bool set,
                     uint8_t class_number)
{
    uint64_t pixels = (uint64_t)m->height * (uint64_t)m->width;
    if (count < 0 || (uint64_t)count > pixels - *at) {
        return false;
    }
    for (uint64_t end = *at + (uint64_t)count; set && *at < end; ++*at) {
        out[*at % (uint64_t)m->height * (uint64_t)m->width + *at / (uint64_t)m->height] =
            class_number;
    }
    *at += set ? 0 : (uint64_t)count;
    return true;
}

/* Runs as text: each in digits of 5 bits, the lowest first, from '0' on; bit 5 says that more
 * follow, and the highest bit of the last is the sign. From the third on it is the difference to
 * the run two before. */
static bool draw_text(uint8_t *out, const coco_image *m, const char *text, uint8_t class_number)
{
    int64_t runs[2] = {0, 0}; /* the last of each kind */
    uint64_t at = 0;
    for (size_t i = 0; *text != '\0'; i++) {
        uint64_t bits = 0;
        unsigned shift = 0;
        unsigned digit;
        do {
            digit = (unsigned)(unsigned char)*text - 48;
            if (digit > 63 || shift > 40) {
                return false;
            }
            bits |= (uint64_t)(digit & 31) << shift;
            shift += 5;
            text++;
        } while ((digit & 32) != 0);
        if ((digit & 16) != 0) {
            bits |= UINT64_MAX << shift;
        }
        int64_t run = (int64_t)bits + (i > 2 ? runs[i % 2] : 0);
        if (!draw_run(out, m, &at, run, i % 2 == 1, class_number)) {
            return false;
        }
        runs[i % 2] = run;
    }
    return true;
}

static bool draw_runs(uint8_t *out, const coco_image *m, const json_t *rle, uint8_t class_number)
{
    const json_t *size = json_object_get(rle, "size");
    const json_t *counts = json_object_get(rle, "counts");
    uint64_t at = 0;
    if (json_integer_value(json_array_get(size, 0)) != m->height ||
        json_integer_value(json_array_get(size, 1)) != m->width) {
        return false;
    }
    if (json_is_string(counts)) {
        return draw_text(out, m, json_string_value(counts), class_number);
    }
    for (size_t i = 0; i < json_array_size(counts); i++) {
        const json_t *count = json_array_get(counts, i);
        if (!json_is_integer(count) ||
            !draw_run(out, m, &at, json_integer_value(count), i % 2 == 1, class_number)) {
            return false;
        }
    }
    return json_is_array(counts);
}

/* ---- polygons ---- */

static int compare_crossings(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sets the pixels of a row whose centres lie between crossings, two by two. */
static void draw_spans(uint8_t *row, int64_t width, const double *crossings, size_t count,
                       uint8_t class_number)
{
    for (size_t i = 0; i + 1 < count; i += 2) {
        /* The first centre that is not before the crossing: x + 0.5 >= crossing. */
        double begin = ceil(crossings[i] - 0.5);
        double end = ceil(crossings[i + 1] - 0.5);
        int64_t first = begin > 0.0 ? begin < (double)width ? (int64_t)begin : width : 0;
        int64_t behind = end > 0.0 ? end < (double)width ? (int64_t)end : width : 0;
        for (int64_t x = first; x < behind; x++) {
            row[x] = class_number;
        }
    }
}

static void draw_polygon(uint8_t *out, const coco_image *m, const double *points, size_t count,
                         double *crossings, uint8_t class_number)
{
    for (int64_t y = 0; y < m->height; y++) {
        double centre = (double)y + 0.5;
        size_t found = 0;
        for (size_t i = 0; i < count; i++) {
            const double *a = points + 2 * i;
            const double *b = points + 2 * ((i + 1) % count);
            if ((a[1] <= centre) != (b[1] <= centre)) {
                crossings[found++] = a[0] + (centre - a[1]) * (b[0] - a[0]) / (b[1] - a[1]);
            }
        }
        qsort(crossings, found, sizeof *crossings, compare_crossings);
        draw_spans(out + y * m->width, m->width, crossings, found, class_number);
    }
}

/* Reads the points of a polygon: x and y in turn. *good: there are three or more, and all are
 * finite. */
static by_status read_points(double **out, size_t *count, bool *good, const json_t *list,
                             by_error *error)
{
    size_t numbers = json_array_size(list);
    *out = NULL;
    *count = numbers / 2;
    *good = numbers >= 6 && numbers % 2 == 0 && *count <= MOST_POINTS;
    if (!*good) {
        return BY_OK;
    }
    /* And as many crossings behind them. */
    BY_TRY(by__alloc((void **)out, numbers + *count, sizeof **out, "a polygon", error));
    for (size_t i = 0; i < numbers && *good; i++) {
        const json_t *number = json_array_get(list, i);
        (*out)[i] = json_number_value(number);
        *good = json_is_number(number) && fabs((*out)[i]) < 1e9;
    }
    return BY_OK;
}

static by_status draw_polygons(uint8_t *out, bool *good, const coco_image *m, const json_t *list,
                               uint8_t class_number, by_error *error)
{
    for (size_t i = 0; i < json_array_size(list) && *good; i++) {
        double *points;
        size_t count;
        BY_TRY(read_points(&points, &count, good, json_array_get(list, i), error));
        if (*good) {
            draw_polygon(out, m, points, count, points + 2 * count, class_number);
        }
        free(points);
    }
    return BY_OK;
}

by_status by__format_coco_draw(uint8_t *out, const by__format_coco *c, size_t image,
                               by_error *error)
{
    const coco_image *m = &c->images[image];
    memset(out, 0, (size_t)(m->height * m->width));
    for (size_t i = m->first; i < m->first + m->count; i++) {
        const coco_object *o = &c->objects[i];
        bool good = true;
        if (json_is_array(o->segmentation)) {
            BY_TRY(draw_polygons(out, &good, m, o->segmentation, o->class_number, error));
        } else {
            good = draw_runs(out, m, o->segmentation, o->class_number);
        }
        if (!good) {
            return damaged(c, "annotation", o->id,
                           "has a segmentation that is neither polygons nor runs of the image",
                           error);
        }
    }
    return BY_OK;
}
