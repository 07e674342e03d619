/* A source of samples from a set of arrays, with transforms of images. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/loader/array_set.h"
#include "data/loader/draws.h"
#include "data/transform/transform.h"

/* Conversion of pixels to a model's input. */
typedef struct pixels {
    size_t channels;
    size_t plane;
    by__transform_chain chain; /* of training data */
    /* of images that are read when they are used */
    const by__loader_pictures *read; /* NULL: they are in memory */
    by__transform_step cut;          /* what the chain begins with, if has_cut */
    bool has_cut;
    float *table; /* [channels][256] value of each byte; NULL: bytes are not converted */
} pixels;

typedef struct array_source {
    by_source base;
    by__loader_part_rows rows;
    by__loader_draws draws; /* of the part; no `ends`: each example has its place in an epoch */
    by_array *arrays;       /* of a sample; one of them is the weight */
    const by_array *in;     /* of the set, borrowed */
    size_t count;           /* number of the set's arrays */
    size_t *row_bytes;      /* of the set's arrays */
    size_t images;          /* index of the images; `count`: there are none to convert */
    size_t target;          /* index of the target; `count`: there is none */
    size_t maps;            /* index of the target if it is classes of pixels; `count`: it is not */
    size_t weight;          /* index of the weights; `count`: an array behind the set's, of ones */
    size_t mixed;           /* index of the arrays of mixed samples; 0: there are none */
    size_t number;          /* index of the numbers of examples; 0: there are none */
    pixels pixels;
    uint64_t *list; /* rows in the order of their files; NULL: they are in that of the part */
} array_source;

/* The row of the set that a sample has. */
static uint64_t row_of(const array_source *s, const by_source_sample *sample)
{
    return by__part_row(&s->rows, s->draws.ends == NULL ? sample->place
                                                        : by__loader_draws_at(&s->draws, sample));
}

/* ---- images ---- */

/* The row of the set that a sample is mixed with. */
static uint64_t partner_row(const array_source *s, const by_source_sample *sample)
{
    by_source_sample partner = *sample;
    partner.place = by__transform_partner(sample, s->base.samples);
    return row_of(s, &partner);
}

/* Gets an image of the set; one that is read is written to `memory`. */
static by_status get_image(const array_source *s, const by_source_sample *sample, uint64_t row,
                           uint8_t *memory, const uint8_t **out, by_error *error)
{
    const pixels *p = &s->pixels;
    if (p->read == NULL) {
        *out = (const uint8_t *)s->in[s->images].data + row * p->channels * p->plane;
        return BY_OK;
    }
    *out = memory;
    if (!p->has_cut) {
        return p->read->read(p->read->context, row, NULL, NULL, memory, error);
    }
    const by__transform_draw draw = by__transform_draw_of(&p->cut, sample);
    return p->read->read(p->read->context, row, &p->cut, &draw, memory, error);
}

/* *share: of the sample's own label. */
static by_status fill_image(const array_source *s, const by_source_sample *sample, uint64_t row,
                            void *out, double *share, by_error *error)
{
    const pixels *p = &s->pixels;
    size_t bytes = p->channels * p->plane;
    uint8_t *memory = (uint8_t *)sample->scratch + by__transform_scratch(&p->chain);
    const uint8_t *in;
    const uint8_t *other = NULL;
    BY_TRY(get_image(s, sample, row, memory, &in, error));
    if (by__transform_mixes(&p->chain)) {
        const by_source_sample partner = by__transform_partner_sample(sample);
        BY_TRY(get_image(s, &partner, partner_row(s, sample),
                         memory + by__round_up(bytes, BY_CACHE_LINE), &other, error));
    }
    const uint8_t *image =
        by__transform_apply(&p->chain, sample, in, other, sample->scratch, share);
    if (p->table == NULL) {
        memcpy(out, image, bytes);
        return BY_OK;
    }
    float *values = out;
    for (size_t c = 0; c < p->channels; c++) {
        const float *table = p->table + c * 256;
        for (size_t i = c * p->plane; i < (c + 1) * p->plane; i++) {
            values[i] = table[image[i]];
        }
    }
    return BY_OK;
}

/* The classes of the pixels of an image, -1 for none; the set has them in bytes, one higher. */
static void fill_map(const array_source *s, const by_source_sample *sample, uint64_t row,
                     int32_t *out)
{
    size_t plane = s->row_bytes[s->maps];
    const uint8_t *in = (const uint8_t *)s->in[s->maps].data + row * plane;
    const uint8_t *map =
        s->pixels.chain.count == 0
            ? in
            : by__transform_apply_labels(&s->pixels.chain, sample, in, sample->scratch);
    for (size_t i = 0; i < plane; i++) {
        out[i] = (int32_t)map[i] - 1;
    }
}

/* ---- samples ---- */

/* The second label of a mixed sample, and the weights of both. */
static void fill_mixed(const array_source *s, const by_source_sample *sample, void *const *rows,
                       double share)
{
    const int32_t *labels = s->in[s->target].data;
    float weight = *(const float *)rows[s->weight];
    float first = (float)share * weight;
    *(int32_t *)rows[s->mixed] = labels[partner_row(s, sample)];
    *(float *)rows[s->mixed + 1] = first;
    *(float *)rows[s->mixed + 2] = weight - first;
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const array_source *s = (const array_source *)source;
    bool counts = sample->place < source->samples;
    double share = 1.0;
    uint64_t row = counts ? row_of(s, sample) : 0;
    for (size_t i = 0; i < s->count; i++) {
        size_t bytes = s->row_bytes[i];
        if (!counts) {
            bool is_label = i == s->target && s->arrays[i].dtype == BY_I32;
            bool is_wide = (i == s->images && s->pixels.table != NULL) || i == s->maps;
            memset(rows[i], is_label ? 0xff : 0, is_wide ? bytes * sizeof(float) : bytes);
        } else if (i == s->maps) {
            fill_map(s, sample, row, rows[i]);
        } else if (i == s->images) {
            BY_TRY(fill_image(s, sample, row, rows[i], &share, error));
        } else {
            memcpy(rows[i], (const uint8_t *)s->in[i].data + row * bytes, bytes);
        }
    }
    if (s->weight == s->count) {
        *(float *)rows[s->count] = counts ? 1.0f : 0.0f;
    }
    if (s->mixed > 0) {
        fill_mixed(s, sample, rows, share);
    }
    if (s->number > 0) {
        *(int32_t *)rows[s->number] = counts ? (int32_t)row : -1;
    }
    return BY_OK;
}

static by_status weigh(const by_source *source, const by_source_sample *sample, double *weight,
                       by_error *error)
{
    const array_source *s = (const array_source *)source;
    const float *weights = s->in[s->weight].data;
    BY_UNUSED(error);
    *weight = sample->place < source->samples ? (double)weights[row_of(s, sample)] : 0.0;
    return BY_OK;
}

static void close_source(by_source *source)
{
    array_source *s = (array_source *)source;
    free(s->list);
    by__loader_draws_free(&s->draws);
    free(s->pixels.table);
    free(s->arrays);
    free(s->row_bytes);
    free(s);
}

/* ---- opening ---- */

static by_status find_array(size_t *out, const array_source *s, const char *name, by_error *error)
{
    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(s->in[i].name, name) == 0) {
            *out = i;
            return BY_OK;
        }
    }
    return by_error_set(error, BY_EARG, "%s: there is no array '%s'", s->base.name, name);
}

static by_status make_table(pixels *p, const by_array_source_options *o, const char *name,
                            by_error *error)
{
    BY_TRY(by__alloc((void **)&p->table, p->channels, 256 * sizeof(float), "pixel values", error));
    for (size_t c = 0; c < p->channels; c++) {
        if (!(o->deviation[c] > 0.0f)) {
            return by_error_set(error, BY_EARG,
                                "%s: the deviation %g of channel %zu must be more than 0", name,
                                (double)o->deviation[c], c);
        }
        for (size_t v = 0; v < 256; v++) {
            p->table[256 * c + v] = ((float)v / 255.0f - o->mean[c]) / o->deviation[c];
        }
    }
    return BY_OK;
}

/* Collects the transforms of training data, and checks them whatever the data is for. */
static by_status open_chain(array_source *s, const by_array_source_options *o, by_error *error)
{
    by__transform_chain *chain = &s->pixels.chain;
    by_error why = {0};
    by_status status = BY_OK;
    char shift[32];
    (void)snprintf(shift, sizeof shift, "shift=%d", o->shift);
    if (o->shift < 0) {
        status = by_error_set(&why, BY_EARG,
                              "a shift of %d pixels must be from 0 to less than the %zu x %zu of "
                              "an image",
                              o->shift, chain->size.height, chain->size.width);
    } else if (o->shift > 0) {
        status = by__transform_add(chain, shift, &why);
    }
    if (status == BY_OK && o->flip) {
        status = by__transform_add(chain, "flip", &why);
    }
    for (size_t i = 0; status == BY_OK && i < o->transform_count; i++) {
        status = by__transform_add(chain, o->transforms[i], &why);
    }
    if (status == BY_OK) {
        status = by__transform_check(chain, &why);
    }
    if (status != BY_OK) {
        return by_error_set(error, status, "%s: %s", s->base.name, why.message);
    }
    chain->count = o->shuffle ? chain->count : 0;
    if (s->pixels.read != NULL && chain->count > 0 && chain->steps[0].row->crop != NULL) {
        s->pixels.cut = chain->steps[0];
        s->pixels.has_cut = true;
        memmove(chain->steps, chain->steps + 1, --chain->count * sizeof chain->steps[0]);
    }
    s->base.scratch = by__transform_scratch(chain);
    if (s->pixels.read != NULL) {
        size_t bytes = s->pixels.channels * s->pixels.plane;
        s->base.scratch += 2 * by__round_up(bytes, BY_CACHE_LINE);
    }
    return BY_OK;
}

/* Adds the arrays of samples with two labels. */
static by_status open_mixed(array_source *s, by_error *error)
{
    const by_array *labels = &s->in[s->target];
    if (labels->dtype != BY_I32 || labels->shape.rank != 1) {
        return by_error_set(error, BY_EARG,
                            "%s: mixed images have two labels, i32 [N], and '%s' has other targets",
                            s->base.name, labels->name);
    }
    s->mixed = s->base.array_count;
    s->arrays[s->mixed] = (by_array){.name = "second_labels", .dtype = BY_I32};
    s->arrays[s->mixed + 1] = (by_array){.name = "first_weight", .dtype = BY_F32};
    s->arrays[s->mixed + 2] = (by_array){.name = "second_weight", .dtype = BY_F32};
    s->base.array_count += 3;
    return BY_OK;
}

/* The classes of pixels follow the images through the chain. */
static by_status check_maps(const array_source *s, by_error *error)
{
    const by_shape *images = &s->in[s->images].shape;
    const by_shape *maps = &s->in[s->maps].shape;
    bool fits = maps->rank == 3 && maps->dim[1] == images->dim[2] && maps->dim[2] == images->dim[3];
    return fits && s->pixels.read == NULL
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "%s: classes of pixels, '%s', must be u8 [N, H, W], as large as the "
                              "images, which are in memory",
                              s->base.name, s->in[s->maps].name);
}

static by_status open_images(array_source *s, const by_array_set *set,
                             const by_array_source_options *o, by_error *error)
{
    pixels *p = &s->pixels;
    const by__loader_pictures *read = by__loader_array_set_pictures(set);
    read = read->context == NULL ? NULL : read;
    if (o->shift == 0 && !o->flip && o->transform_count == 0 && o->mean == NULL &&
        o->deviation == NULL && read == NULL) {
        return BY_OK;
    }
    BY_TRY(find_array(&s->images, s, "images", error));
    const by_array *a = &s->in[s->images];
    if (a->dtype != BY_U8 || a->shape.rank != 4) {
        return by_error_set(error, BY_EARG, "%s: 'images' must be u8 [N, C, H, W]", s->base.name);
    }
    const by__transform_size size = {.channels = (size_t)a->shape.dim[1],
                                     .height = (size_t)a->shape.dim[2],
                                     .width = (size_t)a->shape.dim[3]};
    *p = (pixels){.channels = size.channels,
                  .plane = size.height * size.width,
                  .chain = {.size = size},
                  .read = read};
    BY_TRY(open_chain(s, o, error));
    if (s->maps < s->count) {
        BY_TRY(check_maps(s, error));
    }
    if (by__transform_mixes(&p->chain) && s->target < s->count) {
        BY_TRY(open_mixed(s, error));
    }
    if ((o->mean == NULL) != (o->deviation == NULL)) {
        return by_error_set(error, BY_EARG, "%s: pixels need both mean and deviation, or neither",
                            s->base.name);
    }
    if (o->mean != NULL) {
        BY_TRY(make_table(p, o, s->base.name, error));
        s->arrays[s->images].dtype = BY_F32;
    }
    return BY_OK;
}

static by_status check_weights(const array_source *s, const by_array *weights, by_error *error)
{
    bool fits = weights->dtype == BY_F32 && weights->shape.rank == 1;
    for (int64_t i = 0; fits && i < weights->shape.dim[0]; i++) {
        float weight = ((const float *)weights->data)[i];
        fits = weight >= 0.0f && weight < INFINITY;
    }
    return fits ? BY_OK
                : by_error_set(error, BY_EARG,
                               "%s: an array 'weight' has the weights of the examples: f32 [N], "
                               "finite and at least 0",
                               s->base.name);
}

static by_status open_arrays(array_source *s, const by_array_set *set,
                             const by_array_source_options *o, by_error *error)
{
    BY_TRY(by__alloc((void **)&s->arrays, s->count + 5, sizeof *s->arrays, "arrays", error));
    BY_TRY(by__alloc((void **)&s->row_bytes, s->count, sizeof *s->row_bytes, "arrays", error));
    for (size_t i = 0; i < s->count; i++) {
        by_array *a = &s->arrays[i];
        *a = (by_array){.name = s->in[i].name, .dtype = s->in[i].dtype};
        a->shape.rank = s->in[i].shape.rank - 1;
        memcpy(a->shape.dim, s->in[i].shape.dim + 1,
               (size_t)a->shape.rank * sizeof a->shape.dim[0]);
        s->row_bytes[i] = (size_t)by_shape_count(&a->shape) * by_dtype_size(a->dtype);
        if (strcmp(a->name, "weight") == 0) {
            BY_TRY(check_weights(s, &s->in[i], error));
            s->weight = i;
            s->base.weigh = weigh;
            s->base.array_count = s->count;
        }
    }
    s->arrays[s->count] = (by_array){.name = "weight", .dtype = BY_F32};
    if (o->target != NULL) {
        BY_TRY(find_array(&s->target, s, o->target, error));
        if (s->in[s->target].dtype == BY_U8) {
            s->maps = s->target;
            s->arrays[s->maps].dtype = BY_I32;
        }
    }
    BY_TRY(open_images(s, set, o, error));
    if (o->numbers) {
        s->number = s->base.array_count++;
        s->arrays[s->number] = (by_array){.name = "example", .dtype = BY_I32};
    }
    return BY_OK;
}

/* An image, by where it lies. */
typedef struct placed_row {
    uint64_t file;
    uint64_t begin;
    uint64_t row;
} placed_row;

static int compare_places(const void *a, const void *b)
{
    const placed_row *x = a;
    const placed_row *y = b;
    return x->file != y->file     ? (x->file > y->file) - (x->file < y->file)
           : x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                  : (x->row > y->row) - (x->row < y->row);
}

/* Puts the rows into the order of their files, so that few of these are in use at a time. */
static by_status order_by_files(array_source *s, const by__loader_pictures *read,
                                const by_array_source_options *o, by_error *error)
{
    uint64_t count = s->base.samples;
    uint64_t files = 1;
    placed_row *places;
    BY_TRY(by__alloc((void **)&places, count, sizeof *places, "the order of images", error));
    by_status status =
        by__alloc((void **)&s->list, count, sizeof *s->list, "the order of images", error);
    for (uint64_t i = 0; i < count && status == BY_OK; i++) {
        places[i].row = by__part_row(&s->rows, i);
        read->place(read->context, places[i].row, &places[i].file, &places[i].begin);
    }
    if (status == BY_OK) {
        qsort(places, count, sizeof *places, compare_places);
    }
    for (uint64_t i = 0; i < count && status == BY_OK; i++) {
        files += i > 0 && places[i].file != places[i - 1].file;
        s->list[i] = places[i].row;
    }
    free(places);
    if (status == BY_OK) {
        s->rows = (by__loader_part_rows){.list = s->list};
        s->base.order_block = (count + files - 1) / files;
        s->base.order_window = o->shuffle_files;
    }
    return status;
}

/* Takes the weights and classes of the part's examples, in its order. */
static by_status open_draws(array_source *s, const by_array_source_options *o, by_error *error)
{
    const by_array *target = s->target < s->count ? &s->in[s->target] : NULL;
    double *weights = NULL;
    int32_t *classes = NULL;
    uint64_t count = s->base.samples;
    by_error why = {0};
    if (!o->shuffle || (!o->balance && o->draws == NULL)) {
        return BY_OK;
    }
    if (o->balance && (target == NULL || target->dtype != BY_I32 || target->shape.rank != 1)) {
        return by_error_set(error, BY_EARG, "%s: classes are balanced by labels, i32 [N]",
                            s->base.name);
    }
    if (o->balance && s->list != NULL) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: balanced classes are drawn from all files, and "
                            "data.shuffle_files keeps few of them in use: leave one of both out",
                            s->base.name);
    }
    by_status status = BY_OK;
    if (o->draws != NULL) {
        status = by__alloc((void **)&weights, (size_t)count, sizeof *weights, "draws", &why);
    }
    if (status == BY_OK && o->balance) {
        status = by__alloc((void **)&classes, (size_t)count, sizeof *classes, "draws", &why);
    }
    for (uint64_t i = 0; i < count && status == BY_OK; i++) {
        uint64_t row = by__part_row(&s->rows, i);
        if (weights != NULL) {
            weights[i] = o->draws[row];
        }
        if (classes != NULL) {
            classes[i] = ((const int32_t *)target->data)[row];
        }
    }
    if (status == BY_OK) {
        status = by__loader_draws_open(&s->draws, weights, classes, count, &why);
    }
    free(weights);
    free(classes);
    return status == BY_OK ? BY_OK
                           : by_error_set(error, status, "%s: %s", s->base.name, why.message);
}

uint64_t by__loader_array_source_row(const by_source *source, const by_source_sample *sample)
{
    return row_of((const array_source *)source, sample);
}

by_status by_array_source_open(by_source **out, const by_array_set *set, const by_part *part,
                               const by_array_source_options *options, by_error *error)
{
    array_source *s;
    uint64_t examples = by_array_set_examples(set);
    if (!by__loader_part_fits(part, examples)) {
        return by_error_set(error, BY_EARG,
                            "%s: %llu examples from %llu on, of %llu, are no part of its %llu",
                            by_array_set_name(set), (unsigned long long)part->count,
                            (unsigned long long)part->first, (unsigned long long)part->total,
                            (unsigned long long)examples);
    }
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a source of arrays", error));
    s->in = by_array_set_arrays(set, &s->count);
    s->images = s->count;
    s->target = s->count;
    s->maps = s->count;
    s->weight = s->count;
    by__loader_part_rows_init(&s->rows, part);
    s->base = (by_source){.name = by_array_set_name(set),
                          .array_count = s->count + 1,
                          .shuffle = options->shuffle,
                          .samples = part->count,
                          .sample_targets = 1,
                          .targets = part->count,
                          .fill = fill,
                          .close = close_source};
    by_status status = open_arrays(s, set, options, error);
    s->base.arrays = s->arrays;
    const by__loader_pictures *read = by__loader_array_set_pictures(set);
    if (status == BY_OK && options->shuffle && options->shuffle_files > 0 &&
        read->context != NULL) {
        status = order_by_files(s, read, options, error);
    }
    if (status == BY_OK) {
        status = open_draws(s, options, error);
    }
    if (status != BY_OK) {
        close_source(&s->base);
        return status;
    }
    *out = &s->base;
    return BY_OK;
}
