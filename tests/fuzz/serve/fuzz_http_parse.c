/* Requests of HTTP, in two pieces: where they are cut changes nothing; and what a proxy says of the
 * client. */
#include <stdlib.h>
#include <string.h>

#include "serve/http/client_address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Behind a head the parser stops, and behind it once more for a client that waits to be asked. */
static by__http_state take_piece(by__http_parser *p, const char *data, size_t size)
{
    by__http_state state;
    size_t used;
    do {
        state = by__http_parser_feed(p, data, size, &used);
        data += used;
        size -= used;
    } while (state == BY__HTTP_HEAD || (state == BY__HTTP_CONTINUE && size > 0));
    return state == BY__HTTP_CONTINUE ? BY__HTTP_MORE : state;
}

static by__http_state take(by__http_parser *p, const char *data, size_t size, size_t cut)
{
    by__http_state state = take_piece(p, data, cut);
    return state == BY__HTTP_MORE ? take_piece(p, data + cut, size - cut) : state;
}

static void read_forwarded(const by__http_request *r)
{
    char *proxies[] = {(char[]){"10.0.0.0/8"}};
    const by_string_list list = {.items = proxies, .count = 1};
    by__http_addresses *addresses = NULL;
    struct in6_addr client;
    if (by__http_addresses_open(&addresses, 1, &list, NULL) != BY_OK) {
        abort();
    }
    (void)by__http_addresses_forwarded(addresses, r, &client);
    by__http_addresses_close(&addresses);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__http_limits limits = {.head = 4096, .body = 4096, .chunks = 64};
    by__http_parser *one = by__http_parser_open(&limits);
    by__http_parser *two = by__http_parser_open(&limits);
    const char *text = (const char *)data;
    by__http_state a = take(one, text, size, size);
    by__http_state b = take(two, text, size, size / 2);
    if (a != b) {
        abort();
    }
    if (a == BY__HTTP_DONE) {
        const by__http_request *r = by__http_parser_request(one);
        const by__http_request *s = by__http_parser_request(two);
        if (strcmp(r->path, s->path) != 0 || r->body_length != s->body_length ||
            memcmp(r->body, s->body, r->body_length) != 0) {
            abort();
        }
        read_forwarded(r);
    }
    by__http_parser_close(&one);
    by__http_parser_close(&two);
    return 0;
}
