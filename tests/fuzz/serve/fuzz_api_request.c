/* Bodies of requests to the API. The first line is the route, and behind a blank the Content-Type
 * where it is not JSON; the rest is the body. A body is refused with a sentence, or becomes
 * messages to workers that are no longer than a link takes. */
#include <stdlib.h>
#include <string.h>

#include "serve/gateway/gateway_routes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_read(by__gateway_request *request, size_t length)
{
    by_error error;
    if (request->part_count == 0 || request->part_count > BY__MAX_PARTS || request->n == 0 ||
        request->n > BY__MAX_N || request->model == NULL) {
        abort();
    }
    for (size_t i = 0; i < request->part_count; i++) {
        if (!json_is_object(request->parts[i].message)) {
            abort();
        }
    }
    (void)by__gateway_request_encode(request, length, &error);
}

static void read_body(const by__gateway_request_form *form, const by__http_request *http)
{
    by__gateway gateway = {.options = {.listen = NULL}};
    by_error error = {0};
    by__gateway_request *request;
    const char *param = NULL;
    if (by__gateway_request_open(&request, &gateway, form, "", &error) != BY_OK) {
        return;
    }
    by_status status = form->read(request, http, &param, &error);
    if (status == BY_OK) {
        check_read(request, http->body_length);
    } else if (error.message[0] == '\0') {
        abort();
    }
    by__gateway_request_free(request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;
    if (line == NULL) {
        return 0;
    }
    char *route = strndup((const char *)data, (size_t)(line - data));
    size_t length = (size_t)(data + size - line) - 1;
    char *body = malloc(length + 1);
    if (route != NULL && body != NULL) {
        char *type = strchr(route, ' ');
        by__http_request request = {.method = "POST",
                                    .path = route,
                                    .query = "model=m",
                                    .header_count = 1,
                                    .body = body,
                                    .body_length = length,
                                    .headers = {{"content-type", "application/json"}}};
        memcpy(body, line + 1, length);
        body[length] = '\0';
        if (type != NULL) {
            *type = '\0';
            request.headers[0].value = type + 1;
        }
        const by__gateway_request_form *form =
            by__gateway_form_of_route(&(by__gateway){.forms = by__gateway_forms}, route);
        if (form != NULL) {
            read_body(form, &request);
        }
    }
    free(body);
    free(route);
    return 0;
}
