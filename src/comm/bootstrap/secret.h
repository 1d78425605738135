/* secret - what the ranks of a job know and nobody else does.
 *
 * Found in this order:
 *   SHOAL_SECRET       a text of at least 16 characters. `shoal run` draws 32 random bytes for each
 *                      job and hands them to its ranks this way.
 *   SHOAL_SECRET_FILE  the path of a file that holds the text: a plain file of this user (or of
 *                      root) that nobody else may read.
 *   else               the file `secret` of this user's folder in /dev/shm (comm/folder.h), made by
 *                      whichever rank looks first: ranks of one user on one machine need nothing.
 * It is no secret among machines, so such a job meets on loopback alone. The text never enters a
 * message, a log line or a command line; the key is its BLAKE2b hash.
 *
 * Beside the key a job has a tag, a hash of its name: SHOAL_JOB_ID, or what torchrun, Slurm or PMIx
 * call the job, or a fixed word. The tag is no secret. It tells two jobs on one port apart before
 * either proves anything. docs/SECURITY.md says what all of this protects.
 */
#ifndef SHOALI_SECRET_H
#define SHOALI_SECRET_H

#include "base/base.h"

enum { SHOALI_KEY_BYTES = 32, SHOALI_JOB_TAG_BYTES = 16, SHOALI_SECRET_TEXT_BYTES = 65 };

struct shoali_credentials {
    unsigned char key[SHOALI_KEY_BYTES];
    unsigned char job[SHOALI_JOB_TAG_BYTES];
    bool this_machine; /* the key is of this machine's user, not of the job */
};

/* Of the calling process, from its environment. Wipe it after use. */
SHOAL_CHECKED shoal_status shoali_credentials_find(struct shoali_credentials *credentials);
void shoali_credentials_wipe(struct shoali_credentials *credentials);
/* A fresh secret: 64 hexadecimal digits. */
SHOAL_CHECKED shoal_status shoali_secret_draw(char text[SHOALI_SECRET_TEXT_BYTES]);
/* Random bytes of the system. */
SHOAL_CHECKED shoal_status shoali_random(void *bytes, size_t count);

#endif
