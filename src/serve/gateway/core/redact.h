/* Removes personal data from texts before they are kept. */
#ifndef BY_SERVE_GATEWAY_CORE_REDACT_H
#define BY_SERVE_GATEWAY_CORE_REDACT_H

#include "serve/base/serve.h"

/* Appends a text with e-mail addresses replaced by "<email>", and runs of 7 or more digits
 * (possibly separated by spaces, dots, hyphens, slashes and parentheses: phone, card and account
 * numbers) by "<number>". */
void by__gateway_redact_text(by_string *out, const char *text, size_t length);
/* Replaces a text by 16 hexadecimal digits: equal for equal text and salt, and useless without the
 * salt (SHA-256 of both). */
void by__gateway_redact_hash(char out[17], const char *salt, const char *text, size_t length);

#endif
