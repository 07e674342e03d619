/* What feedback says about recent answers: labels compared with predictions, and ratings, by model
 * and version. A gateway remembers the predictions of its own answers only, up to a bound; the
 * oldest answers are forgotten first. Feedback that other gateways were given is passed to it. */
#ifndef BY_SERVE_GATEWAY_CORE_QUALITY_H
#define BY_SERVE_GATEWAY_CORE_QUALITY_H

#include "serve/gateway/core/gateway.h"

/* Number of ratings of which /metrics has the mean. */
#define BY__RECENT_RATINGS 100

/* The last ratings, in a ring. */
typedef struct by__gateway_ratings {
    double values[BY__RECENT_RATINGS];
    uint64_t count; /* of all ratings so far */
} by__gateway_ratings;

void by__gateway_ratings_add(by__gateway_ratings *ratings, double rating);
/* The mean of the last ones; NaN if there are none. */
double by__gateway_ratings_mean(const by__gateway_ratings *ratings);

/* What a client says of an answer. */
typedef struct by__gateway_opinion {
    const char *id;
    const char *key;      /* name of the client's key; "": none */
    int64_t index;        /* of the prediction that the label is for; -1: the only one */
    const json_t *label;  /* a text or a number; NULL: none */
    const json_t *rating; /* a number; NULL: none */
} by__gateway_opinion;

/* Why a label is compared with nothing. */
typedef enum by__gateway_unmatched {
    BY__UNKNOWN_ID,
    BY__NO_PREDICTION,
    BY__OTHER_TYPE,
    BY__REPEATED,
    BY__OTHER_KEY, /* a client of another key has the answer */
    BY__NO_BROKER, /* another gateway may know its answer, and could not be asked */
    BY__UNMATCHED
} by__gateway_unmatched;

typedef struct by__gateway_quality by__gateway_quality;

by_status by__gateway_quality_open(by__gateway_quality **out, by_error *error);
void by__gateway_quality_close(by__gateway_quality **quality);
/* Remembers the predictions of an answer, of which there are none but for /v1/predict. An answer
 * that memory is exhausted for is not remembered. */
void by__gateway_quality_answer(by__gateway_quality *quality, const by__gateway_request *request);
/* Returns true if the answer is remembered, and another key's. */
bool by__gateway_quality_is_foreign(const by__gateway_quality *quality,
                                    const by__gateway_opinion *opinion);
/* Counts a rating, and compares a label with its prediction: a class is correct if it has the text
 * of the label; a number has an error. The first label of a prediction counts. Nothing counts that
 * is said of another key's answer. */
void by__gateway_quality_add(by__gateway_quality *quality, const by__gateway_opinion *opinion);
/* Counts labels that are compared with nothing. */
void by__gateway_quality_unmatched(by__gateway_quality *quality, by__gateway_unmatched reason,
                                   uint64_t labels);
/* Prints the counters. */
void by__gateway_quality_print(const by__gateway_quality *quality, by_string *out);

#endif
