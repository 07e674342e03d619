/* Requests to the port of the sink prometheus. */
#ifndef BY_TRACK_PROMETHEUS_H
#define BY_TRACK_PROMETHEUS_H

#include <stddef.h>

typedef enum by__scrape {
    BY__SCRAPE_PARTIAL, /* its end is still to come */
    BY__SCRAPE_METRICS,
    BY__SCRAPE_UNKNOWN, /* of another path */
    BY__SCRAPE_BAD
} by__scrape;

/* What the bytes of a request, received so far, ask for. */
by__scrape by__scrape_parse(const char *text, size_t length);

#endif
