/* Writes a planned step for viewers of traces. */
#include "base/base.h"
#include "plan/layout/layout.h"

static void name_span(char text[96], const by_layout_span *s)
{
    static const char *const passes[] = {[BY_PIPELINE_FORWARD] = "forward",
                                         [BY_PIPELINE_BACKWARD] = "backward",
                                         [BY_PIPELINE_WEIGHT] = "weights"};
    if (s->pass >= 0 && s->pass < (int)BY_ARRAY_LENGTH(passes)) {
        (void)snprintf(text, 96, "%s %lld", passes[s->pass], (long long)s->micro_batch);
    } else if (s->block >= 0) {
        (void)snprintf(text, 96, "%s, block %d%s", by_layout_part_name(s->part), s->block,
                       s->backward ? " backward" : "");
    } else {
        (void)snprintf(text, 96, "%s", by_layout_part_name(s->part));
    }
}

static void print_names(by_string *out, const by_layout_plan *plan)
{
    for (size_t i = 0; i < plan->planned_count; i++) {
        const by_layout_rank *r = &plan->planned[i];
        by_string_format(out,
                         "%s\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":"
                         "{\"name\":\"rank %d%s%s\"}},\n"
                         "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"thread_name\",\"args\":"
                         "{\"name\":\"computation\"}},\n"
                         "{\"ph\":\"M\",\"pid\":%d,\"tid\":1,\"name\":\"thread_name\",\"args\":"
                         "{\"name\":\"communication\"}}",
                         i == 0 ? "" : ",", r->rank, r->rank, r->place[0] == '\0' ? "" : " ",
                         r->place, r->rank, r->rank);
    }
}

by_status by_layout_write_trace(const by_layout_plan *plan, const char *path, by_error *error)
{
    by_string text = {0};
    char name[96];
    by_string_format(&text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    print_names(&text, plan);
    for (size_t i = 0; i < plan->span_count; i++) {
        const by_layout_span *s = &plan->spans[i];
        name_span(name, s);
        by_string_format(&text,
                         ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"cat\":\"%s\","
                         "\"ts\":%.3f,\"dur\":%.3f}",
                         s->rank, s->exchange ? 1 : 0, name, by_layout_part_name(s->part),
                         1e6 * s->begin, 1e6 * (s->end - s->begin));
    }
    by_string_format(&text, "]}\n");
    by_status status = by_string_check(&text, error);
    if (status == BY_OK) {
        status = by__file_write(path, text.data, text.length, error);
    }
    by_string_free(&text);
    return status;
}
