/* MurmurHash3_x86_32 (Austin Appleby, public domain, https://github.com/aappleby/smhasher), for
 * hashing names as other programs store them. It does not withstand adversarial input. */
#ifndef BY_SERVE_FEATURES_MURMUR3_H
#define BY_SERVE_FEATURES_MURMUR3_H

#include <stddef.h>
#include <stdint.h>

/* Blocks are read as little-endian numbers on every machine. */
uint32_t by__feature_murmur3_32(const void *data, size_t length, uint32_t seed);

#endif
