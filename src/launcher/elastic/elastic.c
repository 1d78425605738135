#include "launcher/elastic/elastic.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/waiting.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)
#define BACKOFF_MAX_NS (60 * SECOND_NS)
/* How long a program without --save must have run to have got anywhere. */
#define LONG_NS (60 * SECOND_NS)
/* What hosts have to answer before the first start: as long as the pre-flight gives them. */
#define FIRST_ANSWER_NS (20 * SECOND_NS)
/* What a host's launcher takes to end its ranks when it has found the connection gone. */
#define ENDING_NS (2 * SECOND_NS)
enum { USAGE = 2 };

/* One start of the job. */
struct attempt {
    struct shoali_arena arena;
    struct shoali_world all, world;
    bool *here;
    int32_t answered;
    int64_t begin_ns;
};

/* ---- what the agent knows ------------------------------------------------------------------- */
void shoali_agent_latest(const struct shoali_agent *agent, char tag[SHOALI_ELASTIC_TAG_BYTES])
{
    char path[4096];
    *tag = '\0';
    if (!agent->save)
        return;
    snprintf(path, sizeof(path), "%s/latest", agent->save);
    shoali_first_line(path, tag, SHOALI_ELASTIC_TAG_BYTES);
}

/* `shoal pretrain` itself, under whatever name. */
static bool is_pretrain(const struct shoali_agent *agent)
{
    const char *const *program = agent->args->program;
    return program[1] && strcmp(program[1], "pretrain") == 0 && shoali_program_is_self(program[0]);
}

static shoal_status check_program(struct shoali_agent *agent)
{
    const char *load = shoali_program_flag(agent->args->program, "load");
    agent->save = shoali_program_flag(agent->args->program, "save");
    if (!is_pretrain(agent))
        return SHOAL_OK;
    if (!agent->save)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--elastic_training: without a checkpoint every restart begins at step "
                          "0: give shoal pretrain --save DIR --load DIR, and --save-interval");
    if (!load || strcmp(load, agent->save) != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--elastic_training: a restart continues from a checkpoint: give shoal "
                          "pretrain --load %s, too; with an empty folder training starts at step 0",
                          agent->save);
    return SHOAL_OK;
}

static shoal_status read_section(struct shoali_agent *agent)
{
    shoal_status status;
    struct shoali_json *document = NULL;
    bool exact;
    const char *path = shoali_program_flag(agent->args->program, "deepspeed-config");
    if (!path)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--elastic_training: the section elasticity of the configuration sets "
                          "the allowed numbers of ranks: give the program --deepspeed_config FILE");
    SHOAL_TRY(status, shoali_json_load_config(path, &document), done);
    SHOAL_TRY(status, shoali_elastic_read(document, path, &agent->arena, &agent->config, &exact),
              done);
    SHOAL_TRY(status, shoali_elastic_check_scheduler(&agent->config), done);
    SHOAL_TRY(status, shoali_elastic_find(&agent->config, 0, exact, &agent->arena, &agent->sizes),
              done);
done:
    shoali_json_close(document);
    return status;
}

static shoal_status check_launcher(const struct shoali_launch_options *options)
{
    const char *nodes = getenv("SLURM_JOB_NODELIST");
    if (options->launcher != SHOALI_BY_SLURM || (nodes && *nodes))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "--elastic_training with --launcher slurm restarts job steps on the "
                      "remaining nodes of an allocation: start it in an allocation that outlives "
                      "its nodes (salloc --no-kill, sbatch --no-kill)");
}

/* ---- waiting -------------------------------------------------------------------------------- */
/* Until the time is over, a child has ended, or somebody wants the agent to end. */
static void wait_ns(struct shoali_agent *agent, int64_t ns)
{
    sigset_t signals, old_mask;
    shoali_job_signals(&signals);
    const struct timespec time = {.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = ns % SECOND_NS};
    sigprocmask(SIG_BLOCK, &signals, &old_mask);
    const int signal = sigtimedwait(&signals, NULL, &time);
    sigprocmask(SIG_SETMASK, &old_mask, NULL);
    if (signal > 0 && signal != SIGCHLD && signal != SIGUSR1)
        agent->asked = signal;
}

static void wait_until(struct shoali_agent *agent, int64_t deadline_ns)
{
    while (!agent->asked && !shoali_deadline_passed(deadline_ns))
        wait_ns(agent, deadline_ns - shoali_now_ns());
}

/* ---- a start -------------------------------------------------------------------------------- */
static shoal_status ask_hosts(struct shoali_agent *agent, struct attempt *attempt, bool remote)
{
    shoal_status status = SHOAL_OK;
    struct shoali_calls calls = {0};
    struct shoali_waiting waiting = {0};
    struct shoali_front front = {
        .options = agent->options, .args = agent->args, .arena = &attempt->arena};
    attempt->answered = attempt->all.nodes;
    attempt->here = shoali_arena_alloc(&attempt->arena, (size_t)attempt->all.nodes * sizeof(bool));
    if (!attempt->here)
        return SHOAL_ENOMEM;
    memset(attempt->here, 1, (size_t)attempt->all.nodes * sizeof(bool));
    if (!remote)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_front_choose_launcher(&front), done);
    SHOAL_TRY(status, shoali_calls_begin(&front, &attempt->all, NULL, &calls), done);
    attempt->here = calls.here;
    /* A host that is slow today is not one that has just gone. */
    if (!agent->ran)
        calls.deadline_ns = shoali_deadline_ns(FIRST_ANSWER_NS);
    while (!agent->asked && !shoali_calls_test(&attempt->all, &calls)) {
        wait_ns(agent, SECOND_NS / 10);
        if (shoali_waiting_due(&waiting, NULL))
            SHOALI_WARN("launcher", "waiting for %.0f s for the answers of %d hosts by ssh",
                        shoali_waiting_seconds(&waiting), (int)attempt->all.nodes);
    }
    shoali_calls_end(&attempt->all, &calls);
    attempt->answered = 0;
    for (int32_t i = 0; i < attempt->all.nodes; i++) {
        attempt->answered += calls.here[i];
        if (!calls.here[i])
            SHOALI_WARN("launcher", "host %s does not answer: left out", attempt->all.node[i].name);
    }
done:
    return status;
}

/* The variables that tell ranks of the agent. */
static shoal_status make_variables(const struct shoali_agent *agent, struct shoali_text_list *words)
{
    const char *id = getenv("ELASTIC_RUN_ID"), *section;
    section = shoali_elastic_variable(&agent->config, words->arena);
    shoali_text_list_add(words, "TORCHELASTIC_RUN_ID=%s", id && *id ? id : "123456789");
    shoali_text_list_add(words, "TORCHELASTIC_RESTART_COUNT=%d", (int)agent->restarts);
    shoali_text_list_add(words, "TORCHELASTIC_MAX_RESTARTS=%lld",
                         (long long)agent->options->max_restarts);
    /* DeepSpeed's agent sets it: else a rank of NCCL's waits for one that is gone. */
    shoali_text_list_add(words, "NCCL_ASYNC_ERROR_HANDLING=1");
    shoali_text_list_add(words, SHOALI_ELASTIC_VARIABLE "=%s", section ? section : "");
    return words->failed || !section ? SHOAL_ENOMEM : SHOAL_OK;
}

static shoal_status run_here(struct shoali_agent *agent, const struct attempt *attempt,
                             const struct shoali_text_list *variables, int *exit_code)
{
    shoal_status status = SHOAL_OK;
    struct shoali_job job = shoali_job_none;
    shoal_launch_args own = *agent->args;
    shoali_arena_init(&job.arena);
    job.args = &own;
    job.variables = variables->value;
    if (own.ranks || (!own.hostfile && !own.include && !own.exclude)) {
        own.ranks = attempt->world.ranks;
    } else {
        own.include = shoali_world_print(&attempt->world, &job.arena);
        own.exclude = NULL;
        if (!own.include) {
            status = SHOAL_ENOMEM;
            goto done;
        }
    }
    SHOAL_TRY(status, shoali_job_run(&job, exit_code), done);
done:
    agent->asked = agent->asked ? agent->asked : job.asked;
    shoali_arena_fini(&job.arena);
    return status;
}

static shoal_status run_there(struct shoali_agent *agent, struct attempt *attempt,
                              const struct shoali_text_list *variables, int *exit_code)
{
    shoal_status status;
    struct shoali_growth growth;
    shoal_launch_args own = *agent->args;
    struct shoali_overseer overseer = {
        .variables = variables, .poll = shoali_growth_poll, .user = &growth};
    /* It is the address of the first host of the file, which may not be in the job. */
    if (strcmp(attempt->world.node[0].name, attempt->all.node[0].name) != 0)
        own.master_addr = NULL;
    shoali_growth_begin(&growth, agent, &attempt->world);
    status = shoali_front_run(agent->options, &own, &attempt->world, &overseer, &attempt->arena,
                              NULL, exit_code);
    shoali_growth_end(&growth);
    agent->grows = overseer.ended;
    agent->asked = agent->asked ? agent->asked : overseer.asked;
    return status;
}

static void say_start(const struct shoali_agent *agent, const struct attempt *attempt)
{
    const struct shoali_world *world = &attempt->world;
    char which[64] = "start";
    if (agent->grows)
        snprintf(which, sizeof(which), "growing");
    else if (agent->restarts)
        snprintf(which, sizeof(which), "restart %d of %lld", (int)agent->restarts,
                 (long long)agent->options->max_restarts);
    SHOALI_INFO("launcher", "%s: %d ranks on %d host%s, %s%s", which, (int)world->ranks,
                (int)world->nodes, world->nodes == 1 ? "" : "s",
                *agent->tag ? "continuing from " : "no checkpoint yet", agent->tag);
}

/* Too few hosts is an end like any other. */
static shoal_status too_few(const struct shoali_agent *agent, const struct attempt *attempt)
{
    int64_t slots = 0;
    for (int32_t i = 0; i < attempt->all.nodes; i++)
        slots += attempt->here[i] ? attempt->all.node[i].slots.count : 0;
    if (attempt->answered < agent->least_nodes)
        return SHOAL_FAIL(SHOAL_EIO, "%d of %d hosts answer, and --min_elastic_nodes is %d",
                          (int)attempt->answered, (int)attempt->all.nodes, (int)agent->least_nodes);
    return SHOAL_FAIL(
        SHOAL_EINVAL,
        "%lld slots are too few: the section elasticity allows %lld ranks at least (shoal elastic "
        "lists the numbers)",
        (long long)slots,
        (long long)(agent->sizes.counts.value[0] * agent->config.model_parallel_size));
}

/* The hosts that the last job was on may still be ending it. */
static void keep_apart(struct shoali_agent *agent, const struct attempt *attempt,
                       const struct shoali_text_list *last, int64_t end_ns)
{
    bool stayed = last->count == 0;
    for (int32_t i = 0; i < attempt->all.nodes; i++)
        for (int32_t k = 0; k < last->count && attempt->here[i]; k++)
            stayed = stayed || strcmp(attempt->all.node[i].name, shoali_text_list_at(last, k)) == 0;
    if (stayed)
        return;
    SHOALI_INFO(
        "launcher",
        "no host of the last start answers: waiting for the launchers there to end their ranks");
    const int64_t silence_ns =
        (agent->options->host_timeout + SHOALI_FRONT_FIRST_S) * INT64_C(1000000000);
    wait_until(agent, end_ns + silence_ns + ENDING_NS);
}

static shoal_status start(struct shoali_agent *agent, struct attempt *attempt,
                          struct shoali_text_list *last, int64_t end_ns, int *exit_code)
{
    shoal_status status;
    struct shoali_text_list variables = {.arena = &attempt->arena};
    SHOAL_TRY(status,
              shoali_world_find(agent->options, agent->args, &attempt->arena, &attempt->all), done);
    const bool remote = shoali_front_needed(agent->options, &attempt->all);
    SHOAL_TRY(status, ask_hosts(agent, attempt, remote), done);
    SHOAL_TRY(
        status,
        shoali_agent_choose(agent, &attempt->all, attempt->here, &attempt->arena, &attempt->world),
        done);
    if (attempt->world.ranks == 0) {
        status = too_few(agent, attempt);
        goto done;
    }
    keep_apart(agent, attempt, last, end_ns);
    if (agent->asked)
        goto done;
    last->count = 0;
    for (int32_t i = 0; i < attempt->world.nodes && remote; i++)
        shoali_text_list_add(last, "%s", attempt->world.node[i].name);
    SHOAL_TRY(status, make_variables(agent, &variables), done);
    shoali_agent_latest(agent, agent->tag);
    say_start(agent, attempt);
    agent->grows = false;
    attempt->begin_ns = shoali_now_ns();
    SHOAL_TRY(status,
              remote ? run_there(agent, attempt, &variables, exit_code)
                     : run_here(agent, attempt, &variables, exit_code),
              done);
done:
    return status;
}

/* ---- the agent ------------------------------------------------------------------------------ */
static bool got_anywhere(const struct shoali_agent *agent, const struct attempt *attempt)
{
    char tag[SHOALI_ELASTIC_TAG_BYTES];
    if (attempt->begin_ns == 0)
        return false;
    shoali_agent_latest(agent, tag);
    return agent->save ? strcmp(tag, agent->tag) != 0
                       : shoali_now_ns() - attempt->begin_ns > LONG_NS;
}

static int64_t backoff_ns(const struct shoali_agent *agent)
{
    int64_t ns = agent->options->restart_backoff * SECOND_NS;
    for (int32_t i = 1; i < agent->fruitless && ns < BACKOFF_MAX_NS; i++)
        ns *= 2;
    if (agent->fruitless == 0)
        return 0;
    return ns < BACKOFF_MAX_NS || agent->options->restart_backoff > 60 ? ns : BACKOFF_MAX_NS;
}

static void give_up(const struct shoali_agent *agent, const char *why)
{
    char tag[SHOALI_ELASTIC_TAG_BYTES], left[4096 + SHOALI_ELASTIC_TAG_BYTES] = "";
    shoali_agent_latest(agent, tag);
    if (*tag)
        snprintf(left, sizeof(left), "; the same command continues from %s/%s", agent->save, tag);
    SHOALI_ERROR("launcher", "given up after %d restart%s: %s%s", (int)agent->restarts,
                 agent->restarts == 1 ? "" : "s", why, left);
}

/* Whether the job is over for good; else waits until it is time for the next start. */
static bool is_over(struct shoali_agent *agent, const struct attempt *attempt, shoal_status *status,
                    int *exit_code)
{
    char why[512];
    if (*status == SHOAL_OK && !agent->asked && agent->grows)
        return false;
    if (*status == SHOAL_OK && *exit_code == 0 && !agent->asked)
        return true;
    /* A job that has ended says how it took the signal: with 0 when its ranks have saved. */
    if (agent->asked) {
        if (*status < 0 || attempt->begin_ns == 0 || agent->grows)
            *exit_code = 128 + agent->asked;
        *status = SHOAL_OK;
        return true;
    }
    /* Nothing ran yet: what is wrong is the command's, or the user's to wait for. */
    if (*status < 0 && !agent->ran)
        return true;
    agent->ran = true;
    if (*status == SHOAL_OK && *exit_code == USAGE)
        return true;
    agent->fruitless = got_anywhere(agent, attempt) ? 0 : agent->fruitless + 1;
    if (*status < 0)
        snprintf(why, sizeof(why), "%s", shoal_error_message());
    else
        snprintf(why, sizeof(why), "the job ended with code %d", *exit_code);
    if (agent->restarts >= agent->options->max_restarts) {
        give_up(agent, why);
        *exit_code = *status == SHOAL_OK ? *exit_code : 1;
        *status = SHOAL_OK;
        return true;
    }
    if (*status < 0)
        SHOALI_WARN("launcher", "%s", why);
    shoali_error_clear();
    agent->restarts++;
    wait_until(agent, shoali_deadline_ns(backoff_ns(agent)));
    if (!agent->asked)
        return false;
    *status = SHOAL_OK;
    *exit_code = 128 + agent->asked;
    return true;
}

static shoal_status run(struct shoali_agent *agent, int *exit_code)
{
    shoal_status status;
    bool over = false;
    int64_t end_ns = 0;
    struct shoali_text_list last = {.arena = &agent->arena}; /* hosts of the last start */
    do {
        struct attempt attempt = {0};
        shoali_arena_init(&attempt.arena);
        *exit_code = 0;
        status = start(agent, &attempt, &last, end_ns, exit_code);
        end_ns = shoali_now_ns();
        over = is_over(agent, &attempt, &status, exit_code);
        shoali_arena_fini(&attempt.arena);
    } while (!over);
    return status;
}

shoal_status shoali_agent_run(const struct shoali_launch_options *options,
                              const shoal_launch_args *args, int *exit_code)
{
    shoal_status status = SHOAL_OK;
    struct sigaction old_child, plain = {.sa_handler = SIG_DFL};
    struct shoali_agent agent = {.options = options, .args = args};
    agent.least_nodes = options->min_elastic_nodes > 0 ? (int32_t)options->min_elastic_nodes : 1;
    agent.most_nodes = options->max_elastic_nodes > 0 ? (int32_t)options->max_elastic_nodes : 0;
    sigaction(SIGCHLD, &plain, &old_child);
    shoali_arena_init(&agent.arena);
    if (!args->program[0]) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "no program to start: write it after the flags");
        goto done;
    }
    SHOAL_TRY(status, check_launcher(options), done);
    SHOAL_TRY(status, check_program(&agent), done);
    SHOAL_TRY(status, read_section(&agent), done);
    SHOAL_TRY(status, run(&agent, exit_code), done);
done:
    shoali_arena_fini(&agent.arena);
    sigaction(SIGCHLD, &old_child, NULL);
    return status;
}
