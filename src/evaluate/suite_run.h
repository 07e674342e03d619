/* An item while the engine works on it. */
#ifndef BY_EVALUATE_SUITE_RUN_H
#define BY_EVALUATE_SUITE_RUN_H

#include "banyan/text_stream.h"
#include "evaluate/evaluate.h"

typedef struct by__evaluate_open {
    bool used;
    by__evaluate_item item;
    size_t number;    /* among those of all tasks */
    size_t submitted; /* of its sequences */
    size_t ended;
    double *sums;           /* [item.count]: log-probabilities */
    bool *greedy;           /* [item.count]: every token was the likeliest one */
    by_text_stream *stream; /* of a generated text */
    by_string text;         /* what it is so far */
    size_t generated;       /* tokens of it */
} by__evaluate_open;

/* What the model made of an item that has ended: its score and, if line is not NULL, the JSON
 * object for by_suite_run_options.item, freed with free(). */
by_status by__evaluate_score_item(by__evaluate_score *out, char **line,
                                  const by__evaluate_task *task, size_t index,
                                  const by__evaluate_open *open, by_error *error);

#endif
