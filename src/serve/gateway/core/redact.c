#include "serve/gateway/core/redact.h"

#include <nettle/sha2.h>
#include <string.h>

/* Least number of digits of a number that is replaced, and most characters between two of them. */
#define DIGITS  7
#define BETWEEN 2

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Characters of the local part of an address, and of its domain. */
static bool is_local(char c)
{
    return is_letter(c) || is_digit(c) || (c != '\0' && strchr("._%+-", c) != NULL);
}

static bool is_domain(char c)
{
    return is_letter(c) || is_digit(c) || c == '.' || c == '-';
}

/* Length of the domain after an '@', which must contain a dot between two other characters. 0:
 * there is none. */
static size_t domain_length(const char *text, size_t length)
{
    size_t end = 0;
    bool dotted = false;
    while (end < length && is_domain(text[end])) {
        end++;
    }
    while (end > 0 && (text[end - 1] == '.' || text[end - 1] == '-')) {
        end--;
    }
    for (size_t i = 1; i + 1 < end; i++) {
        dotted = dotted || text[i] == '.';
    }
    return dotted ? end : 0;
}

/* Length of a number that begins here, including separators. 0: it is too short. */
static size_t number_length(const char *text, size_t length)
{
    size_t digits = 0;
    size_t between = 0;
    size_t end = 0;
    for (size_t i = 0; i < length && between <= BETWEEN; i++) {
        if (is_digit(text[i])) {
            digits++;
            between = 0;
            end = i + 1;
        } else if (text[i] != '\0' && strchr(" .-/()", text[i]) != NULL) {
            between++;
        } else {
            break;
        }
    }
    return digits >= DIGITS ? end : 0;
}

void by__gateway_redact_text(by_string *out, const char *text, size_t length)
{
    size_t local = 0; /* bytes at the end of `out` that may be the local part of an address */
    for (size_t i = 0; i < length;) {
        size_t number = is_digit(text[i]) && (i == 0 || !is_digit(text[i - 1]))
                            ? number_length(text + i, length - i)
                            : 0;
        size_t domain =
            text[i] == '@' && local > 0 ? domain_length(text + i + 1, length - i - 1) : 0;
        if (domain > 0 && !out->failed) {
            out->length -= local;
            by__string_append(out, "<email>");
            i += 1 + domain;
            local = 0;
        } else if (number > 0 && !(i + number < length && text[i + number] == '@')) {
            by__string_append(out, "<number>");
            i += number;
            local = 0;
        } else {
            by_string_add(out, text + i, 1);
            local = is_local(text[i]) ? local + 1 : 0;
            i++;
        }
    }
}

void by__gateway_redact_hash(char out[17], const char *salt, const char *text, size_t length)
{
    struct sha256_ctx context;
    uint8_t digest[8];
    sha256_init(&context);
    sha256_update(&context, strlen(salt), (const uint8_t *)salt);
    sha256_update(&context, length, (const uint8_t *)text);
    sha256_digest(&context, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
    }
}
