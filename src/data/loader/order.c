#include "data/loader/order.h"

#include "base/base.h"

/* Separate Philox keys, under the same seed, for each purpose of randomness here. */
#define STREAM_ORDER  0x6f72646572u /* "order" in ASCII */
#define STREAM_PHASE  0x7068617365u /* "phase" */
#define STREAM_PART   0x70617274u   /* "part" */
#define STREAM_WINDOW 0x77696e64u   /* "wind" */

static uint64_t draw(uint64_t seed, uint64_t stream, uint64_t epoch, uint32_t index)
{
    uint32_t key[2];
    uint32_t bits[4];
    const uint32_t counter[4] = {(uint32_t)epoch, (uint32_t)(epoch >> 32), index, 0};
    by__philox_key(key, seed, stream);
    by__philox(bits, key, counter);
    return (uint64_t)bits[1] << 32 | bits[0];
}

void by__loader_order_init(by__loader_order *order, uint64_t count, uint64_t seed, uint64_t epoch)
{
    order->count = count;
    order->half_bits = 8;
    while (order->half_bits < 32 && (count - 1) >> (2 * order->half_bits) != 0) {
        order->half_bits++;
    }
    order->mask = ((uint64_t)1 << order->half_bits) - 1;
    for (uint32_t round = 0; round < BY__ORDER_ROUNDS; round++) {
        order->keys[round] = draw(seed, STREAM_ORDER, epoch, round);
    }
}

/* The round function: two multiplications by odd constants (those of SplitMix64) around shifts, so
 * that every bit of half and key affects the bits that are kept. */
static uint64_t mix(uint64_t half, uint64_t key)
{
    uint64_t z = half + key;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t by__loader_order_at(const by__loader_order *order, uint64_t index)
{
    if (order->count == 1) {
        return 0;
    }
    uint64_t x = index;
    do {
        uint64_t left = x >> order->half_bits;
        uint64_t right = x & order->mask;
        for (unsigned round = 0; round < BY__ORDER_ROUNDS; round++) {
            uint64_t next = left ^ (mix(right, order->keys[round]) & order->mask);
            left = right;
            right = next;
        }
        x = left << order->half_bits | right;
    } while (x >= order->count);
    return x;
}

void by__loader_windows_init(by__loader_windows *order, uint64_t count, uint64_t block,
                             uint64_t window, uint64_t seed, uint64_t epoch)
{
    uint64_t blocks = count / block;
    *order = (by__loader_windows){
        .count = count, .block = block, .window = window, .seed = seed, .epoch = epoch};
    by__loader_order_init(&order->blocks, blocks > 0 ? blocks : 1, seed, epoch);
}

/* Sets the order within a window. */
static void set_window(by__loader_windows *o, uint64_t at, uint64_t begin, uint64_t end)
{
    o->at = at;
    o->size = end - begin;
    by__loader_order_init(&o->inside, o->size, draw(o->seed, STREAM_WINDOW, o->epoch, 0) + at,
                          o->epoch);
}

uint64_t by__loader_windows_at(by__loader_windows *o, uint64_t index)
{
    uint64_t blocks = o->count / o->block;
    uint64_t windows = blocks / o->window + (blocks % o->window != 0);
    if (blocks == 0) {
        windows = 1;
    }
    uint64_t samples = o->block * o->window;
    uint64_t at = index / samples < windows ? index / samples : windows - 1;
    uint64_t begin = at * samples;
    if (o->size == 0 || o->at != at) {
        set_window(o, at, begin, at + 1 == windows ? o->count : begin + samples);
    }
    uint64_t place = begin + by__loader_order_at(&o->inside, index - begin);
    uint64_t block = place / o->block;
    return block < blocks ? by__loader_order_at(&o->blocks, block) * o->block + place % o->block
                          : place;
}

uint64_t by__loader_order_phase(uint64_t limit, uint64_t seed, uint64_t epoch)
{
    /* The upper half of a 128-bit product: its bias is below limit / 2^64. */
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)draw(seed, STREAM_PHASE, epoch, 0) * limit >> 64);
}

uint64_t by__loader_order_seed(uint64_t seed, uint64_t part)
{
    return draw(seed, STREAM_PART, part, 0);
}
