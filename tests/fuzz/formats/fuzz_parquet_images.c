/* Parquet files with pictures: every picture lies within the file, or within a page of it that can
 * be decompressed, or the file is refused; the places of a column hold what its values are. */
#include <stdlib.h>
#include <string.h>

#include "formats/parquet.h"
#include "formats/shards/shard_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const by__format_shard_row by__format_shard_parquet_images;

static by_status take(void *user, const by__format_shard_sample *s, by_error *error)
{
    const by__format_shard *shard = user;
    BY_UNUSED(error);
    if (s->begin > shard->size || s->size > shard->size - s->begin ||
        s->page.begin > s->page.size || s->page.length > s->page.size - s->page.begin) {
        abort();
    }
    for (size_t i = 0; s->label != NULL && i < s->label_size; i++) {
        *(volatile char *)&(char){0} = s->label[i];
    }
    return BY_OK;
}

static by_status take_classes(void *user, const char *names, size_t size, by_error *error)
{
    BY_UNUSED(user);
    BY_UNUSED(error);
    if (size == 0 || names[size - 1] != '\0') {
        abort();
    }
    return BY_OK;
}

/* Compares a place with the value that is there. */
static void check_place(const by__format_parquet *file, const by__format_parquet_places *places,
                        size_t i, const by__format_parquet_values *values)
{
    const by__format_parquet_value *place = &places->values.items[i];
    const by__format_parquet_value *value = &values->items[i];
    uint64_t begin = place->as.offset & UINT32_MAX;
    by_error error;
    if (place->length != value->length) {
        abort();
    }
    if (place->length <= 0) {
        return;
    }
    const by__format_parquet_page_place *page =
        &places->pages[place->as.offset >> BY__PARQUET_PLACE_BITS];
    if (page->begin > file->size || page->stored > file->size - page->begin) {
        abort();
    }
    uint8_t *bytes = malloc((size_t)page->size);
    bool good = bytes != NULL;
    if (good && page->codec == 0) {
        memcpy(bytes, file->data + page->begin, (size_t)page->size);
    } else if (good) {
        good = by__format_parquet_decompress(page->codec, bytes, (size_t)page->size,
                                             file->data + page->begin, (size_t)page->stored, "f",
                                             &error) == BY_OK;
    }
    if (!good ||
        memcmp(bytes + begin, values->bytes + value->as.offset, (size_t)value->length) != 0) {
        abort();
    }
    free(bytes);
}

static void check_column(const by__format_parquet *file, size_t column, size_t group)
{
    enum { CHECKED = 64 };
    by_error error;
    by__format_parquet_values values = {0};
    by__format_parquet_places places = {0};
    bool read = by__format_parquet_read_group(file, column, group, &values, &error) == BY_OK;
    if (read != (by__format_parquet_read_places(file, column, group, &places, &error) == BY_OK) ||
        (read && values.count != places.values.count)) {
        abort();
    }
    for (size_t i = 0; i < values.count && i < CHECKED && read; i++) {
        check_place(file, &places, i, &values);
    }
    by__format_parquet_places_free(&places);
    by__format_parquet_values_free(&values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by__format_parquet file;
    by__format_shard shard = {.path = "f",
                              .data = data,
                              .size = size,
                              .image_field = "",
                              .label_field = "",
                              .take = take,
                              .classes = take_classes};
    shard.user = &shard;
    if (by__format_parquet_open(&file, "f", data, size, 100000, &error) == BY_OK) {
        for (size_t i = 0; i < file.groups * file.column_count; i++) {
            if (file.columns[i % file.column_count].kind == BY__PARQUET_TEXT &&
                file.columns[i % file.column_count].physical == 6) {
                check_column(&file, i % file.column_count, i / file.column_count);
            }
        }
        if (file.rows < 100000 && by__format_shard_parquet_images.is("f", data, size)) {
            (void)by__format_shard_parquet_images.read(&shard, &error);
        }
    }
    by__format_parquet_close(&file);
    return 0;
}
