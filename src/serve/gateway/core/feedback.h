/* POST /v1/feedback: clients' feedback on answers, confirmed only once it is on disk. */
#ifndef BY_SERVE_GATEWAY_CORE_FEEDBACK_H
#define BY_SERVE_GATEWAY_CORE_FEEDBACK_H

#include "serve/gateway/core/gateway_reply.h"

typedef struct by__gateway_feedback by__gateway_feedback;

/* Opens the log of feedback: lines of DIRECTORY/feedback-000001.jsonl and so on. Without a
 * directory *out is NULL, and feedback is refused. BY_EIO: the directory cannot be opened. */
by_status by__gateway_feedback_open(by__gateway_feedback **out, by__gateway *gateway,
                                    const by_serve_feedback_config *config, by_error *error);
/* Flushes pending records. */
void by__gateway_feedback_close(by__gateway_feedback **feedback);
/* Remembers an answer that feedback may be about. feedback may be NULL. */
void by__gateway_feedback_answer(by__gateway_feedback *feedback,
                                 const by__gateway_request *request);
/* Handles feedback on an answer of this gateway that another one was given. feedback may be NULL,
 * as for the next two. */
void by__gateway_feedback_receive(by__gateway_feedback *feedback, const json_t *message);
/* Handles the broker's answer about feedback that was passed to another gateway. */
void by__gateway_feedback_passed(by__gateway_feedback *feedback, const json_t *message);
/* The link to the broker is lost: what was passed may not have arrived. */
void by__gateway_feedback_lost(by__gateway_feedback *feedback);
/* Prints the counters, and the mean of the last hundred ratings. feedback may be NULL. */
void by__gateway_feedback_print(const by__gateway_feedback *feedback, by_string *out);

/* {"id", "rating" and/or "label", "index", "model", "comment"}; 200 once the record is on disk. */
by__gateway_route_answer by__gateway_answer_feedback;

#endif
