/* https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html: the canonical form
 * of a request is hashed, and the hash is signed with a key that follows from the secret, the day,
 * the region and the service. */
#include "remote/remote_signature.h"

#include <nettle/hmac.h>
#include <string.h>

#define HEX (2 * SHA256_DIGEST_SIZE + 1)

static void to_hex(char out[HEX], const uint8_t digest[SHA256_DIGEST_SIZE])
{
    for (size_t i = 0; i < SHA256_DIGEST_SIZE; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
    }
}

static void authenticate(uint8_t out[SHA256_DIGEST_SIZE], const void *key, size_t key_size,
                         const char *text)
{
    struct hmac_sha256_ctx hmac;
    hmac_sha256_set_key(&hmac, key_size, key);
    hmac_sha256_update(&hmac, strlen(text), (const uint8_t *)text);
    hmac_sha256_digest(&hmac, SHA256_DIGEST_SIZE, out);
    explicit_bzero(&hmac, sizeof hmac);
}

/* "host;range;x-amz-date" */
static void add_names(by_string *out, const by__remote_signed *r)
{
    for (size_t i = 0; i < r->header_count; i++) {
        by_string_format(out, "%s%s", i > 0 ? ";" : "", r->headers[i][0]);
    }
}

/* The hash of the canonical form. */
static bool hash_request(char out[HEX], const by__remote_signed *r)
{
    by_string text = {0};
    struct sha256_ctx sha;
    uint8_t digest[SHA256_DIGEST_SIZE];
    by_string_format(&text, "%s\n%s\n%s\n", r->method, r->path, r->query);
    for (size_t i = 0; i < r->header_count; i++) {
        by_string_format(&text, "%s:%s\n", r->headers[i][0], r->headers[i][1]);
    }
    by__string_append(&text, "\n");
    add_names(&text, r);
    by_string_format(&text, "\n%s", r->body);
    bool good = !text.failed;
    if (good) {
        sha256_init(&sha);
        sha256_update(&sha, text.length, (const uint8_t *)text.data);
        sha256_digest(&sha, sizeof digest, digest);
        to_hex(out, digest);
        explicit_bzero(text.data, text.length); /* it may have the token of a session */
    }
    by_string_free(&text);
    return good;
}

/* Signs a text with the key of the day. */
static bool sign_text(char out[HEX], const char *text, const char *day, const char *service,
                      const by__remote_access *access)
{
    by_string secret = {0};
    uint8_t key[SHA256_DIGEST_SIZE];
    uint8_t next[SHA256_DIGEST_SIZE];
    by_string_format(&secret, "AWS4%s", access->secret);
    bool good = !secret.failed;
    if (good) {
        authenticate(key, secret.data, secret.length, day);
        authenticate(next, key, sizeof key, access->region);
        authenticate(key, next, sizeof next, service);
        authenticate(next, key, sizeof key, "aws4_request");
        authenticate(key, next, sizeof next, text);
        to_hex(out, key);
        explicit_bzero(next, sizeof next);
        explicit_bzero(secret.data, secret.length);
    }
    by_string_free(&secret);
    return good;
}

void by__remote_date(char out[17], time_t time)
{
    struct tm utc;
    if (gmtime_r(&time, &utc) == NULL || strftime(out, 17, "%Y%m%dT%H%M%SZ", &utc) != 16) {
        out[0] = '\0';
    }
}

by_status by__remote_sign(by_string *out, const by__remote_signed *request,
                          const by__remote_access *access, by_error *error)
{
    char hash[HEX];
    char signature[HEX];
    char date[17];
    char day[9];
    by_string text = {0};
    by__remote_date(date, request->time);
    (void)snprintf(day, sizeof day, "%.8s", date);
    bool good = hash_request(hash, request);
    if (good) {
        by_string_format(&text, "AWS4-HMAC-SHA256\n%s\n%s/%s/%s/aws4_request\n%s", date, day,
                         access->region, request->service, hash);
        good = !text.failed && sign_text(signature, text.data, day, request->service, access);
    }
    by_string_free(&text);
    if (!good) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a signature");
    }
    by_string_format(out, "AWS4-HMAC-SHA256 Credential=%s/%s/%s/%s/aws4_request,SignedHeaders=",
                     access->key, day, access->region, request->service);
    add_names(out, request);
    by_string_format(out, ",Signature=%s", signature);
    return BY_OK;
}
