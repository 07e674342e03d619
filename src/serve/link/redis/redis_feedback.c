/* What clients say of answers, on its way between gateways that meet at Redis. */
#include "serve/link/redis/redis_link.h"

/* about: "label" if there is one. */
static void on_feedback(void *user, const char *about, const redisReply *reply)
{
    by__redis_link *l = user;
    if (!by__redis_bad(l, reply)) {
        by__redis_deliver(l, json_pack("{ss sb sb}", "t", "feedback_passed", "heard",
                                       (int)(by__redis_number(reply, 0) > 0.0), "label",
                                       (int)(about[0] != '\0')));
    }
}

void by__redis_feedback(by__redis_link *link, const json_t *message)
{
    by__redis_call call = {0};
    const char *tag = by__protocol_get_text(message, "to");
    by__redis_add_text(&call, "feedback");
    by__redis_add_text(&call, tag == NULL ? "" : tag);
    by__redis_add_json(&call, message);
    by__redis_execute(link->redis, &call, false, on_feedback, link,
                      json_object_get(message, "label") == NULL ? "" : "label");
}
