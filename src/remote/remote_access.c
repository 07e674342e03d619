#include "remote/remote_access.h"

#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)1 << 20)

/* What is read of the profile, by the names of the files. */
static const char *const names[] = {"aws_access_key_id", "aws_secret_access_key",
                                    "aws_session_token", "region", "endpoint_url"};
enum { KEY, SECRET, TOKEN, REGION, ENDPOINT, VALUES };

static void wipe(char *text)
{
    if (text != NULL) {
        explicit_bzero(text, strlen(text));
    }
    free(text);
}

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value == NULL ? "" : value;
}

static const char *first_of(const char *a, const char *b, const char *c)
{
    return a[0] != '\0' ? a : b[0] != '\0' ? b : c;
}

/* ---- files ---- */

/* Whether the n bytes of "[...]" name the profile: "[profile NAME]" in config, "[NAME]" in
 * credentials, where the other form is not refused. */
static bool names_profile(const char *text, size_t n, const char *profile)
{
    by__trim(&text, &n, BY__WHITE_SPACE);
    if (n > 8 && memcmp(text, "profile", 7) == 0 && (text[7] == ' ' || text[7] == '\t')) {
        text += 8;
        n -= 8;
        by__trim(&text, &n, BY__WHITE_SPACE);
    }
    return strlen(profile) == n && memcmp(text, profile, n) == 0;
}

/* Takes "NAME = VALUE", unless the value is known. */
static by_status take_line(char *values[VALUES], const char *line, size_t n, by_error *error)
{
    const char *equals = memchr(line, '=', n);
    if (equals == NULL || line[0] == ' ' || line[0] == '\t') {
        return BY_OK; /* a comment, or of a nested section */
    }
    const char *name = line;
    size_t name_size = (size_t)(equals - line);
    const char *value = equals + 1;
    size_t value_size = n - name_size - 1;
    by__trim(&name, &name_size, BY__WHITE_SPACE);
    by__trim(&value, &value_size, BY__WHITE_SPACE);
    for (size_t i = 0; i < VALUES; i++) {
        if (values[i] == NULL && strlen(names[i]) == name_size &&
            memcmp(names[i], name, name_size) == 0) {
            values[i] = by__strndup(value, value_size);
            return values[i] == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a profile")
                                     : BY_OK;
        }
    }
    return BY_OK;
}

/* Reads the profile of a file, if it has it. */
static by_status read_file(char *values[VALUES], bool *found, const char *path, const char *profile,
                           by_error *error)
{
    char *text;
    size_t length;
    bool here = false;
    if (!by__path_exists(path)) {
        return BY_OK;
    }
    BY_TRY(by__file_read(&text, &length, path, FILE_LIMIT, error));
    by_status status = BY_OK;
    for (size_t at = 0; at < length && status == BY_OK;) {
        const char *line = text + at;
        const char *end = memchr(line, '\n', length - at);
        size_t n = end == NULL ? length - at : (size_t)(end - line);
        const char *close = n > 0 && line[0] == '[' ? memchr(line, ']', n) : NULL;
        if (close != NULL) {
            here = names_profile(line + 1, (size_t)(close - line) - 1, profile);
            *found = *found || here;
        } else if (here && n > 0 && line[0] != '#' && line[0] != ';') {
            status = take_line(values, line, n, error);
        }
        at += n + 1;
    }
    explicit_bzero(text, length);
    free(text);
    return status;
}

/* A file of ~/.aws, or the one that a variable names. */
static by_status read_named(char *values[VALUES], bool *found, const char *name,
                            const char *instead, const char *profile, by_error *error)
{
    by_string path = {0};
    char *text;
    if (environment(instead)[0] != '\0') {
        return read_file(values, found, environment(instead), profile, error);
    }
    by_string_format(&path, "%s/.aws/%s", environment("HOME"), name);
    BY_TRY(by__string_release(&path, &text, error));
    by_status status = read_file(values, found, text, profile, error);
    free(text);
    return status;
}

static by_status read_profile(char *values[VALUES], by_error *error)
{
    const char *profile =
        first_of(environment("AWS_PROFILE"), environment("AWS_DEFAULT_PROFILE"), "");
    const char *name = profile[0] == '\0' ? "default" : profile;
    bool found = false;
    BY_TRY(read_named(values, &found, "credentials", "AWS_SHARED_CREDENTIALS_FILE", name, error));
    BY_TRY(read_named(values, &found, "config", "AWS_CONFIG_FILE", name, error));
    return found || profile[0] == '\0' ? BY_OK
                                       : by_error_set(error, BY_ECONFIG,
                                                      "AWS_PROFILE: neither ~/.aws/credentials nor "
                                                      "~/.aws/config has the profile '%s'",
                                                      profile);
}

/* ---- together ---- */

static by_status put(char **out, const char *text, by_error *error)
{
    *out = by__strdup(text);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: credentials") : BY_OK;
}

static by_status put_all(by__remote_access *out, char *const values[VALUES], by_error *error)
{
    const char *of_file[VALUES];
    char aws[256];
    for (size_t i = 0; i < VALUES; i++) {
        of_file[i] = values[i] == NULL ? "" : values[i];
    }
    /* Those of the environment belong together, as do those of a profile. */
    bool own = environment("AWS_ACCESS_KEY_ID")[0] != '\0';
    const char *region = first_of(environment("AWS_REGION"), environment("AWS_DEFAULT_REGION"),
                                  first_of(of_file[REGION], "us-east-1", ""));
    (void)snprintf(aws, sizeof aws, "https://s3.%.100s.amazonaws.com%s", region,
                   strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
    BY_TRY(put(&out->key, own ? environment("AWS_ACCESS_KEY_ID") : of_file[KEY], error));
    BY_TRY(put(&out->secret, own ? environment("AWS_SECRET_ACCESS_KEY") : of_file[SECRET], error));
    BY_TRY(put(&out->token, own ? environment("AWS_SESSION_TOKEN") : of_file[TOKEN], error));
    BY_TRY(put(&out->region, region, error));
    BY_TRY(put(&out->endpoint,
               first_of(environment("AWS_ENDPOINT_URL_S3"), environment("AWS_ENDPOINT_URL"),
                        first_of(of_file[ENDPOINT], aws, "")),
               error));
    return (out->key[0] == '\0') == (out->secret[0] == '\0')
               ? BY_OK
               : by_error_set(error, BY_ECONFIG, "credentials of S3: %s is missing beside %s",
                              out->key[0] == '\0' ? "aws_access_key_id" : "AWS_SECRET_ACCESS_KEY",
                              out->key[0] == '\0' ? "aws_secret_access_key" : "AWS_ACCESS_KEY_ID");
}

by_status by__remote_access_read(by__remote_access *out, by_error *error)
{
    char *values[VALUES] = {0};
    *out = (by__remote_access){0};
    by_status status = read_profile(values, error);
    if (status == BY_OK) {
        status = put_all(out, values, error);
    }
    for (size_t i = 0; i < VALUES; i++) {
        wipe(values[i]);
    }
    if (status != BY_OK) {
        by__remote_access_free(out);
    }
    return status;
}

void by__remote_access_free(by__remote_access *access)
{
    wipe(access->key);
    wipe(access->secret);
    wipe(access->token);
    free(access->region);
    free(access->endpoint);
    *access = (by__remote_access){0};
}
