/* board_file - where the status pages of ranks (base/status_page.h) lie: one file per rank in this
 * user's folder of memory (folder.h), "shoal-JOB-board.RANK". JOB is SHOAL_JOB_ID, or without a
 * launcher names the process; the launcher of several hosts keeps copies of their ranks' status
 * pages under the same names with "copy" for "status page". A rank that ends well takes its file
 * away; what a killed one has left the launcher reads, and removes with the job's segments. Files
 * of processes that were killed without a launcher go when the next status page is opened.
 */
#ifndef SHOALI_STATUS_PAGE_FILE_H
#define SHOALI_STATUS_PAGE_FILE_H

#include "base/base.h"

enum { SHOALI_JOB_NAME_BYTES = 64, SHOALI_STATUS_PAGE_RANKS_MAX = 65536 };

/* Opens the calling thread's status page and puts it into its context; NULL when there is no place
 * for one, which is no error: nobody can look, and that is all. */
struct shoali_status_page *shoali_status_page_open(int32_t rank, int32_t world);
/* Takes it out of the context. `keep`: the file stays, for a launcher to read. */
void shoali_status_page_close(struct shoali_status_page *page, bool keep);

void shoali_status_page_unlink(const char *job, int32_t rank);

/* Another process' status page, for reading; NULL: there is none. `copy`: the launcher's. */
struct shoali_status_page *shoali_status_page_attach(const char *job, int32_t rank, bool copy);
/* A copy's own memory, made when it is not there. */
struct shoali_status_page *shoali_status_page_make_copy(const char *job, int32_t rank);
void shoali_status_page_detach(struct shoali_status_page *page);

/* Calls `found` for every status page of the folder; false ends the walk. */
typedef bool shoali_status_page_found(void *user, const char *job, int32_t rank, bool copy);
void shoali_status_pages_walk(shoali_status_page_found *found, void *user);

#endif
