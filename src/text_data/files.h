/* files - the files of a text dataset: which there are, which were left out and why.
 *
 * A path that is given is read whatever it is called. Below a folder that is given links are
 * followed and hidden entries (.NAME) are left out. A file's name says whether it is JSON lines
 * (jsonl.h); everything else is text. A file that is JSON under another name is refused when it is
 * read (text.c), unless `data_text` says that it is meant as text.
 *
 *   files.c         the files of the arguments, and whether they have changed
 *   files_walk.c    folders
 *   files_report.c  the line, the list and the sentences for people
 */
#ifndef SHOALI_FILES_H
#define SHOALI_FILES_H

#include "base/base.h"
#include "shoal/data.h"

struct shoali_file {
    const char *path; /* arena */
    const char *name; /* below the path that was given; "" when it is that path */
    int64_t bytes, modified_ns, changed_ns;
    uint64_t inode;
    bool readable, compressed;
    const struct shoali_json_keys
        *records; /* JSON lines, and the keys of their texts; NULL: text */
};
struct shoali_json_keys {
    const char *const *key; /* borrowed */
    int32_t count;
};

/* Entries of folders that are no files of the dataset. */
enum shoali_left_kind {
    SHOALI_LEFT_HIDDEN,
    SHOALI_LEFT_LINK, /* it leads nowhere, or to what may not be looked at */
    SHOALI_LEFT_LOOP, /* a folder that it lies in */
    SHOALI_LEFT_UNREADABLE,
    SHOALI_LEFT_SPECIAL, /* a pipe, a socket, a device */
    SHOALI_LEFT_KINDS
};
struct shoali_left {
    enum shoali_left_kind kind;
    const char *path, *why; /* arena; why: the system's reason, or the folder of a loop */
};

struct shoali_files {
    struct shoali_arena arena;
    struct shoali_file *file;
    int32_t count;
    int64_t bytes;
    const char *first_path; /* as given; borrowed */
    int32_t path_count;     /* given */
    uint64_t given;         /* hash of the given paths, made absolute, of the keys and data_text */
    struct shoali_json_keys keys;
    bool data_text;           /* JSON under another name is taken as text */
    struct shoali_left *left; /* owned */
    size_t left_count, left_capacity;
};
/* All files of the arguments' paths, in order; `files` stays where it is. SHOAL_EINVAL: a path that
 * is none. */
SHOAL_CHECKED shoal_status shoali_files_find(const struct shoal_dataset_args *args,
                                             struct shoali_files *files);
void shoali_files_fini(struct shoali_files *files);
/* Differs as soon as a file was written, replaced, added, removed or became readable. Of a link the
 * file that it leads to counts. */
uint64_t shoali_files_state(const struct shoali_files *files);

/* files_walk.c. Growing list of paths; the names live in the arena of the files. */
struct shoali_path_list {
    const char **path;
    size_t count, capacity;
};
SHOAL_CHECKED shoal_status shoali_path_list_add(struct shoali_path_list *list, const char *path);
/* All files below `folder`, sorted by path. */
SHOAL_CHECKED shoal_status shoali_files_walk(struct shoali_files *files, const char *folder,
                                             struct shoali_path_list *list);

/* What became of a file of the dataset; a byte each in token files. */
enum shoali_verdict_of_file {
    SHOALI_FILE_READ = 0,
    SHOALI_FILE_EMPTY = 1,
    SHOALI_FILE_BINARY = 2,
    SHOALI_FILE_UNREADABLE = 3,
    SHOALI_FILE_VERDICTS
};
/* files_report.c: one line of how many files of which kind were read and skipped; with `each` a
 * line for each file before it. "" where there is nothing to say: one file, given by its name,
 * whose ending says what it is. *text is owned. */
SHOAL_CHECKED shoal_status shoali_files_report(const struct shoali_files *files,
                                               const unsigned char *verdicts, bool each,
                                               char **text);
/* Warns of links and folders that were left out; a sentence each. */
void shoali_files_warn(const struct shoali_files *files);

#endif
