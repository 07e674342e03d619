#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cli.h"

/* Bytes that tell a format. */
enum { HEAD = 8 };

static const struct {
    const char *magic;
    const char *ending;
} formats[] = {{"PAR1", ".parquet"},
               {"{", ".jsonl"},
               {"\x89PNG", ".png"},
               {"\xff\xd8\xff", ".jpg"},
               {"\x93NUMPY", ".npy"},
               {"\x1f\x8b", ".gz"},
               {"\x28\xb5\x2f\xfd", ".zst"},
               {"RIFF", ".webp"},
               {"BM", ".bmp"},
               {"", ".csv"}};

static const char *ending_of(const char head[HEAD], size_t length)
{
    size_t i = 0;
    while (strlen(formats[i].magic) > length ||
           memcmp(head, formats[i].magic, strlen(formats[i].magic)) != 0) {
        i++;
    }
    return formats[i].ending;
}

static by_status copy_rest(FILE *out, const char *head, size_t length, by_error *error)
{
    char buffer[65536];
    bool good = fwrite(head, 1, length, out) == length;
    for (size_t n; good && (n = fread(buffer, 1, sizeof buffer, stdin)) > 0;) {
        good = fwrite(buffer, 1, n, out) == n;
    }
    good = fflush(out) == 0 && good && ferror(stdin) == 0;
    return good ? BY_OK
                : by_error_set(error, BY_EIO, "cannot keep standard input in a file: %s",
                               strerror(errno));
}

by_status cli_spool_open(cli_spool *out, const char *path, by_error *error)
{
    char head[HEAD];
    *out = (cli_spool){.path = path};
    if (strcmp(path, "-") != 0) {
        return BY_OK;
    }
    size_t length = fread(head, 1, sizeof head, stdin);
    const char *ending = ending_of(head, length);
    const char *folder = getenv("TMPDIR");
    (void)snprintf(out->file, sizeof out->file, "%s/standard-input-XXXXXX%s",
                   folder == NULL || folder[0] == '\0' ? "/tmp" : folder, ending);
    int fd = mkstemps(out->file, (int)strlen(ending));
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (file == NULL) {
        by_status status = by_error_set(error, BY_EIO, "cannot keep standard input in %s: %s",
                                        out->file, strerror(errno));
        if (fd >= 0) {
            (void)close(fd);
        } else {
            out->file[0] = '\0';
        }
        cli_spool_close(out);
        return status;
    }
    by_status status = copy_rest(file, head, length, error);
    (void)fclose(file);
    out->path = out->file;
    if (status != BY_OK) {
        cli_spool_close(out);
    }
    return status;
}

void cli_spool_close(cli_spool *spool)
{
    if (spool->file[0] != '\0') {
        (void)unlink(spool->file);
    }
    spool->file[0] = '\0';
}
