#include <float.h>
#include <math.h>
#include <string.h>

#include "plot/plot.h"

enum { max_ticks = 64 };

double by__plot_ticks(double *ticks, size_t *count, double low, double high, int wanted,
                      double least)
{
    double rough = (high - low) / (wanted < 1 ? 1 : wanted);
    double power = pow(10.0, floor(log10(rough)));
    double fraction = rough / power;
    /* The nearest of 1, 2, 5 and 10 by ratio: the bounds are sqrt(2), sqrt(10) and sqrt(50). */
    double step = power * (fraction < 1.414 ? 1 : fraction < 3.162 ? 2 : fraction < 7.071 ? 5 : 10);
    step = fmax(step, least);
    double first = ceil(low / step - 1e-6);
    *count = 0;
    for (int i = 0; i < max_ticks; i++) {
        double value = (first + i) * step;
        if (value > high + 1e-6 * step) {
            break;
        }
        ticks[(*count)++] = value;
    }
    return step;
}

void by__plot_log_ticks(double *ticks, size_t *count, double low, double high)
{
    static const double factors[] = {1, 2, 5};
    /* The margin around the values may exceed the range of double, and the logarithm of 0 or
     * infinity does not fit into an int. */
    low = fmax(low, DBL_TRUE_MIN);
    high = fmin(high, DBL_MAX);
    int first = (int)floor(log10(low) + 1e-9);
    int last = (int)floor(log10(high) + 1e-9);
    int every = 1 + (last - first) / 10; /* decades between two ticks */
    size_t used = last - first <= 2 ? BY_ARRAY_LENGTH(factors) : 1;
    *count = 0;
    for (int decade = first; decade <= last; decade += every) {
        for (size_t i = 0; i < used && *count < max_ticks; i++) {
            double value = factors[i] * pow(10.0, decade);
            if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) {
                ticks[(*count)++] = value;
            }
        }
    }
}

void by__plot_tick_text(char out[32], double value, double step, double most)
{
    static const struct {
        double unit;
        const char *suffix;
    } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    double size = fabs(value);
    double divisor = 1;
    const char *suffix = "";
    if (size < 1e-9 * step) {
        (void)snprintf(out, 32, "0");
        return;
    }
    if (size >= 1e15 || size < 1e-4) {
        (void)snprintf(out, 32, "%g", value);
        return;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(units) && most >= 1e4; i++) {
        if (most >= units[i].unit) {
            divisor = units[i].unit;
            suffix = units[i].suffix;
            break;
        }
    }
    double digits = -floor(log10(step / divisor) + 1e-9);
    int decimals = digits <= 0 ? 0 : digits > 6 ? 6 : (int)digits;
    (void)snprintf(out, 32, "%.*f%s", decimals, value / divisor, suffix);
}
