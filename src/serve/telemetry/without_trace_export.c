#include "base/build.h"
#include "serve/telemetry/trace_export.h"

by_status by__telemetry_trace_export_open(by__telemetry_trace_export **out, const char *url,
                                          const char *service, size_t queue, by_error *error)
{
    BY_UNUSED(service);
    BY_UNUSED(queue);
    *out = NULL;
    return url[0] == '\0' ? BY_OK : by__build_lacks(BY_BUILD_CURL, "tracing.endpoint", error);
}

void by__telemetry_trace_export_close(by__telemetry_trace_export **traces,
                                      const by__telemetry_log *log)
{
    BY_UNUSED(log);
    *traces = NULL;
}

void by__telemetry_trace_export_log(by__telemetry_trace_export *traces,
                                    const by__telemetry_log *log)
{
    BY_UNUSED(traces);
    BY_UNUSED(log);
}

void by__telemetry_trace_export_add(by__telemetry_trace_export *traces,
                                    const by__telemetry_span *span)
{
    BY_UNUSED(traces);
    BY_UNUSED(span);
}

void by__telemetry_trace_export_print(by__telemetry_trace_export *traces, by_string *out)
{
    BY_UNUSED(traces);
    BY_UNUSED(out);
}
