#include "data/image/image_names.h"

#include <stdlib.h>
#include <string.h>

void by__image_shard_found_free(by__image_shard_found *found)
{
    by__image_folder_free(&found->folder);
    free(found->order);
    *found = (by__image_shard_found){.declares = false};
}

/* ---- labels that are texts ---- */

static int compare_text(const char *name, const char *text, size_t size)
{
    int order = strncmp(name, text, size);
    return order != 0 ? order : name[size] != '\0';
}

/* Where a text is, or would be, among the names in order. */
static size_t find_text(const by__image_shard_found *f, const char *text, size_t size, bool *is)
{
    size_t low = 0;
    size_t high = f->folder.class_count;
    *is = false;
    while (low < high && !*is) {
        size_t middle = low + (high - low) / 2;
        int order = compare_text(f->folder.classes[f->order[middle]], text, size);
        *is = order == 0;
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return high;
}

static by_status refuse_text(const char *text, size_t size, const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "its label, '%.*s', is %s", (int)(size < 80 ? size : 80),
                        text, what);
}

by_status by__image_names_class(int32_t *out, by__image_shard_found *f, const char *text,
                                size_t size, by_error *error)
{
    bool is = false;
    size_t count = f->folder.class_count;
    f->texts = true;
    if (f->declares) {
        for (size_t i = 0; i < count && !is; i++) {
            is = strlen(f->folder.classes[i]) == size &&
                 memcmp(f->folder.classes[i], text, size) == 0;
            *out = (int32_t)i;
        }
        return is ? BY_OK
                  : refuse_text(text, size, "none of the classes that the shard names", error);
    }
    if (memchr(text, '\0', size) != NULL || !by__utf8_valid(text, size)) {
        return refuse_text(text, size, "no text of UTF-8, which names of classes are", error);
    }
    size_t at = find_text(f, text, size, &is);
    if (is) {
        *out = f->order[at];
        return BY_OK;
    }
    char *name = by__strndup(text, size);
    by_status status = name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a class")
                                    : by__reserve((void **)&f->order, &f->order_capacity, count + 1,
                                                  sizeof *f->order, error);
    if (status == BY_OK) {
        status = by__image_folder_add_class(&f->folder, name, error);
    }
    free(name);
    BY_TRY(status);
    memmove(f->order + at + 1, f->order + at, (count - at) * sizeof *f->order);
    f->order[at] = (int32_t)count;
    *out = (int32_t)count;
    return BY_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* All names, in their order, once each. */
static by_status merge_names(by__image_folder *out, by__image_shard_found *const *found,
                             size_t count, by_error *error)
{
    const char **names;
    size_t all = 0;
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        all += found[i]->folder.class_count;
    }
    BY_TRY(by__alloc((void **)&names, all, sizeof *names, "names of classes", error));
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < found[i]->folder.class_count; k++) {
            names[n++] = found[i]->folder.classes[k];
        }
    }
    qsort(names, n, sizeof *names, compare_names);
    by_status status = BY_OK;
    for (size_t i = 0; i < n && status == BY_OK; i++) {
        if (i == 0 || strcmp(names[i - 1], names[i]) != 0) {
            status = by__image_folder_add_class(out, names[i], error);
        }
    }
    free(names);
    out->fixed = true;
    return status;
}

static by_status renumber(const by__image_folder *out, by__image_folder *f, const char *path,
                          by_error *error)
{
    int32_t *numbers;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&numbers, f->class_count, sizeof *numbers, "classes", error));
    for (size_t i = 0; i < f->class_count; i++) {
        const char *const *same = bsearch(&f->classes[i], out->classes, out->class_count,
                                          sizeof *out->classes, compare_names);
        numbers[i] = (int32_t)(same - (const char *const *)out->classes);
    }
    for (size_t i = 0; i < f->count && status == BY_OK; i++) {
        int32_t *label = &f->files[i].label;
        if (*label >= 0 && (size_t)*label >= f->class_count) {
            status = by_error_set(error, BY_EFORMAT,
                                  "%s, sample %s: its label is %d, but the shard names %zu classes",
                                  path, f->files[i].range.sample, (int)*label, f->class_count);
        } else if (*label >= 0) {
            *label = numbers[*label];
        }
    }
    free(numbers);
    return status;
}

by_status by__image_names_collect(by__image_folder *out, by__image_shard_found *const *found,
                                  const char *const *paths, size_t count, by_error *error)
{
    size_t texts = count;
    size_t bare = count;
    for (size_t i = count; i-- > 0;) {
        texts = found[i]->texts ? i : texts;
        bare = found[i]->numbers && !found[i]->declares ? i : bare;
    }
    if (texts == count) {
        return BY_OK;
    }
    if (bare < count) {
        return by_error_set(error, BY_EFORMAT,
                            "%s has labels that are numbers, and %s labels that are names: which "
                            "number is which name is not known; write all of them in one way, or "
                            "the names of the numbers into the first shard (__classes.json)",
                            paths[bare], paths[texts]);
    }
    BY_TRY(merge_names(out, found, count, error));
    for (size_t i = 0; i < count; i++) {
        by__image_folder *f = &found[i]->folder;
        BY_TRY(renumber(out, f, paths[i], error));
        by__names_free(f->classes, f->class_count);
        f->classes = NULL;
        f->class_count = 0;
        f->class_capacity = 0;
    }
    return BY_OK;
}

/* ---- labels that are numbers ---- */

/* Numbers the labels of a shard as classes that are fixed, by the names that it has for them. If it
 * has none of their names, these are other words for the same numbers. */
static by_status number_labels(const by__image_folder *out, by__image_folder *f, const char *path,
                               by_error *error)
{
    int32_t *numbers;
    size_t known = 0;
    size_t unknown = 0;
    BY_TRY(by__alloc((void **)&numbers, f->class_count, sizeof *numbers, "classes", error));
    for (size_t i = 0; i < f->class_count; i++) {
        size_t k = 0;
        while (k < out->class_count && strcmp(out->classes[k], f->classes[i]) != 0) {
            k++;
        }
        numbers[i] = (int32_t)k;
        known += k < out->class_count;
        unknown = k < out->class_count ? unknown : i;
    }
    by_status status = known == 0 || known == f->class_count
                           ? BY_OK
                           : by_error_set(error, BY_EFORMAT,
                                          "%s has the class '%s', which is none of the %zu that "
                                          "there are, and others that are",
                                          path, f->classes[unknown], out->class_count);
    for (size_t i = 0; i < f->count && known == f->class_count; i++) {
        int32_t *label = &f->files[i].label;
        *label = *label >= 0 && (size_t)*label < f->class_count ? numbers[*label] : *label;
    }
    free(numbers);
    return status;
}

by_status by__image_names_take(by__image_folder *out, by__image_folder *f, const char *path,
                               by_error *error)
{
    bool same = f->class_count == out->class_count;
    if (f->class_count == 0) {
        return BY_OK;
    }
    for (size_t i = 0; i < f->class_count && same; i++) {
        same = strcmp(out->classes[i], f->classes[i]) == 0;
    }
    if (out->fixed) {
        return same || f->fixed ? BY_OK : number_labels(out, f, path, error);
    }
    if (out->class_count > 0) {
        const char *way_out = out->collects ? "write the same into each (__classes.json)"
                                            : "set data.label_names, if the numbers mean the same";
        return same ? BY_OK
                    : by_error_set(error, BY_EFORMAT,
                                   "%s names other classes than the shards before it: %s", path,
                                   way_out);
    }
    out->classes = f->classes;
    out->class_count = f->class_count;
    out->class_capacity = f->class_capacity;
    f->classes = NULL;
    f->class_count = 0;
    f->class_capacity = 0;
    return BY_OK;
}
