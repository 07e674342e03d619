/* Removes passwords from the command line. */
#include <stdlib.h>
#include <string.h>

#include "serve/serving.h"

static bool hide(char *address)
{
    char password[BY_SERVE_PASSWORD_BYTES];
    bool hidden = by_serve_extract_password(address, password);
    if (hidden) {
        (void)setenv("BANYAN_REDIS_PASSWORD", password, 1);
    }
    explicit_bzero(password, sizeof password);
    return hidden;
}

bool cli_hide_password(const char *address, const cli_list *sets)
{
    static const char key[] = "broker.address=";
    /* The arguments of main may be modified. */
    bool hidden = false;
    if (address != NULL) {
        hidden = hide((char *)(uintptr_t)address);
    }
    for (size_t i = 0; sets != NULL && i < sets->count; i++) {
        char *text = (char *)(uintptr_t)sets->items[i];
        char *found = strncmp(text, key, sizeof key - 1) == 0 ? strstr(text, "redis://") : NULL;
        if (found != NULL) {
            hidden = hide(found) || hidden;
        }
    }
    return hidden;
}
