/* Detects spikes of the loss by a robust z-score relative to previous losses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/probes/probes.h"
#include "trainer/state/guard.h"

static double median_of(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, by__compare_doubles);
    return count % 2 == 1 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

double by__trainer_robust_zscore(const double *losses, int64_t count, int64_t least, double loss)
{
    double sorted[BY_GUARD_WINDOW];
    if (count == 0 || count < least) {
        return 0.0;
    }
    memcpy(sorted, losses, (size_t)count * sizeof *sorted);
    double median = median_of(sorted, count);
    for (int64_t i = 0; i < count; i++) {
        sorted[i] = fabs(sorted[i] - median);
    }
    double sigma = fmax(1.4826 * median_of(sorted, count), 1e-4 * fabs(median));
    return loss == median ? 0.0 : (loss - median) / sigma;
}

by_status by__trainer_window_print(by_string *out, const by__trainer_guard *guard)
{
    for (int64_t i = 0; i < guard->count; i++) {
        uint64_t bits;
        memcpy(&bits, &guard->losses[i], sizeof bits);
        by_string_format(out, "%016llx", (unsigned long long)bits);
    }
    return out->failed ? BY_EMEMORY : BY_OK;
}

by_status by__trainer_window_parse(by__trainer_guard *guard, const char *text, by_error *error)
{
    size_t length = strlen(text);
    size_t count = length / 16;
    if (length % 16 != 0 || count > BY_GUARD_WINDOW || strspn(text, "0123456789abcdef") != length) {
        return by_error_set(error, BY_EFORMAT,
                            "the losses of a checkpoint are %zu characters, not 16 hexadecimal "
                            "digits for each of %d at most",
                            length, BY_GUARD_WINDOW);
    }
    for (size_t i = 0; i < count; i++) {
        char digits[17] = {0};
        memcpy(digits, text + 16 * i, 16);
        uint64_t bits = strtoull(digits, NULL, 16);
        memcpy(&guard->losses[i], &bits, sizeof bits);
        if (!isfinite(guard->losses[i])) {
            return by_error_set(error, BY_EFORMAT, "loss %zu of a checkpoint is not finite", i);
        }
    }
    guard->count = (int64_t)count;
    return BY_OK;
}
