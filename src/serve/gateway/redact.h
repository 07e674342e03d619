/* What is taken out of texts before they are kept. */
#ifndef BY_SERVE_REDACT_H
#define BY_SERVE_REDACT_H

#include "serve/serve.h"

/* Adds a text in which e-mail addresses are "<email>", and runs of 7 digits or more (with spaces,
 * dots, hyphens, slashes and parentheses between them: numbers of phones, cards and accounts)
 * "<number>". */
void by__redact_text(by__text *out, const char *text, size_t length);
/* 16 hexadecimal digits that stand for a text: the same for the same text and salt, and of no use
 * without the salt (SHA-256 of both). */
void by__redact_hash(char out[17], const char *salt, const char *text, size_t length);

#endif
