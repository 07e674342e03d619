/* URLs as messages show them: without what lets their reader in (url_hide.c). */
#ifndef BY_BASE_WIRE_URL_HIDE_H
#define BY_BASE_WIRE_URL_HIDE_H

/* Takes users, passwords, queries and fragments out of all URLs of a text (http, https, s3), in
 * place: a signature is in a query. The key of an object of S3 may have any character, and stays.
 */
void by__url_hide(char *text);

#endif
