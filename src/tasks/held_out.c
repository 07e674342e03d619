#include "tasks/held_out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Fewer held-out examples differ by chance. */
#define FEWEST 20
/* Difference of means in standard deviations, and sum of differences of shares. */
#define MEANS  0.5
#define SHARES 0.6
/* More are not compared. */
#define MOST_CLASSES ((int64_t)1 << 20)

#define REMEDY                                                                                     \
    "if the file is sorted by something else than time, hold out random ones: data.split=random"

static bool holds_out_last(const by__task_examples *d)
{
    return d->valid == NULL && d->folder.class_count == 0 && !d->valid_part.random &&
           d->valid_part.rows == NULL;
}

const char *by__task_train_held_out_how(const by__task_examples *d)
{
    return d->valid_part.count == 0     ? NULL
           : d->valid != NULL           ? "those of the data to evaluate on"
           : d->valid_part.rows != NULL ? "those of data.valid_rows"
           : d->valid_part.random       ? "random ones (data.split: random)"
           : d->folder.class_count > 0  ? "by the names of their files"
                                        : "the last ones (data.split: last)";
}

by_status by__task_train_classes_check(const by__task_examples *d, by_error *error)
{
    const by_array *labels = by_array_set_find(d->train, "labels");
    const int32_t *all = labels == NULL || labels->dtype != BY_I32 ? NULL : labels->data;
    uint64_t count = labels == NULL ? 0 : (uint64_t)by_shape_count(&labels->shape);
    char number[24];
    for (uint64_t i = 0; all != NULL && i < count; i++) {
        if (all[i] != all[0]) {
            return BY_OK;
        }
    }
    if (all == NULL || count == 0) {
        return BY_OK;
    }
    (void)snprintf(number, sizeof number, "%d", (int)all[0]);
    bool named = all[0] >= 0 && (size_t)all[0] < d->label_count;
    return by_error_set(error, BY_ECONFIG,
                        "%s: all %llu examples are of one class, %.60s: to tell classes apart, a "
                        "model needs examples of two or more",
                        by_array_set_name(d->train), (unsigned long long)count,
                        named ? d->labels[all[0]] : number);
}

typedef struct moments {
    double sum;
    double squares;
    double count;
} moments;

/* `targets` has one every `stride` numbers. */
static moments measure(const float *targets, size_t stride, const by_part *part)
{
    moments m = {.count = (double)part->count};
    for (uint64_t i = 0; i < part->count; i++) {
        double y = (double)targets[by_part_example(part, i) * stride];
        m.sum += y;
        m.squares += y * y;
    }
    return m;
}

/* How far the means are apart, in standard deviations of the training part; 0 if chance explains
 * it. */
static double compare_numbers(const by__task_examples *d, const float *targets)
{
    moments all = measure(targets, d->target_count, &d->train_part);
    moments out = measure(targets, d->target_count, &d->valid_part);
    double mean = all.sum / all.count;
    double deviation = sqrt(fmax(all.squares / all.count - mean * mean, 0.0));
    double difference = out.sum / out.count - mean;
    double by_chance = 4.0 * deviation / sqrt(out.count);
    return deviation > 0.0 && fabs(difference) > by_chance ? difference / deviation : 0.0;
}

/* The sum of the differences of the classes' shares, 0 to 2; 0 if chance explains it. */
static by_status compare_classes(double *out, const by__task_examples *d, const int32_t *labels,
                                 by_error *error)
{
    const by_part *parts[2] = {&d->train_part, &d->valid_part};
    int64_t classes = by__task_examples_classes(d);
    double *shares;
    double difference = 0.0;
    *out = 0.0;
    if (classes > MOST_CLASSES) { /* a label that is none is refused when the sizes are set */
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&shares, (size_t)(2 * classes), sizeof *shares, "classes", error));
    for (int p = 0; p < 2; p++) {
        for (uint64_t i = 0; i < parts[p]->count; i++) {
            int32_t label = labels[by_part_example(parts[p], i)];
            if (label >= 0) {
                shares[2 * label + p] += 1.0;
            }
        }
    }
    for (int64_t c = 0; c < classes; c++) {
        difference += fabs(shares[2 * c] / (double)parts[0]->count -
                           shares[2 * c + 1] / (double)parts[1]->count);
    }
    free(shares);
    /* Of a class of a share p, n examples have p +- sqrt(p / n), which sums to sqrt(classes / n)
     * at most. */
    bool chance = difference < 2.0 * sqrt((double)classes / (double)parts[1]->count);
    *out = chance ? 0.0 : difference;
    return BY_OK;
}

/* Says of which target the held-out numbers differ most, and of how many they do. */
static void doubt_numbers(by_string *text, const by__task_examples *d, const float *targets)
{
    double most = 0.0;
    size_t which = 0;
    size_t count = 0;
    for (size_t i = 0; i < d->target_count; i++) {
        double difference = compare_numbers(d, targets + i);
        count += fabs(difference) > MEANS;
        which = fabs(difference) > fabs(most) ? i : which;
        most = fabs(difference) > fabs(most) ? difference : most;
    }
    if (count == 0) {
        return;
    }
    by_string_format(text,
                     "the held-out examples, the last ones, differ from the others: the mean of "
                     "'%.60s' is %.1f standard deviations %s",
                     d->target_names[which], fabs(most), most < 0.0 ? "lower" : "higher");
    if (count > 1) {
        by_string_format(text, ", and those of %zu more targets differ", count - 1);
    }
    by__string_append(text, "; " REMEDY);
}

by_status by__task_train_held_out_doubts(const by__task_examples *d, char **out, by_error *error)
{
    by_string text = {0};
    double difference = 0.0;
    const by_array *targets = by_array_set_find(d->train, "targets");
    const by_array *labels = by_array_set_find(d->train, "labels");
    bool compares = holds_out_last(d) && d->valid_part.count >= FEWEST;
    if (compares && targets != NULL) {
        doubt_numbers(&text, d, targets->data);
    } else if (compares && labels != NULL && labels->shape.rank == 1) {
        BY_TRY(compare_classes(&difference, d, labels->data, error));
        if (difference > SHARES) {
            by_string_format(&text,
                             "the held-out examples, the last ones, are of other classes than the "
                             "others: %.0f %% of them would have to change theirs; " REMEDY,
                             50.0 * difference);
        }
    }
    return by__string_release(&text, out, error);
}
