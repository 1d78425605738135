/* config_internal - what the readers of config_table share: finding rows, taking values. */
#ifndef SHOALI_CONFIG_INTERNAL_H
#define SHOALI_CONFIG_INTERNAL_H

#include "base/config_table.h"

#include <jansson.h>

struct shoali_str;

/* A value on its way into a row, from one of three kinds of source. */
struct shoali_config_input {
    json_t *json;             /* borrowed; else NULL */
    const char *text;         /* a flag's or variable's value; else NULL */
    const char *const *words; /* a list flag's words */
    int32_t word_count;
};

/* Index of the row with this key or alias, -1 none. *by_alias (may be NULL) tells which. */
int32_t shoali_config_find(const struct shoali_section *section, const char *key, bool *by_alias);
void shoali_config_mark(const struct shoali_section *section, void *config, int32_t row);

/* Converts and checks the input and writes it at `member`; no row state is looked at. The sentence
 * begins with "must be". */
SHOAL_CHECKED shoal_status shoali_config_store(const struct shoali_option *row,
                                               const struct shoali_config_input *input,
                                               void *member, struct shoali_arena *arena);
SHOAL_CHECKED shoal_status shoali_config_store_default(const struct shoali_option *row,
                                                       void *member, struct shoali_arena *arena);
/* Does what the row's state says with an input; `shown` is the key's path or the flag, and begins
 * the sentence. Not for supported sections. */
SHOAL_CHECKED shoal_status shoali_config_take(const struct shoali_option *row, const char *shown,
                                              const struct shoali_config_input *input, void *config,
                                              struct shoali_arena *arena);
/* Whether a file mentions a key only to say that it is off: null, false, {}, or a section that is
 * not enabled. */
bool shoali_config_is_off(const json_t *value);
/* The text of the row's variable, NULL when it has none, or it is unset or empty. */
const char *shoali_config_env_text(const struct shoali_option *row);
/* Reads the variables of rows that were not given, nested sections too. */
SHOAL_CHECKED shoal_status shoali_config_read_env(const struct shoali_section *section,
                                                  void *config, struct shoali_arena *arena);
/* Appends "from 1 to 4", "at least 0", ... ; nothing for an unbounded row. */
void shoali_config_append_range(const struct shoali_option *row, struct shoali_str *out);
/* Appends `a`, `b` or `c`, with the given quote character. */
void shoali_config_append_choices(const struct shoali_option *row, char quote,
                                  struct shoali_str *out);
/* Appends a number in its shortest exact form. */
void shoali_config_append_number(double value, struct shoali_str *out);

#endif
