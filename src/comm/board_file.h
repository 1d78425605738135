/* board_file - where the boards of ranks (base/board.h) lie: one file per rank in this user's folder
 * of memory (folder.h), "shoal-JOB-board.RANK". JOB is SHOAL_JOB_ID, or without a launcher names the
 * process; the launcher of several hosts keeps copies of their ranks' boards under the same names
 * with "copy" for "board". A rank that ends well takes its file away; what a killed one has left
 * the launcher reads, and removes with the job's segments. Files of processes that were killed
 * without a launcher go when the next board is opened.
 */
#ifndef SHOALI_BOARD_FILE_H
#define SHOALI_BOARD_FILE_H

#include "base/base.h"

enum { SHOALI_JOB_NAME_BYTES = 64, SHOALI_BOARD_RANKS_MAX = 65536 };

/* Opens the calling thread's board and puts it into its context; NULL when there is no place for
 * one, which is no error: nobody can look, and that is all. */
struct shoali_board *shoali_board_open(int32_t rank, int32_t world);
/* Takes it out of the context. `keep`: the file stays, for a launcher to read. */
void shoali_board_close(struct shoali_board *board, bool keep);

void shoali_board_unlink(const char *job, int32_t rank);

/* Another process' board, for reading; NULL: there is none. `copy`: the launcher's. */
struct shoali_board *shoali_board_attach(const char *job, int32_t rank, bool copy);
/* A copy's own memory, made when it is not there. */
struct shoali_board *shoali_board_make_copy(const char *job, int32_t rank);
void shoali_board_detach(struct shoali_board *board);

/* Calls `found` for every board of the folder; false ends the walk. */
typedef bool shoali_board_found(void *user, const char *job, int32_t rank, bool copy);
void shoali_boards_walk(shoali_board_found *found, void *user);

#endif
