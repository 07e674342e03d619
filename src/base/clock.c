#include <time.h>

#include "base/base.h"

double by__now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void by__utc_now(char out[24])
{
    time_t now = time(NULL);
    struct tm parts;
    (void)gmtime_r(&now, &parts);
    (void)strftime(out, 24, "%Y-%m-%dT%H:%M:%SZ", &parts);
}
