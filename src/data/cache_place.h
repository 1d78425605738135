/* cache_place - where files that Shoal makes from the user's data are kept, and that one process
 * makes them while the others wait.
 *
 * Places, in the order in which they are tried: the folder that the user gave (--data-cache-path),
 * alone; else the folder .shoal-cache beside the data; where that may not be written a private one
 * ($XDG_CACHE_HOME/shoal or /var/tmp/shoal-UID).
 *
 * One process holds a lock (flock of a lock file, which dies with it), the others wait and say so
 * after a second. Whoever makes something touches the lock file now and then (its "beat"): a wait
 * fails only when there was none for ten minutes. File systems without locks are no error: then
 * several make the same thing under names of their own, and the last rename wins.
 *
 * Trust: a cached file counts only when it is a plain file that this user or root owns and that
 * nobody else can write.
 */
#ifndef SHOALI_CACHE_PLACE_H
#define SHOALI_CACHE_PLACE_H

#include "base/base.h"

#define SHOALI_CACHE_FOLDER ".shoal-cache"

enum shoali_place { SHOALI_PLACE_GIVEN, SHOALI_PLACE_BESIDE, SHOALI_PLACE_PRIVATE };
/* The first and the last place to try. */
static inline enum shoali_place shoali_place_first(const char *given)
{
    return given ? SHOALI_PLACE_GIVEN : SHOALI_PLACE_BESIDE;
}
static inline enum shoali_place shoali_place_last(const char *given)
{
    return given ? SHOALI_PLACE_GIVEN : SHOALI_PLACE_PRIVATE;
}

/* The folder of a place, for data of which `first` is the first path; `given` for PLACE_GIVEN. */
void shoali_place_name(enum shoali_place place, const char *given, const char *first,
                       struct shoali_str *folder);
/* Makes the folder. SHOAL_END: not here, try the next place. */
SHOAL_CHECKED shoal_status shoali_place_make(enum shoali_place place, const char *folder);
/* The status for errno of a file that could not be made there. SHOAL_END: try the next place. */
SHOAL_CHECKED shoal_status shoali_place_failed(enum shoali_place place, const char *folder);
/* A file whose owner we are, and that nobody else could have written. */
bool shoali_place_trusts(int descriptor, int64_t *bytes);
/* Makes a rename in it lasting, where the file system can. */
void shoali_place_sync(const char *folder);

struct shoali_cache_lock {
    const char *path; /* of the lock file; borrowed */
    const char *what; /* what is made under it, for people; borrowed */
    int descriptor;   /* -1: none */
    bool held;        /* false: there are no locks here */
};
/* Waits for the lock. SHOAL_END: the place may not be written. SHOAL_ETIMEOUT. */
SHOAL_CHECKED shoal_status shoali_cache_lock_take(struct shoali_cache_lock *lock,
                                                  enum shoali_place place, const char *folder);
/* Removes the lock file and lets go. */
void shoali_cache_lock_release(struct shoali_cache_lock *lock);

#endif
