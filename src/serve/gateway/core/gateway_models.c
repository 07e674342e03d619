/* The models that the broker says are served, and their metrics. */
#include <string.h>

#include "serve/gateway/core/gateway.h"
#include "serve/http/query.h"
#include "serve/protocol/messages.h"

/* Seconds without a state of the broker after which its last one is ignored. */
#define SILENCE 5.0

const json_t *by__gateway_state(const by__gateway *g)
{
    return g->broker.ready && by__now() - g->state_at <= SILENCE ? g->state : NULL;
}

const json_t *by__gateway_model(const by__gateway *g, const char *name)
{
    return by__gateway_model_state(g->state, name);
}

const json_t *by__gateway_model_state(const json_t *state, const char *name)
{
    size_t i;
    json_t *m;
    json_array_foreach(json_object_get(state, "models"), i, m)
    {
        const char *id = by__protocol_get_text(m, "id");
        if (id != NULL && strcmp(id, name) == 0 && json_is_object(json_object_get(m, "info"))) {
            return m;
        }
    }
    return NULL;
}

by__telemetry_model_metrics *by__gateway_counts(by__gateway *g, const char *name)
{
    return by__gateway_model(g, name) == NULL ? NULL
                                              : by__telemetry_model_metrics_of(&g->models, name);
}

json_t *by__gateway_query_model(const char *query)
{
    char name[BY__MAX_NAME + 1];
    long length = by__http_query_value(name, sizeof name, query, "model");
    return length > 0 ? json_stringn(name, (size_t)length) : NULL;
}
