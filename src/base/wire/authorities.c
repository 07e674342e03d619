#include "base/wire/authorities.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"

/* OpenSSL's variable, then Debian and its kin, Fedora and RHEL, openSUSE, Alpine and the BSDs. */
const char *by__authorities(void)
{
    static const char *const usual[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                        "/etc/ssl/ca-bundle.pem",
                                        "/var/lib/ca-certificates/ca-bundle.pem",
                                        "/etc/ssl/cert.pem"};
    const char *set = getenv("SSL_CERT_FILE");
    if (set != NULL && set[0] != '\0') {
        return set;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(usual); i++) {
        if (access(usual[i], R_OK) == 0) {
            return usual[i];
        }
    }
    return NULL;
}
