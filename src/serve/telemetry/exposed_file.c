#include "serve/telemetry/exposed_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_exposed(const char *path, unsigned *mode)
{
    struct stat info;
    if (stat(path, &info) != 0 || (info.st_mode & S_IROTH) == 0) {
        return false;
    }
    *mode = info.st_mode & 07777;
    char *real = realpath(path, NULL);
    bool open = real != NULL;
    for (char *slash = open ? strrchr(real, '/') : NULL; open && slash != NULL && slash != real;
         slash = strrchr(real, '/')) {
        *slash = '\0';
        open = stat(real, &info) == 0 && (info.st_mode & S_IXOTH) != 0;
    }
    free(real);
    return open;
}

void by__telemetry_log_exposed(const by__telemetry_log *log, const char *path, const char *holds)
{
    unsigned mode;
    if (path != NULL && path[0] != '\0' && is_exposed(path, &mode)) {
        char text[8];
        (void)snprintf(text, sizeof text, "%04o", mode);
        by__telemetry_log_event(log, "file_exposed", "{ss ss ss ss}", "file", path, "mode", text,
                                "holds", holds, "reason",
                                "every user of this machine can read it: chmod o-rwx");
    }
}

void by_serve_log_exposed(const char *path, const char *holds, by_serve_log *log, void *user)
{
    const by__telemetry_log to = {log, user};
    by__telemetry_log_exposed(&to, path, holds);
}
