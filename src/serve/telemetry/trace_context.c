#include "serve/telemetry/trace_context.h"

#include <string.h>

/* Copies `count` lower-case hexadecimal digits. Returns false if there are other characters. */
static bool read_digits(char *out, const char *from, size_t count)
{
    if (strspn(from, "0123456789abcdef") < count) {
        return false;
    }
    memcpy(out, from, count);
    out[count] = '\0';
    return true;
}

/* The same for a field that must not be all zeros, which the standard reserves for "none". */
static bool read_id(char *out, const char *from, size_t count)
{
    return read_digits(out, from, count) && strspn(out, "0") < count;
}

bool by__telemetry_trace_read(by__telemetry_trace_context *out, const char *header)
{
    by__telemetry_trace_context read = *out;
    char flags[3];
    if (strlen(header) != BY__TRACEPARENT_BYTES - 1 || memcmp(header, "00-", 3) != 0 ||
        header[35] != '-' || header[52] != '-' || !read_id(read.trace, header + 3, 32) ||
        !read_id(read.parent, header + 36, 16) || !read_digits(flags, header + 53, 2)) {
        return false;
    }
    /* The lowest bit. */
    read.sampled = strchr("13579bdf", flags[1]) != NULL;
    *out = read;
    return true;
}

/* Generates random digits, at least one of which is not zero. */
static by_status make_id(char *out, size_t count, by_error *error)
{
    unsigned char random[16];
    do {
        BY_TRY(by__serve_random_bytes(random, count / 2, error));
        for (size_t i = 0; i < count; i++) {
            out[i] = "0123456789abcdef"[random[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
        }
        out[count] = '\0';
    } while (strspn(out, "0") == count);
    return BY_OK;
}

/* A new trace is sampled by its last 56 bits, which are random: a number from 0 to 1. */
static bool draw(const char *trace, double fraction)
{
    uint64_t value = 0;
    for (size_t i = 18; i < 32; i++) {
        value = value << 4 | (uint64_t)(trace[i] <= '9' ? trace[i] - '0' : trace[i] - 'a' + 10);
    }
    return fraction >= 1.0 || (double)value * 0x1p-56 < fraction;
}

by_status by__telemetry_span_id(char out[BY__SPAN_ID_BYTES], by_error *error)
{
    return make_id(out, BY__SPAN_ID_BYTES - 1, error);
}

by_status by__telemetry_trace_begin(by__telemetry_trace_context *out, const char *header,
                                    double fraction, by_error *error)
{
    *out = (by__telemetry_trace_context){0};
    if (header == NULL || !by__telemetry_trace_read(out, header)) {
        BY_TRY(make_id(out->trace, BY__TRACE_ID_BYTES - 1, error));
        out->sampled = draw(out->trace, fraction);
    }
    return by__telemetry_span_id(out->span, error);
}

void by__telemetry_trace_print(char out[BY__TRACEPARENT_BYTES],
                               const by__telemetry_trace_context *context)
{
    (void)snprintf(out, BY__TRACEPARENT_BYTES, "00-%s-%s-%s", context->trace, context->span,
                   context->sampled ? "01" : "00");
}

void by__telemetry_trace_copy(char out[BY__TRACE_ID_BYTES], const char *text)
{
    const size_t digits = BY__TRACE_ID_BYTES - 1;
    bool good =
        text != NULL && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
    memcpy(out, good ? text : "", good ? digits + 1 : 1);
}
