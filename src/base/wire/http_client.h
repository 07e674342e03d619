/* http_client: the options of libcurl that all requests to HTTP servers share. */
#ifndef BY_BASE_WIRE_HTTP_CLIENT_H
#define BY_BASE_WIRE_HTTP_CLIENT_H

#include <curl/curl.h>
#include <stdbool.h>

/* Only http and https are spoken, no signal is used, and closing `curl` does not wait for a name
 * server that does not respond (libcurl 7.87 and newer). */
static inline bool by__http_client_prepare(CURL *curl)
{
    bool good = curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) == CURLE_OK;
#if LIBCURL_VERSION_NUM >= 0x075500
    good = good && curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
#else
    good = good && curl_easy_setopt(curl, CURLOPT_PROTOCOLS,
                                    (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS)) == CURLE_OK;
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
    good = good && curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK;
#endif
    return good;
}

#endif
