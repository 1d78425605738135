/* write_advice - what the sentence about a failed write adds to the system's reason. */
#ifndef SHOALI_WRITE_ADVICE_H
#define SHOALI_WRITE_ADVICE_H

#include <errno.h>

/* What to do, behind the reason; "": nothing is known. */
static inline const char *shoali_write_advice(int error)
{
    if (error == ENOSPC || error == EDQUOT)
        return "; make room there, or write to another disk";
    if (error == EFBIG)
        return "; raise the limit of a file's size (ulimit -f)";
    return "";
}

#endif
