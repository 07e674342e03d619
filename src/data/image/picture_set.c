#include "data/image/picture_set.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "data/image/picture_use.h"
#include "formats/image/image_file.h"

typedef struct picture_reader {
    const by_image_files *files;
    by_image_fit fit; /* with the size that all have */
    size_t sized_by;  /* the picture whose size it is, if the files have no fit */
    int64_t channels;
    size_t bytes;    /* of a picture */
    uint8_t *pixels; /* [count, bytes] */
    uint8_t *bad;    /* [count]: it could not be read */
    by__image_pages *pages;
    size_t *kept; /* [count] of pictures that are decoded later; NULL: now */
    atomic_size_t next;
    atomic_size_t
        first; /* the first bad one, behind which nothing matters unless they are skipped */
} picture_reader;

/* The range of a picture in its file; NULL: it is the file. */
static const by_image_range *range_of(const picture_reader *r, size_t i)
{
    const by_image_range *range = r->files->ranges == NULL ? NULL : &r->files->ranges[i];
    return range == NULL || (range->size == 0 && range->problem == NULL) ? NULL : range;
}

/* Reads a file; *height and *width are those of the fit, if it has any. *damaged: on failure, the
 * file is at fault, and not the network, the memory or a request to stop. */
static by_status read_file(uint8_t **pixels, int64_t *height, int64_t *width, bool *damaged,
                           const picture_reader *r, size_t i, by_error *error)
{
    uint8_t *data;
    size_t size;
    by_error why = {0};
    const char *path = r->files->images[i];
    const by_image_range *range = range_of(r, i);
    by_status status =
        by__image_picture_bytes(&data, &size, r->files->remote, r->pages, path, range, error);
    if (status != BY_OK) {
        bool lies_there = !by_remote_is(path) || (range != NULL && range->problem != NULL);
        *damaged = lies_there && status != BY_EMEMORY;
        return status;
    }
    status = by__format_image_decode(pixels, height, width, r->channels, &r->fit, data, size, &why);
    *damaged = status != BY_EMEMORY;
    free(data);
    return status == BY_OK ? BY_OK : by__image_picture_refuse(path, range, &why, "", error);
}

/* Takes files until there are no more. Fails if one cannot be read, though it may be good. */
static by_status work(void *context, size_t thread, by_error *error)
{
    picture_reader *r = context;
    BY_UNUSED(thread);
    for (;;) {
        size_t i = atomic_fetch_add(&r->next, 1);
        if (i >= r->files->image_count || (!r->files->skip && i > atomic_load(&r->first))) {
            return BY_OK;
        }
        bool damaged = false;
        uint8_t *pixels;
        int64_t height;
        int64_t width;
        by_error why = {0};
        by_status status = read_file(&pixels, &height, &width, &damaged, r, i, &why);
        if (status != BY_OK && !damaged) {
            atomic_store(&r->next, r->files->image_count);
            return by_error_set(error, status, "%s", why.message);
        }
        if (status == BY_OK) {
            if (r->pixels != NULL) {
                memcpy(r->pixels + i * r->bytes, pixels, r->bytes);
            }
            free(pixels);
            continue;
        }
        r->bad[i] = 1;
        size_t first = atomic_load(&r->first);
        while (i < first && !atomic_compare_exchange_weak(&r->first, &first, i)) {
        }
    }
}

static by_status refuse_all(const picture_reader *r, const char *reason, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "none of the pictures (%zu) can be read: %s",
                        r->files->image_count, reason);
}

/* Refuses for a picture, which could be left out of a training set. */
static by_status refuse_one(const picture_reader *r, const by_error *why, bool whole,
                            by_error *error)
{
    bool may_skip = r->files->classes != NULL && !r->files->skip && !whole;
    return why->status != BY_EFORMAT || !may_skip
               ? by_error_set(error, why->status, "%s", why->message)
               : by_error_set(error, why->status, "%s" BY__IMAGE_MAY_SKIP, why->message);
}

/* Takes the size of the first picture that can be read, if the fit has none. */
static by_status derive_size(picture_reader *r, by_error *error)
{
    for (size_t i = 0; i < r->files->image_count && r->fit.height == 0; i++) {
        uint8_t *pixels;
        bool damaged = false;
        by_error why = {0};
        by_status status = read_file(&pixels, &r->fit.height, &r->fit.width, &damaged, r, i, &why);
        if (status == BY_OK) {
            r->sized_by = i;
            free(pixels);
        } else if (!r->files->skip || !damaged) {
            return refuse_one(r, &why, false, error);
        } else if (i + 1 == r->files->image_count) {
            return refuse_all(r, why.message, error);
        }
    }
    return BY_OK;
}

/* Tells what is wrong with a file: another size than the first one has, or itself. *whole: nothing
 * is damaged, so that it cannot be skipped. */
static by_status explain(const picture_reader *r, size_t i, bool *whole, by_error *error)
{
    uint8_t *pixels;
    int64_t height;
    int64_t width;
    const by_image_fit any = {.resize = BY_RESIZE_NONE};
    bool damaged = false;
    picture_reader own = {
        .files = r->files, .fit = any, .channels = r->channels, .pages = r->pages};
    if (r->files->fit == NULL &&
        read_file(&pixels, &height, &width, &damaged, &own, i, error) == BY_OK) {
        free(pixels);
        char name[BY__IMAGE_NAME];
        char first[BY__IMAGE_NAME];
        *whole = true;
        return by_error_set(
            error, BY_EFORMAT,
            "%s has %lld x %lld pixels, and %s %lld x %lld: set data.resize to crop "
            "or stretch, with model.image_height and model.image_width",
            by__image_picture_name(name, r->files->images[i], range_of(r, i)), (long long)width,
            (long long)height,
            by__image_picture_name(first, r->files->images[r->sized_by], range_of(r, r->sized_by)),
            (long long)r->fit.width, (long long)r->fit.height);
    }
    by_status status = read_file(&pixels, &height, &width, &damaged, r, i, error);
    *whole = !damaged;
    if (status == BY_OK) {
        free(pixels);
        return by_error_set(error, BY_EIO, "%s changes while it is read", r->files->images[i]);
    }
    return status;
}

/* Removes the pictures that are skipped; returns the number of the others. */
static by_status remove_skipped(size_t *kept, picture_reader *r, int32_t *labels,
                                by__loader_damage *damage, by_error *error)
{
    *kept = 0;
    for (size_t i = 0; i < r->files->image_count; i++) {
        if (r->bad[i] != 0) {
            bool whole = false;
            by_error why = {0};
            (void)explain(r, i, &whole, &why);
            if (!r->files->skip || whole) {
                return refuse_one(r, &why, whole, error);
            }
            const by_image_range *range = range_of(r, i);
            const by_damage item = {.path = r->files->images[i],
                                    .place = range == NULL ? 0 : range->begin,
                                    .begin = i,
                                    .count = 1,
                                    .reason = why.message};
            BY_TRY(by__loader_damage_add(damage, &item, error));
            continue;
        }
        if (r->kept != NULL) {
            r->kept[*kept] = i;
        } else if (*kept < i) {
            memmove(r->pixels + *kept * r->bytes, r->pixels + i * r->bytes, r->bytes);
        }
        if (labels != NULL) {
            labels[*kept] = r->files->classes[i];
        }
        ++*kept;
    }
    return BY_OK;
}

static by_status read_all(by__image_pictures *out, picture_reader *r, by__loader_damage *damage,
                          by_error *error)
{
    const by_image_files *f = r->files;
    size_t bytes;
    size_t kept;
    size_t threads = (size_t)by__thread_count(0);
    BY_TRY(derive_size(r, error));
    out->shape = BY_SHAPE((int64_t)f->image_count, r->channels, r->fit.height, r->fit.width);
    BY_TRY(by__loader_array_bytes(&bytes, BY_U8, &out->shape, f->images[0], error));
    r->bytes = bytes / f->image_count;
    BY_TRY(by__alloc((void **)&r->bad, f->image_count, 1, "pictures", error));
    out->pixels = malloc(bytes);
    if (out->pixels == NULL) {
        char size[32];
        return by_error_set(error, BY_EMEMORY, "out of memory: %s of %zu pictures",
                            by_format_bytes(size, bytes), f->image_count);
    }
    r->pixels = out->pixels;
    if (f->classes != NULL) {
        BY_TRY(
            by__alloc((void **)&out->labels, f->image_count, sizeof *out->labels, "labels", error));
    }
    BY_TRY(by__threads_run(threads < f->image_count ? threads : f->image_count, work, r, error));
    BY_TRY(remove_skipped(&kept, r, out->labels, damage, error));
    if (kept == 0) {
        return refuse_all(r, damage->items[damage->count - 1].reason, error);
    }
    out->shape.dim[0] = (int64_t)kept;
    return BY_OK;
}

by_status by__image_pictures_read(by__image_pictures *out, const by_image_files *files,
                                  by__loader_damage *damage, by_error *error)
{
    picture_reader r = {.files = files, .channels = files->channels == 0 ? 3 : files->channels};
    *out = (by__image_pictures){0};
    if (files->fit != NULL) {
        r.fit = *files->fit;
    }
    atomic_init(&r.next, 0);
    atomic_init(&r.first, SIZE_MAX);
    by_status status = by__image_pages_open(&r.pages, error);
    if (status == BY_OK) {
        status = read_all(out, &r, damage, error);
    }
    by__image_pages_close(&r.pages);
    free(r.bad);
    if (status != BY_OK) {
        free(out->pixels);
        free(out->labels);
        *out = (by__image_pictures){0};
    }
    return status;
}

by_status by__image_pictures_later(by_array_set **out, const by_image_files *files,
                                   by__loader_damage *damage, by_error *error)
{
    picture_reader r = {
        .files = files, .fit = *files->fit, .channels = files->channels == 0 ? 3 : files->channels};
    int32_t *labels = NULL;
    size_t kept = 0;
    size_t threads = (size_t)by__thread_count(0);
    atomic_init(&r.next, 0);
    atomic_init(&r.first, SIZE_MAX);
    by_status status = by__image_pages_open(&r.pages, error);
    if (status == BY_OK) {
        status = by__alloc((void **)&r.kept, files->image_count, sizeof *r.kept, "pictures", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&r.bad, files->image_count, 1, "pictures", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&labels, files->image_count, sizeof *labels, "labels", error);
    }
    for (size_t i = 0; i < files->image_count && status == BY_OK && !files->skip; i++) {
        r.bad[i] = files->ranges != NULL && files->ranges[i].problem != NULL;
    }
    if (status == BY_OK && files->skip) {
        status = by__threads_run(threads, work, &r, error);
    }
    if (status == BY_OK) {
        status = remove_skipped(&kept, &r, labels, damage, error);
    }
    if (status == BY_OK && kept == 0) {
        status = refuse_all(&r, damage->items[damage->count - 1].reason, error);
    }
    if (status == BY_OK) {
        status = by__image_pictures_use(out, files, files->fit, r.kept, kept, labels, error);
        labels = NULL;
    }
    by__image_pages_close(&r.pages);
    free(labels);
    free(r.kept);
    free(r.bad);
    return status;
}
