/* Signals that ask a run to save, to stop, or that end it, and what it says then. Under `shoal run`
 * the launcher says it, for all ranks. */
#include "pretrain/pretrain.h"

#include "base/started.h"
#include "base/status_page.h"
#include "base/stopped.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Two SIGINT within this time are one that came on two ways (mpirun's group, and passed on). */
#define ONE_NS INT64_C(100000000)
#define ADVICE_BYTES (SHOALI_STOPPED_BYTES + 256)

/* The engine that a signal is for; NULL: none yet, or no more. */
static shoal_engine *volatile signalled_engine;
static volatile sig_atomic_t early_save;
static volatile sig_atomic_t stop_signal; /* the first that asked the run to stop, 0: none */
static volatile int64_t interrupt_ns;     /* of the first SIGINT, 0: none came */
static bool speaks;                       /* this rank does, and no launcher */
static char save_folder[4096];

static const char *name_of(int number)
{
    return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGHUP";
}

/* The progress line of a terminal is left as it is. */
static void put(const char *const *pieces)
{
    char text[ADVICE_BYTES];
    size_t used = 0;
    if (isatty(STDERR_FILENO))
        text[used++] = '\n';
    for (; *pieces; pieces++) {
        const size_t length = strnlen(*pieces, sizeof text - used - 1);
        memcpy(text + used, *pieces, length);
        used += length;
    }
    text[used++] = '\n';
    (void)!write(STDERR_FILENO, text, used);
}

static void end_by(int number)
{
    signal(number, SIG_DFL);
    raise(number);
}

/* Without --exit-signal-handler, and before there is anything to save. */
static void on_end(int number)
{
    char text[SHOALI_STOPPED_BYTES];
    const shoal_engine *engine = signalled_engine;
    const struct shoali_stopped stopped = {.save = *save_folder ? save_folder : NULL,
                                           .steps = engine ? shoal_engine_global_steps(engine) : 0};
    (void)shoali_stopped_format(&stopped, text, sizeof text);
    put((const char *const[]){"shoal pretrain: ended by ", name_of(number), "; ", text, NULL});
    end_by(number);
}

/* A signal handler may look at the clock. */
static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void on_stop(int number)
{
    shoal_engine *engine = signalled_engine;
    const int64_t now_ns = clock_ns();
    if (number == SIGINT && interrupt_ns && now_ns - interrupt_ns > ONE_NS) {
        if (speaks)
            put((const char *const[]){"shoal pretrain: ended by a second SIGINT, without a save",
                                      NULL});
        end_by(number);
        return;
    }
    if (number == SIGINT && !interrupt_ns)
        interrupt_ns = now_ns;
    if (engine)
        shoal_engine_request_stop(engine);
    if (stop_signal)
        return;
    stop_signal = number;
    if (speaks)
        put((const char *const[]){"shoal pretrain: ", name_of(number),
                                  ": the run finishes its step", *save_folder ? " and saves" : "",
                                  "; a second Ctrl-C ends it at once", NULL});
}

static void on_save(int number)
{
    (void)number;
    if (signalled_engine)
        shoal_engine_request_save(signalled_engine);
    else
        early_save = 1;
}

/* One that is ignored (nohup, a shell's background command) stays so. */
static void take(int number, void (*handler)(int))
{
    struct sigaction action;
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
        signal(number, handler);
}

void pretrain_expect_signals(void)
{
    const char *job = getenv("SHOAL_JOB_ID");
    const bool launched = job && *job;
    const struct shoali_started started = shoali_started_get();
    signal(SIGUSR1, on_save);
    speaks = !launched && started.rank <= 0;
    if (speaks && started.size <= 1) {
        take(SIGINT, on_end);
        take(SIGTERM, on_end);
    }
}

void pretrain_take_signals(const struct pretrain *run)
{
    const char *save = run->options.save;
    if (save && strlen(save) < sizeof save_folder)
        memcpy(save_folder, save, strlen(save) + 1);
    signalled_engine = run->engine;
    shoali_status_page_say_stop(
        shoali_status_page_get(),
        run->options.exit_signal_handler ? SHOALI_STOP_SAVES : SHOALI_STOP_ENDS, save);
    if (early_save)
        shoal_engine_request_save(run->engine);
    if (!run->options.exit_signal_handler)
        return;
    signal(SIGTERM, on_stop);
    take(SIGINT, on_stop);
    take(SIGHUP, on_stop);
}

void pretrain_drop_signals(void)
{
    signalled_engine = NULL;
}

void pretrain_say_stopped(const struct pretrain *run)
{
    char text[SHOALI_STOPPED_BYTES];
    struct shoali_str own = {0}, line = {0};
    const struct shoali_stopped stopped = {.save = run->options.save,
                                           .steps = shoal_engine_global_steps(run->engine),
                                           .handler = true};
    if (!stop_signal || !speaks)
        return;
    const bool saved = shoali_stopped_format(&stopped, text, sizeof text) && stopped.save;
    shoali_own_arguments(&own);
    if (saved && own.length > 0) {
        shoali_str_append(&line, "; to go on: ");
        shoali_continue_format(&own, stopped.save, &line);
    }
    fprintf(stderr, "shoal pretrain: stopped by %s; %s%s\n", name_of(stop_signal), text,
            line.failed ? "" : shoali_str_get(&line));
    shoali_str_fini(&own);
    shoali_str_fini(&line);
}
