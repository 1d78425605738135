/* ucx - what the rest of comm, and `shoal report`, know of the backend ucx; backend.h explains
 * it. */
#ifndef SHOALI_UCX_UCX_H
#define SHOALI_UCX_UCX_H

#include "comm/comm.h"

/* "UCX 1.13.1" when the plug-in is there and loads, else "none". */
void shoali_ucx_list(char *text, size_t bytes);

#endif
