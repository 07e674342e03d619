/* What a program was built with. Each optional library is a part that the build can leave out; what
 * needs it then fails with an error that names the part and how to get it. */
#ifndef BANYAN_BUILD_H
#define BANYAN_BUILD_H

#include <stdbool.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_build_part {
    BY_BUILD_MPI = 0,
    BY_BUILD_SERVER,
    BY_BUILD_REDIS,
    BY_BUILD_FEAST,
    BY_BUILD_SANDBOX,
    BY_BUILD_CURL,
    BY_BUILD_PLOTS,
    BY_BUILD_JPEG,
    BY_BUILD_PNG,
    BY_BUILD_WEBP,
    BY_BUILD_ZLIB,
    BY_BUILD_SNAPPY,
    BY_BUILD_ZSTD,
    BY_BUILD_NETTLE,
    BY_BUILD_PCRE2,
    BY_BUILD_ONEDNN,
    BY_BUILD_PARTS
} by_build_part;

/* Returns the name of a part, such as "redis", whose option of the build is BY_WITH_REDIS. */
BY_API const char *by_build_part_name(by_build_part part);
/* Returns what the part is for, such as "queues in Redis". */
BY_API const char *by_build_part_purpose(by_build_part part);
/* Returns true if the program has the part. */
BY_API bool by_build_has(by_build_part part);

#ifdef __cplusplus
}
#endif

#endif
