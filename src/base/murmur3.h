/* MurmurHash3_x86_32 (Austin Appleby, public domain, https://github.com/aappleby/smhasher): a hash
 * for names of fields that other programs store. It is no protection against chosen input. */
#ifndef BY_BASE_MURMUR3_H
#define BY_BASE_MURMUR3_H

#include <stddef.h>
#include <stdint.h>

/* Multi-byte blocks are read as little-endian numbers, whatever the machine's order is. */
uint32_t by__murmur3_32(const void *data, size_t length, uint32_t seed);

#endif
