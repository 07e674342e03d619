#include "formats/shards/tar_write.h"

#include <string.h>

enum { AT_MODE = 100, AT_SIZE = 124, AT_TIME = 136, AT_SUM = 148, AT_TYPE = 156, AT_MAGIC = 257 };

static void add_zeros(by_string *out, size_t count)
{
    static const char zeros[BY__TAR_BLOCK];
    for (; count > sizeof zeros; count -= sizeof zeros) {
        by_string_add(out, zeros, sizeof zeros);
    }
    by_string_add(out, zeros, count);
}

static void add_header(by_string *out, const char *name, uint64_t size, char type)
{
    char header[BY__TAR_BLOCK] = {0};
    unsigned sum = 0;
    (void)snprintf(header, AT_MODE, "%s", name);
    (void)snprintf(header + AT_MODE, 8, "%07o", 0644);
    (void)snprintf(header + 108, 8, "%07o", 0);
    (void)snprintf(header + 116, 8, "%07o", 0);
    (void)snprintf(header + AT_SIZE, 12, "%011llo", (unsigned long long)size);
    (void)snprintf(header + AT_TIME, 12, "%011o", 0);
    memset(header + AT_SUM, ' ', 8);
    header[AT_TYPE] = type;
    memcpy(header + AT_MAGIC,
           "ustar\0"
           "00",
           8);
    for (size_t i = 0; i < sizeof header; i++) {
        sum += (uint8_t)header[i];
    }
    (void)snprintf(header + AT_SUM, 7, "%06o", sum);
    by_string_add(out, header, sizeof header);
}

static uint64_t pages_of(uint64_t at, uint64_t size)
{
    return (at % BY__TAR_PAGE + size + BY__TAR_PAGE - 1) / BY__TAR_PAGE;
}

size_t by__format_tar_gap(uint64_t at, uint64_t size)
{
    uint64_t begin = at + BY__TAR_BLOCK;
    if (pages_of(begin, size) <= pages_of(0, size)) {
        return 0;
    }
    size_t gap = BY__TAR_PAGE - (size_t)(begin % BY__TAR_PAGE);
    return gap < 2 * BY__TAR_BLOCK ? gap + BY__TAR_PAGE : gap;
}

void by__format_tar_pad(by_string *out, size_t gap)
{
    char head[40];
    size_t size = gap - BY__TAR_BLOCK;
    int length = snprintf(head, sizeof head, "%zu comment=", size);
    add_header(out, "pad", size, 'x');
    by_string_add(out, head, (size_t)length);
    for (size_t i = (size_t)length; i < size - 1; i++) {
        by__string_append(out, "-");
    }
    by__string_append(out, "\n");
}

void by__format_tar_header(by_string *out, const char *name, uint64_t size)
{
    add_header(out, name, size, '0');
}

void by__format_tar_fill(by_string *out, uint64_t size)
{
    add_zeros(out, (size_t)((BY__TAR_BLOCK - size % BY__TAR_BLOCK) % BY__TAR_BLOCK));
}

void by__format_tar_member(by_string *out, const char *name, const void *data, size_t size)
{
    by__format_tar_header(out, name, size);
    by_string_add(out, data, size);
    by__format_tar_fill(out, size);
}
