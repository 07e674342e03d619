#include "pack_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/npy.h"

char *pack_put(const char *directory, const char *name, const char *text)
{
    by_error error = {0};
    char *path = by__path_join(directory, name);
    if (by__file_write(path, text, strlen(text), &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return path;
}

char *pack_join(const char *a, const char *b)
{
    char *path = by__path_join(a, b);
    assert_non_null(path);
    return path;
}

static void read_numbers(const char *directory, const char *file, const char *hash, unsigned width,
                         uint64_t count, uint64_t *out)
{
    by_error error = {0};
    by__map map;
    by__format_npy_info info;
    char found[33];
    char *path = pack_join(directory, file);
    assert_int_equal(by__map_open(&map, path, &error), BY_OK);
    assert_int_equal(by__format_npy_parse(&info, path, map.data, map.size, &error), BY_OK);
    assert_int_equal(info.width, width);
    assert_int_equal(info.count, count);
    by__hash128_hex(found, map.data + info.offset, map.size - info.offset);
    assert_string_equal(found, hash);
    for (uint64_t i = 0; i < count; i++) {
        out[i] = 0;
        memcpy(&out[i], map.data + info.offset + i * width, width);
    }
    by__map_close(&map);
    free(path);
}

packed_text pack_read(const char *directory)
{
    by_error error = {0};
    packed_text p;
    if (by__data_token_manifest_read(&p.manifest, directory, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    const by__data_token_manifest *m = &p.manifest;
    uint64_t *wide = calloc(m->tokens + 1, sizeof *wide);
    p.ids = calloc(m->tokens + 1, sizeof *p.ids);
    p.offsets = calloc(m->documents + 1, sizeof *p.offsets);
    assert_true(wide != NULL && p.ids != NULL && p.offsets != NULL);
    uint64_t at = 0;
    for (size_t i = 0; i < m->shard_count; i++) {
        read_numbers(directory, m->shards[i].file, m->shards[i].hash, m->width, m->shards[i].tokens,
                     wide + at);
        at += m->shards[i].tokens;
    }
    for (uint64_t i = 0; i < m->tokens; i++) {
        p.ids[i] = (uint32_t)wide[i];
    }
    free(wide);
    read_numbers(directory, m->offsets_file, m->offsets_hash, 8, m->documents + 1, p.offsets);
    assert_int_equal(p.offsets[0], 0);
    assert_int_equal(p.offsets[m->documents], m->tokens);
    return p;
}

void pack_free(packed_text *p)
{
    by__data_token_manifest_free(&p->manifest);
    free(p->ids);
    free(p->offsets);
}

void pack_run(const by_pack_options *options, by_pack_result *result)
{
    by_error error = {0};
    if (by_pack(options, result, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
}

void pack_make_large(const char *directory)
{
    by_error error = {0};
    char *corpus;
    size_t length;
    by_string text = {0};
    by_string lines = {0};
    by_string word = {0};
    for (uint32_t i = 0, random = 1; i < 300000; i++) {
        random = random * 1664525u + 1013904223u;
        by_string_format(&word, "%c", 'a' + (int)(random >> 28));
    }
    free(pack_put(directory, "a-word.txt", word.data));
    by_string_free(&word);
    assert_int_equal(by__file_read(&corpus, &length, CORPUS, 1 << 20, &error), BY_OK);
    for (unsigned i = 0; i < 200; i++) {
        by_string_add(&text, corpus, length);
        by__string_append(&lines, "{\"body\": ");
        by_string_json(&lines, corpus + i, length - 20 * i);
        by__string_append(&lines, "}\n");
    }
    free(pack_put(directory, "a.txt", text.data));
    free(pack_put(directory, "b.ndjson", lines.data));
    free(pack_put(directory, "c.txt", corpus));
    by_string_free(&text);
    by_string_free(&lines);
    free(corpus);
}

void pack_keep_note(void *user, const char *text)
{
    char *notes = user;
    (void)snprintf(notes + strlen(notes), 1000 - strlen(notes), "%s\n", text);
}
