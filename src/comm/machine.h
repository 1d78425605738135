/* machine - do two ranks run on one machine?
 *
 * A machine's boot id tells. "Cannot be read" is not "another one": a process without descriptors
 * gets an error, and where the kernel shows no boot id nobody is said to be elsewhere.
 */
#ifndef SHOALI_MACHINE_H
#define SHOALI_MACHINE_H

#include "base/error.h"

#include <stdbool.h>

enum { SHOALI_BOOT_BYTES = 40 };

/* The identity of this machine since its start, filled up with zeros; "" when the kernel shows none
 * (no /proc). SHOAL_EIO: it could not be read, such as for want of file descriptors. */
SHOAL_CHECKED shoal_status shoali_machine_read_boot(char boot[SHOALI_BOOT_BYTES]);
/* Both are known, and they differ. */
bool shoali_machine_differs(const char a[SHOALI_BOOT_BYTES], const char b[SHOALI_BOOT_BYTES]);
/* What to do against an errno of missing file descriptors, as the end of a sentence; "" for
 * others. */
const char *shoali_descriptor_advice(int code);

#endif
