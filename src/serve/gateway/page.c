/* The web page at "/": one file (page/index.html) embedded in the binary. It contains no data; it
 * fetches everything from the other routes, with the key that the user enters. Its headers allow
 * the browser to run its one script and style sheet, named by their hashes, and to connect to this
 * server only. */
#include "serve/gateway/gateway_routes.h"

#include <nettle/sha2.h>
#include <string.h>

#include "base/base.h"
#include "serve_page.h" /* made by cmake/embed.cmake */

static void digest(unsigned char out[SHA256_DIGEST_SIZE], const unsigned char *bytes, size_t length)
{
    struct sha256_ctx context;
    sha256_init(&context);
    sha256_update(&context, length, bytes);
    sha256_digest(&context, SHA256_DIGEST_SIZE, out);
}

/* Appends " 'sha256-...'" of the text between the first `begin` in the page and the following
 * `end`. */
static void add_hash(by_string *out, const char *begin, const char *end)
{
    const unsigned char *last = serve_page + sizeof serve_page;
    const unsigned char *from = memmem(serve_page, sizeof serve_page, begin, strlen(begin));
    unsigned char hash[SHA256_DIGEST_SIZE];
    if (from == NULL) {
        return;
    }
    from += strlen(begin);
    const unsigned char *to = memmem(from, (size_t)(last - from), end, strlen(end));
    digest(hash, from, (size_t)((to == NULL ? last : to) - from));
    by__string_append(out, " 'sha256-");
    by__string_add_base64(out, hash, sizeof hash);
    by__string_append(out, "'");
}

/* Adds Content-Security-Policy. Returns false when memory is exhausted. */
static bool add_policy(by__http_connection *x)
{
    by_string policy = {0};
    by__string_append(&policy,
                      "default-src 'none'; connect-src 'self'; img-src data:; "
                      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src");
    add_hash(&policy, "<script>", "</script>");
    by__string_append(&policy, "; style-src");
    add_hash(&policy, "<style>", "</style>");
    bool made = !policy.failed;
    if (made) {
        by__http_connection_header(x, "Content-Security-Policy", policy.data);
    }
    by_string_free(&policy);
    return made;
}

/* Makes an entity tag of the first half of the page's hash. */
static void make_tag(char out[SHA256_DIGEST_SIZE + 3])
{
    unsigned char hash[SHA256_DIGEST_SIZE];
    digest(hash, serve_page, sizeof serve_page);
    out[0] = '"';
    for (size_t i = 0; i < sizeof hash / 2; i++) {
        (void)snprintf(out + 1 + 2 * i, 3, "%02x", hash[i]);
    }
    memcpy(out + 1 + sizeof hash, "\"", 2);
}

void by__gateway_answer_page(by__gateway *g, by__http_connection *x, const by__http_request *r,
                             const char *key)
{
    char tag[SHA256_DIGEST_SIZE + 3];
    const char *known = by__http_header_of(r, "if-none-match");
    BY_UNUSED(key);
    if (g->options.config != NULL && g->options.config->gateway.page == 0) {
        by__gateway_reply_error(g, x, 404, "route_not_found", NULL, "there is no such route");
        return;
    }
    if (!add_policy(x)) {
        by__gateway_reply_error(g, x, 503, "out_of_memory", NULL, "no memory for a request");
        return;
    }
    make_tag(tag);
    by__http_connection_header(x, "ETag", tag);
    by__http_connection_header(x, "Cache-Control", "no-cache");
    by__http_connection_header(x, "Referrer-Policy", "no-referrer");
    by__http_connection_header(x, "Cross-Origin-Opener-Policy", "same-origin");
    if (known != NULL && strstr(known, tag) != NULL) {
        by__http_connection_reply(x, 304, NULL, "", 0);
    } else {
        by__http_connection_reply(x, 200, "text/html; charset=utf-8", (const char *)serve_page,
                                  sizeof serve_page);
    }
}
