#include "evaluate/python_random.h"

#include <stdlib.h>

/* ---- MT19937 ---- */

#define WORDS 624u
#define LAG   397u

static void seed_word(by__evaluate_random *r, uint32_t seed)
{
    r->state[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        uint32_t last = r->state[i - 1];
        r->state[i] = 1812433253u * (last ^ last >> 30) + i;
    }
}

void by__evaluate_random_seed(by__evaluate_random *random, uint64_t seed)
{
    uint32_t *s = random->state;
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t count = key[1] != 0 ? 2 : 1; /* digits; 0 has one */
    uint32_t i = 1;
    uint32_t j = 0;
    seed_word(random, 19650218u);
    for (uint32_t k = 0; k < WORDS; k++) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1664525u) + key[j] + j;
        j = (j + 1) % count;
        if (++i == WORDS) {
            s[0] = s[WORDS - 1];
            i = 1;
        }
    }
    for (uint32_t k = 0; k < WORDS - 1; k++) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1566083941u) - i;
        if (++i == WORDS) {
            s[0] = s[WORDS - 1];
            i = 1;
        }
    }
    s[0] = 0x80000000u;
    random->at = WORDS;
}

static void twist(by__evaluate_random *r)
{
    uint32_t *s = r->state;
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % WORDS] & 0x7fffffffu);
        s[i] = s[(i + LAG) % WORDS] ^ y >> 1 ^ ((y & 1) != 0 ? 0x9908b0dfu : 0);
    }
    r->at = 0;
}

static uint32_t next_word(by__evaluate_random *r)
{
    if (r->at == WORDS) {
        twist(r);
    }
    uint32_t y = r->state[r->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* ---- what Python makes of it ---- */

/* Draws as many bits as n has until they are below it. */
uint32_t by__evaluate_random_below(by__evaluate_random *random, uint32_t n)
{
    uint32_t shift = 32;
    for (uint32_t left = n; left > 0; left >>= 1) {
        shift--;
    }
    uint32_t drawn = next_word(random) >> shift;
    while (drawn >= n) {
        drawn = next_word(random) >> shift;
    }
    return drawn;
}

void by__evaluate_random_shuffle(by__evaluate_random *random, uint32_t *items, uint32_t n)
{
    for (uint32_t i = n; i-- > 1;) {
        uint32_t j = by__evaluate_random_below(random, i + 1);
        uint32_t item = items[i];
        items[i] = items[j];
        items[j] = item;
    }
}

static bool was_drawn(const uint32_t *drawn, uint32_t count, uint32_t item)
{
    for (uint32_t i = 0; i < count; i++) {
        if (drawn[i] == item) {
            return true;
        }
    }
    return false;
}

/* Python lists the population where that takes less room than a set of what it has drawn: both ways
 * draw differently. */
static bool is_listed(uint32_t n, uint32_t k)
{
    uint64_t size = 21;
    if (k > 5) {
        uint64_t power = 1;
        while (power < (uint64_t)k * 3) {
            power *= 4;
        }
        size += power;
    }
    return n <= size;
}

by_status by__evaluate_random_sample(by__evaluate_random *random, uint32_t n, uint32_t *out,
                                     uint32_t k, by_error *error)
{
    uint32_t *pool;
    if (!is_listed(n, k)) {
        for (uint32_t i = 0; i < k; i++) {
            uint32_t item = by__evaluate_random_below(random, n);
            while (was_drawn(out, i, item)) {
                item = by__evaluate_random_below(random, n);
            }
            out[i] = item;
        }
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&pool, n, sizeof *pool, "examples", error));
    for (uint32_t i = 0; i < n; i++) {
        pool[i] = i;
    }
    for (uint32_t i = 0; i < k; i++) {
        uint32_t j = by__evaluate_random_below(random, n - i);
        out[i] = pool[j];
        pool[j] = pool[n - i - 1];
    }
    free(pool);
    return BY_OK;
}
