/* A job that a signal stops: the time that its ranks have, and what is said of their work. */
#include "launcher/run/run.h"

#include "base/log.h"
#include "base/stopped.h"

#include <string.h>

/* A save to a slow disk takes minutes; ranks that are ready sooner end sooner. */
enum { SAVE_GRACE_S = 600 };

bool shoali_program_saves_at_exit(const char *const *program)
{
    bool saves = false;
    const char *rest;
    for (; program && *program; program++) {
        if (shoali_word_is_flag(*program, "exit-signal-handler", &rest))
            saves = *rest != '=' || !shoali_parse_bool(rest + 1, &saves) || saves;
        else if (shoali_word_is_flag(*program, "no-exit-signal-handler", &rest))
            saves = false;
    }
    return saves;
}

int32_t shoali_grace_choose(const struct shoali_launch_options *options, const char *const *program)
{
    if (shoali_config_given(&shoali_launch_section, options, "grace_period"))
        return (int32_t)options->grace_period;
    return shoali_program_saves_at_exit(program) ? SAVE_GRACE_S : (int32_t)options->grace_period;
}

static bool has_word(const char *const *program, const char *word)
{
    while (*program && strcmp(*program, word) != 0)
        program++;
    return *program;
}

/* Whether this process' own words end with the program's: then they start the same job again. */
static bool starts_it(const struct shoali_str *own, const char *const *program)
{
    size_t length = 0, at = 0;
    for (const char *const *word = program; *word; word++)
        length += strlen(*word) + 1;
    if (length >= own->length)
        return false;
    for (const char *const *word = program; *word; at += strlen(*word++) + 1)
        if (strcmp(own->text + own->length - length + at, *word) != 0)
            return false;
    return true;
}

static void say_command(const char *const *program, const char *save)
{
    struct shoali_str own = {0}, line = {0};
    shoali_own_arguments(&own);
    if (!own.failed && starts_it(&own, program)) {
        shoali_continue_format(&own, save, &line);
        if (!line.failed)
            SHOALI_INFO("launcher", "to go on: %s", shoali_str_get(&line));
    }
    shoali_str_fini(&own);
    shoali_str_fini(&line);
}

/* What the ranks have shown last, else what the program's words say. True: it is `shoal pretrain`,
 * perhaps within a script. */
static bool read_ranks(const char *const *program, const struct shoali_rank_view *view,
                       int32_t ranks, struct shoali_stopped *stopped)
{
    bool pretrain = has_word(program, "pretrain");
    *stopped = (struct shoali_stopped){.save = shoali_program_flag(program, "save"),
                                       .steps = -1,
                                       .handler = shoali_program_saves_at_exit(program)};
    for (int32_t i = 0; view && i < ranks; i++) {
        const struct shoali_status_page_view *page = &view[i].page;
        if (!view[i].known)
            continue;
        if (page->steps > stopped->steps)
            stopped->steps = page->steps;
        if (page->stop == SHOALI_STOP_UNKNOWN)
            continue;
        pretrain = true;
        stopped->handler = page->stop == SHOALI_STOP_SAVES;
        stopped->save = page->save[0] ? page->save : NULL;
    }
    return pretrain;
}

void shoali_stop_report(const char *const *program, const struct shoali_rank_view *view,
                        int32_t ranks, bool well)
{
    char text[SHOALI_STOPPED_BYTES], tag[SHOALI_STOPPED_TAG_BYTES] = "";
    struct shoali_stopped stopped;
    const bool pretrain = read_ranks(program, view, ranks, &stopped);
    const int64_t saved = stopped.save ? shoali_latest_read(stopped.save, tag, sizeof(tag)) : -1;
    /* Ranks that have ended well have taken their pages with them: what was seen last may be
     * old. */
    if (well && stopped.handler && saved > stopped.steps)
        stopped.steps = saved;
    stopped.handler = stopped.handler || !pretrain;
    /* Programs of others save elsewhere, and ranks that have shown nothing have done nothing. */
    if (!*tag && (!pretrain || stopped.steps < 0))
        return;
    if (!shoali_stopped_format(&stopped, text, sizeof(text))) {
        SHOALI_ERROR("launcher", "%s", text);
        return;
    }
    SHOALI_INFO("launcher", "%s", text);
    if (stopped.steps > 0)
        say_command(program, stopped.save);
}
