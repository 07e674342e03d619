/* The 8-bit codes of ADAMW8: "dynamic" numbers (Dettmers et al. 2022, section 1.3; as bitsandbytes
 * makes them). Seven decades below 1, of which the i-th from below has `items` 2^i numbers: the
 * middles of as many equal parts of it. Then 0 and 1; with a sign (items 1) the negatives of all
 * but 1, without one (items 2) twice as many. A value is its block's largest magnitude times one of
 * them. */
#ifndef BY_DEVICE_CPU_DYNAMIC_CODES_H
#define BY_DEVICE_CPU_DYNAMIC_CODES_H

#include <stdbool.h>
#include <stdint.h>

#define BY__CODES   256
#define BY__DECADES 7

/* The number of 0, and that of 1: with a sign codes below BY__CODE_ZERO are negative. */
#define BY__CODE_ZERO 127

/* Magnitude k, from 0 to 128 with a sign and 255 without. */
static inline double by__dynamic_magnitude(bool sign, int k)
{
    int items = sign ? 1 : 2;
    double top = 1e-6;
    int left = k - 1;
    if (k == 0) {
        return 0.0;
    }
    for (int i = 0; i < BY__DECADES; i++) {
        if (left < items) {
            return top * (0.1 + 0.9 * (2.0 * left + 1.0) / (2.0 * items));
        }
        left -= items;
        items *= 2;
        top *= 10.0;
    }
    return 1.0;
}

/* What each code stands for, ascending. */
static inline void by__dynamic_values(float values[BY__CODES], bool sign)
{
    int zero = sign ? BY__CODE_ZERO : 0;
    for (int c = 0; c < BY__CODES; c++) {
        int k = c < zero ? zero - c : c - zero;
        double magnitude = by__dynamic_magnitude(sign, k);
        values[c] = (float)(c < zero ? -magnitude : magnitude);
    }
}

#endif
