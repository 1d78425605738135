/* pickle - what a pickle says, as a tree of values.
 *
 * A pickle is a list of instructions to a machine with a stack and a numbered memo. pickle.c is
 * that machine for protocols 2 to 5; protocols 0 and 1, which spell numbers out, are refused.
 * pickle_call.c knows what a few calls mean:
 *
 *   torch._utils._rebuild_tensor, _v2, _v3; _rebuild_parameter; torch._tensor._rebuild_from_type_v2
 *   torch.Size, collections.OrderedDict, defaultdict; set, frozenset, list, tuple, dict
 *   _codecs.encode (how Python 2's protocol carries bytes), bytearray
 *   numpy arrays and scalars of plain types
 *
 * Every other call, new object or state becomes SHOALI_VALUE_OBJECT: what would have been called,
 * with which arguments and state. Nothing is imported, nothing is called.
 *
 * A storage is where a tensor's elements lie: a name that torch.c turns into a place of the file.
 * Values of a file that makes them contain themselves do so here, too: who walks a tree marks what
 * he has seen. Numbers below 2^63 are integers; longer ones keep their bytes.
 *
 * Limits: 1 GiB of memory for all values, 1 million values on the stack, what a string or count
 * needs must be there before memory is taken for it.
 */
#ifndef SHOALI_PICKLE_H
#define SHOALI_PICKLE_H

#include "formats/formats.h"

#define SHOALI_PICKLE_MEMORY_MAX ((size_t)1 << 30)

enum shoali_value_kind {
    SHOALI_VALUE_NONE,
    SHOALI_VALUE_BOOL,
    SHOALI_VALUE_INT,
    SHOALI_VALUE_LONG, /* text: two's complement, lowest byte first */
    SHOALI_VALUE_FLOAT,
    SHOALI_VALUE_TEXT,  /* text: UTF-8 as far as the file keeps to it, NUL-terminated */
    SHOALI_VALUE_BYTES, /* text */
    SHOALI_VALUE_LIST,
    SHOALI_VALUE_TUPLE,
    SHOALI_VALUE_SET,
    SHOALI_VALUE_DICT,   /* list: key, value, key, value, ... */
    SHOALI_VALUE_GLOBAL, /* global */
    SHOALI_VALUE_OBJECT, /* type, list: arguments; items, state */
    SHOALI_VALUE_STORAGE,
    SHOALI_VALUE_TENSOR
};

/* Elements of one type behind each other, somewhere in the file. */
struct shoali_storage {
    const char *key;
    enum shoali_element type; /* SHOALI_ELEMENT_U8 where it has none of its own */
    bool untyped;
    int64_t count;               /* elements */
    int64_t view_offset;         /* where in the storage of that key it begins, in elements */
    int64_t at;                  /* byte of the file; -1: not known yet */
    struct shoali_storage *next; /* in the order of the file */
};

struct shoali_value {
    enum shoali_value_kind kind;
    int32_t seen;                     /* 1: its tensors were listed; 2: it was printed */
    int64_t at;                       /* byte of the file that made it */
    const struct shoali_value *type;  /* of an object: what was called */
    const struct shoali_value *state; /* what was set afterwards; NULL: nothing */
    struct shoali_value *items;       /* of an object: those put into it; NULL: none */
    union {
        bool truth;
        int64_t integer;
        double real;
        struct {
            const char *data;
            int64_t bytes;
        } text;
        struct {
            struct shoali_value **item;
            int64_t count, capacity;
        } list;
        struct {
            const char *module, *name;
        } global;
        struct shoali_storage *storage;
        struct {
            struct shoali_file_tensor *weight;
            struct shoali_storage *storage; /* NULL: weight->memory */
            int64_t first;                  /* of the storage's elements, or bytes if untyped */
        } tensor;
    } as;
};

/* What reading a pickle needs and gives; the arena holds all values. */
struct shoali_pickle {
    const struct shoali_input *input;
    struct shoali_arena *arena;
    int64_t begin, end; /* of the file: where it begins, where it must end by */
    int64_t stop;       /* the first byte behind it */
    struct shoali_value *root;
    struct shoali_storage *storage, *last_storage;
    struct shoali_value **global; /* each name once */
    int32_t global_count;
};
/* Reads one pickle. storages and globals are added to those that are there. */
SHOAL_CHECKED shoal_status shoali_pickle_read(struct shoali_pickle *pickle);

/* ---- looking at values; all take NULL as something else ------------------------------------- */

/* The value of a dict's last key of that text; of an object: of its state, if that is a dict, or of
 * what was set in it. NULL: none. */
const struct shoali_value *shoali_value_get(const struct shoali_value *value, const char *key);
/* Element i of a list or tuple; NULL. */
const struct shoali_value *shoali_value_at(const struct shoali_value *value, int64_t i);
bool shoali_value_is_sequence(const struct shoali_value *value); /* list, tuple, set */
/* Of a list, tuple, set; a dict's pairs; else 0. */
int64_t shoali_value_count(const struct shoali_value *value);
/* Booleans are integers too. False: it is none. */
bool shoali_value_int(const struct shoali_value *value, int64_t *integer);
/* Integers and one-element tensors are not reals, integers are. */
bool shoali_value_real(const struct shoali_value *value, double *real);
/* NULL: no text, or one with a NUL inside. */
const char *shoali_value_text(const struct shoali_value *value);
/* NULL: no tensor. */
const struct shoali_file_tensor *shoali_value_tensor(const struct shoali_value *value);
bool shoali_value_is_global(const struct shoali_value *value, const char *module, const char *name);

/* ---- between pickle.c, pickle_value.c and pickle_call.c ----------------------------------------------------- */

/* Zeroed memory; NULL and an error beyond the limit. */
void *shoali_pickle_alloc(struct shoali_pickle *pickle, int64_t bytes);
struct shoali_value *shoali_pickle_value(struct shoali_pickle *pickle, enum shoali_value_kind kind,
                                         int64_t at);
SHOAL_CHECKED shoal_status shoali_pickle_push_item(struct shoali_pickle *pickle,
                                                   struct shoali_value *list,
                                                   struct shoali_value *item);
/* MODULE.NAME. */
SHOAL_CHECKED shoal_status shoali_pickle_global(struct shoali_pickle *pickle, int64_t at,
                                                const char *module, const char *name,
                                                struct shoali_value **result);
/* What callee(arguments) is; arguments: a tuple. */
SHOAL_CHECKED shoal_status shoali_pickle_call(struct shoali_pickle *pickle, int64_t at,
                                              struct shoali_value *callee,
                                              struct shoali_value *arguments,
                                              struct shoali_value **result);
/* target.__setstate__(state), or its attributes. */
SHOAL_CHECKED shoal_status shoali_pickle_set_state(struct shoali_pickle *pickle, int64_t at,
                                                   struct shoali_value *target,
                                                   struct shoali_value *state);
/* A storage of a persistent id. */
SHOAL_CHECKED shoal_status shoali_pickle_storage(struct shoali_pickle *pickle, int64_t at,
                                                 const struct shoali_value *id,
                                                 struct shoali_value **result);

#endif
