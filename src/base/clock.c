#include <time.h>

#include "base/base.h"

double by__now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void by__utc(char out[24], double seconds)
{
    time_t whole = (time_t)seconds;
    struct tm parts;
    if (gmtime_r(&whole, &parts) == NULL || strftime(out, 24, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
        out[0] = '\0';
    }
}

void by__utc_now(char out[24])
{
    by__utc(out, (double)time(NULL));
}
