#include "comm/timeout.h"

#include "base/plain.h"

static const char advice[] = "if it is only slow, raise the timeout (DEEPSPEED_TIMEOUT, in "
                             "minutes)";

bool shoali_late_is_over(int64_t timeout_ns, int64_t since_ns, int32_t patience)
{
    return timeout_ns > 0 && shoali_now_ns() - since_ns >= timeout_ns / 100 * (100 + patience);
}

void shoali_late_describe(const struct shoali_late *late, int64_t timeout_ns, char *text,
                          size_t bytes)
{
    char own[256], last[256], peer[SHOALI_PLACE_BYTES];
    const double seconds = (double)timeout_ns * 1e-9;
    shoali_record_format(late->record, own);
    if (shoali_post_is_message(late->post))
        shoali_snprintf(text, bytes, "%s: %s did not %s within %.1f s; %s", own,
                        shoali_rank_format(&late->peer, peer),
                        late->post->kind == SHOALI_SEND ? "receive" : "send", seconds, advice);
    else if (!late->missing[0])
        shoali_snprintf(text, bytes, "%s did not complete within %.1f s", own, seconds);
    else if (!late->last)
        shoali_snprintf(text, bytes,
                        "%s: %s did not come within %.1f s, with no earlier call on this group; %s",
                        own, late->missing, seconds, advice);
    else
        shoali_snprintf(
            text, bytes, "%s: %s did not come within %.1f s, last call on this group was %s; %s",
            own, late->missing, seconds, shoali_record_format(late->last, last), advice);
}

void shoali_late_warn(const struct shoali_late *late, double seconds, const char *doing)
{
    char own[256], peer[SHOALI_PLACE_BYTES];
    shoali_record_format(late->record, own);
    if (shoali_post_is_message(late->post))
        SHOALI_WARN("comm", "waiting for %.0f s for %s in %s", seconds,
                    shoali_rank_format(&late->peer, peer), own);
    else if (late->missing[0])
        SHOALI_WARN("comm", "waiting for %.0f s for %s to come to %s%s", seconds, late->missing,
                    own, doing);
    else
        SHOALI_WARN("comm", "waiting for %.0f s for the data of %s", seconds, own);
}
