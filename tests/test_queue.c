/* test_queue.c - the scheduling pass, rule by rule: order, reasons, windows, the head, preemption. */
#include "tests/queue_scene.h"
#include "tests/tap.h"

static struct scene s;

/* Is `first` looked at before `second`? */
static bool goes_before(int first, int second)
{
    return s.plan.waits[first].position < s.plan.waits[second].position;
}

/* A machine on which nothing can start, so that the order is all there is. */
static void open_full(int devices)
{
    scene_open(&s, devices);
    (void)scene_run(&s, CLEO, CLASS_URGENT, s.in.view.good, NOW + 5000);
}

static void a_better_class_goes_before_an_earlier_ticket(void)
{
    int job[CLASS_COUNT];

    open_full(1);
    for (int c = CLASS_COUNT - 1; c >= 0; c--) {
        job[c] = scene_job(&s, c % 2, (enum queue_class)c, 1, 600);
    }
    scene_plan(&s);
    for (int c = 0; c < CLASS_COUNT; c++) {
        EXPECT(s.plan.waits[job[c]].position == c + 1);
        EXPECT(s.plan.order[c] == job[c]);
    }
    scene_close(&s);
}

static void tickets_are_shared_inside_a_class_only(void)
{
    for (int low_is_first = 0; low_is_first < 2; low_is_first++) {
        open_full(1);
        const int low = scene_job(&s, ADA, CLASS_LOW, 1, 600);
        const int bobs = scene_job(&s, BOB, CLASS_NORMAL, 1, 600);
        const int normal = scene_job(&s, ADA, CLASS_NORMAL, 1, 600);
        s.jobs[low].line = low_is_first ? 1 : 9;
        s.jobs[normal].line = 5;
        scene_plan(&s);
        EXPECT(goes_before(bobs, normal));
        EXPECT(goes_before(normal, low));
        /* the other way round: the earlier ticket is the normal job's and stays with it */
        s.jobs[normal].ticket = s.jobs[low].ticket - 1;
        scene_plan(&s);
        EXPECT(goes_before(normal, bobs));
        scene_close(&s);
    }
}

static void the_earlier_ticket_goes_first_across_users(void)
{
    open_full(1);
    const int late = scene_job(&s, ADA, CLASS_NORMAL, 1, 600);
    const int early = scene_job(&s, BOB, CLASS_NORMAL, 1, 600);
    s.jobs[late].ticket = NOW - 10;
    s.jobs[early].ticket = NOW - 11;
    scene_plan(&s);
    EXPECT(goes_before(early, late));
    s.jobs[early].ticket = NOW - 9;
    scene_plan(&s);
    EXPECT(goes_before(late, early));
    scene_close(&s);
}

static void equal_keys_go_by_ticket_and_equal_tickets_by_number(void)
{
    open_full(2);
    const int first = scene_job(&s, ADA, CLASS_NORMAL, 1, 600);
    const int second = scene_job(&s, BOB, CLASS_NORMAL, 1, 600);
    s.jobs[first].ticket = s.jobs[second].ticket = NOW - 100;
    scene_plan(&s);
    EXPECT(goes_before(first, second));
    s.jobs[second].ticket =
        NOW - 150; /* its key is as that of the first: 100 device seconds over 2 */
    s.users[BOB].usage_s = 100.0;
    scene_plan(&s);
    EXPECT(goes_before(second, first));
    scene_close(&s);
}

static void who_used_the_machine_waits_as_long_as_they_had_all_of_it(void)
{
    open_full(4);
    const int heavy = scene_job(&s, ADA, CLASS_NORMAL, 1, 600);
    const int light = scene_job(&s, BOB, CLASS_NORMAL, 1, 600);
    s.users[ADA].usage_s = 4.0 * 500.0;
    s.jobs[heavy].ticket = NOW - 900;
    s.jobs[light].ticket = NOW - 401;
    scene_plan(&s);
    EXPECT(goes_before(light, heavy));
    s.jobs[light].ticket = NOW - 399;
    scene_plan(&s);
    EXPECT(goes_before(heavy, light));
    s.users[ADA].usage_s = 1e300; /* absurd, and still in range */
    s.jobs[heavy].ticket = INT64_MAX;
    scene_plan(&s);
    EXPECT(goes_before(light, heavy));
    scene_close(&s);
}

static void usage_halves_in_seven_days(void)
{
    const int64_t week = 7 * 86400;

    EXPECT_NEAR(queue_decay(800.0, NOW, NOW + week), 400.0, 1e-12);
    EXPECT_NEAR(queue_decay(800.0, NOW, NOW + 2 * week), 200.0, 1e-12);
    EXPECT_NEAR(queue_decay(800.0, NOW, NOW), 800.0, 0.0);
    EXPECT_NEAR(queue_decay(800.0, NOW, NOW - week), 800.0, 0.0);
}

static void a_job_is_moved_past_its_owners_jobs_only(void)
{
    open_full(1);
    const int first = scene_job(&s, ADA, CLASS_NORMAL, 1, 600);
    const int bobs = scene_job(&s, BOB, CLASS_NORMAL, 1, 600);
    const int last = scene_job(&s, ADA, CLASS_NORMAL, 1, 600);
    s.jobs[last].line = 0;
    scene_plan(&s);
    EXPECT(s.plan.waits[last].position == 1);
    EXPECT(s.plan.waits[bobs].position == 2);
    EXPECT(s.plan.waits[first].position == 3);
    s.jobs[bobs].line = -5; /* no reach beyond one's own */
    scene_plan(&s);
    EXPECT(s.plan.waits[last].position == 1);
    scene_close(&s);
}

/* What job `job` waits for in a plan of the scene as it is. */
static const struct queue_wait *wait_of(int job)
{
    scene_plan(&s);
    return &s.plan.waits[job];
}

static void says_what_blocks_a_job_though_devices_are_free(void)
{
    scene_open(&s, 4);
    const int run = scene_run(&s, ADA, CLASS_NORMAL, 0x1, NOW + 500);
    const int job = scene_job(&s, ADA, CLASS_NORMAL, 2, 600);
    struct queue_job *j = &s.jobs[job];

    s.arrays[1] = (struct queue_array){.seq = 77, .max_running = 1};
    s.jobs[run].array = j->array = 1;
    EXPECT(wait_of(job)->why == WAIT_ARRAY && s.plan.waits[job].number == 1);
    s.users[ADA].max_devices = 2;
    EXPECT(wait_of(job)->why == WAIT_USER_DEVICES && s.plan.waits[job].number == 2);
    s.users[ADA].max_running = 1;
    EXPECT(wait_of(job)->why == WAIT_USER_JOBS && s.plan.waits[job].number == 1);
    j->retry_at = NOW + 30;
    EXPECT(wait_of(job)->why == WAIT_RETRY && s.plan.waits[job].at == NOW + 30);
    j->begin_at = NOW + 20;
    EXPECT(wait_of(job)->why == WAIT_BEGIN && s.plan.waits[job].at == NOW + 20);
    j->parent = s.jobs[run].seq;
    EXPECT(wait_of(job)->why == WAIT_DEPENDENCY && s.plan.waits[job].other == s.jobs[run].seq);
    EXPECT(s.plan.start_count == 0 && s.plan.head == -1);
    scene_close(&s);
}

static void starts_a_job_as_soon_as_nothing_blocks_it(void)
{
    scene_open(&s, 4);
    const int run = scene_run(&s, ADA, CLASS_NORMAL, 0x1, NOW + 500);
    const int job = scene_job(&s, ADA, CLASS_NORMAL, 2, 600);

    s.arrays[1] = (struct queue_array){.seq = 77, .max_running = 2};
    s.jobs[run].array = s.jobs[job].array = 1;
    s.users[ADA].max_devices = 3;
    s.users[ADA].max_running = 2;
    s.jobs[job].begin_at = s.jobs[job].retry_at = NOW;
    EXPECT(wait_of(job)->why == WAIT_NOT);
    EXPECT(scene_start(&s, job) == 0x6);
    EXPECT(s.plan.waits[job].expected_at == NOW);
    scene_close(&s);
}

static void says_what_of_the_machine_is_missing_or_busy(void)
{
    scene_open(&s, 4);
    const int job = scene_job(&s, ADA, CLASS_NORMAL, 3, 600);

    s.in.view.busy = 0x6;
    EXPECT(wait_of(job)->why == WAIT_BUSY && s.plan.waits[job].device == 1);
    EXPECT(s.plan.waits[job].expected_at == 0);
    s.in.view.capacity[0] = s.in.view.room[0] = 49;
    s.in.view.capacity[3] = s.in.view.room[3] = 49;
    EXPECT(wait_of(job)->why == WAIT_NEVER && s.plan.waits[job].number == 2);
    EXPECT(s.plan.waits[job].expected_at == 0);
    s.in.view.capacity[0] = s.in.view.room[0] = 50;
    s.in.view.busy = 0;
    EXPECT(wait_of(job)->why == WAIT_NOT);
    s.in.view.good = 0x3;
    EXPECT(wait_of(job)->why == WAIT_NEVER);
    scene_close(&s);
}

static void says_whom_the_head_waits_for_and_who_is_behind(void)
{
    scene_open(&s, 2);
    (void)scene_run(&s, CLEO, CLASS_NORMAL, 0x1, NOW + 500);
    const int last = scene_run(&s, CLEO, CLASS_NORMAL, 0x2, NOW + 900);
    const int head = scene_job(&s, ADA, CLASS_NORMAL, 2, 600);
    const int behind = scene_job(&s, BOB, CLASS_NORMAL, 1, 600);

    EXPECT(wait_of(head)->why == WAIT_HEAD);
    EXPECT(s.plan.waits[head].other == s.jobs[last].seq);
    EXPECT(s.plan.waits[head].at == NOW + 900);
    EXPECT(s.plan.head == head && s.plan.head_at == NOW + 900 && s.plan.head_devices == 0x3);
    EXPECT(s.plan.waits[behind].why == WAIT_AHEAD);
    EXPECT(s.plan.waits[behind].number == 1);
    EXPECT(s.plan.waits[behind].other == s.jobs[head].seq);
    scene_close(&s);
}

static void passes_the_head_outside_its_devices_or_in_time(void)
{
    scene_open(&s, 4);
    (void)scene_run(&s, CLEO, CLASS_NORMAL, 0x3, NOW + 500);
    const int head = scene_job(&s, ADA, CLASS_NORMAL, 3, 600);
    const int longer = scene_job(&s, BOB, CLASS_NORMAL, 1, 100000);
    const int in_time = scene_job(&s, BOB, CLASS_NORMAL, 1, 500 - SCENE_GRACE);
    const int late = scene_job(&s, BOB, CLASS_NORMAL, 1, 500 - SCENE_GRACE + 1);

    scene_plan(&s);
    EXPECT(s.plan.head == head && s.plan.head_at == NOW + 500 && s.plan.head_devices == 0x7);
    EXPECT(scene_start(&s, longer) == 0x8);
    EXPECT(scene_start(&s, in_time) == 0x4);
    EXPECT(scene_start(&s, late) == 0);
    s.jobs[in_time].limit_s++;
    scene_plan(&s);
    EXPECT(scene_start(&s, in_time) == 0);
    scene_close(&s);
}

static void a_user_who_has_the_head_passes_it_only_while_the_limits_leave_room(void)
{
    scene_open(&s, 4);
    (void)scene_run(&s, CLEO, CLASS_NORMAL, 0x3, NOW + 500);
    const int head = scene_job(&s, ADA, CLASS_NORMAL, 3, 600);
    const int other = scene_job(&s, ADA, CLASS_NORMAL, 1, 600);

    s.users[ADA].max_devices = 3;
    EXPECT(wait_of(other)->why == WAIT_AHEAD && s.plan.head == head);
    s.users[ADA].max_devices = 4;
    EXPECT(wait_of(other)->why == WAIT_NOT);
    s.users[ADA].max_running = 1;
    EXPECT(wait_of(other)->why == WAIT_AHEAD);
    scene_close(&s);
}

static void nobody_starts_into_the_window_of_another(void)
{
    scene_open(&s, 2);
    const int job = scene_job(&s, ADA, CLASS_NORMAL, 2, 600);

    s.in.window_count = 1;
    s.windows[0] = (struct queue_window){NOW + 600 + SCENE_GRACE - 1, NOW + 4000, 0x2, BOB};
    EXPECT(wait_of(job)->why == WAIT_WINDOW && s.plan.waits[job].at == NOW + 4000);
    EXPECT(s.plan.waits[job].expected_at == NOW + 4000);
    s.windows[0].from++; /* the job is over as the window begins */
    EXPECT(wait_of(job)->why == WAIT_NOT);
    s.windows[0] = (struct queue_window){NOW - 50, NOW + 4000, 0x2, ADA};
    EXPECT(wait_of(job)->why == WAIT_NOT); /* its own */
    s.windows[0].user = -1;
    EXPECT(wait_of(job)->why == WAIT_WINDOW); /* maintenance */
    s.windows[0].to = NOW;
    EXPECT(wait_of(job)->why == WAIT_NOT); /* it is over */
    scene_close(&s);
}

static void a_run_of_a_worse_class_leaves_for_the_head(void)
{
    scene_open(&s, 2);
    const int worse = scene_run(&s, CLEO, CLASS_LOW, 0x1, NOW + 5000);
    const int same = scene_run(&s, CLEO, CLASS_NORMAL, 0x2, NOW + 5000);
    const int job = scene_job(&s, ADA, CLASS_NORMAL, 1, 600);

    EXPECT(wait_of(job)->why == WAIT_FREEING && s.plan.waits[job].other == s.jobs[worse].seq);
    EXPECT(s.plan.preempt_count == 1 && s.plan.preempts[0].run == worse &&
           s.plan.preempts[0].job == job);
    EXPECT(s.plan.head_devices == 0x1 && s.plan.head_at == NOW + SCENE_GRACE);
    s.jobs[job].need.devices = 2; /* the run of its own class stays: nobody leaves in vain */
    EXPECT(wait_of(job)->why == WAIT_HEAD && s.plan.preempt_count == 0);
    s.jobs[same].class = CLASS_IDLE;
    EXPECT(wait_of(job)->why == WAIT_FREEING && s.plan.preempt_count == 2);
    s.in.preempts = false;
    EXPECT(wait_of(job)->why == WAIT_HEAD && s.plan.preempt_count == 0);
    scene_close(&s);
}

static void who_may_not_be_preempted_stays(void)
{
    scene_open(&s, 1);
    const int run = scene_run(&s, CLEO, CLASS_IDLE, 0x1, NOW + 5000);
    const int job = scene_job(&s, ADA, CLASS_NORMAL, 1, 600);
    struct queue_job *const r = &s.jobs[run];

    r->preemptible = false;
    EXPECT(wait_of(job)->why == WAIT_HEAD);
    r->preemptible = true;
    r->preemptions = 2; /* as often as a day allows */
    EXPECT(wait_of(job)->why == WAIT_HEAD);
    r->preemptions = 1;
    EXPECT(wait_of(job)->why == WAIT_FREEING);
    r->started_at = NOW - SCENE_MIN_RUN + 1;
    EXPECT(wait_of(job)->why == WAIT_HEAD);
    r->started_at = NOW - SCENE_MIN_RUN;
    EXPECT(wait_of(job)->why == WAIT_FREEING);
    r->free_at = NOW + SCENE_GRACE; /* it leaves as soon by itself */
    EXPECT(wait_of(job)->why == WAIT_HEAD && s.plan.preempt_count == 0);
    r->is_stopping = true;
    EXPECT(wait_of(job)->why == WAIT_FREEING && s.plan.preempt_count == 0);
    scene_close(&s);
}

/* Which runs leave for a job that needs all of `need` devices. */
static uint64_t devices_that_leave(int need)
{
    uint64_t set = 0;

    (void)scene_job(&s, ADA, CLASS_URGENT, need, 600);
    scene_plan(&s);
    for (int i = 0; i < s.plan.preempt_count; i++) {
        set |= s.jobs[s.plan.preempts[i].run].held;
    }
    scene_close(&s);
    return set;
}

static void the_fewest_and_then_the_cheapest_runs_leave(void)
{
    scene_open(&s, 4); /* one run of two is fewer than two of one */
    (void)scene_run(&s, CLEO, CLASS_IDLE, 0x1, NOW + 5000);
    (void)scene_run(&s, CLEO, CLASS_IDLE, 0x2, NOW + 5000);
    (void)scene_run(&s, CLEO, CLASS_NORMAL, 0xC, NOW + 5000);
    EXPECT(devices_that_leave(2) == 0xC);

    scene_open(&s, 4); /* what is free already counts */
    (void)scene_run(&s, CLEO, CLASS_IDLE, 0x1, NOW + 5000);
    (void)scene_run(&s, CLEO, CLASS_NORMAL, 0xC, NOW + 5000);
    EXPECT(devices_that_leave(2) == 0x1);

    scene_open(&s, 3); /* of equally few the worst class */
    (void)scene_run(&s, CLEO, CLASS_LOW, 0x1, NOW + 5000);
    (void)scene_run(&s, CLEO, CLASS_IDLE, 0x6, NOW + 5000);
    EXPECT(devices_that_leave(1) == 0x6);

    scene_open(&s, 3); /* then the fewest devices */
    (void)scene_run(&s, CLEO, CLASS_IDLE, 0x3, NOW + 5000);
    (void)scene_run(&s, CLEO, CLASS_IDLE, 0x4, NOW + 5000);
    EXPECT(devices_that_leave(1) == 0x4);

    scene_open(&s, 2); /* then the one that began last */
    s.jobs[scene_run(&s, CLEO, CLASS_IDLE, 0x1, NOW + 5000)].started_at = NOW - 700;
    s.jobs[scene_run(&s, CLEO, CLASS_IDLE, 0x2, NOW + 5000)].started_at = NOW - 600;
    EXPECT(devices_that_leave(1) == 0x2);
}

static void what_is_freed_for_one_job_is_not_given_to_another(void)
{
    scene_open(&s, 3);
    (void)scene_run(&s, CLEO, CLASS_LOW, 0x3, NOW + 5000);
    const int first = scene_job(&s, ADA, CLASS_NORMAL, 3, 600);
    const int second = scene_job(&s, BOB, CLASS_NORMAL, 1, 1);

    EXPECT(wait_of(first)->why == WAIT_FREEING && s.plan.head_devices == 0x7);
    EXPECT(s.plan.waits[second].why == WAIT_AHEAD);
    EXPECT(s.plan.start_count == 0);
    scene_close(&s);
}

/* ---- the adversary: jobs of one device without end against one of all devices ---- */

enum { STEP = 20, SMALL_LIMIT = 400, DEVICES = 8 };

/* Runs that have come to the end of their limit leave at the last moment. */
static void end_runs(void)
{
    int kept = 0;

    for (int i = 0; i < s.in.job_count; i++) {
        if (s.jobs[i].held == 0 || s.jobs[i].free_at > s.in.now) {
            s.jobs[kept++] = s.jobs[i];
        }
    }
    s.in.job_count = kept;
}

static void start_all(void)
{
    for (int i = 0; i < s.plan.start_count; i++) {
        struct queue_job *const j = &s.jobs[s.plan.starts[i].job];
        j->held = s.plan.starts[i].devices;
        j->started_at = s.in.now;
        j->free_at = j->likely_at = s.in.now + j->limit_s + SCENE_GRACE;
    }
}

static void submit_at_now(int64_t *seq, int devices, int user)
{
    const int i = scene_job(&s, user, CLASS_NORMAL, devices, SMALL_LIMIT);

    s.jobs[i].seq = s.jobs[i].line = ++*seq;
    s.jobs[i].ticket = s.in.now;
}

/* How long the job of all devices waits when its owner's penalty is `penalty_s`; and when it was the head
 * for the first time the bound that it was told. */
static int64_t wait_of_the_large_job(int64_t penalty_s, int64_t *bound)
{
    const int64_t submitted = NOW + 60 * STEP;
    int64_t seq = 0, large = 0, started = 0;

    *bound = 0;
    scene_open(&s, DEVICES);
    s.users[CLEO].usage_s = (double)(penalty_s * DEVICES);
    for (; started == 0 && s.in.now < NOW + 2000 * STEP; s.in.now += STEP) {
        end_runs();
        submit_at_now(&seq, 1, s.in.now / STEP % 2 == 0 ? ADA : BOB);
        if (s.in.now == submitted) {
            submit_at_now(&seq, DEVICES, CLEO);
            large = seq;
        }
        scene_plan(&s);
        start_all();
        for (int i = 0; i < s.in.job_count && large != 0; i++) {
            if (s.jobs[i].seq == large) {
                started = s.jobs[i].held != 0 ? s.in.now : 0;
                *bound = *bound == 0 && s.plan.head == i ? s.plan.head_at : *bound;
            }
        }
    }
    scene_close(&s);
    return started == 0 ? INT64_MAX : started - submitted;
}

static void a_job_of_all_devices_starts_at_its_bound_whatever_else_comes(void)
{
    const int64_t penalties[] = {0, 2 * STEP, 40 * STEP};

    for (int i = 0; i < 3; i++) {
        int64_t bound = 0;
        const int64_t wait = wait_of_the_large_job(penalties[i], &bound);
        EXPECT(bound > 0);
        EXPECT(wait != INT64_MAX && NOW + 60 * STEP + wait <= bound);
        /* those of an earlier key: what stood before it at first, and what came within the penalty */
        const int64_t earlier = 60 + penalties[i] / STEP + 1;
        EXPECT(wait <= penalties[i] + (earlier / DEVICES + 2) * (SMALL_LIMIT + SCENE_GRACE + STEP));
        printf("# penalty %lld s: waits %lld s\n", (long long)penalties[i], (long long)wait);
    }
}

int main(void)
{
    RUN(a_better_class_goes_before_an_earlier_ticket);
    RUN(tickets_are_shared_inside_a_class_only);
    RUN(the_earlier_ticket_goes_first_across_users);
    RUN(equal_keys_go_by_ticket_and_equal_tickets_by_number);
    RUN(who_used_the_machine_waits_as_long_as_they_had_all_of_it);
    RUN(usage_halves_in_seven_days);
    RUN(a_job_is_moved_past_its_owners_jobs_only);
    RUN(says_what_blocks_a_job_though_devices_are_free);
    RUN(starts_a_job_as_soon_as_nothing_blocks_it);
    RUN(says_what_of_the_machine_is_missing_or_busy);
    RUN(says_whom_the_head_waits_for_and_who_is_behind);
    RUN(passes_the_head_outside_its_devices_or_in_time);
    RUN(a_user_who_has_the_head_passes_it_only_while_the_limits_leave_room);
    RUN(nobody_starts_into_the_window_of_another);
    RUN(a_run_of_a_worse_class_leaves_for_the_head);
    RUN(who_may_not_be_preempted_stays);
    RUN(the_fewest_and_then_the_cheapest_runs_leave);
    RUN(what_is_freed_for_one_job_is_not_given_to_another);
    RUN(a_job_of_all_devices_starts_at_its_bound_whatever_else_comes);
    return tap_done();
}
