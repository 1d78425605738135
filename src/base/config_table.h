/* config_table - options as tables: one row gives parsing, checks, environment, help, docs.
 *
 * A row describes one member of a plain struct. The same rows read a JSON section (a key of an
 * object), or command-line flags ("--num-layers 4" is key "num-layers", stored the same way). What
 * a reader does:
 *
 *   JSON    text -> comments stripped (// and slash-star, kept as blanks so that lines stay right)
 *           -> jansson with duplicates rejected. A duplicate, unknown, wrong-type or out-of-range
 *           key gives SHOAL_ECONFIG: "FILE:LINE: KEY.PATH: what is wrong; nearest key is `x`". The
 *           value string "auto" leaves the default, unless the row says what it means (auto_help).
 *           1e9 is an integer when integral. null is "not given". A required row refuses both.
 *   flags   "--key value" or "--key=value"; a bool row takes no value ("--key"), and with
 *           SHOALI_OPTION_NO_PREFIX also "--no-key". Abbreviations are refused. Unknown: nearest.
 *           The last of several wins. "--help [GROUP]", "-h [GROUP]" and "--help-all" make the
 *           parser return SHOAL_END. Behind "--" all words are free words. In a long name '-' and
 *           '_' are the same letter. A row that stands for other flags is replaced by them. A key
 *           that ends in '*' stands for all flags that begin so.
 *   env     rows with `env` take the variable's text when it is set, not empty, and the key is not
 *           given; it does not count as given, but satisfies a required row. Such a section needs
 *           given bits.
 *
 * A pending row may be given its default (a pending section: null, false, {} or "enabled": false);
 * anything else is SHOAL_EUNSUPPORTED. A key that begins with "_" or "//", or is "comment", is a
 * note. JSON's 0, 1, "true" and "false" are taken as a bool, "7" as a number, and a fraction of
 * elements is dropped, each with a warning.
 *
 * Which keys were given is kept in `given` bits (row index) so that two sources can be compared
 * and a default told from a value. Row order is help order.
 */
#ifndef SHOALI_CONFIG_TABLE_H
#define SHOALI_CONFIG_TABLE_H

#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum shoali_option_type {
    SHOALI_BOOL,    /* bool */
    SHOALI_INT,     /* int64_t */
    SHOALI_FLOAT,   /* double */
    SHOALI_STRING,  /* const char *, owned by the arena; default may be NULL */
    SHOALI_ENUM,    /* int32_t index into choices; case-insensitive */
    SHOALI_FLOATS,  /* struct shoali_floats (JSON list of numbers, or a,b,c) */
    SHOALI_INTS,    /* struct shoali_ints */
    SHOALI_STRINGS, /* struct shoali_strings: JSON list; flag: all following words up to the next
                       "--" */
    SHOALI_SECTION, /* nested struct described by `section`; JSON only */
    SHOALI_JSON,    /* json_t *, borrowed from the document; free-form objects */
};
enum shoali_option_state {
    SHOALI_SUPPORTED = 0,
    SHOALI_PENDING, /* known, not supported yet: giving another value than the default is an error
                       that says so */
    SHOALI_DEAD, /* dead upstream: giving it is an error that names the alternative (in `help`); a
                    file may have it where it is off (null, false, {}, enabled false) */
    SHOALI_NOEFFECT,  /* accepted, has no effect; a logged notice says why (in `help`) */
    SHOALI_ELSEWHERE, /* of something else: giving another value than the default is an error that
                         says of what (in `help`) */
    SHOALI_REPLACED,  /* flag: another spelling; the words in `becomes` take its place */
    SHOALI_RENAMED,   /* JSON: an older name of the row `instead`, whose member it has; a warning.
                       Without `instead` it has a member of its own, and the section's validate
                       says what it means */
    SHOALI_IDLE /* changes no result: another value than the default is accepted with a warning
                   that says what happens (in `help`) */
};
struct shoali_floats {
    double *value;
    int32_t count;
};
struct shoali_ints {
    int64_t *value;
    int32_t count;
};
struct shoali_strings {
    const char **value;
    int32_t count;
};

/* One of several tables that an object may be read by; which one, another key says. */
struct shoali_variant {
    const char *name; /* "adamw" */
    const struct shoali_section *section;
};

struct shoali_section;
struct shoali_option {
    const char *key; /* JSON key or flag without dashes */
    enum shoali_option_type type;
    size_t offset;                        /* of the member in the struct */
    double default_number;                /* bool, int, float, enum */
    const char *default_text;             /* string; for lists a text in flag form; NULL none */
    double min, max;                      /* inclusive range of numbers; both 0: unbounded */
    const char *const *choices;           /* enum: NULL-terminated */
    const struct shoali_section *section; /* nested table */
    /* JSON: for the documentation, the index-th table, in order of tables; false: no more */
    bool (*variant)(int32_t index, struct shoali_variant *variant);
    const char *alias;   /* second accepted key, NULL none; giving both is an error */
    const char *instead; /* renamed rows: the key of the same section that they stand for */
    const char *env;     /* variable that overrides the default, NULL none */
    const char *unit;    /* "elements", "bytes", "s"; NULL none */
    const char *help;    /* one sentence; for dead keys: the alternative */
    /* JSON, numbers: "auto" means auto_number, in words auto_help. NULL: it means the default, and
     * is no value of a required row. */
    const char *auto_help;
    double auto_number;
    enum shoali_option_state state;
    unsigned flags; /* SHOALI_OPTION_* */
    /* flag: its heading in the help, and the GROUP of --help GROUP; NULL: the section's own */
    const char *group;
    const char *see; /* pending flag: the page that says what to do instead; NULL none */
    /* replaced flag: words, in which $ is the flag's value */
    const char *becomes;
    const char *when; /* flag with a value: the row is about this value alone; NULL: any */
};
/* One of them, of a member of a struct; the other members follow. */
#define SHOALI_OPTION(struct_type, key_, type_, member, ...)                                      \
    {                                                                                             \
        .key = key_, .type = SHOALI_##type_, .offset = offsetof(struct_type, member), __VA_ARGS__ \
    }
#define SHOALI_OPTION_NO_PREFIX 1u   /* flag: "--no-key" sets false */
#define SHOALI_OPTION_REQUIRED 2u    /* must be given */
#define SHOALI_OPTION_HIDDEN 4u      /* not in --help */
#define SHOALI_OPTION_LIST 8u        /* JSON: a list of objects; only documented */
#define SHOALI_OPTION_NO_DEFAULT 16u /* what holds otherwise, `help` says */
#define SHOALI_OPTION_COMMON 32u     /* flag: in the short help, as are required ones */
#define SHOALI_OPTION_BY_RANK 64u    /* ranks of one job may have different values */
/* JSON: another value trains in another way; a run that continues says so */
#define SHOALI_OPTION_TRAINING 128u

struct shoali_section {
    const char *name; /* "zero_optimization" */
    const char *help;
    const char *instead;  /* flags, optional: what a user can give in place of required ones */
    const char *bare_key; /* JSON, optional: `true` in place of the section gives this key 1 */
    const struct shoali_option *rows;
    int32_t row_count;
    size_t struct_bytes;
    size_t given_offset; /* of a `uint64_t given[SHOALI_GIVEN_WORDS]` member; SIZE_MAX none */
    /* optional: checks that involve several keys; a JSON path prefix is added to its message */
    shoal_status (*validate)(void *config);
};
#define SHOALI_GIVEN_WORDS 4 /* up to 256 rows */
/* .rows = SHOALI_ROWS(array): sets row_count too. */
#define SHOALI_ROWS(array) (array), (int32_t)(sizeof(array) / sizeof((array)[0]))

/* Zeroes the struct and writes every default (recursively); lists and strings go to the arena. Rows
 * that are not supported need no member. */
SHOAL_CHECKED shoal_status shoali_config_defaults(const struct shoali_section *section,
                                                  void *config, struct shoali_arena *arena);
bool shoali_config_given(const struct shoali_section *section, const void *config, const char *key);

/* A parsed JSON text that can tell lines. */
struct shoali_json;
struct json_t;
SHOAL_CHECKED shoal_status shoali_json_parse(const char *text, size_t bytes, const char *file_name,
                                             struct shoali_json **document);
SHOAL_CHECKED shoal_status shoali_json_load(const char *path, struct shoali_json **document);
/* The same of a configuration that people write, which may be Hjson (config_hjson.c). */
SHOAL_CHECKED shoal_status shoali_json_load_config(const char *path, struct shoali_json **document);
/* DIR/NAME as an object, owned (json_decref); *object is NULL where there is no such file. */
SHOAL_CHECKED shoal_status shoali_json_load_object(const char *dir, const char *name,
                                                   struct json_t **object);
void shoali_json_close(struct shoali_json *document);
struct json_t *shoali_json_root(struct shoali_json *document); /* borrowed */
/* 1-based line of a key path ("optimizer.params.lr"), 0 unknown. */
int32_t shoali_json_line(const struct shoali_json *document, const char *path);
/* The document was made from the file `original` (transferred) and from flags: messages name that
 * file and its lines; a key that it does not have is said to come from the command line. */
void shoali_json_set_origin(struct shoali_json *document, struct shoali_json *original);
/* Puts where the key path stands before the status' sentence: "FILE:LINE: ". "" is the root. */
shoal_status shoali_json_locate(const struct shoali_json *document, const char *path,
                                shoal_status status);

/* Reads the object at `path` ("" = root; "groups.0" is the first of a list) into config, which has
 * its defaults. A missing object leaves the defaults. Strings go to the arena; SHOALI_JSON members
 * borrow from the document. */
SHOAL_CHECKED shoal_status shoali_config_read_json(const struct shoali_section *section,
                                                   struct shoali_json *document, const char *path,
                                                   void *config, struct shoali_arena *arena);

/* One command's flags may come from several tables. */
struct shoali_flags {
    const struct shoali_section *section;
    void *config;
};
/* What --help asks for: neither member is set: the short help. */
struct shoali_help {
    bool all;          /* --help-all */
    const char *group; /* --help GROUP: borrowed from argv; NULL: not given */
};
/* Parses argv[1..]; words that do not begin with "--" are collected in `rest` (borrowed from argv)
 * if `rest` is given, else they are an error. With stop_at_word, parsing ends at the first such
 * word and rest holds it and all that follows (the launcher's way). Short names: alias "H" = "-H".
 */
struct shoali_flag_args {
    const char *command; /* "shoal pretrain gpt", for messages */
    const struct shoali_flags *tables;
    int32_t table_count;
    bool stop_at_word;
    /* Groups of the short help, in this order, then NULL. The full help has the others behind them.
     * NULL: all groups, in the order of the rows. */
    const char *const *groups;
    struct shoali_help *help; /* written where SHOAL_END is returned; NULL: not wanted */
};
/* Whether a flag's name is the key of a row: '-' and '_' are the same letter, and a key may end in
 * '*', which stands for any letters. */
bool shoali_flags_same_name(const char *key, const char *name);
SHOAL_CHECKED shoal_status shoali_flags_parse(const struct shoali_flag_args *args, int argc,
                                              char *const *argv, struct shoali_arena *arena,
                                              struct shoali_strings *rest);
/* Appends the flags that args->help asks for (NULL: the short help), by groups, in lines of at most
 * 100 columns. The short help has the common and the required flags, without their ranges, and ends
 * with the names of the groups; of tables with few flags it is the full help. SHOAL_ECONFIG names
 * the groups when there is none of that name. */
struct shoali_str;
SHOAL_CHECKED shoal_status shoali_flags_help(const struct shoali_flag_args *args,
                                             struct shoali_str *out);
/* Calls `visit` with the path ("optimizer.params.lr") and the value as text of everything that all
 * ranks of a job must have alike: supported rows, nested ones too, without SHOALI_OPTION_BY_RANK.
 * `only`: rows with one of these SHOALI_OPTION_* alone, in any section; 0: all. `path` is what
 * stands in front, "" nothing. The text is good during the call. SHOAL_ENOMEM: at least one text
 * was not complete. */
SHOAL_CHECKED shoal_status shoali_config_visit(
    const struct shoali_section *section, const void *config, const char *path, unsigned only,
    void (*visit)(void *user, const char *path, const char *value), void *user);
/* Markdown table of a section's JSON keys, recursively, and of the variants of its objects:
 * docs/CONFIG.md is made of these. `path` "": the section's name is the heading. */
void shoali_config_markdown(const struct shoali_section *section, const char *path,
                            struct shoali_str *out);

#endif
