/* Resident memory of this process, now and at its peak. */
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "trainer/state/train.h"

/* Reads a "Key: 123 kB" line of /proc/self/status as bytes. */
static uint64_t status_bytes(const char *key)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (file == NULL) {
        return 0;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            (void)sscanf(line + strlen(key), ": %llu", &kib);
            break;
        }
    }
    (void)fclose(file);
    return (uint64_t)kib * 1024u;
}

uint64_t by__trainer_resident_bytes(void)
{
    return status_bytes("VmRSS");
}

uint64_t by__trainer_settled_bytes(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
    return by__trainer_resident_bytes();
}

uint64_t by_peak_resident_bytes(void)
{
    return status_bytes("VmHWM");
}
