#include "serve/protocol/deploy_options.h"

#include "serve/protocol/messages.h"

void by_deploy_defaults(by_deploy_options *out)
{
    *out = (by_deploy_options){.hold = 30.0, .errors = 0.02, .slower = 1.5};
}

by_status by__protocol_deploy_check(const by_deploy_options *options, by_error *error)
{
    const by_deploy_options *o = options;
    /* Comparisons that NaN fails. */
    if (!(o->canary >= 0.0 && o->canary < 1.0)) {
        return by_error_set(error, BY_EARG,
                            "canary %g: give a share of requests, at least 0 and below 1",
                            o->canary);
    }
    if (!(o->hold >= 0.0 && o->hold <= 1e9)) {
        return by_error_set(error, BY_EARG, "hold %g: give seconds, at least 0", o->hold);
    }
    if (!(o->errors >= 0.0 && o->errors <= 1.0)) {
        return by_error_set(error, BY_EARG, "errors %g: give a share of requests, 0 to 1",
                            o->errors);
    }
    if (!(o->slower >= 1.0 && o->slower <= 1e9)) {
        return by_error_set(error, BY_EARG,
                            "slower %g: give how many times as slow it may be, at least 1",
                            o->slower);
    }
    return BY_OK;
}

json_t *by__protocol_deploy_message(const by_deploy_options *options)
{
    const by_deploy_options *o = options;
    return o->rollback ? json_pack("{ss ss*}", "t", "rollback", "model", o->model)
                       : json_pack("{ss ss* ss? ss? sf sf sf sf sb sb}", "t", "deploy", "model",
                                   o->model, "path", o->path, "adapter", o->adapter, "canary",
                                   o->canary, "hold", o->hold, "errors", o->errors, "slower",
                                   o->slower, "shadow", (int)o->shadow, "force", (int)o->force);
}

by_status by__protocol_deploy_read(by_deploy_options *out, const json_t *message, by_error *error)
{
    by_deploy_options o;
    by_deploy_defaults(&o);
    o.path = by__protocol_get_text(message, "path");
    o.adapter = by__protocol_get_text(message, "adapter");
    o.canary = by__protocol_get_number(message, "canary", o.canary);
    o.hold = by__protocol_get_number(message, "hold", o.hold);
    o.errors = by__protocol_get_number(message, "errors", o.errors);
    o.slower = by__protocol_get_number(message, "slower", o.slower);
    o.shadow = json_is_true(json_object_get(message, "shadow"));
    o.force = json_is_true(json_object_get(message, "force"));
    BY_TRY(by__protocol_deploy_check(&o, error));
    *out = o;
    return BY_OK;
}
