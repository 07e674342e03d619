/* multipart/form-data: what is split, and what programs would read differently. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "serve/http/multipart.h"

#define TYPE       "multipart/form-data; boundary=b"
#define PART(head) "--b\r\n" head "\r\n\r\nv\r\n--b--\r\n"
#define NAMED      "Content-Disposition: form-data; name=\"a\""

static by__http_multipart_part parts[BY__MULTIPART_MAX];
static size_t count;

static by_status split(const char *type, const char *body)
{
    by_error error = {0};
    return by__http_multipart_split(parts, &count, type, body, strlen(body), &error);
}

static void test_table(void **state)
{
    static const struct {
        const char *type;
        const char *body;
        bool good;
    } rows[] = {
        {TYPE, PART(NAMED), true},
        {"multipart/form-data; charset=utf-8; BOUNDARY=\"b\"", PART(NAMED), true},
        {"multipart/form-data;boundary=b", PART(NAMED), true},
        {TYPE, PART("content-disposition:form-data;name=a"), true},
        {TYPE, PART("Content-Disposition: form-data; filename=\"x\\\"; name=c\"; name=\"a\""),
         true},
        {TYPE, PART(NAMED "\r\nContent-Type: image/png\r\nContent-Transfer-Encoding: binary"),
         true},
        /* the boundary */
        {"multipart/form-data", PART(NAMED), false},
        {"multipart/form-data; boundary=", PART(NAMED), false},
        {"multipart/form-data; boundary=b; boundary=b", PART(NAMED), false},
        {"multipart/form-data; boundary=c; boundary=b", PART(NAMED), false},
        {"multipart/form-data; xboundary=b", PART(NAMED), false},
        {"multipart/form-data; x=\"boundary=b\"", PART(NAMED), false},
        {"multipart/form-data; boundary=\"b", PART(NAMED), false},
        {"multipart/form-data; boundary=\"b \"", PART(NAMED), false},
        {"multipart/form-data; boundary=b\x01", PART(NAMED), false},
        {"multipart/form-data boundary=b", PART(NAMED), false},
        /* the name */
        {TYPE, PART("A: b"), false},
        {TYPE, PART("Content-Disposition: attachment; name=\"a\""), false},
        {TYPE, PART("Content-Disposition: form-data-x; name=\"a\""), false},
        {TYPE, PART("Content-Disposition: form-data"), false},
        {TYPE, PART("Content-Disposition: form-data; name=\"a\"; name=\"b\""), false},
        {TYPE, PART("Content-Disposition: form-data; filename=\" name=\"a\""), false},
        {TYPE, PART(NAMED "\r\n" NAMED), false},
        {TYPE, PART("Content-Disposition: form-data; x=\"name=c\""), false},
        /* encodings */
        {TYPE, PART(NAMED "\r\nContent-Transfer-Encoding: base64"), false},
        {TYPE, PART(NAMED "\r\nContent-Transfer-Encoding: binaryx"), false},
        /* ends */
        {TYPE, "--b\r\n" NAMED "\r\n\r\nv\r\n", false},
        {TYPE, "--b " NAMED "\r\n\r\nv\r\n--b--\r\n", false},
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        bool good = split(rows[i].type, rows[i].body) == BY_OK;
        if (good != rows[i].good || (good && (count != 1 || strcmp(parts[0].name, "a") != 0 ||
                                              parts[0].length != 1 || parts[0].data[0] != 'v'))) {
            fail_msg("row %zu", i);
        }
    }
}

/* As many images as a request may have, with the fields beside them. */
static void test_many(void **state)
{
    static const char part[] = "--b\r\n" NAMED "\r\n\r\nv\r\n";
    by_string body = {0};
    (void)state;
    for (size_t i = 0; i < 258; i++) {
        by__string_append(&body, part);
    }
    by__string_append(&body, "--b--\r\n");
    assert_int_equal(split(TYPE, body.data), BY_OK);
    assert_int_equal(count, 258);
    body.length -= strlen("--b--\r\n");
    for (size_t i = 258; i <= BY__MULTIPART_MAX; i++) {
        by__string_append(&body, part);
    }
    by__string_append(&body, "--b--\r\n");
    assert_int_equal(split(TYPE, body.data), BY_EARG);
    by_string_free(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
