/* The functions of the server in a build without it. */
#include "banyan/drift_report.h"
#include "banyan/serve.h"
#include "banyan/serve_config.h"
#include "base/build.h"

static by_status fail(const char *what, by_error *error)
{
    return by__build_lacks(BY_BUILD_SERVER, what, error);
}

void by_serve_log_exposed(const char *path, const char *holds, by_serve_log *log, void *user)
{
    BY_UNUSED(path);
    BY_UNUSED(holds);
    BY_UNUSED(log);
    BY_UNUSED(user);
}

void by_serve_clean_environment(by_serve_process process, bool redis)
{
    BY_UNUSED(process);
    BY_UNUSED(redis);
}

char *by_serve_log_text(const char *line)
{
    BY_UNUSED(line);
    return NULL;
}

char *by_serve_log_event(const char *event, const char *name, const char *text)
{
    BY_UNUSED(event);
    BY_UNUSED(name);
    BY_UNUSED(text);
    return NULL;
}

by_status by_broker_run(const by_broker_options *options, by_error *error)
{
    BY_UNUSED(options);
    return fail("banyan broker", error);
}

by_status by_worker_run(const by_worker_options *options, by_error *error)
{
    BY_UNUSED(options);
    return fail("banyan worker", error);
}

by_status by_worker_check(const by_worker_options *options, by_error *error)
{
    BY_UNUSED(options);
    return fail("banyan worker", error);
}

by_status by_worker_settings(char **out, const by_worker_options *options, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(options);
    return fail("banyan worker", error);
}

bool by_serve_extract_password(char *address, char password[BY_SERVE_PASSWORD_BYTES])
{
    BY_UNUSED(address);
    BY_UNUSED(password);
    return false;
}

by_status by_gateway_check(const by_gateway_options *options, by_error *error)
{
    BY_UNUSED(options);
    return fail("banyan gateway", error);
}

by_status by_gateway_run(const by_gateway_options *options, by_error *error)
{
    BY_UNUSED(options);
    return fail("banyan gateway", error);
}

by_status by_serve_run(const by_serve_options *options, by_error *error)
{
    BY_UNUSED(options);
    return fail("banyan serve", error);
}

void by_deploy_defaults(by_deploy_options *out)
{
    *out = (by_deploy_options){0};
}

by_status by_deploy(const by_deploy_options *options, by_error *error)
{
    BY_UNUSED(options);
    return fail("banyan deploy", error);
}

by_status by_deploy_status_now(by_deploy_status *out, const char *control, const char *model,
                               by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(control);
    BY_UNUSED(model);
    return fail("banyan deploy", error);
}

by_status by_deploy_shared(const by_shared_deploy_options *options, by_error *error)
{
    BY_UNUSED(options);
    return fail("banyan deploy", error);
}

by_status by_deploy_shared_status(by_deploy_status *out, const char *broker, const char *model,
                                  by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(broker);
    BY_UNUSED(model);
    return fail("banyan deploy", error);
}

by_status by_load_run(by_load_report *out, const by_load_options *options, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(options);
    return fail("banyan bench serve", error);
}

void by_load_report_free(by_load_report *report)
{
    BY_UNUSED(report);
}

by_status by_serve_config_open(by_serve_config **out, const char *path,
                               const char *const *overrides, size_t count, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(path);
    BY_UNUSED(overrides);
    BY_UNUSED(count);
    return fail("a configuration of a server", error);
}

by_status by_serve_config_parse(by_serve_config **out, const char *name, const char *text,
                                size_t length, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(name);
    BY_UNUSED(text);
    BY_UNUSED(length);
    return fail("a configuration of a server", error);
}

by_status by_serve_config_set(by_serve_config *config, const char *key, const char *value,
                              const char *where, by_error *error)
{
    BY_UNUSED(config);
    BY_UNUSED(key);
    BY_UNUSED(value);
    BY_UNUSED(where);
    return fail("a configuration of a server", error);
}

void by_serve_config_close(by_serve_config **config)
{
    *config = NULL;
}

by_status by_serve_config_check(const by_serve_config *config, by_error *error)
{
    BY_UNUSED(config);
    return fail("a configuration of a server", error);
}

by_status by_serve_config_reference(char **out, by_error *error)
{
    BY_UNUSED(out);
    return fail("a configuration of a server", error);
}

by_status by_drift_report_open(by_drift_report **out, const by_pretrained *model, const char *data,
                               const char *field, const by_drift_options *options, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(model);
    BY_UNUSED(data);
    BY_UNUSED(field);
    BY_UNUSED(options);
    return fail("banyan drift", error);
}

by_status by_drift_report_check(const by_drift_report *report, by_error *error)
{
    BY_UNUSED(report);
    return fail("banyan drift", error);
}

void by_drift_report_close(by_drift_report **report)
{
    *report = NULL;
}

size_t by_drift_report_windows(const by_drift_report *report)
{
    BY_UNUSED(report);
    return 0;
}

size_t by_drift_report_alarms(const by_drift_report *report)
{
    BY_UNUSED(report);
    return 0;
}

double by_drift_report_threshold(const by_drift_report *report)
{
    BY_UNUSED(report);
    return 0;
}

size_t by_drift_report_features(const by_drift_report *report)
{
    BY_UNUSED(report);
    return 0;
}

const by_drift_verdict *by_drift_report_verdict(const by_drift_report *report, size_t window,
                                                size_t feature)
{
    BY_UNUSED(report);
    BY_UNUSED(window);
    BY_UNUSED(feature);
    return NULL;
}

by_status by_drift_report_json(const by_drift_report *report, char **out, by_error *error)
{
    BY_UNUSED(report);
    BY_UNUSED(out);
    return fail("banyan drift", error);
}

by_status by_drift_report_html(const by_drift_report *report, char **out, by_error *error)
{
    BY_UNUSED(report);
    BY_UNUSED(out);
    return fail("banyan drift", error);
}
