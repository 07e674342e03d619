/* The 8-bit codes of ADAMW8: "dynamic" numbers (Dettmers et al. 2022, section 1.3; as in
 * bitsandbytes). The range below 1 is divided into seven decades; the i-th from below has `items` *
 * 2^i numbers, the midpoints of as many equal parts of it. 0 and 1 are added; signed codes (items
 * 1) also have the negatives of all but 1, unsigned ones (items 2) twice as many magnitudes. A
 * value is its block's largest magnitude times one of these numbers. */
#ifndef BY_DEVICE_CPU_DYNAMIC_CODES_H
#define BY_DEVICE_CPU_DYNAMIC_CODES_H

#include <stdbool.h>
#include <stdint.h>

#define BY__CODES   256
#define BY__DECADES 7

/* The codes of 0 and of 1: signed codes below BY__CODE_ZERO are negative. */
#define BY__CODE_ZERO 127

/* Magnitude k: k is 0 to 128 if signed, 0 to 255 if not. */
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

/* Fills the table of the codes' values, ascending. */
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
