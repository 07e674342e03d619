/* Parts of remote files: AWS's signature of its published examples, credentials of files and the
 * environment, URLs, lists of objects, heads of the cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "remote/remote_cache.h"
#include "remote/remote_listing.h"
#include "remote/remote_signature.h"
#include "remote/remote_url.h"

static time_t at(const char *text)
{
    struct tm tm = {0};
    assert_non_null(strptime(text, "%Y%m%dT%H%M%SZ", &tm));
    return timegm(&tm);
}

static void check_signature(const by__remote_signed *request, const by__remote_access *access,
                            const char *signature)
{
    by_string out = {0};
    assert_int_equal(by__remote_sign(&out, request, access, NULL), BY_OK);
    const char *found = strstr(out.data, "Signature=");
    assert_non_null(found);
    assert_string_equal(found + strlen("Signature="), signature);
    assert_null(strstr(out.data, access->secret));
    by_string_free(&out);
}

/* The examples of "Signature Calculations for the Authorization Header" of S3's reference, and
 * get-vanilla of the test suite of signature version 4. */
static void test_signature(void **state)
{
    const by__remote_access s3 = {.key = (char[]){"AKIAIOSFODNN7EXAMPLE"},
                                  .secret = (char[]){"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"},
                                  .token = (char[]){""},
                                  .region = (char[]){"us-east-1"}};
    const by__remote_access suite = {.key = (char[]){"AKIDEXAMPLE"},
                                     .secret = (char[]){"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"},
                                     .token = (char[]){""},
                                     .region = (char[]){"us-east-1"}};
    static const char *const ranged[][2] = {{"host", "examplebucket.s3.amazonaws.com"},
                                            {"range", "bytes=0-9"},
                                            {"x-amz-content-sha256", BY__REMOTE_NO_BODY},
                                            {"x-amz-date", "20130524T000000Z"}};
    static const char *const plain[][2] = {{"host", "examplebucket.s3.amazonaws.com"},
                                           {"x-amz-content-sha256", BY__REMOTE_NO_BODY},
                                           {"x-amz-date", "20130524T000000Z"}};
    static const char *const vanilla[][2] = {{"host", "example.amazonaws.com"},
                                             {"x-amz-date", "20150830T123600Z"}};
    by__remote_signed r = {.method = "GET",
                           .path = "/test.txt",
                           .query = "",
                           .headers = ranged,
                           .header_count = 4,
                           .body = BY__REMOTE_NO_BODY,
                           .service = "s3",
                           .time = at("20130524T000000Z")};
    BY_UNUSED(state);
    check_signature(&r, &s3, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    r.path = "/";
    r.query = "lifecycle=";
    r.headers = plain;
    r.header_count = 3;
    check_signature(&r, &s3, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    r.query = "max-keys=2&prefix=J";
    check_signature(&r, &s3, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    r.query = "";
    r.headers = vanilla;
    r.header_count = 2;
    r.service = "service";
    r.time = at("20150830T123600Z");
    check_signature(&r, &suite, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
}

/* ---- credentials ---- */

static const char *const variables[] = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",           "AWS_PROFILE",
    "AWS_REGION",        "AWS_DEFAULT_REGION",    "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
    "AWS_ENDPOINT_URL",  "AWS_ENDPOINT_URL_S3",   "AWS_DEFAULT_PROFILE"};

static void clear_variables(void)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(variables); i++) {
        assert_int_equal(unsetenv(variables[i]), 0);
    }
}

static void put_file(char path[256], const char *name, const char *text)
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(path, 256, "%s/%d-%s", folder == NULL ? "/tmp" : folder, (int)getpid(), name);
    assert_int_equal(by__file_write(path, text, strlen(text), NULL), BY_OK);
}

static void test_access(void **state)
{
    char keys[256];
    char config[256];
    by__remote_access a;
    by_error error = {0};
    BY_UNUSED(state);
    clear_variables();
    put_file(keys, "credentials",
             "# comment\r\n[other]\naws_access_key_id = OTHER\naws_secret_access_key=o+/=x\n"
             "[default]\r\naws_access_key_id=KEY\r\naws_secret_access_key = SECRET\r\n"
             "aws_session_token = TOKEN\r\n[half]\naws_access_key_id = HALF\n");
    put_file(config, "config",
             "[default]\nregion = eu-west-3\ns3 =\n  region = no\n[profile other]\n"
             "region=ap-south-1\nendpoint_url = http://minio:9000\n");
    (void)setenv("AWS_SHARED_CREDENTIALS_FILE", keys, 1);
    (void)setenv("AWS_CONFIG_FILE", config, 1);
    assert_int_equal(by__remote_access_read(&a, NULL), BY_OK);
    assert_string_equal(a.key, "KEY");
    assert_string_equal(a.secret, "SECRET");
    assert_string_equal(a.token, "TOKEN");
    assert_string_equal(a.region, "eu-west-3");
    assert_string_equal(a.endpoint, "https://s3.eu-west-3.amazonaws.com");
    by__remote_access_free(&a);
    (void)setenv("AWS_PROFILE", "other", 1);
    assert_int_equal(by__remote_access_read(&a, NULL), BY_OK);
    assert_string_equal(a.secret, "o+/=x");
    assert_string_equal(a.token, "");
    assert_string_equal(a.endpoint, "http://minio:9000");
    by__remote_access_free(&a);
    /* The environment goes first, and does not take a token of the profile. */
    (void)setenv("AWS_PROFILE", "default", 1);
    (void)setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "ENVSECRET", 1);
    (void)setenv("AWS_REGION", "cn-north-1", 1);
    assert_int_equal(by__remote_access_read(&a, NULL), BY_OK);
    assert_string_equal(a.key, "ENV");
    assert_string_equal(a.token, "");
    assert_string_equal(a.endpoint, "https://s3.cn-north-1.amazonaws.com.cn");
    by__remote_access_free(&a);
    assert_int_equal(unsetenv("AWS_SECRET_ACCESS_KEY"), 0);
    assert_int_equal(by__remote_access_read(&a, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "AWS_SECRET_ACCESS_KEY is missing"));
    assert_int_equal(unsetenv("AWS_ACCESS_KEY_ID"), 0);
    (void)setenv("AWS_PROFILE", "none", 1);
    assert_int_equal(by__remote_access_read(&a, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "'none'"));
    clear_variables();
    assert_int_equal(unlink(keys), 0);
    assert_int_equal(unlink(config), 0);
}

/* ---- URLs ---- */

static void check_target(const char *url, const char *full, const char *host, const char *path)
{
    const by__remote_access access = {.endpoint = (char[]){"http://127.0.0.1:9000/base/"}};
    by__remote_target t;
    assert_int_equal(by__remote_target_make(&t, url, &access, NULL), BY_OK);
    assert_string_equal(t.url, full);
    assert_string_equal(t.host, host);
    assert_string_equal(t.path, path);
    by__remote_target_free(&t);
}

static void test_urls(void **state)
{
    const by__remote_access access = {.endpoint = (char[]){"ftp://x"}};
    by__remote_target t;
    by_error error = {0};
    char shown[BY__REMOTE_SHOWN];
    char name[200];
    BY_UNUSED(state);
    assert_true(by_remote_is("https://a/b") && by_remote_is("s3://b") && by_remote_is("HTTP://a"));
    assert_false(by_remote_is("s3:/b") || by_remote_is("/a/https://b") || by_remote_is(""));
    assert_true(by__remote_is_folder("s3://b") && by__remote_is_folder("https://a/b/"));
    assert_false(by__remote_is_folder("s3://b/k") || by__remote_is_folder("/tmp/"));
    check_target("s3://b/a b/\xc3\xa4+.tar", "http://127.0.0.1:9000/base/b/a%20b/%C3%A4%2B.tar",
                 "127.0.0.1:9000", "/base/b/a%20b/%C3%A4%2B.tar");
    check_target("s3://b/k?v=1#2", "http://127.0.0.1:9000/base/b/k%3Fv%3D1%232", "127.0.0.1:9000",
                 "/base/b/k%3Fv%3D1%232");
    check_target("https://h:443/a/b.tar?sig=1", "https://h:443/a/b.tar?sig=1", "h", "/a/b.tar");
    /* What may be secret is neither taken nor shown. */
    assert_int_equal(by__remote_target_make(&t, "https://u:hidden@h/a", &access, &error),
                     BY_ECONFIG);
    assert_null(strstr(error.message, "hidden"));
    assert_string_equal(by__remote_shown(shown, "https://u:hidden@h/a?X-Amz-Signature=1"),
                        "https://h/a");
    assert_int_equal(by__remote_target_make(&t, "https:///a", &access, NULL), BY_ECONFIG);
    assert_int_equal(by__remote_target_make(&t, "https://h/a b", &access, NULL), BY_ECONFIG);
    assert_int_equal(by__remote_target_make(&t, "s3:///k", &access, NULL), BY_ECONFIG);
    assert_int_equal(by__remote_target_make(&t, "s3://b/k", &access, NULL), BY_ECONFIG);
    by__remote_file_name(name, "https://h/d/train-1.tar?sig=/x");
    assert_string_equal(name, "train-1.tar");
    by__remote_file_name(name, "https://h/d/.hidden");
    assert_string_equal(name, "data.hidden");
    by__remote_file_name(name, "https://h/");
    assert_string_equal(name, "data");
}

/* ---- lists ---- */

static by_status take(void *user, const by__remote_object *object, by_error *error)
{
    by_string *text = user;
    BY_UNUSED(error);
    by_string_format(text, "%s|%llu|%s\n", object->key, (unsigned long long)object->size,
                     object->tag);
    return BY_OK;
}

static void test_lists(void **state)
{
    static const char page[] =
        "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"u\"><Name>b</Name><IsTruncated>true"
        "</IsTruncated><Contents><Key>a&amp;b/&#228;&#x1F600;.png</Key><LastModified>x"
        "</LastModified><ETag>&quot;1&quot;</ETag><Size>12</Size></Contents>"
        "<NextContinuationToken>t&lt;=</NextContinuationToken><Contents><Size>3</Size><Key>c</Key>"
        "</Contents></ListBucketResult>";
    by_string text = {0};
    char *next;
    by_error error = {0};
    BY_UNUSED(state);
    assert_int_equal(
        by__remote_listing_parse(page, sizeof page - 1, "s3://b", take, &text, &next, NULL), BY_OK);
    assert_string_equal(text.data, "a&b/\xc3\xa4\xf0\x9f\x98\x80.png|12|\"1\"\nc|3|\n");
    assert_string_equal(next, "t<=");
    free(next);
    by_string_free(&text);
    assert_int_equal(by__remote_listing_parse("<html>", 6, "s3://b", take, &text, &next, &error),
                     BY_EFORMAT);
    assert_non_null(strstr(error.message, "AWS_ENDPOINT_URL"));
}

/* ---- heads ---- */

static void test_heads(void **state)
{
    uint8_t head[BY__REMOTE_HEAD];
    by__remote_version v = {.size = 12345678901, .tag = "\"abc\""};
    by__remote_version read = {0};
    BY_UNUSED(state);
    by__remote_head_print(head, &v);
    assert_true(by__remote_head_parse(&read, head));
    assert_int_equal(read.size, v.size);
    assert_string_equal(read.tag, v.tag);
    for (size_t i = 0; i < sizeof head; i++) {
        head[i] ^= 4;
        assert_false(by__remote_head_parse(&read, head));
        head[i] ^= 4;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signature), cmocka_unit_test(test_access),
        cmocka_unit_test(test_urls),      cmocka_unit_test(test_lists),
        cmocka_unit_test(test_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
