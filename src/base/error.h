/* error - where an error begins and how it travels.
 *
 * The failing place calls SHOAL_FAIL(code, "sentence", ...), which sets the thread's last error and
 * evaluates to the code. Callers use SHOAL_TRY(status, call, done): on a negative status it adds a
 * frame and jumps to the one `done:` label of the function. SHOAL_ASSERT is for our bugs only.
 *
 * The thread's context {rank, step, scope} is set by whoever owns the thread (comm sets rank,
 * engine step, autograd scope); messages are prefixed by nothing, but logs and `comm/wrap/check`
 * read it. Pool workers inherit the context of the thread that runs the pool.
 */
#ifndef SHOALI_ERROR_H
#define SHOALI_ERROR_H

#include "shoal/status.h"

#include <stdint.h>

/* A place in the source. Public collectives pass SHOAL_HERE so that `check` can name it. */
#define SHOALI_STRINGIFY2(x) #x
#define SHOALI_STRINGIFY(x) SHOALI_STRINGIFY2(x)
#define SHOALI_HERE __FILE__ ":" SHOALI_STRINGIFY(__LINE__)

/* Sets the thread's last error: code, place, sentence. Returns `code`. */
shoal_status shoali_fail(const char *here, shoal_status code, const char *format, ...)
    SHOAL_PRINTF(3, 4);
/* Appends a frame to the last error. */
void shoali_error_frame(const char *here, const char *call);
/* Prefixes the sentence of the last error: "prefix: sentence". For context that only the caller
 * knows (the file name, the rank). Returns `code` unchanged. */
shoal_status shoali_error_prefix(shoal_status code, const char *format, ...) SHOAL_PRINTF(2, 3);
/* Clears the last error of the calling thread. */
void shoali_error_clear(void);
/* A call site without the build machine's folders; in less than `bytes` its last whole parts. */
const char *shoali_here_end(const char *here, size_t bytes);
void shoali_assert_failed(const char *here, const char *condition) __attribute__((noreturn));

#define SHOAL_FAIL(code, ...) shoali_fail(SHOALI_HERE, (code), __VA_ARGS__)
#define SHOAL_TRY(status, call, done)               \
    do {                                            \
        (status) = (call);                          \
        if ((status) < 0) {                         \
            shoali_error_frame(SHOALI_HERE, #call); \
            goto done;                              \
        }                                           \
    } while (0)
#define SHOAL_ASSERT(condition) \
    ((condition) ? (void)0 : shoali_assert_failed(SHOALI_HERE, #condition))

/* What the calling thread is doing, for logs, `check` and messages. */
struct shoali_logger;
struct shoali_status_page;
struct shoali_context {
    int32_t rank;                 /* global rank, 0 without a group */
    int32_t world;                /* number of ranks, 1 without a group */
    int64_t step;                 /* optimizer step, 0-based; -1 outside a step */
    const char *scope;            /* path of the innermost open scope, "" outside; borrowed */
    const char *instruction;      /* of a pipeline's list, "send_gradient"; NULL: none; borrowed */
    int64_t micro;                /* its micro-batch, by number in the step; -1: none */
    struct shoali_logger *logger; /* NULL: the default sink (standard error, level info) */
    struct shoali_status_page
        *page; /* where the rank says what it does (status_page.h); NULL: nowhere */
};
/* Borrowed, never NULL: the calling thread's context, writable. */
struct shoali_context *shoali_context_get(void);

#endif
