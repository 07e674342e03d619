#include "serve/http/http_parse.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hex.h"
#include "serve/http/ip_network.h"
#include "serve/http/query.h"

typedef enum parse_phase {
    IN_HEAD,
    IN_BODY,       /* of a known length */
    IN_CHUNK_SIZE, /* digits, up to CR */
    IN_CHUNK_SIZE_LF,
    IN_CHUNK,
    IN_CHUNK_CR, /* after a chunk's bytes */
    IN_CHUNK_LF,
    IN_LAST_CR, /* after the last chunk: no trailers */
    IN_LAST_LF,
    IS_DONE,
    IS_BAD
} parse_phase;

struct by__http_parser {
    by__http_limits limits;
    parse_phase phase;
    char *head; /* request line and headers, split into NUL-terminated strings when parsed */
    size_t head_length;
    size_t head_capacity;
    char *body;
    size_t body_length;
    size_t body_capacity;
    size_t expected; /* bytes left of the body, or of a chunk */
    size_t chunks;
    size_t digits; /* digits of a chunk's size so far */
    bool waits;    /* the client waits for "100 Continue" */
    int status;
    const char *reason;
    by__http_request request;
};

static bool bad(by__http_parser *p, int status, const char *reason)
{
    p->phase = IS_BAD;
    p->status = status;
    p->reason = reason;
    return false;
}

/* RFC 9110, section 5.6.2. */
static bool is_token(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_visible(unsigned char c)
{
    return c > 0x20 && c < 0x7f;
}

/* ---- the request line ---- */

/* Decodes %XX once, in place. Paths that still contain escapes, lead upwards, or are ambiguous are
 * refused. *plain: by__http_request's. */
static bool decode_path(char *path, size_t *plain)
{
    char *out = path;
    *plain = strcspn(path, "%");
    for (const char *in = path; *in != '\0'; in++) {
        int c = (unsigned char)*in;
        if (c == '%') {
            int high = by__hex_digit(in[1]);
            int low = high < 0 ? -1 : by__hex_digit(in[2]);
            if (low < 0) {
                return false;
            }
            c = high * 16 + low;
            in += 2;
        }
        if (c < 0x20 || c == 0x7f || c == '\\' || c == '%') {
            return false;
        }
        *out++ = (char)c;
    }
    *out = '\0';
    for (const char *s = path; (s = strstr(s, "/..")) != NULL; s++) {
        if (s[3] == '/' || s[3] == '\0') {
            return false;
        }
    }
    return by__utf8_valid(path, (size_t)(out - path));
}

static bool parse_request_line(by__http_parser *p, char *line)
{
    char *target = strchr(line, ' ');
    char *version = target == NULL ? NULL : strchr(target + 1, ' ');
    if (target == line || version == NULL || strchr(version + 1, ' ') != NULL) {
        return bad(p, 400, "the request line is not METHOD TARGET VERSION");
    }
    *target++ = '\0';
    *version++ = '\0';
    for (const char *c = line; *c != '\0'; c++) {
        if (!is_token((unsigned char)*c)) {
            return bad(p, 400, "the method is not a token");
        }
    }
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) {
        return bad(p, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    }
    p->request.old = version[7] == '0';
    p->request.keep_alive = !p->request.old;
    for (const char *c = target; *c != '\0'; c++) {
        if (!is_visible((unsigned char)*c) || *c == '#') {
            return bad(p, 400, "the target has a byte that must be encoded");
        }
    }
    char *query = strchr(target, '?');
    if (query != NULL) {
        *query++ = '\0';
    }
    if (target[0] != '/' || !decode_path(target, &p->request.plain)) {
        return bad(p, 400, "the target is not an absolute path");
    }
    if (query != NULL && !by__http_query_valid(query)) {
        return bad(p, 400, "the query has a name twice, more than 64, or a broken escape");
    }
    p->request.method = line;
    p->request.path = target;
    p->request.query = query == NULL ? "" : query;
    return true;
}

/* ---- headers ---- */

static bool parse_header(by__http_parser *p, char *line)
{
    by__http_request *r = &p->request;
    char *colon = strchr(line, ':');
    if (colon == NULL || colon == line) {
        return bad(p, 400, "a header is not NAME: VALUE");
    }
    for (char *c = line; c < colon; c++) {
        if (!is_token((unsigned char)*c)) {
            return bad(p, 400, "the name of a header is not a token");
        }
        if (*c >= 'A' && *c <= 'Z') {
            *c = (char)(*c - 'A' + 'a');
        }
    }
    char *value = colon + 1;
    char *end = value + strlen(value);
    *colon = '\0';
    value += strspn(value, " \t");
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) {
        *--end = '\0';
    }
    for (const char *c = value; *c != '\0'; c++) {
        unsigned char byte = (unsigned char)*c;
        if ((byte < 0x20 && byte != '\t') || byte == 0x7f) {
            return bad(p, 400, "the value of a header has a control byte");
        }
    }
    if (r->header_count == BY__HTTP_HEADERS) {
        return bad(p, 431, "too many headers");
    }
    r->headers[r->header_count++] = (by__http_header){line, value};
    return true;
}

static size_t count_header(const by__http_request *r, const char *name, const char **value)
{
    size_t count = 0;
    for (size_t i = 0; i < r->header_count; i++) {
        if (strcmp(r->headers[i].name, name) == 0) {
            *value = r->headers[i].value;
            count++;
        }
    }
    return count;
}

const char *by__http_header_of(const by__http_request *request, const char *name)
{
    const char *value = NULL;
    return count_header(request, name, &value) == 1 ? value : NULL;
}

bool by__http_is_type(const by__http_request *request, const char *type)
{
    const char *value = by__http_header_of(request, "content-type");
    size_t length = strlen(type);
    return value != NULL && strncasecmp(value, type, length) == 0 &&
           (type[length - 1] == '/' || strchr("; \t", value[length]) != NULL);
}

/* Returns true if a comma-separated list contains `word`. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    while (*list != '\0') {
        list += strspn(list, " \t,");
        size_t n = strcspn(list, " \t,");
        if (n == length && strncasecmp(list, word, n) == 0) {
            return true;
        }
        list += n;
    }
    return false;
}

/* RFC 3986, section 3.2.2, without escapes, which the names of hosts do not need. */
static bool is_host_byte(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != 0 && strchr("-._~!$&'()*+,;=", c) != NULL);
}

/* NAME, ADDRESS or [ADDRESS OF IPV6], and :PORT or nothing (RFC 9110, section 7.2). */
static bool is_host(const char *host)
{
    char name[INET6_ADDRSTRLEN];
    struct in6_addr address;
    size_t length = 0;
    if (host[0] == '[') {
        length = strcspn(++host, "]");
        if (host[length] != ']' || length >= sizeof name) {
            return false;
        }
        memcpy(name, host, length);
        name[length] = '\0';
        if (strchr(name, ':') == NULL || !by__http_network_read_address(&address, name)) {
            return false;
        }
        length++;
    } else {
        while (is_host_byte((unsigned char)host[length])) {
            length++;
        }
        if (length == 0) {
            return false;
        }
    }
    if (host[length] == '\0') {
        return true;
    }
    const char *port = host + length + 1;
    size_t digits = strspn(port, "0123456789");
    return host[length] == ':' && digits >= 1 && digits <= 5 && port[digits] == '\0' &&
           strtol(port, NULL, 10) <= 65535;
}

/* Headers that have one value: of two, programs take the first, the last, or a list. Those that
 * frame the message are checked with it. */
static bool parse_singles(by__http_parser *p)
{
    static const char *const singles[] = {"authorization",  "x-api-key",
                                          "content-type",   "content-encoding",
                                          "origin",         "upgrade",
                                          "sec-fetch-site", "idempotency-key",
                                          "last-event-id",  "access-control-request-method"};
    const char *host = NULL;
    const char *ignored = NULL;
    size_t hosts = count_header(&p->request, "host", &host);
    if (hosts > 1 || (hosts == 0 && !p->request.old)) {
        return bad(p, 400, "exactly one Host is needed");
    }
    if (hosts == 1 && !is_host(host)) {
        return bad(p, 400, "Host is not a name or an address, with a port or without");
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(singles); i++) {
        if (count_header(&p->request, singles[i], &ignored) > 1) {
            return bad(p, 400, "a header that has one value comes twice");
        }
    }
    return true;
}

/* Determines the length of the body (RFC 9112, section 6.3). */
static bool parse_framing(by__http_parser *p)
{
    by__http_request *r = &p->request;
    const char *length = NULL;
    const char *coding = NULL;
    const char *text = NULL;
    size_t lengths = count_header(r, "content-length", &length);
    size_t codings = count_header(r, "transfer-encoding", &coding);
    for (size_t i = 0; i < r->header_count; i++) { /* lines of one name are one list */
        if (strcmp(r->headers[i].name, "connection") == 0 &&
            has_word(r->headers[i].value, "close")) {
            r->keep_alive = false;
        }
    }
    size_t expects = count_header(r, "expect", &text);
    if (expects > 0 && (expects > 1 || strcasecmp(text, "100-continue") != 0)) {
        return bad(p, 417, "only 100-continue can be expected");
    }
    p->waits = expects == 1 && !r->old;
    if (count_header(r, "upgrade", &text) > 0 && strcasestr(text, "websocket") != NULL) {
        return bad(p, 501, "the protocol cannot be changed");
    }
    if (codings > 0) {
        if (lengths > 0 || codings > 1 || r->old || strcasecmp(coding, "chunked") != 0) {
            return bad(p, codings > 1 || lengths > 0 || r->old ? 400 : 501,
                       "of transfer codings only chunked is known, without a length");
        }
        p->phase = IN_CHUNK_SIZE;
        return true;
    }
    if (lengths > 1) {
        return bad(p, 400, "more than one Content-Length");
    }
    p->expected = 0;
    if (lengths == 1) {
        size_t digits = strspn(length, "0123456789");
        if (digits == 0 || length[digits] != '\0') {
            return bad(p, 400, "Content-Length is not a number");
        }
        for (size_t i = 0; i < digits; i++) {
            if (!by__size_mul(p->expected, 10, &p->expected) ||
                !by__size_add(p->expected, (size_t)(length[i] - '0'), &p->expected) ||
                p->expected > p->limits.body) {
                return bad(p, 413, "the body is too large");
            }
        }
    }
    p->phase = p->expected > 0 ? IN_BODY : IS_DONE;
    return true;
}

/* The head is complete: terminates lines at CR LF. */
static bool parse_head(by__http_parser *p)
{
    char *line = p->head;
    char *end = p->head + p->head_length - 2; /* the empty line */
    bool first = true;
    while (line < end) {
        char *stop = memchr(line, '\r', (size_t)(end - line));
        size_t length = (size_t)(stop - line);
        *stop = '\0';
        if (memchr(line, '\0', length) != NULL) {
            return bad(p, 400, "the head has a NUL byte");
        }
        if (!(first ? parse_request_line(p, line) : parse_header(p, line))) {
            return false;
        }
        first = false;
        line = stop + 2;
    }
    return parse_singles(p) && parse_framing(p);
}

/* Handles one byte of the head. CR and LF come together and only at the end of a line. */
static bool feed_head(by__http_parser *p, char c)
{
    by_error ignored = {0};
    char last = p->head_length > 0 ? p->head[p->head_length - 1] : '\0';
    if ((c == '\n') != (last == '\r')) {
        return bad(p, 400, "a line does not end with CR LF");
    }
    if (p->head_length == 1 && last == '\r' && c == '\n') {
        p->head_length = 0; /* an empty line before a request (RFC 9112, section 2.2) */
        return p->chunks++ == 0 ? true : bad(p, 400, "empty lines in front of a request");
    }
    if (p->head_length >= p->limits.head) {
        return bad(p, 431, "the head is too large");
    }
    if (by__reserve((void **)&p->head, &p->head_capacity, p->head_length + 1, 1, &ignored) !=
        BY_OK) {
        return bad(p, 500, "out of memory");
    }
    p->head[p->head_length++] = c;
    if (p->head_length >= 4 && memcmp(p->head + p->head_length - 4, "\r\n\r\n", 4) == 0) {
        p->chunks = 0;
        return parse_head(p);
    }
    return true;
}

/* ---- body ---- */

static bool feed_bytes(by__http_parser *p, const char *data, size_t n)
{
    by_error ignored = {0};
    if (by__reserve((void **)&p->body, &p->body_capacity, p->body_length + n + 1, 1, &ignored) !=
        BY_OK) {
        return bad(p, 500, "out of memory");
    }
    memcpy(p->body + p->body_length, data, n);
    p->body_length += n;
    p->body[p->body_length] = '\0';
    p->expected -= n;
    return true;
}

static bool feed_chunk_size(by__http_parser *p, char c)
{
    int digit = by__hex_digit(c);
    if (c == '\r' && p->digits > 0) {
        if (p->expected > p->limits.body - p->body_length) {
            return bad(p, 413, "the body is too large");
        }
        if (p->expected > 0 && ++p->chunks > p->limits.chunks) {
            return bad(p, 413, "the body has too many chunks");
        }
        p->phase = IN_CHUNK_SIZE_LF;
        return true;
    }
    if (digit < 0 || p->digits == 8) {
        return bad(p, 400, "the size of a chunk is not a hexadecimal number of at most 8 digits");
    }
    p->expected = p->expected * 16 + (size_t)digit;
    p->digits++;
    return true;
}

static bool expect(by__http_parser *p, char c, char wanted, parse_phase next)
{
    if (c != wanted) {
        return bad(p, 400, "a chunk does not end with CR LF");
    }
    p->phase = next;
    return true;
}

static bool feed_byte(by__http_parser *p, char c)
{
    switch (p->phase) {
    case IN_HEAD:
        return feed_head(p, c);
    case IN_CHUNK_SIZE:
        return feed_chunk_size(p, c);
    case IN_CHUNK_SIZE_LF:
        return expect(p, c, '\n', p->expected > 0 ? IN_CHUNK : IN_LAST_CR);
    case IN_CHUNK_CR:
        return expect(p, c, '\r', IN_CHUNK_LF);
    case IN_CHUNK_LF:
        p->digits = 0;
        p->expected = 0;
        return expect(p, c, '\n', IN_CHUNK_SIZE);
    case IN_LAST_CR:
        return c == '\r' ? expect(p, c, '\r', IN_LAST_LF)
                         : bad(p, 400, "headers behind the last chunk are not accepted");
    case IN_LAST_LF:
        return expect(p, c, '\n', IS_DONE);
    case IN_BODY:
    case IN_CHUNK:
    case IS_DONE:
    case IS_BAD:
        break;
    }
    return false;
}

by__http_state by__http_parser_feed(by__http_parser *parser, const char *data, size_t length,
                                    size_t *used)
{
    by__http_parser *p = parser;
    size_t i = 0;
    *used = 0;
    if (p->waits && by__http_parser_in_body(p)) {
        p->waits = false; /* no byte of the body has arrived */
        return BY__HTTP_CONTINUE;
    }
    while (i < length && p->phase != IS_DONE && p->phase != IS_BAD) {
        if (p->phase == IN_BODY || p->phase == IN_CHUNK) {
            size_t n = length - i < p->expected ? length - i : p->expected;
            if (feed_bytes(p, data + i, n) && p->expected == 0) {
                p->phase = p->phase == IN_BODY ? IS_DONE : IN_CHUNK_CR;
            }
            i += n;
        } else {
            bool head = p->phase == IN_HEAD;
            (void)feed_byte(p, data[i]);
            i++;
            if (head && by__http_parser_in_body(p)) {
                *used = i;
                return BY__HTTP_HEAD;
            }
        }
    }
    *used = i;
    if (p->phase == IS_DONE) {
        p->request.body = p->body == NULL ? "" : p->body;
        p->request.body_length = p->body_length;
        return BY__HTTP_DONE;
    }
    return p->phase == IS_BAD ? BY__HTTP_BAD : BY__HTTP_MORE;
}

/* ---- the parser ---- */

by__http_parser *by__http_parser_open(const by__http_limits *limits)
{
    by__http_parser *p = calloc(1, sizeof *p);
    if (p != NULL) {
        p->limits = *limits;
    }
    return p;
}

void by__http_parser_close(by__http_parser **parser)
{
    if (*parser != NULL) {
        free((*parser)->head);
        free((*parser)->body);
        free(*parser);
        *parser = NULL;
    }
}

void by__http_parser_next(by__http_parser *parser)
{
    by__http_limits limits = parser->limits;
    free(parser->head);
    free(parser->body);
    *parser = (by__http_parser){.limits = limits};
}

const by__http_request *by__http_parser_request(const by__http_parser *parser)
{
    return &parser->request;
}

int by__http_parser_status(const by__http_parser *parser)
{
    return parser->status;
}

const char *by__http_parser_reason(const by__http_parser *parser)
{
    return parser->reason;
}

size_t by__http_parser_held(const by__http_parser *parser)
{
    return sizeof *parser + parser->head_capacity + parser->body_capacity;
}

bool by__http_parser_idle(const by__http_parser *parser)
{
    return parser->phase == IN_HEAD && parser->head_length == 0;
}

bool by__http_parser_in_body(const by__http_parser *parser)
{
    return parser->phase > IN_HEAD && parser->phase < IS_DONE;
}
