/* Whose request it is: what proxies say of clients, and how much each address has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/http/client_address.h"

static by__http_addresses *open_addresses(size_t most, const char *const *proxies, size_t count)
{
    by__http_addresses *a = NULL;
    by_error error = {0};
    by_string_list list = {.items = (char **)(uintptr_t)proxies, .count = count};
    if (by__http_addresses_open(&a, most, &list, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return a;
}

static struct in6_addr address_of(const char *text)
{
    struct in6_addr out;
    assert_true(by__http_network_read_address(&out, text));
    return out;
}

static void test_forwarded(void **state)
{
    static const char *const proxies[] = {"10.0.0.0/8", "fd00::/8"};
    static const struct {
        const char *first; /* headers; NULL: none */
        const char *second;
        const char *client; /* NULL: the proxy does not say */
    } rows[] = {
        {NULL, NULL, NULL},
        {"", NULL, NULL},
        {"1.2.3.4", NULL, "1.2.3.4"},
        {" 1.2.3.4\t", NULL, "1.2.3.4"},
        {"1.2.3.4:5678", NULL, "1.2.3.4"},
        {"2a00::1", NULL, "2a00::1"},
        {"[2a00::1]", NULL, "2a00::1"},
        {"[2a00::1]:5678", NULL, "2a00::1"},
        /* The client wrote 9.9.9.9 itself. */
        {"9.9.9.9, 1.2.3.4", NULL, "1.2.3.4"},
        {"9.9.9.9", "1.2.3.4", "1.2.3.4"},
        {"9.9.9.9,1.2.3.4,10.1.1.1", "fd00::7, 10.2.2.2", "1.2.3.4"},
        {"10.0.0.5, 10.0.0.6", NULL, "10.0.0.5"},
        /* What stands behind is no address: as far as can be read. */
        {"1.2.3.4, unknown", NULL, NULL},
        {"1.2.3.4, unknown, 10.0.0.6", NULL, "10.0.0.6"},
        {"1.2.3.4,", NULL, NULL},
        {",1.2.3.4", NULL, "1.2.3.4"},
        {"[1.2.3.4", NULL, NULL},
        {"1.2.3.4.5", NULL, NULL},
        {"0000000000000000000000000000000000000000000000000001.2.3.4", NULL, NULL},
    };
    by__http_addresses *a = open_addresses(1, proxies, 2);
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by__http_request request = {.method = "GET", .path = "/"};
        struct in6_addr client;
        if (rows[i].first != NULL) {
            request.headers[request.header_count++] =
                (by__http_header){"x-forwarded-for", rows[i].first};
            request.headers[request.header_count++] = (by__http_header){"host", "a"};
        }
        if (rows[i].second != NULL) {
            request.headers[request.header_count++] =
                (by__http_header){"x-forwarded-for", rows[i].second};
        }
        bool found = by__http_addresses_forwarded(a, &request, &client);
        struct in6_addr wanted = address_of(rows[i].client == NULL ? "::" : rows[i].client);
        if (found != (rows[i].client != NULL) ||
            (found && memcmp(&client, &wanted, sizeof client) != 0)) {
            fail_msg("row %zu, %s", i, rows[i].first);
        }
    }
    by__http_addresses_close(&a);
}

static void test_trust(void **state)
{
    static const char *const proxies[] = {"10.0.0.0/8", "unix"};
    by__http_addresses *a = open_addresses(1, proxies, 2);
    by__http_addresses *none = open_addresses(1, NULL, 0);
    struct in6_addr inside = address_of("10.9.9.9");
    struct in6_addr outside = address_of("11.0.0.1");
    (void)state;
    assert_true(by__http_addresses_trust(a, &inside) && by__http_addresses_trust(a, NULL));
    assert_false(by__http_addresses_trust(a, &outside));
    assert_false(by__http_addresses_trust(none, &inside) || by__http_addresses_trust(none, NULL));
    by__http_addresses_close(&a);
    by__http_addresses_close(&none);
    static char wrong[] = "10.0.0.0/40";
    char *items[] = {wrong};
    by_string_list list = {.items = items, .count = 1};
    by_error error = {0};
    assert_int_equal(by__http_addresses_open(&a, 1, &list, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, wrong));
}

static void test_counts(void **state)
{
    by__http_addresses *a = open_addresses(2, NULL, 0);
    by__http_address_count *held[5] = {0};
    by__http_address_count *other = NULL;
    struct in6_addr one = address_of("2a00:1:2:3::1");
    struct in6_addr same = address_of("2a00:1:2:3:ffff::9");
    struct in6_addr next = address_of("2a00:1:2:4::1");
    struct in6_addr four = address_of("1.2.3.4");
    struct in6_addr five = address_of("1.2.3.5");
    (void)state;
    assert_int_equal(by__http_addresses_acquire(a, &one, &held[0]), BY__ADDRESS_ROOM);
    assert_int_equal(by__http_addresses_acquire(a, &same, &held[1]), BY__ADDRESS_ROOM);
    assert_int_equal(by__http_addresses_acquire(a, &one, &held[2]), BY__ADDRESS_FULL);
    assert_int_equal(by__http_addresses_acquire(a, &one, &held[3]), BY__ADDRESS_FULL);
    assert_int_equal(by__http_addresses_acquire(a, &same, &held[4]), BY__ADDRESS_FLOOD);
    assert_null(held[4]);
    assert_int_equal(by__http_addresses_acquire(a, &next, &other), BY__ADDRESS_ROOM);
    by__http_addresses_release(a, &other);
    assert_null(other);
    for (size_t i = 0; i < 3; i++) {
        by__http_addresses_release(a, &held[i]);
    }
    assert_int_equal(by__http_addresses_acquire(a, &same, &held[0]), BY__ADDRESS_ROOM);
    assert_int_equal(by__http_addresses_acquire(a, &same, &held[1]), BY__ADDRESS_FULL);
    /* Each address of IPv4 counts alone. */
    for (size_t i = 0; i < 2; i++) {
        by__http_address_count *c = NULL;
        by__http_address_count *d = NULL;
        assert_int_equal(by__http_addresses_acquire(a, &four, &c), BY__ADDRESS_ROOM);
        assert_int_equal(by__http_addresses_acquire(a, &four, &d), BY__ADDRESS_ROOM);
        assert_int_equal(by__http_addresses_acquire(a, &five, &other), BY__ADDRESS_ROOM);
        by__http_addresses_release(a, &other);
        by__http_addresses_release(a, &c);
        by__http_addresses_release(a, &d);
    }
    for (size_t i = 0; i < 4; i++) {
        by__http_addresses_release(a, &held[i]);
    }
    by__http_addresses_close(&a);
    /* No limit. */
    a = open_addresses(0, NULL, 0);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(by__http_addresses_acquire(a, &four, &other), BY__ADDRESS_ROOM);
        assert_null(other);
    }
    by__http_addresses_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forwarded),
        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
