#include "base/stopped.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- a sentence, by calls that a signal handler may make --------------------------- */
struct line {
    char *text;
    size_t used, bytes;
};

static void add(struct line *line, const char *word)
{
    for (; *word && line->used + 1 < line->bytes; word++)
        line->text[line->used++] = *word;
    line->text[line->used] = '\0';
}

static void add_number(struct line *line, int64_t number)
{
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do
        digits[--at] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    add(line, digits + at);
}

static void add_steps(struct line *line, int64_t steps)
{
    add_number(line, steps);
    add(line, steps == 1 ? " step is lost" : " steps are lost");
}

/* "global_step12": 12 */
static int64_t step_of(const char *tag)
{
    static const char prefix[] = "global_step";
    int64_t step = 0;
    if (strncmp(tag, prefix, sizeof prefix - 1) != 0 || !tag[sizeof prefix - 1])
        return -1;
    for (const char *at = tag + sizeof prefix - 1; *at; at++) {
        if (*at < '0' || *at > '9' || step > INT64_MAX / 100)
            return -1;
        step = step * 10 + (*at - '0');
    }
    return step;
}

int64_t shoali_latest_read(const char *save, char *tag, size_t bytes)
{
    char path[4200];
    struct line line = {.text = path, .bytes = sizeof path};
    *tag = '\0';
    add(&line, save);
    add(&line, "/latest");
    shoali_first_line(path, tag, bytes);
    return step_of(tag);
}

static void add_advice(struct line *line, const struct shoali_stopped *stopped)
{
    if (!stopped->save)
        add(line, stopped->handler ? "; with --save DIR, too, Ctrl-C finishes the step and saves"
                                   : "; with --save DIR --exit-signal-handler Ctrl-C finishes the "
                                     "step and saves");
    else if (!stopped->handler)
        add(line, "; with --exit-signal-handler Ctrl-C finishes the step and saves");
}

bool shoali_stopped_format(const struct shoali_stopped *stopped, char *text, size_t bytes)
{
    char tag[SHOALI_STOPPED_TAG_BYTES] = "";
    struct line line = {.text = text, .bytes = bytes};
    const int64_t steps = stopped->steps;
    const int64_t saved = stopped->save ? shoali_latest_read(stopped->save, tag, sizeof tag) : -1;
    /* One of a later step is of another run. */
    const bool own = saved >= 0 && (steps < 0 || saved <= steps);
    *text = '\0';
    if (*tag) {
        add(&line, steps >= 0 && saved == steps ? "saved: " : "the newest checkpoint is ");
        add(&line, stopped->save);
        add(&line, "/");
        add(&line, tag);
        if (steps >= 0 && saved == steps)
            return true;
        add(&line, own || steps <= 0 ? ": " : ", of another run: ");
    } else {
        add(&line, steps == 0 ? "no step was finished: nothing is lost" : "nothing is saved: ");
    }
    if (steps > 0)
        add_steps(&line, own ? steps - saved : steps);
    else if (steps < 0)
        add(&line, "the steps behind it are lost");
    else if (*tag)
        add(&line, "no step was finished, none is lost");
    if (steps != 0)
        add_advice(&line, stopped);
    return steps == 0;
}

/* ---- the command ---------------------------------------------------------------------------- */
void shoali_own_arguments(struct shoali_str *words)
{
    char piece[4096];
    ssize_t count;
    const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    while ((count = read(file, piece, sizeof piece)) > 0 || (count < 0 && errno == EINTR))
        if (count > 0)
            shoali_str_append_bytes(words, piece, (size_t)count);
    close(file);
}

bool shoali_word_is_flag(const char *word, const char *name, const char **rest)
{
    if (strncmp(word, "--", 2) != 0)
        return false;
    for (word += 2; *name; name++, word++)
        if (*word != *name && !(*name == '-' && *word == '_'))
            return false;
    *rest = word;
    return *word == '\0' || *word == '=';
}

/* What says where the run began: words that --load SAVE replaces. Returns how many, 0: none. */
static size_t count_replaced(const char *word)
{
    static const struct {
        const char *name;
        size_t words;
    } flags[] = {{"load", 2}, {"load-tag", 2}, {"finetune", 1}};
    const char *rest;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (shoali_word_is_flag(word, flags[i].name, &rest))
            return *rest == '=' ? 1 : flags[i].words;
    return 0;
}

void shoali_continue_format(const struct shoali_str *words, const char *save,
                            struct shoali_str *out)
{
    const char *at = shoali_str_get(words), *end = at + words->length;
    size_t skipped = 0;
    for (; at < end; at += strlen(at) + 1) {
        skipped = skipped ? skipped : count_replaced(at);
        if (skipped) {
            skipped--;
            continue;
        }
        shoali_shell_quote(out, at);
        shoali_str_append(out, " ");
    }
    shoali_str_append(out, "--load ");
    shoali_shell_quote(out, save);
}
