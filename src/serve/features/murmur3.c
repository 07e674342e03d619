#include "serve/features/murmur3.h"

static uint32_t rotate(uint32_t x, unsigned bits)
{
    return x << bits | x >> (32 - bits);
}

static uint32_t scramble(uint32_t k)
{
    return rotate(k * 0xcc9e2d51u, 15) * 0x1b873593u;
}

uint32_t by__feature_murmur3_32(const void *data, size_t length, uint32_t seed)
{
    const uint8_t *at = data;
    uint32_t hash = seed;
    uint32_t tail = 0;
    for (size_t left = length / 4; left > 0; left--, at += 4) {
        uint32_t block =
            (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        hash = rotate(hash ^ scramble(block), 13) * 5 + 0xe6546b64u;
    }
    for (size_t i = length % 4; i > 0; i--) {
        tail = tail << 8 | at[i - 1];
    }
    hash ^= scramble(tail);
    hash ^= (uint32_t)length;
    hash = (hash ^ hash >> 16) * 0x85ebca6bu;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
    return hash ^ hash >> 16;
}
