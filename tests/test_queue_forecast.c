/* test_queue_forecast.c - when waiting jobs are expected to start. */
#include "tests/queue_scene.h"
#include "tests/tap.h"

static struct scene s;

/* In how many seconds a job is expected to start; -1: not known. */
static int64_t starts_in(int job)
{
    const int64_t at = s.plan.waits[job].expected_at;

    return at == 0 ? -1 : at - NOW;
}

static void a_limit_that_jobs_before_reach_counts(void)
{
    int job[3];

    scene_open(&s, 2);
    (void)scene_run(&s, ADA, CLASS_NORMAL, 0x1, NOW + 500);
    for (int i = 0; i < 3; i++) {
        job[i] = scene_job(&s, ADA, CLASS_NORMAL, 1, 1000);
    }
    s.users[ADA].max_running = 1;
    scene_plan(&s);
    EXPECT(starts_in(job[0]) == 500);
    EXPECT(starts_in(job[1]) == 1500);
    EXPECT(starts_in(job[2]) == 2500);
    s.users[ADA].max_running = 2; /* the first starts now, beside the run */
    scene_plan(&s);
    EXPECT(starts_in(job[0]) == 0);
    EXPECT(starts_in(job[1]) == 500);
    EXPECT(starts_in(job[2]) == 1000);
    scene_close(&s);
}

static void what_starts_in_the_same_plan_counts(void)
{
    scene_open(&s, 3);
    const int first = scene_job(&s, ADA, CLASS_NORMAL, 1, 1000);
    const int second = scene_job(&s, ADA, CLASS_NORMAL, 1, 700);
    const int third = scene_job(&s, BOB, CLASS_NORMAL, 1, 700);
    s.users[ADA].max_running = 1;
    s.jobs[first].likely_s = 800;
    scene_plan(&s);
    EXPECT(scene_start(&s, first) != 0 && scene_start(&s, third) != 0);
    EXPECT(starts_in(first) == 0);
    EXPECT(starts_in(second) == 800);
    EXPECT(starts_in(third) == 0);
    scene_close(&s);
}

static void each_limit_counts_for_itself(void)
{
    scene_open(&s, 4);
    const int run = scene_run(&s, ADA, CLASS_NORMAL, 0x3, NOW + 500);
    const int of_array = scene_job(&s, ADA, CLASS_NORMAL, 1, 1000);
    const int alone = scene_job(&s, ADA, CLASS_NORMAL, 2, 1000);
    const int last = scene_job(&s, ADA, CLASS_NORMAL, 1, 1000);
    s.arrays[0].max_running = s.arrays[1].max_running = 1;
    s.jobs[run].array = s.jobs[of_array].array = 0;
    s.users[ADA].max_devices = 3;
    scene_plan(&s);
    EXPECT(s.plan.waits[of_array].why == WAIT_ARRAY && starts_in(of_array) == 500);
    EXPECT(s.plan.waits[alone].why == WAIT_USER_DEVICES && starts_in(alone) == 1000);
    EXPECT(scene_start(&s, last) != 0); /* one device more is allowed, and its owner holds it */
    s.jobs[last].need.devices = 2;
    scene_plan(&s);
    EXPECT(starts_in(alone) == 500);
    EXPECT(starts_in(last) == 1500);
    s.jobs[last].need.devices = 4; /* more than its owner may ever hold */
    scene_plan(&s);
    EXPECT(starts_in(last) == -1);
    scene_close(&s);
}

static void a_gap_before_the_head_is_used_by_who_is_over_in_time(void)
{
    scene_open(&s, 3);
    (void)scene_run(&s, CLEO, CLASS_NORMAL, 0x1, NOW + 500);
    (void)scene_run(&s, CLEO, CLASS_NORMAL, 0x6, NOW + 2000);
    const int head = scene_job(&s, ADA, CLASS_NORMAL, 3, 1000);
    const int small = scene_job(&s, BOB, CLASS_NORMAL, 1, 1500 - SCENE_GRACE);
    const int late = scene_job(&s, BOB, CLASS_NORMAL, 1, 1500);
    scene_plan(&s);
    EXPECT(starts_in(head) == 2000);
    EXPECT(starts_in(small) == 500);
    EXPECT(starts_in(late) == 3000);
    s.jobs[small].limit_s++; /* it might not be over */
    scene_plan(&s);
    EXPECT(starts_in(small) == 3000);
    scene_close(&s);
}

static void runs_end_when_they_are_likely_to_or_are_told_to(void)
{
    scene_open(&s, 1);
    const int run = scene_run(&s, CLEO, CLASS_LOW, 0x1, NOW + 5000);
    const int job = scene_job(&s, ADA, CLASS_LOW, 1, 1000);
    const int next = scene_job(&s, ADA, CLASS_LOW, 1, 1000);
    s.jobs[run].likely_at = NOW + 700;
    scene_plan(&s);
    EXPECT(starts_in(job) == 700);
    s.jobs[run].likely_at = NOW - 700; /* it is late; nothing is free now all the same */
    scene_plan(&s);
    EXPECT(starts_in(job) == 1);
    s.jobs[run].likely_at = NOW + 700;
    s.jobs[job].class = CLASS_NORMAL; /* now the run leaves for it */
    scene_plan(&s);
    EXPECT(s.plan.preempt_count == 1);
    EXPECT(starts_in(job) == SCENE_GRACE);
    EXPECT(starts_in(next) == SCENE_GRACE + 1000);
    scene_close(&s);
}

static void a_job_that_begins_later_keeps_no_device_until_then(void)
{
    scene_open(&s, 1);
    (void)scene_run(&s, CLEO, CLASS_NORMAL, 0x1, NOW + 500);
    const int later = scene_job(&s, ADA, CLASS_NORMAL, 1, 1000);
    const int soon = scene_job(&s, BOB, CLASS_NORMAL, 1, 1000);
    const int retried = scene_job(&s, BOB, CLASS_NORMAL, 1, 1000);
    s.jobs[later].begin_at = NOW + 1000;
    s.jobs[retried].retry_at = NOW + 9000;
    scene_plan(&s);
    EXPECT(starts_in(soon) == 500);
    EXPECT(starts_in(later) == 1500);
    EXPECT(starts_in(retried) == 9000);
    scene_close(&s);
}

static void a_child_follows_its_parents_wherever_they_stand(void)
{
    scene_open(&s, 1);
    const int run = scene_run(&s, CLEO, CLASS_NORMAL, 0x1, NOW + 500);
    const int child = scene_job(&s, ADA, CLASS_URGENT, 1, 1000);
    const int grandchild = scene_job(&s, ADA, CLASS_URGENT, 1, 1000);
    const int parent = scene_job(&s, BOB, CLASS_IDLE, 1, 300);
    s.jobs[child].parent = s.jobs[parent].seq;
    s.jobs[grandchild].parent = s.jobs[child].seq;
    scene_plan(&s);
    EXPECT(starts_in(parent) == 500);
    EXPECT(starts_in(child) == 800);
    EXPECT(starts_in(grandchild) == 1800);
    s.jobs[child].parent = s.jobs[run].seq;
    scene_plan(&s);
    EXPECT(starts_in(child) == 500);
    s.jobs[child].parent = 4711; /* it is not in the queue */
    scene_plan(&s);
    EXPECT(starts_in(child) == -1 && starts_in(grandchild) == -1);
    scene_close(&s);
}

static void a_child_does_not_take_what_is_free_before_its_parent_ends(void)
{
    scene_open(&s, 2);
    const int parent = scene_run(&s, CLEO, CLASS_NORMAL, 0x1, NOW + 500);
    (void)scene_run(&s, CLEO, CLASS_NORMAL, 0x2, NOW + 200);
    const int child = scene_job(&s, ADA, CLASS_URGENT, 1, 1000);
    const int other = scene_job(&s, BOB, CLASS_NORMAL, 1, 1000);
    s.jobs[child].parent = s.jobs[parent].seq;
    scene_plan(&s);
    EXPECT(starts_in(child) == 500);
    EXPECT(starts_in(other) == 200);
    scene_close(&s);
}

static void who_lacks_devices_stands_in_nobodys_way(void)
{
    scene_open(&s, 2);
    (void)scene_run(&s, ADA, CLASS_NORMAL, 0x1, NOW + 500);
    const int large = scene_job(&s, ADA, CLASS_URGENT, 2, 1000);
    const int small = scene_job(&s, ADA, CLASS_NORMAL, 1, 1000);
    s.users[ADA].max_running = 1;
    s.in.view.busy = 0x2;
    scene_plan(&s);
    EXPECT(s.plan.waits[large].why == WAIT_USER_JOBS);
    EXPECT(starts_in(large) == -1);
    EXPECT(starts_in(small) == 500);
    s.in.forecast = 0;
    scene_plan(&s);
    EXPECT(starts_in(large) == -1);
    EXPECT(starts_in(small) > 0);
    scene_close(&s);
}

static void the_rest_is_told_from_the_work_ahead(void)
{
    scene_open(&s, 2);
    (void)scene_run(&s, CLEO, CLASS_NORMAL, 0x3, NOW + 500);
    const int played = scene_job(&s, ADA, CLASS_NORMAL, 2, 1000);
    const int first = scene_job(&s, ADA, CLASS_NORMAL, 2, 1000);
    const int second = scene_job(&s, ADA, CLASS_NORMAL, 1, 1000);
    const int child = scene_job(&s, ADA, CLASS_NORMAL, 1, 1000);
    s.jobs[child].parent = s.jobs[second].seq;
    s.in.forecast = 1;
    scene_plan(&s);
    EXPECT(starts_in(played) == 500);
    EXPECT(starts_in(first) == 500); /* no work of unplayed jobs is ahead of it */
    EXPECT(starts_in(second) == 1500);
    EXPECT(starts_in(child) == 2500);
    scene_close(&s);
}

static void absurd_times_stay_in_range(void)
{
    scene_open(&s, 2);
    const int run = scene_run(&s, CLEO, CLASS_IDLE, 0x1, NOW + 500);
    const int other = scene_run(&s, CLEO, CLASS_IDLE, 0x2, NOW + 500);
    const int job = scene_job(&s, ADA, CLASS_NORMAL, 2, INT64_MAX);
    const int next = scene_job(&s, ADA, CLASS_NORMAL, 1, INT64_MIN);
    s.in.now = QUEUE_FAR - 10;
    s.jobs[run].started_at = INT64_MIN;
    s.jobs[other].started_at = INT64_MIN;
    s.jobs[run].free_at = s.jobs[run].likely_at = INT64_MAX;
    s.jobs[other].free_at = s.jobs[other].likely_at = INT64_MAX;
    s.jobs[job].ticket = INT64_MAX;
    s.jobs[next].ticket = INT64_MIN;
    s.in.window_count = 1;
    s.windows[0] = (struct queue_window){INT64_MIN, INT64_MAX, 0x1, BOB};
    scene_plan(&s);
    EXPECT(s.plan.waits[job].expected_at == 0 || s.plan.waits[job].expected_at > s.in.now);
    EXPECT(s.plan.waits[next].expected_at == 0 || s.plan.waits[next].expected_at > s.in.now);
    s.in.window_count = 0;
    scene_plan(&s);
    EXPECT(s.plan.preempt_count == 0 || s.plan.head_at <= QUEUE_FAR);
    EXPECT(s.plan.head_at >= s.in.now);
    s.in.forecast = 0;
    scene_plan(&s);
    EXPECT(s.plan.waits[job].expected_at <= QUEUE_FAR);
    scene_close(&s);
}

int main(void)
{
    RUN(a_limit_that_jobs_before_reach_counts);
    RUN(what_starts_in_the_same_plan_counts);
    RUN(each_limit_counts_for_itself);
    RUN(a_gap_before_the_head_is_used_by_who_is_over_in_time);
    RUN(runs_end_when_they_are_likely_to_or_are_told_to);
    RUN(a_job_that_begins_later_keeps_no_device_until_then);
    RUN(a_child_follows_its_parents_wherever_they_stand);
    RUN(a_child_does_not_take_what_is_free_before_its_parent_ends);
    RUN(who_lacks_devices_stands_in_nobodys_way);
    RUN(the_rest_is_told_from_the_work_ahead);
    RUN(absurd_times_stay_in_range);
    return tap_done();
}
