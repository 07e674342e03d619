#include "serve/rollout/model_state.h"

#include <string.h>

#include "serve/protocol/messages.h"

/* The object in a list whose `key` has this string value. */
static const json_t *find(const json_t *list, const char *key, const char *text)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        const char *own = by__protocol_get_text(item, key);
        if (own != NULL && strcmp(own, text) == 0) {
            return item;
        }
    }
    return NULL;
}

const json_t *by__rollout_state_model(const json_t *state, const char *name)
{
    return find(json_object_get(state, "models"), "id", name);
}

const json_t *by__rollout_state_version(const json_t *model, const char *version)
{
    return find(json_object_get(model, "versions"), "version", version);
}

void by__rollout_state_load(by__rollout_version_load *out, const json_t *model, const char *version)
{
    const json_t *v = by__rollout_state_version(model, version);
    const json_t *copies = json_object_get(v, "mirrored");
    *out = (by__rollout_version_load){
        .requests = (uint64_t)by__protocol_get_integer(v, "requests"),
        .errors = (uint64_t)by__protocol_get_integer(v, "errors"),
        .same = (uint64_t)by__protocol_get_integer(copies, "same"),
        .different = (uint64_t)by__protocol_get_integer(copies, "different"),
        .failed = (uint64_t)by__protocol_get_integer(copies, "failed")};
    by__telemetry_histogram_read(&out->first, json_object_get(v, "first"));
}

const json_t *by__rollout_state_info(const json_t *model, const char *version, bool or_model)
{
    const json_t *own = json_object_get(by__rollout_state_version(model, version), "info");
    const json_t *info = own == NULL && or_model ? json_object_get(model, "info") : own;
    return json_is_object(info) ? info : NULL;
}

const char *by__rollout_state_serving(const json_t *model, const char *except)
{
    const char *best = NULL;
    double most = 0.0;
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(model, "versions"), i, v)
    {
        const char *name = by__protocol_get_text(v, "version");
        double weight = 1e6 * by__protocol_get_number(v, "share", 0.0) +
                        by__protocol_get_number(v, "workers", 0.0);
        if (name != NULL && strcmp(name, except) != 0 && by__serve_id_valid(name) &&
            weight > most) {
            best = name;
            most = weight;
        }
    }
    return best;
}

const char *by__rollout_state_deployment(const json_t *model, const char *key)
{
    const char *text = by__protocol_get_text(json_object_get(model, "deployment"), key);
    return text == NULL ? "" : text;
}

void by__rollout_route_add(json_t *versions, const char *version, double share, bool shadow)
{
    (void)json_array_append_new(versions, json_pack("{ss sf sb}", "version", version, "share",
                                                    share, "shadow", (int)shadow));
}
