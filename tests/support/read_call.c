#include "read_call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

by__gateway_call *read_call(const by__gateway_call_form *form, const char *body, const char **param,
                            by_error *error)
{
    static by__gateway gateway;
    by__gateway_call *call = NULL;
    const by__http_request request = {.method = "POST",
                                      .path = form->route,
                                      .query = "",
                                      .headers = {{"content-type", "application/json"}},
                                      .header_count = 1,
                                      .body = body,
                                      .body_length = strlen(body)};
    *error = (by_error){0};
    *param = NULL;
    assert_int_equal(by__gateway_call_open(&call, &gateway, form, "key", error), BY_OK);
    (void)form->read(call, &request, param, error);
    return call;
}

void stream_text(by__gateway_call *call, const char *text, by_string *out)
{
    by_string_free(&call->choices[0].text);
    call->form->first(call, 0, out);
    for (size_t at = 0; at < strlen(text); at += 2) {
        size_t n = strlen(text + at) < 2 ? 1 : 2;
        by_string_add(&call->choices[0].text, text + at, n);
        call->form->text(call, 0, text + at, n, NULL, out);
    }
}
