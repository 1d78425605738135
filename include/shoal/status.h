/* status.h - tells how every Shoal call reports success or failure.
 *
 * A call returns a `shoal_status`. 0 is success. A positive value is a normal outcome that is not
 * an error (end of data, in progress). A negative value is an error.
 *
 * The function that fails first sets the calling thread's last error: one sentence that says what
 * is wrong, where, and what to do. Each caller on the way out may add a frame. The error stays
 * until the next error of the same thread. The library never exits and never prints: the caller
 * prints the message.
 */
#ifndef SHOAL_STATUS_H
#define SHOAL_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SHOAL_CHECKED __attribute__((warn_unused_result))
#define SHOAL_PRINTF(format_index, first_arg) \
    __attribute__((format(printf, format_index, first_arg)))
#define SHOAL_API __attribute__((visibility("default")))
#else
#define SHOAL_CHECKED
#define SHOAL_PRINTF(format_index, first_arg)
#define SHOAL_API
#endif

/* Outcome of a call. Exit codes of the `shoal` program: 0 for >= 0. 2 for the user's mistakes
 * (SHOAL_EINVAL, SHOAL_ECONFIG, SHOAL_EUNSUPPORTED, SHOAL_ENOENT, SHOAL_EEXIST). 1 for everything
 * else. */
typedef enum shoal_status {
    SHOAL_OK = 0,
    SHOAL_IN_PROGRESS = 1, /* a request has not completed yet */
    SHOAL_END = 2,         /* no more data */
    SHOAL_SKIPPED = 3,     /* an optimizer step (overflow) or an evaluation was skipped */

    SHOAL_EINVAL = -1,        /* an argument is wrong; the text names it and what to pass */
    SHOAL_ECONFIG = -2,       /* a configuration key or flag is wrong */
    SHOAL_EUNSUPPORTED = -3,  /* known, but not supported in this combination */
    SHOAL_EIO = -4,           /* the operating system refused a file or network operation */
    SHOAL_ENOMEM = -5,        /* host, device or shared memory is exhausted */
    SHOAL_EPEER = -6,         /* another rank failed; the text names it */
    SHOAL_ETIMEOUT = -7,      /* a wait passed its deadline */
    SHOAL_EMISMATCH = -8,     /* ranks disagree on what they are doing */
    SHOAL_ENUMERIC = -9,      /* NaN, infinity or a value out of the representable range */
    SHOAL_ECORRUPT = -10,     /* stored data does not verify */
    SHOAL_EINTERRUPTED = -11, /* stopped by a signal or by shoal_engine_request_stop */
    SHOAL_EINTERNAL = -12,    /* a bug in Shoal */
    /* There is no such file, folder or checkpoint. Every other reason why it cannot be read has
     * another code. */
    SHOAL_ENOENT = -13,
    /* A save would replace a later step. */
    SHOAL_EEXIST = -14
} shoal_status;

/* Returns the name of a status, e.g. "SHOAL_EIO". Never NULL. Borrowed, static. */
SHOAL_API const char *shoal_status_name(shoal_status status);

/* Returns the text of the calling thread's last error, "" without one. Borrowed until the thread's
 * next error. */
SHOAL_API const char *shoal_error_message(void);

/* Returns the text of the calling thread's last error and its frames ("  at file:line call").
 * Borrowed until the thread's next error. */
SHOAL_API const char *shoal_error_trace(void);

/* Returns the exit code of the `shoal` program for a status: 0, 1 or 2. */
SHOAL_API int shoal_status_exit_code(shoal_status status);

#ifdef __cplusplus
}
#endif
#endif
