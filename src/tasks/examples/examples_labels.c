/* The labels of images: how many classes there are, and labels that are none. */
#include <stdlib.h>
#include <string.h>

#include "data/image/picture_use.h"
#include "tasks/examples/examples.h"

/* A label is no class if more than this many classes, and more than half of all, would have no
 * example. */
#define UNUSED 16
/* Classes that are counted, for each example. */
#define COUNTED ((int64_t)64)

int64_t by__task_examples_classes(const by__task_examples *d)
{
    int64_t classes = (int64_t)d->label_count;
    const by_array_set *sets[2] = {d->train, d->valid};
    for (int s = 0; s < 2; s++) {
        const by_array *labels = sets[s] == NULL ? NULL : by_array_set_find(sets[s], "labels");
        if (labels != NULL && labels->dtype == BY_U8) { /* of pixels: one higher */
            const uint8_t *all = labels->data;
            for (int64_t i = 0; i < by_shape_count(&labels->shape); i++) {
                classes = all[i] > classes ? all[i] : classes;
            }
            continue;
        }
        for (int64_t i = 0; labels != NULL && i < labels->shape.dim[0]; i++) {
            int64_t label = ((const int32_t *)labels->data)[i];
            classes = label >= classes ? label + 1 : classes;
        }
    }
    return classes;
}

void by__task_examples_keep_top(by__task_examples *d, const by_array_set *set,
                                const by_string_list *labels)
{
    const by_array *all = by_array_set_find(set, "labels");
    by__task_top_label *top = &d->top;
    bool second = d->train != NULL && d->train != set;
    const by__image_folder *folder = second ? &d->others : &d->folder;
    char *source = d->label_names[second];
    if (all == NULL || all->dtype != BY_I32) { /* of pixels */
        return;
    }
    (void)snprintf(source, sizeof d->label_names[0], "%.300s",
                   labels->count == 1 ? labels->items[0] : by_array_set_name(set));
    for (int64_t i = 0; i < all->shape.dim[0]; i++) {
        int32_t label = ((const int32_t *)all->data)[i];
        if (label <= top->label) {
            continue;
        }
        top->label = label;
        if (labels->count == 0 && (size_t)i < folder->count) {
            char name[BY__IMAGE_NAME];
            const by__image_picture_file *file = &folder->files[i];
            (void)snprintf(top->name, sizeof top->name, "%.390s",
                           by__image_picture_name(name, file->path, &file->range));
        } else {
            (void)snprintf(top->name, sizeof top->name, "%s, label number %lld", source,
                           (long long)i);
        }
    }
}

/* Counts the labels that occur; each beyond COUNTED of the examples as one of its own. */
static by_status count_labels(int64_t *out, const by__task_examples *d, by_error *error)
{
    const by_array_set *sets[2] = {d->train, d->valid};
    int64_t examples = 0;
    uint8_t *seen;
    for (int s = 0; s < 2; s++) {
        examples += sets[s] == NULL ? 0 : (int64_t)by_array_set_examples(sets[s]);
    }
    int64_t limit = d->top.label < COUNTED * examples ? d->top.label + 1 : COUNTED * examples;
    BY_TRY(by__alloc((void **)&seen, (size_t)limit + 1, 1, "labels", error));
    *out = 0;
    for (int s = 0; s < 2; s++) {
        const by_array *labels = sets[s] == NULL ? NULL : by_array_set_find(sets[s], "labels");
        for (int64_t i = 0; labels != NULL && i < labels->shape.dim[0]; i++) {
            int64_t label = ((const int32_t *)labels->data)[i];
            if (label >= limit) {
                ++*out;
            } else if (label >= 0 && seen[label] == 0) {
                seen[label] = 1;
                ++*out;
            }
        }
    }
    free(seen);
    return BY_OK;
}

/* Refuses labels below 0 of examples that are used: no loss and no metric would count them. */
static by_status check_negative(const by__task_examples *d, const by_array_set *set,
                                const by_part *part, bool second, by_error *error)
{
    const by_array *labels = set == NULL ? NULL : by_array_set_find(set, "labels");
    if (labels == NULL || labels->dtype != BY_I32 || labels->shape.rank != 1) {
        return BY_OK;
    }
    for (uint64_t i = 0; i < part->count; i++) {
        uint64_t row = by_part_example(part, i);
        int32_t label = ((const int32_t *)labels->data)[row];
        if (label < 0) {
            return by_error_set(error, BY_ECONFIG,
                                "%s, label number %llu is %d: classes are numbered from 0; mend "
                                "it, or keep such examples out of data.train_rows and "
                                "data.valid_rows",
                                d->label_names[second], (unsigned long long)row, (int)label);
        }
    }
    return BY_OK;
}

/* The largest label of the training data. */
static int64_t top_trained(const by__task_examples *d)
{
    const by_array *labels = by_array_set_find(d->train, "labels");
    int64_t top = -1;
    for (int64_t i = 0; labels != NULL && i < labels->shape.dim[0]; i++) {
        int32_t label = ((const int32_t *)labels->data)[i];
        top = label > top ? label : top;
    }
    return top;
}

/* Whether a name is a number, but not that of its class: folders are in the order of texts, in
 * which 10 comes before 2. */
static bool is_other_number(const char *name, size_t number)
{
    char own[24];
    (void)snprintf(own, sizeof own, "%zu", number);
    return name[strspn(name, "0123456789")] == '\0' && strcmp(name, own) != 0;
}

/* Where labels have no names, held-out data of its own has no more classes than the training data,
 * and folders are those numbers in their order. */
static by_status check_apart(const by__task_examples *d, int64_t outputs, by_error *error)
{
    const by__image_folder *f = &d->others;
    int64_t classes = outputs >= 1 ? outputs : top_trained(d) + 1;
    if (d->top.label >= classes) {
        return by_error_set(error, BY_ECONFIG,
                            "%s has the label %lld, but those of the training data are below "
                            "%lld: mend it, or if there are more classes, set model.outputs to "
                            "their number",
                            d->top.name, (long long)d->top.label, (long long)classes);
    }
    if (!f->fixed) { /* it has numbers, too */
        return BY_OK;
    }
    bool other = (int64_t)f->class_count != classes;
    for (size_t i = 0; i < f->class_count && !other; i++) {
        other = is_other_number(f->classes[i], i);
    }
    return other ? by_error_set(error, BY_ECONFIG,
                                "%s has %zu folders of classes, '%s' the first, and the training "
                                "data numbers from 0 to %lld without names: set data.label_names "
                                "to the names of the folders in the order of the numbers",
                                d->keys->valid_images.items[0], f->class_count, f->classes[0],
                                (long long)classes - 1)
                 : BY_OK;
}

by_status by__task_examples_check_labels(const by__task_examples *d, int64_t outputs,
                                         by_error *error)
{
    int64_t occur;
    int64_t classes = d->label_count > 0 ? (int64_t)d->label_count : outputs;
    if (d->is_predicted || d->encoding != NULL) {
        return BY_OK;
    }
    bool apart = d->valid != NULL;
    BY_TRY(check_negative(d, d->train, &d->train_part, false, error));
    BY_TRY(check_negative(d, apart ? d->valid : d->train, &d->valid_part, apart && d->train != NULL,
                          error));
    if (d->top.label < 0) {
        return BY_OK;
    }
    if (apart && d->train != NULL && d->label_count == 0) {
        BY_TRY(check_apart(d, outputs, error));
    }
    if (classes >= 1) {
        return d->top.label < classes
                   ? BY_OK
                   : by_error_set(
                         error, BY_ECONFIG,
                         d->label_count > 0
                             ? "%s has the label %lld, but there are names for %lld classes"
                             : "%s has the label %lld, but model.outputs is %lld",
                         d->top.name, (long long)d->top.label, (long long)classes);
    }
    BY_TRY(count_labels(&occur, d, error));
    int64_t missing = d->top.label + 1 - occur;
    return missing <= UNUSED || missing <= occur
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s has the label %lld, but only %lld labels occur: mend it, or if "
                              "there are so many classes, set model.outputs to their number",
                              d->top.name, (long long)d->top.label, (long long)occur);
}

by_status by__task_examples_doubt_labels(const by__task_examples *d, char **out, by_error *error)
{
    by_string text = {0};
    int64_t occur = 0;
    if (d->top.label >= 0 && d->label_count == 0) {
        BY_TRY(count_labels(&occur, d, error));
        int64_t missing = d->top.label + 1 - occur;
        if (missing > 0) {
            by_string_format(&text,
                             "labels are 0 to %lld, the largest that of %s, but %lld of these "
                             "classes have no example",
                             (long long)d->top.label, d->top.name, (long long)missing);
        }
    }
    return by__string_release(&text, out, error);
}
