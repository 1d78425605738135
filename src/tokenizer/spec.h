/* spec - members of the JSON value of a tokenizer, read with sentences that name file and place. */
#ifndef SHOALI_TOKENIZER_SPEC_H
#define SHOALI_TOKENIZER_SPEC_H

#include "base/base.h"

struct json_t;
struct shoali_pipeline;
/* A value and where it stands. Members that are null count as absent. */
struct shoali_spec {
    const char *file;  /* "" for a text without a name */
    const char *place; /* "model.vocab"; "" for the whole */
    const struct json_t *json;
    struct shoali_arena *arena; /* of places, and of what the reader keeps */
    struct shoali_pipeline *pipeline;
};
/* SHOAL_ECONFIG, as "FILE: PLACE: sentence". */
shoal_status shoali_spec_fail(const struct shoali_spec *spec, const char *format, ...)
    SHOAL_PRINTF(2, 3);
/* Puts file and place before the sentence of a failure. */
shoal_status shoali_spec_prefix(const struct shoali_spec *spec, shoal_status status);
/* The member KEY; member->json NULL when there is none. Fails when `spec` is no object. */
SHOAL_CHECKED shoal_status shoali_spec_member(const struct shoali_spec *spec, const char *key,
                                              struct shoali_spec *member);
/* Element I of a list. */
SHOAL_CHECKED shoal_status shoali_spec_element(const struct shoali_spec *spec, size_t i,
                                               struct shoali_spec *element);
/* The members of an object or list. */
size_t shoali_spec_count(const struct shoali_spec *spec);
/* Texts are copied into the arena. `otherwise` NULL: the member is required. */
SHOAL_CHECKED shoal_status shoali_spec_text(const struct shoali_spec *spec, const char *key,
                                            const char *otherwise, const char **text);
/* As above; absent is NULL. */
SHOAL_CHECKED shoal_status shoali_spec_optional(const struct shoali_spec *spec, const char *key,
                                                const char **text);
SHOAL_CHECKED shoal_status shoali_spec_bool(const struct shoali_spec *spec, const char *key,
                                            bool otherwise, bool *value);
/* `otherwise` < min: the member is required. */
SHOAL_CHECKED shoal_status shoali_spec_int(const struct shoali_spec *spec, const char *key,
                                           int64_t otherwise, int64_t min, int64_t max,
                                           int64_t *value);
/* One character. */
SHOAL_CHECKED shoal_status shoali_spec_char(const struct shoali_spec *spec, const char *key,
                                            const char *otherwise, uint32_t *c);
/* The index of a word in a list that NULL ends; otherwise < 0: required. */
SHOAL_CHECKED shoal_status shoali_spec_choice(const struct shoali_spec *spec, const char *key,
                                              const char *const *choices, int otherwise,
                                              int *index);
/* A list, or an object, that must be there. */
SHOAL_CHECKED shoal_status shoali_spec_list(const struct shoali_spec *spec, const char *key,
                                            struct shoali_spec *list);
/* "base64" -> bytes of the arena. */
SHOAL_CHECKED shoal_status shoali_spec_base64(const struct shoali_spec *spec, const char *text,
                                              const char **data, size_t *bytes);
/* false: it is not base64. `out` has room for 3 bytes per 4 characters. */
bool shoali_base64(const char *text, size_t length, char *out, size_t *bytes);

#endif
