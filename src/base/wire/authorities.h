/* The certificates by which HTTPS servers are trusted. */
#ifndef BY_BASE_WIRE_AUTHORITIES_H
#define BY_BASE_WIRE_AUTHORITIES_H

/* Returns the PEM file of the certificate authorities that this host trusts: SSL_CERT_FILE, or the
 * first of the usual places that exists; NULL: none does. libcurl knows only the place of the
 * distribution that built it, and a bundle runs on others. */
const char *by__authorities(void);

#endif
