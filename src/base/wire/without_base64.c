/* Base64 in a build without nettle. Who reads some asks by_build_has first. */
#include "base/base.h"

void by__string_add_base64(by_string *text, const void *bytes, size_t n)
{
    BY_UNUSED(bytes);
    BY_UNUSED(n);
    text->failed = true;
}

bool by__read_base64(const char *digits, size_t n, uint8_t *out, size_t *length)
{
    BY_UNUSED(digits);
    BY_UNUSED(n);
    BY_UNUSED(out);
    BY_UNUSED(length);
    return false;
}
