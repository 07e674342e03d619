/* Numbers as people read them. */
#ifndef BANYAN_TEXT_H
#define BANYAN_TEXT_H

#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "1.5 GiB", "312.0 KiB", "17 B" into buffer, which is returned. */
BY_API const char *by_format_bytes(char buffer[32], uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
