/* Lists of objects of S3: the elements of XML that matter, whatever else there is. */
#include "remote/remote_listing.h"

#include <stdlib.h>
#include <string.h>

#include "remote/remote_files.h"

/* ---- a page ---- */

/* A part of the text. */
typedef struct xml_span {
    const char *begin;
    const char *end;
} xml_span;

/* Finds the content of the next element of a name in a part of the text, and moves *part behind
 * it. */
static bool next_element(xml_span *out, xml_span *part, const char *name)
{
    char open[40];
    char close[40];
    int n = snprintf(open, sizeof open, "<%s>", name);
    int m = snprintf(close, sizeof close, "</%s>", name);
    const char *begin = memmem(part->begin, (size_t)(part->end - part->begin), open, (size_t)n);
    if (begin == NULL) {
        return false;
    }
    out->begin = begin + n;
    out->end = memmem(out->begin, (size_t)(part->end - out->begin), close, (size_t)m);
    if (out->end == NULL) {
        return false;
    }
    part->begin = out->end + m;
    return true;
}

static bool first_element(xml_span *out, xml_span part, const char *name)
{
    return next_element(out, &part, name);
}

/* Adds what an entity "&...;" stands for. */
static void add_entity(by_string *out, const char *name, size_t n)
{
    static const char *const names[][2] = {
        {"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}};
    char digits[12];
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        if (strlen(names[i][0]) == n && memcmp(names[i][0], name, n) == 0) {
            by__string_append(out, names[i][1]);
            return;
        }
    }
    if (n < 2 || n > 9 || name[0] != '#') {
        return;
    }
    (void)snprintf(digits, sizeof digits, "%.*s", (int)n - 1, name + 1);
    unsigned long c = digits[0] == 'x' ? strtoul(digits + 1, NULL, 16) : strtoul(digits, NULL, 10);
    if (c > 0 && c < 0x80) {
        by_string_add(out, &(char){(char)c}, 1);
    } else if (c < 0x800) {
        by_string_add(out, (char[]){(char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f))}, 2);
    } else if (c < 0x10000) {
        by_string_add(out,
                      (char[]){(char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 0x3f)),
                               (char)(0x80 | (c & 0x3f))},
                      3);
    } else if (c < 0x110000) {
        by_string_add(out,
                      (char[]){(char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 0x3f)),
                               (char)(0x80 | (c >> 6 & 0x3f)), (char)(0x80 | (c & 0x3f))},
                      4);
    }
}

/* The text of an element. */
static by_status read_text(char **out, xml_span from, by_error *error)
{
    by_string text = {0};
    by__string_append(&text, "");
    while (from.begin < from.end) {
        const char *end =
            *from.begin == '&' ? memchr(from.begin, ';', (size_t)(from.end - from.begin)) : NULL;
        if (end != NULL) {
            add_entity(&text, from.begin + 1, (size_t)(end - from.begin) - 1);
            from.begin = end + 1;
        } else {
            by_string_add(&text, from.begin++, 1);
        }
    }
    return by__string_release(&text, out, error);
}

static by_status take_object(xml_span part, const char *name,
                             by_status (*take)(void *user, const by__remote_object *object,
                                               by_error *error),
                             void *user, by_error *error)
{
    xml_span key;
    xml_span size;
    xml_span tag;
    char *texts[3] = {0};
    if (!first_element(&key, part, "Key") || !first_element(&size, part, "Size")) {
        return by_error_set(error, BY_EFORMAT, "%s: a list of objects has one without key or size",
                            name);
    }
    by_status status = read_text(&texts[0], key, error);
    if (status == BY_OK) {
        status = read_text(&texts[1], size, error);
    }
    if (status == BY_OK && first_element(&tag, part, "ETag")) {
        status = read_text(&texts[2], tag, error);
    }
    if (status == BY_OK) {
        const char *label = texts[2] == NULL || strlen(texts[2]) >= BY__REMOTE_TAG ? "" : texts[2];
        const by__remote_object object = {
            .key = texts[0], .size = strtoull(texts[1], NULL, 10), .tag = label};
        status = take(user, &object, error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        free(texts[i]);
    }
    return status;
}

by_status by__remote_listing_parse(const char *text, size_t size, const char *name,
                                   by_status (*take)(void *user, const by__remote_object *object,
                                                     by_error *error),
                                   void *user, char **next, by_error *error)
{
    xml_span rest = {text, text + size};
    const xml_span all = rest;
    xml_span part;
    *next = NULL;
    if (memmem(text, size, "<ListBucketResult", 17) == NULL) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: the server does not answer with a list of objects: is it one of "
                            "S3 (AWS_ENDPOINT_URL)?",
                            name);
    }
    while (next_element(&part, &rest, "Contents")) {
        BY_TRY(take_object(part, name, take, user, error));
    }
    return first_element(&part, all, "NextContinuationToken") ? read_text(next, part, error)
                                                              : BY_OK;
}

/* ---- lists ---- */

/* A list that is being made. */
typedef struct key_list {
    by__remote_names *out;
    by__remote *remote;
    const char *bucket;
    size_t bucket_size;
} key_list;

static by_status take_key(void *user, const by__remote_object *object, by_error *error)
{
    const key_list *l = user;
    by__remote_file *f;
    by_string url = {0};
    char *text;
    size_t n = strlen(object->key);
    if (n == 0 || object->key[n - 1] == '/') {
        return BY_OK; /* what some programs make for a folder */
    }
    by_string_format(&url, "s3://%.*s/%s", (int)l->bucket_size, l->bucket, object->key);
    BY_TRY(by__string_release(&url, &text, error));
    by_status status = by__reserve((void **)&l->out->urls, &l->out->capacity, l->out->count + 1,
                                   sizeof *l->out->urls, error);
    if (status == BY_OK) {
        status = by__remote_name(&f, l->remote, text, error);
    }
    if (status != BY_OK) {
        free(text);
        return status;
    }
    by__remote_know(f, object->size, object->tag);
    l->out->urls[l->out->count++] = text;
    return BY_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Asks for a page and takes it; *next is that of the one before, and becomes its own. */
static by_status list_page(const key_list *l, const by__remote_target *target, const char *url,
                           const char *prefix, char **next, by_error *error)
{
    by_string query = {0};
    by_string text = {0};
    by__remote_got got;
    char shown[BY__REMOTE_SHOWN];
    if (*next != NULL) {
        by__string_append(&query, "continuation-token=");
        by__remote_escape(&query, *next, strlen(*next), false);
        by__string_append(&query, "&");
    }
    by__string_append(&query, "list-type=2&prefix=");
    by__remote_escape(&query, prefix, strlen(prefix), false);
    free(*next);
    *next = NULL;
    if (query.failed) {
        by_string_free(&query);
        return by_error_set(error, BY_EMEMORY, "out of memory: a list");
    }
    const by__remote_ask ask = {.url = url, .target = target, .query = query.data};
    by_status status = by__remote_get(&l->remote->client, &ask, &got, &text, error);
    if (status == BY_OK) {
        status = by__remote_listing_parse(text.data == NULL ? "" : text.data, text.length,
                                          by__remote_shown(shown, url), take_key,
                                          (void *)(uintptr_t)l, next, error);
    }
    by_string_free(&query);
    by_string_free(&text);
    return status;
}

by_status by__remote_list(by__remote_names *out, by__remote *remote, const char *url,
                          by_error *error)
{
    char shown[BY__REMOTE_SHOWN];
    by__remote_target target;
    by_string bucket = {0};
    char *next = NULL;
    if (!by__remote_is_s3(url)) {
        return by_error_set(error, BY_EARG,
                            "%s: a folder of a web server cannot be listed: name its files, or use "
                            "s3://BUCKET/FOLDER/",
                            by__remote_shown(shown, url));
    }
    key_list l = {.out = out, .remote = remote, .bucket = url + 5};
    l.bucket_size = strcspn(l.bucket, "/");
    const char *prefix = l.bucket + l.bucket_size + (l.bucket[l.bucket_size] == '/');
    by_string_format(&bucket, "s3://%.*s", (int)l.bucket_size, l.bucket);
    if (bucket.failed) {
        by_string_free(&bucket);
        return by_error_set(error, BY_EMEMORY, "out of memory: a URL");
    }
    by_status status = by__remote_target_make(&target, bucket.data, &remote->client.access, error);
    by_string_free(&bucket);
    BY_TRY(status);
    size_t before = out->count;
    do {
        status = list_page(&l, &target, url, prefix, &next, error);
    } while (status == BY_OK && next != NULL);
    free(next);
    by__remote_target_free(&target);
    if (status == BY_OK && out->count == before) {
        status = by_error_set(error, BY_EIO, "%s: nothing is there", by__remote_shown(shown, url));
    }
    if (status == BY_OK) {
        qsort(out->urls + before, out->count - before, sizeof *out->urls, compare_names);
    }
    return status;
}

void by__remote_names_free(by__remote_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        free(names->urls[i]);
    }
    free(names->urls);
    *names = (by__remote_names){0};
}
