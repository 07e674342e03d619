#include "read_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

by__gateway_request *read_request(const by__gateway_request_form *form, const char *body,
                                  const char **param, by_error *error)
{
    static by__gateway gateway;
    by__gateway_request *request = NULL;
    const by__http_request http = {.method = "POST",
                                   .path = form->route,
                                   .query = "",
                                   .headers = {{"content-type", "application/json"}},
                                   .header_count = 1,
                                   .body = body,
                                   .body_length = strlen(body)};
    *error = (by_error){0};
    *param = NULL;
    assert_int_equal(by__gateway_request_open(&request, &gateway, form, "key", error), BY_OK);
    (void)form->read(request, &http, param, error);
    return request;
}

void stream_text(by__gateway_request *request, const char *text, by_string *out)
{
    by_string_free(&request->choices[0].text);
    request->form->first(request, 0, out);
    for (size_t at = 0; at < strlen(text); at += 2) {
        size_t n = strlen(text + at) < 2 ? 1 : 2;
        by_string_add(&request->choices[0].text, text + at, n);
        request->form->text(request, 0, text + at, n, NULL, out);
    }
}
