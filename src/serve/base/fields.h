/* Reads a JSON object from an untrusted sender by a table: each field has a kind and bounds, and a
 * field that is not in the table is an error. */
#ifndef BY_SERVE_BASE_FIELDS_H
#define BY_SERVE_BASE_FIELDS_H

#include "serve/base/serve.h"

typedef enum by__serve_field_kind {
    BY__FIELD_TEXT,    /* const char *, borrowed; at most `most` bytes */
    BY__FIELD_INTEGER, /* int64_t in least .. most */
    BY__FIELD_NUMBER,  /* double in least .. most */
    BY__FIELD_BOOL,    /* bool */
    BY__FIELD_ANY,     /* const json_t *, borrowed; checked by the caller */
    BY__FIELD_IGNORED  /* part of the API, but without effect here */
} by__serve_field_kind;

typedef struct by__serve_field {
    const char *name;
    by__serve_field_kind kind;
    /* offset in the record; the member keeps its value if the field is absent or null */
    size_t offset;
    double least;
    double most;
} by__serve_field;

/* Rows of a table; `record` is the type of the record, and `member` one of its members. */
#define BY__ANY(name, record, member)                                                              \
    {                                                                                              \
        name, BY__FIELD_ANY, offsetof(record, member), 0, 0                                        \
    }
#define BY__STRING(name, record, member, most)                                                     \
    {                                                                                              \
        name, BY__FIELD_TEXT, offsetof(record, member), 0, most                                    \
    }
#define BY__INTEGER(name, record, member, least, most)                                             \
    {                                                                                              \
        name, BY__FIELD_INTEGER, offsetof(record, member), least, most                             \
    }
#define BY__NUMBER(name, record, member, least, most)                                              \
    {                                                                                              \
        name, BY__FIELD_NUMBER, offsetof(record, member), least, most                              \
    }
#define BY__BOOL(name, record, member)                                                             \
    {                                                                                              \
        name, BY__FIELD_BOOL, offsetof(record, member), 0, 0                                       \
    }
#define BY__IGNORED(name)                                                                          \
    {                                                                                              \
        name, BY__FIELD_IGNORED, 0, 0, 0                                                           \
    }

/* Fills a record. BY_EARG with a sentence for the sender; *param (may be NULL) is then the field's
 * name in the table, or NULL for one that is not in it. */
by_status by__serve_fields_read(void *record, const by__serve_field *fields, size_t count,
                                const json_t *object, const char **param, by_error *error);

#endif
