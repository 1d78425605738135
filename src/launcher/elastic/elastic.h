/* elastic - `shoal run --elastic_training`: an agent that restarts a job on what is left of it.
 * DeepSpeed: elasticity/elastic_agent.py on torch's local elastic agent.
 *
 *   elastic.c  the agent: start, judge the end, wait, start again; when to give up
 *   hosts.c    which hosts answer, and which ranks a job on them has
 *   grow.c     hosts that have come back while the job runs
 *
 * The job is the one that `shoal run` would start without the flag: on this machine, or on hosts by
 * any launcher. It ends as always, with its verdict, when a rank or a host dies. Then the agent
 *
 *   1. reads the hostfile again, and asks all of its hosts over ssh whether they are there (5 s);
 *      under Slurm the nodes of the allocation around, by a step on each;
 *   2. takes the first --max_elastic_nodes of those that answered, and of their slots as many, host
 *      by host, as the largest number of ranks that the configuration's section elasticity allows;
 *   3. starts the same command there. The program finds its newest whole checkpoint by itself:
 *      `shoal pretrain --save DIR --load DIR` does.
 *
 * The section keeps the batch the same whatever the number of ranks, and with "reduction": "exact"
 * the micro-batch, too: then a job that was killed and moved ends with the bits of one that was
 * not.
 *
 * What uses up a restart (--max_restarts of them): every end with a failure, and every time when
 * too few hosts answer. What does not: growing. What ends the job for good: code 0; code 2, a
 * mistake that no restart mends; a signal to the agent.
 *
 * Back-off. A restart follows at once where the job got anywhere since the last one: `latest` in
 * the program's --save folder names another checkpoint (of programs without --save: it ran for a
 * minute). Else --restart_backoff seconds pass, twice as many before the next, at most 60.
 *
 * Growing. While the job runs, hosts of the file that are not in it are asked every 5 s. When they
 * allow more ranks the ranks are asked to save (SIGUSR1, which srun and mpirun pass on;
 * cluster/signal_hosts.c), and when `latest` has moved the job is ended and started on all of them:
 * no step is computed twice. A program without --save grows at its next restart.
 *
 * Two jobs at once? Hosts that do not answer may be alive, and their ranks running. They need those
 * that the agent has ended for every step, and so get nowhere; only where all hosts of a job went
 * does the agent wait until their own launchers must have ended it (--host_timeout and
 * SHOALI_FRONT_FIRST_S). */
#ifndef SHOALI_ELASTIC_H
#define SHOALI_ELASTIC_H

#include "elasticity/elasticity.h"
#include "launcher/cluster/cluster.h"

#define SHOALI_ELASTIC_TAG_BYTES 256

struct shoali_agent {
    const struct shoali_launch_options *options;
    const shoal_launch_args *args;
    struct shoali_arena arena; /* of the agent's whole life */
    struct shoali_elasticity_config config;
    struct shoali_elastic_sizes sizes;  /* the counts that a job may have */
    const char *save;                   /* folder of the program's checkpoints, NULL: not known */
    int32_t least_nodes, most_nodes;    /* 0: no limit */
    int32_t restarts, fruitless;        /* of those the last ones that got nowhere */
    int32_t asked;                      /* a signal that ends the agent, 0: none */
    bool grows;                         /* the last job was ended for more ranks */
    bool ran;                           /* a job has been started, whatever became of it */
    char tag[SHOALI_ELASTIC_TAG_BYTES]; /* of `latest` when the job was started, "": none */
};

/* Runs a job until it is over for good; *exit_code as of shoal_launch. */
SHOAL_CHECKED shoal_status shoali_agent_run(const struct shoali_launch_options *options,
                                            const shoal_launch_args *args, int *exit_code);

/* What `latest` says, "" where there is none. */
void shoali_agent_latest(const struct shoali_agent *agent, char tag[SHOALI_ELASTIC_TAG_BYTES]);

/* ---- hosts ---------------------------------------------------------------------------------- */
/* Questions on their way to hosts. */
struct shoali_calls {
    pid_t *pid; /* per node; 0: none, or over */
    bool *here; /* per node: it answered */
    int64_t deadline_ns;
};
/* Asks the nodes of the world that are not marked in `known` (NULL: all); does not wait. */
SHOAL_CHECKED shoal_status shoali_calls_begin(const struct shoali_front *front,
                                              const struct shoali_world *world, const bool *known,
                                              struct shoali_calls *calls);
/* Takes the answers that have come; true: all have, or the time is over. */
bool shoali_calls_test(const struct shoali_world *world, struct shoali_calls *calls);
/* Ends those that are on their way. */
void shoali_calls_end(const struct shoali_world *world, struct shoali_calls *calls);

/* The ranks of a job on the nodes that are there. ranks 0: they are too few. */
SHOAL_CHECKED shoal_status shoali_agent_choose(const struct shoali_agent *agent,
                                               const struct shoali_world *all, const bool *here,
                                               struct shoali_arena *arena,
                                               struct shoali_world *world);

/* ---- growing -------------------------------------------------------------------------------- */
struct shoali_growth {
    struct shoali_agent *agent;
    const struct shoali_world *world; /* of the job that runs */
    struct shoali_arena arena;        /* of one question */
    struct shoali_world all;
    struct shoali_calls calls;
    bool asking, saving;
    int64_t next_ns; /* when it is time to ask */
    char tag[SHOALI_ELASTIC_TAG_BYTES];
};
void shoali_growth_begin(struct shoali_growth *growth, struct shoali_agent *agent,
                         const struct shoali_world *world);
void shoali_growth_end(struct shoali_growth *growth);
/* Once a second while the job runs (struct shoali_overseer). */
enum shoali_advice shoali_growth_poll(void *growth, const struct shoali_front *front);

#endif
