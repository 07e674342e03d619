/* What clients say of answers, kept on disk before they hear so: POST /v1/feedback. */
#ifndef BY_SERVE_FEEDBACK_H
#define BY_SERVE_FEEDBACK_H

#include "serve/gateway/gateway_routes.h"

typedef struct by__feedback by__feedback;

/* Records are lines of DIRECTORY/feedback-000001.jsonl and so on; "": *out is NULL, and none are
 * taken. BY_EIO: the directory cannot be had. */
by_status by__feedback_open(by__feedback **out, by__gateway *gateway, const char *directory,
                            by_error *error);
/* Writes what waits. */
void by__feedback_close(by__feedback **feedback);
/* Counts, and the mean rating of the last hundred. feedback may be NULL. */
void by__feedback_print(const by__feedback *feedback, by__text *out);

/* {"id", "rating" and/or "label", "model", "comment"}; 200 once the record is on disk. */
by__route_answer by__answer_feedback;

#endif
