/* stopped - what a training says that a signal has stopped: what is saved, what is lost, how it
 * goes on. */
#ifndef SHOALI_STOPPED_H
#define SHOALI_STOPPED_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHOALI_STOPPED_TAG_BYTES 256
#define SHOALI_STOPPED_BYTES 4800 /* of the sentence, with a folder's path */

struct shoali_stopped {
    const char *save; /* folder of the checkpoints, NULL: none */
    int64_t steps;    /* that are over, of the whole training; < 0: not known */
    bool handler;     /* --exit-signal-handler */
};

/* The tag that FOLDER/latest names, "": none. Returns its step, -1: the tag names none. A signal
 * handler may call it. */
int64_t shoali_latest_read(const char *save, char *tag, size_t bytes);

/* One sentence without an end of line: the newest checkpoint and the steps behind it that are lost,
 * and without the handler what would have saved them. True: no step is lost. A signal handler may
 * call it. */
bool shoali_stopped_format(const struct shoali_stopped *stopped, char *text, size_t bytes);

/* The words of this process, "": /proc does not tell. To be freed by shoali_str_fini. */
void shoali_own_arguments(struct shoali_str *words);

/* Is it --NAME or --NAME=..., - and _ being equal? What follows the name then stands at *rest. */
bool shoali_word_is_flag(const char *word, const char *name, const char **rest);

/* The command line, for a shell, that continues from the checkpoints of `save`: `words`, each ended
 * by a NUL, with --load SAVE in place of what the run began from. */
void shoali_continue_format(const struct shoali_str *words, const char *save,
                            struct shoali_str *out);

#endif
