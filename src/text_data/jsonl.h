/* jsonl - the texts in a record of JSON lines.
 *
 * A record is a line that is one JSON object (RFC 8259). Of the keys that are asked for each must
 * be there, once, and be a string or a list of strings; everything else is checked and passed over.
 * No value tree is made: a record costs a pass over its bytes and a copy of its texts.
 *
 * Stricter than some readers: text is UTF-8, escapes of surrogates come in pairs. More lenient than
 * base/json.h: numbers of any size, U+0000 in texts, keys twice among those that nobody asked for.
 */
#ifndef SHOALI_JSONL_H
#define SHOALI_JSONL_H

#include "base/base.h"

/* The strings of one key: one after the other in `text`, each up to its `end`. */
struct shoali_jsonl_value {
    char *text; /* owned */
    size_t bytes, capacity;
    size_t *end; /* owned; count of them */
    int32_t count, room;
    bool found;
};
/* Zero-initialise; set keys and key_count. One thread at a time. */
struct shoali_jsonl {
    const char *const *keys; /* borrowed */
    int32_t key_count;
    struct shoali_jsonl_value *value; /* owned: of each key, valid until the next record */
    char *name;                       /* owned: the key that is being read */
    size_t name_capacity;
};
void shoali_jsonl_fini(struct shoali_jsonl *jsonl);
/* Reads a record, without its newline. SHOAL_END: there is nothing but blanks. SHOAL_EINVAL:
 * "column
 * 7: ..." or "there is no key ..."; the caller says which line of which file. */
SHOAL_CHECKED shoal_status shoali_jsonl_read(struct shoali_jsonl *jsonl, const char *line,
                                             size_t bytes);
/* Whether a file's name says that it holds JSON lines, compressed or not. */
bool shoali_jsonl_is_name(const char *path);

#endif
