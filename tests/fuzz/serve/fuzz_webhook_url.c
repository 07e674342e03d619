/* URLs of clients, origins, networks and secrets of a configuration: a line each. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "serve/gateway/tasks/webhook.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *lines[4] = {0};
    char path[64];
    by_error error = {0};
    by__gateway_webhook_rules *rules = NULL;
    char *text = malloc(size + 1);
    int file = memfd_create("secret", MFD_CLOEXEC);
    if (text == NULL || file < 0) {
        abort();
    }
    memcpy(text, data, size);
    text[size] = '\0';
    lines[0] = text;
    for (size_t i = 1; i < 4; i++) {
        char *end = strchr(lines[i - 1], '\n');
        lines[i] = end == NULL ? text + size : end + 1;
        if (end != NULL) {
            *end = '\0';
        }
    }
    if (write(file, lines[3], strlen(lines[3])) < 0) {
        abort();
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    by_serve_webhooks_config config = {.origins = {.items = &lines[1], .count = 1},
                                       .networks = {.items = &lines[2], .count = 1},
                                       .secret = path};
    if (by__gateway_webhook_rules_open(&rules, &config, &error) == BY_OK &&
        by__gateway_webhook_check_url(rules, lines[0], &error) == BY_OK &&
        (strncasecmp(lines[0], "http", 4) != 0 || strpbrk(lines[0], "\\ \t\r\n") != NULL)) {
        abort();
    }
    by__gateway_webhook_rules_close(&rules);
    close(file);
    free(text);
    return 0;
}
