/* Files with secrets, or what clients have said, that other users of the machine can read. */
#ifndef BY_SERVE_TELEMETRY_EXPOSED_FILE_H
#define BY_SERVE_TELEMETRY_EXPOSED_FILE_H

#include "serve/telemetry/log.h"

/* Logs `file_exposed` if users who are neither the file's owner nor of its group can read it: its
 * mode says so, and every directory above it lets them pass. holds: "the keys of clients". path may
 * be NULL or "". */
void by__telemetry_log_exposed(const by__telemetry_log *log, const char *path, const char *holds);
#endif
