/* Whether a test runs with a sanitizer. AddressSanitizer keeps freed memory: the process grows by
 * what it keeps, and plans that count the process grow with it. */
#ifndef BY_TESTS_SANITIZER_H
#define BY_TESTS_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__)
#define BY_TESTS_KEEPS_FREED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BY_TESTS_KEEPS_FREED 1
#endif
#endif
#ifndef BY_TESTS_KEEPS_FREED
#define BY_TESTS_KEEPS_FREED 0
#endif

#if defined(__SANITIZE_THREAD__)
#define BY_TESTS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BY_TESTS_SANITIZED 1
#endif
#endif
#ifndef BY_TESTS_SANITIZED
#define BY_TESTS_SANITIZED BY_TESTS_KEEPS_FREED
#endif

#endif
