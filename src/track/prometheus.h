/* Parses requests to the port of the prometheus sink. */
#ifndef BY_TRACK_PROMETHEUS_H
#define BY_TRACK_PROMETHEUS_H

#include <stddef.h>

typedef enum by__track_scrape {
    BY__SCRAPE_PARTIAL, /* incomplete so far */
    BY__SCRAPE_METRICS,
    BY__SCRAPE_UNKNOWN, /* for another path */
    BY__SCRAPE_BAD
} by__track_scrape;

/* Classifies a request from the bytes received so far. */
by__track_scrape by__track_scrape_parse(const char *text, size_t length);

#endif
