/* queue_scene.h - small scenes for tests of the scheduling pass: a few jobs, the plan for them.
 *
 *     static struct scene s;
 *     scene_open(&s, 2);                              two devices, time NOW
 *     const int run = scene_run(&s, ADA, CLASS_NORMAL, 0x1, NOW + 500);
 *     const int job = scene_job(&s, BOB, CLASS_NORMAL, 2, 600);
 *     scene_plan(&s);                                 s.plan; freed by the next plan and scene_close
 */
#ifndef TESTS_QUEUE_SCENE_H
#define TESTS_QUEUE_SCENE_H

#include <string.h>

#include "kernels/check.h"
#include "server/queue.h"

enum { SCENE_JOBS = 4096, SCENE_GRACE = 60, SCENE_MIN_RUN = 300, NOW = 1000000 };
enum { ADA, BOB, CLEO, SCENE_USERS };

struct scene {
    struct machine machine;
    struct queue_job jobs[SCENE_JOBS];
    struct queue_user users[SCENE_USERS];
    struct queue_array arrays[2];
    struct queue_window windows[2];
    struct queue_input in;
    struct queue_plan plan;
};

static void scene_open(struct scene *s, int devices)
{
    memset(s, 0, sizeof *s);
    s->machine.device_count = devices;
    s->in = (struct queue_input){.now = NOW,
                                 .user_count = SCENE_USERS,
                                 .array_count = 2,
                                 .jobs = s->jobs,
                                 .users = s->users,
                                 .arrays = s->arrays,
                                 .windows = s->windows,
                                 .preempts = true,
                                 .min_run_s = SCENE_MIN_RUN,
                                 .max_preemptions = 2,
                                 .grace_s = SCENE_GRACE,
                                 .forecast = 100};
    s->in.view.machine = &s->machine;
    for (int i = 0; i < devices; i++) {
        s->in.view.good |= UINT64_C(1) << i;
        s->in.view.room[i] = s->in.view.capacity[i] = 100;
        for (int k = 0; k < devices; k++) {
            s->machine.links[i][k] = (struct link){.kind = i == k ? LINK_SELF : LINK_SYS};
        }
    }
    for (int u = 0; u < SCENE_USERS; u++) {
        s->users[u].id = u + 1;
    }
}

/* A waiting job, submitted a second after the one before; its index. */
static int scene_job(struct scene *s, int user, enum queue_class class, int devices,
                     int64_t limit_s)
{
    const int i = s->in.job_count++;

    CHECK(i < SCENE_JOBS, "%d jobs", i);
    s->jobs[i] = (struct queue_job){.seq = i + 1,
                                    .user = user,
                                    .array = -1,
                                    .class = class,
                                    .need = {devices, 50},
                                    .ticket = s->in.now - 1000 + i,
                                    .line = i + 1,
                                    .limit_s = limit_s,
                                    .likely_s = limit_s};
    return i;
}

/* A run that began 1,000 s ago and that may be preempted; its index. */
static int scene_run(struct scene *s, int user, enum queue_class class, uint64_t devices,
                     int64_t free_at)
{
    const int i = scene_job(s, user, class, __builtin_popcountll(devices), free_at - s->in.now);

    s->jobs[i].held = devices;
    s->jobs[i].preemptible = true;
    s->jobs[i].started_at = s->in.now - 1000;
    s->jobs[i].free_at = s->jobs[i].likely_at = free_at;
    return i;
}

static void scene_plan(struct scene *s)
{
    struct err err = {0};

    queue_plan_free(&s->plan);
    CHECK(queue_pass(&s->plan, &s->in, &err) == 0, "%s", err.text);
}

static void scene_close(struct scene *s)
{
    queue_plan_free(&s->plan);
}

/* The devices that a job starts on; 0: it waits. */
static uint64_t scene_start(const struct scene *s, int job)
{
    for (int i = 0; i < s->plan.start_count; i++) {
        if (s->plan.starts[i].job == job) {
            return s->plan.starts[i].devices;
        }
    }
    return 0;
}

#endif
